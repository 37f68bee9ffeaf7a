"A map at Hugging Face, through the stand-in: a machine lost, resumed, its records fetched."
import pytest

pytest.importorskip("huggingface_hub")
from test_map import map_items, ran, work
from test_on_hf import container, hub  # noqa: F401
from test_videos import check_both, lab  # noqa: F401
from waiting import until

from mabe_nb.errors import ConfigError, MabeError
from mabe_nb.hardware.catalog import usd_per_hour
from mabe_nb.remote.groups.group import attach, groups
from mabe_nb.remote.groups.plan import plan_map
from mabe_nb.remote.job import all_jobs

ITEMS = [2, 3, 77, *range(4, 10), *range(150, 156)]


@pytest.mark.slow
def test_a_machine_is_lost_and_the_group_resumed(hub, tmp_path):
    top, said = tmp_path/"ran", []
    top.mkdir()
    items = [{"top": str(top), "n": n} for n in ITEMS]
    group = map_items(work, items, on="hf", at_once=3, say=said.append)
    most = group.most_usd()
    assert len(group.tasks()) == 3 and f"at most about {most:.2f} USD" in said[0] and most > 0
    early = {n for n in ITEMS if n < 100 and n != 77}
    until(lambda: all(ran(top)[n] >= 1 + (n % 20 == 3) * 0 for n in early))
    assert attach(group.id).status() == "running"
    for task in group.tasks(): container(hub, task).kill()
    until(lambda: group.status() == "died")
    before = {ITEMS[n]: ran(top)[ITEMS[n]] for n in group.done()}
    (top/"go").touch()
    assert group.resume().wait(120, progress=False) == "error"
    assert group.results() == {i: n * n for i, n in enumerate(ITEMS) if n != 77}
    assert group.rest().error.tolist() == ["ValueError: always"]
    assert {n: ran(top)[n] for n in before} == before
    assert most < group.most_usd() and 0 < group.cost() <= group.most_usd()
    group.cancel()
    group.remove()
    assert not group.folder.exists() and not hub_files(hub)


def hub_files(hub):
    return [p for p in hub.buckets.folder("mouse/mabe-jobs").rglob("*") if p.is_file()]


@pytest.mark.slow
def test_prepared_and_predicted_there(lab, hub, tmp_path, capsys):
    check_both(lab, tmp_path, "--on", "hf", "--at-once", "2")
    assert "at most 2 at once, at most about" in capsys.readouterr().out


def test_each_task_is_billed_in_whole_minutes():
    plan = plan_map([0.9], 100, "hf", at_once=10, tasks=100, gpu="t4-small", start_up=60, again=0)
    assert plan.usd == pytest.approx(100 * 2 * 0.40 / 60)
    here = plan_map([0.9], 100, "modal", at_once=10, tasks=100, gpu="T4", start_up=60, again=0)
    assert here.usd == pytest.approx(100 * 60.9 / 3600 * usd_per_hour("T4"))


def test_what_it_cannot_is_refused_before_it_is_paid(hub, monkeypatch):
    for words, how in (("starts all tasks at once", {"tasks": 9}), ("at most 20,000 items",
                       {"items": range(90_000)}), ("did you mean 'A10'", {"gpu": "A10H"})):
        with pytest.raises(ConfigError, match=words):
            map_items(work, **{"items": [1, 2], "on": "hf", "say": print} | how)
    assert hub.asked == [] and groups() == []
    monkeypatch.setenv("MABE_BUDGET", "0.2")
    with pytest.raises(ConfigError, match="may cost 0.[2-9][0-9] USD.* 0.00 set aside for"):
        map_items(work, [1, 2], on="hf", gpu="t4-small", timeout=300, say=print)
    assert groups() == [] and all_jobs() == []


def test_refused_on_the_way_nothing_is_left(hub):
    hub.refuse["POST /api/jobs"] = 402
    with pytest.raises(MabeError, match="no credit left"):
        map_items(work, [1, 2], on="hf", say=lambda text: None)
    assert groups() == [] and all_jobs() == [] and not hub.jobs and not hub_files(hub)

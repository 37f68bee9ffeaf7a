"A map at Modal, through the stand-in: cancelled, resumed, its records fetched and priced."
import json

import pytest
from grpclib import Status

modal = pytest.importorskip("modal")
from modal_jobs import calm, cloud, submit, until  # noqa: E402, F401
from test_map import begin, map_items, ran, start_tagged, tag_digest, work  # noqa: E402

from mabe_nb import cli  # noqa: E402
from mabe_nb.errors import ConfigError  # noqa: E402
from mabe_nb.remote import costs  # noqa: E402
from mabe_nb.remote.groups.group import attach  # noqa: E402
from mabe_nb.remote.inside.items import done_items  # noqa: E402
from mabe_nb.remote.places.job_state import retried  # noqa: E402

pytestmark = pytest.mark.cloud
ITEMS = [2, 3, 77, *range(4, 10), *range(150, 160)]


def test_cancelled_and_resumed_it_pays_once(cloud, tmp_path):
    top, said = tmp_path/"ran", []
    top.mkdir()
    items = [{"top": str(top), "n": n} for n in ITEMS]
    sent = cloud.cloud.calls_seen["VolumePutFiles2"]
    group = map_items(work, items, on="modal", at_once=2, tasks=3, say=said.append)
    assert cloud.cloud.calls_seen["VolumePutFiles2"] <= sent + 4 # data, and all tasks, at once
    most = group.most_usd()
    assert f"at most 2 at once, at most about {most:.2f} USD" in said[0] and most > 0.3
    assert [t.spec["options"]["max_containers"] for t in group.tasks()] == [2] * 3
    until(lambda: group.counts()["done"] >= 2)
    assert attach(group.id).status() == "running"
    group.cancel()
    assert group.status() == "cancelled"
    before = {ITEMS[i] for i in done_items(group.folder)}
    (top/"go").touch()
    assert group.resume().wait(120, progress=False) == "error"
    assert group.results() == {i: n * n for i, n in enumerate(ITEMS) if n != 77}
    assert group.rest().error.tolist() == ["ValueError: always"]
    assert all(ran(top)[n] == 1 for n in before if n % 20 != 3)
    assert ran(top)[77] in (2, 3) # one that was cut short may have come too late
    assert 0 < group.cost() <= most < group.most_usd()
    paid = [r for r in costs.receipts() if r["id"].startswith(group.id)]
    assert len(paid) == len(group.tasks()) == 6
    group.remove()
    assert not group.folder.exists()


def test_the_same_line_with_another_card_says_its_price_and_rents_that(cloud, tmp_path):
    said, tag = [], {"verb": "begin", "digest": tag_digest("begin")}
    line = lambda gpu: start_tagged(begin, [str(tmp_path)] * 3, tag, said.append, on="modal",
                                    gpu=gpu, at_once=2, timeout=100)
    group = line("B200")
    until(lambda: list(tmp_path.glob("began.*")))
    group.cancel()
    until(lambda: group.status() == "cancelled")
    dear = group.most_usd()
    (tmp_path/"go").touch()
    again = line("T4")
    assert again.id == group.id and {t.spec["gpu"] for t in again.last_tasks()} == {"T4"}
    assert f"3 items, at most about {again.most_usd() - dear:.2f} USD" in said[-1]
    assert "; gpu is T4 now and was B200" in said[-1]
    assert again.wait(120, progress=False) == "done"


def test_a_network_that_fails_for_long_loses_no_group(cloud, tmp_path, monkeypatch):
    (tmp_path/"go").touch()
    monkeypatch.setattr(retried, "__defaults__", (0.0, 0.05)) # none asks again but who waits
    group = map_items(work, [{"top": str(tmp_path), "n": n} for n in (150, 151)], on="modal")
    lost = cloud.faults.fail
    for rpc in ("VolumeListFiles2", "VolumeGetFile2"): lost[rpc] = [Status.UNAVAILABLE] * 12
    assert group.wait(120, progress=False) == "done"
    assert not any(lost.values()) and group.results() == {0: 150**2, 1: 151**2}


def test_jobs_on_a_shared_volume_are_seen_and_left_alone(cloud, tmp_path, monkeypatch, capsys):
    job = submit("1", on="modal", timeout=60)
    until(lambda: job.status() == "done")
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"other"))
    assert cli.main(["jobs", "list", "--all-users", "--json"]) == 0
    rows = {r["id"]: r for r in json.loads(capsys.readouterr().out)}
    assert rows[job.id]["status"] == "done" and rows[job.id]["on"] == "modal"
    for action in ("cancel", "rm"):
        assert cli.main(["jobs", action, job.id]) == 2
    assert job.status() == "done" and job.files()


def test_more_than_a_folder_there_holds_is_refused_before_it_is_paid(cloud, capsys):
    def calls(): # Containers of other tests may still keep what they made
        return {k: n for k, n in cloud.cloud.calls_seen.items() if k != "VolumeCommit"}

    before = calls()
    with pytest.raises(ConfigError, match=r"modal takes at most 10,000 items a task: give tasks=3"):
        map_items(work, range(25_000), on="modal", at_once=2)
    assert calls() == before
    with pytest.raises(ConfigError, match="a group runs at one place"):
        map_items(work, [1], on="modal", gpu=["modal:L4", "hf-jobs:l4x1"])
    assert calls() == before

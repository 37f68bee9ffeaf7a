"A map at Modal, through the stand-in: cancelled, resumed, its records fetched and priced."
import pytest

modal = pytest.importorskip("modal")
from modal_jobs import calm, cloud, until  # noqa: E402, F401
from test_map import map_items, ran, work  # noqa: E402

from mabe_nb.remote import costs  # noqa: E402
from mabe_nb.remote.group import attach  # noqa: E402
from mabe_nb.remote.inside.records import done_items  # noqa: E402

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

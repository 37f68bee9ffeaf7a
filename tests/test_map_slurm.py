"A map as one job array of a real Slurm: parent killed, array cancelled, resumed."
import os
import subprocess
import sys

from test_map import ITEMS, QUIET, check_end, map_items, ran, top, until, work  # noqa: F401
from test_real_slurm import mabe_home, pytestmark, slurm  # noqa: F401

from mabe_nb.remote.groups.group import attach
from mabe_nb.remote.inside.items import done_items

START = """
import sys; sys.path.insert(0, sys.argv[1])
import test_map as t
items = [{'top': sys.argv[2], 'n': n} for n in range(t.ITEMS)]
g = t.map_items(t.work, items, on='slurm', at_once=2, tasks=4, **t.QUIET)
print(g.id, flush=True)
import os; os._exit(9)
"""


def test_an_array_that_lost_its_parent_is_cancelled_and_resumed(slurm, top):
    out = subprocess.run([sys.executable, "-c", START, os.path.dirname(__file__), str(top)],
                         capture_output=True, text=True, timeout=120)
    assert out.returncode == 9, out.stderr
    group = attach(out.stdout.strip())
    ids = [task.spec["handle"]["job"] for task in group.tasks()]
    array = ids[0].partition("_")[0]
    assert ids == [f"{array}_{n}" for n in range(4)]
    assert "ArrayTaskThrottle=2" in slurm("scontrol", "show", "job", array)
    until(lambda: len(done_items(group.folder)) >= 60)
    until(lambda: [t.status() for t in group.tasks()] == ["running"] * 2 + ["queued"] * 2)
    assert group.status() == "running" and 60 <= len(group.results()) < ITEMS
    slurm("scancel", array)
    until(lambda: {t.status() for t in group.tasks()} == {"cancelled"})
    until(lambda: not slurm("squeue", "-h"))
    before = set(done_items(group.folder))
    assert group.status() == "cancelled" and group.counts()["left"] > 40
    (top/"go").touch()
    assert group.resume().wait(120, progress=False) == "error"
    check_end(group, top, before)
    assert len(group.tasks()) == 8

"A map over items on this machine: killed, resumed, counted; nothing that is done runs again."
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from waiting import processes_of, until

from mabe_nb import cli
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.files import write_json
from mabe_nb.remote.groups.group import attach, groups
from mabe_nb.remote.inside.items import done_items
from mabe_nb.remote.job import all_jobs, jobs
from mabe_nb.remote.groups.map import map as map_items
from mabe_nb.remote.groups.tagged import start_tagged, tag_digest
from mabe_nb.remote.groups.prune import prune

ITEMS = 200
QUIET = {"say": lambda text: None}


def work(item):
    "Writes that it ran; 5 % fail the first time, one fails always, 150 waits to be let go."
    import os, time, uuid
    top, n = item["top"], item["n"]
    open(f"{top}/{n}.{uuid.uuid4().hex}", "x").close()
    ran = sum(name.startswith(f"{n}.") for name in os.listdir(top))
    if n == 77: raise ValueError("always")
    if n % 20 == 3 and ran == 1: raise OSError("this once")
    while n >= 150 and not os.path.exists(f"{top}/go"): time.sleep(0.05)
    return n * n


def ran(top): return Counter(int(p.name.partition(".")[0]) for p in top.glob("*.*"))


@pytest.fixture(autouse=True)
def mabe_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))


@pytest.fixture
def top(tmp_path):
    (tmp_path/"ran").mkdir()
    yield tmp_path/"ran"
    (tmp_path/"ran"/"go").touch() # whatever still waits, of a test that failed


def kill_task(group):
    "The runner of the task, and so all that it started."
    (task,) = [task for task in group.tasks() if task.status() == "running"]
    os.kill(task.spec["handle"]["pid"], signal.SIGKILL)
    until(lambda: task.status() == "died")


def check_end(group, top, before):
    assert group.results() == {n: n * n for n in range(ITEMS) if n != 77}
    assert group.counts() == {"items": ITEMS, "done": ITEMS - 1, "failed": 1, "left": 0}
    (row,) = group.rest().to_dict("records")
    assert row["item"] == 77 and row["status"] == "failed" and row["attempts"] == 2
    assert row["error"] == "ValueError: always"
    times = ran(top)
    once = {n for n in range(ITEMS) if n % 20 != 3 and n != 77}
    assert {n: times[n] for n in before & once} == dict.fromkeys(before & once, 1)
    assert all(times[n] == 2 for n in before - once) and times[77] == 2


def test_killed_attached_and_resumed(top):
    "The kernel that started it is gone, then its task is killed."
    code = ("import sys; sys.path.insert(0, sys.argv[1])\nimport test_map as t\n"
            "g = t.map_items(t.work, [{'top': sys.argv[2], 'n': n} for n in range(t.ITEMS)],"
            " at_once=3, **t.QUIET)\nprint(g.id, flush=True)\nimport os; os._exit(9)")
    out = subprocess.run([sys.executable, "-c", code, os.path.dirname(__file__), str(top)],
                         capture_output=True, text=True, timeout=120)
    assert out.returncode == 9, out.stderr
    group = attach(out.stdout.strip())
    until(lambda: len(done_items(group.folder)) >= 100)
    assert group.status() == "running" and len(group.results()) >= 100
    with pytest.raises(ConfigError, match="is still running"): group.resume()
    kill_task(group)
    until(lambda: not processes_of(group.id))
    before = set(done_items(group.folder))
    assert group.status() == "died" and group.counts()["left"] > 40
    (top/"go").touch()
    assert group.resume().wait(120, progress=False) == "error"
    check_end(group, top, before)
    executed = ran(top)
    group.resume()
    assert ran(top) == executed and len(group.tasks()) == 2
    assert [g.id for g in groups()] == [group.id]


def test_cancelled_what_is_done_stays(top, monkeypatch):
    monkeypatch.setenv("LAB_KEY", "a-word-of-ours")
    items = [{"top": str(top), "n": n} for n in range(145, 155)]
    group = map_items(work, items, at_once=2, secrets=["LAB_KEY"], **QUIET)
    until(lambda: len(done_items(group.folder)) == 5)
    group.cancel()
    assert group.status() == "cancelled" and group.counts()["failed"] == 0
    assert not (group.folder/"failed").exists() or not list((group.folder/"failed").iterdir())
    was = (group.folder/"group.json").read_text()
    monkeypatch.delenv("LAB_KEY")
    with pytest.raises(ConfigError, match="'LAB_KEY' is not in the environment"): group.resume()
    assert group.status() == "cancelled" and (group.folder/"group.json").read_text() == was
    monkeypatch.setenv("LAB_KEY", "a-word-of-ours")
    (top/"go").touch()
    assert group.resume().wait(120, progress=False) == "done"
    assert [ran(top)[n] for n in range(145, 150)] == [1] * 5
    group.remove()
    assert groups() == [] and not group.folder.exists()
    with pytest.raises(ConfigError, match="there is no job"): attach(group.id)


def test_a_task_whose_group_is_gone_is_a_job(top):
    "It runs, and may cost: it is listed, can be stopped, and goes with the old jobs."
    group = map_items(work, [{"top": str(top), "n": 150}], **QUIET)
    assert jobs() == []
    shutil.rmtree(group.folder)
    (task,) = jobs()
    assert prune(0) == ([], [])
    task.cancel()
    assert prune(0) == ([task.id], []) and all_jobs() == []


def test_arrays_travel_and_come_back():
    def doubled(x):
        import numpy as np
        return {"twice": 2 * x, "sum": np.array([x.sum()])}
    group = map_items(doubled, [np.full((2, n + 1), n) for n in range(3)], at_once=1, **QUIET)
    assert group.wait(120, progress=False) == "done"
    assert np.array_equal(group.result(2)["twice"], np.full((2, 3), 4))
    assert not list(group.folder.rglob("*.pkl"))


def test_items_and_arguments_that_hold_arrays(tmp_path):
    "All that can be written can be read, by each process."
    def total(item, k): return float((item["x"] * k).sum()) if isinstance(item, dict) else item
    group = map_items(total, [{"x": np.arange(3), "a": 1}, 5], given={"k": np.array([1, 2, 3])}, at_once=1, **QUIET)
    assert group.wait(120, progress=False) == "done", group.rest()
    assert (group.result(0), group.result(1)) == (8.0, 5)


def test_a_module_that_is_not_there_is_named():
    def needs(n):
        import no_such_module_anywhere
        return no_such_module_anywhere.f(n)
    group = map_items(needs, [1, 2], at_once=1, **QUIET)
    assert group.wait(120, progress=False) == "error" and group.counts()["failed"] == 2
    assert "ModuleNotFoundError" in group.rest().error[0]


def begin(top):
    "Says that it began; does nothing more until it is let go."
    import os, time, uuid
    open(f"{top}/began.{uuid.uuid4().hex}", "x").close()
    while not os.path.exists(f"{top}/go"): time.sleep(0.05)
    return 1


def mended(top):
    import os
    if not os.path.exists(f"{top}/go"): raise OSError("no space left")
    return 1


def test_what_failed_for_good_is_tried_once_more_when_that_is_asked(top, capsys):
    group = map_items(mended, [str(top)] * 3, at_once=1, **QUIET)
    assert cli.main(["jobs", "attach", group.id, "--json"]) == 2
    out, said = capsys.readouterr()
    assert json.loads(out)["failed"] == 3
    assert f"'mabe jobs resume {group.id} --failed' tries them once more" in said
    (top/"go").touch()
    assert cli.main(["jobs", "resume", group.id]) == 0 and len(group.tasks()) == 1
    assert "nothing is left; 3 failed for good: 'mabe jobs resume" in capsys.readouterr().out
    assert cli.main(["jobs", "resume", group.id, "--failed"]) == 0
    assert "items to do: 3" in capsys.readouterr().out
    assert cli.main(["jobs", "attach", group.id]) == 0 and group.results() == {0: 1, 1: 1, 2: 1}
    assert cli.main(["jobs", "attach", group.id, "--failed"]) == 2


def test_resumed_by_another_process_it_goes_on_from_there(top):
    "A notebook that knows the round before: it spoke of that one, and wrote over the tasks of the next."
    group = map_items(mended, [str(top)] * 2, at_once=1, **QUIET)
    assert group.wait(60, progress=False) == "error"
    other = attach(group.id).resume(failed=True)
    assert other.wait(60, progress=False) == "error" and other.failed() == {0: 3, 1: 3}
    assert [t.id for t in group.last_tasks()] == [t.id for t in other.last_tasks()] and group.failed() == other.failed()
    (top/"go").touch()
    assert group.resume(failed=True).wait(60, progress=False) == "done"
    assert [t.id[-6:] for t in group.tasks()] == ["1-0000", "2-0000", "3-0000"]


def test_the_same_line_with_another_limit_goes_on_as_it_says(top):
    said, tag = [], {"verb": "begin", "digest": tag_digest("begin")}
    line = lambda **how: start_tagged(begin, [str(top)] * 2, tag, said.append, **how)
    group = line(at_once=1, timeout=1)
    assert group.wait(60, progress=False) == "timeout"
    begun = len(list(top.glob("began.*"))) # 0 where a loaded machine took all of the second
    with pytest.raises(ConfigError, match="unknown option of local 'memory'"): line(memory=3)
    assert attach(group.id).spec["options"] == {} and len(group.tasks()) == 1
    assert line(timeout=500, at_once=4).id == group.id
    assert said[-1].endswith("it goes on with 2 items; at_once is 4 now and was 1; tasks is 4 now "
                             "and was 1; timeout is 500 now and was 1"), said
    until(lambda: len(list(top.glob("began.*"))) == begun + 2)
    line(timeout=70, at_once=4)
    assert "is running: it goes on with timeout 500, as it was started; 'mabe jobs" in said[-1]
    (top/"go").touch()
    assert group.wait(60, progress=False) == "done" and group.results() == {0: 1, 1: 1}
    assert {task.spec["timeout"] for task in group.tasks()} == {1, 500} and len(groups()) == 1
    assert line(on="slurm").id == group.id and said[-1].endswith("and is done: it goes on")


def test_the_same_line_for_another_place_begins_there_or_is_refused(top):
    pytest.importorskip("submitit")
    said, tag = [], {"verb": "begin", "digest": tag_digest("begin")}
    line = lambda **how: start_tagged(begin, [str(top)] * 2, tag, said.append, at_once=1, **how)
    there = line(on="slurm", cluster="local")
    until(lambda: list(top.glob("began.*")))
    with pytest.raises(ConfigError, match="on slurm and is running: give on='slurm'"): line()
    there.cancel()
    here = line()
    assert [g.id for g in groups()] == [here.id] != [there.id] and here.on == "local"
    assert any("without one item done: it is removed, and all begins on local" in w for w in said)
    (top/"go").touch()
    assert here.wait(60, progress=False) == "done"
    here.done()[1].unlink()
    with pytest.raises(ConfigError, match="with 1 of 2 items done: go on with on='local'"):
        line(on="slurm", cluster="local")
    assert line().wait(60, progress=False) == "done" and len(here.tasks()) == 2


def test_one_line_in_a_list(capsys):
    def same(n): return n
    group = map_items(same, [1, 2, 3], at_once=1, **QUIET)
    assert cli.main(["jobs", "attach", group.id]) == 0 and cli.main(["jobs"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(group.id) and "done" in line
    assert line.endswith("3 items: 3 done, 0 failed, 0 left")
    assert jobs() == [] and cli.main(["jobs", "rm", group.id]) == 0
    assert groups() == [] and all_jobs() == []


def test_nothing_of_a_record_is_believed(top):
    "Files that no item could have left are no results, and none is run."
    group = map_items(work, [{"top": str(top), "n": n} for n in range(2)], at_once=1, **QUIET)
    assert group.wait(120, progress=False) == "done"
    done = group.folder/"done"
    for name in ("7.json", "01.json", "1.pkl", "-1.json", "1.json.npy"): (done/name).touch()
    assert group.results() == {0: 0, 1: 1} and group.counts()["done"] == 2
    (done/"0.json").unlink()
    (done/"0.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': "
                               b"False, 'shape': (1,), }" + b" " * 60 + b"\n" + b"x" * 8)
    with pytest.raises(DataError): group.results()
    index = group.folder/"pack"/"in"/"index.json"
    whole = index.read_bytes()
    index.unlink()
    with pytest.raises(DataError, match="index.json: file not found"): group.rest()
    os.mkfifo(index)
    with pytest.raises(DataError, match="is a pipe"): group.rest()
    index.unlink()
    index.write_bytes(whole)
    (index.parent/"items.json").write_text("{}")
    (group.folder/"done"/"1.json").unlink()
    (group.folder/"done"/"0.npy").unlink()
    with pytest.raises(DataError, match="holds no item 0"): group.rest()
    about = group.spec
    for odd in ({"id": "other"}, about | {"items": 10**18}, about | {"items": -1},
                about | {"tag": []}):
        write_json(group.folder/"group.json", odd)
        with pytest.raises(DataError, match="is no group"): attach(group.id)
    with pytest.warns(UserWarning, match="left out"): assert groups() == []
    write_json(group.folder/"group.json", about | {"tag": {"verb": []}})
    assert cli.main(["jobs", "attach", group.id]) == 2 # an item without a result, no more
    for bad in ("../x", "a/b", ".", "-x", ""):
        with pytest.raises(DataError, match="cannot name a file"): attach(bad)


def waits(item): return progress(item, 1) # noqa: F821 a job has it


def test_a_map_has_no_names_of_a_job():
    with pytest.raises(ConfigError, match="uses 'progress', which .*calls of a map do not"):
        map_items(waits, [1], **QUIET)

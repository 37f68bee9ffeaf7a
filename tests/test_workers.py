"Nobody said how many processes: they are started where their start is worth it, and not else."
import os
import sys
import time
from functools import partial
from types import ModuleType

import numpy as np
import pytest

from mabe_nb import workers
from mabe_nb.data.audit import audit
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.synthetic import write_colony
from mabe_nb.workers import side_by_side


def who(number, load=0):
    time.sleep(0.05) # so that one process does not do all
    return os.getpid()


@pytest.fixture
def eager(monkeypatch):
    "Anything is worth a start, on four cores."
    monkeypatch.setattr(workers, "PATIENCE", 0.01)
    monkeypatch.setattr(workers, "WORTH", 0.02)
    monkeypatch.setattr(workers, "cores", lambda: 4)


def pids(work=who, n=6, *args):
    found = dict(side_by_side(work, range(n), None, *args))
    assert sorted(found) == [*range(n)], "each once, none lost"
    return [found[i] for i in range(n)]


def test_short_work_stays_here():
    assert {*pids()} == {os.getpid()}


def test_the_first_is_done_here_and_the_rest_by_others(eager):
    first, *others = pids()
    assert first == os.getpid() and os.getpid() not in others and len({*others}) > 1


def test_what_is_left_decides(eager, monkeypatch):
    monkeypatch.setattr(workers, "WORTH", 0.12) # Two and a half of them
    assert pids(n=3) == [os.getpid()] * 3 and os.getpid() not in pids(n=4)[1:]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("why", ["cell", "large", "cannot", "memory", "script", "one core"])
def test_what_no_worker_could_do_stays_here(eager, monkeypatch, why, tmp_path):
    work, args = who, ()
    if why == "cell":
        cell = type("OfACell", (), {"__module__": "__main__", "__qualname__": "OfACell"})
        monkeypatch.setattr(sys.modules["__main__"], "OfACell", cell, raising=False)
        work = partial(who, load=cell)
    if why == "large": work = partial(who, load=np.zeros(3_000_000))
    if why == "cannot": args = (print, (n for n in "ab"))
    if why == "memory": monkeypatch.setattr(workers, "free_memory", lambda: 10**6)
    if why == "one core": monkeypatch.setattr(workers, "cores", lambda: 1)
    if why == "script":
        (tmp_path/"script.py").write_text("import mabe_nb as mb; mb.prepare('data')\n")
        main = ModuleType("__main__")
        main.__file__ = str(tmp_path/"script.py")
        monkeypatch.setitem(sys.modules, "__main__", main)
    assert {*pids(work, 4, *args)} == {os.getpid()}


def test_prepared_by_some_it_is_what_one_prepares(eager, tmp_path):
    write_colony(tmp_path/"data", videos=3, minutes=0.2)
    for name, number in (("one", 1), ("some", None)):
        prepare(open_dataset(tmp_path/"data"), "coords", tmp_path/name, workers=number)
    one, some = ({p.relative_to(tmp_path/name): p.read_bytes() for p in (tmp_path/name).rglob("*")
                  if p.is_file() and p.suffix != ".json"} for name in ("one", "some"))
    assert one == some and len(one) >= 3


def test_looked_at_by_some_it_is_what_one_sees(eager, tmp_path, monkeypatch):
    write_colony(tmp_path/"data", videos=5, minutes=0.2)
    next((tmp_path/"data").rglob("train_tracking/*/3.parquet")).write_text("no table")
    begun = []
    monkeypatch.setattr(workers, "worker_pool",
                        lambda *args, pool=workers.worker_pool: begun.append(1) or pool(*args))
    one, some = (audit(tmp_path/"data", workers=number) for number in (1, None))
    assert some.table.equals(one.table) and (some.videos, some.frames) == (one.videos, one.frames)
    assert begun and "unreadable" in {*one.table.kind}

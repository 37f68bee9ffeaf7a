"""Members trained side by side: the same bits, one that dies, one that is interrupted."""
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError
from mabe_nb.train.ensemble.queue import MemberTask, train_members, default_workers
from mabe_nb.train.ensemble.members import load_member
from mabe_nb.train.arithmetic.dropout import ByteDropout
from mabe_nb.workers import require_main_guard

SMALL = {"features": "symmetric", "epochs": 1, "conv_channels": [4], "lstm_hidden": 4}
TREES = {"sample": 6, "rounds": 3}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("tasks")
    write_colony(root/"colony", videos=3, minutes=0.2, seed=0)
    data = open_dataset(root/"colony")
    return prepare(data, "symmetric", out=root/"features", progress=False)


def tasks(prepared, folder, n=3):
    ids = tuple(prepared.videos)
    return [MemberTask(*(("boost", prepared, ids, TREES) if k else ("net", prepared, ids, SMALL)),
                   k, folder/f"member-{k}.safetensors") for k in range(n)]


@pytest.mark.slow
def test_side_by_side_is_one_after_the_other(prepared, tmp_path):
    (tmp_path/"one").mkdir(), (tmp_path/"two").mkdir()
    said, threads = [], torch.get_num_threads()
    torch.set_num_threads(max(default_workers() // 2, 1)) # as many as each of two gets
    try: train_members(tasks(prepared, tmp_path/"one"), 1)
    finally: torch.set_num_threads(threads)
    train_members(tasks(prepared, tmp_path/"two"), 2, said.append)
    assert len(said) == 3
    for a, b in zip(tasks(prepared, tmp_path/"one"), tasks(prepared, tmp_path/"two")):
        assert a.path.read_bytes() == b.path.read_bytes()


def test_what_is_there_is_not_learned_again(prepared, tmp_path):
    first, *rest = tasks(prepared, tmp_path)
    first.path.write_bytes(b"as it was")
    train_members([first, *rest], 1)
    assert first.path.read_bytes() == b"as it was"
    assert all(load_member(l.path, l.kind).classes > 1 for l in rest)


def test_data_without_room_is_read_from_disk(prepared, tmp_path):
    task = tasks(prepared, tmp_path, 1)[0]
    train_members([task], 1)
    other = task._replace(path=tmp_path/"other.safetensors", memory=0.0)
    train_members([other], 1)
    assert other.path.read_bytes() == task.path.read_bytes()
    assert not list(tmp_path.glob("*.f32"))


@pytest.mark.slow
def test_an_error_is_told_and_leaves_no_member(prepared, tmp_path):
    good, bad = tasks(prepared, tmp_path, 2)
    bad = bad._replace(settings={"rounds": 1, "leaves": "many"})
    with pytest.raises((ValueError, TypeError)): train_members([good, bad, bad], 2)
    assert not bad.path.exists()


@pytest.mark.slow
def test_a_worker_that_dies_does_not_end_the_work(prepared, tmp_path):
    "The task that kills its worker is learned in this process, where it is harmless."
    some = [l._replace(prepared=Deadly(l.prepared)) for l in tasks(prepared, tmp_path)]
    with pytest.warns(UserWarning, match="a worker died"): train_members(some, 2)
    assert all(l.path.exists() for l in some)


class Deadly:
    "A prepared dataset that kills whichever worker takes it out of its box."

    def __init__(self, prepared): self.prepared, self.home = prepared, os.getpid()

    def __getattr__(self, name): return getattr(self.prepared, name)

    def __getstate__(self): return self.__dict__

    def __setstate__(self, state):
        if os.getpid() != state["home"]: os.kill(os.getpid(), signal.SIGKILL)
        self.__dict__.update(state)


@pytest.mark.slow
@pytest.mark.parametrize("guard, begun", [("", 1), ("if __name__ == '__main__': ", 3)])
def test_a_script_without_a_main_is_told_so(tmp_path, guard, begun):
    "Its workers would begin it again and wait for its lock for ever."
    (tmp_path/"script.py").write_text(textwrap.dedent(f"""
        from mabe_nb.data.dataset import open_dataset
        from mabe_nb.data.cache.prepare import prepare
        from mabe_nb.data.synthetic import write_colony
        from pathlib import Path
        root = Path({str(tmp_path)!r})
        print("begun", flush=True)
        if not (root/"colony").exists(): write_colony(root/"colony", videos=3, minutes=0.1)
        prepare(open_dataset(root/"colony"), "symmetric", out=root/"out", progress=False)
        {guard}print(prepare(open_dataset(root/"colony"), "symmetric", out=root/"out", workers=2,
                             progress=False, resume=False))
    """))
    done = subprocess.run([sys.executable, tmp_path/"script.py"], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "PYTHONWARNINGS": "default"})
    assert "__name__ == '__main__'" in done.stderr and "3 videos" in done.stdout
    assert "without workers" in done.stderr and done.stdout.count("begun") <= begun


def test_this_process_is_no_worker():
    require_main_guard()
    with pytest.raises(ConfigError, match="__main__"):
        with pytest.MonkeyPatch.context() as patch:
            import multiprocessing
            patch.setattr(multiprocessing.current_process(), "_inheriting", True,
                          raising=False)
            require_main_guard()


def test_workers_are_as_many_as_the_cores_allowed():
    assert default_workers() == (min(len(os.sched_getaffinity(0)), 4) if torch.cuda.is_available()
                               else len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_dropout_by_bytes(p):
    torch.manual_seed(0)
    drop, x = ByteDropout(p), torch.ones(40, 50, 33, requires_grad=True)
    out = drop(x)
    kept = out != 0
    assert abs(kept.float().mean() - (1 - p)) < 0.01
    if p < 1: assert abs(out.mean() - 1) < 0.03
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())
    assert torch.equal(drop.eval()(x), x)


def test_dropout_is_drawn_anew_and_the_same_from_a_seed():
    drop, x = ByteDropout(0.5), torch.ones(64, 64)
    torch.manual_seed(1)
    a, b = drop(x), drop(x)
    torch.manual_seed(1)
    assert torch.equal(drop(x), a) and not torch.equal(a, b)
    assert abs(float(np.corrcoef(a.ravel(), b.ravel())[0, 1])) < 0.05

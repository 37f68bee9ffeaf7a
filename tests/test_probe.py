"One training step: what is measured is what training takes, and nothing breaks it."
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils.flop_counter import FlopCounterMode

from mabe_nb.errors import ConfigError
from mabe_nb.measure.probe import Steps, checked_spec, main, make_trainer, measure
from mabe_nb.measure.workload import make_spec
from mabe_nb.measure.workload import Workload
from mabe_nb.measure.step import (Clock, count_work, median_interval, time_parts,
                                  time_steps)
from mabe_nb.system import free_memory
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.fit.frames import batches
from mabe_nb.train.machine import onednn_products

TINY = TrainConfig(conv_channels=[8], lstm_hidden=8, lstm_layers=1, sequence_length=10,
                   batch_size=8)
CPU = torch.device("cpu")


def tiny(**change): return TINY.model_copy(update=change)


def test_the_step_is_that_of_training():
    "A probe changes the weights as `take_step` does over the same windows."
    mine = make_trainer(make_spec(tiny(use_augmentation=False, dropout=0.0)), CPU)
    theirs = make_trainer(make_spec(tiny(use_augmentation=False, dropout=0.0)), CPU)
    step = Steps(mine)
    parts = [next(step.plan) for _ in range(3)]
    step = Steps(mine)
    for _ in parts: step()
    gap = theirs.cfg.gap
    windows = zip(*(batches(x, parts, 10, gap) for x in (theirs.learn.x, theirs.answers)))
    with onednn_products(CPU): # As a training does; they may round in another way
        for p in parts: theirs.take_step(p, [p], windows)
    for a, b in zip(mine.model.parameters(), theirs.model.parameters()):
        assert torch.equal(a, b)


@settings(max_examples=30, deadline=None)
@given(st.integers(10, 300), st.integers(0, 99))
def test_interval_holds_the_sample_median(n, seed):
    times = np.random.default_rng(seed).exponential(size=n)
    low, high = median_interval(times)
    assert times.min() <= low <= np.median(times) <= high <= times.max()


def test_time_of_a_known_step():
    "Slow warm-up steps do not count."
    import time
    count = [0]
    def step():
        count[0] += 1
        time.sleep(0.05 if count[0] <= 5 else 0.004)
    told = time_steps(step, Clock(CPU), cap=3)
    assert 0.004 < told["p50"] < 0.03 and told["n"] >= 10 and told["p10"] <= told["p50"]


def test_parts_are_in_their_place():
    "A slow forward pass is found in `forward`, a slow fetch in `data`."
    import time
    trainer = make_trainer(make_spec(TINY), CPU)
    step = Steps(trainer)
    forward, pairs = trainer.model.forward, step.pairs
    def slow(x):
        time.sleep(0.1)
        return forward(x)
    trainer.model.forward = slow
    told = time_parts(trainer, step, Clock(CPU), 3)
    assert told["forward"] > 0.1 and max(told, key=told.get) == "forward"
    trainer.model.forward = forward
    def late():
        for pair in pairs:
            time.sleep(0.1)
            yield pair
    step.pairs = late()
    told = time_parts(trainer, step, Clock(CPU), 3)
    assert told["data"] > 0.1 and max(told, key=told.get) == "data"
    step.pairs = pairs
    weight = next(trainer.model.parameters())
    hook = weight.register_hook(lambda gradient: time.sleep(0.1))
    told = time_parts(trainer, step, Clock(CPU), 3)
    hook.remove()
    assert told["backward"] > 0.1 and max(told, key=told.get) == "backward"
    trainer.optimizer.step = lambda *a, of=trainer.optimizer.step: (time.sleep(0.1), of(*a))
    told = time_parts(trainer, step, Clock(CPU), 3)
    assert told["optimizer"] > 0.1 and max(told, key=told.get) == "optimizer"


def test_operations_of_a_linear_step():
    a, b = torch.randn(7, 5), torch.randn(5, 3)
    assert count_work(lambda: a @ b)["flops"] == 2 * 7 * 5 * 3
    assert count_work(lambda: a + a)["bytes"] == 3 * a.nbytes


@pytest.mark.parametrize("network", ["transformer", "tcn", "calms21_conv1d"])
def test_operations_are_those_that_pytorchs_own_counter_has(network):
    step = Steps(make_trainer(make_spec(tiny(model_type=network, hidden_size=16)), CPU))
    step() # which looks once at how this processor multiplies
    with FlopCounterMode(display=False) as theirs: step()
    assert count_work(step)["flops"] == theirs.get_total_flops() > 0


def test_every_model_precision_and_loss_is_measured():
    for change in ({"model_type": "transformer", "hidden_size": 16}, {"amp": True},
                   {"model_type": "calms21_conv1d", "sequence_length": 16},
                   {"loss": "binary"}, {"gradient_accumulation_steps": 2}):
        told = measure(make_spec(tiny(**change), Workload(half_known=True), seconds=0.1))
        assert told["status"] == "ok" and told["flops"] > 0 and told["windows_s"] > 0
        json.dumps(told, allow_nan=False)
    assert measure(make_spec(TINY, seconds=0.1, on_disk=True))["parts"]["data"] > 0


def test_a_limit_on_memory_is_a_result():
    told = measure(make_spec(tiny(batch_size=90_000), memory_gb=0.2))
    assert told["status"] == "oom"
    assert "try --batch-size 45000 --gradient-accumulation-steps 2" in told["note"]
    assert measure(make_spec(TINY, seconds=0.1))["status"] == "ok"


def test_another_error_is_one(monkeypatch):
    def broken(*a): raise RuntimeError("an illegal memory access was encountered")
    monkeypatch.setattr("mabe_nb.measure.probe._measured", broken)
    with pytest.raises(RuntimeError, match="illegal"): measure(make_spec(TINY))


@pytest.mark.slow
def test_as_a_command(tmp_path, capsys):
    "In a fresh process; a bad spec is one sentence."
    spec = tmp_path/"spec.json"
    spec.write_text(json.dumps(make_spec(TINY, seconds=0.1)))
    out = subprocess.run([sys.executable, "-m", "mabe_nb.measure.probe", spec], timeout=90,
                         capture_output=True, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert out.returncode == 0, out.stderr
    assert json.loads(out.stdout)["threads"] == 1
    spec.write_text("{}")
    assert main(spec) == 2
    assert capsys.readouterr().err.startswith("probe: a probe is asked with exactly")


@pytest.mark.parametrize("change", [
    {"settings": {"batch_size": 10**9}}, {"shape": {"channels": -1}}, {"seconds": True},
    {"shape": {"colour": 1}}, {"settings": None}, {"precision": None}, {"seconds": 1e9}])
def test_a_spec_that_cannot_be(change):
    with pytest.raises(ConfigError): checked_spec({**make_spec(TINY), **change})


@pytest.mark.parametrize("kinds, names, total", [
    ("", ("memory.max", "memory.current"), ""),
    ("cpu,memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_")])
def test_a_job_has_what_its_group_has_left(tmp_path, kinds, names, total):
    "Its own has no limit, that of the job around it has; files that are kept for it can go."
    (tmp_path/"table").write_text(f"3:cpuset:/elsewhere\n4:{kinds}:/slurm/job_7/step_0\n")
    top = tmp_path/"groups"
    for place, most in (("slurm/job_7", 8_000_000), ("slurm/job_7/step_0", "max"), ("", 2**62)):
        here = top/("memory" if kinds else "")/place
        here.mkdir(parents=True, exist_ok=True)
        for name, n in zip(names, (most, 6_000_000)): (here/name).write_text(f"{n}\n")
        (here/"memory.stat").write_text(f"{total}inactive_file 500000\n{total}active_file 1000000\n")
    assert free_memory(tmp_path/"table", top) == 3_500_000
    assert free_memory(tmp_path/"table", tmp_path/"nowhere") > 2**24 < free_memory("nowhere")

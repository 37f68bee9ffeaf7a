"Sweeps: sizes that fail cost a row, the caller is untouched, results are paid once."
import copy
import json
import random
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from waiting import processes_of, until

from mabe_nb.errors import ConfigError
from mabe_nb.measure import results
from mabe_nb.measure.probe import Steps, make_trainer
from mabe_nb.measure.workload import make_spec
from mabe_nb.measure.results import run_probes
from mabe_nb.remote.handle import Job
from mabe_nb.remote.places.job_state import Unreachable
from mabe_nb.measure.workload import Workload
from mabe_nb.measure.sweep import (fit_line, gains, held_up_by, knee_size, other_cards,
                                   summarize, sweep)
from mabe_nb.remote.job import jobs, submit
from mabe_nb.train.fit.optim import optimizer_tensors
from mabe_nb.train.config import TrainConfig

TINY = TrainConfig(model_type="tcn", hidden_size=16, num_layers=2, sequence_length=20,
                   batch_size=8, device="cpu")


@pytest.fixture(autouse=True)
def mabe_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path/"home"


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1e3), st.floats(1e-6, 10),
       st.lists(st.integers(1, 5000), min_size=2, unique=True))
def test_fit_recovers_a_line(a, b, batches):
    x = np.array(batches)
    line = fit_line(x, a + b * x)
    assert np.allclose(line(x), a + b * x, rtol=1e-6) and line.worst < 1e-6


def test_knee():
    rows = pd.DataFrame({"batch": [16, 32, 64, 128, 256], "status": ["ok"] * 4 + ["oom"],
                         "windows_s": [100, 190, 198, 200, np.nan]})
    assert knee_size(rows) == 32
    assert knee_size(rows[rows.status == "oom"]) is None


def state_of(trainer):
    tensors = {**trainer.model.state_dict(), **optimizer_tensors(trainer.optimizer)}
    return [t.clone() for t in tensors.values()], torch.get_rng_state(), \
        np.random.get_state()[1].copy(), random.getstate(), trainer.rng.bit_generator.state


def same(a, b):
    if isinstance(a, torch.Tensor): return torch.equal(a, b)
    if isinstance(a, np.ndarray): return np.array_equal(a, b)
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.slow
def test_a_sweep_leaves_no_trace_in_the_caller():
    "Model, optimizer and random states are bit-equal, and so are the next 20 losses."
    def losses(between):
        trainer = make_trainer(make_spec(TINY.model_copy(update={"dropout": 0.3})),
                               torch.device("cpu"))
        step = Steps(trainer)
        for _ in range(3): step()
        before, grads = state_of(trainer), torch.is_grad_enabled()
        between()
        assert same(before, state_of(trainer)) and torch.is_grad_enabled() == grads
        return [step().item() for _ in range(20)]
    random.seed(1), np.random.seed(1)
    found = []
    with_sweep = losses(lambda: found.append(sweep(TINY, sizes=[4], seconds=0.2)))
    assert (found[0].rows.status == "ok").all()
    assert with_sweep == losses(lambda: None)


@pytest.mark.slow
def test_out_of_memory_ends_one_size_and_results_are_reused(mabe_home):
    ask = dict(sizes=[90_000, 8, 512], seconds=0.2, memory_gb=0.3)
    done = sweep(TINY, Workload(windows=1000), **ask)
    assert done.rows.status.tolist() == ["ok", "ok", "oom"], done.rows.note.tolist()
    assert "does not fit: try --batch-size 45000" in done.rows.note.iloc[2]
    assert done.knee in (8, 512) and not done.rows.reused.any()
    assert jobs() == [], "jobs of a sweep are not left in the user's list"
    again = sweep(TINY, Workload(windows=1000), **ask)
    assert again.rows.reused.all() and again.rows.ms.equals(done.rows.ms)
    assert (other_cards(done).basis == "guess from a processor's memory").all()
    assert len(list((mabe_home/"measure").iterdir())) == 3


@pytest.mark.slow
def test_memory_is_foretold_from_the_smallest():
    cfg = TrainConfig(model_type="lstm", hidden_size=64, num_layers=1, frame_gap=1,
                      sequence_length=100, device="cpu", use_augmentation=False)
    rows = sweep(cfg, Workload(28, 4), sizes=[16, 32, 256], on="local:cpu", seconds=0.2).rows
    line = fit_line(rows.batch[:2], rows.gb[:2])
    assert line(256) == pytest.approx(rows.gb[2], rel=0.1) and rows.gb[2] > 2 * rows.gb[1]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_script_that_is_killed_leaves_no_probe_behind(how, mabe_home, tmp_path):
    "One of a user's own, which heeds no signal; also while nobody has noted its end."
    (tmp_path/"mine.py").write_text(
        "import mabe_nb as mb\n"
        "cfg = mb.TrainConfig(model_type='tcn', conv_channels=[4], sequence_length=8)\n"
        "if __name__ == '__main__': mb.sweep(cfg, sizes=[4], on='local:cpu', seconds=600)\n")
    script = subprocess.Popen([sys.executable, tmp_path/"mine.py"])
    until(lambda: list(mabe_home.glob("jobs/*/attempt")))
    job, = jobs()
    until(lambda: len(processes_of(job.id)) == 2) # the runner, and the probe itself
    script.send_signal(how)
    until(lambda: not processes_of(job.id), 30)
    assert job.status() == "cancelled" and script.wait() == -how


def test_only_yes_or_no_ends_a_job_with_its_sender():
    with pytest.raises(ConfigError, match="ends_with_sender is 1, expected True or False"):
        submit("1", ends_with_sender=1)


def test_what_is_the_same_and_what_is_not(monkeypatch):
    "Another model, precision, card or place is another result; `fresh` asks again."
    monkeypatch.setattr(results, "CODE", "result = " + repr(made(8, 0.1, 1e9)))
    spec = make_spec(TINY)
    assert not next(run_probes([(spec, "local", "cpu")]))["reused"]
    assert next(run_probes([(spec, "local", "cpu")]))["reused"]
    assert not next(run_probes([(spec, "local", "cpu")], fresh=True))["reused"]
    wide = TINY.model_copy(update={"hidden_size": 8})
    quick = TINY.model_copy(update={"learning_rate": 0.1, "epochs": 3})
    assert make_spec(quick) == spec, "what a step does not depend on is no part of it"
    asks = {results.cache_path(*a) for a in (
        (spec, "local", "cpu"), (spec, "modal", "L4"), (spec, "modal", "T4"),
        (make_spec(wide), "local", "cpu"), (make_spec(TINY, precision="bf16"), "local", "cpu"),
        (make_spec(TINY, Workload(channels=5)), "local", "cpu"))}
    assert len(asks) == 6
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert results.cache_path(spec, "local", "cpu") not in asks


def test_a_probe_that_dies_or_fails_is_a_row(monkeypatch):
    "Killed, an exception, a result that is none, a time-out: each is told, none is kept."
    spec = make_spec(TINY, seconds=0.2)
    for code, status, words, timeout in (
            ("import os; os.kill(os.getpid(), 9)", "died", "kill", 60),
            ("raise MemoryError('boom')", "error", "boom", 60),
            ("result = {'status': 'ok'}", "error", "without a number", 60),
            ("import time; time.sleep(60)", "timeout", "limit of 1 s", 1)):
        monkeypatch.setattr(results, "CODE", f"{code}\nif 0: result = 1")
        row, = run_probes([(spec, "local", "cpu")], timeout=timeout)
        assert row["status"] == status and words in row["note"].lower(), row
    monkeypatch.setattr(results, "CODE", "result = " + repr(made(8, 0.1, 1e9)))
    row, = run_probes([(spec, "local", "cpu")])
    assert row["status"] == "ok" and not row["reused"]


def test_a_place_that_does_not_answer_ends_nothing(monkeypatch):
    "One question of a job is not answered, or none is: the others go on."
    monkeypatch.setattr(results, "CODE", "result = " + repr(made(8, 0.1, 1e9)))
    status, asked = Job.status, []
    def shy(job):
        asked.append(job.id)
        if len(asked) == 1 or job.id == asked[0] and forever: raise Unreachable("no answer")
        return status(job)
    monkeypatch.setattr(Job, "status", shy)
    monkeypatch.setattr(results, "PATIENCE", 0.5)
    asks = [(make_spec(TINY, seconds=s), "local", "cpu") for s in (0.1, 0.2)]
    for forever, first in ((False, "ok"), (True, "error")):
        asked.clear()
        rows = [*run_probes(asks, fresh=True)]
        assert [row["status"] for row in rows] == [first, "ok"]
    assert "no answer" in rows[0]["note"]


def test_leaving_early_stops_what_runs(monkeypatch):
    monkeypatch.setattr(results, "CODE", "import time; time.sleep(60)\nresult = 1")
    real = results._finish
    def leave(job, beat):
        if not isinstance(job, dict) and job.on == "local": raise KeyboardInterrupt
        return real(job, beat)
    monkeypatch.setattr(results, "_finish", leave)
    with pytest.raises(KeyboardInterrupt):
        list(run_probes([(make_spec(TINY), "local", "cpu")]))
    assert [job.status() for job in jobs()] == ["cancelled"]


def test_one_that_cannot_be_stopped_keeps_no_other_running(monkeypatch):
    made = [submit("import time; time.sleep(60)") for _ in range(3)]
    cancel = Job.cancel
    def shy(job):
        if job is made[0]: raise Unreachable("no answer")
        cancel(job)
    monkeypatch.setattr(Job, "cancel", shy)
    with pytest.warns(UserWarning, match=f"no answer.*'mabe jobs cancel {made[0].id}'"), \
            pytest.raises(KeyboardInterrupt), results._stopped([*made, None, {}]):
        raise KeyboardInterrupt
    assert [job.status() for job in made] == ["running", "cancelled", "cancelled"]
    cancel(made[0])


def test_doubling_ends_with_the_first_failure(monkeypatch):
    seen = []
    def fake(asks, **how):
        for spec, on, gpu in asks:
            seen.append(batch := spec["settings"]["batch_size"])
            yield made(batch, 0.01 + 1e-4 * batch, 2e8 + 1e6 * batch) if batch < 200 else {
                **BLANK, "batch": batch, "status": "oom", "note": "full"}
    monkeypatch.setattr("mabe_nb.measure.sweep.run_probes", fake)
    done = sweep(TINY)
    assert seen == [16, 32, 64, 128, 256] and done.rows.status.iloc[-1] == "oom"
    assert np.isclose(done.time.b, 1e-4) and np.isclose(done.memory.a, 0.2)
    largest = other_cards(done).set_index("card").largest
    assert largest["T4"] == int((0.9 * 16 - 0.2) / 1e-3)


def test_doubling_ends_where_memory_would(monkeypatch):
    "A size that the line says will not fit is not tried."
    seen = []
    def fake(asks, **how):
        for spec, on, gpu in asks:
            seen.append(batch := spec["settings"]["batch_size"])
            yield made(batch, 0.01 + 1e-4 * batch, 2e8 + 1e6 * batch)
    monkeypatch.setattr("mabe_nb.measure.sweep.run_probes", fake)
    assert set(sweep(TINY, memory_gb=0.5).rows.status) == {"ok"}
    assert seen == [16, 32, 64, 128, 256]


BLANK = {"on": "modal", "gpu": "L4", "reused": False, "usd": 0.0, "note": ""}


def made(batch, seconds, peak):
    return {**BLANK, "batch": batch, "status": "ok", "windows_s": batch / seconds,
            "flops": 1, "bytes": 1, "parts": {}, "card": "L4", "precision": "fp32",
            "device": "cuda", "memory": {"peak": peak}, "seconds": dict.fromkeys(
                ("p10", "p50", "p90", "low", "high", "known"), seconds)}


def test_an_epoch_costs_what_the_knee_takes():
    done = summarize([made(16, 0.1, 1e9), made(32, 0.1, 2e9)], Workload(windows=3200), 3.6)
    assert done.knee == 32 and np.allclose(done.cost(3200), (10.0, 0.01))
    with pytest.raises(ConfigError, match="no size"): summarize([]).cost()


@pytest.mark.parametrize("flops, moved, words", [
    (20e12, 1e9, "arithmetic binds"), (1e9, 250e9, "memory binds"),
    (1e9, 1e9, "the card waits; take a larger batch or a cheaper card")])
def test_what_holds_a_card_up_is_said(flops, moved, words):
    "An L4: 30.3 fp32 TFLOPS, 300 GB/s."
    result = {"card": "NVIDIA L4", "flops": flops, "bytes": moved, "precision": "fp32",
              "seconds": {"p50": 1.0}}
    assert words in held_up_by(result)
    assert held_up_by({**result, "card": "AMD EPYC"}) is None and held_up_by({}) is None


def test_gains_are_measured_one_by_one(monkeypatch):
    "What helps alone is taken together; readers only count for data on disk."
    seen = []
    def fake(asks, **how):
        (spec, *_), = asks
        change, amp = spec["settings"], spec["precision"] == "amp"
        seen.append((change["batch_size"], amp, change["num_workers"], spec["on_disk"]))
        yield made(change["batch_size"], 0.1 * (2 if amp else 1) / change["num_workers"], 1)
    monkeypatch.setattr("mabe_nb.measure.sweep.run_probes", fake)
    table = gains(TINY, batch=64, on_disk=True)
    assert table.change.tolist() == ["base", "+ AMP", "+ batch", "+ workers", "best"]
    assert np.allclose(table.gain, [1, 0.5, 8, 4, 32])
    assert seen[-1] == (64, False, 4, True)
    table = gains(TINY, batch=64)
    assert seen[-1] == (64, False, 1, False) and np.isnan(table.gain[3])


def test_a_hostile_result_stays_text():
    row = results.checked_result({**made(8, 1.0, 1e9),
                                  "card": "<b>x</b>\x1b]0;t\x07"})
    assert "\x1b" not in row["card"]
    assert json.loads(json.dumps(row)) == copy.deepcopy(row)


@pytest.mark.parametrize("ask, words", [
    ({"sizes": []}, "no sizes"), ({"sizes": [2.5]}, "size 2.5"), ({"on": "mars"}, "unknown"),
    ({"on": "modal:L4", "gpu": "T4"}, "on names the card L4 and gpu T4; name one"),
    ({"seconds": 0}, "seconds is 0"), ({"precision": "fp4"}, "unknown precision")])
def test_bad_input_is_one_sentence(ask, words):
    with pytest.raises(ConfigError, match=words): sweep(TINY, **ask)


def test_a_price_is_said_to_nobody():
    "`mb.sweep(..., say=None)` and `mb.compare` on rented cards, as for all verbs: it was a TypeError."
    from mabe_nb.measure.results import say_price
    said = []
    for say in (None, said.append): say_price([({}, "modal", "L4")], fresh=True, say=say)
    assert len(said) == 1 and "1 probe of at most 900 s" in said[0]

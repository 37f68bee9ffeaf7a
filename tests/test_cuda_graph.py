"""Steps that are recorded and played: on a card, and by what stands in for it without one.

The stand-in shows what is recorded, kept and written over; not the speed, and not what CUDA
itself refuses. Without either no step is recorded.
"""
import numpy as np
import pytest
import recorded_ops
import torch
from mabe_nb.measure.probe import Steps, make_trainer, measure
from mabe_nb.measure.workload import Workload, make_spec
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.fit import training_step
from mabe_nb.train.fit.training_step import Playback, may_play
from mabe_nb.train.fit.frames import Frames
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.models import NETWORKS, network

card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")

NEAR = {"cpu": 0, "cuda": 5e-3} # Share of a loss, of steps that cuDNN may take otherwise


@pytest.fixture(params=["stand-in", pytest.param("cuda", marks=card)])
def device(request, monkeypatch):
    "Where steps can be recorded."
    if request.param == "cuda": return "cuda"
    monkeypatch.setattr(torch.cuda, "CUDAGraph", recorded_ops.Graph)
    monkeypatch.setattr(torch.cuda, "graph", recorded_ops.recording)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.get_rng_state())
    monkeypatch.setattr(training_step, "renew_generator", lambda of, state: torch.set_rng_state(state))
    monkeypatch.setattr(training_step, "step_memory", lambda device: 1)
    monkeypatch.setattr(training_step, "spare_memory", lambda device: 2)
    monkeypatch.setattr(training_step, "RECORD", ("cuda", "cpu"))
    return "cpu"


def trainer_of(precision="fp32", device="cpu", **settings):
    cfg = TrainConfig(**dict(batch_size=8, device=device) | settings)
    return make_trainer(make_spec(cfg, Workload(half_known=cfg.loss != "cross_entropy"),
                                  precision=precision), torch.device(device))


def losses(trainer, count=12):
    step = Steps(trainer)
    torch.manual_seed(0)
    return [step().item() for _ in range(count)]


def plain(trainer):
    "Which launches all its steps, with a rate as exact as that of a graph."
    def step(trainer, x, labels):
        for group in trainer.optimizer.param_groups: group["lr"] = float(np.float32(group["lr"]))
        return trainer.plain_step(x, labels)
    trainer.whole_step = step
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize("settings", [
    *({"model_type": name} for name in ("conv_bilstm", "lstm", "transformer", "tcn",
                                        "calms21_conv1d")),
    {"precision": "bf16"}, {"loss": "binary"}, {"loss": "focal", "focal_alpha": 0.3},
    {"label_smoothing": 0.1}, {"lstm_layers": 2}, {"ema_decay": 0}, {"grad_clip": 0}])
def test_played_steps_are_plain_steps(settings, device):
    played = trainer_of(device=device, **settings)
    got = losses(played)
    assert isinstance(played.whole_step, Playback) and played.whole_step.graph
    want = losses(plain(trainer_of(device=device, **settings)))
    assert np.allclose(got, want, rtol=NEAR[device], atol=0) and len({*got}) == len(got)


@pytest.mark.parametrize("settings", [
    pytest.param({"precision": "fp16"}, marks=card), {"mixup_alpha": 0.3},
    {"gradient_accumulation_steps": 2}])
def test_steps_that_are_decided_on_the_way_are_not_played(settings, device):
    if settings.get("precision") == "fp16" and device == "cpu": pytest.skip("of a card alone")
    trainer = trainer_of(device=device, **settings)
    assert np.isfinite(losses(trainer, 6)).all()
    assert not isinstance(trainer.whole_step, Playback)


def test_a_step_that_cannot_be_recorded_is_taken_as_it_is(device):
    @network("reads_back", fixed=True)
    class ReadsBack(torch.nn.Linear):
        def forward(self, x): return super().forward(x) * (1 + 0 * x.sum().item())

    try:
        trainer, notes = trainer_of(device=device, model_type="reads_back", noise_std=0.1), []
        trainer.recorder.note = notes.append
        got = losses(trainer)
        assert not trainer.whole_step.graph and len(notes) == 1 and "CUDA graph" in notes[0]
        want = losses(plain(trainer_of(device=device, model_type="reads_back", noise_std=0.1)))
        assert np.allclose(got, want, rtol=NEAR["cpu"], atol=0)
        assert losses(trainer_of(device=device, model_type="tcn"), 6) # another one in this process
    finally: del NETWORKS["reads_back"]


def test_too_little_memory_for_a_recording(device, monkeypatch):
    monkeypatch.setattr(training_step, "spare_memory", lambda device: 0)
    trainer = trainer_of(device=device, model_type="tcn")
    want = losses(plain(trainer_of(device=device, model_type="tcn")))
    assert np.allclose(losses(trainer), want, rtol=NEAR["cpu"], atol=0)
    assert trainer.whole_step.graph is None


@pytest.mark.parametrize("settings", [{"model_type": "tcn"}, {"lstm_layers": 2}])
def test_a_state_goes_on_to_the_bit(settings, device):
    def make(skip):
        step = Steps(trainer_of(device=device, **settings))
        for _ in range(skip): next(step.plan), next(step.pairs)
        return step
    first = make(0)
    for _ in range(8): first()
    tensors, about = first.trainer.state()
    tensors = {k: t.clone() for k, t in tensors.items()}
    on, second = [first().item() for _ in range(8)], make(8)
    second.trainer.restore(tensors, about)
    assert np.allclose([second().item() for _ in range(8)], on, rtol=1e-5)


def test_a_smaller_batch_is_taken_as_it_is(device):
    def trained(played):
        torch.manual_seed(0)
        x, y = torch.randn(700, 3), (torch.rand(700, 1) > 0.5).to(torch.int8)
        frames = Frames(x.to(device), y.to(device), np.array([700]))
        cfg = TrainConfig(model_type="tcn", hidden_size=8, num_layers=1, sequence_length=10,
                          frame_gap=1, batch_size=16, epochs=3, device=device)
        trainer = Trainer(NETWORKS["tcn"].make(3, 2, 8, 1, 0.1).to(device), frames, frames,
                          np.ones(2, np.float32), np.ones(2, bool), cfg)
        if not played: plain(trainer)
        return trainer.fit()
    for one, other in zip(trained(True), trained(False)):
        assert one == pytest.approx(other, rel=1e-3)


@card
def test_what_a_measurement_left_is_not_counted_again():
    small, huge = TrainConfig(device="cuda"), TrainConfig(device="cuda", batch_size=20_000)
    before = measure(make_spec(small, seconds=0.1))["memory"]["peak"]
    measure(make_spec(huge, seconds=0.1))
    assert measure(make_spec(small, seconds=0.1))["memory"]["peak"] < 1.2 * before


def test_nothing_is_played_without_a_card():
    trainer = trainer_of(model_type="tcn")
    assert not may_play(trainer) and np.isfinite(losses(trainer, 5)).all()
    assert trainer.whole_step == Trainer.plain_step


def test_networks_of_ours_say_that_they_may_be_played():
    ours = "conv_bilstm", "lstm", "transformer", "tcn", "calms21_conv1d"
    assert all(NETWORKS[name].fixed for name in ours)

    @network("of_my_own")
    class Mine(torch.nn.Linear): "Anything may happen in it."

    try: assert not NETWORKS["of_my_own"].fixed
    finally: del NETWORKS["of_my_own"]


@pytest.mark.parametrize("played", [False, True])
def test_a_trainer_that_is_done_leaves_no_memory(played, device):
    "It is gone with its last name, and not only when somebody searches for garbage."
    import gc
    import weakref
    gc.disable()
    try:
        trainer = trainer_of(device=device, model_type="tcn")
        if not played: plain(trainer)
        losses(trainer, 6)
        gone = weakref.ref(trainer)
        del trainer
        assert gone() is None
    finally: gc.enable()

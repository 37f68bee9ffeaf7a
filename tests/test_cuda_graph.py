"Steps that are recorded on a card and played; without a card, that none is."
import numpy as np
import pytest
import torch
from mabe_nb.measure.probe import Steps, make_trainer, measure
from mabe_nb.measure.workload import Workload, make_spec
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.fit import cuda_graph
from mabe_nb.train.fit.cuda_graph import Playback, may_play
from mabe_nb.train.fit.frames import Frames
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.models import NETWORKS, network

card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")


def trainer_of(precision="fp32", device="cuda", **settings):
    cfg = TrainConfig(**dict(batch_size=8, device=device) | settings)
    return make_trainer(make_spec(cfg, Workload(half_known=cfg.loss != "cross_entropy"),
                                  precision=precision), torch.device(device))


def losses(trainer, count=12):
    step = Steps(trainer)
    torch.manual_seed(0)
    return [step().item() for _ in range(count)]


def plain(trainer):
    trainer.whole_step = Trainer.plain_step
    return trainer


@card
@pytest.mark.parametrize("settings", [
    *({"model_type": name} for name in ("conv_bilstm", "lstm", "transformer", "tcn",
                                        "calms21_conv1d")),
    {"precision": "bf16"}, {"loss": "binary"}, {"loss": "focal", "focal_alpha": 0.3},
    {"label_smoothing": 0.1}, {"lstm_layers": 2}, {"ema_decay": 0}, {"grad_clip": 0}])
def test_played_steps_are_plain_steps(settings):
    played = trainer_of(**settings)
    got = losses(played)
    assert isinstance(played.whole_step, Playback) and played.whole_step.graph
    assert np.allclose(got, losses(plain(trainer_of(**settings))), rtol=5e-3)


@card
@pytest.mark.parametrize("settings", [{"precision": "fp16"}, {"mixup_alpha": 0.3},
                                      {"gradient_accumulation_steps": 2}])
def test_steps_that_are_decided_on_the_way_are_not_played(settings):
    trainer = trainer_of(**settings)
    assert np.isfinite(losses(trainer, 6)).all()
    assert not isinstance(trainer.whole_step, Playback)


@card
def test_a_step_that_cannot_be_recorded_is_taken_as_it_is():
    @network("reads_back", fixed=True)
    class ReadsBack(torch.nn.Linear):
        def forward(self, x): return super().forward(x) * (1 + 0 * x.sum().item())

    try:
        trainer, notes = trainer_of(model_type="reads_back", noise_std=0.1), []
        trainer.recorder.note = notes.append
        got = losses(trainer)
        assert not trainer.whole_step.graph and len(notes) == 1 and "CUDA graph" in notes[0]
        assert got == losses(plain(trainer_of(model_type="reads_back", noise_std=0.1)))
        assert losses(trainer_of(model_type="tcn"), 6) # another one in this process
    finally: del NETWORKS["reads_back"]


@card
def test_too_little_memory_for_a_recording(monkeypatch):
    monkeypatch.setattr(cuda_graph, "spare_memory", lambda device: 0)
    trainer = trainer_of(model_type="tcn")
    assert losses(trainer) == losses(plain(trainer_of(model_type="tcn")))
    assert trainer.whole_step.graph is None


@card
@pytest.mark.parametrize("settings", [{"model_type": "tcn"}, {"lstm_layers": 2}])
def test_a_state_goes_on_to_the_bit(settings):
    def make(skip):
        step = Steps(trainer_of(**settings))
        for _ in range(skip): next(step.plan), next(step.pairs)
        return step
    first = make(0)
    for _ in range(8): first()
    tensors, about = first.trainer.state()
    tensors = {k: t.clone() for k, t in tensors.items()}
    on, second = [first().item() for _ in range(8)], make(8)
    second.trainer.restore(tensors, about)
    assert np.allclose([second().item() for _ in range(8)], on, rtol=1e-5)


@card
def test_a_smaller_batch_is_taken_as_it_is():
    def trained(played):
        torch.manual_seed(0)
        x, y = torch.randn(700, 3), (torch.rand(700, 1) > 0.5).to(torch.int8)
        frames = Frames(x.cuda(), y.cuda(), np.array([700]))
        cfg = TrainConfig(model_type="tcn", hidden_size=8, num_layers=1, sequence_length=10,
                          frame_gap=1, batch_size=16, epochs=3, device="cuda")
        trainer = Trainer(NETWORKS["tcn"].make(3, 2, 8, 1, 0.1).cuda(), frames, frames,
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
    trainer = trainer_of(device="cpu", model_type="tcn")
    assert not may_play(trainer) and np.isfinite(losses(trainer, 5)).all()
    assert trainer.whole_step == Trainer.plain_step


def test_networks_of_ours_say_that_they_may_be_played():
    ours = "conv_bilstm", "lstm", "transformer", "tcn", "calms21_conv1d"
    assert all(NETWORKS[name].fixed for name in ours)

    @network("of_my_own")
    class Mine(torch.nn.Linear): "Anything may happen in it."

    try: assert not NETWORKS["of_my_own"].fixed
    finally: del NETWORKS["of_my_own"]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=card)])
def test_a_trainer_that_is_done_leaves_no_memory(device):
    "It is gone with its last name, and not only when somebody searches for garbage."
    import gc
    import weakref
    gc.disable()
    try:
        trainer = trainer_of(device=device, model_type="tcn")
        losses(trainer, 6)
        gone = weakref.ref(trainer)
        del trainer
        assert gone() is None
    finally: gc.enable()

"""The trainer: equal results however it is cut, stopped, killed or starved."""
import copy
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import team_run
import torch

from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.errors import ConfigError, MabeError
from mabe_nb.train import classifier, predict
from mabe_nb.train.folder import recorder as checkpoint
from mabe_nb.train.classifier import load_classifier, predict_dataset
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.ensemble import members
from mabe_nb.train.fit.frames import Frames, OnDisk
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.models import make_model
from mabe_nb.train.runs import train
from mabe_nb.train.fit.optim import Precision, learning_rate, trusted
from mabe_nb.train.training_set import load_training_set

HERE = Path(__file__).parent
EVEN = dict(model_type="lstm", dropout=0.0, use_augmentation=False, ema_decay=0.0,
            sequence_length=40, frame_gap=1, device="cpu")


def data(n=1500, channels=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, channels)).astype(np.float32)
    labels = (np.convolve(x[:, 0], np.ones(9), "same") > 2).astype(np.int8)[:, None]
    labels = np.hstack([labels, np.where(x[:, 1:2] > 1, -1, 0).astype(np.int8)])
    return Frames(torch.from_numpy(x), torch.from_numpy(labels), np.array([n // 3] * 3))


def trainer(learn=None, **settings):
    cfg = TrainConfig(**EVEN | dict(epochs=3, batch_size=8, hidden_size=8) | settings)
    torch.manual_seed(0)
    model = make_model(cfg, 6, 3)
    learn = learn or data()
    return Trainer(model, learn, data(600, seed=1), np.array([1, 2, 3], np.float32),
                   np.ones(3, bool), cfg)


def step_losses(one, count=20):
    "Loss of each of the first steps."
    seen, before = [], [0.0]

    def tick(windows):
        seen.append((one.total.item() - before[0]) / windows)
        before[0] = one.total.item()

    def on_epoch(*_): before[0] = 0.0
    one.recorder.after_step, one.recorder.after_epoch = tick, on_epoch
    one.fit()
    return seen[:count]


# stopped early

@pytest.mark.parametrize("f1, patience, epochs", [
    ([.5, .4, .3, .2], 1, 2),
    ([.1, .5, .5, .4, .6], 2, 4), # As good is not better: the best is the second
    ([.3, .1, .1, .4, .1, .1, .1, .9], 3, 7),
    ([.1, .2, .3, .4, .5, .6, .7, .8], 1, 8)])
def test_early_stopping_waits_its_patience_and_no_longer(monkeypatch, f1, patience,
                                                         epochs):
    one, scores = trainer(epochs=8, early_stopping_patience=patience), iter(f1)
    monkeypatch.setattr(Trainer, "validate",
                        lambda self: {"valid_loss": 1.0, "valid_f1": next(scores)})
    one.recorder.note = (said := []).append
    history = one.fit()
    assert [row["epoch"] for row in history] == list(range(1, epochs + 1))
    assert len(said) == (epochs < 8) and all(f"epoch {epochs - patience} is the best" in line for line in said)
    assert [row["valid_f1"] for row in history] == f1[:epochs]
    assert one.fit() == history, "what has stopped stays stopped"


def test_while_nothing_is_found_the_loss_tells_what_is_better(monkeypatch):
    "A rare action is found after a while: the first epoch was kept, and its patience ended."
    one = trainer(epochs=8, early_stopping_patience=2)
    scores = iter([(5., .0), (4., .0), (3., .0), (6., .1), (9., .1), (1., .05), (1., .9)])
    monkeypatch.setattr(Trainer, "validate", lambda self: dict(zip(("valid_loss", "valid_f1"), next(scores))))
    better = []
    one.recorder.after_epoch = lambda row, best, *_: better.append(best)
    assert len(one.fit()) == 6 and better == [True] * 4 + [False] * 2


@pytest.mark.parametrize("loss", ["cross_entropy", "binary"])
def test_the_validation_loss_is_of_what_is_known_and_not_of_what_nobody_looked_at(loss):
    "A video of which nothing is known halved it; one of which little is counted as any other."
    one, given = trainer(loss=loss), data(600, seed=1)
    def loss_of(labels, *at):
        one.valid = Frames(torch.cat([given.x[s] for s in at]), torch.cat([labels[s] for s in at]),
                           np.array([200] * len(at)))
        return one.validate()["valid_loss"]
    first, second = slice(0, 200), slice(200, 400)
    for n in (200, 20, 0): # Frames of the second that are known
        labels = given.labels.clone()
        labels[200 + n:400] = -1
        weights = [one.valid_loss.weight(labels[s]).item() for s in (first, second)]
        each = loss_of(labels, first), loss_of(labels, second)
        assert loss_of(labels, first, second) == pytest.approx(np.average(each, weights=weights), rel=1e-5), n


def test_an_epoch_is_judged_as_its_actions_are_asked_for():
    "Of two actions that go on at once one alone was told, so that half of what is right was wrong."
    labels = torch.tensor([[1, 1], [1, 0], [0, 1], [0, 0]], dtype=torch.int8).repeat_interleave(40, 0)
    x, alone = labels.float().repeat(1, 3), labels.clone()
    alone[:40, 1] = 0
    class Says(torch.nn.Linear): # What there is, both actions alike
        def forward(self, x): return torch.cat([x[..., :1] * 0, 9 * x[..., :2] - 4.5], -1)
    for loss, truth, f1 in (("binary", labels, 1.0), ("cross_entropy", labels, 5 / 6),
                            ("binary", alone, 1.0)): # that exclude each other
        one = trainer(loss=loss, model_type="tcn")
        one.average.model, one.valid = Says(6, 3), Frames(x, truth, np.array([160]))
        assert one.validate()["valid_f1"] == pytest.approx(f1), loss


def test_a_model_that_no_longer_learns_stops_early():
    "Steps too small to change a decision: no epoch is better than the first."
    still = trainer(epochs=9, learning_rate=1e-12, min_lr=0, early_stopping_patience=3)
    assert len(still.fit()) == 1 + 3


def test_the_loss_of_an_epoch_is_its_own():
    "Without a step worth the name it is the same in each."
    losses = [row["train_loss"] for row in trainer(learning_rate=1e-12, min_lr=0).fit()]
    assert len(losses) == 3 and losses == pytest.approx([losses[0]] * 3, rel=0.02)


def test_a_step_begins_without_the_gradient_before():
    "One step an epoch of the same windows, all too small: the same gradient each time."
    one, norms = trainer(batch_size=999, learning_rate=1e-12, min_lr=0, grad_clip=0), []
    one.recorder.after_step = lambda windows: norms.append(
        sum(p.grad.square().sum().item() for p in one.model.parameters()) ** 0.5)
    one.fit()
    assert len(norms) == 3 and norms == pytest.approx([norms[0]] * 3, rel=0.02)


def test_the_rate_falls_from_step_to_step_not_from_epoch_to_epoch():
    one, rates = trainer(epochs=2, scheduler="cosine", learning_rate=0.5, min_lr=0.1), []
    one.recorder.after_step = lambda windows: rates.append(one.optimizer.param_groups[0]["lr"])
    one.fit()
    n = np.arange(len(rates)) / len(rates)
    assert len(rates) >= 8 and np.allclose(rates, 0.3 + 0.2 * np.cos(np.pi * n))


@pytest.mark.parametrize("on", [True, False])
def test_windows_are_shifted_only_where_something_is_augmented(on):
    one = trainer(use_augmentation=on, temporal_jitter=9, stride=40)
    starts = np.sort(np.concatenate(one.plan_epoch()[0]))
    inside = [s[s < 500 * (k + 1) - 40][1:] for k in range(3) for s in [starts[starts >= 500 * k]]]
    assert any((np.diff(s) != 40).any() for s in inside) == on


def test_an_epoch_is_judged_by_what_was_looked_for():
    "What nobody looked for was told in the place of what was there, and that counted as missed."
    labels = torch.tensor([[1, -1], [0, -1]], dtype=torch.int8).repeat_interleave(40, 0)
    class Says(torch.nn.Linear): # The other action, wherever there is one
        def forward(self, x): return torch.cat([x[..., :1] * 0, 9 * x[..., :2] - 4.5], -1)
    for loss in ("binary", "focal_binary"):
        one = trainer(loss=loss, model_type="tcn")
        one.average.model = Says(6, 3)
        one.valid = Frames(torch.tensor([0.6, 1.0, 0, 0, 0, 0]) * (labels[:, :1] == 1), labels, np.array([80]))
        assert one.validate()["valid_f1"] == 1, loss


class Mixed:
    "Windows mixed with the next but one, and as they are."
    rescale, order, share = None, torch.tensor([2, 0, 1]), 0.7
    def __call__(self, x): return x, self.order, self.share


@pytest.mark.parametrize("loss", ["cross_entropy", "binary"])
def test_what_is_mixed_is_compared_with_both_labels_by_their_shares(loss):
    one, x = trainer(loss=loss), torch.randn(3, 40, 6)
    one.augment = Mixed()
    labels = one.answers[:120].reshape(3, 40, *one.answers.shape[1:])
    scores = one.model(x)
    want = 0.7 * one.loss(scores, labels) + 0.3 * one.loss(scores, labels[Mixed.order])
    assert one.part_loss(x, labels).item() == pytest.approx(want.item(), rel=1e-5)
    assert abs(one.loss(scores, labels) - want) > 1e-4


def test_gradients_are_clipped_at_their_own_size_whatever_half_precision_makes_of_it():
    norms = {}
    for scale in (1.0, 1024.0):
        for clip in (0.01, 1e9): # of which one clips
            one = trainer(grad_clip=clip, use_augmentation=False)
            one.precision.scaler = torch.amp.GradScaler("cpu", scale)
            one.plain_step(torch.ones(2, 40, 6), one.answers[:80].reshape(2, 40, *one.answers.shape[1:]))
            norms[scale, clip] = sum(p.grad.square().sum().item() for p in one.model.parameters()) ** 0.5
    assert norms[1024, 0.01] == pytest.approx(norms[1, 0.01]) == pytest.approx(0.01, rel=1e-3)
    assert norms[1, 1e9] > 0.02 and norms[1024, 1e9] == pytest.approx(norms[1, 1e9])


def test_the_rate_of_a_plateau_stays_above_its_least():
    cfg = TrainConfig(scheduler="plateau", scheduler_patience=1, learning_rate=1e-3,
                      min_lr=1e-4)
    rates = [learning_rate(cfg, n, [1.0] * n) for n in range(30)]
    assert rates[0] == 1e-3 and rates[-1] == 1e-4 == min(rates)


# cut into parts

@pytest.mark.parametrize("batch, parts", [(16, 4), (8, 8), (64, 1)])
def test_accumulation_is_one_large_batch(batch, parts):
    "The last step of an epoch is a shorter one and counts too."
    whole = trainer(batch_size=64, stride=7, epochs=8)
    cut = trainer(batch_size=batch, gradient_accumulation_steps=parts, stride=7, epochs=8)
    a, b = step_losses(whole), step_losses(cut)
    assert len(a) == 20 and np.allclose(a, b, atol=1e-5)
    for p, q in zip(whole.model.parameters(), cut.model.parameters()):
        assert torch.allclose(p, q, atol=1e-4)


def test_wrong_accumulation_would_be_seen():
    a, b = (step_losses(trainer(batch_size=n, stride=7)) for n in (64, 32))
    assert not np.allclose(a[:5], b[:5], atol=1e-5)


ALIKE = dict(EVEN, epochs=6, batch_size=512, num_workers=1, hidden_size=8,
             early_stopping_patience=99)
# With dropout, noise and batch statistics: all that differs between the processes
NOISY = dict(epochs=2, batch_size=8, num_workers=1, conv_channels=[8], lstm_hidden=8,
             stride=20, device="cpu", dropout=0.4)


def team(root, *runs):
    "Runs of two processes under torchrun, one after the other."
    env = os.environ | {"OMP_NUM_THREADS": "1", "MABE_HOME": str(root/"home")}
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
         HERE/"team_run.py", json.dumps([[str(root/out), *how] for out, *how in runs])],
        env=env, capture_output=True, text=True, timeout=240)
    assert not done.returncode, done.stderr[-3000:]


@pytest.fixture(scope="module")
def teams(tmp_path_factory):
    "Folders of runs: of two processes alike, undisturbed, and told to stop at steps 8 and 7."
    root = tmp_path_factory.mktemp("teams")
    team(root, ["two", ALIKE], ["whole", NOISY], ["again", NOISY, [8, 7]])
    return root


@pytest.mark.slow
def test_two_processes_are_one(teams, tmp_path):
    "gloo, the same effective batch, no batch statistics and no dropout."
    team_run.run(tmp_path, ALIKE)
    runs = tmp_path/"run", teams/"two"/"run"
    one, two = (pd.read_csv(run/"history.csv") for run in runs)
    assert len(one) == 6 and np.allclose(one.train_loss, two.train_loss, atol=1e-5)
    assert np.allclose(one.valid_f1, two.valid_f1, atol=1e-5)
    a, b = (json.loads((run/"metrics.json").read_text()) for run in runs)
    assert a["valid"]["f1"] == pytest.approx(b["valid"]["f1"], abs=1e-4)
    assert not list(runs[1].glob(".process*"))


@pytest.mark.slow
def test_processes_of_a_team_judge_an_epoch_alike(teams):
    "Each by batch statistics of its own, they lowered their steps apart, or waited for one that had stopped."
    one, other = (json.loads((teams/"whole"/f"history-{rank}.json").read_text()) for rank in (0, 1))
    assert one == other and len(one) == 2


@pytest.mark.slow
def test_stopped_team_goes_on_as_if_never(teams):
    "In new processes."
    whole, again = teams/"whole"/"run", teams/"again"/"run"
    assert not (again/"metrics.json").exists()
    team(teams, ["again", NOISY])
    for name in ("best.safetensors", "history.csv"):
        assert (whole/name).read_bytes() == (again/name).read_bytes(), name


# killed and stopped

@pytest.mark.slow
def test_killed_twenty_times_is_as_if_never(tmp_path):
    out = subprocess.run([sys.executable, str(HERE/"killed_runs.py"), str(tmp_path), "20",
                          "0"], check=True, capture_output=True, text=True, timeout=500,
                         env=os.environ | {"OMP_NUM_THREADS": "1"}).stdout
    killed = json.loads(out)["killed"]
    assert len(killed) == 20 and len({step for _, step in killed}) > 5, killed
    for name in ("best.safetensors", "history.csv", "metrics.json"):
        whole, again = ((tmp_path/run/name).read_bytes() for run in ("whole", "killed"))
        assert whole == again, name
    colony = RecordingList([colony_video(9, minutes=0.5)])
    a, b = (predict_dataset(load_classifier(tmp_path/run/"best.safetensors"), colony,
                            cache=tmp_path/"cache10") for run in ("whole", "killed"))
    pd.testing.assert_frame_equal(a, b)
    assert not list((tmp_path/"killed").rglob(".*"))


COLONY = [colony_video(k, minutes=0.3) for k in (0, 3, 6)]
SMALL = TrainConfig(epochs=4, conv_channels=[8], lstm_hidden=8, batch_size=4, stride=40,
                    num_workers=1, device="cpu")


def small_run(out, resume=False, cfg=SMALL):
    return train(RecordingList(COLONY), out/"run", cfg, ["1", "4"], ["7"],
                 cache=out/"cache", resume=resume)


def test_interrupt_keeps_the_state_and_goes_on(tmp_path, monkeypatch):
    whole = small_run(tmp_path/"a")
    update, count = checkpoint.save_checkpoint, [0]
    monkeypatch.setattr(Trainer, "save_seconds", 1e9)
    real = Trainer.take_step

    def step(*args):
        count[0] += 1
        if count[0] == 7: os.kill(os.getpid(), signal.SIGINT)
        return real(*args)

    monkeypatch.setattr(Trainer, "take_step", step)
    with pytest.raises(KeyboardInterrupt): small_run(tmp_path/"b")
    about = checkpoint.load_checkpoint(tmp_path/"b"/"run"/"last")[1]
    assert about["step"] > 0 or about["epoch"] > 0
    assert update is checkpoint.save_checkpoint
    assert small_run(tmp_path/"b", resume=True) == whole


def test_damaged_state_falls_back_and_says_so(tmp_path):
    whole = small_run(tmp_path/"a")
    last = tmp_path/"a"/"run"/"last"
    state = last/"state.safetensors"
    state.write_bytes(state.read_bytes()[:1000])
    (tmp_path/"a"/"run"/"metrics.json").unlink()
    said = []
    again = train(RecordingList(COLONY), tmp_path/"a"/"run", SMALL, cache=tmp_path/"a"/"cache",
                  resume=True, say=said.append)
    assert any("state before" in line for line in said)
    assert again["valid"] == whole["valid"]


def test_training_names_what_only_videos_to_judge_by_show(tmp_path):
    learn, judge = COLONY[0], COLONY[2]
    rare = min({*learn.bouts.action} & {*judge.bouts.action})
    other = learn.replace(bouts=learn.bouts[learn.bouts.action != rare])
    for first, told in ((learn, False), (other, True)):
        said = []
        train(RecordingList([first, judge]), tmp_path/str(told), SMALL, [first.video_id], [judge.video_id],
              cache=tmp_path/f"{told}-cache", say=said.append)
        notes = [line for line in said if line.startswith("note: only validation videos show")]
        assert any(rare in line and "cannot be learned" in line for line in notes) == told


def test_full_disk_keeps_the_state_before(tmp_path, monkeypatch):
    checkpoint.save_checkpoint(tmp_path, {"a": torch.ones(3)}, {"n": 1})
    write = Path.write_bytes

    def full(path, content):
        write(path, content[:9])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(MabeError, match="no space"):
        checkpoint.save_checkpoint(tmp_path, {"a": torch.ones(3)}, {"n": 2})
    assert checkpoint.load_checkpoint(tmp_path)[1] == {"n": 1}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("fps, gap", [(30, 4), (120, 16), (25, 3), (5, 1)])
def test_windows_last_as_long_for_any_camera(tmp_path, fps, gap):
    data = RecordingList([video.replace(fps=float(fps)) for video in COLONY])
    cfg = SMALL.model_copy(update={"epochs": 1})
    def run(cfg, resume=False): return train(data, tmp_path/"run", cfg, resume=resume)
    first = run(cfg)
    at = tmp_path/"run"/"config.yaml"
    assert load_classifier(tmp_path/"run"/"best.safetensors").cfg.frame_gap == gap
    assert run(again := TrainConfig.from_yaml(at), resume=True)["valid"] == first["valid"]
    assert again == cfg, "for another camera its windows would last another time"
    assert f"| frame_gap | {gap} |" in (tmp_path/"run"/"card.md").read_text()
    with pytest.raises(ConfigError, match="frame_gap None, not 7"):
        run(cfg.model_copy(update={"frame_gap": 7}), resume=True)
    cfg.model_copy(update={"frame_gap": gap}).to_yaml(at) # as by an earlier version
    assert run(cfg, resume=True)["valid"] == first["valid"]


def test_videos_of_another_camera_are_looked_at_as_often(tmp_path, monkeypatch):
    small_run(tmp_path)
    clf, asked = load_classifier(tmp_path/"run"/"best.safetensors"), []
    near = functools.partial(np.allclose, rtol=0, atol=1e-6) # the former divides by sums of 1
    rate, gap = clf.inputs.rate, clf.cfg.gap
    assert rate in {video.fps for video in COLONY}

    def noted(model, x, windows, **how):
        asked.append(windows.gap)
        return real(model, x, windows, **how)

    real = predict.in_windows
    for module in (predict, members): monkeypatch.setattr(module, "in_windows", noted)
    for times in (0.5, 1, 4):
        other = RecordingList([COLONY[0].replace(fps=rate * times)])
        prepared = clf.prepared(other, cache=tmp_path/f"{times}")
        one = [p for _, p in classifier.predict_sequences(clf, prepared)]
        two = [members.Net(clf)(prepared.values(i), rate * times) for i in range(len(prepared))]
        assert all(map(near, one, two)) and {*asked} == {gap * times}
        asked.clear()
        assert members.Net(clf)(prepared.values(0)).shape == one[0].shape and asked == [gap]
        asked.clear()


def test_videos_are_learned_at_one_rate(tmp_path):
    "Every third frame of a camera of 90 a second is what one of 30 would have seen."
    slow = COLONY[0].replace(fps=30.0)
    again = slow.replace(xy=slow.xy.repeat(3, axis=0), fps=90.0, video_id="90",
                         bouts=slow.bouts.assign(start=3 * slow.bouts.start,
                                                 stop=3 * slow.bouts.stop))
    data = RecordingList([slow, slow.replace(video_id="30"), again])
    cfg = SMALL.model_copy(update={"features": "coords"})
    made = load_training_set(data, (["1", "30"], ["90"]), cfg, tmp_path)
    assert made.inputs.rate == 30 and made.cfg.gap == 4
    want = load_training_set(data, (["1", "30"], ["1"]), cfg, tmp_path)
    assert made.valid.lengths.tolist() == want.valid.lengths.tolist()
    assert torch.equal(made.valid.labels, want.valid.labels)
    assert torch.equal(made.valid.x, want.valid.x)
    turned = load_training_set(data, (["90"], ["1"]), cfg, tmp_path)
    assert turned.inputs.rate == 90 and turned.cfg.gap == 12
    assert turned.valid.lengths.tolist() == turned.learn.lengths.tolist()


def test_a_run_of_another_pace_goes_on_with_its_own(tmp_path):
    small_run(tmp_path, cfg=SMALL.model_copy(update={"frame_gap": 3}))
    small_run(tmp_path, resume=True)
    assert load_classifier(tmp_path/"run"/"best.safetensors").cfg.frame_gap == 3


def test_another_setting_is_no_resume(tmp_path):
    small_run(tmp_path)
    other = SMALL.model_copy(update={"batch_size": 8})
    with pytest.raises(ConfigError, match="batch_size"): small_run(tmp_path, True, other)
    with pytest.raises(ConfigError, match="--resume"): small_run(tmp_path)


@pytest.mark.parametrize("ids, more", [((["1", "4", "blank"], ["7"]), {}),
                                       ((["1", "4", "10"], ["7"]), {"limit": 2}),
                                       ((["1", "4", "7"], None), {})])
def test_a_run_is_resumed_by_the_line_that_began_it(tmp_path, ids, more):
    "Though it learns from fewer videos than are named."
    videos = [colony_video(k, minutes=0.1) for k in (0, 3, 6, 9)]
    videos.append(videos[0].replace(video_id="blank", labelled=None))
    cfg = TrainConfig(epochs=1, hidden_size=8, num_layers=1, features="coords",
                      sequence_length=20, device="cpu", **more)
    def run(ids, resume): return train(RecordingList(videos), tmp_path/"run", cfg, *ids,
                                       cache=tmp_path/"cache", resume=resume)
    assert run(ids, False) == run(ids, True)
    with pytest.raises(ConfigError, match="other train videos"): run((["1", "10"], ["7"]), True)


# beyond memory

def on_disk(learn, folder):
    learn.x.numpy().tofile(folder/"x.f32")
    return Frames(OnDisk(folder/"x.f32", *learn.x.shape), learn.labels, learn.lengths)


@pytest.mark.parametrize("workers", [0, 2])
def test_disk_and_memory_train_alike(tmp_path, workers):
    noisy = dict(use_augmentation=True, dropout=0.3, num_workers=workers)
    a = trainer(**noisy)
    whole = a.fit()
    b = trainer(on_disk(data(), tmp_path), **noisy)
    assert b.fit() == whole
    assert all(map(torch.equal, a.model.parameters(), b.model.parameters()))


def test_file_that_shrinks_while_training_is_named(tmp_path):
    one = trainer(on_disk(data(), tmp_path), num_workers=2)
    os.truncate(tmp_path/"x.f32", 9000)
    with pytest.raises(MabeError, match="x.f32"): one.fit()


def test_run_beyond_its_budget_is_the_same_run(tmp_path):
    whole = small_run(tmp_path/"a")
    other = SMALL.model_copy(update={"resident_gb": 0.0})
    assert small_run(tmp_path/"b", cfg=other) == whole
    assert not list((tmp_path/"b"/"run").glob(".process*"))


@pytest.mark.slow
def test_reading_windows_keeps_memory_flat(tmp_path):
    "400 MB on disk, batches from all over it, in a process of its own."
    code = f"""
import numpy as np, resource
from pathlib import Path
from mabe_nb.train.fit.frames import OnDisk, batches
path = Path({str(tmp_path/'big.f32')!r})
with open(path, "wb") as f:
    for _ in range(40): np.zeros((25_000, 100), np.float32).tofile(f)
rng = np.random.default_rng(0)
x = OnDisk(path, 1_000_000, 100)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for b in batches(x, [rng.integers(0, 999_000, 16)] * 3, 100, 2): pass
before = peak()
for b in batches(x, [rng.integers(0, 999_000, 16) for _ in range(150)], 100, 2): pass
print(peak() - before)
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                         text=True).stdout
    assert int(out) < 30_000  # kB


# numbers

def test_half_precision_agrees_on_the_cpu():
    one, said = trainer(amp=True, epochs=2), []
    one.recorder.note = said.append
    history = one.fit()
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported(): # No recurrent layers in bfloat16
        assert one.precision.name == "fp32" and "cannot be computed here" in said[0]
        return
    assert one.precision.name == "bf16" and not said
    plain = trainer(epochs=2).fit()
    assert history[-1]["train_loss"] == pytest.approx(plain[-1]["train_loss"], rel=0.05)


def test_half_precision_that_differs_is_left(monkeypatch):
    one, said = trainer(amp=True, epochs=1, model_type="tcn"), []
    forward = one.model.forward

    def wrong(x):
        scores = forward(x)
        return scores * (3 if torch.is_autocast_enabled("cpu") else 1)

    monkeypatch.setattr(one.model, "forward", wrong)
    one.recorder.note = said.append
    one.fit()
    assert one.precision.name == "fp32" and "bf16 differs" in said[0]


def test_too_little_memory_is_not_taken_for_a_lack_of_half_precision():
    def full(x): raise torch.OutOfMemoryError("CUDA out of memory")

    model = torch.nn.Identity()
    model.forward = full
    with pytest.raises(torch.OutOfMemoryError):
        trusted(model, [(torch.ones(2), torch.sum)], Precision(torch.device("cpu"), amp=True))


def test_half_precision_is_the_one_that_is_set():
    precision = Precision(torch.device("cpu"), amp=True)
    for precision.dtype in (torch.float16, torch.bfloat16):
        with precision.context(): assert torch.get_autocast_dtype("cpu") == precision.dtype
    precision.dtype = None
    with precision.context(): assert not torch.is_autocast_enabled("cpu")


def test_nan_in_the_features_stops_with_step_and_cause():
    learn = data()
    learn.x[700, 2] = float("nan")
    with pytest.raises(MabeError, match="by step .* of epoch 1.*features") as e:
        trainer(learn).fit()
    assert "mabe audit" in str(e.value) and "\n" not in str(e.value)


def test_state_of_another_model_is_refused():
    one, two = trainer(), trainer(hidden_size=16)
    with pytest.raises(MabeError, match="does not fit"):
        two.restore(*copy.deepcopy(one.state()))


@pytest.mark.slow
def test_nothing_loads_pytorchs_compiler(tmp_path):
    "It takes 1 to 3 s and 70 MB of each process, and nothing here is compiled."
    code = """
import sys, torch
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.measure.estimate import estimate
from mabe_nb.measure.probe import measure
from mabe_nb.measure.workload import make_spec
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.runs import train
cfg = TrainConfig(epochs=2, conv_channels=[4], lstm_hidden=4, device="cpu", scheduler="plateau")
colony = RecordingList([colony_video(k, minutes=0.5) for k in (0, 3)])
train(colony, sys.argv[1], cfg, ["1"], ["4"])
assert measure(make_spec(cfg, seconds=0.1))["flops"] > 0 and estimate(cfg, card=False)
assert "torch._dynamo" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path/"run"], text=True,
                          env=os.environ | {"MABE_HOME": str(tmp_path)}, capture_output=True)
    assert not done.returncode, done.stderr[-2000:]


@pytest.mark.parametrize("set_before, turns", [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_waiting_threads_sleep_soon_unless_told_otherwise(set_before, turns):
    "It counts only if it is set before PyTorch is imported."
    code = ("import mabe_nb, os, sys; assert 'torch' not in sys.modules; "
            "print(os.environ['GOMP_SPINCOUNT'])")
    env = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"} | set_before
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert out.stdout.strip() == turns, out.stderr


@pytest.mark.parametrize("capability, amp, tf32", [((7, 5), False, False),
                                                   ((8, 0), False, True), ((9, 0), True, False)])
def test_tf32_where_a_card_has_it_and_nothing_smaller_is_asked(monkeypatch, capability, amp,
                                                              tf32):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    before = torch.get_float32_matmul_precision()
    try:
        assert Precision(torch.device("cuda"), amp).tf32 is tf32
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else before)
        assert not Precision(torch.device("cpu")).tf32
    finally: torch.set_float32_matmul_precision(before)

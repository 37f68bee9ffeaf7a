"""Augmentation: what is done to the inputs is what the changed scene would give."""
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.blocks.registry import BLOCKS
from mabe_nb.data.features import compute
from mabe_nb.data.recording import labelled_in
from mabe_nb.data.blocks.symmetry import hidden, mirrored, others_swapped, turned
from mabe_nb.data.synthetic import make_recording
from mabe_nb.errors import ConfigError
from mabe_nb.train.fit.augment import (Augment, Rescale, make_rescale, make_step, make_steps,
                                       unit_powers, scale_of, scene)
from mabe_nb.train.config import TrainConfig, make_config
from mabe_nb.train.fit.frames import Frames
from mabe_nb.train.inputs import fit_inputs
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.models import make_model
from mabe_nb.train.runs import train
from mabe_nb.train.training_set import load_training_set

CPU = torch.device("cpu")
PARTS = ("nose", "ear_left", "ear_right", "body_center", "hip_left", "hip_right",
         "tail_base")
PRESETS = ["coords", "social", "kaggle288", "coords+speed+acceleration+social"]
POSITIONS = ["coords", "kaggle288", "coords+toward"]
FEW = settings(max_examples=5, deadline=None)
ALL = dict(flip=0.5, rotation=180.0, swap_others=0.5, keypoint_dropout=0.2)


def recording(seed=0, mice=4, parts=PARTS, frames=200, spread=10):
    "Points that go their own ways around (40, 25) cm, at two pixels a centimetre."
    rec = scene(parts, mice, seed + 100, frames)
    return rec.replace(xy=2 * (rec.xy * np.float32(spread / 10) + np.float32([40, 25])),
                       px_per_cm=2.0)


def inputs_of(rec, features, parts=None, clip=1e9, **changes):
    "Inputs fitted on one recording; not clipped, so that numbers can be compared."
    parts = parts or rec.parts
    got = compute(rec, features, rec.mice[:2], parts)
    prepared = SimpleNamespace(names=got.names, roles=got.roles, features=features, parts=parts,
                               values=lambda i: got.values,
                               sequences=pd.DataFrame({
                                   "fps": [rec.fps], "video_id": ["1"],
                                   "agent": rec.mice[:1], "target": rec.mice[1:2]}),
                               videos={"1": {"parts": list(rec.parts), "frames": len(rec)}})
    inputs = fit_inputs(prepared, [0], TrainConfig(features=features, **changes))
    return replace(inputs, scaler=replace(inputs.scaler, clip=clip))


def units_of(rec, features):
    "Of the channels that `inputs_of` has."
    return compute(rec, features, rec.mice[:2], rec.parts).units


def batch(inputs, rec):
    "The whole recording as one window."
    got = compute(rec, inputs.features, rec.mice[:2], inputs.parts)
    return inputs(got.values)[None]


def about_middle(change, rec, inputs):
    "A change about the point that the inputs take for the middle."
    middle = (2 * scale_of(inputs, scene(inputs.parts)).middle).astype(np.float32)
    moved = change(rec.replace(xy=rec.xy - middle))
    return moved.replace(xy=moved.xy + middle)


def close(a, b):
    "Equal, but for a value or two that were exactly 0, which is what missing ones are."
    odd = (a == 0) & (b != 0)
    return odd.sum() <= 3 and torch.allclose(a[~odd], b[~odd], atol=2e-4, rtol=2e-4)


# the changed scene gives what the step makes of the inputs

@pytest.mark.parametrize("features", [*PRESETS, *BLOCKS])
def test_flip_is_the_mirrored_recording(features):
    rec = recording()
    inputs = inputs_of(rec, features)
    x, want = batch(inputs, rec), batch(inputs, about_middle(mirrored, rec, inputs))
    try: step = make_step("flip", 1.0, inputs, CPU)
    except ConfigError as e:
        assert "changes nothing" in str(e) and close(x, want)
        assert features in ("speed", "acceleration", "symmetric", "context", "multiscale",
                            "directed_multiscale", "others", "arena") or (
            pytest.fail(f"{features} has sides"))
    else:
        assert not close(x, want) and close(step(x), want)
        assert close(step(step(x)), x)


@FEW
@given(st.integers(0, 10**6), st.integers(2, 4), st.booleans())
@example(8, 2, True) # with such a value
def test_flip_of_any_mice(seed, mice, tracked):
    rec = (make_recording(seed, 150, mice, PARTS, messy=True, px_per_cm=2.0) if tracked
           else recording(seed, mice))
    for features in ("coords", "social", "kaggle288"):
        inputs = inputs_of(rec, features)
        flip = make_step("flip", 1.0, inputs, CPU)
        assert close(flip(batch(inputs, rec)),
                     batch(inputs, about_middle(mirrored, rec, inputs))), features


@FEW
@given(st.sampled_from(POSITIONS), st.floats(-180, 180))
def test_turn_is_the_turned_recording(features, degrees):
    rec = recording(3)
    inputs = inputs_of(rec, features)
    turn = make_step("rotation", 180.0, inputs, CPU)
    want = batch(inputs, about_middle(lambda r: turned(r, degrees), rec, inputs))
    x = batch(inputs, rec)
    assert turn.free
    assert close(turn.by(x, torch.tensor([np.radians(degrees)]).float()), want)
    again = x
    for _ in range(4): again = turn.by(again, torch.tensor([np.pi / 2]))
    assert close(again, x)


def test_others_change_places():
    rec = recording()
    inputs = inputs_of(rec, "kaggle288")
    swap = make_step("swap_others", 1.0, inputs, CPU)
    x = batch(inputs, rec)
    assert close(swap(x), batch(inputs, others_swapped(rec))) and close(swap(swap(x)), x)
    assert not close(swap(x), x)


def lose(drop, x, *keypoints):
    return drop.of(x, torch.tensor([[k in keypoints for k in drop.keypoints]]))


@pytest.mark.parametrize("features", ["coords", "kaggle288", "speed", "missing",
                                      "coords+acceleration"])
def test_lost_keypoint_is_the_recording_without_it(features):
    rec = recording(1)
    inputs = inputs_of(rec, features)
    drop, x = make_step("keypoint_dropout", 0.5, inputs, CPU), batch(inputs, rec)
    mice = rec.mice if features == "kaggle288" else rec.mice[:2]
    assert drop.keypoints == [(m, p) for m in mice for p in PARTS]
    for mouse, part in drop.keypoints:
        gone = hidden(rec, rec.mice.index(mouse), PARTS.index(part))
        assert torch.equal(lose(drop, x, (mouse, part)), batch(inputs, gone)), part
    two = hidden(hidden(rec, 0, 0), 1, 3)
    assert torch.equal(lose(drop, x, ("mouse1", "nose"), ("mouse2", "body_center")),
                       batch(inputs, two))


def test_lost_keypoint_in_social_but_for_what_falls_back():
    "A channel agrees with the recording without the keypoint, or keeps its value."
    rec = recording(1)
    inputs = inputs_of(rec, "social")
    drop, x = make_step("keypoint_dropout", 0.5, inputs, CPU), batch(inputs, rec)
    for mouse, part in drop.keypoints:
        gone = batch(inputs, hidden(rec, rec.mice.index(mouse), PARTS.index(part)))
        got = lose(drop, x, (mouse, part))
        right, kept = (got == gone).all(1)[0], (got == x).all(1)[0]
        assert (right | kept).all() and (right & ~kept).any(), [
            n for n, ok in zip(inputs.names, right | kept) if not ok]
        told = [i for i, n in enumerate(inputs.names) if n.endswith("_missing")]
        assert right[told].all()


def test_shares_of_windows():
    rec = recording()
    inputs = inputs_of(rec, "coords")
    i = inputs.names.index("agent.nose.x")
    frame = int((batch(inputs, rec)[0, :, i] != 0).nonzero()[0])
    x = batch(inputs, rec).repeat(4000, 1, 1)[:, frame:frame + 1]
    torch.manual_seed(0)
    flipped = (make_step("flip", 0.25, inputs, CPU)(x) != x).any((1, 2)).float().mean()
    assert abs(flipped - 0.25) < 0.03
    drop = make_step("keypoint_dropout", 0.1, inputs, CPU)
    assert abs((drop(x)[:, 0, i] == 0).float().mean() - 0.1) < 0.03


def test_rotation_up_to_some_degrees_and_by_quarters():
    rec = recording()
    inputs = inputs_of(rec, "coords")
    x = batch(inputs, rec).repeat(400, 1, 1)[:, :2]
    turn = make_step("rotation", 20.0, inputs, CPU)
    seen = []
    turn.by = lambda x, angle: seen.append(angle) or x
    turn(x)
    turn.degrees, turn.free = 180.0, False
    turn(x)
    assert 0.3 < seen[0].abs().max() <= np.radians(20) + 1e-6 and seen[0].min() < -0.3
    quarters = seen[1] / (np.pi / 2)
    assert set(quarters.round().tolist()) == {-2, -1, 0, 1, 2}
    assert torch.allclose(quarters, quarters.round(), atol=1e-5)


def test_nothing_leaves_the_range():
    rec = recording()
    inputs = inputs_of(rec, "kaggle288", clip=2.0)
    x, steps = batch(inputs, rec), make_steps(TrainConfig(**ALL), inputs)[0]
    for step in steps * 3: x = step(x)
    assert x.abs().max() == 2.0 and torch.isfinite(x).all()


# what cannot be done is said

def test_refusals_name_their_cause():
    def notes(rec, features, cfg=ALL, **changes):
        inputs = inputs_of(rec, features, **changes)
        steps, said = make_steps(TrainConfig(**{"keypoint_dropout": 0} | cfg), inputs)
        assert len(steps) + len(said) == len(cfg)
        return "\n".join(said)

    both, flip = recording(mice=2), dict(flip=1.0)
    assert notes(recording(), "kaggle288") == ""
    said = notes(both, "social")
    assert said.count("\n") == 1 and "rotation is left out: it changes nothing" in said
    assert "swap_others is left out: it changes nothing" in notes(both, "kaggle288")
    three = notes(recording(mice=3), "kaggle288")
    assert three.startswith("swap_others") and "never seen" in three
    assert "\n" not in three
    assert "no 'ear_right'" in notes(recording(parts=PARTS[:2]), "coords", flip)
    assert "what becomes of agent.forepaw_left" in notes(recording(parts=(
        "nose", "tail_base", "ear_left", "ear_right", "neck", "tail_midpoint",
        "tail_tip", "forepaw_left", "forepaw_right")), "social", flip)
    guest = recording(parts=(*PARTS, "spine_9"))
    assert "'spine_9' has no place" in notes(guest, "kaggle288")
    assert notes(guest, "coords", flip) == ""
    pca = notes(both, "coords", include_pca=True, pca_components=2)
    assert pca.count("include_pca") == 4
    assert make_steps(TrainConfig(**ALL, use_augmentation=False),
                      inputs_of(both, "coords")) == ([], [])


@pytest.mark.parametrize("key, value", [
    ("flip", 1.1), ("flip", -0.1), ("rotation", 181), ("swap_others", 2),
    ("keypoint_dropout", "often")])
def test_settings_out_of_range(key, value):
    with pytest.raises(ConfigError, match=key): make_config({key: value})


def test_a_run_says_what_it_left_out(tmp_path):
    videos = [make_recording(k, 400, 2, PARTS, video_id=str(k)) for k in (1, 2)]
    cfg = TrainConfig(features="own", flip=0.5, rotation=90, epochs=1, device="cpu",
                      conv_channels=[8], lstm_hidden=8, num_workers=1)
    said = []
    metrics = train(RecordingList(videos), tmp_path/"run", cfg, ["1"], ["2"],
                    cache=tmp_path/"cache", say=said.append)
    want = "rotation is left out: it changes nothing in 'own' of these animals"
    assert metrics["warnings"] == [want] and f"note: {want}" in said
    assert json.loads((tmp_path/"run"/"metrics.json").read_text())["warnings"] == [want]


def test_a_turn_to_the_left_is_not_learned_from_its_mirror_image(tmp_path):
    "A single run showed `turn_left` in a mirror as `turn_left`; recipes do not."
    def turning(k):
        rec = make_recording(k, 400, 2, PARTS, video_id=str(k))
        sided = rec.bouts.assign(action=np.where(rec.bouts.action == rec.bouts.action.iloc[0],
                                                 "turn_left", rec.bouts.action))
        return rec.replace(bouts=sided, labelled=labelled_in(sided))
    cfg = TrainConfig(features="own", flip=0.5, keypoint_dropout=0.0, device="cpu", num_workers=1)
    for rec, notes, steps in ((turning, ["flip is left out: in a mirror 'turn_left' is another action"], 0),
                              (lambda k: make_recording(k, 400, 2, PARTS, video_id=str(k)), [], 1)):
        data = load_training_set(RecordingList([rec(1), rec(2)]), (["1"], ["2"]), cfg,
                                 cache=tmp_path/str(steps))
        assert data.notes == notes and len(data.augment.steps) == steps


# chance

def test_same_seed_same_batch():
    rec = recording()
    inputs = inputs_of(rec, "kaggle288")
    cfg = TrainConfig(**ALL, mixup_alpha=0.3)
    augment = Augment(cfg, make_steps(cfg, inputs)[0])
    x = batch(inputs, rec).repeat(6, 1, 1)

    def of(seed):
        torch.manual_seed(seed)
        return augment(x.clone())

    (a, order, share), (b, again, same) = of(1), of(1)
    assert torch.equal(a, b) and torch.equal(order, again) and share == same
    assert not torch.equal(a, of(2)[0])
    assert len(augment.steps) == 4


@pytest.mark.slow
def test_steps_stay_on_the_device_and_never_wait_for_it():
    "The meta device holds no numbers: reading one, or a tensor from elsewhere, fails."
    rec = recording()
    inputs, meta = inputs_of(rec, "kaggle288"), torch.device("meta")
    cfg = TrainConfig(**ALL)
    augment = Augment(cfg, make_steps(cfg, inputs, meta)[0])
    x, order, share = augment(torch.empty(6, 50, inputs.dim, device=meta))
    assert x.shape == (6, 50, inputs.dim) and x.device == meta and len(augment.steps) == 4
    cpu = Augment(cfg, make_steps(cfg, inputs)[0])
    with pytest.raises(RuntimeError): cpu(torch.empty(6, 50, inputs.dim, device=meta))


def test_noise_and_mixup_alone_need_no_inputs():
    x = torch.randn(5, 4, 3)
    torch.manual_seed(0)
    noisy, order, share = Augment(TrainConfig(noise_std=0.5))(x.clone())
    torch.manual_seed(0)
    assert torch.equal(noisy, x + 0.5 * torch.randn_like(x))
    assert (order, share) == (None, 1)
    off = TrainConfig(use_augmentation=False, mixup_alpha=0.5)
    assert torch.equal(Augment(off)(x.clone())[0], x)
    mixed, order, share = Augment(TrainConfig(noise_std=0, mixup_alpha=0.5))(x.clone())
    assert torch.equal(mixed, share * x + (1 - share) * x[order]) and 0 < share < 1


def test_resume_is_bit_equal_with_everything_on():
    rec = recording(frames=600)
    labels = np.random.default_rng(0).integers(0, 2, (600, 1))
    inputs = inputs_of(rec, "kaggle288", clip=8.0)
    cfg = TrainConfig(**ALL, mixup_alpha=0.2, epochs=2, batch_size=4, device="cpu",
                      sequence_length=30, frame_gap=1, model_type="lstm", hidden_size=8)
    frames = Frames(batch(inputs, rec)[0], torch.from_numpy(labels.astype(np.int8)),
                    np.array([600]))

    units = units_of(rec, "kaggle288")

    def trainer(most=0.2):
        torch.manual_seed(0)
        augment = Augment(cfg, make_steps(cfg, inputs)[0], Rescale(inputs, units, most, most))
        one = Trainer(make_model(cfg, inputs.dim, 2), frames, frames,
                      np.ones(2, np.float32), np.ones(2, bool), cfg, augment=augment)
        one.save_seconds = -1 # after each step
        return one

    whole, states = trainer(), []
    def keep(tensors, about):
        states.append(({k: v.clone() for k, v in tensors.items()},
                       json.loads(json.dumps(about))))
    whole.recorder.keep_state = keep
    history = whole.fit()
    middle = next(s for s in states if s[1]["epoch"] == 1 and s[1]["step"] == 2)
    other = trainer()
    other.restore(*middle)
    assert other.fit() == history != trainer(0.0).fit()
    assert all(map(torch.equal, whole.model.parameters(), other.model.parameters()))


# other sizes and speeds

RESCALED = ["directed_smoothed", "unordered+multiscale", "smoothed", "coords+social"]


@pytest.mark.parametrize("features", RESCALED)
def test_a_larger_scene_is_what_the_step_makes_of_the_window(features):
    rec = recording(spread=3)
    inputs, units = inputs_of(rec, features), units_of(rec, features)
    step, one = Rescale(inputs, units), torch.ones(1)
    x, other = batch(inputs, rec), batch(inputs, rec.replace(xy=rec.xy * np.float32(1.2)))
    got, _ = step.by(x, torch.zeros(1, x.shape[1]), 1.2 * one, one)
    assert torch.allclose(got, other, atol=2e-2) and not torch.allclose(x, other, atol=0.1)


def test_a_faster_camera_shows_a_slower_animal():
    "The same frames at half the rate: speeds halve, lengths and angles stay."
    rec = recording(spread=3)
    slow = rec.replace(fps=rec.fps / 2)
    features = "coords+speed+acceleration"
    inputs, units = inputs_of(rec, features), units_of(rec, features)
    step = Rescale(inputs, units)
    assert set(map(unit_powers, units)) == {(1, 0), (1, 1), (1, 2)}
    x, frames = batch(inputs, rec), torch.arange(len(rec.xy))[None]
    got, taken = step.by(x, frames, torch.ones(1), torch.full((1,), 0.5))
    n = len(rec.xy)
    known = (x != 0)[0, taken[0]]
    want = batch(inputs, slow)[0, taken[0]]
    assert torch.allclose(got[0][known], want[known], atol=2e-2)
    assert taken[0, 0] == round((n - 1) / 4 - 1e-3) and taken.unique().numel() <= n // 2 + 1


def test_labels_move_with_their_frames_and_chance_is_the_batch_s():
    rec = recording(spread=3)
    inputs = inputs_of(rec, "coords")
    units = units_of(rec, "coords")
    x = torch.randn(8, 60, inputs.dim)
    frames = torch.arange(60).expand(8, 60)
    step = Rescale(inputs, units, scale=0.2, time_stretch=0.3)
    torch.manual_seed(3)
    a, at = step(x.clone(), frames)
    torch.manual_seed(3)
    assert torch.equal(step(x.clone(), frames)[0], a)
    pace = (at[:, 40] - at[:, 20]) / 20
    assert pace.unique().numel() > 3 and pace.min() > 1 / 1.4 and pace.max() < 1.4
    assert torch.equal(Rescale(inputs, units)(x, frames)[0], x)


def test_settings_make_the_step_or_say_why_not():
    rec = recording()
    inputs, units = inputs_of(rec, "coords"), units_of(rec, "coords")
    assert make_rescale(TrainConfig(scale=0, time_stretch=0), inputs, units) == (None, [])
    off = TrainConfig(scale=0.1, use_augmentation=False)
    assert make_rescale(off, inputs, units) == (None, [])
    step, notes = make_rescale(TrainConfig(scale=0, time_stretch=0.2), inputs, units)
    assert step.most.tolist() == [0, np.log1p(0.2)] and not notes
    mixed = inputs_of(rec, "coords", include_pca=True, pca_components=2)
    step, notes = make_rescale(TrainConfig(scale=0.2), mixed, units)
    assert step is None and "principal components" in notes[0]


def test_a_default_that_cannot_be_met_is_left_out_without_a_word():
    rec, cfg = recording(), TrainConfig()
    mixed = inputs_of(rec, "coords", include_pca=True, pca_components=2)
    assert cfg.keypoint_dropout and cfg.scale and cfg.time_stretch
    assert make_steps(cfg, mixed) == ([], [])
    assert make_rescale(cfg, mixed, units_of(rec, "coords")) == (None, [])


"""Features: analytic trajectories, invariances, missing points, NumPy against torch."""
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from mabe_nb.data import features
from mabe_nb.data.blocks import motion as kinematics
from mabe_nb.data.blocks.bodies import (ALTERNATIVES, body_length, body_points, MOUSE_CM,
                                        mouse_order)
from mabe_nb.data.blocks import rolling
from mabe_nb.data.blocks.geometry import fill_gaps, motion
from mabe_nb.data.blocks.registry import (ALIASES, BLOCKS, PRESETS, block, compute_blocks,
                                          named)
from mabe_nb.data.blocks.rolling import (half_frames, rolling_max, rolling_mean_stds,
                                         rolling_min)
from mabe_nb.data.features import compute
from mabe_nb.data.blocks.motion import SLOTS
from mabe_nb.data.recording import Recording
from mabe_nb.data.blocks.pair import CONTEXT_OF, GAP_MS, SOCIAL, animals
from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.extend import load_announced

CALMS21 = ("nose", "ear_left", "ear_right", "neck", "hip_left", "hip_right",
           "tail_base")
RATS = ("body_center", "head", "tail_base", "tail_midpoint", "tail_tip")
KAGGLE_SETS = {
    "A7": CALMS21,
    "B7": ("body_center", "ear_left", "ear_right", "lateral_left", "lateral_right",
           "nose", "tail_base"),
    "C5": ("body_center", "ear_left", "ear_right", "nose", "tail_base"),
    "D5": ("ear_left", "ear_right", "nose", "tail_base", "tail_tip"),
    "E4": ("ear_left", "ear_right", "head", "tail_base"),
    "F18": ("body_center", "ear_left", "ear_right", "lateral_left", "lateral_right",
            "nose", "tail_base", "neck", "tail_midpoint", "tail_tip",
            *(f"headpiece_{a}{b}{c}" for a in ("top", "bottom")
              for b in ("front", "back") for c in ("left", "right"))),
    "G14": ("body_center", "ear_left", "ear_right", "lateral_left", "lateral_right",
            "nose", "tail_base", "hip_left", "hip_right", "spine_1", "spine_2",
            "tail_middle_1", "tail_middle_2", "tail_tip"),
    "H12": ("body_center", "ear_left", "ear_right", "forepaw_left", "forepaw_right",
            "hindpaw_left", "hindpaw_right", "neck", "nose", "tail_base",
            "tail_midpoint", "tail_tip"),
}
BODY = {"nose": (70, 0), "head": (60, 0), "ear_left": (55, 12), "ear_right": (55, -12),
        "neck": (45, 0), "body_center": (30, 0), "hip_left": (10, 14),
        "hip_right": (10, -14), "tail_base": (0, 0), "tail_midpoint": (-30, 5),
        "tail_tip": (-60, 15)}


def smooth(seconds=8., fps=30., mice=2, parts=CALMS21, seed=0, **fields):
    "Animals whose place and heading are sums of slow sines."
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds*fps))[:, None, None] / fps
    speed, phase = rng.uniform(.3, 1.2, (2, mice, 3)), rng.uniform(0, 6, (2, mice, 3))
    wave = lambda i: np.sin(speed[i]*t + phase[i]).sum(-1)
    place = np.stack([wave(0), wave(1)], -1)*80 + 400 + 60*np.arange(mice)[:, None]
    angle = np.sin(.7*t[..., 0] + phase[0, :, 0]) * 2
    body = np.array([BODY.get(p, (5*i, 3)) for i, p in enumerate(parts)], float)
    turn = np.stack([np.stack([np.cos(angle), np.sin(angle)], -1),
                     np.stack([-np.sin(angle), np.cos(angle)], -1)], -2)
    xy = place[:, :, None] + np.einsum("pi,tmij->tmpj", body, turn)
    return Recording(xy.astype(np.float32), tuple(f"mouse{i + 1}" for i in range(mice)),
                     tuple(parts), fps=fps, **fields)


def moved(rec, angle, shift):
    "The same recording under a turned and shifted camera."
    c, s = np.cos(angle), np.sin(angle)
    xy = rec.xy.astype(float) @ np.array([[c, s], [-s, c]]) + shift
    return rec.replace(xy=xy.astype(np.float32))


def holes(rec, share, seed=0):
    "The same recording with points missing."
    lost = np.random.default_rng(seed).random(rec.xy.shape[:3]) < share
    return rec.replace(xy=np.where(lost[..., None], np.nan, rec.xy).astype(np.float32))


def close(a, b, rtol=1e-5, atol=1e-5):
    return np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)


# --- analytic trajectories

dyadic = st.integers(-64, 64).map(lambda i: i / 16)


@settings(deadline=None, max_examples=40)
@given(x=st.tuples(dyadic, dyadic), v=st.tuples(dyadic, dyadic),
       a=st.tuples(dyadic, dyadic), fps=st.sampled_from([10, 25, 29.97, 30, 120]),
       frames=st.integers(3, 600))
def test_parabola(x, v, a, fps, frames):
    "Speed and acceleration of x + v t + a t^2 / 2 (t in frames), at every frame."
    # Only paths that float32 holds exactly: else the poses are not on the parabola.
    t = np.arange(frames)[:, None]
    path = np.array(x) + np.array(v)*t + np.array(a)*t*t/2
    assume((path.astype(np.float32) == path).all())
    rec = Recording(path.astype(np.float32)[:, None, None], ("m",), ("nose",), fps=fps)
    f = compute(rec, "speed+acceleration").values
    close(f[:, 0], fps*np.hypot(*(np.array(v) + np.array(a)*t).T))
    close(f[:, 1], fps**2*np.hypot(*a), atol=1e-5*fps**2)


def test_circle_in_centimetres():
    t = np.arange(3000)/500
    xy = 200*np.stack([np.cos(3*t), np.sin(3*t)], -1)[:, None, None].astype(np.float32)
    rec = Recording(xy, ("m",), ("nose",), fps=500, px_per_cm=20)
    f = compute(rec, "speed+acceleration")
    assert f.units == ("cm/s", "cm/s2")
    close(f.values[1:-1, 0], 30, rtol=1e-4)
    close(np.median(f.values[:, 1]), 90, rtol=1e-2)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 99), fps=st.sampled_from([60., 90., 120.]))
def test_resampling_leaves_speeds(seed, fps):
    slow, fast = (compute(smooth(fps=f, seed=seed, px_per_cm=20), "own+speed")
                  for f in (30., fps))
    step, inner = round(fps/30), slice(20, -20)
    for i, name in enumerate(slow.names):
        if not name.endswith("speed") and "travel" not in name: continue
        a, b = slow.values[inner, i], fast.values[::step, i][inner]
        assert np.abs(a - b).max() < .01*np.abs(a).max(), name


# --- where the camera stood

@settings(deadline=None, max_examples=20)
@given(angle=st.floats(-4, 4), dx=st.floats(-300, 300), dy=st.floats(-300, 300),
       seed=st.integers(0, 99), scale=st.sampled_from([None, 18.3]))
def test_camera_does_not_matter(angle, dx, dy, seed, scale):
    rec = smooth(4, seed=seed, px_per_cm=scale)
    a = compute(rec, "social+speed").values
    b = compute(moved(rec, angle, (dx, dy)), "social+speed").values
    for x, y in zip(a.T, b.T):
        close(x, y, rtol=5e-3, atol=5e-3*(1 + np.nanmax(np.abs(x))))


@pytest.mark.parametrize("zoom", [.5, 3])
def test_zoom_does_not_matter_without_a_scale(zoom):
    rec = smooth(4)
    big = compute(rec.replace(xy=rec.xy*np.float32(zoom)), "social")
    assert "~cm" in big.units and not {"px", "bl"} & set(big.units)
    close(big.values, compute(rec, "social").values, rtol=2e-3, atol=2e-3)


def test_a_video_without_a_scale_has_the_unit_of_those_with_one():
    rec = smooth(4)
    known = compute(rec.replace(px_per_cm=body_length(rec) / MOUSE_CM), "social")
    free = compute(rec, "social")
    assert [u.replace("~", "") for u in free.units] == [*known.units] and "~cm/s" in free.units
    close(known.values, free.values, rtol=1e-3, atol=1e-3)


def test_a_mirror_does_not_matter_to_order_free_channels():
    rec = smooth(4)
    mirror = rec.replace(xy=rec.xy*np.array([-1, 1], np.float32))
    a, b = (compute(r, "symmetric").values for r in (rec, mirror))
    close(a, b, rtol=1e-4, atol=1e-4)
    f, g = (compute(r, "own") for r in (rec, mirror))
    turn = f.names.index("agent.turn")
    close(f.values[:, turn], -g.values[:, turn], rtol=1e-4, atol=1e-4)


# --- NumPy and torch

@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 99), share=st.sampled_from([0, .1, .4]),
       mice=st.integers(1, 4),
       name=st.sampled_from([*PRESETS, "context+speed", *sorted({*BLOCKS} - {*PRESETS})]))
def test_torch_agrees(seed, share, mice, name):
    rec = holes(smooth(3, mice=mice, seed=seed), share, seed)
    one, two = compute(rec, name), compute(rec, name, backend="torch")
    assert isinstance(two.values, torch.Tensor) and two.values.dtype == torch.float32
    assert one.values.dtype == np.float32 and one.names == two.names
    assert len(one.names) == len(one.units) == one.values.shape[1]
    close(one.values, two.values.numpy(), # Of what hardly varies, in its deviations
          **(dict(rtol=5e-3, atol=5e-3) if name == "zscored" else {}))


# --- missing points

@settings(deadline=None, max_examples=30)
@given(mouse=st.integers(0, 1), part=st.integers(0, 6), frame=st.integers(0, 89))
def test_a_missing_point_takes_only_its_own_channels(mouse, part, frame):
    rec = smooth(3)
    xy = rec.xy.copy()
    xy[frame, mouse, part] = np.nan
    for name in ("kaggle288", "coords+speed+acceleration"):
        f, whole = compute(rec.replace(xy=xy), name), compute(rec, name)
        gone = np.isnan(f.values) & ~np.isnan(whole.values)
        mine = f"{('agent', 'target')[mouse]}.{CALMS21[part]}."
        assert all(n.startswith(mine) for n in np.array(f.names)[gone.any(0)])
        assert gone[frame].sum() == 4
        assert (np.abs(gone.any(1).nonzero()[0] - frame) <= (2 if frame in (0, 89) else
                1 + 2*(frame in (1, 2, 87, 88)))).all()
        close(f.values[~gone], whole.values[~gone])


def test_short_gaps_are_bridged_and_say_so():
    rec = smooth(8, parts=RATS)
    xy = rec.xy.copy()
    limit = round(GAP_MS*rec.fps/1000)
    xy[20:20 + limit, 0, 0] = np.nan # the centre
    xy[120:121 + limit, 0, 0] = np.nan
    f = compute(rec.replace(xy=xy), "missing+between")
    by = dict(zip(f.names, f.values.T))
    assert (by["agent.center_missing"][20:20 + limit] == .5).all()
    assert (by["agent.center_missing"][120:121 + limit] == 1).all()
    assert by["agent.center_missing"].sum() == 1.5*limit + 1
    assert by["target.center_missing"].sum() == 0
    assert np.isfinite(by["pair.center_front"][20:20 + limit]).all()
    assert np.isnan(by["pair.center_front"][120:121 + limit]).all()
    assert np.isfinite(by["pair.front_front"]).all()


@pytest.mark.parametrize("name", [*PRESETS, *sorted({*BLOCKS} - {*PRESETS})])
@pytest.mark.parametrize("frames", [0, 1, 2, 3])
def test_tiny_videos(name, frames):
    rec = smooth(3)
    assert len(compute(rec.replace(xy=rec.xy[:frames]), name)) == frames


@pytest.mark.parametrize("name", [*PRESETS, *sorted({*BLOCKS} - {*PRESETS})])
def test_nothing_known(name):
    rec = smooth(2)
    f = compute(rec.replace(xy=rec.xy*np.nan), name)
    mask = np.array([role == "mask" for role in f.roles], bool)
    still = np.array([".std" in n or n.endswith(".usual") for n in f.names])
    assert np.isnan(f.values[:, ~mask]).all() and (f.values[:, mask & ~still] == 1).all()
    assert (f.values[:, mask & still] == 0).all() # missing as ever does not vary


# --- who and which parts

def test_pair_puts_the_agent_first():
    rec = smooth(2, mice=3)
    f = compute(rec, "coords", ("mouse3", "mouse1"))
    close(f.values.reshape(-1, 3, 7, 2), rec.xy[:, [2, 0, 1]])
    assert f.names[0] == "agent.nose.x" and f.names[-1] == "other1.tail_base.y"
    assert mouse_order(rec, ("mouse2", "mouse2")) == [1, 0, 2]
    close(compute(rec, "coords", ("mouse2", "mouse2")).values[:, :14],
          rec.xy[:, 1].reshape(-1, 14))


def test_swapping_the_pair_swaps_the_roles():
    rec = holes(smooth(4), .2)
    there = compute(rec, "social", ("mouse1", "mouse2"))
    back = compute(rec, "social", ("mouse2", "mouse1"))
    by = dict(zip(back.names, back.values.T))
    for name, x in zip(there.names, there.values.T):
        if name.startswith("agent."): close(x, by["target." + name[6:]])
        if name.startswith(("least.", "most.")) or name.rpartition(".")[0] in CONTEXT_OF:
            close(x, by[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["coords", "speed", "social"])
def test_parts_of_the_dataset_fix_the_channels(name):
    every = [p for s in KAGGLE_SETS.values() for p in s]
    every = tuple(dict.fromkeys(every))
    cases = [(mice, parts, pair) for parts in (CALMS21, RATS) for mice in (1, 2, 4)
             for pair in (None, ("mouse1", "mouse1"))]
    all_names = {compute(smooth(1, mice=m, parts=p), name, pair, parts=every).names
                 for m, p, pair in cases}
    assert len(all_names) == 1


@pytest.mark.parametrize("name", ("social", "coords", "kaggle288", "coords+speed"))
def test_two_parts_of_one_usual_name_stay_two(name):
    parts = ("nose", "body_center", "centroid", "tail_base")
    rec = smooth(3, parts=parts)
    order = [3, 2, 0, 1] # Where a file says them in another order
    other = rec.replace(xy=rec.xy[:, :, order], parts=tuple(parts[i] for i in order))
    a, b = compute(rec, name, parts=parts), compute(other, name, parts=parts)
    assert a.names == b.names and np.array_equal(a.values, b.values, equal_nan=True)
    moved = rec.xy.copy()
    moved[:, :, 2] += 7 * np.sin(np.arange(len(rec)))[:, None, None] # The centroid alone
    c = compute(rec.replace(xy=moved), name, parts=parts)
    differ = [n for n, x, y in zip(a.names, a.values.T, c.values.T)
              if not np.array_equal(x, y, equal_nan=True)]
    assert differ and len(differ) < len(a.names)
    center = [i for i, n in enumerate(a.names) if "body_center" in n]
    assert np.array_equal(a.values[:, center], c.values[:, center], equal_nan=True)


@pytest.mark.parametrize("pair", [("mouse1", "mouse1"), None])
def test_alone(pair):
    rec = smooth(3, mice=2 if pair else 1)
    f = compute(rec, "social", pair)
    assert f.names == compute(smooth(3), "social").names
    for name, x in zip(f.names, f.values.T):
        if name.startswith("target.") and "missing" not in name:
            assert np.isnan(x).all()
        if name.startswith(("agent.speed", "agent.length")): assert np.isfinite(x).all()


def test_points_of_unknown_parts_are_of_those_that_were_seen():
    rec = smooth(1, parts=("p1", "p2", "p3", "p4"))
    rec.xy[:, :, [0, 2]] = np.nan
    assert body_points(rec) == {"front": (1,), "center": (1, 3), "rear": (3,)}
    rec.xy[:] = np.nan
    assert body_points(rec)["center"] == (0, 1, 2, 3)


@pytest.mark.parametrize("parts", KAGGLE_SETS.values(), ids=KAGGLE_SETS)
def test_every_kaggle_part_set(parts):
    rec = smooth(1, mice=4, parts=parts)
    f = compute(rec, "kaggle288")
    assert f.values.shape == (30, 288)
    assert f.names == compute(smooth(1), "kaggle288").names
    assert np.isfinite(f.values).all(0).sum() == 4*4*len(parts)
    assert len(f.findings) == (not set(parts) <= set(SLOTS))
    found = f.values[:, :36].reshape(30, 18, 2)
    for i in range(len(parts)):
        assert (np.abs(found - rec.xy[:, :1, i]).max((0, 2)) == 0).sum() == 1
    for p in body_points(rec).values(): assert p
    social = compute(rec, "social", parts=[p for s in KAGGLE_SETS.values() for p in s])
    assert social.names == compute(smooth(1), "social", parts=[
        p for s in KAGGLE_SETS.values() for p in s]).names
    assert len(social.names) <= 210
    own = [n for n in social.names if n.startswith("agent.") and "speed" in n]
    assert np.isfinite(social.values[:, [social.names.index(n) for n in own]]).all()


def test_alternatives_are_spelled_as_in_the_data():
    known = {p for s in KAGGLE_SETS.values() for p in s}
    assert {p for c in ALTERNATIVES.values() for a in c for p in a.split()} <= known


@pytest.mark.parametrize("shape", [(5, 7), (2, 19)])
def test_kaggle288_refuses_what_does_not_fit(shape):
    rec = smooth(1, mice=shape[0], parts=[f"p{i}" for i in range(shape[1])])
    with pytest.raises(DataError, match="kaggle288 holds"): compute(rec, "kaggle288")


@pytest.mark.parametrize("name, pair, backend, said", [
    ("socail", None, "numpy", "did you mean 'social'"), ("", None, "numpy", "known:"),
    ("coords+coords", None, "numpy", "twice"),
    ("kaggle288+speed", None, "numpy", "twice"),
    ("coords", ("mouse1", "mouse9"), "numpy", "mouse"),
    ("coords", None, "jax", "backend")])
def test_wrong_names(name, pair, backend, said):
    with pytest.raises(ConfigError, match=said) as e:
        compute(smooth(1), name, pair, backend=backend)
    assert isinstance(e.value, MabeError) and "\n" not in str(e.value)


# --- stretches, chunks, rolling

@pytest.mark.parametrize("fps", [None, 1, 0.5])
def test_stretches_do_not_show(monkeypatch, fps):
    rec = holes(smooth(40), .2)
    rec = rec.replace(fps=float(fps or rec.fps))
    whole = compute(rec, "social").values
    monkeypatch.setattr(features, "STRETCH", 301)
    close(compute(rec, "social").values, whole)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["social", "coords", "own+zscored", "coords+own+speed"])
def test_a_pair_in_one_piece_is_its_stretches(name, backend, monkeypatch):
    "Bit for bit, of several pairs too."
    monkeypatch.setattr(features, "STRETCH", 301)
    rec, pieces = holes(smooth(40), .2), {}
    both = [rec.mice[:2], rec.mice[1::-1]]
    for pair, f in features.compute_pairs(rec, name, both, backend=backend):
        pieces.setdefault(pair, []).append(np.asarray(f.values))
    whole = dict(features.compute_pairs(rec, name, both, backend=backend, whole=True))
    for pair in both:
        made = np.concatenate(pieces[pair])
        assert np.array_equal(np.asarray(whole[pair].values), made, equal_nan=True)
        alone = compute(rec, name, pair, backend=backend).values
        assert np.array_equal(np.asarray(alone), made, equal_nan=True)


@settings(deadline=None, max_examples=20)
@given(chunk=st.integers(1, 40), frames=st.integers(1, 90))
def test_chunks_do_not_show(chunk, frames):
    rec = holes(smooth(3), .05)
    rec = rec.replace(xy=rec.xy[:frames])
    whole, before = compute(rec, "kaggle288").values, kinematics.CHUNK
    try:
        kinematics.CHUNK = chunk
        assert np.array_equal(compute(rec, "kaggle288").values, whole, equal_nan=True)
    finally: kinematics.CHUNK = before


@pytest.mark.parametrize("totals", [True, False])
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 999), frames=st.integers(1, 60), half=st.integers(1, 80),
       share=st.sampled_from([0, .3, .9]), level=st.sampled_from([0, 1e4]))
def test_rolling_is_what_it_says(totals, seed, frames, half, share, level):
    rng = np.random.default_rng(seed)
    x = level + rng.normal(size=(frames, 2))
    if not totals: x[0, 1] = level + 3 * rolling.FAR
    x[rng.random(x.shape) < share] = np.nan
    mean, std = rolling_mean_stds(x, [half])[0]
    low, high = rolling_min(x, half), rolling_max(x, half)
    for t in range(frames):
        for c in range(2):
            near = x[max(t - half, 0):t + half + 1, c]
            near = near[~np.isnan(near)]
            want = ([near.mean(), near.std(), near.min(), near.max()] if near.size
                    else [np.nan]*4)
            close([mean[t, c], std[t, c], low[t, c], high[t, c]], want, 1e-9, 8e-6)


def test_without_bottleneck_features_are_the_same(monkeypatch):
    rec, name = holes(smooth(40), .2), "social+smoothed+multiscale"
    fast, called = compute(rec, name).values, []
    monkeypatch.setattr(rolling, "running_totals_fit", lambda x: called.append(len(x)))
    close(compute(rec, name).values, fast)
    assert called


@pytest.mark.parametrize("size", [1e7, 1e9, 1e30])
def test_a_wild_point_is_forgotten(size):
    "Windows that no longer hold it are what they were without it."
    rec = smooth(40)
    calm = compute(rec, "social+smoothed+multiscale").values[700:]
    rec.xy[300, 0, 0] = size
    wild = compute(rec, "social+smoothed+multiscale").values
    close(wild[700:], calm)
    assert np.nanmax(abs(wild[290:310])) > 1e5


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 999), limit=st.integers(0, 12))
def test_fill_gaps_is_linear_interpolation(seed, limit):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=60)
    for start in rng.integers(0, 60, 6): x[start:start + rng.integers(1, 10)] = np.nan
    got, known = fill_gaps(x, limit), np.flatnonzero(~np.isnan(x))
    want = x.copy()
    for a, b in zip(known[:-1], known[1:]):
        if b - a - 1 <= limit: want[a:b] = np.interp(np.arange(a, b), [a, b], x[[a, b]])
    close(got, want, 1e-9, 1e-9)


def test_windows_are_in_milliseconds():
    assert half_frames(1000, 120) == 4*half_frames(1000, 30) == 60


def test_motion_leaves_its_input_alone():
    x = np.arange(10.)**2
    before = x.copy()
    motion(x, 30)
    assert (x == before).all()
    rec = smooth(1)
    kept = rec.xy.copy()
    for name in PRESETS: compute(rec, name)
    assert (rec.xy == kept).all()


def test_a_block_may_come_first_and_numpy_users_pay_for_no_torch():
    code = ("import sys; from mabe_nb.data.blocks.registry import block; "
            "block(needs=('own', 'coords'))(len); "
            "print(any(m in sys.modules for m in ('torch', 'sklearn', 'matplotlib')))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                         check=True, env=os.environ, cwd=Path(__file__).parents[1])
    assert out.stdout.strip() == "False"


def test_groups_add_up_to_social():
    rec = smooth(2)
    whole = compute(rec, "social")
    alone = [compute(rec, g) for g in SOCIAL]
    assert sum((f.names for f in alone), ()) == whole.names
    close(np.concatenate([f.values for f in alone], 1), whole.values)


# --- blocks: each once, and only where it is needed

NEEDED = {"missing": {"missing"}, "symmetric": {"own", "toward", "symmetric"},
          "own+speed+symmetric+context": {"own", "toward", "symmetric", "between",
                                          "context"},
          "zscored+coords+smoothed": {"own", "toward", "parts", "between", "missing",
                                      "unordered", "smoothed", "zscored"}}


@pytest.mark.parametrize("name", NEEDED)
def test_a_block_is_computed_once_and_only_when_needed(name, monkeypatch):
    count = Counter()
    for b in list(BLOCKS.values()):
        if b.source != "pair": continue
        def counted(*args, b=b):
            count[b.name] += 1
            return b.make(*args)
        monkeypatch.setitem(BLOCKS, b.name, b._replace(make=counted))
    f = compute(smooth(2), name)
    assert count == dict.fromkeys(NEEDED[name], 1)
    alone = [compute(smooth(2), part) for part in name.split("+")]
    assert f.names == sum((g.names for g in alone), ())
    assert f.roles == sum((g.roles for g in alone), ())
    close(f.values, np.concatenate([g.values for g in alone], 1))


STATISTIC = re.compile(r"\.(mean|std|min|max|rise|ago|later)\d+$")


@pytest.mark.parametrize("name", [*PRESETS, *sorted({*BLOCKS} - {*PRESETS})])
def test_roles(name):
    "What names used to be read for, where they tell it right."
    f = compute(smooth(1), name)
    assert len(f.roles) == len(f.names)
    for channel, role in zip(f.names, f.roles):
        assert (role in ("x", "y")) == channel.endswith((".x", ".y"))
        assert (role == "mask") == ("missing" in channel)
        assert (role == "statistic") == (bool(STATISTIC.search(channel)) and
                                         name in ("social", "context", "multiscale",
                                                  "directed_multiscale"))


@pytest.mark.parametrize("old", ALIASES)
def test_old_names_of_blocks(old):
    one, two = compute(smooth(2), old), compute(smooth(2), ALIASES[old])
    assert one.names == two.names
    close(one.values, two.values)


def test_walls_are_measured_once_and_only_for_the_arena(monkeypatch):
    calls, real = [], features.arena.walls
    monkeypatch.setattr(features.arena, "walls", lambda rec: calls.append(1) or real(rec))
    monkeypatch.setattr(features, "STRETCH", 50)
    compute(smooth(5), "social+smoothed")
    assert not calls
    compute(smooth(5), "arena+own")
    assert len(calls) == 1


def test_sided_channels_change_their_sign_in_a_mirror():
    rec, names = smooth(3), ("own", "toward", "between")
    mirror = rec.replace(xy=rec.xy * np.float32([-1, 1]))
    points, parts = features.pair_points(rec)
    one, two = (compute_blocks(animals(r.xy, 1., points, parts, 30, "px"), names)
                for r in (rec, mirror))
    for name in names:
        for k, c in one[name].items():
            size = 1 + np.nanmax(np.abs(c.values))
            close(two[name][k].values / size, (-c.values if c.sided else c.values) / size,
                  1e-4, 1e-4)


def test_a_block_that_does_not_exist_or_has_an_odd_role(monkeypatch):
    with pytest.raises(ConfigError, match="did you mean 'own'"): block(needs=("owm",))(len)
    monkeypatch.setitem(BLOCKS, "odd", None)

    @block()
    def odd(pair): return named("1", "maks", odd=pair.points[:, 0, 0, 0])
    with pytest.raises(ConfigError, match="unknown role 'maks'; did you mean 'mask'"):
        compute(smooth(1), "odd")


def test_a_block_that_an_installed_package_announces(tmp_path, monkeypatch):
    (tmp_path/"lab_blocks.py").write_text(
        "from mabe_nb.data.blocks.registry import block, named\n\n\n@block()\n"
        "def announced(pair): return named('1', zero=0 * pair.missing[:, :, 0])\n")
    (tmp_path/"lab-1.dist-info").mkdir()
    (tmp_path/"lab-1.dist-info"/"entry_points.txt").write_text(
        "[mabe_nb]\nlab = lab_blocks\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_announced.cache_clear() # of what was asked for before
    try: assert compute(smooth(1), "announced").names == ("agent.zero", "target.zero")
    finally: BLOCKS.pop("announced", None)


# --- real data

RAT_FOLDER = Path(__file__).parents[2] / "shared" / "data" / "rats"


@pytest.mark.skipif(not RAT_FOLDER.exists(),
                    reason="real rat videos are not beside this checkout")
def test_rats():
    from mabe_nb.data.kaggle import read_kaggle
    rec = read_kaggle(RAT_FOLDER)["1"]
    f = compute(rec, "social", ("mouse1", "mouse2"))
    assert f.values.shape == (12000, len(f.names)) and 100 < len(f.names) <= 200
    assert np.isinf(f.values).sum() == 0
    by = dict(zip(f.names, f.values.T))
    assert 5 < np.nanmedian(by["agent.length"]) < 15
    assert np.isfinite(by["pair.nearest"]).mean() > .5
    assert set(np.unique(by["agent.front_missing"])) == {0, .5, 1}


def test_the_parts_of_a_dataset_leave_the_target_where_there_is_one():
    rec = smooth(1, mice=3)
    whole, own = (compute(rec, "coords", ("mouse3", "mouse1"), parts) for parts in (None, CALMS21))
    at = [whole.names.index(name) for name in own.names]
    assert np.array_equal(own.values, whole.values[:, at]) and np.isfinite(own.values).all()
    alone = compute(rec, "coords", ("mouse2", "mouse2"), CALMS21)
    target = np.array([name.startswith("target") for name in own.names])
    assert alone.names == own.names and np.isnan(alone.values[:, target]).all()
    assert np.isfinite(alone.values[:, ~target]).all()

"What pairs share is computed and kept once, and is what each pair by itself would have."
import gc
import weakref

import numpy as np
import pytest

from mabe_nb.data import features
from mabe_nb.data.blocks import rolling
from mabe_nb.data.blocks.bodies import pair_points
from mabe_nb.data.blocks.geometry import fill_gaps
from mabe_nb.data.blocks.rolling import rolling_mean_stds
from mabe_nb.data.blocks.pair import cage, two_of
from mabe_nb.data.blocks.registry import (BLOCKS, block, exchanged, make_blocks, named,
                                          order_free)
from mabe_nb.data.features import compute, compute_pairs
from mabe_nb.data.recording import Recording, pairs

PARTS = ("nose", "ear_left", "ear_right", "neck", "tail_base", "tail_tip")


def walk(frames=300, mice=3, seed=0):
    "Animals that wander, with points that are lost for a while."
    rng = np.random.default_rng(seed)
    place = rng.normal(0, 3, (frames, mice, 1, 2)).cumsum(0) + 200
    xy = (place + rng.normal(0, 10, (1, mice, len(PARTS), 2))).astype(np.float32)
    for a in range(0, frames, 40):
        xy[a:a + int(rng.integers(1, 90))][:, rng.random((mice, len(PARTS))) < .2] = np.nan
    return Recording(xy, tuple(f"mouse{i + 1}" for i in range(mice)), PARTS, 30., 10.)


def same(a, b, size=1e-9):
    known = np.abs(b[np.isfinite(b)])
    return np.allclose(a, b, rtol=size, atol=size * known.max(initial=1), equal_nan=True)


OF_PAIRS = [n for n, b in BLOCKS.items() if b.source == "pair" and not b.whole_video]


@pytest.mark.parametrize("name", [n for n in OF_PAIRS if BLOCKS[n].exchange])
def test_what_a_block_says_of_an_exchange(name):
    rec = walk()
    near = cage(rec.xy, 1, *pair_points(rec), 30., "cm")
    near = features.replace(near, walls=lambda: np.array([[0., 0], [400, 400]]))
    one, two = (make_blocks(two_of(near, *at, 3), [name])[name] for at in ((0, 2), (2, 0)))
    other = exchanged(one, BLOCKS[name].exchange)
    assert other.keys() == two.keys()
    for k, c in two.items(): assert same(other[k].values, c.values, 1e-6), k


@pytest.mark.parametrize("name", [n for n in OF_PAIRS if BLOCKS[n].alone])
def test_an_animal_alone_is_what_it_is_in_a_pair(name):
    rec = walk()
    near = cage(rec.xy, 1, *pair_points(rec), 30., "cm")
    every, two = (make_blocks(a, [name])[name] for a in (near, two_of(near, 0, 2, 3)))
    for k, c in two.items(): assert same(every[k].values[:, ::2], c.values), k


@pytest.mark.parametrize("name", ["social", "directed_multiscale+others", "smoothed+zscored",
                                  "own+coords+speed", "kaggle288", "arena+ownerless"])
def test_pairs_together_are_the_pairs_one_by_one(name, monkeypatch):
    monkeypatch.setattr(features, "STRETCH", 128)
    rec, found = walk(), {}
    wanted = [*pairs(rec), ("mouse2", "mouse2")]
    for pair, f in compute_pairs(rec, name, wanted): found.setdefault(pair, []).append(f)
    assert found.keys() == set(wanted)
    for pair, made in found.items():
        alone = compute(rec, name, pair)
        assert made[0].names == alone.names
        assert np.array_equal(np.concatenate([f.values for f in made]), alone.values,
                              equal_nan=True)


def test_a_block_that_says_nothing_is_computed_for_each_order(monkeypatch):
    monkeypatch.setitem(BLOCKS, "first_minus_second", None)

    @block(needs=("own",))
    def first_minus_second(a, own):
        return named("cm", gap=own["length"].values[:, 0] - 2*own["length"].values[:, 1])
    rec = walk()
    a, b = (compute(rec, "first_minus_second+own", p) for p in (rec.mice[:2], rec.mice[1::-1]))
    length = {k: a.values[:, a.names.index(k)] for k in ("agent.length", "target.length")}
    assert same(b.values[:, 0], length["target.length"] - 2*length["agent.length"], 1e-5)
    assert not order_free(["first_minus_second"]) and order_free(["smoothed", "arena"])


def test_what_a_pair_had_is_forgotten_at_once():
    near = cage(walk().xy, 1, *pair_points(walk()), 30., "cm")
    gc.disable() # Whose turn comes late where there are few objects, however large
    try:
        made = make_blocks(near, ["own", "missing"])
        length = weakref.ref(made["own"]["length"].values)
        del made
        assert length() is None
    finally: gc.enable()


def plain_mean_std(x, half):
    windows = [x[max(t - half, 0):t + half + 1] for t in range(len(x))]
    windows = [w[~np.isnan(w)] for w in windows]
    return np.array([(w.mean(), w.std()) if len(w) else (np.nan, np.nan) for w in windows]).T


def plain_fill(x, limit):
    x, known = x.copy(), np.flatnonzero(~np.isnan(x))
    for a, b in zip(known[:-1], known[1:]):
        if 1 < b - a <= limit + 1: x[a:b] = np.interp(np.arange(a, b), [a, b], x[[a, b]])
    return x


@pytest.mark.parametrize("seed", range(8))
def test_windows_and_gaps_are_the_plain_definition(seed):
    rng = np.random.default_rng(seed)
    frames, half = int(rng.integers(1, 160)), int(rng.integers(1, 90))
    x = rng.normal(size=(frames, 2, 2)).cumsum(0) + 50
    x[rng.random(x.shape) < (0, .1, .6, .95)[seed % 4]] = np.nan
    if seed % 2: x[rng.integers(frames), 0, 0] = 1e30
    filled, both = fill_gaps(x, half // 4), rolling_mean_stds(x, [half])[0]
    for i, j in np.ndindex(2, 2):
        column = x[:, i, j]
        assert same(filled[:, i, j], plain_fill(column, half // 4), 1e-12)
        wild = np.abs(np.nan_to_num(column)) > 1e9
        far = ~np.array([wild[max(t - half, 0):t + half + 1].any() for t in range(frames)])
        for ours, plain in zip(both, plain_mean_std(column, half)):
            assert same(ours[far, i, j], plain[far], 1e-6)


@pytest.mark.parametrize("at_once", [1, 500, 10**6])
def test_columns_at_a_time_do_not_show(monkeypatch, at_once):
    "Neighbours that miss the same frames are counted once, others each by itself."
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 7)).cumsum(0)
    lost = rng.random((200, 4)) < .3
    x[:, :6][np.repeat(lost[:, :3], 2, axis=1)] = np.nan
    x[lost[:, 3], 6] = np.nan
    monkeypatch.setattr(rolling, "AT_ONCE", at_once)
    monkeypatch.setattr(rolling, "bottleneck", None)
    for half, both in zip((2, 30), rolling_mean_stds(x, [2, 30])):
        assert np.array_equal(rolling.rolling_mean(x, half), both[0], equal_nan=True)
        for i in range(7):
            for ours, plain in zip(both, plain_mean_std(x[:, i], half)):
                assert same(ours[:, i], plain, 1e-9)
    short = rolling_mean_stds(x, [30], np.float32)[0]
    assert short[0].dtype == np.float32 and np.array_equal(short[1], both[1].astype(np.float32),
                                                           equal_nan=True)

"""A prediction does not depend on where a file was cut, far from the cut."""
import numpy as np
import pytest
import torch

from mabe_nb.train.arithmetic.windows import anchors
from mabe_nb.train.config import make_config
from mabe_nb.train.ensemble.boosting import grow_trees
from mabe_nb.train.ensemble.members import Boost
from mabe_nb.train.models import make_model
from mabe_nb.train.predict import over_windows

FRAMES, LENGTH, GAP = 6000, 30, 3
FAR = 5 * LENGTH * GAP # Until the windows have found each other again, and what they see


@pytest.fixture(scope="module")
def walk():
    x = np.random.default_rng(0).normal(size=(FRAMES, 12)).cumsum(0).astype(np.float32)
    x[2000:2200, :5] = np.nan
    return x


def apart(ask, x, cut):
    "Largest difference far from the cut, and near it."
    whole, two = ask(x), np.concatenate([ask(x[:cut]), ask(x[cut:])])
    off, near = abs(whole - two).max(1), abs(np.arange(len(x)) - cut) <= FAR
    assert np.isfinite(whole).all()
    return off[~near].max(), off[near].max()


@pytest.mark.parametrize("cut", [2701, 3500, 1234])
@pytest.mark.parametrize("kind", ["tcn", "conv_bilstm", "lstm", "transformer"])
def test_windows_lie_alike_in_the_whole_and_in_its_parts(walk, kind, cut):
    torch.manual_seed(0)
    cfg = make_config({"model_type": kind, "hidden_size": 16, "num_layers": 2})
    model = make_model(cfg, 12, 4).eval()
    ask = lambda x: over_windows(model, x, LENGTH, GAP, inputs=lambda some: torch.from_numpy(
        np.nan_to_num(np.ascontiguousarray(some)) / 50))
    far, near = apart(ask, walk, cut)
    assert far < 1e-5 < near


def test_trees_ask_the_same_frames_in_the_whole_and_in_its_parts(walk):
    x = np.nan_to_num(walk)
    trees = grow_trees(x[::5], (x[::5, 0] > x[::5, 1]).astype(int), rounds=3)
    ask = Boost(trees, "none", tuple("abcdefghijkl"), 2)
    assert apart(ask, walk, 2701)[0] == 0 and apart(lambda x: ask(x, 10), walk, 2701)[0] == 0


def test_anchors_are_found_wherever_a_file_begins(walk):
    whole = anchors(walk, 200)
    assert len(whole) > 8 and np.diff(whole).min() > 200
    for a, b in [(1, FRAMES), (777, 5000), (2100, FRAMES)]:
        inside = [k for k in whole if a + 200 <= k < b - 200]
        found = anchors(walk[a:b], 200) + a
        assert set(inside) <= set(found) and len(found) <= len(inside) + 2


@pytest.mark.parametrize("x", [np.zeros((900, 3)), np.full((900, 3), np.nan), np.zeros((0, 3)),
                               np.tile(np.eye(3), (300, 1)), np.ones((1, 20))])
def test_where_nothing_stands_out_there_are_no_anchors(x):
    assert not len(anchors(x, 50))

"""A prediction does not depend on where a file was cut, far from the cut."""
import numpy as np
import pytest
import torch

from mabe_nb.data.cache.arrays import Arranged
from mabe_nb.errors import ConfigError
from mabe_nb.train.arithmetic.windows import anchors, overlap_average
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


def test_a_sequence_without_frames_has_no_answers():
    model = make_model(make_config({"hidden_size": 8}), 3, 2).eval()
    none = np.zeros((0, 3), np.float32)
    assert over_windows(model, none, 10, 2, inputs=torch.from_numpy).shape == (0, 2)
    assert overlap_average(np.zeros((0, 5, 2)), np.zeros(0, int), 1, 0).shape == (0, 2)


@pytest.mark.parametrize("of", [lambda x: np.where(np.arange(12) < 8, np.nan, x), np.round,
                                lambda x: np.where(np.arange(12) % 3 > 0, np.nan, x),
                                lambda x: np.where(np.random.default_rng(1).random(x.shape) < .01, np.inf, x)])
def test_channels_that_are_missing_and_whole_numbers_have_anchors_too(walk, of):
    with np.errstate(all="raise"): found = anchors(of(np.nan_to_num(walk)).astype(np.float32), 200)
    assert len(found) > 6


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_tensors_of_any_precision(walk, kind):
    x = torch.from_numpy(np.nan_to_num(walk) / 50).to(kind)
    assert len(anchors(x, 200)) > 6
    model = make_model(make_config({"hidden_size": 8}), 12, 2).eval()
    assert over_windows(model, x, LENGTH, GAP, inputs=lambda v: v.float()).shape == (FRAMES, 2)


def test_the_middle_counts_for_more_where_windows_are_out_of_step():
    "At each end of what two windows share the one that sees farther is heard."
    answers = np.stack([np.zeros((20, 1)), np.ones((20, 1))])
    out = overlap_average(answers, np.array([0, 25]), 2, 64)[:, 0]
    assert (out[:25] == 0).all() and (out[39:] == 1).all() and (np.diff(out[25:39]) > 0).all()
    assert out[26] < 0.2 and out[37] > 0.8


def test_long_windows_share_as_many_frames_as_others_do(walk):
    "Of 256 frames 64; and none begins shortly before the next stretch does."
    seen, model = [], torch.nn.Linear(12, 2)
    model.forward = lambda x: seen.append(x.clone()) or x[..., :2]
    count = torch.arange(float(FRAMES))[:, None].expand(-1, 12).clone()
    count[2890:] += 9 # ten frames after a window would begin
    count[3040:] += 5 # within a window of the larger change
    over_windows(model, count, 256, 1)
    starts = torch.cat(seen)[:, 0, 0].long().numpy()
    fixed = anchors(count, 256)
    assert fixed.tolist() == [2890] and starts.tolist()[:17] == [*range(0, 2689, 192), 2899, 2890 + 192 + 14]


@pytest.mark.parametrize("stride", [52, 60])
def test_what_lies_between_windows_too_far_apart_is_not_made_up(walk, stride):
    model = make_model(make_config({"hidden_size": 8}), 12, 2).eval()
    x = torch.from_numpy(np.nan_to_num(walk))[:500]
    assert over_windows(model, x, 10, 5, stride=50).shape == (500, 2)
    with pytest.raises(ConfigError, match="windows leave frames out"): over_windows(model, x, 10, 5, stride=stride)


def test_equal_changes_are_told_apart_by_their_neighbours():
    x = (np.random.default_rng(0).random((20_000, 3)) < 0.5).astype(np.float32)
    assert len(anchors(x, 400)) > 5


def test_arranged_features_give_their_channels_alone(tmp_path):
    "A few channels of a pair are read without the rest, with their signs."
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(50, k)) for k in (3, 1, 4)]
    order = [8, -1, 4, 2, -5, 3, 7, 6]
    x = Arranged(parts, order)
    for some in ([0], [1, 4, 7], [7, 0, 1]):
        assert np.array_equal(x[10:30, some], np.asarray(x)[10:30, some])

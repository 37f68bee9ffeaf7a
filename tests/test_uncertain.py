"What a classifier is not sure of, in time budgets and between groups."
import json

import numpy as np
import pandas as pd
import pytest

from mabe_nb.analysis.uncertain import (calibration_of, combined, cut, draw_factors,
                                        draw_seconds, drawn_measures, pieces_of)
from mabe_nb.cli import main
from mabe_nb.errors import DataError
from mabe_nb.train.review.moments import PairPrediction

TENTHS = (np.arange(10) + 0.5) / 10


def pair(p, video="v", agent="a", fps=10.0):
    "A pair with one action, found where its probability is above one half."
    p = np.asarray(p, float)
    nothing = np.zeros(len(p))
    return PairPrediction(video, agent, agent, fps, ("rear",), p[:, None],
                          np.where(p > 0.5, 0, -1), np.full((len(p), 1), -1), nothing, nothing)


def test_pieces_hold_every_frame_and_every_probability():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random(rng.integers(1, 200)).repeat(3)
        frames, sums = cut(p, p > 0.5, int(rng.integers(1, 40)))
        assert frames.sum() == len(p) and np.isclose(sums.sum(), p.sum())
        assert np.allclose(sums.sum(0), np.bincount((p * 10).astype(int), p, 10))
    assert not len(cut(np.zeros(0), np.zeros(0, bool), 3)[0])


def test_draws_have_the_mean_that_is_to_be_expected_and_calibration_moves_it():
    rng = np.random.default_rng(1)
    pairs = [pair(rng.random(300).repeat(10), v, a) for v in "vw" for a in "ab"]
    pieces = pieces_of(pairs)
    assert len(pieces.keys) == 4
    drawn, expected = draw_seconds(pieces, {}, 300)
    assert np.allclose(expected, [q.p.sum() / 10 for q in pairs])
    assert np.allclose(drawn.mean(0), expected[0], rtol=0.03) and (drawn.std(0) > 1).all()
    half = {"rear": (np.full(10, 1e6), TENTHS, TENTHS / 2)}
    assert np.allclose(draw_seconds(pieces, half, 20)[1], expected[0] / 2, rtol=0.02)
    seen = pieces.keys.assign(watched_s=300.0)
    table = drawn_measures(pieces, drawn, seen)
    assert ((table.low < table.share) & (table.share < table.high)).all()
    assert np.allclose(table.share, drawn.mean(0) / 300)


def test_little_validation_leaves_more_open():
    rng = np.random.default_rng(2)
    spread = [np.std([draw_factors((np.full(10, n), TENTHS, TENTHS), rng)[5]
                      for _ in range(300)]) for n in (2.0, 20.0, 2000.0)]
    assert spread[0] > 2 * spread[1] > 10 * spread[2]
    a, b = rng.normal(0.2, 0.05, 8), rng.normal(0.3, 0.05, 8)
    wide = lambda factor: np.diff(combined(a * factor, b * factor)[1:])[0]
    assert wide(rng.normal(1, 0.3, (200, 1))) > 1.1 * wide(np.ones((200, 1)))
    assert np.isnan(combined(np.ones((5, 1)), np.ones((5, 3)))).all()


def test_a_run_carries_its_doubt_into_the_comparison(tmp_path, capsys):
    colony, run, out = tmp_path/"colony", tmp_path/"run", tmp_path/"out"
    assert main(["synth", str(colony), "--videos", "6", "--minutes", "0.3"]) == 0
    assert main(["train", str(colony), "--out", str(run), "--epochs", "2", "--hidden-size", "8",
                 "--num-layers", "1", "--class-weights", "balanced", "--learning-rate", "0.01", "--valid-videos", "5,6",
                 "--device", "cpu"]) == 0
    ids = pd.read_csv(colony/"train.csv").video_id
    pd.DataFrame({"video": ids, "dose": [f"{i % 2}" for i in range(len(ids))]}).to_csv(
        tmp_path/"g.csv", index=False)
    assert calibration_of(run)
    words = ["analyse", str(run), str(colony), "--groups", str(tmp_path/"g.csv"), "--by", "dose",
             "--unit", "video", "--out", str(out)]
    assert main(words) == 0, capsys.readouterr().err
    groups, drawn = (pd.read_csv(out/f"{n}.csv") for n in ("groups", "drawn"))
    known = groups[groups.drawn.notna()]
    assert len(known) and (known.drawn_low <= known.drawn).all() and (
        known.drawn <= known.drawn_high).all()
    assert ((drawn.low <= drawn.share + 1e-9) & (drawn.share <= drawn.high + 1e-9)).all()
    said = json.loads((run/"metrics.json").read_text())
    del said["calibration"]["actions"][next(iter(said["calibration"]["actions"]))]["frames"]
    (run/"metrics.json").write_text(json.dumps(said))
    with pytest.raises(DataError, match="does not tell how often"): calibration_of(run)
    (run/"metrics.json").unlink()
    assert main([*words, "--overwrite"]) == 0
    assert "no interval holds its doubt" in capsys.readouterr().out

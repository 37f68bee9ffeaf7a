"What a classifier is not sure of, in time budgets and between groups."
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mabe_nb.analysis.analyse import _no_interval_note, analyse
from mabe_nb.analysis.comparison import compare_groups
from mabe_nb.analysis.groups import per_unit
from mabe_nb.analysis.uncertain import (calibration_of, pooled_difference, cut_pieces, draw_factors, draw_seconds,
                                        drawn_groups, drawn_measures, half_widths, pieces_of)
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.errors import DataError
from mabe_nb.train import classifier
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.model import PairDecision
from mabe_nb.train.runs import train
from mabe_nb.train.scores.trust import budget_errors, half_width

TENTHS = (np.arange(10) + 0.5) / 10


def pair(p, video="v", agent="a", fps=10.0, target=None):
    "A pair with one action, found where its probability is above one half."
    p = np.asarray(p, float)
    return PairDecision(video, agent, target or agent, fps, ("rear",), p[:, None], p[:, None] > 0.5)


def test_pieces_hold_every_frame_and_every_probability():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random(rng.integers(1, 200)).repeat(3)
        frames, sums = cut_pieces(p, p > 0.5, int(rng.integers(1, 40)))
        assert frames.sum() == len(p) and np.isclose(sums.sum(), p.sum())
        assert np.allclose(sums.sum(0), np.bincount((p * 10).astype(int), p, 10))
    assert not len(cut_pieces(np.zeros(0), np.zeros(0, bool), 3)[0])
    one = cut_pieces(np.full(20, 0.9), np.arange(20) // 8 == 1, 3)[0] # what was found is never cut
    assert one.tolist() == [3, 3, 2, 8, 3, 1]


def test_draws_have_the_mean_that_is_to_be_expected_and_calibration_moves_it():
    rng = np.random.default_rng(1)
    pairs = [pair(rng.random(300).repeat(10), v, a) for v in "vw" for a in "ab"]
    pieces = pieces_of(pairs)
    assert len(pieces.keys) == 4
    expected = draw_seconds(pieces, {}, 300)
    assert np.allclose(expected, [q.p.sum() / 10 for q in pairs])
    half = {"rear": (np.full(10, 1e6), TENTHS, TENTHS / 2)}
    assert np.allclose(draw_seconds(pieces, half, 20), expected[0] / 2, rtol=0.02)
    seen = pieces.keys.assign(watched_s=300.0)
    table = drawn_measures(pieces, expected, np.array([.1, .1, .9, np.nan]), seen)
    assert np.allclose(table.share, expected[0] / 300)
    assert np.allclose((table.share - table.low)[:2], .1) and np.allclose((table.high - table.share)[:2], .1)
    assert (table.low[2], table.high[2]) == (0, 1) and table[["low", "high"]].loc[3].isna().all()


def test_time_spent_with_several_targets_counts_once():
    rng = np.random.default_rng(3)
    sure = rng.random((3, 3000)).repeat(10, 1) > 0.8 # as sure as can be: what is measured
    told = [pair(p * 1.0, "v", a, target=t) for a, p, t in zip("aab", sure, "bca")]
    one, both = sure[2].sum() / 10, (sure[0] | sure[1]).sum() / 10
    pieces = pieces_of(told)
    assert len(pieces.keys) == 2 and both < (sure[0].sum() + sure[1].sum()) / 10 - 100
    assert np.allclose(draw_seconds(pieces, {}, 3), [both, one])
    p = rng.random((2, 200)).repeat(15, 1) # by chance: neither, to the power of both
    expected = draw_seconds(pieces_of([pair(x, target=t) for x, t in zip(p, "bc")]), {}, 400)
    assert np.allclose(expected, (1 - (1 - p[0]) * (1 - p[1])).sum() / 10, rtol=0.02)


def sequence(video, seen, said, frames=1000):
    y = np.zeros((frames, 1), np.int8)
    y[:round(seen * frames)] = 1
    return SimpleNamespace(labels=y, p=np.full((frames, 1), said), video=video)


def test_what_whole_videos_are_off_is_kept_and_makes_the_interval():
    "Errors of sd 0.1 that hold for a video: 95 % of new ones lie within, of few and of many."
    rng, held = np.random.default_rng(4), []
    films = lambda n: [sequence(str(v), s, .5) for v, s in enumerate(rng.normal(.5, .1, n).clip(0, 1))]
    for _ in range(200):
        half = half_width(budget_errors(films(6), ["rear"])["rear"])
        held += [abs(f.labels.mean() - .5) <= half for f in films(20)]
    assert 0.93 < np.mean(held) < 0.97
    two = [sequence("1", .2, .4), sequence("1", .4, .4), sequence("2", .8, .7)]
    two[0].labels[-200:] = -1
    of = budget_errors(two, ["rear"])["rear"]
    assert of == {"videos": 2, "least": .325, "most": .8, "sd": pytest.approx(np.std([-.15, 0, .1], ddof=1), abs=1e-4)}
    assert half_width(of, 3) == pytest.approx(3 * half_width(of))
    assert half_width(of) == pytest.approx(stats.t.ppf(.975, 1) * of["sd"] * 1.5**.5)
    assert np.isnan(half_width(budget_errors(two[:2], ["rear"])["rear"]))
    assert budget_errors([], ["rear"])["rear"] == {"videos": 0, "least": None, "most": None, "sd": None}


def test_an_interval_is_as_wide_as_all_targets_may_be_off(tmp_path):
    "By what the run keeps of each action; none where it keeps nothing."
    told = [pair(np.full(10, .5), "v", a, target=t) for a, t in ("ab", "ac", "bc")]
    error = {"videos": 5, "sd": .1, "least": 0, "most": 1}
    (tmp_path/"metrics.json").write_text(json.dumps({"budgets": {"rear": error}}))
    keys = pieces_of(told).keys
    assert np.allclose(half_widths(tmp_path, told, keys), half_width(error) * np.array([2, 1]))
    (tmp_path/"metrics.json").write_text(json.dumps({"budgets": {"sniff": error}}))
    assert np.isnan(half_widths(tmp_path, told, keys)).all()


@pytest.mark.parametrize("budgets", [[1], {"rear": 3}, {"rear": {}}, {"rear": {"videos": "x", "sd": .1}}])
def test_budgets_that_are_none_are_named(tmp_path, budgets):
    told = [pair(np.full(10, .5), "v", "a")]
    (tmp_path/"metrics.json").write_text(json.dumps({"budgets": budgets}))
    with pytest.raises(DataError, match="does not tell what whole videos are off"):
        half_widths(tmp_path, told, pieces_of(told).keys)


def test_intervals_that_are_not_known_are_told():
    drawn = pd.DataFrame({"action": ["rear", "sniff", "rear"], "low": [.1, np.nan, .2]})
    assert _no_interval_note(drawn)[0].startswith("low and high are empty for 'sniff': the run")
    assert _no_interval_note(drawn[drawn.action == "rear"]) == []


def test_little_validation_leaves_more_open():
    rng = np.random.default_rng(2)
    spread = [np.std([draw_factors((np.full(10, n), TENTHS, TENTHS), rng)[5]
                      for _ in range(300)]) for n in (2.0, 20.0, 2000.0)]
    assert spread[0] > 2 * spread[1] > 10 * spread[2]
    a, b = rng.normal(0.2, 0.05, 8), rng.normal(0.3, 0.05, 8)
    wide = lambda factor: np.diff(pooled_difference(a * factor, b * factor)[1:])[0]
    assert wide(rng.normal(1, 0.3, (200, 1))) > 1.1 * wide(np.ones((200, 1)))
    assert np.isnan(pooled_difference(np.ones((5, 1)), np.ones((5, 3)))).all()


def test_each_pair_of_groups_has_its_drawn_difference_whatever_their_order():
    "5 mg stands before 10 mg, as a number, and behind it as text."
    pieces = pieces_of([pair([0.9] * (i + 1) + [0.1] * (9 - i), f"v{i}") for i in range(8)])
    rows = pieces.keys.assign(subject=pieces.keys.video, group=["10 mg", "5 mg", "no", "5 mg"] * 2,
                              watched_s=1.0, share=[0.1 * (i + 1) for i in range(8)])
    table = drawn_groups(pieces, draw_seconds(pieces, {}, 3), rows, compare_groups(per_unit(rows))[0])
    assert table[["a", "b"]].values.tolist() == [["5 mg", "10 mg"], ["5 mg", "no"], ["10 mg", "no"]]
    means = rows.assign(share=0.1 + 0.08 * (1 + np.arange(8))).groupby("group").share.mean()
    assert table.drawn.tolist() == pytest.approx([means[b] - means[a] for a, b in zip(table.a, table.b)])
    assert table.drawn_low.notna().all()
    longer = rows.assign(watched_s=2.0, seconds=rows.share) # no share of it, but the same time
    again = drawn_groups(pieces, draw_seconds(pieces, {}, 3), longer,
                         compare_groups(per_unit(longer, "seconds"))[0], "seconds")
    assert again.drawn.tolist() == pytest.approx(table.drawn.tolist())


@pytest.mark.slow
def test_a_run_carries_its_doubt_into_the_comparison_and_is_asked_once(tmp_path, monkeypatch):
    watched = {(a, t, "sniff") for a, t in (("mouse1", "mouse2"), ("mouse2", "mouse1"))
               } | {(m, m, "rear") for m in ("mouse1", "mouse2")}
    films = [make_recording(k, 500, video_id=f"v{k}", labelled=watched, parts=("nose", "neck",
             "tail_base")) for k in range(1, 7)]
    run, lines = tmp_path/"run", []
    train(films, run, TrainConfig(epochs=2, hidden_size=8, num_layers=1, features="coords",
                                  class_weights="balanced", learning_rate=0.01, device="cpu"),
          valid_ids=["v5", "v6"], cache=tmp_path/"cache")
    groups = pd.DataFrame({"video": [r.video_id for r in films], "dose": ["low", "high"] * 3})
    how = dict(groups=groups, by="dose", shuffles=10, say=lines.append)
    asked, ask = [], classifier.probabilities
    monkeypatch.setattr(classifier, "probabilities", lambda *a, **k: asked.append(ask(*a, **k)) or asked[-1])
    tables = analyse(films, tmp_path/"out", run, **how)
    assert len(asked) == 4 * len(films), "each pair of each video once"
    known, drawn = tables["groups"].dropna(subset="drawn"), tables["drawn"]
    assert len(known) and (known.drawn_low < known.drawn).all() and (
        known.drawn < known.drawn_high).all()
    assert len(drawn) == len(tables["measures"]) and (drawn.low <= drawn.high).all()
    assert (tmp_path/"out"/"drawn.csv").is_file()
    turns = iter(range(8)) # Of the pairs of a video of each lab: nothing is done in the second
    monkeypatch.setattr(classifier, "decide", lambda p, may, bars: np.full(
        len(p), np.argmax(may) if next(turns) < 4 else -1))
    new = [r.replace(labelled=None, lab_id=lab) for r, lab in zip(films, "AB")]
    found = analyse(new, tmp_path/"new", run, shuffles=10, say=None)["measures"]
    assert found.groupby("lab").seconds.agg(["count", "max"]).round(2).values.tolist() == [[4, 16.67], [4, 0]]
    monkeypatch.undo()
    analyse(films, tmp_path/"out", run, **how, value="bouts")
    assert any("share and seconds alone" in line for line in lines)
    assert any("by how much it tells too little" in line for line in lines)
    said = json.loads((run/"metrics.json").read_text())
    rear, whole = said["calibration"]["actions"]["rear"], calibration_of(run)["rear"]
    for key, odd in (("observed", 2.0), ("predicted", -1.0), ("frames", -5), ("frames", float("inf"))):
        changed = {"rear": rear | {key: [odd] * len(whole[0])}}
        (run/"metrics.json").write_text(json.dumps(said | {"calibration": {"actions": changed}}))
        with pytest.raises(DataError, match="does not tell how often"): calibration_of(run)
    del said["calibration"]["actions"]["rear"]["frames"]
    (run/"metrics.json").write_text(json.dumps(said))
    with pytest.raises(DataError, match="does not tell how often"): calibration_of(run)
    (run/"metrics.json").unlink()
    assert "drawn" not in analyse(films, tmp_path/"out", run, **how)
    assert any("no interval holds its doubt" in line for line in lines)

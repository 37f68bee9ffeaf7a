"""Thresholds of actions and of labs: what F1 to expect, chosen with care, never of the fold."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mabe_nb.data.recording import run_lengths
from mabe_nb.train.ensemble import decide
from mabe_nb.train.ensemble.decide import (MIN_VIDEOS, Decision, OutOfFold, choose, codes_of,
                                           macro_f1, nested, oof_scores)
from mabe_nb.train.ensemble.thresholds import best_threshold, best_thresholds
from mabe_nb.train.scores.frames import f1_of, video_counts
from mabe_nb.train.scores.trust import bootstrap, f1_intervals
from mabe_nb.train.predict import lasting
from mabe_nb.train.postprocess import shortest_bouts

PLAIN = Decision((None, None))


def videos(seed, n=10, actions=2, strength=0.3, lab="A", scale=1.0, frames=1000):
    "Sequences in which the first action is rare and said too late by the most probable."
    rng, out = np.random.default_rng(seed), []
    for i in range(n):
        seen = np.zeros((frames, actions), np.int8)
        for a, share in zip(range(actions), (0.08, 0.4, 0.2)):
            free = ~seen.any(1)
            seen[:, a] = np.repeat(rng.random(frames // 20) < share, 20) & free
        p = 0.1 + rng.normal(0, 0.08, (frames, 1 + actions)) + np.c_[
            0.4 * np.ones(frames), strength * seen[:, :1], 0.8 * seen[:, 1:]]
        p[:, 1] *= scale
        p = p.clip(1e-3) / p.clip(1e-3).sum(1, keepdims=True)
        out.append(OutOfFold(p[None], seen, 30.0, i % 5, lab, f"{lab}{i}"))
    return out


def f1(told, decision):
    return f1_of(video_counts([s.labels for s in told],
                              [codes_of(decision, s) for s in told]).sum(0))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(1.0, 6.0), st.floats(0.2, 1.8))
def test_the_threshold_is_half_of_the_best_f1(seed, rare, bent):
    "Lipton et al. 2014, also where the odds of what is told are a power of the true ones."
    rng = np.random.default_rng(seed)
    true = rng.random(40_000)**rare
    seen = rng.random(40_000) < true
    told = 1 / (1 + ((1 - true) / true.clip(1e-9))**bent)
    got = best_threshold(told, seen)
    said = lambda at: 2 * true[told >= at].sum() / ((told >= at).sum() + true.sum())
    best = max(map(said, np.quantile(told, np.linspace(0, 1, 400)[:-1])))
    assert said(got) > best - 0.005
    assert abs(true[told >= got].min() - best / 2) < 0.08


def test_what_tells_nothing_has_no_threshold():
    rng = np.random.default_rng(0)
    p = rng.random(5000)
    assert best_threshold(p, np.zeros(5000, bool)) is None
    assert best_threshold(p, np.ones(5000, bool)) is None
    assert best_threshold(p, rng.random(5000) > p) is None # the wrong way round
    assert best_threshold(np.full(10, 0.5), np.arange(10) < 3) is None
    assert best_threshold(p[:0], np.zeros(0, bool)) is None


def test_only_frames_in_which_an_action_was_looked_for_count():
    told = videos(11)
    hidden = [s._replace(labels=np.stack([np.where(np.arange(1000) < 500, -1, s.labels[:, 0]),
                                          s.labels[:, 1]], 1).astype(np.int8)) for s in told]
    half = [s._replace(p=s.p[:, 500:], labels=s.labels[500:]) for s in told]
    assert best_thresholds(hidden)[0] == best_thresholds(half)[0] != best_thresholds(told)[0]
    assert best_thresholds(hidden)[1] == best_thresholds(told)[1]


def test_a_rare_action_gains_in_videos_that_chose_nothing():
    for seed in range(5):
        learn, rest = videos(seed), videos(100 + seed)
        kept = choose(learn)
        assert f1(rest, kept)[0] > f1(rest, PLAIN)[0] + 0.05
        assert f1(rest, kept)[1] > f1(rest, PLAIN)[1] - 0.02
        assert kept.thresholds[0] < 0.4


# --- bouts that last

@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(1, 9)), max_size=30),
       st.tuples(*[st.sampled_from([0, 100, 250, 500])] * 3), st.sampled_from([10., 25.]))
def test_no_bout_is_shorter_than_its_action(stretches, least, fps):
    codes = np.repeat(*np.array(stretches, int).reshape(-1, 2).T)
    out = lasting(codes, least, fps)
    for c, a, b in run_lengths(out): assert (b - a) * 1000 / fps >= least[c]
    assert np.array_equal(lasting(out, (0, 0, 0), fps), out)
    assert ((out == codes) | (out == -1)).all() # no action for another
    long = np.repeat(codes, 20) # nothing is shorter than 800 ms
    assert np.array_equal(lasting(long, least, fps), long)


def flickering(seed, slips=0.3, within=False):
    "Bouts of one action that last a second, and slips of one frame between or within them."
    rng, out = np.random.default_rng(seed), []
    for i in range(10):
        seen = np.repeat(rng.random(60) < 0.3, 30)
        wrong = (rng.random(1800) < slips) & (seen == within)
        wrong &= ~np.r_[False, wrong[:-1]]
        p = np.where(seen ^ wrong, 0.9, 0.1)
        out.append(OutOfFold(np.stack([1 - p, p], 1)[None], seen[:, None].astype(np.int8), 30.0,
                        i % 5, video=str(i)))
    return out


def test_slips_are_not_said_unless_that_costs(monkeypatch):
    monkeypatch.setattr(decide, "SMOOTH_MS", (0.0,)) # which would do the same
    learn, rest = flickering(0), flickering(1)
    kept = choose(learn)
    assert len(kept.least_ms) == 1 and 500 <= kept.least_ms[0] <= 1000
    assert f1(rest, kept)[0] > f1(rest, kept._replace(least_ms=()))[0] + 0.05
    few = choose(learn := flickering(0, 0.001)) # They cost no F1, and count as bouts
    counts = [sum(len(run_lengths(np.r_[-1, codes_of(by, s)])) // 2 for s in learn)
              for by in (few, few._replace(least_ms=()))]
    assert counts[0] < counts[1]
    assert choose(flickering(0, within=True)).least_ms == (), "whole bouts would be lost"
    assert shortest_bouts((0 * s.labels, s.fps) for s in learn) == (0.0,)


@pytest.mark.parametrize("slips, smoothed", [(0.004, False), (0.3, True)])
def test_probabilities_are_smoothed_where_that_gains(slips, smoothed):
    some = flickering(0, slips)
    plain, wide = (decide.choice_of(some, (1.0,), ms).f1 for ms in (0.0, 400.0))
    assert plain < wide and (wide - plain > decide.MIN_GAIN) == smoothed == (choose(some).smooth_ms > 0)


def test_an_action_that_is_never_found_keeps_its_short_bouts(monkeypatch):
    "One bout of ten seconds was marked, and the action was never predicted for less."
    monkeypatch.setattr(decide, "SMOOTH_MS", (0.0,)) # which would do the same
    some = [s._replace(p=np.pad(s.p, ((0, 0), (0, 0), (0, 1))), labels=np.pad(s.labels, ((0, 0), (0, 1))))
            for s in flickering(0)]
    some[3].labels[200:500] = 0, 1
    found, lost = choose(some).least_ms
    assert 500 <= found <= 1000 and lost == 0


def of_their_own(seed, rates, bias=0.0):
    "Videos in which an action has these rates; what is said of a frame knows the mean rate, or errs."
    rng, out = np.random.default_rng(seed), []
    usual = np.log(np.mean(rates) / (1 - np.mean(rates)))
    for i, rate in enumerate(rates):
        seen = np.repeat(rng.random(300) < rate, 10)
        off = usual + bias * (-1) ** i
        p = 1 / (1 + np.exp(-off - 1.2 * (2 * seen - 1 + rng.normal(0, 1.3, 3000))))
        out.append(OutOfFold(np.stack([1 - p, p], 1)[None].astype(np.float32),
                             seen[:, None].astype(np.int8), 10.0, i % 5, video=str(i)))
    return out


def test_what_is_frequent_in_a_video_is_said_sooner_there(monkeypatch):
    monkeypatch.setattr(decide, "SMOOTH_MS", (0.0,)) # these actions last a second
    unlike, alike = (0.02, 0.6) * 5, (0.31,) * 10
    kept = choose(of_their_own(0, unlike))
    assert np.allclose(kept.usual, (0.31,), atol=0.1)
    rest = of_their_own(1, unlike)
    assert f1(rest, kept)[0] > f1(rest, kept._replace(usual=()))[0] + 0.02
    assert choose(of_their_own(0, alike, bias=1.5)).usual == (), "an error would be made larger"
    codes, chosen = nested(rest)
    for s, p in zip(rest, decide.labelled_sequences(rest, codes, chosen)):
        plain = s.p[0, :, 1]
        assert (p.p[:, 0] > plain).mean() == (1.0 if int(s.video) % 2 else 0.0)


def two_kinds(seed, rare=0.0, n=10):
    "A fight is one of two kinds, as like as not; `rare` of the frames are a third action's."
    rng, out = np.random.default_rng(seed), []
    for i in range(n):
        fight, kind, odd = (np.repeat(rng.random(60) < share, 30) for share in (0.2, 0.5, rare))
        seen = np.stack([fight & kind, fight & ~kind, odd & ~fight], 1)
        noise, odds = np.repeat(rng.normal(0, 0.1, (60, 2)), 30, 0).T
        some = (0.25 * fight + 0.25 + noise).clip(0.02, 0.9)
        p = some[:, None] * [0.5, 0.5, 0] + odds[:, None] * [1, -1, 0]
        p[:, 2] = 0.12 * odd + rng.normal(0.01, 0.003, 1800)
        p = np.c_[1 - p.clip(1e-3).sum(1), p.clip(1e-3)].clip(1e-3)
        p /= p.sum(1, keepdims=True)
        out.append(OutOfFold(p[None], seen.astype(np.int8), 30.0, i % 5, video=str(i)))
    return out


def some_action(told, decision):
    "F1 of saying that something happens, whatever it is."
    seen = np.concatenate([s.labels.any(1) for s in told])
    said = np.concatenate([codes_of(decision, s) >= 0 for s in told])
    return 2 * (seen & said).sum() / (seen.sum() + said.sum())


def test_nothing_is_said_where_most_likely_nothing_happens():
    learn, rest = two_kinds(0), two_kinds(1)
    kept = choose(learn)._replace(least_ms=())
    free = kept._replace(any_threshold=0.0)
    assert 0.2 < kept.any_threshold < 0.8
    assert some_action(rest, kept) > some_action(rest, free) + 0.02
    assert f1(rest, kept)[:2].mean() > f1(rest, free)[:2].mean() - 0.01
    for s in rest:
        likely = s.p[0, :, 1:].sum(1) >= kept.any_threshold
        assert np.array_equal(codes_of(kept, s), np.where(likely, codes_of(free, s), -1))


def test_only_actions_that_are_looked_for_count_as_likely():
    s = two_kinds(0)[0]
    hidden = s._replace(labels=s.labels * [1, 0, 1] - [0, 1, 0])
    bar = Decision((0.01, 0.01, 0.01), any_threshold=0.3)
    said = codes_of(bar, hidden) >= 0
    assert np.array_equal(said, (hidden.p[0, :, [1, 3]].sum(0) >= 0.3)) and said.any()


def test_frames_that_nobody_looked_at_do_not_move_the_bar():
    whole = two_kinds(0)
    more = [s._replace(p=np.concatenate([s.p, s.p[:, ::-1]], 1),
                       labels=np.concatenate([s.labels, s.labels * 0 - 1])) for s in whole]
    bars = [decide.any_threshold(decide.choice_of(some, (1.0,), 0.0), Decision((0.2,) * 3))
            for some in (whole, more)]
    assert 0.2 < bars[0] < 0.8 and bars[1] == pytest.approx(bars[0])


def test_no_bar_where_a_rare_action_loses_by_it():
    assert choose(two_kinds(0, rare=0.05)).any_threshold == 0
    always = [s._replace(labels=s.labels * 0 + [1, 0, 0]) for s in two_kinds(0)]
    assert choose(always).any_threshold == 0 # something happens in each frame
    never = [s._replace(labels=s.labels * 0) for s in two_kinds(0)]
    assert choose(never).any_threshold == 0


def test_one_action_alone():
    kept = choose(videos(1, actions=1))
    assert len(kept.thresholds) == 1 and kept.thresholds[0] < 0.4


def test_what_is_right_already_is_left():
    told = videos(2, strength=2.0)
    kept = choose(told)
    assert kept == Decision((None, None), 0.0, (1.0,), least_ms=kept.least_ms, usual=kept.usual)


def test_noise_is_not_followed():
    "Probabilities that have nothing to do with what was seen gain nothing."
    rng = np.random.default_rng(0)
    for seed in range(10):
        told = [s._replace(labels=rng.permutation(s.labels)) for s in videos(seed, 6)]
        assert choose(told).thresholds == (None, None)


def test_a_lab_with_another_line_gets_thresholds_of_its_own():
    told = videos(4, 10, lab="A") + videos(5, 10, lab="B", scale=0.55)
    kept = choose(told)
    assert "B" in kept.labs and kept.labs["B"][0] < kept.thresholds[0]
    rest = videos(6, 10, lab="B", scale=0.55)
    assert f1(rest, kept)[0] > f1(rest, kept._replace(labs={}))[0]
    new = [s._replace(lab="C") for s in rest]
    assert np.allclose(f1(new, kept), f1(rest, kept._replace(labs={})))


def test_a_lab_with_few_videos_or_little_to_gain_does_not():
    few = videos(4, 10) + videos(5, MIN_VIDEOS - 1, lab="B", scale=0.55)
    assert "B" not in choose(few).labs
    two = [s._replace(video=f"B{i % 2}") for i, s in enumerate(videos(5, 10, lab="B",
                                                                      scale=0.55))]
    assert "B" not in choose(videos(4, 10) + two).labs # ten sequences of two videos
    nameless = [s._replace(video="") for s in two]
    assert "B" in choose(videos(4, 10) + nameless).labs # each a video of its own
    alike = videos(4, 10) + videos(7, 10, lab="B")
    assert choose(alike).labs == {}
    assert choose(videos(4, 10)).labs == {} # one lab


@pytest.mark.parametrize("slips, shares", [(2, (0.5, 0.5)), (8, (1.0, 0.0))])
def test_other_shares_than_the_usual_ones_only_if_they_gain(slips, shares):
    "The second member is sure of what is not so in some frames of those looked at."
    told = []
    for i, s in enumerate(videos(0, actions=1, frames=5000)):
        right = np.where(s.labels[:, 0] == 1, 0.9, 0.1)
        other = np.where((np.arange(len(right)) == 0) & (i < slips), 1.1 * (1 - right), right)
        p = np.stack([right, other])
        told.append(s._replace(p=np.stack([1 - p, p], -1).astype(np.float32)))
    assert choose(told, [(0.5, 0.5), (1.0, 0.0), (0.0, 1.0)]).shares == shares


def test_nothing_of_the_fold_that_is_scored():
    told = videos(4, 10, lab="A") + videos(5, 10, lab="B", scale=0.55)
    spoilt = [s._replace(labels=1 - s.labels, p=s.p[..., ::-1]) if s.fold == 2 else s
              for s in told]
    before, after = nested(told)[1], nested(spoilt)[1]
    assert before[2] == after[2] and before[0] != after[0] and before[2].labs


def test_nor_where_no_other_fold_is_scored():
    "Thresholds chosen on the videos that they were scored on, at an optimism of 0."
    alone = [s._replace(fold=0) for s in videos(3, 6)]
    scores = oof_scores(["one"], alone, choose(alone), ("rare", "usual"))
    assert scores["macro_f1"] == round(macro_f1(alone, [codes_of(PLAIN, s) for s in alone]), 4)
    assert scores["optimism"] == round(scores["in_sample"] - scores["macro_f1"], 4) > 0.02


def test_nor_do_the_shares_of_the_mean():
    "They were those of the decision that is kept, which the same videos had chosen."
    rng, told = np.random.default_rng(0), []
    for i in range(6): # In each fold another member is right
        y = np.repeat(rng.random(40) < 0.3, 20)
        right, wrong = (np.stack([1 - q, q], 1) for q in (0.1 + 0.8 * y, 0.9 - 0.8 * y))
        p = np.stack([right, wrong] if i < 2 else [wrong, right])
        told.append(OutOfFold(p, y[:, None].astype(np.int8), 30.0, int(i >= 2), "", str(i)))
    shares = [(0.5, 0.5), (1.0, 0.0), (0.0, 1.0)]
    scores = oof_scores(["a", "b"], told, choose(told, shares), ("x",), shares)
    assert scores["mean"] < min(scores["members"].values()) and scores["members"]["b"] > 0.5


def test_a_lab_left_out_is_judged_by_common_decisions():
    told = [s._replace(fold="AB".index(s.lab)) for s in
            videos(4, 10, lab="A") + videos(5, 10, lab="B", scale=0.55)]
    codes, of = nested(told)
    assert all(d.labs == {} for d in of.values())
    kept = choose(told)
    scores = oof_scores(["one"], told, kept, ("rare", "usual"))
    assert scores["macro_f1"] == round(macro_f1(told, codes), 4)
    assert scores["in_sample"] == round(macro_f1(told, [codes_of(kept, s) for s in told]), 4)
    assert scores["optimism"] == round(scores["in_sample"] - scores["macro_f1"], 4) > 0
    assert set(scores["by_lab"]) == {"A", "B"} and scores["by_lab"]["B"]["videos"] == 10
    mine = [i for i, s in enumerate(told) if s.lab == "B"]
    assert scores["by_lab"]["B"]["macro_f1"] == round(
        macro_f1([told[i] for i in mine], [codes[i] for i in mine]), 4)


def test_the_interval_of_labs_that_were_left_out_is_over_labs():
    "Videos of a lab are alike: of labs that differ it was several times too narrow, and said nothing of it."
    each = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9] # Probability of what is right
    told = [s._replace(fold=k, lab=f"lab{k}", video=f"{k}-{s.video}") for k, right in enumerate(each)
            for s in videos(k, 8, scale=right)]
    apart = oof_scores(["one"], told, PLAIN._replace(shares=(1.0,)), ("rare", "usual"))
    mixed = oof_scores(["one"], [s._replace(fold=i % 4) for i, s in enumerate(told)],
                       PLAIN._replace(shares=(1.0,)), ("rare", "usual"))
    assert apart["interval_over"] == "labs" and "interval_over" not in mixed
    counts = np.array([np.sum([[*apart["counts"][v].values()] for v in apart["counts"]
                               if v.startswith(f"{k}-")], 0) for k in range(len(each))])
    assert apart["interval"] == pytest.approx(bootstrap(counts))
    assert apart["f1_interval"] == f1_intervals(counts, ("rare", "usual"))
    assert np.ptp(apart["interval"]) > 1.5 * np.ptp(mixed["interval"])
    one = oof_scores(["one"], videos(1, 5), PLAIN._replace(shares=(1.0,)), ("rare", "usual"))
    assert "interval_over" not in one


def test_unknown_actions_do_not_crash():
    told = [s._replace(labels=np.where([True, i % 2 > 0], s.labels, np.int8(-1)))
            for i, s in enumerate(videos(8))]
    assert len(choose(told).thresholds) == 2
    none = [s._replace(labels=np.full_like(s.labels, -1)) for s in told]
    assert choose(none).thresholds == (None, None) == best_thresholds(none)
    assert choose(videos(9, 2, frames=0)).thresholds == (None, None)
    scores = oof_scores(["one"], none, choose(none), ("rare", "usual"))
    assert scores["f1"] == {"rare": None, "usual": None} and scores["macro_f1"] == 0


def test_a_lab_in_which_nothing_was_seen_has_no_f1():
    quiet = [s._replace(lab="Q", video=f"Q{i}", labels=np.zeros_like(s.labels),
                        p=np.broadcast_to(np.float64([1, 0, 0]), s.p.shape))
             for i, s in enumerate(videos(1, 5))]
    told = videos(0) + quiet
    of = oof_scores(["one"], told, PLAIN._replace(shares=(1.0,)), ("rare", "usual"))["by_lab"]
    assert of["Q"]["macro_f1"] is None and of["A"]["macro_f1"] > 0.3


def test_thresholds_are_chosen_on_the_probabilities_that_they_are_set_on(tmp_path, monkeypatch):
    "Where actions may overlap each has its own; what is never told gets no threshold."
    import mabe_nb as mb
    from mabe_nb.data.dataset import RecordingList
    from mabe_nb.data.recording import Recording, bout_table
    from mabe_nb.train import classifier
    xy = np.random.default_rng(0).normal(0, 1, (3, 300, 2, 2, 2)).cumsum(1).astype("float32")
    bouts = [("a", "b", action, 50, 120) for action in ("chase", "sniff", "mount")]
    lab = RecordingList([Recording(
        xy[i], ("a", "b"), ("nose", "tail_base"), 30.0, 10.0, bout_table(bouts),
        frozenset(b[:3] for b in bouts), str(i)) for i in range(3)], tmp_path, "lab")
    model = mb.fit(lab, tmp_path/"run", loss="binary", features="coords", epochs=1,
                   hidden_size=8, num_layers=1, sequence_length=10, say=None, progress=False)
    seen = np.repeat([0, 1, 0], [50, 70, 180])

    def told(model, prepared, ids, *how, apart=False):
        p = np.stack([0 * seen, *[np.where(seen, 0.85, 0.55)] * 2, 0 * seen], 1).astype(float)
        p = p[:, [0, *(1 + np.argsort(np.argsort(model.actions) == 1))]] # mount is never told
        for i in range(len(prepared.sequences)):
            yield i, p if apart else p / p.sum(1, keepdims=True).clip(1e-9)

    monkeypatch.setattr(classifier, "predict_sequences", told)
    own, shared = (mb.best_thresholds(model, lab, overlap=o)[""] for o in (True, False))
    assert all(0.55 < t <= 0.85 for t in own.values()) and len(own) == 2
    assert all(t <= 0.5 for t in shared.values())

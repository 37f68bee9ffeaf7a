"""Weights of rare actions and of labs: counted right, chosen with care, never of the fold."""
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mabe_nb.train.decide import (FACTORS, FEW, Decision, Told, best_factor, best_weights,
                                  choose, codes_of, factor_counts, judged, macro, nested)
from mabe_nb.train.folds import f1_of, video_counts


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
        out.append(Told(p[None], seen, 30.0, i % 5, lab, f"{lab}{i}"))
    return out


def f1(told, decision):
    return f1_of(video_counts([s.labels for s in told],
                              [codes_of(decision, s) for s in told]).sum(0))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_counts_are_those_of_the_decisions(seed, actions):
    rng, told = np.random.default_rng(seed), []
    for i in range(4):
        p = rng.dirichlet(np.ones(1 + actions), 60)[None]
        labels = rng.integers(0, 2, (60, actions)).astype(np.int8)
        labels[:, rng.random(actions) < 0.3] = -1
        told.append(Told(p, labels, 30.0, i, "", "ab"[i % 2]))
    weights, k = rng.uniform(0.3, 3, 1 + actions), int(rng.integers(actions))
    counts = factor_counts(told, weights, k)
    assert counts.shape == (2, len(FACTORS), 3) # two videos of two sequences
    for i in (0, 7, len(FACTORS) - 1):
        tried = weights.copy()
        tried[1 + k] *= FACTORS[i]
        each = video_counts([s.labels for s in told],
                            [codes_of(Decision(tuple(tried)), s) for s in told])[:, k]
        each[[(s.labels[:, k] < 0).all() for s in told]] = 0
        assert np.array_equal(counts[:, i], [each[::2].sum(0), each[1::2].sum(0)])


def test_a_rare_action_gains_in_videos_that_chose_nothing():
    for seed in range(5):
        learn, rest = videos(seed), videos(100 + seed)
        kept = choose(learn)
        plain = kept._replace(weights=(1.0,) * 3)
        assert f1(rest, kept)[0] > f1(rest, plain)[0] + 0.05
        assert f1(rest, kept)[1] > f1(rest, plain)[1] - 0.02
        assert kept.weights[1] > 1.1 and kept.weights[2] == 1


def test_one_action_alone():
    kept = choose(videos(1, actions=1))
    assert len(kept.weights) == 2 and kept.weights[1] > 1.1


def test_what_is_right_already_is_left():
    told = videos(2, strength=2.0)
    assert choose(told) == Decision((1.0, 1.0, 1.0), 0.0, (1.0,))


def test_noise_is_not_followed():
    "Where videos disagree, the mean of their answers is near 1 and gains nothing."
    rng = np.random.default_rng(0)
    for _ in range(20):
        counts = np.zeros((6, len(FACTORS), 3), np.int64)
        hit = rng.integers(95, 105, (6, len(FACTORS)))
        counts[..., 0], counts[..., 1], counts[..., 2] = hit, 200 - hit, 200 - hit
        assert best_factor(counts) == 1.0
    assert best_factor(np.zeros((3, len(FACTORS), 3), np.int64)) == 1.0


def test_videos_decide_not_their_sequences():
    "Ten sequences of one video are one witness."
    told = videos(3)
    one = [s._replace(video="all") for s in told]
    assert factor_counts(one, np.ones(3), 0).shape[0] == 1
    assert np.array_equal(factor_counts(one, np.ones(3), 0)[0],
                          factor_counts(told, np.ones(3), 0).sum(0))
    nameless = [s._replace(video="") for s in told]
    assert factor_counts(nameless, np.ones(3), 0).shape[0] == len(told)


def test_a_lab_with_another_line_gets_weights_of_its_own():
    told = videos(4, 10, lab="A") + videos(5, 10, lab="B", scale=0.55)
    kept = choose(told)
    assert "B" in kept.labs and kept.labs["B"][1] > kept.weights[1]
    rest = videos(6, 10, lab="B", scale=0.55)
    assert f1(rest, kept)[0] > f1(rest, kept._replace(labs={}))[0]
    new = [s._replace(lab="C") for s in rest]
    assert np.allclose(f1(new, kept), f1(rest, kept._replace(labs={})))


def test_a_lab_with_few_videos_or_little_to_gain_does_not():
    few = videos(4, 10) + videos(5, FEW - 1, lab="B", scale=0.55)
    assert "B" not in choose(few).labs
    alike = videos(4, 10) + videos(7, 10, lab="B")
    assert choose(alike).labs == {}
    assert choose(videos(4, 10)).labs == {} # one lab


def test_nothing_of_the_fold_that_is_scored():
    told = videos(4, 10, lab="A") + videos(5, 10, lab="B", scale=0.55)
    spoilt = [s._replace(labels=1 - s.labels, p=s.p[..., ::-1]) if s.fold == 2 else s
              for s in told]
    before, after = nested(told)[1], nested(spoilt)[1]
    assert before[2] == after[2] and before[0] != after[0] and before[2].labs


def test_a_lab_left_out_is_judged_by_common_decisions():
    told = [s._replace(fold="AB".index(s.lab)) for s in
            videos(4, 10, lab="A") + videos(5, 10, lab="B", scale=0.55)]
    codes, of = nested(told)
    assert all(d.labs == {} for d in of.values())
    scores = judged(["one"], told, choose(told), ("rare", "usual"))
    assert scores["macro_f1"] == round(macro(told, codes), 4)
    assert set(scores["by_lab"]) == {"A", "B"} and scores["by_lab"]["B"]["videos"] == 10
    mine = [i for i, s in enumerate(told) if s.lab == "B"]
    assert scores["by_lab"]["B"]["macro_f1"] == round(
        macro([told[i] for i in mine], [codes[i] for i in mine]), 4)


def test_unknown_actions_do_not_crash():
    told = [s._replace(labels=np.where([True, i % 2 > 0], s.labels, np.int8(-1)))
            for i, s in enumerate(videos(8))]
    assert len(choose(told).weights) == 3
    none = [s._replace(labels=np.full_like(s.labels, -1)) for s in told]
    assert choose(none).weights == (1.0, 1.0, 1.0)
    assert best_weights(none) == (1.0, 1.0, 1.0)
    empty = videos(9, 2, frames=0)
    assert choose(empty).weights == (1.0, 1.0, 1.0)
    scores = judged(["one"], none, choose(none), ("rare", "usual"))
    assert scores["f1"] == {"rare": None, "usual": None} and scores["macro_f1"] == 0

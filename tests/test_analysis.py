"""From bouts to results: measures by brute force, statistics by simulation, round trips."""
import json, re, time
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_open_folder import recording as tracks, write_dlc
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special, stats

import mabe_nb as mb
from mabe_nb.analysis import exports
from mabe_nb.analysis.boris import export_boris
from mabe_nb.analysis.clips import frame_drawer, write_clips
from mabe_nb.analysis.comparison import compare_groups, compare_two, group_order, hedges
from mabe_nb.analysis.exports import (FORMATS, export_csv, export_elan, export_ethogram, export_nwb,
                                      export_simba)
from mabe_nb.analysis.figures import colors_of, plot_budgets, plot_dyads, plot_raster, plot_transitions
from mabe_nb.commands.analysis import _compared
from mabe_nb.analysis.groups import (checked_groups, dependence_notes, unmatched_rows_note, spelling_note, per_unit,
                                     read_groups, with_groups)
from mabe_nb.analysis.measures import measure, observe, over_time
from mabe_nb.analysis.sequences import _pairs, dyads, encounters, false_discovery, transitions
from mabe_nb.cli import main
from mabe_nb.data.annotations import read_boris
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.folder.scored_tables import with_scores
from mabe_nb.data.formats.elan import read_elan
from mabe_nb.data.formats.simba import read_simba, simba_actions
from mabe_nb.data.poses import read_poses
from mabe_nb.data.corrections import Correction, corrected
from mabe_nb.data.recording import Recording, bout_table, frame_labels
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.train.metrics import submission_table
from mabe_nb.view.colors import KNOWN_ACTIONS, action_color, pattern_of
from mabe_nb.view.report import figure_svg

MICE, ACTIONS = ("a", "b", "c"), ("rear", "sniff")


def recording(bouts, video="v", frames=300, fps=10.0):
    xy = np.zeros((frames, 3, 1, 2), np.float32)
    looked = {(a, t, x) for a in MICE for t in MICE for x in ACTIONS}
    return Recording(xy, MICE, ("nose",), fps, 1.0, bout_table(bouts), frozenset(looked), video)


BOUT = st.tuples(st.sampled_from(MICE), st.sampled_from(MICE), st.sampled_from(ACTIONS),
                 st.integers(0, 290), st.integers(1, 60))
BOUTS = st.lists(BOUT, max_size=15).map(lambda rows: [(*w, a, a + n) for *w, a, n in rows])


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(BOUTS)
@example([("a", "b", "rear", 5, 9)] * 2) # Written down twice, it happened once
@example([("a", "b", "rear", 290, 305), ("a", "b", "rear", 290, 310)]) # The video ends at 300
def test_measures_are_those_of_counting_frames(rows):
    rec, rows = recording(rows), {(*who, a, min(b, 300)) for *who, a, b in rows}
    table = measure(observe([rec])).set_index(["animal", "action"])
    assert len(table) == len(MICE) * len(ACTIONS)
    for animal in MICE:
        for action in ACTIONS:
            mine = [(a, b) for who, _, what, a, b in rows if (who, what) == (animal, action)]
            frames = {f for a, b in mine for f in range(a, min(b, 300))}
            row = table.loc[animal, action]
            assert row.bouts == len(mine) and row.seconds == pytest.approx(len(frames) / 10)
            assert row.share == pytest.approx(len(frames) / 300)
            first = min((a / 10 for a, _ in mine), default=np.nan)
            assert row.latency_s == pytest.approx(first, nan_ok=True)
    bins = over_time(observe([rec]), 7.0)
    whole = (bins.share * (bins.stop_s - bins.start_s)).groupby([bins.animal, bins.action]).sum()
    assert np.allclose(whole[table.index], table.seconds)


def test_what_nobody_looked_for_is_not_nothing():
    rec = recording([("a", "b", "sniff", 0, 10)]).replace(
        labelled=frozenset({("a", "b", "sniff"), ("b", "a", "sniff")}))
    table = measure(observe([rec]))
    assert set(zip(table.animal, table.action)) == {("a", "sniff"), ("b", "sniff")}
    with pytest.raises(DataError, match="no video has annotations"):
        observe([rec.replace(labelled=None)])


def submission(*rows):
    return pd.DataFrame(rows, columns=["video_id", "agent_id", "target_id", "action",
                                       "start_frame", "stop_frame"])


def test_predicted_bouts_count_for_every_animal_of_the_lab():
    one, two = recording([], "1"), recording([], "2").replace(lab_id="other")
    table = measure(observe([one, two], submission(("1", "a", "b", "sniff", 0, 50),
                                                   ("2", "b", "self", "rear", 5, 10))))
    assert table.groupby("video").action.unique().map(list).to_dict() == {
        "1": ["sniff"], "2": ["rear"]}
    assert table.set_index(["video", "animal"]).seconds.to_dict() == {
        ("1", "a"): 5, ("1", "b"): 0, ("1", "c"): 0, ("2", "a"): 0, ("2", "b"): .5, ("2", "c"): 0}
    with pytest.raises(DataError, match="no animal 'x'"):
        observe([one], submission(("1", "x", "b", "sniff", 0, 50)))


def test_a_prediction_counts_where_the_model_was_asked():
    asked = frozenset({("a", "b", "sniff"), ("a", "c", "sniff"), ("a", "a", "rear")})
    one, two = recording([], "1").replace(labelled=asked), recording([], "2")
    found = submission(("1", "a", "b", "sniff", 0, 50), ("2", "b", "self", "rear", 5, 10))
    table = measure(observe([one, two], found))
    rows = {v: {*zip(t.animal, t.action)} for v, t in table.groupby("video")}
    assert rows["1"] == {("a", "sniff"), ("a", "rear")} and len(rows["2"]) == 6
    more = pd.concat([found, submission(("1", "b", "a", "sniff", 0, 5))]) # from elsewhere
    table = measure(observe([one, two], more)).set_index(["video", "animal", "action"])
    assert table.seconds["1", "b", "sniff"] == 0.5


@pytest.mark.slow
def test_animals_that_count_in_some_videos_only_are_told(tmp_path):
    asked = frozenset({("a", "b", "sniff"), ("a", "c", "sniff")}) # agent: a
    scored = [recording([], k).replace(labelled=asked) for k in "123"]
    found = submission(("1", "a", "b", "sniff", 0, 50), ("4", "b", "a", "sniff", 5, 10))
    for data, told in ((scored + [recording([], "4")], True), (scored, False)):
        lines, ids = [], {r.video_id for r in data}
        mb.analyse(data, tmp_path/"out", bouts=found[found.video_id.isin(ids)], say=lines.append)
        assert told == any("in 3 of 4 videos only some of the animals were looked for (video 1, "
                           "2, 3), in the others all" in x for x in lines), lines
        mb.analyse(data, tmp_path/"out", bouts=found[found.video_id.isin(ids)], say=None)


def test_bouts_about_an_animal_that_nobody_saw_are_told(tmp_path):
    rec = recording([], "1")
    rec.xy[:] = 1
    rec.xy[100:250, 1] = np.nan # b is lost
    found = submission(("1", "a", "b", "sniff", 90, 110), ("1", "b", "self", "rear", 120, 180),
                       ("1", "c", "a", "sniff", 120, 180), ("1", "a", "b", "sniff", -9, 5))
    seen = observe([rec], found).bouts
    assert seen.tracked.to_list() == [1, 0.5, 0, 1] # by their start
    lines = []
    mb.analyse([rec], tmp_path/"out", bouts=found, say=lines.append)
    assert [x for x in lines if "in 1 of 4 bouts" in x and "(video 1)" in x], lines
    assert pd.read_csv(tmp_path/"out"/"bouts.csv").tracked.to_list() == [1, 0.5, 0, 1]


def test_groups_of_nobody_name_what_was_not_found():
    measured = measure(observe([recording([("a", "b", "sniff", 0, 10)], "1")]))
    for row, word in ((("1", "A"), "no animal .* 'A of 1' is not among a of 1, b of 1"),
                      (("v1", "a"), "'a of v1' is not among a of 1"),
                      (("v1",), "no video .* 'v1' is not among 1")):
        keys = ["video", "animal"][:len(row)]
        with pytest.raises(DataError, match=word):
            with_groups(measured, pd.DataFrame([(*row, "x")], columns=[*keys, "dose"]), "dose")


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(BOUTS)
def test_encounters_hold_every_bout_once(rows):
    bouts = observe([recording(rows)]).bouts
    met, between = encounters(bouts, 1.0), bouts[bouts.agent != bouts.target]
    assert met.bouts.sum() == len(between)
    for pair, some in met.groupby(["first", "second"]):
        some = some.sort_values("start")
        assert pair[0] < pair[1] and (some.start.to_numpy()[1:] - some.stop.to_numpy()[:-1] > 1).all()
    counted = dyads(bouts)
    assert counted.bouts.sum() == len(between)
    for row in counted.itertuples(): # no moment counts twice, in how many bouts it may lie
        mine = between[(between.agent == row.agent) & (between.target == row.target)
                       & (between.action == row.action)]
        moments = {t for a, b in zip(mine.start, mine.stop)
                   for t in range(round(a * 1000), round(b * 1000))}
        assert row.bouts == len(mine) and row.seconds == pytest.approx(len(moments) / 1000, abs=0.1)


def test_a_chain_is_found_and_its_order_matters():
    rng, rows = np.random.default_rng(0), []
    for i in range(80):
        what = ["sniff", "rear"] if rng.random() < 0.9 else ["rear", "sniff"]
        rows += [("a", "a", w, 30 * i + 12 * k, 30 * i + 12 * k + 5) for k, w in enumerate(what)]
    rows += [("a", "a", "groom", 30 * i + 20, 30 * i + 22) for i in range(80)]
    bouts = observe([recording(rows, frames=3000).replace(
        labelled=frozenset(("a", "a", w) for w in ("groom", "rear", "sniff")))]).bouts
    table = transitions(bouts, shuffles=300).set_index(["before", "after"])
    assert table.q["sniff", "rear"] < 0.02 and table.ratio["sniff", "rear"] > 2
    assert table.q["sniff", "sniff"] < 0.02 and table.ratio["sniff", "sniff"] == 0
    near = transitions(bouts, gap_s=0.05, shuffles=10)
    assert near["count"].sum() < table["count"].sum()
    assert transitions(bouts[:0]).empty
    with pytest.raises(ConfigError, match="shuffles is 0"): transitions(bouts, shuffles=0)


def sequence(words, touch, targets=None, agent="a"):
    "A bout for each letter, of 1 s; where `touch` is False a second lies before the next."
    starts = np.cumsum([0, *(1 if t else 2 for t in touch)])
    rows = [("v", agent, t, x, float(s), s + 1.0) for x, t, s in
            zip(words, targets or "b" * len(words), starts)]
    return pd.DataFrame(rows, columns=["video", "agent", "target", "action", "start", "stop"])


@pytest.mark.parametrize("words, touch, targets", [
    ("xyxyzxz", [1] * 6, None), ("xxyyzxy", [0, 1, 0, 1, 1, 0], None), ("xyxyxx", [0] * 5, None),
    ("xxyyx", [1] * 4, "bcbcb")])
def test_chance_is_that_of_all_orders_there_could_have_been(words, touch, targets):
    "Bouts that touch and are of one action and target would be one bout."
    labels, names = [*zip(words, targets or "b" * len(words))], sorted(set(words))
    every = [order for order in permutations(labels)
             if not any(t and a == b for t, a, b in zip(touch, order, order[1:]))]
    table = transitions(sequence(words, touch, targets), shuffles=4000).set_index(["before", "after"])
    for a, b in [(a, b) for a in names for b in names]:
        drawn = np.array([sum((x[0], y[0]) == (a, b) for x, y in zip(o, o[1:])) for o in every])
        assert table.expected[a, b] == pytest.approx(drawn.mean(), abs=0.05)
        seen = table["count"][a, b]
        p = min(1, 2 * min((drawn >= seen).mean(), (drawn <= seen).mean()))
        assert np.isnan(table.p[a, b]) if not drawn.any() else abs(table.p[a, b] - p) < 0.05


def test_the_first_orders_drawn_do_not_remember_the_one_seen():
    bouts = sequence("xy" * 40 + "zw" * 40, [1] * 159)
    first, many = (transitions(bouts, shuffles=k).expected for k in (50, 2000))
    assert abs(first - many).max() < 1.2


def test_two_actions_that_take_turns_tell_nothing():
    table = transitions(sequence("xyxyxyx", [1] * 6), shuffles=100).set_index(["before", "after"])
    assert table.p["x", "y"] == table.p["y", "x"] == 1 and np.isnan(table.p["x", "x"])


def test_bouts_of_one_action_that_touch_are_one_bout():
    "Scored in pieces, at random: nothing follows itself, and nothing stands out."
    rng = np.random.default_rng(0)
    action, end = rng.choice(["groom", "walk", "rest"], 300), rng.random(300).cumsum()
    bouts = pd.DataFrame({"video": "v", "agent": "a", "target": "a", "action": action,
                          "start": np.r_[0, end[:-1]], "stop": end})
    found = transitions(bouts, shuffles=500)
    itself = found[found.before == found.after]
    assert (itself["count"] == 0).all() and found.q.min() > 0.05
    runs = 1 + (action[1:] != action[:-1]).sum()
    assert found["count"].sum() == runs - 1
    inside = pd.concat([bouts[:1].assign(stop=5.0), bouts[:1].assign(start=1.0, stop=2.0)])
    assert transitions(inside)["count"].sum() == 0


@pytest.mark.slow
def test_alarms_are_rare_where_every_moment_has_an_action():
    rng, p = np.random.default_rng(0), []
    for k in range(150):
        words = ["x"] # no action follows itself, else each as it is frequent
        for _ in range(79): words.append(rng.choice([w for w in "xxxyyz" if w != words[-1]]))
        table = transitions(pd.concat([sequence(words[:50], [1] * 49), sequence(
            words[50:], [1] * 29, agent="c")]), shuffles=400, seed=k)
        p.append(table.set_index(["before", "after"]).p[[("x", "y"), ("z", "x")]])
    assert (np.array(p) < 0.05).mean() < 0.08 and np.median(p) > 0.3


@pytest.mark.slow
def test_hours_in_which_every_moment_has_an_action_take_seconds():
    rng, begun = np.random.default_rng(0), time.process_time()
    words = np.cumsum(rng.integers(1, 6, 6000)) % 6 # no action follows itself, else at random
    table = transitions(sequence([f"a{k}" for k in words], [1] * 5999), shuffles=3000)
    assert time.process_time() - begun < 12
    apart = table[table.before != table.after]
    assert apart.expected.between(185, 215).all() and apart.q.min() > 0.01


@pytest.mark.parametrize("sizes", [(7, 1, 4, 2), (10, 9), (1,)])
def test_any_two_bouts_of_an_animal_may_change_places_and_no_two_pairs_meet(sizes):
    group, rng, seen = np.repeat(np.arange(len(sizes)), sizes), np.random.default_rng(0), set()
    at, n = np.concatenate([np.arange(k) for k in sizes]), sum(sizes)
    for _ in range(2000):
        i, j = _pairs(at, np.array(sizes), group, rng, 2)
        seen |= {*zip(i % n, j % n)}
        of = np.zeros(2 * n, int)
        of[i] = of[j] = 1 + np.arange(len(i))
        assert (i // n == j // n).all() and (of > 0).sum() == 2 * len(i)
        beside = (of[1:] > 0) & (of[:-1] > 0) & (np.diff(np.tile(group, 2)) == 0)
        assert (of[1:] == of[:-1])[beside].all()
    assert seen == {(a, b) for a in range(n) for b in range(a + 1, n) if group[a] == group[b]}


def test_many_actions_take_no_room_that_there_is_not():
    import tracemalloc
    words = [f"a{k % 60}" for k in range(180)]
    tracemalloc.start()
    table = transitions(sequence(words, [0] * 179))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(table) == 3600 and peak < 5 * 2**26 + 2**26 # bools beside the counts


def test_a_single_pair_can_stand_out():
    "Forty actions once each in any order but a and b, which follow each other."
    rng, rows = np.random.default_rng(1), []
    for agent in range(12):
        words = [*rng.permutation(list("cdefghij"))]
        at = rng.integers(0, 9)
        rows.append(sequence([*words[:at], "a", "b", *words[at:]], [0] * 9, agent=str(agent)))
    table = transitions(pd.concat(rows)).set_index(["before", "after"])
    assert table.q["a", "b"] < 0.05 and (table.q < 0.05).sum() == 1


def test_false_discoveries_as_scipy_has_them():
    p = np.random.default_rng(0).random(40)**2
    assert np.allclose(false_discovery(p), stats.false_discovery_control(p))
    some = np.r_[p[:5], np.nan]
    assert np.allclose(false_discovery(some)[:5], stats.false_discovery_control(p[:5]))
    assert np.isnan(false_discovery(some)[5])


# groups

@pytest.mark.slow
def test_intervals_cover_and_alarms_are_as_rare_as_said():
    "500 experiments with a known difference, unequal spread and unequal numbers."
    rng, inside, g_inside, alarms = np.random.default_rng(5), 0, 0, 0
    for _ in range(500):
        a, b = rng.normal(0, 1, 9), rng.normal(0.8, 1.6, 14)
        found = compare_two(a, b, draws=1)
        inside += found["low"] <= 0.8 <= found["high"]
        a, b = rng.normal(0, 1, 12), rng.normal(0.7, 1, 12)
        found = compare_two(a, b, draws=1)
        g_inside += found["g_low"] <= 0.7 <= found["g_high"]
        alarms += compare_two(rng.gamma(2, size=8), rng.gamma(2, size=8), draws=199)["p"] <= 0.05
    assert 0.93 <= inside / 500 <= 0.97 and 0.93 <= g_inside / 500 <= 0.97
    assert 0.02 <= alarms / 500 <= 0.07


def welch(a, b): return (np.mean(b) - np.mean(a)) / np.sqrt(np.var(a, ddof=1) / len(a)
                                                           + np.var(b, ddof=1) / len(b))


@pytest.mark.parametrize("a, b", [([1.0, 2.0, 4.0], [5.0, 7.0, 9.0, 6.0]),
                                  ([-8.0, 1.0, 9.0], [4.0, 5.0, 5.5, 4.5, 6.0])]) # bare: other p
def test_small_groups_are_tested_exactly(a, b):
    ways = combinations(range(len(a + b)), 3)
    every = [welch([(a + b)[i] for i in some], [v for i, v in enumerate(a + b) if i not in some])
             for some in ways]
    low, high = (np.mean(s * np.array(every) <= s * welch(a, b) + 1e-9) for s in (1, -1))
    found = compare_two(a, b)
    assert found["p"] == pytest.approx(min(1, 2 * min(low, high)))
    ends = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert (found["low"], found["high"]) == pytest.approx(tuple(ends))
    assert np.isnan(compare_two([1.0], b)["p"]) and compare_two([1.0, 1], [1.0, 1])["p"] == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n, m", [(2, 3), (4, 4), (12, 20)])
def test_g_is_the_difference_in_pooled_deviations_without_its_bias(n, m):
    "By the exact factor of Hedges (1981), which ours comes near."
    a, b = np.arange(n) * 1.0, np.arange(m) * 2.0 + 3
    pooled = (((a - a.mean())**2).sum() + ((b - b.mean())**2).sum()) / (n + m - 2)
    free = n + m - 2
    exact = np.exp(special.gammaln(free / 2) - special.gammaln((free - 1) / 2)) / (free / 2)**0.5
    g, low, high = hedges(a, b)
    assert g == pytest.approx((b.mean() - a.mean()) / pooled**0.5 * exact, rel=0.02)
    assert g == -hedges(b, a)[0] and high - g == pytest.approx(g - low)
    assert (high - low) / (2 * 1.96) == pytest.approx((1 / n + 1 / m + g**2 / 2 / (n + m))**0.5)


def test_groups_without_scatter_have_a_p():
    assert compare_two([1.0] * 3, [2.0] * 3)["p"] == pytest.approx(0.1) # 2 of 20 arrangements
    assert compare_two([0.1, 0.1, 0.3], [0.1] * 4)["p"] == pytest.approx(6 / 7) # 3 of 7 hold the .3
    a, b = np.array([-8.0, 1, 9]), np.array([4, 5, 5.5, 4.5, 6])
    assert compare_two(a, b)["p"] == compare_two(a * 1e-9, b * 1e-9)["p"] # whatever the unit


@pytest.mark.parametrize("a, b", [([.3] * 3, [.1 + .2] * 3), ([.3, .3, .1 + .2, .3], [.1 + .2, .3, .3, .3]),
                                  ([.033333, .033334, .033333], [.033334] * 3), ([0] * 3, [0] * 3)])
def test_values_that_are_the_same_do_not_differ(a, b):
    assert compare_two(a, b)["p"] == 1 and compare_two(a, b)["difference"] == 0


def test_what_rounding_parts_is_a_tie():
    "Ten frames of 30 a second last 0.333333 or 0.333334 s, by where they begin."
    few, more = [0.0, 0, 0, 0, 0, 1], [0.0, 1, 1, 1, 1, 1]
    rng = np.random.default_rng(0)
    p = compare_two(few, more)["p"]
    for _ in range(20):
        off = [np.array(v) * (1 + 3e-6 * rng.integers(0, 2, 6)) for v in (few, more)]
        assert compare_two(*off)["p"] == pytest.approx(p)


def table_of(**more):
    rows = [(f"v{v}", "lab", m, "rear", 60.0 * (1 + v), 0.1 * v) for v in range(4) for m in "ab"]
    return pd.DataFrame(rows, columns=["video", "lab", "animal", "action", "watched_s", "share"])


def test_the_videos_of_an_animal_are_one_case():
    groups = pd.DataFrame({"video": ["v0", "v1", "v2", "v3"], "subject": ["x", "x", "y", "y"],
                           "dose": ["low", "low", "high", "high"]})
    cases = per_unit(with_groups(table_of(), groups, "dose"))
    assert len(cases) == 2
    x = cases.set_index("unit").value["x"]
    assert x == pytest.approx((60 * 0 + 120 * 0.1) / 180)
    with pytest.raises(ConfigError, match=r"'x' is in 2 groups \(low, high\); groups are compared"):
        per_unit(with_groups(table_of(), groups.assign(dose=["low", "high"] * 2), "dose"))
    with pytest.raises(ConfigError, match=r"\(low, Low\); spell them alike"):
        per_unit(with_groups(table_of(), groups.assign(dose=["low", "Low"] * 2), "dose"))
    assert spelling_note(with_groups(table_of(), groups, "dose")) == []
    said, = spelling_note(with_groups(table_of(), groups.assign(dose=list("aAbb"), subject=list("xyzZ")), "dose"))
    assert said.startswith("a and A; z and Z differ in capitals")
    assert unmatched_rows_note(table_of(), groups.replace("v1", "V1"))[0].endswith("'V1'; did you mean 'v1'?")
    with pytest.raises(ConfigError, match="did you mean 'dose'"):
        with_groups(table_of(), groups, "doze")
    with pytest.raises(ConfigError, match="unknown measure"): per_unit(table_of(), "size")
    with pytest.raises(ConfigError, match="two or more"):
        compare_groups(cases.assign(group="all"))
    each = pd.DataFrame({"video": ["v0"] * 2, "animal": ["a", "b"], "dose": ["low", "high"]})
    assert with_groups(table_of(), each, "dose").group.tolist() == ["low", "high"]


def test_a_row_of_groups_with_an_empty_cell_stays_and_an_empty_row_goes():
    table = pd.DataFrame({"video": ["a", "b", ""], "dose": ["low", None, None], "sex": ["f", "m", ""]})
    assert checked_groups(table).values.tolist() == [["a", "low", "f"], ["b", "", "m"]]


def test_animals_that_meet_are_one_cage():
    "v0 and v1 share x, v1 and v2 share y: whom a chain of videos brings together is one case."
    names = ["x", "w", "x", "y", "y", "z", "u", "t"]
    groups = pd.DataFrame({"video": [f"v{v}" for v in range(4) for _ in "ab"], "animal": list("ab") * 4,
                           "subject": names, "dose": ["low"] * 6 + ["high"] * 2})
    rows = with_groups(table_of(), groups, "dose")
    cases = per_unit(rows, unit="cage").set_index("unit")
    assert cases.index.tolist() == ["t", "w"] # by the group, then the first name
    assert cases.value["w"] == pytest.approx((60 * 0 + 120 * .1 + 180 * .2) / 360)
    assert cases.seconds["w"] == 2 * 360
    mixed = rows.assign(group=["low"] * 5 + ["high"] * 3)
    with pytest.raises(ConfigError, match=r"cage 'w' is in 2 groups \(low, high\); give --unit animal"):
        per_unit(mixed, unit="cage")
    with pytest.raises(ConfigError, match="unknown unit"): per_unit(rows, unit="cages")
    assert dependence_notes(rows, "cage") == []
    assert dependence_notes(rows, "video")[0].startswith("in more than one video: 2 of 6 animals")
    one, two = dependence_notes(mixed)
    assert one.startswith("in 3 of 4 videos animals of one group meet")
    assert two == ("in 1 of 4 videos animals of different groups meet, and are compared as if "
                   "they had not")
    three = mixed.assign(video=mixed.video.replace("v1", "v2"), subject=[*"abcdefgh"]) # 3 of one, 1 of the other
    assert dependence_notes(three)[0].startswith("in 3 of 3 videos animals of one group meet")
    assert dependence_notes(rows[rows.animal == "a"]) == dependence_notes(rows[rows.animal == "a"], "cage")


@pytest.mark.slow
def test_a_comparison_says_that_animals_met(tmp_path, colony):
    ids, lines = [r.video_id for r in colony], []
    groups = pd.DataFrame({"video": ids, "dose": np.resize(["low", "high"], len(ids))})
    for unit in "animal", "cage":
        lines.append([])
        mb.analyse(colony, tmp_path/unit, groups=groups, by="dose", unit=unit, say=lines[-1].append)
    meet = [[x for x in some if "one group meet" in x] for some in lines]
    assert len(meet[0]) == 1 and f"in {len(ids)} of {len(ids)} videos" in meet[0][0] and not meet[1]


def test_few_animals_get_a_note():
    groups = pd.DataFrame({"video": [f"v{i}" for i in range(4)], "dose": list("xxyy")})
    table, notes = compare_groups(per_unit(with_groups(table_of(), groups, "dose")))
    assert len(notes) == 2 and table.n_a.tolist() == [4] and np.isfinite(table.p).all()


def test_an_action_that_one_group_lacks_is_no_comparison():
    cases = pd.DataFrame([(g, a, f"{g}{i}", float(i)) for g, a in
                          (("low", "chase"), ("high", "chase"), ("high", "rear"))
                          for i in range(9)], columns=["group", "action", "unit", "value"])
    table, notes = compare_groups(cases, draws=99)
    assert notes == ["low has 0 cases of some action: intervals are wide, and no difference "
                     "found does not mean none there"]
    rear = table[table.action == "rear"].iloc[0]
    assert (rear.n_a, rear.n_b) == (9, 0) and np.isnan(rear.p)
    assert _compared(rear) == "high n 9, low n 0: too few to compare"
    assert "difference +0 (" in _compared(table[table.action == "chase"].iloc[0])


@pytest.mark.parametrize("text, words", [
    ("a,b\n1,2\n", "no column video"), ("video, video,dose\n1,2,x\n", "a column twice"), ("video,dose\n1,x\n1,y\n", "two rows for 1"),
    ("video,animal,dose\n1,m,x\n1,m,y\n", "two rows for m of 1")])
def test_bad_tables_of_groups(tmp_path, text, words):
    (tmp_path/"g.csv").write_text(text)
    with pytest.raises(DataError, match=words): read_groups(tmp_path/"g.csv")


@pytest.mark.slow
@pytest.mark.parametrize("dose, names", [
    ([0.0, 5.0, np.nan, 0.5], ["0", "5", "", "0.5"]), ([0, 5, None, 10], ["0", "5", "", "10"]),
    (pd.Categorical(["a", "b", None, "a"]), ["a", "b", "", "a"]), ([True, False, None, True], ["True", "False", "", "True"])])
def test_a_table_of_pandas_may_have_numbers_and_gaps(tmp_path, dose, names):
    data, said = [make_recording(k, 300, video_id=f"{k}") for k in range(4)], []
    table = pd.DataFrame({"Video": [0, 1, 2, 3.0], "dose": dose, "subject": [1, 2, 3, 4]})
    assert checked_groups(table).dose.tolist() == names
    found = mb.analyse(data, tmp_path, groups=table, by="dose", unit="video", shuffles=5, say=said.append)["groups"]
    assert {*found.a, *found.b} == {*names} - {""} and (found.n_a <= 2).all()
    assert any("no dose for 2 of 8 animals in videos" in line for line in said)
    with pytest.raises(DataError, match="no column video"): checked_groups(table[["dose"]])
    with pytest.raises(DataError, match="two rows for 1"): checked_groups(table.assign(Video=1))


def test_doses_with_a_comma_are_numbers_too():
    doses = ["0", "0,05 mg", "0,25 mg", "0.5 mg", "5", "10", "saline"]
    assert sorted({*doses}, key=group_order) == doses


# out again

@pytest.fixture(scope="module")
def colony():
    return [make_recording(k, 900, mice=3, video_id=f"day {k}") for k in range(3)]


def test_bouts_come_back_from_every_format(tmp_path, colony):
    from pynwb import NWBHDF5IO
    seen = observe(colony)
    pd.testing.assert_frame_equal(
        pd.read_csv(export_csv(seen, tmp_path)[0]), seen.bouts, atol=1e-6, check_dtype=False)
    for rec, path in zip(colony, export_boris(seen, tmp_path)):
        back = read_boris(path, target_from="Modifiers")
        assert back.sort_values(list(back)).values.tolist() == \
            rec.bouts.sort_values(list(back)).values.tolist()
        assert set(read_boris(path, target="mouse9").target) == {"mouse9"}
        with pytest.raises(DataError, match="no column 'Whom'"): read_boris(path, target_from="Whom")
    for rec, path in zip(colony, export_nwb(seen, tmp_path)):
        with NWBHDF5IO(str(path), "r") as io:
            table = io.read().intervals["behavior_bouts"].to_dataframe()
        got = zip(table.agent, table.target, table.action, (table.start_time * 30).round(),
                  (table.stop_time * 30).round())
        assert sorted(got) == sorted(map(tuple, rec.bouts.values.tolist()))
    for rec, path in zip(colony, export_elan(seen, tmp_path)):
        assert sorted(read_elan(path, 30.0).values.tolist()) == sorted(rec.bouts.values.tolist())
    assert not list(tmp_path.rglob("*.tmp"))


def test_simba_gets_the_poses_and_the_frames_of_each_action(tmp_path, colony):
    paths = export_simba(observe(colony), tmp_path, {r.video_id: r for r in colony})
    for rec, path in zip(colony, paths):
        poses = read_poses(path, 30)
        assert poses.parts == rec.parts and np.allclose(poses.xy, rec.xy, 1e-5, equal_nan=True)
        assert simba_actions(path) == tuple(sorted({a for _, _, a in rec.labelled}))
        for action in simba_actions(path):
            frames = lambda bouts: {f for b in bouts[bouts.action == action].itertuples()
                                    for f in range(b.start, b.stop)}
            assert frames(read_simba(path)) == frames(rec.bouts)
    with pytest.raises(ConfigError, match="give data"): export_simba(observe(colony), tmp_path)


def test_no_heading_of_simba_s_table_is_a_formula(tmp_path):
    rec = make_recording(0, 300).replace(video_id="v")
    rec = rec.replace(labelled=tuple((a, t, "=1+1") for a, t, _ in rec.labelled),
                      bouts=rec.bouts.assign(action="=1+1"))
    (path,) = export_simba(observe([rec]), tmp_path, {"v": rec})
    head = path.read_text().splitlines()[0].split(",")
    assert head[0] == "" and head[-1] == "'=1+1"


def test_an_ethogram_of_nwb_says_who_found_it_and_what_was_looked_for(tmp_path, colony):
    pytest.importorskip("ndx_ethogram", reason="an extra")
    from pynwb import NWBHDF5IO
    for rec, path in zip(colony, export_ethogram(observe(colony), tmp_path, method="manual")):
        with NWBHDF5IO(str(path), "r") as io:
            bouts = io.read().intervals["behavior_bouts"]
            table, listed = bouts.to_dataframe(), bouts.ethogram.to_dataframe()
            assert bouts.labeling_method == "manual" and bouts.neurodata_type == "EthogramBouts"
        got = zip(table.agent, table.target, table.label, (table.start_time * 30).round(),
                  (table.stop_time * 30).round())
        assert sorted(got) == sorted(map(tuple, rec.bouts.values.tolist()))
        assert listed.behavior.tolist() == sorted({a for _, _, a in rec.labelled})


@pytest.mark.parametrize("video", ["../up", "a/b", "..", "c:\\d"])
def test_a_video_cannot_lead_out_of_the_folder(tmp_path, video):
    rec = make_recording(0, 300).replace(video_id=video)
    seen = observe([rec])
    for write in (export_boris, export_nwb, export_elan, lambda s, out: export_simba(
            s, out, {video: rec}), lambda s, out: write_clips([rec], s.bouts, out, most=1)):
        with pytest.raises(DataError, match="cannot name a file"): write(seen, tmp_path/"out")
    assert [p.name for p in tmp_path.iterdir()] in ([], ["out"])


def test_a_frame_of_a_clip_shows_the_bouts_around_it_and_where_it_is(colony):
    draw = frame_drawer(colony[0])
    row = draw(25, "", (0, 100), [(-10, 50), (90, 200)])[-5].max(-1)
    at = lambda f: int(row[int(len(row) * f / 100)])
    assert at(10) == at(45) == at(95) == 0xc0 and at(60) == at(85) == 0x30 and at(25) == 255
    assert draw(25)[-5].max() == 0 # Without a window there are no bouts


@pytest.mark.slow
def test_clips_show_what_they_say(tmp_path, colony, capsys):
    import imageio_ffmpeg
    bouts = observe(colony).bouts
    films = write_clips(colony, bouts, tmp_path, most=3, longest_s=2, around_s=0.5, progress=True)
    assert "3/3" in capsys.readouterr().err
    longest = (bouts.stop - bouts.start).nlargest(3)
    assert films["stop"].sub(films["start"]).tolist() == pytest.approx(longest.tolist())
    for film in films.itertuples():
        frames = imageio_ffmpeg.read_frames(str(tmp_path/film.file))
        size = next(frames)["size"]
        images = [np.frombuffer(f, np.uint8).reshape(size[1], size[0], 3) for f in frames]
        assert 15 <= len(images) <= 92 and max(i.max() for i in images) > 100
    with pytest.raises(ConfigError, match="unknown action"):
        write_clips(colony, bouts, tmp_path, "sleep")
    empty = recording([]).replace(xy=np.full((5, 3, 1, 2), np.nan, np.float32))
    with pytest.raises(DataError, match="no points to draw"): frame_drawer(empty)


def test_a_clip_says_who_is_who():
    "Its text named mouse1 and mouse2, and nothing in the picture did."
    rec = make_recording(seed=1, frames=60, mice=2)
    white = [(frame_drawer(r)(30) == 255).all(-1) for r in (rec, rec.replace(
        xy=rec.xy[:, :1], mice=rec.mice[:1], bouts=bout_table(), labelled=None))]
    assert white[0].sum() > 60 and not white[1].any() # there one needs no name



def test_pictures_of_nothing(colony):
    seen = observe([recording([])])
    assert plot_raster(seen)[0].get_label() == "There are no bouts."
    assert plot_transitions(transitions(seen.bouts))[0].get_label() == "There are no bouts."
    assert "Nobody" in plot_dyads(dyads(seen.bouts))[0].get_label()
    figure = plot_dyads(dyads(seen.bouts))[0]
    FigureCanvasAgg(figure).draw()
    words = figure.axes[0].texts[0].get_window_extent()
    assert words.x0 >= 0 and words.x1 <= figure.bbox.width


def test_a_bout_of_three_frames_in_an_hour_is_seen():
    seen = observe([recording([(*MICE[:2], ACTIONS[0], 50, 53)], fps=30.)])
    figure, ax = plot_raster(seen._replace(bouts=seen.bouts.assign(start=1800., stop=1800.1),
                                           watched=seen.watched.assign(seconds=3600.)))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = ax.get_window_extent()
    inside = np.asarray(canvas.buffer_rgba())[:, int(box.x0) + 2:int(box.x1), :3].astype(int)
    assert (np.ptp(inside, 2) > 80).any(1).sum() > 5 # A coloured line, as high as most of its lane


def test_actions_of_a_raster_are_told_apart_without_colours():
    "Sniff, approach and rear were one olive for those who do not tell red from green."
    names = ("sniff", "approach", "rear", "attack")
    seen = observe([recording([(*MICE[:2], a, 50 * k, 50 * k + 25) for k, a in enumerate(names)])])
    ax = plot_raster(seen)[1]
    lanes = [(b.y0, b.y1) for c in ax.collections for b in [p.get_extents() for p in c.get_paths()]]
    assert len({*lanes}) == 4 and len(lanes) == 4
    assert [t.get_text() for t in ax.get_legend().get_texts()] == sorted(names)
    low = dict(zip(sorted(names), sorted(lanes)))
    colors = {tuple(c.get_facecolor()[0][:3]): c.get_paths()[0].get_extents().y0 for c in ax.collections}
    assert {a: colors[to_rgb(c)] for a, c in colors_of(names).items()} == {a: y for a, (y, _) in low.items()}


def test_an_action_has_its_colour_and_shares_it_with_none():
    assert colors_of(["sniff", "attack"]) == {a: action_color(a) for a in ("attack", "sniff")}
    both = "freezing", "lateralthreat"
    assert action_color(both[0]) == action_color(both[1])
    assert len({*colors_of([*both, *(f"action {i}" for i in range(30))]).values()}) == 32
    assert len(colors_of(map(str, range(60)))) == 60 # more than there are colours


def test_forty_actions_can_be_told_apart():
    "Fifteen of them were violets; of one pattern, colours are unlike."
    looks = [(pattern_of(c), np.array(to_rgb(c))) for c in map(action_color, KNOWN_ACTIONS)]
    assert {p for p, _ in looks[:10]} == {""} # of the frequent ones
    near = [p for (p, a), (q, b) in combinations(looks, 2) if p == q and np.abs(a - b).sum() < 0.19]
    assert near == []
    seen = observe([recording([(*MICE[:2], a, 20 * k, 20 * k + 20)
                               for k, a in enumerate(("sniff", "avoid", "tussle"))])])
    ax = plot_raster(seen)[1]
    patterns = {c.get_hatch() for c in ax.collections if c.get_hatch()}
    assert patterns == {"///", "xxx"} == {p.get_hatch() for p in ax.patches} - {"", None}


def test_the_names_of_all_actions_of_a_raster_are_in_the_picture():
    names = [f"behaviour {k:02}" for k in range(37)]
    seen = observe([recording([(*MICE[:2], a, 50, 53) for a in names])])
    figure, ax = plot_raster(seen)
    FigureCanvasAgg(figure).draw()
    box = ax.get_legend().get_window_extent()
    assert len(ax.get_legend().get_texts()) >= 37 and box.y0 >= 0 and box.y1 <= figure.bbox.height


def test_the_names_of_many_groups_are_in_the_picture():
    cases = pd.DataFrame([(f"group {g:02}", str(k), "sniff", g + k) for g in range(28) for k in range(3)],
                         columns=["group", "unit", "action", "value"])
    figure, ax = plot_budgets(cases)
    FigureCanvasAgg(figure).draw()
    box = ax.get_legend().get_window_extent()
    assert len(ax.get_legend().get_texts()) == 28 and box.y0 >= 0 and box.y1 <= figure.bbox.height


def test_a_raster_shows_when_nobody_watched():
    seen = observe([recording([(*MICE[:2], ACTIONS[0], 50, 53)], f"v{k}") for k in range(3)])
    assert "grey" not in plot_raster(seen)[1].get_title("left")
    late = seen.watched.assign(begin=np.where(seen.watched.video == "v1", 2., 0.))
    ax = plot_raster(seen._replace(watched=late))[1]
    assert ax.get_title("left").endswith("grey: watched")
    assert "fill-opacity" in (svg := figure_svg(ax.figure)) # no ink of the page, in which dark bouts would be lost
    assert not re.search("currentColor[^\"]*fill-opacity", svg)
    begins = {p.get_extents().x0 for c in ax.collections for p in c.get_paths() if c.get_alpha()}
    assert begins == {0., 2.}


def test_a_raster_says_that_it_shows_a_part():
    seen = observe([recording([(*MICE[:2], ACTIONS[0], 50, 53)], f"v{k}") for k in range(5)])
    figure, ax = plot_raster(seen, 2)
    assert ax.get_title("left").endswith("the first 2 of 15")
    assert figure.get_label() == "Ethogram of 2 animals, 1 bout"
    assert plot_raster(seen)[1].get_title("left") == "What each animal did"


# the whole

@pytest.mark.slow
def test_analyse_from_python_and_from_the_terminal_agree(tmp_path, colony, capsys):
    data = mb.write_colony(tmp_path/"colony", videos=6, minutes=0.5)
    groups = "video,dose\n" + "".join(f"{v},{'low' if int(v) % 2 else 'high'}\n" for v in range(1, 7))
    (tmp_path/"groups.csv").write_text(groups)
    lines = []
    tables = mb.analyse(tmp_path/"colony", tmp_path/"one", groups=tmp_path/"groups.csv",
                        by="dose", say=lines.append)
    assert any("intervals are wide" in line for line in lines)
    words = ["analyse", "annotations", str(tmp_path/"colony"), "--out", str(tmp_path/"two"),
             "--groups", str(tmp_path/"groups.csv"), "--by", "dose", "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [r["p"] for r in told["groups"]] == [
        None if p != p else p for p in tables["groups"].p]
    for path in (tmp_path/"one").iterdir():
        if path.suffix == ".csv": assert path.read_bytes() == (tmp_path/"two"/path.name).read_bytes()
    assert {p.name for p in (tmp_path/"two").glob("*.svg")} == {
        "raster.svg", "transitions.svg", "dyads.svg", "groups.svg"}
    assert data is not None


def test_wrong_words_end_with_a_sentence(tmp_path, capsys):
    mb.write_colony(tmp_path/"colony", videos=2, minutes=0.3)
    data, out = str(tmp_path/"colony"), str(tmp_path/"out")
    bouts, latin = tmp_path/"bouts.csv", tmp_path/"latin.csv"
    bouts.write_text("row_id,video_id,agent_id,target_id,action,start_frame,stop_frame\n")
    latin.write_text(bouts.read_text() + "0,1,m\xe9,mouse2,sniff,1,2\n", encoding="latin-1")
    for words, said in (
            (["analyse", data, str(bouts), "--out", out], "holds predicted bouts, not poses; mabe score takes DATA BOUTS"),
            (["score", data, str(latin)], "latin.csv: is not text in UTF-8; save it as CSV"),
            (["score", data, str(bouts), "--videos", "9"], "no video '9'"),
            (["analyse", "annotations", data, "--out", out, "--by", "dose"], "give a table of groups"),
            (["analyse", "annotations", data, "--out", out, "--unit", "video"], "for a comparison"),
            (["analyse", "none.csv", data, "--out", out], "none.csv: does not exist; expected a run folder, a CSV"),
            (["clips", "annotations", data, "--out", out, "--action", "sleep"], "unknown action"),
            (["analyse", "annotations", data, "--out", data], "already exists")):
        assert main(words) == 2 and said in capsys.readouterr().err
    assert not Path(out).exists()


@pytest.mark.parametrize("table, how, said", [
    ("id,dose\n1,low\n", {}, "g.csv: has no column video, only id, dose"),
    ("video,dose\n1,low\n", {"by": "dsoe"}, "did you mean 'dose'"),
    ("video,dose\n1,low\n", {"value": "shares"}, "did you mean 'share'"),
    ("video,dose\n1,low\n", {"unit": "animals"}, "did you mean 'animal'"),
    ("video,dose\nday1,low\n", {}, "'day1' is not among 1, 2")])
def test_groups_are_checked_before_a_run_predicts(table, how, said, tmp_path):
    "The folder holds no run: who asks it first is told so."
    data = [recording([("a", "b", "sniff", 0, 10)], video) for video in ("1", "2")]
    (tmp_path/"g.csv").write_text(table)
    (tmp_path/"run").mkdir()
    with pytest.raises(mb.MabeError, match=said):
        mb.analyse(data, tmp_path/"out", tmp_path/"run", tmp_path/"g.csv",
                   **{"by": "dose", **how}, say=None)


def test_what_lies_outside_the_scored_frames_counts_for_nothing():
    rows = [("a", "b", "sniff", 40, 120), ("a", "b", "sniff", 250, 260)]
    rec = recording(rows).replace(scored=(100, 200))
    row = measure(observe([rec])).set_index(["animal", "action"]).loc["a", "sniff"]
    assert (row.watched_s, row.seconds, row.bouts, row.latency_s) == (10, 2, 1, 0)
    times = over_time(observe([rec]), 4.0)
    assert times.start_s.unique().tolist() == [10, 14, 18]
    mine = times[(times.animal == "a") & (times.action == "sniff")]
    assert mine.share.tolist() == pytest.approx([0.5, 0, 0])


def test_an_action_that_was_marked_and_is_on_no_list_is_measured(tmp_path):
    rows = [("a", "b", "sniff", 0, 10), ("a", "b", "odd", 20, 50)]
    rec = recording(rows).replace(labelled=frozenset({("a", "b", "sniff")}))
    tables = mb.analyse([rec], tmp_path/"out", to=FORMATS, shuffles=5, say=None)
    assert dict(zip(tables["measures"].action, tables["measures"].seconds)) == {
        "odd": 3, "sniff": 1}
    part = rec.replace(reviewed=(("a", "b", "sniff", 0, 100),)) # of the other nobody knows
    assert {*observe([part]).bouts.action} == {*observe([part]).watched.action} == {"sniff"}


def test_bouts_of_no_video_and_videos_without_bouts_are_told(tmp_path):
    data = [recording([("a", "b", "sniff", 0, 10)], video) for video in ("001", "002")]
    table = submission_table(dict.fromkeys(("001", "1", "x"), data[0].bouts))
    told = []
    mb.analyse(data, tmp_path/"out", table, shuffles=5, say=told.append)
    assert told[:2] == ["note: bouts of 2 videos are of none in the data (video 1, x)",
                        "note: there are no bouts of 1 of 2 videos (video 002): measured as "
                        "videos in which nothing was done"]
    mb.analyse(data, tmp_path/"out", table[:1], videos=["001"], shuffles=5, say=told.append)
    assert len(told) == 6 and told[3] == told[5] # that the tracker has no points of them
    assert ["less than half of the frames" in line for line in told[2::2]] == [True, True]


def test_what_lies_between_scored_stretches_counts_for_nothing():
    "Frames 0 to 100 and 200 to 250 were looked at: half the time of their hull, and a half."
    rows = [("a", "b", "sniff", 40, 60), ("a", "b", "sniff", 90, 210),
            ("a", "b", "sniff", 120, 180)]
    rec = with_scores(recording(rows), recording(rows).bouts, None, ((0, 100), (200, 250)))
    seen = observe([rec])
    assert seen.bouts.start.tolist() == [4, 9, 20] and seen.bouts.stop.tolist() == [6, 10, 21]
    row = measure(seen).set_index(["animal", "action"]).loc["a", "sniff"]
    assert (row.watched_s, row.seconds, row.bouts, row.latency_s) == (15, 4, 3, 4)
    assert row.share == pytest.approx(4 / 15) and row.per_minute == pytest.approx(12)
    times = over_time(seen, 5.0)
    mine = times[(times.animal == "a") & (times.action == "sniff")]
    assert mine[["start_s", "stop_s"]].values.tolist() == [[0, 5], [5, 10], [20, 25]]
    assert mine.share.tolist() == pytest.approx([0.2, 0.4, 0.2])
    guess = submission_table({rec.video_id: rows}) # a prediction holds everywhere
    assert measure(observe([rec], guess)).set_index("animal").loc["a", "watched_s"] == 30


def test_what_chance_never_gave_has_a_p():
    "One pair in a long session, which no shuffle joins again, is the rarest of all."
    rows = [("v", "m1", "m1", "A" if i == 500 else "B" if i == 501 else "xy"[i % 2], float(i), i + .5, 1.)
            for i in range(2000)]
    found = transitions(pd.DataFrame(rows, columns=["video", "agent", "target", "action", "start",
                                                    "stop", "tracked"]), shuffles=300)
    row = found.set_index(["before", "after"]).loc[("A", "B")]
    assert row["count"] == 1 and row.p == pytest.approx(2 / 301, abs=0.01) and row.q < 0.1
    assert row.expected == 0 and row.ratio == np.inf
    _, ax = plot_transitions(found, alpha=0.1)
    at, = found.index[(found.before == "A") & (found.after == "B")]
    assert ax.texts[at].get_text() == "1.00 +"
    assert np.isnan(found.set_index(["before", "after"]).p[("A", "A")])


def test_a_correction_takes_no_bout_that_nobody_looked_for():
    rec = Recording(np.ones((300, 2, 1, 2), np.float32), ("m1", "m2"), ("nose",), 30., video_id="v",
                    bouts=bout_table([("m1", "m2", "sniff", 0, 50), ("m1", "m2", "chase", 100, 150)]),
                    labelled=frozenset({("m1", "m2", "sniff")}))
    now = corrected(rec, [Correction("v", "m1", "m2", "reject", "sniff", 200, 210, ("sniff",))])
    for action in ("sniff", "chase"):
        assert ((frame_labels(now, "m1", "m2", [action]) == 1)
                == (frame_labels(rec, "m1", "m2", [action]) == 1)).all()


def tracked(video, parts, mice=("a", "b")):
    "A video of 100 s in which each animal is tracked in a share of the frames, and rears once."
    xy = np.full((1000, len(mice), 1, 2), np.nan, np.float32)
    for i, part in enumerate(parts): xy[:int(1000 * part), i] = 5 + i
    rows = [(m, m, "rear", 10, 20) for m in mice]
    return Recording(xy, mice, ("nose",), 10.0, 1.0, bout_table(rows),
                     frozenset((m, m, "rear") for m in mice), video)


def notes_of(tmp_path, data, bouts=None, **how):
    lines = []
    mb.analyse(data, tmp_path/f"out{len([*tmp_path.iterdir()])}", bouts, say=lines.append, **how)
    return [line for line in lines if line.startswith("note: ")]


def test_animals_that_are_hardly_tracked_are_told(tmp_path):
    "A ghost of a tracker, an animal put in late: watched for as long as the others."
    data = [tracked("v", (1, 0.012)), tracked("w", (1, 1)), tracked("x", (0.6, 0))]
    seen = observe(data)
    assert seen.tracked["v", "b"] == pytest.approx(0.012) and seen.tracked["x", "b"] == 0
    line, = [n for n in notes_of(tmp_path, data) if "less than half" in n]
    assert "2 animals of 6" in line and "(b of v: 1%, b of x: 0%)" in line and "as a case" in line
    assert not any("less than half" in n for n in notes_of(tmp_path, data[1:2]))


def test_bouts_that_reach_out_of_their_video_are_told(tmp_path):
    data = [tracked("v", (1, 1)), tracked("w", (1, 1))]
    rows = [("v", "a", "self", "rear", start, stop) for start, stop in
            ((10, 20), (990, 1010), (1000, 1020), (-5, 5))] + [("w", "a", "self", "rear", 1, 1000)]
    bouts = pd.DataFrame(rows, columns=["video_id", "agent_id", "target_id", "action",
                                        "start_frame", "stop_frame"])
    assert observe(data, bouts).outside == {"v": 3}
    line, = [n for n in notes_of(tmp_path, data, bouts) if "after the last" in n]
    assert "3 bouts of 1 video (v)" in line
    assert not any("after the last" in n for n in notes_of(tmp_path, data, bouts.iloc[[0, 4]]))


def test_what_was_predicted_in_no_video_of_a_lab_is_told(tmp_path):
    "A table cannot tell whether it was looked for there."
    data = [recording([], v).replace(labelled=None, lab_id=lab) for v, lab in zip("123", "ABB")]
    table = submission(("1", "a", "b", "sniff", 0, 50), ("1", "b", "self", "rear", 60, 90),
                       ("2", "a", "self", "rear", 5, 10))
    said = notes_of(tmp_path, data, table)
    assert sum("predicted in no video of a lab and so not measured there: sniff (B);" in n for n in said) == 1
    assert not any("of a lab" in n for n in notes_of(tmp_path, data[1:], table[2:]))
    said = notes_of(tmp_path, data, table[:2])
    assert any("not measured there: rear (B), sniff (B);" in n for n in said)
    assert not any("nothing was done" in n for n in said)


@pytest.mark.slow
def test_animals_without_a_group_and_unlike_times_are_told(tmp_path):
    data = [tracked(v, (1, 1)) for v in "uvwx"] + [tracked("y", (1, 1)).replace(scored=(0, 500))]
    groups = pd.DataFrame({"video": [*"uvwxy"], "dose": ["0", "0", "1", "1", "1"]})
    how = {"by": "dose", "value": "bouts"}
    said = notes_of(tmp_path, data, groups=groups, **how)
    assert sum("watched for 50 to 100 s, and bouts grows" in n and "per_minute" in n for n in said) == 1
    said = notes_of(tmp_path, data, groups=groups[1:4], **how)
    assert sum("no dose for 4 of 10 animals in videos" in n and "a of u" in n for n in said) == 1
    assert not any("grows with" in n for n in said)
    said = notes_of(tmp_path, data, groups=groups, by="dose")
    assert not any("grows with" in n or "no dose for" in n for n in said)


@pytest.mark.slow
@pytest.mark.parametrize("unit, words", [
    ("animal", "latency_s of animals leaves out their videos without a bout: sniff (1 of 2 of x)"),
    ("video", "latency_s of videos leaves out their animals without a bout: sniff (1 of 2 of x)"),
    ("cage", "latency_s of cages leaves out their animals without a bout: sniff (1 of 1 of x)")])
def test_a_latency_of_some_of_the_videos_is_told(tmp_path, unit, words):
    "Of x a never does it in its second video, where b does; of y everybody does it."
    bouts = [("a", "b", "sniff", 10, 20), ("b", "a", "sniff", 10, 20)]
    data = [recording(bouts[k:], v).replace(mice=("a", "b"), xy=np.zeros((300, 2, 1, 2), np.float32),
                                            labelled=frozenset(b[:3] for b in bouts))
            for v, k in zip("pqrs", (0, 1, 0, 0))]
    groups = pd.DataFrame({"video": [v for v in "pqrs" for _ in "ab"], "animal": [*"abababab"],
                           "subject": [*"abab", *"cded"], "dose": [*"xxxx", *"yyyy"]})
    of = lambda value: [n for n in notes_of(tmp_path, data, groups=groups, by="dose", value=value, unit=unit)
                        if value in n]
    assert of("latency_s") == [f"note: {words}"] and of("mean_s") == []


@pytest.mark.parametrize("write", [export_nwb, export_ethogram])
def test_a_watched_video_without_a_bout_has_a_file_too(tmp_path, write):
    overlap = [("a", "b", "sniff", 30, 40), ("a", "b", "sniff", 35, 50)]
    paths = write(observe([recording(overlap), recording([], "w")]), tmp_path)
    assert [p.stem for p in paths][:2] == ["v", "w"] and all(p.is_file() for p in paths)
    path, = export_elan(observe([recording(overlap)]), tmp_path) # of one tier none overlap
    assert path.read_text().count("ALIGNABLE_ANNOTATION ") == 1


def test_bouts_of_the_same_frames_have_a_clip_each(tmp_path):
    rec = recording([("a", "b", "sniff", 30, 40), ("b", "a", "sniff", 30, 40), ("c", "c", "rear", 50, 60)])
    rec = rec.replace(xy=rec.xy + np.arange(3, dtype=np.float32)[:, None, None] * 50)
    files = write_clips([rec], observe([rec]).bouts, tmp_path, around_s=0.2).file.tolist()
    assert sorted(files) == ["v-30-40-2.mp4", "v-30-40.mp4", "v-50-60.mp4"]
    assert all((tmp_path/f).is_file() for f in files)
    table = submission_table({"v": rec.bouts})
    assert write_clips([rec], table, tmp_path, "rear", around_s=0.2).file.tolist() == ["v-50-60.mp4"]


def test_a_pause_as_long_as_the_longest_is_one():
    "At 30 fps one second is not 1.0 for each pair of frames."
    for start in (0, 5, 7, 25, 29, 33, 37, 199): # 1 s, a bit less and a bit more
        rows = [("a", "b", "sniff", start, start + 7), ("a", "b", "rear", start + 37, start + 40)]
        seen = observe([recording(rows, fps=30.0)])
        assert len(encounters(seen.bouts, 1.0)) == 1 == transitions(seen.bouts, 1.0, 2)["count"].sum()
        assert len(encounters(seen.bouts, 0.99)) == 2


def test_videos_given_as_a_range_are_those_of_the_note(tmp_path):
    data = [tracked(v, (1, 1)) for v in ("v0", "v1", "v2")]
    table = submission_table({"v0": data[0].bouts})
    said = notes_of(tmp_path, data, table, videos="v0-v1")
    assert sum("there are no bouts of 1 of 2 videos (video v1)" in n for n in said) == 1


@pytest.mark.slow
def test_what_an_earlier_analysis_left_is_told(tmp_path):
    data, said = [make_recording(seed=i, frames=300, video_id=f"v{i}") for i in range(4)], []
    groups = pd.DataFrame({"video": [r.video_id for r in data], "dose": ["low", "high"] * 2})
    mb.analyse(data, tmp_path, groups=groups, by="dose", shuffles=5, say=said.append)
    assert not any("did not write" in line for line in said)
    mb.analyse(data, tmp_path, shuffles=5, say=said.append)
    assert "holds groups.csv, groups.png, groups.svg too, which this analysis did not write" in said[-1]


def test_exports_of_before_and_videos_without_a_file_are_told(tmp_path):
    data, said = [recording([("a", "b", "sniff", 30, 40)]), recording([], "w")], []
    mb.analyse(data, tmp_path, to=["csv", "elan", "boris"], shuffles=5, say=said.append)
    assert [line for line in said if "without a bout" in line or "did not write" in line] == [
        "note: elan and boris: of 1 video without a bout there is no file (w); that does not mean that nobody watched"]
    mb.analyse(data, tmp_path, to=["elan"], videos=["w"], bouts=submission_table({"w": data[0].bouts}),
               shuffles=5, say=said.append)
    assert said[-1] == (f"note: {tmp_path} holds boris/bouts.boris, boris/v.csv, bouts.csv, elan/v.eaf too, "
                        "which this analysis did not write")
    times = [int(t) for t in re.findall('TIME_VALUE="(.+?)"', (tmp_path/"elan"/"w.eaf").read_text())]
    assert times == [3000, 4000]


def test_times_of_an_elan_file_stand_in_their_order(tmp_path):
    path, = export_elan(observe([recording([("a", "b", "sniff", 30, 40), ("b", "a", "rear", 5, 35)])]), tmp_path)
    assert re.findall('TIME_VALUE="(.+?)"', path.read_text()) == ["500", "3000", "3500", "4000"]


@pytest.mark.slow
def test_clips_of_before_are_told(tmp_path, capsys):
    mb.write_colony(tmp_path/"colony", videos=1, minutes=0.5)
    for action, more in (("attack", []), ("sniff", ["--overwrite"])):
        assert main(["clips", "annotations", str(tmp_path/"colony"), "--out", str(tmp_path/"c"), "--action", action,
                     "--most", "1", *more]) == 0
    first = capsys.readouterr().out.split("note: ")
    assert len(first) == 2 and "holds 1 more, of before, such as " in first[1]


def between(rows, video="v"):
    "Scored from frame 0 to 100 and from 200 to 250."
    rec = recording(rows, video)
    return with_scores(rec, rec.bouts, None, ((0, 100), (200, 250)))


def test_nothing_follows_across_a_time_in_which_nobody_watched(tmp_path):
    rows = [("a", "b", "sniff", 40, 60), ("a", "b", "rear", 205, 210), ("a", "b", "sniff", 230, 240)]
    table = mb.analyse([between(rows)], tmp_path, shuffles=5, say=None)["transitions"]
    assert table[table["count"] > 0][["before", "after"]].values.tolist() == [["rear", "sniff"]]
    seen = observe([recording(rows), between(rows, "w"), between(rows[:2] + [("b", "b", "rear", 60, 70)], "x")])
    assert transitions(seen.bouts, shuffles=5)["count"].sum() == 2 + 2 + 1
    assert transitions(seen.bouts, shuffles=5, watched=seen.watched)["count"].sum() == 2 + 1 + 0


def test_a_latency_that_holds_a_pause_of_the_scorers_is_told(tmp_path):
    of = lambda rows: [n for n in notes_of(tmp_path, [between(rows)]) if "nobody watched" in n]
    assert of([("a", "b", "sniff", 40, 60), ("a", "b", "sniff", 205, 210)]) == []
    assert of([("a", "b", "rear", 205, 210)]) == ["note: latency_s holds time in which nobody watched, and could "
                                                  "have missed a bout, in 1 video (v)"]


@pytest.mark.slow
def test_actions_without_a_length_are_told(tmp_path):
    rows = [("a", "a", "rear", 5, 6), ("a", "b", "sniff", 8, 20)]
    of = lambda rows: [n for n in notes_of(tmp_path, [recording(rows)]) if "POINT" in n]
    assert len(of(rows)) == 1 and "no bout of rear is longer" in of(rows)[0] and of(rows[1:]) == []


def test_tracks_that_are_never_seen_at_once_are_told(tmp_path):
    "An animal that is lost and comes back under another name is two, in every figure."
    one = tracked("v", (1, 1), ("a", "b"))
    xy = one.xy.copy()
    xy[:500, 0] = xy[500:, 1] = np.nan
    said = [n for n in notes_of(tmp_path, [one, one.replace(xy=xy, video_id="w")]) if "no frame" in n]
    assert len(said) == 1 and said[0].startswith("note: no frame shows both a and b of w: ")


@pytest.mark.slow
def test_animals_of_one_name_in_many_videos_are_asked_about(tmp_path):
    data = [tracked(f"v{k}", (1, 1)) for k in range(4)]
    groups = pd.DataFrame({"video": [r.video_id for r in data], "dose": ["low", "high"] * 2})
    of = lambda groups: [n for n in notes_of(tmp_path, data, groups=groups, by="dose") if "nobody says" in n]
    assert len(of(groups)) == 1 and "whether a of 4 videos is one animal, and it counts as 4 cases" in of(groups)[0]
    whole = [n for n in notes_of(tmp_path, data, groups=groups.assign(subject=["w", "x", "y", "z"]), by="dose")
             if "subject" in n]
    assert whole == ["note: 'w' is the subject of all 2 animals of v0, which count as one case (so in 4 videos in "
                     "all): a column animal tells whose it is"]
    each = pd.DataFrame([(r.video_id, m, f"{r.video_id[1]}{m}", d) for r, d in zip(data, groups.dose) for m in "ab"],
                        columns=["video", "animal", "subject", "dose"])
    assert not any("subject" in n for n in notes_of(tmp_path, data, groups=each, by="dose"))


def test_a_picture_of_who_to_whom_says_that_names_of_videos_are_put_together():
    one, two = (dyads(observe([recording([("a", "b", "sniff", 5, 9)], v) for v in videos]).bouts) for videos in ("v", "vw"))
    assert [plot_dyads(t)[1].get_xlabel() for t in (one, two)] == ["to", "to\nof 2 videos, by name"]


def test_pictures_of_hundreds_of_names_show_the_most_frequent_and_say_so():
    rows = [("v", f"r{i:03}a", f"r{i:03}b", "sniff", 1 + (i > 180), 2.0) for i in range(200)]
    table = pd.DataFrame(rows, columns=["video", "agent", "target", "action", "bouts", "seconds"])
    figure, ax = plot_dyads(table, most=38)
    assert max(figure.get_size_inches()) < 40 and "the 38 most frequent of 400" in ax.get_title(loc="left")
    assert {t.get_text() for t in ax.get_yticklabels()} == {f"r{i}{x}" for i in range(181, 200) for x in "ab"}
    plot_dyads(table.assign(target="all", bouts=range(200)), most=1) # the one acts on nobody that is shown
    names = [f"a{i:02}" for i in range(50)]
    every = pd.DataFrame({"before": np.repeat(names, 50), "after": np.tile(names, 50), "count": 1,
                          "share": 0.02, "ratio": 1.0, "q": 1.0})
    every.loc[every.before == "a07", "count"] = 9
    figure, ax = plot_transitions(every, most=2)
    assert "a07" in {t.get_text() for t in ax.get_yticklabels()} and "2 most frequent of 50" in figure.get_label()


def test_ten_groups_have_ten_colours():
    cases = pd.DataFrame([(f"{g} mg", "u", "rear", 0.1) for g in range(10)], columns=["group", "unit", "action", "value"])
    _, ax = plot_budgets(cases)
    assert len({bar.get_facecolor() for bar in ax.patches}) == 10


@pytest.mark.slow
def test_names_that_begin_alike_are_told_apart_in_pictures_of_a_size_that_can_be_looked_at():
    groups = [f"line {k}, whose mothers were treated with {what}" for k in (1, 2) for what in ("saline", "drug")]
    rows = [(g, u, f"a long action number {a}", .1 * u) for g in groups for u in range(3) for a in range(200)]
    figure, ax = plot_budgets(pd.DataFrame(rows, columns=["group", "unit", "action", "value"]))
    assert len({t.get_text() for t in ax.get_legend().get_texts()}) == 4
    assert len({t.get_text() for t in ax.get_xticklabels()}) == 200
    assert figure.get_size_inches()[0] <= 20


def test_results_do_not_lie_among_the_data_whose_annotations_they_would_be(tmp_path, capsys):
    write_dlc(tmp_path, "v1", tracks(1, 300))
    (tmp_path/"dataset.yaml").write_text("fps: 30\nactions: [rear]\nalone: [rear]\n")
    (tmp_path.parent/"sub.csv").write_text("video_id,agent_id,target_id,action,start_frame,stop_frame\n"
                                           "v1,black,self,rear,10,20\n")
    words = ["analyse", str(tmp_path.parent/"sub.csv"), str(tmp_path), "--overwrite", "--out"]
    assert main([*words, str(tmp_path)]) == 2
    assert "would be read as annotations: choose another" in capsys.readouterr().err
    assert main([*words, str(tmp_path/"results")]) == 0 and mb.open_dataset(tmp_path).labelled("v1") is None


def test_a_format_that_cannot_be_written_is_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(exports, "find_spec", lambda name: None if name == "ndx_ethogram" else True)
    with pytest.raises(ConfigError, match="the format ethogram needs ndx-ethogram: pip install ndx-ethogram"):
        mb.analyse([recording([])], tmp_path/"out", to=["csv", "nwb", "ethogram"], say=None)
    with pytest.raises(ConfigError, match="unknown format 'xls'"): mb.analyse([recording([])], tmp_path/"out", to=["xls"])
    assert not (tmp_path/"out").exists()


def test_one_format_is_named_alone(tmp_path):
    "Its letters were taken for formats: unknown format 'b'."
    data = [recording([("a", "b", "sniff", 0, 10)], "1")]
    for name, to in ("one", "boris"), ("list", ["boris"]): mb.analyse(data, tmp_path/name, to=to, say=None)
    made = [sorted(p.relative_to(tmp_path/n).as_posix() for p in (tmp_path/n).rglob("*")) for n in ("one", "list")]
    assert made[0] == made[1] and any("boris" in name for name in made[0])

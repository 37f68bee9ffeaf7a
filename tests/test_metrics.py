"""The official score: 40 recorded cases, every edge by name, and a row-by-row oracle."""
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mabe_nb as mb
from mabe_nb.cli import main
from mabe_nb.commands.score import ignored_rows
from mabe_nb.data.corrections import Correction, CorrectedDataset
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.formats.kaggle.write import write_kaggle
from mabe_nb.data.recording import Recording, bout_table
from mabe_nb.errors import MabeError, ScoreError
from mabe_nb.kaggle.doctor import diagnose
from mabe_nb.analysis.agreement import bout_scores, match_bouts
from mabe_nb.data.recording import union_lengths
from mabe_nb.train.scores.official_counts import FRAMES, IDS, judged_bouts
from mabe_nb.train.scores.frames import confusion, masked_average_precision, masked_f1
from mabe_nb.train.metrics import (chance_score, kaggle_report, kaggle_score,
                                   solution_table, submission_table)
from reference_score import reference_report, reference_score

SHARED = Path(__file__).parents[2]/"shared"
CASES = SHARED/"facts"/"kaggle_metric_cases.jsonl"
BOUTS = SHARED/"data"/"calms21_bouts"
LISTED = '["mouse1,mouse2,attack", "mouse1,mouse2,mount", "mouse2,self,rear"]'
ATTACK = (1, "mouse1", "mouse2", "attack", 0, 10)


def answer(*rows, lab="L", listed=LISTED):
    "A solution; a row may bring its own lab and whitelist."
    rows = [(*r, lab, listed)[:6] + (tuple(r[6:]) or (lab, listed)) for r in rows]
    return pd.DataFrame(rows, columns=[*IDS, *FRAMES, "lab_id", "behaviors_labeled"])


def said(*rows):
    "A submission."
    return pd.DataFrame(list(rows), columns=[*IDS, *FRAMES])


def refused(match, solution, submission):
    "It is refused in one sentence that says `match`."
    with pytest.raises(ScoreError, match=match) as e: kaggle_score(solution, submission)
    assert isinstance(e.value, MabeError) and "\n" not in str(e.value)


def attack(start, stop, action="attack", video=1):
    "A row of the usual pair."
    return (video, "mouse1", "mouse2", action, start, stop)


# --- recorded and embedded cases

def recorded():
    "The cases that the official code was run on."
    return CASES.read_text().splitlines() if CASES.exists() else []


@pytest.mark.skipif(not CASES.exists(), reason="shared/facts is not beside the checkout")
def test_there_are_forty_recorded_cases():
    assert len(recorded()) == 40


@pytest.mark.parametrize("line", recorded(), ids=lambda x: x[:12])
def test_recorded_case(line):
    case = json.loads(line)
    solution, submission = answer(*case["solution"]), said(*case["submission"])
    if "error" in case["expected"]:
        refused("Multiple predictions for the same frame from one agent/target pair",
                solution, submission)
    else:
        assert kaggle_score(solution, submission) == pytest.approx(
            case["expected"]["score"], abs=1e-12)


TWO = answer(attack(0, 10), (1, "mouse2", "self", "rear", 20, 50))
EMBEDDED = {
    "perfect": (answer(ATTACK), said(ATTACK), 1.0),
    "wrong_action": (answer(ATTACK), said(attack(0, 10, "mount")), 0.0),
    "one_of_two_actions": (TWO, said(ATTACK), 0.5),
    "two_labs_one_silent": (
        answer(ATTACK, attack(5, 9, "mount"), (*attack(0, 10, video=2), "M", LISTED)),
        said(ATTACK), 0.25),
    "touching_labels_one_prediction": (answer(ATTACK, attack(10, 20)),
                                       said(attack(0, 20)), 1.0),
    "gap_filled": (answer(ATTACK, attack(30, 40)), said(attack(0, 40)), 2 / 3),
    "overlapping_labels_count_once": (answer(ATTACK, attack(5, 20)),
                                      said(attack(0, 20)), 1.0),
    "phantom_class": (answer(ATTACK), said(ATTACK, attack(60, 61, "mount")), 0.5),
    "phantom_class_of_no_frames": (answer(ATTACK), said(ATTACK, attack(5, 5, "mount")), 0.5),
    "overlap_with_unlisted_action": (answer(ATTACK), said(ATTACK, attack(0, 9, "sniff")), 1.0),
    "overlap_of_same_action": (answer(ATTACK), said(ATTACK, attack(3, 8)), 1.0),
    "overlap_with_other_target": (
        answer((*ATTACK, "L", '["mouse1,mouse2,attack","mouse1,mouse3,attack"]')),
        said(ATTACK, (1, "mouse1", "mouse3", "sniff", 0, 10)), 1.0),
    "touching_actions": (TWO, said(ATTACK, (1, "mouse2", "self", "rear", 20, 50)), 1.0),
    "unknown_video_is_free": (answer(ATTACK), said(ATTACK, attack(0, 99, video=2)), 1.0),
    "only_unknown_videos": (answer(ATTACK), said(attack(0, 10, video=9)), 0.0),
    "quoted_whitelist": (answer(ATTACK, listed='["\'mouse1\',\'mouse2\',\'attack\'"]'),
                         said(ATTACK), 0.0),
    "first_whitelist_decides": (
        answer((*ATTACK, "L", LISTED), (*attack(20, 30), "L", "[]")),
        said(attack(0, 10), attack(20, 30)), 1.0),
    "integer_ids": (answer(ATTACK), said((1, 1, 2, "attack", 0, 10)), 0.0),
    "integer_ids_in_both": (answer((1, 1, 2, "attack", 0, 10), listed='["1,2,attack"]'),
                            said((1, 1, 2, "attack", 0, 10)), 1.0),
    "negative_start": (answer(ATTACK), said(attack(-5, 10)), 0.8),
    "label_of_no_frames": (answer(attack(3, 3)), said(ATTACK), 0.0),
    "pooled_after_last_underscore": (
        answer((1, "mouse1", "mouse2", "sniff_face", 0, 10),
               listed='["mouse1,mouse2,sniff_face", "mouse1,mouse2,groom_face"]'),
        said((1, "mouse1", "mouse2", "sniff_face", 0, 10),
             (1, "mouse1", "mouse2", "groom_face", 10, 20)), 2 / 3),
    "video_in_two_labs": (
        answer((*ATTACK, "L", LISTED), (*attack(0, 10, "mount"), "M", LISTED)),
        said(ATTACK), 0.5),
    "whitelist_with_other_things": (
        answer(ATTACK, listed='["mouse1,mouse2,attack", 3, null]'), said(ATTACK), 1.0),
    "far_away_frames": (answer(attack(10**15, 10**15 + 10)),
                        said(attack(10**15, 10**15 + 10), attack(0, 1)), 20 / 21),
    "enormous_bout": (answer(ATTACK), said(attack(0, 2**50)), 20 / (10 + 2**50)),
}


@pytest.mark.parametrize("name", EMBEDDED)
def test_edge(name):
    solution, submission, expected = EMBEDDED[name]
    assert kaggle_score(solution, submission) == pytest.approx(expected, abs=1e-12)


CLASH = "Multiple predictions for the same frame from one agent/target pair"
CLASHES = {
    "two_actions": said(ATTACK, attack(9, 12, "mount")),
    "inside": said(ATTACK, attack(3, 4, "mount")),
    "equal": said(ATTACK, attack(0, 10, "mount")),
    "later_row_starts_earlier": said(attack(5, 9), attack(0, 6, "mount")),
    "hidden_by_own_action": said(attack(0, 100), attack(5, 6), attack(50, 51, "mount")),
}


@pytest.mark.parametrize("name", CLASHES)
def test_overlap_is_refused(name): refused(CLASH, TWO, CLASHES[name])


def test_overlap_names_both_rows():
    refused(r"row 1 \(attack 5-9\) and row 3 \(mount 0-6\) of video 1, mouse1, mouse2", TWO,
            said(attack(0, 9, video=4), attack(5, 9), attack(7, 8), attack(0, 6, "mount")))


def test_overlap_does_not_name_a_row_of_no_frames():
    refused(r"row 0 \(attack 0-10\) and row 2 \(mount 8-12\)", TWO,
            said(ATTACK, attack(5, 5, "mount"), attack(8, 12, "mount")))


def test_the_rows_that_clash_are_named_not_those_that_touch():
    "An overlap is said of rows 2 and 3; 0 and 1 share a border and no frame."
    touching = attack(0, 10), attack(10, 20, "mount")
    refused(r"row 2 \(attack 30-40\) and row 3 \(mount 39-50\)", TWO,
            said(*touching, attack(30, 40), attack(39, 50, "mount")))


def test_no_frames_no_overlap():
    assert kaggle_score(TWO, said(ATTACK, attack(5, 5, "mount"))) == pytest.approx(1 / 3)


# --- refusals

def test_start_after_stop_even_in_an_unknown_video():
    refused("submission row 1: start_frame is after", answer(ATTACK),
            said(ATTACK, attack(9, 3, video=99)))
    refused("solution row 0: start_frame is after", answer(attack(5, 3)), said(ATTACK))


def test_float_frames():
    refused("float64", answer(ATTACK), said(ATTACK).astype({"start_frame": float}))
    refused("float64", answer(ATTACK).astype({"stop_frame": float}), said(ATTACK))


def test_one_missing_frame_spoils_the_column():
    refused("row 1: stop_frame is missing", answer(ATTACK),
            said(ATTACK, attack(20, None)))
    elsewhere = said(ATTACK, attack(20, None, video=9))
    refused("float64", answer(ATTACK), elsewhere)


def test_missing_frames_that_do_not_count_are_free():
    nullable = said(ATTACK, attack(20, None, video=9)).astype(dict.fromkeys(FRAMES, "Int64"))
    assert kaggle_score(answer(ATTACK), nullable) == 1
    floats = said(attack(0, 10, video=9)).astype({"start_frame": float})
    assert kaggle_score(answer(ATTACK), floats) == 0


def test_nullable_frame_that_counts():
    refused("row 1: stop_frame is missing", answer(ATTACK),
            said(ATTACK, attack(20, None)).astype(dict.fromkeys(FRAMES, "Int64")))


def test_infinite_frames():
    refused("float64", answer(ATTACK), said(attack(0, np.inf)))


def test_text_frames_and_unlike_frames():
    refused("str|object", answer(ATTACK), said(attack("0", "10")))
    refused("do not compare", answer(ATTACK),
            said(attack(0, "10")).astype(dict.fromkeys(FRAMES, object)))


def test_frames_beyond_counting():
    refused("beyond", answer(ATTACK), said(attack(0, 2**62)))
    refused("beyond", answer(ATTACK), said(attack(0, 2**64 - 1)))


@pytest.mark.parametrize("which", ["solution", "submission"])
def test_text_and_integer_video_ids(which):
    tables = {"solution": answer(ATTACK), "submission": said(ATTACK)}
    tables[which] = tables[which].astype({"video_id": str})
    refused("video_id is", **tables)


def test_float_video_ids():
    refused("floating", answer(ATTACK), said(ATTACK).astype({"video_id": float}))


def test_mixed_ids():
    refused("agent_id mixes types", answer(ATTACK), said(ATTACK, (1, 3, "a", "b", 0, 1)))


def test_missing_action():
    refused("row 1: action", answer(ATTACK), said(ATTACK, attack(0, 5, None)))
    assert kaggle_score(answer(ATTACK), said(ATTACK, attack(0, 5, None, video=7))) == 1
    refused("solution row 0: action is missing", answer(attack(0, 5, None)), said(ATTACK))


def test_action_that_is_no_text():
    refused("row 0: action is not a text", answer(ATTACK), said(ATTACK).assign(action=3))


def test_missing_agent_is_not_listed():
    assert kaggle_score(answer(ATTACK), said(ATTACK, (1, None, "mouse2", "attack", 0, 5))) == 1


@pytest.mark.parametrize("listed", ["[oops", "3", '[["a"]]', None, "[" * 10**5])
def test_broken_whitelist(listed):
    refused("solution row 0: behaviors_labeled", answer((*ATTACK, "L", listed)), said(ATTACK))


def test_missing_lab():
    refused("lab_id is missing", answer((*ATTACK, None, LISTED)), said(ATTACK))


@pytest.mark.parametrize("column", [*IDS, *FRAMES])
def test_missing_column(column):
    refused(column, answer(ATTACK), said(ATTACK).drop(columns=column))
    refused(column, answer(ATTACK).drop(columns=column), said(ATTACK))


def test_missing_solution_columns_doubles_and_no_rows():
    refused("lab_id", answer(ATTACK).drop(columns="lab_id"), said(ATTACK))
    refused("one column each", answer(ATTACK),
            pd.concat([said(ATTACK), said(ATTACK)[["action"]]], axis=1))
    refused("no rows", answer(ATTACK), said())
    refused("no rows", answer()[:0], said(ATTACK))
    refused("no rows", answer(ATTACK), None)


def test_many_rows_are_counted_not_listed():
    refused(r"rows 0, 1, 2, 3, 4 and 95 more", answer(ATTACK), said(*[attack(5, 2)] * 100))


# --- dtypes that mean the same

@pytest.mark.parametrize("changes", [
    {"video_id": "int32"}, {"start_frame": "int16"}, {"start_frame": "uint64"},
    {"start_frame": object}, {"agent_id": "category", "action": "category"},
    {"video_id": "Int64"}, {"agent_id": object}, {"start_frame": "int64[pyarrow]"}])
def test_dtype_does_not_matter(changes):
    submission = said(ATTACK, (1, "mouse2", "self", "rear", 20, 30))
    assert kaggle_score(TWO, submission.astype(changes)) == 0.75
    assert kaggle_score(TWO, submission.iloc[::-1].set_index("action", drop=False)) == 0.75


def test_row_id_and_index_do_not_matter():
    submission = said(ATTACK).assign(row_id=7, note=None)
    assert kaggle_score(TWO, submission.set_index(pd.Index([99]))) == 0.5


def test_beta():
    submission = said(attack(0, 5))
    assert kaggle_score(answer(ATTACK), submission, 2) == pytest.approx(25 / 45)
    with pytest.raises(ScoreError, match="beta"): kaggle_score(TWO, submission, 0)
    with pytest.raises(ScoreError, match="beta"): kaggle_score(TWO, submission, float("nan"))


# --- against the oracle

AGENTS, ACTIONS = ["mouse1", "mouse2"], ["attack", "mount", "rear"]
TRIPLES = [(a, t, x) for a in AGENTS for t in ("mouse1", "self") for x in ACTIONS]
bout = st.tuples(st.integers(1, 3), st.sampled_from(TRIPLES), st.integers(-3, 30),
                 st.integers(0, 9)).map(lambda b: (b[0], *b[1], b[2], b[2] + b[3]))
whitelist = st.lists(st.sampled_from([",".join(t) for t in TRIPLES]), max_size=9)


@st.composite
def small_case(draw):
    "A solution of up to three videos in up to two labs, and any submission."
    listed = [json.dumps(draw(whitelist)) for _ in range(3)]
    lab = draw(st.lists(st.sampled_from("LM"), min_size=3, max_size=3))
    rows = [(*b, lab[b[0] - 1], listed[b[0] - 1])
            for b in draw(st.lists(bout, min_size=1, max_size=6))]
    own = st.sampled_from([r[:6] for r in rows])
    return answer(*rows), said(*draw(st.lists(bout | own, min_size=1, max_size=8)))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(small_case(), st.sampled_from([1.0, 0.5, 2.0]))
def test_same_as_row_by_row(case, beta):
    try: expected = reference_score(*case, beta)
    except ValueError as e:
        assert "Multiple predictions" in str(e)
        with pytest.raises(ScoreError, match=CLASH): kaggle_score(*case, beta)
    else: assert kaggle_score(*case, beta) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(small_case())
def test_report_is_the_score_taken_apart(case):
    try: expected = reference_report(*case)
    except ValueError: return
    report = kaggle_report(*case)
    json.dumps(report, allow_nan=False)
    assert report["score"] == pytest.approx(kaggle_score(*case), abs=1e-12)
    assert {k: pytest.approx(v["actions"]) for k, v in report["labs"].items()} == expected[1]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(small_case(), st.randoms())
def test_row_order_does_not_matter(case, random):
    solution, submission = case
    order = random.sample(range(len(submission)), len(submission))
    def outcome(table):
        try: return kaggle_score(solution, table)
        except ScoreError: return "refused"
    assert outcome(submission) == outcome(submission.iloc[order])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 40), st.integers(0, 9))),
       st.sampled_from([1, 10**15]))
def test_union_lengths_are_set_sizes(rows, unit):
    group, start, length = np.array(rows, np.int64).reshape(-1, 3).T
    frames = [set() for _ in range(3)]
    for g, s, n in rows: frames[g].update(range(s, s + n))
    got = union_lengths(group, start * unit, (start + length) * unit, 3)
    assert got.tolist() == [len(f) * unit for f in frames]


def test_union_lengths_of_groups_too_far_apart_for_one_line():
    far = 2**60
    got = union_lengths(np.array([0, 8, 8]), np.array([-far, -far, 1 - far]),
                        np.array([far, 3 - far, 4 - far]), 9)
    assert got[[0, 1, 8]].tolist() == [2 * far, 0, 4]


# --- chance and tables

def test_chance_keeps_rates_and_loses_timing():
    solution = answer(*[attack(i * 100, i * 100 + 20) for i in range(50)])
    chance = chance_score(solution, solution[[*IDS, *FRAMES]], rounds=40)
    assert 0.05 < chance["mean"] < 0.45 and chance["sd"] > 0.05
    always = chance_score(answer(ATTACK), said(attack(0, 10)))
    assert always["scores"] == [1.0] * 20


def test_chance_is_the_same_in_any_order_of_rows_and_kind_of_ids():
    bouts = [attack(i * 100 % 700, i * 100 % 700 + 40) for i in range(12)]
    solution = answer(*bouts).assign(video_id=[2, 10, 1] * 4)
    submission = solution[[*IDS, *FRAMES]].assign(
        start_frame=lambda t: t.start_frame + 9, stop_frame=lambda t: t.stop_frame + 9)
    want = chance_score(solution, submission)["scores"]
    for seed in range(4):
        mixed = [t.sample(frac=1, random_state=seed) for t in (solution, submission)]
        assert chance_score(*mixed)["scores"] == want
        text = [t.astype({"video_id": str}) for t in mixed]
        assert chance_score(*text)["scores"] == want


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(small_case(), st.integers(0, 99))
def test_shifting_never_makes_an_overlap(case, seed):
    solution, submission = case
    try: kaggle_score(*case)
    except ScoreError:
        with pytest.raises(ScoreError): chance_score(*case)
        return
    for length in (None, {1: 40, 2: 12, "3": 99}):
        assert len(chance_score(solution, submission, 2, seed, length)["scores"]) == 2


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(small_case())
def test_rows_that_do_not_count_are_those_that_the_diagnosis_ignores(case):
    solution, submission = case
    try: bouts = judged_bouts(*case)
    except ScoreError: return
    found = diagnose(submission, solution)
    found = found[found.effect == "ignored"].drop_duplicates(["row", "kind"])
    assert ignored_rows(*case, bouts) == dict(found.kind.value_counts())


def test_many_bouts_need_fewer_shifts():
    case = [pd.concat([table] * 50, ignore_index=True) for table in (
        answer(*[attack(i, i + 1) for i in range(600)]),
        said(*[attack(i, i + 1) for i in range(600)]))]
    assert len(chance_score(*case)["scores"]) == 10
    assert chance_score(*case, bouts=judged_bouts(*case)) == chance_score(*case)


def recording(video="7", **changes):
    "Two mice, an attack and a rearing."
    bouts = bout_table([("mouse1", "mouse2", "attack", 0, 10),
                        ("mouse2", "mouse2", "rear", 20, 50)])
    labelled = frozenset(zip(bouts.agent, bouts.target, bouts.action))
    return Recording(np.zeros((60, 2, 1, 2), np.float32), ("mouse1", "mouse2"), ("nose",),
                     30, bouts=bouts, labelled=labelled, video_id=video,
                     lab_id="L").replace(**changes)


def joined(bouts, stretches):
    "Bouts of a video of which nothing but the stretches is kept."
    before, kept = 0, []
    for first, end in stretches:
        kept += [(*who, max(a, first) - first + before, min(b, end) - first + before)
                 for *who, a, b in bouts if a < end and b > first]
        before += end - first
    return bout_table(kept), before


@pytest.mark.parametrize("seed", range(8))
def test_chance_in_what_was_scored_is_that_of_a_video_of_nothing_else(seed):
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.choice(1000, 6, replace=False)).reshape(3, 2)
    some = lambda: [("mouse1", "mouse2", "attack", a, a + rng.integers(1, 30))
                    for a in rng.integers(0, 960, 40).tolist()]
    (seen, guess), looked = (some(), some()), {("mouse1", "mouse2", "attack")}
    (own, n), (said, _) = joined(seen, edges), joined(guess, edges)
    if not len(own): return
    part = recording(xy=np.zeros((1000, 2, 1, 2), np.float32), bouts=bout_table(seen),
                     labelled=frozenset(looked), reviewed=tuple( # and once more what lies inside
                         (*who, a + k * (b - a) // 3, b - k * (b - a) // 3)
                         for who in looked for a, b in edges.tolist() for k in (0, 1)))
    alone = recording(bouts=own, labelled=frozenset(looked))
    want = chance_score(solution_table(RecordingList([alone])), submission_table({"7": said}),
                        frames={"7": n})
    assert mb.score([part], submission_table({"7": guess}))["chance"] == want["mean"]


def test_a_dataset_scores_one_against_itself():
    data = RecordingList([recording("7"), recording("8", lab_id="M")])
    submission = submission_table({v: data[v].bouts for v in data.ids})
    assert list(submission.row_id) == [0, 1, 2, 3] and "self" in set(submission.target_id)
    assert kaggle_score(solution_table(data), submission) == 1
    assert kaggle_score(solution_table(data, ["8"]), submission) == 1


def test_video_ids_survive_a_csv(tmp_path):
    for ids in (["7", "8"], ["7", "x8"], ["007", "8a"]):
        data = RecordingList([recording(v) for v in ids])
        path = tmp_path/"s.csv"
        submission_table({v: data[v].bouts for v in ids}).to_csv(path, index=False)
        assert kaggle_score(solution_table(data), pd.read_csv(path)) == 1


@pytest.mark.parametrize("ids", [["001", "002"], ["7", "007", "8"], ["1", "2", "x"]])
def test_videos_are_scored_and_measured_under_their_own_names(ids, tmp_path):
    data, path = RecordingList([recording(v) for v in ids]), tmp_path/"s.csv"
    some = submission_table({v: data[v].bouts for v in ids[:2]})
    some.to_csv(path, index=False)
    for bouts in (some, path): assert mb.score(data, bouts, ids[:2])["score"] == 1
    mb.analyse(data, tmp_path/"out", path, videos=ids[:2], shuffles=10, say=lambda line: None)
    table = pd.read_csv(tmp_path/"out"/"bouts.csv", dtype=str)
    assert set(table.video) == set(ids[:2])


def test_predictions_of_other_videos_are_no_bad_predictions(tmp_path, capsys):
    data = RecordingList([recording("1"), recording("2"), recording("3", bouts=bout_table())])
    said, path = [], tmp_path/"s.csv"
    of = lambda *ids: submission_table({v: recording().bouts for v in ids})
    for other in (["7", "8"], ["3"], ["x"]):
        with pytest.raises(ScoreError, match=f"predicted are {other[0]}.*annotated 1, 2"):
            mb.score(data, of(*other))
    assert mb.score(data, of("1", "3", "7"), say=said.append)["score"] > 0
    assert "want of annotated bouts: video 3, 7 (2 of 3 with predicted bouts); what is" in said.pop()
    mb.score(data, of("1", "2"), ["1"], say=said.append) # one that was chosen away
    assert not said
    write_kaggle(data, tmp_path/"k")
    for ids, code, what in ((["7"], 2, "no video of the predictions"),
                            (["2", "7"], 0, "annotated bouts: video 7 (1 of 2")):
        of(*ids).to_csv(path, index=False)
        assert main(["score", str(tmp_path/"k"), str(path)]) == code
        assert what in "".join(capsys.readouterr())


def test_actions_that_end_alike_are_scored_apart(tmp_path, capsys):
    bouts = bout_table([("mouse1", "mouse1", "wing_extension", 0, 10),
                        ("mouse2", "mouse2", "leg_extension", 20, 50)])
    rec = recording(bouts=bouts, labelled=frozenset(zip(bouts.agent, bouts.target, bouts.action)))
    data, half = RecordingList([rec]), submission_table({"7": bouts[:1]})
    want = {"leg_extension": 0, "wing_extension": 1}
    assert mb.score(data, half)["labs"]["L"]["actions"] == want
    assert [*kaggle_report(solution_table(data), half)["labs"]["L"]["actions"]] == ["extension"]
    mb.write_kaggle([rec], tmp_path/"lab")
    half.to_csv(tmp_path/"half.csv", index=False)
    assert main(["score", str(tmp_path/"lab"), str(tmp_path/"half.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labs"]["L"]["actions"] == want


# --- frames and bouts

def columns(codes, n):
    "(frames, n) int8: 1 seen, 0 not, -1 where the code is below 0."
    return np.where(codes[:, None] < 0, -1, codes[:, None] == np.arange(n)).astype(np.int8)


def test_frame_f1_against_sklearn():
    from sklearn.metrics import confusion_matrix, f1_score
    true, guess = np.random.default_rng(0).integers(-1, 4, (2, 3000))
    known = true >= 0
    theirs = f1_score(true[known], guess[known], labels=range(4), average=None)
    np.testing.assert_allclose(masked_f1(columns(true, 4), guess), theirs)
    full = confusion_matrix(true[known], guess[known], labels=[-1, 0, 1, 2, 3])
    assert (confusion(columns(true, 4), guess, list("abcd")).to_numpy() == full).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 60), st.integers(1, 9), st.sampled_from([np.float32, np.float64]),
       st.integers(0, 2**32 - 1))
def test_average_precision_against_sklearn(frames, levels, dtype, seed):
    from sklearn.metrics import average_precision_score
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, 2, (frames, 3)).astype(np.int8)
    p = (rng.integers(0, levels + 1, labels.shape) / levels).astype(dtype) # with ties
    for y, q, ours in zip(labels.T, p.T, masked_average_precision(labels, p)):
        y, q = y[y >= 0], q[y >= 0]
        if 0 < y.sum() < len(y):
            np.testing.assert_allclose(ours, average_precision_score(y, q), rtol=1e-12)
        else: assert np.isnan(ours)


def test_unknown_frames_change_nothing():
    rng = np.random.default_rng(1)
    labels, codes = rng.integers(-1, 2, (500, 3)), rng.integers(-1, 3, 500)
    more = np.vstack([labels, np.full((99, 3), -1)]), np.r_[codes, rng.integers(-1, 3, 99)]
    np.testing.assert_array_equal(masked_f1(labels, codes), masked_f1(*more))
    p = rng.random((500, 3))
    np.testing.assert_array_equal(
        masked_average_precision(labels, p),
        masked_average_precision(labels, np.where(labels < 0, np.nan, p)))


def by_frame(path):
    "(frames,) codes of the resident, group after group; stop is inclusive in the file."
    table = pd.read_csv(path)
    table = table[table.actor == "resident"].sort_values(["group", "start"])
    return np.repeat(table.category.to_numpy(), table.stop - table.start + 1), table


@pytest.mark.skipif(not BOUTS.exists(), reason="shared/data is not beside the checkout")
def test_calms21_oracle():
    names = ["none", "attack", "investigation", "mount"]
    (true, a), (guess, b) = (by_frame(BOUTS/f"mice_train_{n}.csv")
                             for n in ("annotations", "cv_predictions"))
    assert len(true) == len(guess) == 507_738 and a.group.nunique() == 70
    codes = [pd.Categorical(x, names).codes for x in (true, guess)]
    f1 = masked_f1(columns(codes[0], 4), codes[1])
    assert f1.round(4).tolist() == [0.9359, 0.6906, 0.8505, 0.8548]
    assert round(f1.mean(), 4) == 0.8329
    tables = [t.rename(columns={"group": "video", "actor": "agent", "category": "action",
                                "recipient": "target"}).assign(stop=t.stop + 1)
              for t in (a, b)]
    found = bout_scores(*tables)
    assert found.true["attack"] == 194 and found.predicted["attack"] == 182
    assert found.matched.le(found[["true", "predicted"]].min(axis=1)).all()


@settings(max_examples=40, deadline=None)
@given(*[st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.integers(1, 20)),
                  max_size=8) for _ in range(2)], st.sampled_from([0.1, 0.5, 1.0]))
def test_bout_matches_are_one_to_one_and_maximal(mine, other, iou):
    true, guess = (bout_table([("m", "n", a, s, s + n) for a, s, n in x])
                   for x in (mine, other))
    pairs = match_bouts(true, guess, iou)
    assert pairs.true.is_unique and pairs.predicted.is_unique
    for t, x in true.iterrows():
        for p, y in guess.iterrows():
            both = min(x.stop, y.stop) - max(x.start, y.start)
            near = both / (max(x.stop, y.stop) - min(x.start, y.start))
            if x.action != y.action or both <= 0 or near < iou: continue
            better = pairs[(pairs.true == t) | (pairs.predicted == p)]
            assert len(better) and better.iou.max() >= near - 1e-12
    scores = bout_scores(true, guess, iou)
    assert scores.matched.sum() == len(pairs)


def test_bout_inside_another_hides_nothing():
    true = bout_table([("m", "n", "a", 0, 100), ("m", "n", "a", 10, 20),
                       ("m", "n", "a", 30, 40), ("m", "n", "a", 50, 55)])
    assert match_bouts(true, bout_table([("m", "n", "a", 60, 100)]), 0.3).true.tolist() == [0]


@pytest.mark.parametrize("iou", [0, -1, 1.5, float("nan")])
def test_impossible_iou(iou):
    with pytest.raises(ScoreError, match="iou"): bout_scores(bout_table(), bout_table(), iou)


def test_what_was_said_and_never_seen_is_named_beside_its_zero(tmp_path, capsys):
    "It counts 0 as in the competition's code, and the reader learns why."
    key = ("mouse1", "mouse2")
    rec = recording(bouts=bout_table([(*key, "sniff", 0, 10)]),
                    labelled=frozenset({(*key, "sniff"), (*key, "chase")}))
    said = submission_table({"7": [(*key, "sniff", 0, 10), (*key, "chase", 20, 27)]})
    report = mb.score(RecordingList([rec]), said)
    assert report["score"] == 0.5 == kaggle_score(solution_table(RecordingList([rec])), said)
    assert report["labs"]["L"]["only_false_alarms"] == {"chase": 7}
    assert mb.score(RecordingList([rec]), said[:1])["labs"]["L"]["only_false_alarms"] == {}
    mb.write_kaggle([rec], tmp_path/"lab")
    said.to_csv(tmp_path/"said.csv", index=False)
    assert main(["score", str(tmp_path/"lab"), str(tmp_path/"said.csv")]) == 0
    assert ("Predicted and never annotated, so 0 in this mean: chase (7 frames); without, the mean is 1.000"
            in "".join(capsys.readouterr()))


def test_what_nobody_looked_at_is_not_judged():
    rec = recording(bouts=bout_table([("mouse1", "mouse2", "attack", 0, 10)]),
                    labelled=frozenset({("mouse1", "mouse2", "attack")}))
    said = submission_table({"7": [("mouse1", "mouse2", "attack", 0, 10),
                                   ("mouse1", "mouse2", "attack", 40, 90)]})
    assert mb.score([rec], said)["score"] == pytest.approx(20 / 70)
    assert mb.score([rec.replace(scored=(0, 30))], said)["score"] == 1
    some = (("mouse1", "mouse2", "attack", -3, 5), ("mouse1", "mouse2", "attack", 50, 60))
    assert mb.score([rec.replace(reviewed=some)], said)["score"] == pytest.approx(10 / 20)


def test_reviewed_stretches_of_an_unlabelled_video_are_scored():
    key, about = ("mouse1", "mouse2"), (("attack",), None, "me", "", "1")
    rec = recording(bouts=bout_table(), labelled=None)
    rows = [Correction("7", *key, "accept", "attack", 0, 10, *about),
            Correction("7", *key, "nothing", "", 20, 30, *about)]
    data = CorrectedDataset(RecordingList([rec]), rows)
    said = lambda *spans: submission_table({"7": [(*key, "attack", *s) for s in spans]})
    assert mb.score(data, said((0, 10), (50, 90)))["score"] == 1
    assert mb.score(data, said((0, 5), (25, 90)))["score"] == pytest.approx(10 / 20)

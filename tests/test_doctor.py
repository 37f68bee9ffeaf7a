"""The submission doctor: every fault by name, and whatever it mends can be scored."""
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.recording import Recording, bout_table
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import DataError, ScoreError
from mabe_nb.kaggle.doctor import diagnose, fix_submission, read_submission
from mabe_nb.kaggle.examine import EFFECTS
from mabe_nb.train.scores.official_counts import FRAMES, IDS
from mabe_nb.train.metrics import kaggle_score

LISTED = '["mouse1,mouse2,attack", "mouse1,mouse2,mount", "mouse2,self,rear"]'
SOLUTION = pd.DataFrame([
    (7, "mouse1", "mouse2", "attack", 0, 50, "L", LISTED),
    (7, "mouse2", "self", "rear", 20, 50, "L", LISTED),
    (8, "mouse1", "mouse2", "attack", 0, 50, "L", LISTED)],
    columns=[*IDS, *FRAMES, "lab_id", "behaviors_labeled"])
ROW = {"row_id": 0, "video_id": 7, "agent_id": "mouse1", "target_id": "mouse2",
       "action": "attack", "start_frame": 10, "stop_frame": 40}
REAR = {"agent_id": "mouse2", "target_id": "self", "action": "rear"}


def table(*changes):
    "A submission of rows that differ from `ROW`."
    return pd.DataFrame([{**ROW, "row_id": i, **c} for i, c in enumerate(changes)])


# Kind -> a second row (the first is right), what becomes of it, None: dropped
FAULTS = {
    "missing_value": ({"action": None}, None),
    "bad_frame": ({"start_frame": None}, None),
    "backwards": ({"start_frame": 60, "stop_frame": 50}, None),
    "unknown_video": ({"video_id": 99}, None),
    "quoted_id": ({**REAR, "agent_id": "'mouse2'"}, REAR),
    "integer_id": ({**REAR, "agent_id": "2"}, REAR),
    "self_by_name": ({**REAR, "target_id": "mouse2"}, REAR),
    "not_listed": ({"action": "sniff"}, None),
    "fraction": ({**REAR, "start_frame": 10.4}, {**REAR, "start_frame": 10}),
    "negative_frame": ({**REAR, "start_frame": -5}, {**REAR, "start_frame": 0}),
    "beyond_end": ({**REAR, "stop_frame": 500}, {**REAR, "stop_frame": 100}),
    "no_frames": ({"start_frame": 60, "stop_frame": 60}, None),
    "duplicate": ({}, None),
    "overlap": ({"action": "mount", "stop_frame": 60},
                {"action": "mount", "start_frame": 40, "stop_frame": 60}),
    "phantom_class": ({"action": "mount", "start_frame": 40, "stop_frame": 41}, None),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_fault_names_its_row(kind):
    found = diagnose(table({}, FAULTS[kind][0]), SOLUTION, {7: 100})
    assert kind in set(found[found.row == 1].kind) and not (found.row == 0).any()
    message = found[found.kind == kind].message.iloc[0]
    assert message.startswith("row 1: ") and "\n" not in message
    assert list(found.columns) == ["row", "kind", "effect", "message"]
    assert set(found.effect) <= {"refused", "ignored", "costs", "harmless", "format"}


@pytest.mark.parametrize("kind", [k for k in FAULTS if k != "phantom_class"])
def test_fault_is_mended(kind):
    change, becomes = FAULTS[kind]
    fixed, changes = fix_submission(table({}, change), SOLUTION, {7: 100})
    expected = table({}) if becomes is None else table({}, becomes)
    pd.testing.assert_frame_equal(fixed, expected, check_dtype=False)
    done = changes[changes.kind == kind].iloc[0]
    assert done.row == 1 and (done.done == "dropped") == (becomes is None)
    kaggle_score(SOLUTION, fixed)


WHOLE = {
    "video_type": table({}).astype({"video_id": str}),
    "frame_type": table({}).astype({"start_frame": float}),
    "extra_column": table({}).assign(sure=0.5),
    "row_id": table({"row_id": 3}),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_fault_of_the_whole_table(kind):
    assert diagnose(WHOLE[kind], SOLUTION).kind.tolist() == [kind]
    fixed, changes = fix_submission(WHOLE[kind], SOLUTION)
    pd.testing.assert_frame_equal(fixed, table({}), check_dtype=False)
    assert changes.kind.tolist() == [kind] and changes.row.isna().all()


@pytest.mark.parametrize("column", IDS[1:])
def test_texts_and_numbers_in_one_column(column):
    mixed = table({}, {column: 2})
    with pytest.raises(ScoreError, match=f"{column} mixes types"): kaggle_score(SOLUTION, mixed)
    found = diagnose(mixed, SOLUTION)
    assert found.effect[found.kind == "name_type"].tolist() == ["refused"]
    kaggle_score(SOLUTION, fix_submission(mixed, SOLUTION)[0])


def test_missing_row_id():
    assert diagnose(table({}).drop(columns="row_id"), SOLUTION).kind.tolist() == ["row_id"]
    assert fix_submission(table({}).drop(columns="row_id"), SOLUTION)[0].row_id[0] == 0


@pytest.mark.parametrize("column", [*IDS, *FRAMES])
def test_missing_column(column):
    found = diagnose(table({}).drop(columns=column), SOLUTION)
    assert found.kind.tolist() == ["missing_column"] and column in found.message[0]
    with pytest.raises(ScoreError, match="missing_column"):
        fix_submission(table({}).drop(columns=column), SOLUTION)


def test_doubled_column_and_no_rows_and_no_table():
    doubled = pd.concat([table({}), table({})[["action"]]], axis=1)
    assert "missing_column" in set(diagnose(doubled, SOLUTION).kind)
    assert "no_rows" in set(diagnose(table({})[:0], SOLUTION).kind)
    with pytest.raises(ScoreError, match="expected a DataFrame"): diagnose(None, SOLUTION)


def test_nothing_left_is_an_error_not_an_empty_table():
    with pytest.raises(ScoreError, match="unknown_video 2"):
        fix_submission(table({"video_id": 1}, {"video_id": 2}), SOLUTION)


def test_good_submission_is_left_alone():
    good = table({}, REAR, {"video_id": 8})
    assert not len(diagnose(good, SOLUTION))
    fixed, changes = fix_submission(good, SOLUTION)
    pd.testing.assert_frame_equal(fixed, good)
    assert not len(changes)


def test_phantom_is_reported_and_left():
    submission = table({}, {"action": "mount", "start_frame": 40, "stop_frame": 41})
    fixed, changes = fix_submission(submission, SOLUTION)
    assert len(fixed) == 2 and not len(changes)
    nobody_knows = SOLUTION[["video_id", "lab_id", "behaviors_labeled"]]
    assert not len(diagnose(submission, nobody_knows))


def test_overlap_in_two_pieces_and_the_other_row_named():
    submission = table({"start_frame": 20, "stop_frame": 30},
                       {"action": "mount", "start_frame": 10, "stop_frame": 40})
    found = diagnose(submission, SOLUTION)
    assert "mount 10-40 meets row 0, attack 20-30" in found.message[0]
    fixed, changes = fix_submission(submission, SOLUTION)
    assert fixed[FRAMES].values.tolist() == [[20, 30], [10, 20], [30, 40]]
    assert changes.done.tolist() == ["cut to 10-20 and 30-40"]


def test_same_action_is_never_in_the_way():
    submission = table({"start_frame": 0, "stop_frame": 10}, {"stop_frame": 20, "start_frame": 5},
                       {"action": "mount", "start_frame": 18, "stop_frame": 25})
    changes = fix_submission(submission, SOLUTION)[1]
    assert changes[["row", "done"]].values.tolist() == [[2, "cut to 20-25"]]


def test_frame_numbers_that_no_video_has():
    submission = table({}, {"start_frame": 2**62, "stop_frame": 2**62 + 9})
    fixed, changes = fix_submission(submission, SOLUTION)
    assert len(fixed) == 1 and changes.kind.tolist() == ["bad_frame"]


def test_integer_columns_and_float_video_ids():
    submission = table({}, REAR).astype({"video_id": float})
    submission["agent_id"] = [1, 2]
    fixed, changes = fix_submission(submission, SOLUTION)
    assert fixed.agent_id.tolist() == ["mouse1", "mouse2"] and fixed.video_id[0] == 7
    assert changes.kind.value_counts().to_dict() == {"integer_id": 2, "video_type": 1}


def test_integer_ids_that_are_listed_stay():
    solution = SOLUTION[:1].assign(agent_id=1, target_id=2, behaviors_labeled='["1,2,attack"]')
    submission = table({}).assign(agent_id=1, target_id=2)
    assert not len(diagnose(submission, solution))
    assert kaggle_score(solution, fix_submission(submission, solution)[0]) > 0


def test_absurd_frames():
    rows = [{"start_frame": x} for x in (2**62, -1e300, np.inf, "x", True, 10)]
    fixed, changes = fix_submission(table(*rows), SOLUTION)
    assert fixed.start_frame.tolist()[-1] == 10 and set(changes.kind) >= {"bad_frame"}
    kaggle_score(SOLUTION, fixed)


def test_dataset_as_truth():
    rec = Recording(np.zeros((60, 2, 1, 2), np.float32), ("mouse1", "mouse2"), ("nose",),
                    30, bouts=bout_table([("mouse1", "mouse2", "attack", 0, 10)]),
                    labelled=frozenset({("mouse1", "mouse2", "attack"),
                                        ("mouse1", "mouse2", "mount")}), video_id="7")
    silent = rec.replace(video_id="9", bouts=bout_table())
    for data in (RecordingList([rec, silent]), RecordingList([silent])):
        found = diagnose(table({"video_id": 9}, {"video_id": 3}), data)
        assert found[found.row == 1].kind.tolist() == ["unknown_video"]
    mixed = RecordingList([rec, silent.replace(video_id="x")])
    submission = table({"video_id": "7"}, {"video_id": "x"})
    assert not len(diagnose(submission, mixed))


@pytest.mark.parametrize("truth", [
    SOLUTION.drop(columns="behaviors_labeled"), SOLUTION.drop(columns="lab_id"),
    SOLUTION.assign(behaviors_labeled="[oops"), SOLUTION.assign(behaviors_labeled="3")])
def test_bad_truth(truth):
    with pytest.raises(ScoreError, match="behaviors_labeled|lab_id"):
        diagnose(table({}), truth)


# --- whatever it mends can be scored

ids = st.sampled_from([7, 8, 9, "7", 7.0, None, "'8'"])
mice = st.sampled_from(["mouse1", "mouse2", "'mouse1'", 1, "2", "self", None, " mouse2", "{x}"])
acts = st.sampled_from(["attack", "mount", "rear", "sniff", "'attack'", None, 3])
frame = st.integers(-5, 40) | st.sampled_from([None, 2.5, np.nan, np.inf, "7", 2**61, 1e300])
good = st.tuples(st.sampled_from([7, 8]), st.sampled_from(
    [tuple(t.split(",")) for t in json.loads(LISTED)]), st.integers(0, 30),
    st.integers(0, 20)).map(lambda r: (r[0], *r[1], r[2], r[2] + r[3]))
bad = st.tuples(ids, mice, mice, acts, frame, frame)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(good | good | bad, min_size=1, max_size=8), st.sampled_from([None, {7: 25}]))
def test_fixed_submission_is_never_refused(rows, frames):
    submission = pd.DataFrame(rows, columns=[*IDS, *FRAMES])
    found = diagnose(submission, SOLUTION, frames)
    assert set(found.kind) <= set(EFFECTS)
    try: fixed, changes = fix_submission(submission, SOLUTION, frames)
    except ScoreError as e:
        assert "nothing of the submission" in str(e)
        return
    assert 0 <= kaggle_score(SOLUTION, fixed) <= 1
    again, none = fix_submission(fixed, SOLUTION, frames)
    assert not len(none)
    pd.testing.assert_frame_equal(again, fixed)
    touched = set(changes.row.dropna())
    for i, row in enumerate(rows):
        if i not in touched: assert (fixed[[*IDS, *FRAMES]].astype(str) == list(
            map(str, [int(row[0]), *row[1:4], int(row[4]), int(row[5])]))).all(axis=1).any()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(good, min_size=1, max_size=8))
def test_fixing_a_scorable_submission_costs_nothing(rows):
    submission = pd.DataFrame(rows, columns=[*IDS, *FRAMES])
    try: before = kaggle_score(SOLUTION, submission)
    except ScoreError:
        assert "overlap" in set(diagnose(submission, SOLUTION).kind)
        return
    kinds = set(diagnose(submission, SOLUTION).kind)
    assert kinds <= {"row_id", "duplicate", "no_frames", "phantom_class"}
    try: assert kaggle_score(SOLUTION, fix_submission(submission, SOLUTION)[0]) >= before
    except ScoreError: assert before == 0


# --- reading

def test_read_submission(tmp_path):
    path = tmp_path/"s.csv"
    table({}, REAR).to_csv(path, index=False)
    pd.testing.assert_frame_equal(read_submission(path), table({}, REAR))
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column video_id"): read_submission(path)
    for text in (b"", b"\xff\xfe", b'"', b"a\n1,2\n1,2,3\n", b"\0\0"):
        path.write_bytes(text)
        with pytest.raises(DataError, match=r"s\.csv"): read_submission(path)
    for gone in (tmp_path, tmp_path/"none.csv"):
        with pytest.raises(DataError): read_submission(gone)


@pytest.mark.parametrize("comma", [";", "\t"])
def test_a_submission_that_a_spreadsheet_has_saved(tmp_path, comma):
    plain = table({"action": "sniff, twice"}, REAR).assign(confidence=[0.5, 0.25])
    plain.to_csv(path := tmp_path/"s.csv", index=False, sep=comma, decimal=",", encoding="utf-8-sig",
                 lineterminator="\r\n")
    pd.testing.assert_frame_equal(read_submission(path), plain)
    lines = path.read_text("utf-8-sig").splitlines()
    lines[2] += comma + "1"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="line 3"): read_submission(path)


@pytest.mark.parametrize("row", [1, 2, 3])
def test_a_row_with_a_field_too_many_is_refused_by_line(tmp_path, row):
    table({}, REAR, {}).to_csv(tmp_path/"s.csv", index=False)
    lines = (tmp_path/"s.csv").read_text().splitlines()
    lines[row] += ",1"
    (tmp_path/"s.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=f"line {row + 1}"): read_submission(tmp_path/"s.csv")


def test_doubled_column_in_a_file_is_refused(tmp_path):
    twice = table({})
    twice.insert(5, "action", "attack", allow_duplicates=True)
    twice.to_csv(tmp_path/"s.csv", index=False)
    with pytest.raises(DataError, match="2 columns action"): read_submission(tmp_path/"s.csv")


def test_a_dataset_without_bouts_is_judged_by_its_numbers(tmp_path):
    "Of a test split nothing but the videos is known; their ids are numbers all the same."
    write_colony(tmp_path, "kaggle", 4, 0.1, 0)
    data = open_dataset(tmp_path, "test")
    table = pd.DataFrame([(0, int(data.ids[0]), "mouse1", "mouse2", "sniff", 1, 5)], columns=[
        "row_id", "video_id", "agent_id", "target_id", "action", "start_frame", "stop_frame"])
    fixed, _ = fix_submission(table, data)
    assert pd.api.types.is_integer_dtype(fixed.video_id)


def test_a_video_without_a_list_is_held_against_none(tmp_path):
    "Where nobody scored, no list says what counts: a table has an empty cell there."
    videos = pd.DataFrame({"video_id": [7, 8], "lab_id": "L", "behaviors_labeled": [LISTED, np.nan]})
    good, odd = {"video_id": 8, "action": "sniff"}, {"action": "sniff"}
    found = diagnose(table(good, odd), videos)
    assert found[["row", "kind"]].values.tolist() == [[1, "not_listed"]]
    write_colony(tmp_path, "kaggle", 2, 0.1, 0)
    (tmp_path/"train_annotation").rename(tmp_path/"elsewhere")
    rows = pd.read_csv(tmp_path/"train.csv")
    rows.assign(behaviors_labeled=np.nan).to_csv(tmp_path/"train.csv", index=False)
    data = open_dataset(tmp_path)
    assert diagnose(table({"video_id": int(data.ids[0]), "action": "whatever"}), data).empty


def test_no_action_is_a_phantom_where_nothing_is_scored():
    "A video without bouts is in no mean, and so no action of it."
    rest = pd.DataFrame({"video_id": [9], "lab_id": "L", "behaviors_labeled": LISTED})
    mount = {"action": "mount", "start_frame": 60, "stop_frame": 61}
    found = diagnose(table({"video_id": 9} | mount, mount), pd.concat([SOLUTION, rest]))
    assert found[["row", "kind"]].values.tolist() == [[1, "phantom_class"]]

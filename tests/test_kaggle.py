"""The Kaggle reader: round trip, every bad input by name, memory, real data."""
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kaggle_files import (PARTS, bout_rows, long_table, row, write_csv, write_parquet,
                          write_small)
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.dataset import dataset_parts, open_dataset
from mabe_nb.data.features import compute
from mabe_nb.data.formats.kaggle.tracking import PIECE
from mabe_nb.data.kaggle import read_kaggle, write_kaggle
from mabe_nb.data.recording import Recording, bout_table, frame_labels
from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.train.ensemble.recipe import begin_training

REAL = Path(__file__).parents[2]/"shared"/"data"
quick = settings(max_examples=25, deadline=None,
                 suppress_health_check=[HealthCheck.function_scoped_fixture])


def tracking_of(frames=40, mice=2):
    xy = np.random.default_rng(1).uniform(1, 500, (frames, mice, len(PARTS), 2))
    return long_table(xy.astype(np.float32))


def kinds(root, video="7"):
    return {f.kind: f.count for f in read_kaggle(root)[video].findings}


def refusal(call, *words):
    "The one sentence of the DataError that `call` raises; all `words` are in it."
    with pytest.raises(DataError) as info: call()
    text = str(info.value)
    assert "\n" not in text and len(text) < 600
    for word in words: assert word in text
    return text


# ---- round trip

@st.composite
def written(draw):
    "A recording and one of the many ways in which people save such a table."
    frames, mice = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    parts = draw(st.permutations(PARTS))[:draw(st.integers(1, 3))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    xy = rng.uniform(1, 900, (frames, mice, len(parts), 2)).astype(np.float32)
    xy[rng.random(xy.shape[:3]) < draw(st.sampled_from([0, .2, .7]))] = np.nan
    xy[0, 0, 0] = 5 # at least one point
    absent_as = draw(st.sampled_from(["no row", "nothing", "zero"]))
    table = long_table(np.nan_to_num(xy, nan=-1), parts=parts)
    lost = table.x == -1
    if absent_as == "no row": table = table[~lost]
    else: table.loc[lost, ["x", "y"]] = np.nan if absent_as == "nothing" else 0
    table = table.iloc[rng.permutation(len(table))] if draw(st.booleans()) else table
    types = {"video_frame": draw(st.sampled_from(["int32", "int64", "float64"])),
             "mouse_id": draw(st.sampled_from(["int8", "uint64", "str", "category"])),
             "bodypart": draw(st.sampled_from(["str", "object", "category"])),
             "x": (float_type := draw(st.sampled_from(["float32", "float64"]))),
             "y": float_type}
    return xy, parts, table[draw(st.permutations(list(table)))].astype(types)


@pytest.mark.parametrize("given, said", [
    ("data", "recordings are 'data'"), (3, "recordings are '3'"), (["x"], "recordings is 'x'")])
def test_what_is_no_recording_is_not_written(tmp_path, given, said):
    with pytest.raises(ConfigError, match=said): write_kaggle(given, tmp_path/"out")
    assert not (tmp_path/"out").exists()
    with pytest.raises(ConfigError, match="unknown split 'valid'"):
        write_kaggle([], tmp_path/"out", "valid")


@quick
@given(written(), st.data())
def test_round_trip(tmp_path, sample, data):
    xy, parts, table = sample
    there = np.zeros(xy.shape[:3], bool)
    there[table.video_frame.astype(int), table.mouse_id.astype(int) - 1,
          [parts.index(p) for p in table.bodypart]] = True
    frames = 1 + max(np.flatnonzero(there.any((1, 2))))
    mice = np.flatnonzero(there.any((0, 2)))
    number = st.sampled_from([int(m) + 1 for m in mice])
    bout = st.tuples(number, number, st.sampled_from(["a", "b"]),
                     st.integers(0, frames - 1))
    bouts = [(*b, data.draw(st.integers(b[3] + 1, frames)))
             for b in data.draw(st.lists(bout, max_size=5))]
    named = [(f"mouse{a}", f"mouse{t}", *rest) for a, t, *rest in bouts]
    looked = {b[:3] for b in named}
    write_parquet(tmp_path, table)
    write_parquet(tmp_path, bout_rows(bouts), kind="annotation")
    whitelist = [f"{a},{'self' if t == a else t},{n}" for a, t, n in looked]
    write_csv(tmp_path, [row(parts=parts, whitelist=whitelist, mouse1_sex="female")])
    rec = read_kaggle(tmp_path)["7"]
    np.testing.assert_array_equal(rec.xy, xy[:frames, mice])
    assert rec.mice == tuple(f"mouse{m + 1}" for m in mice)
    assert rec.parts == tuple(parts)
    assert rec.labelled == looked and rec.meta == {"mouse1_sex": "female"}
    assert rec.bouts.equals(bout_table(named))
    assert (rec.fps, rec.px_per_cm, rec.video_id, rec.lab_id) == (30, None, "7", "Ours")


def test_several_row_groups_and_dictionaries(tmp_path):
    table = tracking_of(20_000, 2) # more rows than one piece of the scatter
    path = write_parquet(tmp_path, table)
    table.to_parquet(path, row_group_size=7001)
    write_csv(tmp_path, [row(parts=PARTS[::-1])])
    rec = read_kaggle(tmp_path)["7"]
    wide = table.pivot(index="video_frame", columns=["mouse_id", "bodypart"],
                       values="x")
    for m in (1, 2):
        for p, part in enumerate(rec.parts):
            np.testing.assert_array_equal(rec.xy[:, m - 1, p, 0], wide[m, part])


def test_a_dictionary_may_hold_words_that_no_row_uses(tmp_path):
    "As of a table of categories from which a part was filtered."
    table = tracking_of()
    some = table.astype({"bodypart": "category"})[table.bodypart != PARTS[0]]
    write_parquet(tmp_path, some)
    write_csv(tmp_path, [row(parts=PARTS[1:])])
    rec = read_kaggle(tmp_path)["7"]
    assert rec.parts == tuple(PARTS[1:]) and np.isfinite(rec.xy).all()


def test_mice_are_those_that_are_tracked(tmp_path):
    table = tracking_of()
    write_parquet(write_small(tmp_path), table.assign(mouse_id=2*table.mouse_id))
    rec = read_kaggle(tmp_path)["7"]
    first = table[table.mouse_id == 1].x.to_numpy().reshape(-1, len(PARTS))
    assert rec.mice == ("mouse2", "mouse4")
    np.testing.assert_array_equal(rec.xy[:, 0, :, 0], first)


@pytest.mark.parametrize("mice, numbers", [
    (("mouse1", "mouse3"), [1, 3]), (("mouse2", "mouse4"), [2, 4]), (("mouse1", "rat"), [1, 2]),
    (("mouse3", "mouse5"), [1, 2])])
def test_mice_keep_the_numbers_of_their_names(mice, numbers, tmp_path):
    a, b = mice
    xy = np.random.default_rng(0).uniform(1, 9, (20, 2, 2, 2)).astype(np.float32)
    bouts = bout_table([(a, b, "sniff", 2, 5), (b, b, "rear", 3, 9)])
    rec = Recording(xy, mice, ("nose", "tail_base"), 30.0, 10.0, bouts, frozenset(
        zip(bouts.agent, bouts.target, bouts.action)), "7", "L", {"mouse3_strain": "C"})
    write_kaggle([rec], tmp_path/"out")
    back = read_kaggle(tmp_path/"out")["7"]
    new = dict(zip(mice, (f"mouse{n}" for n in numbers)))
    assert back.mice == (*new.values(),) and np.array_equal(back.xy, rec.xy)
    assert back.bouts.equals(rec.bouts.replace(new)) and back.meta["mouse3_strain"] == "C"
    assert back.labelled == {(new[x], new[y], action) for x, y, action in rec.labelled}


def test_half_a_point_is_no_point(tmp_path):
    table = tracking_of()
    write_parquet(write_small(tmp_path), table.assign(x=table.x.where(table.index > 5)))
    rec = read_kaggle(tmp_path)["7"]
    assert np.isnan(rec.xy[0]).all() and not np.isnan(rec.xy[1:]).any()
    assert kinds(tmp_path) == {"missing_points": 6} # the rows are there, and once


# ---- findings: the data is still usable

FINDINGS = {
    "unknown_mouse": (lambda t: t.assign(mouse_id=t.mouse_id.where(t.index > 2, 9)), 3),
    "nameless_part": (lambda t: t.assign(bodypart=t.bodypart.where(t.index > 1)), 2),
    "unlisted_parts": (lambda t: t.replace({"bodypart": {"neck": "ear"}}), 1),
    "absent_parts": (lambda t: t[t.bodypart != "neck"], 1),
    "double_rows": (lambda t: pd.concat([t, t.tail(4)]), 4),
    "frame_gaps": (lambda t: t[~t.video_frame.between(4, 8)], 5),
    "zero_points": (lambda t: t.assign(x=t.x.where(t.index > 1, 0),
                                     y=t.y.where(t.index > 1, 0)), 2),
    "infinite_points": (lambda t: t.assign(x=t.x.where(t.index > 1, np.inf)), 2),
    "points_outside": (lambda t: t.assign(y=t.y.where(t.index > 1, -3)), 2),
    "missing_points": (lambda t: t.iloc[6:], 6),
}


@pytest.mark.parametrize("kind", FINDINGS)
def test_finding_in_tracking(tmp_path, kind):
    change, count = FINDINGS[kind]
    write_parquet(write_small(tmp_path), change(tracking_of()))
    found = kinds(tmp_path)
    assert found[kind] == count
    assert set(found) - {kind} <= {"missing_points", "absent_parts", "frame_gaps"}


def test_a_part_in_another_spelling_is_the_listed_one(tmp_path):
    "The table says tail_base and the file tailbase: one part, where the list has it."
    new = dict(zip(PARTS, ("Nose", "nape", "TailBase")))
    table = tracking_of()
    write_parquet(write_small(tmp_path/"plain"), table)
    write_parquet(write_small(tmp_path), table.replace({"bodypart": new}))
    want, data = read_kaggle(tmp_path/"plain")["7"], read_kaggle(tmp_path)
    assert data["7"].parts == tuple(new[p] for p in want.parts)
    assert kinds(tmp_path) == {"respelled_parts": 3} and kinds(tmp_path/"plain") == {}
    assert "nape for neck" in data["7"].findings[0].message
    np.testing.assert_array_equal(data["7"].xy, want.xy)
    found = compute(data["7"], "coords", parts=dataset_parts(data))
    assert not np.isnan(found.values).any()


def test_parts_of_a_video_without_a_list_are_those_of_its_file(tmp_path):
    write_parquet(write_small(tmp_path), tracking_of(), "8")
    write_parquet(tmp_path, tracking_of().iloc[:0], "9") # who takes it says so
    some = [row(parts=["nose", "ear_left"]), row("8", parts=[]), row("9", parts="")]
    write_csv(tmp_path, some)
    assert dataset_parts(read_kaggle(tmp_path)) == ("ear_left", *sorted(PARTS))
    write_csv(tmp_path, some[1:])
    assert dataset_parts(read_kaggle(tmp_path)) == (*sorted(PARTS),)
    write_csv(tmp_path, some[2:])
    refusal(lambda: dataset_parts(read_kaggle(tmp_path)), "9.parquet")


def test_parts_of_unlabelled_videos_change_no_training(tmp_path):
    "Nothing can be learned of them: such videos beside the others change no channel."
    ids, more = ("7", "8"), ("nose", "ear_left", "ear_right", "forepaw_left")
    write_small(tmp_path/"alone", ids), write_small(tmp_path/"beside", ids)
    rows = [row(v) for v in ids] + [row("9", parts=more, whitelist=())]
    write_csv(tmp_path/"beside", rows)
    xy = np.random.default_rng(0).uniform(1, 500, (40, 2, 4, 2)).astype(np.float32)
    write_parquet(tmp_path/"beside", long_table(xy, parts=more), "9")
    found = [prepare(tmp_path/name, "coords", tmp_path/f"{name}-cache")
             for name in ("alone", "beside")]
    assert found[0].names == found[1].names and found[0].parts == found[1].parts
    np.testing.assert_array_equal(*(f.values(0) for f in found))
    every = prepare(tmp_path/"beside", "coords", tmp_path/"all", unlabelled=True)
    assert {*more} < {*every.parts}
    parts = [begin_training(tmp_path/name, tmp_path/f"{name}-run", "quick", None, 2,
                            cache=tmp_path/f"{name}-cache")[4]
             for name in ("alone", "beside")]
    assert parts[0] == parts[1] == tuple(found[0].parts)


def test_clean_video_has_no_findings(tmp_path):
    assert kinds(write_small(tmp_path)) == {}


def test_last_of_double_rows_counts(tmp_path):
    table = tracking_of()
    write_parquet(write_small(tmp_path), pd.concat([table, table.tail(1).assign(x=7.)]))
    assert read_kaggle(tmp_path)["7"].xy[-1, -1, -1, 0] == 7


def test_points_outside_are_kept(tmp_path):
    write_parquet(write_small(tmp_path), tracking_of().assign(x=600.))
    write_csv(tmp_path, [row(video_width_pix=512, video_height_pix=512)])
    rec = read_kaggle(tmp_path)["7"]
    assert (rec.xy[..., 0] == 600).all() and rec.findings[0].kind == "points_outside"


def test_points_outside_are_counted_in_every_piece(tmp_path):
    table = tracking_of(20_000, 2)
    table.loc[[5, len(table) // 2, len(table) - 1], "y"] = 600.
    write_parquet(write_small(tmp_path), table)
    write_csv(tmp_path, [row(video_width_pix=512, video_height_pix=512)])
    found = {f.kind: f.count for f in read_kaggle(tmp_path)["7"].findings}
    assert len(table) > 3 * PIECE and found["points_outside"] == 3


BOUTS = {
    "unknown_mouse_bouts": [(7, 1, "chase", 0, 5)],
    "empty_bouts": [(1, 2, "chase", 5, 5), (1, 2, "chase", 9, 5)],
    "untracked_bouts": [(3, 1, "chase", 0, 5)],
    "bouts_outside": [(1, 2, "chase", -5, 5), (1, 2, "chase", 30, 90)],
    "unlisted_bouts": [(1, 2, "mount", 0, 5)],
}


@pytest.mark.parametrize("kind", BOUTS)
def test_finding_in_bouts(tmp_path, kind):
    bouts = bout_rows([*BOUTS[kind], (1, 2, "chase", 10, 20)])
    write_parquet(write_small(tmp_path), bouts, kind="annotation")
    rec = read_kaggle(tmp_path)["7"]
    assert {f.kind: f.count for f in rec.findings} == {kind: len(BOUTS[kind])}
    assert ["mouse1", "mouse2", "chase", 10, 20] in rec.bouts.values.tolist()
    assert rec.bouts.start.min() >= 0 and rec.bouts.stop.max() <= 40


ROWS = {
    "quoted_tokens": dict(whitelist=["'mouse1','mouse2','chase'"]),
    "double_tokens": dict(whitelist=["mouse1,mouse2,chase", "mouse1, mouse2, chase"]),
    "broken_tokens": dict(whitelist=["mouse1,mouse2,chase", "mouse1,mouse2", 3, ""]),
    "untracked_whitelist": dict(whitelist=["mouse1,mouse2,chase", "mouse4,self,rear"]),
    "fps_mismatch": dict(video_duration_sec=400.0),
    "bad_scale": dict(pix_per_cm_approx=0.0),
}


@pytest.mark.parametrize("kind", ROWS)
def test_finding_in_row(tmp_path, kind):
    write_csv(write_small(tmp_path), [row(**ROWS[kind])])
    rec = read_kaggle(tmp_path)["7"]
    assert set(kinds(tmp_path)) == {kind} and rec.px_per_cm is None
    assert rec.labelled == {("mouse1", "mouse2", "chase")}


def test_an_action_in_another_spelling_is_the_listed_one(tmp_path):
    "Capitals and blanks alone: the frames of such a bout were learned as without it."
    write_parquet(write_small(tmp_path), bout_rows([(1, 2, " CHASE", 0, 5), (1, 2, "mount", 6, 9),
                                                    (1, 2, "Sniff Body", 9, 12)]), kind="annotation")
    write_csv(tmp_path, [row(whitelist=["mouse1,mouse2,chase", "mouse1,mouse2,sniff_body"])])
    data = read_kaggle(tmp_path)
    assert data["7"].bouts.action.tolist() == ["chase", "mount", "sniff_body"]
    assert data.annotations("7").equals(data["7"].bouts)
    assert kinds(tmp_path) == {"respelled_actions": 2, "unlisted_bouts": 1}
    assert (frame_labels(data["7"], "mouse1", "mouse2", ["chase"])[:5] == 1).all()
    assert "Sniff Body for sniff_body" in next(f.message for f in data["7"].findings)
    write_csv(tmp_path, [row(whitelist=["mouse1,mouse2,chase", "mouse1,mouse2,Chase"])])
    assert kinds(tmp_path) == {"unlisted_bouts": 3} # either may be meant


@pytest.mark.parametrize("frames, fps, seconds, off", [
    (400, 1.0, 404, 0), (400, 1.0, 405, 5), (400, 1.0, 396, 0), (400, 1.0, 395, 5),
    (60, 30.0, 1, 0), (60, 30.0, 3, 0), (60, 30.0, 3.1, 33)])
def test_lengths_may_differ_by_a_second_or_one_per_cent(tmp_path, frames, fps, seconds,
                                                        off):
    "Whichever is more; the bound itself is no finding."
    write_parquet(write_small(tmp_path), tracking_of(frames))
    write_csv(tmp_path, [row(frames_per_second=fps, video_duration_sec=seconds)])
    assert kinds(tmp_path).get("fps_mismatch", 0) == off


def test_malformed_tokens_as_in_two_labs(tmp_path):
    tokens = ["mouse1,mouse2,sniff", "'mouse1','mouse2','sniff'",
              "mouse1','mouse2','attack'"]
    write_csv(write_small(tmp_path), [row(whitelist=tokens)])
    assert read_kaggle(tmp_path).whitelist(7) == {("mouse1", "mouse2", "sniff"),
                                                 ("mouse1", "mouse2", "attack")}
    found = kinds(tmp_path)
    assert found["quoted_tokens"] == 2 and found["double_tokens"] == 1


def test_no_annotation_file_is_unlabelled(tmp_path):
    path = write_small(tmp_path)/"train_annotation/Ours/7.parquet"
    path.unlink()
    rec = read_kaggle(tmp_path)["7"]
    assert rec.labelled is None and kinds(tmp_path) == {"no_annotation": 1}
    assert (frame_labels(rec, "mouse1", "mouse2", ["chase"]) == -1).all()


def test_empty_annotation_file_is_looked_for_and_not_seen(tmp_path):
    write_parquet(write_small(tmp_path), bout_rows([]), kind="annotation")
    rec = read_kaggle(tmp_path)["7"]
    assert rec.findings == () and len(rec.bouts) == 0
    assert (frame_labels(rec, "mouse1", "mouse2", ["chase"]) == 0).all()


def test_test_split_looks_for_its_whitelist_and_has_no_bouts(tmp_path):
    write_parquet(tmp_path, tracking_of(), split="test")
    write_csv(tmp_path, [row()], "test")
    dataset = read_kaggle(tmp_path, "test")
    rec = dataset["7"]
    assert rec.labelled == dataset.whitelist("7") == {("mouse1", "mouse2", "chase")}
    assert rec.findings == () and len(rec.bouts) == 0
    assert dataset.whitelist("7") == {("mouse1", "mouse2", "chase")}


def test_odd_metadata_is_kept_as_it_is(tmp_path):
    write_csv(write_small(tmp_path), [row(arena_shape="split rectangluar")])
    assert read_kaggle(tmp_path)["7"].meta == {"arena_shape": "split rectangluar"}


def test_findings_of_the_folder(tmp_path):
    write_small(tmp_path, ("7", "8"))
    (tmp_path/"train_tracking/Ours/8.parquet").unlink()
    write_parquet(tmp_path, tracking_of(), "9")
    write_parquet(tmp_path, bout_rows([]), "10", "annotation", lab="Theirs")
    write_csv(tmp_path, [row("7"), row("8"), row("11", lab="CalMS21_task1")])
    found = [(f.kind, f.video_id) for f in read_kaggle(tmp_path).findings()]
    assert found == [("annotation_without_row", "10"), ("duplicated_tracks", ""),
                     ("row_without_tracking", "11"), ("row_without_tracking", "8"),
                     ("tracking_without_row", "9")]


# ---- errors: one sentence that names file and row

def at(table, column, index, value, dtype="int64"):
    return table.assign(**{column: table[column].astype(dtype).where(
        table.index != index, value)})


TRACKING_ERRORS = {
    "no rows": (lambda t: t.iloc[:0], "no rows"),
    "no x": (lambda t: t.drop(columns="x"), "'x'"),
    "no bodypart": (lambda t: t.drop(columns="bodypart"), "'bodypart'"),
    "text in x": (lambda t: at(t, "x", 17, "a", "str"), "row 17"),
    "negative frame": (lambda t: at(t, "video_frame", 5, -1), "row 5"),
    "frame 2^31": (lambda t: at(t, "video_frame", 5, 2**31), "row 5"),
    "frame 2^31 - 1": (lambda t: at(t, "video_frame", 5, 2**31 - 1), "2,147,483,647"),
    "half frame": (lambda t: t.assign(video_frame=t.video_frame + .5), "row 0"),
    "no frame": (lambda t: at(t, "video_frame", 5, None, "float64"), "row 5"),
    "only unknown mice": (lambda t: t.assign(mouse_id=9), "no row with a mouse"),
    "mouse is a rat": (lambda t: t.assign(mouse_id="rat"), "row 0"),
    "parts are numbers": (lambda t: t.assign(bodypart=3), "'bodypart'"),
    "x is a list": (lambda t: t.assign(x=[[1]]*len(t)), "'x'"),
    "nothing but nulls": (lambda t: t.assign(mouse_id=None, bodypart=None, x=None),
                          "no row with a mouse"),
    "no rows, no types": (lambda t: pd.DataFrame(columns=list(t)), "no rows"),
    "5,000 parts": (lambda t: pd.concat([t]*25).assign(
        bodypart=[f"p{i}" for i in range(25*len(t))]), "bodypart: has 6,00"),
    "part with a line break": (lambda t: t.assign(bodypart="a\nb"), r"'a\nb'"),
    "part with a NUL": (lambda t: t.assign(bodypart="a\0b"), r"'a\x00b'"),
    "part with a slash": (lambda t: t.assign(bodypart="../a"), "'../a'"),
    "part with an escape": (lambda t: t.assign(bodypart="\x1b[2J"), r"'\x1b[2J'"),
}


@pytest.mark.parametrize("name", TRACKING_ERRORS)
def test_error_in_tracking(tmp_path, name):
    change, words = TRACKING_ERRORS[name]
    write_parquet(write_small(tmp_path, ("7", "8")), change(tracking_of()))
    dataset = read_kaggle(tmp_path)
    refusal(lambda: dataset["7"], "7.parquet", words)
    assert isinstance(dataset["8"], Recording)


def test_annotation_file_without_rows_or_types_is_not_seen(tmp_path):
    root = write_small(tmp_path)
    write_parquet(root, pd.DataFrame(columns=list(bout_rows([]))), kind="annotation")
    rec = read_kaggle(root)["7"]
    assert rec.labelled == {("mouse1", "mouse2", "chase")} and not len(rec.bouts)


def test_dangling_annotation_is_an_error_not_an_unlabelled_video(tmp_path):
    path = write_small(tmp_path)/"train_annotation/Ours/7.parquet"
    path.unlink()
    path.symlink_to(tmp_path/"gone.parquet")
    dataset = read_kaggle(tmp_path)
    assert dataset.labelled("7") is not None
    for call in (dataset.__getitem__, dataset.annotations, dataset.fingerprint):
        refusal(lambda: call("7"), str(path), "not found")


@pytest.mark.parametrize("kind", ["tracking", "annotation"])
def test_folder_in_place_of_a_file(tmp_path, kind):
    path = write_small(tmp_path)/f"train_{kind}/Ours/7.parquet"
    path.unlink()
    path.mkdir()
    dataset = read_kaggle(tmp_path)
    for call in (dataset.__getitem__, dataset.fingerprint):
        refusal(lambda: call("7"), str(path), "is a folder")


def test_absurd_frame_takes_no_memory(tmp_path):
    write_parquet(write_small(tmp_path), at(tracking_of(), "video_frame", 5, 10**9))
    tracemalloc.start()
    refusal(lambda: read_kaggle(tmp_path)["7"], "1,000,000,000")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


ANNOTATION_ERRORS = {
    "no action": (lambda t: t.drop(columns="action"), "'action'"),
    "text in start": (lambda t: t.assign(start_frame="soon"), "row 0"),
    "absurd stop": (lambda t: t.assign(stop_frame=2**40), "row 0"),
    "actions are numbers": (lambda t: t.assign(action=1), "'action'"),
}


@pytest.mark.parametrize("name", ANNOTATION_ERRORS)
def test_error_in_annotation(tmp_path, name):
    change, words = ANNOTATION_ERRORS[name]
    bouts = change(bout_rows([(1, 2, "chase", 10, 20)]))
    path = write_parquet(write_small(tmp_path), bouts, kind="annotation")
    refusal(lambda: read_kaggle(tmp_path)["7"], str(path), words)
    refusal(lambda: read_kaggle(tmp_path).annotations("7"), str(path), words)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x,y\n1,2\n", None])
def test_error_not_a_parquet(tmp_path, content):
    path = write_small(tmp_path)/"train_tracking/Ours/7.parquet"
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    refusal(lambda: read_kaggle(tmp_path)["7"], "7.parquet", "parquet file")


def test_error_missing_tracking_file(tmp_path):
    (write_small(tmp_path)/"train_tracking/Ours/7.parquet").unlink()
    refusal(lambda: read_kaggle(tmp_path)["7"], "7.parquet", "not found")
    refusal(lambda: read_kaggle(tmp_path).fingerprint("7"), "7.parquet", "not found")


ROW_ERRORS = {
    "broken JSON": (dict(whitelist='["mouse1,'), "behaviors_labeled"),
    "JSON but no list": (dict(whitelist='{"a": 1}'), "behaviors_labeled"),
    "deep JSON": (dict(whitelist="["*100_000), "behaviors_labeled"),
    "parts are no JSON": (dict(parts="nose, neck"), "body_parts_tracked"),
    "parts are numbers": (dict(parts=[1, 2]), "body_parts_tracked"),
    "part with a line break": (dict(parts=["a\nb"]), r"'a\nb'"),
    "part with a slash": (dict(parts=["nose", "a/b"]), "'a/b'"),
    "5,000 parts": (dict(parts=[f"p{i}" for i in range(5000)]), "5,000 body parts"),
    "text in fps": (dict(frames_per_second="fast"), "frames_per_second"),
    "no fps": (dict(frames_per_second=None), "frames_per_second"),
    "fps 0": (dict(frames_per_second=0), "frames_per_second"),
    "fps infinite": (dict(frames_per_second="inf"), "frames_per_second"),
    "text in scale": (dict(pix_per_cm_approx="n.a."), "pix_per_cm_approx"),
    "text in width": (dict(video_width_pix="wide"), "video_width_pix"),
}


@pytest.mark.parametrize("name", ROW_ERRORS)
def test_error_in_row_spoils_one_video(tmp_path, name):
    fields, words = ROW_ERRORS[name]
    write_csv(write_small(tmp_path, ("7", "8")), [row("8"), row("7", **fields)])
    dataset = read_kaggle(tmp_path)
    refusal(lambda: dataset["7"], "train.csv", "row 3", words)
    assert dataset["8"].fps == 30


@pytest.mark.parametrize("old, new", [('"[""', '["'), (']"', ']')])
def test_a_list_without_its_quotation_marks_is_named_by_row_and_video(tmp_path, old, new):
    write_csv(write_small(tmp_path, ("7", "8", "9")), [row("7"), row("8"), row("9")])
    lines = (tmp_path/"train.csv").read_text().splitlines()
    lines[2] = lines[2].replace(old, new)
    (tmp_path/"train.csv").write_text("\n".join(lines))
    refusal(lambda: read_kaggle(tmp_path), "train.csv, row 3 (video 8)", "cells where the head",
            "such as behaviors_labeled stands in quotation marks")


TABLE_ERRORS = {
    "unsafe video": ([row("7"), row("../x")], "row 3"),
    "unsafe lab": ([row("7"), row("8", lab="a/b")], "row 3"),
    "empty lab": ([row("7", lab=None)], "row 2"),
    "double video": ([row("7"), row("8"), row("7")], "row 4"),
}


@pytest.mark.parametrize("name", TABLE_ERRORS)
def test_error_in_table(tmp_path, name):
    rows, words = TABLE_ERRORS[name]
    write_csv(tmp_path, rows)
    refusal(lambda: read_kaggle(tmp_path), "train.csv", words)


@pytest.mark.parametrize("column", ["video_id", "frames_per_second", "sex"])
def test_error_double_column(tmp_path, column):
    table = pd.DataFrame([row() | {"sex": "f"}])
    table.insert(0, column, ["8"], allow_duplicates=True)
    table.to_csv(tmp_path/"train.csv", index=False)
    refusal(lambda: read_kaggle(tmp_path), "train.csv", f"{column!r} twice")


@pytest.mark.parametrize("column", ["lab_id", "video_id", "frames_per_second",
                                    "body_parts_tracked", "behaviors_labeled"])
def test_error_missing_column(tmp_path, column):
    write_csv(tmp_path, [{k: v for k, v in row().items() if k != column}])
    refusal(lambda: read_kaggle(tmp_path), "train.csv", column)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\0\0", b"PAR1\0", b"a,b\n1,2,3\n"])
def test_error_no_table(tmp_path, content):
    (tmp_path/"train.csv").write_bytes(content)
    refusal(lambda: read_kaggle(tmp_path), "train.csv")


def test_unknown_video_names_the_nearest(tmp_path):
    write_csv(tmp_path, [row("438887472"), row("1375833299")])
    with pytest.raises(MabeError, match="438887472"): read_kaggle(tmp_path)["43888747"]


@quick
@given(st.data())
def test_damaged_files_read_or_are_refused(tmp_path, data):
    path = write_small(tmp_path)/"train_tracking/Ours/7.parquet"
    content = bytearray(path.read_bytes())
    place = st.integers(0, len(content) - 1)
    for i in data.draw(st.lists(place, min_size=1, max_size=4)):
        content[i] = data.draw(st.integers(0, 255))
    end = data.draw(st.none() | place)
    path.write_bytes(content[:end])
    try: assert isinstance(read_kaggle(tmp_path)["7"], Recording)
    except MabeError: pass


# ---- the dataset

def test_opening_needs_nothing_but_the_table(tmp_path):
    write_csv(tmp_path, [row(str(i)) for i in range(8789)])
    dataset = read_kaggle(tmp_path)
    assert len(dataset) == 8789 and dataset.ids[-1] == "8788" and 5 in dataset
    assert dataset.lab(77) == "Ours" and len(dataset.table) == 8789


def test_fingerprint_changes_with_row_and_files(tmp_path):
    write_small(tmp_path, ("7", "8"))
    def prints(): return [read_kaggle(tmp_path).fingerprint(v) for v in "78"]
    first = prints()
    write_csv(tmp_path, [row("8"), row("7", video_width_pix=5)])
    second = prints()
    write_parquet(tmp_path, bout_rows([]), kind="annotation")
    third = prints()
    write_parquet(tmp_path, tracking_of())
    fourth = prints()
    assert len({p[0] for p in (first, second, third, fourth)}) == 4
    assert len({p[1] for p in (first, second, third, fourth)}) == 1


def test_memory_does_not_grow_with_videos(tmp_path):
    def peak(videos):
        root = write_small(tmp_path/str(videos), [*map(str, range(videos))], 1500)
        dataset = read_kaggle(root)
        next(iter(dataset))
        tracemalloc.start()
        for rec in dataset: size = rec.xy.nbytes
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return memory, size
    few, size = peak(4)
    many, _ = peak(30)
    assert many < few + 2*size


def test_open_dataset_finds_the_kaggle_layout(tmp_path):
    assert open_dataset(write_small(tmp_path)).ids == ("7",)
    refusal(lambda: open_dataset(tmp_path/"no"), "does not exist", "expected a file of poses or a folder")
    (tmp_path/"empty").mkdir()
    refusal(lambda: open_dataset(tmp_path/"empty"), "train.csv", ".json")


# ---- real data

def real(name):
    if (REAL/name).exists(): return read_kaggle(REAL/name)
    pytest.skip(f"the real data in shared/data/{name} is not beside the checkout")


@pytest.mark.parametrize("name, actions", [("rats", 3), ("rat_fights", 7)])
def test_real_rats(name, actions):
    dataset = real(name)
    seen = np.zeros(actions)
    missing, empty = 0, 0
    for rec in dataset:
        assert rec.xy.shape == (12_000, 2, 5, 2) and rec.mice == ("mouse1", "mouse2")
        assert len(rec.labelled) == actions and rec.px_per_cm is None
        assert {f.kind for f in rec.findings} <= {"missing_points", "frame_gaps",
                                                  "zero_points"}
        names = sorted(a for _, _, a in rec.labelled)
        seen += (frame_labels(rec, "mouse1", "mouse2", names) == 1).sum(0)
        missing += np.isnan(rec.xy[..., 0]).mean()
        empty += not len(rec.bouts)
    assert len(dataset) == 46 and dataset.findings() == []
    assert 0.25 < missing/46 < 0.45
    if name == "rats": assert seen.sum() == 46*12_000 and (seen > 0.05*seen.sum()).all()
    else: assert empty == 9 and 0 < seen.sum() < 0.2*46*12_000


def test_real_rats_equal_a_pivot():
    dataset = real("rats")
    rec, table = dataset["3"], pd.read_parquet(dataset.file("3", "tracking"))
    wide = table.pivot(index="video_frame", columns=["mouse_id", "bodypart"],
                       values=["x", "y"]).reindex(range(len(rec)))
    for i, axis in enumerate("xy"):
        columns = pd.MultiIndex.from_product([[1, 2], rec.parts])
        want = wide[axis].reindex(columns=columns)
        np.testing.assert_array_equal(rec.xy[..., i].reshape(len(rec), -1), want)

"Readers of CalMS21, MABe22, trackers' poses and scoring programs' bouts."
import json, os, pickle, subprocess, sys, warnings
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from mabe_nb.analysis.groups import read_groups
from mabe_nb.data.annotations import (annotation_source, read_boris, scored_window,
                                      with_bouts)
from mabe_nb.data.audit import KINDS
from mabe_nb.data.checks.defects import check
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.folder.odd_files import why_odd
from mabe_nb.data.folder.tracker_folder import LabNote
from mabe_nb.data.formats.bout_tables import read_bout_table
from mabe_nb.data.formats.caltech import read_caltech
from mabe_nb.data.formats.frame_tables import read_frame_table, read_step_table
from mabe_nb.data.calms21 import PARTS, read_calms21
from mabe_nb.data.formats.mabe22 import read_mabe22
from mabe_nb.data.poses import read_poses, tracked_points
from mabe_nb.data.recording import Recording, bout_table, frame_labels
from mabe_nb.data.formats.binary.npy import read_npy, read_npz
from mabe_nb.data.formats.binary.pickles import unpickle
from mabe_nb.data.formats.simba import read_simba
from mabe_nb.errors import ConfigError, DataError

DATA = Path(__file__).parents[2]/"shared"/"data"
VOCAB = {"attack": 0, "investigation": 1, "mount": 2, "other": 3}


def real(name):
    "A real file, or a skip where the data folder is not beside the checkout."
    path = DATA/name
    return path if path.exists() else pytest.skip(f"real data is absent: {name}")


def sequence(frames=20, codes=None, vocab=VOCAB, seed=0):
    "A CalMS21 sequence of random walks."
    xy = np.random.default_rng(seed).uniform(0, 1000, (frames, 2, 2, 7))
    out = {"keypoints": xy, "scores": np.full((frames, 2, 7), 0.5)}
    if codes is not None:
        out |= {"annotations": np.asarray(codes),
                "metadata": {"annotator-id": 0, "vocab": vocab}}
    return out


def plain(value):
    "Arrays as lists, for json."
    if isinstance(value, dict): return {k: plain(v) for k, v in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def write(path, tree):
    "`tree` as json or npy, by the name of the file."
    if path.suffix == ".json": path.write_text(json.dumps(plain(tree)))
    else: np.save(path, tree, allow_pickle=True)
    return path


# CalMS21

codes_of = st.integers(1, 40).flatmap(
    lambda n: st.lists(st.integers(0, 3), min_size=n, max_size=n))


@settings(max_examples=30, deadline=None)
@given(st.lists(codes_of, min_size=1, max_size=3), st.permutations(sorted(VOCAB)),
       st.sampled_from([".json", ".npy"]))
def test_calms21_round_trip(tmp_path_factory, many, names, suffix):
    vocab = {n: i for i, n in enumerate(names)}
    tree = {"annotator-id_0": {f"task1/train/m{i}": sequence(len(c), c, vocab, i)
                               for i, c in enumerate(many)}}
    recs = read_calms21(write(tmp_path_factory.mktemp("c")/f"a{suffix}", tree))
    assert [r.video_id for r in recs] == [f"task1_train_m{i}" for i in range(len(many))]
    for i, (rec, codes) in enumerate(zip(recs, many)):
        assert np.array_equal(
            rec.xy, sequence(len(codes), seed=i)["keypoints"].transpose(0, 1, 3, 2)
            .astype(np.float32))
        actions = [n for n in names if n != "other"]
        labels = frame_labels(rec, "mouse1", "mouse2", actions)
        want = np.array(codes)[:, None] == [vocab[a] for a in actions]
        assert np.array_equal(labels, want)


def test_calms21_unlabelled_groups_and_equal_names(tmp_path):
    tree = {"approach": {"a/b": sequence(codes=[1] * 20, vocab={"other": 0, "approach": 1})},
            "unlabeled_videos": {"a/b": sequence(), "a_b": sequence()}}
    a, b, c = read_calms21(write(tmp_path/"t.json", tree))
    assert [r.video_id for r in (a, b, c)] == ["a_b", "a_b_2", "a_b_3"]
    assert [r.lab_id for r in (a, b)] == ["approach", "unlabeled_videos"]
    assert a.labelled == {("mouse1", "mouse2", "approach")} and b.labelled is None
    assert a.parts == PARTS and a.fps == 30 and a.px_per_cm == 18.33
    assert a.bouts.stop.tolist() == [20] and not len(b.bouts)


def test_calms21_min_score_and_nan(tmp_path):
    one = sequence()
    one["scores"][3, 1, 2] = 0.1
    one["keypoints"][5, 0, 0, 0] = np.inf
    [rec] = read_calms21(write(tmp_path/"t.npy", {"g": {"s": one}}), min_score=0.4)
    assert np.argwhere(np.isnan(rec.xy)).tolist() == [[3, 1, 2, 0], [3, 1, 2, 1], [5, 0, 0, 0]]


def broken(**changes): return {"g": {"seq/7": sequence(codes=[0] * 20) | changes}}


@pytest.mark.parametrize("tree, says", [
    ({"format": "mabe_nb prepared 7"}, "expected the dataset that it was made of"),
    ({}, "is not a CalMS21 file"),
    ([1, 2], "is not a CalMS21 file"),
    ({"g": {}}, "is not a CalMS21 file"),
    ({"g": {"seq/7": {"x": 1}}}, "no 'keypoints'"),
    ({"g": {"seq/7": [1]}}, "no 'keypoints'"),
    ({"../g": {"seq/7": sequence()}}, "group '../g' cannot name a file"),
    ({"g": {"..": sequence()}}, "cannot name a file"),
    (broken(keypoints=np.zeros((5, 2, 7, 2))), "(5, 2, 7, 2)"),
    (broken(keypoints=np.zeros((0, 2, 2, 7))), ""),
    (broken(keypoints="abc"), "keypoints"),
    (broken(keypoints=None), "keypoints"),
    (broken(keypoints=[[[[1] * 7] * 2] * 2, [[[1] * 7] * 2] * 3]), "ragged"),
    (broken(keypoints=[[[["x"] * 7] * 2] * 2]), "not a number"),
    (broken(annotations=np.zeros(7)), "annotations have shape (7,)"),
    (broken(annotations=[0] * 19 + [9]), "annotation 9 at frame 19"),
    (broken(annotations=[0] * 19 + [0.5]), "annotation 0.5"),
    (broken(annotations=["a"] * 20), "not a number"),
    (broken(metadata={}), "give vocab="),
    (broken(metadata=None), "give vocab="),
    (broken(metadata={"vocab": {"attack": "x"}}), "vocabulary"),
    (broken(metadata={"vocab": {"attack": 0, "mount": 0}}), "vocabulary"),
    (broken(metadata=[1]), "metadata is '[1]'"),
    (broken(metadata="x"), "metadata is 'x'"),
    (broken(metadata={"vocab": 5}), "vocabulary"),
    (broken(metadata={"vocab": "ab"}), "vocabulary"),
    (broken(metadata={"vocab": [["a"]]}), "vocabulary"),
    (broken(metadata={"vocab": ["a", "a"]}), "vocabulary"),
    (broken(metadata={"vocab": {"attack": float("inf")}}), "vocabulary"),
    (broken(metadata={"vocab": {"attack": float("nan")}}), "vocabulary"),
    (broken(metadata={"vocab": {"attack": 10**18}}), "vocabulary"),
    (broken(metadata={"vocab": {"attack": 0, "mount": 1.5}}), "vocabulary"),
])
@pytest.mark.parametrize("suffix", [".json", ".npy"])
def test_calms21_faults(tmp_path, tree, says, suffix):
    path = write(tmp_path/f"t{suffix}", tree)
    with pytest.raises(DataError) as e: read_calms21(path)
    assert says in str(e.value) and f"t{suffix}" in str(e.value)
    if "seq/7" in str(tree) and "../g" not in tree: assert "seq/7" in str(e.value)


def test_calms21_vocab_argument_and_shared_vocabulary(tmp_path):
    tree = broken(metadata={})
    [rec] = read_calms21(write(tmp_path/"t.json", tree), vocab={"bite": 0, "none": 1})
    assert rec.bouts.action.tolist() == ["bite"]
    [rec] = read_calms21(write(tmp_path/"t.json", tree | {"vocabulary": ["a", "other"]}))
    assert rec.bouts.action.tolist() == ["a"]


@pytest.mark.parametrize("text", ["", "{", '{"g": {"s": {"keypoints": [', "[" * 10**5])
def test_calms21_broken_json(tmp_path, text):
    (tmp_path/"t.json").write_text(text)
    with pytest.raises(DataError, match="t.json"): read_calms21(tmp_path/"t.json")


def test_calms21_wrong_files(tmp_path):
    for name in ("t.json", "t.npy", "t.npz", "t.mat"):
        with pytest.raises(DataError, match=name): read_calms21(tmp_path/name)
        (tmp_path/name).write_bytes(b"\x93NUMPY\x01\x00rubbish")
        with pytest.raises(DataError, match=name): read_calms21(tmp_path/name)


def test_calms21_clips_real():
    recs = read_calms21(real("calms21_clips/clips.npz"))
    assert len(recs) == 1369 and {len(r) for r in recs} == {13}
    with np.load(DATA/"calms21_clips"/"clips.npz") as z:
        acts = {k: z[k].astype(bool) for k in ("investigation", "mount")}
        assert np.array_equal(recs[7].xy[3, 1, :, 0], z["keypoints"][7, 3, 1, 0])
        assert [r.meta["group"] for r in recs] == [str(g) for g in z["group"]]
    for name, true in acts.items():
        seen = [name in set(r.bouts.action) for r in recs]
        assert seen == true.tolist() and 0 < sum(seen) < 1369
    assert all(r.labelled == {("mouse1", "mouse2", a) for a in acts} for r in recs)


def test_calms21_clips_have_no_confidences(tmp_path):
    np.savez(tmp_path/"c.npz", keypoints=np.zeros((3, 13, 2, 2, 7)))
    assert len(read_calms21(tmp_path/"c.npz")) == 3
    with pytest.raises(DataError, match="min_score"): read_calms21(tmp_path/"c.npz", min_score=.5)


def test_a_table_of_bouts_with_text_for_numbers_is_in_the_order_of_the_numbers():
    rows = [("a", "b", "sniff", s, s + 3) for s in (10, 5, 100)]
    table = pd.DataFrame(rows, columns=["agent", "target", "action", "start", "stop"])
    assert bout_table(table.astype(str)).equals(bout_table(rows)) and bout_table(table).equals(
        bout_table(rows))


@pytest.mark.parametrize("arrays", [
    {}, {"keypoints": np.zeros((3, 13, 2, 2))}, {"keypoints": np.zeros((0, 13, 2, 2, 7))},
    {"keypoints": np.zeros((3, 13, 2, 2, 7)), "mount": np.zeros(2)},
    {"keypoints": np.zeros((3, 13, 2, 2, 7)), "mount": np.array([0, 1, 7])},
    {"keypoints": np.zeros((3, 13, 2, 2, 7)), "group": np.zeros(2)},
    {"keypoints": np.array([{}, {}])}])
def test_calms21_clips_faults(tmp_path, arrays):
    np.savez(tmp_path/"c.npz", **arrays)
    with pytest.raises(DataError, match="c.npz"): read_calms21(tmp_path/"c.npz")


# Pickles

class Call:
    def __init__(self, *what): self.what = what
    def __reduce__(self): return self.what[0], self.what[1:]


@pytest.mark.parametrize("evil", [
    lambda mark: Call(os.mkdir, mark), lambda mark: Call(eval, f"__import__('os').mkdir({mark!r})"),
    lambda mark: Call(getattr, mark, "encode"), lambda mark: Call(np.load, mark),
    lambda mark: Call(Path, mark), lambda mark: Call(np.lib.npyio.NpzFile, mark)])
def test_hostile_pickle_runs_nothing(tmp_path, evil):
    mark = str(tmp_path/"owned")
    np.save(tmp_path/"t.npy", {"g": {"s": evil(mark)}}, allow_pickle=True)
    for read in (read_calms21, read_mabe22, read_npy):
        with pytest.raises(DataError, match="refused"): read(tmp_path/"t.npy")
    assert not os.path.exists(mark)


@pytest.mark.parametrize("name", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_pickles_of_both_numpy_versions(name):
    data = pickle.dumps(np.arange(3.), 3).replace(b"numpy._core.multiarray", name.encode())
    assert name.encode() in data and unpickle(data).tolist() == [0, 1, 2]


@pytest.mark.parametrize("data", [
    b"\x80\x04" + b"r\xff\xff\xff\x7f.", b"", b".", b"\x80\x09.", b"garbage",
    b"\x8e" + b"\xff" * 7 + b"\x7f", b"(" * 9, b"h\x05.", b"}s."])
def test_broken_pickle(data):
    with pytest.raises(DataError): unpickle(data)


def test_pickled_array_cannot_ask_for_more_than_it_brings():
    data = pickle.dumps(np.zeros(3, "u1"), 3)
    huge = data.replace(b"K\x01K\x03\x85", b"K\x01J\xff\xff\xff\x7f\x85")
    assert huge != data
    with pytest.raises(DataError, match="without its items"): unpickle(huge)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cut_or_flipped_npy_is_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("n")/"t.npy"
    whole = bytearray(write(path, {"g": {"s": sequence(3, [0, 1, 3])}}).read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()): whole = whole[:at]
    else: whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    try: read_calms21(path)
    except DataError: pass


def test_npz_bomb(tmp_path):
    np.savez_compressed(tmp_path/"b.npz", x=np.zeros(10**6))
    with pytest.raises(DataError, match="unpacks to"): read_npz(tmp_path/"b.npz", 10**6)


# MABe22

def test_mabe22(tmp_path):
    points = np.random.default_rng(0).integers(1, 850, (30, 3, 12, 2)).astype(np.uint16)
    points[4, 1, 2] = 0
    tree = {"sequences": {"AB12": {"keypoints": points}, "C": {"keypoints": points}}}
    a, c = read_mabe22(write(tmp_path/"m.npy", tree))
    assert a.video_id == "AB12" and a.mice == ("mouse1", "mouse2", "mouse3")
    assert np.argwhere(np.isnan(a.xy)).tolist() == [[4, 1, 2, 0], [4, 1, 2, 1]]
    assert a.findings[0].count == 1 and a.labelled is None and c.xy[9, 2, 11, 1] == points[9, 2, 11, 1]


def test_labels_of_mabe22_that_name_no_mouse_are_not_used_and_it_is_said(tmp_path):
    tree = {"sequences": {"a": {"keypoints": np.ones((9, 3, 12, 2)), "annotations": np.ones((2, 9))}}}
    rec, = read_mabe22(write(tmp_path/"m.npy", tree))
    assert rec.labelled is None and [(f.kind, f.count) for f in rec.findings] == [("labels_without_agent", 9)]


@pytest.mark.parametrize("tree", [
    {}, {"sequences": {}}, {"sequences": {"a": {}}}, {"sequences": {"../a": {
        "keypoints": np.zeros((4, 3, 12, 2))}}}, {"sequences": {"a": {
            "keypoints": np.zeros((4, 3, 11, 2))}}}])
def test_mabe22_faults(tmp_path, tree):
    with pytest.raises(DataError, match="m.npy"): read_mabe22(write(tmp_path/"m.npy", tree))


# Poses

@pytest.mark.parametrize("name, frames, mice, parts, nan", [
    ("deepof_multi.dlc.h5", 100, ("B", "W"), 14, 0), ("deepof_single.dlc.csv", 97, 1, 14, 0),
    ("deepof_single.sleap.analysis.h5", 101, ("track_0",), 14, None),
    ("ethome_two_flies.sleap.h5", 3000, 2, 13, None),
    ("ethome_two_mice.dlc.csv", 5700, ("adult", "juvenile"), 7, None),
    ("jabs_v3.h5", 1800, 5, 12, None), ("rat_1.dlc.csv", 14734, 2, 5, None)])
def test_real_poses(name, frames, mice, parts, nan):
    path = real(f"poses/{name}")
    rec = read_poses(path, fps=30)
    assert len(rec) == frames and len(rec.parts) == parts and rec.labelled is None
    assert rec.mice == mice if isinstance(mice, tuple) else len(rec.mice) == mice
    assert np.isfinite(rec.xy).mean() > 0.4 and np.nanmax(rec.xy) < 4000
    if nan is not None: assert np.isnan(rec.xy).sum() == nan
    with pytest.raises(DataError, match="give fps="): read_poses(path)


def test_real_deeplabcut_h5_holds_what_pandas_reads():
    table = pd.read_hdf(real("poses/deepof_multi.dlc.h5")).sort_index(axis=1)
    scorer = table.columns[0][0]
    rec = read_poses(DATA/"poses"/"deepof_multi.dlc.h5", fps=25)
    for mouse in rec.mice:
        for part in rec.parts:
            got = rec.xy[:, rec.mice.index(mouse), rec.parts.index(part)]
            for i, c in enumerate("xy"):
                want = table[scorer, f"{mouse}_{part}", c].values.astype(np.float32)
                assert np.array_equal(got[:, i], want)


@pytest.mark.parametrize("several", [False, True], ids=["one animal", "two animals"])
@pytest.mark.parametrize("ending", ["csv", "h5"])
def test_deeplabcut_holds_what_movement_reads(tmp_path, ending, several):
    from movement.io import load_poses, save_poses
    rng, animals = np.random.default_rng(0), ["adult", "pup"][:1 + several]
    xy = rng.normal(300, 90, (50, 2, 3, len(animals)))
    xy[rng.random(xy.shape) < 0.1] = np.nan
    data = load_poses.from_numpy(xy, rng.random(xy[:, 0].shape), animals, ["nose", "neck", "tail"])
    save_poses.to_dlc_file(data, path := tmp_path/f"v.{ending}", split_individuals=False)
    got, want = tracked_points(path)[1], load_poses.from_dlc_file(path)
    order = ["time", *(d for d in want.dims if d.startswith("individual")),
             *(d for d in want.dims if d.startswith("keypoint"))]
    assert np.array_equal(got.xy, want.position.transpose(*order, "space").values.astype(np.float32), equal_nan=True)
    assert np.array_equal(got.confidence, want.confidence.transpose(*order).values.astype(np.float32), equal_nan=True)
    assert got.parts == want[order[2]].values.tolist() and len(got.animals) == len(animals)


def test_deeplabcut_needs_no_library_of_seconds(tmp_path):
    dlc_csv(tmp_path/"v.csv", {0: [1] * 12, 1: [2] * 12})
    code = ("import sys; from mabe_nb.data.poses import read_poses; "
            f"print(read_poses({str(tmp_path/'v.csv')!r}, fps=30).mice, 'movement' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "('a', 'b') False"


@pytest.mark.parametrize("part", ["nose", "tail"])
def test_deeplabcut_of_two_scorers_is_refused(tmp_path, part):
    (tmp_path/"v.csv").write_text(f"scorer,anna,anna,net,net\nbodyparts,nose,nose,{part},{part}\n"
                                  "coords,x,y,x,y\n0,1,2,3,4\n")
    with pytest.raises(DataError, match="points of 2 scorers, anna, net, expected one"):
        read_poses(tmp_path/"v.csv", fps=30)


def test_real_jabs_has_left_ears_on_the_left():
    rec = read_poses(real("poses/jabs_v3.h5"), fps=30)
    part = {p: rec.xy[:, :, i] for i, p in enumerate(rec.parts)}
    body, ears = part["nose"] - part["tail_base"], part["ear_left"] - part["ear_right"]
    cross = body[..., 0] * ears[..., 1] - body[..., 1] * ears[..., 0]
    assert (cross[np.isfinite(cross)] < 0).mean() > 0.95 # y points down in a picture


def dlc_csv(path, rows, individuals=("a", "b"), parts=("nose", "tail")):
    "A DeepLabCut csv; `rows` maps frame number to a list of numbers."
    cells = [(i, p, c) for i in individuals for p in parts for c in ("x", "y", "likelihood")]
    lines = [["scorer"] + ["net"] * len(cells), ["individuals"] + [i for i, _, _ in cells],
             ["bodyparts"] + [p for _, p, _ in cells], ["coords"] + [c for _, _, c in cells]]
    if individuals == ("",): del lines[1]
    lines += [[f, *r] for f, r in rows.items()]
    path.write_text("\n".join(",".join(map(str, line)) for line in lines) + "\n")
    return path


def test_deeplabcut_frames_first_row_empty_and_unsafe_names(tmp_path):
    rows = {0: [""] * 12, 2: [1, 2, 0.9] * 4, 3: [3, 4, 0.1] * 4}
    rec = read_poses(dlc_csv(tmp_path/"v 1.csv", rows, ("my mouse", "b")), fps=30,
                     min_confidence=0.5)
    assert rec.mice == ("my_mouse", "b") and rec.video_id == "v_1"
    assert rec.meta["individuals"] == ["my mouse", "b"]
    assert np.isfinite(rec.xy[:, 0, 0, 0]).tolist() == [False, False, True, False]
    one = read_poses(dlc_csv(tmp_path/"s.csv", {0: [1, 2, 1] * 2}, ("",)), fps=30)
    assert one.mice == ("mouse1",) and one.xy.shape == (1, 1, 2, 2)
    lp = read_poses(tmp_path/"s.csv", fps=30, source="LightningPose")
    assert np.array_equal(lp.xy, one.xy) and lp.meta["source"] == "LightningPose"


@pytest.mark.parametrize("layout", ["table", "fixed"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_deeplabcut_h5_layouts(tmp_path, layout, shuffle):
    names = ["scorer", "individuals", "bodyparts", "coords"]
    columns = pd.MultiIndex.from_product(
        [["net"], ["a", "b"], ["nose", "tail"], ["x", "y", "likelihood"]], names=names)
    table = pd.DataFrame(np.random.default_rng(0).random((5, 12)), columns=columns)
    saved = table.iloc[:, np.random.default_rng(1).permutation(12)] if shuffle else table
    saved.to_hdf(tmp_path/"t.h5", key="tracks_of_mine", format=layout)
    rec = read_poses(tmp_path/"t.h5", fps=30)
    for i, mouse in enumerate(rec.mice):
        for j, part in enumerate(rec.parts):
            want = table["net", mouse, part][["x", "y"]].values.astype(np.float32)
            assert np.array_equal(rec.xy[:, i, j], want)


def test_animals_named_in_parts_are_taken_apart_in_any_order(tmp_path):
    parts = ("B_nose", "W_nose", "B_neck", "W_neck", "B_tail", "W_tail")
    row = [v for i in range(6) for v in (i, 10 + i, 1)]
    rec = read_poses(dlc_csv(tmp_path/"t.csv", {0: row}, ("",), parts), fps=30)
    assert rec.mice == ("B", "W") and rec.parts == ("nose", "neck", "tail")
    assert rec.xy[0, :, :, 0].tolist() == [[0, 2, 4], [1, 3, 5]]
    assert [f.kind for f in rec.findings] == ["mice_from_part_names"]
    sides = tuple(f"{s}_{p}" for s in ("left", "right") for p in ("ear", "hip", "paw"))
    assert len(read_poses(dlc_csv(tmp_path/"s.csv", {0: row}, ("",), sides), 30).mice) == 1


def test_hostile_deeplabcut_h5(tmp_path):
    mark = tmp_path/"owned"
    columns = pd.MultiIndex.from_product([["net"], ["nose"], ["x", "y", "likelihood"]])
    pd.DataFrame(np.ones((3, 3)), columns=columns).to_hdf(
        tmp_path/"t.h5", key="df_with_missing", format="table")
    with h5py.File(tmp_path/"t.h5", "a") as f:
        for group in (f["df_with_missing"], f["df_with_missing/table"]):
            for name in ("values_block_0_kind", "info", "non_index_axes"):
                if name in group.attrs:
                    group.attrs[name] = np.bytes_(pickle.dumps(Call(os.mkdir, str(mark)), 0))
    with pytest.raises(DataError, match="refused"): read_poses(tmp_path/"t.h5", fps=30)
    assert not mark.exists()


def test_anipose_uses_two_coordinates_and_says_so(tmp_path):
    points = {f"nose_{c}": [float(i)] * 3 for i, c in enumerate(
        ("x", "y", "z", "score", "error", "ncams"))}
    other = ["center_0", "center_1", "center_2"] + [f"M_{i}{j}" for i in range(3)
                                                   for j in range(3)]
    pd.DataFrame(points | {c: [0.] * 3 for c in other} | {"fnum": [0, 1, 4]}).to_csv(
        tmp_path/"a.csv", index=False)
    rec = read_poses(tmp_path/"a.csv", fps=30)
    assert len(rec) == 5 and rec.xy[4, 0, 0].tolist() == [0, 1]
    assert [f.kind for f in rec.findings] == ["third_coordinate"]


def test_sleap_labels(tmp_path):
    sio = pytest.importorskip("sleap_io")
    skeleton = sio.Skeleton(["nose", "tail"])
    track, video = sio.Track("white"), sio.Video("v.mp4", open_backend=False)
    frames = [sio.LabeledFrame(video=video, frame_idx=i, instances=[
        sio.PredictedInstance.from_numpy(np.array([[i, 1.], [2, 3]]), skeleton=skeleton,
                                         point_scores=np.ones(2), score=1., track=track)])
              for i in (0, 1, 3)]
    sio.save_file(sio.Labels(frames), str(tmp_path/"v.slp"))
    rec = read_poses(tmp_path/"v.slp", fps=30)
    assert rec.mice == ("white",) and rec.parts == ("nose", "tail")
    assert rec.xy[3, 0, 0].tolist() == [3, 1] and np.isnan(rec.xy[2]).all()


@pytest.mark.parametrize("version", [1.0, 1.2, 2.8])
@pytest.mark.parametrize("tracked", [True, False])
def test_a_sleap_project_holds_what_sleap_io_reads(tmp_path, version, tracked):
    "Predicted and placed points, some not visible, some animals without a track, of old and new files."
    sio, rng = pytest.importorskip("sleap_io"), np.random.default_rng(1)
    skeleton, film = sio.Skeleton(["nose", "tail", "paw"]), sio.Video("v.mp4", open_backend=False)
    tracks = [sio.Track(name) for name in ("white", "black")] if tracked else []
    frames = []
    for i in range(3, 40):
        some = []
        for track in (tracks or [None])[:rng.integers(1, 3)]:
            xy = np.where(rng.random((3, 1)) < .2, np.nan, rng.uniform(0, 500, (3, 2)))
            some.append(sio.PredictedInstance.from_numpy(
                xy, skeleton=skeleton, point_scores=rng.random(3), score=.5,
                track=track if rng.random() > .1 else None))
            if rng.random() < .3:
                some.append(sio.Instance.from_numpy(xy + 1, skeleton=skeleton, track=some[-1].track))
        if i % 5: frames.append(sio.LabeledFrame(video=film, frame_idx=i, instances=some))
    path = tmp_path/"v.slp"
    sio.save_slp(sio.Labels(frames, tracks=tracks), str(path))
    with h5py.File(path, "a") as f:
        f["metadata"].attrs["format_id"] = version
        if version < 1.2: # without the last column
            rows = f["instances"][:]
            del f["instances"]
            f["instances"] = rows[[n for n in rows.dtype.names if n != "tracking_score"]]
    labels = sio.load_slp(str(path), open_videos=False)
    xy = np.full((40, max(len(tracks), 1), 3, 2), np.nan, np.float32)
    for frame in labels.labeled_frames:
        for one in (*frame.predicted_instances, *frame.user_instances):
            if one.track or not tracks:
                xy[frame.frame_idx, labels.tracks.index(one.track) if tracks else 0] = one.numpy()
    found = tracked_points(path)[1]
    assert np.array_equal(found.xy, xy[:len(found.xy)], equal_nan=True) and len(found.xy) == 40
    assert found.animals == (["white", "black"] if tracked else ["id_0"]) and bool(found.trackless) == tracked
    sure = [one.points["score"] for f in labels.labeled_frames if not f.user_instances
            for one in f.predicted_instances if one.track or not tracks]
    assert np.isin(np.float32(sure), found.confidence).all()


def test_a_sleap_project_of_a_later_format_is_refused(tmp_path):
    sio = pytest.importorskip("sleap_io")
    labels, _ = sleap_labels("a.mp4")
    sio.save_slp(labels, str(tmp_path/"v.slp"))
    with h5py.File(tmp_path/"v.slp", "a") as f: f["metadata"].attrs["format_id"] = 3.1
    with pytest.raises(DataError, match="v.slp: has the format 3.1 of SLEAP, which is newer"): read_poses(tmp_path/"v.slp", 30)


@pytest.mark.parametrize("frames, says", [
    ([("a.mp4", 0, [1]), ("b.mp4", 0, [2])], "frames of 2 videos"),
    ([("a.mp4", 0, [1, 9]), ("a.mp4", 1, [8, 2])], "frame 0: has 2 animals and no tracks"),
    ([("a.mp4", 0, [1, -2])], "several skeletons")])
def test_sleap_points_that_belong_together_in_no_way_are_refused(tmp_path, frames, says):
    sio = pytest.importorskip("sleap_io")
    films = {name: sio.Video(name, open_backend=False) for name, *_ in frames}
    ways = sio.Skeleton(["nose", "tail"]), sio.Skeleton(["tail", "nose"]) # x < 0: the second
    one = lambda x: sio.PredictedInstance.from_numpy(
        np.array([[x, 0.], [x, 1]]), skeleton=ways[x < 0], point_scores=np.ones(2), score=1.)
    sio.save_file(sio.Labels([sio.LabeledFrame(video=films[v], frame_idx=i, instances=[*map(one, xs)])
                              for v, i, xs in frames]), str(tmp_path/"v.slp"))
    with pytest.raises(DataError, match=says): read_poses(tmp_path/"v.slp", fps=30)


def test_a_track_of_sleap_is_at_one_place_in_a_frame(tmp_path):
    "The CSV of such a project is refused as well; the second one took the place of the first."
    sio = pytest.importorskip("sleap_io")
    skeleton, track = sio.Skeleton(["nose"]), sio.Track("white")
    one = lambda x: sio.PredictedInstance.from_numpy(np.array([[x, 1.]]), skeleton=skeleton,
                                                     point_scores=np.ones(1), score=1., track=track)
    film = sio.Video("v.mp4", open_backend=False)
    sio.save_file(sio.Labels([sio.LabeledFrame(video=film, frame_idx=i, instances=[one(1.), one(300.)][:1 + (i == 2)])
                              for i in range(4)]), str(tmp_path/"v.slp"))
    with pytest.raises(DataError, match="frame 2: has an animal twice"): read_poses(tmp_path/"v.slp", fps=30)


def test_sleap_animals_without_a_track_are_counted(tmp_path):
    sio = pytest.importorskip("sleap_io")
    film, skeleton = sio.Video("v.mp4", open_backend=False), sio.Skeleton(["nose", "tail"])
    tracks = [sio.Track(name) for name in ("white", "black")]
    one = lambda x, track: sio.PredictedInstance.from_numpy(
        np.array([[x, 1.], [x, 3]]), skeleton=skeleton, point_scores=np.ones(2), score=1.,
        track=track)
    by_hand = sio.Instance.from_numpy(np.array([[7., 1], [7, 3]]), skeleton=skeleton)
    unseen = sio.Instance.from_numpy(np.full((2, 2), np.nan), skeleton=skeleton)
    frames = [[one(1., tracks[0]), one(2., tracks[1])], [one(1., tracks[0]), one(2., None)],
              [by_hand, one(3., None)], [unseen]]
    sio.save_file(sio.Labels([sio.LabeledFrame(video=film, frame_idx=i, instances=some)
                              for i, some in enumerate(frames)], tracks=tracks),
                  str(tmp_path/"v.slp"))
    rec = read_poses(tmp_path/"v.slp", fps=30)
    assert np.isfinite(rec.xy[..., 0, 0]).tolist() == [[True, True], [True, False],
                                                       [False, False], [False, False]]
    said = ("3 animals in 2 frames without a track, left out, first in frame 1; "
            "track them in SLEAP if they are yours")
    assert [tuple(f)[1:] for f in rec.findings] == [("animals_without_track", 3, said)]
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    assert f"v: {said}" in match_files(open_dataset(tmp_path)).sentences
    with pytest.warns(LabNote, match="in 2 frames without a track"): open_dataset(tmp_path)["v"]


def test_sleap_video_and_skeleton_are_those_of_the_points(tmp_path):
    sio = pytest.importorskip("sleap_io")
    films = [sio.Video(f"{name}.mp4", open_backend=False) for name in "ab"]
    ways = sio.Skeleton(["nose", "tail"]), sio.Skeleton(["tail", "nose"])
    frames = [sio.LabeledFrame(video=films[1], frame_idx=1, instances=[
        sio.PredictedInstance.from_numpy(np.array([[5., 6], [7, 8]]), skeleton=ways[0],
                                         point_scores=np.ones(2), score=1.)])]
    sio.save_file(sio.Labels(frames, videos=films, skeletons=[*ways]), str(tmp_path/"v.slp"))
    rec = read_poses(tmp_path/"v.slp", fps=30)
    assert rec.parts == ("nose", "tail") and rec.xy[1, 0].tolist() == [[5, 6], [7, 8]]


def test_a_sleap_project_of_several_videos_is_none_beside_its_exports(tmp_path):
    sio = pytest.importorskip("sleap_io")
    labels, _ = sleap_labels("a.mp4", "b.mp4")
    sio.save_slp(labels, str(tmp_path/"labels.v001.slp"))
    with pytest.raises(DataError, match="labels.v001.slp: holds frames of 2 videos"): open_dataset(tmp_path/"labels.v001.slp")
    with pytest.raises(DataError, match="labels.v001.slp holds frames of 2 videos"): open_dataset(tmp_path)
    for name in "ab": (tmp_path/f"{name}.csv").write_text("track,frame_idx,nose.x,nose.y\nA,0,1,2\n")
    data = open_dataset(tmp_path)
    assert data.ids == ("a", "b") and "one file a video in SLEAP, not read" in data.findings()[0].message


@pytest.mark.parametrize("columns", [
    [("a", "nose", "xyp"), ("a", "tail", "xyp"), ("b", "tail", "xyp"), ("b", "nose", "xyp")],
    [("a", "nose", "xyp"), ("b", "nose", "xyp"), ("a", "tail", "xyp"), ("b", "tail", "xyp")],
    [("a", "nose", "pyx"), ("a", "tail", "pyx"), ("b", "nose", "yxp"), ("b", "tail", "xyp")]])
@pytest.mark.parametrize("end", ["csv", "h5"])
def test_columns_of_deeplabcut_are_read_by_their_names(tmp_path, columns, end):
    where = {("a", "nose"): (1, 2), ("a", "tail"): (3, 4), ("b", "nose"): (5, 6), ("b", "tail"): (7, 8)}
    names = [("net", a, part, {"p": "likelihood"}.get(c, c)) for a, part, cs in columns for c in cs]
    values = [{"x": where[a, p][0], "y": where[a, p][1]}.get(c, 0.9) for _, a, p, c in names]
    table = pd.DataFrame([values] * 2, columns=pd.MultiIndex.from_tuples(
        names, names=["scorer", "individuals", "bodyparts", "coords"]))
    if end == "csv": table.to_csv(tmp_path/"v.csv")
    else: table.to_hdf(tmp_path/"v.h5", key="df_with_missing", format="table")
    rec = read_poses(tmp_path/f"v.{end}", fps=30, min_confidence=0.5)
    got = {(a, p): tuple(rec.xy[1, i, j].tolist()) for i, a in enumerate(rec.mice)
           for j, p in enumerate(rec.parts)}
    assert got == where


def test_deeplabcut_without_a_column_or_with_one_twice(tmp_path):
    head = ["scorer,n,n,n,n,n,n", "individuals,a,a,a,b,b,b", "bodyparts,t,t,t,t,t,t",
            "coords,x,y,likelihood,x,y,likelihood", "0,1,2,1,3,4,1"]
    for k, change, says in ((1, "individuals,a,a,a,a,a,a", "two columns alike"),
                            (3, "coords,x,y,likelihood,x,y,z", "no column a, t, z")):
        (tmp_path/"v.csv").write_text("\n".join([*head[:k], change, *head[k + 1:]]) + "\n")
        with pytest.raises(DataError, match=says): read_poses(tmp_path/"v.csv", fps=30)


def test_nwb_without_points_is_told(tmp_path):
    pynwb, ndx_pose = pytest.importorskip("pynwb"), pytest.importorskip("ndx_pose")
    file = pynwb.NWBFile("a mouse", "1", datetime.now(UTC))
    file.create_processing_module("behavior", "poses").add(
        ndx_pose.PoseEstimation(name="PoseEstimation", pose_estimation_series=[]))
    with pynwb.NWBHDF5IO(str(tmp_path/"v.nwb"), "w") as io: io.write(file)
    with pytest.raises(DataError, match="holds no points of animals"): read_poses(tmp_path/"v.nwb")


def test_nwb_brings_its_own_frame_rate(tmp_path):
    pynwb = pytest.importorskip("pynwb")
    from movement.io import load_poses, save_poses
    data = load_poses.from_numpy(np.random.default_rng(0).random((6, 2, 3, 1)), fps=25.,
                                 individual_names=["white"], keypoint_names=list("abc"))
    with pynwb.NWBHDF5IO(str(tmp_path/"v.nwb"), "w") as io:
        io.write(save_poses.to_nwb_file(data))
    rec = read_poses(tmp_path/"v.nwb")
    assert rec.fps == 25 and rec.mice == ("white",) and rec.parts == tuple("abc")
    want = data.position.values.transpose(0, 3, 2, 1).astype(np.float32)
    assert np.allclose(rec.xy, want)


@pytest.mark.parametrize("unit, conversion, offset, px_per_cm", [
    ("meters", 1e-3, 0.25, 10), ("mm", 1., 250., 10), ("pixels", 2., 0., None), ("meters", 1e3, 0., None)],
    ids=["metres", "millimetres", "pixels", "pixels called metres"])
def test_lengths_of_nwb_are_read_by_their_unit(tmp_path, unit, conversion, offset, px_per_cm):
    pynwb, ndx_pose = pytest.importorskip("pynwb"), pytest.importorskip("ndx_pose")
    xy = np.random.default_rng(0).random((6, 2)) * 100 # As stored
    series = ndx_pose.PoseEstimationSeries(
        name="nose", data=xy, unit=unit, conversion=conversion, offset=offset, reference_frame="corner",
        rate=25., starting_time=0., confidence=np.ones(6), confidence_definition="p")
    file = pynwb.NWBFile("a mouse", "1", datetime.now(UTC))
    file.create_processing_module("behavior", "poses").add(
        ndx_pose.PoseEstimation(name="PoseEstimation", pose_estimation_series=[series]))
    with pynwb.NWBHDF5IO(str(tmp_path/"v.nwb"), "w") as io: io.write(file)
    rec, to_mm = read_poses(tmp_path/"v.nwb"), 1000 if px_per_cm and unit == "meters" else 1
    assert rec.px_per_cm == px_per_cm
    assert np.allclose(rec.xy[:, 0, 0], (xy * conversion + offset) * to_mm, rtol=1e-5)


def neuroconv_file(path, *animals):
    "An NWB file as NeuroConv writes it, of (name, camera, film) each; and where the points are."
    pynwb, ndx_pose = pytest.importorskip("pynwb"), pytest.importorskip("ndx_pose")
    file, nodes = pynwb.NWBFile("mice", "1", datetime.now(UTC)), ["nose", "ear_left", "tailBase"]
    xy, skeletons = np.random.default_rng(0).random((6, len(animals), 3, 2)) * 100, []
    module = file.create_processing_module("behavior", "poses")
    one = int(version("ndx-pose").split(".")[1]) >= 4 # Before 0.4 it took several cameras
    for k, (name, camera, film) in enumerate(animals):
        device = file.devices[camera] if camera in file.devices else file.create_device(name=camera)
        skeletons.append(ndx_pose.Skeleton(name=f"Skeleton{name}", nodes=nodes))
        series = [ndx_pose.PoseEstimationSeries(
            name=f"PoseEstimationSeries{part.title().replace('_', '')}", data=xy[:, k, i], unit="pixels", rate=25.,
            reference_frame="corner", confidence=np.ones(6), starting_time=0.) for i, part in enumerate(nodes)]
        module.add(ndx_pose.PoseEstimation(name=f"PoseEstimation{name}", pose_estimation_series=series,
                                           skeleton=skeletons[-1], original_videos=film and [film],
                                           **{"device": device} if one else {"devices": [device]}))
    module.add(ndx_pose.Skeletons(skeletons=skeletons))
    with pynwb.NWBHDF5IO(str(path), "w") as io: io.write(file)
    return xy


def test_nwb_of_neuroconv(tmp_path):
    for film, camera in (("v.mp4", "Right"), (None, "Left")):
        xy = neuroconv_file(tmp_path/"v.nwb", ("White", "Left", film), ("Black", camera, film))
        rec = read_poses(tmp_path/"v.nwb")
        assert rec.mice == ("Black", "White") and {*rec.parts} == {"nose", "ear_left", "tailBase"}
        order = [rec.parts.index(p) for p in ("nose", "ear_left", "tailBase")]
        assert np.allclose(rec.xy[:, ::-1, order], xy)
    neuroconv_file(tmp_path/"v.nwb", ("White", "Left", None), ("Black", "Right", None))
    with pytest.raises(DataError, match="holds poses of 2 films or cameras"): read_poses(tmp_path/"v.nwb")


def sleap_labels(*films):
    "Two animals on a walk in each film, points missing here and there; and where they are."
    import sleap_io as sio
    skeleton = sio.Skeleton(["nose", "tail"], name="mouse")
    tracks, frames, walks = [sio.Track("A"), sio.Track("B")], [], []
    for seed, name in enumerate(films):
        rng, video = np.random.default_rng(seed), sio.Video(name, open_backend=False)
        xy = rng.standard_normal((40, 2, 2, 2)).cumsum(0) + 50
        xy[rng.random(xy.shape[:3]) < 0.2] = np.nan
        xy[0, 0], xy[[0, 20], 1, 0] = np.nan, 50. # The first animal is not seen at first
        xy[:, 1, 1] = 60. # A point that always is
        frames += [sio.LabeledFrame(video=video, frame_idx=i, instances=[
            sio.PredictedInstance.from_numpy(p, skeleton=skeleton, score=1., track=t)
            for p, t in zip(points, tracks) if np.isfinite(p).any()])
            for i, points in enumerate(xy)]
        walks.append(xy)
    return sio.Labels(frames, skeletons=[skeleton], tracks=tracks), walks


@pytest.mark.parametrize("form", ["sleap", "points", "instances", "frames"])
def test_csv_of_sleap(tmp_path, form):
    sio = pytest.importorskip("sleap_io")
    labels, (xy,) = sleap_labels("v.mp4")
    sio.save_csv(labels, path := tmp_path/"labels.v001.000_day1.analysis.csv", format=form)
    rec = read_poses(path, 25)
    assert rec.mice == ("A", "B") and rec.parts == ("nose", "tail")
    assert rec.meta["source"] == "SLEAP" and open_dataset(path).ids == ("day1",)
    assert np.allclose(rec.xy, xy, equal_nan=True)
    table = pd.read_csv(path)
    pd.concat([table, table[:1]]).to_csv(path, index=False)
    with pytest.raises(DataError, match="frame 0: has an animal twice"): read_poses(path, 25)


@pytest.mark.parametrize("form", ["sleap", "points", "instances", "frames"])
def test_csv_of_sleap_with_frames_without_animals(tmp_path, form):
    sio = pytest.importorskip("sleap_io")
    labels, (xy,) = sleap_labels("v.mp4")
    labels.labeled_frames = [f for f in labels.labeled_frames if f.frame_idx not in (0, 5, 39)]
    xy[[0, 5, 39]] = np.nan
    sio.save_csv(labels, tmp_path/"v.csv", format=form, include_empty=True, end_frame=40)
    rec = read_poses(tmp_path/"v.csv", 25)
    length = 39 if form == "points" else 40 # that has no row of a frame without animals
    assert np.allclose(rec.xy, xy[:length], equal_nan=True) and not rec.findings


def test_a_table_of_deeplabcut_without_its_scorer(tmp_path):
    "As SimBA keeps it in input_csv; and one that was turned over, of which only a sentence can be said."
    whose = [("A", "nose"), ("A", "tail"), ("B", "nose"), ("B", "tail")]
    head = [["individuals", *(a for a, _ in whose for _ in "xy")],
            ["bodyparts", *(p for _, p in whose for _ in "xy")], ["coords", *"xy" * 4]]
    rows = [*head, ["0", *"12345678"]]
    write = lambda rows: (tmp_path/"v1.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    write(rows)
    rec = read_poses(tmp_path/"v1.csv", 25)
    assert rec.mice == ("A", "B") and rec.parts == ("nose", "tail")
    assert rec.xy[0].ravel().tolist() == [*range(1, 9)]
    write([r[:5] for r in rows[1:]])
    assert read_poses(tmp_path/"v1.csv", 25).xy[0].ravel().tolist() == [1, 2, 3, 4]
    write(zip(*rows))
    with pytest.raises(DataError, match="no row 'coords' .* rows and columns exchanged"):
        read_poses(tmp_path/"v1.csv", 25)


def test_scorers_that_pandas_has_numbered_are_one(tmp_path):
    head = "scorer,n,n{},n{},n{}\nbodyparts,nose,nose,tail,tail\ncoords,x,y,x,y\n0,1,2,3,4\n"
    for name, ends in (("saved", (".1", ".2", ".3")), ("plain", ("", "", "")), ("odd", (".1", "", "x"))):
        (tmp_path/f"{name}.csv").write_text(head.format(*ends))
    saved, plain = (read_poses(tmp_path/f"{n}.csv", 25) for n in ("saved", "plain"))
    assert saved.parts == plain.parts == ("nose", "tail")
    assert saved.xy.tolist() == plain.xy.tolist() == [[[[1, 2], [3, 4]]]]
    with pytest.raises(DataError, match="its head"): read_poses(tmp_path/"odd.csv", 25)


def test_a_point_that_was_not_detected_is_missing(tmp_path):
    head = "scorer,n,n,n\nbodyparts,nose,nose,nose\ncoords,x,y,likelihood\n"
    (tmp_path/"v1.csv").write_text(head + "0,-1.0,-1.0,-1.0\n1,5,6,-0.01\n2,-1.0,-1.0,0.9\n")
    xy = read_poses(tmp_path/"v1.csv", 25).xy[:, 0, 0]
    assert np.isnan(xy[0]).all() and xy[1:].tolist() == [[5, 6], [-1, -1]], "smoothed; outside"


@pytest.mark.parametrize("form", ("DeepLabCut", "SLEAP"))
def test_a_point_at_0_0_is_missing_in_every_layout(tmp_path, form):
    "As in Kaggle's, where an animal that is not seen would stand in a corner of the picture."
    points = np.array([[[5, 6], [7, 0]], [[0, 0], [0, 3]]], float) # frames, parts, x and y
    path = tmp_path/("t.csv" if form == "DeepLabCut" else "t.analysis.h5")
    if form == "DeepLabCut":
        dlc_csv(path, {f: np.c_[xy, [0.9, 0.9]].ravel() for f, xy in enumerate(points)}, ("",))
    else:
        with h5py.File(path, "w") as f:
            f["tracks"], f["node_names"] = points.T[None], np.array([b"nose", b"tail"])
            f["track_names"] = np.array([b"a"])
    rec = read_poses(path, fps=30)
    assert np.isnan(rec.xy[1, 0, 0]).all() and rec.xy[1, 0, 1].tolist() == [0, 3]
    assert [(f.kind, f.count) for f in rec.findings] == [("zero_points", 1)]
    assert [f.kind for f in check(rec) if f.kind == "zero_points"] == [] # told once


def test_angles_of_anipose_are_no_video(tmp_path):
    (tmp_path/"angles.csv").write_text("knee,fnum\n1.5,0\n")
    (tmp_path/"v1.csv").write_text("scorer,n,n\nbodyparts,a,a\ncoords,x,y\n0,1,2\n")
    assert open_dataset(tmp_path).ids == ("v1",)


def test_points_that_a_person_set_are_no_video(tmp_path):
    (path := tmp_path/"CollectedData_Jo.csv").write_text(
        "scorer,,,Jo,Jo\nbodyparts,,,nose,nose\ncoords,,,x,y\nlabeled-data,v,img00424.png,1,2\n")
    with pytest.raises(DataError, match="row 4: has names of pictures .* take the file that"):
        read_poses(path, 25)


@pytest.mark.parametrize("rate", [None, 25., 29.97])
def test_nwb_of_sleap(rate, tmp_path):
    from sleap_io.io.nwb_predictions import write_nwb
    labels, (xy,) = sleap_labels("v.mp4")
    write_nwb(labels, str(tmp_path/"v.nwb"), {"session_start_time": datetime.now(UTC)},
              {"video_timestamps": np.arange(len(xy)) / rate} if rate else {})
    if not rate:
        with pytest.raises(DataError, match="does not say its frames per second"):
            read_poses(tmp_path/"v.nwb")
    rec = read_poses(tmp_path/"v.nwb", fps=None if rate else 25)
    assert rec.mice == ("A", "B") and rec.parts == ("nose", "tail")
    assert abs(rec.fps - (rate or 25)) < 1e-3 and len(rec) == len(xy)
    assert np.allclose(rec.xy, xy, equal_nan=True)


@pytest.mark.parametrize("write", [
    lambda t, p: t.astype(bool).to_csv(p, index=False), lambda t, p: t.astype(float).to_csv(p, sep=";", decimal=","),
    lambda t, p: t.astype(bool).map(lambda x: str(x).upper()).to_csv(p)])
def test_a_table_of_frames_as_pandas_and_r_write_it(tmp_path, write):
    write(pd.DataFrame({"groom": [0, 1, 1, 0], "rear": [0, 0, 0, 1]}), tmp_path/"v.csv")
    assert read_frame_table(tmp_path/"v.csv").values.tolist() == [
        ["mouse1", "mouse2", "groom", 1, 3], ["mouse1", "mouse2", "rear", 3, 4]]


@pytest.mark.parametrize("how", [dict(preset="standard"), dict(track_dim=0, node_dim=1, xy_dim=2, frame_dim=3), {}])
def test_sleap_analysis_files_with_their_axes_in_any_order(tmp_path, how):
    sio = pytest.importorskip("sleap_io")
    if not hasattr(sio, "save_analysis_h5"): pytest.skip("sleap-io writes no analysis files yet")
    labels, xy = sleap_labels("a.mp4")
    sio.save_analysis_h5(labels, tmp_path/"v.h5", **how)
    assert np.allclose(read_poses(tmp_path/"v.h5", 30).xy, xy, equal_nan=True)


@pytest.mark.parametrize("write", ["sleap_io", "sleap"])
def test_names_in_sleap_analysis_files_may_have_umlauts(tmp_path, write):
    "The programs write the bytes of UTF-8 and call them ASCII."
    sio = pytest.importorskip("sleap_io")
    if not hasattr(sio, "save_analysis_h5"): pytest.skip("sleap-io writes no analysis files yet")
    labels, (xy,) = sleap_labels("a.mp4")
    labels.tracks[0].name, labels.skeleton.nodes[1].name = "Mäuschen", "Schwanz-Ä"
    sio.save_analysis_h5(labels, tmp_path/"v.h5")
    if write == "sleap":
        with h5py.File(tmp_path/"v.h5", "a") as f:
            for key in ("track_names", "node_names"):
                names = [bytes(n) for n in f[key][:]]
                del f[key]
                f.create_dataset(key, data=names)
    rec = read_poses(tmp_path/"v.h5", 30)
    assert rec.meta["individuals"] == ["Mäuschen", "B"] and rec.parts == ("nose", "Schwanz-Ä")
    assert np.allclose(rec.xy, xy, equal_nan=True)


@pytest.mark.parametrize("every", [True, False])
def test_sleap_files_tell_the_film_where_they_begin_and_its_rate(tmp_path, every):
    sio = pytest.importorskip("sleap_io")
    if not hasattr(sio, "save_analysis_h5"): pytest.skip("sleap-io writes no analysis files yet")
    labels, (xy,) = sleap_labels("a.mp4")
    labels.videos[0].backend_metadata |= {"shape": [50, 480, 640, 1], "fps": 25.0}
    for f in labels.labeled_frames: f.frame_idx += 5
    sio.save_analysis_h5(labels, tmp_path/"v.h5", all_frames=every)
    sio.save_slp(labels, str(tmp_path/"w.slp"))
    film = np.pad(xy, ((5, 5), *3 * [(0, 0)]), constant_values=np.nan)
    for file, frames in (("v.h5", 50), ("w.slp", 45)):
        rec = read_poses(tmp_path/file)
        assert rec.fps == 25 and np.allclose(rec.xy, film[:frames], equal_nan=True)
    with h5py.File(tmp_path/"v.h5", "a") as f: f.attrs["sleap_io_version"] = "0.6.5" # Ended with the last animal
    assert np.allclose(read_poses(tmp_path/"v.h5").xy, film[0 if every else 5:], equal_nan=True)
    with h5py.File(tmp_path/"v.h5", "a") as f: f.attrs["video_backend_metadata"] = '{"shape": "?", "fps": "fast"}'
    with pytest.raises(DataError, match="does not say its frames per second"): read_poses(tmp_path/"v.h5")


def test_deeplabcuts_form_as_sleap_writes_it(tmp_path):
    "Its rows are named by pictures; those that a person has marked are no video."
    sio = pytest.importorskip("sleap_io")
    labels, (xy,) = sleap_labels("a.mp4")
    sio.save_csv(labels, file := tmp_path/"v.csv", format="dlc")
    rec = read_poses(file, 30)
    assert rec.mice == ("A", "B") and np.allclose(rec.xy, xy, equal_nan=True)
    text = file.read_text()
    for old, new, says in (("sleap-io", "anna", "points that a person set"),
                           ("/img0007", "2/img0007", "holds frames of 2 videos")):
        file.write_text(text.replace(old, new))
        with pytest.raises(DataError, match=says): read_poses(file, 30)


def test_nwb_of_two_films_is_refused(tmp_path):
    sio = pytest.importorskip("sleap_io")
    sio.save_nwb(sleap_labels("a.mp4", "b.mp4")[0], str(tmp_path/"v.nwb"))
    with pytest.raises(DataError, match="2 films or cameras"): read_poses(tmp_path/"v.nwb", 30)


def animals_of(data): return next(d for d in data.dims if d.startswith("individual")) # With an s before 0.17


def test_what_movement_saves(tmp_path):
    from movement.io import load_poses
    xy = np.random.default_rng(0).random((6, 2, 3, 2))
    data = load_poses.from_numpy(xy, fps=25., individual_names=["white", "black"],
                                 keypoint_names=list("abc"), source_software="SLEAP")
    data.to_netcdf(tmp_path/"v.nc")
    rec = read_poses(tmp_path/"v.nc")
    assert rec.fps == 25 and rec.mice == ("white", "black") and rec.parts == tuple("abc")
    assert np.allclose(rec.xy, xy.transpose(0, 3, 2, 1))
    (tmp_path/"bad.nc").write_bytes((tmp_path/"v.nc").read_bytes()[:3000])
    with pytest.raises(DataError, match="truncated or no HDF5"): read_poses(tmp_path/"bad.nc")
    data.isel({animals_of(data): 0, "time": slice(2, 4)}).transpose().to_netcdf(tmp_path/"one.nc")
    assert np.array_equal(read_poses(tmp_path/"one.nc").xy[2:], rec.xy[2:4, :1])
    data.isel(space=0).to_netcdf(tmp_path/"x.nc")
    with pytest.raises(DataError, match="expected time, space, keypoints and individuals"):
        read_poses(tmp_path/"x.nc")
    data.position[5] = np.nan
    data.to_netcdf(tmp_path/"small.nc", encoding={"position": {
        "dtype": "int16", "scale_factor": 1e-4, "_FillValue": -32768}})
    small = read_poses(tmp_path/"small.nc").xy
    assert np.isnan(small[5]).all() and np.allclose(
        small, np.asarray(data.position).transpose(0, 3, 2, 1), atol=1e-4, equal_nan=True)
    frames = load_poses.from_numpy(xy, source_software="SLEAP") # whose times are numbers of frames
    frames.attrs["fps"] = 30.
    frames.to_netcdf(tmp_path/"frames.nc")
    assert len(read_poses(tmp_path/"frames.nc")) == 6
    data.isel(time=slice(2, 4)).transpose().to_netcdf(tmp_path/"later.nc")
    assert np.array_equal(read_poses(tmp_path/"later.nc").xy[2:], rec.xy[2:4])


def test_other_kinds_of_netcdf(tmp_path):
    from movement.io import load_bboxes, load_poses
    xy = np.random.default_rng(0).random((6, 2, 3, 2))
    data = load_poses.from_numpy(xy, fps=25., source_software="ours", individual_names=["white", "no 2"],
                                 keypoint_names=["nose", "körper", "tail"])
    for only in (slice(None), 1): # One animal has a name without an axis
        data.isel({animals_of(data): only}).to_netcdf(tmp_path/"v.nc", format="NETCDF4_CLASSIC")
        rec = read_poses(tmp_path/"v.nc") # whose names are letters, as in netCDF 3
        assert rec.parts == ("nose", "körper", "tail") and rec.mice == ("white", "no_2")[-rec.xy.shape[1]:]
        assert np.allclose(rec.xy, xy.transpose(0, 3, 2, 1)[:, -rec.xy.shape[1]:])
    data.to_netcdf(tmp_path/"v.nc", format="NETCDF3_64BIT")
    with pytest.raises(DataError, match="is netCDF 3; save it as netCDF 4"): read_poses(tmp_path/"v.nc")
    load_bboxes.from_numpy(xy[:, :, 0], xy[:, :, 1], fps=25, source_software="ours").to_netcdf(tmp_path/"v.nc")
    with pytest.raises(DataError, match="of boxes around animals"): read_poses(tmp_path/"v.nc")


def test_netcdf_whose_array_is_another(tmp_path):
    "h5netcdf writes past its memory here; we must not."
    from movement.io import load_poses
    load_poses.from_numpy(np.ones((6, 2, 3, 2)), fps=25., source_software="ours").to_netcdf(
        tmp_path/"v.nc")
    with h5py.File(tmp_path/"v.nc", "a") as f:
        del f["position"]
        f["position"] = 0.5
    with pytest.raises(DataError, match="cannot be read as movement"): read_poses(tmp_path/"v.nc")


DLC = "scorer,n,n,n\nbodyparts,a,a,a\ncoords,x,y,likelihood\n"


@pytest.mark.parametrize("name, text, says", [
    ("p.csv", "", "is empty"), ("p.csv", "a,b\n1,2\n", "not recognised"),
    ("p.txt", "x", "not recognised"), ("p.h5", "not hdf", "truncated or no HDF5"),
    ("p.slp", "not hdf", "truncated or no HDF5"),
    ("p.csv", "scorer,net\nbodyparts,nose\n", "no row 'coords'"),
    ("p.csv", "scorer,n,n,n\nbodyparts,a,a,a\ncoords,x,y,likelihood\n0,1,z,1\n", "row 4: a y is 'z', expected a number"),
    ("p.csv", "scorer,n,n,n\nbodyparts,a,a,a\ncoords,x,y,likelihood\n", "p.csv"),
    ("p.csv", "scorer,n,n,n\nbodyparts,a,a,a\ncoords,x,y,likelihood\nimg1.png,1,1,1\n", "p.csv"),
    ("p.csv", DLC + "0,1,1,1\n1,1,1,1\n2,1,\n", "row 6: has 3 of 4 cells: the file is cut off"),
    ("p.csv", DLC + "0,1,1,1\n1,1\n2,1,1,1\n", "row 5: has 2 of 4 cells: the row is damaged"),
    ("p.csv", DLC.replace(",", ";") + "0;1,5;1;1\n1;2,5\n", "row 5: has 2 of 4 cells: the file is cut off"),
    ("p.csv", "fnum,a_x,a_y,a_z,a_score\n0,1,1,1,1\n1,1,1", "row 3: has 3 of 5 cells"),
    ("p.csv", ",a_1_x,a_1_y,a_1_p\n0,1,1,1\n1,1,1", "row 3: has 3 of 4 cells"),
    ("p.csv", DLC + "0,1,1,1\n1,12. Mai,1,1\n", "row 5: a x is '12. Mai', expected a number; a spreadsheet"),
    ("p.csv", DLC + "0,1,1,1\n1,1_0,1,1\n", "row 5: a x is '1_0', expected a number"),
    ("p.csv", DLC + "0,1,1,1\n" + DLC + "1,1,1,1\n", "row 5: the frame is 'scorer', expected a number"),
    ("p.csv", DLC + "0,1,1,1\n,,,\n1,1,1,1\n", "row 5: has no frame number; take out rows that are empty"),
    ("p.csv", DLC + "0,1,1,1\n1e300,1,1,1\n", "frame 1e+300 in a file of 2 rows"),
    ("p.csv", "track,frame_idx,a.x,a.y,a.score\nA,0,1,1,1\nA,1,1,#REF!,1\n", "row 3: a.y is '#REF!', expected a number"),
    ("p.csv", "fnum,a_x,a_y,a_z,a_score\n0,1,1,1,1\n1,1,x,1,1\n", "row 3: a_y is 'x', expected a number"),
    ("p.csv", ",a_1_x,a_1_y,a_1_p\n0,1,1,1\n1,1,1.2.,1\n", "row 3: a_1_y is '1.2.', expected a number")])
def test_pose_faults(tmp_path, name, text, says):
    (tmp_path/name).write_text(text)
    with pytest.raises(DataError, match=name) as e: read_poses(tmp_path/name, fps=30)
    assert says in str(e.value)


TABLES = {"DeepLabCut": DLC + "0,1.5,2.25,0.5\n1,3.5,4.25,1e-05\n",
          "SLEAP": "track,frame_idx,nose.x,nose.y,nose.score\nA,0,1.5,2.25,0.5\nA,1,3.5,4.25,1\n",
          "Anipose": "a_x,a_y,a_z,a_score,fnum\n1.5,2.25,1.0,0.5,0\n3.5,4.25,1.0,0.5,1\n",
          "SimBA": ",a_1_x,a_1_y,a_1_p,speed,sniff\n0,1.5,2.25,1,0.5,0\n1,3.5,4.25,1,0.5,1\n"}


@pytest.mark.parametrize("source", TABLES)
def test_a_table_of_poses_that_a_spreadsheet_has_saved(tmp_path, source):
    plain, path = TABLES[source], tmp_path/"v.csv"
    for text in (plain, plain.replace(",", ";"), plain.replace(",", ";").replace(".", ",") if source != "SLEAP"
                 else plain.replace(",", ";").replace("1.5", "1,5").replace("2.25", "2,25"), "\ufeff" + plain,
                 "\ufeff" + plain.replace(",", ";").replace("\n", "\r\n"), plain.replace(",", "\t"),
                 plain + 3 * (plain.split("\n")[0].count(",") * "," + "\n"), plain + "\n\n",
                 plain if source == "SimBA" else plain.replace("\n", ",,\n"), # emptied beside it
                 plain.replace(",", ";").replace("\n", "\r\n") + 70_000 * ";;;;;\r\n" + '"";"";'):
        path.write_text(text, newline="")
        rec = read_poses(path, fps=30)
        assert rec.meta["source"] == source and rec.xy.tolist() == [[[[1.5, 2.25]]], [[[3.5, 4.25]]]]
        if source == "SimBA": assert read_simba(path).values.tolist() == [["mouse1", "mouse2", "sniff", 1, 2]]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_texts_as_a_spreadsheet_of_windows_saves_them(tmp_path, encoding):
    "\"Unicode text\" is UTF-16 with tabs, plain CSV has the umlauts of the country's code page."
    def write(name, text):
        (tmp_path/name).write_bytes(text.replace("\n", "\r\n").encode(encoding))
        return tmp_path/name
    for source, text in TABLES.items():
        text = text.replace("nose", "Füße").replace("a_1", "Füße_1").replace("a_", "Füße_").replace("a,a,a", "Füße,Füße,Füße")
        rec = read_poses(write("v.csv", text.replace(",", "\t" if encoding != "cp1252" else ";")), fps=30)
        assert rec.meta["source"] == source and rec.parts == ("Füße",)
        assert rec.xy.tolist() == [[[[1.5, 2.25]]], [[[3.5, 4.25]]]]
    boris = "Subject;Behavior;Status;Time\nm;schnüffeln;START;1,5\nm;schnüffeln;STOP;2\n"
    for name, text in ("v.txt", boris), ("v.csv", boris.replace("Status;Time", "Start (s);Stop (s)").replace(
            "START;1,5\nm;schnüffeln;STOP;", "1,5;")):
        assert annotation_source(write(name, text)) == "BORIS"
        assert read_boris(tmp_path/name, 10).values.tolist() == [["m", "m", "schnüffeln", 15, 20]]
    assert annotation_source(write("v.csv", ";rück;läuft\n0;0;1\n1;1;0\n")) == "frames"
    assert read_frame_table(tmp_path/"v.csv").action.tolist() == ["läuft", "rück"]
    assert annotation_source(write("v.csv", "time;läuft\n0,0;0\n0,1;1\n0,2;0\n")) == "steps"
    assert read_step_table(tmp_path/"v.csv", 10).values.tolist() == [["mouse1", "mouse2", "läuft", 1, 2]]
    assert annotation_source(write("v.csv", "agent;action;start;stop\nGrün;läuft;1,5;2\n")) == "bouts"
    assert read_bout_table(tmp_path/"v.csv", 10).values.tolist() == [["Grün", "", "läuft", 15, 20]]
    assert read_groups(write("g.csv", "video;Gruppe\nv;für µ 20 °C\n")).Gruppe.tolist() == ["für µ 20 °C"]


@pytest.mark.parametrize("text", [
    "нюхает".encode("cp1251"), "οσμή".encode("cp1253"), "wąchać".encode("cp1250"), "renifle là".encode("cp1252"),
    "schnüffeln".encode("cp850"), "schnüffeln".encode("mac-roman"), "groß".encode("mac-roman"),
    "嗅".encode("gbk"), "嗅ぐ".encode("shift-jis"), "mouse嗅".encode("gbk"), b"\xff\xfe", b"\xff\xfea", "läuft".encode("utf-32")])
def test_letters_of_which_nothing_tells_the_code_page_are_not_guessed(tmp_path, text):
    (tmp_path/"v.csv").write_bytes(b"agent,action,start,stop\n" * (text[0] != 0xff) + b"m," * (text[0] != 0xff) + text)
    assert annotation_source(tmp_path/"v.csv") is None
    with pytest.raises(DataError, match="is not text in UTF-8"): read_bout_table(tmp_path/"v.csv", 10)
    with pytest.raises(DataError): read_poses(tmp_path/"v.csv", 10)
    assert "is no text in UTF-8" in why_odd(tmp_path/"v.csv")


def test_excel_leaves_out_commas_where_the_last_columns_of_sixteen_rows_are_empty(tmp_path):
    head = ["scorer" + 6 * ",n", "individuals,a,a,a,b,b,b", "bodyparts" + 6 * ",nose", "coords" + 2 * ",x,y,likelihood"]
    rows = [f"{f},{f}.5,2,0.9,{f}.25,4,0.8" for f in range(60)]
    for f in (*range(20, 44), *range(52, 60)): rows[f] = f"{f},{f}.5,2,0.9,,," # b is not seen
    def excel(cut=()): # rows 1 to 16 of the sheet, 17 to 32, ...
        lines, out = head + rows, []
        for k in range(0, len(lines), 16):
            gone = all(x.endswith(",,,") for x in lines[k:k + 16])
            out += [x[:-3] if gone else x for x in lines[k:k + 16]]
        for i in cut: out[i] = ",".join(out[i].split(",")[:-1])
        (tmp_path/"v.csv").write_text("\n".join(out) + "\n")
        return read_poses(tmp_path/"v.csv", 30)
    rec, lines = excel(), (tmp_path/"v.csv").read_text().split("\n")
    assert {len(x.split(",")) for x in lines[32:48]} == {4} and len(lines[31].split(",")) == 7
    (tmp_path/"w.csv").write_text("\n".join(head + rows) + "\n")
    assert np.array_equal(rec.xy, read_poses(tmp_path/"w.csv", 30).xy, equal_nan=True)
    assert rec.mice == ("a", "b") and np.isnan(rec.xy[20:44, 1]).all() and np.isfinite(rec.xy[44:52, 1]).all()
    for i, why in (40, "row 41: has 3 of 7 cells: the row is damaged"), (10, "row 11: has 6 of 7"), (63, "the file is cut off here"):
        with pytest.raises(DataError, match=why): excel([i])
    rows[47] += ",1" # not what Excel does: a block of two kinds of rows
    rows[29] = "29,29.5,2,0.9"
    (tmp_path/"v.csv").write_text("\n".join(head + rows) + "\n")
    with pytest.raises(DataError, match="row 34: has 4 of 7 cells"): read_poses(tmp_path/"v.csv", 30)


@pytest.mark.parametrize("source", TABLES)
def test_points_in_a_table_that_is_not_called_csv_are_told(tmp_path, source):
    "Excel's Unicode text ends in .txt."
    for name, encoding in ("v.txt", "utf-16"), ("v.tsv", "utf-8"):
        (tmp_path/name).write_bytes(TABLES[source].replace(",", "\t").encode(encoding))
        assert why_odd(tmp_path/name) == f"holds points of {source}; name it .csv"
    (tmp_path/"v.txt").write_text("notes,of\nthe day\n")
    assert why_odd(tmp_path/"v.txt") is None


def test_numbers_in_a_column_without_a_name_are_refused(tmp_path):
    (tmp_path/"v.csv").write_text(DLC.replace("\n", ",\n") + "0,1,1,1,\n1,1,1,1,7\n")
    with pytest.raises(DataError, match="its head: has numbers in a column without a name"):
        read_poses(tmp_path/"v.csv", 30)


def test_a_table_of_frames_that_a_spreadsheet_has_saved(tmp_path):
    for text in ("\ufeff;sniff;rear\n0;0;1\n1;1;0\n", "sniff\trear\n0\t1\n1\t0\n", "sniff,rear\n0,1\n1,0\n,\n,\n",
                 "\ufeff;sniff;rear\r\n0;0;1\r\n1;1;0\r\n;;\r\n;;", ",sniff,rear,,\n0,0,1,,\n1,1,0,,\n"):
        (tmp_path/"v.csv").write_text(text)
        assert annotation_source(tmp_path/"v.csv") == "frames"
        assert read_frame_table(tmp_path/"v.csv").values.tolist() == [
            ["mouse1", "mouse2", "rear", 0, 1], ["mouse1", "mouse2", "sniff", 1, 2]]


@pytest.mark.parametrize("frames, says", [
    ({0: 1, 10**9: 1}, "expected frame numbers of one video"), ({-1: 1, 0: 1}, "whole numbers"),
    ({0.5: 1, 1: 1}, "whole numbers")])
def test_pose_frame_numbers(tmp_path, frames, says):
    path = dlc_csv(tmp_path/"f.csv", {f: [1, 2, 1] * 4 for f in frames})
    with pytest.raises(DataError, match=says): read_poses(path, fps=30)


def test_pose_settings(tmp_path):
    path = dlc_csv(tmp_path/"f.csv", {0: [1, 2, 1] * 4})
    with pytest.raises(ConfigError, match="DeepLabCut"): read_poses(path, 30, "DeepLabcut")
    for fps in (0, -1, np.nan, "fast"):
        with pytest.raises(ConfigError, match="fps"): read_poses(path, fps)
        with pytest.raises(ConfigError, match="px_per_cm must be"): read_poses(path, 30, px_per_cm=fps)
    with pytest.raises(DataError, match="file not found"): read_poses(tmp_path/"no.csv", 30)
    with pytest.raises(DataError, match="video_id"): read_poses(path, 30, video_id="../x")
    with h5py.File(tmp_path/"big.h5", "w") as f:
        f.create_dataset("tracks", (10**6, 10**6), "f8", chunks=(10, 10))
    with pytest.raises(DataError, match="announces more"): read_poses(tmp_path/"big.h5", 30)
    with h5py.File(tmp_path/"none.h5", "w") as f:
        f["node_names"], f["tracks"] = [b"nose"], np.ones((1, 2, 1, 4))
        f["track_names"] = [b"t"]
    assert read_poses(tmp_path/"none.h5", 30).mice == ("t",)
    with pytest.raises(DataError, match="no confidences"):
        read_poses(tmp_path/"none.h5", 30, min_confidence=0.5)


# Bouts of scoring programs

def test_real_caltech_equals_kaggle_table():
    bouts = read_caltech(real("poses/rat_1.caltech.txt"), channels=["S1"])
    table = pd.read_parquet(DATA/"rats"/"train_annotation"/"RatSocial"/"1.parquet")
    assert bouts.action.tolist() == table.action.tolist() and len(bouts) == 68
    assert (bouts.start - 535).tolist() == table.start_frame.tolist() # cropped there
    assert (bouts.stop - 535).tolist() == table.stop_frame.tolist()
    fights = read_caltech(DATA/"poses"/"rat_1.caltech.txt", channels=["S2"])
    table = pd.read_parquet(DATA/"rat_fights"/"train_annotation"/"RatFight"/"1001.parquet")
    assert (fights.start - 535).tolist() == table.start_frame.tolist()


def test_real_boris_joined_to_its_poses():
    bouts = read_boris(real("poses/ethome_two_mice.boris.csv"), target="juvenile")
    rec = with_bouts(read_poses(DATA/"poses"/"ethome_two_mice.dlc.csv", fps=30), bouts)
    assert len(bouts) == 10 and set(bouts.action) == {"interact"} and not rec.findings
    near = np.linalg.norm(rec.xy[:, 0, 0] - rec.xy[:, 1, 0], axis=-1)
    seen = frame_labels(rec, "adult", "juvenile", ["interact"])[:, 0] == 1
    assert near[seen].mean() < 0.7 * near[~seen].mean() # who interacts is close


HEAD = "Time,Media file path,Total length,FPS,Subject,Behavior,Comment,Status"


def boris(tmp_path, *rows, head=HEAD):
    (tmp_path/"b.csv").write_text("\n".join(("Observation id,x", "", head, *rows)))
    return tmp_path/"b.csv"


times = st.lists(st.integers(0, 10_000), min_size=2, max_size=12, unique=True).map(sorted)


@settings(max_examples=30, deadline=None)
@given(times, st.sampled_from([10, 25, 29.97, 120]))
def test_boris_round_trip(tmp_path_factory, frames, fps):
    frames = frames[:len(frames) // 2 * 2]
    rows = [f"{f / fps:.4f},v,9,{fps},m,a,,{s}" for f, s in zip(
        frames, ["START", "STOP"] * len(frames))]
    bouts = read_boris(boris(tmp_path_factory.mktemp("b"), *rows))
    assert bouts[["start", "stop"]].values.ravel().tolist() == frames
    assert set(bouts.agent) == set(bouts.target) == {"m"}


@pytest.mark.parametrize("rows, says", [
    (["1,v,9,30,m,a,,START"], "row 4: START of 'a' at 1 s has no STOP"),
    (["1,v,9,30,m,a,,STOP"], "row 4: status 'STOP'"),
    (["1,v,9,30,m,a,,START", "2,v,9,30,m,a,,START"],
     "row 5: status 'START' of 'a' fits no bout, 2 s: one of m at 1 s has no STOP (row 4); expected"),
    (["2,v,9,30,m,a,,START", "1,v,9,30,m,a,,STOP"], "row 5: status 'STOP'"),
    (["1,v,9,30,m,a,,MAYBE"], "row 4: status 'MAYBE'"),
    (["x,v,9,30,m,a,,POINT"], "row 4: Time is 'x'"),
    (["-1,v,9,30,m,a,,POINT"], "row 4: Time is '-1'"),
    (["1e300,v,9,30,m,a,,POINT"], "row 4: Time is"),
    (["nan,v,9,30,m,a,,POINT"], "row 4: Time is"),
    (["1,v,9,0,m,a,,POINT"], "row 4: FPS is 0"),
    (["1,v,9,,m,a,,POINT"], "row 4: does not say its frames per second"),
    (["1,v,9,30,,a,,POINT"], "row 4: names no subject"),
    ([], "row 3: has a header but no rows")])
def test_boris_faults(tmp_path, rows, says):
    with pytest.raises(DataError, match="b.csv") as e: read_boris(boris(tmp_path, *rows))
    assert says in str(e.value)


def test_boris_other_exports(tmp_path):
    head = "Observation id,FPS (frame/s),Subject,Behavior,Behavior type,Start (s),Stop (s)"
    rows = ["a,25,m,rear,STATE,1,2", "b,25,m,rear,STATE,2,3"]
    path = boris(tmp_path, *rows, head=head)
    with pytest.raises(DataError, match="observations a, b"): read_boris(path)
    assert read_boris(path, observation="b").start.tolist() == [50]
    with pytest.raises(DataError, match="observations"): read_boris(path, observation="c")
    with pytest.raises(DataError, match="stops before"):
        read_boris(boris(tmp_path, "a,25,m,rear,STATE,3,2", head=head))
    with pytest.raises(DataError, match="expected a BORIS export"):
        read_boris(boris(tmp_path, "1,2", head="a,b"))
    (tmp_path/"b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not text"): read_boris(tmp_path/"b.csv")


def test_decimal_commas_of_a_boris_table_that_a_spreadsheet_saved(tmp_path):
    rows = ("1,5;v;9;29,97;m;a;;START", "2,5;v;9;29,97;m;a;;STOP")
    path = boris(tmp_path, *rows, head=HEAD.replace(",", ";"))
    assert read_boris(path).values.tolist() == [["m", "m", "a", 45, 75]]
    path.write_text(path.read_text().replace("id,x", "id;x\nTime offset (s);0,5"))
    assert read_boris(path).values.tolist() == [["m", "m", "a", 30, 60]]


CALTECH = "Caltech Behavior Annotator - Annotation File\n\nS1:\tstart\tend\ttype\n----\n"
BENTO = "Bento annotation file\n{}\nCh1----------\n>a\nStart\tStop\tDuration\n"


@pytest.mark.parametrize("text, says", [
    ("", "row 1: begins neither"), ("hello", "row 1: begins neither"),
    (CALTECH, "holds no bouts"), (CALTECH + "1 2\n", "row 5: expected start"),
    (CALTECH + "0 2 a\n", "row 5: frames 0 to 2"), (CALTECH + "3 2 a\n", "row 5: frames 3"),
    (CALTECH + "1.5 2 a\n", "row 5: frames 1.5"), (CALTECH + "x 2 a\n", "row 5: frame is"),
    (BENTO.format("") + "1.0 2.0 1.0\n", "give fps="), (BENTO.format("") + "1\n", "row 6"),
    (BENTO.format("Annotation framerate: x") + "1 2 2\n", "row 2: framerate is 'x'"),
    (BENTO.format("") + "5 2 2\n", "row 6: frames 5 to 2")])
def test_caltech_faults(tmp_path, text, says):
    (tmp_path/"c.txt").write_text(text)
    with pytest.raises(DataError, match="c.txt") as e: read_caltech(tmp_path/"c.txt")
    assert says in str(e.value)


@pytest.mark.parametrize("head, fps, window", [
    ("Annotation start frame: 1\nAnnotation stop frame: 20", None, (0, 20)),
    ("Annotation start time: 3.33e-02\nAnnotation stop time: 2.5e+00\nAnnotation framerate: 30.0",
     None, (0, 75)),
    ("Annotation start time: 1.0\nAnnotation stop time: 2.5\nAnnotation framerate: 30.0", 60, (59, 150)),
    ("Annotation start time: 1.0\nAnnotation stop time: 2.5", None, None),
    ("Annotation stop time: 2.5\nAnnotation framerate: 30.0", None, None)])
def test_where_bento_says_that_somebody_looked(tmp_path, head, fps, window):
    (tmp_path/"c.annot").write_text(BENTO.format(head) + "1.0\t2.0\t1.0\n")
    assert scored_window(tmp_path/"c.annot", fps) == window


def test_channels_and_agents(tmp_path):
    (tmp_path/"c.annot").write_text(
        BENTO.format("Annotation framerate: 30") + "11 20 10\n\n>other\n1 5 5\n\nCh2-----\n>b\n1 5 5\n")
    bouts = read_caltech(tmp_path/"c.annot", "x", "y")
    assert bouts.values.tolist() == [["x", "y", "b", 0, 5], ["x", "y", "a", 10, 20]]
    assert read_caltech(tmp_path/"c.annot", channels=["Ch1"]).action.tolist() == ["a"]
    with pytest.raises(DataError, match="Ch1"): read_caltech(tmp_path/"c.annot", channels=["3"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(-20, 60), st.integers(1, 40)), max_size=6))
def test_with_bouts_cuts_to_the_video(spans):
    rec = Recording(np.zeros((50, 2, 1, 2), np.float32), ("a", "b"), ("nose",), 30)
    table = bout_table(("a", "b", "x", s, s + n) for s, n in spans)
    out = with_bouts(rec, table)
    frames = {f for s, n in spans for f in range(s, s + n)} & set(range(50))
    spans_out = out.bouts[["start", "stop"]].values
    assert {f for s, e in spans_out for f in range(s, e)} == frames
    assert ((spans_out >= 0) & (spans_out <= 50)).all()
    assert (spans_out[:, 0] < spans_out[:, 1]).all()
    beyond = sum(s < 0 or s + n > 50 for s, n in spans)
    assert sum(f.count for f in out.findings) == beyond
    assert {f.kind for f in out.findings} <= set(KINDS)
    assert out.labelled == ({("a", "b", "x")} if spans else set())
    with pytest.raises(DataError, match="'c'"):
        with_bouts(rec, bout_table([("c", "a", "x", 0, 1)]))


# frames that nobody scored

WINDOW = CALTECH + "\t1\t10\tbase\n\t11\t20\ta\n\t21\t30\tbase\n\t31\t35\tb\n\t36\t50\tbase\n"
HEADED = BENTO.format("Annotation start frame: 5\nAnnotation stop frame: 40\n") + "11\t20\t10\n"


@pytest.mark.parametrize("text, window", [
    (WINDOW, (10, 35)), (CALTECH + "\t1\t50\tbase\n", (0, 0)), (HEADED, (4, 40)),
    (BENTO.format("") + "11\t20\t10\n", None), ("Time,Subject,Behavior\n1,a,b\n", None)])
def test_the_scored_window_of_a_file(tmp_path, text, window):
    (tmp_path/"a.txt").write_text(text)
    assert scored_window(tmp_path/"a.txt") == window


def test_what_was_not_scored_is_unknown_and_said(tmp_path):
    from mabe_nb.data.cache.prepare import prepare
    from mabe_nb.data.dataset import RecordingList
    from mabe_nb.data.recording import frame_labels
    from mabe_nb.data.synthetic import make_recording
    (tmp_path/"a.txt").write_text(WINDOW)
    bouts = read_caltech(tmp_path/"a.txt")
    plain = with_bouts(make_recording(0, 60), bouts)
    rec = with_bouts(make_recording(0, 60), bouts, scored=scored_window(tmp_path/"a.txt"))
    y, all_known = (frame_labels(r, "mouse1", "mouse2", ["a", "b"]) for r in (rec, plain))
    assert (y[:10] == -1).all() and (y[35:] == -1).all() and (y[10:35] == all_known[10:35]).all()
    assert (all_known >= 0).all() and {f.kind: f.count for f in rec.findings} == {"not_scored": 35}
    for r, want in ((rec, y), (plain, all_known)):
        done = prepare(RecordingList([r]), "coords", tmp_path/"cache", progress=False)
        assert (done.labels(0, ["a", "b"]) == want).all(), "one changes the other in the cache"


FRAMES = ",background,groom,chase\n" + "".join(
    f"{i},{a}\n" for i, a in enumerate(["-1,-1,-1"] * 2 + ["1,0,0"] * 3 + ["0,1,0"] * 4
                                       + ["0,1,1"] * 2 + ["-1,-1,-1"]))


def test_a_table_of_frames(tmp_path):
    path = tmp_path/"v.csv"
    path.write_text(FRAMES)
    assert annotation_source(path) == "frames" and scored_window(path) == (2, 11)
    want = [("mouse1", "mouse2", "groom", 5, 11), ("mouse1", "mouse2", "chase", 9, 11)]
    assert read_frame_table(path).values.tolist() == [[*w] for w in want]
    path.write_text("rear\n0.0\n1.0\n1.0\n") # daart's numbers, no first column
    assert read_frame_table(path, "m", "m").values.tolist() == [["m", "m", "rear", 1, 3]]


def test_a_bout_where_another_action_was_not_looked_at_is_told(tmp_path):
    path = tmp_path/"v.csv"
    path.write_text("background,groom,chase\n0,1,-1\n1,0,-1\n0,1,0\n-1,-1,-1\n")
    with pytest.warns(LabNote, match="v.csv marks an action in 1 frame with -1 for another"):
        assert read_frame_table(path).values.tolist() == [["mouse1", "mouse2", "groom", 2, 3]]
    path.write_text(FRAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_frame_table(path)


@pytest.mark.parametrize("text, words", [
    ("a,b\n" + "0,1\n" * 30 + "0,2\n", "row 32: expected 2 cells"),
    ("a,b\n" + "0,1\n" * 30 + "0\n", "row 32: expected 2"), ("a,b\n0,7\n", "is no table"),
    ("a\n-1\n", "no frame that somebody"), ("a\n0\n-1\n1\n", "row 3: has frames with -1"),
    ("0,1\n0,1\n", "is no table"), ("", "is no table"), ("a\n", "is no table"),
    (",a,b\n" + "".join(f"{i},0,1\n" for i in range(30)) + ",,\n30,0,1\n", "row 32: expected 2 cells"),
    ("a,a\n0,1\n", "row 1: has two columns 'a'")])
def test_bad_tables_of_frames(tmp_path, text, words):
    (tmp_path/"v.csv").write_text(text)
    with pytest.raises(DataError, match=words): read_frame_table(tmp_path/"v.csv")


def test_a_folder_with_a_table_of_frames_trains_as_it_lies(tmp_path):
    import shutil
    from mabe_nb.data.dataset import open_dataset
    shutil.copy(real("poses/rat_1.dlc.csv"), tmp_path/"rat_1.dlc.csv")
    n = sum(1 for _ in open(tmp_path/"rat_1.dlc.csv")) - 4
    rows = ["-1,-1"] * 100 + ["0,1"] * 50 + ["1,0"] * (n - 150)
    (tmp_path/"rat_1_labels.csv").write_text("\n".join(["background,chase", *rows]) + "\n")
    (tmp_path/"dataset.yaml").write_text("fps: 30\nagent: individual1\nalone: []\n")
    rec = next(iter(open_dataset(tmp_path)))
    assert rec.scored[0] == 100 and rec.bouts.values.tolist()[0][2:] == ["chase", 100, 150]

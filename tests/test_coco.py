"Keypoints in JSON: what sleap-io, AlphaPose 0.6 and MMPose 1.3 write; and files of programs that are not read."
import json, re

import h5py
import numpy as np
import pytest
from test_open_folder import recording, write_dlc

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.poses import pose_source, read_poses
from mabe_nb.errors import DataError


def write(path, tree):
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return path


# As `pPose_nms.write_json` of AlphaPose and `demo/topdown_demo_with_mmdet.py` of MMPose do

def person(frame, idx, x=1.0, sure=0.9):
    return {"image_id": f"{frame}.jpg", "category_id": 1, "score": 2.5, "box": [0, 0, 9, 9], "idx": idx,
            "keypoints": [x, 2.0, sure, x + 1, 4.0, 0.5]}


def mmpose(*counts, names=None):
    animal = {"keypoints": [[1, 2], [3, 4]], "keypoint_scores": [0.9, 0.5], "bbox": [[0, 0, 9, 9]], "bbox_score": 0.9}
    frames = [{"frame_id": k + bool(names), "instances": [animal] * n} for k, n in enumerate(counts)]
    return {"meta_info": {"keypoint_id2name": names}, "instance_info": frames} if names else frames


def coco(frames, rows, kinds=(("mouse", ["nose", "tail"]),)):
    return {"images": [{"id": k + 5, "file_name": f"frame_{k:06d}.PNG"} for k in frames],
            "annotations": [{"id": i, "image_id": k + 5, "category_id": 1, "keypoints": points, **more}
                            for i, (k, points, more) in enumerate(rows)],
            "categories": [{"id": i, "name": n, "keypoints": p} for i, (n, p) in enumerate(kinds, 1)]}


def test_coco_of_sleap_io_holds_what_sleap_io_reads(tmp_path):
    sio, rng = pytest.importorskip("sleap_io"), np.random.default_rng(0)
    bones = sio.Skeleton(["nose", "neck", "tail"])
    film = sio.Video("v1.mp4", backend_metadata={"shape": (9, 480, 640, 1)}, open_backend=False)
    tracks, frames = [sio.Track("a"), sio.Track("b")], []
    for k in range(9):
        points = rng.random((2, 3, 2)) * 400 + 1
        points[1, 2] = np.nan
        frames.append(sio.LabeledFrame(film, k, [
            sio.PredictedInstance.from_numpy(p, skeleton=bones, point_scores=np.ones(3), score=1.0, track=t)
            for p, t in zip(points, tracks) if k != 4 or t is tracks[0]]))
    sio.save_coco(sio.Labels(frames, [film], [bones], tracks), path := tmp_path/"v1.json")
    for k in range(9): (tmp_path/f"v1_frame_{k:06d}.png").touch() # without it sleap-io reads nothing
    rec, theirs = read_poses(path, 30), sio.load_coco(path)
    assert len(theirs) == 9
    assert pose_source(path) == "COCO" and rec.parts == ("nose", "neck", "tail") and rec.mice == ("mouse1", "mouse2")
    for k, frame in enumerate(theirs.labeled_frames):
        for one in frame.instances:
            who = rec.mice.index("mouse" + one.track.name.removeprefix("track_"))
            assert np.allclose(rec.xy[k, who], one.numpy()[:, :2], atol=1e-3, equal_nan=True)
    assert np.isnan(rec.xy[4, 1]).all() and np.isnan(rec.xy[:, 1, 2]).all() and np.isfinite(rec.xy[:, 0]).all()


def test_coco_of_cvat_with_frames_without_animals(tmp_path):
    rows = [(0, [1, 2, 2, 3, 4, 0], {"attributes": {"track_id": 7}}), (2, [5, 6, 1, 7, 8, 2], {"attributes": {"track_id": 7}}),
            (2, [5, 5, 2, 5, 5, 2], {"attributes": {}})]
    rec = read_poses(write(tmp_path/"v1.json", coco(range(4), rows)), 25)
    assert len(rec) == 4 and rec.mice == ("mouse7",)
    assert rec.xy[2, 0].tolist() == [[5, 6], [7, 8]] and np.isnan(rec.xy[[0, 1, 3], 0, 1]).all()
    assert [(f.kind, f.count) for f in rec.findings] == [("animals_without_track", 1)]


def test_results_of_alphapose_are_called_as_their_folder(tmp_path):
    for name in ("day1", "day2"):
        (tmp_path/name).mkdir()
        write(tmp_path/name/"alphapose-results.json", [person(k, i, 10 * i + k) for k in range(30) for i in (1, 2)])
    (tmp_path/"day1.csv").write_text("agent,target,action,start,stop\nmouse1,mouse2,chase,0.1,0.3\n")
    (tmp_path/"dataset.yaml").write_text("fps: 50\n")
    data = open_dataset(tmp_path)
    rec = data["day1"]
    assert data.ids == ("day1", "day2") and rec.mice == ("mouse1", "mouse2") and len(rec.bouts) == 1
    assert rec.xy[3, 1].tolist() == [[23, 2], [24, 4]] and rec.parts == ("point1", "point2")
    least = read_poses(tmp_path/"day1"/"alphapose-results.json", 50, min_confidence=0.8)
    assert np.isnan(least.xy[:, :, 1]).all() and np.isfinite(least.xy[:, :, 0]).all()


@pytest.mark.parametrize("idx", [0.0, [0.0]])
def test_one_animal_that_alphapose_did_not_track(tmp_path, idx):
    assert len(read_poses(write(tmp_path/"v1.json", [person(0, idx), person(4, idx)]), 30)) == 5
    with pytest.raises(DataError, match="frame 4: has several animals .*--pose_track"):
        read_poses(write(tmp_path/"v2.json", [person(4, idx), person(4, idx)]), 30)


@pytest.mark.parametrize("names", [None, {"0": "nose", "1": "tail"}])
def test_what_mmpose_writes_begins_at_the_first_frame(tmp_path, names):
    rec = read_poses(write(tmp_path/"v1.json", mmpose(1, 0, 1, names=names)), 30)
    assert rec.xy[2, 0].tolist() == [[1, 2], [3, 4]] and np.isnan(rec.xy[1]).all() and len(rec) == 3
    assert rec.parts == (("nose", "tail") if names else ("point1", "point2"))


GOOD = [(k, [1, 2, 2, 3, 4, 2], {}) for k in range(3)]


@pytest.mark.parametrize("tree, words", [
    (coco([0, 900], GOOD[:1]), "v1.json: has 2 pictures of 901 frames: points that a person set"),
    ({**coco(range(3), GOOD), "images": [{"id": 5, "file_name": "a_1.png"}, {"id": 6, "file_name": "b_2.png"}]},
     "v1.json: has pictures that are not the numbered frames of one video"),
    (coco(range(3), GOOD, (("a", ["x"]), ("b", ["y"]))), "2 kinds of animals with keypoints"),
    (coco(range(1), GOOD), r"no whole list of keypoints \(KeyError: 6\)"),
    (coco(range(3), [*GOOD[:2], (2, [1, 2, 2], {})]), "frame 2: has 3 numbers for an animal, expected 6"),
    (coco(range(3), [*GOOD[:2], (2, ["a"] * 6, {})]), "keypoints that are no numbers"),
    (coco(range(3), [*GOOD, GOOD[0]]), "frame 0: has several animals that no track tells apart"),
    (json.dumps(coco(range(3), GOOD))[:-9], "broken JSON"),
    ([person(10**8, 1)], "frame 100000000 in a file of 1 rows"),
    ([person(0, k) for k in range(101)], "101 tracks"),
    (mmpose(1, 2), "frame 1: has several animals"),
    ([{"frame_id": 0, "instances": [{"keypoints": [[1, 2]], "keypoint_scores": []}]}], "no whole list of keypoints")])
def test_faults_of_keypoints_in_json(tmp_path, tree, words):
    with pytest.raises(DataError, match=words): read_poses(write(tmp_path/"v1.json", tree), 30)


def test_a_number_that_is_none_is_a_missing_point(tmp_path):
    text = json.dumps([person(0, 1), person(1, 1)]).replace("[1.0,", "[NaN,", 1)
    rec = read_poses(write(tmp_path/"v1.json", text), 30)
    assert np.isnan(rec.xy[0, 0, 0]).all() and np.isfinite(rec.xy[1]).all()


@pytest.mark.parametrize("name, text, words", [
    ("v1.json", '{"behavior": {}, "window_sizes": [5]}', "the settings of a JABS project"),
    ("v1.json", '[{"annotations": [{"result": [{"original_width": 640}]}]}]', "set in Label Studio; take the file"),
    ("v1.json", '{"version": 1.3, "people": [{"pose_keypoints_2d": []}]}', "one frame of OpenPose; write all"),
    ("v1.json", json.dumps(coco([0, 900], GOOD[:1])), "2 pictures of 901 frames"),
    ("v1.csv", "syllable,centroid x,centroid y,heading,latent_state 0\n7,1,2,0,1\n", "syllables of keypoint-MoSeq"),
    ("v1.csv", ",B-SOiD labels,Start time (frames),Run lengths\n0,3,0,9\n", "clusters of B-SOiD"),
    ("v1.csv", ",a_b_nose2nose,a_b_sidebyside,a_speed\n0,1,0,2.5\n", "DeepOF took each frame for, which nobody"),
    ("v1.csv", "LABEL,ID,TRACK_ID,POSITION_X,FRAME\nID1,1,0,3.5,0\n", "of TrackMate; keep one row of names"),
    ("v1_9.txt", "0 0.5 0.4 0.1 0.2 0.5 0.4 0.99 1\n", "one frame of YOLO, in shares of the picture; write all"),
    ("v1.xml", "<annotations><version>1.1</version><meta></meta></annotations>", "export it there as COCO Keypoints"),
    ("v1.pkl", "\x80cdeepof.data\nCoordinates", "a project of DeepOF"),
    ("15_kmeans_label_v1.npy", "1", "of VAME, whose motifs nobody scored"),
    ("all_events.xlsx", "PK", "LabGym took each frame for, which nobody"),
    ("v1.odx", "<x/>", "the Observer; export its event log as CSV, with .*Time_Relative_sf"),
    ("v1.anvil", "<x/>", "is of ANVIL; a table of bouts"), ("v1.jab", "MATLAB", "project of JAABA; its scores")])
def test_files_of_other_programs_are_named(tmp_path, name, text, words):
    write(tmp_path/name, text)
    with pytest.raises(DataError, match=words if name.endswith((".json", ".csv", ".txt")) else "is no dataset"):
        open_dataset(tmp_path)
    write_dlc(tmp_path, "v1", recording(seed=0))
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    (found,) = open_dataset(tmp_path).findings()
    assert re.search(words, found.message) and found.message.endswith("not read")


def test_one_sentence_on_all_files_of_a_kind(tmp_path):
    "YOLO writes one file a frame; an ending that many programs have says nothing by itself."
    write_dlc(tmp_path, "v1", recording(seed=0))
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    for k in range(30): (tmp_path/f"v1_{k}.txt").write_text("0 0.5 0.4 0.1 5e-05 0.5 0.4 2\n")
    for name in ("settings.xml", "model.pkl"): (tmp_path/name).write_text("<annotations>mine</annotations>")
    (found,) = open_dataset(tmp_path).findings()
    assert found.message.startswith("v1_0.txt is one frame of YOLO")
    assert found.message.endswith("not read; nor are 29 more .txt beside it")


def test_a_folder_of_yolo_alone_is_named(tmp_path):
    for k in range(3):
        (labels := tmp_path/"runs"/"pose"/"labels").mkdir(parents=True, exist_ok=True)
        (labels/f"v1_{k}.txt").write_text("0 0.5 0.4 0.1 5e-05 0.5 0.4 2\n")
    (tmp_path/"notes.txt").write_text("nothing\n")
    with pytest.raises(DataError, match="runs/pose/labels/v1_0.txt is one frame of YOLO.*write all as one CSV") as e:
        open_dataset(tmp_path)
    assert str(e.value).count("YOLO") == 1


def test_hdf_of_other_programs_is_named(tmp_path):
    "As `save_hdf5` of keypoint-MoSeq 0.8 and the annotator of DeepPoseKit 0.3 write."
    write_dlc(tmp_path, "v1", recording(seed=0))
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    with h5py.File(tmp_path/"results.h5", "w") as f:
        for key in ("syllable", "latent_state", "centroid", "heading"): f[f"v1/{key}"] = np.zeros((20_000, 9))
    with h5py.File(tmp_path/"set.h5", "w") as f:
        f["images"] = np.ones((50, 64, 64, 1), np.uint8)
        f["annotations"], f["annotated"], f["skeleton"] = np.ones((50, 3, 2)), np.ones((50, 3)), np.ones((3, 2))
    with h5py.File(tmp_path/"v1_processed.nc", "w") as f: # VAME's copy of v1, which is no second video
        for key in ("position", "confidence", "position_processed"): f[key] = np.ones((4, 2, 3, 1))
    with h5py.File(tmp_path/"embedding.nc", "w") as f: f["umap"] = np.ones((4, 2))
    with h5py.File(tmp_path/"later.h5", "w") as f: # As jabs-io 0.49 writes
        f["predictions/Walking/predicted_class"] = np.ones((2, 4))
        f.attrs["pose_hash"] = "0a"
    data = open_dataset(tmp_path)
    found = [f.message for f in data.findings()]
    words = ("program whose files", "that JABS predicted", "syllables of keypoint-MoSeq", "in DeepPoseKit; take", "keeps in data/raw")
    assert data.ids == ("v1",) and len(found) == 5 and all(w in s for w, s in zip(words, found))


def test_points_in_columns_of_their_own_are_read_as_the_sentence_says(tmp_path):
    (tmp_path/"v1.csv").write_text("nose_x,nose_y,nose_conf,group\n1,2,1,3\n")
    with pytest.raises(DataError, match="beside group, not read; .*NAME_x, NAME_y or NAME_likelihood"): open_dataset(tmp_path)
    (tmp_path/"v1.csv").write_text("frame,nose_x,nose_y,nose_p,tail_x,tail_y,tail_p\n0,1,2,.9,3,4,.8\n1,2,2,1,3,4,1\n")
    assert read_poses(tmp_path/"v1.csv", 30).xy[:, 0].tolist() == [[[1, 2], [3, 4]], [[2, 2], [3, 4]]]

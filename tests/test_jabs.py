"A project of JABS, with its labels of chosen stretches; one video's poses are a real file's, where that lies beside."
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import mabe_nb as mb
from mabe_nb.cli import main
from mabe_nb.data.recording import frame_labels, looked_at
from mabe_nb.errors import DataError

POSES = Path(__file__).parents[2]/"shared"/"data"/"poses"/"jabs_v3.h5"
GROOMING = [{"start": 100, "end": 149, "present": True},
            {"start": 200, "end": 399, "present": False},
            {"start": 900, "end": 939, "present": True}]
LABELS = {"0": {"grooming": GROOMING},
          "2": {"grooming": [{"start": 10, "end": 400, "present": False}],
                "rearing": [{"start": 500, "end": 520, "present": True}]}}


def walking(path, frames=1800):
    "A pose file of version 3 with three mice that walk."
    steps = np.random.default_rng(0).normal(0, 2, (frames, 3, 12, 2)).cumsum(0) + 400
    with h5py.File(path, "w") as f:
        g = f.create_group("poseest")
        g.attrs["version"] = np.array([3, 0], np.uint16)
        g["points"] = steps.clip(0, 800).astype(np.uint16)
        g["confidence"] = np.ones((frames, 3, 12), np.float32)
        g["instance_count"] = np.full(frames, 3, np.uint8)
        g["instance_track_id"] = np.tile(np.arange(3, dtype=np.uint32), (frames, 1))


def write_labels(root, video, labels=LABELS, **more):
    path = root/"jabs"/"annotations"/f"{video}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": 1, "file": f"{video}.avi", "num_frames": 1800,
                                "labels": labels, "metadata": {}, **more}))
    return path


@pytest.fixture
def project(tmp_path):
    walking(tmp_path/"cage1_pose_est_v3.h5")
    if POSES.exists(): shutil.copy(POSES, tmp_path/"cage1_pose_est_v3.h5")
    walking(tmp_path/"cage2_pose_est_v3.h5")
    for video in ("cage1", "cage2"): write_labels(tmp_path, video)
    (tmp_path/"jabs"/"project.json").write_text(json.dumps(
        {"behavior": {"grooming": {}}, "window_sizes": [5]}))
    (tmp_path/"dataset.yaml").write_text("fps: 30\nalone: [grooming, rearing]\n")
    return tmp_path


def test_what_nobody_labelled_is_unknown(project):
    rec = mb.open_dataset(project)["cage1"]
    assert rec.bouts.values.tolist() == [
        ["mouse1", "mouse1", "grooming", 100, 150], ["mouse3", "mouse3", "rearing", 500, 521],
        ["mouse1", "mouse1", "grooming", 900, 940]]
    assert looked_at(rec) == {
        ("mouse1", "mouse1", "grooming"): [(100, 150), (200, 400), (900, 940)],
        ("mouse3", "mouse3", "grooming"): [(10, 401)],
        ("mouse3", "mouse3", "rearing"): [(500, 521)]}
    known = frame_labels(rec, "mouse1", "mouse1", ["grooming", "rearing"])
    assert [(known[:, 0] == k).sum() for k in (1, 0, -1)] == [90, 200, len(rec) - 290]
    assert (known[:, 1] == -1).all() # Of mouse1 nobody labelled rearing


def test_unfragmented_labels_count_as_in_jabs(project):
    "Where a mouse was lost, `labels` has gaps; JABS itself reads the others."
    write_labels(project, "cage1", {"0": {"grooming": GROOMING[:1]}}, unfragmented_labels=LABELS)
    assert len(mb.open_dataset(project)["cage1"].bouts) == 3


def test_settings_choose_and_name(project):
    (project/"dataset.yaml").write_text(
        "fps: 30\nactions: [groom]\nalone: [groom]\naction_names: {grooming: groom}\n")
    rec = mb.open_dataset(project)["cage1"]
    assert rec.labelled == {(m, m, "groom") for m in ("mouse1", "mouse3")}
    (project/"dataset.yaml").write_text("fps: 30\nalone: [grooming, rearing]\nwhole: true\n")
    rec = mb.open_dataset(project)["cage1"] # All else is without behaviour
    assert (frame_labels(rec, "mouse1", "mouse1", ["grooming"]) == 0).sum() == len(rec) - 90


def test_a_video_without_labels_is_not_scored(project):
    write_labels(project, "cage2", {})
    assert mb.open_dataset(project)["cage2"].labelled is None
    (project/"dataset.yaml").write_text("fps: 30\nactions: [grooming]\nalone: [grooming]\n")
    assert mb.open_dataset(project)["cage2"].labelled is None # Nor is its absence known


@pytest.mark.parametrize("labels, sentence", [
    ({"0": {"grooming": [{"start": 9, "end": 3, "present": True}]}}, "end not before the start"),
    ({"0": {"grooming": [{"start": 1, "end": 3.5, "present": True}]}}, "expected whole frames"),
    ({"0": {"grooming": [{"start": 1, "end": 3, "present": "no"}]}}, "present true or false"),
    ({"0": {"grooming": [{"end": 3}]}}, "animal '0', 'grooming': has a block without start"),
    ({"0": [1]}, "animal -> behaviour -> blocks"), ({"one": {"a": GROOMING}}, "not animal ->"),
    ({"0": {"grooming": 3}}, "animal -> behaviour -> blocks")])
def test_damaged_labels_are_told(project, labels, sentence):
    write_labels(project, "cage1", labels)
    with pytest.raises(DataError, match=sentence): mb.open_dataset(project)["cage1"]


def test_half_a_file_is_told(project, capsys):
    path = project/"jabs"/"annotations"/"cage1.json"
    path.write_text(path.read_text()[:200])
    assert main(["open", str(project)]) in (0, 1)
    assert "cage1.json" in "".join(capsys.readouterr())


def test_a_project_trains_and_two_raters_compare(project, tmp_path_factory, capsys):
    "As a user would; the settings of the project are told, and its labels are read."
    assert main(["open", str(project)]) == 0
    assert "keeps the settings of a JABS project" in "".join(capsys.readouterr())
    beside = tmp_path_factory.mktemp("beside") # `project.parent` is that of all tests
    run = beside/"run"
    assert main(["train", str(project), "--out", str(run), "--epochs", "1",
                 "--features", "coords+speed"]) == 0
    capsys.readouterr()
    other = beside/"other"
    other.mkdir()
    shorter = {"0": {"grooming": [GROOMING[0] | {"end": 124}, GROOMING[1]]}}
    shutil.move(write_labels(beside/"second", "cage1", shorter), other)
    assert main(["agree", str(project), str(other), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["differ"] == 0 # Of 25 frames only one of them says something
    assert [(x["action"], x["frame_f1"]) for x in found["actions"]] == [("grooming", 1.0)]


def shown(project, capsys):
    "What `mabe open` says of a folder."
    capsys.readouterr()
    assert main(["open", str(project)]) in (0, 1)
    return "".join(capsys.readouterr())


@pytest.mark.parametrize("present", [True, False])
def test_a_mouse_that_the_poses_lack_is_told(project, capsys, present):
    "Neither its bouts nor where it was looked at may be passed over without a word."
    more = {"5": {"grooming": [{"start": 1, "end": 9, "present": present}]}}
    write_labels(project, "cage2", LABELS | more)
    sentence = "names 'mouse6', the poses 'mouse1', 'mouse2', 'mouse3'"
    assert sentence.replace("'", "") in shown(project, capsys).replace("'", "")
    with pytest.raises(DataError, match=sentence): mb.open_dataset(project)["cage2"]
    before = (project/"dataset.yaml").read_text()
    (project/"dataset.yaml").write_text(before + "untracked: [mouse6]\n")
    assert len(mb.open_dataset(project)["cage2"].bouts) == 3
    assert "mouse6" not in shown(project, capsys)
    (project/"dataset.yaml").write_text(before + "subjects: {mouse6: mouse2}\n")
    known = mb.open_dataset(project)["cage2"]
    assert ("mouse2", "mouse2", "grooming") in known.labelled and len(known.bouts) == 3 + present


def test_tracks_that_are_one_mouse_keep_their_labels(project):
    "The second of two tracks with one name counts as the first; a ghost's labels do not."
    (project/"dataset.yaml").write_text(
        "fps: 30\nalone: [grooming, rearing]\nghosts: [mouse3]\n")
    assert {*mb.open_dataset(project)["cage2"].bouts.action} == {"grooming"}
    with h5py.File(project/"cage2_pose_est_v3.h5", "r+") as f: # mouse1, then mouse2
        f["poseest/confidence"][900:, 0] = 0
        f["poseest/confidence"][:900, 1] = 0
    write_labels(project, "cage2", {"0": LABELS["0"], "1": LABELS["0"]})
    (project/"dataset.yaml").write_text(
        "fps: 30\nalone: [grooming]\nanimals: {mouse1: a, mouse2: a}\nghosts: [mouse3]\n")
    assert [*mb.open_dataset(project)["cage2"].bouts.agent] == ["a"] * 4

"What people do who do not know the package: other orders, spellings, encodings and types."
import json
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_open_folder import write_dlc as write_animals

import mabe_nb as mb
from mabe_nb.analysis.groups import read_groups
from mabe_nb.cli import main
from mabe_nb.data.annotations import annotation_source
from mabe_nb.data.body_parts import animal_prefixes
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.corrections import Correction, add_correction
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.features import compute
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.formats.kaggle.tables import read_bouts
from mabe_nb.data.recording import BOUT_COLUMNS, Recording, submitted_bouts
from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.files import read_json, write_csv

PARTS = ("nose", "ear_left", "ear_right", "tail_base")
composed, apart = (lambda text, f=f: unicodedata.normalize(f, text) for f in ("NFC", "NFD"))


def write_dlc(folder, video, rec): write_animals(folder, video, rec, rec.mice, rec.parts)


def lab(folder, videos=4, action="approach", form=lambda i: composed, frames=600, name="v{}"):
    "Poses of DeepLabCut with tables of bouts beside them, an action of which has another name."
    for i in range(videos):
        rec = make_recording([7, i], frames, mice=2, parts=PARTS)
        write_dlc(folder, name.format(i), rec)
        bouts = rec.bouts.assign(action=rec.bouts.action.replace("approach", form(i)(action)),
                                 start=rec.bouts.start / 30, stop=rec.bouts.stop / 30)
        bouts.to_csv(folder/f"{name.format(i)}.bouts.csv", index=False)
    (folder/"dataset.yaml").write_text("fps: 30\nalone: [rear]\n", encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch): monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))


# a table of bouts by the names of its columns

REC = make_recording(1, 900)


@pytest.mark.parametrize("columns", [
    ["target", "agent", "action", "start", "stop"], ["action", "stop", "start", "target", "agent"],
    ["video", *BOUT_COLUMNS]])
def test_the_order_of_columns_does_not_matter(columns):
    table = REC.bouts.assign(video="v", start=REC.bouts.start.astype(float))[columns]
    pd.testing.assert_frame_equal(mb.with_bouts(REC, table).bouts, REC.bouts)


def test_rows_are_bouts_too():
    rows = REC.bouts.values.tolist()
    pd.testing.assert_frame_equal(mb.with_bouts(REC, rows).bouts, REC.bouts)


@pytest.mark.parametrize("bouts, labelled, words", [
    (REC.bouts.drop(columns="target"), None, "lacks target"),
    (REC.bouts.assign(start=REC.bouts.start / 30), None, "numbers of frames; multiply seconds"),
    (REC.bouts.assign(stop=np.inf), None, "numbers of frames"),
    (REC.bouts, ["sniff"], "labelled holds 'sniff'"), (REC.bouts, ["rub"], "labelled holds 'rub'"),
    (REC.bouts, [("mouse1", "sniff")], "expected .agent, target, action")])
def test_what_is_no_table_of_bouts(bouts, labelled, words):
    with pytest.raises(DataError, match=words): mb.with_bouts(REC, bouts, labelled)


def test_a_submission_without_a_column():
    with pytest.raises(DataError, match="lacks the column video_id, stop_frame"):
        submitted_bouts(pd.DataFrame(columns=["agent_id", "target_id", "action", "start_frame"]), 1)


# one word in two encodings

@pytest.mark.parametrize("listed", [composed, apart, None])
def test_a_word_in_two_encodings_is_one_action(tmp_path, listed):
    lab(tmp_path, action="lèche", form=lambda i: (composed, apart)[i % 2])
    if listed:
        actions = "[lèche, rear, sniff, chase, attack, mount]"
        (tmp_path/"dataset.yaml").write_text(
            f"fps: 30\nalone: [rear]\nactions: {listed(actions)}\n", encoding="utf-8")
    data = open_dataset(tmp_path)
    plain = lab((tmp_path/"other").mkdir() or tmp_path/"other")
    for i in data.ids:
        found, wanted = data[i].bouts, open_dataset(plain)[i].bouts
        assert (found.action == composed("lèche")).sum() == (wanted.action == "approach").sum() > 0
        assert composed("lèche") in {x for *_, x in data.labelled(i)} == {
            composed(x) for *_, x in data.labelled(i)}
    assert not [s for s in match_files(data).sentences if apart("è") in s]


@pytest.mark.parametrize("written, listed", [(composed, apart), (apart, composed)])
def test_a_scorer_in_two_encodings_is_one_animal(tmp_path, written, listed):
    write_dlc(tmp_path, "v", rec := make_recording(2, 60, mice=2, parts=PARTS))
    (tmp_path/"v.bouts.csv").write_text(written("agent,action,start,stop\nBébé,rear,1,1.5\n"
                                                "Père,rear,1,1.5\n"), encoding="utf-8")
    (tmp_path/"dataset.yaml").write_text(listed(
        f"fps: 30\nalone: [rear]\nsubjects: {{Bébé: {rec.mice[1]}}}\nuntracked: [Père]\n"),
        encoding="utf-8")
    found, = open_dataset(tmp_path)
    assert found.bouts.agent.tolist() == [rec.mice[1]]


def test_columns_and_parts_in_two_encodings_are_the_same(tmp_path):
    for i, form in enumerate((composed, apart)):
        rec = make_recording([3, i], 90, mice=1, parts=PARTS[:3])
        write_dlc(tmp_path, f"v{i}", rec.replace(parts=tuple(map(form, ("écaille", "queue", "nez")))))
        rows = "\n".join(f"{int(k < 9)},0" for k in range(90))
        (tmp_path/f"v{i}_labels.csv").write_text(f"{form('lèche')},rear\n{rows}\n", encoding="utf-8")
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    first, second = open_dataset(tmp_path)
    assert first.parts == second.parts and composed("écaille") in first.parts
    assert {*first.bouts.action} == {*second.bouts.action} == {composed("lèche")}
    assert {x for *_, x in first.labelled} == {x for *_, x in second.labelled}


def test_ids_as_the_file_system_shows_them(tmp_path, capsys):
    lab(tmp_path, 2, name="día {}")
    data = open_dataset(tmp_path)
    assert data.ids == (composed("día_0"), composed("día_1"))
    for word in (apart("día_0"), "día 0", apart("día 0")):
        assert main(["audit", str(tmp_path), "--videos", word]) == 0
    (tmp_path/"groups.csv").write_text(apart("video,dose\ndía 0,low\ndía_1,high\n"), encoding="utf-8")
    assert tuple(read_groups(tmp_path/"groups.csv").video) == data.ids


def test_a_stimulus_animal_that_nobody_scored_is_unknown_where_the_resident_does_nothing(tmp_path):
    for i in range(2):
        rec = make_recording([7, i], 600, mice=3, parts=PARTS)
        write_dlc(tmp_path, f"v{i}", rec)
        own = rec.bouts[(rec.bouts.agent == rec.mice[0]) & (rec.bouts.target != rec.mice[0])][:1 - i]
        own.assign(start=own.start / 30, stop=own.stop / 30, target="")[
            ["agent", "action", "start", "stop"]].to_csv(tmp_path/f"v{i}.bouts.csv", index=False)
    (tmp_path/"dataset.yaml").write_text(
        f"fps: 30\nalone: [rear]\nactions: [sniff, rear]\nagent: {rec.mice[0]}\ntarget: {rec.mice[1]}\n")
    data = open_dataset(tmp_path)
    for video in data.ids:
        assert {a for a, *_ in data.labelled(video)} == {rec.mice[0]}, video


# a video that cannot be read

@pytest.mark.slow
def test_a_broken_video_stops_no_training_that_leaves_it_out(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = lab((tmp_path/"lab").mkdir() or tmp_path/"lab", 5)
    path = next(folder.glob("v1*h5"), None) or next(p for p in folder.glob("v1*") if "bouts" not in p.name)
    path.write_bytes(path.read_bytes()[:-300])
    small = ["--epochs", "1", "--device", "cpu", "--features", "coords"]
    assert main(["train", "lab", "--out", "a", "--skip-broken", *small]) == 0
    assert "video v1 is left out" in capsys.readouterr().out
    assert main(["train", "lab", "--out", "b", "--train-videos", "v0,v2", "--valid-videos", "v3",
                 *small]) == 0
    assert main(["train", "lab", "--out", "c", *small]) == 2
    assert "--skip-broken" in capsys.readouterr().err
    assert main(["predict", "a", "lab", "--out", "found.csv", "--skip-broken"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("mabe_nb.analysis.analyse._write", lambda *a: None) # draws for seconds
    for words in (["score", "lab", "found.csv"], ["analyse", "annotations", "lab", "--out", "d"],
                  ["clips", "annotations", "lab", "--out", "e", "--most", "1"],
                  ["review", "a", "lab", "--minutes", "1"], ["agree", "lab", "lab"]):
        assert main(words) == 2 and main([*words, "--skip-broken"]) == 0, words
        assert "video v1 is left out" in capsys.readouterr().out


def test_a_review_asks_of_what_nobody_scored_broken_or_not(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = lab((tmp_path/"lab").mkdir() or tmp_path/"lab", 5)
    for name in "v3", "v4":
        for path in folder.glob(f"{name}*bouts*"): path.unlink()
    assert main(["train", "lab", "--out", "a", "--epochs", "1", "--device", "cpu", "--features", "coords"]) == 0
    path = next(p for p in folder.glob("v3*"))
    path.write_bytes(path.read_bytes()[:-300])
    assert main(["review", "a", "lab", "--minutes", "1"]) == 2
    capsys.readouterr()
    assert main(["review", "a", "lab", "--minutes", "1", "--skip-broken", "--out", "m.csv"]) == 0
    assert "video v3 is left out" in capsys.readouterr().out
    assert {*pd.read_csv("m.csv").video_id} == {"v4"}


@pytest.mark.slow
def test_a_run_is_trained_again_without_what_can_no_longer_be_read(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = lab((tmp_path/"lab").mkdir() or tmp_path/"lab", 6)
    for video in "v4", "v5": next(folder.glob(f"{video}*bouts*")).unlink()
    assert main(["train", "lab", "--out", "a", "--train-videos", "v0-v2", "--valid-videos", "v3",
                 "--epochs", "1", "--device", "cpu", "--features", "coords"]) == 0
    mice = mb.open_dataset(folder)["v0"].mice
    for video in "v0", "v4", "v5": add_correction(folder/"corrections.jsonl", Correction(
        video, *mice, "accept", "approach", 10, 60, ("approach",)), "Ann")
    for video in "v1", "v4":
        path = next(folder.glob(f"{video}*"))
        if "bouts" in path.name: path = next(p for p in folder.glob(f"{video}*") if "bouts" not in p.name)
        path.write_bytes(path.read_bytes()[:-300])
    assert main(["retrain", "a", "lab", "--out", "b"]) == 2
    assert "retrain" in capsys.readouterr().err
    assert main(["retrain", "a", "lab", "--out", "b", "--skip-broken"]) == 0
    assert capsys.readouterr().out.count("is left out") == 2
    assert json.loads((tmp_path/"b"/"videos.json").read_text()) == {
        "train": ["v0", "v2", "v5"], "valid": ["v3"]}


def test_where_none_can_be_read_the_first_says_why(tmp_path):
    lab(tmp_path, 2)
    for p in tmp_path.glob("v*"):
        if "bouts" not in p.name: p.write_bytes(p.read_bytes()[:-300])
    with pytest.raises(DataError, match="v0"): mb.prepare(open_dataset(tmp_path), features="coords")


# parts that begin like animals

def test_limbs_are_no_animals():
    joints = ("coxa", "femur", "tibia")
    assert not animal_prefixes([f"leg{k}_{j}" for k in range(3) for j in joints])
    assert not animal_prefixes([f"{a}_{s}" for a in ("head", "tail") for s in ("a", "b", "c")])
    assert animal_prefixes([f"{a}_{p}" for a in ("B", "W") for p in PARTS]) == ["B", "W"]


def test_one_name_for_all_makes_one_animal_of_them(tmp_path):
    rec = make_recording(2, 60, mice=1, parts=(*PARTS, "neck", "head"))
    write_dlc(tmp_path, "v", rec.replace(parts=tuple(f"{a}_{p}" for a in ("ring", "disc") for p in "xyz")))
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    two, = open_dataset(tmp_path)
    assert two.mice == ("ring", "disc")
    said, = [s for s in match_files(open_dataset(tmp_path)).sentences if "begin with ring, disc" in s]
    assert "one name under animals" in said
    (tmp_path/"dataset.yaml").write_text(
        "fps: 30\nanimals: {ring: fly, disc: fly}\nparts: {ring_x: nose}\n")
    one, = data = open_dataset(tmp_path)
    assert one.mice == ("fly",) and one.parts == ("nose", "ring_y", "ring_z", "disc_x", "disc_y", "disc_z")
    np.testing.assert_array_equal(one.xy.reshape(two.xy.shape), two.xy)
    assert not [s for s in match_files(data).sentences if "ring" in s or "begin" in s]


# words and numbers in Python

def doubled(x): return 2 * x


def test_gpu_without_settings_is_a_decorator(): assert mb.gpu(doubled).__wrapped__ is doubled


def test_nothing_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    job = mb.submit("x = 1", inputs=None, outputs=None, secrets=None, with_=None)
    assert job.wait() == "done" and mb.map(doubled, [4], with_=doubled, say=None).wait() == "done"


DATA = RecordingList([make_recording([5, i], 300, mice=2, parts=PARTS).replace(video_id=str(i))
                      for i in range(3)])
CFG = mb.TrainConfig(epochs=1, features="coords", conv_channels=[4], lstm_hidden=4, device="cpu")
BOUTS = pd.DataFrame(columns=["video_id", "agent_id", "target_id", "action", "start_frame", "stop_frame"])


@pytest.mark.parametrize("call, words", [
    (lambda: mb.score(DATA, BOUTS, ["0", "9"]), "no video '9'"),
    (lambda: mb.split(DATA, videos=["0", "9"]), "no video '9'"),
    (lambda: mb.score(DATA, BOUTS, mb.split(DATA)), "give its .train or .valid"),
    (lambda: mb.split(DATA, videos=1), "videos is 1, expected several"),
    (lambda: mb.score(DATA, [("a", 1)]), "expected a DataFrame"),
    (lambda: mb.score(DATA, None), "or a Path .Submission, as of"),
    (lambda: mb.split(DATA, seed=-1), "seed is -1"), (lambda: mb.split(DATA, seed=1.5), "seed is 1.5, expected a whole number"),
    (lambda: mb.split(DATA, valid="x"), "valid is 'x'"), (lambda: mb.split(DATA, valid=1), "valid is '1'"),
    (lambda: mb.load_model(None), "the model is None, expected the name of a folder"), (lambda: mb.fit(DATA, None), "None"),
    (lambda: mb.fit(DATA, ""), "expected the name of a folder"), (lambda: mb.fit(DATA, " ", recipe="quick"), "expected the name of a folder"),
    (lambda: mb.analyse(DATA, ""), "expected the name of a folder"),
    (lambda: mb.read_poses(None, fps=30), "None"),
    (lambda: mb.submit("x = 1", inputs=[1]), r"inputs is \[1\], expected a dict"),
    (lambda: mb.submit("x = 1", outputs=3), "'3' is no name for an output"),
    (lambda: mb.submit("x = 1", secrets=3), "'3' is no name for a secret"),
    (lambda: mb.map(doubled, [1], given=[3]), r"given is \[3\], expected a dict"),
    (lambda: mb.map(doubled, [1], folders="data"), "folders is 'data', expected a dict"),
    (lambda: mb.map(doubled, [1], tasks="two"), "tasks is 'two', expected a whole"),
    (lambda: mb.with_bouts(DATA, BOUTS), "expected a Recording"),
    (lambda: mb.with_bouts(DATA["0"], {"a": 1}), "expected rows of agent, target, action"),
    (lambda: mb.with_bouts(DATA["0"], [3]), "expected rows of agent, target, action"),
    (lambda: mb.sweep(CFG, 3), "'3' is no dataset"), (lambda: mb.sweep(CFG, sizes="16"), "size '16', expected whole"),
    (lambda: mb.compare(CFG, "local"), "local: does not exist"),
    (lambda: mb.diagnose(BOUTS, 3), "'3' is no dataset"), (lambda: mb.fix_submission(BOUTS, None), "is no dataset"),
    (lambda: mb.diagnose(BOUTS, DATA, 3), "frames is 3, expected a dict"),
    (lambda: mb.diagnose(BOUTS, DATA, {"0": "x"}), "frames is 'x', expected a number"),
    (lambda: mb.submitted_bouts(BOUTS[["action"]], "0"), "lacks the column video_id"),
    (lambda: mb.with_corrections(DATA, 3), "path is 3"), (lambda: mb.analyse(DATA, "new", to=3), "unknown format 3"),
    (lambda: mb.bundle("run", "kit", frames="x"), "frames is 'x'")])
def test_a_wrong_argument_gets_a_sentence(call, words):
    with pytest.raises(MabeError, match=words): call()


@pytest.mark.parametrize("call, words", [
    (lambda: mb.with_bouts(DATA["0"], BOUTS[[]], scored=3), "scored is 3, expected a tuple or None"),
    (lambda: mb.submit("x = 1", namespace=3), "namespace is 3, expected a dict"),
    (lambda: mb.submit("x = 1", with_=3), "with_ holds 3, expected functions"),
    (lambda: mb.submit("x = 1", gpu=BOUTS), "gpu is of type DataFrame"),
    (lambda: mb.fit(DATA, "run", say=3), "say is 3, expected a function or None"),
    (lambda: mb.fit(DATA, "run", resume=BOUTS), "resume is of type DataFrame, expected True or False"),
    (lambda: mb.map(doubled, [1], say="aloud"), "say is 'aloud', expected a function"),
    (lambda: mb.map_prepare("data", out=3), "out is 3, expected text or a Path"),
    (lambda: mb.compare(CFG, gpus=None), "gpus is None, expected text or a list"),
    (lambda: mb.kaggle_score("sub.csv", "sub.csv"), "solution is 'sub.csv', expected a DataFrame"),
    (lambda: mb.kaggle_score(BOUTS, BOUTS, beta=None), "beta is None, expected a number"),
    (lambda: mb.split(DATA, valid=np.nan), "valid is nan, expected a number .Share of the videos"),
    (lambda: mb.split(DATA, vids="0"), "unknown argument of split 'vids'; did you mean 'videos'"),
    (lambda: mb.split(), "split: missing a required argument: 'data'"),
    (lambda: mb.write_colony("c", labs=3), "labs is 3, expected several in a list"),
    (lambda: mb.write_kaggle(DATA, "data", zeros=3), "zeros is 3, expected several in a list"),
    (lambda: mb.gpu(out=3), "out is 3, expected several in a list"),
    (lambda: mb.prepare(DATA, "coords", "c", parts=[3]), "parts is .3,., expected a list of body parts"),
    (lambda: mb.load_model("run", BOUTS), "checkpoint is of type DataFrame, expected text or a whole number"),
    (lambda: mb.map_predict("run", "data", checkpoint=BOUTS), "checkpoint is of type DataFrame, expected text or a whole"),
    (lambda: mb.prepare(DATA, "coords", "c", workers=10**30), "workers is 10*, expected a whole number to 1000"),
    *[(lambda name=name: mb.write_kaggle(DATA, name), "expected the name of a folder") for name in ("c\0", "c" * 300)],
    (lambda: mb.analyse(DATA, "c\ud800"), "expected the name of a folder"),
    (lambda: mb.retrain("run", DATA, 3), "out is 3"),
    (lambda: mb.read_poses(3, fps=30), "is no name of a file"),
    (lambda: mb.write_clips(DATA, DATA["0"].bouts.assign(video="0"), "c", around_s=-1), "around_s is -1, expected a number from 0"),
    (lambda: mb.analyse(DATA, "new", shuffles=10**30), "shuffles is 1000"),
    (lambda: DATA["0"].replace(mice=3), "mice are 3, expected their names"),
    (lambda: DATA["0"].replace(xy=None), "poses have shape"),
    (lambda: DATA["0"].replace(fps="x"), "frames per second is 'x', expected a number above 0"),
    (lambda: DATA["0"].replace(px_per_cm=[3]), "px_per_cm is .3., expected a number"),
    (lambda: compute("data", "coords"), "rec is 'data', expected a Recording"),
    (lambda: compute(DATA["0"], "coords", 3), "pair is 3, expected a tuple")])
def test_no_argument_fails_inside(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    with pytest.raises(MabeError, match=words): call()


def test_a_tilde_is_the_home_folder_in_every_name(tmp_path, monkeypatch, capsys):
    here = tmp_path/"here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    mb.write_kaggle(DATA, "~/data")
    few = "--epochs=1", "--features=coords", "--conv-channels=4", "--lstm-hidden=4", "--device=cpu"
    assert main(["train", "~/data", "--out=~/run", *few]) == 0
    assert main(["predict", "~/run", "~/data", "--out=~/sub.csv"]) == 0
    mb.score("~/data", "~/sub.csv", say=None)
    model = mb.fit("~/data", "~/again", epochs=1, features="coords", device="cpu", say=None)
    assert model.actions == mb.load_model("~/again").actions and not [*here.iterdir()]
    group = mb.map_prepare("~/data", "coords", "~/cache", say=None)
    given = {"data": str(tmp_path/"data"), "out": str(tmp_path/"cache")}
    assert group.spec["tag"].items() >= given.items()
    assert read_json(group.folder/"pack"/"pack.json")["folders"] == {"data": given["data"]}
    group.cancel()
    assert {"data", "run", "sub.csv", "again"} <= {p.name for p in tmp_path.iterdir()}


def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path):
    for name in ("a" * 251 + ".csv", "鼠" * 83 + ".csv"):
        write_csv(tmp_path/name, BOUTS)
        assert (tmp_path/name).is_file()


def test_numbers_of_numpy_and_none_are_what_is_meant(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    job = mb.submit("y = 1", outputs="y", timeout=np.int64(60), retries=np.int64(0))
    assert job.result()["y"] == 1
    assert len(mb.sweep(CFG, sizes=np.int64(2), seconds=np.float32(0.05), each=None, say=None).rows) == 1
    numbered = RecordingList([DATA["0"].replace(video_id=3)])
    assert numbered.ids == ("3",) and len(mb.submitted_bouts(BOUTS, 3)) == 0
    assert pickle.loads(pickle.dumps(mb.fit)) is mb.fit


@pytest.mark.parametrize("how, words", [
    ({"min_confidence": 60}, "min_confidence is 60"), ({"min_confidence": "0.6"}, "min_confidence"),
    ({"px_per_cm": -16}, "px_per_cm must be"), ({"px_per_cm": "16 px"}, "px_per_cm must be"),
    ({"fps": "x"}, "fps must be")])
def test_units_of_poses_have_bounds(tmp_path, how, words):
    write_dlc(tmp_path, "v", make_recording(2, 60, mice=1, parts=PARTS))
    path, = tmp_path.iterdir()
    with pytest.raises(ConfigError, match=words): mb.read_poses(path, **{"fps": 30} | how)
    assert mb.read_poses(path, fps=30, px_per_cm="16").px_per_cm == 16.0


def test_settings_of_predict_have_bounds(tmp_path, monkeypatch):
    model = mb.fit(DATA, tmp_path/"run", epochs=1, features="coords", conv_channels=[4],
                   lstm_hidden=4, device="cpu", say=None, progress=False)
    for how, words in (({"least_ms": np.nan}, "least_ms"), ({"smooth_ms": -500}, "smooth_ms"),
                       ({"least_ms": 10**30}, "least_ms is 10*, expected a number from 0 to 10{9}$"),
                       ({"smooth_ms": 10**400}, "smooth_ms is of type int, expected a number from 0 to"),
                       ({"thresholds": 0.3}, "threshold 0.3 is of no action")):
        with pytest.raises(MabeError, match=words): model.predict(DATA, ["0"], **how)
    with pytest.raises(MabeError, match="is no dataset"): model.predict(5)
    with pytest.raises(MabeError, match="videos is '5'"): model.predict(DATA, 5)
    for how, words in (({"threads": "x"}, "threads is 'x', expected a whole number"), ({"each": 3}, "each is 3"),
                       ({"say": 3}, "say is 3, expected a function"), ({"smoth_ms": 3}, "did you mean 'smooth_ms'")):
        with pytest.raises(MabeError, match=words): model.predict(DATA, **how)
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    mb.write_kaggle(DATA, tmp_path/"data")
    elsewhere = lambda out=tmp_path/"s.csv", **how: mb.map_predict(
        tmp_path/"run", tmp_path/"data", out, say=None, **how)
    for how, words in (({"options": 3}, "options is 3"), ({"options": {"nope": 1}}, "argument 'nope'"),
                       ({"out": None}, "out is None"), ({"videos": [], "plan": True}, "has no videos")):
        with pytest.raises(MabeError, match=words): elsewhere(**how)
    assert elsewhere(options=None, videos="0").wait() == "done" # of three: each has a process of its own


def test_what_is_meant_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    mb.write_kaggle(DATA, "data")
    truth = mb.solution_table("data")
    truth[[*BOUTS]].to_csv("sub.csv", index=False)
    table, wanted = truth[[*BOUTS]], mb.diagnose(truth[[*BOUTS]], mb.open_dataset("data"))
    for given in ("data", Path("data"), DATA): pd.testing.assert_frame_equal(mb.diagnose(table, given), wanted)
    assert len(mb.fix_submission("sub.csv", Path("data"))[0]) == len(table)
    assert mb.sweep(CFG, DATA, sizes=16, seconds=0.1).knee == 16


def test_features_are_not_written_among_the_data(tmp_path, capsys):
    mb.write_kaggle(DATA, tmp_path/"data")
    before = sorted(tmp_path.rglob("*"))
    assert main(["prepare", str(tmp_path/"data"), "--features", "coords", "--out", str(tmp_path/"data")]) == 2
    assert "holds a dataset (train.csv); choose another folder" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path/"other").mkdir()
    write_dlc(tmp_path/"other", "v", DATA[0])
    assert main(["prepare", str(tmp_path/"data"), "--features", "coords", "--out", str(tmp_path/"other")]) == 2
    assert "holds a dataset (v" in capsys.readouterr().err and len([*(tmp_path/"other").iterdir()]) == 1
    with pytest.raises(DataError, match="has parts ear_left.*, none of .'unknown'"):
        mb.prepare(DATA, "coords", tmp_path/"cache", parts=["unknown"])
    with pytest.raises(ConfigError, match="holds this dataset; choose another folder"):
        mb.prepare(RecordingList(DATA, tmp_path), "coords", tmp_path/"data"/"..")


# tables

@pytest.mark.parametrize("head", [
    "agent,target,action,start,stop (s)", "Agent;Target;Behavior;Start;Stop",
    "agent\ttarget\taction\tStart (s)\tStop (s)", "agent,target,behaviour,start_frame,stop_frame"])
def test_names_of_columns_as_people_write_them(tmp_path, head):
    write_dlc(tmp_path, "v", rec := make_recording(2, 60, mice=2, parts=PARTS))
    mark = next(m for m in "\t;," if m in head)
    (tmp_path/"v.bouts.csv").write_text(head + "\n" + mark.join(
        (*rec.mice, "chase", *(("30", "45") if "frame" in head else ("1", "1.5")))) + "\n")
    (tmp_path/"dataset.yaml").write_text("fps: 30\nalone: []\n")
    found, = open_dataset(tmp_path)
    assert found.bouts.values.tolist() == [[*rec.mice, "chase", 30, 45]]


def test_an_aggregated_table_is_still_boris(tmp_path):
    (tmp_path/"v.csv").write_text("Observation id,Subject,Behavior,Start (s),Stop (s)\nv,a,rear,1,2\n")
    assert annotation_source(tmp_path/"v.csv") == "BORIS"


@pytest.mark.parametrize("agent", [[1, 2], ["1", "2"], ["mouse1", "mouse2"]])
def test_kaggle_annotations_may_say_self(tmp_path, agent):
    table = pd.DataFrame({"agent_id": agent, "target_id": ["self", "mouse1"], "action": "rear",
                          "start_frame": 1, "stop_frame": 5})
    table.to_parquet(tmp_path/"a.parquet")
    assert read_bouts(tmp_path/"a.parquet")[0] == [
        ("mouse1", "mouse1", "rear", 1, 5), ("mouse2", "mouse1", "rear", 1, 5)]


def test_recordings_stay_as_they_were(): assert isinstance(DATA["0"], Recording)


@pytest.mark.parametrize("name", [n for n in mb.__all__ if n not in ("plots", "MabeError", "TrainConfig")])
def test_help_tells_each_parameter_in_full(name):
    from inspect import signature
    verb, told = getattr(mb, name), (getattr(mb, name).__doc__ or "").splitlines()
    assert not [line for line in told if line.startswith("  ") and line.endswith(("the", ",", "of"))]
    if not [*signature(verb).parameters]: return
    rows = [line.split(":")[0].strip(" *") for line in told if line.startswith("  ")]
    assert rows and {*rows} <= {*signature(verb).parameters}


def test_help_of_a_models_prediction_tells_each_parameter(tmp_path):
    mb.fit(DATA, tmp_path/"run", train_videos=["0", "1"], valid_videos=["2"], epochs=1, stride=200,
           conv_channels=[8], lstm_hidden=8, features="coords", device="cpu", say=None)
    told = mb.load_model(tmp_path/"run").predict.__doc__
    for word in ("thresholds", "smooth_ms", "overlap", "say"): assert f"\n  {word}: " in told


REST = DATA["0"].bouts.assign(video_id="0")


@pytest.mark.parametrize("call, words", [
    *[(lambda f=f: f(None), "is None, expected") for f in (
        mb.write_colony, lambda out: mb.write_kaggle(DATA, out), lambda out: mb.bundle("run", out),
        lambda out: mb.analyse(DATA, out, say=None), lambda out: mb.write_clips(DATA, REST, out),
        lambda out: mb.map_train(DATA, out), lambda out: mb.fit(DATA, out))],
    (lambda: mb.prepare(DATA, "coords", out=3), "out is 3"),
    (lambda: mb.analyse(DATA, ""), "out is ''"), (lambda: mb.write_kaggle(DATA, " "), "root is ' '"),
    (lambda: mb.with_bouts(DATA["0"], "bouts.csv"), "read_boris reads a file"),
    (lambda: mb.with_bouts(DATA["0"], 3), "bouts are no table"),
    (lambda: mb.write_clips(DATA, DATA["0"].bouts, "films"), "of which video"),
    (lambda: mb.write_clips(DATA, BOUTS[["action"]], "films"), "has no column video_id"),
    (lambda: mb.submitted_bouts("sub.csv", "0"), "submission is 'sub.csv', expected a DataFrame"),
    (lambda: mb.plot_predicted("nowhere", BOUTS), "nowhere: does not exist"),
    (lambda: mb.plot_predicted(DATA, "sub.csv"), "submission is 'sub.csv'"),
    (lambda: mb.with_corrections("nowhere"), "nowhere: does not exist"),
    (lambda: mb.agreement(DATA, 3), "'3' is no dataset"),
    (lambda: mb.sweep(DATA), "expected a TrainConfig"), (lambda: mb.map(len, 3), "items is '3'"),
    (lambda: mb.prepare(DATA, "coords", workers="two"), "workers is 'two'")])
def test_what_is_no_path_and_no_table_gets_a_sentence(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MabeError, match=words): call()
    assert not [p for p in tmp_path.iterdir() if p.name != "home"]


@pytest.mark.parametrize("words", [["synth"], ["demo", "--out"], ["train", "mice", "--out"],
                                   ["analyse", "annotations", "mice", "--out"], ["predict", "run", "mice", "--out"]])
def test_an_empty_name_is_not_the_current_folder(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mb.write_colony("mice", videos=6, minutes=0.1)
    assert main([*words, ""]) == 2 and "is '', expected the name" in capsys.readouterr().err
    assert not {p.name for p in tmp_path.iterdir()} - {"mice", "home"}

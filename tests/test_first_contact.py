"Folders as laboratories have them, where names, observers and events contradict one another."
import json

import pandas as pd
import pytest
from test_open_folder import recording, write_dlc

from mabe_nb.analysis.agreement import agreement
from mabe_nb.analysis.boris import export_boris
from mabe_nb.analysis.measures import observe
from mabe_nb.cli import main
from mabe_nb.data.annotations import read_boris, with_bouts
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.recording import bout_table
from mabe_nb.errors import DataError
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.folder.card import action_table
from mabe_nb.train.training_set import load_training_set

HEAD = ("Observation id,FPS (frame/s),Subject,Behavior,Behavior type,Time,Media file name")


def write_events(path, observation, *bouts, film=None):
    "Events of one observation as BORIS exports them; bouts of subject, action, start and stop in s."
    rows = [f"{observation},30,{who},{what},{status},{t},/films/{film or observation}.mp4"
            for who, what, *span in bouts for t, status in zip(span, ("START", "STOP"))]
    path.write_text("\n".join([HEAD, *rows]) + "\n")


@pytest.fixture
def lab(tmp_path):
    "Two videos of two animals."
    for k, video in enumerate(("v1", "v2")): write_dlc(tmp_path, video, recording(k))
    (tmp_path/"dataset.yaml").write_text("fps: 30\nalone: [rear]\n")
    return tmp_path


def sentences(folder): return match_files(open_dataset(folder)).sentences


def test_a_table_called_as_another_video_than_it_is_of_is_told(lab):
    for name, of, at in (("v1", "v2", 1), ("v2", "v1", 3)):
        write_events(lab/f"{name}.csv", of, ("black", "rear", at, at + 1))
    assert not any(len(rec.bouts) for rec in open_dataset(lab))
    assert any("v1.csv holds the observation 'v2', which is of v2, while the file is called as v1"
               in s for s in sentences(lab))
    for name in ("v1", "v2"): write_events(lab/f"{name}.csv", name, ("black", "rear", 1, 2))
    assert [len(rec.bouts) for rec in open_dataset(lab)] == [1, 1]


@pytest.mark.parametrize("name", ["session 7", "2"]) # as the scorer counted, or by the film
def test_a_table_whose_observation_has_a_name_of_its_own_is_read(lab, name):
    write_events(lab/"v1.csv", name, ("black", "rear", 1, 2), film="v1")
    assert [len(rec.bouts) for rec in open_dataset(lab)] == [1, 0]


def test_point_events_come_back_as_point_events(tmp_path):
    rec, (one, two) = recording(5), ("mouse1", "mouse2")
    rows = [(one, one, "jump", 9, 10), (one, one, "jump", 10, 11), (two, two, "jump", 60, 61),
            (one, two, "sniff", 3, 4), (one, two, "sniff", 30, 60)]
    rec = with_bouts(rec, bout_table(rows))
    table, project = export_boris(observe([rec]), tmp_path)
    status = pd.read_csv(table).groupby("Behavior").Status.agg(list)
    assert status.jump == 3 * ["POINT"] and status.sniff == 2 * ["START", "STOP"]
    told = json.loads(project.read_text())["behaviors_conf"].values()
    assert {b["code"]: b["type"] for b in told} == {"jump": "Point event", "sniff": "State event"}
    for path in (table, project):
        assert read_boris(path, rec.fps, target_from="Modifiers").equals(rec.bouts), path


def test_a_card_says_that_touching_bouts_are_one_in_it():
    counts = {"sniff": {"frames": 90, "bouts": 1}}
    card = action_table({"training_counts": counts, "validation_counts": counts}, {"sniff": 0.5})
    assert "touch or overlap count as one here; mabe analyse counts each" in card
    assert "touch" not in action_table({}, {"sniff": 0.5}) # where no bouts are counted


def test_videos_of_several_frame_rates_are_told_at_which_they_are_learned(tmp_path):
    slow, fast, also = (recording(k, 20 * fps, fps=float(fps), video_id=name)
                        for k, (name, fps) in enumerate((("a", 25), ("b", 50), ("c", 50))))
    cfg = TrainConfig(features="social", sequence_length=20)
    one, both = (load_training_set(RecordingList([fast, other]), (["b"], [other.video_id]), cfg,
                                   cache=tmp_path/other.video_id) for other in (also, slow))
    assert any("have 25, 50 frames per second: all are brought to 50, of which one in 7 is taken"
               in note for note in both.notes)
    assert not any("brought to" in note for note in one.notes)


@pytest.fixture
def rated(lab):
    "Two observers of the first video in one folder, and one that nobody is said to have scored."
    for who, at in (("ada", 1), ("jin", 3)):
        write_events(lab/f"v1_{who}.csv", f"v1_{who}", ("black", "rear", at, at + 2), film="v1")
    write_events(lab/"v2.csv", "v2", ("white", "rear", 1, 2))
    return lab


def test_the_scorer_chooses_of_two_observers_of_one_video(rated, capsys):
    with pytest.raises(DataError, match="keep one of them, or name its scorer in dataset.yaml"):
        open_dataset(rated)["v1"]
    for who, start in (("ada", 30), ("Jin", 90)):
        assert main(["open", str(rated), "--overwrite", "--set", f"scorer={who}"]) == 0
        assert "such files" not in capsys.readouterr().out
        assert [rec.bouts.start.tolist() for rec in open_dataset(rated)] == [[start], [30]]
    write_events(rated/"v2.csv", "v2_ada", ("white", "rear", 1, 2), film="v2")
    assert open_dataset(rated).labelled("v2") is None # it is the other's


def test_the_second_rater_of_a_file_is_the_one_who_is_not_the_first(lab):
    text = []
    for who, at in (("ada", 1), ("jin", 2)):
        write_events(lab/"all.csv", f"v1_{who}", ("black", "rear", at, at + 2), film="v1")
        text += (lab/"all.csv").read_text().splitlines()[1:]
    (lab/"all.csv").write_text("\n".join([HEAD, *text]) + "\n")
    with (lab/"dataset.yaml").open("a") as f: f.write("scorer: ada\n")
    table = agreement(lab, lab/"all.csv").table.set_index("action")
    assert table.loc["rear", ["both", "only_a", "only_b"]].tolist() == [1, 1, 1] # in seconds
    (lab/"all.csv").write_text("\n".join([HEAD, *text[:2], *(
        row.replace("v1", "v2") for row in text[:2])]) + "\n")
    with pytest.raises(DataError, match="nothing of a second"): agreement(lab, lab/"all.csv")

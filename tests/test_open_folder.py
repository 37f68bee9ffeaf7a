"A lab's own files, from `mabe open` to a figure: matches, questions, names, dataset.yaml."
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest

from mabe_nb.analysis.analyse import analyse
from mabe_nb.cli import main
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.corrections import Correction, add_correction
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder.settings import make_settings, read_settings
from mabe_nb.data.folder.settings_file import write_settings
from mabe_nb.data.formats.bout_tables import read_bout_table
from mabe_nb.data.formats.simba import read_simba, simba_actions
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.folder.scored_tables import read_scored
from mabe_nb.data.poses import pose_source, read_poses
from mabe_nb.errors import ConfigError, DataError

REAL = Path(__file__).resolve().parents[2]/"shared"/"data"/"poses"
PARTS = {"Snout": "nose", "ear_L": "ear_left", "rightEar": "ear_right", "neck": "neck",
         "Tailbase": "tail_base"}


def write_dlc(folder, video, rec, animals=("black", "white"), parts=tuple(PARTS)):
    "Poses as DeepLabCut writes them for several animals."
    columns = pd.MultiIndex.from_product(
        [["DLC_net"], animals, parts, ["x", "y", "likelihood"]],
        names=["scorer", "individuals", "bodyparts", "coords"])
    values = np.concatenate([np.nan_to_num(rec.xy), np.isfinite(rec.xy[..., :1]) * 0.9], -1)
    pd.DataFrame(values.reshape(len(rec), -1), columns=columns).to_csv(
        folder/f"{video}DLC_net.csv")


def write_boris(folder, video, rows, fps=30):
    "Events as BORIS exports them; rows of subject, behaviour, start and stop in frames."
    events = sorted((f / fps, fps, who, what, status) for who, what, *span in rows
                    for f, status in zip(span, ("START", "STOP")))
    (folder/f"{video}.boris.csv").write_text("\n".join(
        ["Time,FPS (frame/s),Subject,Behavior,Behavior type",
         *(",".join(map(str, e)) for e in events)]) + "\n")


def recording(seed, frames=300, **how):
    return make_recording(seed, frames, parts=tuple(PARTS.values()), **how)


@pytest.fixture
def lab(tmp_path):
    folder = tmp_path/"lab"
    folder.mkdir()
    for k in (1, 2): write_dlc(folder, f"v{k}", recording(k))
    write_boris(folder, "v1", [("B", "sniff", 30, 60), ("W", "rear", 90, 120)])
    return folder


def opened(capsys, *words):
    "The answer of `mabe open --json`."
    assert main(["open", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def said(answer, *words):
    "The one sentence that holds all words."
    found = [s for s in answer["sentences"] if all(w in s for w in words)]
    assert len(found) == 1, (words, answer["sentences"])
    return found[0]


# what lies there

def test_matches_questions_and_a_file_to_fill_in(lab, capsys):
    write_boris(lab, "v7", [("B", "sniff", 0, 10)])
    answer = opened(capsys, lab)
    first, second = answer["table"]
    assert first == {
        "video": "v1", "poses": "v1DLC_net.csv", "tracker": "DeepLabCut", "frames": 300,
        "fps": 30, "animals": "black, white", "annotation": "v1.boris.csv",
        "actions": "rear, sniff"}
    assert second["annotation"] == "none" and second["fps"] is None
    said(answer, "v7.boris.csv belongs to no pose file")
    said(answer, "v2: poses without an annotation")
    said(answer, "v2: no file says the frames per second", "30")
    said(answer, "v1.boris.csv names B, W", "black, white", "subjects")
    said(answer, "to whom these are done: rear, sniff", "alone")
    assert len(answer["sentences"]) == 5 and answer["written"]
    s = read_settings(lab/"dataset.yaml")
    assert s.parts == PARTS and s.fps == 30 and s.alone is None and s.actions == ()
    assert [*s.animals] == ["black", "white"] and [*s.videos] == ["v1", "v2"]


def test_listed_actions_ask_for_alone_also_where_a_table_names_every_target(lab):
    for path in lab.glob("*.boris.csv"): path.unlink()
    (lab/"bouts.csv").write_text("video,agent,target,action,start,stop\n"
                                 "v1,black,white,snifff,1,2\nv1,black,white,sniff,3,4\n"
                                 "v1,black,black,rear,5,6\nv2,white,black,sniff,1,2\n")
    (lab/"dataset.yaml").write_text("fps: 30\n")
    assert len(open_dataset(lab)["v1"].bouts) == 3 # nothing more must be said
    (lab/"dataset.yaml").write_text("fps: 30\nactions: [sniff, rear]\n")
    said({"sentences": match_files(open_dataset(lab)).sentences}, "list under alone")
    with pytest.raises(DataError, match="actions.* which of them .* by itself; .* alone"):
        open_dataset(lab)["v1"]
    (lab/"dataset.yaml").write_text("fps: 30\nactions: [sniff, rear]\nalone: [rear]\n")
    said({"sentences": match_files(open_dataset(lab)).sentences}, "'snifff' is marked", "did you mean 'sniff'?")


def test_a_row_without_a_target_contradicts_alone(lab):
    "With three animals it is asked, with two the other one is meant."
    rows = "Time,FPS (frame/s),Subject,Behavior,Whom,Behavior type\n" + "".join(
        f"{t},30,{who},{what},{whom},{kind}\n" for t, who, what, whom, kind in (
            (1, "black", "sniff", "white", "START"), (2, "black", "sniff", "white", "STOP"),
            (3, "black", "sniff", "", "START"), (4, "black", "sniff", "", "STOP"),
            (5, "black", "rear", "", "START"), (6, "black", "rear", "", "STOP")))
    for path in lab.glob("*.boris.csv"): path.write_text(rows)
    (lab/"dataset.yaml").write_text("fps: 30\ntarget_from: Whom\nalone: [rear]\n")
    rec = open_dataset(lab)["v1"]
    assert [*rec.bouts.target] == ["white", "white", "black"]
    three = rec.replace(xy=rec.xy[:, [0, 1, 1]], mice=("black", "white", "grey"))
    s = read_settings(lab/"dataset.yaml")
    with pytest.raises(DataError, match="does not say to whom 'black' does 'sniff'"):
        read_scored(next(lab.glob("v1*.boris.csv")), three, s)


def test_what_is_not_answered_is_asked_and_never_guessed(lab):
    with pytest.raises(DataError, match="names 'B', 'W'.*under subjects"): open_dataset(lab)["v1"]
    who = "fps: 30\nsubjects: {B: black, W: white}\n"
    (lab/"dataset.yaml").write_text(who)
    with pytest.raises(DataError, match="does not say to whom 'black'"): open_dataset(lab)["v1"]
    for alone, targets in (("[rear]", ["white", "white"]), ("[]", ["white", "black"])):
        (lab/"dataset.yaml").write_text(f"{who}alone: {alone}\n")
        assert open_dataset(lab)["v1"].bouts.target.tolist() == targets
    (lab/"v2.caltech.txt").write_text("Caltech Behavior Annotator - Annotation File\n\nS1:\tstart"
                                      "\tend\ttype\n-----\n\t11\t20\tchase\n")
    with pytest.raises(DataError, match="who of black, white acts"): open_dataset(lab)["v2"]
    (lab/"dataset.yaml").write_text(f"{who}alone: []\nvideos: {{v2: {{agent: white}}}}\n")
    assert open_dataset(lab)["v2"].bouts.values.tolist() == [["white", "black", "chase", 10, 20]]


def test_a_column_of_boris_says_to_whom(lab):
    (lab/"v1.boris.csv").write_text(
        "Subject,Behavior,Modifiers,Behavior type,Start (s),Stop (s),FPS\n"
        "B,sniff,W,STATE,1,2,30\nW,rear,,STATE,3,4,30\n")
    (lab/"dataset.yaml").write_text("fps: 30\nsubjects: {B: black, W: white}\n"
                                    "target_from: Modifiers\n")
    data = open_dataset(lab)
    assert data["v1"].bouts[["agent", "target"]].values.tolist() == [
        ["black", "white"], ["white", "white"]]
    assert not any("to whom" in s for s in match_files(data).sentences)


@pytest.mark.parametrize("who, rows", [("No focal subject", ""), ("", ""), ("B", " (in some rows)")])
def test_rows_of_no_subject_are_told_with_their_actions(lab, capsys, who, rows):
    write_boris(lab, "v1", [(who, "sniff", 30, 60), ("No focal subject", "rear", 90, 120)])
    answer = opened(capsys, lab)
    assert answer["table"][0]["actions"] == "rear, sniff"
    said(answer, f"v1.boris.csv{rows} names no animal: write under agent who acts")
    assert not [s for s in answer["sentences"] if "no subject" in s] # of our own invention
    answer = opened(capsys, lab, "--overwrite", "--set", "agent=W", "--set", "alone=[]")
    assert (now := read_settings(lab/"dataset.yaml")).agent == "W" and now.alone == ()
    assert not [s for s in answer["sentences"] if "under agent" in s]


def test_letters_that_names_cannot_have_are_told(tmp_path, capsys):
    for k in (1, 2): write_dlc(tmp_path, f"v{k}", recording(k), ("Bö♂", "Gut"))
    write_boris(tmp_path, "v1", [("Bö♂", "sniff", 30, 60)])
    answer = opened(capsys, tmp_path)
    said(answer, "names of animals have letters, digits, '.', '-' and '_' alone: Bö♂ is Bö_") # once
    assert read_settings(tmp_path/"dataset.yaml").subjects == {"Bö♂": "Bö_"}
    (tmp_path/"dataset.yaml").write_text("fps: 30\nsubjects: {Bö♂: Bö_}\nalone: []\n")
    rec = open_dataset(tmp_path)["v1"]
    assert rec.bouts.agent.tolist() == ["Bö_"]
    assert [f.kind for f in rec.findings] == ["renamed_animals"]


def test_one_animal_raises_no_question(tmp_path):
    rec = recording(1)
    write_dlc(tmp_path, "v1", rec.replace(xy=rec.xy[:, :1], mice=("mouse1",)), ("solo",))
    write_boris(tmp_path, "v1", [("No focal subject", "rear", 30, 60)])
    data = open_dataset(tmp_path)
    assert data["v1"].bouts.values.tolist() == [["solo", "solo", "rear", 30, 60]]
    assert match_files(data).sentences == []


def test_rates_and_lengths_that_differ_are_told(lab, capsys):
    write_boris(lab, "v2", [("black", "sniff", 30, 2000)], fps=25)
    answer = opened(capsys, lab)
    said(answer, "25 (v2) and 30 (v1)")
    said(answer, "v2, v2.boris.csv: the annotation ends at 80.00 s (frame 2,000)",
         "the poses at 12.00 s (frame 300)")
    assert read_settings(lab/"dataset.yaml").fps is None
    answer = opened(capsys, lab, "--overwrite", "--set", "fps=30")
    said(answer, "v2.boris.csv was made at 25", "says 30")
    answer = opened(capsys, lab, "--overwrite", "--set", "videos={v2: {fps: 25}, v9: {}}")
    said(answer, "dataset.yaml, videos", "'v9'")
    assert [r["fps"] for r in answer["table"]] == [30, 25]


def test_sides_that_are_swapped_are_flagged(lab):
    assert not any("mirror" in s for s in match_files(open_dataset(lab)).sentences)
    (lab/"dataset.yaml").write_text("parts: {Snout: nose, Tailbase: tail_base, ear_L: "
                                    "ear_right, rightEar: ear_left}\n")
    found = [s for s in match_files(open_dataset(lab)).sentences if "ear_left" in s]
    assert sum("swapped" in s for s in found) == 2


def test_two_files_of_a_kind_and_other_layouts(lab, tmp_path, capsys):
    (lab/"v2.tracks.csv").write_text("a,b\n1,2\n")
    (lab/"v1.dlc.csv").write_bytes((lab/"v1DLC_net.csv").read_bytes())
    answer = opened(capsys, lab)
    said(answer, "v2.tracks.csv is neither poses")
    said(answer, "'v1' has 2 such files", "keep one")
    assert main(["synth", str(tmp_path/"colony"), "--videos", "2", "--minutes", "0.1"]) == 0
    capsys.readouterr()
    assert opened(capsys, tmp_path/"colony")["settings"] is None
    assert main(["open", str(tmp_path/"colony"), "--set", "fps=30"]) == 2


# dataset.yaml

def test_an_edited_file_stays_and_its_answers_too(lab, capsys):
    opened(capsys, lab)
    path = lab/"dataset.yaml"
    mine = path.read_text().replace("alone:", "alone: [rear]").replace(
        "v1: {group: , condition: }", "v1: {dose: low}").replace("  B:", "  B: black") + "# mine\n"
    path.write_text(mine)
    assert not opened(capsys, lab)["written"] and path.read_text() == mine
    assert main(["open", str(lab), "--set", "fps=25"]) == 2
    assert "--overwrite" in capsys.readouterr().err and path.read_text() == mine
    write_dlc(lab, "v3", recording(3))
    assert opened(capsys, lab, "--overwrite", "--set", "min_confidence=0.5")["written"]
    s = read_settings(path)
    assert s.alone == ("rear",) and s.subjects == {"B": "black"} and s.min_confidence == 0.5
    assert s.videos["v1"] == {"dose": "low"} and s.videos["v3"] == {"dose": None}


@pytest.mark.parametrize("text, words", [
    ("fsp=30", "did you mean 'fps'"), ("fps", "KEY=VALUE"), ("fps=fast", "fps"),
    ("fps=[", "no YAML"), ("animals={black: ../x}", "cannot name"),
    ("parts={Snout: no/se}", "body part 'no/se' is no name"), ("parts={Snout: ''}", "body part '' is no name"),
    ("videos={v1: {fps: fast}}", "fps"), ("videos={v1: low}", "videos.v1")])
def test_answers_that_are_none(lab, capsys, text, words):
    assert main(["open", str(lab), "--set", text]) == 2
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1 and not (lab/"dataset.yaml").exists()


def test_names_are_applied_on_reading(lab):
    raw = read_poses(lab/"v1DLC_net.csv", 30)
    (lab/"dataset.yaml").write_text(
        "fps: 30\nalone: []\nanimals: {black: resident, white: guest}\nparts: {Snout: nose}\n"
        "subjects: {B: resident, W: guest}\n")
    rec = open_dataset(lab)["v1"]
    assert rec.mice == ("resident", "guest") and rec.parts == ("nose", *raw.parts[1:])
    assert np.array_equal(rec.xy, raw.xy, equal_nan=True)
    assert rec.bouts.agent.tolist() == ["resident", "guest"]
    (lab/"dataset.yaml").write_text("fps: 30\nparts: {Snout: neck}\n")
    with pytest.raises(DataError, match="parts.*two of video v2 the name 'neck'"):
        open_dataset(lab)["v2"]


def test_groups_change_no_features_and_names_do(lab):
    text = "fps: 30\nalone: []\nsubjects: {B: black, W: white}\n"
    def print_of(more):
        (lab/"dataset.yaml").write_text(text + more)
        return open_dataset(lab).fingerprint("v1")
    plain = print_of("")
    assert print_of("videos: {v1: {dose: low}}\n") == plain
    assert len({plain, print_of("parts: {Snout: nose}\n"),
                print_of("videos: {v1: {px_per_cm: 20}}\n")}) == 3


def test_groups_of_videos_and_of_animals():
    from mabe_nb.data.folder.settings import group_rows
    one = make_settings({"videos": {1: {"dose": 0.5, "fps": 25}, 2: {"dose": None}}})
    assert group_rows(one, "1", None) == [{"video": "1", "dose": "0.5"}]
    assert group_rows(one, "2", None) == [{"video": "2"}]
    two = make_settings({"videos": {"a": {"day": 1, "black": {"dose": "high"}}}})
    assert group_rows(two, "a", lambda: ("black", "white")) == [
        {"video": "a", "animal": "black", "day": "1", "dose": "high"},
        {"video": "a", "animal": "white", "day": "1"}]
    with pytest.raises(DataError, match="no animal 'black', only x"):
        group_rows(two, "a", lambda: ("x",))


# SimBA and DLCAnalyzer

def simba_table(n=40, animals=2, features=True, actions=True):
    "A table as SimBA writes it into csv/targets_inserted."
    rng, columns = np.random.default_rng(0), {}
    for a in range(1, animals + 1):
        for part in ("Nose", "Ear_left", "Tail_base"):
            end = f"_{a}" if animals > 1 else ""
            for c in "xy": columns[f"{part}{end}_{c}"] = rng.uniform(1, 900, n).round(3)
            columns[f"{part}{end}_p"] = np.ones(n)
    if features: columns |= {"Movement": rng.random(n), "Low_prob_detections_0.75": np.zeros(n, int)}
    if actions:
        columns |= {"Attack": np.arange(n) // 10 % 2, "Sniffing": np.zeros(n, int)}
    return pd.DataFrame(columns)


def test_simba_poses_and_actions_of_one_file(tmp_path):
    table = simba_table()
    table.loc[5, ["Nose_2_x", "Nose_2_y", "Nose_2_p"]] = 0 # not found
    table.to_csv(tmp_path/"day1.csv")
    simba_table(actions=False).to_csv(tmp_path/"day2.csv") # csv/features_extracted
    (tmp_path/"dataset.yaml").write_text("fps: 30\nagent: mouse1\nalone: []\n")
    data = open_dataset(tmp_path)
    rec = data["day1"]
    assert rec.mice == ("mouse1", "mouse2") and rec.parts == ("Nose", "Ear_left", "Tail_base")
    assert np.isnan(rec.xy[5, 1, 0]).all() and np.isfinite(rec.xy).mean() > 0.99
    assert np.allclose(rec.xy[7, 1, 2], table.loc[7, ["Tail_base_2_x", "Tail_base_2_y"]], 1e-5)
    assert rec.bouts.values.tolist() == [["mouse1", "mouse2", "Attack", f, f + 10]
                                         for f in (10, 30)]
    assert {x for _, _, x in rec.labelled} == {"Attack", "Sniffing"}, "looked for, never seen"
    assert data.labelled("day2") is None and data["day2"].labelled is None
    assert match_files(data).table.annotation.tolist() == ["day1.csv", "none"]


def test_rows_of_simba_that_were_sorted_or_lost_and_cells_that_a_spreadsheet_changed(tmp_path):
    "Each of these moved points or actions to other frames, or made them missing, without a word."
    path, table = tmp_path/"v.csv", simba_table(12)
    for spoilt, words in (
            (table.sort_values("Nose_1_x"), "expected a row for each frame of the video, in their order"),
            (table.drop(index=5), "row 7: frame 6 follows 4"),
            (pd.concat([table[:4], table[3:]]), "row 6: frame 3 follows 3"),
            (table.astype({"Nose_1_y": str}).replace({"Nose_1_y": {str(table.Nose_1_y[3]): "12. Mai"}}),
             "row 5: Nose_1_y is '12. Mai', expected a number")):
        spoilt.to_csv(path)
        with pytest.raises(DataError, match=words): read_poses(path, 30)
    table.drop(index=5).to_csv(path)
    with pytest.raises(DataError, match="row 7: frame 6 follows 4"): read_simba(path)
    table.iloc[3:].to_csv(path) # of a film that was cut
    assert len(read_poses(path, 30)) == 9
    table.assign(Attack=1).to_csv(path)
    text = path.read_text()
    for same in (text.replace("\n", "\n\n"), "\n".join(",".join(f'"{c}"' for c in x.split(",")) for x in text.split())):
        path.write_text(same)
        assert simba_actions(path) == ("Attack", "Sniffing") and len(read_simba(path)) == 1
    path.write_text(text[:-2])
    with pytest.raises(DataError, match="expected 0 and 1 in every row of Attack, Sniffing"): read_simba(path)


def test_features_of_zones_are_no_actions(tmp_path):
    table = simba_table(actions=False).assign(**{
        "Door Simon Nose_1 distance": 0.5, "Door Simon Nose_1 in zone": 1, "Door Simon facing": 0})
    for name, add in (("a", {}), ("b", {"Attack": 1})):
        table.assign(**add).to_csv(tmp_path/f"{name}.csv")
        assert simba_actions(tmp_path/f"{name}.csv") == (*add,)


def test_a_project_of_simba_has_each_video_once(tmp_path):
    csv = tmp_path/"study"/"project_folder"/"csv"
    for stage, table in (("features_extracted", simba_table(actions=False)),
                         ("input_csv", simba_table(features=False, actions=False)),
                         ("machine_results", simba_table().assign(Probability_Attack=0.5, Attack=1)),
                         ("outlier_corrected_movement", simba_table(features=False, actions=False)),
                         ("outlier_corrected_movement_location",
                          simba_table(features=False, actions=False) + 1),
                         ("targets_inserted", simba_table())):
        (csv/stage).mkdir(parents=True)
        table.to_csv(csv/stage/"day1.csv")
        if stage not in ("targets_inserted", "features_extracted"): table.to_csv(csv/stage/"day2.csv")
    (csv.parent/"project_config.ini").write_text("[General settings]\n")
    for root, before in ((tmp_path, "study_"), (csv.parent, "")):
        (root/"dataset.yaml").write_text("fps: 30\nagent: mouse1\nalone: []\n")
        data = open_dataset(root)
        assert data.ids == (f"{before}day1", f"{before}day2") and not data.findings()
        assert len(data[data.ids[0]].bouts) == 2 and data.labelled(data.ids[1]) is None
        moved = data.files(data.ids[1])[0]
        assert moved.parent.name == "outlier_corrected_movement_location", "the last of poses"
        (root/"dataset.yaml").unlink()


def test_simba_other_tables(tmp_path):
    single = simba_table(animals=1)
    single.to_csv(tmp_path/"a.csv")
    assert read_poses(tmp_path/"a.csv", 30).mice == ("mouse1",)
    assert simba_actions(tmp_path/"a.csv") == ("Attack", "Sniffing")
    single.rename(columns={"Low_prob_detections_0.75": "Probability_Attack"}).to_csv(
        tmp_path/"b.csv") # csv/machine_results: predicted, not scored
    assert simba_actions(tmp_path/"b.csv") == () and pose_source(tmp_path/"b.csv") == "SimBA"
    poses = simba_table(features=False, actions=False)
    poses.to_csv(tmp_path/"c.csv") # csv/outlier_corrected_movement_location: p of 1 in the end
    assert simba_actions(tmp_path/"c.csv") == ()
    names = [f"{'Jo' if '_1_' in c else 'Al'}_{c}" for c in poses]
    head = [",".join([w, *cells]) for w, cells in (
        ("scorer", ["DLC_multi"] + [f"DLC_multi.{i}" for i in range(1, len(names))]),
        ("bodyparts", ["DLC_multi"] * len(names)), ("coords", names))]
    (tmp_path/"d.csv").write_text("\n".join(head) + "\n" + poses.to_csv(header=False))
    rec, same = (read_poses(tmp_path/f"{x}.csv", 30) for x in "dc") # csv/input_csv
    assert rec.mice == ("Jo", "Al") and rec.parts == same.parts
    assert np.array_equal(rec.xy, same.xy)
    single.assign(Attack=np.r_[np.zeros(39), 3]).to_csv(tmp_path/"e.csv")
    (tmp_path/"dataset.yaml").write_text("fps: 30\nactions: [Attack]\n")
    simba_table(animals=1, actions=False).assign(Attack=3).to_csv(tmp_path/"f.csv")
    assert open_dataset(tmp_path)["a"].labelled == {("mouse1", "mouse1", "Attack")}
    assert simba_actions(tmp_path/"e.csv") == ("Sniffing",)
    with pytest.raises(DataError, match="expected 0 and 1 in every row of Attack"):
        open_dataset(tmp_path)["e"]


def scored_by_two(folder, column="scorer"):
    for name in ("v1", "v2", "v3"): write_dlc(folder, name, recording(1), ("a", "b"))
    (folder/"scores.csv").write_text(f"video,{column},agent,target,action,start,stop\n"
        "v1,Anna,a,b,sniff,0.1,0.5\nv1,Ben,a,b,sniff,0.2,0.6\nv2,Anna,a,b,sniff,0.1,0.3\n"
        "v3,Ben,a,b,sniff,0.1,0.3\n")


@pytest.mark.parametrize("column", ["scorer", "Observer", "annotator", "Coder", "rater"])
def test_a_table_of_bouts_by_two_scorers(tmp_path, column):
    "The rows of one are read; a video of the other is as if nobody had scored it."
    scored_by_two(tmp_path, column)
    (tmp_path/"dataset.yaml").write_text("fps: 10\n")
    data = open_dataset(tmp_path)
    with pytest.raises(DataError, match="has rows of Anna and Ben for one video; name one"): data["v1"]
    assert len(data["v2"].bouts) == len(data["v3"].bouts) == 1
    for who, of, other in (("Anna", "v2", "v3"), ("Ben", "v3", "v2")):
        (tmp_path/"dataset.yaml").write_text(f"fps: 10\nscorer: {who}\n")
        data = open_dataset(tmp_path)
        start = {"Anna": 1, "Ben": 2}[who]
        assert data["v1"].bouts.values.tolist() == [["a", "b", "sniff", start, start + 4]]
        assert len(data[of].bouts) == 1 and data[other].labelled is None
        assert data.labelled(other) is None and open_dataset(tmp_path, split="test").ids == (other,)
    (tmp_path/"dataset.yaml").write_text("fps: 10\nscorer: Ana\n")
    with pytest.raises(DataError, match="is 'Ana', tables were scored by Anna, Ben"): open_dataset(tmp_path)


LABELS = """"file";"Experimenter";"from";"to";"type";"ID";"DLCFile"
"OFT_11_Jin.csv";"Jin";0.5;0.7;"Start/End";"OFT_11";"3_01DeepCut_resnet50_May9_1030000.csv"
"OFT_11_Jin.csv";"Jin";1.0;2.0;"Supported";"OFT_11";"3_01DeepCut_resnet50_May9_1030000.csv"
"OFT_12_Jin.csv";"Jin";1.0;3.0;"Grooming";"OFT_12";"21DeepCut_resnet50_May9_1030000.csv"
"OFT_12_Ada.csv";"Ada";1.5;3.0;"Grooming";"OFT_12";"21DeepCut_resnet50_May9_1030000.csv"
"OFT_9_Ada.csv";"Ada";1.5;3.0;"Grooming";"OFT_9";"9DeepCut_resnet50_May9_1030000.csv"
"""


@pytest.mark.parametrize("text", [LABELS, LABELS.replace(";", ","),
                                  LABELS.replace("1.0;", "1,0;").replace('"', "")])
def test_dlcanalyzer_one_table_for_many_videos(tmp_path, text):
    rec = recording(1).replace(mice=("mouse1",), xy=recording(1).xy[:, :1])
    for name in ("3_01DeepCut_resnet50_May9_1030000", "OFT_12", "other"):
        write_dlc(tmp_path, name, rec, ("solo",))
        (tmp_path/f"{name}DLC_net.csv").rename(tmp_path/f"{name}.csv")
    (tmp_path/"AllLabels.csv").write_text(text)
    (tmp_path/"dataset.yaml").write_text("fps: 10\n")
    data = open_dataset(tmp_path)
    assert data.ids == ("3_01", "OFT_12", "other") and data.labelled("other") is None
    assert data["3_01"].bouts.values.tolist() == [["solo", "solo", "Supported", 10, 20]]
    with pytest.raises(ConfigError, match="Ada and Jin scored this video"): data["OFT_12"]
    found = match_files(data).sentences
    assert any("Ada and Jin" in s for s in found) and any("(video 9)" in s for s in found)
    (tmp_path/"dataset.yaml").write_text("fps: 10\nscorer: Ada\n")
    assert open_dataset(tmp_path)["OFT_12"].bouts.start.tolist() == [15]


@pytest.mark.parametrize("old, new, words", [
    ("1.0;2.0", "2.0;1.0", "row 3: stops before"), ("1.0;2.0", "x;2.0", "row 3: from is 'x'")])
def test_dlcanalyzer_faults(tmp_path, old, new, words):
    from mabe_nb.data.formats.bout_tables import read_labels
    (tmp_path/"l.csv").write_text(LABELS.replace(old, new))
    with pytest.raises(DataError, match=words):
        read_labels(tmp_path/"l.csv", 10, lambda cell: cell == "OFT_11")


MARKED = """file;Experimenter;from;to;type;ID
FST_1.json;Jin;10.0;11.0;Start_End;v1
FST_1.json;Jin;12.0;13.0;Floating;v1
FST_1.json;Jin;24.0;25.0;Start_End;v1
"""
START, BOUT, END = MARKED.splitlines(True)[1:]


@pytest.mark.parametrize("rows, window", [
    (START + BOUT + END, (100, 250)), (START + BOUT, None), (BOUT, None), (START + END, (100, 250)),
    (START + BOUT + END + BOUT.replace("12.0;13.0", "27.0;28.0"), (100, 280)),
    (START.replace("11.0", "20.0").replace("_", "/") + BOUT, (100, 200))])
def test_dlcanalyzer_marks_where_somebody_looked(tmp_path, rows, window):
    "Of about a second each, as in data/FST/Lables and data/EPM/Labels of the project."
    write_dlc(tmp_path, "v1", recording(1).replace(mice=("mouse1",), xy=recording(1).xy[:, :1]), ("solo",))
    (tmp_path/"labels.csv").write_text(MARKED.splitlines(True)[0] + rows)
    (tmp_path/"dataset.yaml").write_text("fps: 10\nactions: [Floating]\nalone: [Floating]\n")
    rec = open_dataset(tmp_path)["v1"]
    assert rec.scored == window and {*rec.bouts.action} <= {"Floating"}
    (tmp_path/"dataset.yaml").write_text("fps: 10\nactions: [Floating]\nalone: [Floating]\nwhole: true\n")
    assert open_dataset(tmp_path)["v1"].scored is None


@pytest.mark.parametrize("words", ["Time,Behaviour\n{}", "Time;Behaviour\n{}"])
def test_solomon_coder_tells_of_its_rows_alone(tmp_path, words):
    write_dlc(tmp_path, "v1", recording(1).replace(mice=("mouse1",), xy=recording(1).xy[:, :1]), ("solo",))
    mark = words[4]
    rows = "".join(f"{2 + i / 5:.1f}{mark}{'groom' * (5 <= i < 10)}\n" for i in range(25))
    (tmp_path/"v1.csv").write_text(words.format(rows))
    (tmp_path/"dataset.yaml").write_text("fps: 10\n")
    rec = open_dataset(tmp_path)["v1"]
    assert rec.scored == (20, 70) and rec.bouts.values.tolist() == [["solo", "solo", "groom", 30, 40]]
    assert {f.kind for f in rec.findings} == {"not_scored"}


def test_a_caltech_file_of_base_alone_is_not_scored(tmp_path):
    write_dlc(tmp_path, "v1", recording(1), ("black", "white"))
    (tmp_path/"v1.txt").write_text("Caltech Behavior Annotator - Annotation File\n\nConfiguration file:\n"
                                   "base\tz\nsocial\ts\n\nS1:\tstart\tend\ttype\n-----\n\t1\t50\tbase\n")
    for more, known in (("", None), ("whole: true\n", {("black", "white", "social")})):
        (tmp_path/"dataset.yaml").write_text(
            "fps: 10\nactions: [social]\nalone: []\nagent: black\ntarget: white\n" + more)
        data = open_dataset(tmp_path)
        rec = data["v1"]
        assert rec.labelled == data.labelled("v1") == known
        said = {f.kind: f.message for f in rec.findings}["nothing_marked"]
        assert said == "v1.txt marks nothing" + (": taken to be absent: social" if known else
                                                 " and no frame as looked at: taken for not scored")


# our own tables of bouts

@pytest.fixture
def cage(tmp_path):
    "Two videos of three animals, and nothing scored yet."
    for k in (1, 2):
        rec = recording(k, mice=3)
        write_dlc(tmp_path, f"day{k}", rec, ("black", "white", "brown"))
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    return tmp_path


BOUTS = """video,agent,target,action,start,stop
day1,black,white,chase,1.0,2.5
day1,white,white,rear,4.0,4.01
day2,brown,black,sniff,0.5,1
day3,brown,black,sniff,0.5,1
"""
TOLD = {"day1": [["black", "white", "chase", 30, 75], ["white", "white", "rear", 120, 121]],
        "day2": [["brown", "black", "sniff", 15, 30]]}


@pytest.mark.parametrize("text", [
    BOUTS, BOUTS.replace(",", ";"), BOUTS.replace(",", "\t"), "\ufeff" + BOUTS,
    BOUTS.replace("video,agent,target,action,start,stop", "Video,Agent,TARGET, Action ,Start,Stop"), (
    "video_id,agent_id,target_id,action,start_frame,stop_frame\n"
    "day1,black,white,chase,30,75\nday1,white,self,rear,120,121\nday2,brown,black,sniff,15,30\n"
    "day3,brown,black,sniff,1,2\n")])
def test_one_table_of_bouts_for_many_videos(cage, text):
    (cage/"scored.csv").write_text(text)
    data = open_dataset(cage)
    assert {v: data[v].bouts.values.tolist() for v in data.ids} == TOLD
    assert data.labelled("day2") == {("brown", t, "sniff") for t in ("black", "white")}
    said = match_files(data)
    assert said.table.annotation.tolist() == ["scored.csv"] * 2 and "No file says" not in said.settings
    assert any("belongs to no pose file (video day3)" in s for s in said.sentences)
    (cage/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nactions: [chase, rear]\n")
    looked = open_dataset(cage).labelled("day2")
    assert len(looked) == 6 + 3 + 1 and ("brown", "white", "chase") in looked


@pytest.mark.parametrize("column, film", [
    ("filename", "day1.mp4"), ("File", "C:\\films\\day1.mp4"), ("file", "/films/day1.mp4")])
def test_a_table_of_many_may_name_films(cage, column, film):
    (cage/"scored.csv").write_text(f"{column},agent,target,action,start,stop\n"
                                   f"{film},black,white,chase,1,2.5\nday2.mp4,white,black,sniff,1,2\n")
    data = open_dataset(cage)
    assert data["day1"].bouts.values.tolist() == [["black", "white", "chase", 30, 75]]
    assert [*data["day2"].bouts.action] == ["sniff"] and not data.findings()


def test_drop_frame_times_keep_step_with_the_clock(tmp_path):
    "As SMPTE 12M counts at 29.97: 1,800 frames after 0:00:00;00 it is 0:01:00;02."
    (tmp_path/"v1.csv").write_text("agent,target,action,start,stop\na,,rear,0:01:00;02,00:10:00;00\n")
    read = lambda fps: read_bout_table(tmp_path/"v1.csv", fps)[["start", "stop"]].values.tolist()
    assert read(29.97) == [[1800, 17982]]
    codes = [f"0:{m}:{s:02};{f:02}" for m in range(21) for s in range(60) for f in range(30)
             if s or f > 1 or m % 10 == 0]
    rows = "".join(f"a,,rear,{c},{c}\n" for c in codes)
    (tmp_path/"v1.csv").write_text(f"agent,target,action,start,stop\n{rows}")
    assert [a for a, _ in read(29.97)] == [*range(len(codes))]
    with pytest.raises(DataError, match="';' in it at 30 or 60 frames a second alone"): read(25)


def test_tables_of_bouts_of_one_video_each(cage):
    (cage/"day1.csv").write_text("agent,target,action,start,stop\nB,white,chase,1,2.5\n"
                                 ",,rear,4,4.01\nblack,nobody,rear,1,2\n")
    (cage/"dataset.yaml").write_text("fps: 30\nsubjects: {B: black}\nalone: [rear]\n"
                                     "agent: white\nuntracked: [nobody]\n")
    assert open_dataset(cage)["day1"].bouts.values.tolist() == TOLD["day1"]
    (cage/"dataset.yaml").write_text("fps: 30\nalone: [rear]\n")
    with pytest.raises(DataError, match="day1.csv, row 3: names no agent"): open_dataset(cage)["day1"]


@pytest.mark.parametrize("column", ["subject", "Animal", "animal_id"])
def test_whose_bouts_a_sheet_tells_and_the_one_name_of_one_animal(cage, tmp_path, column):
    (cage/"day1.csv").write_text(f"{column},target,behaviour,start,end\nblack,white,chase,1,2.5\n")
    (cage/"dataset.yaml").write_text("fps: 30\nalone: [rear]\n")
    assert open_dataset(cage)["day1"].bouts.values.tolist() == [["black", "white", "chase", 30, 75]]
    alone = tmp_path/"alone"
    alone.mkdir()
    write_dlc(alone, "v", recording(0, mice=1), ["solo"])
    (alone/"v.csv").write_text(f"{column},behaviour,start,end\nM17,rear,1,2\nM17,rear,3,4\n")
    (alone/"dataset.yaml").write_text("fps: 30\n")
    assert set(open_dataset(alone)["v"].bouts.agent) == {"solo"}


@pytest.mark.filterwarnings("ignore::mabe_nb.data.folder.tracker_folder.LabNote")
@pytest.mark.parametrize("row, words", [
    ("black,white,chase,2,1", "row 2: stops before"), ("black,white,chase,x,1", "start is 'x'"),
    ("black,white,chase,-1,1", "expected seconds"), ("black,white,,1,2", "names no action"),
    ("black,,chase,1,2", "does not say to whom 'black' does 'chase'"),
    ("black,whit,chase,1,2", "did you mean 'white'"), ("black,white,chase,1", "stop is ''"),
    ("black,white,chase,30,75", "are its times frames and not seconds")])
def test_faults_of_a_table_of_bouts(cage, row, words):
    (cage/"day1.csv").write_text(f"agent,target,action,start,stop\n{row}\n")
    try: said = [f.message for f in open_dataset(cage)["day1"].findings]
    except DataError as e: said = [str(e)]
    assert any(words in s for s in said)


def test_what_a_run_found_is_no_annotation(cage):
    head = "video_id,agent,target,action,start,stop"
    for name, more in (("sub", "row_id"), ("moments", "confidence"), ("differ", "seen_by")):
        (cage/f"{name}.csv").write_text(f"{head},{more}\nday1,black,white,chase,3,9,0\n")
    data = open_dataset(cage)
    assert data.labelled("day1") is None and sum("not read" in f.message for f in data.findings()) == 3


def test_a_table_of_many_videos_is_parsed_once(cage, monkeypatch):
    from mabe_nb.data.formats import text_tables
    parsed, parse = [], text_tables._named_cells
    monkeypatch.setattr(text_tables, "_named_cells", lambda path: parsed.append(path) or parse(path))
    (cage/"scored.csv").write_text(BOUTS)
    data = open_dataset(cage)
    assert {v: data[v].bouts.values.tolist() for v in data.ids} == TOLD and len(parsed) == 1
    (cage/"scored.csv").write_text(BOUTS.replace("1.0,2.5", "1.0,2.0")) # of the same size
    assert open_dataset(cage)["day1"].bouts.stop.iloc[0] == 60 and len(parsed) == 2


def test_bouts_that_we_wrote_come_back(tmp_path):
    from mabe_nb.analysis.exports import export_csv
    from mabe_nb.analysis.measures import observe
    recs = [recording(k, 900, mice=3).replace(video_id=f"v{k}") for k in (1, 2)]
    for rec in recs: write_dlc(tmp_path, rec.video_id, rec, rec.mice)
    export_csv(observe(recs), tmp_path)
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    data = open_dataset(tmp_path)
    for rec in recs:
        assert len(rec.bouts) > 3
        assert data[rec.video_id].bouts.values.tolist() == rec.bouts.values.tolist()


# the whole way

@pytest.mark.slow
def test_real_files_of_many_trackers(tmp_path, capsys):
    if not REAL.is_dir(): pytest.skip(f"no real pose files in {REAL}")
    for name in ("deepof_multi.dlc.h5", "deepof_single.dlc.csv", "ethome_two_mice.dlc.csv",
                 "deepof_single.sleap.analysis.h5", "ethome_two_mice.boris.csv", "jabs_v3.h5"):
        (tmp_path/name).symlink_to(REAL/name)
    answer = opened(capsys, tmp_path)
    rows = {r["video"]: r for r in answer["table"]}
    assert {v: r["tracker"] for v, r in rows.items()} == {
        "deepof_multi": "DeepLabCut", "deepof_single": "", "ethome_two_mice": "DeepLabCut",
        "jabs_v3": "JABS"}
    assert rows["ethome_two_mice"]["frames"] == 5700
    said(answer, "to whom these are done: interact")
    said(answer, "'deepof_single' has 2 such files")
    parts = read_settings(tmp_path/"dataset.yaml").parts
    assert parts["Left_ear"] == parts["leftear"] == "ear_left" and parts["tail"] == "tail"
    with pytest.raises(DataError, match="to whom 'adult' does 'interact'"):
        open_dataset(tmp_path)["ethome_two_mice"]
    opened(capsys, tmp_path, "--overwrite", "--set", "alone=[]")
    rec = open_dataset(tmp_path)["ethome_two_mice"]
    assert {*rec.bouts.target} == {"juvenile"} and "ear_left" in rec.parts


@pytest.mark.slow
def test_from_files_of_deeplabcut_and_boris_to_a_figure_in_ten_commands(
        tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    names = {"mouse1": "black", "mouse2": "white"}
    watched = {(a, t, "sniff") for a, t in (("mouse1", "mouse2"), ("mouse2", "mouse1"))
               } | {(m, m, "rear") for m in names}
    for k in range(1, 8):
        rec = recording(k, 600, labelled=watched)
        write_dlc(Path("mine"), f"v{k}", rec)
        rows = [(names[b.agent], b.action, b.start, b.stop) for b in rec.bouts.itertuples()]
        if k < 7: write_boris(Path("mine"), f"v{k}", rows)
    groups = ", ".join(f"v{k}: {{dose: {'low' if k % 2 else 'high'}}}" for k in range(1, 8))
    for words in (
            ["open", "mine"],
            ["open", "mine", "--overwrite", "--set", "alone=[rear]", "actions=[sniff, rear]",
             "min_confidence=0.5", f"videos={{{groups}}}"],
            ["audit", "mine"],
            ["train", "mine", "--out", "run", "--epochs", "1", "--hidden-size", "8",
             "--num-layers", "1", "--valid-videos", "v5,v6", "--device", "cpu"],
            ["predict", "run", "mine", "--split", "test", "--out", "new.csv"],
            ["review", "run", "mine", "--split", "test", "--minutes", "1", "--out", "look.csv"],
            ["retrain", "run", "mine", "--out", "again"],
            ["predict", "again", "mine", "--watch", "0", "--out", "found"],
            ["analyse", "annotations", "mine", "--by", "dose", "--out", "results"],
            ["clips", "annotations", "mine", "--most", "1", "--out", "films"]):
        if words[0] == "retrain": # what a person said of the first moment
            m = next(pd.read_csv("look.csv", keep_default_na=False).itertuples())
            add_correction("mine/corrections.jsonl", Correction(
                m.video_id, m.agent, m.target, "relabel", "sniff" if m.agent != m.target
                else "rear", m.start, m.stop, ("sniff", "rear"), (m.action, m.start, m.stop)))
        assert main(words) == 0, capsys.readouterr().err
    assert len([*Path("films").glob("*.mp4")]) == 1 and Path("found/report.html").is_file()
    assert {p.stem for p in Path("found/videos").iterdir()} == {f"v{k}" for k in range(1, 8)}
    new = pd.read_csv("new.csv")
    assert {*new.video_id} <= {"v7"} and {*new.agent_id} <= {"black", "white"}
    table = pd.read_csv("results/groups.csv")
    assert {*table.a} | {*table.b} == {"low", "high"} and Path("results/groups.png").stat().st_size
    assert main(["analyse", "annotations", "mine", "--by", "sex", "--out", "more"]) == 2
    assert "no video has a sex in dataset.yaml" in capsys.readouterr().err


@pytest.mark.slow
def test_groups_of_a_table_go_before_those_of_the_file(lab, tmp_path):
    write_boris(lab, "v2", [("black", "sniff", 0, 200)])
    (lab/"dataset.yaml").write_text(
        "fps: 30\nalone: []\nactions: [sniff]\nsubjects: {B: black, W: white}\n"
        "videos: {v1: {black: {dose: low}, white: {dose: high}}, v2: {dose: low}}\n")
    data = open_dataset(lab)
    assert data.groups().values.tolist() == [
        ["v1", "black", "low"], ["v1", "white", "high"], ["v2", "black", "low"],
        ["v2", "white", "low"]]
    own = analyse(data, tmp_path/"a", by="dose", shuffles=10)["groups"]
    assert own[own.action == "sniff"][["n_a", "n_b"]].values.tolist() == [[1, 3]]
    other = pd.DataFrame({"video": ["v1", "v2"], "dose": ["x", "y"]})
    assert {*analyse(data, tmp_path/"b", groups=other, by="dose", shuffles=10)["groups"].a} == {"x"}
    with pytest.raises(ConfigError, match="groups need by"): analyse(data, tmp_path/"c", groups=other)


def test_a_folder_that_cannot_be_written_is_opened_by_links(tmp_path):
    (own := tmp_path/"own").mkdir()
    with TemporaryDirectory() as shared: # others may come to it, unlike to tmp_path
        (shared := Path(shared)).chmod(0o755)
        write_dlc(shared, "v1", recording(1, 100))
        shared.chmod(0o555)
        if root := not os.getuid(): os.seteuid(65534)
        try:
            with pytest.raises(DataError, match=r"dataset.yaml: cannot be written: .*\(ln -s\)"):
                write_settings(shared/"dataset.yaml", "fps: 25\n")
        finally:
            if root: os.seteuid(0)
            shared.chmod(0o755)
        (own/"v1DLC_net.csv").symlink_to(shared/"v1DLC_net.csv")
        write_settings(own/"dataset.yaml", "fps: 25\n")
        assert open_dataset(own)["v1"].fps == 25


@pytest.mark.filterwarnings("ignore::mabe_nb.data.folder.tracker_folder.LabNote")
def test_of_deeplabcuts_points_the_filtered_ones_are_read(tmp_path):
    write_dlc(tmp_path, "day1", rec := recording(1, 100))
    write_dlc(tmp_path, "day2", rec)
    raw = tmp_path/"day1DLC_net.csv"
    smooth = pd.read_csv(raw, header=[0, 1, 2, 3], index_col=0) * 0 + 0.9
    smooth.to_csv(tmp_path/"day1DLC_net_filtered.csv")
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    data = open_dataset(tmp_path)
    assert data.ids == ("day1", "day2") and not data.findings()
    assert np.allclose(data["day1"].xy, 0.9) and not np.allclose(data["day2"].xy, 0.9)
    (tmp_path/"day1DLC_other.csv").write_bytes(raw.read_bytes()) # of another network
    with pytest.raises(DataError, match="has 3 such files .*keep one"): open_dataset(tmp_path)["day1"]


def test_parts_of_one_usual_name_in_several_files(tmp_path):
    "What mabe open proposes for one file must not make two parts of another one."
    write_dlc(tmp_path, "a1", recording(1)) # Snout
    write_dlc(tmp_path, "b1", recording(2), parts=("nose", "snout", "Snout", "neck", "Tailbase"))
    assert main(["open", str(tmp_path), "--set", "fps=30"]) == 0
    data = open_dataset(tmp_path)
    assert data["a1"].parts[:2] == ("Snout", "ear_left")
    assert data["b1"].parts == ("nose", "snout", "Snout", "neck", "tail_base")


def test_with_three_animals_the_missing_target_is_told_before_anything_is_read(tmp_path):
    rec = recording(1, mice=3)
    write_dlc(tmp_path, "v1", rec, ("a", "b", "c"))
    write_boris(tmp_path, "v1", [("a", "sniff", 30, 60), ("b", "rear", 90, 120)])
    for alone, words in (("[rear]", ["does not say to whom 'a' does 'sniff', and there are 3 animals"]),
                         ("[rear, sniff]", [])):
        (tmp_path/"dataset.yaml").write_text(f"alone: {alone}\n")
        said = match_files(open_dataset(tmp_path)).sentences
        assert len(said) == len(words) and all(w in s for w, s in zip(words, said))

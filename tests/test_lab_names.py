"Names, rates and offsets that a lab's files state are those that are read, or one is asked."
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from test_open_folder import PARTS, recording, simba_table, write_boris, write_dlc

import mabe_nb as mb
from mabe_nb.analysis.groups import unmatched_rows_note, read_groups
from mabe_nb.cli import main
from mabe_nb.data.annotations import read_boris
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.folder.names import nearest_name
from mabe_nb.data.folder.video_names import video_name
from mabe_nb.data.folder.settings import make_settings, read_settings, read_yaml
from mabe_nb.data.recording import bout_table
from mabe_nb.errors import DataError
from mabe_nb.safe_names import by_number, plain_id, safe_id

YAML = "fps: 30\nalone: [rear]\n"


def write_one(folder, video, rows, animal="adult"):
    "The first animal of a recording alone, and what was scored."
    rec = recording(1)
    write_dlc(folder, video, rec.replace(xy=rec.xy[:, :1], mice=rec.mice[:1], bouts=bout_table(),
                                         labelled=None), animals=(animal,))
    write_boris(folder, video, rows)
    (folder/"dataset.yaml").write_text(YAML)


@pytest.mark.parametrize("rows, want", [
    ([("rat7", "rear", 30, 60)], [30]), # the one name is the one animal
    ([("rat7", "rear", 30, 60), ("", "rear", 90, 120)], [30, 90]),
    ([("adult", "rear", 30, 60), ("No focal subject", "rear", 90, 120)], [30, 90]),
    ([("adult", "rear", 30, 60), ("juvenile", "rear", 90, 120)], None),
    ([("rat7", "rear", 30, 60), ("rat8", "rear", 90, 120)], None)])
def test_of_several_subjects_the_one_animal_is_not_all(tmp_path, rows, want):
    write_one(tmp_path, "v1", rows)
    if want is None:
        with pytest.raises(DataError, match="say who is who under subjects"):
            open_dataset(tmp_path)["v1"]
        (tmp_path/"dataset.yaml").write_text(YAML + "untracked: [juvenile, rat8]\n")
        want = [30]
    found = open_dataset(tmp_path)["v1"].bouts
    assert found.start.tolist() == want and set(found.agent) == set(found.target) <= {
        "adult", "rat7", "mouse1"} and found.agent.nunique() == 1


def test_a_rate_that_the_poses_state_stands_against_that_of_the_folder(tmp_path, monkeypatch):
    write_one(tmp_path, "v1", [])
    (tmp_path/"v1.boris.csv").write_text("agent,target,action,start,stop\n,,rear,4,5\n")
    from mabe_nb.data import poses
    read = poses.TRACKERS["DeepLabCut"].read
    monkeypatch.setattr(poses, "TRACKERS", poses.TRACKERS | {"DeepLabCut": poses.TRACKERS[
        "DeepLabCut"]._replace(read=lambda path: (*read(path)[:4], 25.0, *read(path)[5:]))})
    rec = open_dataset(tmp_path)["v1"]
    assert rec.fps == 25 and rec.bouts.start.tolist() == [100]
    assert match_files(open_dataset(tmp_path)).table.fps.tolist() == [25]
    (tmp_path/"dataset.yaml").write_text(YAML + "videos:\n  v1: {fps: 50}\n")
    assert open_dataset(tmp_path)["v1"].fps == 50 # what is said of the video itself


@pytest.mark.parametrize("offset, start", [("0.0", 330), ("10.0", 30), ("10,0", 30), ("-1", 360),
                                           ("00:00:10.000", 30), ("-0:01", 360)])
@pytest.mark.parametrize("times", [("11", "12"), ("00:00:11.000", "00:00:12.000")])
def test_the_offset_above_a_table_of_boris(tmp_path, times, offset, start):
    cells = [["Observation id", "v1"], ["Time offset (s)", offset], ["Time", "FPS", "Subject",
             "Behavior", "Status"], *([t, "30", "a", "rear", s] for t, s in zip(times, ("START", "STOP")))]
    (tmp_path/"old.tsv").write_text("\n".join(map("\t".join, cells)) + "\n")
    assert read_boris(tmp_path/"old.tsv").start.tolist() == [start]


BORIS_OF_TWO = "Observation id,Subject,Behavior,Status,Time,FPS\n" + "".join(
    f"cage.{k},rat,rear,{what},{t},30\n" for k, a in ((1, 1), (2, 3)) for what, t in (
        ("START", a), ("STOP", a + 1)))


@pytest.mark.parametrize("table", [
    "video,agent,action,start,stop\ncage.1,adult,rear,1,2\ncage.2,adult,rear,3,4\n",
    "video,agent,action,start,stop\nd/cage.1.mp4,adult,rear,1,2\ncage.2.mp4,adult,rear,3,4\n",
    "from;to;type;ID\n1,0;2,0;rear;cage.1\n3,0;4,0;rear;cage.2\n", BORIS_OF_TWO])
def test_what_follows_a_dot_is_part_of_a_name_in_a_table(tmp_path, table):
    for video in ("cage", "cage.1", "cage.2"): # the first is of another day
        write_one(tmp_path, "v0", [])
        (tmp_path/"v0.boris.csv").unlink()
        (tmp_path/"v0DLC_net.csv").rename(tmp_path/f"{video}.csv")
    (tmp_path/"scores.csv").write_text(table)
    data = open_dataset(tmp_path)
    assert [data.annotations(v).start.tolist() for v in data.ids] == [[], [30], [90]]
    assert not data.findings()


def test_names_and_groups_are_read_as_they_are_written(tmp_path, capsys):
    assert read_yaml("1_2: on\n010: 01\n5.10: 2024-01-05\n1: [yes, true, 30, 2.5, -1, ~]\n") == {
        "1_2": "on", "010": "01", "5.10": "2024-01-05", "1": ["yes", True, 30, 2.5, -1, None]}
    for video in ("1_2", "12"): write_one(tmp_path, video, [("a", "rear", 30, 60)])
    assert main(["open", str(tmp_path), "--overwrite", "--set",
                 "videos={1_2: {laser: on}, 12: {laser: off}}"]) == 0
    assert read_settings(tmp_path/"dataset.yaml").videos["1_2"]["laser"] == "on"
    assert open_dataset(tmp_path).groups().set_index("video").laser.to_dict() == {
        "1_2": "on", "12": "off"}


@pytest.mark.parametrize("file, name", [
    ("m1DLC_resnet50_aShuffle1_100.csv", "m1"), ("open_field_DLC_m1DLC_net.csv", "open_field_DLC_m1"),
    ("open_field_DLC_m2.csv", "open_field_DLC_m2"), ("DLC_m1.csv", "DLC_m1"),
    ("DLC_m1DLC_resnet50_x.h5", "DLC_m1"), ("m1_DLC_Resnet50_x.csv", "m1_"),
    ("labels.v003.000_Rat 6.analysis.h5", "Rat_6"), ("day.100_2.h5", "day.100_2"),
    ("m1DLC_net_filtered.csv", "m1"), ("m1_superanimal_topviewmouse_hrnet_w32_x_.h5", "m1"),
    ("labels.v001.000_Rat 6.analysis.csv", "Rat_6"),
    ("Ka\u0308fig 1.csv", "K\xe4fig_1"), ("K\xe4fig 1.csv", "K\xe4fig_1"),
    ("\u5c0f\u9f203.csv", "\u5c0f\u9f203"), ("day1_\u0430.csv", "day1_\u0430"),
    ("WT\u2642 \u202e1.csv", "WT___1"), ("\u0e2b\u0e19\u0e391.csv", "\u0e2b\u0e19\u0e391"),
    ("cage1_Behavior.csv", "cage1"), ("cage1.mp4.predictions.slp", "cage1"), ("labels.csv", "labels"),
    ("cage1_manual.csv", "cage1"), ("cage1_framewise.csv", "cage1"), ("manual.csv", "manual"),
    ("cage1_BORIS.tsv", "cage1"), ("cage1_rater2.csv", "cage1"), ("cage1_hand_label.csv", "cage1_hand"),
    ("cage1_ground_truth_labeled.csv", "cage1"), ("cage1-event.csv", "cage1"), ("rater_A.csv", "rater_A"),
    ("cage1_scorer_Ann.csv", "cage1_scorer_Ann")])
def test_the_name_of_a_video(file, name): assert video_name(file) == name


@pytest.mark.parametrize("poses, scored, same", [
    ("WT\u2642", "WT\u2640", False), ("K\xe4fig", "Ka\u0308fig", True),
    ("my cage", "my_cage", True), ("B\u2665", "B\u2660", False)])
def test_names_that_differ_in_a_sign(tmp_path, poses, scored, same):
    write_one(tmp_path, poses, [("a", "rear", 30, 60)])
    (tmp_path/f"{poses}.boris.csv").rename(tmp_path/f"{scored}.boris.csv")
    data = open_dataset(tmp_path)
    if same: assert len(data[data.ids[0]].bouts) == 1
    else:
        with pytest.raises(DataError, match="differ in a sign"): data[data.ids[0]]
        assert "differ in a sign" in " ".join(match_files(data).sentences)


def test_two_videos_whose_names_differ_in_a_sign(tmp_path):
    for name in ("M\u2642use", "M\u2640use"): write_one(tmp_path, name, [])
    with pytest.raises(DataError, match="sign that no name of a video can hold: rename one"):
        open_dataset(tmp_path)["M_use"]
    for file in tmp_path.iterdir(): file.unlink()
    for name in ("M\xe4use", "M\xf6use"): write_one(tmp_path, name, [("a", "rear", 30, 60)])
    data = open_dataset(tmp_path)
    assert sorted(data.ids) == ["M\xe4use", "M\xf6use"] and all(len(data[v].bouts) for v in data.ids)


def test_videos_and_animals_with_chinese_names_stay_apart(tmp_path):
    for name in ("\u5c0f\u9f20", "\u5927\u9f20"): write_one(tmp_path, name, [("a", "rear", 30, 60)])
    data = open_dataset(tmp_path)
    assert sorted(data.ids) == ["\u5927\u9f20", "\u5c0f\u9f20"] and not data.findings()
    assert all(len(data[v].bouts) == 1 for v in data.ids)
    (tmp_path/"animals").mkdir()
    (tmp_path/"animals"/"dataset.yaml").write_text("fps: 30\n")
    write_dlc(tmp_path/"animals", "v1", recording(1), ("\u9ed1", "\u767d"))
    assert open_dataset(tmp_path/"animals")["v1"].mice == ("\u9ed1", "\u767d")


def test_streams_of_one_file_are_told(tmp_path):
    write_one(tmp_path, "v1", [])
    (tmp_path/"v1.boris.csv").unlink()
    head = "Caltech Behavior Annotator - Annotation File\n\n"
    one = "{}: start    end     type\n-----\n 1 30 other\n {} rear\n"
    for more, told in (("", False), (one.format("S2", "90 120"), True)):
        (tmp_path/"v1.txt").write_text(head + one.format("S1", "31 60") + more)
        said = [s for s in match_files(open_dataset(tmp_path)).sentences if "streams S1, S2" in s]
        assert bool(said) == told


def test_streams_of_one_file_are_chosen(tmp_path):
    write_one(tmp_path, "v1", [])
    (tmp_path/"v1.boris.csv").unlink()
    (tmp_path/"v1.txt").write_text(
        "Caltech Behavior Annotator - Annotation File\n\n" + "".join(
            f"{name}: start    end     type\n-----\n {span} rear\n"
            for name, span in (("S1", "31 60"), ("S2", "90 119"))))
    settings = (tmp_path/"dataset.yaml").read_text()
    for streams, starts in (("", [30, 89]), ("[S2]", [89]), ("[S1, S2]", [30, 89])):
        (tmp_path/"dataset.yaml").write_text(f"{settings}\nstreams: {streams}\n")
        data = open_dataset(tmp_path)
        assert data["v1"].bouts.start.tolist() == starts
        assert any("streams S1, S2" in s for s in match_files(data).sentences) != bool(streams)
    (tmp_path/"dataset.yaml").write_text(f"{settings}\nstreams: [S3]\n")
    with pytest.raises(DataError, match=r"v1.txt: has the channels \['S1', 'S2'\]"):
        open_dataset(tmp_path)["v1"]


def test_a_table_of_groups_names_files(tmp_path):
    path = tmp_path/"g.csv"
    path.write_text("FileName,Group\nv1.mp4,drug\nv2.AVI,veh\nv.3,drug\n")
    assert read_groups(path).video.tolist() == ["v1", "v2", "v.3"]
    path.write_text("video,Group\nC:\\lab\\v1.mp4,drug\n\\\\server\\share\\v2.avi,veh\n/home/a/v.3,drug\nday1/v4,veh\n")
    assert read_groups(path).video.tolist() == ["v1", "v2", "v.3", "day1_v4"]
    path.write_text("VIDEO_ID,Group\nv1.mp4,drug\n")
    assert read_groups(path).columns.tolist() == ["video", "Group"]
    path.write_text("video,filename\nv1,drug\n")
    assert read_groups(path).columns.tolist() == ["video", "filename"]


def test_a_table_of_groups_from_a_spreadsheet(tmp_path):
    path = tmp_path/"g.csv"
    path.write_text("Video;Group;Note\nv1;drug ;\n v2;veh;x\nv3;drug;\n;;\n")
    groups = read_groups(path)
    assert groups.columns.tolist() == ["video", "Group", "Note"]
    assert groups.values.tolist() == [["v1", "drug", ""], ["v2", "veh", "x"], ["v3", "drug", ""]]
    measured = pd.DataFrame({"video": ["v1", "v2"], "animal": ["a", "b"]})
    assert ["'v3'" in s and "1 of 3 rows" in s for s in unmatched_rows_note(measured, groups)] == [True]
    assert unmatched_rows_note(measured, groups[:2]) == unmatched_rows_note(measured, groups, ["v1", "v3"]) == []
    for video in ("v1", "v2"): write_one(tmp_path, video, [("a", "rear", 30, 60)])
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mb.analyse(open_dataset(tmp_path), tmp_path/"out", groups=path, by="Group", shuffles=10,
                   say=said.append)
    assert any("rows of the groups: 'v3'" in s for s in said)


def test_actions_of_several_names_are_one(tmp_path):
    write_one(tmp_path, "v1", [("adult", "Rear up", 30, 60), ("adult", "rear", 90, 120)])
    yaml = YAML + "action_names: {Rear up: rear, Attack!: attack}\n"
    (tmp_path/"dataset.yaml").write_text(yaml)
    rec = open_dataset(tmp_path)["v1"]
    assert rec.bouts.action.tolist() == ["rear", "rear"] and {a for *_, a in rec.labelled} == {"rear"}
    (tmp_path/"v1.boris.csv").unlink()
    (tmp_path/"v1.csv").write_text("Rear up,rear,Attack!\n" + "0,0,0\n" * 299 + "1,0,0\n")
    (tmp_path/"dataset.yaml").write_text(yaml + "target: adult\n")
    rec = open_dataset(tmp_path)["v1"]
    assert rec.bouts.action.tolist() == ["rear"] and {a for *_, a in rec.labelled} == {
        "rear", "attack"}
    found = match_files(open_dataset(tmp_path))
    assert set(found.table.actions) == {"attack, rear"}
    assert read_settings_of(found.settings).action_names == {"Rear up": "rear", "Attack!": "attack"}


def read_settings_of(text): return make_settings(read_yaml(text))


def test_columns_of_simba_by_any_of_their_names(tmp_path):
    table = simba_table().rename(columns={"Sniffing": "attack"})
    table.to_csv(tmp_path/"day1.csv")
    for actions in ("", "actions: [attack]\n"):
        (tmp_path/"dataset.yaml").write_text("fps: 30\nagent: mouse1\nalone: []\n"
                                             "action_names: {Attack: attack}\n" + actions)
        rec = open_dataset(tmp_path)["day1"]
        assert rec.bouts.action.tolist() == ["attack"] * 2, actions
        assert {a for *_, a in rec.labelled} == {"attack"}


@given(st.text(max_size=40))
def test_any_name_becomes_an_id_that_stays_in_its_folder(name):
    plain = plain_id(name)
    assert len(plain) == len(unicodedata.normalize("NFC", name)) and plain_id(plain) == plain
    try: found = safe_id(plain)
    except DataError: assert plain[:1] in ("", ".", "-") or len(plain.encode()) > 128
    else:
        assert found == plain and not {*found} & {*"/\\:*?\"<>| \n\0"} and found.isprintable()
        assert Path(found).name == found and found.encode().decode() == found
    if not plain.isascii():
        with pytest.raises(DataError, match="from a to z"): safe_id(plain, plain=True)


def test_a_name_of_very_many_digits_is_a_name():
    "Python makes no number of them."
    assert nearest_name("1" * 5000, ["rat 1", "9" * 5000]) is None
    assert nearest_name("rat_2", ["rat 1", "rat 2", "1" * 5000]) == "rat 2"
    assert sorted(["v" + "2" * 5000, "v10", "v2"], key=by_number)[:2] == ["v2", "v10"]


def write_apart(folder, video, rec, form="{video}_{animal}DLC_net.csv"):
    "A file for each animal, as of a tracker of one."
    for k, animal in enumerate(("black", "white")):
        one = rec.replace(xy=rec.xy[:, k:k + 1], mice=("x",), bouts=rec.bouts[:0], labelled=None)
        write_dlc(folder, "one", one, ("id_0",))
        (folder/"oneDLC_net.csv").rename(folder/form.format(video=video, animal=animal))


@pytest.fixture
def apart(tmp_path):
    write_apart(tmp_path, "cage1", recording(1))
    write_apart(tmp_path, "cage2", recording(2), "{video}DLC_net_{animal}.csv") # as movement splits
    for k in (1, 2): write_boris(tmp_path, f"cage{k}", [("white", "sniff", 30, 60 + k)])
    (tmp_path/"dataset.yaml").write_text("fps: 30\nalone: []\n")
    return tmp_path


def test_files_of_one_animal_each_are_asked_about_and_joined_by_a_line(apart, capsys):
    said = "\n".join(match_files(open_dataset(apart)).sentences)
    assert "cage1_black, cage1_white have an animal each and are as long as each other; if these" in said
    assert "animal_files: [black, white]" in said and "has 2 such files (cage2DLC_net_black.csv" in said
    (apart/"cage1_black.mp4").write_bytes(b"") # a film of its own
    assert "an animal each" not in "".join(match_files(open_dataset(apart)).sentences)
    (apart/"cage1_black.mp4").rename(apart/"cage1.mp4")
    assert main(["open", str(apart), "--overwrite", "--set", "animal_files=[black, white]"]) == 0
    data, whole = open_dataset(apart), recording(1)
    assert data.ids == ("cage1", "cage2") and data["cage1"].mice == ("black", "white")
    assert np.allclose(data["cage1"].xy, whole.xy, atol=1e-3, equal_nan=True)
    assert data["cage2"].bouts.values.tolist() == [["white", "black", "sniff", 30, 62]]
    assert [f.name for f in data.films("cage1")] == ["cage1.mp4"]
    table = match_files(data).table
    assert table.animals.tolist() == ["black, white"] * 2 and table.film[0] == "cage1.mp4"
    assert not any("no file that was read has" in s for s in match_files(data).sentences)
    before = {v: data.fingerprint(v) for v in data.ids}
    write_apart(apart, "cage1", whole.replace(xy=whole.xy[:, ::-1]))
    assert [data.fingerprint(v) != before[v] for v in data.ids] == [True, False]
    assert open_dataset(apart/"cage1_whiteDLC_net.csv").ids == ("cage1_white",)


def test_what_mabe_open_has_left_blank_is_not_asked_about_once_animals_are_joined(apart):
    "The line that it proposes makes other videos, of animals with other names."
    (apart/"cage2DLC_net_black.csv").unlink()
    assert main(["open", str(apart), "--overwrite", "--set", "fps=30"]) == 0
    text = (said := apart/"dataset.yaml").read_text()
    assert "mouse1: mouse1" in text and "cage1_black: {group: , condition: }" in text
    said.write_text(text.replace("animal_files:", "animal_files: [black, white] "))
    asked = lambda: [s for s in match_files(open_dataset(apart)).sentences if "no file that was read has" in s]
    assert open_dataset(apart)["cage1"].mice == ("black", "white") and asked() == []
    said.write_text(said.read_text().replace("cage1_black: {group: ,", "cage1_black: {group: drug,").replace(
        "mouse1: mouse1", "mouse1: brown"))
    assert [s.split(": ")[0] for s in asked()] == ["dataset.yaml, animals", "dataset.yaml, videos"]


def test_files_of_one_animal_each_that_do_not_fit(apart):
    (apart/"dataset.yaml").write_text("fps: 30\nalone: []\nanimal_files: [black, white, gray]\n")
    assert any("animal_files: no file that was read has the animal 'gray'" in s
               for s in match_files(open_dataset(apart)).sentences)
    write_dlc(apart, "cage1_gray", recording(3))
    with pytest.raises(DataError, match="has 2 animals, expected 'gray' alone"): open_dataset(apart)["cage1"]
    write_dlc(apart, "cage1_gray", recording(3, mice=1), ("id_0",), ("nose", *PARTS)[:5])
    with pytest.raises(DataError, match="has the body parts nose, Snout, .* expected the same"): open_dataset(apart)["cage1"]
    (apart/"cage1_grayDLC_net.csv").rename(apart/"cage1DLC_net.csv")
    with pytest.raises(DataError, match="video 'cage1' has 3 such files"): open_dataset(apart)["cage1"]
    (apart/"cage1DLC_net.csv").unlink()
    (apart/"cage1_whiteDLC_net.csv").unlink()
    assert open_dataset(apart)["cage1"].mice == ("black",)


def test_opening_a_folder_anew_keeps_what_is_said_of_videos_that_are_away(apart):
    (apart/"dataset.yaml").write_text("animals: {id_0: id_0, mouse1: Jo}\nvideos:\n  cage9: {dose: low}\n  cage8: {dose: }\n")
    assert main(["open", str(apart), "--overwrite"]) == 0
    said = read_settings(apart/"dataset.yaml")
    assert said.animals == {"mouse1": "Jo"} and said.videos["cage9"]["dose"] == "low" and "cage8" not in said.videos

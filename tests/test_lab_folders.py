"Folders as labs keep them: files by day and by kind, one BORIS file for many videos."
import json
import os
import shutil
import struct
import subprocess
import sys
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.io import savemat
from test_open_folder import recording, write_boris, write_dlc

import mabe_nb as mb
from mabe_nb.cli import main
from mabe_nb.data.annotations import read_boris
from mabe_nb.data.audit import audit
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.formats import boris
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.folder.tracker_folder import LabNote
from mabe_nb.data.poses import read_poses
from mabe_nb.data.recording import frame_labels
from mabe_nb.errors import DataError

YAML = "fps: 30\nalone: [rear]\nsubjects: {B: black, W: white}\n"
ROWS = [("B", "sniff", 30, 60), ("W", "rear", 90, 120)]
BOUTS = [["black", "white", "sniff", 30, 60], ["white", "white", "rear", 90, 120]]


@pytest.fixture
def lab(tmp_path):
    "Two days with a cage1 each, and a cage2 of the second day in a folder of its kind."
    folder = tmp_path/"lab"
    for k, (day, video) in enumerate((("day1", "cage1"), ("day2", "cage1"),
                                      ("day2/poses", "cage2"))):
        (folder/day).mkdir(parents=True, exist_ok=True)
        write_dlc(folder/day, video, recording(k))
    (folder/"dataset.yaml").write_text(YAML)
    return folder


def export(rows, comma=","):
    "Events as BORIS exports those of several observations: (observation, film, start in s, offset)."
    lines = ["Observation id,Source,Time offset (s),FPS (frame/s),Subject,Behavior,Behavior type,"
             "Time".replace(",", comma)]
    for name, film, offset, what in rows:
        for who, action, *span in what:
            for frame, status in zip(span, ("START", "STOP")):
                lines.append(comma.join(map(str, (name, film, offset, 30, who, action, status,
                                                  frame / 30 + offset))))
    return "\n".join(lines) + "\n"


def project(rows):
    "The same as BORIS saves a project."
    kinds = {a for *_, what in rows for _, a, *_ in what}
    return json.dumps({
        "project_name": "study", "behaviors_conf": {
            str(i): {"code": a, "type": "State event"} for i, a in enumerate(sorted(kinds))},
        "observations": {name: {
            "file": {"1": [film]} if film else {}, "time offset": offset,
            "media_info": {"fps": {film: 30.0}} if film else {},
            "events": sorted([f / 30 + offset, who, action, "None", ""]
                             for who, action, *span in what for f in span)}
            for name, film, offset, what in rows}})


MANY = [("cage2", "", 0, ROWS), ("monday", r"player #1:C:\films\day1\cage1.mp4", 100, ROWS),
        ("day2_cage1", "", 0, ROWS[:1]), ("cage1", "", 0, ROWS), ("cage7", "", 0, ROWS),
        ("cage2 again", "/films/day1/cage9.mp4", 0, ROWS)]


def test_a_table_of_a_head_alone_is_of_a_video_in_which_nothing_happened(lab):
    (lab/"day1"/"cage1.csv").write_text(export([("cage1", "cage1.mp4", 0, ROWS)]))
    (lab/"day2"/"poses"/"cage2.csv").write_text("agent,target,action,start,stop\n")
    assert any("rear in day2_cage2; sniff in day2_cage2: unknown there" in s
               for s in match_files(open_dataset(lab)).sentences)
    with pytest.warns(LabNote, match="cage2.csv marks nothing: taken for not scored; list"):
        assert open_dataset(lab)["day2_cage2"].labelled is None
    (lab/"dataset.yaml").write_text(YAML + "actions: [rear, sniff]\n")
    data = open_dataset(lab)
    with pytest.warns(LabNote, match="marks nothing: taken to be absent: rear, sniff"):
        rec = data["day2_cage2"]
    assert rec.labelled == data["day1_cage1"].labelled and not len(rec.bouts)
    assert not frame_labels(rec, "black", "white", ["sniff"]).any()
    found = audit(data).table
    assert found[found.kind == "nothing_marked"].video_id.tolist() == ["day2_cage2"]
    assert not any("nobody marked" in s for s in match_files(data).sentences)
    (lab/"dataset.yaml").write_text(YAML + "scored: [[1, 5]]\n") # which says not what
    with pytest.warns(LabNote, match="taken for not scored"):
        assert open_dataset(lab)["day2_cage2"].labelled is None


def test_a_table_of_zeros_says_itself_that_nothing_happened(lab):
    (lab/"dataset.yaml").write_text(YAML + "agent: black\n")
    (lab/"day2"/"poses"/"cage2.csv").write_text("frame,rear\n" + "".join(f"{i},0\n" for i in range(300)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabNote)
        rec = open_dataset(lab)["day2_cage2"]
    assert {a for *_, a in rec.labelled} == {"rear"} and not rec.findings


@pytest.mark.parametrize("name, text", [
    ("all.csv", export(MANY)), ("tables/all.tsv", None), ("boris/all.tsv", export(MANY, "\t")),
    ("study.boris", project(MANY))])
def test_each_observation_goes_to_the_video_that_it_names(lab, name, text):
    if text is None: # a table tells of videos in its own folder or below
        (lab/"tables").mkdir()
        (lab/name).write_text(export(MANY, "\t"))
        assert all(open_dataset(lab).labelled(v) is None for v in open_dataset(lab).ids)
        return
    (lab/name).parent.mkdir(exist_ok=True)
    (lab/name).write_text(text)
    data = open_dataset(lab)
    assert data.ids == ("day1_cage1", "day2_cage1", "day2_cage2")
    assert data["day2_cage2"].bouts.values.tolist() == BOUTS, "by the observation's name"
    assert data["day1_cage1"].bouts.values.tolist() == BOUTS, "by the film, less the offset"
    assert data["day2_cage1"].bouts.values.tolist() == BOUTS[:1]
    found = match_files(data)
    lost = [s for s in found.sentences if "observation" in s]
    assert len(lost) == 3 and all(s.startswith(name) for s in lost)
    for one, why in (("'cage1'", "can mean day1_cage1, day2_cage1"),
                     ("'cage7'", "names no video"), ("'cage2 again'", "names no video")):
        assert sum(one in s and why in s for s in lost) == 1, (one, lost)
    assert found.table.annotation.tolist() == [f"{name}: monday", f"{name}: day2_cage1",
                                               f"{name}: cage2"]
    assert found.table.poses[2] == "day2/poses/cage2DLC_net.csv"


def in_project(files, offset):
    "Films by player, the second player later by seconds, as a BORIS project has them."
    said = json.loads(project([("both", "", 0, ROWS)]))
    said["observations"]["both"] |= {"file": files, "media_info": {"offset": {"1": 0.0, "2": offset}}}
    return json.dumps(said)


OLD = ("Observation id\tMedia file\tFPS\tSubject\tBehavior\tBehavior type\tStart (s)\tStop (s)\n" # BORIS 6
       "both\t/x/cage8.mp4\t30.0\tB\tsniff\tSTATE\t1.800\t8.125\n"
       "both\t/x/cage2.mp4\t30.0\tB\tsniff\tSTATE\t227.765\t253.490\n")
IN_PLAYER = "player #1:/x/cage8.mp4;/x/cage2.mp4"


@pytest.mark.parametrize("name, text", [
    ("both.tsv", OLD), ("both.csv", export([("both", IN_PLAYER, 0, ROWS)])),
    ("both.boris", in_project({"1": ["/x/cage8.mp4", "/x/cage2.mp4"]}, 0)),
    ("both.boris", in_project({"1": ["/x/cage8.mp4"], "2": ["/x/cage2.mp4"]}, 20))])
def test_times_of_a_film_that_begins_later_are_not_taken_for_the_video_s(lab, name, text):
    (lab/name).write_text(text)
    data = open_dataset(lab)
    assert all(data.labelled(v) is None for v in data.ids)
    said = [f.message for f in data.findings()]
    assert len(said) == 1 and "'both', which does not begin with the film of day2_cage2" in said[0]
    assert "score each film in an observation of its own" in said[0]


@pytest.mark.parametrize("films", [{"1": ["/x/cage2.mp4", "/x/cage8.mp4"]},
                                   {"1": ["/x/side.mp4"], "2": ["/x/cage2.mp4"]}])
def test_the_first_of_two_films_and_a_second_camera_have_their_scores(lab, films):
    (lab/"both.boris").write_text(in_project(films, 0))
    assert open_dataset(lab)["day2_cage2"].bouts.values.tolist() == BOUTS


@pytest.mark.parametrize("name, text", [("all.csv", export(MANY)), ("study.boris", project(MANY))])
def test_a_file_of_many_observations_is_parsed_once_and_again_when_it_changes(
        lab, monkeypatch, name, text):
    (lab/name).write_text(text)
    parsed, reader = [], "_project_rows" if name.endswith(".boris") else "_table_rows"
    read = getattr(boris, reader)
    monkeypatch.setattr(boris, reader, lambda *given: parsed.append(given) or read(*given))
    data = open_dataset(lab)
    assert [len(data[v].bouts) for v in data.ids] == [2, 1, 2] and len(parsed) == 1, parsed
    (lab/name).write_text(text.replace("sniff", "nuzzle"))
    assert "nuzzle" in {*open_dataset(lab)["day2_cage2"].bouts.action} and len(parsed) == 2


def test_a_name_and_a_film_that_differ_are_told_and_two_observations_of_one_video(lab):
    (lab/"study.boris").write_text(project([("day1_cage1", "/x/day2/cage1.mp4", 0, ROWS)]))
    assert any("called as day1_cage1 and shows day2_cage1" in s
               for s in match_files(open_dataset(lab)).sentences)
    (lab/"study.boris").write_text(project(
        [(rater, "/x/day1/cage1.mp4", 0, ROWS) for rater in ("Ada", "Jin")]))
    with pytest.raises(DataError, match="2 such files .study.boris: Ada, study.boris: Jin"):
        open_dataset(lab)["day1_cage1"]


def test_files_of_each_kind_in_a_folder_of_their_own(tmp_path):
    for day, kind in product(("day1", "day2"), ("poses", "boris")):
        (tmp_path/day/kind).mkdir(parents=True)
    for k, day in enumerate(("day1", "day2")): write_dlc(tmp_path/day/"poses", "m1", recording(k))
    write_boris(tmp_path/"day2"/"boris", "m1", ROWS)
    (tmp_path/"dataset.yaml").write_text(YAML)
    data = open_dataset(tmp_path)
    assert data.ids == ("day1_m1", "day2_m1") and data.labelled("day1_m1") is None
    assert data["day2_m1"].bouts.values.tolist() == BOUTS
    own = read_poses(tmp_path/"day1"/"poses"/"m1DLC_net.csv", 30)
    assert np.array_equal(data["day1_m1"].xy, own.xy, True)
    (tmp_path/"day2"/"poses"/"m1DLC_net.csv").unlink() # day 2 was not tracked yet
    data = open_dataset(tmp_path)
    assert data.ids == ("day1_m1",) and data.labelled("day1_m1") is None, "of another day"
    assert "day2/boris/m1.boris.csv belongs to no pose file" in data.findings()[0].message


def test_a_recording_that_comes_in_renames_nothing(lab):
    before = {v: open_dataset(lab).fingerprint(v) for v in open_dataset(lab).ids}
    (lab/"day3").mkdir()
    write_dlc(lab/"day3", "cage2", recording(7))
    after = open_dataset(lab)
    assert {v: after.fingerprint(v) for v in before} == before and len(after) == 4


def test_what_this_package_wrote_is_no_recording_and_no_annotation(lab, tmp_path, capsys):
    write_boris(lab/"day1", "cage1", ROWS)
    assert main(["analyse", "annotations", str(lab), "--out", str(lab/"results"), "--to",
                 "boris", "nwb"]) == 0
    assert main(["synth", str(lab/"colony"), "--videos", "2", "--minutes", "0.1"]) == 0
    (lab/"labeled-data"/"cage1").mkdir(parents=True)
    write_dlc(lab/"labeled-data"/"cage1", "CollectedData", recording(3))
    data = open_dataset(lab)
    assert len(data) == 3 and data.findings() == []
    (lab/"own").mkdir()
    write_dlc(lab/"own", "x", recording(3))
    (lab/"own"/"dataset.yaml").write_text("fps: 25\n")
    assert len(open_dataset(lab)) == 3 and len(open_dataset(lab/"own")) == 1


@pytest.mark.parametrize("text, words", [
    ("{}", "no observations"), ('{"observations": {"a": {"events": [[1]]}}}', "expected events"),
    ('{"observations": {"a": {"events": []}}}', "no events"), ("{", "broken JSON"),
    ('{"observations": {"a": {"events": [["x", "B", "rear", ""]]}}}', "row 1: Time is 'x'")])
def test_projects_that_are_none(tmp_path, text, words):
    (tmp_path/"p.boris").write_text(text)
    with pytest.raises(DataError, match=words): read_boris(tmp_path/"p.boris", 30, "m1")


# Files that a stranger's folder holds

def told(folder):
    "What the folder's files raise: kind and sentence of each."
    return [(f.kind, f.message) for f in open_dataset(folder).findings()]


def test_a_folder_of_annotations_of_which_none_can_be_read_is_told(two):
    (two/"annotations").mkdir()
    (two/"annotations"/"v1.tsv").write_text("from\tto\ttype\tID\n1\t2\trear\tv1\n")
    assert told(two) == [("unknown_file", "annotations/v1.tsv is neither poses that a known "
                          "tracker wrote nor an annotation, not read; a table of bouts has "
                          "columns named agent, target, action, start and stop, with times in "
                          "seconds")]


@pytest.mark.parametrize("name, content, words", [
    ("cage5.csv", b"", "is empty"),
    ("cage5.tsv", "нюхает".encode("cp1251"), "no text in UTF-8"),
    ("cage5.csv", "Time,Behavior\n".encode("utf-16")[:-1], "no text in UTF-8"),
    ("cage5DLC_net.CSV", b"scorer,n\n", "ends in .CSV; name it .csv"),
    ("cage5.analysis.h5", b"\x89HDF\r\n\x1a\n" + bytes(80), "truncated or no HDF5")])
def test_a_file_that_cannot_be_told_says_why(lab, tmp_path, name, content, words):
    (lab/"day1"/name).write_bytes(content)
    (kind, said), = told(lab)
    assert kind == "unreadable_file" and name in said and words in said
    (tmp_path/"alone").mkdir()
    (tmp_path/"alone"/name).write_bytes(content)
    with pytest.raises(DataError, match="is no dataset") as e: open_dataset(tmp_path/"alone")
    assert words in str(e.value)


def test_a_file_of_another_kind_is_no_damage(lab):
    (lab/"day1"/"notes.txt").write_text("Tuesday: rain")
    assert [k for k, _ in told(lab)] == ["unknown_file"]


@pytest.mark.parametrize("name, near", [
    ("CAGE1", "day1_cage1"), ("cage01", "day1_cage1"), ("cage1_anna", "day1_cage1"),
    ("cgae1", "day1_cage1"), ("cage7", None), ("rat", None)])
def test_a_slip_in_a_name_is_met_with_the_nearest_video(lab, name, near):
    write_boris(lab/"day1", name, ROWS)
    (_, said), = told(lab)
    assert "belongs to no pose file" in said and ("did you mean" in said) == bool(near)
    assert near is None or repr(near) in said
    assert main(["audit", str(lab)]) == 0


def test_audit_prints_a_sentence_for_each_kind_of_warning(lab, capsys):
    for k in range(5): write_boris(lab/"day1", f"x{k}", ROWS)
    assert main(["audit", str(lab)]) == 0
    assert capsys.readouterr().out.count("belongs to no pose file") == 3


# Names

@pytest.fixture
def two(tmp_path):
    "A folder of two videos of the animals mouse_1 and mouse_2, both scored."
    folder = tmp_path/"two"
    folder.mkdir()
    for k in (1, 2):
        write_dlc(folder, f"v{k}", recording(k), ("mouse_1", "mouse_2"))
        write_boris(folder, f"v{k}", [("mouse_1", "sniff", 30, 60), ("mouse_2", "rear", 90, 120)])
    (folder/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nactions: [sniff, rear]\n")
    return folder


def sentences(folder): return match_files(open_dataset(folder)).sentences


def errors_and_warnings(folder):
    table = audit(open_dataset(folder)).table
    return table[table.severity != "info"][["kind", "message"]].values.tolist()


def test_a_folder_without_a_slip_raises_no_sentence(two):
    assert sentences(two) == [] and errors_and_warnings(two) == []


def test_animals_that_nobody_marked_are_told_where_no_list_says_that_they_did_nothing(two, tmp_path):
    write_boris(two, "v2", [("mouse_1", "sniff", 30, 60)])
    for line, told in (("actions: [sniff, rear]\n", 0), ("", 1)):
        (two/"dataset.yaml").write_text("fps: 30\nalone: [rear]\n" + line)
        said = []
        found = mb.analyse(two, tmp_path/str(told), say=said.append)["measures"]
        assert len(found[(found.video == "v2") & (found.animal == "mouse_2")]) == 2 * (not told)
        assert sum("1 animal without a mark (mouse_2 of v2)" in s for s in said) == told


@pytest.mark.parametrize("who, near", [
    ("Mouse1", "mouse_1"), ("mouse_01", "mouse_1"), ("mosue_1", "mouse_1"), ("mouse_7", None),
    ("brown", None)])
def test_a_subject_that_the_poses_do_not_have(two, who, near, monkeypatch, capsys):
    write_boris(two, "v1", [(who, "sniff", 30, 60), ("mouse_2", "rear", 90, 120)])
    hint = f"did you mean {near!r}?" if near else "whom the poses lack under untracked"
    one, = sentences(two)
    assert who in one and one.endswith(hint)
    (kind, message), = errors_and_warnings(two)
    assert kind == "unreadable" and message.endswith(hint)
    assert f"names {who!r}, the poses 'mouse_1', 'mouse_2'; say who is who" in message
    monkeypatch.chdir(two.parent)
    assert main(["train", "two", "--out", "run"]) == 2
    assert f"names {who!r}" in (err := capsys.readouterr().err) and (not near or hint in err)


def test_rows_of_whom_the_poses_lack_are_left_out_where_that_is_said(two):
    write_boris(two, "v1", [("brown", "sniff", 30, 60), ("mouse_2", "rear", 90, 120)])
    yaml = (two/"dataset.yaml").read_text()
    (two/"dataset.yaml").write_text(yaml + "untracked: [brown]\n")
    assert sentences(two) == [] and errors_and_warnings(two) == []
    data = open_dataset(two)
    assert data["v1"].bouts.values.tolist() == [["mouse_2", "mouse_2", "rear", 90, 120]]
    assert "untracked: [brown]" in match_files(data).settings
    to = "Subject,Behavior,Behavior type,Time,FPS,Modifiers\n" + "".join(
        f"{who},sniff,{status},{t},30,{to}\n" for who, to, t in
        (("mouse_1", "mouse_2", 1), ("mouse_1", "brown", 3), ("brown", "mouse_1", 5))
        for status, t in (("START", t), ("STOP", t + 1)))
    (two/"v1.boris.csv").write_text(to)
    bouts = read_boris(two/"v1.boris.csv", target_from="Modifiers", without=["brown"])
    assert bouts.values.tolist() == [["mouse_1", "mouse_2", "sniff", 30, 60]]


@pytest.mark.parametrize("line, words", [
    ("animals: {Mouse_1: resident}", ("animals", "'Mouse_1'", "mean 'mouse_1'")),
    ("animals: {brown: resident}", ("animals", "'brown'")),
    ("parts: {snout: nose}", ("parts", "'snout'", "mean 'Snout'")),
    ("target: mouse2", ("target", "'mouse2'", "mean 'mouse_2'")),
    ("videos: {V1: {fps: 25}}", ("videos", "'V1'", "mean 'v1'")),
    ("videos: {v1: {target: mose_2}}", ("videos, v1, target", "mean 'mouse_2'")),
    ("actions: [snif, rear]", ("actions", "'snif'", "mean 'sniff'")),
    ("alone: [raer]", ("alone", "'raer'", "mean 'rear'"))])
def test_names_that_dataset_yaml_alone_has(two, line, words):
    rest = "" if "alone" in line else "alone: [rear]\n"
    (two/"dataset.yaml").write_text(f"fps: 30\n{rest}{line}\n")
    said = [m for k, m in errors_and_warnings(two) if k == "unknown_name"]
    assert said == sentences(two) and len(said) == 1
    assert all(w in said[0] for w in words), said


def test_an_agent_that_nobody_is_and_actions_of_two_spellings(two):
    (two/"v1.boris.csv").unlink()
    (two/"v1.csv").write_text("Sniff\n" + "0\n" * 299 + "1\n")
    (two/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nagent: mouse1\n")
    with pytest.raises(DataError, match="agent: names the agent 'mouse1'.*did you mean 'mouse_1'"):
        open_dataset(two)["v1"]
    (two/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nagent: mouse_1\n")
    said = [s for s in sentences(two) if "actions is blank" not in s]
    assert said == [m for _, m in errors_and_warnings(two)]
    assert said[0].startswith("Sniff and sniff are 2 actions")


def test_what_is_not_read_is_not_called_missing(two):
    (two/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nparts: {snout: nose}\n")
    data = open_dataset(two)
    assert data["v1"] and data.findings() == [], "v2 may have it"
    with pytest.warns(LabNote, match="'snout'"): assert data["v2"]
    assert len(data.findings()) == 1
    (two/"v2.boris.csv").unlink()
    for some in (open_dataset(two, "test"), open_dataset(two/"v2DLC_net.csv")):
        assert some.ids == ("v2",) and some["v2"] and some.findings() == []


def test_what_is_asked_of_new_videos_is_not_called_never_seen(two):
    "With actions in dataset.yaml, which say what to predict in videos that nobody scored."
    (two/"dataset.yaml").write_text("fps: 30\nactions: [sniff, rear]\nalone: [rear]\n")
    (two/"v2.boris.csv").unlink()
    new = open_dataset(two, "test")
    assert new.ids == ("v2",) and new.labelled("v2")
    assert "never_seen" not in {*audit(new).table.kind}
    assert open_dataset(two).annotated("v1") and not new.annotated("v2")


def test_an_animal_that_no_frame_shows(two):
    rec = recording(1)
    xy = rec.xy.copy()
    xy[:, 1] = np.nan
    write_dlc(two, "v1", rec.replace(xy=xy), ("mouse_1", "mouse_2"))
    assert sentences(two) == ["v1: no frame shows mouse_2"]
    found = dict(errors_and_warnings(two))
    assert found["untracked_animals"] == "no frame shows mouse_2; 2 bouts of these"


def test_dataset_yml_and_files_of_two_kinds(two):
    (two/"dataset.yaml").rename(two/"dataset.yml")
    assert "dataset.yml is not read; name it dataset.yaml" in sentences(two)
    (two/"dataset.yml").rename(two/"dataset.yaml")
    (two/"v1DLC_other.csv").write_bytes((two/"v1DLC_net.csv").read_bytes())
    found = match_files(open_dataset(two))
    assert found.table.annotation[0] == "v1.boris.csv" and len(found.sentences) == 1
    assert "has 2 such files" in found.sentences[0]


def test_a_blank_list_of_actions_leaves_known_that_nobody_did_the_reverse(two):
    (two/"dataset.yaml").write_text("fps: 30\nalone: [rear]\n")
    write_boris(two, "v2", [("mouse_1", "sniff", 30, 60), ("mouse_2", "sniff", 90, 120)])
    data, both = open_dataset(two), [("mouse_1", "mouse_2"), ("mouse_2", "mouse_1")]
    assert data.labelled("v1") == {(a, t, "sniff") for a, t in both} | {
        (m, m, "rear") for m in ("mouse_1", "mouse_2")}
    assert data.labelled("v2") == {(a, t, "sniff") for a, t in both}
    assert sentences(two) == [
        "nobody marked rear in v2: unknown there, since actions is blank; list under actions what "
        "scorers looked for, and it is known to be absent"]
    write_boris(two, "v2", [("mouse_1", "sniff", 30, 60)]) # Is the other one watched?
    assert open_dataset(two).labelled("v2") == {("mouse_1", "mouse_2", "sniff")}


def test_the_files_of_a_second_rater_carry_his_name(two, tmp_path, capsys):
    (ben := tmp_path/"ben").mkdir()
    write_boris(ben, "v1.ben", [("mouse_1", "sniff", 30, 45), ("mouse_2", "rear", 90, 120)])
    assert main(["agree", str(two), str(ben), "--json"]) == 0
    found = {r["action"]: r["frame_f1"] for r in json.loads(capsys.readouterr().out)["actions"]}
    assert found == {"rear": 1, "sniff": pytest.approx(2 / 3)}
    write_boris(ben, "v1.ben", [("mouse_1", "sniff", 30, 45), ("mouse_1", "dig", 90, 120)])
    assert main(["agree", str(two), str(ben)]) == 0
    assert ("dig of 1 video (1.0 s) was marked by the second alone and is not compared"
            in capsys.readouterr().out)
    write_boris(ben, "v1.ben", [("mouse_1", "Sniff", 30, 45), ("mouse_2", "rear", 90, 120)])
    assert main(["agree", str(two), str(ben)]) == 0
    assert "note: sniff and Sniff are compared as several actions" in capsys.readouterr().out
    (ben/"v1.ben.boris.csv").rename(ben/"V1.ben.boris.csv")
    assert main(["agree", str(two), str(ben)]) == 2
    assert "expected one of the videos v1, v2; did you mean 'v1'?" in capsys.readouterr().err
    (ben/"V1.ben.boris.csv").rename(ben/"v11.boris.csv")
    assert main(["agree", str(two), str(ben)]) == 2
    assert "is of 'v11', expected one of the videos v1, v2" in capsys.readouterr().err


def observations(path, of, fps=30):
    "One export of several observations: name, film, bouts."
    rows = [(f / fps, fps, who, what, status, name, film) for name, film, bouts in of
            for who, what, *span in bouts for f, status in zip(span, ("START", "STOP"))]
    path.write_text("\n".join(["Time,FPS (frame/s),Subject,Behavior,Behavior type,Observation id,Media file name",
                               *(",".join(map(str, row)) for row in rows)]) + "\n")


def test_a_second_rater_may_keep_all_videos_in_one_file(two, tmp_path, capsys):
    "By the name of an observation, or of its film; what is of no video does not hide the others."
    (ben := tmp_path/"ben").mkdir()
    sniff = [("mouse_1", "sniff", 30, 45)]
    observations(ben/"all.csv", [("v1", "x.mp4", sniff), ("second look", "C:/films/v2.mp4", sniff),
                                 ("a day", "another.mp4", sniff)])
    for where in ben, ben/"all.csv":
        assert main(["agree", str(two), str(where), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["videos"] == ["v1", "v2"] and told["alone"] == [], where
    observations(ben/"all.csv", [("v1", "x.mp4", sniff), ("b", "another.mp4", sniff)])
    assert main(["agree", str(two), str(ben)]) == 0
    assert "1 video compared; the second scored none of v2" in capsys.readouterr().out
    write_boris(ben, "v1.ben", sniff)
    assert main(["agree", str(two), str(ben)]) == 2
    assert "are of the same video v1" in capsys.readouterr().err
    (ben/"v1.ben.boris.csv").unlink()
    (ben/"all.csv").write_text("video,agent,target,action,start,stop\n"
                               "v1,mouse_1,mouse_2,sniff,1,1.5\nv2,mouse_1,mouse_2,sniff,1,1.5\n")
    assert main(["agree", str(two), str(ben), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["videos"] == ["v1", "v2"]
    observations(ben/"all.csv", [("a", "x.mp4", sniff), ("b", "another.mp4", sniff)])
    assert main(["agree", str(two), str(ben)]) == 2
    assert "is of 'a', expected one of the videos v1, v2" in capsys.readouterr().err


def test_dots_in_the_names_of_a_second_rater(tmp_path, capsys):
    "`cage.1` is no file of `cage`, and a table may call a video by its film too."
    (one := tmp_path/"one").mkdir()
    (ben := tmp_path/"ben").mkdir()
    for k, video in enumerate(("cage", "cage.1")):
        write_dlc(one, video, recording(k), ("mouse_1", "mouse_2"))
        write_boris(one, video, [("mouse_1", "sniff", 30, 60)])
    (one/"dataset.yaml").write_text("fps: 30\nalone: [rear]\n")
    head = "video,agent,target,action,start,stop\n"
    for cells in ["cage.1"], ["cage.1", "cage.1.mp4"]:
        (ben/"ben.csv").write_text(head + "".join(
            f"{c},mouse_1,mouse_2,sniff,{1 + k},{1.5 + k}\n" for k, c in enumerate(cells)))
        assert main(["agree", str(one), str(ben), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["videos"] == ["cage.1"] and told["alone"] == ["cage"], cells
    assert told["actions"][0]["both"] == pytest.approx(.5) and told["actions"][0]["only_b"] == pytest.approx(.5)


def test_names_with_a_space_are_the_tracker_s_and_proposed_for_the_scorer_s(tmp_path):
    write_dlc(tmp_path, "v1", recording(1), ("Rat A", "Rat B"))
    write_boris(tmp_path, "v1", [("rat a", "sniff", 30, 60), ("rat_b", "sniff", 90, 120)])
    (tmp_path/"dataset.yaml").write_text("fps: 30\nalone: []\n")
    assert read_poses(tmp_path/"v1DLC_net.csv", fps=30).mice == ("Rat_A", "Rat_B")
    proposed = match_files(open_dataset(tmp_path)).settings
    assert "rat a: Rat_A\n  rat_b: Rat_B" in proposed
    (tmp_path/"dataset.yaml").write_text(proposed)
    assert [b[0] for b in open_dataset(tmp_path)["v1"].bouts.values] == ["Rat_A", "Rat_B"]


def test_minutes_of_a_video_are_scored_and_the_rest_is_unknown(two, tmp_path, capsys):
    yaml = "fps: 30\nalone: [rear]\nactions: [sniff, rear]\n"
    (two/"dataset.yaml").write_text(yaml + "videos: {v1: {scored: [1, 3]}}\n")
    data, key = open_dataset(two), ("mouse_1", "mouse_2", "sniff")
    labels = frame_labels(data["v1"], *key[:2], ["sniff"])[:, 0]
    assert {*labels[:30], *labels[90:]} == {-1} and {*labels[30:60]} == {1}
    assert {*frame_labels(data["v2"], *key[:2], ["sniff"])[:, 0]} == {0, 1}
    guess = pd.DataFrame([("v1", *key, 0, 60), ("v1", *key, 100, 110), ("v2", *key, 30, 60)],
                         columns=["video_id", "agent_id", "target_id", "action", "start_frame",
                                  "stop_frame"])
    guess.to_csv(tmp_path/"s.csv", index=False)
    assert mb.score(data, guess)["labs"]["two"]["actions"]["sniff"] == 1
    assert main(["score", str(two), str(tmp_path/"s.csv")]) == 0
    guess.replace("sniff", "Sniff").to_csv(tmp_path/"s.csv", index=False)
    assert main(["score", str(two), str(tmp_path/"s.csv")]) == 0
    assert "note: sniff and Sniff are scored as several actions" in capsys.readouterr().out
    (two/"dataset.yaml").write_text(yaml + "scored: [[0, 1], [2, 3]]\n")
    rec = open_dataset(two)["v1"]
    labels = frame_labels(rec, *key[:2], ["sniff"])[:, 0]
    assert {*labels[:30], *labels[60:90]} == {0} and {*labels[30:60], *labels[90:]} == {-1}
    assert match_files(open_dataset(two)).settings.count("scored: [[0, 1], [2, 3]]") == 1
    assert main(["analyse", "annotations", str(two), "--out", str(tmp_path/"found")]) == 0
    found = pd.read_csv(tmp_path/"found"/"measures.csv")
    assert found.watched_s.unique().tolist() == [2]
    for odd in ("[3, 1]", "[[0, 2], [1, 3]]", "[1]", "soon", "[-1, 2]", "[[0, .inf]]"):
        (two/"dataset.yaml").write_text(yaml + f"scored: {odd}\n")
        with pytest.raises(DataError, match="scored"): open_dataset(two)


# Where poses and annotations end

def cut(path, rows):
    "A table as a copy that stopped leaves it."
    path.write_text("".join(path.read_text().splitlines(True)[:4 + rows]))


def warned(folder, video):
    "What reading a video warns of."
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        data = open_dataset(folder)
        for _ in range(2): data[video]
    return [str(w.message) for w in found if w.category is LabNote]


def ends(two):
    "The one thing that is said of v1, when it is opened, audited and read."
    one, = sentences(two)
    kind, message = errors_and_warnings(two)[0]
    assert one.startswith("v1") and kind in ("late_annotation", "fps_mismatch")
    assert warned(two, "v1") == [f"video v1: {message}"] and warned(two, "v2") == []
    return one


def test_poses_that_end_long_before_the_annotation(two):
    cut(two/"v1DLC_net.csv", 75)
    said = ends(two)
    assert "ends at 4.00 s (frame 120), the poses at 2.50 s (frame 75): is the pose file" in said
    assert ["late_annotation", said.removeprefix("v1, v1.boris.csv: ")
            + " Cut or left out: 1 bout"] in errors_and_warnings(two)
    cut(two/"v1DLC_net.csv", 50)
    audit(two)
    with warnings.catch_warnings():
        warnings.simplefilter("error") # An audit tells all in its report
        audit(open_dataset(two))
    write_boris(two, "v1", [("mouse_1", "sniff", 30, 52)])
    assert sentences(two) == [] and warned(two, "v1") == [], "within a second"


def test_times_that_are_frames(two):
    (two/"v1.boris.csv").write_text("Subject,Behavior,Behavior type,Start (s),Stop (s),FPS\n"
                                    "mouse_1,sniff,STATE,30,61,30\nmouse_2,rear,STATE,90,120,30\n")
    assert "frame 3,600" in (said := ends(two)) and "are its times frames and not seconds" in said


def test_a_table_of_frames_that_is_longer_than_the_poses(two):
    (two/"v1.boris.csv").unlink()
    (two/"v1.csv").write_text("sniff\n" + "0\n" * 350 + "1\n" * 50)
    (two/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nagent: mouse_1\nactions: [sniff, rear]\n")
    assert "ends at 13.33 s (frame 400), the poses at 10.00 s" in ends(two)


@pytest.mark.parametrize("frames, words", [
    ((0, 1, 2, 5, 6), "row 5: frame 5 follows 2"), ((0, 2, 4), "row 3: frame 2 follows 0"),
    ((0, 1, 1), "row 4: frame 1 follows 1"), ((500, 501), "row 2: begins with frame 500")])
def test_a_table_of_frames_with_a_gap_is_put_to_no_wrong_time(two, frames, words):
    (two/"v1.boris.csv").unlink()
    (two/"v1.csv").write_text("frame,sniff\n" + "".join(f"{i},0\n" for i in frames))
    (two/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nagent: mouse_1\n")
    with pytest.raises(DataError, match=words): open_dataset(two)["v1"]


def test_a_film_that_is_longer_than_the_poses(two):
    "BORIS writes how long the film is."
    head, *rest = (two/"v1.boris.csv").read_text().splitlines()
    (two/"v1.boris.csv").write_text("\n".join([head + ",Media duration (s)",
                                               *(f"{r},60.0" for r in rest)]) + "\n")
    assert "frames too few: 300 at 30 per second do not last 60 s" in ends(two)
    (two/"v1.boris.csv").write_text("\n".join([head + ",Media duration (s)",
                                               *(f"{r},10.1" for r in rest)]) + "\n")
    assert sentences(two) == []


def test_a_table_that_a_spreadsheet_has_saved(two):
    before = open_dataset(two)["v1"].bouts
    text = (two/"v1.boris.csv").read_text()
    for changed in (text.replace(",", ";"), text.replace(",", ";").replace(".", ","),
                    "\ufeff" + text.replace("\n", "\r\n")):
        (two/"v1.boris.csv").write_text(changed, newline="")
        assert open_dataset(two)["v1"].bouts.equals(before)


# More of what strangers' folders hold

def test_a_project_that_is_cut_off_and_a_workbook_are_said(two):
    (two/"v1.boris.csv").unlink()
    (two/"study.boris").write_text('{"observations": {"v1": {"events": [[1.0,')
    (two/"v1.xlsx").write_bytes(b"PK\x03\x04")
    said = {m.split()[0]: (k, m) for k, m in told(two)}
    assert "broken JSON" in said["study.boris"][1] and "workbook" in said["v1.xlsx"][1]
    assert [said[n][0] for n in ("study.boris", "v1.xlsx")] == ["unreadable_file", "unknown_file"]


@pytest.mark.parametrize("ending", ["mat", "trk", "sds"])
def test_a_file_of_a_program_that_is_not_read_is_said(two, ending):
    if ending == "mat": savemat(two/"v1_scores.mat", {"scores": [1, 2]})
    else: (two/f"v1_scores.{ending}").write_bytes(b"bytes")
    assert sentences(two) == [f"v1_scores.{ending} is of a program whose files are not read; export a table "
                              "of its bouts as CSV, or its poses as DeepLabCut or SLEAP does, not read"]


def test_json_is_named_and_not_file_by_file(two):
    "One file may be an annotation of VIA; thousands may be one tracker's, a frame each."
    (two/"v1_via.json").write_text('{"project": {}, "file": {}, "metadata": {}}')
    ask = "export a table of its bouts as CSV, or its poses as DeepLabCut or SLEAP does, not read"
    one = f"v1_via.json is JSON; if it holds bouts, as VIA's does, or poses, {ask}"
    assert told(two) == [("unknown_file", one)]
    for name in ("v2_via.json", "v3_via.JSON"): (two/name).write_text("{}")
    assert sentences(two) == [f"{one}; nor are 2 more .json beside it"]
    (two/"frames").mkdir() # in which nothing is read
    (two/"frames"/"000001_keypoints.json").write_text("{}")
    assert len(sentences(two)) == 1


def test_an_annotation_that_can_mean_two_videos(lab):
    (lab/"cage1.csv").write_text("sniff\n0\n1\n")
    (_, said), = told(lab)
    assert "cage1.csv can mean day1_cage1, day2_cage1; put it beside its poses, not read" == said


@pytest.mark.parametrize("change, words", [
    (lambda t: t[:-20], "row 5: has 2 cells, too few: the file is cut off here"),
    (lambda t: t.replace("\n1.0,", "\n00:99:01.000,"), "Time is '00:99:01.000', expected a number"),
    (lambda t: t.replace("mouse_1", ""), "names no subject.*agent in its dataset.yaml"),
    (lambda t: t.splitlines()[0], "no rows; export it again, take it away if .* a file of the line agent,target,action")])
def test_an_export_of_boris_that_is_not_whole(two, change, words):
    (two/"v1.boris.csv").write_text(change((two/"v1.boris.csv").read_text()))
    with pytest.raises(DataError, match=words): open_dataset(two)["v1"]


def test_times_as_a_clock_shows_them(two):
    before = open_dataset(two)["v1"].bouts
    head, *rows = (two/"v1.boris.csv").read_text().splitlines()
    clock = lambda s: f"{int(s) // 3600:02d}:{int(s) // 60 % 60:02d}:{s % 60:06.3f}"
    rows = [",".join([clock(60 * 60 + 61 + float(t)), *rest]) for t, *rest in (r.split(",") for r in rows)]
    (two/"v1.boris.csv").write_text("\n".join([head, *rows]))
    late = read_boris(two/"v1.boris.csv", 30)
    assert len(before) and (late.start - before.start).eq(3661 * 30).all()
    assert (late.stop - before.stop).eq(3661 * 30).all()


def test_blanks_in_a_head_do_no_harm(two):
    before = open_dataset(two)["v1"].bouts
    text = (two/"v1.boris.csv").read_text().replace("Time,", "Time ,")
    (two/"v1.boris.csv").write_text(text.replace("Behavior,", " Behavior,"))
    assert open_dataset(two)["v1"].bouts.equals(before)


def test_a_head_without_frames_and_points_that_are_all_unsure(two):
    (two/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nmin_confidence: 0.95\n")
    assert sentences(two) == [f"v{k}: no frame shows mouse_1, mouse_2: is min_confidence 0.95 "
                              "too high?" for k in (1, 2)]
    cut(two/"v1DLC_net.csv", 0)
    with pytest.raises(DataError, match="has a head and no frames"): open_dataset(two)["v1"]


@pytest.mark.parametrize("suffix", [".csv", ".h5"])
def test_points_that_belong_to_no_animal(tmp_path, suffix):
    "DeepLabCut's unique body parts."
    names = [("net", a, p, c) for a, ps in (("black", "ab"), ("white", "ab"), ("single", "xyz"))
             for p in ps for c in ("x", "y", "likelihood")]
    def write(names, path):
        table = pd.DataFrame(np.arange(5.)[:, None] + np.arange(len(names)), columns=(
            pd.MultiIndex.from_tuples(names, names=["scorer", "individuals", "bodyparts", "coords"])))
        table.to_csv(path) if suffix == ".csv" else table.to_hdf(path, key="df_with_missing")
        return path
    rec = read_poses(write(names, tmp_path/f"v1{suffix}"), 30)
    assert rec.mice == ("black", "white") and rec.parts == ("a", "b")
    assert rec.xy[2, 1, 1].tolist() == [11, 12] # of columns 9 and 10
    assert [(f.kind, f.count) for f in rec.findings] == [("points_of_no_animal", 3)]
    assert "left out: x, y, z" in rec.findings[0].message
    assert [s for s in match_files(open_dataset(tmp_path)).sentences if "no animal" in s] == [
        "v1: points that belong to no animal are left out: x, y, z"]
    alike = [n for n in names if n[1] != "white"] # one animal, and the arena
    assert read_poses(write(alike, tmp_path/f"v2{suffix}"), 30).mice == ("black",)
    named = [(s, "single" if a == "white" else a, p, c) for s, a, p, c in names if a != "single"]
    assert read_poses(write(named, tmp_path/f"v3{suffix}"), 30).mice == ("black", "single")
    odd = [n for n in names if n[1:3] != ("white", "b")]
    with pytest.raises(DataError, match="'white' has the body parts a, 'black' a, b"):
        read_poses(write(odd, tmp_path/f"v4{suffix}"), 30)


@pytest.mark.parametrize("line, words", [
    ("alone: rear", "alone: expected a list such as .rear., got 'rear'"),
    ("fps: 29,97", "fps: expected a number, got .29,97.")])
def test_a_line_of_dataset_yaml_in_another_form(two, line, words):
    (two/"dataset.yaml").write_text(line + "\n")
    with pytest.raises(DataError, match=words): open_dataset(two)


def film(path, seconds):
    "The head of an mp4."
    box = lambda name, inside: struct.pack(">I4s", 8 + len(inside), name) + inside
    head = box(b"mvhd", bytes(12) + struct.pack(">II", 600, round(600 * seconds)) + bytes(80))
    path.write_bytes(box(b"ftyp", b"isom") + box(b"mdat", bytes(99)) + box(b"moov", head))


def test_a_film_beside_poses_that_are_not_whole(two):
    film(two/"v1.mp4", 10)
    film(two/"v2.MP4", 10)
    assert sentences(two) == [] and errors_and_warnings(two) == []
    film(two/"v1.mp4", 20)
    assert ends(two) == "v1: frames too few: 300 at 30 per second do not last 20 s"


def test_training_says_that_an_annotation_is_not_read(two, monkeypatch):
    (two/"v3.boris.csv").write_bytes((two/"v2.boris.csv").read_text().encode("utf-32"))
    monkeypatch.chdir(two.parent)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert main(["train", "two", "--out", "run", "--epochs", "1", "--device", "cpu"]) == 0
    assert [str(w.message) for w in found if w.category is LabNote] == [
        "v3.boris.csv is no text in UTF-8; save it as CSV in UTF-8, not read"]


def filmed(path, frames_of_each):
    "A film of runs of frames that last so many of 30,000 parts of a second each; its sound comes first."
    box = lambda name, inside: struct.pack(">I4s", 8 + len(inside), name) + inside
    runs = b"".join(struct.pack(">II", *run) for run in frames_of_each)
    track = lambda kind, units, runs: box(b"trak", box(b"tkhd", bytes(80)) + box(b"mdia", box(
        b"mdhd", bytes(12) + struct.pack(">II", units, 1)) + box(b"hdlr", bytes(8) + kind) + box(b"minf", box(
            b"stbl", box(b"stts", bytes(4) + struct.pack(">I", len(runs) // 8) + runs)))))
    path.write_bytes(box(b"ftyp", b"isom") + box(b"mdat", bytes(99)) + box(b"moov", track(
        b"soun", 44_100, struct.pack(">II", 99, 1024)) + track(b"vide", 30_000, runs)))


def test_the_frame_rate_of_a_film_is_proposed_where_no_other_file_says_one(two, capsys):
    (two/"dataset.yaml").unlink()
    for v in ("v1", "v2"): (two/f"{v}.boris.csv").unlink(missing_ok=True)
    assert "v1, v2: no file says the frames per second; fill in fps" in "".join(sentences(two))
    filmed(two/"v1.mp4", [(300, 1200)])
    assert "fps of dataset.yaml is proposed as 25, as of the film of v1" in "".join(sentences(two))
    filmed(two/"v2.mov", [(250, 1000), (50, 1005)])
    assert "under videos; films have 25 (v1), 29.975 (v2)" in "".join(sentences(two))
    filmed(two/"v2.mov", [(300, 1200)])
    assert main(["open", str(two)]) == 0
    assert "fps: 25" in (two/"dataset.yaml").read_text() and open_dataset(two)["v2"].fps == 25


def test_training_says_what_does_not_fit(two, monkeypatch):
    cut(two/"v1DLC_net.csv", 75)
    (two/"dataset.yaml").write_text("fps: 30\nalone: [rear, rera]\ntarget: mouse_3\n")
    monkeypatch.chdir(two.parent)
    with warnings.catch_warnings(record=True) as found: # `main` prints each as a note
        warnings.simplefilter("always")
        assert main(["train", "two", "--out", "run", "--epochs", "1", "--device", "cpu"]) == 0
    notes = [str(w.message) for w in found if w.category is LabNote]
    assert len(notes) == 2, notes
    assert "v1: the annotation ends at 4.00 s (frame 120), the poses at 2.50 s" in notes[0]
    assert "dataset.yaml, target: no file that was read has the animal 'mouse_3'" in notes[1]


# Frames per second that the poses' own files tell

@pytest.mark.filterwarnings("ignore:video day1")
@pytest.mark.parametrize("line, fps, source", [
    ("", 50, "day1.csv"), ("fps: 30", 50, "day1.csv"), ("fps: 25", 50, "day1.csv"),
    ("videos: {day1: {fps: 25}}", 25, None), ("videos: {day1: {fps: 30}}", 30, "dataset.yaml")])
def test_the_rate_of_the_poses_goes_before_that_of_an_annotation(line, fps, source, tmp_path):
    (tmp_path/"logs").mkdir()
    (tmp_path/"logs"/"video_info.csv").write_text("Video,fps,pixels/mm\nday1,50,1.6\n")
    (tmp_path/"csv"/"input_csv").mkdir(parents=True)
    points = [f"Nose_{k}_{c}" for k in (1, 2) for c in "xyp"]
    pd.DataFrame(np.random.default_rng(0).uniform(.9, 1, (500, 6)), columns=points).to_csv(
        tmp_path/"csv"/"input_csv"/"day1.csv")
    (tmp_path/"day1.boris.csv").write_text("Time,FPS,Subject,Behavior,Behavior type\n"
                                           "2,25,mouse1,rear,START\n3,25,mouse1,rear,STOP\n")
    (tmp_path/"dataset.yaml").write_text(f"alone: [rear]\n{line}\n")
    (video,) = open_dataset(tmp_path).ids
    rec = open_dataset(tmp_path)[video]
    assert rec.fps == fps and rec.bouts.values.tolist()[0][3:] == [2 * fps, 3 * fps]
    said = [("25 frames a second", f"{source} says {fps}")] * bool(source)
    for told in (warned(tmp_path, video), [m for k, m in errors_and_warnings(tmp_path)
                                           if k == "fps_mismatch"]):
        assert len(told) == len(said) and all(s in t for some, t in zip(said, told) for s in some)
    assert any("was made at 25 frames" in s for s in sentences(tmp_path)) == bool(source)


def test_a_frame_rate_of_the_folder_that_a_pose_file_contradicts_is_told(tmp_path):
    sio = pytest.importorskip("sleap_io")
    skeleton, film = sio.Skeleton(["nose"]), sio.Video("v{1}.mp4", open_backend=False)
    film.backend_metadata |= {"shape": [20, 9, 9, 1], "fps": 25.0}
    frames = [sio.LabeledFrame(video=film, frame_idx=i, instances=[
        sio.PredictedInstance.from_numpy(np.full((1, 2), 1. + i), skeleton=skeleton)]) for i in range(20)]
    sio.save_slp(sio.Labels(frames), str(tmp_path/"v{1}.slp"))
    (tmp_path/"dataset.yaml").write_text("fps: 150\n")
    (video,) = open_dataset(tmp_path).ids
    said = "fps of dataset.yaml is 150, v{1}.slp says 25, which is used"
    assert said in warned(tmp_path, video)[0] and open_dataset(tmp_path)[video].fps == 25
    assert any("their pose files say 25, which is used" in s for s in sentences(tmp_path))
    (tmp_path/"dataset.yaml").write_text(f"fps: 150\nvideos: {{{video}: {{fps: 100}}}}\n")
    assert open_dataset(tmp_path)[video].fps == 100 and not warned(tmp_path, video)
    assert not any("pose files say" in s for s in sentences(tmp_path))


# Focal animals

def test_an_animal_of_which_there_is_no_row_is_asked_about_and_unknown_once_that_is_said(two):
    "Its acts would be learned as none; a scorer who watched one animal writes no row of the other."
    listed = "fps: 30\nalone: [rear]\nactions: [rear, sniff]\n"
    for v in ("v1", "v2"): write_boris(two, v, [("mouse_1", "sniff", 30, 60), ("mouse_1", "rear", 90, 120)])
    said = "no row tells of an act of mouse_2: taken to have been watched"
    of_both = {("mouse_1", "mouse_2", "sniff"), ("mouse_1", "mouse_1", "rear")}
    for line, labelled, told in (
            ("", of_both | {("mouse_2", "mouse_1", "sniff"), ("mouse_2", "mouse_2", "rear")}, True),
            ("focal: [mouse_1]", of_both, False), ("videos: {v1: {focal: [mouse_1]}, v2: {focal: [mouse_1]}}", of_both, False),
            ("focal: [mouse_1, mouse_2]", of_both | {("mouse_2", "mouse_1", "sniff"), ("mouse_2", "mouse_2", "rear")}, False)):
        (two/"dataset.yaml").write_text(listed + line)
        data = open_dataset(two)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for v in 2 * data.ids: data[v]
        assert sum(said in str(w.message) for w in found) == told
        assert data["v1"].labelled == labelled
        assert any(k == "never_acting" for k, _ in errors_and_warnings(two)) == told
        assert any(said in s for s in sentences(two)) == told
    (two/"dataset.yaml").write_text(listed.replace("actions", "#") + "focal: [mouse_1]")
    write_boris(two, "v1", [("mouse_1", "sniff", 30, 60), ("mouse_2", "sniff", 90, 120)])
    rec = open_dataset(two)["v1"]
    assert rec.labelled == {("mouse_1", "mouse_2", "sniff")} and len(rec.bouts) == 2
    assert {*frame_labels(rec, "mouse_2", "mouse_1", ["sniff"])[:, 0]} == {-1, 1}
    (two/"dataset.yaml").write_text(listed + "focal: [brown]")
    with pytest.raises(DataError, match="focal: names brown, the poses of v1 mouse_1, mouse_2"): open_dataset(two)["v1"]


# Names that YAML reads as something else, and folders that are too deep

def test_marked_actions_are_listed_as_yaml_reads_them(two):
    write_boris(two, "v1", [("mouse_1", '"Rearing, wall"', 30, 60), ("mouse_2", "no #1", 90, 120)])
    (two/"dataset.yaml").write_text("fps: 30\nalone: []\n")
    text = match_files(open_dataset(two)).settings
    seen = text.split("Marked so far:\n#   ")[1].split("\n")[0]
    assert yaml.safe_load(seen) == ["Rearing, wall", "no #1", "rear", "sniff"]
    (two/"dataset.yaml").write_text(text.replace("\nactions:", f"\nactions: {seen}"))
    assert {a for *_, a in open_dataset(two).labelled("v1")} == {*yaml.safe_load(seen)}


def test_a_video_that_was_read_is_read_again_by_other_answers(two):
    data = open_dataset(two)
    assert data["v1"].fps == 30 and ("mouse_1", "mouse_1", "sniff") not in data.labelled("v1")
    data.answer(data.settings.model_copy(update={"fps": 60, "alone": ("rear", "sniff")}))
    assert data["v1"].fps == 60 and ("mouse_1", "mouse_1", "sniff") in data.labelled("v1")


@pytest.mark.parametrize("value, read", [("Modifier #2", "Modifier #2"), ("'Modifier #2'", "Modifier #2"),
                                         ("Modifiers", "Modifiers")])
def test_a_sharp_in_an_answer_begins_no_comment(value, read, two):
    assert main(["open", str(two), "--overwrite", "--set", f"target_from={value}"]) == 0
    assert open_dataset(two).settings.target_from == read


def test_folders_that_are_too_deep_are_told(two):
    at = two/"1"/"2"/"3"/"4"/"5"
    for name in ("pictures", "seven", "six", ".hidden"): (at/name/"7").mkdir(parents=True)
    (at/"pictures"/"7"/"a.png").write_bytes(b"")
    assert sentences(two) == [] and errors_and_warnings(two) == []
    for name in ("six", "seven", ".hidden"): write_dlc(at/name/"7", "v9", recording(9))
    assert open_dataset(two).ids == ("v1", "v2")
    said, = sentences(two)
    assert said == "1/2/3/4/5/seven lies in more than 5 folders, not read, nor 1 more; move it up"
    assert said in [*audit(open_dataset(two)).table.message]


def test_what_is_packed_or_leads_out_of_the_folder_is_told(two, tmp_path):
    (tmp_path/"share"/"day3").mkdir(parents=True)
    write_dlc(tmp_path/"share"/"day3", "v7", recording(7))
    (two/"all").symlink_to(two) # once more what is there
    assert sentences(two) == []
    (two/"day3").symlink_to(tmp_path/"share"/"day3")
    (two/"v8.csv").symlink_to(tmp_path/"share"/"v8.csv")
    (tmp_path/"share"/"v9.zip").write_bytes(b"PK")
    (two/"v9.zip").symlink_to(tmp_path/"share"/"v9.zip")
    for name in ("v5.csv.gz", "v6.ZIP"): (two/name).write_bytes(b"PK")
    (two/"V1DLC_net.csv").write_bytes((two/"v1DLC_net.csv").read_bytes())
    said = sentences(two)
    for words in ("day3 is a link to a folder, which is not followed", "v8.csv is a link that leads nowhere, not read",
                  "v9.zip is packed; unpack it", "v5.csv.gz is packed; unpack it", "v6.ZIP is packed; unpack it", "V1 and v1 differ in capitals alone"):
        assert any(s.startswith(words) for s in said), (words, said)
    assert open_dataset(two).ids == ("V1", "v1", "v2") and open_dataset(two/"day3").ids == ("v7",)
    assert any(m.startswith("day3 is a link") for _, m in errors_and_warnings(two))


def unprivileged(code, *args):
    "Run code as somebody whom modes of files bind, as they do not bind root; its lines."
    drop = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    done = subprocess.run([*drop, sys.executable, "-W", "ignore", "-c", code, *map(str, args)],
                          capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


READ = """if True:
    import sys, mabe_nb as mb
    from mabe_nb.data.poses import read_poses
    from mabe_nb.errors import MabeError
    for step in (lambda: [*mb.open_dataset(sys.argv[1]).ids, *(f.message for f in mb.open_dataset(sys.argv[1]).findings())],
                 lambda: read_poses(sys.argv[2], 30), lambda: mb.load_model(sys.argv[3])):
        try: print(step())
        except MabeError as e: print(e)
    """


@pytest.mark.skipif(os.name == "nt" or not (os.geteuid() or shutil.which("setpriv")), reason="needs setpriv")
def test_what_a_user_may_not_read_is_told_and_the_rest_is_read(two, tmp_path):
    (two/"sub").mkdir()
    (two/"lost+found").mkdir(mode=0)
    shutil.copy(two/"v1DLC_net.csv", two/"sub"/"v7.csv")
    (model := tmp_path/"model").mkdir()
    (h5 := tmp_path/"v.h5").write_bytes(b"x")
    closed = {p: p.stat().st_mode for p in (two/"v1DLC_net.csv", two/"v2.boris.csv", two/"sub", model, h5)}
    try:
        for p in closed: p.chmod(0)
        found, poses, loaded = unprivileged(READ, two, h5, model)
        (two.chmod(0o400), closed.setdefault(two, 0o700)) # whose names may be read alone
        alone = unprivileged(READ, two, h5, model)[0]
    finally:
        for p, mode in reversed(closed.items()): p.chmod(mode)
    assert "'v2'" in found and "'v1'" not in found and "lost+found" not in found
    for said in ("v1DLC_net.csv cannot be read: Permission denied, not read", "v2.boris.csv cannot be read: Permission denied",
                 "sub cannot be looked into: Permission denied"): assert said in found
    assert poses == f"{h5}: cannot be read: Permission denied"
    for path, said in (model, loaded), (two, alone):
        assert said == f"{path}: cannot be read: Permission denied; ask its owner, or give a folder of yours"

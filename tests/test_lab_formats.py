"What labs bring besides: ELAN, the Observer, Solomon Coder, SimBA's table of videos, and what is not read."
import json, unicodedata

import h5py
import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.io import savemat
from test_open_folder import recording, write_dlc

from mabe_nb.analysis.agreement import agreement
from mabe_nb.analysis.exports import export_elan
from mabe_nb.analysis.measures import observe
from mabe_nb.data.annotations import annotation_source, read_boris
from mabe_nb.data.checks.defects import check
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.formats.elan import elan_observations, read_elan
from mabe_nb.data.formats.frame_tables import read_solomon, read_step_table
from mabe_nb.data.kaggle import write_kaggle
from mabe_nb.data.poses import read_poses, tracked_points
from mabe_nb.data.recording import LabNote, Recording
from mabe_nb.data.splits import choose_videos
from mabe_nb.errors import DataError
from mabe_nb.train.config import TrainConfig


def eaf(*tiers, films=("file:///C:/films/v1.mp4",), more="", units="milliseconds"):
    "A document with tiers of (attributes, [(ms or None, ms or None, value)])."
    order, body, n = [], [], 0
    for attributes, some in tiers:
        marks = []
        for *ends, value in some:
            for k, t in enumerate(ends):
                order.append(f'<TIME_SLOT TIME_SLOT_ID="ts{n}{k}"' + (
                    "/>" if t is None else f' TIME_VALUE="{t}"/>'))
            marks.append(f'<ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a{n}" '
                         f'TIME_SLOT_REF1="ts{n}0" TIME_SLOT_REF2="ts{n}1"><ANNOTATION_VALUE>'
                         f'{value}</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>')
            n += 1
        body.append(f'<TIER LINGUISTIC_TYPE_REF="t" {attributes}>{"".join(marks)}</TIER>')
    media = "".join(f'<MEDIA_DESCRIPTOR MEDIA_URL="{f}" MIME_TYPE="video/mp4"/>' for f in films)
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<ANNOTATION_DOCUMENT AUTHOR="" FORMAT="3.0" '
            f'VERSION="3.0"><HEADER MEDIA_FILE="" TIME_UNITS="{units}">{media}</HEADER>'
            f'<TIME_ORDER>{"".join(order)}</TIME_ORDER>{"".join(body)}{more}'
            '<LINGUISTIC_TYPE LINGUISTIC_TYPE_ID="t" TIME_ALIGNABLE="true"/>'
            '</ANNOTATION_DOCUMENT>\n')


def read(tmp_path, text, fps=10, **more):
    (tmp_path/"v1.eaf").write_text(text, encoding="utf-8")
    return read_elan(tmp_path/"v1.eaf", fps, **more).values.tolist()


@pytest.mark.parametrize("attributes, value, meant", [
    ('TIER_ID="a &gt; b: sniff"', "left side", ("a", "b", "sniff")),
    ('TIER_ID="a &gt; b"', "sniff", ("a", "b", "sniff")),
    ('TIER_ID="a &gt; a: rear"', "", ("a", "a", "rear")),
    ('TIER_ID="tier-1" PARTICIPANT="a"', "rear", ("a", "", "rear")),
    ('TIER_ID="rear" PARTICIPANT="a"', "", ("a", "", "rear")),
    ('TIER_ID="a"', " sniff \n nose ", ("a", "", "sniff nose")),
    ('TIER_ID="rear"', "", ("me", "", "rear")), ('TIER_ID="rear"', "rear", ("me", "", "rear"))])
def test_what_a_tier_and_a_value_stand_for(tmp_path, attributes, value, meant):
    assert read(tmp_path, eaf((attributes, [(1000, 1500, value)])), agent="me") == [[*meant, 10, 15]]


def test_a_name_in_elan_is_the_same_however_its_letters_are_stored(tmp_path):
    text = unicodedata.normalize("NFD", eaf(('TIER_ID="Zoë"', [(1000, 1500, "lèche")])))
    assert read(tmp_path, text, subjects={"Zoë": "white"}) == [["white", "", "lèche", 10, 15]]


SENTENCE = (('TIER_ID="black"', [(0, 900, "sniff")]),
            ('TIER_ID="words" PARENT_REF="black"', [(0, None, "a"), (None, 900, "b")]))
NOTES = ('<TIER TIER_ID="sure" PARENT_REF="black" LINGUISTIC_TYPE_REF="s"><ANNOTATION>'
         '<REF_ANNOTATION ANNOTATION_ID="r1" ANNOTATION_REF="a0"><ANNOTATION_VALUE>yes'
         '</ANNOTATION_VALUE></REF_ANNOTATION></ANNOTATION></TIER>')


def test_notes_are_no_bouts_and_words_without_times_are_not_guessed(tmp_path):
    "As of the tiers text, words-timesub and words-symsub of ELAN's sample files."
    with pytest.raises(DataError, match="tier 'words': .*without two times.*untracked"):
        read(tmp_path, eaf(*SENTENCE, more=NOTES))
    bouts = read(tmp_path, eaf(*SENTENCE, more=NOTES), without=["words"])
    assert bouts == [["black", "", "sniff", 0, 9]]


ONE = ('TIER_ID="a"', [(0, 100, "rear")])


@pytest.mark.parametrize("text, words", [
    ("", "no XML"), (eaf(ONE)[:-60], "no XML .*cut off"), (eaf(ONE, units="PAL-frames"), "'PAL-frames'"),
    (eaf(('TIER_ID="a"', [(200, 100, "x")])), "second not below the first"),
    (eaf(('TIER_ID="a"', [(-1, 100, "x")])), "tier 'a'"), (eaf(('TIER_ID="a"', [("1e99", 2, "x")])), "tier 'a'"),
    (eaf(('TIER_ID="rear"', [(0, 1, "")])), "names no agent"),
    (eaf(('TIER_ID="a &gt; b"', [(0, 1, "")])), "names no action"),
    (eaf(('TIER_ID="default"', [])), "no annotation with times"),
    (eaf(ONE).replace("/mp4\"", "/mp4\" TIME_ORIGIN=\"4000\""), "time offset"),
    ('<!DOCTYPE x [<!ENTITY a "aa">]><x/>', "declares a DTD")])
def test_faults_of_an_elan_file(tmp_path, text, words):
    with pytest.raises(DataError, match=words): read(tmp_path, text)


def test_an_elan_file_in_another_encoding_is_no_text(tmp_path):
    (tmp_path/"v1.eaf").write_bytes(eaf(('TIER_ID="a"', [(0, 1, "Körper")])).encode("latin-1"))
    assert annotation_source(tmp_path/"v1.eaf") is None
    with pytest.raises(DataError, match="not text in UTF-8"): read_elan(tmp_path/"v1.eaf", 10)


def test_an_offset_of_another_camera_does_not_matter(tmp_path):
    text = eaf(ONE, films=["file:///v1.mp4", "file:///side.mp4"]).replace(
        'side.mp4"', 'side.mp4" TIME_ORIGIN="40"')
    assert read(tmp_path, text, is_video=lambda film: film == "v1.mp4")
    with pytest.raises(DataError, match="time offset"): read(tmp_path, text)


def test_an_offset_of_a_sound_does_not_matter_beside_a_film(tmp_path):
    sound = '<MEDIA_DESCRIPTOR MEDIA_URL="file:///v1.wav" MIME_TYPE="audio/x-wav" TIME_ORIGIN="40"/>'
    assert read(tmp_path, eaf(ONE).replace("</HEADER>", sound + "</HEADER>"))
    with pytest.raises(DataError, match="time offset"):
        read(tmp_path, eaf(ONE, films=()).replace("</HEADER>", sound + "</HEADER>"))


@pytest.fixture
def lab(tmp_path):
    "Two videos of two animals."
    for k in (1, 2): write_dlc(tmp_path, f"v{k}", recording(k))
    (tmp_path/"dataset.yaml").write_text("fps: 30\nalone: [rear]\n")
    return tmp_path


def test_a_film_without_a_name_does_not_keep_an_elan_file_from_its_poses(lab):
    for film in ("", "file:///...mp4"):
        (lab/"v1.eaf").write_text(eaf(('TIER_ID="black"', [(1000, 2000, "sniff")]), films=[film]))
        assert len(open_dataset(lab)["v1"].bouts) == 1


def test_an_elan_file_goes_to_the_video_of_its_name_or_of_its_film(lab):
    tier = ('TIER_ID="black"', [(1000, 2000, "sniff"), (3000, 3500, "rear")])
    (lab/"v1.eaf").write_text(eaf(tier, films=()))
    (lab/"monday.eaf").write_text(eaf(tier, films=["file:///C:/my%20films/v2.mp4"]))
    data = open_dataset(lab)
    for video in data.ids:
        assert data[video].bouts.values.tolist() == [
            ["black", "white", "sniff", 30, 60], ["black", "black", "rear", 90, 105]], video
    assert match_files(data).table.annotation.tolist() == ["v1.eaf", "monday.eaf"]
    assert not match_files(data).sentences
    (lab/"second").mkdir()
    (lab/"second"/"v1.eaf").write_text(eaf(('TIER_ID="black"', [(1000, 2000, "sniff")])))
    assert agreement(data, lab/"second").table.frame_f1.tolist() == [0, 1] # rear, sniff
    (lab/"v1.eaf").write_text(eaf(("TIER_ID=\"C57\"", [(0, 100, "sniff")])))
    assert "v1.eaf names C57, the poses black, white" in str(match_files(open_dataset(lab)))
    (lab/"v1.eaf").write_text(eaf(tier)[:-40])
    assert "is the file cut off?" in str(match_files(open_dataset(lab)))


def test_tiers_that_say_to_whom_are_believed_where_actions_are_listed(lab):
    (lab/"v1.eaf").write_text(eaf(('TIER_ID="black &gt; white: sniff"', [(1000, 2000, "")])))
    (lab/"dataset.yaml").write_text("fps: 30\nactions: [sniff]\n")
    said = match_files(open_dataset(lab)).sentences
    assert not any("no file says" in s for s in said)
    assert any("actions are listed, and not which of them an animal does by itself" in s for s in said)
    (lab/"v1.eaf").write_text(eaf(('TIER_ID="black"', [(1000, 2000, "sniff")])))
    said = match_files(open_dataset(lab)).sentences
    assert any("no file says to whom these are done: sniff" in s for s in said)
    for line in ("alone: []", "target: white"):
        (lab/"dataset.yaml").write_text(f"fps: 30\nactions: [sniff]\nfocal: [black]\n{line}\n")
        assert len(match_files(open_dataset(lab)).sentences) == 1 # v2 is not scored


def test_what_analyse_writes_for_elan_is_read_beside_poses(lab, tmp_path):
    colony = [make_recording(k, 300, video_id=f"v{k}") for k in (1, 2)]
    (lab/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nanimals: {black: mouse1, white: mouse2}\n")
    for path in export_elan(observe(colony), tmp_path/"out"):
        path.rename(lab/path.name)
    data = open_dataset(lab)
    for rec in colony:
        assert elan_observations(lab/f"{rec.video_id}.eaf")[0].media == ()
        assert sorted(data[rec.video_id].bouts.values.tolist()) == sorted(rec.bouts.values.tolist())


# SimBA's table of frame rates and scales, as its source writes it

@pytest.fixture
def project(tmp_path):
    "A project of SimBA with two videos, and the table of one of them."
    for k in (1, 2):
        path = tmp_path/"csv"/"targets_inserted"/f"v{k}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(",Nose_x,Nose_y,Nose_p,Groom\n" + "".join(
            f"{i},{i},5,0.9,{i % 2}\n" for i in range(40)))
    (tmp_path/"logs").mkdir()
    (tmp_path/"logs"/"video_info.csv").write_text(
        "Video,fps,Resolution_width,Resolution_height,Distance_in_mm,pixels/mm\n"
        "v1,25,640,480,300,1.6\nv2,50.0,640,480,300,\n")
    return tmp_path


def test_a_simba_project_says_its_frame_rates_and_scales(project):
    data = open_dataset(project)
    assert [(data[v].fps, data[v].px_per_cm) for v in data.ids] == [(25, 16), (50, None)]
    assert match_files(data).table.fps.tolist() == [25, 50] and not match_files(data).sentences
    inner = open_dataset(project/"csv"/"targets_inserted") # the same, from further in
    assert [inner[v].fps for v in inner.ids] == [25, 50]
    (project/"dataset.yaml").write_text("px_per_cm: 20\nvideos: {v1: {fps: 10}}\n")
    data = open_dataset(project)
    assert [(data[v].fps, data[v].px_per_cm) for v in data.ids] == [(10, 20), (50, 20)]


def test_features_are_made_again_when_simba_s_table_changes(project):
    before = open_dataset(project).fingerprint("v1")
    table = project/"logs"/"video_info.csv"
    table.write_text(table.read_text().replace("1.6", "3.2"))
    assert open_dataset(project).fingerprint("v1") != before
    assert open_dataset(project)["v1"].px_per_cm == 32


@pytest.mark.parametrize("rows, words", [
    ("v1,30,,,,2\nv1,25,,,,2\n", "row 3: has two different rows of v1"),
    ("v9,30,,,,2\n", "does not say its frames per second"),
    ("v1,fast,,,,2\n", "does not say its frames per second"), ("", "does not say its frames"),
    (b"\xff\xfe", "not text in UTF-8")])
def test_faults_of_simba_s_table(project, rows, words):
    head = "Video,fps,Resolution_width,Resolution_height,Distance_in_mm,pixels/mm\n"
    text = rows if isinstance(rows, bytes) else (head + rows).encode()
    (project/"logs"/"video_info.csv").write_bytes(text)
    with pytest.raises(DataError, match=words): open_dataset(project)["v1"]


# The Observer, Solomon Coder, and what is not read

LOG = ("Date_dmy;Time_Relative_hmsf;Duration_sf;Observation;Subject;Behavior;Modifier_1;Event_Type\n"
       "1-1;00:00:01.000;1.00;{0};black;sniff;white;State start\n"
       "1-1;00:00:02.000;0.00;{0};black;sniff;white;State stop\n"
       "1-1;00:00:03.000;0.00;{0};white;rear;;Point\n")


@pytest.mark.parametrize("name, text", [
    ("v1.csv", LOG.format("cage 7")), ("study.csv", LOG.format("v1")),
    ("v1.txt", LOG.format("v1").replace(";", "\t")),
    ("v1.csv", LOG.format("v1").replace("hmsf", "sf").replace("00:00:0", ""))])
def test_an_event_log_of_the_observer_is_read(lab, name, text):
    (lab/name).write_text(text)
    bouts = open_dataset(lab)["v1"].bouts
    assert bouts.values.tolist() == [["black", "white", "sniff", 30, 60],
                                     ["white", "white", "rear", 90, 91]]
    (lab/"dataset.yaml").write_text("fps: 30\nalone: [rear]\ntarget_from: Modifiers\n")
    assert open_dataset(lab)["v1"].bouts.equals(bouts)
    (lab/name).write_text(text.replace("State stop", "Lost"))
    with pytest.raises(DataError, match="row 3: status 'LOST' .*fits no bout"): open_dataset(lab)["v1"]
    (lab/name).write_text("\n".join(text.splitlines()[:2]) + text[-8:-1])
    with pytest.raises(DataError): open_dataset(lab)["v1"]


def steps(*rows, comma=","):
    return "\n".join(comma.join(r) for r in (("Time", "Behaviour", "Place"), *rows)) + "\n"


SOLOMON = [("0.0", "", "left"), ("0.2", "sniff", ""), ("0.4", "sniff", ""), ("0.6", "rear", "")]


@pytest.mark.parametrize("text", [steps(*SOLOMON), steps(*SOLOMON, comma=";"),
                                  steps(*SOLOMON, comma=";").replace(".", ",")])
def test_a_table_of_solomon_coder_is_read(lab, text):
    (lab/"v1.csv").write_text(text)
    (lab/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nagent: black\n")
    assert open_dataset(lab)["v1"].bouts.values.tolist() == [
        ["black", "white", "sniff", 6, 18], ["black", "black", "rear", 18, 24]]


@pytest.mark.parametrize("text, words", [
    (steps(*SOLOMON, ("9.0", "rear", "")), "row 6: Time is '9.0'.*even steps"),
    (steps(*SOLOMON, ("0.6", "rear", "")), "row 6: Time is '0.6'"),
    (steps(*SOLOMON, ("x", "rear", "")), "row 6: Time is 'x'"), (steps(), "no rows"), ("", "no rows"),
    (steps(("0", "rear", "")), "row 2"), ("a,b\n1,2\n", "no columns Time and Behaviour")])
def test_faults_of_a_table_of_solomon_coder(tmp_path, text, words):
    (tmp_path/"v1.csv").write_text(text)
    with pytest.raises(DataError, match=words): read_solomon(tmp_path/"v1.csv", 30)


def binary(*rows, comma=","):
    return "\n".join(comma.join(r) for r in (("time", "sniff", "rear", "Other"), *rows)) + "\n"


BINARY = [("2.0", "0", "0", "1"), ("2.2", "1", "0", "0"), ("2.4", "1", "2", "0"), ("2.6", "0", "0", "1")]


@pytest.mark.parametrize("name", ["v1.csv", "boris_export/v1.mp4_No focal subject.tsv",
                                  "Manual Annotations/v1_behavior.csv"])
def test_a_binary_table_of_boris_or_of_a_soid_is_read(lab, name):
    (lab/name).parent.mkdir(exist_ok=True)
    text = binary(*BINARY, comma="\t" if name.endswith("tsv") else ";" if "Manual" in name else ",")
    (lab/name).write_text(text.replace(".", ",") if ";" in text else text) # as a spreadsheet may save it
    (lab/"dataset.yaml").write_text("fps: 30\nalone: [rear]\nagent: black\n")
    rec = open_dataset(lab)["v1"]
    assert rec.bouts.values.tolist() == [["black", "white", "sniff", 66, 78], ["black", "black", "rear", 72, 78]]
    assert rec.scored == (60, 84) and {x for *_, x in rec.labelled} == {"sniff", "rear"}


@pytest.mark.parametrize("rows, words", [
    ([*BINARY, ("9.0", "0", "0", "0")], "row 6: Time is '9.0'.*even steps"),
    ([*BINARY * 5, ("2.8", "0", "0.5", "0")], "row 22: expected 0, 1 or a count"),
    ([*BINARY * 5, ("2.8", "0", "0", "0", "0")], "is no table .*Expected 4 fields in line 22, saw 5"),
    ([*BINARY * 5, ("2.8", '"0', "0", "0")], "is no table .*EOF inside string"),
    ([*BINARY * 5, ("2.8", "0", "\xff", "0")], "is no table"),
    ([("time", "sniff", "rear", "sniff"), *BINARY], "row 1: has two columns 'sniff'")])
def test_faults_of_a_binary_table(tmp_path, rows, words):
    text = binary(*rows)
    (tmp_path/"v1.csv").write_bytes((text if rows[0] in BINARY else text.split("\n", 1)[1]).encode("latin-1"))
    with pytest.raises(DataError, match=words): read_step_table(tmp_path/"v1.csv", 30)


@pytest.mark.parametrize("text", ["time,x,y\n0.0,12.5,3\n", "time,a\n", "",
                                  "sniff,time\n0,0.1\n", "time,a\nnow,1\n"])
def test_what_is_no_binary_table(tmp_path, text):
    (tmp_path/"v1.csv").write_text(text)
    assert annotation_source(tmp_path/"v1.csv") is None


def test_a_folder_of_nothing_known_names_a_file_of_it(tmp_path):
    (tmp_path/"v1.csv").write_text("x,y,z\n1,2,3\n")
    with pytest.raises(DataError, match="no dataset; .*; v1.csv is neither poses .* nor an annotation"):
        open_dataset(tmp_path)


def test_what_is_not_read_is_named_and_what_to_do(lab):
    with h5py.File(lab/"v1_t.h5", "w") as f: f["trajectories"] = [1.0] # a script's
    for k in (1, 2): np.savez(lab/f"v{k}_id0.npz", x=np.zeros(3)) # a script's
    (lab/"t.npy").write_bytes(b"\x93NUMPY") # pickled: never opened
    (lab/"v1.sds").write_bytes(b"<x/>") # Stoelting's
    said = [f.message for f in open_dataset(lab).findings()]
    assert [s.split()[0] for s in said] == ["t.npy", "v1.sds", "v1_id0.npz", "v1_t.h5"]
    assert all("export a table of its bouts as CSV, or its poses as DeepLabCut or SLEAP" in s for s in said)
    assert said[2].endswith("; nor are 1 more .npz beside it")


def test_a_training_without_annotations_says_what_was_not_read(lab):
    with pytest.raises(DataError, match="has none; mabe audit tells"): choose_videos(open_dataset(lab), TrainConfig())
    (lab/"scoring.csv").write_text("Video;Maus;Verhalten\nv1;black;putzen\n")
    with pytest.raises(DataError, match="has none; scoring.csv is neither poses .* columns named agent"):
        choose_videos(open_dataset(lab), TrainConfig())


@pytest.mark.parametrize("name, text, kind, words", [
    ("v1_events.csv", "time,behavior,subject\n1.5,rear,a\n", "unreadable_file",
     ("tells when a behaviour was seen, not how long", "start and stop", "one frame")),
    ("v1_frames.csv", "black,white\nsniff,rear\n0,1\n1,0\n", "unreadable_file",
     ("names of its columns in row 2", "take away what stands above")),
    ("animals.csv", "Video,animal,sex,Group\nv1,black,f,drug\n", "unknown_file",
     ("tells of animals or videos", "mabe analyse annotations", "--groups", "--by Group")),
    ("mice.csv", "Mouse;Cage;Sex\nblack;1;f\n", "unknown_file",
     ("tells of animals or videos", "--groups", "needs a column video"))])
def test_a_table_that_is_nearly_one_or_of_something_else_is_told(lab, name, text, kind, words):
    (lab/name).write_text(text)
    (found,) = (f for f in open_dataset(lab).findings() if f.message.startswith(name))
    assert found.kind == kind and all(w in found.message for w in words), found


@pytest.mark.parametrize("ending", ["annot", "annotated", "annotations", "frames", "behavior", "scored"])
def test_a_table_called_by_what_it_is_joins_its_video(tmp_path, ending):
    write_dlc(tmp_path, "v1", recording(1))
    (tmp_path/"dataset.yaml").write_text("fps: 30\n")
    (tmp_path/f"v1_{ending}.csv").write_text(
        "agent,target,behavior,start,stop\nblack,white,sniff,1,2\n")
    assert open_dataset(tmp_path)["v1"].bouts.values.tolist() == [["black", "white", "sniff", 30, 60]]


def test_moments_of_boris_without_a_status_are_told(tmp_path):
    (tmp_path/"v1.csv").write_text("Time,Behavior,Subject\n1.5,rear,a\n")
    with pytest.raises(DataError, match="not how long.*POINT.*one frame"): read_boris(tmp_path/"v1.csv", 30)


# Groups

def test_tracks_in_pieces_are_told_and_long_lists_are_cut(lab):
    "As SLEAP gives an animal that it had lost a new name."
    rec = recording(1, 300)
    cut = rec.replace(xy=np.full((300, 12, *rec.xy.shape[2:]), np.nan, np.float32), labelled=None,
                      bouts=rec.bouts[:0], mice=tuple(f"track_{i}" for i in range(12)))
    for i in range(12):
        at = slice(i // 2 * 50, i // 2 * 50 + 50)
        cut.xy[at, i] = rec.xy[at, i % 2]
    write_dlc(lab, "v1", cut, cut.mice)
    said = str(match_files(open_dataset(lab)))
    assert ("v1: 12 animals are named, and no frame shows more than 2: the tracks are pieces; "
            "join each animal's in the tracker, or in dataset.yaml") in said
    assert "track_7 and 4 more" in said and "track_8" not in said.split("\n- ")[0]
    found = {d.kind: d.message for d in check(cut)}
    assert "track_pieces" in found and "track_pieces" not in {d.kind for d in check(rec)}
    slow = cut.replace(fps=3)
    assert {d.kind: d.message for d in check(slow)}["lost_animals"].endswith("and 7 more")


def test_pieces_of_a_track_are_joined_and_ghosts_left_out_video_by_video(lab):
    "Who is called track_0 is another animal in each video, of a tracker that does not know them."
    whole = {f"v{k}": recording(k, 120) for k in (1, 2)}
    for name, rec in whole.items():
        xy = np.full((120, 4, *rec.xy.shape[2:]), np.nan, np.float32)
        first, second = (0, 1) if name == "v1" else (1, 0)
        xy[:60, 0], xy[60:, 1] = rec.xy[:60, first], rec.xy[60:, first] # lost at frame 60
        xy[:, 2], xy[::9, 3] = rec.xy[:, second], 1
        write_dlc(lab, name, rec.replace(xy=xy, mice=(m := tuple("abcd")), labelled=None,
                                         bouts=rec.bouts[:0]), m)
    black, white = next(iter(whole.values())).mice
    pieces = {name: {"animals": {"a": x, "b": x, "c": y}, "ghosts": ["d"]}
              for name, x, y in (("v1", black, white), ("v2", white, black))}
    (lab/"dataset.yaml").write_text(yaml.safe_dump({"fps": 30, "videos": pieces}))
    data = open_dataset(lab)
    for name, rec in whole.items():
        got = data[name]
        assert {*got.mice} == {black, white} and {f.kind for f in got.findings} <= {"zero_points"}
        for who in got.mice:
            np.testing.assert_allclose(got.xy[:, got.mice.index(who)],
                                       rec.xy[:, rec.mice.index(who)], atol=0.01)
    assert not [f for f in data.findings() if f.kind == "unknown_name"]
    pieces["v2"]["animals"]["c"] = white
    (lab/"dataset.yaml").write_text(yaml.safe_dump({"fps": 30, "videos": pieces}))
    with pytest.raises(DataError, match=f"gives a, b, c of video v2 the name '{white}'"):
        open_dataset(lab)["v2"]


def test_of_many_pairs_that_swap_names_the_most_frequent_are_named():
    xy = np.repeat(np.arange(8) * 100.0, 2).reshape(1, 8, 1, 2) + np.zeros((400, 8, 1, 2))
    xy += np.linspace(0, 40, 400)[:, None, None, None]
    for k in range(7): xy[20 * k + 20, [k, k + 1]] = xy[20 * k + 20, [k + 1, k]] # one frame
    for k in range(10): xy[200 + 10 * k, [6, 7]] = xy[200 + 10 * k, [7, 6]]
    rec = Recording(xy.astype(np.float32), tuple(f"m{i}" for i in range(8)), ("nose",), 30)
    said = next(d.message for d in check(rec) if d.kind == "identity_swaps")
    assert "(m6 and m7, m0 and m1, " in said and "and 2 more)" in said


def test_a_fifth_animal_in_kaggle_s_layout_is_said_to_be_left_out(tmp_path):
    recs = [make_recording(k, 300, mice=4, video_id=str(k)) for k in (1, 2)]
    write_kaggle(recs, tmp_path/"k")
    with pytest.raises(DataError, match="holds 4; leave some out, or open the tracker's own files"):
        write_kaggle([recs[0].replace(xy=np.repeat(recs[0].xy, 2, 1), labelled=None, bouts=recs[0].bouts[:0],
                                      mice=tuple(f"m{i}" for i in range(8)))], tmp_path/"more")
    for path in (tmp_path/"k").glob("train_tracking/*/*.parquet"):
        table = pd.read_parquet(path)
        more = table[table.mouse_id == 4].assign(mouse_id=np.int8(5))
        pd.concat([table, more]).sort_values("video_frame").to_parquet(path, index=False)
    data = open_dataset(tmp_path/"k")
    with pytest.warns(LabNote, match="not 1 to 4 are left out, mabe audit counts them"):
        assert len(data["1"].mice) == 4


def test_damaged_poses_are_told_in_a_folder_of_nothing_else(lab):
    for name in ("day1/a.h5", "day2/b.mat", "day2/c.mat", "day3/d.trk", "photos/empty.csv", "photos/e.npy"):
        (lab/name).parent.mkdir(exist_ok=True)
        (lab/name).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(200) if "photos" not in name else b"")
    said = [f.message for f in open_dataset(lab).findings()]
    assert len(said) == 3 and "day1/a.h5 is truncated" in said[0] and "nor are 1 more .mat" in said[1]


# idtracker.ai, as `utils/trajectories_io.py` of its version 6.0.14 writes

RNG = np.random.default_rng(0)


def walk(*shape): return RNG.normal(0, 2, shape).cumsum(0) + 300


def session(root, name, xy, formats=("h5", "npy", "csv"), labels=None, stem="trajectories"):
    "A session folder with what else the program leaves in it."
    frames, n, _ = xy.shape
    sure = np.where(np.isnan(xy[..., :1]), 0, 0.9)
    about = {"version": "6.0.14", "frames_per_second": 29.97, "body_length": np.float64(44.3),
             "video_paths": [f"/films/{name}.avi"], "identities_labels": labels or [str(i + 1) for i in range(n)],
             "identities_groups": {"males": [1]}, "length_unit": None, "setup_points": {"a": np.zeros((4, 2))}}
    out = root/f"session_{name}"/"trajectories"
    out.mkdir(parents=True, exist_ok=True)
    if "npy" in formats:
        np.save(out/f"{stem}.npy", {"trajectories": xy, "id_probabilities": sure} | about, allow_pickle=True)
    if "h5" in formats:
        with h5py.File(out/f"{stem}.h5", "w") as f:
            f.create_dataset("trajectories", data=xy, compression="gzip")
            f.create_dataset("id_probabilities", data=sure, compression="gzip")
            f.create_group("areas")["mean"] = np.ones(n)
            f.attrs.update(frames_per_second=29.97, identities_labels=about["identities_labels"], length_unit=-1)
    if "csv" in formats:
        (csv := out/f"{stem}_csv").mkdir(exist_ok=True)
        head = "time," + ",".join(f"{c}{i + 1}" for i in range(n) for c in "xy")
        np.savetxt(csv/"trajectories.csv", np.c_[np.arange(frames) / 29.97, xy.reshape(frames, -1)], fmt="%.3f",
                   delimiter=",", header=head, comments="")
        np.savetxt(csv/"areas.csv", np.ones((n, 3)), delimiter=", ", header="mean, median, standard_deviation", comments="")
        (csv/"attributes.json").write_text(json.dumps(about, default=str))
    if "parquet" in formats:
        import pyarrow as pa
        import pyarrow.parquet as pq
        at = np.indices(xy.shape[:2]).reshape(2, -1)
        table = pa.table({"frame": at[0], "time": at[0] / 29.97, "individual": at[1], "x": xy[..., 0].ravel(),
                          "y": xy[..., 1].ravel(), "probability": sure.ravel()})
        pq.write_table(table.replace_schema_metadata({"idtrackerai_attributes": json.dumps(about, default=str)}),
                       out/f"{stem}.parquet")
    above = out.parent
    for file in ("session.json", "idtrackerai.log"): (above/file).write_text("{}")
    (above/"bounding_box_images").mkdir(exist_ok=True)
    with h5py.File(above/"bounding_box_images"/"bbox_images_0.hdf5", "w") as f: f["0-0"] = np.zeros((4, 4))
    return out


def test_sessions_of_idtracker_are_read_among_other_videos(lab):
    xy = walk(50, 3, 2)
    xy[5:9, 1] = np.nan
    session(lab, "cage.1", xy, labels=["Ada", "Bo", "Cy"])
    session(lab/"day2", "cage2", xy, ["csv"])
    session(lab/"day2", "cage3", xy, ["npy"])
    session(lab/"day2", "cage4", xy, ["parquet"])
    (lab/"cage.1.csv").write_text("agent,target,action,start,stop\nAda,Bo,chase,0.5,1\n")
    data = open_dataset(lab)
    assert data.ids == ("cage.1", "day2_cage2", "day2_cage3", "day2_cage4", "v1", "v2")
    for video in data.ids[:4]:
        rec = data[video]
        assert np.allclose(rec.xy[:, :, 0], xy, atol=1e-3, equal_nan=True)
        assert rec.fps == 29.97 and rec.parts == ("body_center",), video
    assert data["cage.1"].mice == ("Ada", "Bo", "Cy") and len(data["cage.1"].bouts) == 1
    assert data["day2_cage2"].mice == ("mouse1", "mouse2", "mouse3")
    assert not data.findings() # nothing is said of the program's own files
    assert match_files(data).table.tracker.tolist()[:4] == ["idtracker.ai"] * 4
    for path in (lab/"session_cage.1", lab/"session_cage.1"/"trajectories"/"trajectories.npy"):
        assert open_dataset(path).ids == ("cage.1",)


def test_what_was_validated_in_a_session_is_read_and_damage_is_told(tmp_path):
    out = session(tmp_path, "a", first := walk(20, 2, 2), ["h5", "npy"], stem="with_gaps")
    session(tmp_path, "a", first + 1, ["npy"], stem="without_gaps")
    assert open_dataset(tmp_path)["a"].xy[0, 0, 0, 0] == np.float32(first[0, 0, 0] + 1)
    session(tmp_path, "a", first + 2, ["h5"], stem="validated")
    assert open_dataset(tmp_path)["a"].xy[0, 0, 0, 0] == np.float32(first[0, 0, 0] + 2)
    (out/"validated.h5").write_bytes((out/"validated.h5").read_bytes()[:900])
    (tmp_path/"v.csv").write_text("scorer,n,n\nbodyparts,nose,nose\ncoords,x,y\n0,1,2\n")
    found = open_dataset(tmp_path)
    assert found.ids == ("v",) and "validated.h5 is truncated or no HDF5" in found.findings()[0].message


@pytest.mark.parametrize("found, words", [
    ({"trajectories": np.zeros((4, 2))}, "trajectories have shape"), ({"trajectories": np.zeros((0, 2, 2))}, "no frames"),
    ({"trajectories": [["a"]]}, "trajectories have shape"), (["trajectories"], "expected a dictionary")])
def test_faults_of_a_session(tmp_path, found, words):
    out = session(tmp_path, "a", walk(5, 2, 2), [])
    np.save(out/"trajectories.npy", np.array(found, object) if isinstance(found, list) else found, allow_pickle=True)
    with pytest.raises(DataError, match=words): read_poses(out/"trajectories.npy", 30)


def test_damaged_parquet_of_a_session_is_told(tmp_path):
    out = session(tmp_path, "a", walk(50, 2, 2), ["parquet"])/"trajectories.parquet"
    whole = out.read_bytes()
    out.write_bytes(whole[:400] + whole[-400:])
    with pytest.raises(DataError, match="trajectories.parquet"): read_poses(out)
    out.write_bytes(whole[:900])
    with pytest.raises(DataError, match="cannot be opened as a .parquet file"): read_poses(out)


# TRex, by docs/formats.rst of mooch443/trex

def trex(folder, name, xy, first=0, cm=0.03, **more):
    "The file of one animal: centre in cm, two points in pixels."
    frame = np.arange(first, first + len(xy))
    np.savez(folder/f"{name}.npz", frame=frame, time=frame / 25, missing=np.isinf(xy[:, 0]).astype(float), **{
        "X#wcentroid": xy[:, 0] * (cm or 1), "Y#wcentroid": xy[:, 1] * (cm or 1), **({
            "poseX0": xy[:, 0], "poseY0": xy[:, 1], "poseX1": xy[:, 0] + 5, "poseY1": xy[:, 1],
            "cm_per_pixel": np.array([cm]), "frame_rate": np.array([25.])} if cm else {})} | more)


def test_the_files_of_trex_for_each_animal_are_one_video(tmp_path):
    tracks = [walk(40 - 10 * k, 2) for k in range(3)]
    tracks[1][4] = np.inf
    (tmp_path/"data").mkdir()
    for video in ("tank 1", "tank 2"):
        for k, name in enumerate(("id0", "id2", "id10")): trex(tmp_path/"data", f"{video}_{name}", tracks[k], 3 * k)
        np.savez(tmp_path/"data"/f"{video}_posture_id0.npz", frames=np.arange(3), offset=np.zeros((3, 2)))
    data = open_dataset(tmp_path)
    assert data.ids == ("tank_1", "tank_2") and not data.findings()
    rec = data["tank_1"]
    assert rec.mice == ("id0", "id2", "id10") and rec.fps == 25 and rec.px_per_cm == pytest.approx(1 / 0.03)
    assert rec.parts == ("body_center", "point0", "point1") and len(rec) == 40
    assert np.allclose(rec.xy[6:26, 2, 0], tracks[2], atol=1e-3) and np.allclose(rec.xy[6:26, 2, 1], tracks[2])
    assert np.isnan(rec.xy[:6, 2]).all() and np.isnan(rec.xy[7, 1]).all() and np.isnan(rec.xy[26:, 2]).all()
    before = data.fingerprint("tank_1")
    trex(tmp_path/"data", "tank 1_id10", tracks[2] + 1, 6)
    assert open_dataset(tmp_path).fingerprint("tank_1") != before # as with any of its files


def test_old_and_damaged_files_of_trex(tmp_path):
    for k in (0, 1): trex(tmp_path, f"a_fish{k}", walk(30, 2), cm=None)
    rec = open_dataset(tmp_path)["a"]
    assert rec.px_per_cm is None and rec.fps == 25 and rec.parts == ("body_center",)
    path = tmp_path/"a_fish1.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[:400])
    with pytest.raises(DataError, match="a_fish1.npz"): open_dataset(tmp_path)["a"]
    path.write_bytes(whole)
    (tmp_path/"a_fish0.npz").write_bytes(whole[:400])
    np.savez(tmp_path/"notes.npz", x=np.zeros(3))
    (tmp_path/"v.csv").write_text("scorer,n,n\nbodyparts,nose,nose\ncoords,x,y\n0,1,2\n")
    said = [f.message for f in open_dataset(tmp_path).findings()]
    assert len(said) == 2 and "a_fish0.npz is truncated" in said[0] and "notes.npz is of a program" in said[1]
    trex(tmp_path, "a_fish0", walk(30, 2), cm=None)
    trex(tmp_path, "a_fish1", walk(30, 2), frame_rate=np.array([30.]))
    with pytest.raises(DataError, match="expected the same of all animals"): open_dataset(tmp_path)["a"]


# JAABA, APT and DANNCE

def jaaba(folder, animals=2, frames=30, scores=("chase",), name="registered_trx.mat"):
    "An experiment: trajectories, features of each frame, and scores of behaviours."
    (folder/"perframe").mkdir(parents=True, exist_ok=True)
    trx = np.empty(animals, [(k, "O") for k in ("x", "y", "theta", "a", "firstframe", "fps", "pxpermm", "sex")])
    for k in range(animals):
        x, y = walk(frames, 2).T
        trx[k] = x[None], y[None], np.zeros((1, frames)), np.full((1, frames), 5.), 1 + k, 30., 8., "m"
    savemat(folder/name, {"trx": trx, "timestamps": np.arange(frames)}, do_compression=True)
    savemat(folder/"perframe"/"velmag.mat", {"data": np.zeros(3)})
    spans = np.empty((2, animals), object)
    for k in range(animals): spans[:, k] = [np.array([[2. + k]]), np.array([[6. + k]])]
    for action in scores:
        savemat(folder/f"scores_{action}.mat", {"allScores": {"t0s": spans[0], "t1s": spans[1], "scoreNorm": 1.}})
    return trx


def test_experiments_of_jaaba_are_videos_with_what_was_scored(tmp_path):
    trx = jaaba(tmp_path/"exp.1", scores=("chase", "wing_groom"))
    jaaba(tmp_path/"exp2", name="trx.mat", scores=())
    (tmp_path/"dataset.yaml").write_text("alone: [wing_groom]\n")
    data = open_dataset(tmp_path)
    assert data.ids == ("exp2", "exp.1") and not data.findings() and data.labelled("exp2") is None
    rec = data["exp.1"]
    assert rec.bouts.values.tolist() == [
        ["mouse1", "mouse1", "wing_groom", 1, 5], ["mouse1", "mouse2", "chase", 1, 5],
        ["mouse2", "mouse1", "chase", 2, 6], ["mouse2", "mouse2", "wing_groom", 2, 6]]
    assert rec.fps == 30 and rec.px_per_cm == 80 and rec.parts == ("nose", "body_center", "tail_base")
    assert np.allclose(rec.xy[:30, 0, 1, 0], trx["x"][0][0] - 1) and np.isnan(rec.xy[0, 1]).all()
    assert np.allclose(rec.xy[1:30, :, 0, 0] - rec.xy[1:30, :, 2, 0], 20, atol=1e-3)
    before = data.fingerprint("exp.1")
    jaaba(tmp_path/"exp.1", scores=("lunge",))
    assert open_dataset(tmp_path).fingerprint("exp.1") != before
    (tmp_path/"exp.1"/"scores_lunge.mat").write_bytes(b"no")
    with pytest.raises(DataError, match="scores_lunge.mat: is no MATLAB file"): open_dataset(tmp_path)["exp.1"]
    path = tmp_path/"exp2"/"trx.mat"
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(DataError, match="trx.mat: trx cannot be read"): open_dataset(tmp_path)["exp2"]


def test_behaviours_that_jaaba_scored_and_never_saw_are_absent_and_not_unknown(tmp_path):
    jaaba(tmp_path/"exp1")
    none = np.empty(2, object)
    none[:] = [np.zeros((1, 0))] * 2
    savemat(tmp_path/"exp1"/"scores_lunge.mat", {"allScores": {"t0s": none, "t1s": none}})
    (tmp_path/"dataset.yaml").write_text("alone: []\n")
    rec = open_dataset(tmp_path)["exp1"]
    assert ("mouse1", "mouse2", "lunge") in rec.labelled and "lunge" not in {*rec.bouts.action}


def test_predictions_of_dannce_are_called_as_their_session(tmp_path):
    for name in ("2024_M1", "2024_M2"):
        (at := tmp_path/name/"DANNCE"/"predict00").mkdir(parents=True)
        savemat(at/"save_data_AVG0.mat", {"pred": walk(30, 2, 3, 4), "p_max": np.full((30, 2, 4), 0.8),
                                          "sampleID": np.arange(30.), "metadata": {"camnames": "a"}})
    (tmp_path/"2024_M1.csv").write_text("agent,target,action,start,stop\nmouse1,mouse2,chase,0.1,0.3\n")
    (tmp_path/"dataset.yaml").write_text("fps: 50\n")
    data = open_dataset(tmp_path)
    assert data.ids == ("2024_M1", "2024_M2") and len(data["2024_M1"].bouts) == 1
    rec = data["2024_M2"]
    assert rec.xy.shape == (30, 2, 4, 2) and [f.kind for f in rec.findings] == ["third_coordinate"]
    again = tmp_path/"2024_M1"/"DANNCE"/"predict01"
    (tmp_path/"2024_M1"/"DANNCE"/"predict00").rename(again)
    assert open_dataset(tmp_path).ids == ("2024_M1", "2024_M2")


def test_tracks_of_apt_whole_and_in_pieces(tmp_path):
    xy = walk(40, 2, 3, 2) # Frames, animals, parts
    with h5py.File(tmp_path/"whole.trk", "w", userblock_size=512) as f: # of version 7.3, axes turned round
        f["pTrk"] = (xy + 1).transpose(1, 0, 3, 2)
        f["pTrkConf"], f["pTrkFrm"] = np.full((2, 40, 3), 0.9), np.arange(1., 41)[:, None]
    with h5py.File(tmp_path/"pieces.trk", "w", userblock_size=512) as f: # of hdf5storage
        for k, (a, b) in enumerate(((0, 40), (10, 30))):
            f[f"#refs#/{k}"] = (xy[a:b, k] + 1).transpose(0, 2, 1)
        f["pTrk"] = np.array([[f[f"#refs#/{k}"].ref] for k in (0, 1)], h5py.ref_dtype)
        f["pTrk"].attrs["MATLAB_class"] = np.bytes_("cell")
        f["startframes"], f["endframes"] = np.array([[1], [11]]), np.array([[40], [30]])
    (tmp_path/"cut.trk").write_bytes((tmp_path/"whole.trk").read_bytes()[:3000])
    (tmp_path/"brain.trk").write_bytes(b"TRACK" + bytes(1000))
    (tmp_path/"dataset.yaml").write_text("fps: 50\n")
    data = open_dataset(tmp_path)
    assert data.ids == ("pieces", "whole") and np.allclose(data["whole"].xy, xy, atol=1e-4)
    assert np.allclose(data["pieces"].xy[:, 0], xy[:, 0], atol=1e-4)
    assert np.allclose(data["pieces"].xy[10:30, 1], xy[10:30, 1], atol=1e-4) and np.isnan(data["pieces"].xy[:10, 1]).all()
    said = " ".join(f.message for f in data.findings())
    assert "cut.trk is truncated or no HDF5 file" in said and "brain.trk is of a program" in said
    with pytest.raises(DataError, match="give fps="): read_poses(tmp_path/"whole.trk")


# DeepLabCut-live 1.1.0, dlclive/benchmark.py

@pytest.mark.parametrize("animals", [1, 2])
def test_tables_of_deeplabcut_live_are_read(tmp_path, animals):
    levels = [["nose", "tail"], ["x", "y", "likelihood"]]
    names = ["bodyparts", "coords"]
    if animals > 1: levels, names = [["individual_0", "individual_1"], *levels], ["individuals", *names]
    head = pd.MultiIndex.from_product(levels, names=names)
    rows = np.arange(5. * len(head)).reshape(5, -1) / 100 + 0.1
    table = pd.DataFrame(rows, columns=head)
    table.to_csv(tmp_path/"rig_poses.csv", index=False)
    table.to_hdf(tmp_path/"box_poses.h5", key="df_with_missing", mode="w")
    data = open_dataset(tmp_path)
    data.answer(data.settings.model_copy(update={"fps": 30}))
    for video in data.ids:
        rec = data[video]
        assert rec.parts == ("nose", "tail") and len(rec.mice) == animals
        assert np.allclose(rec.xy, rows.reshape(5, animals, 2, 3)[..., :2])


# trackpy 0.7's linked features and traja 25.0.1's tables, beside bouts

def test_tables_of_trajectories_are_read_and_learned_from(tmp_path):
    t = np.arange(200)
    pd.concat([pd.DataFrame(dict(y=t + k, x=2 * t + k + 1, mass=1., frame=t, particle=k))
               for k in (0, 1)]).sort_values("frame").to_csv(tmp_path/"pair.csv")
    pd.DataFrame({"time": t / 50, "x": t + 1., "y": 3.}).to_csv(tmp_path/"one.csv", index=False)
    (tmp_path/"bouts.csv").write_text("video,agent,target,action,start,stop\n"
                                      "pair,mouse0,mouse1,chase,1,3\n")
    data = open_dataset(tmp_path)
    data.answer(data.settings.model_copy(update={"videos": {"pair": {"fps": 25}}}))
    pair, one = data["pair"], data["one"]
    assert pair.mice == ("mouse0", "mouse1") and pair.parts == ("body_center",)
    assert pair.xy[10, 1, 0].tolist() == [22, 11] and len(pair.bouts) == 1
    assert one.fps == 50 and one.xy[7, 0, 0].tolist() == [8, 3]
    assert {*match_files(data).table.tracker} == {"trajectories"}


def wide(form="{a}_{p}_{c}", frames=300, animals=("resident", "intruder"), sure=""):
    "A row for each frame, the points in columns of their own; and where they are."
    xy = walk(frames, len(animals), 2, 2)
    columns = {form.format(a=a, p=p, c=c): xy[:, i, j, k] if k < 2 else np.full(frames, .9)
               for i, a in enumerate(animals) for j, p in enumerate(("Nose", "tail_base"))
               for k, c in enumerate(("x", "y", sure)[:2 + bool(sure)])}
    return pd.DataFrame(columns), xy


@pytest.mark.parametrize("form,sure", [("{a}_{p}_{c}", "likelihood"), ("{a}.{p}.{c}", "conf"), ("{c}_{a}_{p}", ""),
                                       ("{a} {p} {c} (px)", ""), ("{a}_{p}_{c}", "p")])
@pytest.mark.parametrize("clock", ["frame", "Time", ""])
def test_points_in_columns_of_their_own_are_read(tmp_path, form, sure, clock):
    table, xy = wide(form, sure=sure)
    if clock: table.insert(0, clock, np.arange(300) if clock == "frame" else (np.arange(300) / 30).round(3))
    table.to_csv(tmp_path/"v1.csv", index=not clock, sep=";", decimal=",")
    rec = read_poses(tmp_path/"v1.csv", None if clock == "Time" else 30)
    assert rec.mice == ("resident", "intruder") and rec.parts == ("Nose", "tail_base")
    assert rec.fps == 30 and np.allclose(rec.xy, xy, atol=1e-3)
    if sure: assert np.isclose(tracked_points(tmp_path/"v1.csv")[1].confidence, .9).all()


def test_a_folder_of_wide_tables_is_learned_from(tmp_path):
    table, xy = wide()
    table.assign(frame=range(1, 301)).drop(index=[7]).to_parquet(tmp_path/"v1.parquet", index=False)
    table.assign(frame=range(300), speed=1.).to_csv(tmp_path/"v1_features.csv", index=False)
    (tmp_path/"v1_boris.csv").write_text(
        "Observation id,Media file,FPS,Subject,Behavior,Status,Time\nv1,v1.mp4,30,resident,rear,START,1\n"
        "v1,v1.mp4,30,resident,rear,STOP,2\n")
    data = open_dataset(tmp_path)
    data.answer(data.settings.model_copy(update={"alone": ("rear",)}))
    assert data.ids == ("v1",) and any("beside speed, not read" in f.message for f in data.findings())
    rec = data["v1"]
    assert np.isnan(rec.xy[[0, 8]]).all() and np.allclose(rec.xy[9], xy[8]) and len(rec.bouts) == 1


@pytest.mark.parametrize("head", [
    "video,nose_x,nose_y,tail_x,tail_y", "mouse,nose_x,nose_y,tail_x,tail_y", "frame,nose_x,nose_y,tail_x,tail_y,speed",
    "frame,nose_x,nose_y,tail_x", "frame,nose_x,nose_y,nose_x,nose_y", "frame,kp1_x,kp1_y,kp2_x,kp2_y",
    "frame,cam1_nose_x,cam1_nose_y,cam2_nose_x,cam2_nose_y", "frame,nose_velocity_x,nose_velocity_y,a_x,a_y",
    "top_left_x,top_left_y,top_right_x,top_right_y"])
def test_tables_that_only_look_like_poses_are_told(tmp_path, head):
    (tmp_path/"v1.csv").write_text(head + "\n" + ",".join("1" * len(head.split(","))) + "\n")
    for read in (read_poses, open_dataset):
        with pytest.raises(DataError, match="columns of their own.*it is read where"): read(tmp_path/"v1.csv")


@pytest.mark.parametrize("text,words", [
    ("frame,nose_x,nose_y\n0,1,2\n1,1,2\n1,1,2\n", "row 4: gives a second place in frame 1"),
    ("frame,nose_x,nose_y\n0,1,2\nframe,nose_x,nose_y\n0,1,2\n", "row 3: .*this is a head again"),
    ("frame,nose_x,nose_y,ear_x,ear_y\n0,1,2,3,4\n1,1", "row 3: has 2 of 5 cells"),
    ('frame,nose_x,nose_y\n0,"1,234.5",2\n', "row 2: nose_x is '1,234.5', expected a number"),
    ("frame,mouse1_nose_x,mouse1_nose_y,mouse2_ear_x,mouse2_ear_y\n0,1,2,3,4\n", "'mouse2' has the body parts ear")])
def test_damaged_wide_tables_are_refused_by_row(tmp_path, text, words):
    (tmp_path/"v1.csv").write_text(text)
    with pytest.raises(DataError, match=words): read_poses(tmp_path/"v1.csv", 30)


DLC_TABLE = "scorer,DLC_x,DLC_x,DLC_x\nbodyparts,nose,nose,nose\ncoords,x,y,likelihood\n0,1.5,2,.9\n1,1.5,2,.9\n"
SESSION_TABLE = "time,x1,y1,x2,y2\n0,1.5,2,3,4\n.04,1.5,2,3,4\n"
TIDY = "frame,time,individual,x,y,probability\n0,0,0,1.5,2,.9\n0,0,1,3,4,.9\n"


@pytest.mark.parametrize("text,words", [
    (DLC_TABLE * 2, "row 6: .*this is a head again"), (DLC_TABLE + DLC_TABLE[-22:], "frame numbers repeat, 0 is the first"),
    (SESSION_TABLE * 2, "row 4: time is 'time'.*this is a head again"),
    (SESSION_TABLE + SESSION_TABLE[17:], "row 4: goes back in time: were files joined"),
    (TIDY + "0,0,1,3,4,.9\n", "row 4: gives an animal a second place in its frame")])
def test_joined_tables_of_a_tracker_are_refused_by_row(tmp_path, text, words):
    (tmp_path/"v1.csv").write_text(text)
    with pytest.raises(DataError, match=words): read_poses(tmp_path/"v1.csv", 25)


@pytest.mark.parametrize("text", [DLC_TABLE, SESSION_TABLE])
@pytest.mark.parametrize("change", [lambda s: s.replace(",", ", "), lambda s: s.replace("\n", ",\r\n"),
                                    lambda s: '"' + s.rstrip().replace(",", '","').replace("\n", '"\n"') + '"\n'])
def test_tables_of_a_tracker_that_a_spreadsheet_saved(tmp_path, text, change):
    (tmp_path/"v1.csv").write_bytes(change(text).encode())
    rec = read_poses(tmp_path/"v1.csv", 25)
    assert rec.xy[:, 0, 0].tolist() == [[1.5, 2]] * 2 and not np.isnan(rec.xy).any()

"""Databases of Live Mouse Tracker, as the programs that its makers published read and write them.

No file of the tracker itself was at hand: the columns, what stands where nothing was found, and
"None" as text are those of these programs.
"""
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
import yaml

from mabe_nb.cli import main
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.formats.live_mouse_tracker import (is_mouse_tracker, mouse_tracker_animals,
                                                     mouse_tracker_bouts, mouse_tracker_facts,
                                                     mouse_tracker_poses)
from mabe_nb.data.poses import pose_source, read_poses
from mabe_nb.errors import DataError, MabeError

ANIMAL = "ID integer primary key, RFID text, NAME text, GENOTYPE text, IND text"
DETECTION = ("ID integer primary key, FRAMENUMBER integer, ANIMALID integer, MASS_X real, MASS_Y real, "
             "MASS_Z real, FRONT_X real, FRONT_Y real, FRONT_Z real, BACK_X real, BACK_Y real, "
             "BACK_Z real, REARING integer, LOOK_UP integer, LOOK_DOWN integer, DATA text")
EVENT = ("ID integer primary key, NAME text, DESCRIPTION text, STARTFRAME integer, ENDFRAME integer, "
         "IDANIMALA integer, IDANIMALB integer, IDANIMALC integer, IDANIMALD integer, METADATA text")
NAMES = "Ada", "Bo", "Cy", "Dee"


def write(path, detections=(), events=(), animals=NAMES, detection=DETECTION, event=EVENT, more=()):
    "A database: detections are (frame, number, mass, front, back), events (name, first, last, who...)."
    with closing(sqlite3.connect(path)) as db, db:
        for table, columns in (("ANIMAL", ANIMAL), ("DETECTION", detection), ("EVENT", event)):
            if columns: db.execute(f"create table {table} ({columns})")
        for i, name in enumerate(animals, 1):
            db.execute("insert into ANIMAL values (?, ?, ?, ?, ?)",
                       (i, f"00{i:08}", name, "KO" if i % 2 else "WT", None))
        db.executemany("insert into DETECTION (FRAMENUMBER, ANIMALID, MASS_X, MASS_Y, MASS_Z, FRONT_X, "
                       "FRONT_Y, BACK_X, BACK_Y) values (?, ?, ?, ?, 30, ?, ?, ?, ?)", detections)
        db.executemany("insert into EVENT (NAME, STARTFRAME, ENDFRAME, IDANIMALA, IDANIMALB, IDANIMALC, "
                       "IDANIMALD) values (?, ?, ?, ?, ?, ?, ?)",
                       [(*e, *["None"] * (7 - len(e))) for e in events])
        for statement in more: db.execute(statement)
    return path


def walk(number, frames=range(1, 31), y=100):
    "An animal that walks to the right, a pixel a frame."
    for f in frames: yield f, number, 100 + f, y, 112 + f, y, 88 + f, y


def filmed(path, seed, frames=1800):
    "A database of four simulated mice, and the recording it is of."
    rec = make_recording(seed, frames, 4, ("body_center", "nose", "tail_base"), px_per_cm=5.7)
    xy = np.nan_to_num(rec.xy, nan=-1).reshape(frames, 4, 6)
    detections = [(f + 1, m + 1, *map(float, xy[f, m])) for f in range(frames) for m in range(4)]
    events = [(b.action, b.start + 1, b.stop, int(b.agent[-1]), *(
        [int(b.target[-1])] if b.target != b.agent else [])) for b in rec.bouts.itertuples()]
    return write(path, detections, events), rec


def test_three_points_of_each_animal_on_one_clock(tmp_path):
    path = write(tmp_path/"cage.sqlite", [*walk(2, range(11, 41)), *walk(1, range(15, 36), 200)])
    xy, sure, names, parts, fps, px_per_cm = mouse_tracker_poses(path)
    assert xy.shape == (30, 4, 3, 2) and sure is None and names == [*NAMES]
    assert parts == ["nose", "body_center", "tail_base"] and (fps, px_per_cm) == (30, 5.7)
    assert xy[0, 1].tolist() == [[123, 100], [111, 100], [99, 100]]
    assert np.isnan(xy[:4, 0]).all() and (xy[4, 0, :, 1] == 200).all() and np.isnan(xy[:, 2:]).all()
    rec = open_dataset(tmp_path)["cage"]
    assert rec.mice == NAMES and rec.fps == 30 and rec.px_per_cm == 5.7
    assert pose_source(path) == "Live Mouse Tracker"


def test_a_database_has_no_confidences(tmp_path):
    with pytest.raises(DataError, match="a.sqlite: has no confidences"):
        read_poses(write(tmp_path/"a.sqlite", walk(1)), min_confidence=0.5)


def test_what_was_not_found_is_missing(tmp_path):
    lost = [(1, 1, 100, 100, -1, -1, 90, 90), (2, 1, 5, 50, 100, 100, 90, 90),
            (3, 1, None, None, 100, 100, 90, 90), (4, 1, 100, 0, 100, 100, 90, -1)]
    xy = mouse_tracker_poses(write(tmp_path/"a.sqlite", [
        *lost, (5, None, 200, 200, 1, 1, 1, 1), (6, 99, 200, 200, 1, 1, 1, 1)]))[0]
    assert xy.shape[0] == 4 # rows of nobody, and of no animal, are no frames
    assert np.isnan(xy[0, 0, 0]).all() and xy[0, 0, 1:].tolist() == [[100, 100], [90, 90]]
    assert np.isnan(xy[1:3, 0]).all() and np.isnan(xy[3, 0, 2]).all()
    assert not np.isnan(xy[3, 0, :2]).any()


def test_events_are_what_the_first_does_to_the_others(tmp_path):
    path = write(tmp_path/"a.sqlite", walk(1), [
        ("Contact", 1, 3, 1, 2), ("Contact", 4, 5, 1, 2), ("Contact", 4, 9, 1, 2), # touch, overlap
        ("Contact", 11, 12, 1, 2), ("Contact", 2, 2, 1, 2), ("Contact", 2, 2, 2, 1), ("Stop isolated", 8, 8, 3),
        ("Group 3", 5, 6, 1, 3, 4), ("night", 1, 30), ("RFID MATCH", 3, 3, 1),
        ("Detection", 1, 30, 2), ("Head detected", 1, 30, 2), ("Contact", 3, 3, 7, 1)])
    assert mouse_tracker_bouts(path) == [
        ("Ada", "Bo", "Contact", 0, 9), ("Bo", "Ada", "Contact", 1, 2),
        ("Ada", "Cy", "Group 3", 4, 6), ("Ada", "Dee", "Group 3", 4, 6),
        ("Cy", "Cy", "Stop isolated", 7, 8), ("Ada", "Bo", "Contact", 10, 12)]
    words = EVENT.replace("IDANIMALA integer, IDANIMALB integer", "IDANIMALA text, IDANIMALB text")
    assert mouse_tracker_bouts(write(tmp_path/"c.sqlite", walk(1), [("Contact", 1, 3, 1, 2)], event=words)
                               ) == [("Ada", "Bo", "Contact", 0, 3)]
    late = write(tmp_path/"b.sqlite", walk(1, range(101, 131)), [("Contact", 101, 103, 1, 2)])
    assert mouse_tracker_bouts(late) == [("Ada", "Bo", "Contact", 0, 3)] # from the first frame


def test_names_of_animals(tmp_path):
    called = lambda name, *names: [v["name"] for v in mouse_tracker_animals(
        write(tmp_path/name, animals=names)).values()]
    assert called("a.sqlite", "Ada", "Bo") == ["Ada", "Bo"]
    assert called("b.sqlite", "Ada", "Ada") == ["0000000001", "0000000002"]
    assert called("c.sqlite", "Ada", None) == ["0000000001", "0000000002"]
    assert called("d.sqlite", " Ada ", "None") == ["0000000001", "0000000002"]
    bare = ["update ANIMAL set RFID = null, NAME = cast(x'ff' as text)"] # that is no text
    nobody = write(tmp_path/"e.sqlite", more=bare)
    assert [v["name"] for v in mouse_tracker_animals(nobody).values()] == [f"mouse{i}" for i in (1, 2, 3, 4)]
    assert mouse_tracker_facts(nobody, "abcd")["a"] == {"genotype": "KO"} # and no chip
    assert not mouse_tracker_facts(nobody, ["all"])
    first = mouse_tracker_animals(tmp_path/"a.sqlite")[1]
    assert first == {"name": "Ada", "subject": "0000000001", "genotype": "KO"}


def test_a_database_is_opened_with_its_genotypes(tmp_path):
    for seed in (0, 1): filmed(tmp_path/f"cage{seed}.sqlite", seed, 600)
    found = match_files(open_dataset(tmp_path))
    assert [*found.table.annotation] == ["cage0.sqlite", "cage1.sqlite"]
    assert not [s for s in found.sentences if "nobody marked" not in s], found.sentences
    videos = yaml.safe_load(found.settings)["videos"]
    assert videos["cage1"]["Bo"] == {"subject": "0000000002", "genotype": "WT"}
    (tmp_path/"dataset.yaml").write_text(found.settings)
    groups = open_dataset(tmp_path).groups()
    assert [*groups.genotype[:4]] == ["KO", "WT", "KO", "WT"]
    assert match_files(open_dataset(tmp_path)).settings == found.settings


def test_bouts_of_a_folder_are_those_of_the_events(tmp_path):
    _, rec = filmed(tmp_path/"cage.sqlite", 3)
    mine = open_dataset(tmp_path)["cage"]
    names = dict(zip(rec.mice, NAMES))
    want = {(names[b.agent], names[b.target], b.action, b.start, b.stop) for b in rec.bouts.itertuples()}
    assert {*mine.bouts.itertuples(index=False, name=None)} == want and len(want) > 20
    action = sorted({b[2] for b in want if b[0] != b[1]})[0]
    (tmp_path/"dataset.yaml").write_text(f"actions: [{action}]\nalone: []\n")
    some = open_dataset(tmp_path)["cage"]
    assert {*some.bouts.action} == {action} and {x for *_, x in some.labelled} == {action}
    assert len(some.labelled) == 12 # every ordered pair of four


@pytest.mark.slow
def test_from_databases_to_a_comparison_of_genotypes(tmp_path, capsys):
    root = tmp_path/"lmt"
    root.mkdir()
    for seed in range(3): filmed(root/f"cage{seed}.sqlite", seed, 1200)
    run = lambda *words: main([*map(str, words)])
    assert run("open", root) == 0 and (root/"dataset.yaml").exists()
    assert run("audit", root) == 0
    assert run("analyse", "annotations", root, "--by", "genotype", "--out", tmp_path/"by") == 0
    groups = pd.read_csv(tmp_path/"by"/"groups.csv")
    assert {*groups.a} == {"KO"} and {*groups.b} == {"WT"} and {*groups.n_a} == {2} # animals, by chip
    assert run("train", root, "--out", tmp_path/"run", "--epochs", 1, "--device", "cpu",
               "--valid-videos", "cage2") == 0
    assert run("predict", tmp_path/"run", root, "--out", tmp_path/"found.csv") == 0
    found = pd.read_csv(tmp_path/"found.csv")
    assert len(found) and {*found.agent_id} <= {*NAMES}
    capsys.readouterr()


@pytest.mark.parametrize("how, why", [
    (dict(animals=()), "names no animals"),
    (dict(more=("create table b as select * from ANIMAL", "drop table ANIMAL", "alter table b rename to "
                "ANIMAL", "update ANIMAL set ID = 1")), "names no animals"),
    (dict(detections=()), "no detection"),
    (dict(detections=[(1, 1, "here", 2, 3, 4, 5, 6)]), "no number"),
    (dict(detections=[("one", 1, 1, 2, 3, 4, 5, 6)]), "no whole numbers"),
    (dict(detections=[(1, 1, 1, 2, 3, 4, 5, 6), (10**9, 1, 1, 2, 3, 4, 5, 6)]), "one recording"),
    (dict(detections=[(f, 1, 1, 2, 3, 4, 5, 6) for f in (-2**63, 2**63 - 1)]), "one recording")])
def test_what_is_wrong_is_said(tmp_path, how, why):
    path = write(tmp_path/"a.sqlite", **{"detections": [*walk(1)]} | how)
    with pytest.raises(DataError, match=why): mouse_tracker_poses(path)


def bare(path, detection):
    "A database of one animal with other columns."
    with closing(sqlite3.connect(path)) as db, db:
        for table, columns in (("ANIMAL", ANIMAL), ("DETECTION", detection)):
            db.execute(f"create table {table} ({columns})")
        db.execute("insert into ANIMAL (ID) values (1)")
    return path


@pytest.mark.parametrize("event, why", [
    (("Contact", 9, 3, 1, 2), "from 9 to 3"), (("Contact", None, 3, 1, 2), "from None to 3"),
    (("Contact", 1.5, 3, 1, 2), "from 1.5 to 3")])
def test_an_event_that_is_none_is_named(tmp_path, event, why):
    with pytest.raises(DataError, match=why):
        mouse_tracker_bouts(write(tmp_path/"a.sqlite", walk(1), [event]))


def test_a_file_that_is_cut_off_or_no_database(tmp_path):
    path = write(tmp_path/"a.sqlite", [r for i in range(1, 5) for r in walk(i, range(1, 900))])
    whole = path.read_bytes()
    for name, data in (("cut", whole[:len(whole) // 2]), ("text", b"ANIMAL"), ("none", b""),
                       ("noise", whole[:100] + bytes(range(256)) * 60)):
        bad = tmp_path/f"{name}.sqlite"
        bad.write_bytes(data)
        with pytest.raises(MabeError): mouse_tracker_poses(bad)
    data = open_dataset(tmp_path)
    assert data.ids == ("a",) or "a" in data.ids
    assert len(data["a"]) == 899
    other = tmp_path/"other.sqlite"
    with closing(sqlite3.connect(other)) as db, db: db.execute("create table notes (x)")
    assert not is_mouse_tracker(other)
    assert any("other.sqlite" in f.message for f in open_dataset(tmp_path).findings())


def test_nothing_of_a_file_is_run(tmp_path):
    "A view that never ends, and a column that is computed, under the names of tables."
    path = write(tmp_path/"a.sqlite", walk(1), more=(
        "alter table DETECTION rename to HIDDEN",
        "create view DETECTION as with recursive n(i) as (select 1 union all select i + 1 from n) "
        "select i as FRAMENUMBER, 1 as ANIMALID, 1 as MASS_X, 1 as MASS_Y, 1 as FRONT_X, 1 as FRONT_Y, "
        "1 as BACK_X, 1 as BACK_Y from n"))
    assert not is_mouse_tracker(path)
    with pytest.raises(DataError, match="no column"): mouse_tracker_poses(path)
    with pytest.raises(DataError, match="no column"):
        mouse_tracker_poses(write(tmp_path/"v.sqlite", walk(1), more=( # a table that is a program
            "drop table DETECTION", "create virtual table DETECTION using fts5(FRAMENUMBER, ANIMALID, "
            "MASS_X, MASS_Y, FRONT_X, FRONT_Y, BACK_X, BACK_Y)")))
    computed = DETECTION.replace("MASS_X real", "MASS_X real generated always as (hex(zeroblob(9)))")
    for name, detection in (("b", computed), ("c", "FRAMENUMBER, ANIMALID, MASS_Y")):
        with pytest.raises(DataError, match="no column .*MASS_X"):
            mouse_tracker_poses(bare(tmp_path/f"{name}.sqlite", detection))


def test_reading_changes_nothing(tmp_path):
    with pytest.raises(DataError): mouse_tracker_poses(tmp_path/"none.sqlite")
    assert not [*tmp_path.iterdir()]
    path = write(tmp_path/"a.sqlite", walk(1), [("Contact", 1, 3, 1, 2)])
    before = path.read_bytes()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try: assert len(open_dataset(path)["a"].bouts) == 1
    finally: tmp_path.chmod(0o755)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]

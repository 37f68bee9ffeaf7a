"""What we export is read by BORIS itself, and what BORIS writes is read by us, equal.

BORIS is large (0.5 GB of Qt, and libraries of the system), so it is no part of the checks: `make
boris` drives it, through `tests/boris/drive.py`. What it wrote then lies in `tests/boris/written`
and is read in every run."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mabe_nb.analysis.boris import export_boris
from mabe_nb.analysis.measures import measure, observe
from mabe_nb.data.annotations import annotated_rate, read_boris
from mabe_nb.data.formats.boris import boris_observations
from mabe_nb.data.recording import Recording, bout_table
from mabe_nb.errors import DataError

HERE = Path(__file__).parent/"boris"
PYTHON = os.environ.get("MABE_BORIS") # Of an environment with BORIS
VERSIONS = sorted(p.name for p in (HERE/"written").glob("[0-9]*"))
MICE, FPS = ("black", "mäuschen"), 29.97
ONE, TWO = MICE
BOUTS = { # Touching, overlapping, of one frame, two at once; nothing at all
    "cage 1": [(ONE, TWO, "sniff", 0, 30), (ONE, TWO, "sniff", 30, 45), (TWO, TWO, "rear", 10, 11),
               (ONE, TWO, "chase", 40, 60), (TWO, ONE, "sniff", 20, 50)],
    "cage2": [(TWO, TWO, "rear", 100, 120), (TWO, TWO, "rear", 110, 130), (ONE, ONE, "sniff", 5, 9),
              (ONE, TWO, "sniff", 7, 12), (ONE, ONE, "rear", 0, 300)],
    "cage3": []}
READ = BOUTS | {"cage2": BOUTS["cage2"][2:] + [(TWO, TWO, "rear", 100, 130)]} # Overlapping: one
ACTIONS = ["chase", "groom", "rear", "sniff"] # Nobody groomed


@pytest.fixture(scope="module")
def seen():
    xy = np.zeros((300, 2, 1, 2), np.float32)
    looked = frozenset((a, t, x) for a in MICE for t in MICE for x in ACTIONS)
    return observe([Recording(xy, MICE, ("nose",), FPS, 1.0, bout_table(rows), looked, video)
                    for video, rows in BOUTS.items()])


def read(path, video, fps=None, target_from="Modifiers"):
    return sorted(map(tuple, read_boris(path, fps, observation=video,
                                        target_from=target_from).values.tolist()))


def bouts_are_those(folder):
    "Every kind of file that BORIS wrote of our project."
    for video in ("cage 1", "cage2"):
        files = [folder/"saved.boris", *(folder/"events").glob(f"{video}.*"), *folder.glob("bouts.*")]
        assert len(files) == 5
        for path in files:
            assert read(path, video) == sorted(READ[video]), path
            assert read(path, video, target_from="Modifier #1") == sorted(READ[video])
            assert annotated_rate(path, video) == FPS
            assert {o.name: o.media for o in boris_observations(path)}[video] == (f"{video}.mp4",)


def hands_are_those(folder):
    "What a person may do in BORIS: a live observation, an offset, two films, two sets of modifiers."
    late = [("black", "black", "jump", 90, 91), ("black", "black", "sniff", 30, 60),
            ("black", "black", "sniff", 45, 60), ("white", "white", "rear", 60, 750)]
    live = [("white", "white", "jump", 60, 61), ("white", "white", "rear", 15, 38),
            ("white", "white", "rear", 38, 60), ("white", "white", "sniff", 38, 75)]
    for path in (folder/"saved.boris", *folder.glob("bouts.*"), *(folder/"events").iterdir()):
        if path.stem != "live":
            assert read(path, "late", target_from=None) == late, path
            assert [b[1] for b in read(path, "late")] == ["black", "face", "tail", "white"]
            assert annotated_rate(path, "late") == 30
            assert {o.name: o.media for o in boris_observations(path)}["late"] == (
                "films/a.mp4", "films/b.mp4")
        if path.stem == "late": continue
        assert read(path, "live", 30) == live, path
        assert annotated_rate(path, "live") is None
        with pytest.raises(DataError, match="frames per second; give fps"): read(path, "live")
    assert len(list((folder/"events").iterdir())) == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_what_boris_wrote_is_read(version):
    bouts_are_those(HERE/"written"/version/"ours")
    hands_are_those(HERE/"written"/version/"hand")


def test_files_of_two_versions_are_there(): assert VERSIONS == ["8.27.4", "9.15.0"]


def test_our_own_files_are_read_and_are_ascii(tmp_path, seen):
    *tables, project = export_boris(seen, tmp_path)
    assert [t.stem for t in tables] == ["cage 1", "cage2"] and project.read_bytes().isascii()
    for table in tables:
        video = table.stem
        assert read(table, video) == read(project, video) == sorted(READ[video])
        assert annotated_rate(table) == annotated_rate(project, video) == FPS


def drive(project, out):
    "BORIS opens a project, shows it, exports and saves it."
    (out/"home").mkdir(parents=True)
    done = subprocess.run([PYTHON, HERE/"drive.py", project, out], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out/"seen.json").read_text())


@pytest.mark.skipif(not PYTHON, reason="BORIS is not here: make boris")
def test_boris_reads_ours_and_we_read_what_it_writes(tmp_path, seen):
    out = Path(os.environ.get("MABE_BORIS_KEEP") or tmp_path)
    found = drive(export_boris(seen, tmp_path/"our")[-1], out/"ours")
    assert found["integrity"] == "" and found["message"] == ""
    assert found["behaviours"] == dict.fromkeys(ACTIONS, "State event")
    assert found["subjects"] == list(MICE) and list(found["observations"]) == list(BOUTS)
    assert found["imported"] == list(BOUTS) and found["said"][-1].endswith("successfully")
    for video, rows in READ.items():
        events = sorted([round(f / FPS, 3), a, x, t if t != a else ""]
                        for a, t, x, *span in rows for f in span)
        of = found["observations"][video]
        assert of["events"] == events and found["rows"][video] == len(events)
        assert of["fps"] == [FPS] and of["seconds"] == pytest.approx(300 / FPS, abs=2e-3)
    assert measure(seen).watched_s.eq(300 / FPS).all()
    bouts_are_those(out/"ours")
    drive(HERE/"hand.boris", out/"hand")
    hands_are_those(out/"hand")

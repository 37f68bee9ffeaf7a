"""Raw data of EthoVision XT, as its help and NeuroConv's tests of real exports describe them.

No file of the program itself was at hand: what is written here has its first line, its
encodings, its marks for what is missing and the ends of its lines.
"""
import numpy as np
import pytest

from mabe_nb.analysis.watch import video_stamp
from mabe_nb.cli import main
from mabe_nb.data.annotations import annotation_source
from mabe_nb.data.audit import audit
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.formats.ethovision import exports
from mabe_nb.data.formats.ethovision.exports import exports_in
from mabe_nb.data.formats.ethovision.tracks import (ethovision_actions, ethovision_poses, is_track,
                                                    log_rows, recording_name, tracks_of)
from mabe_nb.data.poses import pose_source, read_poses
from mabe_nb.errors import DataError, MabeError

NAMES = ("Trial time", "Recording time", "X center", "Y center", "X nose", "Y nose", "Area",
         "Grooming", "Sniff", "In zone(Centre / Center-point)", "Result 1")
UNITS = ("(s)", "(s)", "(cm)", "(cm)", "(cm)", "(cm)", "(cm²)", "", "", "", "")
HEAD = (("Experiment", "Open field-2"), ("Trial name", "Trial     1"), ("Arena name", "Arena 1"),
        ("Subject name", "Subject 1"), ("Start time", "17/03/2015 18:52:43,2"),
        ("User-defined Independent Variable", ""), ("Treatment", "saline"), ())


def write(path, rows, head=HEAD, names=NAMES, units=UNITS, first="Number of header lines:",
          comma=";", encoding="utf-16", end=True):
    "An export, every cell in quotes."
    lines = [(first, len(head) + 3), *head, names, units, *rows]
    path.write_bytes("\r\n".join(comma.join(f'"{c}"' for c in line) + comma * end
                                 for line in lines).encode(encoding))
    return path


def samples(n=30, at=0.0, groom=(10, 20), fps=25, start=1.067, lost=()):
    "Rows of an animal that walks to the right at 1 cm a frame."
    for i in range(n):
        xy = ("-",) * 5 if i in lost else (f"{i:.3f}", f"{at:.3f}", f"{i + 3:.3f}", f"{at + 1:.3f}", 7)
        yield (f"{start + i / fps:.3f}", f"{i / fps:.3f}", *xy, int(groom[0] <= i < groom[1]),
               int(i < 5), 1, "-" if i % 2 else "1")


def head_of(**changes):
    return tuple((k, changes.get(k.split()[0].lower(), v)) if k else () for k, v in (
        x or ("", "") for x in HEAD))


def called(trial, arena, subject, kind="Raw data"):
    return f"{kind}-Open field-2-Trial{trial:6}-Arena {arena}-{subject}.txt"


@pytest.fixture
def folder(tmp_path):
    "Two trials of two subjects, and an arena of one."
    for trial, arena, subject, at in ((1, 1, "Subject 1", 0), (1, 1, "Subject 2", 4),
                                      (2, 1, "Subject 1", 1), (2, 1, "Subject 2", 5),
                                      (1, 2, "Subject 1", 9)):
        head = head_of(trial=f"Trial     {trial}", arena=f"Arena {arena}", subject=subject)
        write(tmp_path/called(trial, arena, subject), samples(at=at, lost=(3,)), head)
    (tmp_path/"dataset.yaml").write_text("alone: [Grooming]\n")
    return tmp_path


def test_subjects_of_an_arena_are_one_video(folder):
    data = open_dataset(folder)
    assert data.ids == ("Open_field-2-Trial_1-Arena_1", "Open_field-2-Trial_1-Arena_2",
                        "Open_field-2-Trial_2-Arena_1")
    rec = data[data.ids[0]]
    assert rec.xy.shape == (30, 2, 2, 2) and (rec.fps, rec.px_per_cm) == (25, 1)
    assert rec.mice == ("Subject_1", "Subject_2") and rec.parts == ("body_center", "nose")
    assert np.isnan(rec.xy[3]).all() and rec.xy[7, 1].tolist() == [[7, -4], [10, -5]]
    assert data[data.ids[1]].mice == ("Subject_1",)


def test_scored_columns_are_bouts_of_the_subject(folder):
    data = open_dataset(folder)
    found = {tuple(row) for row in data[data.ids[0]].bouts.values.tolist()}
    assert found == {(a, t, *b) for a, o in (("Subject_1", "Subject_2"), ("Subject_2", "Subject_1"))
                     for t, *b in ((a, "Grooming", 10, 20), (o, "Sniff", 0, 5))}
    assert {x for *_, x in data.labelled(data.ids[0])} == {"Grooming", "Sniff"} # no zone, no result


def test_a_file_of_any_subject_stands_for_its_video(folder):
    one = open_dataset(folder/called(1, 1, "Subject 2"))
    assert one.ids == ("Open_field-2-Trial_1-Arena_1",) and len(one[one.ids[0]].mice) == 2


def test_a_change_of_any_subject_changes_the_fingerprint(folder):
    data = open_dataset(folder)
    before = [data.fingerprint(i) for i in data.ids]
    write(folder/called(1, 1, "Subject 2"), samples(at=6), head_of(subject="Subject 2"))
    assert [data.fingerprint(i) == b for i, b in zip(data.ids, before)] == [False, True, True]


def test_a_watched_folder_notices_every_subject(folder):
    def stamps(): return [video_stamp(data, i) for data in [open_dataset(folder)] for i in data.ids]
    before = stamps()
    write(folder/called(1, 1, "Subject 2"), samples(at=6, n=31), head_of(subject="Subject 2"))
    write(folder/called(1, 2, "Subject 2"), samples(at=6), head_of(arena="Arena 2", subject="Subject 2"))
    assert [a == b for a, b in zip(stamps(), before, strict=True)] == [False, False, True]


def test_from_the_terminal(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("MABE_HOME", str(folder.parent/"home"))
    assert main(["open", str(folder), "--overwrite", "--set", "alone=[Grooming]"]) == 0
    assert "EthoVision" in capsys.readouterr().out
    assert main(["train", str(folder), "--epochs", "1", "--out", "run", "--device", "cpu"]) == 0
    assert main(["predict", "run", str(folder), "--out", "found.csv"]) == 0


@pytest.mark.parametrize("how", [
    {}, {"encoding": "utf-8", "end": False}, {"encoding": "cp1252"}, {"encoding": "utf-8-sig"},
    {"comma": ",", "encoding": "utf-8"}, {"comma": "\t"}, {"first": "标题行数："}])
def test_however_it_was_exported(tmp_path, how):
    path = write(tmp_path/called(1, 1, "Subject 1"), [*samples(lost=(4,))], **how)
    assert pose_source(path) == annotation_source(path) == "EthoVision"
    xy, _, animals, parts, fps, scale = ethovision_poses(path)
    assert (animals, parts, fps, scale) == (["Subject 1"], ["body_center", "nose"], 25, 1)
    assert np.isnan(xy[4]).all() and xy[5, 0, 1].tolist() == [8, -1]
    assert ethovision_actions(path) == ("Grooming", "Sniff")


def test_decimal_commas_and_millimetres(tmp_path):
    rows = [[c.replace(".", ",") if isinstance(c, str) else c for c in r] for r in samples()]
    units = [u.replace("cm", "mm") for u in UNITS]
    xy, *_, fps, scale = ethovision_poses(write(tmp_path/"a.txt", rows, units=units))
    assert xy[5, 0, 1].tolist() == [8, -1] and (fps, scale) == (25, 10)


@pytest.mark.parametrize("fps", [12.5, 25, 29.97, 30, 59.94])
def test_times_are_rounded_and_the_rate_is_not(tmp_path, fps):
    path = write(tmp_path/"a.txt", samples(3000, fps=fps))
    xy, *_, found, _ = ethovision_poses(path)
    assert len(xy) == 3000 and found == pytest.approx(fps, rel=2e-5)


def test_rows_that_are_not_there_are_frames_that_nobody_saw(tmp_path):
    rows = [*samples()]
    path = write(tmp_path/"a.txt", rows[:8] + rows[11:])
    xy, *_, fps, _ = ethovision_poses(path)
    assert len(xy) == 30 and fps == 25
    assert np.flatnonzero(np.isnan(xy[:, 0, 0, 0])).tolist() == [8, 9, 10]


def test_a_subject_that_came_in_later(tmp_path):
    for n, start in ((1, 1.067), (2, 1.267)):
        write(tmp_path/called(1, 1, f"Subject {n}"), samples(start=start),
              head_of(subject=f"Subject {n}"))
    xy, *_ = ethovision_poses(tmp_path/called(1, 1, "Subject 2"))
    assert len(xy) == 35 and np.isnan(xy[:5, 1]).all() and xy[5, 1, 0, 0] == 0
    assert np.isnan(xy[30:, 0]).all()


@pytest.mark.parametrize("subjects", [("Resident", "Intruder"), ("Subject 2", "Subject 10")])
def test_names_of_subjects(tmp_path, subjects):
    for who in subjects: write(tmp_path/called(1, 1, who), samples(), head_of(subject=who))
    path = tmp_path/called(1, 1, subjects[1])
    assert recording_name(path) == "Open field-2-Trial 1-Arena 1.txt"
    assert sorted(ethovision_poses(path)[2]) == sorted(subjects)
    if subjects[0] == "Subject 2": assert ethovision_poses(path)[2] == [*subjects]


def test_a_file_that_got_another_name_is_alone(tmp_path):
    for name in ("day1-saline", "day2"): write(tmp_path/f"{name}.txt", samples())
    assert recording_name(tmp_path/"day1-saline.txt") == "day1-saline.txt"
    assert tracks_of(tmp_path/"day2.txt") == [tmp_path/"day2.txt"]
    assert open_dataset(tmp_path).ids == ("day1-saline", "day2")


def test_a_name_in_another_language(tmp_path):
    "The subject is then known by the end of the file's name."
    head = (("Versuch", "Offen"), ("Tier", "Maus 7"), ())
    path = write(tmp_path/"Rohdaten-Offen-Versuch 1-Arena 1-Maus 7.txt", samples(), head)
    assert recording_name(path) == "Offen-Versuch 1-Arena 1.txt"
    assert read_poses(path).mice == ("Maus_7",)


LOG = ("Trial time", "Recording time", "Subject", "Behavior", "Event")


def write_log(folder, rows, arena="Arena 1", name=None):
    head = (("Experiment", "Open field-2"), ("Trial name", "Trial     1"), ("Arena name", arena))
    path = folder/(name or f"Manual Scoring-Open field-2-Trial     1-{arena}.txt")
    return write(path, rows, head, LOG, ("(s)", "(s)", "", "", ""))


def test_a_log_is_taken_before_the_columns(folder):
    write_log(folder, [("1.467", "0.4", "Subject 2", "Rearing", "State start"),
                       ("1.867", "0.8", "Subject 2", "Rearing", "state stop"),
                       ("1.2", "0.12", "Subject 1", "Bite", "point event"),
                       ("2.067", "1.0", "Subject 1", "Rearing", "state start")])
    (folder/"dataset.yaml").write_text("alone: [Grooming, Rearing]\n")
    data = open_dataset(folder)
    assert data[data.ids[0]].bouts.values.tolist() == [
        ["Subject_1", "Subject_2", "Bite", 3, 4], ["Subject_2", "Subject_2", "Rearing", 10, 20],
        ["Subject_1", "Subject_1", "Rearing", 25, 30]] # which was on when the trial ended
    assert {*data[data.ids[2]].bouts.action} == {"Grooming", "Sniff"}


def test_a_log_beside_poses_of_another_tracker(tmp_path):
    (tmp_path/"cage.csv").write_text("scorer,n,n,n\nbodyparts,nose,nose,nose\n"
                                     "coords,x,y,likelihood\n" + "".join(
                                         f"{i},{i},2,1\n" for i in range(60)))
    write_log(tmp_path, [("0.4", "0.4", "Subject 1", "Rearing", "state start"),
                         ("0.8", "0.8", "Subject 1", "Rearing", "state stop")], name="cage.txt")
    (tmp_path/"dataset.yaml").write_text("fps: 10\n")
    data = open_dataset(tmp_path)
    (who, _, *bout), = data[data.ids[0]].bouts.values.tolist()
    assert who == data[data.ids[0]].mice[0] and bout == ["Rearing", 4, 8]


@pytest.mark.parametrize("event, words", [("started", "expected one of state start"),
                                          ("state stop", "fits no bout")])
def test_a_log_with_a_fault(folder, event, words):
    log = write_log(folder, [("1.4", "0.4", "Subject 2", "Sniff", event)])
    with pytest.raises(DataError, match=words) as said: open_dataset(folder)[
        "Open_field-2-Trial_1-Arena_1"]
    assert said.value.where == "row 7" and log.name in str(said.value)


def test_columns_that_dataset_yaml_names(folder):
    zone = "In zone(Centre / Center-point)"
    (folder/"dataset.yaml").write_text(
        f"actions: [center]\nalone: [center]\naction_names: {{'{zone}': center}}\n")
    data = open_dataset(folder)
    assert {*data[data.ids[0]].bouts.action} == {"center"}
    (folder/"dataset.yaml").write_text("actions: [digging]\nalone: [digging]\n")
    with pytest.raises(MabeError, match="digging"): open_dataset(folder)[data.ids[0]]


ROWS = [*samples()]


@pytest.mark.parametrize("rows, words", [
    ([], "a head and no rows"), (ROWS[:1], "one row"),
    (ROWS[:9] + ROWS[4:6], "later than that above"),
    (ROWS[:9] + [("9e9", *ROWS[9][1:])], "hours without a row"),
    ([("nan", *r[1:]) for r in ROWS], "later than that above")])
def test_what_is_no_recording_gets_a_sentence(tmp_path, rows, words):
    path = write(tmp_path/called(1, 1, "Subject 1"), rows)
    with pytest.raises(DataError, match=words): read_poses(path)
    found = audit(open_dataset(tmp_path)).table
    assert [words in m for m in found.message] == [True], found
    match_files(open_dataset(tmp_path))


def test_a_file_that_was_cut_off(folder):
    path = folder/called(1, 1, "Subject 2")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="cut off in its last row"): ethovision_poses(path)
    found = audit(open_dataset(folder)).table
    assert ["cut off" in m for m in found[found.severity == "error"].message] == [True]


def test_another_rate_than_the_other_subject(tmp_path):
    for n, fps in ((1, 25), (2, 12.5)):
        write(tmp_path/called(1, 1, f"Subject {n}"), samples(fps=fps),
              head_of(subject=f"Subject {n}"))
    with pytest.raises(DataError, match="another sample rate"):
        ethovision_poses(tmp_path/called(1, 1, "Subject 1"))


@pytest.mark.parametrize("text", [
    "", "\n", ":", '"Number of header lines:";"36"', "a:;3\nb\n", "a:;3\n;;;\n;;;\n1;2\n",
    "a:,999\n" * 5, "x" * 300_000, '"a:";"4"\n"\n"\n"\n', "Number of header lines:;4\nX a;Y b\n\n1;2\n"])
def test_what_it_did_not_write(tmp_path, text):
    for encoding in ("utf-8", "utf-16"):
        (tmp_path/"a.txt").write_text(text, encoding=encoding)
        assert not any(any(e.names) for e in exports_in(tmp_path/"a.txt"))
        assert tracks_of(tmp_path/"a.txt") == [tmp_path/"a.txt"]
        with pytest.raises(DataError): read_poses(tmp_path/"a.txt")


def test_an_origin_within_the_arena_is_no_fault(folder):
    assert "points_outside" not in {*audit(open_dataset(folder)).table.kind}


def test_rows_of_a_log(tmp_path):
    log = write_log(tmp_path, [("1", "0,5", "A", "Bite", "Point event"), ("2", "1", "A", "", "")])
    assert log_rows(log, 9.0) == [(7, {"time": "0.5", "subject": "A", "behavior": "Bite",
                                       "modifier": "", "status": "POINT"})]


# workbooks

def write_book(path, sheets):
    "A workbook with sheets of rows, by title."
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows: sheet.append([*row])
    book.save(path)
    return path


def sheet(rows, head=HEAD, names=NAMES, units=UNITS):
    "Rows of a sheet; numbers as such, nothing where the text has an empty cell."
    number = lambda c: float(c) if str(c).replace(".", "").isdecimal() else c or None
    return [("Number of header lines:", len(head) + 3), *head, names,
            [u.strip("()") or None for u in units], *([*map(number, r)] for r in rows)]


@pytest.fixture
def book(tmp_path):
    hardware = [("Number of header lines:", 4), ("Experiment", "Open field-2"), ("Time", "Event"),
                ("s", None), (1.0, "on")]
    return write_book(tmp_path/"Raw data-Open field-2-Trial     1.xlsx", {
        f"Track-Arena 1-Subject {n}": sheet(samples(at=4 * n, lost=(3,)), head_of(
            subject=f"Subject {n}")) for n in (1, 2)} | {"Hardware-Arena 1": hardware})


def test_a_workbook_is_what_its_texts_are(book, tmp_path):
    (tmp_path/"text").mkdir()
    for n in (1, 2): write(tmp_path/"text"/called(1, 1, f"Subject {n}"),
                           samples(at=4 * n, lost=(3,)), head_of(subject=f"Subject {n}"))
    for folder in (tmp_path, tmp_path/"text"):
        (folder/"dataset.yaml").write_text("alone: [Grooming]\n")
    one, = open_dataset(tmp_path)
    two, = open_dataset(tmp_path/"text")
    assert one.video_id == "Open_field-2-Trial_1" and one.mice == two.mice and one.parts == two.parts
    assert (one.fps, one.px_per_cm) == (two.fps, two.px_per_cm) == (25, 1)
    np.testing.assert_allclose(one.xy, two.xy)
    assert one.bouts.equals(two.bouts) and one.labelled == two.labelled and len(one.bouts) == 4


def test_the_last_row_of_a_workbook_counts_if_a_cell_of_it_is_empty(tmp_path):
    rows = sheet(samples(lost=(29,)))
    rows[-1] = [None if cell == "-" else cell for cell in rows[-1]]
    write_book(tmp_path/"day1.xlsx", {"Track-Arena 1-Subject 1": rows + [[None] * 11] * 2})
    write_book(tmp_path/"day2.xlsx", {"Track-Arena 1-Subject 1": sheet([]) + [[None] * 11] * 2})
    data = open_dataset(tmp_path)
    assert len(data["day1"]) == 30 and np.isnan(data["day1"].xy[29]).all()
    with pytest.raises(DataError, match="day2.xlsx: has a head and no rows"): data["day2"]


def test_a_log_in_a_workbook_is_taken_before_the_columns(tmp_path):
    log = [("Number of header lines:", 4), ("Experiment", "Open field-2"), LOG,
           ("s", "s", None, None, None), (1.467, 0.4, "Subject 1", "Rearing", "state start"),
           (1.867, 0.8, "Subject 1", "Rearing", "state stop")]
    write_book(tmp_path/"day1.xlsx", {"Manual Scoring-Arena 1": log,
                                      "Track-Arena 1-Subject 1": sheet(samples())})
    found, = open_dataset(tmp_path)
    assert found.video_id == "day1"
    assert found.bouts.values.tolist() == [["Subject_1", "Subject_1", "Rearing", 10, 20]]


def test_several_arenas_of_a_workbook_are_told(tmp_path):
    path = write_book(tmp_path/"a.xlsx", {f"Track-Arena {n}-Subject 1": sheet(
        samples(), head_of(arena=f"Arena {n}")) for n in (1, 2)})
    with pytest.raises(DataError, match="tracks of Arena 1, Arena 2, each a video"): read_poses(path)
    found = audit(open_dataset(tmp_path)).table
    assert ["Arena 1, Arena 2" in m for m in found.message] == [True]


def test_other_workbooks_and_a_machine_without_the_package(book, tmp_path, monkeypatch):
    write_book(tmp_path/"weights.xlsx", {"Sheet1": [("mouse", "g"), ("a", 20)]})
    (tmp_path/"broken.xlsx").write_bytes(b"PK\3\4" + bytes(90))
    (tmp_path/"dataset.yaml").write_text("alone: []\n")
    assert open_dataset(tmp_path).ids == ("Open_field-2-Trial_1",)
    assert sum("is a workbook" in f.message for f in open_dataset(tmp_path).findings()) == 2
    monkeypatch.setattr(exports, "find_spec", lambda name: None)
    assert not is_track(book)
    with pytest.raises(DataError, match=r"mabe_nb\[excel\]"): open_dataset(tmp_path)


def test_a_workbook_that_would_fill_the_memory_is_not_opened(book, monkeypatch):
    assert is_track(book)
    monkeypatch.setattr(exports, "MOST_BYTES", 1000)
    exports._exports.cache_clear()
    assert not is_track(book)
    exports._exports.cache_clear()


@pytest.mark.parametrize("comma, encoding, cell, said", [
    (";", "utf-16", "12. Mai", "12. Mai"), (",", "utf-8", "1.234.567", "1.234.567"), (";", "cp1252", "1 234,5", "1 234.5")])
def test_a_number_that_a_spreadsheet_made_a_date_of_is_not_missing(tmp_path, comma, encoding, cell, said):
    rows = [[*r] for r in samples(lost=(3,))]
    rows[7][2] = cell
    path = write(tmp_path/"t.txt", rows, comma=comma, encoding=encoding)
    with pytest.raises(DataError, match=f"row 19: X center is '{said}', expected a number"): read_poses(path)
    for lost in "-", "", "lost": # any sign for what is missing
        rows[7][2:6] = [lost] * 4
        assert np.isnan(read_poses(write(path, rows, comma=comma, encoding=encoding)).xy[[3, 7]]).all()


def test_a_date_in_a_workbook_is_no_missing_point(tmp_path):
    import datetime
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for line in (("Number of header lines:", len(HEAD) + 3), *HEAD, NAMES, UNITS, *([float(c) if i < 7 else c for i, c in enumerate(r)] for r in samples(at=1))):
        book.active.append(list(line))
    book.save(tmp_path/"t.xlsx")
    assert np.isfinite(read_poses(tmp_path/"t.xlsx").xy).all()
    book.active.cell(19, 3).value = datetime.datetime(2026, 5, 12)
    book.save(tmp_path/"t.xlsx")
    with pytest.raises(DataError, match="row 19: X center is '2026-05-12"): read_poses(tmp_path/"t.xlsx")

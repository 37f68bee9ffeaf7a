"Damage that a fuzz of November 2026 found in newer readers: each is one sentence, in bounds."
import gzip, json, os, pickle, re, shutil, struct, subprocess, sys, zipfile
from dataclasses import replace
from xml.dom import minidom
from zipfile import ZipFile

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kaggle_files import write_small
from test_ethovision import samples, sheet, write_book
from test_hostile import bounded, run, colony # noqa: F401 (fixtures)
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file

import mabe_nb as mb
from mabe_nb import cli
from mabe_nb.analysis.clips import frame_drawer
from mabe_nb.analysis.comparison import compare_groups
from mabe_nb.analysis.groups import per_unit, read_groups, with_groups
from mabe_nb.analysis.measures import checked_submission, measure, observe
from mabe_nb.analysis.sequences import MOST_ACTIONS, transitions
from mabe_nb.data.annotations import annotation_source, read_boris, scored_window
from mabe_nb.data.cache import arrays
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.calms21 import _video_id, read_calms21
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder import files as lab_files
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.formats.bout_tables import label_rows
from mabe_nb.data.formats.ethovision.exports import exports_in, numbers_of
from mabe_nb.data.formats.binary.hdf import check_hdf
from mabe_nb.data.formats.hdf_poses import dlc_poses
from mabe_nb.data.formats.sleap_files import sleap_csv_poses
from mabe_nb.data.formats.kaggle import tables
from mabe_nb.data.formats.kaggle.tables import read_columns
from mabe_nb.data.formats.binary.npy import read_npy, read_npz
from mabe_nb.data.formats.binary.pickles import unpickle
from mabe_nb.data.poses import read_poses
from mabe_nb.data.formats.frame_tables import frame_table, read_frame_table
from mabe_nb.data.folder.tracker_folder import read_settings
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.files import (parse_json, plain_cell, read_json, read_tensors, refuse_bomb,
                           spreadsheet_cell, write_csv)
from mabe_nb.kaggle.doctor import read_submission
from mabe_nb.remote import compound, costs, job
from mabe_nb.remote.values import read_value, write_value
from mabe_nb.train.classifier import load_classifier
from mabe_nb.train.config import TrainConfig, yaml_settings
from mabe_nb.train.ensemble.blend import Recipe, load_recipe
from mabe_nb.train.folder.recorder import NOW, STATE
from mabe_nb.train.runs import train
from mabe_nb.workers import or_silent

COLUMNS = ["video_id", "agent_id", "target_id", "action", "start_frame", "stop_frame"]


def test_npz_of_records(tmp_path):
    np.savez(tmp_path/"c.npz", keypoints=np.ones((2, 5, 2, 2, 7)),
             attack=np.array([(0,), (1,)], [("x", int)]))
    with pytest.raises(DataError, match="c.npz, attack: holds dtype"): read_calms21(tmp_path/"c.npz")


@pytest.mark.parametrize("read", [read_settings, yaml_settings])
def test_yaml_of_megabytes(read, tmp_path):
    (tmp_path/"d.yaml").write_bytes(b"fps: 25\n" + b"\n" * 2**21)
    with bounded(5), pytest.raises(DataError, match="d.yaml: has 2,097,160 bytes"):
        read(tmp_path/"d.yaml")


@pytest.mark.parametrize("read, text", [
    (read_frame_table, ",background,sniff\n0,1,0\n1,0,1\n2,0,1\n"),
    (read_groups, "video,animal,treatment\n1,mouse1,drug\n2,mouse1,none\n"),
    (lambda path: read_poses(path, 30).xy, "scorer,net,net,net\nbodyparts,nose,nose,nose\ncoords,x,y,likelihood\n0,1,2,1\n1,2,3,1\n"),
    (read_submission, ",".join(COLUMNS) + "\n1,mouse1,mouse2,chase,10,20\n")])
def test_a_table_that_is_packed_or_has_a_line_for_excel(read, text, tmp_path):
    path = tmp_path/"t.csv"
    path.write_text(text)
    wanted, source = read(path), annotation_source(path)
    if read is not read_submission: # which no program writes for Excel
        path.write_text("sep=;\r\n" + text.replace(",", ";"))
        assert str(read(path)) == str(wanted) and annotation_source(path) == source
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DataError, match="t.csv: is packed by gzip or zip"): read(path)


@pytest.mark.slow
@pytest.mark.parametrize("tail", [b"\n", b",", b"0", b"\0"])
def test_table_of_frames_with_a_long_tail(tail, tmp_path):
    whole = b"background,still\n1,0\n0,1\n"
    (tmp_path/"t.csv").write_bytes(whole + tail * 2**25)
    with bounded(30):
        if tail == b"\n": assert frame_table(tmp_path/"t.csv")[1].tolist() == [[1, 0], [0, 1]]
        else:
            with pytest.raises(DataError, match="t.csv"): frame_table(tmp_path/"t.csv")
    with bounded(5), pytest.raises(DataError, match="expected an annotation of at most"):
        read_boris(tmp_path/"t.csv")


def test_a_damaged_row_far_down_a_table_of_frames_is_named(tmp_path):
    (tmp_path/"t.csv").write_text("a,b\n" + "0,1\n" * 9000 + "0,2\n")
    with pytest.raises(DataError, match=r"t.csv, row 9002: expected 2 cells"):
        frame_table(tmp_path/"t.csv")


def test_a_frame_that_nobody_looked_at_is_in_no_bout(tmp_path):
    (tmp_path/"t.csv").write_text("other,walk\n1,0\n0,1\n-1,1\n")
    assert read_frame_table(tmp_path/"t.csv").values.tolist() == [
        ["mouse1", "mouse2", "walk", 1, 2]]
    assert scored_window(tmp_path/"t.csv") == (0, 2)


def test_parquet_of_rows_that_take_no_room(tmp_path):
    path = write_small(tmp_path/"data", ("1",))/"train_annotation/Ours/1.parquet"
    row = pq.read_table(path).take(pa.array(np.zeros(10**6, int)))
    with pq.ParquetWriter(path, row.schema) as to:
        for _ in range(8): to.write_table(row)
    with bounded(), pytest.raises(DataError, match="1.parquet: has 8,000,000 rows in"):
        open_dataset(tmp_path/"data")["1"]


@pytest.mark.parametrize("column, value, says", [
    ("start_frame", np.nan, "start_frame is 'nan', expected a whole number"),
    ("start_frame", "x", "start_frame is 'x'"), ("stop_frame", 1.5, "stop_frame is '1.5'"),
    ("stop_frame", 1e300, "expected a whole number"), ("action", None, "expected a name"),
    ("stop_frame", 5, "expected one that is not before start_frame")])
@pytest.mark.parametrize("command", ["analyse", "clips"])
def test_submission_with_a_row_that_is_no_bout(command, column, value, says, tmp_path, capsys):
    root = write_small(tmp_path/"data", ("1",))
    good = ("1", "mouse1", "mouse2", "chase", 10, 20)
    table = pd.DataFrame([good] * 2, columns=COLUMNS).astype(object)
    table.loc[1, column] = value
    table.to_csv(tmp_path/"s.csv", index=False)
    assert cli.main([command, str(tmp_path/"s.csv"), str(root), "--out", str(tmp_path/"o")]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path/'s.csv'}, row 3: " in said and says in said and said.count("\n") == 1


def test_numbers_as_names_are_the_same_in_every_form(tmp_path):
    rows = pd.DataFrame([(1.0, 2, "self", 7, 1, 2.0)], columns=COLUMNS)
    assert checked_submission(rows).values.tolist() == [["1", "2", "self", "7", 1, 2]]
    with pytest.raises(DataError, match="has no column action"):
        checked_submission(rows.drop(columns="action"))


def test_groups_of_nobody(tmp_path):
    root = write_small(tmp_path/"data", ("1",))
    for text, says in (("video,sex\n", "has no rows"), ("video," * 5000, "has more than 1,000 columns"),
                       ("x" * 2**18, "has a first line without an end"),
                       ("\0" * 2**26, "has a first line without an end"),
                       ("video,sex\n" + "\n" * 2**24, "has 16,777,226 bytes")):
        (tmp_path/"g.csv").write_text(text)
        with bounded(5), pytest.raises(DataError, match=f"g.csv: {says}"):
            read_groups(tmp_path/"g.csv")
    (tmp_path/"g.csv").write_text("video,animal,sex\n1,mouse1,\n")
    with pytest.raises(ConfigError, match="no animal of a group has a value"):
        compare_groups(pd.DataFrame(columns=["group", "unit", "action", "value"]))
    assert len(measure(observe(open_dataset(root))))


def test_a_submission_and_a_table_of_videos_may_not_be_endlessly_wide(tmp_path):
    root = write_small(tmp_path/"data", ("1",))
    for path, read in ((root/"train.csv", lambda p: open_dataset(root)),
                       (tmp_path/"s.csv", read_submission)):
        for text, says in (("video_id," * 3000 + "\n", "has more than 1,000 columns"),
                           ("\0" * 2**27, "has a first line without an end")):
            path.write_text(text)
            with bounded(5), pytest.raises(DataError, match=says) as told: read(path)
            assert len(str(told.value)) < 500


def test_table_of_videos_with_a_tail_of_empty_lines(tmp_path):
    path = write_small(tmp_path/"data", ("1",))/"train.csv"
    with open(path, "ab") as f: f.write(b"\n" * 2**24)
    with bounded(5), pytest.raises(DataError, match="train.csv: has more than 1,000,000 lines"):
        open_dataset(tmp_path/"data")


def test_a_thousand_actions_are_another_column():
    n = MOST_ACTIONS + 1
    rows = pd.DataFrame({"video": "1", "agent": "a", "target": "a",
                         "action": [str(i) for i in range(n)], "start": np.arange(n),
                         "stop": np.arange(n) + 0.5})
    with pytest.raises(DataError, match=f"there are {n} actions"): transitions(rows)
    with bounded(): assert len(transitions(rows[1:], shuffles=50)) == (n - 1)**2


HISTORY = {"epoch": 1, "train_loss": 1.0, "valid_loss": 1.0, "valid_f1": 0.5, "learning_rate": 0.1}


@pytest.mark.parametrize("history", [[[]], [{}], [HISTORY | {"valid_f1": None}],
                                     [HISTORY | {"epoch": 2}], [], [HISTORY] * 2])
def test_state_with_another_history(run, colony, history, tmp_path):
    shutil.copytree(run, tmp_path/"run")
    tensors, about = read_tensors(run/"last"/NOW, STATE)
    save_file(tensors, tmp_path/"run/last"/NOW, {STATE: json.dumps(about | {"history": history})})
    with pytest.raises(DataError, match="does not fit this run"):
        train(colony, tmp_path/"run", TrainConfig.from_yaml(run/"config.yaml"), ["1", "4"],
              ["7"], resume=True, cache=run.parent/"cache")


def test_pipe_as_log(run, colony, tmp_path):
    shutil.copytree(run, tmp_path/"run")
    (tmp_path/"run/log.jsonl").unlink()
    os.mkfifo(tmp_path/"run/log.jsonl")
    with bounded(60), pytest.raises(DataError, match="log.jsonl: is a pipe"):
        train(colony, tmp_path/"run", TrainConfig.from_yaml(run/"config.yaml"), ["1", "4"],
              ["7"], resume=True, cache=run.parent/"cache")


def test_video_of_a_cache_with_odd_units_is_made_again(colony, tmp_path):
    prepare(colony, "coords", tmp_path, progress=False)
    file = next(tmp_path.glob("*/*/video.json"))
    whole = file.read_text()
    for odd in ([["px"]], 7, "px"):
        file.write_text(json.dumps(json.loads(whole) | {"units": odd}))
        prepare(colony, "coords", tmp_path, progress=False)
        assert file.read_text() == whole


@pytest.mark.parametrize("spoil", ["pipe", "columns first"])
def test_odd_file_in_a_cache_is_made_again(spoil, colony, tmp_path, monkeypatch):
    file = tmp_path/prepare(colony, "coords", tmp_path, progress=False).sequences.path[0]
    whole, values = file.read_bytes(), np.load(file)
    file.unlink()
    np.save(file, np.asfortranarray(values)) if spoil != "pipe" else os.mkfifo(file)
    monkeypatch.setattr(arrays, "_checked", {}) # as in another process
    with bounded(30), pytest.warns(UserWarning, match="did not hold what was written: made"):
        prepare(colony, "coords", tmp_path, progress=False)
    assert file.read_bytes() == whole


def test_a_ledger_that_cannot_be_read_is_not_an_empty_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    assert costs.receipts() == []
    os.mkfifo(tmp_path/"costs.jsonl")
    monkeypatch.setenv("MABE_BUDGET", "5")
    with bounded(5):
        assert cli.main(["jobs", "costs"]) == 2
        with pytest.raises(DataError, match="is a pipe"): costs.check_budget(1, 0)
        with pytest.raises(DataError, match="is a pipe"): costs.record({})
    assert "costs.jsonl: is a pipe" in capsys.readouterr().err


def test_receipts_of_another_form_are_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    good = {"id": "a", "on": "modal", "gpu": ["L4", "T4"], "created": 1.7e9, "foretold": 1.0,
            "usd": 0.5, "seconds": 60.0, "status": "done"}
    odd = [good | {"status": [1]}, {k: v for k, v in good.items() if k != "gpu"}, [], 7]
    (tmp_path/"costs.jsonl").write_text("\n\n".join(map(json.dumps, [*odd, good])))
    assert costs.receipts() == [good] and cli.main(["jobs", "costs"]) == 0
    (tmp_path/"costs.jsonl").write_bytes(b"\n" * 2**23)
    with bounded(10): assert costs.receipts() == []


def test_job_of_an_odd_price_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    sent = job.submit(["true"])
    sent.wait()
    path = tmp_path/"jobs"/sent.id/"job.json"
    for odd in ("x", [1], float(10**13), -1, True, float("nan"), -1e9):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"most_usd": odd}))
        with pytest.raises(DataError, match="most_usd is"): job.attach(sent.id)
        assert costs.reserved(tmp_path/"jobs") == 0, "no budget is larger for it"


@pytest.mark.slow
def test_names_that_a_figure_would_take_for_something_else(tmp_path, capfd):
    root = write_small(tmp_path/"data", ("1", "2", "3", "4"))
    names = ["$\\frac$", "a$x_{$b", "\u55c5", "_hidden"]
    rows = [("1", "mouse1", "mouse2", x, 1, 20) for x in (*names, "\x1b[2J", "=1")]
    pd.DataFrame(rows, columns=COLUMNS).to_csv(tmp_path/"s.csv", index=False)
    pd.DataFrame({"video": list("1234"), "group": "x", "kind": names}).to_csv(
        tmp_path/"g.csv", index=False)
    for words in ([str(tmp_path/"s.csv"), str(root)], ["annotations", str(root), "--groups",
                  str(tmp_path/"g.csv"), "--by", "kind"]):
        assert cli.main(["analyse", *words, "--out", str(tmp_path/"o"), "--overwrite"]) == 0
        for svg in (tmp_path/"o").glob("*.svg"): minidom.parse(str(svg))
    shown = [t.get_text() for t in _group_legend(root, tmp_path/"g.csv")]
    assert sorted(x.strip().replace("\\$", "$") for x in shown) == sorted(names)
    said = capfd.readouterr()
    assert not said.err and "\x1b" not in said.out


def _group_legend(root, table):
    from mabe_nb.analysis.figures import plot_budgets
    rows = with_groups(measure(observe(open_dataset(root))), read_groups(table), "kind")
    return plot_budgets(per_unit(rows))[1].get_legend().get_texts()


def texts(path, change):
    "An HDF5 file with texts, of which one is said to be elsewhere or of another length."
    with h5py.File(path, "w") as f:
        f["tracks"], f["node_names"] = np.ones((1, 2, 1, 3)), [b"nose"]
        f["track_names"], f.attrs["about"] = "white", "a text"
    whole = bytearray(path.read_bytes())
    heap = whole.index(b"GCOL")
    change(whole, heap, whole.index(struct.pack("<Q", heap)) - 4)
    path.write_bytes(whole)
    return path


def too_long(whole, heap, at): whole[at:at + 4] = struct.pack("<I", 1_800_000_000)
def elsewhere(whole, heap, at): whole[at + 4:at + 12] = struct.pack("<Q", 8)


@pytest.mark.parametrize("change", [too_long, elsewhere])
@pytest.mark.parametrize("name", ["t.h5", "t.slp", "t.nwb"])
def test_text_that_is_not_as_long_as_it_says(name, change, tmp_path):
    with bounded(60), pytest.raises(DataError, match=f"{name}: is damaged: its texts"):
        read_poses(texts(tmp_path/name, change), 30)
    check_hdf(texts(tmp_path/name, lambda *_: None))


def test_two_mice_of_one_number_in_a_frame(tmp_path):
    with h5py.File(tmp_path/"j.h5", "w") as f:
        f["poseest/points"], f["poseest/confidence"] = np.ones((3, 2, 12, 2)), np.ones((3, 2, 12))
        f["poseest"].attrs["version"] = [3, 0]
        f["poseest/instance_count"] = [1, 2, 2]
        f["poseest/instance_track_id"] = [[0, 1], [0, 1], [5, 5]]
    with pytest.raises(DataError, match="two mice of frame 2 the same number"):
        read_poses(tmp_path/"j.h5", 30)


@pytest.mark.parametrize("lines", [
    "videos:\n  v1:\n    a0: &a0 [x, x, x]\n" + "".join(
        f"    a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
    "a0: &a0 {k: v}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n"
                                for i in range(1, 40)),
    "videos: {v1: &v {g: *v}}\n", f"videos: &v [{'x, ' * 5000}*v]\n"],
    ids=["lists", "merges", "itself", "itself with more"])
@pytest.mark.parametrize("read", [read_settings, yaml_settings])
def test_yaml_that_stands_for_far_more(lines, read, tmp_path):
    (tmp_path/"d.yaml").write_text(lines)
    with bounded(30), pytest.raises(DataError, match="stand for far too much"):
        read(tmp_path/"d.yaml")


def test_a_video_that_stands_twice_in_dataset_yaml(tmp_path):
    (tmp_path/"d.yaml").write_text("videos:\n  v1: {fps: 25}\n  v2: {}\n  v1: {dose: low}\n")
    with pytest.raises(DataError, match="v1 stands there twice"): read_settings(tmp_path/"d.yaml")


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no such file here")
@pytest.mark.parametrize("name", ["a.npy", "a.csv", "a.h5", "a.json", "a.slp"])
def test_file_that_cannot_be_read_at_all(name, tmp_path):
    (tmp_path/name).symlink_to("/proc/self/mem") # a plain file by its kind
    with pytest.raises(DataError): list(open_dataset(tmp_path/name))


@pytest.mark.skipif(not os.path.exists("/proc/kmsg"), reason="no such file here")
def test_a_disk_and_files_of_the_system_are_not_looked_through(tmp_path):
    (tmp_path/"disk").symlink_to("/")
    for path in ("/", "/proc/self", "/sys", tmp_path): # the last holds a link to all
        with bounded(), pytest.raises(DataError, match="whole disk, or of the system"): open_dataset(path)
    (tmp_path/"log.csv").symlink_to("/proc/kmsg") # without an end, whoever may read it
    (tmp_path/"v1.csv").write_text("scorer,n,n,n\nbodyparts,a,a,a\ncoords,x,y,likelihood\n0,1,2,1\n")
    with bounded(): assert "log.csv is empty, not read" in match_files(open_dataset(tmp_path)).sentences


def test_names_of_files_that_are_no_text(tmp_path, capsys):
    root = write_small(tmp_path/"data", ("1",))
    (root/"train_tracking/Ours"/os.fsdecode(b"\xff.parquet")).write_text("x")
    table = pd.DataFrame(np.ones((3, 6)), columns=pd.MultiIndex.from_product(
        [["net"], ["nose", "tail"], ["x", "y", "likelihood"]],
        names=["scorer", "bodyparts", "coords"]))
    for name in ("v1.csv", os.fsdecode(b"\xff.csv")): table.to_csv(tmp_path/name)
    assert cli.main(["audit", str(root), "--json"]) == 0
    assert cli.main(["open", str(tmp_path), "--json"]) == 0
    assert capsys.readouterr().out.count("\\udcff") >= 2 # a sentence each
    assert open_dataset(tmp_path).ids == ("v1",)


@pytest.mark.parametrize("line", ["fps: .inf", "px_per_cm: .inf", "videos: {v1: {fps: .inf}}"])
def test_endless_settings(line, tmp_path):
    (tmp_path/"d.yaml").write_text(line)
    with pytest.raises(DataError, match="finite"): read_settings(tmp_path/"d.yaml")


def test_labels_of_a_gigabyte(tmp_path):
    (tmp_path/"all.csv").write_text("from;to;type;ID\n")
    os.truncate(tmp_path/"all.csv", 2**30)
    with bounded(10), pytest.raises(DataError, match="expected a table of at most"):
        label_rows(tmp_path/"all.csv")


def test_poses_of_unknown_rate_are_read_once(tmp_path, monkeypatch):
    from mabe_nb.data import poses
    table = pd.DataFrame(np.ones((3, 6)), columns=pd.MultiIndex.from_product(
        [["net"], ["nose", "tail"], ["x", "y", "likelihood"]],
        names=["scorer", "bodyparts", "coords"]))
    table.to_csv(tmp_path/"v1.csv")
    of, read = poses.TRACKERS["DeepLabCut"], []
    monkeypatch.setitem(poses.TRACKERS, "DeepLabCut",
                        of._replace(read=lambda path: read.append(path) or of.read(path)))
    found = match_files(open_dataset(tmp_path))
    assert len(read) == 1 and found.table.fps.isna().all() and found.table.frames[0] == 3


def zeros(path, column, times):
    table = pa.table({"a": column})
    with pq.ParquetWriter(path, table.schema) as to:
        for _ in range(times): to.write_table(table)


TABLES = { # Small files that pandas would make gigabytes of
    "a long text, often": lambda path: pq.write_table(pa.table({"a": pa.DictionaryArray.from_arrays(
        np.zeros(2**16, "i4"), ["x" * 10**6])}), path, store_schema=False),
    "zeros": lambda path: zeros(path, np.zeros(10**6, "i8"), 40),
    "nothing": lambda path: zeros(path, pa.nulls(10**6), 60),
    "lists": lambda path: zeros(path, [["x"]], 1)}


@pytest.mark.parametrize("name", TABLES)
def test_table_far_larger_than_its_file(name, tmp_path):
    TABLES[name](tmp_path/"t.parquet")
    assert (tmp_path/"t.parquet").stat().st_size < 10**6
    with bounded(30), pytest.raises(DataError, match="t.parquet: refused as parquet"):
        read_value(tmp_path/"t.parquet")


def test_a_table_of_ours_that_compresses_well_is_read(tmp_path, monkeypatch):
    "It is sent as large as it is."
    table = pd.DataFrame({"a": np.zeros(10**6), "b": 1})
    monkeypatch.setattr(compound, "LEAST", 2**20)
    file = write_value(tmp_path/"t", table)
    assert read_value(file).equals(table) and file.stat().st_size > 10**6
    file = write_value(tmp_path/"u", table.head(1000))
    assert read_value(file).equals(table.head(1000)) and file.stat().st_size < 10**4


@pytest.mark.parametrize("key", ["keys", "structure"])
def test_a_structure_far_larger_than_its_text(key, tmp_path):
    save_arrays({"0": np.zeros(1)}, tmp_path/"t.safetensors", {
        "mabe": "nested" if key == "structure" else "numpy", key: "[" + "[]," * 12_000_000 + "[]]"})
    with pytest.raises(DataError, match="t.safetensors: is JSON whose values would take"):
        read_value(tmp_path/"t.safetensors")


@pytest.mark.parametrize("structure", [
    '{"array": Infinity}', '{"array": NaN}', '{"array": -1}', '{"array": true}', '{"array": "0"}',
    '{"array": 1}', "null", '{"dict": [1]}', '{"list":' * 10**5, '{"array": ' + "9" * 5000 + "}"])
def test_nested_arrays_with_an_odd_structure(structure, tmp_path):
    save_arrays({"0": np.zeros(3)}, tmp_path/"v.safetensors",
                {"mabe": "nested", "structure": structure})
    with pytest.raises(DataError, match="v.safetensors: refused as safetensors"):
        read_value(tmp_path/"v.safetensors")


def test_actions_that_look_like_numbers_keep_their_names(tmp_path):
    row = pd.DataFrame([(0, "1", "mouse1", "mouse2", "x", 1, 2)], columns=["row_id", *COLUMNS])
    for name in ("-0", "007", "1e3", "1_0"):
        row.assign(action=name).to_csv(tmp_path/"s.csv", index=False)
        table = checked_submission(read_submission(tmp_path/"s.csv"))
        assert table.action.tolist() == [name]


def test_a_film_without_room_is_none(tmp_path):
    "The encoder is a process of its own, and says nothing."
    code = """import resource, signal, sys; import numpy as np
from mabe_nb.view.video.film import write_film
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
frames = np.random.default_rng(0).integers(0, 255, (30, 64, 64, 3), "u1")
try: write_film(sys.argv[1], frames, 30.0)
except ValueError as e: print(e)"""
    for room in (0, 100, 9000):
        out = subprocess.run([sys.executable, "-c", code, tmp_path/"a.mp4", str(room)],
                             capture_output=True, text=True, timeout=120)
        assert "a.mp4: cannot be written whole" in out.stdout, out.stderr
        assert not list(tmp_path.iterdir())


def test_a_table_of_poses_may_not_be_endlessly_wide(tmp_path):
    (tmp_path/"v.csv").write_bytes(b"scorer" + b"," * 10**7)
    with bounded(30), pytest.raises(DataError, match="v.csv: has a first line without an end"):
        read_poses(tmp_path/"v.csv", 30)


def test_a_long_name_on_a_film_takes_no_time(tmp_path):
    data = open_dataset(write_small(tmp_path/"data", ("1",)))
    with bounded(10): frame_drawer(data["1"])(0, "x" * 10**6)


@pytest.mark.parametrize("inside", ["[]", "{}", "700", '"ab"', '{"a": 1}'])
def test_json_far_smaller_than_its_values(inside, tmp_path):
    file = tmp_path/"value.json"
    file.write_text(f"[{(inside + ',') * ((2**26 - 8) // (len(inside) + 1))}{inside}]")
    for read in (read_json, read_value):
        with bounded(), pytest.raises(DataError, match="value.json: is JSON whose values"):
            read(file)


def test_json_of_a_key_that_comes_again_late():
    keys = ",".join(f'"{i}": 1' for i in range(100_000))
    with bounded(), pytest.raises(DataError, match="the key '99999' twice"):
        parse_json(f'{{{keys}, "99999": 2}}')


def test_each_annotation_is_not_looked_for_among_all_videos(tmp_path, monkeypatch):
    named, count = lab_files.video_name, []
    monkeypatch.setattr(lab_files, "video_name", lambda p: count.append(p) or named(p))
    for i in range(30):
        for k in range(2):
            place = tmp_path/f"day{k}"/"poses"/f"{i}.csv"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("scorer,a,a,a\nbodyparts,nose,nose,nose\ncoords,x,y,likelihood\n0,1,1,1\n")
        (tmp_path/f"day{i % 2}"/f"{i}x.boris.csv").write_text("\n".join((
            "Observation id,Source,FPS (frame/s),Subject,Behavior,Behavior type,Start (s),Stop (s)",
            f"o,player #1:d/{i}.mp4,30,a,chase,STATE,0,1")))
    found = lab_files.sort_files(tmp_path)
    assert len(found.poses) == 60 and len(found.scored) == 30
    assert len(count) < 60 * 12


def test_a_warning_is_a_sentence(tmp_path):
    odd = tmp_path/"jobs"/"261123-000000-aaaaaa"/"job.json"
    odd.parent.mkdir(parents=True)
    odd.write_text('{"id": "\\u001b[2J", "title": 3}')
    words = "import sys; from mabe_nb.cli import main; sys.exit(main(['jobs']))"
    said = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True,
                          env=os.environ | {"MABE_HOME": str(tmp_path),
                                            "PYTHONWARNINGS": "default"})
    assert said.returncode == 0 and said.stderr.startswith(f"note: left out: {odd}")
    assert said.stderr.count("\n") == 1 and "\x1b" not in said.stderr


def numbers_like_calms21(frames):
    "Text of two mice with seven parts and their scores, as the published JSON holds them."
    mouse = [[round(900.5 + k, 1) for k in range(7)]] * 2
    score = [0.9973262032085561] * 7
    one = json.dumps({"keypoints": [mouse] * 2, "scores": [score] * 2, "annotations": 3})
    return "[" + ", ".join([one] * frames) + "]"


def test_much_json_is_no_bomb_if_it_is_numbers():
    refuse_bomb(numbers_like_calms21(300_000)) # 140 MB
    refuse_bomb("[" + "829.5," * 2**24 + "1]")


def test_points_with_a_name_each(tmp_path):
    (tmp_path/"a.csv").write_text("frame_idx,node,x,y\n" + "".join(
        f"{i},n{i},1,1\n" for i in range(8000)))
    (tmp_path/"b.csv").write_text("frame_idx,node,x,y\n" + "".join(
        f"{i},n{i % 900},1,1\n" for i in range(8000)))
    (tmp_path/"c.csv").write_text("frame_idx," + ",".join(
        f"inst{i % 99}.n{i}.{c}" for i in range(999) for c in "xy") + ",track\n" + "0\n" * 99)
    for name, parts in (("a", "8,000"), ("b", "900"), ("c", "1,998")):
        with bounded(), pytest.raises(DataError, match=f"{name}.csv: names {parts} body parts"):
            sleap_csv_poses(tmp_path/f"{name}.csv")
    (tmp_path/"d.csv").write_text("frame_idx," + ",".join(f"inst{i}.n.x" for i in range(101)) + ",track")
    with pytest.raises(DataError, match="has 101 animals"): sleap_csv_poses(tmp_path/"d.csv")


def test_sequences_of_which_all_become_one_name(tmp_path):
    one, taken = {"keypoints": [[[[0] * 7] * 2] * 2]}, {}
    (tmp_path/"c.json").write_text(json.dumps({"g": dict.fromkeys(["a/b", "a_b", "a_b_2"], one)}))
    assert [r.video_id for r in read_calms21(tmp_path/"c.json")] == ["a_b", "a_b_2", "a_b_2_2"]
    with bounded(): names = {_video_id("a/b", taken, tmp_path) for _ in range(20_000)}
    assert len(names) == 20_000 and "a_b_20000" in names


def dlc_names(path, levels, columns, long, blocks=1):
    "A table of DeepLabCut in pandas' fixed layout, with a name for each column."
    with h5py.File(path, "w") as f:
        g = f.create_group("df_with_missing")
        g.attrs.update(pandas_type="frame", nblocks=blocks)
        words, codes = np.array([b"a" * long]), np.zeros(columns, "i1")
        f["words"], f["axis"], f["values"] = words, np.arange(1), np.zeros((1, 2))
        f.create_dataset("codes", data=codes, compression="gzip")
        for i in range(blocks):
            g.attrs[f"block{i}_items_nlevels"] = levels
            g[f"block{i}_values"], g["axis1" if i == 0 else f"axis{i + 1}"] = f["values"], f["axis"]
            for k in range(levels):
                g[f"block{i}_items_level{k}"], g[f"block{i}_items_label{k}"] = f["words"], f["codes"]


@pytest.mark.parametrize("levels, columns, long, blocks, says", [
    (8, 2, 4, 1, "1 parts with names in 8 levels"), (3, 2, 4, 11, "11 parts with names in 3 levels"),
    (3, 99_000, 990, 1, "of more than 4 MB together")])
def test_names_of_columns_without_end(levels, columns, long, blocks, says, tmp_path):
    dlc_names(tmp_path/"v.h5", levels, columns, long, blocks)
    with bounded(), pytest.raises(DataError, match=f"v.h5: .*{says}"): dlc_poses(tmp_path/"v.h5")


@pytest.mark.parametrize("shape, chunk, packed, says", [
    ((1, 1, 12, 2), (2**24, 1, 1, 1), 1, "announces more than"),
    ((1, 1, 12, 2), (1, 1, 12, 2), 2, "points is compressed twice"),
    ((3 * 10**8, 2, 12, 0), None, 0, "announces more than"),
    ((5, 2, 12, 0), None, 0, "holds no points of animals")])
def test_points_whose_shape_does_not_tell_what_they_take(shape, chunk, packed, says, tmp_path):
    with h5py.File(tmp_path/"j.h5", "w") as f:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if chunk: made.set_chunk(chunk)
        for _ in range(packed): made.set_deflate(9)
        space = h5py.h5s.create_simple(shape, (h5py.h5s.UNLIMITED,) * 4 if chunk else shape)
        group = f.create_group("poseest")
        h5py.h5d.create(group.id, b"points", h5py.h5t.NATIVE_DOUBLE, space, made)
        group["confidence"] = np.ones((1, 1, 12))
    with bounded(), pytest.raises(DataError, match=f"j.h5.*: .*{says}"):
        read_poses(tmp_path/"j.h5", 30)


def test_animals_of_nwb_with_points_of_their_own(tmp_path):
    with h5py.File(tmp_path/"v.nwb", "w") as f:
        f["long"], f["short"] = np.zeros((10_000, 2), "f4"), np.zeros((1, 2), "f4")
        f["start"] = 0.0
        f["start"].attrs["rate"] = 30.0
        for i in range(60):
            animal = f.create_group(f"processing/behavior/a{i}")
            animal.attrs["neurodata_type"] = "PoseEstimation"
            series = animal.create_group(f"p{i}")
            series.attrs["neurodata_type"] = "PoseEstimationSeries"
            series["data"], series["starting_time"] = f["short" if i else "long"], f["start"]
    with bounded(), pytest.raises(DataError, match="v.nwb: names 60 points and 60 animals of 10,000"):
        read_poses(tmp_path/"v.nwb", 30)


def spoilt_book(path, spoil):
    "A workbook of EthoVision, its only sheet changed."
    plain = write_book(path.parent/"plain.xlsx", {"Track-Arena 1-Subject 1": sheet(samples())})
    with ZipFile(plain) as whole, ZipFile(path, "w") as to:
        for n in whole.namelist():
            to.writestr(n, spoil(whole.read(n)) if n.endswith("sheet1.xml") else whole.read(n))
    return path


def far_cells(xml, rows):
    "A sheet with more rows, of one cell each in its last column."
    more = b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (i, i) for i in rows)
    return re.sub(b"<dimension[^>]*>", b"", xml).replace(b"</sheetData>", more + b"</sheetData>")


@pytest.mark.parametrize("spoil, says", [
    (lambda xml: xml[:len(xml) - 2000], "damaged after"),
    (lambda xml: far_cells(xml, [9 * 10**11]), "it numbers rows or columns far beyond")])
def test_a_workbook_whose_sheet_is_not_what_it_says(spoil, says, tmp_path):
    path = spoilt_book(tmp_path/"a.xlsx", spoil)
    export, = exports_in(path)
    with bounded(), pytest.raises(DataError, match=rf"a.xlsx: is no whole workbook \({says}"):
        numbers_of(path, export, [0])


def test_a_workbook_without_a_whole_head_and_one_with_far_cells(tmp_path):
    assert exports_in(spoilt_book(tmp_path/"a.xlsx", lambda xml: xml[:900])) == []
    path = spoilt_book(tmp_path/"b.xlsx", lambda xml: far_cells(xml, range(200, 5200)))
    export, = exports_in(path)
    with bounded(): assert len(numbers_of(path, export, [0])) == 30


def shaped(text):
    "A `.npy` file whose header gives its shape in these words."
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {text}\n".encode()
    return b"\x93NUMPY\x02\0" + struct.pack("<I", len(head)) + head + bytes(8)


SHAPES = ["(1L,", "(0x" + "f" * 7000 + ",), }", "(True,), }", "-" * 4000 + "1, }"]


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_that_are_none(shape, tmp_path):
    (tmp_path/"t.npy").write_bytes(shaped(shape))
    with zipfile.ZipFile(tmp_path/"t.npz", "w") as z: z.writestr("a.npy", shaped(shape))
    for read, name in ((read_npy, "t.npy"), (read_npz, "t.npz")):
        with bounded(), pytest.raises(DataError, match=name) as e: read(tmp_path/name)
        assert len(str(e.value).splitlines()) == 1


@pytest.mark.parametrize("kind", [zipfile.ZIP_LZMA, zipfile.ZIP_STORED])
def test_members_that_cannot_be_unpacked(kind, tmp_path):
    with zipfile.ZipFile(tmp_path/"t.npz", "w", kind) as z: z.writestr("a.npy", shaped("(1,), }"))
    whole = bytearray((tmp_path/"t.npz").read_bytes())
    if kind == zipfile.ZIP_LZMA:
        for k in range(44, 65): whole[k] ^= 0xa5
    else:
        for at in (6, whole.index(b"PK\1\2") + 8): whole[at] |= 1 # encrypted
    (tmp_path/"t.npz").write_bytes(whole)
    with pytest.raises(DataError, match="t.npz: is no readable"): read_npz(tmp_path/"t.npz")


def test_a_pickled_sign_that_is_none():
    whole = pickle.dumps(np.str_("a"), 2).replace(b"a\0\0\0", b"\0\0\x11\0")
    assert b"\0\0\x11\0" in whole
    with pytest.raises(DataError, match="SystemError"): unpickle(whole, "t.npy")


def test_tensors_larger_than_any_memory(tmp_path):
    head = json.dumps({"a": {"dtype": "F32", "shape": [2**63, 0], "data_offsets": [0, 0]}}).encode()
    (tmp_path/"w.safetensors").write_bytes(struct.pack("<Q", len(head)) + head)
    with pytest.raises(DataError, match="w.safetensors: not a readable"):
        read_tensors(tmp_path/"w.safetensors", "mabe")


@pytest.mark.parametrize("name", ["=1", "\n=1", "\uff1d1", "\uff0b1", "\ufeff=1", "\u200b=1", " =1",
                                  "'=1", "\xa0@x"])
def test_formulas_that_hide(name, tmp_path):
    assert spreadsheet_cell(name) == "'" + name and plain_cell("'" + name) == name
    write_csv(tmp_path/"t.csv", pd.DataFrame({name: [name, "sniff_face"], "a-b": [1, 2]}))
    table = pd.read_csv(tmp_path/"t.csv")
    assert [*table] == ["'" + name, "a-b"] and table.iloc[0, 0] == "'" + name
    for plain in ("sniff_face", "a-b", "'a", "a=b", "", " x"):
        assert plain_cell(plain) == spreadsheet_cell(plain) == plain


COUNTS = {"1": {"attack": [3, 1, 2]}}
LABS = "video_id,lab_id\n1,A\n"


def recipe_of(folder, metrics, labs=LABS):
    "A recipe whose folder says this of its training."
    (folder/"oof").mkdir()
    (folder/"metrics.json").write_text(json.dumps(metrics))
    (folder/"oof"/"sequences.csv").write_bytes(labs if type(labs) is bytes else labs.encode())
    return Recipe({}, None, (), (), (), {}, (), (), (), folder)


@pytest.mark.parametrize("folds", [5, None, [5], [None], ["1"], [[["1"]]], {"1": 2}])
def test_folds_of_another_kind(folds, tmp_path):
    recipe = recipe_of(tmp_path, {"folds": folds, "counts": COUNTS})
    with pytest.raises(DataError, match="metrics.json: does not hold folds"): _ = recipe.learned_from
    with pytest.raises(DataError, match="metrics.json: does not hold folds"): recipe.evidence({})


@pytest.mark.parametrize("counts", [5, None, [], {"1": 5}, {"1": {"a": 5}}, {"1": {"a": [1]}},
                                    {"1": {"a": ["x", 1, "y"]}}, {"2": {}}])
def test_counts_of_another_kind(counts, tmp_path):
    recipe = recipe_of(tmp_path, {"folds": [["1"]], "counts": counts})
    with pytest.raises(DataError, match="metrics.json: and sequences.csv do not hold"): recipe.evidence()


@pytest.mark.parametrize("labs", ["", "a,b\n1,2\n", "video_id,lab_id\n1,2,3,4\n1\n1,2,3,4,5,6\n",
                                  b"video_id,lab_id\n1,\xff\n", '"'])
def test_labs_of_a_spoilt_table(labs, tmp_path):
    recipe = recipe_of(tmp_path, {"folds": [["1"]], "counts": COUNTS}, labs)
    with pytest.raises(DataError, match="sequences.csv do not hold"): recipe.evidence()


def test_what_a_recipe_tells_of_its_training(tmp_path):
    recipe = recipe_of(tmp_path, {"folds": [["1"]], "counts": COUNTS})
    assert recipe.evidence() == {"A": {"attack": 5}} and recipe.learned_from == {"1"}
    shutil.rmtree(tmp_path/"oof")
    (tmp_path/"metrics.json").unlink()
    assert recipe.evidence() is None and recipe.learned_from == frozenset()


@pytest.mark.parametrize("members", [[], [{"name": "net", "kind": "net", "files": []}]])
def test_a_recipe_without_networks(members, tmp_path):
    decision = {"thresholds": [0.5], "smooth_ms": 0, "shares": [1.0] * len(members), "labs": {}}
    about = {"format": 4, "decision": decision, "members": members, "actions": ["a"],
             "self_actions": [], "parts": [], "labs": {}, "directed": []}
    (tmp_path/"recipe.json").write_text(json.dumps(about))
    with pytest.raises(DataError, match="a member without files"): load_recipe(tmp_path)


def test_a_parquet_file_with_texts_far_larger_than_itself(tmp_path, monkeypatch):
    path = tmp_path/"big.parquet"
    pq.write_table(pa.table({"action": ["a" * 2_000_000] * 2}), path, compression="zstd", use_dictionary=False)
    assert len(read_columns(path, ["action"])) == 2
    monkeypatch.setattr(tables, "UNPACKED", 2**20)
    with pytest.raises(DataError, match="bytes of values, far more"): read_columns(path, ["action"])


def test_no_name_gives_orders_to_a_terminal_from_python(run, tmp_path, capsys):
    "On the command line none did; in a notebook models, datasets, errors and what is said showed them raw."
    data, model = open_dataset(write_small(tmp_path/"mice\x1b[2J", ("1", "2"))), load_classifier(run/"best.safetensors")
    evil = replace(model, actions=("\x1b[2J\u202e", *model.actions[1:]))
    told = repr(data), repr(evil), repr(mb.audit(data)), str(DataError("no \x1b[2J", "a\x9bb")), str(ConfigError("\x07"))
    or_silent(print)("said of \x1b[2J")
    told += (capsys.readouterr().out,)
    assert not [t for t in told if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", t)]
    assert all("\\x1b[2J" in t for t in told[:4]) and told[5] == "said of \\x1b[2J\n"

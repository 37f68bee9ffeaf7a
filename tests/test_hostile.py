"""Files as strangers send them, made from bytes here: each is one sentence, nothing of it
runs, none of it hangs or takes memory. The cases are those of an attack in November 2026.
"""
import faulthandler, io, json, os, pickle, resource, signal, struct, zipfile
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from kaggle_files import bout_rows, long_table, row, write_csv, write_parquet, write_small
from safetensors.torch import save_file

from mabe_nb import cli
from mabe_nb.data.annotations import read_boris
from mabe_nb.data.calms21 import read_calms21
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.formats.kaggle.tables import read_videos
from mabe_nb.data.formats.binary.npy import read_npy, read_npz
from mabe_nb.data.formats.binary.pickles import unpickle
from mabe_nb.data.poses import read_poses
from mabe_nb.data.synthetic import colony_video, write_colony
from mabe_nb.data.folder.settings import read_settings
from mabe_nb.errors import DataError, MabeError
from mabe_nb.data.formats.text_tables import parse_number
from mabe_nb.files import (file_hash, parse_json, read_json, read_tensors,
                           write_csv as write_names, write_tensors)
from mabe_nb.kaggle.doctor import read_submission
from mabe_nb.train.classifier import load_classifier
from mabe_nb.train.ensemble.decide import OutOfFold
from mabe_nb.train.ensemble.folds import save_out_of_fold
from mabe_nb.train.model import read_split, read_thresholds
from mabe_nb.train.config import TrainConfig, yaml_settings
from mabe_nb.train.folder.weights import read_history
from mabe_nb.train.runs import train
from mabe_nb.train.data_shift import check_body


@contextmanager
def bounded(seconds=10, mb=512):
    "Fails what takes longer of a core, far longer of a clock, or grows by more memory."
    def late(*_): raise AssertionError(f"longer than {seconds} s")
    peak = resource.getrusage(0).ru_maxrss
    was = {s: signal.signal(s, late) for s in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds) # other processes take none of it
    signal.alarm(20 * seconds)
    faulthandler.dump_traceback_later(30 * seconds, exit=True, file=2) # if it hangs outside Python
    try: yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        for number, old in was.items(): signal.signal(number, old)
    assert resource.getrusage(0).ru_maxrss - peak < mb * 1024


# Pickles, opcode by opcode

def text(s): return b"X" + struct.pack("<I", len(s)) + s.encode()
def data(b): return b"B" + struct.pack("<I", len(b)) + b
def whole(n): return b"J" + struct.pack("<i", n)
def named(module, name): return text(module) + text(name) + b"\x93"
def tup(*items): return b"(" + b"".join(items) + b"t"
def call(f, *args): return f + tup(*args) + b"R"
def table(*pairs): return b"}(" + b"".join(pairs) + b"u"


NDARRAY, DTYPE = named("numpy", "ndarray"), named("numpy", "dtype")
REBUILD = named("numpy.core.multiarray", "_reconstruct")
SCALAR, ENCODE = named("numpy.core.multiarray", "scalar"), named("_codecs", "encode")
OBJECTS = call(NDARRAY, tup(whole(1)), text("O"))


def filled(shape, dtype, content):
    "An array with a state of any kind."
    return call(REBUILD, NDARRAY, tup(whole(0)), data(b"b")) + tup(
        whole(1), shape, dtype, b"\x89", content) + b"b"


def laughs(depth):
    out = b"(" + text("ha") * 10 + b"t\x94"
    for i in range(depth): out += b"(" + (b"h" + bytes([i])) * 10 + b"t\x94"
    return out


ALIAS = call(NDARRAY, tup(whole(8)), text("u1"), OBJECTS) + b"(" + whole(0) + whole(65) + b"u"
EVIL = {
    "object array from bytes": call(NDARRAY, tup(whole(2)), text("O"), data(bytes(16))),
    "byte alias of an object array": ALIAS,
    "dtype that is an array": filled(tup(whole(3)), OBJECTS, b"](" + whole(1) * 3 + b"e"),
    "shape that is arrays": filled(tup(call(NDARRAY, b")", text("u1"), data(b"\x10"))),
                                   call(DTYPE, text("O")), b"]"),
    "uninitialised memory": call(NDARRAY, tup(whole(100)), text("f8")),
    "zero strides": call(NDARRAY, tup(whole(10**7)), text("f8"), data(bytes(8)), whole(0),
                         tup(whole(0))),
    "too few bytes": filled(tup(whole(2**30)), call(DTYPE, text("u1")), data(b"a")),
    "negative shape": filled(tup(whole(-1), whole(-1)), call(DTYPE, text("u1")), data(b"a")),
    "objects from bytes": filled(tup(whole(8)), call(DTYPE, text("O")), data(bytes(8))),
    "items of no size": filled(tup(whole(2**30)), call(DTYPE, text("U0")), data(b"")),
    "records": call(DTYPE, text("O,i8")), "dates": call(DTYPE, text("M8[s]")),
    "a dtype nested in tuples": call(DTYPE, laughs(6)),
    "a function's defaults": ENCODE + tup(b"N", table(text("__defaults__"), b"N")) + b"b",
    "a class's attribute": DTYPE + tup(b"N", table(text("x"), whole(1))) + b"b",
    "a function as a value": ENCODE, "an unfilled array": call(REBUILD, NDARRAY, b")", data(b"b")),
    "a subclass": call(REBUILD, DTYPE, b")", data(b"b")), "NEWOBJ": ENCODE + b")\x81",
    "INST": b"(ios\nsystem\n", "persistent id": b"Pos.system\n", "extension": b"\x82\x01",
    "a set": b"\x8f", "an array as a key": table(filled(tup(), call(DTYPE, text("u1")), data(
        b"a")), whole(1)), "a tuple as a key": table(laughs(2), whole(1)),
    "memo far away": whole(1) + b"r\xff\xff\xff\xff" + b"h\x07",
    "long of 2 GB": b"\x8b\xff\xff\xff\x7fx", "bytes of 2^62": b"\x8e" + struct.pack("<Q", 2**62),
    "a number of 6,000 digits": b"I" + b"9" * 6000 + b"\n", "2^80": b"\x8a\x0b" + b"\x7f" * 11,
    "deep list": b"]" * 10**5 + b"a" * (10**5 - 1), "deep tuple": b")" + b"\x85" * 10**5,
    "half a character": b"X\x03\0\0\0\xed\xa0\x80", "laughs": laughs(12),
    "an array fetched often": b"(" + filled(tup(whole(10**6)), call(DTYPE, text("u1")), data(
        bytes(10**6))) + b"\x94" + b"h\x00" * 10**4 + b"l",
    "nothing": b"", "two values": whole(1) * 2, "mark gone": b"t", "below the stack": b"000",
    **{f"{m}.{n}": call(named(m, n), text("touch owned")) for m, n in (
        ("os", "system"), ("builtins", "eval"), ("numpy", "load"), ("numpy.core", "os"),
        ("numpy", "ndarray.tofile"), ("numpy", "core.multiarray._reconstruct"))}}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVIL)
def test_pickle_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for evil in (b"\x80\x04" + EVIL[name] + b".",
                 b"\x80\x04" + table(text("sequences"), EVIL[name]) + b"."):
        with bounded(), pytest.raises(DataError, match="t.npy"): unpickle(evil, "t.npy")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|O", "fortran_order": False,
                                                "shape": ()})
    Path("t.npy").write_bytes(head.getvalue() + evil)
    with bounded(), pytest.raises(DataError, match="t.npy"):
        list(open_dataset("t.npy"))
    assert os.listdir() == ["t.npy"]


def test_no_function_of_ours_is_in_what_a_pickle_gives():
    whole_thing = {"a": [np.arange(3.), np.array([None, "x"], object)], "b": np.float32(2)}
    for protocol in range(6):
        back = unpickle(pickle.dumps(whole_thing, protocol))
        assert back["a"][0].tolist() == [0, 1, 2] and back["a"][1].tolist() == [None, "x"]
        assert back["b"] == 2 and type(back["a"][0]) is np.ndarray


def test_list_in_itself_is_finite():
    with bounded(): assert unpickle(b"\x80\x04]\x94h\x00a.") == [[]]


def header(descr, shape, more=b""):
    f = io.BytesIO()
    np.lib.format.write_array_header_2_0(f, {"descr": descr, "fortran_order": False,
                                             "shape": shape})
    return f.getvalue() + more


def test_a_file_that_may_not_be_read_has_no_hash(tmp_path, monkeypatch):
    def refused(*_): raise PermissionError(13, "Permission denied")
    (tmp_path/"mice.csv").write_text("x")
    monkeypatch.setattr("mabe_nb.files.open", refused, raising=False)
    with pytest.raises(DataError, match="mice.csv: cannot be read: Permission denied"):
        file_hash(tmp_path/"mice.csv")


@pytest.mark.parametrize("content", [
    header("|S0", (2**40,)), header("<U0", (10**9, 2, 2, 7)), header("|V0", (2**40,)),
    header("<f8", (0, 2**62)), header("<f8", (2**60,)), header("<f8", (-1,)),
    b"\x93NUMPY\x01\x00" + struct.pack("<H", 60000) + b"(" * 50000,
    b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", b"\x93NUMPY\x09\x09", b""])
def test_npy_header(content, tmp_path):
    (tmp_path/"t.npy").write_bytes(content)
    for read in (read_npy, read_calms21):
        with bounded(), pytest.raises(DataError, match="t.npy"): read(tmp_path/"t.npy")


@pytest.mark.slow
def test_npz_may_not_unpack_to_far_more(tmp_path):
    np.savez_compressed(tmp_path/"b.npz", keypoints=np.zeros((10, 10**6, 2, 7), "f4"))
    with bounded(mb=600), pytest.raises(DataError, match="unpacks to"):
        read_npz(tmp_path/"b.npz")


def test_npz_of_packed_poses_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("mabe_nb.data.formats.binary.npy.ROOM", 2**16)
    walk = np.random.default_rng(0).normal(size=(20_000, 14)).cumsum(0).round()
    np.savez_compressed(tmp_path/"p.npz", keypoints=walk.astype("f8"))
    assert walk.size * 8 > 4 * (tmp_path/"p.npz").stat().st_size
    assert read_npz(tmp_path/"p.npz")["keypoints"].shape == walk.shape


def test_npz_that_holds_no_array(tmp_path):
    with zipfile.ZipFile(tmp_path/"b.npz", "w") as z: z.writestr("keypoints.npy", b"x")
    with pytest.raises(DataError, match="of no array"): read_npz(tmp_path/"b.npz")


# HDF5

def jabs(path, frames=50, **points):
    with h5py.File(path, "w") as f:
        of = f.create_group("poseest")
        of.attrs["version"] = [2, 0]
        of.create_dataset("points", (frames, 12, 2), "u2", **points)
        of.create_dataset("confidence", (frames, 12), "f4", fillvalue=1)
    return path


def test_hdf_reads_no_other_file(tmp_path):
    (tmp_path/"secret").write_bytes(b"TOPSECRET-TOKEN-" * 600)
    jabs(tmp_path/"a.h5", external=[(str(tmp_path/"secret"), 0, h5py.h5f.UNLIMITED)])
    jabs(tmp_path/"good.h5")
    with h5py.File(tmp_path/"b.h5", "w") as f:
        f["poseest"] = h5py.ExternalLink("good.h5", "/poseest")
    with h5py.File(tmp_path/"c.h5", "w") as f:
        layout = h5py.VirtualLayout((50, 12, 2), "u2")
        layout[:] = h5py.VirtualSource(tmp_path/"good.h5", "poseest/points", (50, 12, 2))
        f.create_virtual_dataset("poseest/points", layout)
        f["poseest/confidence"] = np.ones((50, 12))
    for name in ("a.h5", "b.h5", "c.h5"):
        with pytest.raises(DataError, match="another file|other files"):
            read_poses(tmp_path/name, fps=30)
    with h5py.File(tmp_path/"d.h5", "w") as f: # within the file a link is only a name
        with h5py.File(tmp_path/"good.h5") as g: g.copy("poseest", f, "real")
        f["poseest"], f["real/loop"] = h5py.SoftLink("/real"), h5py.SoftLink("/real")
    assert len(read_poses(tmp_path/"d.h5", fps=30)) == 50


def test_hdf_with_a_pickle_is_named(tmp_path):
    with h5py.File(tmp_path/"p.dlc.h5", "w") as f:
        f.create_group("df").attrs["pandas_type"] = "frame_table"
        table = np.zeros(5, [("index", "i8"), ("values_block_0", "f8", (6,))])
        f["df"]["table"] = table
        f["df/table"].attrs["values_block_0_kind"] = np.void(pickle.dumps(os.getcwd))
    with pytest.raises(DataError, match="p.dlc.h5: refused: its pickle"):
        read_poses(tmp_path/"p.dlc.h5", fps=30)


@pytest.mark.parametrize("names,says", [
    (lambda f: [f.__setitem__(f"poseest/x{k}", f["poseest/points"]) for k in range(400)],
     "far more than it holds"),
    (lambda f: f.__setitem__("poseest/again", f["poseest"]), "another name of a group"),
    (lambda f: f.__setitem__("other", f["poseest"]), "another name of a group"),
    (lambda f: doubled(f, 40), "another name of a group")])
@pytest.mark.parametrize("suffix", [".h5", ".nwb", ".slp", ".nc"])
def test_hdf_of_many_names(tmp_path, names, says, suffix):
    "One array under 400 names, groups that hold themselves, 2^40 ways through 40 groups."
    path = tmp_path/f"a{suffix}"
    with h5py.File(jabs(path, 10**4, data=np.ones((10**4, 12, 2), "u2")), "a") as f: names(f)
    with bounded(20), pytest.raises(DataError, match=says): read_poses(path, fps=30)


def doubled(f, depth):
    for _ in range(depth):
        inner = f.create_group("a")
        f["b"], f = inner, inner


@pytest.mark.slow
def test_hdf_announces_what_it_holds(tmp_path):
    with bounded(), pytest.raises(DataError, match="far more than it holds"):
        read_poses(jabs(tmp_path/"a.h5", 10**6), fps=30)
    with h5py.File(jabs(tmp_path/"b.h5", 10**5), "a") as f:
        f["poseest"].attrs["version"] = [4, 0]
        for key, shape in (("points", (10**5, 1, 12, 2)), ("confidence", (10**5, 1, 12))):
            del f["poseest"][key]
            f.create_dataset(f"poseest/{key}", shape, "u2")
        f["poseest/instance_embed_id"] = np.full((10**5, 1), 99, "u1")
    with bounded(), pytest.raises(DataError, match="numbers its mice up to 99"):
        read_poses(tmp_path/"b.h5", fps=30)


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + b"\0" * 900])
@pytest.mark.parametrize("name", ["t.h5", "t.slp", "t.nwb"])
def test_hdf_that_is_none(name, content, tmp_path):
    (tmp_path/name).write_bytes(content)
    with bounded(), pytest.raises(DataError, match=name): read_poses(tmp_path/name, fps=30)


def test_slp_opens_no_video(tmp_path):
    sio = pytest.importorskip("sleap_io")
    os.mkfifo(tmp_path/"v.mp4")
    skeleton, track = sio.Skeleton(["nose", "tail"]), sio.Track("white")
    videos = [sio.Video(str(tmp_path/"v.mp4"), open_backend=False)]
    sio.save_file(sio.Labels([sio.LabeledFrame(video=videos[0], frame_idx=2, instances=[
        sio.PredictedInstance.from_numpy(np.ones((2, 2)), skeleton=skeleton, score=1.,
                                         point_scores=np.ones(2), track=track)])]),
                  str(tmp_path/"v.slp"))
    with bounded(): assert len(read_poses(tmp_path/"v.slp", fps=30)) == 3
    with h5py.File(tmp_path/"v.slp", "a") as f: f["frames"][0, "frame_idx"] = 2**40
    with bounded(), pytest.raises(DataError, match="frame"): read_poses(tmp_path/"v.slp", 30)


@pytest.mark.slow
def test_wide_csv_with_a_late_frame(tmp_path):
    names = [f"{p}" for i in range(5000) for p in (f"p{i}",) * 3]
    lines = [",".join(["scorer"] + ["s"] * 15000), ",".join(["bodyparts", *names]),
             ",".join(["coords"] + ["x", "y", "likelihood"] * 5000),
             ",".join(["90000"] + ["1"] * 15000)]
    (tmp_path/"w.csv").write_text("\n".join(lines))
    with bounded(20), pytest.raises(DataError, match="too wide"):
        read_poses(tmp_path/"w.csv", fps=30)


# What is no file

READERS = {
    ".npy": read_npy, ".npz": read_npz, ".json": read_json, ".yaml": yaml_settings,
    "dataset.yaml": read_settings, ".safetensors": lambda p: read_tensors(p, "mabe"),
    "thresholds.json": read_thresholds, "hash": file_hash, "boris.csv": read_boris,
    "submission.csv": read_submission, "calms.json": read_calms21, "videos.json": read_split,
    "train.csv": read_videos, "best.safetensors": load_classifier,
    **{end: lambda p: read_poses(p, 30) for end in (".csv", ".h5", ".slp", ".nwb", ".nc")}}


@pytest.mark.parametrize("name", READERS)
def test_pipe_device_or_folder_in_place_of_a_file(name, tmp_path):
    path = tmp_path/(f"t{name}" if name[0] == "." else name)
    for make in (os.mkfifo, os.mkdir, lambda p: os.symlink("/dev/zero", p)):
        make(path)
        with bounded(5), pytest.raises(DataError, match="expected a file"):
            READERS[name](path)
        path.rmdir() if path.is_dir() else path.unlink()
    os.mkfifo(tmp_path/"pipe")
    path.symlink_to(tmp_path/"pipe")
    with bounded(5), pytest.raises(DataError, match="is a pipe"): READERS[name](path)


def test_pipe_as_history(tmp_path):
    os.mkfifo(tmp_path/"history.csv")
    with bounded(5), pytest.raises(DataError, match="is a pipe"): read_history(tmp_path)


@pytest.mark.parametrize("kind", ["tracking", "annotation"])
def test_pipe_in_a_dataset_is_a_finding(kind, tmp_path, capsys):
    root = write_small(tmp_path/"data", ("1", "2"))
    path = root/f"train_{kind}"/"Ours"/"1.parquet"
    path.unlink()
    os.mkfifo(path)
    with bounded(20): assert cli.main(["audit", str(root), "--json"]) == 0
    defects = json.loads(capsys.readouterr().out)["defects"]
    assert [d["video_id"] for d in defects if "is a pipe" in d["message"]] == ["1"]


@pytest.mark.parametrize("flag", ["--thresholds", "--config"])
def test_pipe_behind_a_flag(flag, tmp_path, capsys):
    root = write_small(tmp_path/"data", ("1", "2"))
    os.mkfifo(tmp_path/"pipe")
    words = ["train", str(root), "--out", str(tmp_path/"run")] if flag == "--config" else \
        ["predict", str(tmp_path/"run"), str(root)]
    with bounded(20): assert cli.main([*words, flag, str(tmp_path/"pipe")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# JSON

ODD_JSON = ["[" * 10**5, "[" * 100 + "]" * 100, "9" * 5000, '{"a": 1, "a": 2}', '"\\ud800"',
            "", "{", '{"a": ' + "1" * 400 + "}"]


@pytest.mark.parametrize("odd", ODD_JSON)
def test_json_that_nobody_means(odd, tmp_path):
    with bounded(), pytest.raises(DataError): parse_json(odd)
    (tmp_path/"t.json").write_text(odd, encoding="utf-8")
    for read in (read_thresholds, read_calms21, read_split, read_json):
        with bounded(), pytest.raises(DataError, match="t.json"): read(tmp_path/"t.json")


def test_json_as_windows_writes_it(tmp_path):
    text = '{"lab": {"sniff": 0.4}}'
    (tmp_path/"t.json").write_text(text, encoding="utf-8-sig", newline="\r\n")
    assert read_thresholds(tmp_path/"t.json") == read_json(tmp_path/"t.json") == parse_json(text)


@pytest.mark.parametrize("odd", ['{}', '[]', 'null', '"x"', '{"train": ["1"]}',
                                 '{"train": [1], "valid": []}', '{"train": {}, "valid": []}'])
def test_videos_of_a_run_have_one_form(odd, tmp_path):
    (tmp_path/"videos.json").write_text(odd)
    with pytest.raises(DataError, match="which videos a run has"):
        read_split(tmp_path/"videos.json")


def test_yaml_of_a_folder(tmp_path):
    laughs = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    for odd in ("fps: 2001-99-99\n", "[" * 5000, "fps: &a [*a]\n", "actions: *x\n",
                laughs.replace("a11", "actions"), "fps: ٣\n", "fps: [1\n"):
        (tmp_path/"dataset.yaml").write_text(odd)
        with bounded(), pytest.raises(MabeError): read_settings(tmp_path/"dataset.yaml")


# Runs and checkpoints

@pytest.fixture(scope="module")
def colony(): return RecordingList([colony_video(k, minutes=0.1) for k in (0, 3, 6)])


@pytest.fixture(scope="module")
def run(colony, tmp_path_factory):
    "A tiny run folder."
    root = tmp_path_factory.mktemp("run")
    train(colony, root/"run", TrainConfig(epochs=1, conv_channels=[4], lstm_hidden=4,
          device="cpu", features="coords"), ["1", "4"], ["7"], cache=root/"cache")
    return root/"run"


def altered(run, to, change, **more):
    "The weights of a run with another header."
    tensors, about = read_tensors(run/"best.safetensors", "mabe")
    change(about)
    save_file(tensors | more, to, {"mabe": json.dumps(about)})
    return to


def settings(**of): return lambda about: about["config"].update(of)


@pytest.mark.parametrize("change", [
    settings(hidden_size=8192, num_layers=128), settings(conv_channels=[8192] * 5000),
    settings(model_type="transformer", hidden_size=8192, num_layers=128),
    settings(lstm_layers=64), settings(hidden_size=8192), settings(smooth_ms=float("nan")),
    lambda about: about["inputs"].update(rate=1e-320), lambda about: about["inputs"].update(rate=1e9),
    settings(lstm_hidden=10**400), lambda about: about.pop("actions"),
    lambda about: about.update(actions=["a"] * 10**4, possible=[True] * (10**4 + 1))])
def test_checkpoint_larger_than_its_weights(run, change, tmp_path):
    with bounded(5, 200), pytest.raises(DataError, match="w.safetensors"):
        load_classifier(altered(run, tmp_path/"w.safetensors", change))


def test_checkpoint_that_smooths_for_ever(run, colony, tmp_path):
    path = altered(run, tmp_path/"w.safetensors", settings(smooth_ms=1e300))
    with bounded(20): load_classifier(path).predict(colony, ["7"], cache=tmp_path/"cache")


def test_bodies_that_share_no_part_are_refused(run, colony, tmp_path):
    other = RecordingList([rec.replace(parts=tuple(f"my_{p}" for p in rec.parts))
                           for rec in colony])
    clf = load_classifier(run/"best.safetensors")
    with pytest.raises(DataError, match="my_.*none of those that the classifier learned"):
        clf.predict(other, cache=tmp_path/"cache")
    assert not (tmp_path/"cache").exists()
    check_body(clf.parts, colony)


def test_bodies_that_a_table_lists_are_not_read(tmp_path, monkeypatch):
    write_colony(tmp_path/"colony", videos=2, minutes=0.05)
    data = open_dataset(tmp_path/"colony")
    parts = data["1"].parts
    monkeypatch.setattr(type(data), "__getitem__", lambda self, video: 1 / 0)
    check_body(parts, data)
    with pytest.raises(ZeroDivisionError): check_body(("my_nose",), data)


@contextmanager
def small_disk(size):
    "No file may grow beyond `size` bytes."
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, was[1]))
    try: yield
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, was)


def test_weights_that_cannot_be_written(tmp_path):
    write_tensors(tmp_path/"w.safetensors", {"a": torch.zeros(3)}, {"about": "x"})
    before = (tmp_path/"w.safetensors").read_bytes()
    for tensors in ({"a": torch.zeros(10**5)}, {"a": np.zeros(10**5)}):
        with small_disk(10_000), pytest.raises(DataError, match="w.safetensors.*written"):
            write_tensors(tmp_path/"w.safetensors", tensors, {"about": "x"})
    assert (tmp_path/"w.safetensors").read_bytes() == before
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_probabilities_of_a_recipe_on_a_full_disk_are_a_sentence(tmp_path):
    table = pd.DataFrame({c: [9] for c in ("video_id", "lab_id", "agent", "target", "frames",
                                           "fps")})
    some = [OutOfFold(np.zeros((2, 5000, 3), "f4"), None, 9, 0)]
    save_out_of_fold(tmp_path/"oof", ["net", "trees"], table, some)
    with small_disk(10_000), pytest.raises(DataError, match="net.npy.*space"):
        save_out_of_fold(tmp_path/"oof", ["net", "trees"], table, some)
    assert sorted(os.listdir(tmp_path/"oof")) == ["net.npy", "sequences.csv", "trees.npy"]
    assert np.load(tmp_path/"oof"/"net.npy", allow_pickle=False).shape == (5000, 3)


def test_training_on_a_full_disk_is_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    root = write_small(tmp_path/"data", ("1", "2", "3"))
    words = ["train", str(root), "--epochs", "1", "--features", "coords", "--device", "cpu",
             "--conv-channels", "64,64", "--out"]
    assert cli.main([*words, str(tmp_path/"a")]) == 0
    capsys.readouterr()
    with small_disk(20_000): assert cli.main([*words, str(tmp_path/"b")]) == 2
    err = capsys.readouterr().err.strip()
    assert str(tmp_path/"b") in err and "written" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("err", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"),
                                 RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_too_little_memory_has_a_remedy(err, tmp_path, monkeypatch, capsys):
    from mabe_nb.train import runs
    def full(*_): raise err
    monkeypatch.setattr(runs, "load_training_set", full)
    root = write_small(tmp_path/"data", ("1", "2", "3"))
    assert cli.main(["train", str(root), "--out", str(tmp_path/"run"), "--device", "cpu"]) == 2
    assert "--batch-size 8 --gradient-accumulation-steps 2" in capsys.readouterr().err


# Names

NAMES = ["None", "NA", "nan", "=1+1", "@sum", "-x", "+x", "a\rb", "\x1b[2Jgone", "'=q", "null"]


def test_names_go_round_through_a_spreadsheet(tmp_path):
    made = pd.DataFrame({"row_id": range(len(NAMES)), "video_id": 7, "agent_id": "mouse1",
                         "target_id": "mouse2", "action": NAMES, "start_frame": 0,
                         "stop_frame": 5})
    write_names(tmp_path/"s.csv", made)
    back = read_submission(tmp_path/"s.csv")
    assert back.action.tolist() == NAMES and back.start_frame.tolist() == [0] * len(NAMES)
    cells = [line.split(",")[4].strip('"') for line in
             (tmp_path/"s.csv").read_bytes().decode().split("\n")[1:-1]]
    assert not [c for c in cells if c[:1] in tuple("=+-@")]


def test_predict_and_score_keep_names_apart(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    names, rng, root = NAMES[:9], np.random.default_rng(0), tmp_path/"data"
    for video in ("1", "2", "3"):
        write_parquet(root, long_table(rng.uniform(1, 500, (400, 2, 3, 2))), video)
        write_parquet(root, bout_rows([(1, 2, a, 40 * i, 40 * i + 40)
                                       for i, a in enumerate(names)]), video, "annotation")
    write_csv(root, [row(v, whitelist=[f"mouse1,mouse2,{a}" for a in names])
                     for v in ("1", "2", "3")])
    assert cli.main(["train", str(root), "--epochs", "1", "--features", "coords", "--out",
                     str(tmp_path/"run"), "--device", "cpu", "--valid-videos", "3"]) == 0
    bars = {"*": dict.fromkeys(names, 0.0)}
    (tmp_path/"t.json").write_text(json.dumps(bars))
    assert cli.main(["predict", str(tmp_path/"run"), str(root), "--out",
                     str(tmp_path/"s.csv"), "--thresholds", str(tmp_path/"t.json")]) == 0
    assert cli.main(["score", str(root), str(tmp_path/"s.csv")]) == 0
    said = capsys.readouterr()
    assert not {"\x1b", "\r"} & set(said.out + said.err) and r"\x1b[2Jgone" in said.out
    made = read_submission(tmp_path/"s.csv")
    assert len(made) and set(made.action) <= set(names)


def test_audit_looks_at_the_videos_that_were_named(tmp_path, capsys):
    root = write_small(tmp_path/"data", ("1", "2", "3"))
    assert cli.main(["audit", str(root), "--videos", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["videos"] == 1
    assert cli.main(["audit", str(root), "--videos", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


# Tables

def test_boris_cell_of_200_kb(tmp_path):
    (tmp_path/"b.csv").write_text('Time,Behavior\n1,"' + "x" * 200_000 + '"\n')
    with pytest.raises(DataError, match="b.csv.*field"): read_boris(tmp_path/"b.csv")


def test_numbers_are_written_in_plain_digits():
    odd = ("1_0", "٣٠", "nan", "inf", "1e999", "", " ", "0x10", None, 10**400, "1 0", [])
    assert np.isnan([parse_number(x) for x in odd]).all()
    assert [parse_number(x) for x in ("29.97", " 30 ", "1e3", "-.5", 7)] == [29.97, 30, 1e3,
                                                                           -.5, 7]


@pytest.mark.parametrize("rate", ["1_0", "٣٠", "1e-9", "1e9", "0", "-1", "nan", "\x1b[2J"])
def test_frame_rate(rate, tmp_path):
    root = write_small(tmp_path/"data", ("1",))
    write_csv(root, [row("1", frames_per_second=rate)])
    with pytest.raises(DataError, match="frames_per_second"): open_dataset(root)["1"]


def test_whitelist_that_is_odd_json(tmp_path):
    root = write_small(tmp_path/"data", ("1",))
    for odd in ('["mouse1,mouse2,\\ud800"]', "[" * 10**5, "[" + "9" * 5000 + "]"):
        write_csv(root, [row("1", whitelist=odd)])
        with pytest.raises(DataError, match="behaviors_labeled"): open_dataset(root)["1"]

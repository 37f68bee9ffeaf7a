"""Pose files of MARS, as its own code writes them, beside annotations of Bento."""
import json
import struct
import zlib

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from mabe_nb.cli import main
from mabe_nb.data.calms21 import MARS_PARTS, is_mars, mars_poses
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.formats.binary.mat import mat_arrays, read_mat
from mabe_nb.data.poses import pose_source, read_poses
from mabe_nb.errors import DataError, MabeError

BENTO = "Bento annotation file\nMovie file(s):\n\nStimulus name:\nAnnotation start frame: 1\n" \
        "Annotation stop frame: {stop}\nAnnotation framerate: 30.000000\n\nList of channels:\nCh1\n\n" \
        "List of annotations:\n{names}\n\nCh1----------\n"


def arrays(seed=0, frames=600):
    "What MARS keeps of a film, and the recording it is of."
    rec = make_recording(seed, frames, 2, "A7")
    at = [rec.parts.index(p) for p in MARS_PARTS]
    xy = rec.xy[:, :, at].transpose(0, 1, 3, 2).astype(float)
    return {"keypoints": xy, "scores": np.full((frames, 2, 7), 0.75), "bbox": np.zeros((frames, 2, 4)),
            "bscores": np.zeros((frames, 2))}, rec


def bento(path, rec):
    "What the first mouse does to the second, as Bento writes it."
    own = rec.bouts[(rec.bouts.agent == "mouse1") & (rec.bouts.target == "mouse2")]
    text = BENTO.format(stop=len(rec), names="\n".join(sorted({*own.action})))
    for action, some in own.groupby("action"):
        text += f">{action}\nStart\tStop\tDuration\n" + "".join(
            f"{b.start + 1}\t{b.stop}\t{b.stop - b.start}\n" for b in some.itertuples()) + "\n"
    path.write_text(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "Films of three pairs as MARS leaves them: its output in a folder for each."
    root = tmp_path_factory.mktemp("mars")
    for k in range(3):
        found, rec = arrays(k, 1800)
        into = root/"output_v1_8"/f"pair{k}"
        into.mkdir(parents=True)
        savemat(into/f"pair{k}_pose_top_v1_8.mat", found)
        bento(root/f"pair{k}.annot", rec)
    return root


def test_arrays_become_points_with_the_names_of_mars(tmp_path):
    found, rec = arrays()
    (tmp_path/"dataset.yaml").write_text("fps: 30")
    for suffix in ("mat", "json"):
        path = tmp_path/f"pair_pose_top_v1_8.{suffix}"
        if suffix == "mat": savemat(path, found)
        else: path.write_text(json.dumps({k: v.tolist() for k, v in found.items()}))
        assert pose_source(path) == "MARS"
        xy, sure, animals, parts = mars_poses(path)
        assert parts[1] == "ear_right" and animals == ["mouse1", "mouse2"] and (sure == 0.75).all()
        assert np.allclose(xy[:, 1, 0], rec.xy[:, 1, rec.parts.index("nose")], equal_nan=True)
        assert np.allclose(xy[:, 0, 1], rec.xy[:, 0, rec.parts.index("ear_right")], equal_nan=True)
        assert len(open_dataset(path)[open_dataset(path).ids[0]]) == 600
        path.unlink()


def test_a_folder_of_films_is_a_dataset(folder, tmp_path):
    data = open_dataset(folder)
    assert data.ids == ("pair0", "pair1", "pair2")
    found = match_files(data)
    assert {*found.table.tracker} == {"MARS"} and {*found.table.fps} == {30.0}
    assert [*found.table.annotation] == ["pair0.annot", "pair1.annot", "pair2.annot"]
    assert not [s for s in found.sentences if "swapped" in s], found.sentences
    (folder/"dataset.yaml").write_text("agent: mouse1\ntarget: mouse2\nalone: []\n")
    assert main(["train", str(folder), "--epochs", "1", "--device", "cpu", "--valid-videos", "pair2",
                 "--out", str(tmp_path/"run")]) == 0
    assert main(["predict", str(tmp_path/"run"), str(folder), "--out", str(tmp_path/"found.csv")]) == 0
    _, rec = arrays(1, 1800)
    own = rec.bouts[(rec.bouts.agent == "mouse1") & (rec.bouts.target == "mouse2")]
    want = {*own.itertuples(index=False, name=None)}
    assert {*open_dataset(folder)["pair1"].bouts.itertuples(index=False, name=None)} == want and want


@pytest.mark.parametrize("change, why", [
    (dict(keypoints=np.zeros((5, 2, 2, 6))), "shape"), (dict(keypoints=np.zeros((0, 2, 2, 7)), scores=np.zeros((0, 2, 7))), None),
    (dict(scores=np.zeros((4, 2, 7))), "scores have shape"), (dict(keypoints=np.zeros((5, 14))), "shape")])
def test_what_is_wrong_is_said(tmp_path, change, why):
    found = arrays(0, 5)[0] | change
    savemat(tmp_path/"a_pose_top_v1_8.mat", found)
    (tmp_path/"b_pose_top_v1_8.json").write_text(json.dumps({k: v.tolist() for k, v in found.items()}))
    for path in tmp_path.iterdir():
        with pytest.raises(DataError, match=why): mars_poses(path)
    assert is_mars(tmp_path/"a_pose_top_v1_8.mat") == (found["keypoints"].shape[2:] == (2, 7))


def test_scores_may_be_missing(tmp_path):
    savemat(tmp_path/"a.mat", {"keypoints": np.ones((5, 2, 2, 7))})
    xy, sure, *_ = mars_poses(tmp_path/"a.mat")
    assert xy.shape == (5, 2, 7, 2) and sure is None


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_arrays_of_matlab_are_those_that_scipy_reads(tmp_path, packed, dtype):
    rng = np.random.default_rng(0)
    some = {f"name{'x' * k}": rng.integers(0, 100, shape).astype(dtype) for k, shape in enumerate((
        (3, 4), (1, 1), (5, 2, 2, 7), (1, 40_000), (1, 3), (2, 0)))}
    others = {"text": "a film", "cells": np.array([1, "a"], object), "part": {"x": 1.0}, "z": np.array([1j])}
    savemat(tmp_path/"a.mat", others | some | {"last": np.arange(3.0)}, do_compression=packed)
    there = mat_arrays(tmp_path/"a.mat")
    assert [*there] == [*some, "last"]
    for name, values in loadmat(tmp_path/"a.mat").items():
        if name not in there: continue
        assert there[name][0] == values.shape
        mine = read_mat(tmp_path/"a.mat", name)
        assert mine.dtype == np.float64 and np.array_equal(mine, values)


def element(kind, data, order="<"):
    "An element of a MATLAB file, a short one within its tag."
    if len(data) <= 4: return struct.pack(order + "I", len(data) << 16 | kind) + data.ljust(4, b"\0")
    return struct.pack(order + "II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def matrix(shape, numbers, kind=6, order="<", name=b"x"):
    "An array with its numbers as an element."
    body = (element(6, struct.pack(order + "II", kind, 0), order)
            + element(5, np.array(shape, order + "i4").tobytes(), order) + element(1, name, order) + numbers)
    return struct.pack(order + "II", 14, len(body)) + body


def write_mat(path, *elements, order="<"):
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(order + "H", 0x100)
    path.write_bytes(head + (b"IM" if order == "<" else b"MI") + b"".join(elements))
    return path


@pytest.mark.parametrize("order", "<>")
def test_numbers_that_matlab_keeps_in_fewer_bytes(tmp_path, order):
    "Whole doubles are written as bytes; the other byte order."
    for values in (np.arange(12.0).reshape(3, 4), np.array([[7.0]])):
        numbers = element(2, values.astype("u1").tobytes(order="F"), order)
        path = write_mat(tmp_path/"a.mat", matrix(values.shape, numbers, order=order), order=order)
        assert np.array_equal(loadmat(path)["x"], values)
        assert np.array_equal(read_mat(path, "x"), values)


def test_what_is_no_array_is_passed_over(tmp_path):
    good = matrix((1, 2), element(9, np.arange(2.0).tobytes()), name=b"good")
    opaque = element(6, struct.pack("<II", 17, 0)) + element(1, b"abc") + element(1, b"MCOS")
    path = write_mat(tmp_path/"a.mat", struct.pack("<II", 14, len(opaque)) + opaque,
                     matrix((-1, -2), element(9, np.arange(2.0).tobytes())), good)
    assert mat_arrays(path) == {"good": mat_arrays(path)["good"]} and mat_arrays(path)["good"][0] == (1, 2)


def test_packed_arrays_that_promise_too_much(tmp_path):
    big = matrix((2**31 - 1, 2**31 - 1), element(9, np.arange(2.0).tobytes()))
    packed = zlib.compress(big)
    path = write_mat(tmp_path/"a.mat", struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(DataError, match="another shape"): read_mat(path, "x")
    bomb = zlib.compress(matrix((2**31 - 1, 64), struct.pack("<II", 9, 0x7fffff00) + bytes(2**27)))
    path = write_mat(tmp_path/"b.mat", struct.pack("<II", 15, len(bomb)) + bomb)
    with pytest.raises(DataError, match="another shape"): read_mat(path, "x")
    path = write_mat(tmp_path/"c.mat", struct.pack("<II", 15, len(packed)) + packed[::-1])
    with pytest.raises(DataError, match="cannot be read"): mat_arrays(path)


def test_other_files_of_matlab_are_not_read(tmp_path):
    trx = tmp_path/"other.mat"
    savemat(trx, {"cage": {"x": np.arange(4.0)}, "keypoints": "here"})
    assert not is_mars(trx)
    with pytest.raises(DataError): pose_source(trx)
    late = tmp_path/"late.mat" # a bomb: it says that it holds a terabyte
    savemat(late, {"keypoints": np.zeros((3, 2, 2, 7))})
    data = bytearray(late.read_bytes())
    at = data.index(np.array([3, 2, 2, 7], "<i4").tobytes())
    data[at:at + 4] = np.array([2**31 - 1], "<i4").tobytes()
    late.write_bytes(data)
    with pytest.raises(DataError, match="another shape"): mars_poses(late)
    for name, data in (("cut", late.read_bytes()[:200]), ("empty", b""), ("text", b"MATLAB")):
        (tmp_path/f"{name}.mat").write_bytes(data)
        with pytest.raises(MabeError): read_poses(tmp_path/f"{name}.mat", 30)
    (tmp_path/"b_pose_top_v1_8.json").write_text("[1, 2]")
    with pytest.raises(DataError): mars_poses(tmp_path/"b_pose_top_v1_8.json")

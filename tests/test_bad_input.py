"""Half-broken datasets through the command line: one sentence, or a finding."""
import json, shutil

import numpy as np
import pandas as pd
import pytest
from kaggle_files import (bout_rows, long_table, row, write_csv, write_parquet,
                          write_small)

from mabe_nb import cli

VIDEOS = ("1", "2", "3")


@pytest.fixture
def broken(tmp_path, monkeypatch, capsys):
    """Spoil video 2 of a small dataset; `prepare` and `audit` it.

    Returns exit code and standard error of `prepare`, and the kinds that `audit` finds
    (its exit code must be 0 unless the dataset cannot be opened at all).
    """
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    root = write_small(tmp_path/"data", VIDEOS, frames=60)
    good = [row(v) for v in VIDEOS]

    def run(spoil):
        spoil(root, good)
        code = cli.main(["prepare", str(root), "--features", "coords", "--workers", "1"])
        err = capsys.readouterr().err
        audited = cli.main(["audit", str(root), "--json"])
        said = capsys.readouterr()
        kinds = {r["kind"] for r in json.loads(said.out)["defects"]} if not audited else None
        assert (audited == 0) == (kinds is not None) and "Traceback" not in err + said.err
        return code, err, kinds

    return run


def tracking(change):
    "Spoil the tracking table of video 2."
    def spoil(root, rows):
        path = root/"train_tracking"/"Ours"/"2.parquet"
        table = change(pd.read_parquet(path))
        table.to_parquet(path, index=False)
    return spoil


def annotation(*bouts):
    "Give video 2 these bouts."
    return lambda root, rows: write_parquet(root, bout_rows(bouts), "2", "annotation")


def table(**values):
    "Change the row of video 2 in train.csv."
    def spoil(root, rows): write_csv(root, [rows[0], rows[1] | values, rows[2]])
    return spoil


def cut(root, rows):
    path = root/"train_tracking"/"Ours"/"2.parquet"
    path.write_bytes(path.read_bytes()[:-200])


def untracked(root, rows): (root/"train_tracking"/"Ours"/"2.parquet").unlink()


def unannotated(root, rows): (root/"train_annotation"/"Ours"/"2.parquet").unlink()


def stray(root, rows): write_parquet(root, bout_rows([(1, 2, "chase", 1, 2)]), "9",
                                     "annotation")


def swapped(table):
    "Mice 1 and 2 swap names in frame 30."
    now = table.video_frame == 30
    return table.assign(mouse_id=table.mouse_id.where(~now, 3 - table.mouse_id)
                        .astype("int8"))


def as_text(table):
    x = table.x.astype(object)
    x[7] = "oops"
    return table.assign(x=x.astype(str))


def frame(value):
    def change(t):
        frames = t.video_frame.astype("int64")
        frames.iloc[5] = value
        return t.assign(video_frame=frames)
    return change


def mouse(value):
    def change(t):
        mice = t.mouse_id.copy()
        mice.iloc[:3] = value
        return t.assign(mouse_id=mice)
    return change


ERRORS = {
    "truncated parquet": (cut, ["2.parquet"]),
    "missing column": (tracking(lambda t: t.drop(columns="y")), ["2.parquet", "'y'"]),
    "text in a number column": (tracking(as_text), ["2.parquet", "oops"]),
    "negative frame": (tracking(frame(-4)), ["2.parquet", "-4"]),
    "absurd frame": (tracking(frame(2**31)), ["2.parquet", str(2**31)]),
    "large frame": (tracking(frame(2**31 - 1)), ["2.parquet", "2,147,483,647"]),
    "no rows": (tracking(lambda t: t[:0]), ["2.parquet"]),
    "broken JSON": (table(behaviors_labeled='["mouse1,mouse2,chase"'), ["train.csv",
                                                                       "row 3"]),
    "no tracking file": (untracked, ["2.parquet"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_unusable_video_is_one_sentence_and_the_audit_goes_on(broken, name):
    spoil, words = ERRORS[name]
    code, err, kinds = broken(spoil)
    assert code == 2 and len(err.strip().splitlines()) == 1, err
    assert all(w in err for w in words) and "--skip-broken" in err, err
    assert "unreadable" in kinds


@pytest.mark.parametrize("key, value", [("video_id", "../2"), ("lab_id", "../Ours"),
                                        ("lab_id", "/etc"), ("video_id", "..")])
def test_ids_that_leave_the_folder_are_refused_at_once(broken, key, value):
    code, err, kinds = broken(table(**{key: value}))
    assert code == 2 and "train.csv" in err and "row 3" in err and kinds is None


FINDINGS = {
    "unknown mouse": (tracking(mouse(9)), "unknown_mouse"),
    "unknown part": (tracking(lambda t: t.assign(bodypart=t.bodypart.replace(
        "neck", "antenna"))), "unlisted_parts"),
    "duplicated rows": (tracking(lambda t: pd.concat([t, t[:9]])), "double_rows"),
    "duration beyond all measure": (table(video_duration_sec="1e308"), "fps_mismatch"),
    "duration below all measure": (table(video_duration_sec="-1e308"), "fps_mismatch"),
    "quoted token": (table(behaviors_labeled='["\'mouse1\',\'mouse2\',\'chase\'"]'),
                     "quoted_tokens"),
    "bout outside": (annotation((1, 2, "chase", 50, 900)), "bouts_outside"),
    "bout of no length": (annotation((1, 2, "chase", 5, 5)), "empty_bouts"),
    "annotation without tracking": (stray, "annotation_without_row"),
    "tracking without annotation": (unannotated, "no_annotation"),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_usable_video_is_used_and_told_about(broken, name):
    spoil, kind = FINDINGS[name]
    code, err, kinds = broken(spoil)
    assert code == 0, err
    assert kind in kinds, kinds


def test_mice_swapped_in_one_frame_are_found(tmp_path, monkeypatch, capsys):
    "On mice that walk: in noise there is nothing to tell a swap by."
    t = np.arange(90.)
    xy = np.zeros((90, 2, 3, 2), np.float32)
    xy[..., 0] = 100 + t[:, None, None] + np.array([0, 200])[:, None] + np.array([40, 20, 0])
    xy[..., 1] = 100 + np.array([0, 150])[:, None]
    write_csv(tmp_path, [row("2")])
    write_parquet(tmp_path, bout_rows([(1, 2, "chase", 10, 20)]), "2", "annotation")
    found = []
    for change in (lambda t: t, swapped):
        write_parquet(tmp_path, change(long_table(xy)), "2")
        assert cli.main(["audit", str(tmp_path), "--json"]) == 0
        found.append({r["kind"] for r in json.loads(capsys.readouterr().out)["defects"]})
    assert "identity_swaps" not in found[0] and "identity_swaps" in found[1]


def test_calms21_with_another_vocabulary(tmp_path, capsys):
    T = 40
    sequence = {"keypoints": np.random.default_rng(0).random((T, 2, 2, 7)).tolist(),
                "scores": np.ones((T, 2, 7)).tolist(),
                "annotations": [5] * 20 + [7] * 20,
                "metadata": {"vocab": {"groom": 5, "other": 7}}}
    (tmp_path/"a.json").write_text(json.dumps({"g": {"s": sequence}}))
    assert cli.main(["audit", str(tmp_path/"a.json"), "--json"]) == 0
    capsys.readouterr()
    sequence["annotations"][3] = 6
    (tmp_path/"a.json").write_text(json.dumps({"g": {"s": sequence}}))
    assert cli.main(["audit", str(tmp_path/"a.json")]) == 2
    err = capsys.readouterr().err
    assert "a.json" in err and "6" in err and len(err.strip().splitlines()) == 1


def test_swap_of_two_videos_columns_is_no_memory_bomb(broken):
    "Frames and x exchanged, as a careless join does."
    code, err, kinds = broken(tracking(lambda t: t.assign(
        video_frame=(t.x * 1e6).astype("int64"), x=t.video_frame.astype(float))))
    assert code == 2 and "2.parquet" in err


@pytest.mark.parametrize("rows, words", [
    ([], "has no videos"), ([row("1"), row("2")], "and 2 unlabelled")])
def test_nothing_to_prepare_names_no_flag_that_is_not_there(broken, rows, words):
    def spoil(root, good):
        for path in root.glob("train_annotation/*/*"): path.unlink()
        if rows: write_csv(root, rows)
        else: (root/"train.csv").write_text(",".join(row()) + "\n")
    code, err, _ = broken(spoil)
    assert code == 2 and words in err and "--unlabelled" not in err, err


@pytest.mark.parametrize("wrong, says", [
    (3, "'3' is no dataset"), ([3], "is no dataset"), ([], "is no dataset"),
    (None, "is no dataset"), ("files", "files: does not exist; expected a file of poses or a folder")])
def test_a_wrong_type_gets_a_sentence(wrong, says, tmp_path, monkeypatch):
    from mabe_nb.data.audit import audit
    from mabe_nb.data.cache.prepare import prepare
    from mabe_nb.data.dataset import as_dataset, open_dataset
    from mabe_nb.data.splits import groups, labelled_groups
    from mabe_nb.errors import DataError
    from mabe_nb.train.ensemble.recipe import train_recipe
    from mabe_nb.train.runs import train
    monkeypatch.chdir(tmp_path)
    calls = [as_dataset, prepare, labelled_groups, lambda d: train(d, tmp_path/"run"),
             lambda d: train_recipe(d, tmp_path/"best", "quick")]
    for call in calls + [audit, groups]*(wrong != []): # these take any iterable
        with pytest.raises(DataError) as caught: call(wrong)
        assert says in str(caught.value)
    with pytest.raises(DataError): open_dataset(wrong)
    assert not (tmp_path/"run").exists() and not (tmp_path/"best").exists()


@pytest.mark.parametrize("name, data, words", [
    ("a.h5", b"\x89HDF\r\n\x1a\n half", "a.h5: is truncated or no HDF5 file; looked for"),
    ("a.csv", b"", "a.csv: is empty; looked for"), ("a.mat", b"x", "a.mat: is no MATLAB file"),
    ("a.csv", b"time,x\n1,2\n", "a.csv: is no dataset; looked for"),
    ("a.docx", b"x", "a.docx: is no dataset; looked for")])
def test_a_file_alone_that_cannot_be_read_says_why(tmp_path, name, data, words):
    from mabe_nb.data.dataset import open_dataset
    from mabe_nb.errors import DataError
    (tmp_path/name).write_bytes(data)
    with pytest.raises(DataError, match=words): open_dataset(tmp_path/name)


def test_recordings_in_a_list_are_a_dataset(tmp_path, monkeypatch):
    from mabe_nb.data.colony.recording import make_recording
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.runs import train
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    recs = [make_recording(k, 300, video_id=f"v{k}") for k in range(3)]
    cfg = TrainConfig(epochs=1, conv_channels=[8], lstm_hidden=8, device="cpu")
    assert "valid" in train(recs, tmp_path/"run", cfg, valid_ids=["v2"])


def test_a_dataset_without_a_bout_is_learned_from(tmp_path, monkeypatch, capsys):
    "All frames are `other`: there is nothing to score, which is said."
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    root = write_small(tmp_path/"data", VIDEOS, frames=200)
    for v in VIDEOS: write_parquet(root, bout_rows([(1, 2, "chase", 1, 2)])[:0], v,
                                   "annotation")
    flags = ["--features", "coords", "--epochs", "1", "--device", "cpu"]
    code = cli.main(["train", str(root), "--out", str(tmp_path/"run"), *flags])
    said = capsys.readouterr()
    assert code == 0 and "macro F1 undefined" in said.out, said.err


def test_annotations_that_cannot_be_reached_are_not_absent(tmp_path, capsys):
    data = write_small(tmp_path/"data", ("1", "2"))
    [folder] = (data/"train_annotation").iterdir()
    shutil.rmtree(folder)
    folder.symlink_to(folder.name) # as a folder without permission, which root does not know
    assert cli.main(["prepare", str(data), "--features", "coords", "--out", str(tmp_path/"c")]) == 2
    assert "1.parquet, video 1: cannot be read" in capsys.readouterr().err

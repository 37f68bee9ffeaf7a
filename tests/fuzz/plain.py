"""A second opinion: what a damaged file says to its format's plain library.

A reader of ours may refuse a damaged file, and may leave out what it says it leaves out
(a `Finding`). A point or a bout that the file does not hold, or one of it that is gone
without a word, is silently wrong. Where the plain library cannot read the file either,
there is nothing to compare with.
"""
import csv
import json
import sqlite3
from collections import Counter
from contextlib import closing

import h5py
import numpy as np
import pandas as pd


class NoOpinion(Exception):
    "The plain library cannot read it."


def rows(xy, frames=None):
    "(frames, ..., 2) as (frame, x, y) of each point there is."
    with np.errstate(over="ignore"): xy = np.asarray(xy, "f8").astype("f4")
    if xy.size > 10**6: raise NoOpinion
    frames = np.arange(len(xy)) if frames is None else np.asarray(frames)
    flat = xy.reshape(len(xy), -1, 2)
    return Counter((float(f), float(x), float(y)) for f, points in zip(frames, flat)
                   for x, y in points if np.isfinite([x, y]).all())


def dlc_csv(path):
    table = pd.read_csv(path, header=[0, 1, 2, 3], index_col=0)
    if table.columns.duplicated().any(): raise NoOpinion
    return _dlc(table)


def _dlc(table):
    table.columns = table.columns.set_names(list("spbc"))
    heads = table.columns.droplevel("c").unique()
    xy = np.stack([table[(*h, c)].to_numpy("f8") for h in heads for c in "xy"], 1)
    return rows(xy.reshape(len(table), -1, 2), table.index)


def dlc_h5(path): return _dlc(pd.read_hdf(path))


def jabs(path):
    with h5py.File(path) as f:
        of = f["poseest"]
        xy = of["points"][:][..., ::-1].astype("f4")
        seen = np.arange(xy.shape[1]) < of["instance_count"][:][:, None]
        xy[~(seen[..., None] & (of["confidence"][:] > 0))] = np.nan
        return rows(xy)


def sleap(path):
    with h5py.File(path) as f: return rows(f["tracks"][:].transpose(3, 0, 2, 1))


def slp(path):
    "Points of predicted instances with a track, by their frame's number in the video."
    with h5py.File(path) as f:
        frame, one, points = f["frames"][:], f["instances"][:], f["pred_points"][:]
        tracks = len(f["tracks_json"])
    number = {r["frame_id"]: r["frame_idx"] for r in frame}
    out, least = Counter(), min(number.values())
    for r in one:
        of = points[int(r["point_id_start"]):int(r["point_id_end"])]
        if r["instance_type"] != 1 or not 0 <= r["track"] < tracks: raise NoOpinion
        out += Counter((float(number[r["frame_id"]]), float(np.float32(p["x"])),
                        float(np.float32(p["y"]))) for p in of
                       if p["visible"] and np.isfinite([p["x"], p["y"]]).all())
    if least < 0: raise NoOpinion
    return out


def nwb(path):
    with h5py.File(path) as f:
        found = []
        f.visititems(lambda n, o: found.append(o) if isinstance(o, h5py.Group) and "data" in o else None)
        xy = [o["data"][:] for o in found]
        if len({x.shape for x in xy}) > 1: raise NoOpinion
        return rows(np.stack(xy, 1))


def calms21(path):
    tree = json.loads(path.read_text()) if path.suffix == ".json" else np.load(
        path, allow_pickle=True).item()
    return _sequences(r for group in tree.values() for r in group.values())


def _sequences(records, order=(0, 1, 3, 2)):
    return sum((rows(np.asarray(r["keypoints"]).transpose(order)) for r in records), Counter())


def mabe22(path):
    tree = np.load(path, allow_pickle=True).item()
    return _sequences(tree["sequences"].values(), (0, 1, 2, 3))


def clips(path):
    with np.load(path) as f: return _sequences({"keypoints": k} for k in f["keypoints"])


def tracking(path):
    table = pd.read_parquet(path)
    if table.duplicated(["video_frame", "mouse_id", "bodypart"]).any(): raise NoOpinion
    table = table[table.mouse_id.isin([1, 2, 3, 4])]
    return rows(table[["x", "y"]].to_numpy("f8")[:, None], table.video_frame)


def bouts(table):
    return Counter((str(a), int(x), int(y)) for a, x, y in table)


def annotation(path):
    return bouts(pd.read_parquet(path)[["action", "start_frame", "stop_frame"]].values)


def boris(path, fps=30):
    "One subject's runs of START and STOP."
    out, running = [], {}
    with open(path, encoding="utf-8-sig", newline="") as f:
        for row in csv.DictReader(f):
            key = row["Subject"].strip(), row["Behavior"].strip()
            time = float(row["Time"]) * fps
            if row["Status"] == "START": running[key] = time
            elif row["Status"] == "POINT": running[key], row["Status"] = time, "STOP"
            if row["Status"] == "STOP":
                first = np.floor(running.pop(key) + 0.5)
                out.append((key[1], first, max(first + 1, np.floor(time + 0.5))))
    if not out: raise NoOpinion # one long line to the csv module, say
    return bouts(out)


def caltech(path):
    lines = path.read_text("utf-8-sig").splitlines()
    first = next(i for i, x in enumerate(lines) if x.startswith("S1:")) + 1
    cells = [x.split() for x in lines[first:] if len(x.split()) == 3]
    return bouts((c, int(a) - 1, b) for a, b, c in cells if c not in ("other", "base"))


def submission(path):
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return bouts(table[["action", "start_frame", "stop_frame"]].values)


def mouse_tracker(path):
    with closing(sqlite3.connect(path)) as db:
        known = {i for i, in db.execute("select ID from ANIMAL")}
        found = [r for r in db.execute("select FRAMENUMBER, ANIMALID, MASS_X, MASS_Y, FRONT_X, FRONT_Y, "
                                       "BACK_X, BACK_Y from DETECTION") if r[1] in known]
    xy = np.array([r[2:] for r in found], "f8").reshape(-1, 3, 2)
    xy[(xy < 0).any(-1) | ~(xy[:, :1, 0] >= 10)] = np.nan
    first = min(r[0] for r in found)
    last = {(r[0], r[1]): k for k, r in enumerate(found)} # of a frame that is there twice
    return rows(xy[[*last.values()]], [r[0] - first for r in (found[k] for k in last.values())])


def _ours_poses(path):
    from mabe_nb.data.poses import read_poses
    rec = read_poses(path, 30)
    return rows(rec.xy), rec.findings


def _ours_data(path):
    from mabe_nb.data.dataset import open_dataset
    recs = list(open_dataset(path))
    return sum((rows(r.xy) for r in recs), Counter()), [f for r in recs for f in r.findings]


def _ours_kaggle(path):
    from mabe_nb.data.dataset import open_dataset
    rec = open_dataset(path.parents[2])[path.stem]
    if "annotation" not in str(path.parent): return rows(rec.xy), rec.findings
    return bouts(rec.bouts[["action", "start", "stop"]].values), rec.findings


def _ours_bouts(path):
    from mabe_nb.data.annotations import read_boris
    from mabe_nb.data.formats.caltech import read_caltech
    found = (read_boris if path.suffix == ".csv" else read_caltech)(path, fps=30)
    return bouts(found[["action", "start", "stop"]].values), ()


def _ours_submission(path):
    from mabe_nb.analysis.measures import checked_submission
    from mabe_nb.kaggle.doctor import read_submission
    found = checked_submission(read_submission(path), path)
    return bouts(found[["action", "start_frame", "stop_frame"]].values), ()


PLAIN = { # File of the corpus -> its format's plain reader, and ours
    "dlc.csv": (dlc_csv, _ours_poses), "dlc.h5": (dlc_h5, _ours_poses),
    "dlc_table.h5": (dlc_h5, _ours_poses), "jabs.h5": (jabs, _ours_poses),
    "sleap.h5": (sleap, _ours_poses), "labels.slp": (slp, _ours_poses),
    "cage.sqlite": (mouse_tracker, _ours_poses),
    "poses.nwb": (nwb, _ours_poses), "calms21.json": (calms21, _ours_data),
    "calms21.npy": (calms21, _ours_data), "mabe22.npy": (mabe22, _ours_data),
    "clips.npz": (clips, _ours_data), "boris.csv": (boris, _ours_bouts),
    "caltech.txt": (caltech, _ours_bouts), "submission.csv": (submission, _ours_submission),
    **{f"kaggle/train_{kind}/Ours/{v}.parquet": (read, _ours_kaggle) for v in "12"
       for kind, read in (("tracking", tracking), ("annotation", annotation))}}


def compare(name, path):
    """How our reader's result differs from the plain one's: None, or a sentence.

    Raises `NoOpinion` where there is nothing to compare with, `MabeError` for a refusal.
    """
    plain, ours = PLAIN[name]
    here, findings = ours(path)
    try: there = plain(path)
    except BaseException as e: raise NoOpinion(f"{type(e).__name__}: {e}") from None
    cut = any(f.kind == "bouts_outside" for f in findings) # to the video's length
    if (more := here - there) and not cut: return f"not in the file: {len(more)}, such as {next(iter(more))}"
    if not findings and (lost := there - here):
        return f"gone without a word: {len(lost)}, such as {next(iter(lost))}"
    return None

"""A fixed corpus of small, good files of every kind that is read, by one seed each."""
import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))
from kaggle_files import write_small

JOB, GROUP, OUTPUTS = "261122-144352-a1d2b9", "261122-144352-a1d2c0", "261122-144352-a1d2c1"
VOCAB = {"attack": 0, "mount": 1, "other": 2}


def RNG(seed=0): return np.random.default_rng(seed)


def calms21(frames=12):
    rng = RNG()
    sequence = {"keypoints": rng.uniform(0, 1000, (frames, 2, 2, 7)),
                "scores": np.full((frames, 2, 7), 0.5), "annotations": np.arange(frames) % 3,
                "metadata": {"annotator-id": 0, "vocab": VOCAB}}
    return {"annotator-id_0": {"task1/train/m1": sequence, "task1/train/m2": sequence}}


def plain(value):
    if isinstance(value, dict): return {k: plain(v) for k, v in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def dlc(path, layout):
    columns = pd.MultiIndex.from_product([["net"], ["a", "b"], ["nose", "tail"], [
        "x", "y", "likelihood"]], names=["scorer", "individuals", "bodyparts", "coords"])
    table = pd.DataFrame(RNG().random((8, 12)), columns=columns)
    if layout == "csv": table.to_csv(path)
    else: table.to_hdf(path, key="tracks", format=layout)


def jabs(path):
    with h5py.File(path, "w") as f:
        of = f.create_group("poseest")
        of.attrs.update(version=[3, 0], cm_per_pixel=0.05)
        of["points"] = RNG().integers(1, 999, (8, 2, 12, 2)).astype("u2")
        of["confidence"] = np.ones((8, 2, 12), "f4")
        of["instance_count"] = np.full(8, 2, "u1")
        of["instance_track_id"] = np.tile([0, 1], (8, 1)).astype("u4")


def sleap(path):
    with h5py.File(path, "w") as f:
        f["tracks"] = RNG().random((2, 2, 3, 8))
        f["track_names"], f["node_names"] = [b"a", b"b"], [b"nose", b"neck", b"tail"]
        f["point_scores"] = np.ones((2, 3, 8))


def slp(path):
    import sleap_io as sio
    skeleton, track = sio.Skeleton(["nose", "tail"]), sio.Track("white")
    video = sio.Video("v.mp4", open_backend=False)
    sio.save_file(sio.Labels([sio.LabeledFrame(video=video, frame_idx=i, instances=[
        sio.PredictedInstance.from_numpy(RNG(i).random((2, 2)), skeleton=skeleton, score=1.,
                                         point_scores=np.ones(2), track=track)])
                              for i in (0, 1, 3)]), str(path))


def nwb(path):
    import pynwb
    from movement.io import load_poses, save_poses
    data = load_poses.from_numpy(RNG().random((6, 2, 3, 1)), fps=25.,
                                 individual_names=["white"], keypoint_names=list("abc"))
    with pynwb.NWBHDF5IO(str(path), "w") as io: io.write(save_poses.to_nwb_file(data))


def netcdf(path):
    from movement.io import load_poses
    load_poses.from_numpy(RNG().random((6, 2, 3, 1)), fps=25., individual_names=["white"],
                          keypoint_names=list("abc"), source_software="SLEAP").to_netcdf(path)


def sleap_nwb(path):
    import sleap_io as sio
    skeleton, video = sio.Skeleton(["nose", "tail"], name="m"), sio.Video("v.mp4", open_backend=False)
    sio.save_nwb(sio.Labels([sio.LabeledFrame(video=video, frame_idx=i, instances=[
        sio.PredictedInstance.from_numpy(RNG(i).random((2, 2)), skeleton=skeleton, score=1.,
                                         track=track)
        for track in tracks[:1 + (i != 2)]]) for tracks in [[sio.Track("a"), sio.Track("b")]]
        for i in range(6)], skeletons=[skeleton]), str(path))


def mars(path):
    from scipy.io import savemat
    savemat(path, {"keypoints": RNG().uniform(1, 999, (6, 2, 2, 7)), "scores": np.ones((6, 2, 7))})


def mouse_tracker(path):
    names = "FRAMENUMBER", "ANIMALID", "MASS_X", "MASS_Y", "FRONT_X", "FRONT_Y", "BACK_X", "BACK_Y"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("create table ANIMAL (ID integer, NAME text, GENOTYPE text)")
        db.executemany("insert into ANIMAL values (?, ?, ?)", [(1, "a", "WT"), (2, "b", "KO")])
        db.execute(f"create table DETECTION ({', '.join(f'{n} real' for n in names).replace('real', 'integer', 2)})")
        db.executemany("insert into DETECTION values (?, ?, ?, ?, ?, ?, ?, ?)", [
            (f, m, *RNG(9 * f + m).uniform(11, 400, 6).tolist()) for f in range(1, 7) for m in (1, 2)])
        db.execute("create table EVENT (NAME, STARTFRAME, ENDFRAME, IDANIMALA, IDANIMALB)")
        db.execute("insert into EVENT values ('Contact', 2, 4, 1, 2)")


def run(path):
    from mabe_nb.data.dataset import open_dataset
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.runs import train
    data = open_dataset(path.parent/"kaggle")
    train(data, path, TrainConfig(epochs=1, conv_channels=[4], lstm_hidden=4, device="cpu",
                                  features="coords"), ["1", "2"], ["3"],
          cache=path.parent/"cache")


def recipe(path):
    "A recipe of few trees and a small network, one for each lab, and a bundle of the run."
    from dataclasses import replace

    from mabe_nb.data.dataset import open_dataset
    from mabe_nb.kaggle.bundle import make_bundle
    from mabe_nb.train.ensemble.per_lab import train_per_lab
    from mabe_nb.train.ensemble.member_specs import RECIPES
    from mabe_nb.train.ensemble.recipe import train_recipe
    top, whole = path.parent, RECIPES["quick"]
    few = {"net": {"epochs": 1, "conv_channels": [4], "lstm_hidden": 4}, "boost": {"rounds": 2}}
    data, how = open_dataset(top/"kaggle"), {"folds": 2, "cache": top/"cache_of_recipe"}
    RECIPES["quick"] = tuple(replace(m, settings=m.settings | few[m.kind]) for m in whole)
    try:
        train_recipe(data, path, "quick", **how)
        train_per_lab(data, top/"labs", "quick", **how)
    finally: RECIPES["quick"] = whole
    make_bundle(top/"run", top/"kit", data, thresholds=top/"thresholds.json")


def corrections(path):
    from mabe_nb.data.corrections import Correction, add_correction
    for video, verdict, action, span in (("1", "accept", "chase", (10, 20)), ("2", "relabel", "sniff", (5, 9)),
                                         ("3", "nothing", "", (25, 30))):
        add_correction(path, Correction(video, "mouse1", "mouse2", verdict, action, *span, ("chase", "sniff"),
                                        ("chase", 10, 20) if verdict == "accept" else None), "me")


def of_one(item, factor):
    import numpy
    if item["n"] == 2: raise ValueError("no two")
    return {"n": factor * item["n"], "a": numpy.arange(3)}


def group(path):
    "A group of three items of which one fails, and a job with outputs of every kind."
    import mabe_nb as mb
    was = os.environ.get("MABE_HOME")
    os.environ["MABE_HOME"] = str(path)
    try:
        sent = mb.map(of_one, [{"n": i} for i in range(3)], at_once=1, given={"factor": 3}, say=None)
        made = mb.submit("import numpy as np, pandas as pd\na = np.ones((2, 3))\nd = {'u': [1, {'w': a}]}\n"
                         "t = pd.DataFrame({'x': [1, 2], 'y': list('ab')})\ns = 'text'", outputs=["a", "d", "t", "s"])
        sent.wait(progress=False), made.wait()
    finally:
        if was is None: del os.environ["MABE_HOME"]
        else: os.environ["MABE_HOME"] = was
    for old, new in ((sent.id, GROUP), (made.id, OUTPUTS)):
        for file in sorted(path.rglob("*.json")): file.write_text(file.read_text().replace(old, new))
        for folder in sorted(path.glob(f"*/{old}*")): folder.rename(folder.with_name(folder.name.replace(old, new)))


def watched(path):
    "A tracker's folder that is watched, and the run that predicts it."
    from mabe_nb.analysis.watch import watch
    from mabe_nb.data.dataset import open_dataset
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.runs import train
    folder, run = path.parent/"lab_watched", path.parent/"run_of_lab"
    folder.mkdir()
    for k, name in enumerate(("v2", "v3")): # no two share their poses
        table = pd.read_csv(path.parent/"lab"/f"{name}.csv", header=[0, 1, 2, 3], index_col=0)
        table.iloc[:, :] = RNG(k).random(table.shape) * 99
        table.to_csv(folder/f"{name}.csv")
    for name in ("v2.boris.csv", "scored.csv"): (folder/name).write_text(LAB[name])
    (folder/"dataset.yaml").write_text(LAB["dataset.yaml"] + "target: b\n")
    train(open_dataset(folder), run, TrainConfig(
        epochs=1, conv_channels=[4], lstm_hidden=4, device="cpu", features="coords", sequence_length=4), ["v2"],
        ["v3"], cache=path.parent/"cache_of_lab")
    watch(run, folder, path, 0, say=lambda line: None)


def jobs(path):
    "A job on this machine that has ended, its receipt, and where it lies."
    from mabe_nb.remote import costs, job
    was = os.environ.get("MABE_HOME")
    os.environ["MABE_HOME"] = str(path)
    try:
        sent = job.submit(["true"])
        sent.wait()
        costs.record({"id": sent.id, "on": "local", "gpu": "T4", "created": 1.7e9, "foretold": 2.,
                      "usd": 1.5, "seconds": 60., "status": "done"})
        said = path/"jobs"/sent.id/"job.json"
        said.write_text(said.read_text().replace(sent.id, JOB))
        said.parent.rename(path/"jobs"/JOB)
    finally:
        if was is None: del os.environ["MABE_HOME"]
        else: os.environ["MABE_HOME"] = was


def lab(path):
    "A tracker's folder: videos scored frame by frame, in BORIS and in a table, and settings."
    path.mkdir()
    for name, text in LAB.items(): (path/name).write_text(text)
    for name in ("v1.csv", "v2.csv", "v3.csv"): dlc(path/name, "csv")


def film(path):
    "Twelve pictures."
    from mabe_nb.view.video.film import write_film
    write_film(path, RNG().integers(0, 255, (12, 48, 64, 3), "u1"), 25.0)


LAB = {
    "v1_labels.csv": ",background,sniff,dig\n0,-1,-1,-1\n" + "".join(
        f"{i},{int(i < 3)},{int(i >= 3)},0\n" for i in range(1, 7)) + "7,-1,-1,-1\n",
    "v2.boris.csv": "Observation id,FPS,Subject,Behavior,Modifiers,Status,Time\n"
                    "a,25,x,sniff,y,START,0.04\na,25,x,sniff,y,STOP,0.2\n",
    "scored.csv": "video,agent,target,action,start,stop\nv3,a,b,sniff,0.04,0.2\n"
                  "v3,b,self,dig,0.1,0.12\n",
    "dataset.yaml": "fps: 25\nlab: Ours\nactions: [sniff]\nalone: [dig]\n"
                    "subjects: {x: a, y: b}\nmin_confidence: 0.01\n"}
TEXTS = {
    "frames.csv": ",background,sniff\n0,1,0\n1,0,1\n2,0,1\n3,-1,-1\n",
    "daart.csv": "background,still,walk\n1,0,0\n0,1,0\n0,0,1\n0,0,1\n",
    "target.csv": LAB["v2.boris.csv"],
    "groups.csv": "video,animal,subject,treatment,sex\n" + "".join(
        f"{v},mouse{a},s{v}{a},{'drug' if v > '1' else 'none'},f\n" for v in "123" for a in (1, 2)),
    "boris.csv": "Observation id,FPS,Subject,Behavior,Status,Time\n"
                 "a,25,m,rear,START,1\na,25,m,rear,STOP,2\na,25,n,dig,POINT,3\n",
    "caltech.txt": "Caltech Behavior Annotator - Annotation File\n\nS1: start end type\n"
                   "-----\n1 10 sniff\n11 20 other\n",
    "bento.annot": "Bento annotation file\nAnnotation framerate: 30.0\n\nCh1----------\n"
                   ">sniff\nStart\tStop\tDuration\n1\t10\t9\n\n",
    "thresholds.json": json.dumps({"*": {"chase": 0.5}, "Ours": {"chase": 0.25}}),
    "config.yaml": "epochs: 3\nlstm_hidden: 8\nconv_channels: [8, 16]\n",
    "submission.csv": "row_id,video_id,agent_id,target_id,action,start_frame,stop_frame\n"
                      "0,1,mouse1,mouse2,chase,10,20\n1,2,mouse1,mouse2,chase,9,21\n"}


def make(folder):
    "Write the corpus."
    folder = Path(folder)
    write_small(folder/"kaggle", ("1", "2", "3"))
    np.save(folder/"calms21.npy", calms21(), allow_pickle=True)
    (folder/"calms21.json").write_text(json.dumps(plain(calms21(3))))
    np.save(folder/"mabe22.npy", {"sequences": {"A": {"keypoints": RNG().integers(
        1, 800, (5, 3, 12, 2)).astype("u2")}}}, allow_pickle=True)
    np.savez_compressed(folder/"clips.npz", keypoints=RNG().random((2, 5, 2, 2, 7)),
                        attack=np.array([0, 1]))
    for name, layout in (("dlc.csv", "csv"), ("dlc_table.h5", "table"), ("dlc.h5", "fixed")):
        dlc(folder/name, layout)
    for name, write in (("jabs.h5", jabs), ("sleap.h5", sleap), ("labels.slp", slp),
                        ("poses.nwb", nwb), ("sleap.nwb", sleap_nwb), ("poses.nc", netcdf), ("m_pose_top_v1_8.mat", mars),
                        ("cage.sqlite", mouse_tracker),
                        ("run", run), ("home", jobs), ("lab", lab), ("film.mp4", film)):
        write(folder/name)
    for name, text in TEXTS.items(): (folder/name).write_text(text)
    for name, write in (("recipe", recipe), ("kaggle/corrections.jsonl", corrections), ("groups", group),
                        ("watched", watched)): write(folder/name)
    return folder

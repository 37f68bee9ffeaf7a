"""What each part of `--recipe best` brings: one thing changed at a time, folds left out.

    python bench/parts.py --data rats --json F
    python bench/parts.py --data rats_directed --json F --folds 1,3,5
    python bench/parts.py --data rat_fights --json F --only features,which   # the rest stays
    python bench/parts.py --data colony12 --folder . --json F   # of `mabe synth colony12`

The base is one network of the recipe. Every figure is the mean F1 of the actions that are
judged, by the most probable class, over the videos of the folds named (of five folds of
whole neighbouring videos), predicted by models that never saw them. The gain of a part is
its difference to the base on the same videos, with the standard deviation of that
difference over draws of videos: a gain under two of them is called nothing.
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from mabe_nb.data.dataset import dataset_parts, open_dataset
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.splits import labelled_groups
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.scores.frames import by_video, f1_of, video_counts
from mabe_nb.train.ensemble.members import ActionFrames, features_of_member, train_member
from mabe_nb.train.predict import decide
from mabe_nb.train.ensemble.directed import completed
from mabe_nb.train.ensemble.member_specs import CONV, RECURRENT, SLOW, VARIED
from recipe import JUDGED

PACE = {"every_ms": 133}
LONG = SLOW | {"epochs": 16, "least_steps": 560}
BLIND = ("rats", "rat_fights") # Nobody says there who does it to whom


def parts_of(base): # Name -> kind, features, settings
    wide = "unordered+multiscale" if base == "smoothed" else "directed+directed_multiscale"
    return {
        "base: dilated convolutions, 133 ms": ("net", base, CONV | PACE),
        "features: agent and target apart": ("net", "directed_smoothed", CONV | PACE),
        "features: whoever is who": ("net", "smoothed", CONV | PACE),
        "features: against the video's mean": ("net", base + "+zscored", CONV | PACE),
        "features: and the place": ("net", base + "+arena", CONV | PACE),
        "features: and points without owners": ("net", base + "+ownerless", CONV | PACE),
        "features: social": ("net", "social", CONV | PACE),
        "which: beside it, one that tells which": ("net", "unordered+ownerless", CONV | PACE),
        "pace: 67 ms": ("net", base, CONV | {"every_ms": 67}),
        "pace: 200 ms": ("net", base, CONV | {"every_ms": 200}),
        "model: convolutions and an LSTM": ("net", base, RECURRENT | PACE),
        "model: the same, 200 ms": ("net", base, SLOW),
        "model: the same, 200 ms, twice the training": ("net", base, LONG),
        "model: the same, 200 ms, wider": ("net", base, SLOW | {
            "conv_channels": [96, 96], "lstm_hidden": 96}),
        "model: the same, 200 ms, varied windows": ("net", base, VARIED),
        "model: boosted trees over seconds": ("boost", wide, {"sample": 12}),
        "augmentation: no noise": ("net", base, CONV | PACE | {"noise_std": 0.0}),
        "augmentation: mirrored": ("net", base, CONV | PACE | {"flip": 0.5}),
        "augmentation: lost keypoints": ("net", base, CONV | PACE | {"keypoint_dropout": 0.1}),
        "augmentation: other sizes": ("net", base, CONV | PACE | {"scale": 0.15}),
        "augmentation: other speeds": ("net", base, CONV | PACE | {"time_stretch": 0.15}),
        "augmentation: sizes, speeds, mirrored": ("net", base, CONV | PACE | {
            "scale": 0.15, "time_stretch": 0.15, "flip": 0.5}),
        "loss: no class weights": ("net", base, CONV | PACE | {"class_weights": "none"})}


p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--data", required=True, help="folder, of which JUDGED names what counts")
p.add_argument("--folder", default=Path(__file__).resolve().parents[2]/"shared"/"data")
p.add_argument("--folds", default="2,4", help="of 1 to 5, the folds left out in turn")
p.add_argument("--only", help="words; rows that hold one of them, and the base")
p.add_argument("--json")
args = p.parse_args()
torch.set_num_threads(1)
data, left = open_dataset(Path(args.folder)/args.data), sorted(map(int, args.folds.split(",")))
table = labelled_groups(data)
splits = [contiguous_folds(table, 5)[k - 1] for k in left]


def told(kind, features, settings, seed=0, view=lambda prepared: prepared):
    "Row of the prepared table -> probabilities, of the folds that are left out."
    prepared = prepare(data, features_of_member(kind, features, settings), ids=list(table.video_id),
                       parts=tuple(dataset_parts(data)))
    more, out = {"features": features} if kind == "net" else {}, {}
    for k, split in zip(left, splits):
        member = train_member(kind, view(prepared), split.train, settings | more, seed + k)
        for i in np.flatnonzero(prepared.sequences.video_id.isin(split.valid)):
            out[i] = member(prepared.values(i), prepared.sequences.fps.iloc[i])
    return prepared, out


def counts_of(prepared, p):
    "Hits, false alarms and misses of the actions that are judged, (videos, actions, 3)."
    actions, rows = list(prepared.actions), sorted(p)
    labels = [prepared.labels(i) for i in rows]
    counts = video_counts(labels, [decide(p[i], (y >= 0).any(0)) for i, y in zip(rows, labels)])
    _, counts = by_video([prepared.sequences.video_id.iloc[i] for i in rows], counts)
    return np.asarray(counts)[:, [actions.index(a) for a in JUDGED.get(args.data, actions)]]


def mean_f1(counts): # Of (..., videos, actions, 3)
    return np.nanmean(f1_of(counts.sum(-3)), -1)


def compared(counts, base):
    "Mean F1, gain over the base, and the gain's standard deviation over draws of videos."
    n, rng = len(counts), np.random.default_rng(0)
    draws = rng.integers(0, n, (1000, n))
    gains = mean_f1(counts[draws]) - mean_f1(base[draws])
    return {"f1": round(float(mean_f1(counts)), 4), "sd": round(float(gains.std()), 4),
            "gain": round(float(mean_f1(counts) - mean_f1(base)), 4)}


def beside(base, part):
    "The base and a network that tells which action it is, on average."
    which = told(*part, view=ActionFrames)[1]
    return {i: completed(np.stack([base[i], which[i]]), [False, True]).mean(0) for i in base}


found, begun = {}, time.perf_counter()
only = (args.only or "").split(",")


def report(name, prepared, p):
    counts = counts_of(prepared, p)
    if name.startswith("base"): report.base = counts
    found[name] = compared(counts, report.base)
    print(f"{time.perf_counter() - begun:6.0f} s  {found[name]}  {name}", flush=True)


for name, part in parts_of("smoothed" if args.data in BLIND else "directed_smoothed").items():
    if name.startswith("base"):
        prepared, base = told(*part)
        report(name, prepared, base)
    elif not any(word in name for word in only): continue
    elif name.startswith("which"): report(name, prepared, beside(base, part))
    else: report(name, *told(*part))
    if not name.startswith("base") or args.only: continue
    again = told(*part, seed=100)[1]
    report("seeds: another one alone", prepared, again)
    report("seeds: mean of two", prepared, {i: (base[i] + again[i]) / 2 for i in base})
if args.json:
    file = Path(args.json)
    before = json.loads(file.read_text())["parts"] if args.only and file.exists() else {}
    file.write_text(json.dumps({
        "data": args.data, "folds": left, "videos": len(report.base), "date":
        time.strftime("%Y-%m-%d"), "parts": before | found}, indent=1) + "\n")

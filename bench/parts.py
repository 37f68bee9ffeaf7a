"""What each part of `--recipe best` brings: one thing changed at a time, folds left out.

    python bench/parts.py --data rats --json F
    python bench/parts.py --data rat_fights --json F --folds 1,3,5
    python bench/parts.py --data rats --json F --only loose,which   # the rest of F stays

The base is one seed of one network of the recipe. Every figure is the mean F1 of the
actions that are judged, by the most probable class, over the videos of the folds named
(of five folds of whole neighbouring videos), predicted by models that never saw them.
One seed differs from the next by about 0.01: smaller differences say nothing.
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.cache.prepare import dataset_parts, prepare
from mabe_nb.data.splits import labelled_groups
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.scores.frames import f1_of, video_counts
from mabe_nb.train.ensemble.members import ActionFrames, features_of_member, train_member
from mabe_nb.train.predict import completed, decide, smooth
from mabe_nb.train.ensemble.presets import CONV, STEADY
from recipe import JUDGED

BASE, PACE = "smoothed+zscored", {"every_ms": 133}
PARTS = { # Name -> kind, features, settings
    "base: dilated convolutions, 133 ms": ("net", BASE, CONV | PACE),
    "features: as they are, no mean over 200 ms": ("net", "unordered", CONV | PACE),
    "features: without those against the video's mean": ("net", "smoothed", CONV | PACE),
    "features: and place": ("net", BASE + "+arena", CONV | PACE),
    "features: and loose": ("net", BASE + "+ownerless", CONV | PACE),
    "features: even and loose alone": ("net", "unordered+ownerless", CONV | PACE),
    "which: beside it, one that tells which": ("net", "unordered+ownerless", CONV | PACE),
    "pace: 67 ms": ("net", BASE, CONV | {"every_ms": 67}),
    "pace: 200 ms": ("net", BASE, CONV | {"every_ms": 200}),
    "model: convolutions and an LSTM": ("net", BASE, STEADY | PACE | {"epochs": 12}),
    "model: transformer": ("net", BASE, CONV | PACE | {
        "model_type": "transformer", "num_layers": 2, "learning_rate": 1e-3}),
    "model: boosted trees on even+wide": ("boost", "unordered+multiscale", {"sample": 12}),
    "augmentation: no noise": ("net", BASE, CONV | PACE | {"noise_std": 0.0}),
    "augmentation: mixup": ("net", BASE, CONV | PACE | {"mixup_alpha": 0.3}),
    "augmentation: lost keypoints": ("net", BASE, CONV | PACE | {"keypoint_dropout": 0.1}),
    "loss: no class weights": ("net", BASE, CONV | PACE | {"class_weights": "none"}),
    "loss: label smoothing 0.1": ("net", BASE, CONV | PACE | {"label_smoothing": 0.1}),
}
p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--data", choices=JUDGED, required=True)
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
            out[i] = member(prepared.values(i))
    return prepared, out


def score(prepared, p):
    "Mean F1 of the actions that are judged."
    actions, rows = list(prepared.actions), sorted(p)
    labels = [prepared.labels(i) for i in rows]
    counts = video_counts(labels, [decide(p[i], (y >= 0).any(0)) for i, y in zip(rows, labels)])
    f1 = f1_of(counts.sum(0))[[actions.index(a) for a in JUDGED[args.data]]]
    return round(float(f1.mean()), 4)


def beside(base, part):
    "The base and a network that tells which action it is, on average."
    which = told(*part, view=ActionFrames)[1]
    return {i: completed(np.stack([base[i], which[i]]), [False, True]).mean(0) for i in base}


found, begun = {}, time.perf_counter()
only = (args.only or "").split(",")


def report(name, prepared, p):
    found[name] = score(prepared, p)
    print(f"{time.perf_counter() - begun:6.0f} s  {found[name]:.4f}  {name}", flush=True)


for name, part in PARTS.items():
    if name.startswith("base"):
        prepared, base = told(*part)
        report(name, prepared, base)
    elif not any(word in name for word in only): continue
    elif name.startswith("which"): report(name, prepared, beside(base, part))
    else: report(name, *told(*part))
    if not name.startswith("base") or args.only: continue
    for ms in (400, 1000):
        smoothed = {i: smooth(q, prepared.sequences.fps.iloc[i], ms) for i, q in base.items()}
        report(f"smoothing: {ms} ms", prepared, smoothed)
    again = [base, *(told(*part, seed=100 * s)[1] for s in (1, 2))]
    report("seeds: another one alone", prepared, again[1])
    report("seeds: mean of three", prepared, {i: sum(q[i] for q in again) / 3 for i in base})
if args.json:
    file = Path(args.json)
    before = json.loads(file.read_text())["mean_f1"] if args.only and file.exists() else {}
    file.write_text(json.dumps({
        "data": args.data, "folds": left, "judged": list(JUDGED[args.data]),
        "mean_f1": before | found}, indent=1) + "\n")

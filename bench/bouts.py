"""Bouts predicted beside bouts seen, with and without those too short to be said.

    python bench/bouts.py DATA --seeds 0 1 2 --json F

A default network for each seed, which chooses the videos that judge too. Its bouts may be of
any length, or no shorter than nearly all of those that it learned from (`taken`: as the network
itself does, for its F1): how many it says of each action where people looked for it, and its
macro F1 over frames, are counted both ways.
`off` is the mean of |log(predicted / seen)| over actions that were seen and predicted.
"""
import argparse
import json
import math
import os
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import mean

import numpy as np

import mabe_nb as mb
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.measure.probe import processor
from mabe_nb.train.inputs import features_of
from mabe_nb.train.postprocess import predict_labelled, shortest_bouts
from mabe_nb.train.scores.frames import frame_scores, action_counts
from mabe_nb.train.scores.means import predicted_counts


def counted(clf, prepared, ids):
    "Bouts predicted and seen, macro F1, and how far the numbers of bouts are off."
    valid = predict_labelled(clf, prepared, ids)
    said = predicted_counts(valid.sequences(), clf.actions)
    seen = action_counts((s.labels for s in valid.sequences()), clf.actions)
    pairs = {a: (said[a]["bouts"], seen[a]["bouts"]) for a in clf.actions}
    off = [abs(math.log(n / true)) for n, true in pairs.values() if n and true]
    return {"bouts": pairs, "off": round(mean(off), 3) if off else None, "macro_f1": round(
        frame_scores(valid.labels, valid.p, valid.codes, clf.actions)["macro_f1"], 4)}


def main():
    p, rows = argparse.ArgumentParser(description=__doc__.splitlines()[0]), []
    p.add_argument("data", type=Path)
    p.add_argument("--seeds", type=int, nargs="+", default=[0])
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    data = mb.open_dataset(args.data, "train")
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as out:
            clf = mb.fit(data, Path(out)/"run", seed=seed, progress=False)
            ids = clf.run_videos()["valid"]
            learned = clf.run_videos()["train"]
        prepared = prepare(data, features_of(clf.cfg), parts=clf.parts, progress=False)
        table = prepared.sequences
        least = shortest_bouts((prepared.labels(i, clf.actions), table.fps[i])
                               for i in np.flatnonzero(table.video_id.isin(learned)))
        rows.append({"seed": seed, "any": counted(replace(clf, least_ms=()), prepared, ids),
                     "learned": counted(replace(clf, least_ms=least), prepared, ids),
                     "least_ms": least, "taken": clf.least_ms == least})
        print(rows[-1], flush=True)
    if args.json: args.json.write_text(json.dumps(
        {"date": date.today().isoformat(), "cpu": processor(), "load": os.getloadavg()[0],
         "data": args.data.name, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__": main()

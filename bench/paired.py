"""Two kept runs of `bench/recipe.py` on the same videos: is one of them better?

    python bench/recipe.py --data rat_fights --out NEW
    PYTHONPATH=CHECKOUT python CHECKOUT/bench/recipe.py --data rat_fights --out OLD
    python bench/paired.py OLD NEW --data rat_fights --before CHECKOUT --json F

CHECKOUT is any earlier working tree whose code reads OLD; without `--before` this one reads
both. Each video is decided about as the other folds would have it. Differences are new less
old, their deviation is over draws of videos: a gain under two of them is nothing.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]
DRAWS = 2_000


def decisions(data, run, out):
    "Write the nested decisions about each sequence of a run, and what was seen."
    import pandas as pd
    from mabe_nb.data.dataset import open_dataset
    from mabe_nb.data.recording import frame_labels
    data, run = open_dataset(data), Path(run)
    about = json.loads((run/"recipe.json").read_text())
    metrics = json.loads((run/"metrics.json").read_text())
    names, actions = [m["name"] for m in about["members"]], about["actions"]
    which = [m["which"] for m in about["members"]]
    try:
        from mabe_nb.train.ensemble.decide import OutOfFold, nested
        from mabe_nb.train.ensemble.directed import shares_to_try
        from mabe_nb.train.ensemble.member_specs import RECIPES
        specs = {s.name: s for s in RECIPES[metrics["recipe"]]}
        specs = [replace(specs[m["name"]], seeds=len(m["files"]) // len(metrics["folds"]))
                 for m in about["members"]]
        shares = shares_to_try(specs, {
            a: d for a, d in metrics["directed"].items() if a not in about["self_actions"]})
    except ImportError: # A tree of before 2026-11-22
        from mabe_nb.train.decide import nested, Told as OutOfFold
        from mabe_nb.train.predict import fair_shares
        shares = fair_shares(which)
    rows = pd.read_csv(run/"oof"/"sequences.csv", dtype={"video_id": str}, keep_default_na=False)
    ends = rows.frames.cumsum()[:-1]
    p = [np.split(np.load(run/"oof"/f"{n}.npy"), ends) for n in names]
    told = [OutOfFold(np.stack([m[i] for m in p]), frame_labels(
        data[r.video_id], r.agent, r.target, actions), r.fps, r.fold - 1, r.lab_id, r.video_id)
        for i, r in enumerate(rows.itertuples())]
    np.savez(out, actions=actions, video=rows.video_id.to_numpy(str), frames=rows.frames,
             codes=np.concatenate(nested(told, shares)[0]),
             labels=np.concatenate([t.labels for t in told]))


def counts(found, judged):
    "(videos, judged + 1, 3): hits, wrong, missed; the last is any of them, and (videos, 2) kinds."
    at = [list(found["actions"]).index(a) for a in judged]
    video = np.repeat(found["video"], found["frames"])
    seen = np.where((found["labels"][:, at] == 1).any(1), found["labels"][:, at].argmax(1), -1)
    place = np.full(len(found["actions"]) + 1, -1)
    place[at] = np.arange(len(at))
    said, out, kinds = place[found["codes"]], [], []
    for v in np.unique(found["video"]):
        s, t = seen[video == v], said[video == v]
        each = [(s == k, t == k) for k in range(len(at))] + [(s >= 0, t >= 0)]
        out.append([((a & b).sum(), (b & ~a).sum(), (a & ~b).sum()) for a, b in each])
        hit = (s >= 0) & (t >= 0)
        kinds.append((((s == t) & hit).sum(), hit.sum()))
    return np.array(out, float), np.array(kinds, float)


def scores(each, kinds, draw=slice(None)):
    "Mean F1, F1 of any, share of right kinds, over some videos."
    hit, wrong, missed = each[draw].sum(0).T
    f1 = 2 * hit / np.maximum(2 * hit + wrong + missed, 1)
    right, both = kinds[draw].sum(0)
    return np.array([f1[:-1].mean(), f1[-1], right / max(both, 1)])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("runs", nargs="*", help="kept run of before, and of now")
    p.add_argument("--data", required=True, help="name of the dataset")
    p.add_argument("--folder", default=HERE.parent/"shared"/"data")
    p.add_argument("--before", help="working tree that reads the first run")
    p.add_argument("--judged", nargs="*", help="actions; default: those of bench/recipe.py")
    p.add_argument("--json", type=Path)
    p.add_argument("--decisions", nargs=2, help=argparse.SUPPRESS)
    args = p.parse_args()
    data = Path(args.folder)/args.data
    if args.decisions: return decisions(data, *args.decisions)
    from recipe import JUDGED
    judged, found = args.judged or JUDGED[args.data], []
    with tempfile.TemporaryDirectory() as folder:
        for run, checkout in zip(args.runs, (args.before or str(HERE), str(HERE))):
            file = f"{folder}/{len(found)}.npz"
            subprocess.run([sys.executable, __file__, "--data", args.data, "--folder",
                            str(args.folder), "--decisions", run, file], check=True,
                           env=os.environ | {"PYTHONPATH": checkout})
            with np.load(file) as f: found.append(counts(dict(f), judged))
    rng, n = np.random.default_rng(0), len(found[0][0])
    draws = [rng.integers(0, n, n) for _ in range(DRAWS)]
    gain = np.array([scores(*found[1], d) - scores(*found[0], d) for d in draws])
    rows = [{"what": what, "before": round(float(a), 4), "now": round(float(b), 4),
             "gain": round(float(b - a), 4), "deviation": round(float(sd), 4)}
            for what, a, b, sd in zip(("mean F1", "F1 of any", "right kind"), scores(*found[0]),
                                      scores(*found[1]), gain.std(0))]
    for row in rows: print(row)
    if args.json: args.json.write_text(json.dumps(
        {"data": args.data, "judged": list(judged), "videos": n, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__": main()

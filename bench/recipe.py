"""`--recipe best` on real data: five folds of whole neighbouring videos, all nested.

    python bench/recipe.py --data rats --json F
    python bench/recipe.py --data rat_fights --json F
    python bench/recipe.py --data rats_directed --json F

Every video is predicted by models that never saw it; blend, smoothing and weights of a
fold are chosen on the other folds. The interval is over draws of videos. The folder of
the data sets is the one beside the checkout, or `--folder`; `--out` keeps the run.
"""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.recording import frame_labels
from mabe_nb.files import read_json
from mabe_nb.train.scores.frames import bootstrap, f1_of, video_counts
from mabe_nb.train.ensemble.queue import default_workers
from mabe_nb.train.predict import decide
from mabe_nb.train.ensemble.recipe import train_recipe

JUDGED = {"rats": ("aggression", "nonsocial", "social"),
          "rat_fights": ("clinch", "keepdown", "lateralthreat", "uprightposture"),
          "rats_directed": ("approach", "follow", "leave", "sniffrear")}


def most_probable(data, run, judged, some, shares):
    "Mean F1 of the judged actions by the most probable class of a blend."
    actions = read_json(run/"recipe.json")["actions"]
    rows = pd.read_csv(run/"oof"/"sequences.csv", dtype={"video_id": str})
    p = sum(share * np.load(run/"oof"/f"{n}.npy", mmap_mode="r").astype(np.float32)
            for n, share in zip(some, shares))
    labels = [frame_labels(data[r.video_id], r.agent, r.target, actions)
              for r in rows.itertuples()]
    codes = [decide(q, (y >= 0).any(0))
             for q, y in zip(np.split(p, rows.frames.cumsum()[:-1]), labels)]
    f1 = f1_of(video_counts(labels, codes).sum(0))
    return round(float(f1[[actions.index(a) for a in judged]].mean()), 4)


def main():
    "Train, judge, print."
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", choices=JUDGED, required=True)
    p.add_argument("--folder", default=Path(__file__).resolve().parents[2]/"shared"/"data")
    p.add_argument("--recipe", default="best")
    p.add_argument("--out", help="folder for the run; default: none is kept")
    p.add_argument("--workers", type=int, default=default_workers())
    p.add_argument("--json")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as work:
        data, begun = open_dataset(Path(args.folder)/args.data), time.perf_counter()
        said = lambda text: print(f"{time.perf_counter() - begun:6.0f} s  {text}", flush=True)
        run = Path(args.out or Path(work)/"run")
        metrics = train_recipe(data, run, args.recipe, say=said, workers=args.workers)
        took = time.perf_counter() - begun
        which = {m["name"]: m["which"] for m in read_json(run/"recipe.json")["members"]}
        some, n = [m for m in which if not which[m]], len(which)
        plain = {k: most_probable(data, run, JUDGED[args.data], *how) for k, how in {
            "all members": (which, [metrics["shares"][m] for m in which]),
            "all members, equal shares": (which, (1 / n,) * n),
            "without those that tell which": (some, (1 / len(some),) * len(some))}.items()}
    counts = np.array([[c[a] for a in JUDGED[args.data]] for c in metrics["counts"].values()])
    row = {"data": args.data, "recipe": args.recipe, "judged": list(JUDGED[args.data]),
           "mean_f1": round(float(f1_of(counts.sum(0)).mean()), 4),
           "interval": bootstrap(counts), "minutes": round(took / 60, 1),
           "most_probable": plain}
    row |= {k: v for k, v in metrics.items() if k not in ("counts", "recipe", "interval")}
    print(json.dumps(row, indent=1))
    if args.json: Path(args.json).write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__": main() # workers import this file

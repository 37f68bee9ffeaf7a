"""`--recipe best` on real data: five folds of whole neighbouring videos, all nested.

    python bench/recipe.py --data rats --json F
    python bench/recipe.py --data rat_fights --json F
    python bench/recipe.py --data rats_directed --json F
    python bench/recipe.py --data colony12 --folder . --json F   # of `mabe synth colony12`

Every video is predicted by models that never saw it; blend, smoothing and weights of a
fold are chosen on the other folds. The interval is over draws of videos. The folder of
the data sets is the one beside the checkout, or `--folder`; `--out` keeps the run, or goes
on with one that was broken off. `any_action` is the F1 of saying that something of what is
judged happens, whatever it is, and `which_right` how often it is the right one of them
where both say so: of `rat_fights` whether there is a fight, and which kind.
"""
import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.recording import frame_labels
from mabe_nb.files import read_json
from mabe_nb.train.scores.frames import f1_of, video_counts
from mabe_nb.train.scores.trust import bootstrap
from mabe_nb.train.ensemble.decide import OutOfFold, nested
from mabe_nb.train.ensemble.directed import shares_to_try
from mabe_nb.train.ensemble.member_specs import RECIPES
from mabe_nb.train.ensemble.queue import default_workers
from mabe_nb.train.predict import decide
from mabe_nb.train.ensemble.recipe import train_recipe

JUDGED = {"rats": ("aggression", "nonsocial", "social"),
          "rat_fights": ("clinch", "keepdown", "lateralthreat", "uprightposture"),
          "rats_directed": ("approach", "follow", "leave", "sniffrear")}


def out_of_fold(data, run):
    "What the members of a kept run said of the videos that they did not see."
    about = read_json(run/"recipe.json")
    rows = pd.read_csv(run/"oof"/"sequences.csv", dtype={"video_id": str},
                       keep_default_na=False)
    ends = rows.frames.cumsum()[:-1]
    p = [np.split(np.load(run/"oof"/f"{m['name']}.npy"), ends) for m in about["members"]]
    return [OutOfFold(np.stack([m[i] for m in p]), frame_labels(
        data[r.video_id], r.agent, r.target, about["actions"]), r.fps, r.fold - 1, r.lab_id,
        r.video_id) for i, r in enumerate(rows.itertuples())]


def most_probable(sequences, at, some, shares):
    "Mean F1 of the actions at these places by the most probable class of a blend."
    p = [np.tensordot(np.array(shares), s.p[some].astype(np.float32), 1) for s in sequences]
    codes = [decide(q, (s.labels >= 0).any(0)) for q, s in zip(p, sequences)]
    f1 = f1_of(video_counts([s.labels for s in sequences], codes).sum(0))
    return round(float(f1[at].mean()), 4)


def any_and_which(sequences, codes, at):
    "F1 of saying that any of the actions happens, and the share of right ones among hits."
    seen = np.concatenate([np.where((s.labels[:, at] == 1).any(1),
                                    s.labels[:, at].argmax(1), -1) for s in sequences])
    place = np.full(sequences[0].labels.shape[1] + 1, -1)
    place[at] = np.arange(len(at))
    said = place[np.concatenate(codes)]
    hit = (seen >= 0) & (said >= 0)
    return {"any_action": round(2 * hit.sum() / max((seen >= 0).sum() + (said >= 0).sum(), 1), 4),
            "which_right": round(float((seen == said)[hit].mean()), 4)}


def main():
    "Train, judge, print."
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", required=True, help="folder, of which JUDGED names what counts")
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
        took, cores = time.perf_counter() - begun, sum(os.times()[:4])
        about = read_json(run/"recipe.json")
        judged = JUDGED.get(args.data, about["actions"])
        at = [about["actions"].index(a) for a in judged]
        which = [m["which"] for m in about["members"]]
        every, some = range(len(which)), [i for i, w in enumerate(which) if not w]
        sequences = out_of_fold(data, run)
        plain = {k: most_probable(sequences, at, list(how), shares) for k, how, shares in (
            ("all members", every, list(metrics["shares"].values())),
            ("all members, equal shares", every, [1 / len(every)] * len(every)),
            ("without those that tell which", some, [1 / len(some)] * len(some)))}
        specs = {s.name: s for s in RECIPES[args.recipe]}
        specs = [replace(specs[m["name"]], seeds=len(m["files"]) // len(metrics["folds"]))
                 for m in about["members"]]
        codes = nested(sequences, shares_to_try(specs, {
            a: d for a, d in metrics["directed"].items() if a not in about["self_actions"]}))[0]
    counts = np.array([[c[a] for a in judged] for c in metrics["counts"].values()])
    row = {"data": args.data, "recipe": args.recipe, "judged": list(judged),
           "mean_f1": round(float(f1_of(counts.sum(0)).mean()), 4),
           "interval": bootstrap(counts), "minutes": round(took / 60, 1),
           "processor_minutes": round(cores / 60, 1), "workers": args.workers,
           **any_and_which(sequences, codes, at), "most_probable": plain}
    row["date"] = time.strftime("%Y-%m-%d")
    row |= {k: v for k, v in metrics.items() if k not in ("counts", "recipe", "interval")}
    print(json.dumps(row, indent=1))
    if args.json: Path(args.json).write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__": main() # workers import this file

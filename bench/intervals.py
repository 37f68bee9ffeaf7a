"""How often an interval of F1 over videos holds the F1 of all of them.

    python bench/intervals.py --json bench/results/intervals.json

The videos are the 70 of CalMS21's first task with the cross-validated predictions of a
published classifier (vassi), in the folder of data beside the checkout, or `--folder`. Lots of
some are drawn of them with replacement; the F1 of all 70 is what an interval is to hold. Beside it
that of bare percentiles of the draws, widened for few videos but not for rare actions.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from mabe_nb.train.scores.trust import bootstrap, drawn_f1, f1_intervals, percent_points
from mabe_nb.train.scores.frames import f1_of

ACTIONS = ["attack", "investigation", "mount"]
p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--folder", type=Path, default=Path(__file__).resolve().parents[2]/"shared"/"data")
p.add_argument("--lots", type=int, default=1000)
p.add_argument("--json")
args = p.parse_args()


def codes(bouts, frames):
    out = np.full(frames, -1)
    for row in bouts[bouts.category.isin(ACTIONS)].itertuples():
        out[int(row.start):int(row.stop) + 1] = ACTIONS.index(row.category)
    return out


def counts_of_videos():
    "(videos, actions, 3): hit, wrong and missed frames of the resident."
    known, said = (pd.read_csv(args.folder/"calms21_bouts"/f"mice_train_{name}.csv")
                   for name in ("annotations", "cv_predictions"))
    out = []
    for group, some in known[known.actor == "resident"].groupby("group"):
        n = int(some.stop.max()) + 1
        y, q = codes(some, n), codes(said[(said.group == group) & (said.actor == "resident")], n)
        out.append([[((y == k) & (q == k)).sum(), ((y != k) & (q == k)).sum(),
                     ((y == k) & (q != k)).sum()] for k in range(len(ACTIONS))])
    return np.array(out)


counts, rng, rows = counts_of_videos(), np.random.default_rng(0), []
true = f1_of(counts.sum(0))
for n in (3, 4, 6, 10, 20, 46):
    held, single = [], {a: [] for a in ACTIONS}
    for _ in range(args.lots):
        some = counts[rng.integers(0, len(counts), n)]
        bare = np.percentile(np.nanmean(drawn_f1(some), 1), percent_points(n))
        held.append([low <= true.mean() <= high for low, high in (bare, bootstrap(some))])
        for (action, ends), of in zip(f1_intervals(some, ACTIONS).items(), true):
            if ends: single[action].append(ends[0] <= of <= ends[1])
    rows.append({"videos": n, **dict(zip(("bare", "ours"), np.mean(held, 0).round(3).tolist())),
                 **{a: round(float(np.mean(v)), 3) for a, v in single.items()},
                 "without": {a: round(1 - len(v) / args.lots, 3) for a, v in single.items()}})
    print(rows[-1], flush=True)
if args.json:
    found = {"f1": dict(zip(ACTIONS, true.round(4).tolist())), "videos": len(counts), "rows": rows}
    Path(args.json).write_text(json.dumps(found, indent=1) + "\n")

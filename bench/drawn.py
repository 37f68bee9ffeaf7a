"""What intervals with a classifier's doubt hold: time budgets of new videos, and differences.

    python bench/drawn.py --json bench/results/drawn.json

`budgets`: `--recipe quick` learns from half of the videos, drawn at random, and `mabe analyse` asks it
about the others; how often `low` to `high` of `drawn.csv` holds the share that people saw. Both
halves take their turn. `differences`: two groups of eight animals, of 100 bouts each, of which a share
near 0.2, or near 0.1 and 0.3, is real; a classifier that tells them by one number, and is
calibrated on both groups; 300 experiments each. The data is beside the checkout, or `--folder`.
"""
import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.metrics import f1_score

from mabe_nb.analysis.analyse import analyse
from mabe_nb.analysis.measures import measure, observe
from mabe_nb.analysis.uncertain import pooled_difference, draw_factors
from mabe_nb.data.dataset import open_dataset
from mabe_nb.train.ensemble.recipe import train_recipe

p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--folder", type=Path, default=Path(__file__).resolve().parents[2]/"shared"/"data")
p.add_argument("--json")
args = p.parse_args()


def budgets(name, seed):
    "How often the interval of each action holds what was seen, and how wide it is."
    data, out = open_dataset(args.folder/name), []
    ids = np.random.default_rng(seed).permutation(data.ids).tolist()
    halves = ids[:len(ids) // 2], ids[len(ids) // 2:]
    for learn, new in (halves, halves[::-1]):
        with tempfile.TemporaryDirectory() as tmp:
            run = Path(tmp)/"run"
            train_recipe(data, run, "quick", learn, cache=Path(tmp)/"cache", workers=1, say=lambda line: None)
            found = analyse(data, Path(tmp)/"out", run, videos=new, say=None)["drawn"]
        true = measure(observe(data, videos=new))[["video", "animal", "action", "share"]]
        both = found.merge(true, on=["video", "animal", "action"], suffixes=("", "_seen"))
        out.append(both.assign(held=both.share_seen.between(both.low, both.high), wide=both.high - both.low))
    table = pd.concat(out)
    by = table.groupby("action")[["held", "wide"]].mean().round(3)
    return {"data": name, "rows": len(table), "held": round(float(table.held.mean()), 3),
            "actions": by.to_dict("index")}


def experiment(rng, apart, shares, animals=8, bouts=100, validation=300, draws=200):
    "Whether intervals hold the difference: drawn, of counts; drawn difference; labels, scores."
    base, of = np.mean(shares), {}
    said = lambda x: 1 / (1 + (1 - base) / base * np.exp(apart**2 / 2 - apart * x))
    y = np.concatenate([rng.random(validation // 2) < s for s in shares])
    q = said(rng.normal(y * apart, 1))
    n, sums, seen = (np.bincount((q * 10).astype(int).clip(max=9), w, 10) for w in (None, q, y))
    with np.errstate(invalid="ignore"): of = n.astype(float), sums / n, seen / n
    factors, groups = np.array([draw_factors(of, rng) for _ in range(draws)]), []
    for share in shares:
        own = np.clip(rng.normal(share, .04, animals), .01, .99)
        real = rng.random((animals, bouts)) < own[:, None]
        x = said(rng.normal(real * apart, 1))
        drawn = np.minimum(x * factors[:, (x * 10).astype(int).clip(max=9)], 1).mean(2)
        groups.append(((x > .5).mean(1), drawn, real, x))
    true = shares[1] - shares[0]
    a, b = groups
    low, high = stats.ttest_ind(b[0], a[0], equal_var=False).confidence_interval()
    middle, drawn_low, drawn_high = pooled_difference(a[1], b[1])
    f1 = f1_score(np.ravel([a[2], b[2]]), np.ravel([a[3], b[3]]) > .5)
    return drawn_low <= true <= drawn_high, low <= true <= high, middle, f1


def differences(apart, shares, times=300):
    found = np.mean([experiment(np.random.default_rng(k), apart, shares) for k in range(times)], 0)
    return {"apart": apart, "shares": shares, **dict(zip(
        ("drawn_holds", "counts_hold", "drawn_difference", "f1"), found.round(3).tolist()))}


if __name__ == "__main__":
    rows = [differences(apart, shares) for apart in (1.5, 2.5, 3.5) for shares in ((.2, .2), (.1, .3))]
    for row in rows: print(row, flush=True)
    found = {"differences": rows, "budgets": []}
    for name in ("rats", "rats_directed"):
        found["budgets"].append(budgets(name, 0))
        print(found["budgets"][-1], flush=True)
    if args.json: Path(args.json).write_text(json.dumps(found, indent=1) + "\n")

"""How often groups that do not differ are called different, by the test and by the case.

    python bench/groups.py --json bench/results/groups.json

Values are drawn of two groups with one mean; told is the share of draws in which p is below 0.05, of
the permutation test of the bare difference, of that of Welch's t (`compare_two`), and in which
the 95 % interval misses 0. Then animals in cages of four, where those of a cage are alike, with
each animal or each cage as a case (`per_unit`). The standard error of a share of 5 % is 0.3 %.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from mabe_nb.analysis.comparison import compare_two
from mabe_nb.analysis.groups import per_unit

p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--times", type=int, default=4000)
p.add_argument("--draws", type=int, default=999)
p.add_argument("--json")
args = p.parse_args()
rng = np.random.default_rng(0)


def values(shape, n, sd):
    "Of mean 0 and standard deviation `sd`."
    z = rng.normal(0, 1, n) if shape == "normal" else rng.exponential(1, n) - 1
    return sd * z


def bare(a, b):
    mean = lambda x, y, axis=-1: np.mean(y, axis=axis) - np.mean(x, axis=axis)
    return stats.permutation_test((a, b), mean, n_resamples=args.draws, vectorized=True,
                                  rng=np.random.default_rng(0)).pvalue


def tests(shape, n, sd):
    seen = []
    for _ in range(args.times):
        a, b = (values(shape, k, s) for k, s in zip(n, sd))
        found = compare_two(a, b, args.draws)
        seen.append((bare(a, b) < .05, found["p"] < .05, not found["low"] <= 0 <= found["high"]))
    names = ("bare difference", "Welch's t", "interval misses")
    return dict(zip(names, np.mean(seen, 0).round(4).tolist()))


def caged(unit, cages=8, mice=4, alike=0.8):
    "Share of alarms if each cage has one treatment, half the cages each."
    alarms = 0
    for _ in range(args.times):
        own = rng.normal(0, np.sqrt(1 - alike), (cages, mice)) + rng.normal(0, np.sqrt(alike), (cages, 1))
        rows = pd.DataFrame([(f"v{c}", f"m{c}{m}", "ab"[c % 2], "rear", 60., own[c, m])
                             for c in range(cages) for m in range(mice)],
                            columns=["video", "subject", "group", "action", "watched_s", "share"])
        cases = per_unit(rows, unit=unit)
        a, b = (cases.value[cases.group == g].to_numpy() for g in "ab")
        alarms += compare_two(a, b, args.draws)["p"] < .05
    return round(float(alarms) / args.times, 4)


rows = []
for shape in "normal", "skewed":
    for n, sd in (((8, 8), (1, 1)), ((8, 8), (3, 1)), ((6, 18), (1, 1)), ((6, 18), (3, 1)), ((6, 18), (1, 3))):
        rows.append({"values": shape, "animals": n, "sd": sd, **tests(shape, n, sd)})
        print(rows[-1], flush=True)
for unit in "animal", "cage":
    rows.append({"cages": 8, "mice": 4, "alike": 0.8, "unit": unit, "alarms": caged(unit)})
    print(rows[-1], flush=True)
if args.json: Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")

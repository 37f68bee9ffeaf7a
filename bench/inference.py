"""Frames per second of a recipe on one core, member by member, and of its trees' peer.

    OMP_NUM_THREADS=1 python bench/inference.py RUN DATA --json F
    OMP_NUM_THREADS=1 python bench/inference.py RUN DATA --before CHECKOUT OLD_RUN --json F

One video of DATA goes through features and members of the recipe in RUN, `--rounds`
times; the seconds are the shortest of processor time. The peer of the trees is
scikit-learn, from whose model they are taken: both answer for the same invented frames.
With `--before` the last video of DATA is predicted from its file to its bouts, in turn by
OLD_RUN, a recipe that the code in CHECKOUT trained, and by RUN in either engine: median
ratios of the shortest of three. How often `bfloat16` says the same is counted over `--videos`.
CHECKOUT is any earlier working tree, this one too; OLD_RUN must be one that it reads. It needs
a processor with instructions for bfloat16, and says so where there are none.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.features import compute

HERE = Path(__file__).resolve().parents[1]


def shortest(work, rounds):
    "What a piece of work returns, and its seconds."
    took = []
    for _ in range(rounds):
        begun = time.process_time()
        out = work()
        took.append(time.process_time() - begun)
    return out, min(took)


def whole(run, data, engine):
    "Shortest of three predictions of the last video, from its file to its bouts."
    dataset = open_dataset(data)
    try:
        from mabe_nb.train.ensemble.blend import load_recipe
        predict = load_recipe(run, "cpu", engine).predict
    except ImportError: # A tree of before 2026-11-22
        from mabe_nb.train.recipe import load_recipe, predict_recipe
        recipe = load_recipe(run)
        predict = lambda *args, **how: predict_recipe(recipe, *args, **how)
    def work():
        with tempfile.TemporaryDirectory() as cache:
            predict(dataset, dataset.ids[-1:], cache=cache, threads=1)
    work()
    return shortest(work, 3)[1]


def beside(before, run, data, rounds):
    "Rows of whole predictions: seconds before and now, median of the paired ratios."
    (checkout, old), found = before, {"float32": [], "bfloat16": []}
    def ask(package, *what):
        done = subprocess.run([sys.executable, __file__, *map(str, what[:2]), "--whole", what[2]],
                              check=True, text=True, stdout=subprocess.PIPE,
                              env=os.environ | {"PYTHONPATH": str(package)})
        return float(done.stdout.split()[-1])
    for _ in range(rounds):
        took = ask(checkout, old, data, "float32")
        for engine, pairs in found.items(): pairs.append((took, ask(HERE, run, data, engine)))
    return [{"engine": engine, "before_s": statistics.median(a for a, _ in pairs),
             "now_s": statistics.median(b for _, b in pairs),
             "faster": statistics.median(a / b for a, b in pairs), "rounds": pairs}
            for engine, pairs in found.items()]


def same_classes(run, dataset, ids):
    "Share of frames, of all pairs, for which `bfloat16` decides as `float32` does."
    from mabe_nb.train.ensemble.blend import load_recipe
    said = []
    for engine in ("float32", "bfloat16"):
        said.append([])
        load_recipe(run, "cpu", engine).predict(
            dataset, ids, each=lambda pair: said[-1].append(pair.on))
    one, two = map(np.concatenate, said)
    return {"videos": len(ids), "frames": len(one), "same": float((one == two).all(1).mean())}


def members(recipe, rec, rounds):
    "Rows of what each part of a recipe takes for one video."
    names = dict.fromkeys(some[0].features for some in recipe.members.values())
    read = {name: shortest(lambda: compute(rec, name, parts=recipe.parts).values, rounds)
            for name in names}
    rows = [{"part": name, "models": 0, "seconds": s} for name, (_, s) in read.items()]
    for name, some in recipe.members.items():
        values = read[some[0].features][0]
        _, s = shortest(lambda: [member(values) for member in some], rounds)
        rows.append({"part": name, "models": len(some), "seconds": s})
    return rows


def trees(rounds):
    "Seconds of ours and of scikit-learn for 4,000 frames, 370 channels, 8 classes."
    from mabe_nb.train.ensemble.boosting import tree_probabilities, trees_of
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 370)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    codes = np.digitize(np.nan_to_num(x[:, :3]).sum(1), np.linspace(-2, 2, 7))
    model = HistGradientBoostingClassifier(max_iter=120, max_leaf_nodes=15,
                                           max_features=0.3, early_stopping=False)
    ours, some = trees_of(model.fit(x, codes)), x[:4000]
    p, mine = shortest(lambda: tree_probabilities(ours, some, 8), rounds)
    q, theirs = shortest(lambda: model.predict_proba(some), rounds)
    assert np.array_equal(p, q)
    return {"ours_s": mine, "scikit_learn_s": theirs}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("run", type=Path)
    p.add_argument("data", type=Path)
    p.add_argument("--video", help="default: the first")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--before", nargs=2, metavar=("CHECKOUT", "OLD_RUN"))
    p.add_argument("--videos", type=int, default=10, help="with --before")
    p.add_argument("--json", type=Path)
    p.add_argument("--whole", help=argparse.SUPPRESS)
    args = p.parse_args()
    torch.set_num_threads(1)
    if args.whole: return print(whole(args.run, args.data, args.whole))
    if args.before:
        from mabe_nb.measure.probe import processor
        dataset, rows = open_dataset(args.data), beside(args.before, args.run, args.data, args.rounds)
        out = {"date": time.strftime("%Y-%m-%d"), "cpu": processor(), "load": os.getloadavg()[0],
               "data": args.data.name, "rows": rows,
               "agreement": same_classes(args.run, dataset, dataset.ids[-args.videos:])}
        print(json.dumps(out, indent=1))
        if args.json: args.json.write_text(json.dumps(out, indent=1) + "\n")
        return
    from mabe_nb.train.ensemble.blend import load_recipe
    dataset = open_dataset(args.data)
    rec = dataset[args.video or dataset.ids[0]]
    rows = members(load_recipe(args.run), rec, args.rounds)
    total = sum(r["seconds"] for r in rows)
    out = {"video": rec.video_id, "frames": len(rec), "seconds": total,
           "frames_per_second": len(rec) / total, "parts": rows, "trees": trees(args.rounds)}
    for r in rows: print(f"{r['part']:24} {r['models'] or '':>3} {r['seconds']:7.3f} s")
    print(f"{len(rec) / total:,.0f} frames/s, {total:.2f} s for {len(rec):,} frames")
    print("trees: {ours_s:.3f} s, scikit-learn {scikit_learn_s:.3f} s".format(**out["trees"]))
    if args.json: args.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__": main()

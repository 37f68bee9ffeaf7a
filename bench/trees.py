"""Boosted trees of scikit-learn, read by NumPy, against XGBoost and LightGBM as they are.

    python bench/trees.py --json F          # `pip install -r bench/requirements.txt` first

The trees of the recipe on `rats`: one fold of whole neighbouring videos is left out. Times
are of the processor, one thread: to learn, and to ask about every third frame of the videos
left out, as the recipe does. F1 is the mean of the actions by the most probable class.
"""
import argparse
import json
import time
from pathlib import Path

import lightgbm
import numpy as np
import xgboost

from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.dataset import dataset_parts, open_dataset
from mabe_nb.data.splits import labelled_groups
from mabe_nb.train.ensemble.boosting import grow_trees, tree_probabilities
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.ensemble.members import sampled
from mabe_nb.train.predict import decide
from mabe_nb.train.scores.frames import f1_of, video_counts

ROUNDS, LEAVES, RATE = 120, 15, 0.08 # As in `grow_trees`


def of_package(x, codes, seed):
    "Learned by scikit-learn, asked by NumPy."
    trees = grow_trees(x, codes, ROUNDS, LEAVES, RATE, seed)
    return lambda v: tree_probabilities(trees, v, codes.max() + 1)[:, np.unique(codes)]


def of_xgboost(x, codes, seed):
    seen, y = np.unique(codes, return_inverse=True)
    booster = xgboost.train(
        {"objective": "multi:softprob", "num_class": len(seen), "tree_method": "hist",
         "grow_policy": "lossguide", "max_depth": 0, "max_leaves": LEAVES, "eta": RATE,
         "colsample_bynode": 0.3, "reg_lambda": 5, "min_child_weight": 15, "nthread": 1,
         "seed": seed}, xgboost.QuantileDMatrix(x, y, nthread=1), ROUNDS)
    return booster.inplace_predict


def of_lightgbm(x, codes, seed):
    seen, y = np.unique(codes, return_inverse=True)
    booster = lightgbm.train(
        {"objective": "multiclass", "num_class": len(seen), "num_leaves": LEAVES,
         "learning_rate": RATE, "feature_fraction_bynode": 0.3, "lambda_l2": 5,
         "min_data_in_leaf": 100, "num_threads": 1, "seed": seed, "verbose": -1},
        lightgbm.Dataset(x, y), ROUNDS)
    return lambda v: booster.predict(v, num_threads=1)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", default="rats")
    p.add_argument("--folder", default=Path(__file__).resolve().parents[2]/"shared"/"data")
    p.add_argument("--features", default="unordered+multiscale")
    p.add_argument("--fold", type=int, default=2, help="of 1 to 5, the one left out")
    p.add_argument("--seeds", type=int, default=2)
    p.add_argument("--json")
    args = p.parse_args()
    data = open_dataset(Path(args.folder)/args.data)
    split = contiguous_folds(labelled_groups(data), 5)[args.fold - 1]
    prepared = prepare(data, args.features, parts=tuple(dataset_parts(data)))
    x, codes = sampled(prepared, list(split.train), 12)
    rows = np.flatnonzero(prepared.sequences.video_id.isin(split.valid))
    values = [np.asarray(prepared.values(i)[::3]) for i in rows]
    labels, seen = [prepared.labels(i)[::3] for i in rows], np.unique(codes)
    found = []
    for name, learn in (("scikit-learn, read by NumPy", of_package), ("XGBoost", of_xgboost),
                        ("LightGBM", of_lightgbm)):
        for seed in range(args.seeds):
            begun = time.process_time()
            ask = learn(x, codes, seed)
            fitted = time.process_time()
            told = [ask(v) for v in values]
            asked = time.process_time()
            p = [np.zeros((len(t), 1 + len(prepared.actions))) for t in told]
            for full, t in zip(p, told): full[:, seen] = t
            counts = video_counts(labels, [decide(q, (y >= 0).any(0))
                                           for q, y in zip(p, labels)])
            found.append({"trees": name, "seed": seed, "fit_s": round(fitted - begun, 2),
                          "ask_s": round(asked - fitted, 3),
                          "f1": round(float(np.nanmean(f1_of(counts.sum(0)))), 4)})
            print(found[-1], flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps({
            "data": args.data, "fold": args.fold, "learned": len(x), "asked":
            sum(map(len, values)), "date": time.strftime("%Y-%m-%d"), "rows": found},
            indent=1) + "\n")


if __name__ == "__main__": main()

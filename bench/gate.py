"""Is it better to say an action only where some action is likely? Nested, paired over videos.

    python bench/gate.py RUN --data rat_fights --json F   # a run kept by bench/recipe.py

Each video is decided about as the other folds would have it, but for `any_threshold`: first
without one, then with every action taken back where the probabilities of all of them together
stay below the one that the other folds chose, and below fixed ones. Differences are
with the bar less without, their deviation is over draws of videos.
"""
import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from paired import DRAWS, HERE, counts, scores
from recipe import JUDGED, out_of_fold

from mabe_nb.data.dataset import open_dataset
from mabe_nb.files import read_json
from mabe_nb.train.ensemble.decide import codes_of, nested
from mabe_nb.train.ensemble.directed import shares_to_try
from mabe_nb.train.ensemble.member_specs import RECIPES
from mabe_nb.train.predict import blended

FIXED = (0.3, 0.35, 0.4, 0.45, 0.5)


def options_of(run):
    "The shares that the recipe of a run chose among."
    about, metrics = read_json(run/"recipe.json"), read_json(run/"metrics.json")
    specs = {s.name: s for s in RECIPES[metrics["recipe"]]}
    specs = [replace(specs[m["name"]], seeds=len(m["files"]) // len(metrics["folds"]))
             for m in about["members"]]
    return shares_to_try(specs, {a: d for a, d in metrics["directed"].items()
                                 if a not in about["self_actions"]})


def likely(s, decision):
    "How probable it is that some action happens, (frames,)."
    return blended(s.p, decision.shares, s.fps, decision.smooth_ms)[:, 1:].sum(1)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("run", type=Path)
    p.add_argument("--data", required=True, help="name of the dataset")
    p.add_argument("--folder", type=Path, default=HERE.parent/"shared"/"data")
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    sequences = out_of_fold(open_dataset(args.folder/args.data), args.run)
    _, chosen = nested(sequences, options_of(args.run))
    kept = [codes_of(chosen[s.fold]._replace(any_threshold=0.0), s) for s in sequences]
    any_of = [likely(s, chosen[s.fold]) for s in sequences]

    def judged(codes):
        return counts({"actions": read_json(args.run/"recipe.json")["actions"],
                       "video": [s.video for s in sequences],
                       "frames": [len(c) for c in codes], "codes": np.concatenate(codes),
                       "labels": np.concatenate([s.labels for s in sequences])},
                      JUDGED[args.data])

    own = {fold: decision.any_threshold for fold, decision in chosen.items()}
    first, rows = judged(kept), []
    rng, n = np.random.default_rng(0), len(first[0])
    draws = [rng.integers(0, n, n) for _ in range(DRAWS)]
    for name, bar in (("of the other folds", own), *((b, dict.fromkeys(own, b)) for b in FIXED)):
        now = judged([np.where(q < bar[s.fold], -1, c)
                      for s, q, c in zip(sequences, any_of, kept)])
        gain = np.array([scores(*now, d) - scores(*first, d) for d in draws]).std(0)
        for what, a, b, sd in zip(("mean F1", "F1 of any", "right kind"),
                                  scores(*first), scores(*now), gain):
            rows.append({"bar": name, "what": what, "without": round(float(a), 4),
                         "with": round(float(b), 4), "gain": round(float(b - a), 4),
                         "deviation": round(float(sd), 4)})
            print(rows[-1], flush=True)
    if args.json: args.json.write_text(json.dumps(
        {"data": args.data, "videos": n, "bars": own, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__": main()

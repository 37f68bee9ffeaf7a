"""Is it better to say sooner what is frequent in the minutes around? Nested, paired over videos.

    python bench/rates.py RUN --data rats --json F   # a run kept by bench/recipe.py

Each video is decided about as the other folds would have it: first whatever the rates, then
with each width and power of `with_rates` always, how often each class is usually said being
taken from the other folds, and last as the recipe does it, by the log loss of the other folds.
Differences are with the rates less without, their deviation is over draws of videos. The log
loss is that of the probabilities of all labelled frames.
"""
import argparse
import json
from pathlib import Path

import numpy as np
from gate import options_of
from paired import DRAWS, HERE, counts, scores
from recipe import JUDGED, out_of_fold

from mabe_nb.data.dataset import open_dataset
from mabe_nb.files import read_json
from mabe_nb.train import predict
from mabe_nb.train.ensemble import decide
from mabe_nb.train.ensemble.members import class_codes
from mabe_nb.train.scores.frames import by_video

TRIED = ((60, 0.25), (120, 0.25), (240, 0.125), (240, 0.25), (240, 0.5), (240, 1.0), (480, 0.25))


def log_losses(sequences, chosen):
    "Sum and number of the frames whose class is known, (videos, 2), as the other folds chose."
    sums = []
    for s in sequences:
        d, y = chosen[s.fold], class_codes(s.labels)
        p = decide.blend_members(d, s.p, s.fps, decide.looked_for(s))[y >= 0, y[y >= 0]]
        sums.append((-np.log(np.maximum(p, 1e-6)).sum(dtype=float), len(p)))
    return by_video([s.video for s in sequences], np.array(sums))[1]


def mean_loss(losses, some=slice(None)):
    return float(np.divide(*np.asarray(losses)[some].sum(0)))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("run", type=Path)
    p.add_argument("--data", required=True, help="name of the dataset")
    p.add_argument("--folder", type=Path, default=HERE.parent/"shared"/"data")
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    as_chosen = decide.with_usual
    sequences = out_of_fold(open_dataset(args.folder/args.data), args.run)
    actions, shares = read_json(args.run/"recipe.json")["actions"], options_of(args.run)
    usual, never = (predict.RATES_MS / 1000, predict.RATES_POWER), lambda some, choice: choice

    def judged(taken, seconds, power):
        predict.RATES_MS, predict.RATES_POWER, decide.with_usual = seconds * 1000, power, taken
        codes, chosen = decide.nested(sequences, shares)
        return log_losses(sequences, chosen), sum(bool(d.usual) for d in chosen.values()), counts(
            {"actions": actions, "video": [s.video for s in sequences],
             "frames": [len(c) for c in codes], "codes": np.concatenate(codes),
             "labels": np.concatenate([s.labels for s in sequences])},
            JUDGED.get(args.data, actions))

    loss, _, first = judged(never, *usual)
    rng, n, rows = np.random.default_rng(0), len(first[0]), []
    draws = [rng.integers(0, n, n) for _ in range(DRAWS)]
    f1 = lambda of, *some: scores(*of, *some)[0]
    print("without", round(float(f1(first)), 4), round(mean_loss(loss), 4), flush=True)
    for taken, *how in (*((decide.rated_choice, *tried) for tried in TRIED),
                        (as_chosen, *usual)):
        now_loss, folds, now = judged(taken, *how)
        gains = [(f1(now, d) - f1(first, d), mean_loss(now_loss, d) - mean_loss(loss, d))
                 for d in draws]
        rows.append({"seconds": how[0], "power": how[1], "taken": f"in {folds} folds, by "
                     "log loss" if taken is as_chosen else "always", "mean_f1": round(float(f1(now)), 4),
                     "gain": round(float(f1(now) - f1(first)), 4),
                     "deviation": round(float(np.std(gains, 0)[0]), 4),
                     "log_loss": round(mean_loss(now_loss), 4),
                     "lower_by": round(mean_loss(loss) - mean_loss(now_loss), 4),
                     "deviation_of_that": round(float(np.std(gains, 0)[1]), 4)})
        print(rows[-1], flush=True)
    if args.json: args.json.write_text(json.dumps(
        {"data": args.data, "videos": n, "without": {
            "mean_f1": round(float(f1(first)), 4), "log_loss": round(mean_loss(loss), 4)},
         "rows": rows}, indent=1) + "\n")


if __name__ == "__main__": main()

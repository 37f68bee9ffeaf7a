"""Default settings against others: macro F1 on videos left out, fold by fold.

    python bench/defaults.py DATA --others "dropout=0.5; frame_gap=2" --json F

DATA is an annotated folder. One network of `mabe train` learns in each of some of five folds
of whole neighbouring videos, with the defaults and with each other set of settings. The epoch
that is kept is chosen on the videos that judge, in all rows alike. With `--learn-from 12` it
learns from twelve of the other videos, evenly spaced.
"""
import argparse
import json
import tempfile
from pathlib import Path

import torch

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.splits import labelled_groups
from mabe_nb.train.config import make_config
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.runs import train
from recipe import JUDGED

BEFORE = "frame_gap=2 epochs=10 keypoint_dropout=0 scale=0 time_stretch=0" # Until 2026-11-23


def settings(text):
    "`a=1 b=2; c=3` -> name and settings of each set."
    sets = [s.strip() for s in text.split(";") if s.strip()]
    return {s: dict(pair.split("=", 1) for pair in s.split()) for s in sets}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("data", type=Path)
    p.add_argument("--others", default=BEFORE, help="sets, apart by `;`")
    p.add_argument("--folds", default="1,3", help="of 1 to 5, the folds left out in turn")
    p.add_argument("--learn-from", type=int, default=10**9, help="videos, of all that there are")
    p.add_argument("--json", type=Path)
    args, rows = p.parse_args(), []
    torch.set_num_threads(1)
    data = open_dataset(args.data)
    splits = contiguous_folds(labelled_groups(data), 5)
    for name, given in {"defaults": {}, **settings(args.others)}.items():
        for k in map(int, args.folds.split(",")):
            learn, valid = splits[k - 1].train, splits[k - 1].valid
            every = max(len(learn) / args.learn_from, 1)
            learn = [learn[int(i * every)] for i in range(min(len(learn), args.learn_from))]
            with tempfile.TemporaryDirectory() as work:
                metrics = train(data, Path(work)/"run", make_config(given | {"seed": k}),
                                learn, valid)
            f1 = metrics["valid"]["f1"]
            judged = [f1[a] for a in JUDGED.get(args.data.name, f1) if f1[a] is not None]
            rows.append({"settings": name, "fold": k, "videos": len(learn), "epoch": metrics["best"]["epoch"],
                         "macro_f1": round(sum(judged) / len(judged), 4)})
            print(rows[-1], flush=True)
    out = {"data": args.data.name, "rows": rows}
    if args.json: args.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__": main()

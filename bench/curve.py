"""What more videos bring: a learning curve of boosted trees on real rats.

    python bench/curve.py --json F

Trees of the recipe's kind on `even+wide`, half as many rounds, learn from 5, 10, 20 and
36 of videos 1 to 36, each set holding the smaller ones, in three orders; videos 37 to 46
judge every time. Decisions are the most probable class. The folder of the data is the one
beside the checkout, or `--folder`.
"""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.splits import groups
from mabe_nb.train.scores.frames import f1_of, video_counts
from mabe_nb.train.ensemble.members import train_boost
from mabe_nb.train.predict import decide
from mabe_nb.train.ensemble.folds import learning_curve

TREES = {"sample": 12, "rounds": 60}
p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--folder", default=Path(__file__).resolve().parents[2]/"shared"/"data")
p.add_argument("--sizes", type=int, nargs="+", default=[5, 10, 20, 36])
p.add_argument("--repeats", type=int, default=3)
p.add_argument("--json")
args = p.parse_args()
data, begun, rows = open_dataset(Path(args.folder)/"rats"), time.perf_counter(), []


def judge(train_ids, judge_ids, seed):
    "Mean F1 of the actions on the videos that judge."
    trees = train_boost(prepared, train_ids, TREES, seed)
    at = np.flatnonzero(prepared.sequences.video_id.isin(judge_ids))
    labels = [prepared.labels(i) for i in at]
    codes = [decide(trees(prepared.values(i)), (y >= 0).any(0))
             for i, y in zip(at, labels)]
    f1 = f1_of(video_counts(labels, codes).sum(0))
    rows.append({"f1": dict(zip(prepared.actions, f1.round(4).tolist()))})
    return f1.mean()


def said(row):
    rows[-1] |= row | {"score": round(row["score"], 4)}
    print(f"{time.perf_counter() - begun:6.0f} s  {json.dumps(rows[-1])}", flush=True)


with tempfile.TemporaryDirectory() as work:
    prepared = prepare(data, "unordered+multiscale", out=Path(work)/"features",
                       progress=False)
    curve = learning_curve(groups(data), [str(v) for v in range(37, 47)], args.sizes,
                           judge, args.repeats, each=said)
print(curve.round(4))
row = {"data": "rats", "features": "even+wide", "trees": TREES, "judged_by": "37-46",
       "minutes": round((time.perf_counter() - begun) / 60, 1), "runs": rows,
       "curve": curve.round(4).reset_index().to_dict("records")}
if args.json: Path(args.json).write_text(json.dumps(row, indent=1) + "\n")

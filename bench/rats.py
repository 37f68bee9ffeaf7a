"""Default settings on real data: macro F1, score, chance and minutes.

    python bench/rats.py DATA --train-videos 1-36 --valid-videos 37-46 --json F

DATA is a folder in Kaggle's layout; the published figures are of 46 videos of two rats
(figshare 10.6084/m9.figshare.30393298). Each step is the command that a user would type.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def mabe(*words):
    "A command of the package, its answer and the seconds it took."
    begun = time.perf_counter()
    out = subprocess.run([Path(sys.executable).with_name("mabe"), *map(str, words), "--json"],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out), time.perf_counter() - begun


p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("data")
p.add_argument("--train-videos", default="1-36")
p.add_argument("--valid-videos", default="37-46")
p.add_argument("--json")
args = p.parse_args()
with tempfile.TemporaryDirectory() as work:
    work, judged = Path(work), ["--videos", args.valid_videos]
    metrics, fit = mabe("train", args.data, "--out", work/"run", "--train-videos",
                        args.train_videos, "--valid-videos", args.valid_videos)
    _, said = mabe("predict", work/"run", args.data, *judged, "--out", work/"s.csv")
    score, _ = mabe("score", args.data, work/"s.csv", *judged)
row = {"macro_f1": metrics["valid"]["macro_f1"], "f1": metrics["valid"]["f1"],
       "map": metrics["valid"]["map"], "score": score["score"], "chance": score["chance"],
       "epochs": metrics["best"]["epoch"], "train_s": round(fit, 1),
       "predict_s": round(said, 1)}
print(json.dumps(row, indent=1))
if args.json: Path(args.json).write_text(json.dumps(row, indent=1) + "\n")

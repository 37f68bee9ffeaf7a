"""Engines beside float32 on real videos: processor time, probabilities, classes.

    OMP_NUM_THREADS=1 python bench/engines.py DATA RUN [RUN ...] --videos 37-46 --json F

RUN is a single run or the file of a recipe's network. Every video is predicted by every
engine, in alternating order; ratios are medians over the videos, on one thread.
"""
import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from mabe_nb.data.dataset import open_dataset, select_videos
from mabe_nb.errors import ConfigError
from mabe_nb.train.classifier import wanted_actions
from mabe_nb.train.arithmetic.engines import ENGINES
from mabe_nb.train.model import load_model
from mabe_nb.train.predict import decide, probabilities


def loaded(run):
    "The classifier of a run in every engine that this machine has."
    out = {}
    for engine in ENGINES:
        try: out[engine] = load_model(run, device="cpu", engine=engine)
        except ConfigError as e: print(f"{engine}: {e}")
    return out


def row(run, dataset, ids):
    "What each engine makes of the videos."
    of = loaded(run)
    clf = of["float32"]
    cfg, prepared = clf.cfg, clf.prepared(dataset, ids)
    said = {engine: {"ratio": [], "agreement": [], "off": []} for engine in of}
    rows = np.flatnonzero(prepared.sequences.video_id.isin(ids))
    for turn, i in enumerate([rows[0], *rows]): # the first time warms up
        x, p, took = np.array(prepared.values(i)), {}, {}
        for engine, model in [*of.items()][::(-1) ** turn]:
            begun = time.process_time()
            p[engine] = probabilities(model.model, x, cfg.sequence_length, cfg.frame_gap,
                                      clf.possible, cfg.loss, inputs=clf.inputs)
            took[engine] = time.process_time() - begun
        if not turn: continue
        wanted = wanted_actions(clf, prepared, i)
        codes = {engine: decide(q, wanted) for engine, q in p.items()}
        for engine, to in said.items():
            to["ratio"].append(took["float32"] / took[engine])
            to["agreement"].append((codes[engine] == codes["float32"]).mean())
            to["off"].append(abs(p[engine] - p["float32"]).max())
    return {"run": Path(run).stem, "network": cfg.model_type, "frames": cfg.sequence_length,
            "gap": cfg.frame_gap, "engines": {e: {
                "ratio": round(statistics.median(to["ratio"]), 3),
                "agreement": round(float(np.mean(to["agreement"])), 5),
                "largest_difference": float(max(to["off"]))} for e, to in said.items()}}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("data", type=Path)
    p.add_argument("runs", type=Path, nargs="+")
    p.add_argument("--videos", required=True, help="that no run has learned from")
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    torch.set_num_threads(1)
    dataset, rows = open_dataset(args.data), []
    ids = list(select_videos(dataset, args.videos))
    for run in args.runs:
        rows.append(row(run, dataset, ids))
        for engine, of in rows[-1]["engines"].items():
            print(f"{rows[-1]['run']:20} {rows[-1]['network']:12} {engine:9} "
                  f"{of['ratio']:.2f}x, same class in {of['agreement']:.3%}, at most "
                  f"{of['largest_difference']:.1g}", flush=True)
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__": main()

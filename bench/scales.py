"""Labs with and without a scale in one training: what is lost where the scale is.

    python bench/scales.py --json F
    python bench/scales.py --data DATA/rats --cm 15 --json F

A colony of 19 labs of two videos of half a minute each, of which one lab has no pixels per cm:
the default network with 8 epochs, and the competition's score on the videos that judge, of
that lab and of all, with its scale written down and without. With `--data` every second video
of a folder without scales gets one, by which its animals are as long as `--cm` says, and the
first of five folds of whole neighbouring videos judges; without `--cm` none gets one.
"""
import argparse
import datetime
import json
import tempfile
from pathlib import Path

import torch

from mabe_nb.data.blocks.bodies import body_length
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.splits import labelled_groups
from mabe_nb.data.synthetic import write_colony
from mabe_nb.measure.probe import processor
from mabe_nb.train.config import make_config
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.runs import train
from mabe_nb.verbs import fit, score, split
from recipe import JUDGED


def scaled(folder, cm):
    "A folder of which every second video has a scale."
    recs = [data[v] for data in [open_dataset(folder)] for v in data.ids]
    return RecordingList([rec.replace(px_per_cm=body_length(rec) / cm) if i % 2 else rec
                          for i, rec in enumerate(recs)], folder)


def colony_rows(work, seeds):
    "Rows of the colony, with its scale and without."
    data = open_dataset(write_colony(work/"colony", labs=[3] + [2] * 18, minutes=0.5))
    lost = [v for v in data.ids if not data[v].px_per_cm]
    lab, frame = data.lab(lost[0]), data.table.set_index("video_id")
    width = frame.video_width_pix / frame.arena_width_cm
    width.index = width.index.astype(str)
    known = RecordingList([data[v].replace(px_per_cm=float(width[v])) if v in lost
                           else data[v] for v in data.ids])
    learn, judge = split(data)
    for seed in range(seeds):
        for name, videos in ("known", known), ("lost", data):
            model = fit(videos, work/f"{name}{seed}", train_videos=learn, progress=False,
                        valid_videos=judge, epochs=8, seed=seed, say=lambda line: None)
            got = score(data, model.predict(videos, judge), judge)
            yield {"data": "colony", "seed": seed, "scale": name, "score": round(got["score"], 4),
                   "of that lab": round(got["labs"][lab]["score"], 4)}


def folder_row(folder, cm, work):
    "A row of a folder."
    data = scaled(folder, cm) if cm else open_dataset(folder)
    fold = contiguous_folds(labelled_groups(data), 5)[0]
    f1 = train(data, work/"run", make_config({"seed": 1}), fold.train, fold.valid)["valid"]["f1"]
    judged = [f1[a] for a in JUDGED.get(folder.name, f1) if f1[a] is not None]
    return {"data": folder.name, "cm": cm, "macro_f1": round(sum(judged) / len(judged), 4)}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", type=Path)
    p.add_argument("--cm", type=float)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--json", type=Path)
    args, rows = p.parse_args(), []
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        found = ([folder_row(args.data, args.cm, Path(work))] if args.data
                 else colony_rows(Path(work), args.seeds))
        for row in found:
            rows.append(row)
            print(row, flush=True)
    about = {"date": str(datetime.date.today()), "processor": processor()}
    if args.json: args.json.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__": main()

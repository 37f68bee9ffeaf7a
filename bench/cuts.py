"""Whether a prediction depends on where a file was cut.

    OMP_NUM_THREADS=1 python bench/cuts.py RUN DATA [--frames 108000] [--cuts 4] --json F

The videos of DATA one after the other make a recording of `--frames`; RUN predicts it whole, and
once more in two files, cut at frames drawn at random. For each cut: from how many frames away of it
no probability differs by more than 0.0001, and the share of frames farther than `--beyond` seconds
that get another class, whatever the thresholds are. Where the scale is unknown it is taken from the
animals of the whole recording, for the two files as well: of each file alone it is another.
"""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from mabe_nb.data.blocks.bodies import scale
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.train.model import load_model


def joined(dataset, frames):
    "A recording of so many frames, made of as many videos as it takes."
    first, parts, have = dataset[dataset.ids[0]], [], 0
    for vid in dataset.ids * (1 + frames // len(first)):
        if have >= frames: break
        rec = dataset[vid]
        if (rec.mice, rec.parts, rec.fps) != (first.mice, first.parts, first.fps): continue
        parts.append(rec.xy)
        have += len(rec)
    rec = first.replace(xy=np.concatenate(parts)[:frames], video_id="whole", labelled=None,
                        bouts=first.bouts[:0], scored=None, reviewed=None)
    return rec.replace(px_per_cm=rec.px_per_cm or 1 / scale(rec)[0])


def ask(model, recs):
    "Pair -> (frames, classes), the recordings one after the other."
    out = {}
    for rec in recs:
        with tempfile.TemporaryDirectory() as cache:
            model.predict(RecordingList([rec]), cache=cache, each=lambda q: out.setdefault(
                (q.agent, q.target), []).append(q.p))
    return {pair: np.concatenate(p) for pair, p in out.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("run", type=Path)
    p.add_argument("data", type=Path)
    p.add_argument("--frames", type=int, default=108_000)
    p.add_argument("--cuts", type=int, default=4)
    p.add_argument("--beyond", type=float, default=120, help="seconds")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    rec, model = joined(open_dataset(args.data), args.frames), load_model(args.run, device="cpu")
    whole, rows = ask(model, [rec]), []
    at = np.arange(len(rec))
    for cut in np.random.default_rng(args.seed).integers(len(rec) // 5, len(rec) * 4 // 5, args.cuts):
        halves = [rec.replace(xy=xy, video_id=name)
                  for name, xy in zip(("first", "second"), np.split(rec.xy, [cut]))]
        two = ask(model, halves)
        off = np.stack([abs(two[pair] - whole[pair]).max(1) for pair in whole])
        other = np.stack([two[pair].argmax(1) != whole[pair].argmax(1) for pair in whole])
        differ = abs(np.flatnonzero((off > 1e-4).any(0)) - cut)
        far = abs(at - cut) > args.beyond * rec.fps
        rows.append({"cut": int(cut), "frames_that_differ": len(differ),
                     "farthest_s": float(differ.max(initial=0) / rec.fps),
                     "largest_far": float(off[:, far].max()), "other_class": float(other.mean()),
                     "other_class_far": float(other[:, far].mean())})
        print(rows[-1], flush=True)
    out = {"date": time.strftime("%Y-%m-%d"), "run": args.run.name, "data": args.data.name,
           "frames": len(rec), "beyond_s": args.beyond, "rows": rows}
    if args.json: args.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__": main()

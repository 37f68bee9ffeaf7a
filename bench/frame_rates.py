"""Videos of other frame rates than those learned from: macro F1 at either pace.

    python bench/frame_rates.py --data rats --json F

The default network learns from four of five folds of whole neighbouring videos; those of the
first are predicted as they are, and as if filmed at other rates: points between two frames
lie on a straight line between them, bouts keep their time. `kept` takes every n-th frame as in
training, `adapted` as many in a second, which is what `mabe predict` does.
"""
import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.splits import labelled_groups
from mabe_nb.train.config import make_config
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.model import load_model
from mabe_nb.train.runs import predict_labelled, train
from mabe_nb.train.scores.frames import masked_f1
from recipe import JUDGED


def filmed(rec, times):
    "A recording as if filmed with so many times as many frames a second."
    at = np.arange(round(len(rec.xy) * times)) / times
    a = np.minimum(at.astype(int), len(rec.xy) - 1)
    b, share = np.minimum(a + 1, len(rec.xy) - 1), (at - a).astype(np.float32)
    share = share[:, None, None, None]
    xy = np.where(share > 0, rec.xy[a] * (1 - share) + rec.xy[b] * share, rec.xy[a])
    bouts = rec.bouts.assign(start=(rec.bouts.start * times).astype(int),
                             stop=np.minimum(np.ceil(rec.bouts.stop * times), len(xy)).astype(int))
    return rec.replace(xy=xy, fps=rec.fps * times, bouts=bouts)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", required=True, help="folder, of which JUDGED names what counts")
    p.add_argument("--folder", default=Path(__file__).resolve().parents[2]/"shared"/"data",
                   type=Path)
    p.add_argument("--json", type=Path)
    args, rows = p.parse_args(), []
    torch.set_num_threads(1)
    data = open_dataset(args.folder/args.data)
    split = contiguous_folds(labelled_groups(data), 5)[0]
    with tempfile.TemporaryDirectory() as work:
        train(data, Path(work)/"run", make_config({"seed": 1}), split.train, split.valid)
        clf = load_model(Path(work)/"run")
        for times in (0.5, 1, 2, 4):
            videos = RecordingList([filmed(data[v], times) for v in split.valid])
            prepared = prepare(videos, clf.inputs.features, out=f"{work}/{times}",
                               parts=clf.inputs.parts, progress=False)
            wide = replace(clf.inputs, fps=(0.001, 1e6)) # As if learned from any rate
            row = {"data": args.data, "frames_s": clf.inputs.fps[0] * times}
            for name, inputs in (("kept", wide), ("adapted", clf.inputs)):
                of = predict_labelled(replace(clf, inputs=inputs), prepared, split.valid)
                f1 = dict(zip(clf.actions, masked_f1(of.labels, of.codes)))
                row[name] = round(float(np.mean([f1[a] for a in JUDGED.get(args.data, f1)])), 4)
            rows.append(row)
            print(row, flush=True)
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__": main()

"""Videos of other frame rates than those learned from: macro F1 at either pace.

    python bench/frame_rates.py --data rats --json F
    python bench/frame_rates.py --data rats --mixed --fold 2

The default network learns from four of five folds of whole neighbouring videos; those of the
first are predicted as they are, and as if filmed at other rates: points between two frames
lie on a straight line between them, bouts keep their time. `kept` takes every n-th frame as in
training, `adapted` as many in a second, which is what `mabe predict` does.

With `--mixed` every second video, learned from or predicted, is as if filmed at four times the
rate: `kept` learns from frames as they lie, `adapted` from one frame rate, as `mabe train` does.
"""
import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.splits import labelled_groups
from mabe_nb.train import training_set
from mabe_nb.train.config import make_config
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.inputs import Inputs
from mabe_nb.train.model import load_model
from mabe_nb.train.runs import train
from mabe_nb.train.postprocess import predict_labelled
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


def macro_f1(clf, videos, ids, name, work):
    "Of the actions that count in this folder."
    of = predict_labelled(clf, prepare(videos, clf.inputs.features, out=work, progress=False,
                                       parts=clf.inputs.parts), ids)
    f1 = dict(zip(clf.actions, masked_f1(of.labels, of.codes)))
    return round(float(np.mean([f1[a] for a in JUDGED.get(name, f1)])), 4)


def learned(videos, split, folder):
    "The default network, learned from all folds but one."
    train(videos, folder, make_config({"seed": 1}), split.train, split.valid)
    return load_model(folder)


def other_rates(data, split, name, work):
    "Learned from one rate, asked about others."
    clf = learned(data, split, work/"run")
    for times in (0.5, 1, 2, 4):
        videos = RecordingList([filmed(data[v], times) for v in split.valid])
        fast = replace(clf.inputs, rate=clf.inputs.rate * times)
        kept, adapted = (macro_f1(replace(clf, inputs=i), videos, split.valid, name,
                                  work/str(times)) for i in (fast, clf.inputs))
        yield {"frames_s": clf.inputs.rate * times, "kept": kept, "adapted": adapted}


def mixed_rates(data, split, name, work):
    "Learned from two rates, asked about both."
    videos = RecordingList([filmed(data[v], 4) if i % 2 else data[v]
                            for i, v in enumerate(sorted(split.train + split.valid))])
    adapted = macro_f1(learned(videos, split, work/"one"), videos, split.valid, name, work/"x")
    with (patch.object(training_set, "frames_at", lambda frames, fps, rate: np.arange(frames)),
          patch.object(Inputs, "gap_at", lambda self, gap, fps: gap)):
        kept = macro_f1(learned(videos, split, work/"both"), videos, split.valid, name, work/"x")
    yield {"frames_s": "every second video at 4 times", "kept": kept, "adapted": adapted}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", required=True, help="folder, of which JUDGED names what counts")
    p.add_argument("--folder", default=Path(__file__).resolve().parents[2]/"shared"/"data",
                   type=Path)
    p.add_argument("--fold", type=int, default=0)
    p.add_argument("--mixed", action="store_true", help="learn from two frame rates")
    p.add_argument("--json", type=Path)
    args, rows = p.parse_args(), []
    torch.set_num_threads(1)
    data = open_dataset(args.folder/args.data)
    split = contiguous_folds(labelled_groups(data), 5)[args.fold]
    with tempfile.TemporaryDirectory() as work:
        rates = mixed_rates if args.mixed else other_rates
        for row in rates(data, split, args.data, Path(work)):
            rows.append({"data": args.data, "fold": args.fold} | row)
            print(rows[-1], flush=True)
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__": main()

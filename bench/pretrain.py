"""Does pretraining on unlabelled tracks pay? Labels of 3, 6, 12, 24 videos, tracks of all.

    python bench/pretrain.py --data rats --json F

A network of the recipe (convolutions and an LSTM, 200 ms) first learns to fill in spans
of its inputs that were blanked, from the tracks of all videos; its weights but for the
head are then where training on the labelled videos starts. Beside it the same training
from fresh weights, on the same videos with the same seed. Judged by the most probable
class on the videos of the last of five folds, whose labels nobody saw (their tracks are
among those of all). A gain stands beside its standard deviation over draws of the judged
videos, the draws of labelled videos averaged.
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import smooth_l1_loss

from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.dataset import dataset_parts, open_dataset
from mabe_nb.data.splits import labelled_groups
from mabe_nb.train.config import make_config
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.ensemble.members import Net, at_frame_rate, enough_epochs
from mabe_nb.train.ensemble.member_specs import SLOW
from mabe_nb.train.fit.frames import epoch_starts
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.models import make_model
from mabe_nb.train.arithmetic.windows import gather
from mabe_nb.train.predict import decide
from mabe_nb.train.scores.frames import by_video, f1_of, video_counts
from mabe_nb.train.training_set import new_classifier, training_set
from recipe import JUDGED


def spans(windows, length, share, rng):
    "Which frames are blanked: spans of 3 to 12 of them, (windows, length) bool."
    out = np.zeros((windows, length), bool)
    for row in out:
        while row.mean() < share:
            at, n = rng.integers(length), rng.integers(3, 13)
            row[at:at + n] = True
    return torch.from_numpy(out)


def pretrained(data, cfg, steps, share, seed):
    "Weights of a network that fills in what is blanked, and its error against a mean's."
    torch.manual_seed(seed)
    rng, x, dim = np.random.default_rng(seed), data.learn.x, data.inputs.dim
    model = make_model(cfg, dim, dim).train()
    best = torch.optim.AdamW(model.parameters(), cfg.learning_rate, weight_decay=cfg.weight_decay)
    rate = torch.optim.lr_scheduler.OneCycleLR(best, cfg.learning_rate, steps)
    known, size, gap = np.arange(len(x) + 1), cfg.sequence_length, cfg.gap
    starts, errors = [], []
    for _ in range(steps):
        if len(starts) < cfg.batch_size:
            starts = list(rng.permutation(epoch_starts(
                data.learn.lengths, known, size, gap, cfg.stride, rng, gap)))
        batch = gather(x, starts[:cfg.batch_size], size, gap)
        starts, blank = starts[cfg.batch_size:], spans(len(batch), size, share, rng)
        seen = torch.where(blank[..., None], 0.0, batch) + 0.1 * torch.randn_like(batch)
        told, true = model(seen)[blank], batch[blank]
        loss = smooth_l1_loss(told, true)
        best.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        best.step()
        rate.step()
        errors.append((loss.item(), smooth_l1_loss(torch.zeros_like(true), true).item()))
    last, mean = np.mean(errors[-steps // 10:], 0)
    return model.state_dict(), round(last / mean, 3)


def learned(prepared, ids, settings, seed, weights=None):
    "A network from some videos; its running mean."
    settings = at_frame_rate(settings, 30.0) | {"seed": seed}
    least, table = settings.pop("least_steps"), prepared.sequences
    cfg = make_config(settings)
    epochs = enough_epochs(cfg, int(table.frames[table.video_id.isin(ids)].sum()), least)
    cfg = make_config(settings | {"epochs": epochs, "early_stopping_patience": epochs})
    data = training_set(prepared, ids, ids[:1], cfg)
    clf = new_classifier(data)
    own = clf.model.state_dict()
    for k, v in (weights or {}).items():
        if not k.startswith("head."): own[k].copy_(v)
    trainer = Trainer(clf.model, data.learn, data.valid, data.weights, clf.possible, cfg,
                      augment=data.augment)
    trainer.fit()
    return Net(clf.__class__(trainer.average.model.eval(), clf.inputs, clf.actions,
                             clf.self_actions, clf.possible, cfg))


def counts_of(prepared, member, ids, judged):
    "Hits, false alarms and misses of each judged video, (videos, actions, 3)."
    rows = np.flatnonzero(prepared.sequences.video_id.isin(ids))
    labels = [prepared.labels(i) for i in rows]
    codes = [decide(member(prepared.values(i)), (y >= 0).any(0)) for i, y in zip(rows, labels)]
    _, counts = by_video([prepared.sequences.video_id.iloc[i] for i in rows],
                         video_counts(labels, codes))
    return np.asarray(counts)[:, [list(prepared.actions).index(a) for a in judged]]


def mean_f1(counts): return np.nanmean(f1_of(counts.sum(-3)), -1) # (..., videos, actions, 3)


p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--data", choices=JUDGED, default="rats")
p.add_argument("--folder", default=Path(__file__).resolve().parents[2]/"shared"/"data")
p.add_argument("--features", default="smoothed")
p.add_argument("--videos", type=int, nargs="+", default=[3, 6, 12, 24])
p.add_argument("--draws", type=int, default=3)
p.add_argument("--steps", type=int, default=1200, help="of the pretraining")
p.add_argument("--blank", type=float, default=0.3, help="share of the frames")
p.add_argument("--json")
args = p.parse_args()
torch.set_num_threads(1)
dataset, begun = open_dataset(Path(args.folder)/args.data), time.process_time()
table = labelled_groups(dataset)
split = contiguous_folds(table, 5)[4]
prepared = prepare(dataset, args.features, ids=list(table.video_id),
                   parts=tuple(dataset_parts(dataset)), progress=False)
settings = SLOW | {"features": args.features}
cfg = at_frame_rate(settings, 30.0)
cfg.pop("least_steps")
cfg, every = make_config(cfg), list(table.video_id)
weights, left = pretrained(training_set(prepared, every, every[:1], cfg), cfg,
                           args.steps, args.blank, 0)
row = {"data": args.data, "judged": list(split.valid), "error_left": left, "sizes": {},
       "pretraining_s": round(time.process_time() - begun, 1)}
print("error left of a mean's", left, "after", row["pretraining_s"], "s", flush=True)
rng = np.random.default_rng(0)
draws = rng.integers(0, len(split.valid), (1000, len(split.valid)))
for n in args.videos:
    pairs = []
    for k in range(args.draws):
        ids = sorted(rng.permutation(split.train)[:n].tolist())
        pairs.append([counts_of(prepared, learned(prepared, ids, settings, k, w),
                                split.valid, JUDGED[args.data]) for w in (None, weights)])
    of = np.array(pairs) # (draws of labelled videos, 2, videos, actions, 3)
    gain = np.diff(mean_f1(of[:, :, draws].transpose(2, 0, 1, 3, 4, 5)), axis=2)
    each = mean_f1(of)
    row["sizes"][n] = {"fresh": round(float(each[:, 0].mean()), 4),
                       "pretrained": round(float(each[:, 1].mean()), 4),
                       "gain": round(float((each[:, 1] - each[:, 0]).mean()), 4),
                       "sd": round(float(gain.mean((1, 2)).std()), 4),
                       "each": (each[:, 1] - each[:, 0]).round(4).tolist()}
    print(f"{time.process_time() - begun:5.0f} s  {n} videos  {row['sizes'][n]}", flush=True)
row["cpu_minutes"] = round((time.process_time() - begun) / 60, 1)
if args.json: Path(args.json).write_text(json.dumps(row, indent=1) + "\n")

"""What a retraining is worth that goes on from the old weights: held-out F1 and CPU seconds.

    python bench/retrain.py DATA --json F [--seeds 0,1,2] [--minutes 10]

DATA is an annotated folder in Kaggle's layout. A seed draws four videos to learn from, two
to choose the epoch by, six whose labels are hidden and eight to judge by. A run is trained
on the first; the moments that it ranks first are reviewed for some minutes (the truth of
their frames is told, as corrections). Then, on equal data and by `mb.retrain`: fresh
weights; the old weights with as many epochs; the old weights with a third of them. CPU
seconds are those of the process, on features that lie in a cache already.
"""
import argparse
import json
import platform
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

from mabe_nb.data.corrections import Correction, add_correction, with_corrections
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.recording import frame_labels, run_lengths
from mabe_nb.train.classifier import load_classifier
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.folder.weights import load_run
from mabe_nb.train.review.moments import predict_for_review, rank_moments
from mabe_nb.train.review.retrain import reviewed_split
from mabe_nb.train.runs import train
from mabe_nb.train.postprocess import assess

NET = {"features": "directed", "model_type": "tcn", "hidden_size": 32, "num_layers": 4,
       "sequence_length": 128, "frame_gap": 2, "epochs": 12,
       "learning_rate": 3e-3, "num_workers": 1, "device": "cpu"}
WAYS = {"fresh": (False, 12), "warm": (True, 12), "warm, a third of the epochs": (True, 4)}


def hidden(rec): return rec.replace(labelled=None, bouts=rec.bouts[:0])


def answers(rec, m, actions):
    "What somebody who knows the truth says of a moment."
    pair, start, stop = (m.agent, m.target), int(m.start), int(m.stop)
    labels = frame_labels(rec, *pair, actions)[start:stop]
    yield "nothing", "", start, stop
    for k, action in enumerate(actions):
        for on, a, b in run_lengths((labels[:, k] == 1) - 1):
            if on == 0: yield "relabel", action, start + int(a), start + int(b)


def tell(file, truth, moments, told):
    "The truth of some moments as a file of corrections."
    actions = {p[:3]: p.actions for p in told}
    for m in moments.itertuples():
        names = actions[m.video_id, m.agent, m.target]
        for verdict, action, a, b in answers(truth[m.video_id], m, names):
            add_correction(file, Correction(m.video_id, m.agent, m.target, verdict, action, a, b,
                                            tuple(names)), "x")


def one(truth, seed, minutes, tmp, cache):
    "Rows of one seed."
    rng = np.random.RandomState(seed)
    ids = list(rng.permutation(sorted(truth.ids)))
    learn, valid, unseen, judge = ids[:4], ids[4:6], ids[6:12], ids[12:20]
    data = RecordingList([hidden(truth[i]) if i in unseen else truth[i] for i in ids], tmp)
    cfg, file = TrainConfig(seed=seed, **NET), tmp/"corrections.jsonl"
    begun = time.process_time()
    train(data, tmp/"run", cfg, learn, valid, cache=cache)
    spent, old = time.process_time() - begun, load_run(tmp/"run")
    ready = old.prepared(data, [*judge, *valid], cache)
    score = lambda clf, ids=judge: assess(clf, ready, ids)["macro_f1"]
    yield {"way": "before", "seed": seed, "macro_f1": score(old), "cpu_s": round(spent, 1)}
    told = list(predict_for_review(old, data, unseen, cache))
    tell(file, truth, rank_moments(told, minutes), told)
    better = with_corrections(data, file)
    split = reviewed_split(better, learn, valid, cfg)
    better_cache = tmp/"cache"
    for name, (warm, epochs) in WAYS.items():
        if name == "fresh": old.prepared(better, [*split[0], *split[1]], better_cache)
        out = tmp/f"{name} run".replace(" ", "_").replace(",", "")
        begun = time.process_time()
        train(better, out, cfg.model_copy(update={"epochs": epochs}), *split, cache=better_cache,
              init=tmp/"run" if warm else None)
        spent = time.process_time() - begun
        new = load_classifier(out/"best.safetensors")
        yield {"way": name, "seed": seed, "macro_f1": score(new), "cpu_s": round(spent, 1),
               "valid_macro_f1": score(new, valid)}


def summary(rows):
    "Mean and sd of each way, and of its difference to fresh weights in the same seed."
    table = pd.DataFrame(rows)
    own = table.pivot(index="seed", columns="way", values="macro_f1")
    out = []
    for way, of in table.groupby("way", sort=False):
        less = own[way] - own["fresh"] if "fresh" in own else own[way] * np.nan
        out.append({"way": way, "n": len(of), "macro_f1": round(of.macro_f1.mean(), 4),
                    "sd": round(of.macro_f1.std(), 4), "minus_fresh": round(less.mean(), 4),
                    "minus_fresh_sd": round(less.std(), 4), "cpu_s": round(of.cpu_s.mean(), 1)})
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("data")
    p.add_argument("--json", type=Path)
    p.add_argument("--seeds", default="0,1,2")
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--cache", help="folder of prepared features")
    args = p.parse_args()
    truth, rows = open_dataset(args.data), []
    for seed in map(int, args.seeds.split(",")):
        with tempfile.TemporaryDirectory() as tmp:
            for row in one(truth, seed, args.minutes, Path(tmp), args.cache):
                rows.append(row)
                print(", ".join(f"{k} {v}" for k, v in row.items()), flush=True)
        about = {"date": date.today().isoformat(), "data": Path(args.data).name, "rows": rows,
                 "minutes": args.minutes, "summary": summary(rows),
                 "machine": {"system": platform.platform()}}
        if args.json: args.json.write_text(json.dumps(about, indent=1) + "\n")
    print(pd.DataFrame(summary(rows)).to_string(index=False))


if __name__ == "__main__": main()

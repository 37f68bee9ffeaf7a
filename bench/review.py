"""What a minute of review is worth: F1 on held-out videos against minutes looked at.

    python bench/review.py DATA --json F [--seeds 0,1,2] [--minutes 5,10,20] [--ways ours,doubt]

DATA is an annotated folder in Kaggle's layout. A seed draws two annotated videos to begin
with, fourteen whose labels are hidden, and ten to judge by. In each round a small network
learns from all that is known, the moments to look at are chosen, and the truth of these
alone is told (their frames; all others stay unknown). A moment costs its own seconds and
one before and after. Three ways to choose: `rank_moments` (ours), the mean doubt of the same
moments alone, and stretches of four seconds anywhere, at random.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.corrections import Correction
from mabe_nb.data.dataset import open_dataset
from mabe_nb.train.ensemble.members import train_net
from mabe_nb.train.review.moments import _of_classifier, rank_moments, within
from mabe_nb.train.postprocess import assess

WAYS = "ours", "random", "doubt"
NET = {"features": "directed", "model_type": "tcn", "hidden_size": 32, "num_layers": 4,
       "sequence_length": 128, "frame_gap": 2, "epochs": 12, "least_steps": 150,
       "learning_rate": 3e-3, "device": "cpu"}
STRETCH = 4.0 # Seconds


def predictions(net, prepared, ids):
    "What a network says of some videos."
    return list(_of_classifier(Ready(net.clf, prepared), None, ids, None, 1, False))


class Ready:
    "A classifier whose features are prepared."
    def __init__(self, clf, prepared): self.clf, self.ready = clf, prepared
    def __getattr__(self, name): return getattr(self.clf, name)
    def prepared(self, *how): return self.ready


def stretches(told, seen, rng):
    "Stretches of some seconds anywhere, in a random order."
    rows = [(m.video_id, m.agent, m.target, a, min(a + round(STRETCH * m.fps), len(m.p)), m.fps)
            for m in told for a in range(0, len(m.p), round(STRETCH * m.fps))]
    table = pd.DataFrame(rows, columns=["video_id", "agent", "target", "start", "stop", "fps"])
    table["seconds"] = (table.stop - table.start) / table.fps
    done = {(r.video, r.agent, r.target, r.start) for r in seen}
    fresh = [r[:4] not in done for r in table.itertuples(index=False)]
    return table[fresh].sample(frac=1, random_state=rng)


def choose(way, told, minutes, seen, rng):
    "What to look at next."
    if way == "ours": return rank_moments(told, minutes, seen)
    if way == "random": return within(stretches(told, seen, rng), minutes)
    return within(rank_moments(told, 1e9, seen).sort_values("uncertainty", ascending=False), minutes)


def tell(prepared, moments):
    "The truth of some moments becomes known; gives them as corrections."
    for m in moments.itertuples():
        info = prepared.videos[m.video_id]
        info["reviewed"] += [(m.agent, m.target, a, m.start, m.stop) for g, t, a
                             in info["labelled"] if (g, t) == (m.agent, m.target)]
    return [Correction(m.video_id, m.agent, m.target, "nothing", "", int(m.start),
                       int(m.stop), ("x",)) for m in moments.itertuples()]


def curve(prepared, way, seed, budgets, first={}):
    "Macro F1 after each budget, the first of no review, which is the same for all ways."
    rng = np.random.RandomState(seed)
    ids = list(rng.permutation(sorted(prepared.videos)))
    start, hidden, judge = ids[:2], ids[2:16], ids[16:26]
    for v in hidden: prepared.videos[v]["reviewed"] = []
    out, seen, spent = [], [], 0
    for budget in (*budgets, None):
        known = start + [v for v in hidden if prepared.videos[v]["reviewed"]]
        if known != start or seed not in first:
            net = train_net(prepared, known, NET, seed)
            out.append(assess(net.clf, prepared, judge)["macro_f1"])
            if known == start: first[seed] = net, out[-1]
        else: out.append(first[seed][1])
        print(way, seed, spent, round(out[-1], 4), flush=True)
        if budget is None: break
        told = predictions(net if spent else first[seed][0], prepared, hidden)
        moments = choose(way, told, budget - spent, seen, rng)
        seen += tell(prepared, moments)
        spent = budget
    for v in hidden: prepared.videos[v]["reviewed"] = None
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("data")
    p.add_argument("--json")
    p.add_argument("--seeds", default="0,1,2")
    p.add_argument("--minutes", default="5,10,20")
    p.add_argument("--ways", default=",".join(WAYS))
    p.add_argument("--cache", help="folder of prepared features")
    args = p.parse_args()
    seeds, budgets = ([*map(int, x.split(","))] for x in (args.seeds, args.minutes))
    data = open_dataset(args.data)
    prepared = prepare(data, NET["features"], out=args.cache, progress=False)
    rows = []
    for seed in seeds:
        for way in args.ways.split(","):
            f1 = curve(prepared, way, seed, budgets)
            rows += [{"way": way, "seed": seed, "minutes": m, "macro_f1": x}
                     for m, x in zip((0, *budgets), f1)]
            table = pd.DataFrame(rows).groupby(["way", "minutes"]).macro_f1.agg(
                ["mean", "std", "count"]).round(4).reset_index()
            about = {"data": Path(args.data).name, "rows": rows,
                     "table": json.loads(table.to_json(orient="records"))}
            if args.json: Path(args.json).write_text(json.dumps(about, indent=1) + "\n")
    print(table.to_string(index=False))


if __name__ == "__main__": main()

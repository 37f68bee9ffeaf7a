"""Investigation and mount in real clips of two mice, by folds of whole groups.

    python bench/clips.py --json F
    python bench/clips.py --shuffle      labels dealt out anew: what chance scores

1,369 clips of CalMS21 of 13 frames; clips of one group share frames and stay together.
Each member of the blend is one kind of model on one part of the clip. No fold that is
scored has a say: scaling, members and thresholds come from the other four, thresholds
from their own out-of-fold predictions (`INNER` folds of groups). Every round deals the
groups out anew. The interval is over draws of groups. What is not nested: channels,
parts of the clip and settings of the models were fixed by a person who had seen folds
of these same clips. The folder of the data is beside the checkout, or `--folder`.
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.features import compute
from mabe_nb.train.scores.trust import bootstrap

ACTIONS, AIMS = ("investigation", "mount"), (0.80, 0.78)
FOLDS, INNER, FPS = 5, 4, 5.0 # The clips are subsampled: frames per second, about
SPANS = {"early": [(0, 5)], "middle": [(4, 9)], "late": [(8, 13)],
         "halves": [(3, 8), (8, 13)], "thirds": [(0, 4), (4, 9), (9, 13)]}
TREES = ("early", "middle", "late", "halves")
NEAR, SHAPE = ("early", "middle", "late", "halves", "thirds"), ("halves", "thirds")


def channels(rec):
    "`even` and the logarithms of the distances of all points: (frames, channels) each."
    known = compute(rec.replace(fps=FPS), "even")
    keep = [i for i, n in enumerate(known.names) if not n.endswith("_missing")]
    points = rec.xy.reshape(len(rec), -1, 2)
    a, b = np.triu_indices(points.shape[1], 1)
    gaps = np.log1p(np.linalg.norm(points[:, a] - points[:, b], axis=-1) / 10)
    half = len(rec.parts)
    return known.values[:, keep], gaps, gaps[:, (a < half) & (b >= half)]


def spans(x, name):
    "Means over the parts of the clip, side by side: (clips, channels)."
    return np.concatenate([np.nan_to_num(np.nanmean(x[:, a:b], 1))
                           for a, b in SPANS[name]], 1)


def deal(groups, k, seed):
    "Fold of every clip; a group is in one."
    names, at = np.unique(groups, return_inverse=True)
    return np.random.default_rng(seed).permutation(len(names))[at] % k


def trees(x, y, train, test, seed):
    "Log odds of each action: (clips, actions)."
    model = ExtraTreesClassifier(100, min_samples_leaf=2, class_weight="balanced",
                                 random_state=seed)
    p = model.fit(x[train], y[train] @ (1, 2)).predict_proba(x[test])[:, 1:]
    p = np.clip(p, 0.003, 0.997)
    return np.log(p / (1 - p))


def kernel(x, y, train, test, seed):
    "Distance from the border of each action, cut at 3: (clips, actions)."
    model = lambda: make_pipeline(StandardScaler(), SVC(
        C=5, gamma=1/x.shape[1], class_weight="balanced"))
    return np.stack([np.clip(model().fit(x[train], v).decision_function(x[test]), -3, 3)
                     for v in y[train].T], 1)


def best_line(score, y):
    "The threshold of the best F1; `y` may be probabilities."
    order = np.argsort(-score)
    f1 = 2*np.cumsum(y[order]) / (np.arange(len(y)) + 1 + y.sum())
    i = f1[:-1].argmax()
    return score[order[i:i + 2]].mean()


def calm_line(score, y):
    "The threshold of the best F1 that calibrated scores expect: steadier if few are."
    x = score[:, None]
    likely = LogisticRegression(C=10).fit(x, y).predict_proba(x)[:, 1]
    return best_line(score, likely)


def out_of_fold(members, y, groups, seed):
    "Scores of all clips and of what each fold learns from: (members, clips, actions)."
    fold, rows = deal(groups, FOLDS, seed), []
    score = lambda *which: np.stack([make(x, y, *which, seed) for make, x in members])
    for k in range(FOLDS):
        train, test = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        part, told = deal(groups[train], INNER, (seed, k)), None
        for i in range(INNER):
            p = score(train[part != i], train[part == i])
            told = np.zeros((len(p), len(train), p.shape[2])) if told is None else told
            told[:, part == i] = p
        rows.append((train, test, told, score(train, test)))
    return rows


def everyone(told, y): return np.arange(len(told))


def best_five(told, y):
    "Members of the best average precision."
    return np.argsort([-average_precision_score(y, p) for p in told])[:5]


def judge(rows, y, k, pick, line):
    "What one blend with one way to a threshold makes of an action."
    said, score = np.zeros(len(y), bool), np.zeros(len(y))
    for train, test, told, now in rows:
        some = pick(told[..., k], y[train, k])
        score[test] = now[some, :, k].mean(0)
        said[test] = score[test] >= line(told[some, :, k].mean(0), y[train, k])
    seen = y[:, k]
    each = [f1_score(seen[test], said[test]) for _, test, *_ in rows]
    return said, {"f1": f1_score(seen, said),
                  "best_line": f1_score(seen, score >= best_line(score, seen)),
                  "per_fold": np.mean(each),
                  "macro": f1_score(seen, said, average="macro"),
                  "ap": average_precision_score(seen, score)}


def forest(x, y, groups, seed):
    "A quick random forest that says what it holds for more likely than not."
    fold, said = deal(groups, FOLDS, seed), np.zeros(y.shape, bool)
    for k in range(FOLDS):
        for a in range(y.shape[1]):
            model = RandomForestClassifier(200, class_weight="balanced",
                                           random_state=seed)
            model.fit(x[fold != k], y[fold != k, a])
            said[fold == k, a] = model.predict(x[fold == k])
    return said, fold


def summary(values):
    "Mean over the rounds and their deviation, by name."
    return {k: (round(float(np.mean([v[k] for v in values])), 4),
                round(float(np.std([v[k] for v in values])), 4)) for k in values[0]}


def interval(said, seen, groups):
    "95 % of the F1 over draws of groups, the rounds taken together."
    names, at = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), 1, 3), int)
    for one in said:
        for i, hit in enumerate((one & seen, one & ~seen, ~one & seen)):
            np.add.at(counts[:, 0, i], at, hit)
    return bootstrap(counts)


p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--folder", default=Path(__file__).resolve().parents[2]/"shared"/"data")
p.add_argument("--rounds", type=int, default=5, help="times that the folds are dealt")
p.add_argument("--shuffle", action="store_true", help="labels dealt out anew")
p.add_argument("--json")
args = p.parse_args()
begun = time.perf_counter()
clips = list(open_dataset(Path(args.folder)/"calms21_clips"))
groups = np.array([r.meta["group"] for r in clips])
y = np.array([[a in set(r.bouts.action) for a in ACTIONS] for r in clips])
if args.shuffle: y = np.random.default_rng(0).permutation(y)
even, gaps, near = (np.stack(v).astype(np.float32) for v in zip(*map(channels, clips)))
whole = np.concatenate([even, gaps], 2)
members = ([(trees, spans(whole, s)) for s in TREES] + [(kernel, spans(near, s))
           for s in NEAR] + [(kernel, spans(gaps, s)) for s in SHAPE])
plain = np.concatenate([f(near, 1) for f in (np.mean, np.std, np.min, np.max)], 1)
ways = {"blend of all": (everyone, calm_line), "bare threshold": (everyone, best_line),
        "best five, chosen inside": (best_five, calm_line),
        "trees alone": (lambda told, y: np.arange(len(TREES)), calm_line),
        "kernels alone": (lambda told, y: np.arange(len(TREES), len(told)), calm_line)}
found, said, quick = {(w, a): [] for w in ways for a in ACTIONS}, [], []
for seed in range(args.rounds):
    rows = out_of_fold(members, y, groups, seed)
    for way, how in ways.items():
        for k, a in enumerate(ACTIONS): found[way, a].append(judge(rows, y, k, *how))
    guess, fold = forest(plain, y, groups, seed)
    quick.append([{"f1": f1_score(y[:, k], guess[:, k]), "per_fold": np.mean(
        [f1_score(y[fold == i, k], guess[fold == i, k]) for i in range(FOLDS)]),
        "macro": f1_score(y[:, k], guess[:, k], average="macro")} for k in range(2)])
    f1 = ", ".join(f"{a} {found['blend of all', a][-1][1]['f1']:.3f}" for a in ACTIONS)
    print(f"{time.perf_counter() - begun:5.0f} s  round {seed + 1}: {f1}", flush=True)
out = {"clips": len(y), "groups": len(set(groups)), "seen": dict(zip(
    ACTIONS, y.sum(0).tolist())), "folds": FOLDS, "rounds": args.rounds,
    "shuffled": args.shuffle, "members": len(members), "actions": {}}
for k, (a, aim) in enumerate(zip(ACTIONS, AIMS)):
    table = {w: summary([m for _, m in found[w, a]]) for w in ways}
    mine, seen = table["blend of all"], y[:, k]
    span = interval([s for s, _ in found["blend of all", a]], seen, groups)
    out["actions"][a] = {"f1": mine["f1"][0], "aim": aim, "interval": span,
        "optimism": round(mine["best_line"][0] - mine["f1"][0], 4),
        "all_said": round(2*seen.sum() / (len(seen) + seen.sum()), 4),
        "ways": table, "quick_forest": summary([q[k] for q in quick])}
    print(f"\n{a}: F1 {mine['f1'][0]:.3f} (aim {aim:.2f}; groups drawn anew "
          f"{span[0]:.3f} to {span[1]:.3f}; said of every clip "
          f"{out['actions'][a]['all_said']:.3f})")
    print(f"  {'':26}{'F1':>14}{'best line':>11}{'per fold':>10}{'macro':>8}{'AP':>7}")
    for w, m in (*table.items(), ("quick forest at 0.5",
                                  out["actions"][a]["quick_forest"])):
        cells = "".join(f"{m[c][0]:>{n}.3f}" if c in m else " " * n for c, n in
                        (("best_line", 11), ("per_fold", 10), ("macro", 8), ("ap", 7)))
        print(f"  {w:26}{m['f1'][0]:>7.3f} ±{m['f1'][1]:.3f}{cells}")
out["minutes"] = round((time.perf_counter() - begun) / 60, 1)
if args.json: Path(args.json).write_text(json.dumps(out, indent=1) + "\n")

"""Many labs, in the competition's order: who judges whom, and what a lab of its own gains.

    python bench/labs.py --json F                       # 19 labs: 40 videos of two, 5 of others
    python bench/labs.py --differ --json F              # labs that mean different things by a word
    python bench/labs.py --kept DATA RUN --json F       # of a recipe that is there

The labs are those of `mabe synth --labs`. With `--differ`, a third of them call an approach
a sniff too, and a third mark no bout under a second. Ways to serve a lab are compared
on out-of-fold probabilities of one recipe, every choice nested: decisions that are common to
all labs, thresholds of a lab where they gain, and thresholds with a correction of the log
probabilities in each lab (linear, fitted with a pull towards none at all). A fold leaves
four of the five videos of a lab to choose from, so `labs of 5 videos` asks for four. A gain
stands beside its standard deviation over draws of videos within each lab; under two of them
it is called nothing. Two ways more set the probabilities right before anything is decided: the log
odds of each action by a slope and a bias that are common to all labs, and on top of it a
bias of each lab, drawn towards the common one by as much as chance explains of what labs
differ in (DerSimonian and Laird 1986). `log_loss` is of the probabilities, a mean over labs.
"""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.recording import bout_table
from mabe_nb.data.splits import groups
from mabe_nb.data.synthetic import invented_lab, write_colony
from mabe_nb.files import read_json
from mabe_nb.kaggle.bundle import make_bundle, open_bundle
from mabe_nb.train.ensemble import decide
from mabe_nb.train.ensemble.thresholds import log_odds
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.ensemble.labs import fold_facts
from mabe_nb.train.ensemble.recipe import train_recipe
from mabe_nb.train.config import make_config
from mabe_nb.train.runs import train
from mabe_nb.train.scores.frames import by_video, f1_of, video_counts
from recipe import out_of_fold


NEVER = 10**6 # Videos of a lab


def differing(rec, lab):
    "A video as the annotators of lab number `lab` mark it."
    bouts = rec.bouts
    if lab % 3 == 1 and {t[2] for t in rec.labelled} >= {"approach", "sniff"}:
        bouts = bouts.assign(action=bouts.action.replace("approach", "sniff"))
        rec = rec.replace(labelled=frozenset(t for t in rec.labelled if t[2] != "approach"))
    if lab % 3 == 2: bouts = bouts[bouts.stop - bouts.start >= rec.fps]
    return rec.replace(bouts=bout_table(bouts.itertuples(index=False)))


def unseen_share(table, parts):
    "Share of the videos that are judged by models that saw no video of their lab."
    return sum((~left.lab_id.isin(table.lab_id[~table.video_id.isin(left.video_id)])).sum()
               for left in parts) / len(table)


def corrected(sequences, learn, pull):
    "Sequences of a lab by a linear map of log probabilities, fitted on some of its own."
    logs = lambda s: np.log(s.p[0] + 1e-4)
    x = torch.tensor(np.concatenate([logs(s)[::10] for s in learn])).double()
    y = torch.tensor(np.concatenate([s.labels[::10] for s in learn]))
    unknown = torch.cat([(y < 0).all(1, keepdim=True), y < 0], 1)
    seen = torch.where((y == 1).any(1), 1 + (y == 1).int().argmax(1), 0)
    some, n = ~unknown[:, 0], x.shape[1]
    w = torch.zeros(n + 1, n, dtype=x.dtype, requires_grad=True)
    best = torch.optim.LBFGS([w], max_iter=60, line_search_fn="strong_wolfe")

    def loss():
        best.zero_grad()
        scores = (x + x @ w[:n] + w[n]).masked_fill(unknown, -30)[some]
        out = torch.nn.functional.cross_entropy(scores, seen[some], reduction="sum")
        out = out + pull * (w ** 2).sum()
        out.backward()
        return out
    best.step(loss)
    w, out = w.detach().numpy(), []
    for s in sequences:
        q = logs(s) + logs(s) @ w[:n] + w[n]
        q[:, 1:][:, (s.labels < 0).all(0)] = -30
        q = np.exp(q - q.max(1, keepdims=True))
        out.append(s._replace(p=(q / q.sum(1, keepdims=True))[None].astype(np.float32)))
    return out


def each_lab(learn, judge, pull, least):
    "Sequences to learn from and to judge, those of labs of `least` videos set right."
    mean = lambda some: [s._replace(p=s.p.mean(0)[None]) for s in some]
    learn, judge = mean(learn), mean(judge)
    out = ([], [])
    for lab in sorted({s.lab for s in learn} | {s.lab for s in judge}):
        mine = [[s for s in some if s.lab == lab] for some in (learn, judge)]
        enough = len({s.video for s in mine[0]}) >= least
        for k, some in enumerate(mine):
            out[k].extend(corrected(some, mine[0], pull) if enough and some else some)
    return out


def own_biases(scores, weights):
    "Lab -> bias, from its videos' (residuals, information), as far as labs differ."
    labs = sorted({lab for lab, _ in scores})
    of = {lab: np.array([scores[v] for v in scores if v[0] == lab]) for lab in labs}
    much = {lab: sum(weights[v] for v in weights if v[0] == lab) + 1e-9 for lab in labs}
    some = [lab for lab in labs if len(of[lab]) > 1]
    spread = sum(of[lab].var(ddof=1) * len(of[lab]) for lab in some)
    noise = spread / sum(much[lab] for lab in some) # frames of a video go together
    b = np.array([of[lab].sum() / much[lab] for lab in labs])
    w = np.array([much[lab] / max(noise, 1e-9) for lab in labs])
    extra = (w * (b - np.average(b, weights=w)) ** 2).sum() - (len(b) - 1)
    between = max(extra / (w.sum() - (w ** 2).sum() / w.sum() + 1e-9), 0.0)
    return dict(zip(labs, np.clip(between / (between + 1 / w) * b, -3, 3)))


def calibrated(learn, judge, by_lab):
    "Both with log odds of each action set right on `learn`, and in each lab if so wished."
    learn, judge = ([s._replace(p=s.p.mean(0)[None]) for s in some] for some in (learn, judge))
    n = learn[0].labels.shape[1]
    slope, bias, own = np.ones(n), np.zeros(n), [{} for _ in range(n)]
    for k in range(n):
        rows = [((s.lab, s.video), log_odds(s.p[0, ::10, 1 + k]), s.labels[::10, k])
                for s in learn if (s.labels[:, k] >= 0).any()]
        x, y = (np.concatenate([r[i] for r in rows]) for i in (1, 2))
        fit = LogisticRegression(C=1000).fit(x[y >= 0, None], y[y >= 0] == 1)
        slope[k], bias[k] = fit.coef_[0, 0], fit.intercept_[0]
        scores, weights = {}, {}
        for video, x, y in rows if by_lab else ():
            p = expit(slope[k] * x + bias[k])[y >= 0]
            scores[video] = scores.get(video, 0) + ((y[y >= 0] == 1) - p).sum()
            weights[video] = weights.get(video, 0) + (p * (1 - p)).sum()
        if by_lab: own[k] = own_biases(scores, weights)

    def right(s):
        here = bias + [of.get(s.lab, 0.0) for of in own]
        p = expit(slope * log_odds(s.p[0, :, 1:]) + here) * (s.labels >= 0).any(0)
        p = np.concatenate([np.maximum(1 - p.sum(1, keepdims=True), 1e-4), p], 1)
        return s._replace(p=(p / p.sum(1, keepdims=True))[None].astype(np.float32))
    return [[right(s) for s in some] for some in (learn, judge)]


def log_loss(sequences):
    "Of each action that was looked for, the mean over labs of the mean over sequences."
    by = {}
    for s in sequences:
        p, y = np.clip(s.p.mean(0)[::10, 1:], 1e-4, 1 - 1e-4), s.labels[::10]
        loss = -np.log(np.where(y == 1, p, 1 - p))[y >= 0]
        if len(loss): by.setdefault(s.lab, []).append(loss.mean())
    return float(np.mean([np.mean(v) for v in by.values()]))


def codes_by(sequences, least, change=lambda *both: both):
    "Counts by video, labs, log loss: decided as chosen, and `change`d, on the other folds."
    decide.MIN_VIDEOS = least
    out, every = [], []
    for fold in sorted({s.fold for s in sequences}):
        learn, judge = change([s for s in sequences if s.fold != fold],
                              [s for s in sequences if s.fold == fold])
        d = decide.choose(learn)
        out += [decide.codes_of(d, s) for s in judge]
        every += judge
    ids, counts = by_video([s.video for s in every], video_counts([s.labels for s in every], out))
    lab = {s.video: s.lab for s in every}
    order = np.argsort([int(v) for v in ids])
    return np.asarray(counts)[order], [lab[ids[i]] for i in order], log_loss(every)


def by_labs(counts, labs):
    "The mean over labs of the mean over their actions, as the competition has it."
    of = []
    for lab in sorted(set(labs)):
        f1 = f1_of(counts[np.array(labs) == lab].sum(0))
        if (~np.isnan(f1)).any(): of.append(np.nanmean(f1))
    return float(np.mean(of))


def gains(ways):
    "Score of each way, its gain over the first, and the gain's deviation over draws."
    (base, labs, _), rng = next(iter(ways.values())), np.random.default_rng(0)
    labs = np.array(labs)
    draws = [np.concatenate([rng.choice(np.flatnonzero(labs == lab), (labs == lab).sum())
                             for lab in sorted(set(labs))]) for _ in range(300)]
    out = {}
    for name, (counts, _, loss) in ways.items():
        diff = [by_labs(counts[d], labs[d]) - by_labs(base[d], labs[d]) for d in draws]
        out[name] = {"f1_by_lab": round(by_labs(counts, labs), 4),
                     "gain": round(by_labs(counts, labs) - by_labs(base, labs), 4),
                     "sd": round(float(np.std(diff)), 4), "log_loss": round(loss, 4)}
    return out


def ways_of(sequences):
    "Each way of the table: name -> counts by video, labs, log loss."
    ways = {"common": codes_by(sequences, NEVER),
            "thresholds, labs of 5 videos": codes_by(sequences, 4),
            "thresholds, larger labs alone": codes_by(sequences, 5)}
    for pull in (10.0, 100.0):
        ways[f"correction, pull {pull:g}"] = codes_by(
            sequences, 4, lambda *both: each_lab(*both, pull, 4))
    for name, by_lab in (("calibrated", False), ("calibrated, a bias of each lab", True)):
        way = lambda *both: calibrated(*both, by_lab)
        ways[name] = codes_by(sequences, NEVER, way)
        ways[f"{name}, thresholds"] = codes_by(sequences, 4, way)
    return ways


def show(row, file):
    "Print a result, and write it."
    row["date"] = time.strftime("%Y-%m-%d")
    print(json.dumps(row, indent=1))
    if file: Path(file).write_text(json.dumps(row, indent=1) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--labs", type=int, nargs="+", default=[5, 5, 40] + [5] * 8 + [40] + [5] * 7)
    p.add_argument("--minutes", type=float, default=0.4)
    p.add_argument("--differ", action="store_true")
    p.add_argument("--recipe", default="quick")
    p.add_argument("--network", action="store_true", help="a default network too, 2 epochs")
    p.add_argument("--out", help="folder of the run; default: none is kept")
    p.add_argument("--kept", nargs=2, metavar=("DATA", "RUN"), help="the ways alone, of this run")
    p.add_argument("--json")
    args = p.parse_args()
    torch.set_num_threads(1)
    if args.kept:
        run = Path(args.kept[1])
        return show({"recipe": read_json(run/"recipe.json")["recipe"], "ways": gains(ways_of(
            out_of_fold(open_dataset(args.kept[0]), run)))}, args.json)
    with tempfile.TemporaryDirectory() as work:
        out, begun = Path(args.out or work), time.perf_counter()
        if not (out/"colony").exists():
            write_colony(out/"colony", minutes=args.minutes, labs=args.labs)
        data = open_dataset(out/"colony")
        if args.differ:
            number = {invented_lab(i).name: i for i in range(len(args.labs))}
            data = RecordingList([differing(data[v], number[data.lab(v)]) for v in data.ids])
        table = groups(data)
        splits = contiguous_folds(table, 5)
        row = {"labs": args.labs, "minutes": args.minutes, "differ": args.differ,
               "recipe": args.recipe, "videos": len(table), "unseen": {
            "folds of this package": unseen_share(
                table, [table[table.video_id.isin(s.valid)] for s in splits]),
            "neighbours whatever the lab": round(unseen_share(
                table, [table.iloc[i] for i in np.array_split(np.arange(len(table)), 5)]), 3)},
            "labs_unseen": sum(map(len, fold_facts(table, splits)["lab_unseen"]))}
        seconds = row["seconds"] = {"data": round(time.perf_counter() - begun, 1)}

        def timed(name, call):
            at = time.perf_counter()
            got = call()
            seconds[name] = round(time.perf_counter() - at, 1)
            print(name, seconds[name], "s", flush=True)
            return got
        if not (out/"run"/"recipe.json").exists():
            timed("recipe", lambda: train_recipe(data, out/"run", args.recipe,
                                                 cache=out/"features"))
        if not args.differ:
            new = open_dataset(out/"colony", "test")
            if not (out/"kit").exists(): make_bundle(out/"run", out/"kit")
            kit = open_bundle(out/"kit")
            told = timed("predict", lambda: kit.predict(new, cache=out/"new"))
            listed = [(r.agent_id, r.agent_id if r.target_id == "self" else r.target_id,
                       r.action) in new.whitelist(str(r.video_id)) for r in told.itertuples()]
            row["bundle"] = {"videos": len(new.ids), "predicted": told.video_id.nunique(),
                             "bouts": len(told), "in_whitelist": bool(np.all(listed))}
        if args.network:
            row["network"] = timed("network", lambda: train(data, out/"single", make_config(
                {"epochs": 2}), cache=out/"one"))["valid"]["macro_f1"]
        row["ways"] = gains(ways_of(out_of_fold(data, out/"run")))
    show(row, args.json)


if __name__ == "__main__": main() # workers import this file

"""Which members, and how many seeds of each: blends of the recipe's members, folds left out.

    python bench/blends.py --data rats --out RUN --json F
    python bench/blends.py --data rats --out RUN2 --halves 30 --json F

Each seed of each member is trained once for all folds, as the recipe does it, and kept in
RUN/members; what it says of the videos that it did not see is kept in RUN/seeds. A blend is
then a mean, every model counting once, and the most probable class is taken: nothing is chosen on the folds but the
blend itself, which is why all that were looked at are written down. The gain is over the
first blend, on the same videos, with its standard deviation over draws of videos. With
`--halves 30` the first 30 videos are judged by models of the others, and the reverse.
"""
import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from mabe_nb.data.dataset import dataset_parts, open_dataset
from mabe_nb.data.splits import Split, labelled_groups
from mabe_nb.measure.probe import processor
from mabe_nb.train.ensemble.members import prepared_for
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.ensemble.member_specs import RECIPES, VARIED, MemberSpec
from mabe_nb.train.ensemble.queue import run_task
from mabe_nb.train.ensemble.recipe import member_tasks, predict_out_of_fold
from mabe_nb.train.predict import decide, smooth
from mabe_nb.train.scores.frames import by_video, f1_of, video_counts
from recipe import JUDGED

SPECS = {s.name: s for s in (
    *RECIPES["best"],
    MemberSpec("wide_varied", "net", "unordered+multiscale", 1, VARIED),
    MemberSpec("roles_varied", "net", "directed_smoothed", 1, VARIED | {"flip": 0.5},
               ordered=True))}
FOUR = {"pair_slow": 2, "pair_varied": 2} # Seeds of each
SIX = {"pair_slow": 3, "pair_varied": 3}
TEN = {"pair_slow": 5, "pair_varied": 5}
READING = {"roles": 1, "pair": 1, "pair_wide": 1}
TREES = {"role_trees": 1, "pair_trees": 1}
BLENDS = { # The first, the recipe while it had three seeds, is what others are compared with
    "the recipe": SIX | READING | TREES,
    "ten recurrent networks instead of six": TEN | READING | TREES,
    "the same, no trees": TEN | READING,
    "the same, neither pair_wide nor pair_trees": TEN | {
        "roles": 1, "pair": 1, "role_trees": 1},
    "the recipe, no trees": SIX | READING,
    "the recipe, those alone that know who is who": {"roles": 1, "role_trees": 1},
    "the recipe, the others alone": SIX | {"pair": 1, "pair_wide": 1, "pair_trees": 1},
    "ten recurrent networks alone": TEN,
    "six recurrent networks alone": SIX,
    "four recurrent networks alone": FOUR,
    "four, roles": FOUR | {"roles": 1},
    "four, roles_varied": FOUR | {"roles_varied": 1},
    "four, roles, pair_trees": FOUR | {"roles": 1, "pair_trees": 1},
    "four, roles_varied, pair_trees": FOUR | {"roles_varied": 1, "pair_trees": 1},
    "four, roles, roles_varied, pair_trees": FOUR | {
        "roles": 1, "roles_varied": 1, "pair_trees": 1},
    "four, roles, trees": FOUR | {"roles": 1} | TREES,
    "four, roles, wide_varied": FOUR | {"roles": 1, "wide_varied": 1},
    "four, roles, roles_varied, wide_varied": FOUR | {
        "roles": 1, "roles_varied": 1, "wide_varied": 1},
    "four, roles, wide_varied, trees": FOUR | {"roles": 1, "wide_varied": 1} | TREES,
    "four, roles, roles_varied, wide_varied, trees": FOUR | {
        "roles": 1, "roles_varied": 1, "wide_varied": 1} | TREES,
    "three of pair_slow": {"pair_slow": 3}, "five of pair_slow": {"pair_slow": 5},
    "one of pair_slow": {"pair_slow": 1}}
WEIGHTS, WIDTHS_MS = (0.7, 0.85, 1.2, 1.4), (400, 1000, 2000)


def halves(table, first): # The first videos judge the others, and the reverse
    ids = tuple(table.video_id)
    return [Split(ids[:first], ids[first:]), Split(ids[first:], ids[:first])]


def seed_of(name, seed, data, table, splits, out):
    "Processor seconds of training a model, and what one seed of a member says, by row."
    kept, spec = out/"seeds"/f"{name}-{seed}.npz", SPECS[name]
    if kept.exists():
        with np.load(kept) as f:
            return float(f["seconds"]), {int(k): f[k] for k in f.files if k != "seconds"}
    prepared = prepared_for({name: spec.prepared_features}, data, list(table.video_id),
                            tuple(dataset_parts(data)), None)[name]
    tasks = [t for t in member_tasks(replace(spec, seeds=seed), prepared, splits, out/"members")
             if t.path.stem.endswith(f"-{seed}")]
    todo, spent = [t for t in tasks if not t.path.exists()], time.process_time()
    for task in todo: run_task(task)
    seconds = (time.process_time() - spent) / max(len(todo), 1)
    p = predict_out_of_fold(tasks, splits)
    np.savez(kept, seconds=seconds, **{str(i): v.astype(np.float16) for i, v in p.items()})
    return seconds, p


def counts_of(prepared, p, judged): # Hits, false alarms, misses: (videos, actions, 3)
    labels = [prepared.labels(i) for i in sorted(p)]
    codes = [decide(p[i].astype(np.float32), (y >= 0).any(0)) for i, y in zip(sorted(p), labels)]
    _, counts = by_video([prepared.sequences.video_id.iloc[i] for i in sorted(p)],
                         video_counts(labels, codes))
    actions = list(prepared.actions)
    return np.asarray(counts)[:, [actions.index(a) for a in judged or actions]]


def mean(models): # Row -> (frames, classes), of models like it
    return {i: sum(p[i].astype(np.float32) for p in models) / len(models) for i in models[0]}


def other_rules(models, prepared):
    "Yield what else could be done with a blend before the most probable class is taken."
    p, at = mean(models), 1 + list(prepared.actions).index("aggression")
    for weight in WEIGHTS if "aggression" in prepared.actions else ():
        by = np.where(np.arange(1 + len(prepared.actions)) == at, weight, 1).astype(np.float32)
        yield f"aggression counts {weight} times", {i: q * by for i, q in p.items()}
    for ms in WIDTHS_MS:
        yield f"smoothed over {ms} ms", {i: smooth(q, prepared.sequences.fps.iloc[i], ms)
                                         for i, q in p.items()}
    log = [{i: np.log(q.astype(np.float32) + 1e-3) for i, q in m.items()} for m in models]
    yield "mean of logarithms", {i: np.exp(q) for i, q in mean(log).items()}


def mean_f1(counts): # Of (..., videos, actions, 3)
    return f1_of(counts.sum(-3)).mean(-1)


def compared(counts, base): # Mean F1, its gain over the base, and the deviation of that
    draws = np.random.default_rng(0).integers(0, len(counts), (2000, len(counts)))
    gains = mean_f1(counts[draws]) - mean_f1(base[draws])
    return {"f1": round(float(mean_f1(counts)), 4), "sd": round(float(gains.std()), 4),
            "gain": round(float(mean_f1(counts) - mean_f1(base)), 4),
            "each": f1_of(counts.sum(0)).round(4).tolist()}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", required=True, help="folder, of which JUDGED names what counts")
    p.add_argument("--folder", default=Path(__file__).resolve().parents[2]/"shared"/"data")
    p.add_argument("--out", required=True, help="folder for members, and what they say")
    p.add_argument("--halves", type=int, help="videos of the first half; none: five folds")
    p.add_argument("--only", default="", help="words; blends whose name holds one")
    p.add_argument("--train", default="", help="only train these, as pair_slow:4,pair_varied:4")
    p.add_argument("--json")
    args = p.parse_args()
    torch.set_num_threads(1)
    data, out = open_dataset(Path(args.folder)/args.data), Path(args.out)
    for name in ("members", "seeds"): (out/name).mkdir(parents=True, exist_ok=True)
    table = labelled_groups(data)
    splits = halves(table, args.halves) if args.halves else contiguous_folds(table, 5)
    said = lambda name, seed: seed_of(name, seed, data, table, splits, out)
    for word in filter(None, args.train.split(",")):
        name, seed = word.split(":")
        print(f"{said(name, int(seed))[0]:6.1f} s of processor a model: {word}", flush=True)
    if args.train: return
    prepared = prepared_for({"any": "smoothed"}, data, list(table.video_id),
                            tuple(dataset_parts(data)), None)["any"]
    judged = JUDGED.get(args.data, list(prepared.actions))
    some = {title: how for title, how in BLENDS.items() if any(
        word in title for word in args.only.split(","))}
    models = lambda how: [said(n, k + 1)[1] for n, seeds in how.items() for k in range(seeds)]
    def row(p, title, **more):
        counts = counts_of(prepared, p, judged)
        row.base = counts if title == next(iter(some)) else row.base
        return print(title, found := compared(counts, row.base) | more, flush=True) or found
    blends = {title: row(mean(models(how)), title, seeds=how) for title, how in some.items()}
    alone = {name: row(said(name, 1)[1], name) | {"seconds": round(said(name, 1)[0], 1)}
             for name in dict.fromkeys(sum(map(list, some.values()), []))}
    first = models(next(iter(some.values())))
    rules = {title: row(p, title) for title, p in other_rules(first, prepared)}
    if args.json: Path(args.json).write_text(json.dumps({
        "data": args.data, "videos": len(row.base), "folds": args.halves or 5, "date":
        time.strftime("%Y-%m-%d"), "processor": processor(), "blends": blends,
        "one seed alone": alone, "other rules for the first": rules}, indent=1) + "\n")


if __name__ == "__main__": main()

"""The competition's metric as it is told: row by row, one Python set of frames a key.

Slow and plain on purpose. It is the oracle of `test_metrics.py` and the peer of
`bench/score.py`; `mabe_nb.train.metrics` must say the same, or refuse the same.
"""
import json
from collections import defaultdict

NEEDED = ["video_id", "agent_id", "target_id", "action", "start_frame", "stop_frame"]


def _predicted(rows, whitelists):
    "Frames of each key (video, agent, target, action), whitelisted rows in order."
    seen, pair_frames = defaultdict(set), defaultdict(set)
    for video, agent, target, action, start, stop in rows:
        if f"{agent},{target},{action}" not in whitelists[video]: continue
        key, pair = (video, agent, target, action), (video, agent, target)
        new = set(range(start, stop)) - seen[key]
        if pair_frames[pair] & new:
            raise ValueError("Multiple predictions for the same frame from one "
                             "agent/target pair")
        seen[key] |= new
        pair_frames[pair] |= new
    return seen


def _lab(solution, submission, beta):
    "F of each action of one lab."
    labels, whitelists = defaultdict(set), {}
    for *key, start, stop, listed in solution:
        labels[tuple(key)].update(range(start, stop))
        if key[0] not in whitelists: whitelists[key[0]] = set(json.loads(listed))
    seen = _predicted((r for r in submission if r[0] in whitelists), whitelists)
    counts = defaultdict(lambda: [0, 0, 0])
    for key in {*labels, *seen}:
        true, said = labels[key], seen[key]
        for i, frames in enumerate((true & said, true - said, said - true)):
            counts[key[3].split("_")[-1]][i] += len(frames)
    b = beta**2
    return {a: (1 + b) * tp / ((1 + b) * tp + b * fn + fp) if tp + fn + fp else 0.0
            for a, (tp, fn, fp) in counts.items()}


def reference_report(solution, submission, beta=1.0):
    "(score, {lab: {action: F}}) of two tables; any exception means: refused."
    if not len(solution) or not len(submission): raise ValueError("empty")
    for table in (solution, submission):
        if not (table["start_frame"] <= table["stop_frame"]).all():
            raise ValueError("start after stop")
    said = list(submission[NEEDED].itertuples(index=False, name=None))
    labs = {}
    for lab, rows in solution.groupby("lab_id", sort=True):
        rows = rows[[*NEEDED, "behaviors_labeled"]].itertuples(index=False, name=None)
        labs[lab] = _lab(list(rows), said, beta)
    means = [sum(f.values()) / len(f) for f in labs.values()]
    return sum(means) / len(means), labs


def reference_score(solution, submission, beta=1.0):
    "The score alone."
    return reference_report(solution, submission, beta)[0]

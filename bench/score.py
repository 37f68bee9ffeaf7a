"""Speed of the Kaggle score: ours against the row-by-row way with sets of frames.

    python bench/score.py [--rounds 5] [--json F]

Both score the same synthetic submission of the competition's size (83,006 bouts, 847
videos, 19 labs) in turn; printed is the median of the paired ratios. Bouts last as
long as those of CalMS21 task 1 (median 38 frames, mean about 80).
"""
import argparse
import importlib.util
import json
import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd

from mabe_nb.commands.score import ignored_rows
from mabe_nb.files import write_json
from mabe_nb.train.scores.official_counts import FRAMES, IDS, judged_bouts
from mabe_nb.train.metrics import chance_score, kaggle_report, kaggle_score

ACTIONS = ["attack", "chase", "escape", "mount", "rear", "sniff"]


def make_case(bouts=83_006, videos=847, labs=19, seed=0):
    "A solution and a submission of about half right bouts, without overlaps."
    rng = np.random.default_rng(seed)
    video = np.sort(rng.integers(0, videos, bouts))
    gaps = rng.integers(0, 60, bouts)
    lengths = np.ceil(rng.lognormal(np.log(38), 1.2, bouts)).astype(np.int64)
    stop = pd.Series(gaps + lengths).groupby(video).cumsum().to_numpy()
    agent = rng.integers(1, 3, bouts)
    mouse = np.array(["", "mouse1", "mouse2"], object)
    columns = [video + 1000, mouse[agent], mouse[3 - agent],
               np.array(ACTIONS, object)[rng.integers(0, len(ACTIONS), bouts)],
               stop - lengths, stop]
    solution = pd.DataFrame(dict(zip([*IDS, *FRAMES], columns)))
    submission = solution.copy()
    submission["action"] = np.where(
        rng.random(bouts) < 0.5, submission["action"],
        np.array(ACTIONS, object)[rng.integers(0, len(ACTIONS), bouts)])
    submission["start_frame"] -= rng.integers(0, 2, bouts) * (gaps // 2)
    listed = json.dumps([f"mouse{a},mouse{3 - a},{x}" for a in (1, 2) for x in ACTIONS])
    solution["lab_id"] = [f"Lab{v % labs}" for v in video]
    solution["behaviors_labeled"] = listed
    return solution, submission


def reference():
    "The row-by-row implementation that the tests use as oracle."
    path = Path(__file__).parents[1]/"tests"/"reference_score.py"
    spec = importlib.util.spec_from_file_location("reference_score", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reference_score


def timed(score, case):
    "Processor seconds and result of one call."
    begin = time.process_time()
    value = score(*case)
    return time.process_time() - begin, value


def score_and_besides(solution, submission):
    "What `mabe score` computes of two tables."
    bouts = judged_bouts(solution, submission)
    return (kaggle_report(solution, submission, bouts),
            chance_score(solution, submission, bouts=bouts)["mean"],
            ignored_rows(solution, submission, bouts))


def main():
    "Paired rounds, the order turned each time."
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bouts", type=int, default=83_006)
    parser.add_argument("--json", metavar="F")
    args = parser.parse_args()
    case, peers = make_case(args.bouts), {"ours": kaggle_score, "row_by_row": reference()}
    kaggle_score(*case)
    rows, values, ratios = [], set(), []
    for i in range(args.rounds):
        took = {}
        for name in sorted(peers, reverse=bool(i % 2)):
            took[name], value = timed(peers[name], case)
            values.add(round(value, 12))
            rows.append({"variant": name, "round": i, "seconds": took[name]})
        ratios.append(took["row_by_row"] / took["ours"])
    result = {"rows": rows, "ratio": statistics.median(ratios), "scores": sorted(values),
              "bouts": args.bouts}
    pairs = [(timed(kaggle_score, case)[0], timed(score_and_besides, case)[0])
             for _ in range(args.rounds)]
    result["with_chance_and_diagnosis"] = statistics.median(b / a for a, b in pairs)
    print(f"with chance and diagnosis {result['with_chance_and_diagnosis']:.2f} times the score")
    for name in peers:
        middle = statistics.median(r["seconds"] for r in rows if r["variant"] == name)
        print(f"{name:12s} {middle * 1000:10.1f} ms")
    print(f"median ratio {result['ratio']:.1f}, scores {result['scores']}")
    if len(values) != 1: raise SystemExit("the two disagree")
    if args.json: write_json(args.json, result)


if __name__ == "__main__": main()

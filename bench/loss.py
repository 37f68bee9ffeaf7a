"""Cross entropy of 6,400 frames, forward and backward: classes in front or behind.

    OMP_NUM_THREADS=1 python bench/loss.py --rounds 7 --json F
"""
import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from mabe_nb.train.fit.losses import PlainLoss


def seconds(scores, step, repeats):
    begun = time.process_time()
    for _ in range(repeats):
        scores.grad = None
        step().backward()
    return (time.process_time() - begun) / repeats


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--repeats", type=int, default=100)
    p.add_argument("--json", type=Path)
    args, rows = p.parse_args(), []
    for classes in (2, 4, 8, 15, 16, 38):
        scores = torch.randn(64, 100, classes, requires_grad=True)
        answers, loss = torch.randint(classes, (64, 100)), PlainLoss(torch.ones(classes))
        behind = lambda: F.cross_entropy(scores.flatten(0, 1), answers.flatten(), loss.weights)
        ours = lambda: loss(scores, answers)
        for _ in range(args.rounds + 1): # the first round warms up
            a, b = seconds(scores, ours, args.repeats), seconds(scores, behind, args.repeats)
            rows.append({"classes": classes, "ours_us": a * 1e6, "behind_us": b * 1e6})
        mine = rows[-args.rounds:]
        ratio = statistics.median(r["behind_us"] / r["ours_us"] for r in mine)
        print(f"{classes:3d} classes: {statistics.median(r['ours_us'] for r in mine):6.0f} us, "
              f"{ratio:.2f}x as fast as with the classes behind")
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n")

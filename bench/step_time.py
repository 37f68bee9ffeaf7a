"""Time of a training step told from two measured sizes, against what it then takes.

    python bench/step_time.py --json F

Every network, three lengths of windows: two batches are measured, a line goes through
them, and it is asked for one batch between them and one twice the larger. Each batch is a
process of its own, measured once in each round, and its time is the median of the rounds,
all of which are kept. On a machine that does something else the figures mean nothing.
"""
import argparse
import itertools
import json
import os
from pathlib import Path
from statistics import median

LENGTHS, MEASURED, ASKED = (50, 100, 200), (8, 32), (16, 64)


def cases(networks, lengths=LENGTHS, seconds=1.5, rounds=7):
    "A row for each batch that is asked for; milliseconds."
    from mabe_nb.measure.sweep import fit_line, sweep
    from mabe_nb.train.config import TrainConfig
    for name, frames in itertools.product(networks, lengths):
        cfg = TrainConfig(model_type=name, sequence_length=frames)
        each = [sweep(cfg, sizes=[*MEASURED, *ASKED], seconds=seconds, fresh=True).rows
                for _ in range(rounds)]
        took = {n: sorted(ms) for n, *ms in zip(each[0].batch, *(r.ms for r in each))}
        line = fit_line(MEASURED, [median(took[n]) for n in MEASURED])
        for batch in ASKED:
            told = float(line(batch))
            yield {"network": name, "frames": frames, "batch": batch, "told_ms": told,
                   "took_ms": median(took[batch]), "error": told / median(took[batch]) - 1,
                   "rounds_ms": {n: took[n] for n in (*MEASURED, batch)}}


def main():
    from mabe_nb.train.models import NETWORKS
    p = argparse.ArgumentParser()
    p.add_argument("--json", type=Path)
    p.add_argument("--seconds", type=float, default=1.5, help="for each batch")
    p.add_argument("--rounds", type=int, default=7)
    args, rows = p.parse_args(), []
    for row in cases(NETWORKS, seconds=args.seconds, rounds=args.rounds):
        rows.append(row)
        print(*(f"{v:.3g}" if isinstance(v, float) else v for v in list(row.values())[:-1]),
              flush=True)
    worst = {where: max(abs(r["error"]) for r in rows if (r["batch"] < MEASURED[-1]) == inside)
             for where, inside in (("between", True), ("beyond", False))}
    if args.json: args.json.write_text(json.dumps(
        {"load": os.getloadavg()[0], "worst": worst, "cases": rows}, indent=1) + "\n")
    print(f"largest error {worst['between']:.1%} between the two sizes, "
          f"{worst['beyond']:.1%} at twice the larger; {len(rows)} cases")


if __name__ == "__main__": main()

"""What keeping freed memory at hand brings on a processor (`train.allocator`).

    OMP_NUM_THREADS=1 python bench/allocator.py --rounds 3 --json F

Real training steps of some models and batches, measured by `measure` of this package, each
in a process of its own, with the allocator as it comes and as the trainer sets it, in turn.
Printed are medians: windows per second, and the memory that the process grew by at most.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import date
from importlib.metadata import version

CASES = {"default model, batch 16": {}, "default model, batch 128": {"batch_size": 128},
         "LSTM of 64, batch 64": {"batch_size": 64}, "LSTM of 64, batch 1024":
         {"batch_size": 1024}, "tcn of 64, batch 16": {"model_type": "tcn", "hidden_size": 64}}
LSTM = {"model_type": "lstm", "hidden_size": 64, "num_layers": 1, "frame_gap": 1}


def child(case, kept, seconds):
    "One measurement, printed as JSON."
    from contextlib import nullcontext
    from mabe_nb.measure import probe
    from mabe_nb.measure.workload import Workload
    from mabe_nb.train.config import TrainConfig
    settings = CASES[case] | (LSTM if case.startswith("LSTM") else {})
    if not kept: probe.memory_kept = nullcontext
    probe.blocks_apart = nullcontext
    taken, room = probe.memory_taken, []
    probe.memory_taken = lambda *a: room.append(a) or taken(*a)
    cfg = TrainConfig(device="cpu", use_augmentation=False, **settings)
    row = probe.measure(probe.make_spec(cfg, Workload(28, 4), seconds=seconds))
    print(json.dumps({"windows_s": row["windows_s"], "gb": taken(*room[0])["peak"] / 1e9}))


def rounds(args):
    rows = []
    for i in range(args.rounds):
        for case in CASES:
            for kept in (True, False)[::1 if i % 2 else -1]:
                done = subprocess.run([sys.executable, __file__, "--case", case, "--kept",
                                       str(int(kept)), "--seconds", str(args.seconds)],
                                      capture_output=True, text=True, check=True)
                rows.append({"case": case, "kept": kept, "round": i,
                             **json.loads(done.stdout.splitlines()[-1])})
    return rows


def table(rows):
    mid = lambda case, kept, key: statistics.median(
        r[key] for r in rows if (r["case"], r["kept"]) == (case, kept))
    for case in CASES:
        a, b = (mid(case, k, "windows_s") for k in (False, True))
        x, y = (mid(case, k, "gb") for k in (False, True))
        print(f"{case:26s} {a:7,.0f} to {b:7,.0f} windows/s, {b/a:.2f}x; "
              f"{x:.3f} to {y:.3f} GB")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    p.add_argument("--json")
    p.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    p.add_argument("--kept", type=int, help=argparse.SUPPRESS)
    args = p.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if args.case:
        child(args.case, args.kept, args.seconds)
        sys.exit()
    rows = rounds(args)
    table(rows)
    from mabe_nb.measure.probe import processor
    about = {"date": date.today().isoformat(), "cpu": processor(), "threads":
             os.environ["OMP_NUM_THREADS"], "load": os.getloadavg()[0],
             "versions": {"python": platform.python_version()}
             | {n: version(n) for n in ("torch", "mabe_nb")}}
    if args.json:
        with open(args.json, "w") as f: f.write(json.dumps({"run": about, "rows": rows},
                                                           indent=1) + "\n")

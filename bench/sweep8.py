"""Our sweep over eight batch sizes on the CPU: two lines, the knee, memory foretold.

    OMP_NUM_THREADS=1 python bench/sweep8.py --json F

The last line takes the memory of the two smallest sizes, draws a line through them and says
what the largest size would take, against the peak that was measured there.
"""
import argparse
import json
import os
import platform
import sys
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

SIZES = [16, 32, 64, 128, 256, 512, 1024, 2048]


def foretold(good):
    "The largest size's memory from the two smallest, what it was, and the error."
    from mabe_nb.measure.sweep import fit_line
    few, last = good.iloc[:2], good.iloc[-1]
    gb = float(fit_line(few.batch, few.gb)(last.batch))
    return {"from": few.batch.tolist(), "at": int(last.batch), "foretold_gb": gb,
            "measured_gb": float(last.gb), "error": gb / float(last.gb) - 1}


def run(args):
    "The sweep as JSON, with what it was made on."
    from mabe_nb.measure.probe import processor
    from mabe_nb.measure.workload import Workload
    from mabe_nb.measure.sweep import sweep, to_json
    from mabe_nb.train.config import TrainConfig
    cfg = TrainConfig(model_type="lstm", hidden_size=64, num_layers=1, frame_gap=1,
                      sequence_length=100, device="cpu", use_augmentation=False)
    begun = time.perf_counter()
    done = sweep(cfg, Workload(28, 4), sizes=args.sizes, on="local:cpu", fresh=True,
                 seconds=args.seconds)
    about = {"date": date.today().isoformat(), "cpu": processor(), "cores": os.cpu_count(),
             "load": os.getloadavg()[0], "seconds": time.perf_counter() - begun,
             "versions": {"python": platform.python_version(), "torch": version("torch"),
                          "mabe_nb": version("mabe_nb")}}
    good, found = done.rows[done.rows.status == "ok"], to_json(done)
    found["rows"] = [row | {k: about[k] for k in ("date", "cpu", "versions")}
                     for row in found["rows"]]
    pairs = [foretold(good.iloc[i:]) for i in range(len(good) - 2)]
    return done, {**found, "run": about, "foretold": pairs}


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")],
                   default=SIZES)
    p.add_argument("--seconds", type=float, default=6.0, help="for each size")
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as home:
        os.environ["MABE_HOME"] = home
        done, found = run(args)
    if args.json: args.json.write_text(json.dumps(found, indent=1) + "\n")
    columns = ["batch", "status", "ms", "p10", "p90", "known", "windows_s", "gb"]
    print(done.rows[columns].round(3).to_string(index=False))
    if done.memory is None: sys.exit("fewer than two sizes worked")
    for name, unit, k in (("time", "ms", 1e3), ("memory", "MB", 1e3)):
        line = found[name]
        print(f"{name}: {line['a'] * k:.1f} + {line['b'] * k:.3f} {unit} * batch, "
              f"R^2 {line['r2']:.4f}, worst residual {line['worst']:.1%}")
    print(f"knee {found['knee']}")
    for one in found["foretold"]:
        print(f"memory at {one['at']} from {one['from']}: {one['foretold_gb']:.3f} GB, "
              f"measured {one['measured_gb']:.3f} GB, {one['error']:+.1%}")

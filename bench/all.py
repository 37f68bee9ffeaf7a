"""Training steps and prediction now and before, and the loop against its floor: one table.

    OMP_NUM_THREADS=1 python bench/all.py --before CHECKOUT --json F
    python bench/all.py --short

CHECKOUT is a working tree of the release before. Every round runs each case in a process
of its own, now and before in alternating order; processor time, medians of the paired
ratios. `--short` takes a minute or less and ends with status 1 if the loop falls below
generous shares of its floor.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
CHANNELS, CLASSES, FRAMES = 164, 4, 12_000 # As `rats` has them
SLOW = {"sequence_length": 256, "conv_channels": [64, 64], "lstm_hidden": 48,
        "frame_gap": 6}
FAST = {"sequence_length": 256, "hidden_size": 64, "num_layers": 6, "frame_gap": 4}
STEPS = {"step of the default network": {}, "step of `conv_bilstm`":
         {"model_type": "conv_bilstm"}, "step of the recipe's `tcn`": FAST,
         "step of the recipe's `conv_bilstm`": SLOW}
PREDICT = {"prediction of the default network": [{}],
           "prediction of the recipe's networks": [FAST] * 10 + [SLOW] * 25}
ENGINES = "bfloat16", "onnx" # Beside float32
FLOORS = {"tiny": 0.4, "full": 0.8} # Shares of the floor in `--short`


def stepper(settings):
    "A function that takes one training step."
    from mabe_nb.measure.probe import Steps, make_spec, make_trainer
    from mabe_nb.measure.workload import Workload
    from mabe_nb.train.config import TrainConfig
    import torch
    spec = make_spec(TrainConfig(device="cpu", **settings), Workload(CHANNELS, CLASSES))
    return Steps(make_trainer(spec, torch.device("cpu")))


def predictor(members, engine="float32"):
    "A function that predicts a video by some networks in an engine, inputs included."
    import numpy as np
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.inputs import Inputs, fit_standardize
    from mabe_nb.train.models import make_model
    from mabe_nb.train.predict import probabilities
    x = np.random.default_rng(0).standard_normal((FRAMES, CHANNELS), np.float32)
    x[:, :20][x[:, :20] > 1] = np.nan
    none, all_ = np.arange(0), np.arange(CHANNELS)
    inputs = Inputs("coords", (), (), all_, none, none, fit_standardize([x]), (30, 30), none)
    of = [TrainConfig(**settings) for settings in members]
    nets = [make_model(cfg, CHANNELS, CLASSES).eval() for cfg in of]
    if engine != "float32": # which the release before has not
        from mabe_nb.train.arithmetic.engines import in_engine
        nets = [in_engine(net, engine, cfg.sequence_length, CHANNELS)
                for net, cfg in zip(nets, of)]
    return lambda: [probabilities(net, x, cfg.sequence_length, cfg.frame_gap, inputs=inputs)
                    for net, cfg in zip(nets, of)]


def seconds(case):
    "Processor time of a case, the shortest of three."
    import torch
    from mabe_nb.train.fit.machine import memory_kept
    from contextlib import nullcontext
    torch.set_num_threads(1)
    step = case in STEPS
    name, _, engine = case.partition(", ")
    work = stepper(STEPS[name]) if step else predictor(PREDICT[name], engine or "float32")
    took = []
    with memory_kept(torch.device("cpu")) if step else nullcontext():
        for i in range(4):
            begun = time.process_time()
            for _ in range(10 if step else 1): work()
            took.append(time.process_time() - begun)
    return min(took[1:]) / (10 if step else 1)


def ask(case, checkout):
    "The seconds of a case with the package of a working tree."
    done = subprocess.run([sys.executable, __file__, "--case", case], check=True, text=True,
                          stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": checkout})
    return float(done.stdout.split()[-1])


def against_before(before, rounds, only):
    "Rows of every case, now and before; engines beside the float32 of before."
    engines = [f"{case}, {engine}" for case in PREDICT for engine in ENGINES]
    for case in [c for c in [*STEPS, *PREDICT, *engines] if only in c]:
        pairs = []
        for i in range(rounds):
            order = (before, str(HERE))[::1 if i % 2 == 0 else -1]
            took = {checkout: ask(case.split(", ")[0] if checkout == before else case,
                                  checkout) for checkout in order}
            pairs.append((took[before], took[str(HERE)]))
        yield {"what": case, "now_ms": 1e3 * statistics.median(b for _, b in pairs),
               "peer": "before", "ratio": statistics.median(a / b for a, b in pairs),
               "rounds": pairs}


def against_floor(rounds, short):
    "Rows of the training loop: its share of the floor."
    sys.path.insert(0, str(HERE/"bench"))
    import loop
    for model, steps, warm in (("tiny", 300, 50), ("full", 4 if short else 8, 2)):
        args = argparse.Namespace(model=model, steps=steps, warm=warm, batch=64,
                                  device="cpu", precision="fp32", rounds=rounds)
        rates = {}
        for row in loop.rounds(args, ["floor", "ours"]):
            rates.setdefault(row["variant"], []).append(row["samples_cpu_s"])
        pairs = list(zip(rates["floor"], rates["ours"]))
        yield {"what": model, "now_ms": 64e3 / statistics.median(rates["ours"]),
               "peer": "floor", "ratio": statistics.median(b / a for a, b in pairs),
               "rounds": pairs}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--before", help="working tree of the release before")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--short", action="store_true")
    p.add_argument("--only", default="", help="those cases of now and before alone that "
                   "have this in their name, no loop")
    p.add_argument("--json", type=Path)
    p.add_argument("--case", help=argparse.SUPPRESS)
    args, rows = p.parse_args(), []
    if args.case: return print(seconds(args.case))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rounds = 3 if args.short else args.rounds
    if args.before and not args.short: rows += report(
        against_before(args.before, rounds, args.only))
    if not args.only: rows += report(against_floor(rounds, args.short))
    if args.json: args.json.write_text(json.dumps(
        {"load": os.getloadavg()[0], "rows": rows}, indent=1) + "\n")
    below = [r["what"] for r in rows if args.short and r["ratio"] < FLOORS[r["what"]]]
    if below: sys.exit(f"slower than its floor allows: {', '.join(below)}")


def report(rows):
    "Print rows as they come; a list of them."
    out = []
    for row in rows:
        out.append(row)
        print(f"{row['what']:48}{row['now_ms']:9.2f} ms {row['ratio']:6.2f} of {row['peer']}",
              flush=True)
    return out


if __name__ == "__main__": main()

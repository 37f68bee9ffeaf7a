"""Training steps and prediction now and before, and the loop against its floor: one table.

    OMP_NUM_THREADS=1 python bench/all.py --before CHECKOUT --json F
    python bench/all.py --before CHECKOUT --recipe RUN --data DATA
    python bench/all.py --short
    python bench/all.py --quick

CHECKOUT is a working tree of the release before. Every round runs each case in a process
of its own, now and before in alternating order; processor time, medians of the paired
ratios. A trained recipe is measured from the poses of one video to its bouts, features
included. `--short` takes a minute or less and ends with status 1 if the loop falls below
generous shares of its floor. `--quick` runs each case once and compares nothing.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
CHANNELS, CLASSES, FRAMES = 164, 4, 12_000 # As `rats` has them
SLOW = {"sequence_length": 256, "conv_channels": [64, 64], "lstm_hidden": 48,
        "frame_gap": 6}
FAST = {"sequence_length": 256, "hidden_size": 64, "num_layers": 6, "frame_gap": 4}
STEPS = {"step of the default network": {}, "step of `conv_bilstm`":
         {"model_type": "conv_bilstm"}, "step of the recipe's `tcn`": FAST,
         "step of the recipe's `conv_bilstm`": SLOW}
PREDICT = {"prediction of the default network": [{"frame_gap": 4}], # Of any release
           "prediction of the recipe's networks": [FAST] * 10 + [SLOW] * 25}
RECIPE = "a video by a recipe, features included"
ENGINES = "bfloat16", "onnx" # Beside float32
FLOORS = {"tiny": 0.4, "full": 0.8} # Shares of the floor in `--short`


def found(*places):
    "The first of some `module:name` that this release has."
    for module, name in (place.split(":") for place in places):
        try: return getattr(import_module(f"mabe_nb.{module}"), name)
        except (AttributeError, ModuleNotFoundError): pass
    raise ImportError(places)


def stepper(settings):
    "A function that takes one training step."
    from mabe_nb.measure.probe import Steps, make_trainer
    from mabe_nb.train.config import TrainConfig
    import torch
    make_spec = found("measure.workload:make_spec", "measure.spec:make_spec",
                      "measure.probe:make_spec")
    Workload = found("measure.workload:Workload", "measure.shape:Shape")
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
    of = dict(features="coords", parts=(), names=("",) * CHANNELS, direct=all_, masks=none,
              base=none, scaler=fit_standardize([x]), fps=(30, 30), always=none)
    inputs = Inputs(**{k: v for k, v in of.items() if k in Inputs.__dataclass_fields__})
    configs = [TrainConfig(**settings) for settings in members]
    nets = [make_model(cfg, CHANNELS, CLASSES).eval() for cfg in configs]
    if engine != "float32": # which the release before has not
        from mabe_nb.train.arithmetic.engines import in_engine
        nets = [in_engine(net, engine, cfg.sequence_length, CHANNELS)
                for net, cfg in zip(nets, configs)]
    return lambda: [probabilities(net, x, cfg.sequence_length, cfg.frame_gap, inputs=inputs)
                    for net, cfg in zip(nets, configs)]


def recipe_predictor(run, data):
    "A function that predicts the last video of a dataset by a trained recipe."
    from mabe_nb.data.dataset import open_dataset
    from mabe_nb.train.ensemble.blend import load_recipe
    dataset, recipe = open_dataset(data), load_recipe(run, "cpu")
    def predict():
        with tempfile.TemporaryDirectory() as cache:
            recipe.predict(dataset, dataset.ids[-1:], cache=cache, threads=1)
    return predict


def seconds(case, run=None, data=None, rounds=4, steps=10):
    "Processor time of a case, the shortest after the first."
    import torch
    from contextlib import nullcontext
    memory_kept = found("train.machine:memory_kept", "train.fit.machine:memory_kept",
                        "train.allocator:memory_kept")
    torch.set_num_threads(1)
    step = case in STEPS
    name, _, engine = (case, "", "") if case == RECIPE else case.partition(", ")
    work = (recipe_predictor(run, data) if name == RECIPE else stepper(STEPS[name]) if step
            else predictor(PREDICT[name], engine or "float32"))
    took = []
    with memory_kept(torch.device("cpu")) if step else nullcontext():
        for i in range(rounds):
            begun = time.process_time()
            for _ in range(steps if step else 1): work()
            took.append(time.process_time() - begun)
    return min(took[1:] or took) / (steps if step else 1)


def ask(case, checkout, *trained):
    "The seconds of a case with the package of a working tree."
    more = ["--recipe", trained[0], "--data", trained[1]] if trained else []
    done = subprocess.run([sys.executable, __file__, "--case", case, *more], check=True,
                          text=True, stdout=subprocess.PIPE,
                          env=os.environ | {"PYTHONPATH": checkout})
    return float(done.stdout.split()[-1])


def against_before(before, rounds, only, *trained):
    "Rows of every case, now and before; engines beside the float32 of before."
    engines = [f"{case}, {engine}" for case in PREDICT for engine in ENGINES]
    cases = [*STEPS, *PREDICT, *engines, *[RECIPE for _ in trained[:1]]]
    for case in [c for c in cases if only in c]:
        pairs, old = [], case if case == RECIPE else case.split(", ")[0]
        for i in range(rounds):
            order = (before, str(HERE))[::1 if i % 2 == 0 else -1]
            took = {checkout: ask(old if checkout == before else case, checkout,
                                  *trained * (case == RECIPE)) for checkout in order}
            pairs.append((took[before], took[str(HERE)]))
        yield {"what": case, "now_ms": 1e3 * statistics.median(b for _, b in pairs),
               "peer": "before", "ratio": statistics.median(a / b for a, b in pairs),
               "rounds": pairs}


def once():
    "Rows of every case now, each run once."
    for case in [*STEPS, *PREDICT]:
        yield {"what": case, "now_ms": 1e3 * seconds(case, rounds=1, steps=1)}


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
    p.add_argument("--quick", action="store_true")
    p.add_argument("--recipe", help="run folder of a trained recipe, --data with it")
    p.add_argument("--data", help="dataset whose last video the recipe predicts")
    p.add_argument("--only", default="", help="those cases of now and before alone that "
                   "have this in their name, no loop")
    p.add_argument("--json", type=Path)
    p.add_argument("--case", help=argparse.SUPPRESS)
    args, rows = p.parse_args(), []
    trained = (args.recipe, args.data) if args.recipe else ()
    if args.case: return print(seconds(args.case, *trained))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rounds = 3 if args.short else args.rounds
    if args.before and not args.short: rows += report(
        against_before(args.before, rounds, args.only, *trained))
    if args.quick: rows += report(once())
    elif not args.only: rows += report(against_floor(rounds, args.short))
    if args.json: args.json.write_text(json.dumps(
        {"load": os.getloadavg()[0], "rows": rows}, indent=1) + "\n")
    below = [r["what"] for r in rows if args.short and r["ratio"] < FLOORS[r["what"]]]
    if below: sys.exit(f"slower than its floor allows: {', '.join(below)}")


def report(rows):
    "Print rows as they come; a list of them."
    out = []
    for row in rows:
        out.append(row)
        beside = f"{row['ratio']:6.2f} of {row['peer']}" if "peer" in row else ""
        print(f"{row['what']:48}{row['now_ms']:9.2f} ms {beside}", flush=True)
    return out


if __name__ == "__main__": main()

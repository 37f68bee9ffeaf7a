"""The walk from data to a submission: functions in the order of their first calls.

`python .ci/walk.py` invents six videos, trains on them and predicts them, and counts
for each step the functions that were called, the files they stand in, and how often the
file changes along the first calls. `--cli` walks through the command line, `--list`
prints the functions, `--json` is for a program. A function is what `def` defines: lambdas,
comprehensions, class bodies and the top level of modules are passed over (`--all`
counts them too). What other libraries call back counts as well, what happens in other
processes does not: the defaults start none.
"""
import argparse
import json
import os
import sys
import tempfile
import threading
from contextlib import redirect_stdout
from itertools import groupby
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP)) # The package beside this file, not one that is installed
PACKAGE = str(TOP/"mabe_nb") + os.sep
SHORT = dict(features="social", epochs=2, device="cpu")


def the_library():
    "The functions that are walked; here alone, as modules get renamed."
    from mabe_nb.cli import main
    from mabe_nb.data.dataset import open_dataset
    from mabe_nb.data.synthetic import write_colony
    from mabe_nb.train.classifier import load_classifier, predict_dataset
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.runs import train

    cfg = TrainConfig(**SHORT)
    def fit(data, run): return train(open_dataset(data, "train"), run, cfg)
    def load(run): return load_classifier(run/"best.safetensors")
    def predict(model, data): return predict_dataset(model, open_dataset(data, "train"))
    return main, write_colony, fit, load, predict


class Walk:
    "Notes the functions of the package that are called while it is open."

    def __init__(self, everything=False):
        self.everything, self.seen, self.order = everything, set(), []

    def __enter__(self):
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        threading.setprofile(None)

    def note(self, frame, event, arg):
        code = frame.f_code
        if event != "call" or code in self.seen: return
        self.seen.add(code)
        if not code.co_filename.startswith(PACKAGE): return
        body = not code.co_flags & 2 # Of a module or class: its names are no locals
        if self.everything or not (body or code.co_name.startswith("<")):
            file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            self.order.append((file, code.co_qualname))

    @property
    def figures(self):
        stays = [file for file, _ in groupby(self.order, key=lambda call: call[0])]
        return {"functions": len(self.order), "files": len(set(stays)),
                "changes of file": len(stays) - 1}


def walk_library(data, run, everything):
    "Training and prediction by calls from Python."
    _, _, fit, load, predict = the_library()
    with Walk(everything) as training: fit(data, run)
    model = load(run) # As somebody does who predicts again and again
    with Walk(everything) as prediction: predict(model, data)
    return {"train": training, "predict": prediction}


def walk_cli(data, run, everything):
    "The same by `mabe train` and `mabe predict`."
    main, *_ = the_library()
    flags = [word for key, value in SHORT.items() for word in (f"--{key}", str(value))]
    walks = {"train": ["train", data, "--out", run, *flags],
             "predict": ["predict", run, data, "--split", "train", "--out",
                         run.with_name("submission.csv")]}
    found = {}
    for name, words in walks.items():
        with redirect_stdout(sys.stderr), Walk(everything) as found[name]:
            if main([str(w) for w in words]): raise SystemExit(f"mabe {name} failed")
    return found


def show(name, walk, listed):
    f = walk.figures
    print(f"{name}: {f['functions']} functions in {f['files']} files, "
          f"{f['changes of file']} changes of file")
    for file, calls in groupby(walk.order, key=lambda call: call[0]) if listed else ():
        print(f"  {file}: {', '.join(name for _, name in calls)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cli", action="store_true", help="by the command line")
    parser.add_argument("--all", action="store_true", help="lambdas and the like too")
    parser.add_argument("--list", action="store_true", help="print the functions")
    parser.add_argument("--json", action="store_true", help="for a program")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as spare:
        os.environ["MABE_HOME"] = str(Path(spare)/"home")
        data, run = Path(spare)/"data", Path(spare)/"run"
        _, write_colony, *_ = the_library()
        write_colony(data, "kaggle", videos=6, minutes=1, seed=0)
        walks = (walk_cli if args.cli else walk_library)(data, run, args.all)
    if args.json: print(json.dumps({name: w.figures for name, w in walks.items()}))
    for name, found in walks.items() if not args.json else ():
        show(name, found, args.list)


if __name__ == "__main__": main()

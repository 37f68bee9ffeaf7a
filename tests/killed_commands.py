"""Commands in child processes that are killed at random moments, until they are done.

    python tests/killed_commands.py FOLDER KILLS SEED [COMMAND ...]

Forks instead of starting anew, so that torch is imported once. What each command leaves in
the end, hidden files too, must be what an undisturbed one leaves. Prints one JSON object:
command -> how many kills hit it, in how many endings, and the seconds undisturbed.
"""
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

import torch

from mabe_nb.cli import main
from mabe_nb.data.corrections import Correction, add_correction
from mabe_nb.remote.job import jobs
from mabe_nb.train.ensemble import member_specs
from mabe_nb.train.ensemble.member_specs import MemberSpec

torch.set_num_threads(1)
for used in ("sklearn.ensemble", "mabe_nb.train.runs", "mabe_nb.train.ensemble.recipe",
             "mabe_nb.kaggle.bundle"): import_module(used)
TINY = ["--features", "coords", "--conv-channels", "8", "--lstm-hidden", "8",
        "--stride", "20", "--batch-size", "8", "--device", "cpu"]
member_specs.RECIPES["small"] = (
    MemberSpec("net", "net", "coords", 1, {"epochs": 1, "conv_channels": [4], "lstm_hidden": 4}),
    MemberSpec("trees", "boost", "coords", 1, {"sample": 6, "rounds": 3}))
COMMANDS = {
    "prepare": ["prepare", "{DATA}", "--out", "{OUT}/cache"],
    "prepare2": ["prepare", "{DATA}", "--out", "{OUT}/cache", "--workers", "2"],
    "train": ["train", "{DATA}", "--out", "{OUT}/run", *TINY, "--epochs", "6", "--save-freq",
              "2", "--resume"],
    "recipe": ["train", "{DATA}", "--out", "{OUT}/run", "--recipe", "small", "--folds", "2"],
    "recipe2": ["train", "{DATA}", "--out", "{OUT}/run", "--recipe", "small", "--folds", "2",
                "--num-workers", "2"],
    "predict": ["predict", "{RUN}", "{DATA}", "--out", "{OUT}/s.csv", "--overwrite"],
    "review": ["review", "{RUN}", "{DATA}", "--out", "{OUT}/m.csv", "--overwrite"],
    "retrain": ["retrain", "{RUN}", "{DATA}", "--out", "{OUT}/again"],
    "bundle": ["bundle", "{RUN}", "--out", "{OUT}/kit"],
    "job": ["submit", "--", sys.executable, "-c",
            "import sys; from mabe_nb.cli import main; sys.exit(main())", "prepare", "{DATA}",
            "--out", "{OUT}/cache"]} # Which need not import torch
DONE = {"recipe": "run/recipe.json", "recipe2": "run/recipe.json", "bundle": "kit"}
TIMES = {"log.jsonl"} # Files that hold times
STATES = {"done", "died", "error"} # Of jobs that were sent by who was killed
MEASURED = {"frames_per_second", "peak_mb", "mb_per_1000_frames", "hours", "longest_gb"}


def child(words, home):
    "Run a command in a process of its own."
    pid = os.fork()
    if pid: return pid
    os.environ["MABE_HOME"] = str(home)
    with open(home.parent/"said", "a", buffering=1) as log: # of several processes
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try: code = main(words)
    except BaseException as e:
        print(f"child: {type(e).__name__} {e}", file=sys.stderr, flush=True)
        code = 1
    os._exit(code)


def ended(pid, delay=None):
    "Exit code of a process; None if it had to be killed after so many seconds."
    deadline = None if delay is None else time.monotonic() + delay
    while deadline is None or time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done: return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def left(out):
    "Name and digest of everything in a folder, hidden files too, but for times."
    found = {}
    for path in sorted(out.rglob("*")):
        name, content = path.relative_to(out).as_posix(), b""
        if path.is_file() and path.name not in TIMES: content = path.read_bytes()
        if name == "kit/manifest.json":
            kept = {k: v for k, v in json.loads(content).items() if k not in MEASURED}
            content = json.dumps(kept).encode()
        found[name] = hashlib.md5(content).hexdigest()
    return found


def jobs_end(home):
    "Wait until the jobs that were sent have ended; a second one may have been refused."
    os.environ["MABE_HOME"] = str(home)
    states = [job.wait(120) for job in jobs()]
    if not {*states} <= STATES: raise SystemExit(f"job: {states}")


def kept(out, name):
    "What a command leaves, and its home; of jobs only what they write."
    if name != "job": return left(out) | left(out.parent/"home")
    jobs_end(out.parent/"home")
    return left(out)


def killed(name, folder, run, kills, rng):
    "Kill a command again and again; what it leaves must be what it leaves undisturbed."
    words = lambda out: [w.format(DATA=folder/"data", RUN=run, OUT=out)
                         for w in COMMANDS[name]]
    whole, out = folder/name/"whole"/"out", folder/name/"killed"/"out"
    for place in (whole, out): place.mkdir(parents=True)
    begun = time.monotonic()
    if code := ended(child(words(whole), whole.parent/"home")):
        raise SystemExit(f"{name}: {(whole.parent/'said').read_text()[-2000:]} ({code})")
    seconds, hits, endings = time.monotonic() - begun, 0, 0
    want = kept(whole, name)
    while hits < kills or not endings:
        delay = rng.uniform(0, seconds) if hits < kills else None
        code = ended(child(words(out), out.parent/"home"), delay)
        if code is None:
            hits += 1
            if name == "job": jobs_end(out.parent/"home") # they go on when the sender dies
            continue
        if code and not (out/DONE.get(name, "none")).exists():
            raise SystemExit(f"{name}: {(out.parent/'said').read_text()[-2000:]} ({code})")
        got = kept(out, name)
        odd = sorted(k for k in {*want, *got} if want.get(k) != got.get(k))
        if odd: raise SystemExit(f"{name}: {', '.join(odd)} after {hits} kills")
        endings += 1
        if hits < kills:
            shutil.rmtree(out.parent)
            out.mkdir(parents=True)
    return {"kills": hits, "endings": endings, "seconds": round(seconds, 2)}


def run_all(folder, kills, seed, names):
    rng, run, home = random.Random(seed), folder/"run", folder/"home"
    folder.mkdir(parents=True, exist_ok=True)
    assert main(["synth", str(folder/"data"), "--videos", "4", "--minutes", "0.3"]) == 0
    add_correction(folder/"data"/"corrections.jsonl", Correction(
        "1", "mouse1", "mouse2", "accept", "chase", 10, 90, ("chase",)), "Ann")
    if {"predict", "review", "retrain", "bundle"} & {*names}:
        words = [w.format(DATA=folder/"data", OUT=folder) for w in COMMANDS["train"]]
        home.mkdir()
        if ended(child(words, home)): raise SystemExit((folder/"said").read_text()[-2000:])
    return {name: killed(name, folder, run, kills, rng) for name in names}


if __name__ == "__main__":
    out = os.dup(1)
    os.dup2(2, 1) # `main` talks
    found = run_all(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]),
                    sys.argv[4:] or list(COMMANDS))
    os.write(out, (json.dumps(found) + "\n").encode())

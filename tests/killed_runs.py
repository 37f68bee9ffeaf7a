"""Train in a child process that is killed at random moments, until it is done.

    python tests/killed_runs.py FOLDER KILLS SEED

Forks instead of starting anew, so that torch is imported once. Prints one JSON object:
how many kills hit a run, and where (epoch and step of the state that was found).
"""
import json
import os
import random
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

import torch

from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.train.folder.recorder import load_checkpoint
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.runs import train

torch.set_num_threads(1)
for used in ("scipy.sparse.csgraph", "torch.onnx", "safetensors.torch"): import_module(used)
CFG = TrainConfig(epochs=6, conv_channels=[16], lstm_hidden=16, batch_size=4, stride=40,
                  learning_rate=0.01, device="cpu", mixup_alpha=0.2, save_freq=2)
COLONY = RecordingList([colony_video(k, minutes=0.5) for k in (0, 3, 6, 9)])


def run(out):
    "The whole job, or what is left of it; the state is kept every few steps."
    Trainer.save_seconds = 0.02
    train(COLONY, out, CFG, ["1", "4", "7"], ["10"], cache=out.parent/"cache", resume=True)


def child(out):
    pid = os.fork()
    if pid: return pid
    try:
        run(out)
        os._exit(0)
    except BaseException as e:
        print(f"child: {type(e).__name__} {e}", file=sys.stderr, flush=True)
        os._exit(1)


def stamp(out):
    "When the state was last written."
    try: return (out/"last"/"state.safetensors").stat().st_mtime_ns
    except FileNotFoundError: return 0 # none yet, or just being replaced


def die_or_finish(pid, out, delay):
    "Kill a child some time after it kept a new state; False if it was done before that."
    before, deadline = stamp(out), None
    while deadline is None or time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done and status: raise SystemExit(f"a child failed with status {status}")
        if done: return False
        if deadline is None and delay is not None and stamp(out) not in (0, before):
            deadline = time.monotonic() + delay
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def killed(out, kills, seed):
    rng, seen = random.Random(seed), []
    while len(seen) < kills:
        if die_or_finish(child(out), out, rng.uniform(0, 0.15)):
            found = load_checkpoint(out/"last")[1]
            seen.append([found["epoch"], found["step"]])
        else: # too late: begin again, so that every kill hits a run
            for path in [*out.glob("last/*"), out/"metrics.json"]: path.unlink()
    die_or_finish(child(out), out, None)
    return seen


if __name__ == "__main__":
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    begun = time.monotonic()
    pid = child(folder/"whole")
    if os.waitpid(pid, 0)[1]: raise SystemExit("the undisturbed run failed")
    print(json.dumps({"killed": killed(folder/"killed", kills, seed)}))

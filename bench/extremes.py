"""Training and prediction at the edges: a result or one sentence, with the memory it took.

    python bench/extremes.py --json bench/results/extremes.json

Videos of 10^6 frames, of eight animals, of both at once, of one class, a dataset of one video, animals that
never move and animals that are never seen; one epoch of a small network each, in a process
of its own, whose peak memory and seconds are told.
"""
import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

PARTS = ("nose", "ear_left", "ear_right", "neck", "tail_base")
p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("cases", nargs="*", help="default: all")
p.add_argument("--frames", type=int, default=10**6, help="of the long video")
p.add_argument("--json")
args = p.parse_args()


def video(name, frames=3000, animals=2, actions=("chase", "sniff"), change=lambda xy: None):
    "Random walks; a bout of every action every 500 frames."
    from mabe_nb.data.recording import Recording, bout_table
    rng = np.random.default_rng(int(name))
    xy = np.cumsum(rng.normal(0, 1, (frames, animals, 1, 2)), 0, dtype=np.float32) + 300
    xy = (xy + 20 * rng.random((1, 1, len(PARTS), 2), dtype=np.float32)).astype(np.float32)
    change(xy)
    mice = tuple(f"mouse{k + 1}" for k in range(animals))
    pairs = [(a, b) for a in mice for b in mice if a != b]
    bouts = [(a, b, action, at + 100 * k, at + 100 * k + 60) for a, b in pairs
             for k, action in enumerate(actions) for at in range(0, frames - 400, 500)]
    return Recording(xy, mice, PARTS, 30.0, 16.0, bout_table(bouts),
                     frozenset((a, b, x) for a, b in pairs for x in actions), name, "lab")


def still(xy): xy[:, 1] = xy[:1, 1]
def unseen(xy): xy[:, 1] = np.nan
def nobody(xy): xy[:] = np.nan


CASES = {
    "long": lambda: [video("1", args.frames), video("2")],
    "long to judge by": lambda: [video("1"), video("2", args.frames)],
    "eight animals": lambda: [video(k, 6000, 8) for k in "12"],
    "long, eight animals": lambda: [video("1", args.frames, 8), video("2", 6000, 8)],
    "one class": lambda: [video(k, actions=("sniff",)) for k in "12"],
    "no class": lambda: [video(k, actions=()) for k in "12"],
    "one video": lambda: [video("1")],
    "an animal that never moves": lambda: [video(k, change=still) for k in "12"],
    "an animal that is never seen": lambda: [video(k, change=unseen) for k in "12"],
    "nobody is ever seen": lambda: [video(k, change=nobody) for k in "12"],
    "a frame": lambda: [video("1"), video("2", 1)]}


def work(case, folder):
    "What came out, in words."
    from mabe_nb.data.dataset import RecordingList
    from mabe_nb.errors import MabeError
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.model import load_model
    from mabe_nb.train.runs import train
    data = RecordingList(CASES[case]())
    cfg = TrainConfig(features="coords", epochs=1, hidden_size=8, num_layers=1, stride=1000,
                      batch_size=32, device="cpu")
    try:
        made = train(data, folder/"run", cfg, ["1"], ["2"] if len(data) > 1 else None,
                     cache=folder/"cache")
        table = load_model(folder/"run").predict(data, cache=folder/"more")
    except MabeError as e: return f"refused: {str(e).replace(str(folder), '')}"
    return f"macro F1 {made['valid']['macro_f1']}, {len(table)} bouts"


def measured(case):
    "Outcome, peak memory and seconds of a case, in a process of its own."
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if not (pid := os.fork()):
            said, code = "", 1
            try: said, code = work(case, Path(folder)), 0
            finally:
                (Path(folder)/"said").write_text(said)
                os._exit(code)
        status, usage = os.wait4(pid, 0)[1:]
        size = sum(f.stat().st_size for f in Path(folder).glob("cache/**/*.npy"))
        if status: raise SystemExit(f"{case}: ended with {os.waitstatus_to_exitcode(status)}")
        return {"outcome": (Path(folder)/"said").read_text(),
                "peak_mb": round(usage.ru_maxrss / 1024), "features_mb": round(size / 1e6),
                "seconds": round(time.perf_counter() - begun, 1),
                "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1)}


rows = {}
for case in args.cases or CASES:
    rows[case] = measured(case)
    print(case, rows[case], flush=True)
if args.json:
    Path(args.json).write_text(json.dumps({"frames": args.frames, "cases": rows}, indent=1) + "\n")

"""Our rolling mean and standard deviation beside numbagg's, on one thread.

    pip install -r bench/requirements.txt
    python bench/rolling.py --json F

Ten minutes of 28 coordinates, whole or with a third missing in stretches; windows centred,
of what is known in them. Both take and give (frames, channels), and both lay each channel in
one piece of memory first, which is timed too; numbagg, whose windows end
at a frame, gets half a window of unknown frames behind the last. Its deviation divides by one
less, so that only the means are compared. Medians of paired rounds, processor time.
"""
import argparse
import json
import os
import time
from datetime import date
from pathlib import Path
from statistics import median

os.environ.setdefault("NUMBA_NUM_THREADS", "1") # Before numba is imported
import numbagg
import numpy as np

from mabe_nb.data.blocks.geometry import along_time
from mabe_nb.data.blocks.rolling import rolling_mean, rolling_mean_stds
from mabe_nb.measure.probe import processor

FRAMES, CHANNELS, HALVES = 18_000, 28, (7, 30, 120)


def walk(share):
    "Coordinates on a random walk, a share of them missing in stretches of a second."
    rng = np.random.default_rng(0)
    x = rng.standard_normal((FRAMES, CHANNELS)).cumsum(0) + 500
    lost = rng.random((FRAMES // 30, CHANNELS)) < share
    x[np.repeat(lost, 30, axis=0)] = np.nan
    return x


def centred(x, half, *functions):
    "numbagg's moving functions of windows around each frame."
    rows = np.concatenate([x.T, np.full((CHANNELS, half), np.nan)], 1)
    return [np.ascontiguousarray(f(rows, window=2 * half + 1, min_count=1)[:, half:].T)
            for f in functions]


def cases(share):
    "Name -> ours and numbagg's; each gives a list of arrays."
    x = walk(share)
    out = {}
    for half in HALVES:
        out[f"mean, {2 * half + 1} frames"] = (
            lambda h=half: [rolling_mean(along_time(x), h)],
            lambda h=half: centred(x, h, numbagg.move_mean))
        out[f"mean and deviation, {2 * half + 1} frames"] = (
            lambda h=half: list(rolling_mean_stds(along_time(x), [h])[0]),
            lambda h=half: centred(x, h, numbagg.move_mean, numbagg.move_std))
    out["mean and deviation, all three"] = (
        lambda: [a for pair in rolling_mean_stds(along_time(x), HALVES) for a in pair],
        lambda: [a for h in HALVES for a in centred(x, h, numbagg.move_mean, numbagg.move_std)])
    return out


def seconds(call):
    begin = time.process_time()
    call()
    return time.process_time() - begin


def main():
    p, rows = argparse.ArgumentParser(description=__doc__.splitlines()[0]), []
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    for share in (0, 1 / 3):
        for name, (ours, theirs) in cases(share).items():
            off = float(np.nanmax(abs(ours()[0] - theirs()[0])))
            pairs = [(seconds(ours), seconds(theirs)) for _ in range(args.rounds)]
            rows.append({"case": name, "missing": round(share, 2), "largest_difference": off,
                         "ours_ms": round(1e3 * median(a for a, _ in pairs), 2),
                         "numbagg_ms": round(1e3 * median(b for _, b in pairs), 2),
                         "faster": round(median(b / a for a, b in pairs), 2)})
            print(rows[-1], flush=True)
    if args.json: args.json.write_text(json.dumps(
        {"date": date.today().isoformat(), "cpu": processor(), "load": os.getloadavg()[0],
         "numbagg": numbagg.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__": main()

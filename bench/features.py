"""Frames per second of the feature presets, beside a plain copy, pandas and movement.

python bench/features.py --json F     rows {"variant": ..., "frames_s": x, "of_copy": x}

`kaggle288` is coordinates, speed and size of the acceleration of each point. movement has
its own acceleration, the change of its velocity, so that only speeds are compared.
"""
import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd

from mabe_nb.data.features import compute
from mabe_nb.data.blocks.motion import SLOTS
from mabe_nb.data.recording import Recording

CALMS21 = ("nose", "ear_left", "ear_right", "neck", "hip_left", "hip_right",
           "tail_base")


def recording(frames, mice, parts):
    "Mice on a random walk."
    rng = np.random.default_rng(0)
    walk = rng.normal(size=(frames, mice, 1, 2)).cumsum(0)
    xy = walk + 30*rng.normal(size=(1, mice, len(parts), 2)) + 500
    return Recording(xy.astype(np.float32), tuple(f"mouse{i + 1}" for i in range(mice)),
                     parts, fps=30)


def pandas_kaggle288(rec):
    "The same 288 channels as a notebook would have them."
    flat = rec.xy.reshape(len(rec), -1)
    table = pd.DataFrame(flat, columns=[f"{i}_{c}" for i in range(flat.shape[1] // 2)
                                        for c in "xy"])
    velocity = (table.shift(-1) - table.shift(1)) * (rec.fps / 2)
    change = (table.shift(-1) - 2*table + table.shift(1)) * rec.fps**2
    size = lambda v: np.hypot(v.iloc[:, ::2], v.iloc[:, 1::2].to_numpy())
    return pd.concat([table, size(velocity), size(change)], axis=1).to_numpy(np.float32)


def movement_kaggle288(rec):
    "Coordinates, speed and size of the acceleration as movement computes them."
    import xarray as xr
    from movement.kinematics import compute_acceleration, compute_speed
    from movement.utils.vector import compute_norm
    x = xr.DataArray(np.moveaxis(rec.xy, (1, 2, 3), (3, 2, 1)), # Its order of axes
                     dims=("time", "space", "keypoints", "individuals"),
                     coords={"time": np.arange(len(rec)) / rec.fps, "space": ["x", "y"]})
    flat = lambda a: a.transpose("time", "individuals", "keypoints", ...).values.reshape(len(rec), -1)
    of = x, compute_speed(x), compute_norm(compute_acceleration(x))
    return np.concatenate([*map(flat, of)], axis=1, dtype=np.float32)


def variants(frames):
    "Name and a call for everything that is measured."
    full, pair = recording(frames, 4, SLOTS), recording(frames, 2, CALMS21)
    done = compute(full, "kaggle288").values
    peer = pandas_kaggle288(full)
    assert np.allclose(peer[1:-1], done[1:-1], rtol=1e-3, atol=.5), "the peer disagrees"
    theirs, n = movement_kaggle288(full), full.xy[0].size
    assert np.allclose(theirs[1:-1, n:n*3//2], done[1:-1, n:n*3//2], rtol=1e-3, atol=.5)
    return {"copy": lambda: np.copy(done),
            "kaggle288": lambda: compute(full, "kaggle288"),
            "kaggle288_pandas": lambda: pandas_kaggle288(full),
            "kaggle288_movement": lambda: movement_kaggle288(full),
            "coords": lambda: compute(pair, "coords"),
            "social": lambda: compute(pair, "social")}


def measure(frames, rounds):
    "Median frames per second; shares are medians of ratios within one round."
    calls, seconds = variants(frames), []
    for call in calls.values(): call()
    for _ in range(rounds):
        row = {}
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            row[name] = time.perf_counter() - start
        seconds.append(row)
    middle = statistics.median
    share = lambda peer, name: middle(r[peer] / r[name] for r in seconds)
    rate = lambda name: frames / middle(r[name] for r in seconds)
    return [{"variant": name, "frames_s": round(rate(name)),
             "of_copy": round(share("copy", name), 4),
             "of_pandas": round(share("kaggle288_pandas", name), 3),
             "of_movement": round(share("kaggle288_movement", name), 3)} for name in calls]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--frames", type=int, default=50_000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", type=Path, help="file for the rows")
    args = p.parse_args()
    rows = measure(args.frames, args.rounds)
    line = ("{variant:18} {frames_s:>12,} frames/s {of_copy:8.3f} of a copy"
            " {of_pandas:8.2f} of pandas {of_movement:8.2f} of movement")
    for row in rows: print(line.format(**row))
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

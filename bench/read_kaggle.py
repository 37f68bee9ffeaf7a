"""Reading one tracking file: ours, a bare `pyarrow.parquet.read_table`, pandas' pivot.

Rounds are paired: each runs all three in turn on the same file, and a ratio is the
median over rounds. `video` is `dataset[id]`: poses, table row, annotations and checks.

    python bench/read_kaggle.py --rounds 30 --json read.json [--real KAGGLE_FOLDER]
"""
import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from mabe_nb.data.kaggle import read_kaggle
from mabe_nb.data.formats.kaggle.tracking import read_tracking


def write_large(root, frames=30_000, mice=4, parts=18):
    "A dataset of one video with every row present, saved as pandas saves."
    names = [f"part_{i:02d}" for i in range(parts)]
    index = pd.MultiIndex.from_product([range(frames), range(1, mice + 1), names])
    xy = np.random.default_rng(0).uniform(1, 1000, (len(index), 2)).astype(np.float32)
    table = pd.DataFrame({
        "video_frame": index.get_level_values(0).astype("int32"),
        "mouse_id": index.get_level_values(1).astype("int8"),
        "bodypart": index.get_level_values(2), "x": xy[:, 0], "y": xy[:, 1]})
    path = root/"train_tracking"/"Large"/"1.parquet"
    path.parent.mkdir(parents=True)
    table.to_parquet(path, index=False)
    row = {"lab_id": "Large", "video_id": 1, "frames_per_second": 30,
           "body_parts_tracked": json.dumps(names), "behaviors_labeled": "[]"}
    pd.DataFrame([row]).to_csv(root/"train.csv", index=False)
    return root


def pivot(path):
    return pd.read_parquet(path).pivot(index="video_frame", values=["x", "y"],
                                       columns=["mouse_id", "bodypart"])


def measure(root, rounds):
    "Rows of one dataset's first video: variant, milliseconds, times the bare read."
    dataset = read_kaggle(root)
    video = dataset.ids[0]
    path, listed = dataset.file(video, "tracking"), list(dataset[video].parts)
    variants = {"bare": lambda: pq.read_table(path), "pivot": lambda: pivot(path),
                "ours": lambda: read_tracking(path, listed),
                "video": lambda: dataset[video]}
    seconds = {name: [] for name in variants}
    for _ in range(rounds + 1): # the first round warms up
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    times = {name: np.array(s[1:]) for name, s in seconds.items()}
    return [{"data": dataset.name, "variant": name, "ms": 1e3*median(t),
             "times_bare": median(t/times["bare"]),
             "times_pivot": median(t/times["pivot"])} for name, t in times.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--real", default=str(
        Path(__file__).parents[2]/"shared"/"data"/"rats"))
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        roots = [write_large(Path(folder)/"large")]
        if Path(args.real).exists(): roots.append(args.real)
        rows = [row for root in roots for row in measure(root, args.rounds)]
    print(pd.DataFrame(rows).round(2).to_string(index=False))
    if args.json: Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__": main()

"""Writes small datasets in the Kaggle layout, for tests."""
import json
from pathlib import Path

import numpy as np
import pandas as pd

PARTS = ("nose", "neck", "tail_base")


def long_table(xy, mice=None, parts=PARTS):
    "Points as Kaggle has them: one row each, none for a point with a NaN."
    mice = mice or range(1, xy.shape[1] + 1)
    index = pd.MultiIndex.from_product(
        [range(len(xy)), mice, parts], names=["video_frame", "mouse_id", "bodypart"])
    table = pd.DataFrame(xy.reshape(-1, 2), index, columns=["x", "y"]).reset_index()
    return table.dropna(ignore_index=True).astype({"video_frame": np.int32,
                                                   "mouse_id": np.int8})


def bout_rows(bouts):
    "Bouts (agent, target, action, start, stop), mice as numbers, as Kaggle has them."
    table = pd.DataFrame(list(bouts), columns=["agent_id", "target_id", "action",
                                               "start_frame", "stop_frame"])
    numbers = {c: np.int64 for c in table if c != "action"}
    return table.astype(numbers | {"action": "str"})


def row(video="7", lab="Ours", parts=PARTS, whitelist=("mouse1,mouse2,chase",), **more):
    "One row of train.csv; lists are written as JSON, text is left as it is."
    def text(value): return value if isinstance(value, str) else json.dumps(list(value))
    return {"lab_id": lab, "video_id": video, "frames_per_second": 30.0,
            "body_parts_tracked": text(parts),
            "behaviors_labeled": text(whitelist)} | more


def write_csv(root, rows, split="train"):
    "The table of videos."
    Path(root).mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(Path(root)/f"{split}.csv", index=False)


def write_parquet(root, table, video="7", kind="tracking", lab="Ours", split="train"):
    "One tracking or annotation file; returns its path."
    path = Path(root)/f"{split}_{kind}"/lab/f"{video}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path, index=False)
    return path


def write_small(root, videos=("7",), frames=40, mice=2, seed=0):
    "A clean dataset: mouse1 chases mouse2 in frames 10 to 20 of every video."
    rng = np.random.default_rng(seed)
    for video in videos:
        xy = rng.uniform(1, 500, (frames, mice, len(PARTS), 2)).astype(np.float32)
        write_parquet(root, long_table(xy), video)
        write_parquet(root, bout_rows([(1, 2, "chase", 10, 20)]), video, "annotation")
    write_csv(root, [row(video) for video in videos])
    return Path(root)

"""A data set four times as large as the stated budget: memory stays flat, weights equal.

    OMP_NUM_THREADS=1 python bench/beyond_memory.py --gb 1 --json F

Each way of holding the data trains the same model for one epoch in a process of its own.
"""
import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

CHANNELS, ACTIONS, BLOCK = 200, 3, 25_000


def write(path, frames):
    "Poses on a random walk, block by block, as float32."
    import numpy as np
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        for _ in range(frames // BLOCK):
            walk = rng.standard_normal((BLOCK, CHANNELS), dtype=np.float32).cumsum(0)
            ((walk - walk.mean(0)) / walk.std(0)).tofile(file)


def epoch(path, frames, kind):
    "Train one epoch from memory or from disk; megabytes and what was learnt."
    import numpy as np
    import torch
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.fit.frames import Frames, OnDisk
    from mabe_nb.train.fit.loop import Trainer
    from mabe_nb.train.models import make_model
    rng = np.random.default_rng(1)
    labels = torch.from_numpy(np.repeat(np.eye(ACTIONS, dtype=np.int8)[
        rng.integers(ACTIONS, size=frames // 50)], 50, axis=0))
    cfg = TrainConfig(model_type="tcn", hidden_size=16, num_layers=2, epochs=1, device="cpu",
                      num_workers=2)
    torch.manual_seed(0)
    model = make_model(cfg, CHANNELS, ACTIONS + 1)
    few = Frames(torch.zeros(2000, CHANNELS), labels[:2000], np.array([2000]))
    if kind == "memory": x = torch.from_numpy(np.fromfile(path, np.float32)).view(-1, CHANNELS)
    else: x = OnDisk(path, frames, CHANNELS)
    learn, marks = Frames(x, labels, np.array([frames])), []
    trainer = Trainer(model, learn, few, np.ones(ACTIONS + 1, np.float32),
                      np.ones(ACTIONS + 1, bool), cfg)
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    trainer.recorder.after_step = lambda _: marks.append(peak())
    row = trainer.fit()[0]
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return {"kind": kind, "steps": len(marks), "loss": row["train_loss"],
            "mb_after_10_steps": round(marks[9]), "mb_at_the_end": round(marks[-1]),
            "weights": hashlib.sha256(weights).hexdigest()[:12]}


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--gb", type=float, default=1.0, help="size of the data")
    p.add_argument("--json", type=Path)
    p.add_argument("--kind", help=argparse.SUPPRESS)
    p.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    args = p.parse_args()
    frames = int(args.gb * 1e9 / 4 / CHANNELS) // BLOCK * BLOCK
    if args.kind:
        print("ROW " + json.dumps(epoch(args.path, frames, args.kind)))
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)/"x.f32"
        write(path, frames)
        print(f"{path.stat().st_size / 1e9:.2f} GB of data, a budget of {args.gb / 4:.2f} GB")
        rows = []
        for kind in ("memory", "disk"):
            out = subprocess.run([sys.executable, __file__, "--kind", kind, "--path", path,
                                  "--gb", str(args.gb)], stdout=subprocess.PIPE,
                                 text=True, check=True).stdout
            rows += [json.loads(x[4:]) for x in out.splitlines() if x.startswith("ROW ")]
            print(rows[-1])
    same = rows[0]["weights"] == rows[1]["weights"]
    print("the same weights to the bit" if same else "THE WEIGHTS DIFFER")
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(not same)

"""What audit, prepare, an epoch of training, prediction and score take as data grow.

    OMP_NUM_THREADS=1 python bench/growth.py --json bench/results/growth.json

Colonies of `mabe synth`: more and more videos, then longer and longer ones. Each size runs
in a process of its own; processor seconds of the job alone, one thread, and the peak of
memory, each the least of `--rounds`, which take all sizes in turn. `growth` is the cost of a
frame at the largest size by that at the middle one: 1 is linear, less is better.
"""
import argparse
import json
import os
import tempfile
import time
from pathlib import Path

JOBS = ("audit", "prepare", "epoch", "predict", "score")


def measured(videos, minutes, folder):
    "Processor seconds of each job on one colony, and what it holds."
    from mabe_nb.data.audit import audit
    from mabe_nb.data.cache.prepare import prepare
    from mabe_nb.data.dataset import open_dataset
    from mabe_nb.data.synthetic import write_colony
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.metrics import chance_score, kaggle_report, solution_table
    from mabe_nb.train.model import load_model
    from mabe_nb.train.runs import train
    import torch
    torch.set_num_threads(1)
    root = write_colony(folder/"colony", videos=videos, minutes=minutes)
    data, row, begun = open_dataset(root), {"videos": videos, "minutes": minutes}, [0.]

    def took(job):
        row[f"{job}_s"] = time.process_time() - begun[0]
        row[f"{job}_mb"] = peak_mb()

    def begin(): begun[0] = time.process_time()
    begin()
    audit(data, workers=1)
    took("audit")
    begin()
    done = prepare(data, "social", folder/"cache", workers=1, progress=False)
    took("prepare")
    row["frames"] = sum(v["frames"] for v in done.videos.values())
    row["pair_frames"] = int(done.sequences.frames.sum())
    row["features_gb"] = sum(p.stat().st_size for p in folder.rglob("*.npy")) / 1e9
    cfg = TrainConfig(features="social", epochs=1, hidden_size=32, num_layers=1,
                      sequence_length=256, device="cpu", valid_share=0.5)
    begin()
    train(data, folder/"run", cfg, cache=folder/"cache")
    took("epoch")
    begin()
    table = load_model(folder/"run").predict(data, cache=folder/"cache", workers=1)
    took("predict")
    begin()
    solution = solution_table(data)
    if len(table):
        kaggle_report(solution, table)
        chance_score(solution, table)
    took("score")
    return row


def peak_mb():
    "Peak memory of this process so far."
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def alone(videos, minutes):
    "`measured` in a process of its own."
    with tempfile.TemporaryDirectory() as folder:
        if not (pid := os.fork()):
            code = 1
            try:
                row = measured(videos, minutes, Path(folder))
                (Path(folder)/"row.json").write_text(json.dumps(row))
                code = 0
            finally: os._exit(code)
        if status := os.waitpid(pid, 0)[1]: raise SystemExit(f"ended with {status}")
        return json.loads((Path(folder)/"row.json").read_text())


def least(rounds):
    "Of several rows of one size the least of each figure: what other work cost is left out."
    return {key: min(row[key] for row in rounds) for key in rounds[0]}


def growth(rows, job):
    "Cost of a frame at the largest size by that at the middle one."
    _, middle, last = (row[f"{job}_s"] / row["frames"] for row in rows)
    return last / middle


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--videos", type=int, nargs=3, default=(12, 120, 1200))
    p.add_argument("--minutes", type=float, nargs=3, default=(1, 10, 100))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", type=Path)
    args, out = p.parse_args(), {}
    sizes = {"videos": [(n, 0.5) for n in args.videos],
             "minutes": [(2, m) for m in args.minutes]}
    for name, each in sizes.items():
        rounds = [[alone(*size) for size in each] for _ in range(args.rounds)]
        rows = [least(of) for of in zip(*rounds)]
        for row in rows: print({k: round(v, 2) for k, v in row.items()}, flush=True)
        out[name] = {"rows": rows, "growth": {job: growth(rows, job) for job in JOBS}}
        print(f"growth with {name}:", {k: round(v, 2) for k, v in out[name]["growth"].items()})
        if args.json: args.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__": main()

"""Which batch size our sweep chooses, beside two finders of batch sizes.

    pip install -r bench/requirements.txt
    OMP_NUM_THREADS=1 python bench/finders.py --rounds 3 --json F

On the CPU, one model, one limit of memory (`memory_limit` of this package, so that a batch
that is too large really fails), each finder in a process of its own, in alternating order:
`ours` `sweep` as it comes, but for the seconds of a size; `lightning` its
`Tuner.scale_batch_size(mode="power")`, which is BatchSizeFinder; `accelerate`
`find_executable_batch_size` from 4096 down by its own rule, a tenth less after each failure;
`halving` the same with halves. A try of theirs is three steps, Lightning's default.
What is chosen is then timed by one and the same code, `measure` of this package, once for
each size of a round and under the same limit.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import date
from importlib.metadata import version
from pathlib import Path

CHANNELS, CLASSES, LENGTH, FRAMES, STEPS, FIRST = 28, 4, 100, 20_000, 3, 4096
FINDERS = ["ours", "lightning", "accelerate", "halving"]


def settings(batch=64):
    from mabe_nb.train.config import TrainConfig
    return TrainConfig(model_type="lstm", hidden_size=64, num_layers=1, frame_gap=1,
                       sequence_length=LENGTH, batch_size=batch, device="cpu",
                       use_augmentation=False)


def model_and_loss():
    import torch
    from mabe_nb.train.models import make_model
    torch.manual_seed(0)
    return make_model(settings(), CHANNELS, CLASSES), lambda model, x, y: (
        torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()))


def loader(batch):
    import torch
    x = torch.randn(FRAMES, CHANNELS)
    y = torch.randint(CLASSES, (FRAMES,))

    class Windows(torch.utils.data.Dataset):
        def __len__(self): return FRAMES - LENGTH + 1
        def __getitem__(self, i): return x[i:i + LENGTH], y[i:i + LENGTH]

    return torch.utils.data.DataLoader(Windows(), batch, shuffle=True, drop_last=True)


class Tries:
    "What was tried: a size, and why it failed."

    def __init__(self): self.made, self.curve = [], None # Curve: ours alone has one

    def __call__(self, size, run):
        self.made.append([size, None])
        try: return run()
        except BaseException as e:
            self.made[-1][1] = f"{type(e).__name__}: {e}"[:160]
            raise


def by_ours(args, tries):
    from mabe_nb.measure.workload import Workload
    from mabe_nb.measure.sweep import sweep
    done = sweep(settings(), Workload(CHANNELS, CLASSES), on="local:cpu", fresh=True,
                 seconds=args.seconds, memory_gb=args.gb)
    tries.made = [[int(r.batch), None if r.status == "ok" else f"{r.status}: {r.note}"]
                  for r in done.rows.itertuples()]
    tries.curve = done.rows[["batch", "windows_s", "gb"]].dropna().values.tolist()
    return done.knee


def by_lightning(args, tries):
    import lightning as L
    import torch
    from lightning.pytorch.tuner import Tuner, batch_size_scaling

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.batch_size, (self.model, self.loss) = 64, model_and_loss()

        def training_step(self, batch, _): return self.loss(self.model, *batch)
        def configure_optimizers(self): return torch.optim.AdamW(self.parameters(), 1e-3)
        def train_dataloader(self): return loader(self.batch_size)

    module, run = Module(), batch_size_scaling._try_loop_run # wrapped to count, no more
    batch_size_scaling._try_loop_run = lambda *a: tries(module.batch_size, lambda: run(*a))
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=False,
                            default_root_dir=folder, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
        return Tuner(trainer).scale_batch_size(module, mode="power")


def by_accelerate(args, tries, half=False):
    import torch
    from accelerate import Accelerator
    from accelerate.utils import find_executable_batch_size
    team, size = Accelerator(cpu=True), FIRST

    def halve():
        nonlocal size
        size //= 2
        return size

    def train(batch):
        team.free_memory()
        model, loss_of = model_and_loss()
        model, optimizer, batches = team.prepare(
            model, torch.optim.AdamW(model.parameters(), 1e-3), loader(batch))
        for _, (x, y) in zip(range(STEPS), batches):
            optimizer.zero_grad()
            team.backward(loss_of(model, x, y))
            optimizer.step()
        return batch

    @find_executable_batch_size(starting_batch_size=FIRST,
                                reduce_batch_size_fn=halve if half else None)
    def inner(batch_size): return tries(batch_size, lambda: train(batch_size))

    return inner()


def find(name, args):
    "What one finder answers; imports are not counted, under the limit from then on."
    warnings.filterwarnings("ignore")
    import torch
    from mabe_nb.measure.probe import memory_limit
    if name == "lightning": import lightning.pytorch.tuner  # noqa: F401
    elif name != "ours": import accelerate.utils  # noqa: F401
    next(iter(loader(2)))
    calls = {"ours": by_ours, "lightning": by_lightning, "accelerate": by_accelerate,
             "halving": lambda args, tries: by_accelerate(args, tries, half=True)}
    tries, chosen, error, begun = Tries(), None, None, time.perf_counter()
    try:
        if name == "ours": chosen = by_ours(args, tries) # each of its sizes is limited
        else:
            with memory_limit(torch.device("cpu"), args.gb): chosen = calls[name](args, tries)
    except Exception as e: error = f"{type(e).__name__}: {e}"[:200]
    return {"finder": name, "tries": len(tries.made),
            "failed_tries": sum(why is not None for _, why in tries.made),
            "seconds": time.perf_counter() - begun, "chosen": chosen,
            "tried": tries.made, "curve": tries.curve, "error": error}


def rate(size, args):
    "Windows per second at a size by our own code, and whether the size fits the limit."
    from mabe_nb.measure.probe import measure
    from mabe_nb.measure.workload import make_spec
    from mabe_nb.measure.workload import Workload
    for gb in (args.gb, None):
        row = measure(make_spec(settings(size), Workload(CHANNELS, CLASSES), memory_gb=gb,
                                seconds=args.judge))
        if row["status"] == "ok": break
    return {"windows_s_at_chosen": row["windows_s"], "known": row["seconds"]["known"],
            "gb_at_chosen": row["memory"]["peak"] / 1e9, "fits": gb is not None}


def child(args, *how):
    "A row from a process of its own."
    command = [sys.executable, __file__, "--gb", str(args.gb), "--seconds",
               str(args.seconds), "--judge", str(args.judge), *map(str, how)]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(command, capture_output=True, text=True,
                              env={**os.environ, "MABE_HOME": home})
    found = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if found: return json.loads(found[0][4:])
    return {"error": f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"}


def about():
    from mabe_nb.measure.probe import processor
    names = ("mabe_nb", "torch", "lightning", "accelerate")
    return {"date": date.today().isoformat(), "cpu": processor(), "cores": os.cpu_count(),
            "threads": os.environ["OMP_NUM_THREADS"], "load": os.getloadavg()[0],
            "versions": {"python": platform.python_version()} | {n: version(n) for n in names}}


def rounds(args):
    "Every finder, then every size that was chosen."
    rows = []
    for i in range(args.rounds):
        order = FINDERS[::1 if i % 2 == 0 else -1]
        found = [{"finder": name, "round": i, "gb": args.gb, **child(args, "--finder", name)}
                 for name in order]
        sizes = list(dict.fromkeys(r["chosen"] for r in found if r.get("chosen")))
        speed = {size: child(args, "--rate", size) for size in sizes}
        for row in found:
            rows.append(row | speed.get(row.get("chosen"), {}) | about())
            print(f"round {i}: {row['finder']} {row.get('chosen')} {row.get('error') or ''}",
                  file=sys.stderr)
    return rows


def table(rows):
    "Medians, and medians of the paired ratios of ours to each."
    mine = {r["round"]: r.get("windows_s_at_chosen") for r in rows if r["finder"] == "ours"}
    print("finder       tries failed  seconds  chosen  windows/s  GB there  ours is")
    for name in FINDERS:
        part = [r for r in rows if r["finder"] == name and r.get("windows_s_at_chosen")]
        if not part:
            print(f"{name:12s} found nothing")
            continue
        mid = lambda key: statistics.median(r[key] for r in part)
        ratios = [mine[r["round"]] / r["windows_s_at_chosen"] for r in part
                  if mine.get(r["round"])]
        said = f"{statistics.median(ratios):.2f}x" if ratios else "?"
        short = "" if all(r["fits"] for r in part) else "  does not fit in the probe"
        print(f"{name:12s} {mid('tries'):5g} {mid('failed_tries'):6g} {mid('seconds'):8.1f} "
              f"{mid('chosen'):7g} {mid('windows_s_at_chosen'):10,.0f} "
              f"{mid('gb_at_chosen'):9.2f}  {said}{short}")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--gb", type=float, default=0.6, help="limit of memory")
    p.add_argument("--seconds", type=float, default=3.0, help="of our sweep for each size")
    p.add_argument("--judge", type=float, default=8.0, help="seconds for a size chosen")
    p.add_argument("--json", type=Path)
    p.add_argument("--finder", choices=FINDERS, help=argparse.SUPPRESS)
    p.add_argument("--rate", type=int, help=argparse.SUPPRESS)
    args = p.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if args.finder or args.rate:
        row = rate(args.rate, args) if args.rate else find(args.finder, args)
        print("ROW " + json.dumps(row))
        sys.exit()
    rows = rounds(args)
    table(rows)
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n")

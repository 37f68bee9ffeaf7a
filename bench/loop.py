"""Our training loop beside its peers: windows per second, in paired rounds.

    pip install -r bench/requirements.txt
    OMP_NUM_THREADS=1 python bench/loop.py --model tiny --rounds 5 --json F

Variants, each in a process of its own, in alternating order:
`floor` one fixed batch, fused AdamW, nothing read back: no loop can be faster;
`ours` the `Trainer` of this package; `plain` a DataLoader over NumPy windows and
`loss.item()` at each step; `lightning` its Trainer as it comes; `accelerate` the plain
loop prepared by it. `--fetch` times the batches alone.
"""
import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

FRAMES, CHANNELS, CLASSES, LENGTH, BATCH = 50_000, 28, 4, 100, 64
VARIANTS = ["floor", "ours", "plain", "lightning", "accelerate"]
FETCHES = ["gather", "loader"]


def make_data():
    "Poses on a random walk (float64, as NumPy gives them) and bouts of 50 frames."
    import numpy as np
    rng = np.random.default_rng(0)
    x = rng.standard_normal((FRAMES, CHANNELS)).cumsum(0) * 0.05
    y = np.repeat(rng.choice(CLASSES, FRAMES // 50, p=[.7, .1, .15, .05]), 50)
    return (x - x.mean(0)) / x.std(0), y


def make_model(name):
    import torch
    from mabe_nb.train.models import Conv1DBiLSTM
    torch.manual_seed(0)
    return torch.nn.Linear(CHANNELS, CLASSES) if name == "tiny" else Conv1DBiLSTM(
        CHANNELS, CLASSES)


def class_weights(y):
    import numpy as np
    n = np.bincount(y, minlength=CLASSES)
    return (n.sum() / (CLASSES * n)).astype(np.float32)


class Clock:
    "Times of steps; the first ones do not count."

    def __init__(self, warm): self.warm, self.stamps, self.cpu = warm, [], []

    def tick(self, _=None):
        self.stamps.append(time.perf_counter())
        self.cpu.append(time.process_time())

    def rates(self):
        n = len(self.stamps) - self.warm - 1
        return {"samples_s": BATCH * n / (self.stamps[-1] - self.stamps[self.warm]),
                "samples_cpu_s": BATCH * n / (self.cpu[-1] - self.cpu[self.warm])}


class Enough(Exception):
    "Raised when the steps are done."


def windows_of(x, y):
    "What one writes first: a slice and a conversion for each window."
    import torch

    class Windows(torch.utils.data.Dataset):
        def __len__(self): return FRAMES - LENGTH + 1

        def __getitem__(self, i):
            return (torch.tensor(x[i:i + LENGTH], dtype=torch.float32),
                    torch.tensor(y[i:i + LENGTH], dtype=torch.long))

    return torch.utils.data.DataLoader(Windows(), BATCH, shuffle=True, drop_last=True)


def plain_loop(model, optimizer, loss_of, batches, clock, steps, backward, item=True):
    model.train()
    for step, (x, y) in enumerate(batches):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(x).flatten(0, 1), y.flatten())
        backward(loss)
        optimizer.step()
        if item: loss.item()
        clock.tick()
        if step + 1 == steps: return


def run_ours(model, x, y, clock, steps):
    import numpy as np
    import torch
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.frames import Frames
    from mabe_nb.train.loop import Trainer
    labels = (y[:, None] == np.arange(1, CLASSES)).astype(np.int8)
    data = Frames(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(labels),
                  np.array([FRAMES]))
    cfg = TrainConfig(sequence_length=LENGTH, frame_gap=1, stride=1, batch_size=BATCH,
                      ema_decay=0, use_augmentation=False, grad_clip=0, device="cpu",
                      learning_rate=1e-3, scheduler="none")
    trainer = Trainer(model, data, data, class_weights(y), np.ones(CLASSES, bool), cfg)

    def tick(windows):
        clock.tick()
        if len(clock.stamps) == steps: raise Enough

    trainer.tick = tick
    try: trainer.fit()
    except Enough: pass


def run_lightning(model, x, y, loss_of, clock, steps):
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, _):
            loss = loss_of(self.model(batch[0]).flatten(0, 1), batch[1].flatten())
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class Ticks(lightning.Callback):
        def on_train_batch_end(self, *_): clock.tick()

    lightning.Trainer(callbacks=[Ticks()], accelerator="cpu", devices=1, max_epochs=1,
                      limit_train_batches=steps, enable_checkpointing=False,
                      logger=False).fit(Module(), windows_of(x, y))


def run(variant, name, steps, warm):
    "One variant; its rates."
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch
    from mabe_nb.data.windows import gather
    (x, y), model, clock = make_data(), make_model(name), Clock(warm)
    loss_of = torch.nn.CrossEntropyLoss(torch.from_numpy(class_weights(y)))
    adam = lambda **how: torch.optim.AdamW(model.parameters(), lr=1e-3, **how)
    steps, backward = steps + warm + 1, torch.Tensor.backward
    torch.manual_seed(1)
    if variant == "floor":
        batch = next(iter(windows_of(x, y)))
        plain_loop(model, adam(fused=True), loss_of, [batch] * steps, clock, steps,
                   backward, item=False)
    elif variant == "ours": run_ours(model, x, y, clock, steps)
    elif variant == "plain":
        plain_loop(model, adam(), loss_of, windows_of(x, y), clock, steps, backward)
    elif variant == "lightning": run_lightning(model, x, y, loss_of, clock, steps)
    elif variant == "accelerate":
        from accelerate import Accelerator
        team = Accelerator(cpu=True)
        model, optimizer, batches = team.prepare(model, adam(), windows_of(x, y))
        plain_loop(model, optimizer, loss_of, batches, clock, steps, team.backward)
    elif variant == "loader":
        for _, batch in zip(range(steps), windows_of(x, y)): clock.tick()
    else: # gather
        x = torch.from_numpy(x.astype("float32"))
        y = torch.from_numpy(y)
        for _ in range(steps):
            starts = torch.randint(FRAMES - LENGTH, (BATCH,)).numpy()
            gather(x, starts, LENGTH), gather(y, starts, LENGTH)
            clock.tick()
    return clock.rates()


def rounds(args, variants):
    "All variants in turn, in alternating order, each in a process of its own."
    rows, command = [], [sys.executable, __file__, "--model", args.model, "--steps",
                         str(args.steps), "--warm", str(args.warm), "--variant"]
    for i in range(args.rounds):
        for variant in variants[::1 if i % 2 == 0 else -1]:
            done = subprocess.run([*command, variant], capture_output=True, text=True)
            found = [line for line in done.stdout.splitlines() if line.startswith("RATES ")]
            if found: rows.append({"variant": variant, "model": args.model, "round": i,
                                   **json.loads(found[0][6:])})
            else: print(f"{variant} failed: {done.stderr.strip()[-200:]}", file=sys.stderr)
    return rows


def table(rows, base):
    "Medians, and medians of the paired ratios to `base`."
    by = {(r["variant"], r["round"]): r for r in rows}
    for variant in dict.fromkeys(r["variant"] for r in rows):
        mine = [r for r in rows if r["variant"] == variant]
        line = f"{variant:12s} {statistics.median(r['samples_s'] for r in mine):12,.1f}/s"
        for key in ("samples_s", "samples_cpu_s"):
            ratios = [r[key] / by[base, r["round"]][key] for r in mine
                      if (base, r["round"]) in by]
            if ratios: line += f"  {statistics.median(ratios):7.3f} of {base} ({key[8:-2] or 'wall'})"
        print(line)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", choices=["tiny", "full"], default="tiny")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int)
    p.add_argument("--warm", type=int)
    p.add_argument("--json", type=Path)
    p.add_argument("--variants", default=",".join(VARIANTS))
    p.add_argument("--fetch", action="store_true", help="time the batches alone")
    p.add_argument("--variant", help=argparse.SUPPRESS)
    args = p.parse_args()
    args.steps = args.steps or (300 if args.model == "tiny" else 8)
    args.warm = args.warm or (50 if args.model == "tiny" else 2)
    if args.variant:
        print("RATES " + json.dumps(run(args.variant, args.model, args.steps, args.warm)))
        sys.exit()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = rounds(args, FETCHES if args.fetch else args.variants.split(","))
    table(rows, "loader" if args.fetch else "floor")
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n")

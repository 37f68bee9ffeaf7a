"""Our training loop beside its peers: windows per second, in paired rounds.

    pip install -r bench/requirements.txt
    OMP_NUM_THREADS=1 python bench/loop.py --model tiny --rounds 5 --json F
    python bench/loop.py --model full --device cuda --batch 256 --precision bf16 --steps 100

Variants, each in a process of its own, in alternating order:
`floor` one fixed batch, fused AdamW, our loss, our allocator and products, nothing read
back; `bare`, run if it is named, the same with our optimizer: no loop can be faster;
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
from contextlib import nullcontext
from pathlib import Path

FRAMES, CHANNELS, CLASSES, LENGTH = 50_000, 28, 4, 100
HALF = {"fp32": None, "bf16": "bfloat16", "fp16": "float16"}
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

    def __init__(self, warm, steps, args):
        self.warm, self.steps, self.args, self.stamps, self.cpu = warm, steps, args, [], []

    def tick(self, _=None):
        if self.args.device == "cuda" and len(self.stamps) in (self.warm, self.steps - 1):
            import torch
            torch.cuda.synchronize()
        self.stamps.append(time.perf_counter())
        self.cpu.append(time.process_time())

    def rates(self):
        n = len(self.stamps) - self.warm - 1
        batch = self.args.batch
        return {"samples_s": batch * n / (self.stamps[-1] - self.stamps[self.warm]),
                "samples_cpu_s": batch * n / (self.cpu[-1] - self.cpu[self.warm])}


class Enough(Exception):
    "Raised when the steps are done."


def windows_of(x, y, batch):
    "What one writes first: a slice and a conversion for each window."
    import torch

    class Windows(torch.utils.data.Dataset):
        def __len__(self): return FRAMES - LENGTH + 1

        def __getitem__(self, i):
            return (torch.tensor(x[i:i + LENGTH], dtype=torch.float32),
                    torch.tensor(y[i:i + LENGTH], dtype=torch.long))

    return torch.utils.data.DataLoader(Windows(), batch, shuffle=True, drop_last=True)


def plain_loop(model, optimizer, loss_of, batches, clock, args, backward=None, item=True,
               whole=False):
    "What one writes first, with mixed precision as PyTorch's documentation shows it."
    import torch
    model.train()
    half = HALF[args.precision]
    cast = torch.autocast(args.device, getattr(torch, half)) if half else nullcontext()
    scaler = torch.amp.GradScaler(args.device) if args.precision == "fp16" else None
    for step, (x, y) in enumerate(batches):
        x, y = x.to(args.device), y.to(args.device)
        optimizer.zero_grad(set_to_none=True)
        with cast: scores = model(x)
        loss = loss_of(scores, y) if whole else loss_of(scores.flatten(0, 1), y.flatten())
        if scaler and not backward:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            (backward or torch.Tensor.backward)(loss)
            optimizer.step()
        if item: loss.item()
        clock.tick()
        if step + 1 == clock.steps: return


def run_ours(model, x, y, clock, args):
    import numpy as np
    import torch
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.fit.frames import Frames
    from mabe_nb.train.fit.loop import Trainer
    labels = (y[:, None] == np.arange(1, CLASSES)).astype(np.int8)
    on = lambda a: torch.from_numpy(a).to(args.device)
    data = Frames(on(x.astype(np.float32)), on(labels), np.array([FRAMES]))
    cfg = TrainConfig(sequence_length=LENGTH, frame_gap=1, stride=1, batch_size=args.batch,
                      ema_decay=0, use_augmentation=False, grad_clip=0, device=args.device,
                      learning_rate=1e-3, scheduler="none", amp=args.precision != "fp32")
    trainer = Trainer(model, data, data, class_weights(y), np.ones(CLASSES, bool), cfg)
    if args.precision != "fp32": trainer.precision.dtype = getattr(torch, HALF[args.precision])

    def tick(windows):
        clock.tick()
        if len(clock.stamps) == clock.steps: raise Enough

    trainer.recorder.after_step = tick
    try: trainer.fit()
    except Enough: pass


def run_lightning(model, x, y, loss_of, clock, args):
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

    lightning.Trainer(callbacks=[Ticks()], accelerator=args.device, devices=1, max_epochs=1,
                      limit_train_batches=clock.steps, enable_checkpointing=False, logger=False,
                      precision={"fp32": "32-true", "bf16": "bf16-mixed",
                                 "fp16": "16-mixed"}[args.precision],
                      ).fit(Module(), windows_of(x, y, args.batch))


def run(variant, args):
    "One variant; its rates."
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch
    from mabe_nb.train.fit.frames import batches
    (x, y), model = make_data(), make_model(args.model).to(args.device)
    clock = Clock(args.warm, args.steps + args.warm + 1, args)
    weights = torch.from_numpy(class_weights(y)).to(args.device)
    loss_of, loader = torch.nn.CrossEntropyLoss(weights), lambda: windows_of(x, y, args.batch)
    adam = lambda **how: torch.optim.AdamW(model.parameters(), lr=1e-3, **how)
    torch.manual_seed(1)
    if variant in ("floor", "bare"):
        from mabe_nb.train.fit.optim import EagerAdamW
        from mabe_nb.train.fit.losses import PlainLoss
        from mabe_nb.train.machine import memory_kept, onednn_products
        batch, device = [part.to(args.device) for part in next(iter(loader()))], weights.device
        with memory_kept(device), onednn_products(device):
            of = EagerAdamW if variant == "bare" else torch.optim.AdamW
            plain_loop(model, of(model.parameters(), lr=1e-3, fused=True), PlainLoss(weights),
                       [batch] * clock.steps, clock, args, item=False, whole=True)
    elif variant == "ours": run_ours(model, x, y, clock, args)
    elif variant == "plain": plain_loop(model, adam(), loss_of, loader(), clock, args)
    elif variant == "lightning": run_lightning(model, x, y, loss_of, clock, args)
    elif variant == "accelerate":
        from accelerate import Accelerator
        team = Accelerator(cpu=args.device == "cpu", mixed_precision={"fp32": "no"}.get(
            args.precision, args.precision))
        model, optimizer, loaded = team.prepare(model, adam(), loader())
        plain_loop(model, optimizer, loss_of, loaded, clock, args, team.backward)
    elif variant == "loader":
        for _, batch in zip(range(clock.steps), loader()): clock.tick()
    else: # gather
        x, y = torch.from_numpy(x.astype("float32")), torch.from_numpy(y)
        plan = torch.randint(FRAMES - LENGTH, (clock.steps, args.batch)).numpy()
        for _ in zip(*(batches(data, plan, LENGTH, 1) for data in (x, y))): clock.tick()
    memory = {"peak_gb": torch.cuda.max_memory_allocated() / 1e9,
              "card": torch.cuda.get_device_name()} if args.device == "cuda" else {}
    return clock.rates() | memory


def rounds(args, variants):
    "All variants in turn, in alternating order, each in a process of its own."
    rows, command = [], [sys.executable, __file__, "--model", args.model, "--steps",
                         str(args.steps), "--warm", str(args.warm), "--batch", str(args.batch),
                         "--device", args.device, "--precision", args.precision, "--variant"]
    for i in range(args.rounds):
        for variant in variants[::1 if i % 2 == 0 else -1]:
            done = subprocess.run([*command, variant], capture_output=True, text=True)
            found = [line for line in done.stdout.splitlines() if line.startswith("RATES ")]
            if found: rows.append({"variant": variant, "model": args.model, "round": i,
                                   "batch": args.batch, "precision": args.precision,
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
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--precision", choices=HALF, default="fp32")
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
        print("RATES " + json.dumps(run(args.variant, args)))
        sys.exit()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = rounds(args, FETCHES if args.fetch else args.variants.split(","))
    table(rows, "loader" if args.fetch else "floor")
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n")

"""One evening with a card: is it right, how fast is it, and do our forecasts hold?

    python bench/gpu.py --minutes 8 --json F

Runs on any CUDA machine with nothing but the package, and on a processor where there is
none. Correctness comes first, then speed, then forecasts against what was measured. Each
part is written to F as soon as it is done, so that a run that is cut off has left what it
found; parts that the time did not allow for are named. The table at the end is F.md.
"""
import argparse
import dataclasses
import json
import os
import sys
import time
import traceback
from datetime import date
from pathlib import Path

import torch

from mabe_nb.errors import ConfigError
from mabe_nb.hardware.catalog import card
from mabe_nb.measure.compare import by_count, recurrent_floor
from mabe_nb.measure.estimate import estimate
from mabe_nb.measure.probe import Steps, machine, make_spec, make_trainer, measure
from mabe_nb.measure.step import bottleneck, roofline
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.fit.machine import pick_device
from mabe_nb.train.models import NETWORKS


@dataclasses.dataclass
class Bench:
    "What every part may use: the device, sizes that suit it, and the time there is."
    device: torch.device
    end: float
    parts: dict = dataclasses.field(default_factory=dict)

    @property
    def cuda(self): return self.device.type == "cuda"

    @property
    def design(self): # The design's network on a card, a small one on a processor
        sizes = dict(conv_channels=[64, 128, 256], lstm_hidden=256, lstm_layers=2) \
            if self.cuda else dict(conv_channels=[16], lstm_hidden=16, sequence_length=20)
        return TrainConfig(**sizes, device=str(self.device))

    @property
    def sizes(self): return (64, 256, 1024) if self.cuda else (8, 16)

    @property
    def precisions(self):
        if not self.cuda: return "fp32", "bf16"
        major = torch.cuda.get_device_capability(self.device)[0]
        return ("fp32", "fp16", "bf16") if major >= 8 else ("fp32", "fp16")

    def probe(self, cfg, precision="fp32", seconds=None):
        "A measured step. On a card all in one process: memory counts anew for each."
        seconds = seconds or (3.0 if self.cuda else 0.3)
        return measure(make_spec(cfg, precision=precision, seconds=seconds))


def losses(bench, precision, steps=20):
    "Losses of the same steps in some precision."
    trainer = make_trainer(make_spec(bench.design, precision=precision), bench.device)
    step = Steps(trainer)
    torch.manual_seed(0)
    return [step().item() for _ in range(steps)]


def parity(bench):
    "Half precision and TF32 against full precision, the same steps."
    full, out = losses(bench, "fp32"), []
    for name in bench.precisions[1:]:
        off = max(abs(a - b) / a for a, b in zip(losses(bench, name), full))
        out.append({"precision": name, "largest_error": off, "right": off < 0.05})
    if bench.cuda:
        before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        exact = losses(bench, "fp32")
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
        off = max(abs(a - b) / a for a, b in zip(full, exact))
        out.append({"precision": "tf32 of cuDNN", "largest_error": off, "right": off < 0.05})
    return out


def resume(bench):
    "Steps after a state was kept, and the same from that state in a new trainer."
    def make(skip):
        step = Steps(make_trainer(make_spec(bench.design), bench.device))
        for _ in range(skip): next(step.plan), next(step.pairs)
        return step
    first = make(0)
    for _ in range(5): first()
    kept = first.trainer.state()
    kept = {k: t.clone() for k, t in kept[0].items()}, kept[1]
    on = [first().item() for _ in range(5)]
    second = make(5)
    second.trainer.restore(*kept)
    again = [second().item() for _ in range(5)]
    off = max(abs(a - b) for a, b in zip(on, again))
    return [{"difference": off, "right": off < (1e-4 if bench.cuda else 1e-7)}]


def monitor(bench):
    "What the driver tells of the card."
    if not bench.cuda: return [{"right": None, "say": "no card here"}]
    from mabe_nb.hardware.cluster import read_gpus
    table = read_gpus()
    return [dict(r, right=bool(r["card"])) for r in table.to_dict("records")]


def too_large(bench):
    "A batch that does not fit is told with a remedy, and the next one works."
    huge = bench.design.model_copy(update={"batch_size": 100_000})
    limit = None if bench.cuda else 0.3
    row = measure(make_spec(huge, seconds=0.2, memory_gb=limit))
    after = bench.probe(bench.design, seconds=0.2)
    return [{"status": row["status"], "say": row.get("say", ""),
             "right": row["status"] == "oom" and after["status"] == "ok"}]


def speed(bench):
    "Windows a second by batch and precision, and what holds a step up."
    known = None
    if bench.cuda:
        try: known = card(torch.cuda.get_device_name(bench.device))
        except ConfigError: pass
    for size in bench.sizes:
        for precision in bench.precisions:
            cfg = bench.design.model_copy(update={"batch_size": size})
            r = bench.probe(cfg, precision)
            row = {"batch": size, "precision": precision, "status": r["status"]}
            if r["status"] == "ok":
                row |= {"windows_s": r["windows_s"], "ms": r["seconds"]["p50"] * 1e3,
                        "gb": r["memory"]["peak"] / 1e9, "parts": r["parts"],
                        "binds": bottleneck(roofline(r, known))}
            yield row


def plain(bench):
    "The same step as anybody would write it, on one fixed batch: the floor of a loop."
    for size in bench.sizes[:2]:
        cfg = bench.design.model_copy(update={"batch_size": size})
        trainer = make_trainer(make_spec(cfg), bench.device)
        x, y = next(Steps(trainer).windows())
        y = y.flatten().long()
        def step(x=x, y=y, trainer=trainer):
            trainer.optimizer.zero_grad(set_to_none=True)
            scores = trainer.model(x).flatten(0, 1)
            torch.nn.functional.cross_entropy(scores, y).backward()
            trainer.optimizer.step()
        from mabe_nb.measure.step import Clock, time_steps
        took = time_steps(step, Clock(bench.device), 2.0 if bench.cuda else 0.3)
        ours = bench.probe(cfg)
        yield {"batch": size, "plain_windows_s": size / took["p50"],
               "ours_windows_s": ours["windows_s"],
               "ratio": ours["windows_s"] * took["p50"] / size}


def memory(bench):
    "Counted memory of each network against what it took."
    for name in NETWORKS:
        sizes = {} if bench.cuda else {"sequence_length": 20, "hidden_size": 16}
        cfg = TrainConfig(model_type=name, batch_size=bench.sizes[1], **sizes,
                          device=str(bench.device))
        found = estimate(cfg, card=bench.cuda, measured=False).need(cfg.batch_size)
        r = bench.probe(cfg, seconds=0.2)
        gb = r["memory"]["peak"] / 1e9
        yield {"network": name, "counted_gb": found.likely, "low_gb": found.low,
               "high_gb": found.high, "took_gb": gb, "within": found.low <= gb <= found.high,
               "kind": r["memory"]["kind"]}


def forecast(bench):
    "Counted time against measured time: only a card can tell."
    if not bench.cuda: return [{"say": "no card here: nothing to compare with"}]
    try: there = card(torch.cuda.get_device_name(bench.device))
    except ConfigError as e: return [{"say": str(e)}]
    rows = []
    for name in NETWORKS:
        cfg = TrainConfig(model_type=name, batch_size=64, device=str(bench.device))
        r = bench.probe(cfg, seconds=1.0)
        guess = by_count(r, there, recurrent_floor(cfg))
        rows.append({"network": name, "predicted_ms": guess * 1e3,
                     "measured_ms": r["seconds"]["p50"] * 1e3,
                     "factor": guess / r["seconds"]["p50"]})
    return rows


PARTS = {f.__name__: f for f in (parity, resume, monitor, too_large, speed, plain, memory,
                                 forecast)}


def page(found):
    "All parts as one page of tables."
    lines = [f"# {found['machine']['card']}, {found['date']}", ""]
    for name, part in found["parts"].items():
        lines += [f"## {name} ({part['status']}, {part['seconds']:.1f} s)",
                  part.get("say", ""), ""]
        for row in part["rows"]:
            lines.append("- " + ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else
                                          f"{k} {v}" for k, v in row.items()))
        lines.append("")
    return "\n".join(lines)


def write(found, path):
    "Whole or not at all: a run may be cut off while it writes."
    for target, text in ((path, json.dumps(found, indent=1, default=str) + "\n"),
                         (path.with_suffix(".md"), page(found))):
        part = target.with_name(target.name + ".part")
        part.write_text(text)
        os.replace(part, target)


def run(bench, names, path):
    "Every part in turn; one that fails costs itself alone."
    found = {"machine": machine(bench.device), "date": str(date.today()), "parts": {}}
    write(found, path)
    for name in names:
        begun, part = time.monotonic(), {"status": "ok", "rows": []}
        if begun > bench.end: part |= {"status": "no time", "seconds": 0.0}
        found["parts"][name] = part
        try:
            if part["status"] == "ok":
                for row in PARTS[name](bench):
                    part["rows"].append(row)
                    part["seconds"] = time.monotonic() - begun
                    write(found, path)
                    if time.monotonic() > bench.end: part["status"] = "cut short"; break
        except Exception as e: # any part may fail on a machine we have not seen
            part |= {"status": "failed", "say": f"{type(e).__name__}: {str(e)[:300]}"}
            traceback.print_exc()
        part["seconds"] = time.monotonic() - begun
        write(found, path)
        print(f"{name}: {part['status']}, {len(part['rows'])} rows, "
              f"{part['seconds']:.1f} s", flush=True)
    wrong = [f"{n}: {r}" for n, p in found["parts"].items() for r in p["rows"]
             if r.get("right") is False]
    for words in wrong: print("WRONG", words)
    return 1 if wrong else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--minutes", type=float, default=8.0)
    p.add_argument("--json", type=Path, default=Path("gpu.json"))
    p.add_argument("--device", default="auto")
    p.add_argument("--only", default=",".join(PARTS), help="parts, joined by commas")
    args = p.parse_args()
    bench = Bench(pick_device(args.device), time.monotonic() + 60 * args.minutes)
    return run(bench, args.only.split(","), args.json)


if __name__ == "__main__": sys.exit(main())

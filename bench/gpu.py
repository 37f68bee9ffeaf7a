"""One evening with a card: is it right, how fast is it, and do our forecasts hold?

    python bench/gpu.py --minutes 8 --json F

Runs on any CUDA machine with nothing but the package, and on a processor where there is
none. Correctness comes first, then speed, then forecasts against what was measured, then
the peers of `loop.py` as far as they are installed. A part takes at most half of the time
that is left, the last one all of it. Each row is written to F as soon as it is there, so
that a run that is cut off has left what it found; parts that the time did not allow for are
named. F.md is the page: a table of the parts, and one for each.
"""
import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import date
from pathlib import Path

import torch

from mabe_nb.errors import ConfigError
from mabe_nb.hardware.catalog import card
from mabe_nb.measure.compare import by_count, recurrent_floor
from mabe_nb.measure.estimate import estimate
from mabe_nb.measure.probe import Steps, machine, make_trainer, measure
from mabe_nb.measure.workload import make_spec
from mabe_nb.measure.step import Clock, bottleneck, roofline, time_steps
from mabe_nb.measure.sweep import sweep as sweep_sizes
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.machine import pick_device
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.fit.monitor import Monitor, card_reader
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

    @property
    def left(self): return max(self.end - time.monotonic(), 1.0) # Seconds

    def time(self, step): # Seconds of a step, its median
        return time_steps(step, Clock(self.device), 1.0 if self.cuda else 0.3)["p50"]

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
    return [{"status": row["status"], "say": row.get("note", ""),
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


TEAM = """import json, sys
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.runs import train
videos = RecordingList([colony_video(k, minutes=0.3) for k in (0, 3, 6, 9)])
train(videos, sys.argv[1], TrainConfig(**json.loads(sys.argv[2])), ["1", "4", "7"], ["10"])
"""


def team(bench):
    "One training by one process and by two: on two cards with SyncBatchNorm, here by gloo."
    if bench.cuda and torch.cuda.device_count() < 2:
        return [{"right": None, "say": "one card: two processes need two"}]
    import pandas as pd
    kind = dict(model_type="conv_bilstm", conv_channels=[16], lstm_hidden=16, dropout=0.0) \
        if bench.cuda else dict(model_type="tcn", hidden_size=8, num_layers=1, dropout=0.0)
    settings = kind | dict(device=bench.device.type, epochs=1, batch_size=8, stride=40,
                           sequence_length=40, use_augmentation=False)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for n in (1, 2):
            out = str(Path(folder)/str(n))
            start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                     "--no-python", sys.executable] if n == 2 else []
            subprocess.run([sys.executable, *start, "-c", TEAM, out, json.dumps(settings)],
                           check=True, capture_output=True, timeout=bench.left)
            found.append(pd.read_csv(Path(out)/"history.csv").iloc[-1])
    off = max(abs(found[0][k] - found[1][k]) for k in ("train_loss", "valid_loss"))
    return [{"processes": 2, "backend": "nccl" if bench.cuda else "gloo", "difference": off,
             "right": off < (1e-3 if bench.cuda else 1e-5)}]


def sweep(bench):
    "Batch by batch, the knee, and the two lines; kept for 'mabe advise' as measured here."
    sizes = (32, 64, 128, 256, 512, 1024) if bench.cuda else bench.sizes
    done = sweep_sizes(bench.design, sizes=sizes, seconds=3.0 if bench.cuda else 0.3)
    for row in done.rows.to_dict("records"):
        yield {k: row[k] for k in ("batch", "status", "ms", "windows_s", "gb")}
    yield {"batch": done.knee, "status": "knee", "say": done.about["held_up_by"],
           **{f"{name}_r2": line.r2 for name, line in (("time", done.time),
                                                       ("memory", done.memory)) if line}}


def fixed_step(bench, cfg, **optimizer):
    "A model, and the step on one fixed batch as anybody would write it."
    trainer = make_trainer(make_spec(cfg), bench.device)
    x, y = next(Steps(trainer).windows())
    adam = torch.optim.AdamW(trainer.model.parameters(), 1e-3, fused=True, **optimizer)
    forward = [trainer.model]
    def step():
        adam.zero_grad(set_to_none=True)
        scores = forward[0](x).flatten(0, 1)
        torch.nn.functional.cross_entropy(scores, y.flatten().long()).backward()
        adam.step()
    return trainer.model, step, forward


def graphs(bench):
    "A step of the trainer launched by Python, and the same played as a CUDA graph."
    for name in NETWORKS if bench.cuda else ():
        for size in (16, 256):
            cfg = TrainConfig(model_type=name, batch_size=size, device=str(bench.device))
            steps = [Steps(make_trainer(make_spec(cfg), bench.device)) for _ in range(2)]
            steps[0].trainer.whole_step = Trainer.plain_step
            plain, played = map(bench.time, steps)
            yield {"network": name, "batch": size, "plain_ms": plain * 1e3,
                   "played_ms": played * 1e3, "gain": plain / played,
                   "right": steps[1].trainer.whole_step.graph is not None}
    if not bench.cuda: yield {"say": "no card here: CUDA graphs are a card's"}


def compiled(bench):
    "Convolutions by torch.compile; here without a compiler, for the path alone."
    for name in ("tcn", "calms21_conv1d") if bench.cuda else ("tcn",):
        sizes = {} if bench.cuda else {"hidden_size": 8, "num_layers": 1}
        cfg = TrainConfig(model_type=name, batch_size=bench.sizes[0], **sizes,
                          device=str(bench.device))
        model, step, forward = fixed_step(bench, cfg)
        plain, begun = bench.time(step), time.monotonic()
        backend = "inductor" if bench.cuda else "eager"
        forward[0] = torch.compile(model, backend=backend)
        step()
        waited, fast = time.monotonic() - begun, bench.time(step)
        yield {"network": name, "backend": backend, "plain_ms": plain * 1e3,
               "compiled_ms": fast * 1e3, "gain": plain / fast, "compile_s": waited}


def utilisation(bench):
    "What the driver sees of a card that trains, by batch."
    if (read := card_reader(bench.device)) is None:
        yield {"say": "no card here that NVML knows"}
        return
    for size in bench.sizes:
        cfg = bench.design.model_copy(update={"batch_size": size})
        step = Steps(make_trainer(make_spec(cfg), bench.device))
        with Monitor(read) as watch:
            bench.time(step)
            yield {"batch": size, **watch.readings()}


def side_by_side(bench):
    "Members of a recipe on one card at once: windows a second of all of them."
    alone, seconds = None, 5.0 if bench.cuda else 0.3
    for n in (1, 2, 4) if bench.cuda else (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            spec = Path(folder)/"spec.json"
            spec.write_text(json.dumps(make_spec(bench.design, seconds=seconds)))
            jobs = [subprocess.Popen([sys.executable, "-m", "mabe_nb.measure.probe", spec],
                                     stdout=subprocess.PIPE, text=True) for _ in range(n)]
            try: said = [job.communicate(timeout=bench.left)[0] for job in jobs]
            finally:
                for job in jobs: job.kill()
        rows = [json.loads(text.splitlines()[-1]) for text in said]
        total = sum(r.get("windows_s", 0.0) for r in rows)
        alone = alone or total
        yield {"members": n, "windows_s": total, "gain": total / alone,
               "out_of_memory": sum(r["status"] == "oom" for r in rows)}


PEERS = ("floor", "ours", "plain", "lightning", "accelerate")


def peers(bench):
    "Our loop, a plain one, Lightning and accelerate, against one fixed batch."
    there = [v for v in PEERS if v in PEERS[:3] or importlib.util.find_spec(v)]
    for name in set(PEERS) - set(there): yield {"variant": name, "say": "not installed"}
    script, model = Path(__file__).with_name("loop.py"), "full" if bench.cuda else "tiny"
    steps = ("--steps", "40", "--warm", "10") if bench.cuda else ("--steps", "4")
    sizes = (256, 64, 1024) if bench.cuda else bench.sizes[:1]
    for size in sizes:
        for precision in bench.precisions if bench.cuda else ("fp32",):
            floor = None
            for variant in there:
                done = subprocess.run([
                    sys.executable, script, "--model", model, "--batch", str(size),
                    "--precision", precision, "--device", bench.device.type, *steps,
                    "--variant", variant], capture_output=True, text=True, timeout=bench.left)
                row = {"variant": variant, "batch": size, "precision": precision}
                found = [t for t in done.stdout.splitlines() if t.startswith("RATES ")]
                if not found:
                    yield row | {"say": done.stderr.strip()[-200:]}
                    continue
                speed = json.loads(found[0][6:])["samples_s"]
                floor = speed if variant == "floor" else floor
                yield row | {"windows_s": speed, **({"of_floor": speed / floor} if floor
                                                    else {})}


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
               "high_gb": found.high, "took_gb": gb, "kind": r["memory"]["kind"],
               # a process keeps what earlier parts took: memory.py starts one for each case
               "within": found.low <= gb <= found.high if bench.cuda else None}


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


PARTS = {f.__name__: f for f in (parity, resume, monitor, too_large, team, speed, sweep,
                                 memory, forecast, utilisation, side_by_side, graphs,
                                 compiled, peers)}


def table(rows):
    "Rows as a table in Markdown, with every column that one of them has."
    names = list(dict.fromkeys(k for row in rows for k in row))
    cell = lambda v: f"{v:.4g}" if isinstance(v, float) else str("" if v is None else v)
    lines = [names, ["---"] * len(names), *([cell(r.get(k)) for k in names] for r in rows)]
    return ["| " + " | ".join(c.replace("|", "/").replace("\n", " ") for c in line) + " |"
            for line in lines]


def page(found):
    "All parts as one page: which were done, and a table each."
    parts = found["parts"]
    lines = [f"# {found['machine']['card']}, {found['date']}", "", *table([
        {"part": n, "status": p["status"], "rows": len(p["rows"]), "seconds": p["seconds"],
         "wrong": sum(r.get("right") is False for r in p["rows"])}
        for n, p in parts.items()] or [{"part": ""}])]
    for name, part in parts.items():
        lines += ["", f"## {name}", PARTS[name].__doc__, part.get("say", ""), ""]
        if part["rows"]: lines += table(part["rows"])
    return "\n".join(lines) + "\n"


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
    whole = bench.end
    for name in names:
        begun = time.monotonic()
        part = {"status": "ok", "rows": [], "seconds": 0.0}
        if begun > whole: part["status"] = "no time"
        bench.end = whole if name == names[-1] else begun + (whole - begun) / 2
        found["parts"][name] = part
        try:
            if part["status"] == "ok":
                for row in PARTS[name](bench):
                    part["rows"].append(row)
                    part["seconds"] = time.monotonic() - begun
                    write(found, path)
                    if time.monotonic() > bench.end: part["status"] = "cut short"; break
        except subprocess.TimeoutExpired: part["status"] = "cut short"
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
    names = args.only.split(",")
    if unknown := set(names) - set(PARTS): p.error(f"no parts: {', '.join(unknown)}")
    return run(bench, names, args.json)


if __name__ == "__main__": sys.exit(main())

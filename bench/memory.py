"""Memory that is counted before a run against what a process really takes, on a processor.

    python bench/memory.py --json F
    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
        python bench/memory.py --json F

Every network, three lengths of windows, three batches, with and without a running mean
of the weights. Each case is a process of its own, which takes three training steps. The
second has oneDNN, PyTorch and MKL work as on a processor without AVX-512.
"""
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

LENGTHS, BATCHES, MEANS = (50, 200, 600), (4, 16, 32), (0.0, 0.99)
LIMITS = "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS"
HERE = ("import json, sys, torch\n"
        "from mabe_nb.measure.probe import Steps, blocks_apart, make_trainer, memory_taken\n"
        "from mabe_nb.system import resident\n"
        "spec, cpu = json.load(sys.stdin), torch.device('cpu')\n"
        "before = resident()\n"
        "step = Steps(make_trainer(spec, cpu))\n"
        "with blocks_apart():\n"
        "    for _ in range(3): step()\n"
        "    print(memory_taken(cpu, before)['peak'])\n")


def measured(cfg):
    "GB that a process grew by, from before the model was made."
    from mabe_nb.measure.workload import make_spec
    done = subprocess.run([sys.executable, "-c", HERE], input=json.dumps(make_spec(cfg)),
                          capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) / 1e9


def cases(networks, lengths=LENGTHS, batches=BATCHES, means=MEANS):
    "A row each: what was counted and what was taken, in GB."
    from mabe_nb.measure.estimate import estimate
    from mabe_nb.train.config import TrainConfig
    for name, frames, mean in itertools.product(networks, lengths, means):
        cfg = TrainConfig(model_type=name, sequence_length=frames, ema_decay=mean)
        counted = estimate(cfg, card=False)
        for batch in batches:
            took = measured(cfg.model_copy(update={"batch_size": batch}))
            gb = counted.need(batch).likely
            yield {"network": name, "frames": frames, "batch": batch, "mean": mean,
                   "counted_gb": gb, "measured_gb": took, "error": gb / took - 1}


def about():
    "Where the figures come from."
    import torch
    from mabe_nb.measure.probe import machine
    limits = {name: os.environ[name] for name in LIMITS if name in os.environ}
    return {"date": date.today().isoformat(), **machine(torch.device("cpu")),
            "capability": torch.backends.cpu.get_cpu_capability(), "limits": limits}


def main():
    from mabe_nb.train.models import NETWORKS
    p = argparse.ArgumentParser()
    p.add_argument("--json", type=Path)
    args, rows = p.parse_args(), []
    with tempfile.TemporaryDirectory() as home:
        os.environ["MABE_HOME"] = home # Nothing is known yet
        for row in cases(NETWORKS):
            rows.append(row)
            print(*(f"{v:.3g}" if isinstance(v, float) else v for v in row.values()),
                  flush=True)
            if args.json: args.json.write_text(
                json.dumps({"run": about(), "rows": rows}, indent=1) + "\n")
    print(f"largest error {max(abs(r['error']) for r in rows):.1%} of {len(rows)} cases")


if __name__ == "__main__": main()

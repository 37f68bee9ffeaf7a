"""Training on all cores while another program keeps one of them busy.

    python bench/neighbour.py --json F

Threads of PyTorch that have nothing to do spin for a while before they sleep. Ours:
1,000 turns, as `import mabe_nb` sets them; the peer: 300,000, as the library has them by
itself. Rounds of both, quiet and with one busy neighbour; medians of seconds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MABE = "import sys; from mabe_nb.cli import main; sys.exit(main())"
BUSY = "import os; mine = os.getppid()\nwhile os.getppid() == mine: pass"
TURNS = {"ours": "1000", "as it comes": "300000"}


def seconds(*words, **env):
    "Of one command of `mabe`."
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", MABE, *map(str, words)], check=True,
                   env={k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | env,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main():
    "Measure, print."
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--json")
    args, rows = p.parse_args(), {}
    with tempfile.TemporaryDirectory() as work:
        data, runs = Path(work)/"data", 0
        seconds("synth", data, "--videos=6", "--minutes=1")
        seconds("train", data, "--out", Path(work)/"first", "--epochs=1") # prepares
        for busy in (False, True):
            found = {name: [] for name in TURNS}
            for _ in range(args.rounds):
                for name, turns in TURNS.items():
                    runs += 1
                    other = subprocess.Popen([sys.executable, "-c", BUSY],
                                             start_new_session=True) if busy else None
                    try: found[name].append(seconds(
                        "train", data, "--out", Path(work)/str(runs),
                        f"--epochs={args.epochs}", GOMP_SPINCOUNT=turns))
                    finally:
                        if other: other.kill()
            rows["busy" if busy else "quiet"] = {
                n: round(statistics.median(v), 1) for n, v in found.items()} | {
                "ours is": round(statistics.median(b / a for a, b in zip(*found.values())), 2)}
            print(rows, flush=True)
    if args.json: Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__": main()

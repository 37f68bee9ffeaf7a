"""Commands killed at random moments: is what they leave that of an undisturbed run?

    python bench/kills.py --kills 20 --seed 0 --json bench/results/kills.json

Ends with an error that names what differs. `tests/killed_commands.py` does the work.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1]/"tests"/"killed_commands.py"

p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("commands", nargs="*", help="default: all that the script knows")
p.add_argument("--kills", type=int, default=20)
p.add_argument("--seed", type=int, default=0)
p.add_argument("--json")
args = p.parse_args()
with tempfile.TemporaryDirectory() as work:
    begun = time.perf_counter()
    out = subprocess.run([sys.executable, SCRIPT, Path(work)/"k", str(args.kills),
                          str(args.seed), *args.commands], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
row = {"seed": args.seed, "minutes": round((time.perf_counter() - begun) / 60, 1),
       "commands": json.loads(out)}
print(json.dumps(row, indent=1))
if args.json: Path(args.json).write_text(json.dumps(row, indent=1) + "\n")

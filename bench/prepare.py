"""CPU seconds, memory and disk of `prepare`, beside another checkout of the package.

python bench/prepare.py --before DIR --data DIR [DIR ...] --json F

Each round runs both checkouts in fresh processes, one after the other; a ratio is taken
within a round, that of 4 animals to 2 as well. Only CPU time counts, so that a busy machine
does not matter.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

CHILD = '''
import json, resource, shutil, sys, time
import numpy as np
from importlib import import_module
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.recording import Recording

for place in ("data.cache.prepare", "data.prepare"): # the latter in the first release
    try: prepare = import_module(f"mabe_nb.{place}").prepare
    except ModuleNotFoundError: continue
    break
data, features, videos, out = sys.argv[1:]
if data.isdigit(): # So many animals that walk about, in memory
    rng, mice = np.random.default_rng(0), int(data)
    parts = ("nose", "ear_left", "ear_right", "neck", "hip_left", "hip_right", "tail_base")
    def walk(i):
        xy = rng.normal(size=(12_000, mice, 1, 2)).cumsum(0) + 500
        xy = (xy + 30*rng.normal(size=(1, mice, 7, 2))).astype(np.float32)
        return Recording(xy, tuple(f"mouse{k + 1}" for k in range(mice)), parts, 30.,
                         video_id=str(i))
    data = RecordingList([walk(i) for i in range(int(videos))])
else: data = open_dataset(data)
run = lambda ids: prepare(data, features, out, ids=ids, workers=1, progress=False, unlabelled=True)
run(data.ids[:1])
shutil.rmtree(out)
begin = time.process_time()
done = run(data.ids[:int(videos)])
print(json.dumps({
    "cpu_s": time.process_time() - begin,
    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "disk_mb": sum(f.stat().st_size for f in done.root.rglob("*.npy")) / 1e6}))
'''


def processor():
    "What it calls itself; asked elsewhere, as a child is not told a smaller peak than its parent's."
    ask = "from mabe_nb.measure.probe import processor; print(processor())"
    return subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True,
                          check=True).stdout.strip()


def one(checkout, *case):
    "What one run of a checkout took."
    out = tempfile.mkdtemp()
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run([sys.executable, "-c", CHILD, *map(str, case), out], cwd=out,
                              env=environment, capture_output=True, text=True, check=True)
    finally: shutil.rmtree(out, ignore_errors=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(before, case, rounds):
    "Medians of both, and of their ratio."
    after = Path(__file__).resolve().parents[1]
    runs = [(one(before, *case), one(after, *case)) for _ in range(rounds)]
    ratios = [a["cpu_s"] / b["cpu_s"] for a, b in runs]
    row = {"data": Path(str(case[0])).name, "features": case[1], "videos": case[2],
           "faster": round(statistics.median(ratios), 2),
           "least": round(min(ratios), 2), "most": round(max(ratios), 2)}
    for key in ("cpu_s", "peak_mb", "disk_mb"):
        for i, name in enumerate(("before", "after")):
            row[f"{key}_{name}"] = round(statistics.median(r[i][key] for r in runs), 2)
    return row


def four_over_two(before, features, rounds):
    "Cost of 4 animals over that of 2 in both checkouts, medians of ratios within a round."
    checkouts = before, Path(__file__).resolve().parents[1]
    runs = [[one(c, mice, features, 2)["cpu_s"] for c in checkouts for mice in (2, 4)]
            for _ in range(rounds)]
    row = {"data": "4 over 2 animals", "features": features}
    for i, name in enumerate(("before", "after")):
        ratios = [r[2*i + 1] / r[2*i] for r in runs]
        row |= {name: round(statistics.median(ratios), 2), f"least_{name}": round(min(ratios), 2),
                f"most_{name}": round(max(ratios), 2)}
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--before", type=Path, required=True, help="another checkout")
    p.add_argument("--data", nargs="*", default=[], help="datasets, beside 2 and 4 animals")
    p.add_argument("--features", nargs="+", default=["social", "smoothed"])
    p.add_argument("--videos", type=int, default=6)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--json", type=Path, help="file for the rows")
    args = p.parse_args()
    rows, before, cpu = [], args.before.resolve(), processor()

    def add(row):
        rows.append(row)
        print(row, flush=True)
        if args.json: args.json.write_text(json.dumps(
            {"date": date.today().isoformat(), "cpu": cpu, "rows": rows}, indent=1) + "\n")
    for data in (*args.data, 2, 4):
        for features in args.features:
            videos = args.videos if data not in (2, 4) else 2
            add(measure(before, (data, features, videos), args.rounds))
    for features in args.features: add(four_over_two(before, features, args.rounds))


if __name__ == "__main__":
    main()

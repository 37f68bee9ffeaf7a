"""What sending a job to Modal adds to the calls of the client that it needs.

    python bench/submit.py [--rounds 15] [--json F]

Against the stand-in of `tests/localcloud`, so without a network: `submit` and the bare
calls of the client (look the function up, upload the same files, spawn) in turn. Printed
are the medians and the median of the paired differences, which is our own part: checks,
the hash of the source, the job's folder. No container starts, as no card is free.
"""
import argparse
import io
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/"tests"))
from localcloud import start_thread

SOURCE = "losses = [x / 2 for x in X]"


def ours(X):
    from mabe_nb.remote.job import submit
    return submit(SOURCE, "modal", "T4", {"X": X}, ["losses"])


def bare(app, number):
    "The same with nothing but the client."
    import modal
    function = modal.Function.from_name(app, "run_job").hydrate()
    volume = modal.Volume.from_name("mabe-nb", create_if_missing=True, version=2)
    top = f"/jobs/bare{number}"
    with volume.batch_upload(force=True) as batch:
        for name in ("job.json", "source.py", "in/index.json", "in/X.json"):
            batch.put_file(io.BytesIO(f"{number}{name}".encode() * 20), f"{top}/{name}")
    options = dict(gpu="T4", timeout=3900, cpu=2.0, memory=8192, max_containers=4)
    return function.with_options(**options).spawn(f"bare{number}", "mabe-nb", 82_800.0)


def timed(call, *args):
    begun = time.perf_counter()
    return call(*args), time.perf_counter() - begun


def measure(cloud, rounds):
    "Seconds of ours and of the bare calls, in turn."
    cloud.faults.no_capacity.add("T4")
    first, cold = timed(ours, [0.0])
    sent, rows = [first], []
    for n in range(rounds):
        job, seconds = timed(ours, [float(n)])
        call, least = timed(bare, first.spec["handle"]["app"], n)
        rows.append((seconds, least))
        sent += [job, call]
    for one in sent: one.cancel()
    return cold, rows


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--json")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cloud = start_thread(Path(folder)/"cloud")
        os.environ.update(cloud.env, MABE_HOME=f"{folder}/home")
        from mabe_nb.files import write_json
        cold, rows = measure(cloud, args.rounds)
        cloud.stop()
    medians = [statistics.median(column) for column in zip(*rows)]
    own = statistics.median(a - b for a, b in rows)
    print(f"first submit, with deployment: {cold:.2f} s")
    print(f"submit {medians[0]*1e3:.0f} ms, bare client {medians[1]*1e3:.0f} ms, "
          f"our own part {own*1e3:.0f} ms")
    if args.json: write_json(args.json, {"cold": cold, "rows": rows, "own": own})

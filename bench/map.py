"""A map over many items: what it adds to the work itself, and what a kill loses.

    python bench/map.py [--items 2000] [--at-once 2] [--on local|slurm|modal] [--json F]

Each item leaves a file under its own name each time it runs, so that executions are
counted and not believed. 5 % fail the first time, one fails always. When a third is done
the process that started the map is long gone and its tasks are killed; then another
process attaches and resumes. Printed are the counts, the executions of items that were
done before the kill, and items a second. `--on slurm` starts a Slurm of one node
(`tests/real_slurm.py`), `--on modal` the stand-in of `tests/localcloud`, where the tasks
are cancelled rather than killed.
"""
import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/"tests"))
START = """
import os, sys; sys.path.insert(0, sys.argv[1])
from map import work
import mabe_nb as mb
top, number, on, at_once, tasks = sys.argv[2:]
items = [{"top": top, "n": n} for n in range(int(number))]
group = mb.map(work, items, on=on, at_once=int(at_once), tasks=int(tasks),
               say=lambda text: None)
print(group.id, flush=True)
os._exit(9)
"""


def work(item):
    "One video, invented: it is written down that it ran."
    import os
    import time
    import uuid
    top, n = item["top"], item["n"]
    time.sleep(0.005)
    open(f"{top}/{n}.{uuid.uuid4().hex}", "x").close()
    ran = os.path.exists(f"{top}/once.{n}")
    open(f"{top}/once.{n}", "a").close()
    if n == 77: raise ValueError("always")
    if n % 20 == 3 and not ran: raise OSError("this once")
    return n * n


def until(test, seconds=300):
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end: raise TimeoutError
        time.sleep(0.1)


def kill(group, on, slurm):
    "End all of its tasks from outside."
    if on == "modal": group.cancel()
    for task in group.tasks() if on != "modal" else ():
        if on == "slurm": slurm("scancel", task.spec["handle"]["job"])
        elif task.status() == "running": os.kill(task.spec["handle"]["pid"], signal.SIGKILL)
    until(lambda: all(t.status() in ("died", "cancelled", "done") for t in group.tasks()))


def measure(args, top, slurm):
    from mabe_nb.remote.group import attach
    begun = time.perf_counter()
    out = subprocess.run([sys.executable, "-c", START, str(Path(__file__).parent), str(top),
                          str(args.items), args.on, str(args.at_once), str(args.tasks)],
                         capture_output=True, text=True)
    if out.returncode != 9: raise RuntimeError(out.stderr)
    group, sent = attach(out.stdout.strip()), time.perf_counter() - begun
    until(lambda: group.counts()["done"] > args.items // 3)
    kill(group, args.on, slurm)
    before, stopped = set(group.done()), time.perf_counter() - begun
    begun = time.perf_counter()
    status = group.resume().wait(600, progress=False)
    seconds = time.perf_counter() - begun
    ran = Counter(int(p.name.partition(".")[0]) for p in top.iterdir()
                  if p.name[0].isdigit())
    needed = Counter({n: 1 + (n % 20 == 3 or n == 77) for n in range(args.items)})
    again = sum(ran[n] - needed[n] for n in before)
    return {"on": args.on, "items": args.items, "at_once": args.at_once, "tasks": len(
        group.last_tasks()), "counts": group.counts(), "status": status,
        "right": group.results() == {n: n * n for n in range(args.items) if n != 77},
        "done_before_the_kill": len(before), "of_those_computed_again": again,
        "cut_short_and_begun_again": sum((ran - needed).values()) - again,
        "seconds_to_send": round(sent, 2), "seconds_to_the_kill": round(stopped, 2),
        "items_a_second_after_it": round((args.items - len(before)) / seconds, 1),
        "rest": group.rest().drop(columns="input").to_dict("records")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--on", default="local", choices=("local", "slurm", "modal"))
    parser.add_argument("--json", metavar="F")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        top, slurm = Path(folder)/"ran", None
        top.mkdir()
        os.environ["MABE_HOME"] = f"{folder}/home"
        if args.on == "slurm":
            import real_slurm
            (Path(folder)/"slurm").mkdir()
            slurm = stack.enter_context(real_slurm.running(Path(folder)/"slurm"))
            os.environ.update(slurm.env)
        if args.on == "modal":
            from localcloud import start_thread
            cloud = start_thread(Path(folder)/"cloud")
            os.environ.update(cloud.env)
            stack.callback(cloud.stop)
        found = measure(args, top, slurm)
    print(json.dumps(found, indent=1))
    if args.json:
        path = Path(args.json)
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | {args.on: found}, indent=1) + "\n")


if __name__ == "__main__": main()

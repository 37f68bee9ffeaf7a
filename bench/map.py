"""A map over many items: what it adds to the work itself, and what a kill loses.

    python bench/map.py [--items 2000] [--at-once 2] [--on local|slurm|modal] [--json F]
    python bench/map.py --plan [--items 100000] [--at-once 50] [--tasks 1000] [--json F]

Each item leaves a file under its own name each time it runs, so that executions are
counted and not believed. 5 % fail the first time, one fails always. When a third is done
the process that started the map is long gone and its tasks are killed; then another
process attaches and resumes. Printed are the counts, the executions of items that were
done before the kill, and items a second. `--on slurm` starts a Slurm of one node
(`tests/real_slurm.py`), `--on modal` the stand-in of `tests/localcloud`, where the tasks
are cancelled rather than killed.

`--plan` starts nothing: it measures features and bouts of three synthetic videos here and
simulates so many of them on this machine, on Slurm and at Modal (`mabe_nb.remote.groups.plan`).
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
    from mabe_nb.remote.groups.group import attach
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


def plan(args, top):
    "Plans for many videos, from three that are measured here."
    from mabe_nb.data.synthetic import write_colony
    from mabe_nb.train.config import make_config
    from mabe_nb.train.runs import train
    from mabe_nb.videos import map_predict, map_prepare
    from mabe_nb.remote.groups.plan import plan_map
    measured, data = {}, top/"colony"
    write_colony(data, "kaggle", 4, args.minutes, 0)
    train(data, top/"run", make_config({"epochs": 1, "device": "cpu"}), say=lambda text: None,
          progress=False)
    plans = {}
    measured["prepare"] = map_prepare(data, "social", top/"cache", plan=True)
    measured["predict"] = map_predict(top/"run", data, plan=True)
    for verb, few in measured.items():
        for on, gpu in (("local", None), ("slurm", None), ("modal", None), ("modal", "T4")):
            tasks = {"tasks": args.tasks, "at_once": args.at_once} if on != "local" else {}
            made = plan_map(few.seconds, args.items, on, gpu=gpu, files=2 * args.items,
                            gib=few.gib / few.items * args.items,
                            timeout=None if on == "local" else 1800, **tasks)
            plans[f"{verb} {on} {gpu or 'cpu'}"] = {
                k: round(v, 3) if isinstance(v, float) else v
                for k, v in made._asdict().items() if k != "seconds"}
    return {"minutes": args.minutes, "seconds": {k: [round(s, 3) for s in v.seconds]
                                                 for k, v in measured.items()}, "plans": plans}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--minutes", type=float, default=5.0, help="of a planned video")
    parser.add_argument("--items", type=int)
    parser.add_argument("--at-once", type=int)
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--on", default="local", choices=("local", "slurm", "modal"))
    parser.add_argument("--json", metavar="F")
    args = parser.parse_args()
    for name, many, few in (("items", 100_000, 2000), ("at_once", 50, 2), ("tasks", 1000, 8)):
        if getattr(args, name) is None: setattr(args, name, many if args.plan else few)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        top, slurm = Path(folder)/"ran", None
        top.mkdir()
        os.environ["MABE_HOME"] = f"{folder}/home"
        if args.plan:
            found = plan(args, Path(folder))
            args.on = "plan"
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
        found = found if args.plan else measure(args, top, slurm)
    print(json.dumps(found, indent=1))
    if args.json:
        path = Path(args.json)
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | {args.on: found}, indent=1) + "\n")


if __name__ == "__main__": main()

"""Thousands of videos through `mabe prepare --on` and `mabe predict --on`, with what goes wrong.

    python bench/map_videos.py [--on slurm|modal|local] [--verbs V ...] [--items N] [--json F]

Both commands run as a person types them, in a process of their own. 5 % of the videos fail
the first time they are tried and one always does; each try leaves a file under a name of
its own, so that executions are counted and not believed. When a quarter is done the process
that was typed is killed, another attaches, and when half is done every process of the tasks
that run is killed (at Modal: their containers). The same line again does what is left, the
cause of the last failure is taken away, and the same line once more does that one. Features
and table are compared with those of one process, byte by byte.

`--on slurm` starts a Slurm of one node (`tests/real_slurm.py`), `--on modal` the stand-in of
`tests/localcloud`. The videos are of six seconds: what counts is how many there are.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/"tests"))
TOP = "" # Folder that counts; set where a command is typed, and taken along
NEVER, ONCE = 77, 3 # Video that always fails, rest of those of 20 that fail the first time
MINUTES, LEARNED = 0.1, 5
MABE = "import sys; from mabe_nb import cli; sys.exit(cli.main(sys.argv[1:]))"
COUNTED = """
import sys; sys.path.insert(0, sys.argv.pop(1))
import map_videos, mabe_nb.videos as videos
from mabe_nb import cli
map_videos.TOP = sys.argv.pop(1)
videos._prepare, videos._predict = map_videos.prepare_counted, map_videos.predict_counted
sys.exit(cli.main(sys.argv[1:]))
"""


def count(top, verb, video):
    "Write down that a video is begun; fail where it is to fail."
    open(f"{top}/{verb}.{video}.{uuid.uuid4().hex}", "x").close()
    first = not os.path.exists(f"{top}/{verb}-once.{video}")
    open(f"{top}/{verb}-once.{video}", "a").close()
    if int(video) == NEVER and not os.path.exists(f"{top}/{verb}-mended"):
        raise ValueError("always")
    if int(video) % 20 == ONCE and first: raise OSError("this once")


def prepare_counted(video, **given):
    from mabe_nb.video_items import prepare_item
    count(TOP, "prepare", video)
    return prepare_item(video, **given)


def predict_counted(video, **given):
    from mabe_nb.video_items import predict_item
    count(TOP, "predict", video)
    return predict_item(video, **given)


def until(test, seconds=1800):
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end: raise TimeoutError
        time.sleep(0.2)


def mabe(*words, counted=None):
    "A command in a process of its own."
    start = [sys.executable, "-c", MABE] if counted is None else [
        sys.executable, "-c", COUNTED, str(Path(__file__).parent), str(counted)]
    return subprocess.Popen([*start, *map(str, words)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def end_of(process, *codes):
    "What a command printed, if it ends with one of these codes."
    out, err = process.communicate(timeout=3000)
    if process.returncode in codes: return out + err
    raise RuntimeError(f"{process.returncode}, not {codes}: {out[-2000:]}{err[-2000:]}")


def kill_tasks(group, cloud):
    "All processes of all tasks that run, or their containers; how many."
    import psutil
    if cloud: return cloud.faults.crash() # signals alone: its loop is not waited for
    hit = 0
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if f"jobs/{group.id}-" not in words: continue
        with contextlib.suppress(psutil.Error):
            process.kill()
            hit += 1
    return hit


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*")
            if p.is_file() and not p.name.startswith(".")}


def counted(top, verb):
    "Executions of each video."
    return Counter(int(p.name.split(".")[1]) for p in top.glob(f"{verb}.*"))


def one_verb(verb, line, top, items, cloud):
    "A verb through all that goes wrong."
    from mabe_nb.remote.groups.group import groups
    begun = time.perf_counter()
    typed = mabe(*line, counted=top)
    until(lambda: typed.poll() is not None or len(counted(top, verb)) > items // 4)
    if typed.poll() is not None: raise RuntimeError("it ended by itself: " + end_of(typed, 0, 2))
    typed.kill()
    typed.wait()
    alone = len(counted(top, verb))
    (group,) = [g for g in groups() if (g.spec["tag"] or {}).get("verb") == verb]
    follower = mabe("jobs", "attach", group.id)
    until(lambda: follower.poll() is not None or len(counted(top, verb)) > items // 2)
    at_the_kill, hit = len(counted(top, verb)), kill_tasks(group, cloud)
    said = end_of(follower, 2)
    before, first, ends = set(group.done()), counted(top, verb), Counter(
        task.status() for task in group.tasks())
    stopped, again = time.perf_counter() - begun, time.perf_counter()
    line += ["--overwrite"] * (verb == "predict") # the table of those that had a result
    rest = end_of(mabe(*line, counted=top), 2)
    counts, table = group.counts(), group.rest().head(20).to_dict("records")
    second, seconds = counted(top, verb), time.perf_counter() - again
    done = {group_video(group, n) for n in before}
    (top/f"{verb}-mended").touch()
    last = end_of(mabe(*line, counted=top), 0)
    ran = counted(top, verb)
    needed = Counter({n: 1 + (n % 20 == ONCE) for n in range(1, items + 1) if n != NEVER})
    return {"begun_when_its_terminal_was_killed": alone, "begun_when_its_tasks_were": at_the_kill,
            "processes_or_containers_killed": hit, "attached_said": said.splitlines()[-1][:200],
            "tasks_after_it": dict(ends), "done_before_the_second_line": len(before),
            "of_those_computed_again": sum(ran[v] - first[v] for v in done),
            "counts_after_it": counts, "rest": table,
            "second_line_said": rest.splitlines()[-1][:200],
            "begun_again_as_cut_short": sum((ran - needed).values()) - ran[NEVER],
            "tries_of_the_one_that_always_fails": second[NEVER],
            "executions_of_the_last_line": sum((ran - second).values()),
            "last_line_said": last.splitlines()[-1].rpartition(":")[0][:200],
            "seconds_to_the_second_line": round(stopped, 1),
            "seconds_of_the_second_line": round(seconds, 1)}


def group_video(group, n):
    from mabe_nb.remote.inside.items import Pack
    if not hasattr(group, "pack"): group.pack = Pack(group.folder/"pack")
    return int(group.pack.item(n))


def measure(args, folder, cloud):
    from mabe_nb.data.synthetic import write_colony
    top, data, few = folder/"ran", folder/"data", folder/"few"
    top.mkdir()
    write_colony(few, "kaggle", LEARNED, 0.2, 1)
    write_colony(data, "kaggle", args.items, MINUTES, 0)
    end_of(mabe("train", few, "--out", folder/"run", "--epochs", 8, "--hidden-size", 32,
                "--batch-size", 4, "--stride", 20, "--num-workers", 1, "--device", "cpu",
                "--features", "coords"), 0)
    how = {"date": time.strftime("%Y-%m-%d"), "items": args.items, "minutes": MINUTES,
           "at_once": args.at_once, "tasks": args.tasks}
    verbs = {"prepare": ["prepare", data, "--features", "coords", "--out"],
             "predict": ["predict", folder/"run", data, "--out"]}
    for verb, line in ((v, verbs[v]) for v in args.verbs):
        begun = time.perf_counter()
        one = mabe(*line, folder/f"one-{verb}")
        elsewhere = [*line, folder/f"many-{verb}", "--on", args.on, "--at-once", args.at_once]
        if args.on != "local": elsewhere += ["--tasks", args.tasks]
        end_of(one, 0)
        alone = round(time.perf_counter() - begun, 1)
        about = one_verb(verb, elsewhere, top, args.items, cloud)
        same, many = folder/f"one-{verb}", folder/f"many-{verb}"
        equal = same.read_bytes() == many.read_bytes() if same.is_file() else \
            contents(same) == contents(many)
        keep(args, verb, how | about | {"equal_to_one_process": equal,
                                        "seconds_of_one_process": alone})


def keep(args, verb, row):
    "Print a row, and put it beside those of other places and verbs: a run may be cut short."
    print(json.dumps({verb: row}, indent=1), flush=True)
    if not args.json: return
    path = Path(args.json)
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(args.on, {})[verb] = row
    path.write_text(json.dumps(known, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--on", default="slurm", choices=("local", "slurm", "modal"))
    parser.add_argument("--verbs", nargs="+", default=("prepare", "predict"),
                        choices=("prepare", "predict"))
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--json", metavar="F")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder, cloud = Path(folder), None
        os.environ["MABE_HOME"] = f"{folder}/home"
        if args.on == "slurm":
            import real_slurm
            (folder/"slurm").mkdir()
            slurm = stack.enter_context(real_slurm.running(folder/"slurm"))
            os.environ.update(slurm.env)
        if args.on == "modal":
            from localcloud import start_thread
            cloud = start_thread(folder/"cloud")
            os.environ.update(cloud.env)
            cloud.faults.background_commit = 30.0 # s, as `run` commits
            stack.callback(cloud.stop)
        measure(args, folder, cloud)


if __name__ == "__main__": main()

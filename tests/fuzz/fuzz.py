"""Damage good files in many ways and see what the readers make of them.

    python tests/fuzz/fuzz.py --cases 2000 --seed 1 --out FILE

Each case runs in a process of its own with a limit on time and memory, and ends as `ok`,
`sentence` (one line, what is expected of damage), `traceback`, `hang`, `memory` (a bomb:
more than 512 MB over what the process had) or `crash`. All but the first two fail.
"""
import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import corpus
import structured

SECONDS, BOMB = 30, 512 * 2**20
WORDS = [b"\xff" * 8, b"\x00" * 8, b"\x7f\xff\xff\xff", b"1e308", b"-1", b"nan", b"NaN", b"None",
         b"=1+1", b"\x1b[2J", b"\r", b"\n", b'"', b",", b"[" * 500, b"{" * 500, b"9" * 5000,
         b"\\ud800", "٣".encode(), b"&a [*a]", b"../../x", b"\xed\xa0\x80", b"e9", b"!!python/x"]


def damage(data, rng):
    "Bytes with one to four faults."
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, end = sorted(rng.randrange(len(data) + 1) for _ in "12")
        end = min(end, at + rng.choice((1, 8, 64, 10**6)))
        kind = rng.randrange(8)
        if kind == 0: data = data[:at]
        elif kind == 1: data = data[:at] + data[end:]
        elif kind == 2: data = data[:end] + data[at:end] * rng.choice((1, 3)) + data[end:]
        elif kind in (3, 4): data = data[:at] + rng.choice(WORDS) + data[at + rng.choice(
            (0, 1, 4, 8)):]
        elif kind == 5: data = data[:at] + rng.randbytes(end - at) + data[end:]
        elif data: # one bit, or one byte
            at = min(at, len(data) - 1)
            new = data[at] ^ 1 << rng.randrange(8) if kind == 6 else rng.randrange(256)
            data = data[:at] + bytes([new]) + data[at + 1:]
    return data


def replace_by_other(path, rng):
    "What is no file, or a file of another kind, in place of a file."
    path.unlink()
    kind = rng.randrange(4)
    if kind == 0: os.mkfifo(path)
    elif kind == 1: path.symlink_to("/dev/zero")
    elif kind == 2: path.mkdir()
    else: path.write_bytes(rng.randbytes(rng.choice((0, 10, 4000))))


def read_poses(path):
    from mabe_nb.data.poses import read_poses
    read_poses(path, 30)


def by_command(*words):
    def act(path):
        from mabe_nb.cli import main
        code = main([w.replace("{}", str(path)) for w in words])
        if code: raise SystemExit(code)
    return act


def read_bouts(path):
    from mabe_nb.data.annotations import annotation_source, read_boris, read_caltech
    annotation_source(path)
    (read_boris if path.suffix == ".csv" else read_caltech)(path, fps=30)


def predict(folder):
    by_command("predict", "{}/run", "{}/kaggle", "--out", "{}/s.csv", "--overwrite")(folder)


AUDIT = by_command("audit", "{}", "--json")
KAGGLE = ["train.csv", *(f"train_{k}/Ours/{v}.parquet" for k in ("tracking", "annotation")
                         for v in "12")]
SUBJECTS = [ # Name in the corpus, the file that is damaged, what is done, is a folder needed
    *((n, n, AUDIT) for n in ("calms21.npy", "calms21.json", "mabe22.npy", "clips.npz")),
    *((n, n, read_poses) for n in ("dlc.csv", "dlc_table.h5", "dlc.h5", "jabs.h5", "sleap.h5",
                                   "labels.slp", "poses.nwb")),
    *((n, n, read_bouts) for n in ("boris.csv", "caltech.txt", "bento.annot")),
    *(("kaggle", f"kaggle/{n}", by_command("audit", "{}/kaggle", "--json")) for n in KAGGLE),
    *(("*", f"run/{n}", predict) for n in ("best.safetensors", "config.yaml", "videos.json")),
    ("*", "run/best.safetensors", by_command("runs", "show", "{}/run")),
    ("*", "thresholds.json", by_command("predict", "{}/run", "{}/kaggle", "--thresholds",
                                        "{}/thresholds.json", "--out", "{}/s.csv")),
    ("*", "config.yaml", by_command("train", "{}/kaggle", "--config", "{}/config.yaml",
                                    "--epochs", "1", "--limit", "1", "--out", "{}/new")),
    ("*", "submission.csv", by_command("score", "{}/kaggle", "{}/submission.csv"))]


def child(act, path, log):
    "Runs one case; the exit code tells how it ended."
    os.setsid()
    out = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    for to in (1, 2): os.dup2(out, to)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", errors="backslashreplace") for n in (1, 2))
    held = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (held + 8 * BOMB,) * 2)
    from mabe_nb.errors import MabeError
    try:
        act(path)
        return 0
    except MabeError as e: print(f"{e}"[:2000])
    except SystemExit as e: return 2 if e.code else 0
    except BaseException:
        import traceback
        traceback.print_exc()
        return 9
    finally: sys.stdout.flush(), sys.stderr.flush()
    return 2


def one(act, path, log):
    "How a case ends, in a word, with its seconds and memory."
    begun, pid = time.monotonic(), os.fork()
    if pid == 0: os._exit(child(act, path, log))
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    while not (done := os.wait4(pid, os.WNOHANG))[0]:
        if time.monotonic() - begun > SECONDS:
            os.killpg(pid, signal.SIGKILL)
            os.wait4(pid, 0)
            return "hang", SECONDS, 0
        time.sleep(0.005)
    code, grown = os.waitstatus_to_exitcode(done[1]), done[2].ru_maxrss * 1024 - base
    text = Path(log).read_text(errors="replace")
    kind = "crash" if code < 0 else "traceback" if code == 9 or "Traceback" in text else \
        "memory" if grown > BOMB else {0: "ok", 2: "sentence"}.get(code, "traceback")
    return kind, time.monotonic() - begun, grown


def case(good, work, rng):
    "A damaged copy of one subject: its name, what to do, and on which path."
    name, damaged, act = rng.choice(SUBJECTS)
    shutil.rmtree(work, ignore_errors=True)
    if name == "*": shutil.copytree(good, work)
    else:
        work.mkdir()
        copy = shutil.copytree if (good/name).is_dir() else shutil.copy
        copy(good/name, work/name)
    path = work/damaged
    kind, within = rng.random(), structured.BY_SUFFIX.get(path.suffix)
    if kind < 0.03: replace_by_other(path, rng)
    else:
        try:
            if kind > 0.5 or not within: raise LookupError
            within(path, rng)
        except Exception: # no such fault can be written
            path.write_bytes(damage((good/damaged).read_bytes(), rng))
    return damaged, act, path if name == damaged else work


def warm():
    "Imports that every case would need, and a corpus that is read well."
    import importlib
    for name in ("cli", "commands.train", "data.audit", "data.poses", "train.runs",
                 "train.ensemble.recipe", "kaggle.doctor", "train.model", "view.report"):
        importlib.import_module(f"mabe_nb.{name}")
    sys.modules["mabe_nb.cli"].make_parser() # imports the commands
    for name in ("h5py", "movement.io", "sleap_io", "pynwb", "sklearn.ensemble"):
        try: importlib.import_module(name)
        except ImportError: pass


def fuzz(cases, seed, minutes=None, say=print):
    "Counts by subject and kind, and every case that is neither ok nor a sentence."
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    torch.set_num_threads(1)
    counts, faults, until = {}, [], minutes and time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as top:
        top = Path(top)
        os.environ["MABE_HOME"] = str(top/"home")
        good = corpus.make(top/"corpus")
        warm()
        for number in range(cases):
            if until and time.monotonic() > until: break
            rng = random.Random(f"{seed}/{number}")
            name, act, path = case(good, top/"work", rng)
            kind, seconds, grown = one(act, path, top/"log")
            counts.setdefault(name, Counter())[kind] += 1
            if kind in ("ok", "sentence"): continue
            last = (Path(top/"log").read_text(errors="replace").strip() or "-").splitlines()
            faults.append({"case": f"{seed}/{number}", "file": name, "kind": kind,
                           "seconds": round(seconds, 1), "mb": grown >> 20,
                           "last": last[-1][:200], "trace": last[-12:]})
            say(f"{kind:9s} {seed}/{number} {name}: {last[-1][:160]}")
    return counts, faults


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--cases", type=int, default=10**9)
    p.add_argument("--minutes", type=float)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", help="JSON file for the counts")
    args = p.parse_args()
    counts, faults = fuzz(args.cases, args.seed, args.minutes)
    total = sum(counts.values(), Counter())
    print(f"{sum(total.values())} cases: " + ", ".join(f"{k} {n}" for k, n in total.items()))
    about = {"seed": args.seed, "cases": sum(total.values()), "total": dict(total),
             "seconds_each": SECONDS, "bomb_mb": BOMB >> 20,
             "files": {k: dict(v) for k, v in sorted(counts.items())},
             "faults": [{k: v for k, v in f.items() if k != "trace"} for f in faults]}
    if args.out: Path(args.out).write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")
    for f in faults[:20]: print("\n".join([f["case"], *f["trace"]]), file=sys.stderr)
    return bool(faults)


if __name__ == "__main__": sys.exit(main())

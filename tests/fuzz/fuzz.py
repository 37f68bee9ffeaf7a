"""Damage good files in many ways and see what the readers make of them.

    python tests/fuzz/fuzz.py --cases 2000 --seed 1 --out FILE

Each case runs in a process of its own with a limit on time and memory, and ends as `ok`,
`sentence` (one line, what is expected of damage), `traceback`, `hang` (30 s of a core, or
five minutes of anything), `memory` (a bomb: more than 512 MB over what the process had),
`crash` or `wrong` (a result that is not what the file says to its format's plain library,
see `plain.py`). `unread` is a result where that library reads nothing to compare with.
"""
import argparse
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import corpus
import plain
import structured

SECONDS, LATE, BOMB = 30, 300, 512 * 2**20 # Of a core, of a clock; bytes
GOOD = "ok", "sentence", "unread"
CODES = {0: "ok", 2: "sentence", 4: "unread", 7: "wrong"}
WORDS = [b"\xff" * 8, b"\x00" * 8, b"\x7f\xff\xff\xff", b"1e308", b"-1", b"nan", b"NaN", b"None",
         b"=1+1", b"\x1b[2J", b"\r", b"\n", b'"', b",", b"[" * 500, b"{" * 500, b"9" * 5000,
         b"\\ud800", "٣".encode(), b"&a [*a]", b"../../x", b"\xed\xa0\x80", b"e9", b"!!python/x"]


EDGES = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**64 - 1]


def whole(data, other, rng):
    "Another coding, what another file begins or ends with, numbers at the edge, a long tail."
    kind, at = rng.randrange(7), rng.randrange(len(data) + 1)
    if kind == 0: return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\x85", b"\0")))
    if kind == 1: return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b")) + data
    if kind == 2: return data[:at] + other[rng.randrange(len(other) + 1):]
    if kind == 3: return other[:at] + data[at:]
    if kind == 4:
        at, word = at // 4 * 4, rng.choice(EDGES).to_bytes(8, rng.choice(("little", "big")))
        return data[:at] + word[:rng.choice((4, 8))] + data[at + 8:]
    if kind == 5: return data + rng.choice((b"\0", b" ", b"\n", b",", b"a")) * rng.choice((64, 2**20, 2**25))
    cut = sorted(rng.randrange(len(data) + 1) for _ in "123") # two pieces change places
    return data[:cut[0]] + data[cut[1]:cut[2]] + data[cut[0]:cut[1]] + data[cut[2]:]


def damage(data, rng, other=b""):
    "Bytes with one to four faults."
    if rng.random() < 0.35: return whole(data, other, rng)
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
    kind = rng.randrange(8)
    if kind == 0: os.mkfifo(path)
    elif kind == 1: path.symlink_to(rng.choice((
        "/dev/zero", "/dev/full", "/dev/tty", "/proc/self/mem", "/proc/self/environ")))
    elif kind == 2: path.mkdir()
    elif kind == 3: path.symlink_to(path.name) # to itself
    elif kind == 4: path.symlink_to("gone")
    elif kind == 5:
        with socket.socket(socket.AF_UNIX) as s:
            try: s.bind(str(path))
            except OSError: path.mkdir() # too long a name
    elif kind == 6:
        path.touch()
        os.truncate(path, 2**28) # a hole
    else: path.write_bytes(rng.randbytes(rng.choice((0, 10, 4000))))


def by_command(*words):
    def act(path):
        from mabe_nb.cli import main
        code = main([w.replace("{}", str(path)) for w in words])
        if code: raise SystemExit(code)
    return act


def read_bouts(path):
    from mabe_nb.data.annotations import annotation_source, read_boris
    from mabe_nb.data.formats.caltech import read_caltech
    annotation_source(path)
    (read_boris if path.suffix == ".csv" else read_caltech)(path, fps=30)


def read_points(path):
    from mabe_nb.data.poses import read_poses
    read_poses(path, 30)


def compared(name):
    def act(path):
        if said := plain.compare(name, path/name if path.is_dir() else path):
            print(said)
            raise SystemExit(7)
    return act


def frames(path):
    from mabe_nb.data.annotations import annotation_source, scored_window
    from mabe_nb.data.formats.frame_tables import read_frame_table
    annotation_source(path)
    said, window = read_frame_table(path), scored_window(path)
    if window and len(said): assert said.start.min() >= window[0] and said.stop.max() <= window[1]


def boris_target(path):
    from mabe_nb.data.annotations import read_boris, scored_window
    read_boris(path, target_from="Modifiers", subjects={"x": "a"})
    scored_window(path)


def film(path):
    from mabe_nb.view.video.film import Film
    found = Film(path, 12)
    assert all(p.shape == (*found.shown[::-1], 3) for p in found.pictures(3, 9, 25.0))


def groups(folder):
    from mabe_nb.analysis.comparison import compare_groups
    from mabe_nb.analysis.groups import per_unit, read_groups, with_groups
    from mabe_nb.analysis.measures import measure, observe
    from mabe_nb.data.dataset import open_dataset
    rows = measure(observe(open_dataset(folder/"kaggle")))
    compare_groups(per_unit(with_groups(rows, read_groups(folder/"groups.csv"), "treatment")))


def jobs(folder):
    os.environ["MABE_HOME"] = str(folder/"home")
    for words in (["list"], ["costs"], ["logs", corpus.JOB], ["prune", "--days", "0"]):
        by_command("jobs", *words)(folder)


def tasks(*words):
    "What is made of a damaged group, or of a job's outputs: all of it, or by a command."
    def act(folder):
        from mabe_nb.remote.groups.group import attach
        os.environ["MABE_HOME"] = str(folder/"groups")
        if words: return by_command("jobs", *words)(folder)
        group = attach(corpus.GROUP)
        group.counts(), repr(group.rest()), group.results(), group.cost(), group.log(), group.status()
    return act


def outputs(folder):
    from mabe_nb.remote.groups.group import attach
    os.environ["MABE_HOME"] = str(folder/"groups")
    repr(attach(corpus.OUTPUTS).result())


def go_on(folder):
    "With a recipe that was stopped before it was whole; its networks are then others."
    (folder/"recipe"/"recipe.json").unlink()
    by_command("train", "{}/kaggle", "--recipe", "quick", "--folds", "2", "--fresh", "--out", "{}/recipe")(folder)


def bundle(folder):
    "Predict with a bundle whose files are what its manifest says, and with it video by video."
    from mabe_nb.data.dataset import open_dataset
    from mabe_nb.files import file_hash
    from mabe_nb.kaggle.bundle import open_bundle
    from mabe_nb.kaggle.offline import at_least_one_row, predict_in_parts, requested_actions, write_submission
    manifest = folder/"kit"/"manifest.json"
    try:
        about = json.loads(manifest.read_text())
        about["files"] = {n: file_hash(folder/"kit"/n) for n in about["files"]}
        manifest.write_text(json.dumps(about))
    except (OSError, ValueError, TypeError, LookupError, AttributeError): pass # the manifest is what is damaged
    kit, data = open_bundle(folder/"kit"), open_dataset(folder/"kaggle")
    requested_actions(kit, data)
    table, left = predict_in_parts(kit, data, folder/"parts")
    assert not left, left
    write_submission(at_least_one_row(table, kit, data), data, folder/"s.csv")


def corrected(folder):
    from mabe_nb.data.corrections import with_corrections
    data = with_corrections(folder/"kaggle")
    for v in data.ids: repr(data[v]), data.labelled(v), data.annotations(v), data.fingerprint(v), data.scored(v)


def told(folder):
    "What a run says of itself, and how runs are compared."
    from mabe_nb.train.model import load_model
    from mabe_nb.view.runs import epochs_of, find_runs, plot_runs, runs_table, warnings_of
    plot_runs(runs_table(find_runs(folder)))
    warnings_of(epochs_of(folder/"run"/"log.jsonl"))
    for name in ("run", "recipe"):
        model = load_model(folder/name)
        model.evidence(), model.labs, model.learned_from, model.files(), repr(model)


def predict(folder):
    by_command("predict", "{}/run", "{}/kaggle", "--out", "{}/s.csv", "--overwrite")(folder)


AUDIT = by_command("audit", "{}", "--json")
KAGGLE = ["train.csv", *(f"train_{k}/Ours/{v}.parquet" for k in ("tracking", "annotation")
                         for v in "12")]
SUBJECTS = [ # Name in the corpus, the file that is damaged, what is done, is a folder needed
    *((n, n, AUDIT) for n in ("calms21.npy", "calms21.json", "mabe22.npy", "clips.npz")),
    *(("kaggle" if "/" in n else n, n, compared(n)) for n in plain.PLAIN),
    ("m_pose_top_v1_8.mat", "m_pose_top_v1_8.mat", read_points), # SciPy's reader can crash
    ("bento.annot", "bento.annot", read_bouts), ("film.mp4", "film.mp4", film),
    *(("kaggle", f"kaggle/{n}", by_command("audit", "{}/kaggle", "--json")) for n in KAGGLE),
    *(("*", f"run/{n}", predict) for n in ("best.safetensors", "config.yaml", "videos.json")),
    ("*", "run/best.safetensors", by_command("runs", "{}/run")),
    ("*", "thresholds.json", by_command("predict", "{}/run", "{}/kaggle", "--thresholds",
                                        "{}/thresholds.json", "--out", "{}/s.csv")),
    ("*", "config.yaml", by_command("train", "{}/kaggle", "--config", "{}/config.yaml",
                                    "--epochs", "1", "--limit", "1", "--out", "{}/new")),
    ("*", "submission.csv", by_command("score", "{}/kaggle", "{}/submission.csv")),
    *((n, n, frames) for n in ("frames.csv", "daart.csv")), ("target.csv", "target.csv", boris_target),
    *(("lab", f"lab/{n}", by_command("audit", "{}/lab", "--json")) for n in sorted(corpus.LAB)),
    ("lab", "lab/dataset.yaml", by_command("audit", "{}/lab", "--json")),
    *2 * (("*", "groups.csv", groups),),
    ("*", "groups.csv", by_command("analyse", "annotations", "{}/kaggle", "--groups", "{}/groups.csv",
                                   "--by", "treatment", "--out", "{}/new")),
    ("*", "submission.csv", by_command("analyse", "{}/submission.csv", "{}/kaggle", "--out", "{}/new",
                                       "--to", "csv", "boris", "nwb")),
    ("*", "submission.csv", by_command("clips", "{}/submission.csv", "{}/kaggle", "--most", "1",
                                       "--out", "{}/new")),
    *(("*", f"run/{n}", by_command("train", "{}/kaggle", "--resume", "--out", "{}/run")) for n in (
        "sources.json", "config.yaml", "history.csv", "log.jsonl", "last/state.safetensors")),
    *(("*", f"cache/{n}", by_command("prepare", "{}/kaggle", "--features", "coords", "--out",
                                     "{}/cache")) for n in (
        "manifest.json", "Ours/1/video.json", "Ours/1/mouse1-mouse2.npy")),
    *(("*", f"{model}/{n}", by_command("predict", f"{{}}/{model}", "{}/kaggle", "--out", "{}/s.csv")) for model, n in (
        ("recipe", "recipe.json"), ("recipe", "metrics.json"), ("recipe", "members/net-1-1.safetensors"),
        ("recipe", "members/trees-1-1.safetensors"), ("labs", "labs.json"), ("labs", "lab-Ours/recipe.json"))),
    *(("*", f"recipe/{n}", go_on) for n in (
        "plan.json", "sources.json", "members/net-1-1.safetensors", "oof/sequences.csv", "oof/net.npy")),
    *(("*", f"{model}/{n}", by_command("analyse", f"{{}}/{model}", "{}/kaggle", "--out", "{}/new")) for model, n in (
        ("run", "metrics.json"), ("recipe", "metrics.json"), ("labs", "labs.json"), ("labs", "lab-Ours/metrics.json"))),
    *(("*", f"{n}", told) for n in ("run/metrics.json", "run/videos.json", "run/log.jsonl", "run/config.yaml",
                                    "recipe/metrics.json", "recipe/recipe.json", "recipe/oof/sequences.csv")),
    *(("*", f"kit/{n}", bundle) for n in ("manifest.json", "model/best.safetensors", "model/thresholds.json")),
    ("*", "kit/manifest.json", by_command("predict", "{}/kit", "{}/kaggle", "--out", "{}/s.csv")),
    ("*", "kaggle/corrections.jsonl", corrected),
    *(("*", n, by_command("retrain", "{}/run", "{}/kaggle", "--out", "{}/new")) for n in (
        "kaggle/corrections.jsonl", "run/metrics.json", "run/videos.json", "run/config.yaml")),
    ("*", "kaggle/corrections.jsonl", by_command("review", "{}/run", "{}/kaggle", "--out", "{}/m.csv")),
    ("*", "run/best.safetensors", by_command("export", "{}/run", "--onnx", "{}/onnx")),
    ("*", "run/best.safetensors", by_command("train", "{}/kaggle", "--init", "{}/run", "--epochs", "1", "--out", "{}/new")),
    *(("groups", f"groups/groups/{corpus.GROUP}/{n}", tasks(*words)) for n in (
        "group.json", "failed/2-1.json", "done/1.safetensors", "pack/pack.json", "pack/in/items.json")
      for words in ([], ["resume", corpus.GROUP, "--failed"], ["rm", corpus.GROUP])),
    *(("groups", f"groups/jobs/{corpus.OUTPUTS}/{n}", outputs) for n in (
        "out/index.json", "out/a.npy", "out/d.safetensors", "out/t.parquet", "out/s.json", "job.json", "status.json")),
    *(("*", f"watched/{n}", by_command("predict", "{}/run_of_lab", "{}/lab_watched", "--watch", "0", "--out", "{}/watched"))
      for n in ("model.json", "videos/v2.json", "videos/v3.json")),
    *(("home", f"home/{n}", jobs) for n in ("costs.jsonl", *(f"jobs/{corpus.JOB}/{f}" for f in (
        "job.json", "status.json", "log", "attempt", "alive"))))]


def child(act, path, log):
    "Runs one case; the exit code tells how it ended."
    os.setsid()
    out = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    for to in (1, 2): os.dup2(out, to)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", errors="backslashreplace") for n in (1, 2))
    held = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (held + 8 * BOMB,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS,) * 2)
    from mabe_nb.errors import MabeError
    try:
        act(path)
        return 0
    except MabeError as e: print(f"{e}"[:2000])
    except plain.NoOpinion: return 4
    except SystemExit as e: return e.code if e.code == 7 else 2 if e.code else 0
    except BaseException:
        import traceback
        traceback.print_exc()
        return 9
    finally: sys.stdout.flush(), sys.stderr.flush()
    return 2


ONE = {} # Memory of a process that does nothing


def one(act, path, log, damaged):
    "How a case ends, in a word, with its seconds and memory."
    begun, pid = time.monotonic(), os.fork()
    if pid == 0: os._exit(child(act, path, log))
    while not (done := os.wait4(pid, os.WNOHANG))[0]:
        if time.monotonic() - begun > LATE:
            os.killpg(pid, signal.SIGKILL)
            os.wait4(pid, 0)
            return "hang", LATE, 0
        time.sleep(0.005)
    code, grown = os.waitstatus_to_exitcode(done[1]), done[2].ru_maxrss * 1024 - ONE.get("base", 0)
    text = Path(log).read_text(errors="replace")
    if damaged.is_file(): grown -= damaged.stat().st_size # what a file takes itself is no bomb
    kind = "hang" if -code in (signal.SIGXCPU, signal.SIGKILL) else "crash" if code < 0 else "traceback" if code == 9 or "Traceback" in text else \
        "memory" if grown > BOMB else CODES.get(code, "traceback")
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
            other = rng.choice([f for f in sorted(good.iterdir()) if f.is_file()])
            path.write_bytes(damage((good/damaged).read_bytes(), rng, other.read_bytes()))
    return damaged, act, path if name == damaged else work, path


def warm():
    "Imports that every case would need, and a corpus that is read well."
    import importlib
    for name in ("cli", "commands.train", "analysis.analyse", "analysis.clips", "remote.groups.prune", "data.audit", "data.poses", "train.runs",
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
        ONE["base"] = one(lambda path: None, top, top/"log", top)[2]
        for number in range(cases):
            if until and time.monotonic() > until: break
            rng = random.Random(f"{seed}/{number}")
            # another folder each time: a task that was started again may still write to the last
            shutil.rmtree(top/f"work{number - 1}", ignore_errors=True)
            name, act, path, damaged = case(good, top/f"work{number}", rng)
            kind, seconds, grown = one(act, path, top/"log", damaged)
            counts.setdefault(name, Counter())[kind] += 1
            if kind in GOOD: continue
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
             "core_seconds_each": SECONDS, "bomb_mb": BOMB >> 20,
             "files": {k: dict(v) for k, v in sorted(counts.items())},
             "faults": [{k: v for k, v in f.items() if k != "trace"} for f in faults]}
    if args.out: Path(args.out).write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")
    for f in faults[:20]: print("\n".join([f["case"], *f["trace"]]), file=sys.stderr)
    return bool(faults)


if __name__ == "__main__": sys.exit(main())

"""Faults put in on purpose, one at a time: does a test see each of them?

`make mutants`, or `python .ci/mutants.py WORD...` for those whose name holds a word;
`--list` only says whether each can still be put in. All happens in a copy of the tree;
processes are forked from one that has imported the large libraries, and none of ours.
A mutant is killed if its tests, which pass without it, fail with it. The last line is
`N killed, N survived`; what survived wants a test.
"""
import importlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import notebooks as house

TOP = house.TOP
LIMIT = 600 # Seconds for the tests of one mutant; a loop that never ends is seen too
LARGE = "pytest", "hypothesis", "numpy", "scipy.sparse.csgraph", "pandas", "torch"
PAGE = "page" # As a test: the notebook of the module

MODULES = { # Where what is mutated stands
    "metrics": "mabe_nb/train/metrics.py", "counts": "mabe_nb/train/scores/official_counts.py",
    "frames": "mabe_nb/train/scores/frames.py", "loop": "mabe_nb/train/fit/loop.py",
    "step": "mabe_nb/train/fit/training_step.py",
    "checkpoint": "mabe_nb/train/folder/recorder.py", "optimizer": "mabe_nb/train/fit/optim.py", "average": "mabe_nb/train/fit/optim.py",
    "schedule": "mabe_nb/train/fit/optim.py", "cache": "mabe_nb/data/cache/prepare.py",
    "bouts": "mabe_nb/data/recording.py", "best": "mabe_nb/train/scores/frames.py",
    "key": "mabe_nb/data/cache/prepare.py", "prepared": "mabe_nb/data/cache/reader.py",
    "arrays": "mabe_nb/data/cache/arrays.py",
    "splits": "mabe_nb/data/splits.py", "copies": "mabe_nb/data/copies/same_poses.py",
    "kaggle": "mabe_nb/data/kaggle.py",
    "checks": "mabe_nb/data/checks/defects.py"}

SCORE = "tests/test_metrics.py", "-k", "not shifting and not bout_matches"
JUDGE = "tests/test_metrics.py", "-k", "f1", PAGE
TRAIN = ("tests/test_trainer.py", "-k",
         "early or its_own or gradient or accumulation or disk_and_memory or nan_in")
STOP = "tests/test_trainer.py", "-k", "early"
FOUND = "tests/test_trainer.py", "-k", "nothing_is_found or epoch_is_judged"
GRAPH = "tests/test_cuda_graph.py", "-k", "stand-in and plain"
RESUME = "tests/test_trainer.py", "-k", "interrupt or damaged or full_disk"
CACHE = ("tests/test_prepare.py", "-k",
         "not whatever_happened and not worker and not broken_video")
SPLIT = "tests/test_splits.py",
LENGTH = "tests/test_kaggle.py", "tests/test_audit.py", "-k", "lengths_may or mismatch"


class Mutant(NamedTuple):
    name: str # Begins with a key of `MODULES`
    old: str # Stands once in the module
    new: str
    tests: tuple # For pytest, or `PAGE`

    @property
    def module(self): return MODULES[self.name.split(":")[0]]


MUTANTS = [Mutant(*m) for m in (
    ("bouts: the last frame of a bout counts", "np.maximum(end - begin, 0), n)",
     "np.maximum(end - begin + 1, 0), n)", SCORE),
    ("bouts: a bout inside another counts again",
     "np.maximum(begin[1:], np.maximum.accumulate(end)[:-1])",
     "np.maximum(begin[1:], end[:-1])", SCORE),
    ("counts: hits are wrong too", '"wrong": U - self.L', '"wrong": self.P', SCORE),
    ("counts: the whitelist is not asked",
     "good = np.isin(entry * len(texts) + triple[row], listed)",
     "good = np.ones(len(row), bool)", SCORE),
    ("counts: bouts that touch overlap", "stop[j] > start[i]", "stop[j] >= start[i]",
     SCORE),
    ("counts: overlaps of a pair pass", "for p in np.flatnonzero(twice)[:1]:",
     "for p in ():", SCORE),
    ("metrics: labs count by their actions", 'f.groupby(level="lab").mean().mean()',
     "f.mean()", SCORE),
    ("metrics: beta is not squared", "hit = (1 + beta**2)", "hit = (1 + beta)", SCORE),
    ("metrics: nothing to find is a full score", ".fillna(0.0)", ".fillna(1.0)", SCORE),
    ("metrics: chance does not move the bouts", "rng.random(len(names))[video] * n",
     "0 * n", SCORE),
    ("frames: unknown counts as not seen", "(predicted & (labels == 0))",
     "(predicted & (labels <= 0))", JUDGE),
    ("frames: what was missed is forgotten", "counts[..., 1] + counts[..., 2]",
     "counts[..., 1]", JUDGE),
    ("loop: early stopping one epoch late", 'self.epoch - best["epoch"] >= most',
     'self.epoch - best["epoch"] > most', STOP),
    ("best: the last of equals is the best", 'key=lambda e: e.get("valid_f1") or -(e.get("valid_loss") or 0)',
     'key=lambda e: (e.get("valid_f1") or -(e.get("valid_loss") or 0), e["epoch"])', STOP),
    ("best: of epochs that find nothing the first is the best",
     'e.get("valid_f1") or -(e.get("valid_loss") or 0)', 'e.get("valid_f1") or 0', FOUND),
    ("loop: actions that go on at once are judged as if they excluded each other",
     "apart = has_overlaps(cfg, self.valid.labels)", "apart = False", FOUND),
    ("loop: the loss of an epoch holds those before", "self.total.zero_()", "pass",
     TRAIN),
    ("step: parts of a step weigh alike", "self.loss.weight(gather(self.answers, starts, size, gap))",
     "None", TRAIN),
    ("loop: the end of an epoch is not looked at",
     "if i % 50 == 49 or i + 1 == len(steps): self.check", "if i % 50 == 49: self.check", TRAIN),
    ("loop: resuming deals the epoch anew",
     "rng = self.epoch_rng if self.step_of_epoch else", "rng =", RESUME),
    ("loop: resuming reads from the start", "self.read_ahead(parts[first:])",
     "self.read_ahead(parts)", RESUME),
    ("step: a gradient is kept", "self.model.zero_grad()", "pass",
     TRAIN),
    ("step: the average is not kept", "self.average.update()", "pass", (*TRAIN, PAGE)),
    ("step: every step played has the inputs of the first", "kept.copy_(new)", "pass", GRAPH),
    ("step: the rate played is that of the first step", 'self.rate.fill_(groups[0]["lr"])', "pass", GRAPH),
    ("step: what was recorded is not played", "self.graph.replay()", "pass", GRAPH),
    ("checkpoint: the state before is not kept",
     "os.replace(folder/NOW, folder/BEFORE)", "pass", RESUME),
    ("checkpoint: a damaged state is not mentioned",
     'note = f"{e}; going on from the state before"', "note = None", RESUME),
    ("optimizer: its moments are lost",
     "state.setdefault(int(i), {})[key]", "state.setdefault(int(i), {})[key + '_']", (*RESUME, PAGE)),
    ("schedule: one cycle ends too high", "top / 25e4", "top / 25", (PAGE,)),
    ("schedule: a plateau may go below min_lr",
     "min_lr=min(cfg.min_lr, cfg.learning_rate)", "min_lr=0", ("tests/test_trainer.py", "-k", "plateau")),
    ("key: without body parts", "plan.features, plan.parts, video_id",
     "plan.features, video_id", CACHE),
    ("key: without the version of the code", "[FORMAT, plan.code, ", "[FORMAT, ",
     CACHE),
    ("key: without what the files hold", "plan.dataset.fingerprint(video_id)]", "]",
     CACHE),
    ("key: every key is the right one", 'info["key"] == key', "True", CACHE),
    ("key: mice by themselves are not missed",
     'alone = not plan.selves or any(a == t for a, t in info["pairs"])', "alone = True",
     CACHE),
    ("cache: what is gone stays",
     "forget_videos(plan.out, lambda folder: folder in current or",
     "forget_videos(plan.out, lambda folder: True or", CACHE),
    ("prepared: a video may be newer than the list", 'if found["key"] != v["key"]:',
     "if False:", CACHE),
    ("arrays: an array may have any shape", "if values.shape == shape and", "if",
     CACHE),
    ("splits: a leak is looked for by id", "{group[i]: i for i in reversed",
     "{i: i for i in reversed", SPLIT),
    ("splits: copies of a left-out lab are learned from",
     "train = ~table.group.isin(table.group[mine])", "train = ~mine", SPLIT),
    ("splits: rare labels may miss a part",
     "np.maximum(np.outer(shares, count), count >= k)", "np.outer(shares, count)", SPLIT),
    ("splits: the parts are exchanged", "_splits(table, (1 - valid, valid), seed)[1]",
     "_splits(table, (1 - valid, valid), seed)[0]", SPLIT),
    ("copies: only whole copies are found", "[*(_sequences(codes, points, odd, k) for k in steps),", "[", SPLIT),
    ("copies: copies elsewhere in the picture are not found", ", motion_hashes(rec)])", "])", SPLIT),
    ("copies: thinned copies of few points are not found", "THINNED[:None if n > 1 else 1]", "THINNED[:1]", SPLIT),
    ("copies: points lost at one place connect videos", "(known.sum(1) >= 4) & moves", "known.sum(1) >= 4", SPLIT),
    ("splits: the longest video may judge what clips have taught", "if off(found := deal(seed)) < MOST_OFF: return found",
     "return deal(seed)", SPLIT),
    ("copies: one point connects videos", "n = -(-8 // (len(rec.mice) * len(rec.parts)))", "n = 1", SPLIT),
    ("copies: still mice connect videos", "(count == 1) & ", "", SPLIT),
    ("kaggle: lengths may differ by 5 %", "0.01*frames", "0.05*frames", LENGTH),
    ("kaggle: the bound is a finding", "abs(frames - expected) > max",
     "abs(frames - told) >= max", LENGTH),
    ("checks: lengths may differ by 5 %", "0.02 * len(xy)", "0.05 * len(xy)", LENGTH))]


def copy_tree(to):
    "What git knows, so that nothing of ours is touched."
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, check=True, text=True,
                            capture_output=True).stdout
    for name in filter(None, listed.split("\0")):
        target = Path(to)/name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (TOP/name).exists(): shutil.copy(TOP/name, target, follow_symlinks=False)


def page_of(module):
    "The notebook that a module says it comes from."
    found = re.search(r"File to edit: (\S+\.ipynb)", module.read_text(encoding="utf-8"))
    return (module.parent/found[1]).resolve()


def changed(text, mutant):
    if text.count(mutant.old) == 1: return text.replace(mutant.old, mutant.new)
    raise SystemExit(f"{mutant.name}: {mutant.old!r} stands {text.count(mutant.old)} "
                     f"times in {mutant.module}, expected once; adapt .ci/mutants.py")


def in_page(page, mutant):
    "The notebook with the mutant in its exported cells."
    nb = json.loads(page.read_text(encoding="utf-8"))
    for cell in nb["cells"]:
        source = house.text(cell["source"])
        if cell["cell_type"] == "code" and re.match(r"#\|\s*export", source):
            cell["source"] = source.replace(mutant.old, mutant.new).splitlines(True)
    return json.dumps(nb)


def run_pytest(top, how):
    "In a process of its own: leave with pytest's exit code."
    with open(os.devnull, "w") as nothing:
        for stream in (1, 2): os.dup2(nothing.fileno(), stream)
    os.chdir(top)
    sys.path[0] = str(top)
    os._exit(importlib.import_module("pytest").main(["-x", "-q", *how]))


class Tree:
    "The copy that is tested."

    def __init__(self, top):
        self.top = Path(top).resolve()
        os.environ.update(PYTHONPATH=str(self.top), PYTHONDONTWRITEBYTECODE="1",
                          MABE_HOME=str(self.top/"home"))
        sys.dont_write_bytecode = True # a mutant of the same size and second: stale code
        for name in LARGE: importlib.import_module(name)
        if "mabe_nb" in sys.modules: raise SystemExit("the package is imported already")

    def pytest(self, how):
        "Exit code of pytest in the copy, None if it takes too long."
        context = multiprocessing.get_context("fork")
        process = context.Process(target=run_pytest, args=(self.top, how))
        process.start()
        process.join(LIMIT)
        if process.exitcode is None: process.kill()
        return process.exitcode

    def fails(self, tests, page):
        "The first that fails of some tests, or None. Raises if they cannot be run."
        if tests != (PAGE,):
            code = self.pytest([t for t in tests if t != PAGE])
            if code in (1, None): return tests[0] if code else "the time limit"
            if code: raise SystemExit(f"pytest {' '.join(tests)}: exit {code}")
        if PAGE not in tests: return None
        each = self.top/".ci"/"each_notebook.py"
        done = subprocess.run([sys.executable, each, self.top/"journal", page],
                              cwd=self.top, timeout=LIMIT, capture_output=True)
        return page.name if done.returncode else None

    def killed_by(self, mutant):
        "What fails with a mutant, or None; the copy is as before afterwards."
        module = self.top/mutant.module
        page = page_of(module)
        before = {p: p.read_text(encoding="utf-8") for p in (module, page)}
        after = {module: changed(before[module], mutant), page: in_page(page, mutant)}
        try:
            for path, text in after.items(): path.write_text(text, encoding="utf-8")
            return self.fails(mutant.tests, page)
        finally:
            for path, text in before.items(): path.write_text(text, encoding="utf-8")


def sound(tree, mutants):
    "Without a mutant all of their tests must pass."
    pages = {(m.tests, page_of(tree.top/m.module) if PAGE in m.tests else None)
             for m in mutants}
    for tests, page in sorted(pages, key=str):
        if by := tree.fails(tests, page):
            raise SystemExit(f"{by} fails without any mutant: mend that first")


def main(*words):
    chosen = [m for m in MUTANTS if not words or any(w in m.name for w in words)]
    for m in chosen: changed((TOP/m.module).read_text(encoding="utf-8"), m)
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(folder)
        tree, survived = Tree(folder), []
        sound(tree, chosen)
        print(f"without a mutant all tests pass; {len(chosen)} mutants", flush=True)
        for m in chosen:
            begun, by = time.monotonic(), tree.killed_by(m)
            survived += [m] * (by is None)
            seconds = f"{time.monotonic() - begun:4.0f} s"
            print(f"{'killed  ' if by else 'SURVIVED'} {seconds}  {m.name}"
                  + f" (by {by})" * bool(by), flush=True)
    print(f"{len(chosen) - len(survived)} killed, {len(survived)} survived")
    return bool(survived)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        for m in MUTANTS:
            changed((TOP/m.module).read_text(encoding="utf-8"), m)
            print(m.name)
    else: sys.exit(main(*sys.argv[1:]))

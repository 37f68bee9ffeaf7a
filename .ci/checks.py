"""Every check of the house; the last line is `N passed, N failed` (and skipped tests).

Without `--all`, what takes longest is left out: tests marked `browser`, `cloud` or `slow`.
"""
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import journal
import notebooks as house
import version

TOP, HERE, BIN = house.TOP, Path(__file__).parent, Path(sys.executable).parent
SPARE = {".git", ".venv", "__pycache__", "_proc", "_docs", "build", "dist", "demo",
         ".ipynb_checkpoints", ".hypothesis", ".pytest_cache", ".import_linter_cache",
         ".mypy_cache", ".ruff_cache"}
LIMIT = 900 # Seconds for one tool; pytest, most of the work, has twice as long
STOPPED = 124 # Exit code of a tool that took longer
AGAIN = 5 # So many failed tests, at most, are run again, alone
MOST = 5 # A machine counts as no busier than this
ASIDE = "nice", "-n", "19" # Of tools that run beside the tests, which wait a lot
LONG = "browser or cloud or slow" # Tests that run with `--all` alone
BROWSER = re.compile(r"^pytestmark = pytest\.mark\.browser$", re.M) # All of a file
FIRST = ( # Files of tests that take longest: begun late, one would be left running alone
    "on_modal", "every_flag", "magic", "kills", "real_slurm", "estimate", "trainer", "cli",
    "bundle", "bench_gpu", "checks", "recipe", "prepare", "sweep", "lessons", "localcloud",
    "on_slurm", "per_lab", "new_lab", "wheel", "model", "recipe_items")
RUNNING = set() # Processes of tools


def busy():
    "How much longer than alone things take now: waiting processes by processor."
    return min(max(os.getloadavg()[0] / os.cpu_count(), 1.0), MOST)


def wait_for(process, limit):
    "False if a process takes longer; its time counts less the busier the machine is."
    left = limit
    while left > 0:
        begun, slower = time.monotonic(), busy()
        try: return process.wait(timeout=min(left * slower, 1.0)) is not None
        except subprocess.TimeoutExpired: left -= (time.monotonic() - begun) / slower
    return False


def kill(process):
    "A tool, and whatever it started."
    os.killpg(process.pid, signal.SIGKILL)


def tool(*command, limit=LIMIT, **env):
    "Run a tool of the environment; whatever it started is stopped with it."
    start, words = time.monotonic(), [*map(str, command)]
    name = next((w for w in words if w.endswith(".py")), words[0])
    with tempfile.TemporaryFile("w+", errors="replace") as log, subprocess.Popen(
            words, cwd=TOP, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            process_group=0, env=os.environ | env) as p: # In a session of its own, nice is none
        done = RUNNING.add(p)
        try: done = wait_for(p, limit)
        finally:
            RUNNING.discard(p)
            if not done: kill(p)
        code, seconds = p.wait() if done else STOPPED, time.monotonic() - start
        log.seek(0)
        out = log.read()
    if not done: out += (f"\nstopped after {seconds:.0f} s: the limit is {limit:g} s on "
                         "a machine that does nothing else\n")
    print(f"{Path(name).name}: exit {code}, {seconds:.1f} s", flush=True)
    return code, out


def say(faults, about):
    "Print what is wrong with one thing; the counts passed, failed, skipped."
    for fault in faults: print("  " + fault)
    if faults: print(f"FAILED {about}", flush=True)
    return not faults, bool(faults), 0


def tree():
    "Digest of every file that a tool might change."
    found = {}
    for folder, inner, names in os.walk(TOP):
        inner[:] = [d for d in inner if d not in SPARE and not d.endswith(".egg-info")]
        for path in (Path(folder)/n for n in names):
            if path.is_file(): found[path] = hashlib.md5(path.read_bytes()).digest()
    return found


def unchanged(name):
    "A command that keeps notebooks and modules in step must find nothing to do."
    before = tree()
    code, out = tool(BIN/name)
    after = tree()
    moved = sorted(p for p in before.keys() | after.keys()
                   if before.get(p) != after.get(p))
    faults = [f"{name} changed {p.relative_to(TOP)}: keep that change" for p in moved]
    return say(faults + [out[-2000:]] * bool(code), name)


def structure():
    pages = house.notebooks() + sorted(TOP.glob("*.md"))
    rows = [say(house.faults(p), p.relative_to(TOP)) for p in pages]
    rows += [say(house.sidebar_faults(), "sidebar"), say(house.module_faults(), "modules"),
             say(house.link_of_quarto(), "nbs/_quarto.yml")]
    rows.append(say(version.faults(), "one version everywhere"))
    code, out = tool(sys.executable, HERE/"readme.py", "--check")
    return [*rows, say(out.strip().splitlines()[-1:] * bool(code), "README.md")]


def rooms():
    "Who may import whom (`.importlinter`)."
    code, out = tool(BIN/"lint-imports", "--no-logo", "--no-cache")
    return say([out[-3000:]] * bool(code), "imports between rooms")


def site():
    "The pages that nbdev makes, and where their links lead."
    code, out = tool(*ASIDE, sys.executable, TOP/".ci"/"docs.py")
    return say(out.strip().splitlines() * bool(code), "the pages of the site")


def lint():
    "Names, defaults and causes of errors (`ruff.toml`); types (`mypy.ini`)."
    rows = [say(stale_modules(), "mypy.ini")]
    for command in (("ruff", "check", "--quiet"), ("mypy", "--no-error-summary")):
        code, out = tool(BIN/command[0], *command[1:])
        rows.append(say([out[-6000:]] * bool(code), command[0]))
    return rows


def stale_modules():
    "Modules that mypy.ini passes over and that are not there, or no longer."
    ini = ConfigParser()
    ini.read(TOP/"mypy.ini")
    passed_over = [s for s in ini.sections() if "ignore_errors" in ini[s]]
    names = [n for s in passed_over for n in s.removeprefix("mypy-").split(",")]
    return [f"mypy.ini names {n}, which is not there" for n in names
            if not (TOP/n.replace(".", "/")).with_suffix(".py").exists()]


def why(out, most=60):
    "pytest's lines on what failed: the picture of a page that follows may be longer than is printed."
    first, last = ([line[:300] for line in out.splitlines() if re.match(sign, line)]
                   for sign in (r"E  |_{3,} \S+ _{3,}$", r"seen \| ")) # See tests/browsing.py
    return first[:most] + last[:2*most]


def counted(about, code, out, path):
    "Counts of a tool that kept a journal; where it was cut off, what and when."
    found = journal.Journal(path)
    cut = found.running + found.never
    if code: print(*why(out), out[-12000:], sep="\n")
    for line in found.slowest(): print(line)
    if cut:
        print(f"{about}: {len(found.passed)} had passed, {len(found.failed)} failed, "
              f"{len(found.running)} were running and {len(found.never)} never ran")
        print(*found.told(), sep="\n")
    if code or cut: print(f"FAILED {about}", flush=True)
    failed = len(found.failed) + bool(cut) # To be cut off is a failure of its own
    return len(found.passed), failed or int(code != 0), len(found.skipped)


def run_notebooks(path, limit=LIMIT):
    "Every notebook, but for marked cells; what they keep is not seen by the tests."
    code, out = tool(*ASIDE, sys.executable, HERE/"each_notebook.py", path, limit=limit,
                     MABE_HOME=f"{path}-home")
    return counted("notebooks", code, out, path)


def browser():
    "Can the browser tests run? If not, say what they lack: they are part of the checks."
    names = ("chromium", "chromium-browser", "google-chrome")
    lacks = [] if any(map(shutil.which, names)) else ["a Chromium on the path"]
    lacks += [f"the package {name}" for name in ("playwright", "voila")
              if not find_spec(name)]
    if lacks: print(f"note: browser tests were LEFT OUT, they need {' and '.join(lacks)}")
    return not lacks


def test_files(mark="", without=None):
    "Files of tests in which a mark stands, those that take longest first."
    names = [f"tests/test_{name}.py" for name in FIRST]
    texts = {p.name: p.read_text(encoding="utf-8") for p in (TOP/"tests").glob("test_*.py")}
    there = sorted(f"tests/{name}" for name, text in texts.items()
                   if mark in text and not (without and without.search(text)))
    return sorted(there, key=lambda f: names.index(f) if f in names else len(names))


def run_pytest(path, *how, mark="", without=None, limit=2 * LIMIT):
    "Counts come from the journal, so that no wording of pytest's can mislead."
    code, out = tool(sys.executable, HERE/"journal.py", path, "-q", *how,
                     *test_files(mark, without), limit=limit)
    return counted("pytest", code, out, path)


def second_try(path, counts):
    "Counts once the few tests that failed beside others have run alone: see `unsteady`."
    passed, failed, skipped = counts
    names = journal.Journal(path).failed
    if not 0 < failed == len(names) <= AGAIN: return counts
    better = len(unsteady(names, path.with_name(path.name + "-again")))
    return passed + better, failed - better, skipped


def unsteady(names, path):
    "Of a few tests that failed beside others, those that pass alone: they are named."
    print("these failed; each is run again, alone, and counts as failed if it still does")
    _, out = tool(sys.executable, HERE/"journal.py", path, "-q", *names)
    passed = [name for name in names if name in journal.Journal(path).passed]
    if len(passed) < len(names): print(out[-12000:])
    for name in passed: print(f"note: UNSTEADY, failed beside others, passed alone: {name}")
    return passed


def hear_ctrl_c():
    "A script's background ignores it, and so would the tools, some of whose tests send it."
    signal.signal(signal.SIGINT, signal.default_int_handler)


def side_by_side(one, *others):
    "What functions return; if one is interrupted, the tools of all are stopped."
    with ThreadPoolExecutor(len(others)) as pool:
        later = [pool.submit(other) for other in others]
        try: return one(), *(other.result() for other in later)
        except BaseException:
            for process in [*RUNNING]: kill(process)
            raise


def main(*words):
    everything = "--all" in words
    hear_ctrl_c()
    with tempfile.TemporaryDirectory() as spare:
        os.environ.update(
            MABE_HOME=spare, PYTHONWARNINGS="ignore", COLUMNS="100",
            PATH=f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            JUPYTER_PLATFORM_DIRS="1", IPYTHONDIR=str(Path(spare)/"ipython"))
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None) # Hundreds of processes would compile
        spare = Path(spare)
        rows = [unchanged("nbdev_clean"), unchanged("nbdev_export")]
        tests, browsed, pages = side_by_side(
            lambda: run_pytest(spare/"pytest", "-m", "not browser" if everything else
                               f"not ({LONG})", "-n3", "--dist=loadfile",
                               "--no-loadscope-reorder", without=BROWSER),
            lambda: run_pytest(spare/"browser", "-m", "browser", mark="mark.browser")
                    if everything and browser() else (0, 0, 0), # It waits more than it works
            lambda: [*structure(), rooms(), *lint(), site(), run_notebooks(spare/"notebooks")])
        rows += [second_try(spare/"pytest", tests), second_try(spare/"browser", browsed),
                 *pages]
    if not everything: print(f"note: tests marked {LONG} were left out; `make test ALL=1` "
                             "runs them, as `.ci/run` does")
    passed, failed, skipped = map(sum, zip(*rows))
    print(f"{passed} passed, {failed} failed" + f", {skipped} skipped" * bool(skipped))
    sys.exit(failed > 0)


if __name__ == "__main__": main(*sys.argv[1:])

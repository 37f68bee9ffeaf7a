"Every check of the house; the last line is `N passed, N failed` (and skipped tests)."
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import notebooks as house

TOP, BIN = house.TOP, Path(sys.executable).parent
SPARE = {".git", ".venv", "__pycache__", "_proc", "_docs", "build", "dist", "demo",
         ".ipynb_checkpoints", ".hypothesis", ".pytest_cache", ".import_linter_cache"}
LIMIT = 900  # seconds for one tool; pytest, most of the work, has twice as long


def tool(*command, limit=LIMIT):
    "Run a tool of the environment; whatever it started ends with it."
    start = time.monotonic()
    with subprocess.Popen([*map(str, command)], cwd=TOP, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as p:
        try: out, code = p.communicate(timeout=limit)[0], p.returncode
        except BaseException as e:
            os.killpg(p.pid, signal.SIGKILL)
            if not isinstance(e, subprocess.TimeoutExpired): raise
            out, code = p.communicate()[0] + f"\nstopped after {limit} s\n", 124
    print(f"{Path(command[0]).name}: exit {code}, {time.monotonic() - start:.1f} s",
          flush=True)
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
    if wide := len(list(house.wide_lines())):
        print(f"note: {wide} lines over {house.WIDTH} columns, .ci/notebooks.py lists them")
    code, out = tool(sys.executable, TOP/".ci"/"readme.py", "--check")
    return [*rows, say(out.strip().splitlines()[-1:] * bool(code), "README.md")]


def rooms():
    "Who may import whom (`.importlinter`)."
    code, out = tool(BIN/"lint-imports", "--no-logo", "--no-cache")
    return say([out[-3000:]] * bool(code), "imports between rooms")


def site():
    "The pages that nbdev makes, and where their links lead."
    code, out = tool(sys.executable, TOP/".ci"/"docs.py")
    return say(out.strip().splitlines() * bool(code), "the pages of the site")


def run_notebooks():
    "nbdev_test names only what failed, and calls no notebooks at all a success."
    from nbdev.doclinks import nbglob
    from nbdev.test import _keep_file
    os.chdir(TOP)
    total = sum(_keep_file(p, ".notest") for p in nbglob(as_path=True))
    if not total: return say(["there is no notebook to test"], "notebooks")
    code, out = tool(BIN/"nbdev_test", "--n_workers", "2")
    bad = out.partition("Failed On The Following Notebooks:")[2]
    failed = len(re.findall(r"^\t\S+\.ipynb$", bad, re.M)) or total * bool(code)
    if failed: print(out[-12000:])
    return total - failed, failed, 0


def browser():
    "Can the browser tests run? If not, say what they lack: they are part of the checks."
    names = ("chromium", "chromium-browser", "google-chrome")
    lacks = [] if any(map(shutil.which, names)) else ["a Chromium on the path"]
    lacks += [f"the package {name}" for name in ("playwright", "voila")
              if not find_spec(name)]
    if lacks: print(f"note: browser tests were LEFT OUT, they need {' and '.join(lacks)}")
    return not lacks


def run_pytest(report, *how):
    "Counts come from the report file, so that no wording of pytest's can mislead."
    code, out = tool(sys.executable, "-m", "pytest", "-q", *how,
                     f"--junitxml={report}", "tests", limit=2 * LIMIT)
    if not report.exists(): return say([out[-6000:]], "pytest")
    suite = ET.parse(report).getroot().find("testsuite").attrib
    bad, skipped = int(suite["failures"]) + int(suite["errors"]), int(suite["skipped"])
    if code: print(out[-12000:])
    return int(suite["tests"]) - bad - skipped, bad or int(code != 0), skipped


def main():
    with tempfile.TemporaryDirectory() as spare:
        os.environ.update(
            MABE_HOME=spare, PYTHONWARNINGS="ignore", COLUMNS="100",
            PATH=f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            JUPYTER_PLATFORM_DIRS="1", IPYTHONDIR=str(Path(spare)/"ipython"))
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        rows = [unchanged("nbdev_clean"), unchanged("nbdev_export"), *structure(), rooms(),
                site(), run_notebooks(),
                run_pytest(Path(spare)/"pytest.xml", "-m", "not browser", "-n2",
                           "--dist=loadfile")]
        if browser(): # alone: they look at how soon something happens
            rows.append(run_pytest(Path(spare)/"browser.xml", "-m", "browser"))
    passed, failed, skipped = map(sum, zip(*rows))
    print(f"{passed} passed, {failed} failed" + f", {skipped} skipped" * bool(skipped))
    sys.exit(failed > 0)


if __name__ == "__main__": main()

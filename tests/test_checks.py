"The checks count what a tool said, also where it was cut off, and are patient."
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/".ci"))
import checks
import journal

TOP = checks.TOP
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    "A project of its own, on a machine that does nothing else."
    for name in ("tests", "nbs", "mabe_nb"): (tmp_path/name).mkdir()
    shutil.copy(TOP/"settings.ini", tmp_path)
    monkeypatch.setattr(checks, "TOP", tmp_path)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1") # They take seconds to import
    return tmp_path


# time limits

def test_a_tool_that_hangs_is_stopped_with_what_it_started(tree):
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
    begun = time.monotonic()
    found, out = checks.tool(sys.executable, "-c", f"print('here', flush=True); {code}",
                             limit=1)
    assert found == checks.STOPPED and time.monotonic() - begun < 30
    assert "here" in out and "stopped after" in out and "limit is 1 s" in out


def test_a_tool_is_a_group_in_our_session(tree):
    "A group can be stopped as a whole; a session would make its `nice` one among its own."
    code, out = checks.tool(sys.executable, "-c",
                            "import os; print(os.getsid(0), os.getpgid(0) == os.getpid())")
    assert (code, out.split()) == (0, [str(os.getsid(0)), "True"])


def test_ctrl_c_is_heard_in_the_background_of_a_script():
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import checks; checks.hear_ctrl_c()\n"
            "words = 'import signal; signal.raise_signal(signal.SIGINT)'\n"
            "print(checks.tool(sys.executable, '-c', words)[1])")
    ignored = f"trap '' INT; exec {sys.executable} -c \"$0\" {TOP/'.ci'}"
    said = subprocess.run(["sh", "-c", ignored, code], capture_output=True, text=True).stdout
    assert "KeyboardInterrupt" in said


@pytest.mark.parametrize("load, stopped", [(0.0, True), (10.0, False)])
def test_a_busy_machine_gets_more_time(tree, monkeypatch, load, stopped):
    "Three seconds of work, a limit of two: enough where all takes five times as long."
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    code, _ = checks.tool(sys.executable, "-c", "import time; time.sleep(3)", limit=2)
    assert (code == checks.STOPPED) == stopped


@pytest.mark.parametrize("load, cpus, slower", [(0, 2, 1), (2, 2, 1), (5, 2, 2.5),
                                                (90, 2, checks.MOST)])
def test_how_busy(monkeypatch, load, cpus, slower):
    monkeypatch.setattr(os, "getloadavg", lambda: (float(load), 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert checks.busy() == slower


def test_load_that_comes_later_counts(tree, monkeypatch):
    "Quiet at first, busy after half a second."
    begun = time.monotonic()
    monkeypatch.setattr(os, "getloadavg", lambda: (
        (99.0, 0, 0) if time.monotonic() - begun > 0.5 else (0.0, 0, 0)))
    code, _ = checks.tool(sys.executable, "-c", "import time; time.sleep(3)", limit=2)
    assert code == 0


def test_what_runs_beside_is_stopped_with_it(tree):
    "As on Ctrl-C."
    def interrupted():
        while not checks.RUNNING: time.sleep(0.01)
        raise KeyboardInterrupt
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        checks.side_by_side(interrupted, lambda: checks.tool(sys.executable, "-c", SLEEP))
    assert time.monotonic() - begun < 30 and not checks.RUNNING
    assert checks.side_by_side(lambda: 1, lambda: 2, lambda: 3) == (1, 2, 3)


@pytest.fixture
def at_last(monkeypatch):
    "Lets a tool run until its journal names something, and sets a tiny limit then."
    def limit_when(path, *running):
        def wait_for(process, limit, real=checks.wait_for):
            while process.poll() is None and (
                    not set(running) <= set(journal.Journal(path).running)):
                time.sleep(0.05)
            return real(process, 0.1)
        monkeypatch.setattr(checks, "wait_for", wait_for)
    return limit_when


# pytest

def test_the_longest_begin_first(tree):
    assert all((TOP/"tests"/f"test_{name}.py").exists() for name in checks.FIRST)
    for name in ("a", checks.FIRST[1], "z", checks.FIRST[0]):
        (tree/"tests"/f"test_{name}.py").touch()
    assert checks.test_files() == [f"tests/test_{name}.py" for name in (
        *checks.FIRST[:2], "a", "z")]
    (tree/"tests"/"test_a.py").write_text("pytestmark = pytest.mark.browser")
    assert checks.test_files("mark.browser") == ["tests/test_a.py"]
    (tree/"tests"/"test_z.py").write_text("text = 'pytestmark = pytest.mark.browser'")
    assert checks.test_files(without=checks.BROWSER) == [f"tests/test_{name}.py" for name in (
        *checks.FIRST[:2], "z")]


def test_failing_suites_are_counted(tree):
    "Failures, errors, skips, what was expected to fail, and no test at all."
    assert checks.run_pytest(tree/"none")[1] == 1
    (tree/"tests"/"test_a.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\n"
        "def test_c(): pytest.skip('no data')\n@pytest.fixture\ndef f(): 1/0\n"
        "def test_d(f): pass\n@pytest.mark.xfail\ndef test_e(): assert 0\n"
        "@pytest.fixture\ndef g():\n    yield\n    1/0\ndef test_f(g): pass\n")
    assert checks.run_pytest(tree/"some") == (1, 3, 2)
    (tree/"tests"/"test_a.py").write_text("import nothing_of_that_name\n")
    assert checks.run_pytest(tree/"torn")[1] == 1


def test_what_fails_beside_others_gets_a_second_try_alone(tree, capsys):
    "It is named; what fails again counts, and nothing is tried again after many faults."
    (tree/"tests"/"test_a.py").write_text(
        "from pathlib import Path\ndef test_good(): pass\ndef test_bad(): assert 6 == 7\n"
        "def test_race():\n    seen = Path('seen').exists()\n    Path('seen').touch()\n"
        "    assert seen\n")
    counts = checks.run_pytest(tree/"some")
    assert counts == (1, 2, 0) and checks.second_try(tree/"some", counts) == (2, 1, 0)
    out = capsys.readouterr().out
    assert "UNSTEADY, failed beside others, passed alone: tests/test_a.py::test_race" in out
    assert "FAILED pytest" in out and out.count("6 == 7") >= 2
    (tree/"tests"/"test_a.py").write_text("import pytest\n@pytest.mark.parametrize('n', "
        f"range({checks.AGAIN} + 1))\ndef test_all(n): assert 0\n")
    counts = checks.run_pytest(tree/"many")
    assert checks.second_try(tree/"many", counts) == counts == (0, checks.AGAIN + 1, 0)
    assert "again" not in capsys.readouterr().out


SUITE = {"test_a.py": "def test_good(): pass\ndef test_bad(): assert 6 == 7\n",
         "test_b.py": f"def test_slow():\n    {SLEEP}\ndef test_late(): pass\n",
         "test_c.py": "def test_x(): pass\ndef test_y(): pass\n"}


@pytest.mark.parametrize("how", [(), ("-p", "xdist", "-n1", "--dist=loadfile")])
def test_a_stopped_pytest_says_what_became_of_each_test(tree, capsys, at_last, how):
    at_last(tree/"journal", "tests/test_b.py::test_slow")
    for name, text in SUITE.items(): (tree/"tests"/name).write_text(text)
    counts = checks.run_pytest(tree/"journal", *how)
    out = capsys.readouterr().out
    assert counts == (1, 2, 0) # One failure, and that it was cut off
    assert "1 had passed, 1 failed, 1 were running and 3 never ran" in out
    assert "failed: tests/test_a.py::test_bad" in out and "6 == 7" in out
    assert "was running: tests/test_b.py::test_slow" in out
    assert "never ran: tests/test_b.py (1 tests)" in out
    assert "never ran: tests/test_c.py (2 tests)" in out


def test_a_pytest_that_breaks_off_is_no_success(tree, capsys):
    (tree/"tests"/"test_a.py").write_text(
        "import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\n")
    assert checks.run_pytest(tree/"journal") == (1, 1, 0)
    assert "was running: tests/test_a.py::test_b" in capsys.readouterr().out


def test_a_line_that_was_cut_off_is_passed_over(tmp_path):
    journal.note(tmp_path/"j", planned=["a", "b"])
    journal.note(tmp_path/"j", name="a", state="passed")
    with open(tmp_path/"j", "a") as f: f.write(json.dumps({"name": "b"})[:-3])
    found = journal.Journal(tmp_path/"j")
    assert found.passed == ["a"] and found.never == ["b"]


def test_what_took_longest_is_said(tree, capsys):
    (tree/"tests"/"test_a.py").write_text(
        "import time\ndef test_a(): time.sleep(1.2)\ndef test_b(): pass\n")
    (tree/"tests"/"test_b.py").write_text("import time\ndef test_c(): time.sleep(0.02)\n")
    assert checks.run_pytest(tree/"journal") == (3, 0, 0)
    files, tests = [line for line in capsys.readouterr().out.splitlines()
                    if line.startswith("slowest: ")]
    assert files.startswith("slowest: tests/test_a.py 1 s, tests/test_b.py 0 s")
    assert tests.startswith("slowest: tests/test_a.py::test_a 1 s, ")


# notebooks

def notebook(path, *cells):
    nbformat.write(new_notebook(cells=[new_markdown_cell("# x\n> x"),
                                       *map(new_code_cell, cells)]), path)


@pytest.mark.slow
def test_notebooks_are_counted(tree, capsys):
    assert checks.run_notebooks(tree/"none") == (0, 1, 0)
    notebook(tree/"nbs"/"00_good.ipynb", "assert True", "#| slow\nassert False")
    notebook(tree/"nbs"/"01_bad.ipynb", "assert 6 == 7")
    (tree/"nbs"/"later").mkdir()
    (tree/"nbs"/"later"/".notest").write_text("")
    notebook(tree/"nbs"/"later"/"00_x.ipynb", "assert False")
    assert checks.run_notebooks(tree/"some") == (1, 1, 0)
    assert "6 == 7" in capsys.readouterr().out


@pytest.mark.slow
def test_stopped_notebooks_are_named(tree, capsys, at_last):
    at_last(tree/"journal", "nbs/01_slow.ipynb", "nbs/02_slow.ipynb")
    notebook(tree/"nbs"/"00_bad.ipynb", "assert 6 == 7")
    for i in (1, 2): notebook(tree/"nbs"/f"0{i}_slow.ipynb", SLEEP)
    notebook(tree/"nbs"/"03_late.ipynb", "1")
    assert checks.run_notebooks(tree/"journal") == (0, 2, 0)
    out = capsys.readouterr().out
    assert "0 had passed, 1 failed, 2 were running and 1 never ran" in out
    assert "failed: nbs/00_bad.ipynb" in out and "never ran: nbs/03_late.ipynb" in out
    assert "was running: nbs/02_slow.ipynb" in out


# types

def test_modules_without_types_are_there(tree):
    (tree/"mypy.ini").write_text("[mypy]\n[mypy-mabe_nb.a,mabe_nb.b.c]\n"
                                 "ignore_errors = True\n[mypy-mabe_nb.gone]\n")
    (tree/"mabe_nb"/"a.py").write_text("")
    assert checks.stale_modules() == ["mypy.ini names mabe_nb.b.c, which is not there"]

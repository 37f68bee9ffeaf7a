"Mutants can be put in, are killed by a test that fails, and survive one that does not."
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/".ci"))
import mutants

CI = Path(mutants.__file__).parent


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda m: m.name)
def test_every_mutant_can_be_put_in(mutant):
    "Into the module and its notebook, and its tests are there."
    module = mutants.TOP/mutant.module
    mutants.changed(module.read_text(encoding="utf-8"), mutant)
    page = mutants.page_of(module)
    assert json.loads(mutants.in_page(page, mutant)) != json.loads(page.read_text())
    first = mutant.tests[0]
    assert first == mutants.PAGE or (mutants.TOP/first).exists()


def test_a_mutant_whose_line_has_changed_is_named():
    gone = mutants.Mutant("loop: gone", "no such line", "", ())
    with pytest.raises(SystemExit, match="loop: gone.*0 times"):
        mutants.changed("x = 1", gone)


RUN = """
import sys
sys.path.insert(0, {ci!r})
import mutants
mutants.LARGE, mutants.TOP = ("pytest",), mutants.Path({top!r})
mutants.MODULES = {{"a": "pkg/a.py"}}
mutants.MUTANTS = [mutants.Mutant(*m) for m in {table!r}]
if __name__ == "__main__": sys.exit(mutants.main())
"""
FILES = {"pkg/__init__.py": "", "nbs/a.ipynb": '{"cells": []}',
         "pkg/a.py": "# File to edit: ../nbs/a.ipynb.\ndef f(x): return x + 1\n"
                     "def g(x): return 2 * x\n",
         "test_f.py": "from pkg.a import f, g\ndef test_f(): assert f(1) == 2\n"
                      "def test_g(): assert g(2) == 4\n"}


def run(top, *table):
    for name, text in FILES.items():
        (top/name).parent.mkdir(exist_ok=True)
        (top/name).write_text(text)
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=top, check=True)
    (top/"run.py").write_text(RUN.format(ci=str(CI), top=str(top), table=list(table)))
    return subprocess.run([sys.executable, top/"run.py"], capture_output=True, text=True,
                          env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def test_killed_and_survived_are_told_apart(tmp_path):
    tests = ("test_f.py",)
    done = run(tmp_path, ("a: one off", "x + 1", "x + 2", tests),
               ("a: equal for two", "2 * x", "x * x", tests),
               ("a: not asked", "2 * x", "3 * x", ("test_f.py::test_f",)))
    *_, one, two, three, last = done.stdout.splitlines()
    assert one.startswith("killed")
    assert two.startswith("SURVIVED") and three.startswith("SURVIVED")
    assert last == "1 killed, 2 survived" and done.returncode == 1
    assert (tmp_path/"pkg"/"a.py").read_text() == FILES["pkg/a.py"]


@pytest.mark.parametrize("tests, word", [(("test_f.py", "-k", "nothing"), "exit 5"),
                                         (("test_f.py", "--no-such"), "exit 4")])
def test_tests_that_do_not_run_kill_nothing(tmp_path, tests, word):
    done = run(tmp_path, ("a: one off", "x + 1", "x + 2", tests))
    assert done.returncode == 1 and word in done.stderr and "killed," not in done.stdout


def test_a_module_that_cannot_be_imported_is_no_kill(tmp_path):
    done = run(tmp_path, ("a: torn", "x + 1", "x +", ("test_f.py",)))
    assert "exit 2" in done.stderr and "killed" not in done.stdout


def test_tests_must_pass_without_a_mutant(tmp_path):
    done = run(tmp_path, ("a: one off", "x + 1", "x + 2", ("pkg", "test_f.py::test_h")))
    assert done.returncode and "killed" not in done.stdout

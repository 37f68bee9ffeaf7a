"""Modules that a string names (a program for another process, a line to copy) exist.

A rename finds imports; it does not find `python -c "from mabe_nb.x import y"`. So every
`mabe_nb.x.y` in a string of the package is imported here, with the name behind `import`.
"""
import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import mabe_nb
import pytest

TOP = Path(mabe_nb.__file__).parent
NAME = re.compile(r"\bmabe_nb((?:\.[a-z_]\w*)+)(?: import \(?(\w+))?")


def strings(path):
    "String constants of a file that name the package and are no docstrings."
    text, prose = path.read_text(), set()
    if "mabe_nb." not in text: return # Modules import each other by dots alone
    for node in ast.walk(ast.parse(text)): # Each before what it holds
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr): prose.add(id(body[0].value))
        if not isinstance(node, ast.Constant) or id(node) in prose: continue
        if isinstance(node.value, str) and "mabe_nb" in node.value: yield node.value


def named():
    "(file, module or attribute, name to import from it) of every string."
    for path in sorted(TOP.rglob("*.py")):
        if path.name == "_modidx.py": continue
        for text in strings(path):
            for dotted, name in NAME.findall(text):
                yield str(path.relative_to(TOP)), "mabe_nb" + dotted, name


FOUND = sorted(set(named()))


def resolve(dotted):
    "A module, or an attribute of one."
    try: return import_module(dotted)
    except ModuleNotFoundError as e:
        if not e.name.startswith("mabe_nb"): pytest.skip(f"{e.name} is not installed")
        above, _, name = dotted.rpartition(".")
        assert above != "", f"no module {dotted}"
        return getattr(resolve(above), name)


@pytest.mark.parametrize("file,dotted,name", FOUND)
def test_a_name_in_a_string_exists(file, dotted, name):
    if dotted.endswith((".py", ".ipynb", ".org", ".io")): return
    found = resolve(dotted)
    assert not name or hasattr(found, name), f"{file} says 'from {dotted} import {name}'"


def test_what_starts_a_job_is_among_them():
    files = {file for file, *_ in FOUND}
    assert {"remote/inside/child.py", "remote/inside/machine.py", "remote/places/local.py",
            "remote/places/hf_send.py"} <= files


def test_a_wrong_name_is_found():
    assert NAME.findall("from mabe_nb.remote.job import submit") == [(".remote.job", "submit")]
    with pytest.raises(AttributeError): resolve("mabe_nb.remote.on_local")


@pytest.mark.parametrize("module, name", [
    ("errors", "MabeError"), ("data.kaggle", "read_kaggle"), ("data.calms21", "read_calms21"),
    ("data.poses", "read_poses"), ("data.synthetic", "write_colony"), ("data.features", "compute"),
    ("train.metrics", "kaggle_score"), ("train.config", "TrainConfig"), ("remote.job", "submit")])
def test_names_that_others_rely_on_stay(module, name):
    assert hasattr(import_module(f"mabe_nb.{module}"), name)


@pytest.mark.parametrize("file", sorted((TOP.parent/"bench").glob("*.py")), ids=lambda p: p.name)
def test_what_a_benchmark_imports_exists(file):
    for node in ast.parse(file.read_text()).body:
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mabe_nb")): continue
        module = import_module(node.module)
        for alias in node.names:
            there = hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}")
            assert there, f"{node.module} has no {alias.name}"


@pytest.mark.parametrize("name", mabe_nb.VERBS)
def test_a_verb_is_there(name): assert getattr(mabe_nb, name) is not None


def sent(path):
    "(module, name) of what code in strings of a file imports."
    for text in strings(path):
        try: nodes = ast.walk(ast.parse(text))
        except (SyntaxError, ValueError): continue
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mabe_nb"):
                yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("folder", [".ci", "bench", "tests"])
def test_a_cell_in_a_string_finds_what_it_imports(folder):
    "Of the checks, benchmarks and tests."
    files, seen = sorted((Path(__file__).parents[1]/folder).glob("*.py")), 0
    for file, module, name in ((f.name, *found) for f in files for found in {*sent(f)}):
        try: found, seen = resolve(module), seen + 1
        except pytest.skip.Exception: continue # it needs what is not installed
        assert name == "*" or hasattr(found, name) or resolve(f"{module}.{name}"), f"{file}: from {module} import {name}"
    assert seen > 9

"The figures count what they say: small pages and modules with known numbers."
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/".ci"))
import figures


def page(*cells):
    "Cells from text; what starts with `md ` is Markdown."
    made = [figures.Cell("markdown", c[3:], 0) if c.startswith("md ") else
            figures.Cell("code", c, 0) for c in cells]
    return figures.Page(Path("x.ipynb"), made)


def export(lines=1): return "#| export\n\n" + "x = 1\n" * lines


def test_lines_are_those_that_say_something():
    one = page("#| default_exp x", export(26), export(25))
    assert [len(c.lines) for c in one.exports] == [26, 25] and one.long_cells == 1
    found = figures.page_figures([one])
    assert found["exported cells over 10 lines"] == 2
    assert found["exported cells over 25 lines"] == 1
    assert found["lines of an exported cell, median"] == 25.5


def test_words_are_prose():
    assert page("md # A `b` 12\n```\nno words here\n```\nit's *c*").words == 4


@pytest.mark.parametrize("cells, expected", [
    (["x", export(), export()], True),
    ([export(), "f()", export()], True),
    ([export(), "md why", export(), "f()"], False),
    ([export(), "#| hide\nf()", export(), "f()"], False),
    ([export(), "import os", export(), "f()"], False),
    (["#| export\nimport os", export(), "f()", export()], True),
    (["#| default_exp x", export(), "%magic", export()], True),
    ([export(), "f()"], None)])
def test_the_example_comes_before_the_second_export(cells, expected):
    assert page(*cells).example_in_time is expected


@pytest.mark.parametrize("cells, runs", [
    ([export(), export(), "f()", export()], [2, 1]),
    ([export(), "md why", export()], [1, 1]),
    ([export(), "#| hide\nf()", "#| export\nimport os", export()], [2]),
    ([export(), "#| exporti\nx = 1", export()], [1, 1])])
def test_runs_of_exports(cells, runs):
    assert page(*cells).run_lengths() == runs
    assert sum(page(*cells).run_lengths(private=True)) == sum(runs) + any(
        "exporti" in c for c in cells)


def test_asserts_by_what_a_reader_sees():
    one = page("assert 1\nassert 2", "#| hide\nassert 1", "#| export\nassert 1",
               "asserted")
    assert (one.asserts(hidden=False), one.asserts(hidden=True)) == (1, 1)


def test_importers(tmp_path):
    "Relative, absolute and late imports count; of a name inside a module too."
    files = {"__init__": "", "a": "", "b": "from . import a\n", "sub/__init__": "",
             "sub/c": "def f():\n    from ..b import x, y\n    import mabe_nb.sub.d\n",
             "sub/d": "from ..a import z\n", "_modidx": "import mabe_nb.b\n"}
    for name, text in files.items():
        path = tmp_path/"mabe_nb"/f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = figures.module_figures(tmp_path)
    assert found["modules with one importer"] == ["mabe_nb.b", "mabe_nb.sub.d"]
    assert found["modules with no importer"] == ["mabe_nb.sub.c"]
    assert found["modules by folder"] == {"mabe_nb": 2, "mabe_nb.sub": 2}
    assert found["exported lines"] == 5 and found["modules"] == 4


@pytest.mark.slow
def test_pages_stay_as_good_as_they_are():
    "Lists and bounds that only get shorter: late examples, short pages, long cells."
    pages = [figures.read_page(p) for p in figures.house.notebooks()]
    late = [p.path for p in pages if p.is_module and p.example_in_time is False]
    found = figures.page_figures(pages)
    assert not late
    assert found[f"module notebooks under {figures.FEW_WORDS} words"] == 0
    assert found[f"exported cells over {figures.LONG} lines"] <= 34

"The check of the site's pages passes a good little project, and names what is wrong."
import ast
import builtins
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import mabe_nb
from mabe_nb.cli import make_parser

TOP = Path(__file__).resolve().parents[1]
INI = """[DEFAULT]
repo = little
lib_name = little
version = 1
min_python = 3.11
user = me
doc_host = https://me.github.io
doc_baseurl = /little
git_url = https://github.com/me/little
branch = main
description = x
title = little
"""
MODULE = '''class Cage:
    "A cage."
    def mice(self): return 2


def lights(
    on, # Hour
    off=19, # Hour
):
    "Hours of light."
    return off - on
'''
EXPORT = "#| export\n"
GOOD = [
    "# Cage\n> Where mice live.", "#| default_exp cage", "#| hide\nfrom math import pi",
    EXPORT + MODULE, "`Cage` and `Cage.mice` and `little.cage`, "
    "`little.cage.lights()`: [top](index.ipynb), "
    "[its head](index.html#a-head), [here](#lights), "
    "[out](https://a.b/c.html), [notes](notes.txt)\n\n![A dot](images/dot.svg)",
    "#| hide\nassert lights(7) == 12 and Cage().mice() < pi",
    "#| hide\nimport nbdev; nbdev.nbdev_export()"]


def cell(source):
    "Markdown, unless it looks like code."
    if source.startswith(("#|", "import")): return new_code_cell(source)
    return new_markdown_cell(source)


def project(top, cells, **pages):
    "A project of nbdev's: a module, its notebook, an index, a picture."
    for folder in ("nbs/images", "little", "little-1.dist-info"): (top/folder).mkdir(
        parents=True)
    (top/"settings.ini").write_text(INI)
    (top/"nbs"/"images"/"dot.svg").write_text("<svg/>")
    (top/"nbs"/"notes.txt").write_text("x")
    (top/"little"/"__init__.py").write_text("")
    (top/"little"/"cage.py").write_text(MODULE)
    where = {f"little.cage.{name}": (f"cage.html#{name.lower()}", "little/cage.py")
             for name in ("Cage", "Cage.mice", "lights")}
    (top/"little"/"_modidx.py").write_text("d = " + repr({
        "syms": {"little.cage": where}, "settings": {
            "doc_host": "https://me.github.io", "doc_baseurl": "/little",
            "git_url": "https://github.com/me/little", "branch": "main"}}))
    (top/"little-1.dist-info"/"METADATA").write_text("Name: little\nVersion: 1\n")
    (top/"little-1.dist-info"/"entry_points.txt").write_text(
        "[nbdev]\nlittle=little._modidx:d\n")
    pages = {"00_cage": cells, "index": ["# Little\n> About it.", "## A head"], **pages}
    for name, sources in pages.items():
        cells = [s if isinstance(s, dict) else cell(s) for s in sources]
        nbformat.write(new_notebook(cells=cells), top/"nbs"/f"{name}.ipynb")
    return top


def check(top):
    "Exit code and lines of `.ci/docs.py` for the project."
    done = subprocess.run(
        [sys.executable, TOP/".ci"/"docs.py", top], cwd=top, text=True,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(top)})
    assert not (top/"_proc").exists()
    return done.returncode, done.stdout.splitlines()


def test_good_pages(tmp_path):
    assert check(project(tmp_path, GOOD)) == (0, ["2 pages, 0 faults"])


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    "What the check says of pages with a fault each, beside a good one."
    tree = "#| hide\nbox = 1", "#| hide\nimport os\nprint(box)", "#| hide\nimport json"
    odd = 'class Odd:\n    def __init__(self, x):\n        \"\"\"One.\nTwo.\"\"\"\n'
    pages = {
        "mixed": [*GOOD[:2], *tree, EXPORT + MODULE],
        "link": ["# A\n> B.", "x", "[y](gone.ipynb)"],
        "numbered": ["# A\n> B.", "[y](00_cage.html)"],
        "heading": ["# A\n> B.", "[y](00_cage.ipynb#gone)"],
        "outside": ["# A\n> B.", "[y](../settings.ini)"],
        "summary": ["# A\nAbout x."],
        "cut": ["# A\n> About x\n> and y.", "x"],
        "bare": ["# A\n> B.", "[`Cage`](index.ipynb)"],
        "title": ["About x."],
        "picture": ["# A\n> B.", "![y](images/gone.svg)"],
        "table": ["# A\n> B.", new_code_cell("#| echo: false", outputs=[new_output(
            "execute_result", {"text/html": "<a href='gone.html'>y</a>"})])],
        "name": ["# A\n> B.", "`little.cage.gone`"],
        "unseen": ["# A\n> B.", "#| exporti\n" + MODULE, "`Cage`"],
        "div": ["# A\n> B.", "x", "::: {.callout-note}\nHere."],
        "show": [*GOOD[:2], EXPORT + odd],
        "dies": [*GOOD[:2], EXPORT + "import os\nos._exit(1)"]}
    top = project(tmp_path_factory.mktemp("bad"), [c.replace("`Cage` and", "and")
                                                   for c in GOOD], **pages)
    return check(top)


@pytest.mark.slow
@pytest.mark.parametrize("line", [
    "mixed.ipynb cell 3: Found cells containing imports and other code.",
    "mixed.ipynb cell 3: NameError: name 'box' is not defined",
    "link.ipynb cell 2: leads to gone.ipynb, which the site does not have",
    "numbered.ipynb cell 1: leads to 00_cage.html, which the site does not have",
    "heading.ipynb cell 1: leads to 00_cage.ipynb#gone, and that page has no such",
    "outside.ipynb cell 1: leads to ../settings.ini, which",
    "summary.ipynb cell 0: the page has no one-line summary",
    "cut.ipynb cell 0: the summary (>) is cut after its first line",
    "bare.ipynb cell 1: a link stands bare: ](https://me.github.io",
    "title.ipynb cell 0: the page has no title",
    "title.ipynb cell 0: the page has no one-line summary",
    "picture.ipynb cell 1: leads to images/gone.svg",
    "table.ipynb cell 1: leads to gone.html",
    "name.ipynb cell 1: `little.cage.gone` is no module",
    "div.ipynb cell 2: Pandoc says: Div",
    "show.ipynb cell 2: IndentationError: unexpected indent (<unknown>, line 1) (show",
    "dies.ipynb cell 0: ends the process"])
def test_each_fault_is_named(found, line):
    assert any(said.startswith(line) for said in found[1]), "\n".join(found[1])


def test_no_other_fault_is_named(found):
    code, lines = found
    assert code == 1 and lines[-1] == "18 pages, 17 faults", "\n".join(lines)
    assert not any(line.startswith(("00_cage", "index")) for line in lines)


def test_names_are_no_links_in_code_and_in_links(tmp_path):
    (tmp_path/"links").mkdir()
    (tmp_path/"links"/"doc_links.py").write_text((TOP/".ci"/"doc_links.py").read_text())
    text = "```python\ndef lights(on): # See `Cage`\n```\n\nOf `Cage`."
    shown = new_output("display_data", {"text/markdown": text})
    pages = [*GOOD[:4], "[`Cage`](index.ipynb) and `Cage`", new_code_cell("#| echo: false", outputs=[shown])]
    top = project(tmp_path, pages)
    (top/"settings.ini").write_text(INI + "procs = doc_links:mended_links\n")
    code = ("import sys; sys.path[:0] = sys.argv[1:]; import docs; from pathlib import Path\n"
            "print(*docs.markdown(docs.process(Path('nbs/00_cage.ipynb').absolute(), docs.Page())))")
    said = subprocess.run([sys.executable, "-c", code, TOP/".ci", top/"links"], cwd=top, text=True,
                          stdout=subprocess.PIPE, check=True, env={**os.environ, "PYTHONPATH": str(top)}).stdout
    link = "[`Cage`](https://me.github.io/little/cage.html#cage)"
    assert f"[`Cage`](index.ipynb) and {link}" in said
    assert "on): # See `Cage`\n" in said and f"Of {link}." in said


def test_the_readme_says_what_was_measured_last():
    text, results = " ".join((TOP/"README.md").read_text().split()), TOP/"bench"/"results"
    recipe = json.loads((results/"recipe_rats.json").read_text())
    rats, = (d["rows"] for d in json.loads((results/"defaults.json").read_text())
             if d["data"] == "rats")
    newest = [r["macro_f1"] for r in rats if r["settings"] == rats[-1]["settings"]]
    halves, folds = (json.loads((results/f"blends_rats{name}.json").read_text())["blends"][
        "the recipe"]["f1"] for name in ("_halves", ""))
    one = json.loads((results/"rats.json").read_text())["train_s"] / 60
    assert len(newest) == 5 and f"default settings, macro F1 {mean(newest):.3f} " in text
    assert f"`--recipe best` {recipe['mean_f1']:.3f} " in text
    assert f"it took {recipe['minutes']:.0f} minutes for 46 videos of rats" in text
    assert f"had {halves:.3f}, and {folds:.3f} in folds" in text
    assert round(one) == 1 and "after a minute a fold on two CPU cores" in text


def test_the_page_of_verbs_has_them_all():
    page = (TOP/"nbs"/"04_verbs.ipynb").read_text(encoding="utf-8")
    assert not [name for name in mabe_nb.VERBS if f"`mb.{name}" not in page]


def test_programs_are_told_of_all_commands():
    told = (TOP/"nbs"/"llms.txt").read_text().partition("`mabe synth")[2].partition("`")[0]
    names = next(a.choices for a in make_parser()._actions if a.choices)
    assert {"synth", *told.replace("|", " ").split()} == {*names}


SEEN = sorted((TOP/"nbs"/"tutorials").glob("*.ipynb"))


def names_of(tree):
    "Names that some code reads, and those that it makes or imports."
    read, made = set(), set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.alias):
            made.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)): made.add(node.name)
        elif isinstance(node, ast.arg): made.add(node.arg)
        elif isinstance(node, ast.ExceptHandler): made.add(node.name)
    return read, made


@pytest.mark.parametrize("page", SEEN, ids=lambda page: page.stem)
def test_the_cells_that_are_seen_need_no_hidden_one(page):
    "Who copies them into a notebook has all names; a magic tells its own."
    cells = [cell.source for cell in nbformat.read(page, 4).cells if cell.cell_type == "code"
             and not re.search(r"^#\|\s*(hide|echo: false)", cell.source, re.M)]
    sent = " ".join(re.findall(r"^%%gpu.*--out (\S+)", "\n".join(cells), re.M))
    code = "\n".join(cell for cell in cells if not cell.startswith("%%"))
    read, made = names_of(ast.parse(re.sub(r"^(\s*)[%!].*", r"\1pass", code, flags=re.M)))
    assert not read - made - {*re.findall(r"\w+", sent)}

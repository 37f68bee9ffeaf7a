"""Every link of the pages leads somewhere: files, headings, symbols, commands, names.

Files that Markdown links to are the business of `.ci/notebooks.py`; here is the rest.
"""
import ast
import json
import re
import shlex
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from mabe_nb._modidx import d as index
from mabe_nb.cli import make_parser

TOP = Path(__file__).resolve().parents[1]
spec = spec_from_file_location("house_pages", TOP/".ci"/"notebooks.py")
house = module_from_spec(spec)
spec.loader.exec_module(house)

PAGES = [*house.notebooks(), *sorted(TOP.glob("*.md")), TOP/"bench"/"README.md",
         TOP/"nbs"/"llms.txt"]
ANCHOR = re.compile(r"\]\((?![a-z]+:)([^)\s#]*)#([^)\s]+)\)")
HTML = re.compile(r"""<(?:a|img)\s[^>]*?(?:href|src)=["'](?![a-z]+:|#)([^"'#]+)""")
FENCED = re.compile(r"^```.*?^```", re.S | re.M)
TICKS = re.compile(r"(?<!`)`([^`\s]+?)(?:\(\))?`(?!`)") # as nbdev looks for symbols
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
COMPOUND = re.compile(r"[A-Za-z]\w*_\w*|[A-Z][a-z]+[A-Z]\w*")
FOREIGN = {"B_Nose", "W_Nose", "BatchNorm", "IncrementalPCA", "gpu_a100_80gb",
           "task1_classic_classification"} # Of others: their files, classes, units


@cache
def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@cache
def markdown(path):
    "The Markdown of a page; a line of dashes ends each cell."
    if path.suffix != ".ipynb": return path.read_text(encoding="utf-8")
    return "\n\n---\n\n".join(house.text(c["source"]) for c in cells(path)
                              if c["cell_type"] == "markdown")


def prose(words): return FENCED.sub("", words)


# --- pages

def html_of(path):
    "The page of the site that nbdev makes of a notebook."
    at = path.relative_to(TOP/"nbs")
    return at.with_name(re.sub(r"^\d+[a-zA-Z0-9]*_", "", at.name.lower())).with_suffix(
        ".html").as_posix()


SITE = {html_of(p): p for p in house.notebooks()}


def page_faults(words, path):
    "Links to pages of the site or, in HTML, to files, which are not there."
    links = [t for t in house.LINK.findall(prose(words)) if t.endswith(".html")]
    for target in [*links, *HTML.findall(SPAN.sub("", prose(words)))]:
        there = (path.parent/target).resolve()
        if there.suffix != ".html" and there.exists(): continue
        try: known = there.relative_to(TOP/"nbs").as_posix() in SITE
        except ValueError: known = False
        if not known: yield f"links to {target}, which the site does not have"


def test_no_two_notebooks_make_one_page():
    assert len(SITE) == len(house.notebooks())


# --- headings

def slugs(words):
    "The anchors of a page's headings, as Pandoc makes them."
    for title in re.findall(r"^#{1,6} +(.+?)\s*$", prose(words), re.M):
        plain = re.sub(r"[^\w\s.-]", "", title.lower())
        yield re.sub(r"^[^a-z]+", "", re.sub(r"\s+", "-", plain.strip()))


def anchor_faults(words, path):
    "Links to headings that no page has."
    for target, anchor in ANCHOR.findall(prose(words)):
        page = path.parent/target if target else path
        there = page.exists() and page.suffix in (".ipynb", ".md")
        if not there or anchor not in slugs(words if page == path else markdown(page)):
            yield f"links to {target}#{anchor}, a heading that is not there"


# --- symbols

def defined(source):
    "Top-level functions and classes of a cell, none if it is not plain Python."
    try: tree = ast.parse(source)
    except SyntaxError: return []
    return [t.name for t in tree.body if isinstance(
        t, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]


@cache
def documented(path):
    "Anchors of the symbols that nbdev documents on a notebook's page."
    exported = (house.text(c["source"]) for c in cells(path) if c["cell_type"] == "code")
    return {name.lower() for source in exported if re.match(r"#\|\s*export\b", source)
            for name in defined(source) if not name.startswith("_")}


@cache
def symbols():
    "What a name in backticks links to: page and anchor, by qualified and by bare name."
    out = {}
    for module, names in index["syms"].items():
        for name, (link, _) in names.items():
            out[name] = link
            out.setdefault(name.removeprefix(f"{module}."), link)
    return out


def module_exists(name):
    at = TOP/name.replace(".", "/")
    return at.is_dir() or at.with_suffix(".py").exists()


def symbol_faults(words, path):
    "Names in backticks that nbdev links to what is no longer there."
    for name in TICKS.findall(prose(words)):
        link = symbols().get(name)
        if link is None:
            if re.fullmatch(r"mabe_nb(\.\w+)+", name) and not known_path(name):
                yield f"`{name}` is no module and no symbol"
            continue
        page, _, anchor = link.partition("#")
        if page not in SITE: yield f"`{name}` links to {page}, which no notebook makes"
        elif "." not in anchor and anchor not in documented(SITE[page]):
            yield f"`{name}` links to {link}, where it is not documented"


def known_path(name):
    "Is a dotted name a module, or one that a line of a module begins by defining?"
    module, _, last = name.rpartition(".")
    if module_exists(name): return True
    source = TOP/(module.replace(".", "/") + ".py")
    begins = rf"^(?:(?:async )?def |class )?(?:\w+, )*{last}\b"
    return source.exists() and re.search(begins, source.read_text("utf-8"), re.M)


@cache
def vocabulary():
    "Every word of the code: modules, cells of notebooks, tests and tools."
    files = [p for f in ("mabe_nb", "tests", ".ci", "bench") for p in (TOP/f).rglob("*")
             if p.suffix in (".py", ".csv", ".sh") and p != Path(__file__).resolve()]
    files += [TOP/"settings.ini", TOP/"constraints.txt", TOP/"Makefile", TOP/"_quarto.yml"]
    code = (house.text(c["source"]) for p in house.notebooks() for c in cells(p)
            if c["cell_type"] == "code")
    texts = [*(p.read_text(encoding="utf-8", errors="replace") for p in files), *code]
    return {w for t in texts for w in re.findall(r"\w+", t)}


def name_faults(words, path):
    "Names in backticks that look like code and occur in no code."
    for name in TICKS.findall(prose(words)):
        if not re.fullmatch(r"[\w.]+", name): continue
        for word in name.split("."):
            if COMPOUND.fullmatch(word) and word not in vocabulary() | FOREIGN:
                yield f"`{name}` is in no code"


# --- commands

@cache
def parsers():
    "Subcommand to its parser."
    group = next(a for a in make_parser()._actions if isinstance(a.choices, dict))
    return group.choices


def commands(words):
    "Every `mabe ...` of a page: lines of fenced blocks, and spans in the text."
    for block in FENCED.findall(words):
        yield from re.findall(r"^ *(?:\S+ )*?(mabe(?: .*)?)$",
                              re.sub(r"\\\n\s*", "", block), re.M)
    yield from re.findall(r"`(mabe [^`]+)`", prose(words).replace("\n", " "))


def command_faults(words, path):
    "Subcommands and flags that the command line does not have."
    for text in commands(words):
        if re.search(r"submit .*--on (modal|hf)\b.*mabe train", text) and "{DATA}" not in text:
            yield f"{text!r} sends no data"
        for one in re.split(r"(?:^|(?<= ))(?=mabe )", text)[1:]:
            first, *rest = shlex.split(one.replace("'", " "), comments=True)[1:] or [""]
            names = [first, *(w for a, w in zip(["", *rest], rest) if a == "|")]
            wrong = [n for n in names if re.fullmatch("[a-z]+", n) and n not in parsers()]
            yield from (f"'mabe {n}' in {text!r} is no command" for n in wrong)
            if wrong or first not in parsers(): continue
            flags = {w.split("=")[0] for w in rest if re.match(r"--\w", w)}
            yield from (f"'mabe {first}' has no {f}" for f in
                        flags - set(parsers()[first]._option_string_actions))


CHECKS = [page_faults, anchor_faults, symbol_faults, name_faults, command_faults]


@pytest.mark.parametrize("check", CHECKS, ids=lambda f: f.__name__)
def test_pages(check):
    found = [f"{p.relative_to(TOP)} {fault}" for p in PAGES for fault in check(markdown(p), p)]
    assert not found, "\n".join(found)


def test_markdown_links_of_the_bench():
    "`.ci/notebooks.py` looks at the notebooks and at the top folder."
    for path in (TOP/"bench"/"README.md", TOP/"nbs"/"llms.txt"):
        links = [f for f in house.link_faults(markdown(path), path) if ".html" not in f]
        assert not links, links


HERE = TOP/"nbs"/"index.ipynb"
BAD = {
    "[a](data/recordings.html)": "links to data/recordings.html",
    '<img src="images/gone.png">': "links to images/gone.png",
    "# A b\n[a](#a-c)": "links to #a-c",
    "[a](tutorials/01_first_run.ipynb#nowhere)": "#nowhere",
    "`mabe_nb.data.gone`": "`mabe_nb.data.gone` is no module",
    "`mabe_nb.data.audit.gone`": "is no module and no symbol",
    "`read_the_tea_leaves`": "is in no code",
    "`TeaLeaf()`": "is in no code",
    "`mabe frobnicate`": "is no command",
    "`mabe synth | guess`": "'mabe guess'",
    "```\nmabe train x \\\n  --epoch 3\n```": "has no --epoch",
    "```\nmabe submit --on hf --data x -- mabe train {DATA} --outt y\n```": "has no --outt",
    "`mabe submit --on modal -- mabe train colony --out run`": "sends no data",
    "```\ntorchrun --no-python mabe trian x\n```": "'mabe trian'"}


@pytest.mark.parametrize("words", BAD)
def test_each_fault_is_found(words):
    found = [fault for check in CHECKS for fault in check(words, HERE)]
    assert len(found) == 1 and BAD[words] in found[0], found


def test_a_symbol_that_went_is_found(monkeypatch):
    monkeypatch.setitem(index["syms"]["mabe_nb.files"], "mabe_nb.files.gone",
                        ("files.html#gone", "mabe_nb/files.py"))
    monkeypatch.setitem(index["syms"]["mabe_nb.files"], "mabe_nb.files.lost",
                        ("old/files.html#lost", "mabe_nb/files.py"))
    symbols.cache_clear()
    found = list(symbol_faults("`gone` `mabe_nb.files.lost` `atomic`", HERE))
    symbols.cache_clear()
    assert len(found) == 2 and "not documented" in found[0] and "no notebook" in found[1]


GOOD = """# A b: c (d)
[a](#a-b-c-d), [page](data/recording.html), [anchor](tutorials/01_first_run.ipynb#training),
`Recording`, `mabe_nb.data.audit`, `mabe_nb.data.audit.KINDS`, `shape_of(dataset, cfg)`,
`mabe synth | audit`, `mabe jobs attach ID`, `mabe`, `pip install x_y`
```sh
mabe train colony --out run --valid-videos 9-12 # --gone
torchrun --nproc-per-node 2 --no-python mabe train x --out y
```
"""


def test_what_is_right_is_left_alone():
    assert [fault for check in CHECKS for fault in check(GOOD, HERE)] == []

"""The pages of the site as nbdev and Pandoc make them; no Quarto, no file is written.

A notebook goes through the processors of `nbdev_docs`, its Markdown through Pandoc, its
links to where they lead. Each fault is a line `page cell N: what`, the cell counted in
the notebook.
"""
import os
import re
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import unquote, urljoin

import pypandoc
from execnb.nbio import read_nb
from nbdev.config import get_config
from nbdev.doclinks import _nbpath2html, nbglob
from nbdev.processors import FilterDefaults, exec_show_docs

TOP = Path(__file__).resolve().parents[1]
PANDOC = [pypandoc.get_pandoc_path(), "-f", "markdown", "-t", "html", "--mathjax",
          "--syntax-highlighting=none"] # Colours take most of its time, and are not looked at
CUT = re.compile(r"^>.*\n[^\S\n]*[^\s#]", re.M) # nbdev takes the first line for the whole
OUTSIDE = re.compile(r"[a-z][a-z+.-]*:|//")


@dataclass
class Page:
    "What a notebook became: its faults, headings and links, the cell of each."
    faults: list = field(default_factory=list)
    anchors: set = field(default_factory=set)
    links: list = field(default_factory=list)
    codes: list = field(default_factory=list)

    def fault(self, cell, what):
        self.faults.append((cell, " ".join(str(what).split())[:300]))


# --- nbdev

@contextmanager
def nbdev_warns(page, cell):
    "What nbdev warns of is a fault; what the cells that it runs warn of is not."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        try: yield
        finally:
            for w in said:
                if {"nbdev", "fastcore"} & {*Path(w.filename).parts}:
                    page.fault(cell, w.message)


class run_all(exec_show_docs):
    "nbdev's own processor, which goes on after a cell that fails and tells which."
    at = 0

    def __call__(self, cell):
        self.at = getattr(cell, "number_", self.at) # nbdev adds cells behind ours
        page = self.nb.page_
        try:
            with nbdev_warns(page, self.at): super().__call__(cell)
        except Exception as e:
            error = e.__cause__ or e
            what = cell.source.splitlines()[-1] if getattr(cell, "has_sd", False) else \
                "the docs run only exports and imports"
            page.fault(self.at, f"{type(error).__name__}: {error} ({what})")
            self.k.exc = None
        else:
            outputs = cell.get("outputs", [])
            shown = any("text/markdown" in o.get("data", {}) for o in outputs)
            if getattr(cell, "has_sd", False) and not shown:
                page.fault(self.at, f"{cell.source.splitlines()[-1]} shows nothing")


class Processors(FilterDefaults):
    def base_procs(self):
        return [run_all if p is exec_show_docs else p for p in super().base_procs()]


def process(path, page):
    "The notebook as nbdev leaves it to Quarto."
    nb = read_nb(path)
    for i, cell in enumerate(nb.cells): cell.number_ = i
    nb.page_ = page
    if CUT.search(nb.cells[0].source): page.fault(0, "the summary (>) is cut after its first line")
    with nbdev_warns(page, 0): Processors()(nb)
    front = getattr(nb, "frontmatter_", {})
    for key, name in (("title", "title (#)"), ("description", "one-line summary (>)")):
        if not front.get(key): page.fault(0, f"the page has no {name}")
    return nb


# --- Pandoc

def block(text, kind):
    "A fence that no text closes early."
    return "`" * 12 + kind + "\n" + text.rstrip("\n") + "\n" + "`" * 12


def shown(output):
    "An output in the form that Quarto prefers; pictures are part of the notebook."
    if output["output_type"] == "stream": return block("".join(output["text"]), "")
    data = output.get("data", {})
    if "text/markdown" in data: return "".join(data["text/markdown"])
    if "text/html" in data: return block("".join(data["text/html"]), "{=html}")
    return block("".join(data.get("text/plain", "")), "")


def markdown(nb):
    "A page's Markdown, with a comment before each cell that gives its number."
    number = 0
    for cell in nb.cells:
        number = getattr(cell, "number_", number)
        if cell.cell_type == "raw": yield cell.source
        else: yield f"<!-- cell {number} -->"
        if cell.cell_type == "markdown": yield cell.source
        if cell.cell_type != "code": continue
        if "#| echo: false" not in cell.source: yield block(cell.source, "python")
        yield from map(shown, cell.outputs)


def to_html(text, page):
    "Pandoc's HTML; its warnings are faults of the cell whose line they give."
    done = subprocess.run(PANDOC, input=text, capture_output=True, encoding="utf-8")
    for said in re.split(r"^\[WARNING\] ", done.stderr, flags=re.M):
        if not said.strip(): continue
        line = re.search(r"line (\d+)", said)
        before = "\n".join(text.splitlines()[:int(line[1])]) if line else ""
        cells = re.findall(r"<!-- cell (\d+) -->", before)
        page.fault(int(cells[-1]) if cells else 0, f"Pandoc says: {said}")
    return done.stdout


class Parts(HTMLParser):
    "Collects anchors, links and names in code, with the cell that they stand in."
    def __init__(self, page):
        super().__init__()
        self.page, self.cell, self.inside = page, 0, []

    def handle_comment(self, text):
        if match := re.fullmatch(r" cell (\d+) ", text): self.cell = int(match[1])

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.page.anchors |= {attrs["id"]} if "id" in attrs else set()
        for key in ("href", "src"):
            if attrs.get(key): self.page.links.append((self.cell, attrs[key]))
        if tag in ("a", "pre", "code"): self.inside.append(tag)

    def handle_endtag(self, tag):
        if self.inside and self.inside[-1] == tag: self.inside.pop()

    def handle_data(self, text):
        if "](http" in text: self.page.fault(self.cell, f"a link stands bare: {text.strip()}")
        if self.inside == ["code"]: self.page.codes.append((self.cell, text))


# --- names

def known(name):
    "Is a dotted name a module, or something in one?"
    module, _, last = name.rpartition(".")
    try: import_module(name)
    except ImportError: return bool(module) and hasattr(import_module(module), last)
    return True


def name_faults(page):
    "Names of our package, in backticks, that nbdev did not link and which are gone."
    library = get_config().lib_path.name
    for cell, text in page.codes:
        name = text.removesuffix("()")
        if not re.fullmatch(rf"{library}(\.\w+)+", name): continue
        try: there = known(name)
        except Exception: there = False
        if not there: page.fault(cell, f"`{text}` is no module and no symbol")


# --- one notebook, and all

def make(path):
    "One notebook's page, whatever happens to it."
    os.environ["IN_TEST"] = "1" # as nbdev does, so that nothing is exported
    page = Page()
    try:
        Parts(page).feed(to_html("\n\n".join(markdown(process(path, page))), page))
        name_faults(page)
    except Exception as e: page.fault(0, f"stops nbdev, {type(e).__name__}: {e}")
    return page


def attempt(paths, workers=2):
    "Pages of the notebooks whose process lived."
    pages = {}
    with ProcessPoolExecutor(workers) as pool: # Spawned, a process clears a shell a page
        futures = {path: pool.submit(make, path) for path in paths}
        for path, future in futures.items():
            try: pages[path] = future.result()
            except BrokenProcessPool: pass
    return pages


def make_all(paths):
    "Two processes; what a dying one took along is tried again, in one, until it dies."
    pages = attempt(paths)
    while left := [path for path in paths if path not in pages]:
        pages |= attempt(left, 1)
        dead = next((path for path in left if path not in pages), None)
        if dead: pages[dead] = Page([(0, "ends the process that runs it")])
    return pages


def resolve(target, here, pages, files):
    "What is wrong with one link of the page `here`."
    cfg = get_config()
    home = urljoin(cfg.doc_host + "/", cfg.doc_baseurl) + "/"
    made = target.startswith(home) # by nbdev, of a name in backticks
    if OUTSIDE.match(target) and not made: return
    path, _, anchor = unquote(target.removeprefix(home)).partition("#")
    base = "" if made or path.startswith("/") else dirname(here)
    there = normpath(join(base, path.lstrip("/"))) if path else here
    if there in files and there not in pages: return
    if there not in pages: return f"leads to {target}, which the site does not have"
    method = made and "." in anchor # nbdev shows those of a class with the class
    if anchor and not method and anchor not in pages[there].anchors:
        return f"leads to {target}, and that page has no such heading"


def faults():
    "Every fault of the site of the project in this folder, page by page."
    top = get_config().nbs_path
    files = {p.relative_to(top).as_posix() for p in
             nbglob(top, file_glob="", file_re="", func=Path)}
    notebooks = sorted(f for f in files if f.endswith(".ipynb"))
    made = make_all([top/f for f in notebooks])
    pages = {}
    for f in notebooks: pages[f] = pages[_nbpath2html(Path(f)).as_posix()] = made[top/f]
    for f in notebooks:
        for cell, target in pages[f].links:
            if what := resolve(target, f, pages, files): pages[f].fault(cell, what)
    return len(notebooks), [f"{f} cell {cell}: {what}" for f in notebooks
                            for cell, what in sorted(pages[f].faults)]


def main():
    os.chdir(sys.argv[1] if sys.argv[1:] else TOP)
    count, found = faults()
    print(*found, f"{count} pages, {len(found)} faults", sep="\n")
    sys.exit(bool(found) or not count)


if __name__ == "__main__":
    import docs # a shell of IPython takes the name __main__ for itself
    docs.main()

"""The figures of the notebooks and modules, counted the same way every time.

`python .ci/figures.py` prints a table, `--json` the same for a program, `--pages` what
each page that exports looks like. What is counted as what stands in the functions.
"""
import argparse
import ast
import json
import re
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import notebooks as house

LONG, AIM, FEW_WORDS = 25, 10, 100
FENCED = re.compile(r"```.*?```", re.S)
EXAMPLE, EXPORT, PROSE, OTHER = "example", "export", "prose", "other"


class Cell(NamedTuple):
    "One cell, as far as it is counted."
    kind: str # "markdown" or "code"
    source: str
    outputs: int

    def has(self, directive): # A pattern, such as "exporti?"
        return bool(re.search(rf"^#\|\s*{directive}\b", self.source, re.M))

    @property
    def exported(self): return self.kind == "code" and self.has("export")

    @property
    def hidden(self): return self.has("hide")

    @property
    def lines(self): # Neither blank nor a directive
        return [x for x in self.source.splitlines() if x.strip() and x[:2] != "#|"]

    @property
    def only_imports(self): # True for an empty cell too
        try: body = ast.parse(self.source).body
        except SyntaxError: return False # magics
        return all(isinstance(x, ast.Import | ast.ImportFrom) for x in body)

    @property
    def role(self):
        "What a reader sees in it; imports, private exports and hidden cells are other."
        if self.kind == "markdown": return PROSE
        if self.exported: return OTHER if self.only_imports else EXPORT
        plain = not (self.hidden or self.has("exporti") or self.only_imports)
        return EXAMPLE if plain else OTHER


class Page(NamedTuple):
    "A notebook."
    path: Path
    cells: list

    @property
    def exports(self): return [c for c in self.cells if c.exported]

    @property
    def is_module(self): return any(c.has("exporti?") for c in self.cells)

    @property
    def words(self):
        "Words of prose, without code blocks, marks and numbers."
        return sum(len(re.findall(r"[A-Za-z']+", FENCED.sub("", c.source)))
                   for c in self.cells if c.kind == "markdown")

    @property
    def long_cells(self): return sum(len(c.lines) > LONG for c in self.exports)

    @property
    def exported_lines(self): return sum(len(c.lines) for c in self.exports)

    def asserts(self, hidden):
        "Cells with an assert that are hidden, or that are not."
        return sum(c.kind == "code" and not c.has("exporti?") and c.hidden == hidden
                   and bool(re.search(r"\bassert\b", c.source)) for c in self.cells)

    @property
    def example_in_time(self):
        "Does an example stand before the second export? None for fewer exports."
        roles = [c.role for c in self.cells if c.role in (EXAMPLE, EXPORT)]
        if roles.count(EXPORT) < 2: return None
        return EXAMPLE in roles[:roles.index(EXPORT, roles.index(EXPORT) + 1)]

    def run_lengths(self, private=False):
        "Of exports with no prose or code between them; imports and hidden cells pass."
        marks = ""
        for c in self.cells:
            shown = c.kind == "code" and c.has("exporti") and not c.only_imports
            if c.role == EXPORT or private and shown: marks += "e"
            elif c.role in (PROSE, EXAMPLE) or shown: marks += " "
        return [len(run) for run in marks.split()]


def read_page(path):
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    return Page(Path(path), [Cell(c["cell_type"], house.text(c["source"]),
                                  len(c.get("outputs", []))) for c in cells])


def share(part, whole): return round(part / whole, 3) if whole else 0.0


def share_in_runs(pages, private=False):
    "Share of exports in a run of two or more."
    runs = [n for p in pages for n in p.run_lengths(private)]
    return share(sum(n for n in runs if n > 1), sum(runs))


def page_figures(pages):
    "Figures of the notebooks, by name."
    modules = [p for p in pages if p.is_module]
    lengths = [len(c.lines) for p in pages for c in p.exports]
    code = [c for p in pages for c in p.cells if c.kind == "code"]
    words = [p.words for p in modules]
    found = {
        "notebooks": len(pages), "notebooks with exports": len(modules),
        "code cells": len(code),
        "code cells with outputs": sum(c.outputs > 0 for c in code),
        "exported cells": len(lengths),
        "lines of an exported cell, median": median(lengths or [0]),
        "lines of an exported cell, max": max(lengths, default=0)}
    for bound in (AIM, LONG):
        over = sum(n > bound for n in lengths)
        found |= {f"exported cells over {bound} lines": over,
                  f"share over {bound} lines": share(over, len(lengths))}
    return found | {
        "words of a module notebook, median": median(words or [0]),
        f"module notebooks under {FEW_WORDS} words": sum(n < FEW_WORDS for n in words),
        "words per exported line, median": round(median(
            [p.words / max(p.exported_lines, 1) for p in modules] or [0]), 2),
        "share of exports in a run": share_in_runs(pages),
        "share in a run, private exports too": share_in_runs(pages, private=True),
        "visible cells with asserts": sum(p.asserts(False) for p in pages),
        "hidden cells with asserts": sum(p.asserts(True) for p in pages),
        "pages whose example comes too late": sum(p.example_in_time is False
                                                  for p in modules)}


def modules(top):
    "Path of each module under a dotted name, without the generated index."
    found = {}
    for path in sorted((Path(top)/"mabe_nb").rglob("*.py")):
        if path.name == "_modidx.py": continue
        parts = path.relative_to(top).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name, path, known):
    "Names of the package's modules that a module imports, anywhere in it."
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import): found |= {a.name for a in node.names}
        if not isinstance(node, ast.ImportFrom): continue
        up = package.split(".")[:len(package.split(".")) - node.level + 1]
        base = ".".join([*(up if node.level else []), *filter(None, [node.module])])
        inner = {f"{base}.{a.name}" for a in node.names} & known.keys()
        found |= inner or {base}
    return found & known.keys() - {name}


def module_figures(top=house.TOP):
    "Lines, modules by folder, and modules that one other or none imports."
    known = modules(top)
    users = Counter(used for name, path in known.items()
                    for used in imported(name, path, known))
    plain = {n: p for n, p in known.items() if p.name != "__init__.py"}
    lines = {n: p.read_bytes().count(b"\n") for n, p in known.items()}
    by_folder = Counter(n.rpartition(".")[0] for n in plain)
    return {"exported lines": sum(lines.values()), "modules": len(plain),
            "modules by folder": dict(sorted(by_folder.items())),
            "modules with one importer": sorted(n for n in plain if users[n] == 1),
            "modules with no importer": sorted(n for n in plain if not users[n])}


def page_rows(pages):
    "What there is to see to on each page that exports."
    return [{"page": p.path.as_posix(), "exports": len(p.exports), "long": p.long_cells,
             "example in time": p.example_in_time, "words": p.words,
             "visible asserts": p.asserts(False), "hidden asserts": p.asserts(True)}
            for p in pages if p.is_module]


def print_rows(rows):
    print("exports  long  in time  words  asserts seen/hidden  page")
    for r in rows:
        in_time = {True: "yes", False: "NO", None: "-"}[r["example in time"]]
        asserts = f"{r['visible asserts']}/{r['hidden asserts']}"
        print(f"{r['exports']:7}  {r['long']:4}  {in_time:>7}  {r['words']:5}  "
              f"{asserts:>19}  {r['page']}")


def print_figures(found):
    for name, value in found.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        if isinstance(value, list): value = f"{len(value)}: {', '.join(value)}"
        print(f"{name:38} {f'{value:,}' if isinstance(value, int) else value}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="for a program")
    parser.add_argument("--pages", action="store_true", help="one row per page")
    args = parser.parse_args()
    pages = [read_page(p.relative_to(Path.cwd()) if p.is_relative_to(Path.cwd()) else p)
             for p in house.notebooks()]
    found = page_rows(pages) if args.pages else page_figures(pages) | module_figures()
    if args.json: print(json.dumps(found, indent=1))
    else: (print_rows if args.pages else print_figures)(found)


if __name__ == "__main__": main()

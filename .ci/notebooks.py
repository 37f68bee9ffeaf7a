"The house rules for a notebook that a machine can check, each fault one line of text."
import ast
import json
import re
from collections import Counter
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
MACHINE = re.compile(r"(?<![\w.~])/(work|tmp|root|farm|home|Users)/\w")
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)")
WIDGET = "application/vnd.jupyter.widget-view+json"
FENCE = re.compile(r"```.*?```|`[^`\n]+`", re.S)
EXPORTED = re.compile(r"(?:#\|.*\n)*#\|\s*(?:exports?|exec_doc)\b")
ALWAYS = re.compile(r"(?:#\|.*\n)*#\|\s*(?:export[si]?\b|exec_doc\b|eval:\s*false)")
IMPORT = ast.Import, ast.ImportFrom
WIDTH, EXPORT, MODULES = 88, 40, 14


def text(lines): return lines if isinstance(lines, str) else "".join(lines)


def source_faults(cell):
    if not isinstance(cell["source"], list): yield "source is not a list of lines"
    source = text(cell["source"])
    if MACHINE.search(source): yield "names a path of one machine"
    if cell["cell_type"] != "code": return
    lines = source.splitlines()
    if (most := max(map(len, lines), default=0)) > WIDTH:
        yield f"has a line of {most} columns, expected at most {WIDTH}"
    if re.search(r"^\s*except\s*:", source, re.M): yield "has a bare except"
    if found := re.search(r"^_\d+(?=,| =)|(?<=, )_\d+(?=,| =)", source, re.M):
        yield f"names {found[0]}, which Jupyter fills with what its cell {found[0][1:]} shows"
    if re.search(r"\bTODO\b|\bFIXME\b", source): yield "leaves something to do"
    if not re.match(r"#\|\s*export", source): return
    if re.search(r"^\s*from \S+ import \*", source, re.M): yield "exports a star import"
    if len([line for line in lines if line.strip()]) > EXPORT:
        yield f"exports more than {EXPORT} lines"


def output_faults(cell):
    for out in cell.get("outputs", []):
        if out["output_type"] == "error": yield "stores an error"
        data = out.get("data", {})
        if WIDGET in data: yield "stores a widget"
        if "image/png" in data and "alt=" not in text(data.get("text/html", "")) \
                and "#| fig-alt:" not in text(cell["source"]):
            yield "shows a picture without words for it, expected `#| fig-alt:`"
        words = [text(out.get("text", "")), *(text(v) for k, v in data.items()
                                               if k.startswith("text/"))]
        if any(map(MACHINE.search, words)): yield "shows a path of one machine"


def mixed_faults(cells):
    """Imports beside other code. Where a notebook exports, the docs build runs every
    cell with an import in it, hidden ones too, and none of the code before. Exported
    cells run anyway, `eval: false` never."""
    code = [(i, text(c["source"])) for i, c in enumerate(cells)
            if c["cell_type"] == "code"]
    if not any(EXPORTED.match(source) for _, source in code): return
    for i, source in code:
        if ALWAYS.match(source) or "nbdev_export()" in source: continue
        try: tree = ast.parse(source)
        except SyntaxError: continue # a magic
        imports = any(isinstance(node, IMPORT) for node in ast.walk(tree))
        if imports and not all(isinstance(t, IMPORT) for t in tree.body):
            yield f"cell {i} mixes an import with other code"


def opening_fault(cells):
    first = text(cells[0]["source"]) if cells else ""
    good = cells and cells[0]["cell_type"] == "markdown" and re.match(
        r"# \S.*\n+> \S", first)
    if not good: yield "does not open with a title (#) and a one-line summary (>)"


def link_faults(words, path):
    "Relative links in Markdown text that lead to no file."
    for target in LINK.findall(FENCE.sub("", words)):
        page = (Path(path).parent/target)
        if not (page.exists() or page.with_suffix(".ipynb").exists()):
            yield f"links to {target}, which is not there"


def left_behind(cells):
    "Are more folders made for good than removed again?"
    code = "\n".join(text(c["source"]) for c in cells if c["cell_type"] == "code")
    made, gone = (len(re.findall(rf"^(?!\w+ = ''').*\b{word}\(", code, re.M))
                  for word in ("mkdtemp", "rmtree"))
    if made > gone: yield f"leaves folders behind: {made} by mkdtemp, {gone} by rmtree"


def faults(path):
    "What is wrong with a notebook (or, for a .md file, with its links)."
    path = Path(path)
    words = path.read_text(encoding="utf-8")
    if path.suffix == ".md": return [f"{path.name} {f}" for f in link_faults(words, path)]
    try: nb = json.loads(words)
    except ValueError: return [f"{path.name} is not valid JSON"]
    found = [f"{path.name} {f}"
             for f in (*opening_fault(nb["cells"]), *left_behind(nb["cells"]))]
    if "widgets" in nb.get("metadata", {}): found.append(f"{path.name} stores widget state")
    for i, cell in enumerate(nb["cells"]):
        mine = [*source_faults(cell), *output_faults(cell)]
        if cell["cell_type"] == "markdown": mine += link_faults(text(cell["source"]), path)
        found += [f"{path.name} cell {i} {f}" for f in mine]
    return found


def notebooks(top=TOP):
    "Every notebook under nbs, in order."
    return sorted(p for p in (Path(top)/"nbs").rglob("*.ipynb")
                  if not any(part[0] in "._" for part in p.relative_to(top).parts))


def sidebar_faults(top=TOP):
    "Notebooks that the hand-written sidebar forgets, and pages it names in vain."
    listed = set(re.findall(r"[\w/.-]+\.ipynb", (Path(top)/"_quarto.yml").read_text()))
    there = {p.relative_to(Path(top)/"nbs").as_posix() for p in notebooks(top)}
    return [f"_quarto.yml does not list {p}" for p in sorted(there - listed)] + \
           [f"_quarto.yml lists {p}, which is not there" for p in sorted(listed - there)]


def link_of_quarto(top=TOP):
    link = Path(top)/"nbs"/"_quarto.yml"
    good = link.is_symlink() and link.resolve() == (Path(top)/"_quarto.yml").resolve()
    return [] if good and link.exists() else [
        "nbs/_quarto.yml must be a symbolic link to ../_quarto.yml"]


def module_faults(top=TOP):
    "Modules that are too long, and folders of too many."
    paths = sorted(p for p in (Path(top)/"mabe_nb").rglob("*.py") if p.name != "_modidx.py")
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in paths}
    long = [f"{p.relative_to(top)} has {n} lines, a module stays under 300"
            for p, n in lines.items() if n >= 300]
    folders = Counter(p.parent for p in paths if p.stem not in ("__init__", "__main__"))
    return long + [f"{folder.relative_to(top)} has {n} modules, expected at most {MODULES}"
                   for folder, n in folders.items() if n > MODULES]

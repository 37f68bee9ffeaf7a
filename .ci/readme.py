"README.md from nbs/index.ipynb, without Quarto. `--check` only says whether they agree."
import os
import re
import sys
from pathlib import Path

import nbformat

TOP = Path(__file__).resolve().parents[1]
NOTE = "<!-- Made from nbs/index.ipynb by .ci/readme.py; edit there. -->"
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s#]+)")
DIRECTIVE = re.compile(r"#\|\s*(\S.*)")


def fenced(text, language=""):
    return f"```{language}\n{text.rstrip()}\n```"


def shown(output, place):
    "An output as Markdown, its richest text form first."
    if output["output_type"] == "stream": return fenced(output["text"])
    data = output.get("data", {})
    if "text/markdown" in data: return data["text/markdown"].strip()
    if any(kind.startswith("image/") for kind in data):
        raise SystemExit(f"{place} draws a picture: save it under nbs/images and show "
                         "the file in a Markdown cell, so that README.md can show it too")
    return fenced(data["text/plain"]) if "text/plain" in data else ""


def code(cell, place):
    "Blocks of a code cell: its source and what it printed, as far as readers see them."
    lines = cell["source"].splitlines()
    said = [m[1].strip() for m in map(DIRECTIVE.match, lines) if m]
    if "hide" in said: return []
    source = "\n".join(line for line in lines if not DIRECTIVE.match(line)).strip()
    outputs = [shown(o, place) for o in cell.get("outputs", [])]
    keep = source and "echo: false" not in said
    return [fenced(source, "python")] * bool(keep) + [o for o in outputs if o]


def readme(path):
    "The Markdown that `path` makes, with links as seen from the top folder."
    here = os.path.relpath(Path(path).parent, TOP)
    def seen_from_top(m): return m[1] + os.path.normpath(os.path.join(here, m[2]))
    blocks = []
    for i, cell in enumerate(nbformat.read(path, 4).cells):
        if cell["cell_type"] == "markdown":
            blocks.append(LINK.sub(seen_from_top, cell["source"].strip()))
        elif cell["cell_type"] == "code": blocks += code(cell, f"{path}, cell {i},")
    return "\n\n".join([*filter(None, blocks), NOTE]) + "\n"


if __name__ == "__main__":
    text, target = readme(TOP/"nbs"/"index.ipynb"), TOP/"README.md"
    if "--check" in sys.argv[1:]:
        same = target.exists() and target.read_text(encoding="utf-8") == text
        sys.exit(0 if same else "README.md is not what nbs/index.ipynb makes: "
                 "run .ci/readme.py")
    target.write_text(text, encoding="utf-8")

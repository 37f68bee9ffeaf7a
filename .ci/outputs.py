"""What pages show beside their cells, made again where it is out of date or missing.

`python .ci/outputs.py [--check] [nbs/a.ipynb ...]` runs notebooks, all of them if none is
named, and compares what each cell says with what it shows, and of a picture of ours the
words for those who do not see it. Names of temporary folders, ids and seconds are passed
over, and so are other pictures beside the same text and widgets. A cell that shows nothing
yet is filled, unless it is hidden or names a folder of this machine.
`--check` only tells. Figures of time are those of the machine: run it on a quiet one.
"""
import argparse
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from pathlib import Path

import nbformat
from nbclient import NotebookClient

sys.path.insert(0, str(Path(__file__).parent))
import notebooks as house

PASSED_OVER = re.compile(
    r"\btmp\w{8}\b|\d{6}-\d{6}-[0-9a-f]{6}|0x[0-9a-f]+|\d+:\d\d:\d\d|\b[\d.]+ ?(s|ms)\b|^\s+$", re.M)
PICTURE = re.compile(r'<img alt="([^"]*)"')
NOT_RUN = re.compile(r"^#\|\s*eval:\s*false", re.M)
NOT_SHOWN = re.compile(r"^#\|\s*hide$", re.M)
OF_ONE_RUN = re.compile(r"\btmp/tmp|\bobject at 0x") # Worse than nothing, on a page


def words(data):
    "What an output says: its text, and the words of its picture."
    picture = PICTURE.search("".join(data.get("text/html", ""))) if "image/png" in data else None
    return "".join(data.get("text/plain", "")) + (picture[1] if picture else "")


def shown(cell):
    "The text that a cell shows, None if there is no telling."
    data = [o.get("data", {"text/plain": o.get("text", "")}) for o in cell.outputs]
    if any(house.WIDGET in d for d in data): return None
    return PASSED_OVER.sub("", "".join(map(words, data))).strip()


def missing(old, new):
    "Has a cell that shows nothing something to say to a reader?"
    said = "".join(str(o) for o in new.outputs if o.get("name") != "stderr")
    return said and not NOT_SHOWN.search(old.source) and not OF_ONE_RUN.search(said)


def run(notebook, folder):
    "What its cells say now: a copy, run from top to bottom."
    new = deepcopy(notebook)
    for cell in new.cells:
        if cell.cell_type != "code": continue
        if NOT_RUN.search(cell.source) or "nbdev_export()" in cell.source: cell.source = ""
    NotebookClient(new, timeout=600, kernel_name="python3", coalesce_streams=True,
                   resources={"metadata": {"path": str(folder)}}).execute()
    return new


def refresh(path, check):
    "Numbers of the cells that are out of date; their outputs are replaced, unless `check`."
    notebook = nbformat.read(path, 4)
    changed = []
    for i, (old, new) in enumerate(zip(notebook.cells, run(notebook, path.parent).cells)):
        if old.cell_type != "code" or not new.source: continue
        if not old.outputs and not missing(old, new): continue
        if old.outputs and (None in (said := (shown(old), shown(new))) or said[0] == said[1]):
            continue
        changed.append(i)
        old.outputs = new.outputs
    if changed and not check: nbformat.write(notebook, path)
    return changed


def main():
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("notebooks", nargs="*", type=Path)
    p.add_argument("--check", action="store_true", help="only tell")
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    os.environ |= {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    paths = [n.absolute() for n in args.notebooks] or house.notebooks()
    with ProcessPoolExecutor(args.workers) as pool:
        runs = {path: pool.submit(refresh, path, args.check) for path in paths}
        for path, of in runs.items():
            try: cells = of.result()
            except Exception as e: print(f"{path.name}: {type(e).__name__}: {str(e)[-300:]}")
            else:
                if cells: print(f"{path.name}: cells {', '.join(map(str, cells))}", flush=True)


if __name__ == "__main__": main()

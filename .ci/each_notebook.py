"""Run every notebook as `nbdev_test` does, and note each as it ends (see `journal.py`).

In the top folder, `python .ci/each_notebook.py FILE` runs all, `FILE nbs/a.ipynb ...`
some. Marked cells (`tst_flags` in settings.ini) and folders with a `.notest` are left
out.
"""
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import journal
import notebooks as house

WORKERS = 2
FIRST = ("tutorials", "measure", "50_measure", "07_recipe_items", "30_demo", "55_queue")
# Names of files or folders that take longest: begun late, one would be left running alone


def wanted(top, names=()):
    "Paths of the notebooks to run."
    paths = [Path(top)/n for n in names] or house.notebooks(top)
    found = [p.absolute() for p in paths if not (p.parent/".notest").exists()]
    return sorted(found, key=lambda p: not {p.stem, p.parent.name} & {*FIRST})


def run(path, name, notes, top, flags):
    "Run one in this process; errors are printed and noted."
    from mabe_nb.data.blocks.registry import BLOCKS, PRESETS
    from mabe_nb.train.models import NETWORKS
    from nbdev.test import test_nb
    journal.note(notes, name=name, state="started")
    ours = [(known, dict(known)) for known in (BLOCKS, PRESETS, NETWORKS)]
    good, seconds = test_nb(path, skip_flags=flags, basepath=top)
    for known, before in ours: # A page registers its own blocks anew, as those of __main__
        known.clear()
        known.update(before)
    journal.note(notes, name=name, state="passed" if good else "failed",
                 seconds=round(seconds, 2))
    sys.stderr.flush()
    return good, seconds


def load_what_pages_need():
    "Once, before the processes are forked that run them."
    for name in ("nbdev.test", "mabe_nb.train.models"): import_module(name)
    from mabe_nb.data.blocks.registry import load_missing
    load_missing(["own"]) # and with it all of ours


def main(notes, *names):
    "Run in a few processes; False if one failed or there was none to run."
    if notes.endswith(".ipynb"): # else its lines would go into the notebook
        sys.exit(f"first the file for the journal, then notebooks: {notes} is one")
    from nbdev.config import get_config
    flags, top = get_config().tst_flags.split(), os.getcwd()
    paths = {p: os.path.relpath(p) for p in wanted(top, names)}
    journal.note(notes, planned=list(paths.values()))
    load_what_pages_need()
    with ProcessPoolExecutor(min(WORKERS, max(len(paths), 1))) as pool:
        runs = [pool.submit(run, p, name, notes, top, flags)
                for p, name in paths.items()]
        return bool(runs) and all(r.result()[0] for r in as_completed(runs))


if __name__ == "__main__":
    import each_notebook # A notebook puts itself in the place of __main__
    sys.exit(not each_notebook.main(*sys.argv[1:]))

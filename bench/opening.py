"""Opening tutorial 06 in JupyterLab: seconds to a first panel, and the kernel's memory.

python bench/opening.py --json F     one object: date, machine, versions, rows
Each row is one start of a Lab of its own, from the page's address to the first panel that
can be clicked, with cells run as soon as the kernel is there. The command that runs them is
not waited for: it answers when the last cell has ended. Needs playwright.
"""
import argparse
import json
import os
import platform
import sys
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

import nbformat
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/"tests"))
import lab_page
from playwright.sync_api import sync_playwright

TOP = Path(__file__).resolve().parents[1]


def kernel_mb():
    "Resident memory of the kernel below this process."
    for process in psutil.Process().children(recursive=True):
        try:
            if "ipykernel" in " ".join(process.cmdline()):
                return round(process.memory_info().rss / 1e6)
        except psutil.Error: continue


def once():
    nb = nbformat.read(TOP/"nbs"/"tutorials"/"06_panels.ipynb", 4)
    cells = [c.source for c in nb.cells if c.cell_type == "code"]
    with tempfile.TemporaryDirectory() as tmp, \
            lab_page.server(Path(tmp)/"lab", cells) as url, sync_playwright() as pw:
        browser = pw.chromium.launch(executable_path=lab_page.CHROMIUM, args=lab_page.FLAGS)
        page, _ = lab_page.new_page(browser)
        load, start = os.getloadavg()[0], time.monotonic()
        page.goto(url)
        page.wait_for_function(f"{lab_page.KERNEL}?.status === 'idle'")
        idle = time.monotonic() - start
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
        page.locator(".mabe-GPUPanel").get_by_label("Provider").wait_for()
        first = time.monotonic() - start
        memory = kernel_mb()
        page.locator(".mabe-ComparePanel").wait_for()
        all_panels = time.monotonic() - start
        row = {"load": round(load, 1), "kernel_idle_s": round(idle, 1),
               "first_panel_s": round(first, 1), "kernel_mb_at_first_panel": memory,
               "all_panels_s": round(all_panels, 1),
               "kernel_mb_at_last_panel": kernel_mb()}
        browser.close()
        return row


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--times", type=int, default=3)
    p.add_argument("--json", type=Path, help="file for the figures")
    args = p.parse_args()
    rows = []
    for _ in range(args.times):
        rows.append(once())
        print(", ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    names = ("ipywidgets", "anywidget", "jupyterlab", "playwright", "ipykernel")
    about = {"date": date.today().isoformat(), "rows": rows,
             "machine": {"cpus": os.cpu_count(), "system": platform.platform()},
             "versions": {n: version(n) for n in names} | {
                 "python": platform.python_version()}}
    if args.json: args.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()

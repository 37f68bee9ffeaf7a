"""A server on loopback and a real Chromium, for tests that work a page as a person would.

`MABE_SHOTS=FOLDER` keeps screenshots; look at them. Needs `playwright` and a Chromium on the
path. Of a failed test the report has the end of the server's log, and what was on the page.
"""
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from lab_page import CHROMIUM, FLAGS, new_page, own_place, started

TOP = Path(__file__).resolve().parents[1]
PAGE = "06_panels.ipynb"
PANELS = ("GPUPanel", "JobPanel", "TrainPanel", "SweepPanel", "ComparePanel")

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
if CHROMIUM is None: pytest.skip("needs Chromium on the path", allow_module_level=True)
expect = sync_api.expect


@contextmanager
def serving(tmp, *words):
    "A server over the tutorial, with its own settings and jobs; ended by its own handle."
    (tmp/"nb"/"tutorials").mkdir(parents=True)
    shutil.copy(TOP/"nbs"/"tutorials"/PAGE, tmp/"nb"/"tutorials")
    shutil.copytree(TOP/"nbs"/"images", tmp/"nb"/"images")
    port, token, env = own_place(tmp)
    command = [sys.executable, "-m", *words, "--no-browser", f"--port={port}"]
    url = f"http://127.0.0.1:{port}"
    with started(command, env, tmp/"server.log", f"{url}/?token={token}", tmp/"nb"):
        yield url, token


@contextmanager
def chromium():
    "A page, and what its console complained of."
    with sync_api.sync_playwright() as pw:
        browser = pw.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page, errors = new_page(browser)
        yield SimpleNamespace(page=page, errors=errors)
        browser.close()


def cancel_all(tmp):
    "No job outlives the test."
    env = {**os.environ, "MABE_HOME": str(tmp/"home")}
    code = ("from mabe_nb.remote.job import jobs\n"
            "for job in jobs(): job.cancel()")
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)


def seen(what, text, most=12):
    "For the report, also for the short one of `.ci/checks.py`."
    for line in [l for l in str(text).splitlines() if l.strip()][-most:]:
        print(f"seen | {what}: {ascii(line)[1:-1][:240]}")


@pytest.fixture(autouse=True)
def told(lab, request):
    "Of a failure: the end of the server's log, and what stood in the panels."
    before = request.session.testsfailed
    yield
    if request.session.testsfailed == before: return
    print((lab.tmp/"server.log").read_text()[-4000:])
    for name in PANELS:
        for box in panel(lab.page, name).all(): seen(name, box.inner_text())
    for job in sorted(lab.tmp.glob("home/jobs/[0-9]*")):
        seen(job.name, " ".join(sorted(f.name for f in job.iterdir())))
        for file in ("job.json", "status.json", "log"):
            if (job/file).exists(): seen(file, (job/file).read_text(errors="replace")[-600:])
    seen("console", lab.errors)
    lab.page.screenshot(path=lab.tmp/f"{request.node.name}.png")
    print("kept in", lab.tmp)


def panel(page, name): return page.locator(f".mabe-{name}")


def line(box): return box.locator(".mabe-status [role=status]")


def press(box, name): box.get_by_role("button", name=name, exact=True).click()


def nameless(box):
    "Controls that a screen reader could not name."
    for control in box.locator("button, input, select, textarea").all():
        said = control.evaluate("e => e.labels?.[0]?.innerText || e.innerText || "
                                "e.getAttribute('aria-label') || ''")
        if not said.strip(): yield control.evaluate("e => e.outerHTML")


def shoot(page, names, label, widths=(1280, 768)):
    "A picture of each panel at each width; nothing may be wider than its panel."
    shots = os.environ.get("MABE_SHOTS")
    for width in widths:
        page.set_viewport_size(dict(width=width, height=1900))
        for name in names:
            box = panel(page, name)
            box.scroll_into_view_if_needed()
            assert box.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), (name, width)
            if shots: box.screenshot(path=Path(shots)/f"{name}-{width}-{label}.png")
    page.set_viewport_size(dict(width=1280, height=1100))

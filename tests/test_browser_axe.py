"""Panels and player under axe, and the whole path by keyboard alone.

axe-core comes through npm (`MABE_AXE=FILE` names a copy of `axe.min.js`); without npm, or
without a way to its registry, its checks are skipped with a word. See `browsing.py` for
the rest.
"""
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import nbformat
import pytest
from browsing import cancel_all, expect, line, panel, press, told  # noqa: F401
from lab_page import opened

AXE = "axe-core@4.11.0"
CELLS = ["""import numpy as np
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.view.panels.gpu import GPUPanel
card = GPUPanel("local")
card""", """from mabe_nb.view.panels.job import JobPanel
job = JobPanel("print(1)", gpu=card, timeout=600)
job""", """from mabe_nb.view.panels.train import TrainPanel
training = TrainPanel("colony", gpu=card)
training""", """from mabe_nb.view.panels.measure.sweep import SweepPanel
sizes = SweepPanel(sizes="8,32", gpu=card, train=training, seconds=0.5)
sizes""", """from mabe_nb.view.panels.measure.compare import ComparePanel
cards = ComparePanel(gpu=card, train=training, seconds=0.5)
cards""", """from mabe_nb.data.recording import frame_labels
from mabe_nb.view.video.prediction_errors import ErrorPanel, PairPrediction, worst_errors
rec = make_recording(seed=1, frames=3600, mice=4)
labels = frame_labels(rec, "mouse1", "mouse2", ("chase", "sniff"))
p = np.clip(np.roll(labels, 20, 0), 0.1, 0.8)
codes = np.where(p.max(1) > 0.5, p.argmax(1), -1)
made = [PairPrediction("1", "mouse1", "mouse2", 30.0, ("chase", "sniff"), p, codes, labels)]
errors = ErrorPanel(worst_errors(made), {"1": rec}, made)
errors.go()
errors""", """from mabe_nb.view.video.explorer import Explorer
explorer = Explorer(rec, "social", ("mouse1", "mouse2"))
explorer""", """from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.recording import bout_table
from mabe_nb.train.review.moments import PairPrediction, rank_moments
from mabe_nb.view.video.review import ReviewPanel
sure = np.where(codes < 0, 0.0, 0.9)
told = [PairPrediction("1", "mouse1", "mouse2", 30.0, ("chase", "sniff"), p, codes,
                       np.full(p.shape, -1, np.int8), sure, sure)]
unlabelled = RecordingList([rec.replace(labelled=None, bouts=bout_table())], ".")
review = ReviewPanel(rank_moments(told, 5), unlabelled, told, "corrections.jsonl", "Ann")
review""", """from mabe_nb.train.config import TrainConfig
from mabe_nb.view.panels.runs import RunsPanel
import json
import os
os.makedirs("records/one")
TrainConfig(epochs=2).to_yaml("records/one/config.yaml")
with open("records/one/log.jsonl", "w") as log:
    for n in (1, 2): print(json.dumps(
        {"event": "epoch", "epoch": n, "valid_f1": n / 4, "seconds": 1}), file=log)
runs = RunsPanel("records")
runs.go()
runs"""]
NAMES = ("GPUPanel", "JobPanel", "TrainPanel", "SweepPanel", "ComparePanel", "ErrorPanel",
         "Explorer", "ReviewPanel", "RunsPanel")
FIND = """selector => axe.run({include: [...document.querySelectorAll(selector)]},
    {resultTypes: ['violations']}).then(found => found.violations.filter(
    v => ['serious', 'critical'].includes(v.impact)).map(v =>
        `${v.impact} ${v.id}: ${v.help}; ` + v.nodes.slice(0, 3).map(
            n => n.html.slice(0, 200) + ' ' + (n.any[0]?.message ?? '')).join(' | ')))"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    "The source of axe-core."
    if file := os.environ.get("MABE_AXE"): return Path(file).read_text(encoding="utf-8")
    if not shutil.which("npm"): pytest.skip("axe-core comes through npm, which is not here")
    tmp = tmp_path_factory.mktemp("axe")
    try:
        done = subprocess.run(["npm", "pack", "--silent", AXE], cwd=tmp, timeout=120,
                              capture_output=True, text=True)
    except subprocess.TimeoutExpired: pytest.skip("npm does not answer")
    files = list(tmp.glob("*.tgz"))
    if done.returncode or not files: pytest.skip(f"npm gives no {AXE}: {done.stderr[:200]}")
    with tarfile.open(files[0]) as packed:
        return packed.extractfile("package/axe.min.js").read().decode()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("axe_lab")
    with opened(tmp, CELLS) as found:
        found.tmp = tmp
        for name in NAMES: expect(panel(found.page, name)).to_be_visible()
        yield found
        cancel_all(tmp)


def theme(page, name):
    page.evaluate("theme => window.jupyterapp.commands.execute("
                  "'apputils:change-theme', {theme})", f"JupyterLab {name}")
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light",
                                                   str(name == "Light").lower())


def serious(page, axe, names=NAMES):
    "Findings that matter, by panel."
    page.evaluate(axe)
    found = {name: page.evaluate(FIND, f".mabe-panel.mabe-{name}") for name in names}
    return {name: words for name, words in found.items() if words}


@pytest.mark.parametrize("shade", ("Light", "Dark"))
@pytest.mark.parametrize("width", (1280, 400))
def test_no_serious_finding(lab, axe, shade, width):
    lab.page.evaluate("window.jupyterapp.shell.collapseLeft()")
    theme(lab.page, shade)
    lab.page.set_viewport_size(dict(width=width, height=1100))
    try: assert serious(lab.page, axe) == {}
    finally:
        lab.page.set_viewport_size(dict(width=1280, height=1100))
        theme(lab.page, "Light")


def test_no_serious_finding_in_errors_and_results(lab, axe):
    job = panel(lab.page, "JobPanel")
    job.get_by_label("To send", exact=True).fill("print(undefined_name)")
    expect(line(job)).to_contain_text("undefined_name")
    assert serious(lab.page, axe, ("JobPanel",)) == {}
    job.get_by_label("To send", exact=True).fill("print('fine')")
    press(job, "Send")
    expect(line(job)).to_contain_text("done")
    assert serious(lab.page, axe, ("JobPanel",)) == {}


FOCUSED = """() => { const e = document.activeElement; return e ? (e.labels?.[0]?.innerText
    || e.getAttribute('aria-label') || e.innerText || '').trim() : '' }"""


def tab_to(page, name):
    "Tab on until something of that name has the focus."
    for _ in range(150):
        if page.evaluate(FOCUSED) == name: return
        page.keyboard.press("Tab")
    raise AssertionError(f"the Tab key never came to {name!r}")


def has_ring(page):
    "Can the focus be seen?"
    return page.evaluate("""() => { const s = getComputedStyle(document.activeElement);
        return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1 }""")


def ask(page, code):
    "What the kernel prints."
    return page.evaluate("""async code => {
        const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
        const future = kernel.requestExecute({code});
        let text = '';
        future.onIOPub = m => { text += m.content.text ?? '' };
        await future.done;
        return text.trim() }""", code)


def until(page, code, said):
    "The kernel comes to print that."
    for _ in range(240):
        if (last := ask(page, code)) == said: return
        page.wait_for_timeout(250)
    raise AssertionError(f"{code} is {last}, not {said}")


def test_the_whole_path_by_keyboard(lab):
    "Choose a card, send, watch and fetch, without a mouse."
    page, keys = lab.page, lab.page.keyboard
    card, job = panel(page, "GPUPanel"), panel(page, "JobPanel")
    card.get_by_role("button", name="Check again").focus()
    tab_to(page, "Provider")
    assert has_ring(page)
    keys.type("Mod")
    expect(card.get_by_label("Provider")).to_have_value("Modal")
    tab_to(page, "Card")
    keys.press("ArrowDown")
    expect(card.get_by_text("USD an hour, as of")).to_be_visible()
    for _ in range(2): keys.press("Shift+Tab") if page.evaluate(FOCUSED) != "Provider" else 0
    keys.type("this")
    expect(job.get_by_text("nothing is billed")).to_be_visible()
    tab_to(page, "To send")
    keys.press("Control+a")
    keys.type("total = 6 * 7\nprint('the total is', total)")
    tab_to(page, "Variables to get back")
    keys.type("total")
    until(page, "print(job.outputs.value, job.start_button.disabled)", "total False")
    tab_to(page, "Send")
    expect(job.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    assert has_ring(page)
    keys.press("Enter")
    expect(job.get_by_text("the total is 42").first).to_be_visible()
    expect(line(job)).to_contain_text("done")
    assert ask(page, "print(job.result['total'])") == "42"


def test_nothing_went_wrong_on_the_way(lab):
    assert lab.errors == []


TUTORIALS = sorted((Path(__file__).parents[1]/"nbs"/"tutorials").glob("*.ipynb"))
OPEN = """path => { window.jupyterapp.commands.execute('docmanager:open', {path,
    factory: 'Notebook', kernelPreference: {shouldStart: false, autoStartDefault: false}}) }"""
WRITTEN = """() => { for (const e of document.querySelectorAll('.mabe-read'))
        e.classList.remove('mabe-read');
    const page = window.jupyterapp.shell.currentWidget.node;
    const parts = page.querySelectorAll('.jp-RenderedMarkdown, .jp-OutputArea-output');
    for (const e of parts) if (e.offsetParent) e.classList.add('mabe-read') }"""


def test_no_serious_finding_in_what_tutorials_say_and_show(lab, axe):
    "As they lie, without a kernel, which is how a page of the site shows them."
    found, page = {}, lab.page
    page.evaluate(axe)
    for file in TUTORIALS:
        (lab.file.parent/file.name).write_bytes(file.read_bytes())
        page.evaluate(OPEN, file.name)
        cells = len(nbformat.read(file, 4).cells)
        page.wait_for_function(f"""() => {{
            const shown = window.jupyterapp.shell.currentWidget;
            return shown.title.label === '{file.name}'
                && shown.node.querySelectorAll('.jp-Cell').length === {cells} }}""")
        page.evaluate(WRITTEN)
        found[file.name] = page.evaluate(FIND, ".mabe-read")
    assert {name: words for name, words in found.items() if words} == {}

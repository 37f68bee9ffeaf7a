"""The tutorial on panels in a real JupyterLab and Chromium, as a person would work it.

See `browsing.py` for what it needs and what it keeps.
"""
import json
import re

import pytest
from browsing import PAGE, PANELS, cancel_all, chromium, expect, line, nameless, panel, \
    press, serving, shoot, told  # noqa: F401

KERNEL = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel"
LONG = """import time
for i in range(3000):
    progress(i + 1, 3000)
    print("still here", i, flush=True)
    time.sleep(0.1)"""

pytestmark = pytest.mark.browser


def settings(folder):
    "Settings of a lab that shows no news and draws all cells."
    for plugin, value in {
            "apputils-extension/notification": dict(fetchNews="false", doNotDisturbMode=True,
                                                    checkForUpdates=False),
            "notebook-extension/tracker": dict(windowingMode="none")}.items():
        file = folder/"@jupyterlab"/f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "The tutorial, open, with all cells run."
    tmp = tmp_path_factory.mktemp("lab")
    settings(tmp/"settings")
    words = ["jupyter", "lab", "--allow-root", "--ip=127.0.0.1",
             "--ServerApp.port_retries=0", f"--ServerApp.root_dir={tmp/'nb'}",
             "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
    with serving(tmp, *words) as (url, token), chromium() as found:
        found.tmp = tmp
        found.page.goto(f"{url}/lab/tree/tutorials/{PAGE}?reset&token={token}")
        idle(found.page)
        choose(found.page, "Run", "Run All Cells")
        ran(found.page)
        yield found
        cancel_all(tmp)


def idle(page): page.wait_for_function(f"{KERNEL}?.status === 'idle'")


def choose(page, menu, item):
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.get_by_role("menuitem", name=item, exact=True).click()


def ran(page):
    "Every cell has run."
    page.wait_for_function(f"""() => {{
        const cells = window.jupyterapp.shell.currentWidget.content.widgets;
        return {KERNEL}.status === 'idle' && cells.every(
            c => c.model.type !== 'code' || c.model.executionCount > 0) }}""")
    expect(panel(page, PANELS[-1])).to_be_visible()


def test_every_control_has_a_name_in_the_browser(lab):
    for name in PANELS: assert not list(nameless(panel(lab.page, name))), name


def test_choose_a_card(lab):
    box = panel(lab.page, "GPUPanel")
    box.get_by_label("Provider").select_option("Modal")
    expect(box.get_by_text("USD an hour, as of")).to_be_visible()
    box.get_by_label("Card", exact=True).select_option(label="L4 · 24 GB")
    expect(box.get_by_text("24 GB on each card")).to_be_visible()
    expect(panel(lab.page, "JobPanel").get_by_text("at most about 0.")).to_be_visible()
    press(box, "Take the advice")
    box.get_by_label("Show as code").check()
    expect(box.get_by_label("Code", exact=True)).to_have_value("on, gpu = 'modal', 'A100-40GB'")
    box.get_by_label("Provider").select_option("this machine")
    expect(panel(lab.page, "JobPanel").get_by_text("nothing is billed")).to_be_visible()


def test_cancel(lab):
    box = panel(lab.page, "JobPanel")
    source, back = (box.get_by_label(n, exact=True) for n in
                    ("To send", "Variables to get back"))
    had = source.input_value(), back.input_value()
    source.fill(LONG)
    back.fill("")
    press(box, "Send")
    expect(box.get_by_text(re.compile(r"still here \d")).first).to_be_visible()
    press(box, "Cancel")
    expect(line(box)).to_contain_text("cancelled")
    expect(box.get_by_role("button", name="Send")).to_be_enabled()
    source.fill(had[0])
    back.fill(had[1])


def test_send_a_cell_while_the_kernel_is_free(lab):
    box = panel(lab.page, "JobPanel")
    press(box, "Send")
    expect(box.get_by_role("progressbar")).to_be_visible()
    expect(line(box)).to_contain_text("running")
    assert lab.page.evaluate(f"""async () => {{
        const start = performance.now();
        await {KERNEL}.requestExecute({{code: '1 + 1'}}).done;
        return performance.now() - start }}""") < 500
    expect(box.get_by_text("20 frames", exact=False).first).to_be_visible()
    expect(line(box)).to_contain_text("done")
    picture = box.get_by_role("img", name="figure fig/001.png of the job")
    expect(picture).to_be_visible()
    assert picture.evaluate("e => e.complete && e.naturalWidth > 100")


def test_train_and_watch_the_curve(lab):
    box = panel(lab.page, "TrainPanel")
    press(box, "Start")
    curve = box.locator("svg[aria-label^='loss up to epoch']")
    first = curve.get_attribute("aria-label")
    expect(curve).not_to_have_attribute("aria-label", first)
    expect(line(box)).to_contain_text("running")
    expect(line(box)).to_contain_text("done")
    expect(box.get_by_text("no GPU readings on this machine")).to_be_visible()
    assert box.get_by_role("region").evaluate( # the end of the log is what is seen
        "e => e.firstChild.getBoundingClientRect().bottom <= "
        "e.getBoundingClientRect().bottom + 1")


def test_sweep_and_use_the_batch(lab):
    box, form = panel(lab.page, "SweepPanel"), panel(lab.page, "TrainPanel")
    press(box, "Measure")
    expect(line(box)).to_contain_text("1 measured")
    assert box.get_by_role("button", name="Cancel").is_enabled()
    expect(line(box)).to_contain_text("done")
    expect(box.get_by_role("table")).to_contain_text("windows/s")
    about = box.get_by_role("img").get_attribute("aria-label")
    press(box, "Use this batch")
    knee = about.partition("knee ")[2].partition(",")[0]
    form.get_by_role("tab", name="Fit").click()
    expect(form.get_by_label("Batch (windows)")).to_have_value(knee)
    expect(panel(lab.page, "GPUPanel").get_by_label("Batch (windows)")).to_have_value(knee)


def test_compare_and_take_a_card(lab):
    box, card = panel(lab.page, "ComparePanel"), panel(lab.page, "GPUPanel")
    box.get_by_label("Places", exact=True).select_option(label="this machine")
    expect(box.get_by_text("nothing is billed")).to_be_visible()
    press(box, "Measure")
    expect(line(box)).to_contain_text("done")
    for word in ("measured", "predicted"):
        expect(box.get_by_role("cell", name=word, exact=True).first).to_be_visible()
    expect(box.get_by_role("img")).to_be_visible()
    there = box.get_by_label("Place to take").locator("option", has_text="modal:L4 ·")
    box.get_by_label("Place to take").select_option(there.inner_text())
    press(box, "Use this card")
    expect(card.get_by_label("Provider")).to_have_value("Modal")
    expect(panel(lab.page, "JobPanel").get_by_text("on modal L4: at most")).to_be_visible()
    card.get_by_label("Provider").select_option("this machine")
    expect(panel(lab.page, "JobPanel").get_by_text("nothing is billed")).to_be_visible()


def test_screens(lab):
    "Nothing wider than the page, in light and dark; kept for eyes where MABE_SHOTS says."
    lab.page.evaluate("window.jupyterapp.shell.collapseLeft()")
    panel(lab.page, "GPUPanel").get_by_label("Provider").select_option("Modal")
    for theme in ("Light", "Dark"):
        lab.page.evaluate("theme => window.jupyterapp.commands.execute("
                          "'apputils:change-theme', {theme})", f"JupyterLab {theme}")
        expect(lab.page.locator("body")).to_have_attribute(
            "data-jp-theme-light", str(theme == "Light").lower())
        shoot(lab.page, PANELS, theme.lower(), (1280, 768, 520))
    panel(lab.page, "GPUPanel").get_by_label("Provider").select_option("this machine")
    expect(panel(lab.page, "JobPanel").get_by_text("nothing is billed")).to_be_visible()


def test_follow_again_after_a_restart(lab):
    page, box = lab.page, panel(lab.page, "JobPanel")
    box.get_by_label("To send", exact=True).fill(LONG)
    box.get_by_label("Variables to get back").fill("")
    press(box, "Send")
    expect(box.get_by_text(re.compile(r"still here \d")).first).to_be_visible()
    before = box.element_handle()
    choose(page, "Kernel", "Restart Kernel and Run All Cells…")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    before.wait_for_element_state("hidden") # until it runs, all there is looks as it should
    expect(line(panel(page, "JobPanel"))).to_contain_text("running")
    ran(page)
    box = panel(page, "JobPanel")
    expect(box.get_by_label("To send", exact=True)).to_have_value(LONG)
    expect(box.get_by_text(re.compile(r"still here \d")).first).to_be_visible() # any: a busy machine is late
    press(box, "Cancel")
    expect(line(box)).to_contain_text("cancelled")


def test_nothing_went_wrong_on_the_way(lab):
    assert lab.errors == []
    stderr = lab.page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    assert stderr.all_inner_texts() == []

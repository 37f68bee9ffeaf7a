"""The tutorial on panels in a real JupyterLab and Chromium, as a person would work it.

`MABE_SHOTS=FOLDER` keeps screenshots; look at them. Needs `pip install playwright` and a
Chromium on the path.
"""
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

TOP = Path(__file__).resolve().parents[1]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which(
    "google-chrome")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
         "--force-color-profile=srgb"]
PAGE = "06_panels.ipynb"
KERNEL = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel"
LONG = """import time
for i in range(3000):
    progress(i + 1, 3000)
    print("still here", i, flush=True)
    time.sleep(0.1)"""

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
if CHROMIUM is None: pytest.skip("needs Chromium on the path", allow_module_level=True)
expect = sync_api.expect


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def settings(folder):
    "Settings of a lab that shows no news and draws all cells."
    for plugin, value in {
            "apputils-extension/notification": dict(fetchNews="false", doNotDisturbMode=True,
                                                    checkForUpdates=False),
            "notebook-extension/tracker": dict(windowingMode="none")}.items():
        file = folder/"@jupyterlab"/f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))


@contextmanager
def jupyter_lab(tmp):
    "A server on loopback with its own settings and jobs; ended by its own handle."
    (tmp/"nb"/"tutorials").mkdir(parents=True)
    shutil.copy(TOP/"nbs"/"tutorials"/PAGE, tmp/"nb"/"tutorials")
    shutil.copytree(TOP/"nbs"/"images", tmp/"nb"/"images")
    settings(tmp/"settings")
    port, token = free_port(), secrets.token_hex(16)
    own = {f"JUPYTER{k}": str(tmp/v) for k, v in dict(
        LAB_SETTINGS_DIR="settings", LAB_WORKSPACES_DIR="ws", _RUNTIME_DIR="rt",
        _CONFIG_DIR="cfg").items()}
    env = {**os.environ, **own, "JUPYTER_TOKEN": token, "IPYTHONDIR": str(tmp/"ip"),
           "MABE_HOME": str(tmp/"home"), "XDG_CACHE_HOME": str(tmp/"cache"),
           "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root",
             "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
             f"--ServerApp.root_dir={tmp/'nb'}", "--LabApp.expose_app_in_browser=True",
             "--LabApp.extension_manager=readonly"]
    with open(tmp/"lab.log", "w") as log:
        server = subprocess.Popen(words, env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(f"http://127.0.0.1:{port}/api?token={token}", server, tmp/"lab.log")
        yield f"http://127.0.0.1:{port}/lab/tree/tutorials/{PAGE}?reset&token={token}"
    finally:
        server.terminate()
        try: server.wait(15)
        except subprocess.TimeoutExpired: server.kill()


def wait_for(url, server, log):
    for _ in range(240):
        if server.poll() is not None: break
        try: return urllib.request.urlopen(url, timeout=2).close()
        except OSError: time.sleep(0.25)
    raise RuntimeError(log.read_text()[-2000:])


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "The tutorial, open, with all cells run."
    tmp = tmp_path_factory.mktemp("lab")
    with jupyter_lab(tmp) as url, sync_api.sync_playwright() as pw:
        browser = pw.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page, errors = browser.new_page(viewport=dict(width=1280, height=1100)), []
        page.set_default_timeout(30_000)
        expect.set_options(timeout=30_000)
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.on("console", lambda m: errors.append(f"{m.text} {m.location.get('url')}")
                if m.type == "error" else None)
        page.goto(url)
        idle(page)
        choose(page, "Run", "Run All Cells")
        ran(page)
        yield SimpleNamespace(page=page, errors=errors, tmp=tmp)
        cancel_all(tmp)
        browser.close()


def cancel_all(tmp):
    "No job outlives the test."
    env = {**os.environ, "MABE_HOME": str(tmp/"home")}
    code = ("from mabe_nb.remote.job import jobs\n"
            "for job in jobs(): job.cancel()")
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)


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
    expect(panel(page, "TrainPanel")).to_be_visible()


def panel(page, name): return page.locator(f".mabe-{name}")


def line(box): return box.locator("> .widget-html [role=status]").last


def press(box, name): box.get_by_role("button", name=name, exact=True).click()


def test_every_control_has_a_name_in_the_browser(lab):
    for name in ("GPUPanel", "JobPanel", "TrainPanel"):
        for control in panel(lab.page, name).locator("button, input, select, textarea").all():
            said = control.evaluate("e => e.labels?.[0]?.innerText || e.innerText || "
                                    "e.getAttribute('aria-label') || ''")
            assert said.strip(), (name, control.evaluate("e => e.outerHTML"))


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
    expect(box.get_by_text("still here 3")).to_be_visible()
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


def test_screens(lab):
    "Nothing wider than the page, in light and dark; kept for eyes where MABE_SHOTS says."
    shots = Path(os.environ.get("MABE_SHOTS", lab.tmp))
    lab.page.evaluate("window.jupyterapp.shell.collapseLeft()")
    panel(lab.page, "GPUPanel").get_by_label("Provider").select_option("Modal")
    for theme in ("Light", "Dark"):
        lab.page.evaluate("theme => window.jupyterapp.commands.execute("
                          "'apputils:change-theme', {theme})", f"JupyterLab {theme}")
        expect(lab.page.locator("body")).to_have_attribute(
            "data-jp-theme-light", str(theme == "Light").lower())
        for width in (1280, 768):
            lab.page.set_viewport_size(dict(width=width, height=1900))
            for name in ("GPUPanel", "JobPanel", "TrainPanel"):
                box = panel(lab.page, name)
                box.scroll_into_view_if_needed()
                assert box.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), (name, width)
                box.screenshot(path=shots/f"{name}-{width}-{theme.lower()}.png")
    lab.page.set_viewport_size(dict(width=1280, height=1100))
    panel(lab.page, "GPUPanel").get_by_label("Provider").select_option("this machine")
    expect(panel(lab.page, "JobPanel").get_by_text("nothing is billed")).to_be_visible()


def test_follow_again_after_a_restart(lab):
    page, box = lab.page, panel(lab.page, "JobPanel")
    box.get_by_label("To send", exact=True).fill(LONG)
    box.get_by_label("Variables to get back").fill("")
    press(box, "Send")
    expect(box.get_by_text("still here 1", exact=False).first).to_be_visible()
    choose(page, "Kernel", "Restart Kernel and Run All Cells…")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    expect(line(panel(page, "JobPanel"))).to_have_text("idle")
    ran(page)
    box = panel(page, "JobPanel")
    running = box.get_by_label("Known jobs").locator("option", has_text="running")
    expect(running).to_have_count(1)
    box.get_by_label("Known jobs").select_option(running.inner_text())
    press(box, "Follow")
    expect(box.get_by_text("still here 3", exact=False).first).to_be_visible()
    press(box, "Cancel")
    expect(line(box)).to_contain_text("cancelled")


def test_nothing_went_wrong_on_the_way(lab):
    assert lab.errors == []
    assert not lab.page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count()

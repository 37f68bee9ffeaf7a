"A notebook in a real JupyterLab and Chromium, for browser tests and for bench/player.py."
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
from types import SimpleNamespace

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, (
    "chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
         "--force-color-profile=srgb"]
KERNEL = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel"
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": dict(
        fetchNews="false", doNotDisturbMode=True, checkForUpdates=False),
    "@jupyterlab/notebook-extension/tracker": dict(windowingMode="none"),
    "@jupyter-widgets/jupyterlab-manager/plugin": dict(saveState=True)}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(url, server, log):
    for _ in range(240):
        if server.poll() is not None: break
        try: return urllib.request.urlopen(url, timeout=2).close()
        except OSError: time.sleep(0.25)
    raise RuntimeError(log.read_text()[-2000:])


def own_place(tmp):
    "A free port, a token, and an environment whose settings and jobs lie in a folder."
    import matplotlib.font_manager # makes its cache: a kernel would complain of the wait
    port, token = free_port(), secrets.token_hex(16)
    own = {f"JUPYTER{k}": str(tmp/v) for k, v in dict(
        LAB_SETTINGS_DIR="settings", LAB_WORKSPACES_DIR="ws", _RUNTIME_DIR="rt",
        _CONFIG_DIR="cfg").items()}
    return port, token, {**os.environ, **own, "JUPYTER_TOKEN": token,
                         "IPYTHONDIR": str(tmp/"ip"), "MABE_HOME": str(tmp/"home"),
                         "XDG_CACHE_HOME": str(tmp/"cache"), "OMP_NUM_THREADS": "1",
                         "MPLCONFIGDIR": matplotlib.get_cachedir()}


@contextmanager
def started(words, env, log, url, folder):
    "A server that answers; ended by its own handle."
    with open(log, "w") as file:
        process = subprocess.Popen(words, env=env, stdout=file, stderr=subprocess.STDOUT,
                                   cwd=folder)
    try:
        wait_for(url, process, log)
        yield
    finally:
        process.terminate()
        try: process.wait(15)
        except subprocess.TimeoutExpired: process.kill()


def new_page(browser, width=1280, height=1100):
    "A page, and what its console complains of."
    from playwright.sync_api import expect
    page, errors = browser.new_page(viewport=dict(width=width, height=height)), []
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("console", lambda m: errors.append(f"{m.text} {m.location.get('url')}")
            if m.type == "error" else None)
    return page, errors


@contextmanager
def server(tmp, cells):
    "A Lab on loopback with its own settings, and one notebook; gives the notebook's URL."
    (tmp/"nb").mkdir(parents=True, exist_ok=True)
    nb = new_notebook(cells=[new_code_cell(c) for c in cells], metadata=dict(
        kernelspec=dict(name="python3", display_name="python3", language="python")))
    nbformat.write(nb, tmp/"nb"/"page.ipynb")
    for name, values in SETTINGS.items():
        file = tmp/"settings"/f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    port, token, env = own_place(tmp)
    words = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root",
             "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
             f"--ServerApp.root_dir={tmp/'nb'}", "--LabApp.expose_app_in_browser=True",
             "--LabApp.extension_manager=readonly"]
    url = f"http://127.0.0.1:{port}"
    with started(words, env, tmp/"server.log", f"{url}/api?token={token}", tmp/"nb"):
        yield f"{url}/lab/tree/page.ipynb?reset&token={token}"


@contextmanager
def opened(tmp, cells, width=1280, height=1100, script=""):
    "The notebook in a page, all cells run: `page`, `errors`, `file`. `script` runs before it."
    from playwright.sync_api import sync_playwright
    with server(tmp, cells) as url, sync_playwright() as pw:
        browser = pw.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page, errors = new_page(browser, width, height)
        page.add_init_script(script)
        page.goto(url)
        page.wait_for_function(f"{KERNEL}?.status === 'idle'")
        run_all(page)
        yield SimpleNamespace(page=page, errors=errors, url=url, browser=browser,
                              file=tmp/"nb"/"page.ipynb")
        browser.close()


def run_all(page):
    "Run all cells, from the menu, to the end."
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(f"""() => {{
        const cells = window.jupyterapp.shell.currentWidget.content.widgets;
        return {KERNEL}.status === 'idle' && cells.every(
            c => c.model.type !== 'code' || c.model.executionCount > 0) }}""")


def save(page):
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")


WATCH = """() => {
    window.painted = [];
    const look = t => {
        const f = document.querySelector('[data-frame]')?.dataset.frame;
        const last = window.painted.at(-1);
        if (f !== undefined && (!last || last[1] !== +f)) window.painted.push([t, +f]);
        window.looking = requestAnimationFrame(look);
    };
    cancelAnimationFrame(window.looking);
    requestAnimationFrame(look) }"""


def watch(page):
    "From now on, note the time of each frame of the player that the page paints."
    page.evaluate(WATCH)


def painted(page) -> list: # (milliseconds, frame)
    return page.evaluate("window.painted")


def faults_in_log(tmp) -> list:
    "Tracebacks in the server's log, but those of Tornado writing to a page that is gone."
    _, *traces = (tmp/"server.log").read_text().split("Traceback (most recent call last):")
    gone = ("tornado/websocket.py", "tornado.iostream.StreamClosedError", "WebSocketClosedError")
    return [t[:2000] for t in traces if not (gone[0] in t and (gone[1] in t or gone[2] in t))]

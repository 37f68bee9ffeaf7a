"""How long a click in a panel waits for its first answer, in JupyterLab and Chromium.

python bench/clicks.py --json F     one object: date, machine, versions, rows

An answer is the first thing in the panel that changes because of the click: words, a
control switched off or on, a list, something shown or hidden. One row a button; at rest,
and while a job runs that the panel follows. Needs playwright.
"""
import argparse
import json
import os
import platform
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path
from sys import path

path.insert(0, str(Path(__file__).resolve().parents[1]/"tests"))
import lab_page

CELLS = ["""from mabe_nb.view.panels.gpu import GPUPanel
card = GPUPanel("local")
card""", """from mabe_nb.view.panels.job import JobPanel
job = JobPanel("print(1)", gpu=card, timeout=600)
job""", """from mabe_nb.view.panels.train import TrainPanel
training = TrainPanel("colony", gpu=card)
training"""]
LONG = "import time\nfor k in range(600):\n    print(k)\n    time.sleep(0.2)"
WATCH = """panel => {
    const box = document.querySelector(`.mabe-panel.mabe-${panel}`);
    window.clickTook = null;
    let since = null;
    const at = e => { since ??= e.timeStamp };
    box.addEventListener('click', at, {capture: true, once: true});
    const seen = new MutationObserver(() => {
        if (since === null || window.clickTook !== null) return;
        window.clickTook = performance.now() - since;
        seen.disconnect();
    });
    seen.observe(box, {subtree: true, childList: true, characterData: true,
                       attributes: true, attributeFilter: ['disabled', 'style']}) }"""


def click(page, panel, role, name):
    "Milliseconds from a click to the first change, when the button can be pressed."
    from playwright.sync_api import TimeoutError, expect
    control = page.locator(f".mabe-{panel}").get_by_role(role, name=name, exact=True)
    expect(control).to_be_enabled()
    control.scroll_into_view_if_needed()
    page.wait_for_timeout(400) # what an earlier click set going is done
    page.evaluate(WATCH, panel)
    control.click()
    try: page.wait_for_function("window.clickTook !== null", timeout=10_000)
    except TimeoutError:
        raise SystemExit(f"{name} of {panel}: a click changed nothing") from None
    return page.evaluate("window.clickTook")


def summary(what, took):
    took = sorted(took)
    return {"what": what, "clicks": len(took), "median_ms": round(took[len(took) // 2], 1),
            "p95_ms": round(took[min(int(len(took) * 0.95), len(took) - 1)], 1),
            "longest_ms": round(took[-1], 1)}


def measure(times):
    "Rows of one button each, and one of all clicks."
    from playwright.sync_api import expect
    with tempfile.TemporaryDirectory() as tmp, \
            lab_page.opened(Path(tmp)/"lab", CELLS) as lab:
        page, took = lab.page, {}
        job = page.locator(".mabe-JobPanel")
        page.locator(".mabe-TrainPanel").wait_for()
        line = job.locator(".mabe-status [role=status]")

        def often(what, *button, n=times):
            took.setdefault(what, []).extend(click(page, *button) for _ in range(n))
        often("show as code", "JobPanel", "checkbox", "Show as code")
        often("check again", "GPUPanel", "button", "Check again")
        often("refresh list", "JobPanel", "button", "Refresh list")
        for _ in range(max(times // 2, 3)):
            often("send", "JobPanel", "button", "Send", n=1)
            expect(line).to_contain_text("done")
        job.get_by_label("To send", exact=True).fill(LONG)
        often("send", "JobPanel", "button", "Send", n=1)
        expect(line).to_contain_text("running")
        often("show as code, job runs", "JobPanel", "checkbox", "Show as code")
        often("refresh list, job runs", "JobPanel", "button", "Refresh list")
        for _ in range(max(times // 2, 3)):
            often("detach", "JobPanel", "button", "Detach", n=1)
            often("follow", "JobPanel", "button", "Follow", n=1)
        often("cancel", "JobPanel", "button", "Cancel", n=1)
        expect(line).to_contain_text("cancelled")
        assert not lab.errors, lab.errors
    rows = [summary(what, values) for what, values in took.items()]
    return rows + [summary("all", [t for values in took.values() for t in values])]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--times", type=int, default=10, help="clicks on each button")
    p.add_argument("--json", type=Path, help="file for the figures")
    args = p.parse_args()
    load = os.getloadavg()[0]
    rows = measure(args.times)
    for row in rows: print(", ".join(f"{k} {v}" for k, v in row.items()))
    names = ("ipywidgets", "anywidget", "jupyterlab", "ipykernel", "playwright")
    about = {"date": date.today().isoformat(), "rows": rows,
             "machine": {"cpus": os.cpu_count(), "system": platform.platform(),
                         "load_before": round(load, 2),
                         "load_after": round(os.getloadavg()[0], 2)},
             "versions": {n: version(n) for n in names} | {
                 "python": platform.python_version()}}
    if args.json: args.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What the player paints in Chromium at full width: 36,000 frames of four mice.

python bench/player.py --json F     one object: date, machine, versions, rows
Rows are {"what": ..., "painted_s": x, "seconds": x, "longest_gap_ms": x}; a frame counts
when the page has painted it (`requestAnimationFrame`). The row of keys has milliseconds
from a key to the frame after the one that shows it. Needs playwright and a Chromium.
"""
import argparse
import json
import math
import os
import platform
import sys
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/"tests"))
import lab_page

CELL = """import numpy as np
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.view.video.player import Player
short = make_recording(seed=1, frames=3600, mice=4)
rec = short.replace(xy=np.tile(short.xy, (10, 1, 1, 1)))
player = Player(rec, pair=("mouse1", "mouse2"))
player"""


def spent():
    "Seconds of processor time so far: kernel, server and browser."
    total = dict.fromkeys(("kernel", "server", "browser"), 0.0)
    for process in psutil.Process().children(recursive=True):
        try: words, used = " ".join(process.cmdline()), process.cpu_times()
        except psutil.Error: continue
        who = ("kernel" if "ipykernel" in words else "server" if "jupyter" in words else
               "browser" if "--type=" in words or "chrom" in words else None)
        if who: total[who] += used.user + used.system
    return total


def rates(what, seen, before):
    "A row from the times at which frames were painted."
    used = {k: v - before[k] for k, v in spent().items()}
    times = [t for t, _ in seen]
    gaps = [b - a for a, b in zip(times, times[1:])]
    seconds = (times[-1] - times[0]) / 1000
    return {"what": what, "painted_s": round(len(gaps) / seconds, 1),
            "seconds": round(seconds, 1), "longest_gap_ms": round(max(gaps)),
            "cpu_ms_a_frame": {k: round(1000 * v / len(gaps), 1) for k, v in used.items()},
            "frames": [seen[0][1], seen[-1][1]]}


def play(page, box, speed, seconds):
    box.get_by_label("Frame", exact=True).fill("300")
    box.get_by_label("Frame", exact=True).press("Enter")
    box.get_by_label("Speed").select_option(f"{speed:g} ×")
    box.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_timeout(1000)
    before = spent()
    lab_page.watch(page)
    page.wait_for_timeout(seconds * 1000)
    seen = lab_page.painted(page)
    box.get_by_role("button", name="Pause", exact=True).click()
    return rates(f"play {speed:g} x", seen, before)


def scrub(page, box, shown, seconds):
    "Drag to and fro along the ethogram."
    box.get_by_label("Time shown").select_option(shown)
    box.locator(".mabe-strips").scroll_into_view_if_needed()
    area = box.locator(".mabe-strips").bounding_box()
    y = area["y"] + area["height"] * 0.4
    at = lambda t: (area["x"] + area["width"] * (0.55 - 0.3 * math.cos(t)), y)
    page.mouse.move(*at(0))
    page.mouse.down()
    before = spent()
    lab_page.watch(page)
    start = time.monotonic()
    while (t := time.monotonic() - start) < seconds: page.mouse.move(*at(t))
    seen = lab_page.painted(page)
    page.mouse.up()
    return rates(f"drag, {shown}", seen, before)


TIME_KEYS = """() => {
    window.took = [];
    let since = null;
    window.addEventListener('keydown', e => { since ??= e.timeStamp }, true);
    new MutationObserver(() => requestAnimationFrame(() => {
        if (since !== null) window.took.push(performance.now() - since);
        since = null;
    })).observe(document.querySelector('[data-frame]'), {attributeFilter: ['data-frame']}) }"""


def keys(page, box, presses=60):
    "Milliseconds from a key to its picture."
    box.locator(".mabe-arena").click()
    page.evaluate(TIME_KEYS)
    for k in range(presses):
        page.keyboard.press(("ArrowRight", "ArrowLeft", "Shift+ArrowRight", "b")[k % 4])
        page.wait_for_timeout(60)
    took = sorted(page.evaluate("window.took"))
    return {"what": "keys", "pressed": presses, "seen": len(took),
            "median_ms": round(took[len(took) // 2], 1),
            "p95_ms": round(took[int(len(took) * 0.95)], 1)}


def measure(seconds):
    "All rows, and the size of the notebook after them."
    with tempfile.TemporaryDirectory() as tmp, \
            lab_page.opened(Path(tmp)/"lab", [CELL], 1800, 1200) as lab:
        lab.page.evaluate("window.jupyterapp.shell.collapseLeft()")
        box = lab.page.locator(".mabe-panel.mabe-Player")
        box.locator("[data-frame]").wait_for()
        lab.page.wait_for_timeout(2000)
        width = box.locator(".mabe-arena").bounding_box()["width"]
        rows = [play(lab.page, box, speed, seconds) for speed in (1, 2, 8)]
        rows += [scrub(lab.page, box, shown, seconds) for shown in ("1 min", "whole video")]
        rows.append(keys(lab.page, box))
        lab_page.save(lab.page)
        lab.page.wait_for_function(
            "!window.jupyterapp.shell.currentWidget.context.model.dirty")
        assert not lab.errors, lab.errors
        return rows, width, lab.file.stat().st_size


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=10, help="for each row")
    p.add_argument("--json", type=Path, help="file for the figures")
    args = p.parse_args()
    load = os.getloadavg()[0]
    rows, width, size = measure(args.seconds)
    for row in rows: print(", ".join(f"{k} {v}" for k, v in row.items()))
    print(f"notebook on disk {size:,} bytes")
    names = ("ipywidgets", "anywidget", "jupyterlab", "playwright", "numpy", "matplotlib")
    about = {"date": date.today().isoformat(), "rows": rows, "notebook_bytes": size,
             "width_px": round(width),
             "video": "36,000 frames, 4 mice x 7 parts, 30 frames/s",
             "machine": {"cpus": os.cpu_count(), "system": platform.platform(),
                         "load_before": round(load, 2),
                         "load_after": round(os.getloadavg()[0], 2), "gpu": "none, software painting"},
             "versions": {n: version(n) for n in names} | {
                 "python": platform.python_version()}}
    if args.json: args.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()

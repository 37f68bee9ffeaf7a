"""What the player paints in Chromium at full width: 36,000 frames of four mice.

python bench/player.py --json F     one object: date, machine, versions, rows
python bench/player.py --review     `mb.review` of 60 minutes that a run has predicted, first
                                    of poses alone, then with an mp4 under them
Rows are {"what": ..., "painted_s": x, "seconds": x, "longest_gap_ms": x}; a frame counts
when the page has painted it (`requestAnimationFrame`). The row of keys has milliseconds
from a key to the frame after the one that shows it; of a review also from an answer (y, 1,
c) to the picture of the next moment and to the word that it is saved. Needs playwright and a Chromium.
"""
import argparse
import json
import math
import os
import platform
import subprocess
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


RUN = """import sys
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import RecordingList
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.runs import train
data = RecordingList([make_recording(seed=s, frames=3600, video_id=str(s)) for s in range(2, 6)])
train(data, "run", TrainConfig(features="coords", hidden_size=16, num_layers=3, epochs=8,
      learning_rate=0.01, num_workers=1, device="cpu"), valid_ids=["5"], cache="cache")"""
REVIEW = """import time
import mabe_nb as mb
from pathlib import Path
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import RecordingList
rec = make_recording(seed=1, frames=108_000, video_id="long")
data = RecordingList([rec.replace(labelled=None, bouts=rec.bouts[:0])], ".")
begun = time.perf_counter()
panel = mb.review("run", data, 30, author="Ann", films=dict(films))
Path("seconds").write_text(str(time.perf_counter() - begun))
panel"""
FILMS = """window.films = [];
const make = document.createElement.bind(document);
document.createElement = (tag, ...how) => {
    const e = make(tag, ...how);
    if (tag === "video") { films.push(e);
        e.addEventListener("loadeddata", () => { window.filmed = performance.now() }) }
    return e }"""


def make_run(folder):
    "A small run, and an hour of mp4 from one minute said sixty times."
    import imageio_ffmpeg
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", RUN], check=True, cwd=folder, capture_output=True)
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error"]
    subprocess.run([*ffmpeg, "-f", "lavfi", "-i", "testsrc2=size=640x480:rate=30", "-t", "60",
                    "-c:v", "libx264", "-preset", "veryfast", "-crf", "30", "-pix_fmt", "yuv420p",
                    "minute.mp4"], check=True, cwd=folder)
    subprocess.run([*ffmpeg, "-stream_loop", "59", "-i", "minute.mp4", "-c", "copy",
                    "-movflags", "+faststart", "hour.mp4"], check=True, cwd=folder)


def memory():
    "MB that belong to one process alone: the kernel, and the page's renderer."
    held = {"kernel": 0.0, "page": 0.0}
    for process in psutil.Process().children(recursive=True):
        try: words, used = " ".join(process.cmdline()), process.memory_full_info().uss / 1e6
        except psutil.Error: continue
        if "ipykernel" in words: held["kernel"] += used
        elif "--type=renderer" in words: held["page"] = max(held["page"], used)
    return {k: round(v) for k, v in held.items()}


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


TIME_ANSWERS = """() => {
    window.shown = []; window.saved = [];
    let asked = null, heard = null;
    const box = document.querySelector('.mabe-ReviewPanel');
    window.addEventListener('keydown', e => {
        if ('y1c'.includes(e.key)) asked = heard = e.timeStamp }, true);
    new MutationObserver(() => requestAnimationFrame(() => {
        if (asked !== null) window.shown.push(performance.now() - asked);
        asked = null;
    })).observe(box.querySelector('[data-frame]'), {attributeFilter: ['data-frame']});
    new MutationObserver(() => {
        const said = box.querySelector('.mabe-status [role=status]').innerText;
        if (heard === null || !said.includes('saved')) return;
        window.saved.push(performance.now() - heard);
        heard = null;
    }).observe(box.querySelector('.mabe-status'), {subtree: true, childList: true,
                                                   characterData: true}) }"""


def answers(page, box, presses=40):
    "Milliseconds from an answer to the next moment's picture, and to the word that it is saved."
    box.locator(".mabe-arena").click()
    page.evaluate(TIME_ANSWERS)
    for k in range(presses):
        page.keyboard.press("y1c"[k % 3])
        page.wait_for_function(f"window.saved.length > {k}")
        page.wait_for_timeout(500)
    row = {"what": "answers", "pressed": presses}
    for name in ("shown", "saved"):
        took = sorted(page.evaluate(f"window.{name}"))
        row |= {f"{name}_n": len(took), f"{name}_median_ms": round(took[len(took) // 2], 1),
                f"{name}_p95_ms": round(took[int(len(took) * 0.95)], 1)}
    return row


def review_rows(folder, seconds, film):
    "Rows of a review, with an mp4 under the poses or without."
    cell = f"films = {[('long', 'hour.mp4')] if film else []!r}\n{REVIEW}"
    place = folder/f"lab{film:d}"
    (place/"nb").mkdir(parents=True)
    for name in ("run", "hour.mp4"): (place/"nb"/name).symlink_to(folder/"made"/name)
    with lab_page.opened(place, [cell], 1800, 1200, FILMS) as lab:
        lab.page.evaluate("window.jupyterapp.shell.collapseLeft()")
        box = lab.page.locator(".mabe-panel.mabe-ReviewPanel")
        box.locator("[data-frame]").wait_for()
        before = lab.page.evaluate("performance.now()")
        row = {"what": "open", "review_s": round(float((place/"nb"/"seconds").read_text()), 1)}
        if film:
            lab.page.wait_for_function("window.filmed", timeout=300_000)
            row["film_after_s"] = round((lab.page.evaluate("filmed") - before) / 1000, 1)
        lab.page.wait_for_timeout(3000)
        rows = [row | {"memory_mb": memory()}]
        rows += [play(lab.page, box, speed, seconds) for speed in (1, 2)]
        rows += [scrub(lab.page, box, "whole video", seconds), keys(lab.page, box)]
        box.get_by_label("Time shown").select_option("1 min")
        rows.append(answers(lab.page, box))
        kept = (place/"nb"/"corrections.jsonl").read_text().splitlines()
        assert len(kept) == rows[-1]["pressed"] == rows[-1]["saved_n"], (len(kept), rows[-1])
        if shots := os.environ.get("MABE_SHOTS"):
            lab.page.screenshot(path=Path(shots)/f"review{film:d}.png")
        assert not lab.errors, lab.errors
        return [r | {"film": film} for r in [*rows, {"what": "end", "memory_mb": memory()}]]


def measure_review(seconds):
    "All rows of both reviews."
    with tempfile.TemporaryDirectory() as tmp:
        make_run(Path(tmp)/"made")
        size = (Path(tmp)/"made"/"hour.mp4").stat().st_size
        return [r for film in (False, True) for r in review_rows(Path(tmp), seconds, film)], size


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
    p.add_argument("--review", action="store_true", help="a review of 60 minutes instead")
    args = p.parse_args()
    load = os.getloadavg()[0]
    if args.review:
        rows, size = measure_review(args.seconds)
        held = {"film_bytes": size, "video": "108,000 frames, 2 mice x 7 parts, 30 frames/s"}
    else:
        rows, width, size = measure(args.seconds)
        held = {"notebook_bytes": size, "width_px": round(width),
                "video": "36,000 frames, 4 mice x 7 parts, 30 frames/s"}
    for row in rows: print(", ".join(f"{k} {v}" for k, v in row.items()))
    print(held)
    names = ("ipywidgets", "anywidget", "jupyterlab", "playwright", "numpy", "matplotlib")
    about = {"date": date.today().isoformat(), "rows": rows, **held,
             "machine": {"cpus": os.cpu_count(), "system": platform.platform(),
                         "load_before": round(load, 2),
                         "load_after": round(os.getloadavg()[0], 2), "gpu": "none, software painting"},
             "versions": {n: version(n) for n in names} | {
                 "python": platform.python_version()}}
    if args.json: args.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Pictures of every panel: light and dark, wide and narrow, idle, busy, done and error.

python .ci/panels.py FOLDER            all of them, to be looked at
python .ci/panels.py FOLDER --docs     nbs/images/panels.png and player.png from them as well
Needs playwright and a Chromium, and Pillow for --docs. Everything runs on this machine.
"""
import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/"tests"))
import lab_page
from browsing import cancel_all, expect

TOP = Path(__file__).resolve().parents[1]

CELLS = ["""from mabe_nb.data.synthetic import write_colony
from mabe_nb.train.config import TrainConfig
from mabe_nb.view.panels.gpu import GPUPanel
write_colony("colony", videos=8, minutes=1)
cfg = TrainConfig(epochs=12, conv_channels=[32], lstm_hidden=32, learning_rate=0.01)
card = GPUPanel("modal", "T4", cfg=cfg)
card""", '''from mabe_nb.view.panels.job import JobPanel
job = JobPanel("""import time
from matplotlib import pyplot
speed = []
for t in range(60):
    speed.append(t % 7)
    time.sleep(0.1)
    progress(t + 1, 60, fastest=max(speed))
    print(f"{t + 1} frames", flush=True)
pyplot.figure(figsize=(6, 2))
line, = pyplot.plot(speed)""", outputs="speed", timeout=600)
job''', """from mabe_nb.view.panels.train import TrainPanel
training = TrainPanel("colony", cfg, train_videos="0-5", valid_videos="6,7", hours=1)
training""", """from mabe_nb.view.panels.measure.sweep import SweepPanel
sizes = SweepPanel(cfg, sizes="8,32", seconds=0.5)
sizes""", """from mabe_nb.view.panels.measure.compare import ComparePanel
cards = ComparePanel(cfg, seconds=0.5)
cards""", """from mabe_nb.view.panels.runs import RunsPanel
runs = RunsPanel()
runs""", """import numpy as np
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.recording import frame_labels
from mabe_nb.train.model import PairPrediction
from mabe_nb.view.video.prediction_errors import ErrorPanel, worst_errors
rec = make_recording(seed=1, frames=3600, mice=4)
acts = ("approach", "attack", "chase", "sniff")
labels = frame_labels(rec, "mouse1", "mouse2", acts)
p = np.clip(np.roll(labels, 20, 0), 0.1, 0.8)
codes = np.where(p.max(1) > 0.5, p.argmax(1), -1)
made = [PairPrediction("1", "mouse1", "mouse2", 30.0, acts, p, codes, labels)]
errors = ErrorPanel(worst_errors(made), {"1": rec}, made)
errors""", """from mabe_nb.view.video.explorer import Explorer
explorer = Explorer(rec, "social", ("mouse1", "mouse2"))
explorer""", """from mabe_nb.view.video.player import Player
player = Player(rec, pair=("mouse1", "mouse2"))
player""", """from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.recording import bout_table
from mabe_nb.train.review.moments import rank_moments
from mabe_nb.view.video.review import ReviewPanel
sure = np.where(codes < 0, 0.0, 0.9)
told = [PairPrediction("1", "mouse1", "mouse2", 30.0, acts, p, codes,
                       np.full(p.shape, -1, np.int8), sure, sure)]
unlabelled = RecordingList([rec.replace(labelled=None, bouts=bout_table())], ".")
review = ReviewPanel(rank_moments(told, 5), unlabelled, told, "corrections.jsonl", "Ann")
review"""]
FIRST = {"JobPanel": "Send", "TrainPanel": "Start", "SweepPanel": "Measure",
         "ComparePanel": "Measure", "RunsPanel": "Compare", "ErrorPanel": "3. ",
         "ReviewPanel": "Accept"}
QUICK = "RunsPanel", "ErrorPanel", "ReviewPanel" # They are done before one could look
WRONG = {"JobPanel": ("To send", "print(undefined_name)"),
         "TrainPanel": ("Videos to learn from", "x-"),
         "SweepPanel": ("Batch sizes", "many"), "RunsPanel": ("Changed since", "monday")}


DRAWN = """name => { const svg = document.querySelector(`.mabe-panel.mabe-${name}
    .mabe-strips svg`); return Math.abs(svg.viewBox.baseVal.width / 0.75
    - svg.clientWidth) < 40 }"""


def shoot(lab, out, name, state, widths=(1280, 400)):
    "A panel in both themes and widths."
    box = lab.page.locator(f".mabe-panel.mabe-{name}")
    for theme in ("Dark", "Light"):
        lab.page.evaluate("theme => window.jupyterapp.commands.execute("
                          "'apputils:change-theme', {theme})", f"JupyterLab {theme}")
        for width in widths:
            lab.page.set_viewport_size(dict(width=width + 120, height=2200))
            box.scroll_into_view_if_needed()
            lab.page.wait_for_timeout(500)
            if box.locator(".mabe-strips svg").count(): # redrawn for the width
                lab.page.wait_for_function(DRAWN, arg=name)
            box.screenshot(path=out/f"{name}-{state}-{theme.lower()}-{width}.png")


def until(box, words): expect(
    box.locator(".mabe-status [role=status]").first).to_contain_text(words, timeout=180_000)


def work(lab, out, name):
    "A panel at rest, at work, done, and with something wrong."
    box = lab.page.locator(f".mabe-panel.mabe-{name}")
    shoot(lab, out, name, "idle")
    if name in FIRST:
        box.get_by_role("button", name=FIRST[name], exact=name != "ErrorPanel").first.click()
        if name not in QUICK:
            until(box, "running")
            shoot(lab, out, name, "busy", (1280,))
        until(box, "done")
        shoot(lab, out, name, "done")
    if WRONG.get(name):
        label, text = WRONG[name]
        had = box.get_by_label(label, exact=True).input_value()
        box.get_by_label(label, exact=True).fill(text)
        if name == "TrainPanel": box.get_by_role("button", name="Start", exact=True).click()
        until(box, "error")
        shoot(lab, out, name, "error")
        box.get_by_label(label, exact=True).fill(had)
    elif name == "ComparePanel":
        places = box.get_by_label("Places", exact=True)
        places.select_option([])
        until(box, "no place is chosen")
        shoot(lab, out, name, "error")
        places.select_option(label="this machine")
    elif name == "ReviewPanel": # no other action is chosen
        box.get_by_role("button", name="Relabel", exact=True).click()
        until(box, "error")
        shoot(lab, out, name, "error")
    elif name == "GPUPanel": # it cannot be set to what there is not, but to what is too large
        batch = box.get_by_label("Batch (windows)")
        batch.fill("100000")
        batch.press("Tab")
        expect(box.get_by_text("no: ")).to_be_visible(timeout=180_000)
        shoot(lab, out, name, "error")
        batch.fill("16")
        batch.press("Tab")


def for_docs(out):
    "The pictures that pages show."
    from PIL import Image
    images = TOP/"nbs"/"images"
    names = ("GPUPanel-idle", "JobPanel-done")
    parts = [Image.open(out/f"{n}-light-1280.png").convert("RGB") for n in names]
    whole = Image.new("RGB", (sum(p.width for p in parts) + 24, max(p.height for p in parts)),
                      "white")
    whole.paste(parts[0], (0, 0))
    whole.paste(parts[1], (parts[0].width + 24, 0))
    player = Image.open(out/"ErrorPanel-done-light-1280.png").convert("RGB")
    for name, picture in (("panels", whole), ("player", player)):
        file = images/f"{name}.png"
        picture.save(file, optimize=True)
        print(file.name, picture.size, f"{file.stat().st_size:,} bytes")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("out", type=Path)
    p.add_argument("--docs", action="store_true", help="nbs/images as well")
    p.add_argument("--only", nargs="*", help="panels, by class")
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tmp = Path(tempfile.mkdtemp())
    names = args.only or ("GPUPanel", *FIRST, "Explorer", "Player")
    with lab_page.opened(tmp/"lab", CELLS) as lab:
        lab.page.evaluate("window.jupyterapp.shell.collapseLeft()")
        try:
            for name in names: work(lab, args.out, name)
        finally: cancel_all(tmp/"lab")
    if args.docs: for_docs(args.out)
    shutil.rmtree(tmp, ignore_errors=True)


if __name__ == "__main__":
    main()

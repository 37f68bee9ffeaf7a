"""The player in a real JupyterLab and Chromium, as a person would work it.

`MABE_SHOTS=FOLDER` keeps screenshots; look at them. Needs `pip install playwright` and a
Chromium on the path.
"""
import json
import os
from pathlib import Path

import pytest

import lab_page

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
if lab_page.CHROMIUM is None:
    pytest.skip("needs Chromium on the path", allow_module_level=True)
expect = sync_api.expect

CELLS = ["""import numpy as np
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.view.video.player import Player
short = make_recording(seed=1, frames=3600, mice=4)
rec = short.replace(xy=np.tile(short.xy, (10, 1, 1, 1)))
player = Player(rec, pair=("mouse1", "mouse2"))
player""", """from mabe_nb.data.recording import frame_labels
from mabe_nb.view.video.prediction_errors import ErrorPanel, Prediction, worst_errors
labels = frame_labels(short, "mouse1", "mouse2", ("chase", "sniff"))
p = np.clip(np.roll(labels, 20, 0), 0.1, 0.8)
codes = np.where(p.max(1) > 0.5, p.argmax(1), -1)
made = [Prediction("1", "mouse1", "mouse2", 30.0, ("chase", "sniff"), p, codes, labels)]
errors = ErrorPanel(worst_errors(made), {"1": short}, made)
errors""", """from mabe_nb.view.video.explorer import Explorer
explorer = Explorer(short, "social", ("mouse1", "mouse2"))
explorer"""]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with lab_page.opened(tmp_path_factory.mktemp("lab"), CELLS) as lab: yield lab


@pytest.fixture
def box(lab):
    box = lab.page.locator(".mabe-panel.mabe-Player")
    box.scroll_into_view_if_needed()
    return box


def press(box, name): box.get_by_role("button", name=name, exact=True).click()


def frame(box): return int(box.locator("svg[data-frame]").get_attribute("data-frame"))


def expect_frame(box, number):
    expect(box.locator("svg[data-frame]")).to_have_attribute("data-frame", str(number))


def fill(box, number):
    box.get_by_label("Frame", exact=True).fill(str(number))
    box.get_by_label("Frame", exact=True).press("Enter")


def test_every_control_has_a_name_in_the_browser(lab):
    for name in ("Player", "ErrorPanel", "Explorer"):
        box = lab.page.locator(f".mabe-panel.mabe-{name}")
        found = box.locator("button:visible, input:visible, select:visible, "
                            "textarea:visible, [role=slider]:visible").all()
        assert len(found) >= (3 if name == "ErrorPanel" else 10), name
        for control in found:
            said = control.evaluate("e => e.labels?.[0]?.innerText || e.innerText || "
                                    "e.getAttribute('aria-label') || ''")
            assert said.strip(), (name, control.evaluate("e => e.outerHTML"))
        assert all(box.get_by_role("img").nth(i).get_attribute("aria-label")
                   for i in range(box.get_by_role("img").count()))


def test_step_and_jump(lab, box):
    fill(box, 100)
    expect_frame(box, 100)
    press(box, "Forward one frame")
    expect_frame(box, 101)
    press(box, "Back one frame")
    press(box, "Back one frame")
    expect_frame(box, 99)
    press(box, "Next bout")
    expect(box.get_by_role("status")).to_contain_text("mouse1 → mouse2")
    expect(box.get_by_label("Frame", exact=True)).not_to_have_value("99")
    assert frame(box) > 99


def test_keys_alone_are_enough(lab, box):
    fill(box, 10)
    box.get_by_role("button", name="Forward one frame", exact=True).focus()
    lab.page.keyboard.press("Enter")
    expect_frame(box, 11)
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Tab")
    assert lab.page.evaluate("document.activeElement.innerText") == "Next bout"
    lab.page.keyboard.press("Space")
    expect(box.get_by_label("Frame", exact=True)).not_to_have_value("11")


def test_play_moves_the_pixels_in_true_time(lab, box):
    fill(box, 0)
    expect_frame(box, 0)
    before = box.locator(".widget-gridbox").screenshot()
    lab_page.watch(lab.page)
    press(box, "Play")
    lab.page.wait_for_function("window.painted.at(-1)[1] > 90")
    press(box, "Pause")
    expect(box.get_by_role("button", name="Play", exact=True)).to_be_visible()
    seen = [(t, f) for t, f in lab_page.painted(lab.page) if f]
    shown = box.locator(".widget-gridbox").screenshot()
    assert shown != before
    assert [f for _, f in seen] == sorted(f for _, f in seen)
    seconds = (seen[-1][0] - seen[0][0]) / 1000
    assert (seen[-1][1] - seen[0][1]) / 30 == pytest.approx(seconds, rel=0.25)
    stopped = frame(box)
    lab.page.wait_for_timeout(300)
    assert frame(box) == stopped


def test_drag_along_the_strip(lab, box):
    box.get_by_label("Time shown").select_option("whole video")
    fill(box, 0)
    expect_frame(box, 0)
    area = box.locator("svg[data-frame]").bounding_box()
    at = lambda share: (area["x"] + area["width"] * share,
                        area["y"] + area["height"] * 0.85)
    lab_page.watch(lab.page)
    lab.page.mouse.move(*at(0.3))
    lab.page.mouse.down()
    lab.page.mouse.move(*at(0.7), steps=60)
    lab.page.mouse.up()
    lab.page.wait_for_function("window.painted.at(-1)[1] > 20000")
    assert len(lab_page.painted(lab.page)) > 8
    lab.page.wait_for_timeout(1000)
    held = frame(box)
    lab.page.mouse.move(*at(0.4), steps=5)
    lab.page.wait_for_timeout(300)
    assert frame(box) == held
    box.get_by_label("Time shown").select_option("1 min")


def test_an_error_opens(lab):
    box = lab.page.locator(".mabe-ErrorPanel")
    box.scroll_into_view_if_needed()
    box.get_by_label("Error", exact=True).select_option(index=2)
    press(box, "Open in the player")
    expect(box.locator("> .widget-html [role=status]")).to_contain_text("opened")
    first = box.locator("svg[data-frame]")
    expect(first).to_be_visible()
    number = frame(box)
    press(box, "Forward one frame")
    expect_frame(box, number + 1)


def test_a_channel_is_chosen(lab):
    box = lab.page.locator(".mabe-Explorer")
    box.scroll_into_view_if_needed()
    pictures = box.get_by_role("img")
    words = pictures.last.get_attribute("aria-label")
    box.get_by_label("Channel", exact=True).select_option(index=12)
    expect(pictures.last).not_to_have_attribute("aria-label", words)


def test_screens(lab):
    "Nothing wider than the page, in light and dark; kept for eyes where MABE_SHOTS says."
    shots = Path(os.environ.get("MABE_SHOTS", lab.file.parent))
    lab.page.evaluate("window.jupyterapp.shell.collapseLeft()")
    for theme in ("Light", "Dark"):
        lab.page.evaluate("theme => window.jupyterapp.commands.execute("
                          "'apputils:change-theme', {theme})", f"JupyterLab {theme}")
        expect(lab.page.locator("body")).to_have_attribute(
            "data-jp-theme-light", str(theme == "Light").lower())
        for width in (1280, 768):
            lab.page.set_viewport_size(dict(width=width, height=1500))
            for name in ("Player", "ErrorPanel", "Explorer"):
                box = lab.page.locator(f".mabe-panel.mabe-{name}")
                box.scroll_into_view_if_needed()
                assert box.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), (name, width)
                box.screenshot(path=shots/f"{name}-{width}-{theme.lower()}.png")
    lab.page.set_viewport_size(dict(width=1280, height=1100))


def test_little_is_saved(lab):
    "Widget state on, 36,000 frames of four mice behind it, and the notebook stays small."
    before = lab.file.stat().st_mtime_ns
    lab_page.save(lab.page)
    lab.page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    assert lab.file.stat().st_mtime_ns > before
    nb = json.loads(lab.file.read_text())
    assert "widgets" in nb["metadata"] and lab.file.stat().st_size < 1_000_000


def test_nothing_went_wrong_on_the_way(lab):
    assert lab.errors == []
    assert not lab.page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count()

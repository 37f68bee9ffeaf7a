"""The player in a real JupyterLab and Chromium, as a person would work it.

`MABE_SHOTS=FOLDER` keeps screenshots; look at them. Needs `pip install playwright` and a
Chromium on the path.
"""
import json
import os
import re
from pathlib import Path

import pytest

import lab_page

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
if lab_page.CHROMIUM is None:
    pytest.skip("needs Chromium on the path", allow_module_level=True)
expect = sync_api.expect
pytest.importorskip("imageio_ffmpeg", reason="pip install imageio-ffmpeg")

CELLS = ["""import numpy as np
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.view.video.player import Player
short = make_recording(seed=1, frames=3600, mice=4)
rec = short.replace(xy=np.tile(short.xy, (10, 1, 1, 1)))
rec.xy[700:760, 2] = np.nan
player = Player(rec, pair=("mouse1", "mouse2"))
player""", """from mabe_nb.data.recording import frame_labels
from mabe_nb.view.video.prediction_errors import ErrorPanel, PairPrediction, worst_errors
labels = frame_labels(short, "mouse1", "mouse2", ("chase", "sniff"))
p = np.clip(np.roll(labels, 20, 0), 0.1, 0.8)
codes = np.where(p.max(1) > 0.5, p.argmax(1), -1)
made = [PairPrediction("1", "mouse1", "mouse2", 30.0, ("chase", "sniff"), p, codes, labels)]
errors = ErrorPanel(worst_errors(made), {"1": short}, made)
errors""", """from mabe_nb.view.video.explorer import Explorer
explorer = Explorer(short, "social", ("mouse1", "mouse2"))
explorer""", """import imageio_ffmpeg
writer = imageio_ffmpeg.write_frames("red.mp4", (640, 640), fps=30, codec="libvpx-vp9")
writer.send(None)
red = np.zeros((640, 640, 3), np.uint8)
red[:, :, 0] = 200
for _ in range(90): writer.send(red)
writer.close()
film = Player(short, video="red.mp4")
film.box.add_class("film")
film""", """writer = imageio_ffmpeg.write_frames("two.avi", (640, 640), fps=30, codec="mpeg4")
writer.send(None)
green = np.roll(red, 1, 2)
for i in range(3600): writer.send(red if i < 1800 else green)
writer.close()
pieces = Player(short, video="two.avi")
pieces.box.add_class("pieces")
pieces"""]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with lab_page.opened(tmp_path_factory.mktemp("lab"), CELLS) as lab: yield lab


@pytest.fixture
def box(lab):
    box = lab.page.locator(".mabe-panel.mabe-Player").first
    box.scroll_into_view_if_needed()
    return box


def press(box, name): box.get_by_role("button", name=name, exact=True).click()


def stage(box): return box.locator(".mabe-stage")


def frame(box): return int(stage(box).get_attribute("data-frame"))


def expect_frame(box, number):
    expect(stage(box)).to_have_attribute("data-frame", str(number))


def fill(box, number):
    box.get_by_label("Frame", exact=True).fill(str(number))
    box.get_by_label("Frame", exact=True).press("Enter")


def kernel(lab, code):
    "What the kernel says to a line of code."
    return lab.page.evaluate("""async code => {
        const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
        const future = kernel.requestExecute({code, store_history: false});
        let text = '';
        future.onIOPub = m => { text += m.content.text ?? m.content.evalue ?? '' };
        await future.done;
        return text.trim() }""", code)


def told_to_kernel(lab, code, value):
    "Until the kernel knows; it learns of frames a few times a second."
    for _ in range(240):
        if (said := kernel(lab, f"print({code})")) == value: return
        lab.page.wait_for_timeout(250)
    raise AssertionError(f"{code} is {said}, not {value}")


def picture(box): return box.locator(".mabe-arena").screenshot()


def test_it_fills_the_width(lab, box):
    expect_frame(box, 0)
    wide = box.evaluate("e => e.clientWidth")
    for part in (".mabe-arena", ".mabe-strips svg"):
        assert box.locator(part).bounding_box()["width"] > 0.94 * wide, part


def test_every_control_has_a_name_in_the_browser(lab):
    for name in ("Player", "ErrorPanel", "Explorer"):
        box = lab.page.locator(f".mabe-panel.mabe-{name}").first
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
    expect(box.locator(".mabe-words")).to_contain_text("mouse1 → mouse2")
    expect(box.get_by_label("Frame", exact=True)).not_to_have_value("99")
    assert frame(box) > 99


def test_keys(lab, box):
    fill(box, 300)
    box.locator(".mabe-arena").click()
    for key, number in (("ArrowRight", 301), ("Shift+ArrowRight", 331), ("ArrowLeft", 330),
                        ("Shift+ArrowLeft", 300)):
        lab.page.keyboard.press(key)
        expect_frame(box, number)
    first = int(kernel(lab, "print(next(s for s in player.bout_starts if s > 300))"))
    lab.page.keyboard.press("b")
    expect_frame(box, first)
    lab.page.keyboard.press("ArrowRight")
    lab.page.keyboard.press("Shift+B")
    expect_frame(box, first)
    told_to_kernel(lab, "player.frame", str(first))
    cells = "window.jupyterapp.shell.currentWidget.content.widgets.length"
    had = lab.page.evaluate(cells)
    lab.page.keyboard.press("b") # in Lab, a new cell
    assert lab.page.evaluate(cells) == had


def test_space_plays_and_the_tab_key_reaches_all(lab, box):
    fill(box, 10)
    box.locator(".mabe-arena").focus()
    lab.page.keyboard.press("Space")
    expect(box.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    told_to_kernel(lab, "player.status", "running")
    lab.page.keyboard.press("Space")
    expect(box.get_by_role("button", name="Play", exact=True)).to_be_visible()
    box.get_by_role("button", name="Forward one frame", exact=True).focus()
    number = frame(box)
    lab.page.keyboard.press("Enter")
    expect_frame(box, number + 1)
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Tab")
    assert lab.page.evaluate("document.activeElement.innerText") == "Next bout"
    lab.page.keyboard.press("Space")
    expect(stage(box)).not_to_have_attribute("data-frame", str(number + 1))


def test_play_moves_the_pixels_in_true_time(lab, box):
    fill(box, 0)
    expect_frame(box, 0)
    before = picture(box)
    lab_page.watch(lab.page)
    press(box, "Play")
    lab.page.wait_for_function("window.painted.at(-1)[1] > 90")
    press(box, "Pause")
    expect(box.get_by_role("button", name="Play", exact=True)).to_be_visible()
    seen = [(t, f) for t, f in lab_page.painted(lab.page) if f]
    assert picture(box) != before
    assert [f for _, f in seen] == sorted(f for _, f in seen)
    seconds = (seen[-1][0] - seen[0][0]) / 1000
    assert (seen[-1][1] - seen[0][1]) / 30 == pytest.approx(seconds, rel=0.25)
    stopped = frame(box)
    lab.page.wait_for_timeout(300)
    assert frame(box) == stopped


def test_it_plays_while_the_kernel_is_busy(lab, box):
    fill(box, 0)
    lab.page.evaluate("() => { window.over = false; window.jupyterapp.shell.currentWidget"
                      ".sessionContext.session.kernel.requestExecute({code: "
                      "'import time; time.sleep(8)'}).done.then(() => window.over = true) }")
    lab_page.watch(lab.page)
    press(box, "Play")
    lab.page.wait_for_function("window.painted.at(-1)[1] > 60")
    assert not lab.page.evaluate("window.over"), "it waited for the cell"
    press(box, "Pause")
    lab.page.wait_for_function("window.over")


def test_zoom_pan_trails_and_names(lab, box):
    fill(box, 200)
    expect_frame(box, 200)
    shown = [picture(box)]
    arena = box.locator(".mabe-arena")
    arena.focus()
    for key in ("+", "d", "t", "n", "k"):
        lab.page.keyboard.press(key)
        lab.page.wait_for_function("() => new Promise(r => requestAnimationFrame(() => "
                                   "requestAnimationFrame(() => r(true))))")
        assert (now := picture(box)) not in shown, key
        shown.append(now)
    assert box.get_by_label("Trails").is_checked()
    for key in ("t", "n", "k", "0"): lab.page.keyboard.press(key)
    lab.page.wait_for_function("() => new Promise(r => requestAnimationFrame(() => "
                               "requestAnimationFrame(() => r(true))))")
    assert picture(box) == shown[0]
    place = arena.bounding_box()
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    lab.page.mouse.move(x, y)
    lab.page.mouse.wheel(0, -400)
    lab.page.mouse.down()
    lab.page.mouse.move(x + 60, y + 30, steps=4)
    lab.page.mouse.up()
    assert picture(box) != shown[0]
    press(box, "Show all")


def test_who_is_not_detected_is_said(lab, box):
    fill(box, 720)
    expect(box.locator(".mabe-words")).to_contain_text("not detected: mouse3")
    expect(box.locator(".mabe-legend li").nth(2)).to_have_text("mouse3 not detected")
    fill(box, 800)
    expect(box.locator(".mabe-words")).not_to_contain_text("not detected")


def test_drag_along_the_strip(lab, box):
    box.get_by_label("Time shown").select_option("whole video")
    fill(box, 0)
    expect_frame(box, 0)
    told_to_kernel(lab, "player.stage.strips['span']", "[0, 36000]")
    strips = box.locator(".mabe-strips")
    strips.scroll_into_view_if_needed()
    area = strips.bounding_box()
    at = lambda share: (area["x"] + area["width"] * share, area["y"] + area["height"] * 0.4)
    lab_page.watch(lab.page)
    lab.page.mouse.move(*at(0.3))
    lab.page.mouse.down()
    lab.page.mouse.move(*at(0.7), steps=60)
    lab.page.mouse.up()
    lab.page.wait_for_function("window.painted.at(-1)[1] > 20000")
    lab.page.wait_for_timeout(500)
    held = frame(box)
    lab.page.mouse.move(*at(0.4), steps=5)
    lab.page.wait_for_timeout(300)
    assert frame(box) == held
    box.get_by_label("Time shown").select_option("1 min")
    told_to_kernel(lab, "player.span[0] <= player.frame < player.span[1]", "True")


def test_an_error_opens_by_click_and_enter(lab):
    box = lab.page.locator(".mabe-ErrorPanel")
    box.scroll_into_view_if_needed()
    box.get_by_role("button", name="2. ").click()
    said = box.locator(".mabe-status [role=status]").first
    expect(said).to_contain_text("opened 2.")
    expect(stage(box)).to_have_attribute("data-frame", re.compile("[0-9]+"))
    box.get_by_role("button", name="3. ").focus()
    lab.page.keyboard.press("Enter")
    expect(said).to_contain_text("opened 3.")
    expect_frame(box, max(int(kernel(lab, "print(errors.errors.start[2])")) - 30, 0))
    box.locator(".mabe-arena").focus()
    number = frame(box)
    lab.page.keyboard.press("e")
    expect(stage(box)).not_to_have_attribute("data-frame", str(number))
    assert str(frame(box)) in kernel(lab, "print(errors.player.stage.errors)")
    press(box, "Previous error")
    press(box, "Forward one frame")


def test_names_are_text_on_the_page(lab):
    code = """nasty = "<img src=x onerror='window.broken=1'>"
odd = short.replace(mice=(nasty, "b", "c", "d"), parts=(nasty, *short.parts[1:]),
                    bouts=short.bouts.assign(agent=nasty, target="b", action=nasty),
                    labelled=None, video_id=nasty)
rec, player.kept = odd, Player(odd, {nasty: odd.bouts}, pair=(nasty, "b"))
display(player.kept)"""
    kernel(lab, "player.stage.who = \"<img src=x onerror='window.broken=1'>\"")
    words = lab.page.locator(".mabe-Player .mabe-words").first
    expect(words).to_contain_text("<img src=x")
    assert "Error" not in kernel(lab, code)
    assert not lab.page.evaluate("window.broken")
    assert not lab.page.locator(".mabe-stage img").count()


def test_a_video_lies_under_the_poses(lab):
    box = lab.page.locator(".film")
    box.scroll_into_view_if_needed()
    red = """() => { const c = document.querySelector('.film .mabe-arena canvas');
        const [r, g] = c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data;
        return r > 150 && g < 60 }"""
    lab.page.wait_for_function(red)
    box.locator(".mabe-arena").focus()
    lab.page.keyboard.press("ArrowRight")
    expect_frame(box, 1)
    lab.page.wait_for_function(red)


def test_seconds_of_a_film_that_cannot_be_sent_whole(lab):
    box = lab.page.locator(".pieces")
    box.scroll_into_view_if_needed()
    shows = lambda i, k: lab.page.wait_for_function("""([i, k]) => {
        const c = document.querySelector('.pieces .mabe-arena canvas');
        const p = c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data;
        return p[i] > 150 && p[k] < 60 }""", arg=[i, k])
    shows(0, 1)
    fill(box, 3000)
    shows(1, 0)
    fill(box, 1500)
    shows(0, 1)
    press(box, "Play") # across the end of the stretch and the change of colour
    box.get_by_label("Speed").select_option(label="2 ×")
    shows(1, 0)
    assert 1790 < frame(box) < 3500 # A film that plays may be 0.2 s ahead
    press(box, "Pause")


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
                box = lab.page.locator(f".mabe-panel.mabe-{name}").first
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

"""A review in a real JupyterLab and Chromium, by keys, with the kernel killed in the middle."""
import json
import os
import re
import signal

import pytest

import lab_page

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
if lab_page.CHROMIUM is None:
    pytest.skip("needs Chromium on the path", allow_module_level=True)
expect = sync_api.expect

CELLS = ["""import os
import numpy as np
from pathlib import Path
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.recording import bout_table, frame_labels
from mabe_nb.train.review.moments import PairPrediction, rank_moments
from mabe_nb.view.video.review import ReviewPanel
recs = [make_recording(seed=s, frames=1800, video_id=str(s)) for s in (1, 2)]
data = RecordingList([r.replace(labelled=None, bouts=bout_table()) for r in recs], ".")
actions = ("chase", "sniff")
told = []
for r in recs:
    late = np.roll(frame_labels(r, "mouse1", "mouse2", actions), 9, 0) == 1
    told.append(PairPrediction(r.video_id, "mouse1", "mouse2", 30.0, actions, 0.1 + 0.6 * late,
        np.where(late.any(1), late.argmax(1), -1), np.full(late.shape, -1, np.int8),
        np.zeros(1800), np.zeros(1800)))
moments = rank_moments(told, 5)
moments = moments[moments.action != ""]
Path("pid").write_text(str(os.getpid()))
panel = ReviewPanel(moments, data, told, "corrections.jsonl", "Ann")
panel"""]


def lines(lab):
    path = lab.file.parent/"corrections.jsonl"
    return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


def test_a_killed_kernel_takes_no_answer_with_it(tmp_path):
    with lab_page.opened(tmp_path, CELLS) as lab:
        page, box = lab.page, lab.page.locator(".mabe-panel.mabe-ReviewPanel")
        said = box.locator(".mabe-status [role=status]").first
        expect(said).to_contain_text("0 corrections in")
        videos = set()
        box.locator(".mabe-arena").click()
        seen = lambda n: expect(box.locator(".mabe-stage")).to_have_attribute("data-asked", str(n))
        seen(1)
        for n, (key, words) in enumerate((("y", "saved: accept"), ("2", "saved: relabel sniff"),
                                          ("x", "saved: reject")), 1):
            page.keyboard.press(key) # the new player takes the keyboard itself
            expect(said).to_contain_text(words)
            expect(said).to_contain_text(f"{n} in the file")
            expect(box.get_by_label("Moment", exact=True)).to_have_value(
                re.compile(rf"^{n + 1}\. "))
            expect(box.locator(".mabe-arena")).to_be_focused()
            videos.add(lines(lab)[-1]["video"])
            seen(n + 1)
        assert len(videos) == 2, "only one player was ever shown"
        page.keyboard.press("u")
        expect(said).to_contain_text("undone: reject")
        seen(5)
        page.keyboard.press("i")
        expect(said).to_contain_text("saved: start")
        had = lines(lab)
        assert [x.get("verdict", "undo") for x in had] == [
            "accept", "relabel", "reject", "undo", "start"]
        assert {x["author"] for x in had} == {"Ann"} and all(x["time"] for x in had)

        os.kill(int((lab.file.parent/"pid").read_text()), signal.SIGKILL)
        ok = page.get_by_role("button", name="Ok", exact=True)
        ok.click() # Lab says that the kernel died, and starts another
        page.wait_for_function(f"{lab_page.KERNEL}?.status === 'idle'")
        assert lines(lab) == had
        lab_page.run_all(page)
        expect(said).to_contain_text("3 corrections in")
        expect(box.get_by_label("Moment", exact=True).locator("option").nth(1)
               ).to_contain_text("✓")
        box.get_by_role("button", name="Undo", exact=True).click()
        expect(said).to_contain_text("undone: start")
        seen(2)
        assert len(lines(lab)) == 6
        page.keyboard.press("y") # the focus is on the button that was clicked
        expect(said).to_contain_text("saved: ")
        assert len(lines(lab)) == 7
        seen(3)
        box.get_by_role("button", name="Nothing here", exact=True).click(click_count=4)
        expect(said).to_contain_text("saved: nothing")
        seen(4)
        assert len(lines(lab)) == 8, "one answer for what was clicked four times"
        box.get_by_label("Moment", exact=True).focus()
        page.keyboard.press("y") # a list keeps its own keys
        page.wait_for_timeout(500)
        assert len(lines(lab)) == 8

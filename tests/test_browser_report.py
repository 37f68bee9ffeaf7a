"A report as a person sees it: on a telephone, and on paper."
import os

os.environ.setdefault("MPLBACKEND", "agg")
import numpy as np
import pandas as pd
import pytest
from lab_page import CHROMIUM, FLAGS, new_page

from mabe_nb.view.plots import plot_scores
from mabe_nb.view.report import write_report

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
if CHROMIUM is None: pytest.skip("needs Chromium on the path", allow_module_level=True)
pytestmark = pytest.mark.browser


@pytest.fixture
def report(tmp_path):
    scores = {"score": 0.5, "labs": {"Lab": {"score": 0.5, "actions": {"x" * 60: 0.5}}}}
    table = pd.DataFrame(np.full((3, 10), -0.123), columns=[f"mean of column {i}" for i in range(10)])
    path = write_report(tmp_path/"r.html", "Report", [("Scores", plot_scores(scores)), ("Table", table)])
    with sync_api.sync_playwright() as pw:
        page, errors = new_page(pw.chromium.launch(executable_path=CHROMIUM, args=FLAGS))
        page.goto(path.as_uri())
        yield page
        assert not errors


def test_pictures_on_a_telephone_scroll_with_letters_that_can_be_read(report):
    report.set_viewport_size({"width": 360, "height": 800})
    assert report.evaluate("document.documentElement.scrollWidth") == 360
    assert report.locator("figure img").bounding_box()["width"] >= 0.7 * 700
    report.locator("figure").focus()
    report.keyboard.press("End")
    report.keyboard.press("ArrowRight")
    for _ in range(100): # A page without scripts lets no condition of its own be waited for
        if report.evaluate("document.querySelector('figure').scrollLeft") > 0: return
        report.wait_for_timeout(50)
    raise AssertionError("the picture did not scroll")


def test_paper_holds_all_columns_and_pictures(report):
    report.set_viewport_size({"width": 700, "height": 1000}) # A4 at 96 dots an inch, less its margins
    report.emulate_media(media="print")
    for right in report.evaluate("[...document.querySelectorAll('th, img')].map(e => e.getBoundingClientRect().right)"):
        assert right <= 700

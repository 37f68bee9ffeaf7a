"The same panels in Voila: a page without code, on loopback."
import re

import pytest
from browsing import PAGE, PANELS, cancel_all, chromium, expect, line, nameless, panel, \
    press, serving, shoot, told  # noqa: F401

pytestmark = pytest.mark.browser
pytest.importorskip("voila", reason="pip install voila")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "The tutorial as a page; Voila has run all cells."
    tmp = tmp_path_factory.mktemp("voila")
    with serving(tmp, "voila", "--Voila.ip=127.0.0.1", ".") as (url, _), \
            chromium() as found:
        found.tmp, found.url = tmp, f"{url}/voila/render/tutorials/{PAGE}"
        file = tmp/"nb"/"tutorials"/PAGE # Voila 0.5 stops at pictures of other folders
        file.write_text(re.sub(r'"!\[[^"]*"', '""', file.read_text()))
        found.page.goto(found.url)
        for name in PANELS: expect(panel(found.page, name)).to_be_visible()
        yield found
        cancel_all(tmp)


def test_no_code_and_every_control_named(lab):
    expect(lab.page.get_by_role("heading", name="Send a cell")).to_be_visible()
    assert not lab.page.get_by_text("from mabe_nb.view").count()
    for name in PANELS: assert not list(nameless(panel(lab.page, name))), name


def test_a_card_flows_into_the_job(lab):
    card, job = panel(lab.page, "GPUPanel"), panel(lab.page, "JobPanel")
    card.get_by_label("Provider").select_option("Modal")
    expect(job.get_by_text("at most about")).to_be_visible()
    card.get_by_label("Provider").select_option("this machine")
    expect(job.get_by_text("nothing is billed")).to_be_visible()


def test_send_a_cell_and_see_its_figure(lab):
    job = panel(lab.page, "JobPanel")
    press(job, "Send")
    expect(job.get_by_role("progressbar")).to_be_visible()
    expect(line(job)).to_contain_text("done")
    expect(job.get_by_role("img", name="figure fig/001.png of the job")).to_be_visible()


def test_screens_in_light_and_dark(lab):
    shoot(lab.page, PANELS, "voila-light")
    lab.page.goto(f"{lab.url}?theme=dark")
    for name in PANELS: expect(panel(lab.page, name)).to_be_visible()
    shoot(lab.page, PANELS, "voila-dark")


def test_nothing_went_wrong_on_the_way(lab):
    "Voila itself asks for icons in the net, and for foreign extensions of JupyterLab."
    its_own = ("cdn.jsdelivr.net", "/labextensions/", "/api/shutdown/")
    assert [e for e in lab.errors if not any(part in e for part in its_own)] == []

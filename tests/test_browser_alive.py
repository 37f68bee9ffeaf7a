"""Panels that outlive the page: a reload, a closed tab, a second one, a busy kernel.

See `browsing.py` for what it needs and what it keeps.
"""
import pytest
from browsing import cancel_all, expect, line, panel, press, told  # noqa: F401
from lab_page import KERNEL, faults_in_log, new_page, opened, run_all, save, server

CELL = """import time
from pathlib import Path
while not Path({gate!r}).exists():
    print('still on', flush=True)
    time.sleep(0.2)
print('gate open')"""
PANEL = """from mabe_nb.view.panels.job import JobPanel
job = JobPanel(timeout=600)
job"""
SHELLS = f"{KERNEL}.requestListSubshell({{}}).done.then(m => m.content.subshell_id)"
END = f"""id => {KERNEL}.requestDeleteSubshell({{subshell_id: id}}).done"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "A notebook with one panel that sends to this machine."
    tmp = tmp_path_factory.mktemp("alive")
    with opened(tmp, [PANEL, "import time\nfrom pathlib import Path"]) as found:
        found.tmp = tmp
        yield found
        cancel_all(tmp)


def back(page):
    page.wait_for_function(f"{KERNEL}?.status === 'idle'")
    expect(panel(page, "JobPanel")).to_be_visible()
    return panel(page, "JobPanel")


def away_and_back(page, how):
    "The page goes, its subshell ends, as Lab asks for if it has time; a page is there again."
    had = page.evaluate(SHELLS)
    save(page)
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    how(page)
    box = back(page)
    for shell in had: page.evaluate(END, shell)
    return box


def reload(page): page.reload()


def reopen(page):
    page.evaluate("window.jupyterapp.commands.execute('application:close')")
    expect(panel(page, "JobPanel")).to_have_count(0)
    page.evaluate("window.jupyterapp.commands.execute('docmanager:open', "
                  "{path: 'page.ipynb'})")


def sends(box, text, words):
    "A text is sent by a click, and its log comes to the page."
    box.get_by_label("To send", exact=True).fill(text)
    press(box, "Send")
    expect(box.get_by_text(words).first).to_be_visible(timeout=12_000)
    expect(line(box)).to_contain_text("done")


@pytest.mark.parametrize("how", (reload, reopen))
def test_a_page_that_goes_in_mid_job(lab, how):
    box, gate = panel(lab.page, "JobPanel"), lab.tmp/f"gate-{how.__name__}"
    text = CELL.format(gate=str(gate))
    box.get_by_label("To send", exact=True).fill(text)
    press(box, "Send")
    expect(box.get_by_text("still on").first).to_be_visible()
    box = away_and_back(lab.page, how)
    expect(line(box)).to_contain_text("running")
    expect(box.get_by_label("To send", exact=True)).to_have_value(text)
    press(box, "Cancel")
    expect(line(box)).to_contain_text("cancelled", timeout=12_000)
    sends(box, "print('after', 1)", "after 1")


@pytest.mark.parametrize("how", (reload, reopen))
def test_a_page_that_goes_after_a_job(lab, how):
    sends(panel(lab.page, "JobPanel"), "print('before', 2)", "before 2")
    box = away_and_back(lab.page, how)
    expect(box.get_by_label("To send", exact=True)).to_have_value("print('before', 2)")
    sends(box, "print('after', 2)", "after 2")


def test_two_tabs_and_one_is_closed(lab):
    first, (other, _) = panel(lab.page, "JobPanel"), new_page(lab.browser)
    other.goto(lab.url)
    second = back(other)
    sends(second, "print('tab', 1)", "tab 1")
    expect(first.get_by_text("tab 1").first).to_be_visible()
    sends(first, "print('tab', 2)", "tab 2")
    had = lab.page.evaluate(SHELLS)
    sends(second, "print('tab', 3)", "tab 3")
    other.close()
    lab.page.evaluate(END, had[-1])
    sends(first, "print('tab', 4)", "tab 4")


def test_the_first_click_is_answered_while_a_cell_runs(lab):
    run_all(lab.page) # a new panel, that no page has spoken to
    gate = lab.tmp/"gate-busy"
    wait = f"while not Path('{gate}').exists(): time.sleep(0.05)"
    lab.page.evaluate("code => { window.over = false; const cell = "
                      f"{KERNEL}.requestExecute({{code}}); "
                      "cell.done.then(() => { window.over = true }) }", wait)
    try:
        sends(panel(lab.page, "JobPanel"), "print('busy', 1)", "busy 1")
        assert not lab.page.evaluate("window.over"), "no cell was in the way"
    finally: gate.touch()
    lab.page.wait_for_function("window.over")


def test_its_cell_is_run_again_in_mid_job(lab):
    box, gate = panel(lab.page, "JobPanel"), lab.tmp/"gate-again"
    box.get_by_label("To send", exact=True).fill(CELL.format(gate=str(gate)))
    press(box, "Send")
    expect(box.get_by_text("still on").first).to_be_visible()
    run_all(lab.page)
    expect(line(box)).to_contain_text("running", timeout=12_000)
    expect(box.get_by_role("button", name="Cancel", exact=True)).to_be_enabled()
    gate.touch()
    expect(box.get_by_text("gate open").first).to_be_visible()
    expect(line(box)).to_contain_text("done")
    run_all(lab.page) # it has ended, and the cell is what it says
    expect(line(box)).to_contain_text("write a cell to send")


def test_a_restart_in_mid_job(lab):
    "The cells are run again: the same values, and the same job."
    box, gate = panel(lab.page, "JobPanel"), lab.tmp/"gate-restart"
    box.get_by_label("To send", exact=True).fill(CELL.format(gate=str(gate)))
    press(box, "Send")
    expect(box.get_by_text("still on").first).to_be_visible()
    lab.page.evaluate(f"{KERNEL}.restart()")
    lab.page.wait_for_function(f"{KERNEL}?.status === 'idle'")
    run_all(lab.page)
    box = panel(lab.page, "JobPanel")
    expect(box.get_by_label("To send", exact=True)).to_have_value(CELL.format(gate=str(gate)))
    expect(line(box)).to_contain_text("running")
    gate.touch()
    expect(box.get_by_text("gate open").first).to_be_visible()
    expect(line(box)).to_contain_text("done")
    sends(box, "print('restarted', 1)", "restarted 1")


def test_two_cells_that_say_the_same_keep_what_is_theirs(lab, tmp_path):
    gate = tmp_path/"gate"
    text = CELL.format(gate=str(gate))
    with server(tmp_path, [PANEL, PANEL]) as url:
        page, _ = new_page(lab.browser)
        page.goto(url)
        page.wait_for_function(f"{KERNEL}?.status === 'idle'")
        run_all(page)
        boxes = panel(page, "JobPanel")
        first, second = boxes.nth(0), boxes.nth(1)
        first.get_by_label("To send", exact=True).fill(text)
        press(first, "Send")
        expect(first.get_by_text("still on").first).to_be_visible()
        sends(second, "print('second', 1)", "second 1")
        page.evaluate(f"{KERNEL}.restart()")
        page.wait_for_function(f"{KERNEL}?.status === 'idle'")
        run_all(page)
        expect(first.get_by_label("To send", exact=True)).to_have_value(text)
        expect(line(first)).to_contain_text("running")
        expect(second.get_by_text("second 1").first).to_be_visible()
        gate.touch()
        expect(first.get_by_text("gate open").first).to_be_visible()
        page.close()


def test_nothing_went_wrong_on_the_way(lab):
    assert "Unknown subshell" not in (lab.tmp/"server.log").read_text()
    assert faults_in_log(lab.tmp) == []

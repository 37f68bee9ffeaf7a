"""What is said on the page before anything is spent, and a sweep after a restart.

See `browsing.py` for what it needs and what it keeps.
"""
import re

import pytest
from browsing import cancel_all, expect, line, panel, press, told  # noqa: F401
from lab_page import KERNEL, faults_in_log, opened, run_all

from mabe_nb.remote.job import jobs

SETUP = """from pathlib import Path
from mabe_nb.measure import results
from mabe_nb.train.config import TrainConfig
from mabe_nb.view.panels.gpu import GPUPanel
from mabe_nb.view.panels.job import JobPanel
from mabe_nb.view.panels.measure.sweep import SweepPanel
HOME = {home!r}
results.CODE = f'''HOME = {{HOME!r}}
import time
from pathlib import Path
b = spec["settings"]["batch_size"]
s = 0.01 + 1e-4 * b
Path(HOME, "ran-" + str(b)).open("a").write("x")
while b == 64 and not Path(HOME, "gate").exists(): time.sleep(0.05)
result = dict(status="ok", windows_s=b / s, flops=1e9, bytes=1e9, parts=dict(), batch=b,
              card="a processor", precision="fp32", device="cpu",
              memory=dict(peak=1e8 + 1e6 * b),
              seconds=dict.fromkeys(("p10", "p50", "p90", "low", "high", "known"), s))
'''"""
SWEEP = """small = TrainConfig(model_type="tcn", hidden_size=16, num_layers=2, batch_size=8)
sweeping = SweepPanel(small, sizes="8")
sweeping"""
JOB = """card = GPUPanel("local")
job = JobPanel(gpu=card, timeout=600)
job"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("spending")
    with opened(tmp, [SETUP.format(home=str(tmp)), JOB, SWEEP, "xy = [1.5, 2.5]"]) as found:
        found.tmp = tmp
        yield found
        cancel_all(tmp)


@pytest.fixture(autouse=True)
def own_jobs(lab, monkeypatch): monkeypatch.setenv("MABE_HOME", str(lab.tmp/"home"))


def field(box, name): return box.get_by_label(name, exact=True)


def send(box): return box.get_by_role("button", name="Send", exact=True)


def test_a_forgotten_name_and_data_that_was_not_named(lab):
    box = panel(lab.page, "JobPanel")
    field(box, "To send").fill("total = sum(xyy)")
    expect(line(box)).to_contain_text("the cell uses 'xyy', which neither it nor the "
                                      "notebook defines")
    expect(send(box)).to_be_disabled()
    field(box, "To send").fill("total = sum(xy)")
    expect(line(box)).to_contain_text("'xy' (list) of the notebook, which does not travel by "
                                      "itself; add it to 'Variables to send'")
    expect(send(box)).to_be_disabled()
    field(box, "Variables to send").fill("xy")
    field(box, "Variables to get back").fill("sum_xy")
    expect(line(box)).to_contain_text("the cell never sets 'sum_xy'")
    expect(send(box)).to_be_disabled()
    assert jobs() == []
    field(box, "Variables to get back").fill("total")
    expect(send(box)).to_be_enabled()
    press(box, "Send")
    expect(line(box)).to_contain_text("done")
    expect(box.get_by_text("goes along: xy (json, 10 bytes)")).to_be_visible()
    assert jobs()[0].result() == {"total": 4.0}


def test_what_only_a_notebook_understands(lab):
    box = panel(lab.page, "JobPanel")
    for text, words in (("!pip install einops", "a job gets packages by the option pip=einops"),
                        ("input('which?')", "nobody answers a job"),
                        ("display(1)", "belongs to the notebook")):
        field(box, "To send").fill(text)
        expect(line(box)).to_contain_text(words)
        expect(send(box)).to_be_disabled()


def test_an_output_that_cannot_travel(lab):
    box, known = panel(lab.page, "JobPanel"), len(jobs())
    field(box, "Variables to send").fill("")
    field(box, "Variables to get back").fill("a, model")
    field(box, "To send").fill("a, model = [1, 2], lambda x: x")
    press(box, "Send")
    expect(line(box)).to_contain_text("'model' is or holds something of type function")
    expect(line(box)).to_contain_text("what came back: a")
    assert len(jobs()) == known + 1 and jobs()[0].result(partial=True) == {"a": [1, 2]}


def test_a_question_is_answered_by_keyboard(lab):
    box, known = panel(lab.page, "JobPanel"), len(jobs())
    lab.page.evaluate(f"() => {KERNEL}.requestExecute({{code: "
                      "\"card.move('modal', 'L4')\"}).done")
    field(box, "Variables to get back").fill("")
    field(box, "To send").fill("x = 1")
    field(box, "Time limit (s)").fill("36000")
    field(box, "Time limit (s)").press("Enter")
    expect(box.get_by_text(re.compile(r"for 36\d{3} s"))).to_be_visible() # and what starts take
    expect(send(box)).to_be_enabled()
    asked = box.get_by_role("alert").get_by_text("This may cost up to $")
    for key in ("Enter", "Space"):
        send(box).focus()
        lab.page.keyboard.press(key)
        expect(asked).to_be_visible()
        expect(box.get_by_role("button", name="No", exact=True)).to_be_focused()
        lab.page.keyboard.press("Enter")
        expect(asked).to_have_count(0)
        expect(send(box)).to_be_focused()
    lab.page.keyboard.press("Enter")
    expect(asked).to_be_visible()
    expect(box.get_by_role("button", name="No", exact=True)).to_be_focused()
    lab.page.keyboard.press("Shift+Tab")
    expect(box.get_by_role("button", name="Yes, spend it", exact=True)).to_be_focused()
    lab.page.keyboard.press("Enter")
    expect(line(box)).to_contain_text("Modal token")
    expect(asked).to_have_count(0)
    assert len(jobs()) == known


def test_a_sweep_after_a_restart(lab):
    "The values, what was measured, and the probe on its way; each size is measured once."
    box = panel(lab.page, "SweepPanel")
    field(box, "Batch sizes").fill("16,64,256")
    press(box, "Measure")
    expect(line(box)).to_contain_text("1 measured")
    for _ in range(240):
        if (lab.tmp/"ran-64").exists(): break
        lab.page.wait_for_timeout(500)
    lab.page.evaluate(f"{KERNEL}.restart()")
    lab.page.wait_for_function(f"{KERNEL}?.status === 'idle'")
    run_all(lab.page)
    box = panel(lab.page, "SweepPanel")
    expect(field(box, "Batch sizes")).to_have_value("16,64,256")
    expect(line(box)).to_contain_text("looking for what was measured before the restart")
    (lab.tmp/"gate").touch()
    expect(line(box)).to_contain_text("2 of 3 measured before the restart; Measure goes on")
    expect(box.get_by_role("table")).to_contain_text("16")
    press(box, "Measure")
    expect(line(box)).to_contain_text("done")
    assert [len((lab.tmp/f"ran-{b}").read_text()) for b in (16, 64, 256)] == [1, 1, 1]


def test_nothing_went_wrong_on_the_way(lab):
    assert "Unknown subshell" not in (lab.tmp/"server.log").read_text()
    assert faults_in_log(lab.tmp) == []

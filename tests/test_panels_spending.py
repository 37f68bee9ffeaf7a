"What a panel asks before much is spent, and what a measuring panel finds after a restart."
import json
import os
import subprocess
import sys
import time

import pytest
from panel_work import home, soon  # noqa: F401

from mabe_nb.measure import results
from mabe_nb.remote.job import jobs, submit
from mabe_nb.train.config import TrainConfig
from mabe_nb.view.panels.measure.compare import ComparePanel
from mabe_nb.view.panels.gpu import GPUPanel
from mabe_nb.view.panels.job import JobPanel
from mabe_nb.view.panels.measure.sweep import SweepPanel
from mabe_nb.view.panels.train import TrainPanel

QUICK = """import time
from pathlib import Path
b = spec["settings"]["batch_size"]
s = 0.01 + 1e-4 * b
Path(HOME, f"ran-{b}").open("a").write("x")
while b == 64 and not Path(HOME, "gate").exists(): time.sleep(0.05)
result = {"status": "ok", "windows_s": b / s, "flops": 1e9, "bytes": 1e9, "parts": {},
          "card": "EPYC", "batch": b, "precision": "fp32", "device": "cpu",
          "memory": {"peak": 1e8 + 1e6 * b},
          "seconds": dict.fromkeys(("p10", "p50", "p90", "low", "high", "known"), s)}
"""
TINY = TrainConfig(model_type="tcn", hidden_size=16, num_layers=2, batch_size=8)


@pytest.fixture(autouse=True)
def quick(monkeypatch, home):
    monkeypatch.setattr(results, "CODE", f"HOME = {str(home)!r}\n{QUICK}")
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")


def another_kernel(home):
    "What panels kept is of a process that is gone."
    for file in (home/"panels").glob("*.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"process": 1}))


def ran(home, batch): return len((home/f"ran-{batch}").read_text())


KERNEL = """from mabe_nb.measure import results
from mabe_nb.train.config import TrainConfig
from mabe_nb.view.panels.measure.sweep import SweepPanel
from mabe_nb.view.panels.train import TrainPanel
results.CODE = {code!r}
panel = SweepPanel(TrainConfig(**{tiny!r}), sizes="8")
panel.sizes.value, panel.seconds.value = "16,64,256", 0.5
panel.go()
"""


@pytest.mark.slow
def test_a_sweep_after_its_kernel_was_killed(home):
    "Its values, what it measured, and the probe that was on its way; nothing is paid twice."
    code = KERNEL.format(code=results.CODE, tiny=TINY.model_dump(exclude_defaults=True))
    kernel = subprocess.Popen([sys.executable, "-c", code])
    soon((home/"ran-64").exists, 120)
    kernel.kill()
    kernel.wait()
    again = SweepPanel(TINY, sizes="8")
    assert (again.sizes.value, again.seconds.value) == ("16,64,256", 0.5)
    soon(lambda: again.status == "running", 60)
    (home/"gate").touch()
    soon(lambda: "2 of 3 measured before the restart; Measure goes on"
         in again.status_line.value and not again.busy.locked(), 120)
    assert again.result.rows.batch.tolist() == [16, 64] and jobs() == []
    again.go()
    assert again.status == "done" and again.result.rows.batch.tolist() == [16, 64, 256]
    assert [ran(home, b) for b in (16, 64, 256)] == [1, 1, 1]


def test_a_comparison_after_a_restart(home):
    panel = ComparePanel(TINY, places=["local", "local:cpu"])
    panel.places.value = ("local:cpu",)
    panel.go()
    assert panel.status == "done", panel.error
    another_kernel(home)
    again = ComparePanel(TINY, places=["local", "local:cpu"])
    assert again.places.value == ("local:cpu",)
    soon(lambda: again.result is not None and again.status == "done", 60)
    assert again.result.equals(panel.result.assign(reused=again.result.reused,
                                                   paid=again.result.paid))
    assert "1 of 1 measured before the restart" in again.status_line.value
    assert ran(home, 8) == 1 and "modal:L4" in dict(map(reversed, again.rows.options))


def test_a_panel_that_never_measured_looks_for_nothing(home):
    SweepPanel(TINY, sizes="8").sizes.value = "16"
    another_kernel(home)
    again = SweepPanel(TINY, sizes="8")
    assert (again.sizes.value, again.status) == ("16", "idle") and not again.measured_once


def asked(panel): return panel.question.open and panel.question.words.value


def test_above_the_amount_it_asks_once(monkeypatch):
    card, began = GPUPanel("modal", "L4"), []
    for panel in (JobPanel("x = 1", gpu=card, namespace={}, timeout=36_000),
                  SweepPanel(TINY, sizes="16,32", gpu=card),
                  ComparePanel(TINY, places=["modal:L4", "local"])):
        panel.question.go = lambda: began.append(panel)
        if hasattr(panel, "limit"): panel.limit.value = 36_000
        most = panel.most_usd()
        assert most > 1 and f"{most:.2f} USD" in panel.price_of()
        panel.press_start()
        assert f"up to ${most:,.2f}, and you are asked above $1.00" in asked(panel)
        panel.question.no.click()
        assert not asked(panel) and began == [] and panel.status != "running"
        panel.press_start()
        card.notify() # it has counted the memory that is needed, and nothing else is new
        assert asked(panel), "it was gone under the hand that answered"
        panel.question.amount.value = most + 0.01
        assert not asked(panel), "another question now"
        panel.press_start()
        assert began == [panel] and not asked(panel)
        panel.question.amount.value = 0.5
        panel.press_start()
        panel.question.yes.click()
        assert began == [panel] * 2 and not asked(panel)
        began.clear()


def test_what_costs_nothing_is_never_asked():
    panel = JobPanel("x = 1", namespace={}, outputs="x", timeout=36_000)
    panel.question.amount.value = 0
    panel.press_start()
    soon(lambda: panel.status == "done")
    assert panel.result == {"x": 1} and not asked(panel)


def test_the_file_of_a_panel_goes_with_its_job(home):
    job = submit("x = 1")
    job.wait()
    kept = home/"panels"/"one.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps({"process": 1, "values": {}, "job": job.id}))
    old = home/"panels"/"old.json"
    old.write_text(json.dumps({"process": 1, "values": {}, "job": None}))
    torn = home/"panels"/"torn.json"
    torn.write_text("{")
    JobPanel("y = 1", namespace={})
    assert kept.exists() and old.exists() and torn.exists()
    os.utime(old, (time.time() - 91 * 86400,) * 2)
    for file in sorted(job.folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    job.folder.rmdir()
    JobPanel("z = 1", namespace={})
    assert not kept.exists() and not old.exists() and torn.exists()


def test_after_a_restart_what_was_changed_on_top_of_a_preset_stays(home):
    panel = TrainPanel("data")
    panel.preset.value = "fastest"
    panel.fields["epochs"].value = 77
    another_kernel(home)
    again = TrainPanel("data")
    assert (again.preset.value, again.fields["epochs"].value) == ("fastest", 77)
    assert again.cfg == panel.cfg

"Sweep and comparison as panels: driven by state, with real jobs of this machine behind."
import time
from functools import wraps

import pytest
from hypothesis import given, settings, strategies as st

from panel_work import home, soon  # noqa: F401

from mabe_nb.errors import ConfigError
from mabe_nb.measure.sweep import other_cards
from mabe_nb.measure import results
from mabe_nb.remote.job import jobs, quote
from mabe_nb.train.config import TrainConfig
from mabe_nb.view.panels.measure import compare as compare_panel, sweep as sweep_panel
from mabe_nb.view.panels.measure.compare import ComparePanel, probes_ceiling, places_of
from mabe_nb.view.panels.gpu import GPUPanel
from mabe_nb.view.panels.job import JobPanel
from mabe_nb.view.panels.measure.sweep import SweepPanel, sizes_of
from mabe_nb.view.panels.train import TrainPanel

# A probe whose steps take 10 ms and 0.1 ms a window; above 256 windows it does not fit
QUICK = """b, device = spec["settings"]["batch_size"], spec["settings"]["device"]
if device == "cuda:9": raise RuntimeError("no device <b>cuda:9</b>")
s = 0.01 + 1e-4 * b
result = {"status": "ok", "windows_s": b / s, "flops": 1e9, "bytes": 1e9, "parts": {},
          "card": "EPYC", "batch": b, "precision": "fp32", "device": "cpu",
          "memory": {"peak": 1e8 + 1e6 * b},
          "seconds": dict.fromkeys(("p10", "p50", "p90", "low", "high", "known"), s)}
if b > 256: result = {"status": "oom", "batch": b, "note": f"batch {b} does not fit"}
"""
LATE = "import time\nif spec['settings']['batch_size'] > 16: time.sleep(60)\n"
TINY = TrainConfig(model_type="tcn", hidden_size=16, num_layers=2, batch_size=8)


@pytest.fixture(autouse=True)
def quick(monkeypatch): monkeypatch.setattr(results, "CODE", QUICK)


def free(panel): return not any(c.disabled for c in panel.locked) and panel.stop_button.disabled


# SweepPanel

@pytest.mark.slow
def test_settings_are_measured_and_the_knee_flows_back():
    card = GPUPanel("local")
    train = TrainPanel("x", TINY, gpu=card)
    panel, told, taken = SweepPanel(sizes="16,64,256,512", gpu=card, train=train), [], []
    panel.status_line.observe(lambda change: told.append(change.new), "value")
    panel.listeners.append(lambda: taken.append(panel.cfg.batch_size))
    panel.go()
    assert (panel.status, panel.error) == ("done", None) and free(panel)
    assert [n for n in range(1, 5) if any(f"{n} measured" in t for t in told)] == [1, 2, 3, 4]
    assert panel.result.rows.status.tolist() == ["ok", "ok", "ok", "oom"]
    assert panel.result.knee == 256 and "knee 256" in panel.picture.value
    assert panel.table.value.count("<tr>") == 5 and "does not fit" in panel.facts.value
    panel.take()
    assert train.cfg.batch_size == card.batch.value == panel.cfg.batch_size == 256
    assert taken == [256] and "batch-size=256" in " ".join(train.command())


def test_the_code_measures_the_same():
    panel = SweepPanel(TINY, sizes="16,64")
    panel.precision.value, panel.seconds.value = "bf16", 0.5
    panel.go()
    said = {}
    exec(panel.code(), said)
    assert said["done"].rows.reused.all() and said["done"].knee == panel.result.knee
    assert "precision='bf16'" in panel.code() and "hidden_size=16" in panel.code()
    cards = other_cards(said["done"], TINY) # as 'mabe sweep' says
    assert ", ".join(f"{r.card} {r.suggested:,}" for r in cards.itertuples()) in panel.facts.value


def test_the_settings_of_a_training_are_followed():
    train = TrainPanel("x", TINY)
    panel = SweepPanel(train=train)
    panel.shows_code.value = True
    train.fields["hidden_size"].value = "32"
    assert "hidden_size=32" in panel.code_text.value
    train.fields["num_layers"].value = "many"
    panel.go()
    assert panel.status == "error" and "num_layers" in panel.error and free(panel)
    assert jobs() == []


def test_the_ceiling_counts_every_size():
    card = GPUPanel("modal", "L4")
    panel = SweepPanel(TINY, sizes="16,32", gpu=card)
    two = panel.price_of()
    panel.sizes.value = ""
    one = quote("modal", "L4", timeout=900)["most_seconds"] # the longest of a size
    assert f"for {2 * one:g} s" in two and f"for {9 * one:g} s" in panel.price_of()
    card.move("local")
    assert "nothing is billed" in panel.price.value


def test_cancel_keeps_what_was_measured(monkeypatch):
    monkeypatch.setattr(results, "CODE", LATE + QUICK)
    panel = SweepPanel(TINY, sizes="16,32,64")
    thread = panel.start()
    soon(lambda: "1 measured" in panel.status_line.value)
    soon(lambda: [job.status() for job in jobs()] == ["running"])
    start = time.monotonic()
    panel.cancel()
    thread.join(10)
    assert time.monotonic() - start < 5 and free(panel)
    assert panel.status == "idle" and panel.error is None
    assert panel.result.rows.batch.tolist() == [16]
    assert {job.status() for job in jobs()} == {"cancelled"}
    panel.take()
    assert panel.cfg.batch_size == 16
    panel.sizes.value = "16"
    panel.go()
    assert panel.status == "done" and panel.result.rows.reused.all()


def test_work_that_fails_is_told_and_is_not_the_end(monkeypatch):
    panel = SweepPanel(TINY, sizes="16")
    with monkeypatch.context() as m:
        m.setattr(results, "CODE", "raise RuntimeError('no <b>mice</b>')\nresult = 1")
        panel.start().join(30)
    assert panel.status == "error" and "no size worked" in panel.error and free(panel)
    assert "no <b>mice</b>" in panel.error and "<b>mice" not in panel.status_line.value
    assert "<b>mice" not in panel.facts.value and panel.take_button.disabled
    panel.take()
    assert "no batch to use" in panel.error
    @wraps(sweep_panel.sweep)
    def broken(**asked): raise ZeroDivisionError("deep inside")
    with monkeypatch.context() as m:
        m.setattr(sweep_panel, "sweep", broken)
        panel.go()
    assert panel.error == "ZeroDivisionError: deep inside" and free(panel)
    panel.go()
    assert (panel.status, panel.error) == ("done", None) and not panel.take_button.disabled


@given(st.text("0123456789,. -x", max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_sizes_are_a_list_or_an_error(text):
    try: found = sizes_of(text)
    except ConfigError: return
    assert found is None or found == sorted(set(found)) and found[0] > 0


# ComparePanel

def test_a_row_flows_into_the_card_and_the_job():
    card = GPUPanel("local")
    job = JobPanel("x = 1", gpu=card, namespace={})
    panel = ComparePanel(TINY, places=["local:cpu", "local:cuda:9"], gpu=card)
    assert "nothing is billed" in panel.price.value
    panel.go()
    assert (panel.status, panel.error) == ("done", None) and free(panel)
    basis = panel.result.set_index("where").basis
    assert basis["local:cpu"] == "measured" and basis["modal:L4"] == "predicted"
    for words in ("measured", "predicted", "no device &lt;b&gt;cuda:9"):
        assert words in panel.table.value
    assert "local:cpu" in panel.picture.value and "<b>cuda" not in panel.table.value
    offered = [place for _, place in panel.rows.options]
    assert "local:cuda:9" not in offered
    assert panel.result.set_index("where").pareto[offered[0]] # one worth it is on top
    panel.rows.value = "modal:H100"
    panel.take()
    assert (card.on, card.gpu) == ("modal", "H100") and "on modal H100" in job.price.value
    panel.rows.value = "local:cpu"
    panel.take()
    assert (card.on, card.gpu) == ("local", None)


def test_compare_as_code_and_its_ceiling():
    panel = ComparePanel(TINY, places=["local:cpu"], predict=None)
    panel.go()
    said = {}
    exec(panel.code(), said)
    assert said["table"].reused.all() and len(said["table"]) == 1
    panel.places.value = ("local:cpu", "modal:T4", "hf:t4-small")
    assert "3 to measure: at most about" in panel.price.value
    with pytest.raises(ConfigError, match="did you mean 'L4'"): probes_ceiling(["modal:L44"], 9)
    assert {"local", "modal:L4", "hf:t4-small"} <= {place for _, place in places_of()}


def test_compare_that_fails_is_told_and_is_not_the_end(monkeypatch):
    panel = ComparePanel(TINY, places=["local:cuda:9"])
    panel.take()
    assert "no place to take" in panel.error
    panel.start().join(30)
    assert panel.status == "error" and "nothing could be measured" in panel.error
    assert free(panel) and panel.take_button.disabled and panel.result is None
    panel.places.value = ()
    panel.go()
    assert "no place is chosen" in panel.error and free(panel)
    @wraps(compare_panel.compare)
    def broken(**asked): raise ZeroDivisionError("deep inside")
    monkeypatch.setattr(compare_panel, "compare", broken)
    panel.places.value = ("local",)
    panel.go()
    assert panel.error == "ZeroDivisionError: deep inside" and free(panel)


def test_cancel_of_a_comparison_stops_its_job(monkeypatch):
    monkeypatch.setattr(results, "CODE", "import time; time.sleep(60)\nresult = 1")
    panel = ComparePanel(TINY)
    thread = panel.start()
    soon(lambda: [job.status() for job in jobs()] == ["running"])
    panel.cancel()
    thread.join(10)
    assert panel.status == "idle" and free(panel) and panel.result is None
    assert [job.status() for job in jobs()] == ["cancelled"]


def test_every_choice_shows_what_is_chosen():
    "A `Dropdown` with None among its values may show nothing at all."
    for panel in (SweepPanel(), ComparePanel(predict=None)):
        for choice in (c for c in panel.locked if hasattr(c, "options")):
            assert None not in [value for _, value in choice.options], choice
            assert choice.index not in (None, ()), choice

"Panels, driven by their state alone; the work behind them is real, on this machine."
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET

import ipywidgets as W
import pytest
from hypothesis import given, settings, strategies as st
from traitlets import TraitError

from panel_work import home, soon  # noqa: F401

from mabe_nb.cli import make_parser
from mabe_nb.commands.parser import config_from
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError
from mabe_nb.hardware.catalog import check_gpu
from mabe_nb.remote.job import attach, jobs, submit
from mabe_nb.remote.places.base import DiskPlace
from mabe_nb.train.config import TrainConfig
from mabe_nb.view.panels import plan as plan_module
from mabe_nb.view.panels.measure.compare import ComparePanel
from mabe_nb.view.panels.plan import PLACES, cards_of
from mabe_nb.view.panels.gpu import GPUPanel, parameters_of
from mabe_nb.view.panels.job import JobPanel
from mabe_nb.view.panels.runs import RunsPanel, find_runs
from mabe_nb.view.panels.source import source_of, variables_named
from mabe_nb.view.panels.panel import Panel, button, control_names
from mabe_nb.view.panels.measure.sweep import SweepPanel
from mabe_nb.view.panels.train import TrainPanel, curves_svg, epoch_words, epochs_of

LONG = ("import time\nfor i in range(900):\n    print('line', i, flush=True)\n"
        "    time.sleep(0.05)")
SMALL = dict(conv_channels=[16], lstm_hidden=8, batch_size=8)


@pytest.fixture(scope="module")
def colony(tmp_path_factory):
    return write_colony(tmp_path_factory.mktemp("data")/"colony", videos=4, minutes=0.5)


def free(panel): return not any(c.disabled for c in panel.locked)


def below(widget): # every widget of a page
    yield widget
    for child in getattr(widget, "children", ()): yield from below(child)


# Names

@pytest.mark.parametrize("kind", [GPUPanel, JobPanel, TrainPanel, SweepPanel,
                                  ComparePanel])
def test_every_control_has_a_name_and_a_tooltip(kind):
    found = [w for w in below(kind().box)
             if isinstance(w, W.Button) or isinstance(w, W.ValueWidget)
             and not isinstance(w, W.HTML)]
    assert len(found) > 6
    for w in found: assert w.description.strip() and w.tooltip.strip(), w
    said = [w.description for w in found]
    assert len(set(said)) == len(said), "two controls of one name"


def test_a_nameless_control_is_refused():
    with pytest.raises(ConfigError, match="Button has no description"):
        Panel().lay_out(W.HBox([button(" ", print)]))


def test_names_in_tabs_are_found():
    assert "Learning rate" in control_names(TrainPanel().box)


# GPUPanel

@pytest.mark.parametrize("on", PLACES.values())
def test_whatever_can_be_chosen_can_be_asked_for(on):
    panel = GPUPanel(on)
    for card, counts in cards_of(on).items():
        for count in {counts[0], counts[-1]}:
            panel.card.value, panel.count.value = card, count
            said = {}
            exec(panel.code(), said)
            assert said["on"] == on and said["gpu"] == panel.gpu and panel.error is None
            if on in ("modal", "hf"): assert check_gpu(panel.gpu, on) == panel.gpu
            assert "USD an hour, as of" in panel.known_facts()["Price"] or on not in ("modal", "hf")


def test_a_typo_cannot_be_sent():
    panel = GPUPanel("modal", "L4")
    with pytest.raises(TraitError): panel.card.value = "L44"
    with pytest.raises(ConfigError, match="did you mean 'H100'"): panel.choose("H10")
    with pytest.raises(ConfigError, match="not for rent"): panel.choose("A10:7")
    assert panel.gpu == "L4"


def test_the_choice_flows_into_the_job():
    card = GPUPanel("modal", "T4")
    job = JobPanel("x = 1", gpu=card, namespace={}, timeout=7200, retries=1)
    before = job.price.value
    card.choose("H100:2")
    asked = job.arguments()
    assert (asked["on"], asked["gpu"]) == ("modal", "H100:2") and "gpu='H100:2'" in job.code()
    assert "at most about" in job.price.value and job.price.value != before
    most, rate = map(float, re.findall(r"([\d.]+) USD", job.price_of()))
    assert 4 * rate < most < 4.5 * rate # two attempts of two hours, and what starts take
    card.place.value = "local"
    assert job.price_of() == "on local: nothing is billed"


def test_the_last_choice_counts_though_events_come_in_two_threads(monkeypatch):
    "JupyterLab and ipykernel 7 do that: the first event of a widget in the main thread."
    card = GPUPanel("modal", "A100")
    job, began, real = JobPanel("x = 1", gpu=card, namespace={}), threading.Event(), \
        plan_module.get
    def slow(on):
        began.set()
        time.sleep(0.3 if on == "modal" else 0)
        return real(on)
    monkeypatch.setattr(plan_module, "get", slow)
    other = threading.Thread(target=lambda: setattr(card.shows_code, "value", True))
    other.start()
    assert began.wait(10)
    card.place.value = "local"
    other.join()
    assert "nothing is billed" in job.price.value and "nothing" in card.facts.value
    assert card.code_text.value == "on, gpu = 'local', None"


def test_a_place_and_a_card_at_once():
    card = GPUPanel("hf", "l4x4")
    assert (card.gpu, card.count.value) == ("l4x4", 4)
    card.move("modal", "A10G:2")
    assert (card.on, card.gpu) == ("modal", "A10:2")
    for wrong in (("modal", "H10"), ("mars", None), ("hf", "h200x8"), ("hf", "cpu-basic")):
        with pytest.raises(ConfigError): card.move(*wrong)
        assert (card.on, card.gpu) == ("modal", "A10:2")


def test_the_settings_flow_into_the_fit():
    card = GPUPanel("modal", "T4")
    panel = TrainPanel("x", TrainConfig(model_type="conv_bilstm"), gpu=card)
    panel.fields["batch_size"].value = 4096
    panel.fields["lstm_hidden"].value = 2048
    assert card.batch.value == 4096
    assert card.known_facts()["Fits"].startswith(("no", "maybe"))
    assert card.counted[1] == parameters_of(panel.cfg)


def test_a_model_too_large_for_this_machine_is_counted():
    cfg = TrainConfig(model_type="lstm", hidden_size=8192, num_layers=128)
    assert parameters_of(cfg) > 10**11 # 400 GB, were they real


@pytest.mark.slow
def test_a_first_panel_needs_no_pytorch():
    "It takes seconds and two hundred MB; a model is counted once a card is looked at."
    code = """import sys
from mabe_nb.train.config import TrainConfig
from mabe_nb.view.panels.measure.compare import ComparePanel
from mabe_nb.view.panels.gpu import GPUPanel
from mabe_nb.view.panels.job import JobPanel
from mabe_nb.view.panels.measure.sweep import SweepPanel
from mabe_nb.view.panels.train import TrainPanel
card = GPUPanel("local", cfg=TrainConfig(model_type="lstm"))
train = TrainPanel("colony", gpu=card)
panels = [card, train, JobPanel(gpu=card), SweepPanel(gpu=card, train=train),
          ComparePanel(gpu=card, train=train)]
for panel in panels: panel._repr_mimebundle_()
assert "torch" not in sys.modules
card.move("modal", "L4")
card.counter.join(120)
assert "torch" in sys.modules and "Fits" in card.known_facts()"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


# The base

class Work(Panel):
    def __init__(self, work):
        super().__init__()
        self.work, self.field = work, W.Text(description="Field")
        self.locked = [self.field]
        self.box = self.lay_out(self.field)

    def code(self): return "pass"
    def go(self): self.run(self.work)


def test_a_failure_is_told_as_text_and_is_not_the_end():
    def broken(): raise RuntimeError("<img src=x onerror=alert(1)>")
    panel = Work(broken)
    panel.start().join()
    assert panel.status == "error" and panel.error.startswith("RuntimeError: <img")
    assert "<img" not in panel.status_line.value and 'role="status"' in panel.status_line.value
    assert free(panel)
    panel.work = lambda: 5
    panel.go()
    assert (panel.status, panel.result, panel.error) == ("done", 5, None)


def test_one_work_at_a_time_and_locked_meanwhile():
    gate, calls = threading.Event(), []
    panel = Work(lambda: (calls.append(1), gate.wait(10)))
    start = time.monotonic()
    thread = panel.start()
    assert time.monotonic() - start < 2
    soon(lambda: panel.status == "running")
    panel.go() # returns at once and does nothing
    assert panel.field.disabled and calls == [1]
    gate.set()
    thread.join()
    assert calls == [1] and free(panel)


def test_a_control_that_was_off_stays_off():
    panel = Work(lambda: 1)
    panel.field.disabled = True
    panel.go()
    assert panel.field.disabled


# JobPanel

def test_a_cell_comes_back_with_values_and_figures():
    cell = ("from matplotlib import pyplot\nfor i in range(3): progress(i + 1, 3, x=i)\n"
            "pyplot.plot([1, 2]); print('<b>drawn</b>')\ny = [2 * v for v in xs]")
    panel = JobPanel(cell, namespace={"xs": [1, 2]}, inputs="xs", outputs="y", timeout=60)
    panel.go()
    assert (panel.status, panel.result, panel.error) == ("done", {"y": [2, 4]}, None)
    assert "3/3" in panel.view.value and 'role="progressbar"' in panel.view.value
    assert "&lt;b&gt;drawn" in panel.view.value and "<b>" not in panel.view.value
    assert 'alt="figure fig/001.png of the job"' in panel.pictures.value
    assert free(panel) and panel.stop_button.disabled and panel.detach_button.disabled


def test_the_code_does_what_send_does():
    panel = JobPanel('x = "a\\n" * n\ny = """q"""', namespace={"n": 3}, inputs="n",
                     outputs="x,y", timeout=60)
    panel.go()
    said = {"n": 3}
    exec(panel.code(), said)
    assert said["job"].result() == panel.result == {"x": "a\n" * 3, "y": "q"}


def double(): return {"value": 42}


def test_a_function_and_a_command():
    panel = JobPanel("double", "function", namespace={"double": double}, outputs="value")
    panel.go()
    assert panel.result == {"value": 42} and "submit(double," in panel.code()
    panel = JobPanel("echo 'two words'", "command", namespace={})
    panel.go()
    assert panel.status == "done" and "two words" in panel.job.log()


def test_faults_before_anything_is_sent():
    panel = JobPanel("x =", namespace={"numbers": 1})
    for change, words in ((dict(source="x ="), "not plain"),
                          (dict(source="x = 1", inputs="numbrs"), "did you mean 'numbers'"),
                          (dict(inputs="", kind="function", source="x"), "variable 'x'"),
                          (dict(kind="command", source="a 'b"), "No closing"),
                          (dict(kind="cell", source="x = numbers"), "does not travel"),
                          (dict(source="x = nmbers"), "neither it nor the notebook")):
        for name, value in change.items(): getattr(panel, name).value = value
        assert panel.status == "error" and words in panel.error, (change, panel.error)
        assert panel.start_button.disabled, "Send could only fail"
        panel.go()
        assert panel.status == "error" and words in panel.error, (change, panel.error)
    panel.source.value = " "
    assert panel.status == "idle" and "write a cell" in panel.status_line.value
    assert panel.start_button.disabled and jobs() == []
    panel.source.value, panel.outputs.value = "x = 1", "x b-"
    panel.go()
    assert panel.status == "error" and "b-" in panel.error and jobs() == []
    assert panel.start_button.disabled
    panel.outputs.value = "x y"
    assert "never sets 'y'" in panel.error and panel.start_button.disabled


def test_send_is_ready_once_a_cell_has_made_the_variable():
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    try:
        panel = JobPanel("x = made", inputs="made", outputs="x")
        assert panel.start_button.disabled and "made" in panel.error
        shell.run_cell("made = 3")
        assert not panel.start_button.disabled and panel.error is None
        panel.go()
        assert panel.result == {"x": 3}
    finally: InteractiveShell.clear_instance()


def test_what_is_missing_is_asked_for_until_it_is_there():
    for panel, field, words in ((JobPanel(namespace={}), "source", "write a cell to send"),
                                (TrainPanel(), "data", "name a dataset")):
        assert words in panel.status_line.value and panel.start_button.disabled
        getattr(panel, field).value = "print(1)"
        assert words not in panel.status_line.value and not panel.start_button.disabled
        getattr(panel, field).value = ""
        assert words in panel.status_line.value


def test_work_that_fails_and_work_that_dies():
    panel = JobPanel("raise ValueError('no mice')", namespace={}, timeout=60)
    panel.go()
    assert panel.status == "error" and "ValueError: no mice" in panel.error and free(panel)
    panel.source.value = LONG
    thread = panel.start()
    soon(lambda: "line 2" in panel.view.value)
    os.kill(panel.job.spec["handle"]["pid"], signal.SIGKILL)
    thread.join(20)
    assert panel.status == "error" and "was killed" in panel.error and free(panel)
    panel.source.value = "print(1)"
    panel.go()
    assert panel.status == "done"


def test_detach_list_follow_cancel():
    first = JobPanel(LONG, namespace={}, timeout=60)
    thread = first.start()
    soon(lambda: "line 2" in first.view.value)
    start = time.monotonic()
    first.detach()
    thread.join(5)
    assert time.monotonic() - start < 2 and first.status == "idle" and free(first)
    assert attach(first.job.id).status() == "running"
    second = JobPanel(namespace={})
    second.refresh()
    assert [label.split(" · ")[1:] for label, _ in second.known.options] == [
        ["local", "running"]]
    second.known.value = first.job.id
    second.reattach()
    soon(lambda: "line 2" in second.view.value)
    second.cancel()
    second.thread.join(20)
    assert second.status == "idle" and second.error is None and second.result is None
    assert "was cancelled" in (said := second.status_line.value)
    assert "✓" not in said and "done" not in said
    assert attach(first.job.id).status() == "cancelled"


def test_a_job_that_is_stopped_by_force_was_cancelled_and_no_error(monkeypatch):
    "On a busy machine: what follows it sees its end before that is written."
    write = DiskPlace.write_cancelled
    monkeypatch.setattr(DiskPlace, "write_cancelled", lambda *args: (
        panel.thread.join(20), write(*args)))
    monkeypatch.setattr("mabe_nb.remote.places.local._signal", lambda pid, number:
                        os.kill(pid, signal.SIGKILL))
    panel = JobPanel(LONG, namespace={}, timeout=60)
    panel.start()
    soon(lambda: "line 2" in panel.view.value)
    panel.cancel()
    panel.thread.join(20)
    assert panel.status == "idle" and panel.error is None and free(panel)
    assert "was cancelled" in panel.status_line.value


def test_following_nothing_says_so():
    panel = JobPanel(namespace={})
    panel.reattach()
    panel.thread.join()
    assert panel.status == "error" and "no job is chosen" in panel.error


def test_a_broken_neighbour_does_not_empty_the_list(home):
    submit("x = 1").wait()
    (home/"jobs"/"torn").mkdir()
    (home/"jobs"/"torn"/"job.json").write_text("{")
    panel = JobPanel(namespace={})
    with pytest.warns(UserWarning, match="left out"): panel.refresh()
    assert len(panel.known.options) == 1
    (home/"jobs"/"torn"/"job.json").unlink()


@given(text=st.text(max_size=30), kind=st.sampled_from(("cell", "command", "function")))
@settings(max_examples=60, deadline=None)
def test_any_text_is_a_source_or_an_error(text, kind):
    try: assert source_of(kind, text, {"f": double})
    except ConfigError: pass


@pytest.mark.parametrize("text", ("f f", ",", "f, "))
def test_a_function_is_one_name(text):
    with pytest.raises(ConfigError, match="is no function"):
        source_of("function", text, {"f": double})


def test_picked_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'xy'"): variables_named("yx", {"xy": 1, "_a": 2})


# The kernel stays free

def test_the_kernel_answers_while_a_job_runs():
    from jupyter_client.manager import start_new_kernel
    manager, client = start_new_kernel(kernel_name="python3")
    ask = lambda code: client.execute_interactive(code, timeout=60, output_hook=lambda m: None)
    try:
        assert ask("from mabe_nb.view.panels.job import JobPanel\n"
                   f"panel = JobPanel({LONG!r}, namespace={{}}, timeout=60)"
                   )["content"]["status"] == "ok"
        waits = []
        for code in ("panel.start()", *["1 + 1"] * 5):
            start = time.monotonic()
            ask(code)
            waits.append(time.monotonic() - start)
            time.sleep(0.2)
        running = ask("import time\nfor _ in range(100):\n"
                      "    if 'line 2' in panel.view.value: break\n    time.sleep(.1)\n"
                      "assert panel.status == 'running' and panel.job.status() == 'running'")
        ask("panel.job.cancel()")
        assert running["content"]["status"] == "ok" and sorted(waits)[3] < 0.5, waits
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


# TrainPanel

def test_why_the_last_epoch_and_the_card_differ_is_said():
    row = {"train_loss": 1.0, "valid_loss": 1.0, "seconds": 1.0, "gpu": {}}
    epochs = [row | {"epoch": n, "valid_f1": f1} for n, f1 in ((1, 0.5), (2, 0.25))]
    assert ("F1 0.25 (best 0.5 in epoch 1: the card's F1 is of that one, by windows that "
            "overlap)") in epoch_words(epochs)


def test_form_and_command_line_agree(colony):
    for cfg in (TrainConfig(), TrainConfig(epochs=3, conv_channels=[8], amp=True, fps=30,
                loss="focal", class_weights=[1, 2.5], use_augmentation=False, min_lr=0,
                features="social", model_type="tcn")):
        panel = TrainPanel(colony, cfg, train_videos="0-2")
        assert panel.cfg == cfg and panel.error is None
        args = make_parser().parse_args(panel.command()[1:])
        assert config_from(args) == cfg and args.train_videos == "0-2"
        compile(panel.code(), "code", "exec")


def test_a_slip_is_told_at_once_and_cannot_be_started():
    panel = TrainPanel("nowhere")
    panel.fields["conv_channels"].value = "32,many"
    assert "conv_channels" in panel.error or "many" in panel.error
    panel.go()
    assert panel.status == "error" and panel.start_button.disabled and jobs() == []
    panel.fields["conv_channels"].value = ""
    assert panel.error is None and panel.cfg.conv_channels == [64, 128, 256]
    assert free(panel)


@pytest.mark.slow
def test_a_training_that_fails_says_why(tmp_path):
    panel = TrainPanel(tmp_path/"no such data") # a Path has a root, too: /
    assert panel.data.value == str(tmp_path/"no such data")
    panel.go()
    assert panel.status == "error" and free(panel)
    assert "no such data" in panel.job.log()


@pytest.mark.slow
def test_stop_and_resume(colony):
    panel = TrainPanel(colony, TrainConfig(epochs=400, early_stopping_patience=400, **SMALL),
                       train_videos="0-2", valid_videos="3")
    thread = panel.start()
    soon(lambda: "up to epoch" in panel.curves.value)
    first = panel.curves.value
    soon(lambda: panel.curves.value != first) # it moves
    panel.cancel()
    thread.join(30)
    assert panel.status == "idle" and panel.job.status() == "cancelled" and free(panel)
    was = epochs_of(panel.job.folder/"ckpt/run/log.jsonl")[-1]["epoch"]
    soon(lambda: panel.known.value == panel.job.id)
    panel.resume()
    soon(lambda: epochs_of(panel.job.folder/"ckpt/run/log.jsonl")[-1]["epoch"] > was + 1)
    soon(lambda: not panel.stop_button.disabled)
    panel.cancel()
    panel.thread.join(30)
    assert "going on from epoch" in panel.job.log() and panel.error is None


@given(cut=st.integers(0, 500), noise=st.binary(max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_beginning_of_a_log_can_be_read(tmp_path_factory, cut, noise):
    rows = [{"event": "epoch", "epoch": n, "train_loss": float("nan"), "valid_loss": 1.0,
             "valid_f1": 0.5, "seconds": 1.0} for n in (1, 2, 2, 3)]
    path = tmp_path_factory.getbasetemp()/"log.jsonl"
    path.write_bytes("".join(json.dumps(r) + "\n" for r in rows).encode()[:cut] + noise)
    found = [row["epoch"] for row in epochs_of(path)]
    assert found == sorted(set(found)) and set(found) <= {1, 2, 3}


@pytest.mark.parametrize("odd", [{"epoch": True}, {"valid_f1": [1]}, {"seconds": "long"},
                                 {"valid_loss": {}}, {"train_loss": "x"}])
def test_a_line_of_a_log_whose_numbers_are_none_is_left_out(tmp_path, odd):
    good = {"event": "epoch", "epoch": 1, "valid_loss": 1.0, "valid_f1": None, "seconds": 1}
    (tmp_path/"log.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(good | {'epoch': 2} | odd)}\n")
    assert epochs_of(tmp_path/"log.jsonl") == [good]


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.lists(st.tuples(
    st.integers(1, 99), st.floats(0, 1e9) | st.just(float("nan"))), max_size=5), max_size=3),
    st.text(max_size=9))
@settings(max_examples=60, deadline=None)
def test_curves_are_well_formed(lines, title):
    plain = lambda text: "".join(c for c in text if c.isprintable())
    svg = curves_svg({plain(k): v for k, v in lines.items()}, plain(title))
    drawn = ET.fromstring(svg or "<svg/>")
    for line in drawn.iter("polyline"): assert "nan" not in line.get("points")


# The plan

def test_the_plan_knows_what_the_same_took():
    panel = JobPanel("x = 1", namespace={})
    assert "never done there" in panel.price.value and "starts at once" in panel.price.value
    panel.go()
    assert "as the last time" in panel.price.value
    panel.source.value = "x = 2"
    assert "never done there" in panel.price.value


@pytest.mark.parametrize("make, what", [
    (lambda: JobPanel("1", gpu="L4", namespace={}), "gpu is 'L4', expected a GPUPanel, such as GPUPanel('modal', 'L4')"),
    (lambda: TrainPanel(gpu="L4"), "expected a GPUPanel"), (lambda: SweepPanel(gpu="L4"), "expected a GPUPanel"),
    (lambda: TrainPanel(cfg={"epochs": 3}), "expected a TrainConfig, such as TrainConfig(epochs=10)"),
    (lambda: SweepPanel({"epochs": 3}), "cfg is .* expected a TrainConfig"),
    (lambda: GPUPanel(cfg={"epochs": 3}), "expected a TrainConfig"), (lambda: GPUPanel(gpu=["L4"]), "expected a str"),
    (lambda: SweepPanel(train=TrainConfig()), "expected a TrainPanel"), (lambda: GPUPanel(shape=3), "expected a Workload")])
def test_what_is_no_panel_or_config_is_named(make, what):
    with pytest.raises(ConfigError, match=what.replace("(", r"\(").replace(")", r"\)")): make()


def test_the_plan_names_card_and_memory():
    card = GPUPanel("modal", "L4")
    panel = JobPanel("x = 1", namespace={}, gpu=card)
    card.counter.join(120)
    for words in ("on modal L4", "24 GB on the card", "the training needs", "at most about"):
        assert words in panel.price.value, words
    assert str(card.need) in panel.price.value and str(card.need) in card.facts.value


def test_no_two_panels_contradict_each_other():
    "What was measured is the advice, until the settings are others."
    import pandas as pd
    from mabe_nb.view.panels.measure.compare import ComparePanel
    card = GPUPanel("modal", "H100")
    panel = ComparePanel(gpu=card)
    guide = card.pick
    table = pd.DataFrame({"where": ["modal:T4", "modal:L4", "modal:A100-40GB"],
        "basis": "predicted", "seconds": [375.0] * 3, "usd": [.078, .1, .235], "card": None,
        "windows_s": 1.0, "low": 1.0, "high": 1.0, "pareto": True, "note": "", "ms": 1.0,
        "usd_per_hour": [.7, .9, 2.2]})
    panel.show(table)
    assert card.pick == table["where"][table.usd.idxmin()].partition(":")[2] == "T4" != guide
    card.take_advice()
    assert card.gpu == "T4" and "this model" in card.advice.value
    card.set_config(TrainConfig(batch_size=1024))
    assert card.pick == guide and "not this model" in card.advice.value


def test_long_windows_do_not_fit_a_small_card():
    "5,000 frames at batch 64 on a T4: counted on a step, not guessed from parameters."
    card = GPUPanel("modal", "T4", cfg=TrainConfig(
        conv_channels=[64, 128, 256], lstm_hidden=256, lstm_layers=2, sequence_length=5000,
        batch_size=64))
    assert not card.known_facts()["Fits"].startswith(("yes", "likely"))
    short = GPUPanel("modal", "T4", cfg=TrainConfig(batch_size=64))
    assert short.known_facts()["Fits"].startswith("yes")
    first = short.counted
    short.set_config(TrainConfig(batch_size=32))
    short.known_facts()
    assert short.counted is first # the batch alone needs no new count


def test_the_ceiling_of_a_panel_is_the_quote_of_the_job():
    from mabe_nb.remote.job import quote
    card = GPUPanel("modal", "L4")
    job = JobPanel("x = 1", gpu=card, namespace={}, timeout=7200, retries=1)
    asked = quote("modal", "L4", timeout=7200, retries=1)
    assert job.most_usd() == asked["most_usd"] and f"{asked['most_usd']:.2f} USD" in job.price_of()


def test_a_panel_takes_what_the_call_of_the_same_name_takes(home, tmp_path):
    data = open_dataset(write_colony(tmp_path/"colony", videos=2, minutes=0.2))
    panel = TrainPanel(data, train_videos=["1", "2"], valid_videos=["3"])
    assert (panel.data.value, panel.train_videos.value, panel.valid_videos.value) == (str(data.root), "1,2", "3")
    assert TrainPanel(None).data.value == ""
    panel = JobPanel(["mabe", "train", "a b"], "command", inputs=["x", "y"], outputs=["z"])
    assert (panel.source.value, panel.inputs.value, panel.outputs.value) == ("mabe train 'a b'", "x, y", "z")
    assert SweepPanel(sizes=[8, 16]).sizes.value == "8,16"
    for make, words in ((lambda: TrainPanel("d", hours=-5), "hours is -5"), (lambda: JobPanel(timeout=-1), "timeout is -1")):
        with pytest.raises(ConfigError, match=words): make()


def test_a_training_whose_f1_rises_is_not_told_to_stop():
    "The run of the page on verbs was, in the very epoch that it kept; the loss alone tells of surer errors."
    from mabe_nb.view.runs import warnings_of
    loss = [.180, .188, .192, .183, .165, .172, .191, .193, .191]
    f1 = [.7525, .7419, .7480, .7602, .7652, .7760, .7790, .7614, .7655] # Epochs 10 to 18
    of = [{"epoch": n, "valid_loss": x, "valid_f1": y} for n, (x, y) in enumerate(zip(loss, f1, strict=True), 1)]
    assert [bool(warnings_of(of[:n])) for n in range(1, 10)] == [False] * 8 + [True]
    said, = warnings_of(of)
    assert "lowest 4 epochs ago, 0.165, and is 0.191; F1 has not risen for 2" in said


def test_runs_that_other_videos_judge_are_not_ranked_without_a_word(tmp_path):
    "The best stood first, by an F1 of easier videos; nothing in the table told."
    for name, f1, ids in (("hard", .6, ["1", "2"]), ("easy", .9, ["7", "8", "9", "10"]), ("again", .5, ["2", "1"])):
        (tmp_path/name).mkdir()
        (tmp_path/name/"config.yaml").write_text("epochs: 2")
        (tmp_path/name/"videos.json").write_text(json.dumps({"train": ["5"], "valid": ids}))
        (tmp_path/name/"log.jsonl").write_text(json.dumps(
            {"event": "epoch", "epoch": 1, "train_loss": 1, "valid_loss": 1, "valid_f1": f1, "seconds": 1}))
    panel = RunsPanel(tmp_path)
    panel.thread.join()
    assert panel.result["validated on"].tolist() == [
        "1: 4 videos (10, 7, 8 and 1 more)", "2: 2 videos (1, 2)", "2: 2 videos (1, 2)"]
    assert "not all have the same validation videos" in panel.status_line.value
    shutil.rmtree(tmp_path/"easy")
    panel.go()
    assert "validated on" not in panel.result and "same videos" not in panel.status_line.value


def test_runs_are_read_once_for_a_word_and_what_cannot_be_read_is_told(tmp_path, monkeypatch):
    for name, text in (("good", "epochs: 2"), ("older", "no_such_setting: 1")):
        (tmp_path/name).mkdir()
        (tmp_path/name/"config.yaml").write_text(text)
        (tmp_path/name/"log.jsonl").write_text("")
    panel = RunsPanel(tmp_path)
    panel.thread.join()
    assert panel.result.run.tolist() == [str(tmp_path/"good")]
    assert "1 run; 1 cannot be read, such as " in panel.status_line.value and "older" in panel.status_line.value
    read, begun, go = [], threading.Event(), threading.Event()

    def slowly(folder):
        read.append((folder, panel.name.value))
        begun.set()
        assert go.wait(60)
        return find_runs(folder)
    monkeypatch.setattr("mabe_nb.view.panels.runs.find_runs", slowly)
    panel.name.value = "g"
    assert begun.wait(60)
    for n in range(2, 5): panel.name.value = "good"[:n]
    go.set()
    panel.thread.join()
    assert [name for _, name in read] == ["g", "good"] and len(panel.result) == 1
    shutil.rmtree(tmp_path)
    panel.go()
    assert f"there is no folder {tmp_path}" in panel.status_line.value and panel.result.empty

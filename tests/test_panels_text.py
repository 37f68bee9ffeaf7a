"""Panels where no widget can be shown: the same verbs as text, and never a traceback.

A notebook run by a program (nbclient), and IPython in a terminal.
"""
import json
import os
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from mabe_nb.train.config import TrainConfig
from mabe_nb.view.panels.job import JobPanel
from mabe_nb.view.panels.text import html_text

ALL = """from mabe_nb.view.panels.measure.compare import ComparePanel
from mabe_nb.view.panels.gpu import GPUPanel
from mabe_nb.view.panels.job import JobPanel
from mabe_nb.view.panels.runs import RunsPanel
from mabe_nb.view.panels.measure.sweep import SweepPanel
from mabe_nb.view.panels.train import TrainPanel
xs = [1, 2]
card = GPUPanel("local")
train = TrainPanel("colony", gpu=card)
panels = [card, train, JobPanel(gpu=card), SweepPanel(gpu=card, train=train),
          ComparePanel(gpu=card), RunsPanel()]
for panel in panels: display(panel)
"""
WORK = """panel = JobPanel("print('hello', sum(xs))\\ny = 3*xs", inputs="xs", outputs="y")
panel.go()
display(panel)
print("result:", panel.result)
panel.source.value = "y = ys"
print(panel)
print("code:", panel.code())
"""
SAID = ("panel.batch.value = 16  # Batch (windows)", "panel.go()  # Send",
        "panel.fields['epochs'].value = 20  # Epochs (number)", "panel.go()  # Measure",
        "panel.take_advice()  # Take the advice", "panel.go()  # Compare",
        "✓ done · job", "hello 3", "result: {'y': [1, 2, 1, 2, 1, 2]}",
        "⚠ error · the cell uses 'ys', which neither it nor the notebook defines")


@pytest.mark.slow
def test_in_a_notebook_that_a_program_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    nb = new_notebook(cells=[new_code_cell(ALL), new_code_cell(WORK)])
    client = NotebookClient(nb, timeout=300, kernel_name="python3", allow_errors=True,
                            resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    nbformat.validate(nb)
    outputs = [o for cell in nb.cells for o in cell.outputs]
    assert not [o for o in outputs[:-1] if o.output_type == "error"]
    assert outputs[-1].ename == "ConfigError", "code of what cannot be sent is refused"
    text = "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "")
                     for o in outputs)
    for words in SAID: assert words in text, words
    assert "VBox" not in text and "<div" not in text and "HTML(" not in text


@pytest.mark.slow
def test_in_a_terminal(tmp_path):
    env = {**os.environ, "MABE_HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path/"ip")}
    done = subprocess.run([sys.executable, "-m", "IPython", "--colors=NoColor", "-c",
                           ALL + WORK.replace('print("code:", panel.code())\n', "")],
                          env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Traceback" not in done.stdout + done.stderr
    for words in SAID: assert words in done.stdout, words
    assert "VBox" not in done.stdout and "<div" not in done.stdout


def test_each_line_of_a_panel_runs(tmp_path, monkeypatch):
    "Settings and verbs are code that works as it stands."
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    panel = JobPanel("y = 1", namespace={}, outputs="y")
    lines = [line for line in str(panel).split("\n") if line.startswith("panel.")]
    assert len(lines) > 12
    for line in lines: exec(line, {"panel": panel})
    panel.thread and panel.thread.join(60)
    assert panel.result == {"y": 1}


def test_each_verb_says_what_it_does():
    from mabe_nb.view.panels.measure.compare import ComparePanel
    from mabe_nb.view.panels.gpu import GPUPanel
    from mabe_nb.view.panels.runs import RunsPanel
    from mabe_nb.view.panels.measure.sweep import SweepPanel
    from mabe_nb.view.panels.train import TrainPanel
    from mabe_nb.view.panels.text import panel_text
    for kind in (GPUPanel, JobPanel, TrainPanel, SweepPanel, ComparePanel, RunsPanel):
        panel = kind()
        for name, call in panel.verbs.items():
            line, = [line for line in panel_text(panel).split("\n")
                     if line.startswith(f"panel.{call}  # {name}: ")]
            assert 10 < len(line.partition(": ")[2]) < 90, line


def test_markup_of_a_job_is_no_markup_here():
    assert html_text("<pre>&lt;b&gt; a</pre><div>x &amp; y</div>") == "<b> a\nx & y"


def test_a_player_is_text_too():
    from mabe_nb.data.colony.recording import make_recording
    from mabe_nb.data.recording import bout_table
    from mabe_nb.view.panels.text import panel_text
    from mabe_nb.view.video.player import Player
    rec = make_recording(1, 300, video_id="box 7").replace(labelled=None, bouts=bout_table(
        [("mouse1", "mouse2", "sniff", 60, 120), ("mouse1", "mouse2", "chase", 90, 150)]))
    player = Player(rec, pair=("mouse1", "mouse2"), frame=99)
    shown = player._repr_mimebundle_()["text/plain"]
    assert "Player" in shown and panel_text(Player(make_recording(1, 300)))
    assert ("video box 7 at 0:03.30 of 0:10.00 · mouse1 → mouse2 · annotated: chase, sniff "
            "now, 2 bouts in all") in shown


def write_runs(folder):
    "Two, of which each did three epochs."
    for name, epochs in (("first", 5), ("second", 7)):
        (folder/name).mkdir()
        TrainConfig(epochs=epochs).to_yaml(folder/name/"config.yaml")
        (folder/name/"log.jsonl").write_text("".join(json.dumps(
            {"event": "epoch", "epoch": n, "train_loss": 1.0, "valid_loss": 1.0,
             "valid_f1": 0.1 * n, "seconds": 1.0}) + "\n" for n in (1, 2, 3)))


def test_the_table_of_runs_is_text_too(tmp_path, monkeypatch):
    "It is read in a thread, and shown as soon as it is there."
    from mabe_nb.view.panels.runs import RunsPanel
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    write_runs(tmp_path)
    text = str(RunsPanel(str(tmp_path)))
    assert "2 runs" in text and "first" in text and "second" in text
    assert "reading" not in text


def test_a_setting_does_not_take_the_place_of_what_was_done(tmp_path):
    "A run of 7 epochs that stopped after 3 has 3."
    from mabe_nb.view.runs import find_runs, runs_table
    write_runs(tmp_path)
    table = runs_table({k: v for k, v in find_runs(tmp_path).items() if str(tmp_path) in k})
    assert table.epochs.tolist() == [3, 3]
    assert sorted(table["epochs (setting)"]) == ["5", "7"]

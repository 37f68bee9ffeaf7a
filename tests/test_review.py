"Corrections that outlive whoever wrote them, and what a training makes of them."
import gc
import json
import subprocess
import sys
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from ipywidgets.widgets.widget import _instances

import mabe_nb as mb
from kaggle_files import write_small
from mabe_nb import cli
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.corrections import (Correction, add_correction, corrected, read_corrections,
                                      undo_correction, with_corrections)
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.recording import bout_table, frame_labels, run_lengths
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.folder.weights import load_run
from mabe_nb.train.review.moments import (PairPrediction, _not_reviewed, moments_of,
                                           predict_for_review, rank_moments, worth)
from mabe_nb.train.review import retrain as retrain_page
from mabe_nb.train.review.retrain import compared, retrain, reviewed_split
from mabe_nb.train.runs import train
from mabe_nb.view.video import player
from mabe_nb.view.video.review import ReviewPanel

PAIR, ACTIONS = ("mouse1", "mouse2"), ("chase", "sniff")
SMALL = dict(epochs=1, device="cpu", features="coords", hidden_size=8, num_layers=1,
             progress=False, say=lambda line: None)


def video(i, known=True):
    rec = make_recording(seed=i, frames=600, video_id=str(i))
    return rec if known else rec.replace(labelled=None, bouts=bout_table())


def correction(video, verdict="accept", action="chase", start=100, stop=200, was=None):
    return Correction(str(video), *PAIR, verdict, action, start, stop, ACTIONS, was)


@pytest.fixture
def lab(tmp_path): return RecordingList([video(1), video(2), video(3, False)], tmp_path, "lab")


WRITER = """import sys
from mabe_nb.data.corrections import Correction, add_correction
for i in range(10**6):
    row = Correction("3", "mouse1", "mouse2", "accept", "chase", i, i + 1, ("chase",))
    add_correction(sys.argv[1], row, "Ann")
    print(i, flush=True)"""


def test_what_was_told_as_saved_is_there_after_a_kill(tmp_path):
    file = tmp_path/"corrections.jsonl"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(file)], text=True,
                          stdout=subprocess.PIPE) as writer:
        told = [int(next(writer.stdout)) for _ in range(25)]
        writer.kill()
        told += [int(x) for x in writer.stdout.read().split()]
    rows = read_corrections(file)
    assert [r.start for r in rows][:len(told)] == told and len(rows) <= len(told) + 1
    add_correction(file, correction(3), "Bo") # whatever the end of the file looks like
    assert read_corrections(file)[-1].author == "Bo"


def test_a_last_line_without_its_line_break_counts(tmp_path):
    "As an editor may leave it; what was torn off does not."
    file = tmp_path/"c.jsonl"
    for start in (1, 2): add_correction(file, correction(3, start=start), "Ann")
    for i, tail in enumerate(("", '{"video": "3", "age'), 2):
        file.write_text(file.read_text().rstrip() + ("\n" + tail if tail else ""))
        assert len(read_corrections(file)) == i
        add_correction(file, correction(3, start=3), "Ann")
        assert [r.start for r in read_corrections(file)] == [1, 2, 3, 3][:i + 1]


def test_undo_takes_back_what_the_same_person_said(tmp_path):
    file = tmp_path/"c.jsonl"
    add_correction(file, correction(3), "Ann")
    add_correction(file, correction(3, "reject"), "Bo")
    assert undo_correction(file, "Ann").verdict == "accept"
    assert [r.author for r in read_corrections(file)] == ["Bo"]
    assert undo_correction(file, "Ann") is None
    lines = [json.loads(x) for x in file.read_text().splitlines()]
    assert len(lines) == 3 and all(x["time"] and x["author"] for x in lines)


def test_two_who_take_back_the_same_at_once_leave_a_file_that_can_be_read(tmp_path):
    "Two notebooks of one person: both read the file before either of them wrote."
    file = tmp_path/"c.jsonl"
    for start in (1, 2): add_correction(file, correction(3, start=start), "Ann")
    undo_correction(file, "Ann")
    with open(file, "a") as f: f.write(file.read_text().splitlines()[-1] + "\n")
    assert [r.start for r in read_corrections(file)] == [1]
    assert undo_correction(file, "Ann").start == 1 and read_corrections(file) == []


@pytest.mark.parametrize("line", ['{"undo": "none"}', "[1]", '{"video": "3"}', "{", "\x00",
                                  '{"undo": ["a"]}', "9" * 400])
def test_a_damaged_line_is_named(line, tmp_path):
    file = tmp_path/"c.jsonl"
    add_correction(file, correction(3), "Ann")
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(DataError, match="line 2"): read_corrections(file)


def test_only_what_was_looked_at_is_known(lab, tmp_path):
    "Also after it went through the cache of features."
    file = tmp_path/"c.jsonl"
    for row in (correction(3), correction(3, "start", start=120, was=("chase", 100, 200)),
                correction(3, "nothing", "", 300, 350), correction(3, "reject", "sniff", 400, 450),
                correction(1, "relabel", "sniff", 0, 50)):
        add_correction(file, row, "Ann")
    data = with_corrections(lab, file)
    want = np.full((600, 2), -1)
    want[100:200], want[300:350], want[400:450, 1] = 0, 0, 0
    want[120:200, 0] = 1
    want[100:120, 1] = 0
    assert np.array_equal(frame_labels(data["3"], *PAIR, ACTIONS), want)
    first = frame_labels(lab["1"], *PAIR, ACTIONS)
    first[:50] = 0, 1
    assert np.array_equal(frame_labels(data["1"], *PAIR, ACTIONS), first)
    ready = prepare(data, "coords", out=tmp_path/"cache", progress=False)
    at = {(r.video_id, r.agent, r.target): r.Index for r in ready.sequences.itertuples()}
    for i, labels in (("3", want), ("1", first)):
        assert np.array_equal(ready.labels(at[i, *PAIR], ACTIONS), labels)
    assert {k[1:] for k in at if k[0] == "3"} == {PAIR}
    plain = prepare(lab, "coords", out=tmp_path/"cache", ids=["1"], progress=False)
    assert (plain.labels(0, ACTIONS) == frame_labels(lab["1"], *plain.sequences.iloc[0][
        ["agent", "target"]], ACTIONS)).all()


def test_what_a_review_chose_never_judges(lab):
    add_correction(lab.root/"corrections.jsonl", correction(3), "Ann")
    data = mb.with_corrections(lab)
    for seed in range(8):
        learn, judge = reviewed_split(data, cfg=TrainConfig(seed=seed))
        assert "3" in learn and len(learn) == 2 and len(judge) == 1
    split = mb.fit(data, lab.root/"run", **SMALL).run_videos()
    assert "3" in split["train"] and len(split["valid"]) == 1


def test_all_that_was_reviewed_is_learned_from_but_what_is_named_to_judge(tmp_path):
    "Within the most videos of a trial, and where no scorer annotated anything."
    for known in (True, False):
        some = [video(i, known and i < 4) for i in range(1, 7)]
        lab = RecordingList(some, tmp_path/str(known))
        lab.root.mkdir()
        for i in (1, 2, 3, 4, 5) if not known else (4, 5):
            add_correction(lab.root/"corrections.jsonl", correction(i), "Ann")
        data = mb.with_corrections(lab)
        assert reviewed_split(data, ["1", "2"], ["3", "5"])[0] == ["1", "2", "4"]
        learn, judge = reviewed_split(data, ["1", "2"], ["3"], TrainConfig(limit=3))
        assert (learn, judge) == (["1", "4", "5"], ["3"])


def test_what_is_rare_is_worth_more_and_the_context_is_time_too():
    table = worth(pd.DataFrame({"likeliest": ["chase"] * 9 + ["sniff"], "seconds": 8.0, "uncertainty": 0.5, "tracked": 1.0,
                                "spread": 0.0, "novelty": 0.0}))
    rare = np.r_[[(21 / 37) ** 0.5] * 9, 2] # of 37 and 5 sure seconds; twice at most
    assert np.allclose(table.rare, rare) and np.allclose(table.worth, 0.5 * 8 / 10 * rare)


def test_what_changed_is_told_whichever_way(monkeypatch):
    labels = np.array([[1, 0], [1, 0], [0, 1], [0, -1]], np.int8)
    monkeypatch.setattr(retrain_page, "predict_labelled", lambda clf, *_: SimpleNamespace(
        labels=labels[:, :len(clf.actions)], codes=np.array(clf.codes)))
    of = lambda codes, *actions: SimpleNamespace(actions=actions, codes=codes, prepared=lambda *_: None)
    old = of([0, -1, 1, -1], "chase", "sniff")
    for new, sniff in ((of([0, 0, -1, 1], "chase", "sniff"), [1, 0, 0.5]), (of([0, 0, -1, -1], "chase"), [1, np.nan, 0.25])):
        table = compared(old, new, None, ["1"]).set_index("action")
        assert np.allclose(table.loc["chase"], [2 / 3, 1, 0.25])
        assert np.allclose(table.loc["sniff"], sniff, equal_nan=True)


def test_a_trial_of_few_videos_is_trained_again_with_all_that_was_reviewed(lab, tmp_path):
    few = TrainConfig(limit=1, **{k: v for k, v in SMALL.items() if k not in ("progress", "say")})
    train(lab, tmp_path/"run", few, ["1"], ["2"])
    add_correction(lab.root/"corrections.jsonl", correction(3), "Ann")
    retrain(tmp_path/"run", lab, tmp_path/"again", say=None)
    assert load_run(tmp_path/"again").run_videos() == {"train": ["1", "3"], "valid": ["2"]}


@pytest.mark.slow
def test_the_loop_from_the_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--epochs", "1", "--features", "coords", "--hidden-size", "8", "--num-layers", "1"]
    def mabe(*words):
        code = cli.main([*map(str, words)])
        return code, *capsys.readouterr()
    assert mabe("synth", "lab", "--videos", 3, "--minutes", 0.2)[0] == 0
    assert mabe("train", "lab", "--out", "run", "--valid-videos", 3, *flags)[0] == 0
    code, out, err = mabe("review", "run", "lab", "--minutes", 1, "--out", "look.csv")
    assert code == 0 and "corrections so far" in out, err
    code, out, err = mabe("train", "lab", "--out", "x", "--corrections", "nowhere", *flags)
    assert code == 2 and "no corrections" in err and err.count("\n") == 1
    add_correction("lab/corrections.jsonl", correction(1), "Ann")
    code, out, err = mabe("train", "lab", "--out", "y", "--valid-videos", 3, *flags)
    assert code == 0 and "is not learned from" in out + err
    code, out, err = mabe("retrain", "run", "lab", "--out", "again", "--json")
    assert code == 0 and {"before", "after"} <= set(json.loads(out)), err
    code, out, err = mabe("review", "run", "lab", "--videos", 1, "--minutes", 99, "--json")
    assert code == 0 and json.loads(out)["corrections"] == 1


WHOLE = correction(3)._replace(author="x", time="t", id="a")._asdict()


@pytest.mark.parametrize("change", [
    {"was": [[], 3, 9]}, {"was": [None, 3, 9]}, {"was": [{}, 3, 9], "verdict": "start"},
    {"actions": ["", "chase"]}, {"author": "\ud800"}, {"actions": [["chase"]]}])
def test_a_line_of_another_form_is_named(change, tmp_path):
    (tmp_path/"c.jsonl").write_text(json.dumps(WHOLE | change) + "\n")
    with pytest.raises(DataError, match="c.jsonl, line 1: "): read_corrections(tmp_path/"c.jsonl")


def test_any_name_of_an_action_comes_back(tmp_path):
    name = "a\u2028b\x85\x1c\r=1"
    row = correction(3)._replace(action=name, actions=(name,))
    add_correction(tmp_path/"c.jsonl", row, "Ann")
    assert [r.action for r in read_corrections(tmp_path/"c.jsonl")] == [name]
    with pytest.raises(DataError, match="no text"):
        add_correction(tmp_path/"c.jsonl", row._replace(video="\ud800"), "Ann")
    assert len(read_corrections(tmp_path/"c.jsonl")) == 1
    (tmp_path/"zero").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="is a device"): add_correction(tmp_path/"zero", row)


def test_moments_without_those_that_a_correction_tells_of():
    "As one would by hand, of any number of corrections and with any frame."
    rng = np.random.default_rng(0)
    start = rng.integers(0, 990, 300)
    table = pd.DataFrame({"video_id": rng.choice(["1", "2"], 300), "agent": "mouse1",
                          "target": "mouse2", "start": start, "stop": start + 10})
    rows = [correction(v, start=int(a), stop=int(a + n)) for v, a, n in zip(
        rng.integers(1, 4, 20), rng.integers(0, 990, 20), rng.integers(1, 30, 20))]
    rows.append(correction("2", start=980, stop=10**99))
    want = [not any(r.video == m.video_id and m.start < r.stop and m.stop > r.start
                    for r in rows) for m in table.itertuples()]
    assert 50 < sum(want) < 250
    for some, kept in ((rows, table[want]), ([], table), (rows * 5000, table[want])):
        assert _not_reviewed(table, some).equals(kept)


def test_a_retraining_that_was_stopped_goes_on_by_the_same_line(lab, tmp_path, monkeypatch):
    add_correction(lab.root/"corrections.jsonl", correction(3), "Ann")
    cfg = TrainConfig(epochs=2, device="cpu", features="coords", hidden_size=8, num_layers=1)
    train(lab, tmp_path/"run", cfg, ["1"], ["2"], say=lambda line: None)
    with pytest.raises(ConfigError, match="is the run to compare with"):
        retrain(tmp_path/"run", lab, tmp_path/"run")
    again = lambda **how: retrain(tmp_path/"run", lab, tmp_path/"new", say=said.append, **how)
    said, fit = [], Trainer.run_epoch
    def stopped(self, *args):
        if self.epoch == 1: raise KeyboardInterrupt
        return fit(self, *args)
    monkeypatch.setattr(Trainer, "run_epoch", stopped)
    with pytest.raises(KeyboardInterrupt): again()
    monkeypatch.setattr(Trainer, "run_epoch", fit)
    with pytest.raises(ConfigError, match="begun from the old weights"): again(new_weights=True)
    assert list(again().columns) and any("going on from epoch 1" in line for line in said)
    add_correction(lab.root/"corrections.jsonl", correction(3, "reject"), "Ann")
    with pytest.raises(ConfigError, match="3"): again() # learns from something else now


@pytest.mark.slow
def test_a_retraining_goes_on_from_the_weights_or_takes_new_ones(lab, tmp_path):
    add_correction(lab.root/"corrections.jsonl", correction(3), "Ann")
    cfg = TrainConfig(epochs=1, device="cpu", features="coords", hidden_size=8, num_layers=1)
    train(lab, tmp_path/"run", cfg, ["1"], ["2"], say=lambda line: None)
    for name, new in (("old", False), ("fresh", True)):
        said = []
        retrain(tmp_path/"run", lab, tmp_path/name, say=said.append, new_weights=new)
        begun = tmp_path/name/"init"/"best.safetensors"
        assert any("starts from the weights" in line for line in said) != new
        assert begun.exists() != new
        assert new or begun.read_bytes() == (tmp_path/"run"/"best.safetensors").read_bytes()
    faster = RecordingList([rec.replace(fps=120.0) for rec in lab], lab.root, "fast")
    for name, new, gap in (("kept", False, 4), ("changed", True, 16)): # of 30 and of 120 fps
        retrain(tmp_path/"run", faster, tmp_path/name, say=said.append, new_weights=new)
        assert load_run(tmp_path/name).cfg.gap == gap
    with pytest.raises(ConfigError, match="begun from new weights"):
        retrain(tmp_path/"run", lab, tmp_path/"fresh", say=said.append)


@pytest.mark.slow
def test_after_an_answer_the_picture_comes_first_and_the_strips_once(tmp_path):
    "Also where the next moment is of another pair, minutes later."
    rec, told = make_recording(seed=1, frames=9000, video_id="1"), []
    for agent, target, on in (("mouse1", "mouse2", 300), ("mouse2", "mouse1", 7000)):
        p = np.full((9000, 2), 0.1)
        p[on:on + 60, 0] = 0.5
        told.append(PairPrediction("1", agent, target, 30.0, ACTIONS, p,
                                   np.where(p[:, 0] > 0.4, 0, -1), np.full(p.shape, -1, np.int8),
                                   np.zeros(9000), np.zeros(9000)))
    moments = pd.concat([m[m.action != ""] for m in map(moments_of, told)]).assign(why="")
    data = RecordingList([rec.replace(labelled=None, bouts=bout_table())], tmp_path)
    panel = ReviewPanel(moments, data, told, tmp_path/"c.jsonl", "Ann")
    sent, send = [], panel.player.stage.send
    panel.player.stage.send = lambda m, buffers=None: (sent.extend(m), send(m, buffers))
    for key, went in (("y", ["go", "strips", "asked"]), ("h", ["go", "strips", "asked"]),
                      ("u", ["go", "strips", "asked"]), ("o", ["strips"])):
        sent.clear()
        panel.press(key, 310)
        assert (panel.status, sent) == ("done", went), (key, panel.error)
    assert panel.player.pair == ("mouse1", "mouse2") and panel.player.frame == 270
    assert [r.verdict for r in panel.rows] == ["stop"] and "✓" in panel.choice.label


@pytest.mark.slow
def test_a_bout_that_is_moved_into_the_next_moment_leaves_its_question(tmp_path):
    "Else a key that is meant for the second would answer for the first."
    p = np.full((900, 2), 0.1)
    p[300:360, 0] = p[360:420, 1] = 0.5
    told = PairPrediction("1", *PAIR, 30.0, ACTIONS, p, np.where(p.max(1) > 0.4, p.argmax(1), -1),
                          np.full(p.shape, -1, np.int8), np.zeros(900), np.zeros(900))
    moments = moments_of(told).query("action != ''").assign(why="")
    data = RecordingList([make_recording(seed=1, frames=900, video_id="1").replace(
        labelled=None, bouts=bout_table())], tmp_path)
    panel = ReviewPanel(moments, data, [told], tmp_path/"c.jsonl", "Ann")
    panel.press("o", 379)
    assert panel.bout() == ("chase", 300, 380)
    panel.press("g")
    assert panel.bout() == ("sniff", 360, 420) and "✓" not in panel.choice.label
    panel.press("c")
    panel.press("u")
    assert panel.choice.value == 1
    panel.press("u")
    assert panel.choice.value == 0 and panel.bout() == ("chase", 300, 360)


def test_without_moments_no_button_can_be_pressed(tmp_path):
    data = RecordingList([make_recording(seed=1, frames=90, video_id="1")], tmp_path)
    panel = ReviewPanel(rank_moments([]), data, [], tmp_path/"c.jsonl", "Ann")
    buttons = [b for row in panel.box.children for b in getattr(row, "children", ())
               if hasattr(b, "click")]
    assert len(buttons) > 8 and all(b.disabled for b in buttons)
    assert panel.status == "idle" and "0 moments" in panel.status_line.value


def of_video(video, agent, at):
    "What is said of an animal that does something alone, from a frame on."
    p = np.full((900, 2), 0.1)
    p[at:at + 60, 0] = 0.5
    return PairPrediction(video, agent, agent, 30.0, ACTIONS, p, np.where(p[:, 0] > 0.4, 0, -1),
                          np.full(p.shape, -1, np.int8), np.zeros(900), np.zeros(900))


@pytest.mark.slow
def test_an_animal_that_did_nothing_so_far_is_asked_about_and_shown(tmp_path):
    "Of an unlabelled video; the list had moved on, and the answer was of whom it did not show."
    told = [of_video("1", "mouse1", 300), of_video("1", "mouse2", 600)]
    told[1] = told[1]._replace(codes=np.full(900, -1))
    moments = pd.concat(map(moments_of, told)).assign(why="")
    moments = moments[(moments.agent == "mouse2") | (moments.action != "")]
    data = RecordingList([make_recording(seed=1, frames=900, video_id="1").replace(
        labelled=None, bouts=bout_table())], tmp_path)
    panel = ReviewPanel(moments, data, told, tmp_path/"c.jsonl", "Ann")
    assert {m.agent for m in panel.moments} == {"mouse1", "mouse2"}
    for m in panel.moments:
        assert panel.moment is m and panel.player.pair == (m.agent, m.target)
        panel.press("c")
        assert panel.status == "done", panel.error
    assert [r.agent for r in panel.rows] == [m.agent for m in panel.moments]


def panels(folder, n):
    "Panels over one file, of two videos and an animal that does something twice in the first."
    told = [of_video("1", "mouse1", 300), of_video("1", "mouse2", 600), of_video("2", "mouse1", 300)]
    moments = pd.concat(map(moments_of, told)).query("action != ''").assign(why="")
    data = RecordingList([make_recording(seed=s, frames=900, video_id=str(s)).replace(
        labelled=None, bouts=bout_table()) for s in (1, 2)], folder)
    return [ReviewPanel(moments, data, told, folder/"c.jsonl", "Ann") for _ in range(n)]


@pytest.mark.slow
def test_a_player_goes_with_its_video(tmp_path):
    "Its poses stayed, and its widgets were sent to the page again at each reload."
    panel, = panels(tmp_path, 1)
    number = {m.video_id: i for i, m in enumerate(panel.moments)}
    panel.open(number["1"])
    before, kept = len(_instances), weakref.ref(panel.player)
    for video in ("2", "1") * 2: panel.open(number[video])
    gc.collect()
    assert kept() is None and len(_instances) == before
    assert panel.player.rec.video_id == "1" and panel.player.stage in panel.player.body.children


@pytest.mark.slow
def test_strips_are_drawn_once_when_another_video_is_opened(tmp_path, monkeypatch):
    drawn, draw = [], player.inline_svg
    monkeypatch.setattr(player, "inline_svg", lambda figure: (drawn.append(1), draw(figure))[1])
    panel, = panels(tmp_path, 1)
    assert len(drawn) == 1 and panel.player.stage.strips["span"] == [0, 900]
    panel.open(next(i for i, m in enumerate(panel.moments) if m.video_id != panel.moment.video_id))
    assert len(drawn) == 2 and len(panel.player.strips) == 2


@pytest.mark.slow
def test_an_answer_is_about_what_the_page_shows(tmp_path):
    "A second click of a double click came while the first one's next moment was drawn."
    panel, = panels(tmp_path, 1)
    sees = lambda: panel.player.stage.answer({"asked": panel.asked})
    sees()
    for verdicts in ("accept",), ("accept", "nothing"), ("accept", "nothing", "relabel"):
        for _ in range(3): panel.press({"accept": "y", "nothing": "c", "relabel": "1"}[verdicts[-1]])
        panel.press("o", 320)
        assert tuple(r.verdict for r in panel.rows) == verdicts
        sees()
    assert {r.video for r in panel.rows} == {"1", "2"}, "only one player was ever shown"
    for _ in range(2): panel.press("u")
    assert len(panel.rows) == 2
    for _ in range(2): panel.press("h")
    assert panel.choice.value == 0, "to look for a moment changes nothing"


@pytest.mark.slow
def test_two_panels_over_one_file_take_back_their_own(tmp_path):
    one, two = panels(tmp_path, 2)
    one.press("y")
    for _ in range(3): two.press("c")
    one.press("x")
    assert len(one.rows) == 5 and "5 in the file" in one.status_line.value
    assert "video 1, mouse2" in one.status_line.value
    for panel in (two, one): panel.press("u")
    assert [r.verdict for r in one.rows] == ["accept", "nothing", "nothing"]
    assert "undone: reject" in one.status_line.value and "video 1, mouse2" in one.status_line.value
    one.press("u")
    one.press("u")
    assert "there is nothing to undo" in one.status_line.value and len(one.rows) == 2


def test_a_moment_that_cannot_be_shown_takes_no_answer(tmp_path):
    told = [of_video("1", "mouse1", 300), of_video("2", "mouse1", 300)]
    moments = pd.concat(map(moments_of, told)).query("action != ''").assign(why="")
    recs = [make_recording(seed=i, frames=900, video_id=str(i)) for i in (1, 2)]
    panel = ReviewPanel(moments, data := {r.video_id: r for r in recs}, told, tmp_path/"c.jsonl",
                        "Ann")
    del data["2"] # as a disk that is gone
    panel.press("y")
    assert panel.status == "error" and len(panel.rows) == 1
    panel.press("y")
    assert len(panel.rows) == 1 and "could not be shown" in str(panel.error)


def test_corrections_of_other_animals_are_refused():
    with pytest.raises(DataError, match="mouse7"):
        corrected(video(3), [correction(3)._replace(agent="mouse7")])


@pytest.mark.slow
def test_what_a_review_chose_neither_judges_nor_chooses_in_a_recipe(tmp_path, monkeypatch):
    "It is learned from, counted as evidence, and told on the card; alone it judges."
    from mabe_nb.train.ensemble import decide, recipe
    from mabe_nb.train.ensemble.recipe import train_recipe
    chose, real = [], recipe.choose
    for page in (decide, recipe): # for scores, and for what is kept
        monkeypatch.setattr(page, "choose", lambda some, *how: chose.append(
            {s.video for s in some}) or real(some, *how))
    for known in (True, False):
        chose.clear()
        lab = RecordingList([video(i, known and i < 4) for i in range(1, 6)],
                            tmp_path/str(known), "lab")
        lab.root.mkdir()
        for i in (4, 5) if known else range(1, 6):
            for row in (correction(i), correction(i, "nothing", "", 300, 350)):
                add_correction(lab.root/"corrections.jsonl", row, "Ann")
        out, judge = lab.root/"run", {"1", "2", "3"} if known else {*"12345"}
        metrics = train_recipe(mb.with_corrections(lab), out, "quick", folds=2,
                               cache=lab.root/"cache")
        assert set().union(*chose) == judge == {*metrics["counts"]}
        assert mb.load_model(out).learned_from == {*"12345"}
        assert ("## Reviewed videos" in (out/"card.md").read_text()) == known
        if not known: continue
        assert metrics["training_counts"]["chase"]["bouts"] == metrics["validation_counts"]["chase"]["bouts"] + 2
        assert sum(of["chase"] for of in mb.load_model(out).evidence().values()) == \
            metrics["training_counts"]["chase"]["frames"]


def test_moments_in_which_nobody_is_seen_are_not_shown():
    p = np.full((200, 2), 0.5)
    rows = [PairPrediction(str(v), "m1", "m2", 20.0, ("sniff", "rear"), p, np.arange(200) // 50 % 2,
                           np.zeros((200, 2), np.int8), np.zeros(200), np.zeros(200),
                           np.full(200, bool(v))) for v in range(2)]
    assert {*rank_moments(rows, 5).video_id} == {"1"}


def test_a_review_of_videos_that_are_all_annotated_says_so(lab):
    from mabe_nb.commands.review import _new_ones
    said = []
    assert _new_ones(lab, None, said.append) == ["3"] and not said
    assert _new_ones(lab, ["1", "2"], said.append) == ["1", "2"]
    assert "no video is without annotations" in said[0]


def test_a_test_part_is_reviewed_where_it_has_no_annotation_files(tmp_path):
    "Its lists say what is looked for, not that somebody has looked."
    from mabe_nb.commands.review import _new_ones
    root, said = write_small(tmp_path, ("1", "2")), []
    for kind in ("tracking", "annotation"):
        (root/f"train_{kind}").rename(root/f"test_{kind}")
    (root/"train.csv").rename(root/"test.csv")
    (root/"test_annotation"/"Ours"/"1.parquet").unlink()
    assert _new_ones(open_dataset(root, "test"), None, said.append) == ["1"]
    (root/"test_annotation"/"Ours"/"2.parquet").unlink()
    assert _new_ones(open_dataset(root, "test"), None, said.append) == ["1", "2"]
    assert not said


def test_bouts_that_nobody_corrected_stay_as_they_are():
    there, back = PAIR, PAIR[::-1]
    old = [(*there, "sniff", 10, 20), (*there, "sniff", 20, 30), (*back, "sniff", 50, 60),
           (*back, "sniff", 60, 70), (*back, "sniff", 55, 65), (*there, "chase", 80, 99)]
    rec = video(7).replace(bouts=bout_table(old), labelled=frozenset(b[:3] for b in old))
    new = corrected(rec, [correction(7)])
    assert new.bouts.equals(bout_table([*old, (*there, "chase", 100, 200)]))
    new = corrected(rec, [correction(7, action="sniff", start=28, stop=40)])
    assert new.bouts.equals(bout_table([*old[2:], (*there, "sniff", 10, 40)]))
    new = corrected(rec, [correction(7, "reject", "sniff", 20, 25)])
    assert new.bouts.equals(bout_table([old[0], (*there, "sniff", 25, 30), *old[2:]]))


def test_a_review_asks_about_the_bouts_that_are_predicted(lab, tmp_path):
    "It asked about those that a prediction leaves out for being too short."
    train(lab, tmp_path/"run", TrainConfig(**{k: v for k, v in SMALL.items() if k not in ("progress", "say")}),
          ["1"], ["2"], tmp_path/"cache")
    clf = load_run(tmp_path/"run")
    for weights in list(clf.model.parameters())[-2:]: weights.data *= 30 # says a lot
    count = []
    for least in (0.0, 400.0):
        some = replace(clf, least_ms=(least,) * len(clf.actions))
        told = predict_for_review(some, lab, ["3"], tmp_path/"cache")
        asked = sorted((m.agent, m.target if m.target != m.agent else "self", m.actions[c], a, b)
                       for m in told for c, a, b in run_lengths(m.codes))
        table = some.predict(lab, ["3"], cache=tmp_path/"cache")
        assert asked == sorted(table.iloc[:, 2:].itertuples(index=False, name=None))
        count.append(len(asked))
    assert count[0] > count[1] > 0


@pytest.mark.slow
def test_an_answer_about_actions_that_go_on_at_once_tells_of_one(tmp_path):
    "To accept one said that the others, which were seen there, are not."
    rec = make_recording(seed=1, frames=900, video_id="1")
    seen = bout_table([("mouse1", "mouse1", a, 250, 400) for a in ACTIONS])
    data = RecordingList([rec.replace(bouts=seen, labelled=None)], tmp_path)
    told = of_video("1", "mouse1", 300)
    moments = moments_of(told).query("action != ''").assign(why="")
    for overlap, key, left in ((True, "y", [1, 1]), (False, "y", [1, 0]), (True, "2", [0, 1]),
                               (True, "x", [0, 1]), (True, "c", [0, 0])):
        panel = ReviewPanel(moments, data, [told], tmp_path/f"{overlap}{key}", "Ann", overlap=overlap)
        panel.press(key)
        assert panel.status == "done", panel.error
        labels = frame_labels(corrected(data["1"], panel.rows), "mouse1", "mouse1", ACTIONS)
        assert labels[320].tolist() == left and (labels[[260, 390]] == 1).all()


@pytest.mark.parametrize("loss", ["binary", "cross_entropy"])
def test_a_review_knows_which_models_tell_actions_that_go_on_at_once(loss, lab, tmp_path):
    cfg = {k: v for k, v in SMALL.items() if k not in ("progress", "say")} | {"loss": loss}
    train(lab, tmp_path/"run", TrainConfig(**cfg), ["1"], ["2"], tmp_path/"cache")
    assert mb.review(tmp_path/"run", lab, cache=tmp_path/"cache").overlap == (loss == "binary")

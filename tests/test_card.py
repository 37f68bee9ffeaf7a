"""Cards say what the figures say, warn of what is rare, and cannot be broken by names."""
import html
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.synthetic import colony_video
from mabe_nb.errors import DataError
from mabe_nb.train import postprocess
from mabe_nb.train.folder.card import FEW, as_table, caution, clean, result_line, run_card
from mabe_nb.train.ensemble.card import card_text
from mabe_nb.train.classifier import (load_classifier, predict_sequences, save_classifier,
                                      wanted_actions)
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.scores.trust import borders, calibration, validation_scores
from mabe_nb.train.scores.frames import (Validation, f1_of, frame_scores, action_counts,
                                         video_counts)
from mabe_nb.train.predict import decide, lasting, with_rates
from mabe_nb.train.postprocess import (assess, choose_rates, choose_shortest_bouts,
                                       labels_and_rates, postprocessing,
                                       predict_labelled, shortest_bouts, usual_rates)
from mabe_nb.train.runs import train
from mabe_nb.train.scores.means import only_false_alarms

TINY = dict(epochs=2, conv_channels=[8], lstm_hidden=8, batch_size=4, stride=50,
            learning_rate=0.01, num_workers=1, device="cpu", features="symmetric")


@pytest.fixture(scope="module")
def colony():
    return RecordingList([colony_video(k, minutes=0.3) for k in range(0, 15, 3)])


@pytest.fixture(scope="module")
def run(colony, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    said = train(colony, out/"run", TrainConfig(**TINY, fps=99, checkpoint_dir="mine"),
                 ["1", "4", "7"], ["10", "13"], cache=out/"cache")
    clf = load_classifier(out/"run"/"best.safetensors")
    return out, said, clf, prepare(colony, "symmetric", out=out/"cache", progress=False)


def rows_of(text, head):
    "First column -> the others, of the table that begins with `head`."
    lines = text[text.index(f"| {head}"):].partition("\n\n")[0].splitlines()[2:]
    return {cells[0]: cells[1:] for cells in (
        [c.strip() for c in line.strip().strip("|").split("|")] for line in lines)}


# --- a plain run

def test_a_plain_run_leaves_a_card(run):
    out, metrics, *_ = run
    text = (out/"run"/"card.md").read_text()
    valid, rows = metrics["valid"], rows_of(text, "action | F1")
    assert f"**Macro F1 {valid['macro_f1']:.3f}**" in text and "figure flatters" in text
    assert f"epoch {metrics['best']['epoch']} as the best of 2" in text
    assert "3 videos (1, 4, 7)" in text and "2 videos (10, 13)" in text
    for action, f1 in valid["f1"].items():
        assert rows[action][0] == ("undefined" if f1 is None else f"{f1:.3f}")
        assert rows[action][3] == f"{metrics['training_counts'][action]['bouts']:,}"
    told = rows_of(text, "setting")
    assert told["epochs"] == ["2"] and told["model_type"] == ["conv_bilstm"]
    assert "checkpoint_dir" not in told and "grad_clip" not in told
    assert "fps is 99" in text and "## Calibration" in text and "## Borders" in text
    assert metrics == json.loads((out/"run"/"metrics.json").read_text())


def test_short_bouts_stay_where_leaving_them_out_costs(tmp_path, run):
    "A bout in pieces is lost with them; slips are no loss, and the file tells it."
    clf, seen = run[2], np.repeat([0, 1, 0, 1, 0], 60)
    labels = np.stack([seen, 0 * seen, 0 * seen], 1).astype(np.int8)
    said = lambda codes: Validation(labels, np.eye(4, dtype=np.float32)[codes + 1][:, 1:], codes,
                                    np.array([0, 300]), np.array([30.0]), np.array(["1"]))
    slips, pieces = np.where(seen, 0, -1), np.where(seen, 0, -1)
    slips[[5, 130, 131]], pieces[np.arange(300) % 4 == 0] = 0, -1
    for codes, kept in ((slips, 2), (pieces, 30)):
        got, valid = choose_shortest_bouts(clf, said(codes), (1000.0, 0.0, 0.0))
        assert (np.diff(np.r_[-1, valid.codes]) > 0).sum() == kept
        assert got.least_ms == ((1000.0, 0.0, 0.0) if kept == 2 else clf.least_ms)
        if kept == 2: save_classifier(tmp_path/"best.safetensors", got)
    assert load_classifier(tmp_path/"best.safetensors").least_ms == (1000.0, 0.0, 0.0)
    counts = np.array([[[60, 0, 0]] * 3, [[60, 0, 0], [60, 0, 0], [58, 0, 2]]])
    for apart, least in ((counts, ()), (counts[[0, 0]], (1000.0, 0.0, 0.0))): # of each action by itself
        assert choose_shortest_bouts(replace(clf, least_ms=()), said(slips), (1000.0, 0.0, 0.0), apart)[0].least_ms == least


def test_how_short_bouts_are_is_learned_from_the_training_videos_alone(run, monkeypatch):
    "Of predictions that are right nothing is lost by it."
    clf, prepared = run[2:]
    rows = lambda ids: np.flatnonzero(prepared.sequences.video_id.isin(ids))
    def right(clf, prepared, ids, **how):
        for i in rows(ids):
            seen = prepared.labels(i, clf.actions) == 1
            yield i, np.c_[~seen.any(1), seen].astype(np.float32)
    monkeypatch.setattr(postprocess, "predict_sequences", right)
    ids = ["1", "4", "7"], ["10", "13"]
    learned, judged = (shortest_bouts(labels_and_rates(prepared, clf.actions, rows(some))) for some in ids)
    got, valid, _ = postprocessing(replace(clf, usual=(), least_ms=()), prepared, ids)
    assert got.least_ms == learned != judged and (valid.codes >= 0).sum() == (valid.labels == 1).sum()


def test_what_is_frequent_is_predicted_sooner_if_that_is_better(tmp_path, run, monkeypatch):
    out, metrics, clf, prepared = run
    ids, plain = (["1", "4", "7"], ["10", "13"]), replace(clf, usual=())
    rows = [(i, p, wanted_actions(clf, prepared, i))
            for i, p in predict_sequences(plain, prepared, ids[0])]
    for k, rate in enumerate(usual_rates((p, may) for _, p, may in rows)):
        mean = [p[:, 1 + k] for _, p, may in rows if may[k]]
        assert rate == pytest.approx(np.concatenate(mean).mean() if mean else 0, abs=1e-6)
    before = predict_labelled(plain, prepared, ids[1])
    losses = iter((0.1, 0.2)) # With the rates, and without
    monkeypatch.setattr(postprocess, "log_loss", lambda pairs: next(losses))
    asked, predict = [], postprocess.predict_sequences
    monkeypatch.setattr(postprocess, "predict_sequences", lambda clf, prepared, ids, **how: asked.append(ids) or predict(
        clf, prepared, ids, **how))
    rated, after = choose_rates(plain, prepared, ids, before)
    assert asked == [ids[0]], "what judges was predicted before"
    assert all(map(np.array_equal, after, predict_labelled(rated, prepared, ids[1])))
    assert rated.usual == pytest.approx(usual_rates((p, may) for _, p, may in rows))
    for a, b in zip(before.sequences(), after.sequences()):
        p = np.hstack([1 - a.p.sum(1, keepdims=True), a.p])
        assert np.allclose(with_rates(p, rated.usual, (a.labels >= 0).any(0), a.fps)[:, 1:],
                           b.p, atol=1e-5) and not np.allclose(a.p, b.p, atol=1e-5)
    monkeypatch.setattr(postprocess, "log_loss", lambda pairs: 0.1)
    assert choose_rates(plain, prepared, ids, before)[0].usual == ()
    save_classifier(tmp_path/"best.safetensors", rated)
    assert load_classifier(tmp_path/"best.safetensors").usual == rated.usual
    for wrong in ((0.5,), (-1.0, 0.1, 0.1), (np.nan, 0.1, 0.1)):
        save_classifier(tmp_path/"bad.safetensors", replace(clf, usual=wrong))
        with pytest.raises(DataError, match="usual"): load_classifier(tmp_path/"bad.safetensors")
    assert metrics["usual"] == dict(zip(clf.actions, clf.usual))
    assert ("more often than usual" in (out/"run"/"card.md").read_text()) == bool(clf.usual)


def test_figures_are_those_of_each_sequence(run):
    "Predictions kept end to end score like those of one sequence after the other."
    out, metrics, clf, prepared = run
    valid = predict_labelled(clf, prepared, ["10", "13"])
    parts = [s[:4] for s in valid.sequences()]
    assert all(np.shares_memory(valid.p, p) and np.shares_memory(valid.labels, y)
               for y, p, *_ in parts)
    rows = np.flatnonzero(prepared.sequences.video_id.isin(["10", "13"]))
    assert len(parts) == len(rows)
    for i, (y, p, codes, fps) in zip(rows, parts):
        assert np.array_equal(y, prepared.labels(i, clf.actions))
        assert fps == prepared.sequences.fps[i] and len(y) == prepared.sequences.frames[i]
        whole = np.hstack([1 - p.sum(1, keepdims=True), p])
        every = decide(whole, (y >= 0).any(0))
        assert (codes == lasting(every, clf.least_ms, fps)).mean() > 0.999
    assert metrics["least_ms"] == dict(zip(clf.actions, clf.least_ms))
    words = "Left out are bouts shorter than: " if clf.least_ms else "may be of any length"
    assert f"Bouts {'are ' * bool(clf.least_ms)}{words}" in (out/"run"/"card.md").read_text()
    for k, action in enumerate(clf.actions):
        bouts = sum(np.diff(np.r_[0, (c == k) & (y[:, k] >= 0)].astype(int)).clip(0).sum()
                    for y, _, c, _ in parts)
        assert metrics["predicted"][action]["bouts"] == bouts
    f1 = f1_of(video_counts(*zip(*((y, c) for y, _, c, _ in parts))).sum(0))
    said = [metrics["valid"]["f1"][a] for a in clf.actions]
    assert np.allclose(f1, np.array(said, float), equal_nan=True)
    low, high = metrics["interval"]
    assert low <= metrics["valid"]["macro_f1"] <= high
    assert assess(clf, prepared, ["10", "13"]) == metrics["valid"] == frame_scores(
        valid.labels, valid.p, valid.codes, clf.actions)
    assert metrics["calibration"] == calibration(((y, p) for y, p, *_ in parts),
                                                 clf.actions)
    assert metrics["borders"] == borders(((y, c, f) for y, _, c, f in parts), clf.actions)


def test_a_single_video_that_judges_has_no_interval_in_the_card(run):
    "It said '(95 % interval over the validation videos: 0.543 to 0.543). One video has no interval.'"
    metrics = run[1]
    several, one = (result_line(metrics | {"valid_videos": ids}) for ids in (["10", "13"], ["10"]))
    figure = f"**Macro F1 {metrics['valid']['macro_f1']:.3f}**"
    assert several.startswith(f"{figure} (95 % interval over the validation videos: ")
    assert one.startswith(f"{figure}. One video has no interval.") and "95 %" not in one


def test_what_was_seen_is_told_apart_by_side(run):
    out, metrics, clf, prepared = run
    for key, ids in (("training_counts", ["1", "4", "7"]), ("validation_counts", ["10", "13"])):
        rows = np.flatnonzero(prepared.sequences.video_id.isin(ids))
        labels = [prepared.labels(i, clf.actions) for i in rows]
        assert metrics[key] == action_counts(labels, clf.actions)
    assert metrics["training_counts"] != metrics["validation_counts"]
    frames = prepared.sequences.frames[prepared.sequences.video_id.isin(["1", "4", "7"])]
    assert metrics["train_frames"] == frames.sum()


def test_a_lab_that_looked_for_little(tmp_path):
    "Nobody looked for some actions in the validation videos: said, not crashed."
    videos = [colony_video(k, minutes=0.3) for k in range(0, 12, 3)]
    last = videos[-1]
    few = last.replace(labelled={t for t in last.labelled if t[2] == "sniff"},
                       bouts=last.bouts[last.bouts.action == "nothing"])
    metrics = train(RecordingList([*videos[:-1], few]), tmp_path/"run", TrainConfig(**TINY),
                    valid_ids=[last.video_id], cache=tmp_path/"cache")
    text = (tmp_path/"run"/"card.md").read_text()
    rows = rows_of(text, "action | F1")
    assert metrics["valid"]["f1"]["attack"] is None and rows["attack"][0] == "undefined"
    assert all("no validation bout" in row[-1] or "never annotated" in row[-1]
               for row in rows.values())
    assert metrics["borders"]["macro_f1"] == [None] * 4


# --- words

@pytest.mark.parametrize("learned, judged, said", [
    (0, None, "never annotated: cannot be predicted"), (0, 50, "never annotated: cannot be predicted"),
    (1, None, "only 1 bout: treat with care"), (FEW, None, ""), (FEW, FEW, ""),
    (FEW - 1, 99, f"only {FEW - 1} bouts: treat with care"),
    (FEW, 0, "no validation bout"), (FEW, 3, "3 validation bouts")])
def test_caution(learned, judged, said):
    assert caution({"bouts": learned}, judged if judged is None else {"bouts": judged}) == said


METRICS = {"recipe": "best", "videos": 46, "frames": 552000, "folds": [[]] * 5,
           "macro_f1": 0.7, "interval": (0.66, 0.74), "in_sample": 0.71, "optimism": 0.01,
           "f1": {"attack": 0.7, "bite": None}, "mean": 0.69,
           "members": {"net": 0.66}}


def test_sections_are_there_if_there_is_something_to_say():
    plain = card_text(METRICS, ("attack", "bite"), 0.0)
    assert "frames; each pair of animals counts its own." in plain # as on the card of a run
    assert "## Calibration" not in plain and "## Borders" not in plain
    assert rows_of(plain, "action | F1") == {"attack": ["0.700"], "bite": ["undefined"]}
    y = np.zeros((900, 2), np.int8)
    y[100:160, 0] = y[500:503, 1] = 1
    names, p = ("attack", "bite"), np.clip(y * 0.8, 0.01, 1)
    more = {"calibration": calibration([(y, p)], names), "training_counts": action_counts([y], names),
            "borders": borders([(y, np.roll(y[:, 0], 3) - 1, 30.0)], names)}
    text = card_text(METRICS | more, names, 0.0)
    assert rows_of(text, "action | calibration")["attack"][1:] == ["60", "0.800", "1.000"]
    far = rows_of(text, "ms from a border")
    assert far["0"][0] == "0.950" and far["100"][0] == "1.000" and "leave out bite" in text
    assert rows_of(text, "action | F1")["bite"] == ["undefined", "3", "1",
                                                    "only 1 bout: treat with care"]
    assert text.index("## What each part") < text.index("## Calibration") < text.index(
        "## Borders") < text.index("## Limits")


def test_what_is_predicted_and_never_seen_is_named_where_it_lowers_the_mean():
    "Sniffs are all found; lunges are predicted in 5 frames, in videos that show none."
    y = np.zeros((400, 2), np.int8)
    y[50:90, 0] = 1
    codes = y[:, 0].astype(int) - 1
    codes[100:105], y[105:110, 1], codes[105:110] = 1, -1, 1 # of the last five nobody knows
    names, valid = ("sniff", "lunge"), Validation(y, np.eye(3)[codes, :2], codes, np.array(
        [0, 200, 400]), np.array([30.0, 30.0]), np.array(["8", "9"]))
    counts = video_counts([y], [codes])
    found = validation_scores(valid, names) | {
        "only_false_alarms": only_false_alarms(counts, names)}
    assert found["only_false_alarms"] == {"lunge": 5}
    assert found["valid"]["f1"] == {"sniff": 1, "lunge": 0} and found["valid"]["macro_f1"] == 0.5
    note = "Predicted and never annotated, so 0 in this mean: lunge (5 frames); without, the mean is 1.000."
    metrics = found | {
        "train_videos": ["1"], "valid_videos": ["8", "9"], "warnings": [], "train_frames": 9,
        "classes": {"other": 1, "sniff": 9, "lunge": 9}, "epochs": 4, "labs": ["A"],
        "best": {"epoch": 3, "valid_f1": 0.4321},
        "training_counts": {a: {"frames": 900, "bouts": 40} for a in names}}
    text = run_card(metrics, TrainConfig(frame_gap=4))
    assert note in text and "best of 4, by an F1 of 0.432 in windows that do not overlap" in text
    mind = {a: row[-1] for a, row in rows_of(text, "action | F1").items()}
    assert "predicted in 5 frames, not annotated" in mind["lunge"] and "hardly" not in mind["lunge"]
    assert "never annotated" not in mind["sniff"] and "## By lab" not in text
    recipe = METRICS | {"f1": found["valid"]["f1"], "only_false_alarms": {"lunge": 5}}
    assert note in card_text(recipe, names, 0.0)
    assert "never annotated" not in card_text(METRICS, ("attack", "bite"), 0.0)


def test_a_run_judged_by_several_labs_tells_each(colony, tmp_path):
    labs = dict(zip(colony.ids, "AAABA"))
    data = RecordingList([rec.replace(lab_id=labs[rec.video_id]) for rec in colony])
    how = TrainConfig(**TINY), ["1", "4", "7"], ["10", "13"]
    metrics = train(data, tmp_path/"run", *how, cache=tmp_path/"cache")
    clf, prepared = load_classifier(tmp_path/"run"/"best.safetensors"), prepare(
        data, "symmetric", out=tmp_path/"cache", progress=False)
    for lab, video in (("A", "13"), ("B", "10")):
        alone, told = assess(clf, prepared, [video]), metrics["by_lab"][lab]
        assert told["videos"] == 1 and told["f1"] == pytest.approx(alone["f1"], abs=1e-4)
    zeros = {a for a, f1 in metrics["valid"]["f1"].items() if f1 == 0} & {
        a for a, n in metrics["validation_counts"].items() if not n["bouts"]}
    assert {*metrics["only_false_alarms"]} == zeros
    text = (tmp_path/"run"/"card.md").read_text()
    rows = rows_of(text, "lab | macro F1")
    mean = np.mean([of["macro_f1"] for of in metrics["by_lab"].values()])
    assert rows == {lab: [f"{of['macro_f1']:.3f}"] for lab, of in metrics["by_lab"].items()} | {
        "mean of the labs": [f"{mean:.3f}"]}
    assert "No video that was learned from is of B." in text
    one = run_card(metrics | {"by_lab": {"A": metrics["by_lab"]["A"]}}, how[0])
    assert "## By lab" not in one


def test_nothing_to_judge_by_at_all():
    metrics = {"train_videos": ["1"], "valid_videos": ["2"], "warnings": [],
               "classes": {"other": 1, "x": 0}, "train_frames": 9, "epochs": 1,
               "best": {"epoch": 1, "valid_f1": 0.0}, "interval": [0.0, 0.0], "f1_interval": {"x": None},
               "valid": {"f1": {"x": None}, "macro_f1": None, "frames": 9}}
    text = run_card(metrics, TrainConfig(frame_gap=4))
    assert "**No F1**" in text and "1 video (1)" in text and "None" not in text


@given(st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_names_stay_in_their_cell(name):
    lines = as_table({name: [0.5, name]}, "a", "b", "c").splitlines()
    assert len(lines) == 3 and "<" not in lines[2]
    assert lines[2].replace("\\|", "").count("|") == 4
    assert "\n" not in clean(name)


@pytest.mark.parametrize("name", [
    "![x](http://evil/p.png)", "[click](javascript:alert(1))", "`a`", "**a**", "$a$", "&lt;b", "_a_",
    "a\\\\", "~~a~~", "sniff_face", "a_b_c-2.5", "<b>&amp;|", "\\[a]"])
def test_names_show_as_they_are(name):
    reader = pytest.importorskip("markdown_it", reason="comes with other packages").MarkdownIt
    shown = reader().enable("strikethrough").renderInline(clean(name))
    assert "<" not in shown and html.unescape(shown) == name
    assert clean("sniff_face") == "sniff_face"


@pytest.mark.parametrize("labs, said", [
    ([["a"], ["b"]], "2 folds by lab"), ([["a", "b"], ["b"]], "2 folds of neighbouring"),
    ([["a"], ["a"]], "2 folds of neighbouring"),
    ([["a"], ["b"], ["b"]], "3 folds of neighbouring"), (None, "2 folds of neighbouring")])
def test_kind_of_folds(labs, said):
    more = {"folds": [[]] * len(labs or "12")}
    if labs: more |= {"fold_labs": labs, "by_lab": dict.fromkeys(sum(labs, []))}
    assert said in card_text(METRICS | more, ("attack", "bite"), 0.0)


def test_what_to_expect_of_a_new_lab():
    "Folds of labs had an interval over videos, of 'new videos like these'."
    labs = {"fold_labs": [["a"], ["b"], ["c"]], "by_lab": dict.fromkeys("abc"), "folds": [[]] * 3}
    said = card_text(METRICS | labs | {"interval_over": "labs"}, ("attack", "bite"), 0.0)
    assert "(95 % interval over labs: " in said and "on a new lab expect about as much" in said
    said = card_text(METRICS, ("attack", "bite"), 0.0)
    assert "(95 % interval over videos: " in said and "on new videos like these expect about as much" in said


def test_what_is_hardly_ever_right_is_said():
    many = {"frames": 900, "bouts": 90}
    assert caution(many, None, 0.049) == "hardly ever right"
    assert caution(many, None, 0.05) == caution(many, None, None) == ""
    assert caution({"frames": 9, "bouts": 1}, None, 0.0) == (
        "only 1 bout: treat with care; hardly ever right")

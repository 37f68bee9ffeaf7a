"""Training, classifiers and predictions: properties and faults."""
import json
import re
import shutil
from dataclasses import replace
from itertools import count

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mabe_nb.cli import main
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.recording import bout_table, frame_labels, run_lengths
from mabe_nb.data.synthetic import colony_video, write_colony
from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.train import postprocess
from mabe_nb.train.classifier import load_classifier, predict_dataset, save_classifier
from mabe_nb.train.model import read_thresholds
from mabe_nb.train.config import TrainConfig, make_config
from mabe_nb.train.scores.frames import masked_f1
from mabe_nb.train.fit.losses import allowed_classes, partial_cross_entropy
from mabe_nb.train.predict import decide, smooth, to_bouts
from mabe_nb.train.runs import train
from mabe_nb.train.training_set import training_set
from mabe_nb.view.video.strips import pairs_of

QUICK = settings(max_examples=60, deadline=None)
TINY = dict(epochs=4, conv_channels=[16], lstm_hidden=16, batch_size=4, stride=50,
            learning_rate=0.01, num_workers=1, device="cpu")


@pytest.fixture(scope="module")
def colony():
    return RecordingList([colony_video(k, minutes=0.3) for k in range(0, 15, 3)])


@pytest.fixture(scope="module")
def run(colony, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    train(colony, out/"run", TrainConfig(**TINY), ["1", "4", "7"], ["10", "13"],
          cache=out/"cache")
    return out


# config

@QUICK
@given(st.dictionaries(st.text(max_size=20), st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9),
    st.lists(st.integers(), max_size=3)), max_size=3))
def test_any_settings_give_a_config_or_one_sentence(values):
    try: cfg = make_config(values)
    except ConfigError as e: assert str(e) and "\n" not in str(e)
    else: assert set(values) <= set(TrainConfig.model_fields) and cfg


@QUICK
@given(st.sampled_from(sorted(TrainConfig.model_fields)), st.one_of(
    st.integers(-5, 5), st.floats(), st.text(max_size=9), st.booleans()))
def test_known_keys_with_any_value_give_a_config_or_name_the_key(key, value):
    try: make_config({key: value})
    except ConfigError as e: assert key in str(e) and "\n" not in str(e)


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_as_yaml_give_a_config_or_a_sentence(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp()/"any.yaml"
    path.write_bytes(data)
    try: TrainConfig.from_yaml(path)
    except MabeError as e: assert "any.yaml" in str(e) or str(e)


@pytest.mark.parametrize("text", [
    "epochs: 2020-99-99", "[" * 3000, "epochs: " + "9" * 5000, "epochs: !!timestamp x",
    "epochs: !!int ''", "a: &a [*a]", "epochs: .inf", "learning_rate: .nan",
    "epochs: true", "conv_channels: [true]", "dropout: " + "x" * 999,
    "epochs: &a [1, *a]", "? [a]\n: 1"])
def test_odd_yaml_is_one_short_sentence(tmp_path, text):
    (tmp_path/"c.yaml").write_text(text)
    with pytest.raises(MabeError) as e: TrainConfig.from_yaml(tmp_path/"c.yaml")
    said = str(e.value).replace(str(tmp_path), "")
    assert "\n" not in said and len(said) < 200 or "known: " in said


@pytest.mark.parametrize("key", ["learning_rate", "noise_std", "resident_gb", "fps"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), "inf", True])
def test_only_finite_numbers_are_numbers(key, value):
    with pytest.raises(ConfigError, match=key): make_config({key: value})


def test_round_trip_of_every_setting(tmp_path):
    cfg = TrainConfig(**TINY, class_weights=[1, 2.5], modal_gpu="A10G", stride=None) \
        if "stride" not in TINY else TrainConfig(**TINY, class_weights=[1, 2.5])
    cfg.to_yaml(tmp_path/"c.yaml")
    assert TrainConfig.from_yaml(tmp_path/"c.yaml") == cfg
    assert set(yaml.safe_load((tmp_path/"c.yaml").read_text())) == set(
        TrainConfig.model_fields)


# loss

@QUICK
@given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 10**6))
def test_loss_is_finite_and_silent_about_the_unknown(actions, frames, seed):
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(-1, 2, (frames, actions)).astype(np.int8))
    scores = torch.randn(frames, actions + 1, requires_grad=True)
    weights = torch.from_numpy(rng.random(actions + 1).astype(np.float32)) + 0.1
    loss = partial_cross_entropy(scores, allowed_classes(labels), weights)
    loss.backward()
    unknown = (labels == -1).all(1)
    assert torch.isfinite(loss) and loss >= 0
    assert (scores.grad[unknown] == 0).all()


# decisions

@QUICK
@given(st.lists(st.integers(-1, 3), max_size=60))
def test_bouts_paint_the_frames_they_came_from(codes):
    codes, back = np.array(codes, int), np.full(len(codes), -1)
    for a, t, action, start, stop in to_bouts(codes, "wxyz", "m", "n"):
        assert (back[start:stop] == -1).all()
        back[start:stop] = "wxyz".index(action)
    assert (back == codes).all() and (np.diff(run_lengths(codes)[:, 1]) > 0).all()


@QUICK
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_only_wanted_actions_are_decided_and_only_above_their_bar(seed, actions):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(actions + 1), 40)
    wanted, bars = rng.random(actions) < 0.6, rng.random(actions)
    for code, row in zip(decide(p, wanted, bars), p):
        over = [a for a in range(actions) if wanted[a] and row[a + 1] >= bars[a]]
        assert (code in over) if over else code == -1
    plain = decide(p, np.ones(actions, bool))
    assert (plain[p[:, 1:].max(1) > 0.5] >= 0).all()


@QUICK
@given(st.integers(1, 80), st.floats(1, 120), st.floats(0, 3000), st.integers(0, 99))
def test_smoothing_keeps_probabilities(frames, fps, ms, seed):
    p = np.random.default_rng(seed).dirichlet(np.ones(3), frames).astype(np.float32)
    q = smooth(p, fps, ms)
    assert q.shape == p.shape and np.allclose(q.sum(1), 1, atol=1e-4)


# runs

def f1_of_bouts(clf, table, colony):
    "F1 of each action in the validation videos, from the bouts predicted there."
    seen, said = [], []
    for video in ("10", "13"):
        rec = colony[video]
        for agent, target in {(a, t) for a, t, _ in rec.labelled}:
            seen.append(frame_labels(rec, agent, target, clf.actions))
            said.append(np.zeros(seen[-1].shape, bool))
            mine = table[(table.video_id.astype(str) == video) & (table.agent_id == agent)
                         & (table.target_id == ("self" if agent == target else target))]
            for row in mine.itertuples():
                said[-1][row.start_frame:row.stop_frame, clf.actions.index(row.action)] = True
    seen, said = np.concatenate(seen), np.concatenate(said)
    return [masked_f1(seen[:, [k]], said[:, k] - 1)[0] for k in range(len(clf.actions))]


def test_the_score_in_the_run_is_the_score_of_its_predictions(run, colony):
    metrics = json.loads((run/"run"/"metrics.json").read_text())
    clf = load_classifier(run/"run"/"best.safetensors")
    ours = f1_of_bouts(clf, predict_dataset(clf, colony, ["10", "13"], cache=run/"cache"), colony)
    said = [metrics["valid"]["f1"][a] for a in clf.actions]
    assert np.allclose(ours, np.array(said, float), atol=1e-6, equal_nan=True)
    assert "overlap" not in metrics


def test_what_is_frequent_counts_unless_it_is_not_to(run, colony, monkeypatch, tmp_path):
    clf = load_classifier(run/"run"/"best.safetensors")
    predict = lambda clf, **how: predict_dataset(clf, colony, ["10", "13"], cache=run/"cache", least_ms=0, **how)
    rare, plain = replace(clf, usual=(1e-4,) * len(clf.actions)), predict(replace(clf, usual=()))
    assert predict(rare, rates=False).equals(plain) and not predict(rare).equals(plain)
    shutil.copytree(run/"run", tmp_path/"r")
    save_classifier(tmp_path/"r"/"best.safetensors", rare)
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    write_colony(tmp_path/"c", videos=5, minutes=0.3, messy=False)
    for flags in ([], ["--no-rates"]):
        assert main(["predict", str(tmp_path/"r"), str(tmp_path/"c"), "--least-ms", "0", "--out",
                     str(tmp_path/f"{len(flags)}.csv"), *flags]) == 0
    assert (tmp_path/"0.csv").read_text() != (tmp_path/"1.csv").read_text()


def test_how_short_an_action_is_stays_open_where_no_video_that_judges_tells(colony, tmp_path):
    "One bout of 13 s was marked to learn from, and no bout of less was predicted ever after."
    pair = "mouse1", "mouse2"
    marked = lambda v, *bouts: colony[v].replace(labelled=frozenset({(*pair, "sniff"), (*pair, "mount")}),
                                                 bouts=bout_table([(*pair, *b) for b in bouts]))
    data = RecordingList([marked("1", ("mount", 100, 490), ("sniff", 20, 50)), marked("4", ("sniff", 20, 50)),
                          marked("10", ("sniff", 20, 50))])
    metrics = train(data, tmp_path/"r", TrainConfig(**TINY | {"epochs": 1}), ["1", "4"], ["10"], tmp_path/"c")
    assert metrics["least_ms"].get("mount", 0) == 0


def test_a_run_that_learned_what_goes_on_at_once_is_judged_by_that_too(colony, tmp_path):
    contact = lambda bouts: bouts[bouts.agent != bouts.target].assign(action="contact")
    data = RecordingList([v.replace(
        bouts=bout_table(pd.concat([v.bouts, contact(v.bouts)])),
        labelled=v.labelled | {(a, t, "contact") for a, t, _ in v.labelled if a != t}) for v in colony])
    metrics = train(data, tmp_path/"r", TrainConfig(**TINY | {"loss": "binary", "epochs": 20,
                                                          "class_weights": "balanced"}),
                    ["1", "4", "7"], ["10", "13"], cache=tmp_path/"c")
    clf = load_classifier(tmp_path/"r"/"best.safetensors")
    table = predict_dataset(clf, data, ["10", "13"], cache=tmp_path/"c", overlap=True)
    said = metrics["overlap"]
    assert np.allclose(f1_of_bouts(clf, table, data), np.array([said["f1"][a] for a in clf.actions], float),
                       atol=1e-6, equal_nan=True)
    assert said["f1"]["contact"] > metrics["valid"]["f1"]["contact"]
    card = (tmp_path/"r"/"card.md").read_text()
    assert f"--overlap, with a macro F1 of {said['macro_f1']:.3f}" in card and "F1 with --overlap" in card


def test_nothing_is_predicted_of_a_video_that_shows_nobody(run, colony):
    rec, lines = colony["10"].replace(labelled=None, bouts=bout_table()), []
    blank = rec.replace(xy=np.full_like(rec.xy, np.nan), video_id="11")
    clf = load_classifier(run/"run"/"best.safetensors")
    table = predict_dataset(clf, RecordingList([rec, blank]), cache=run/"blank", say=lines.append)
    assert {*table.video_id.astype(str)} <= {"10"}
    assert any("in 1 of 2 videos (video 11) no frame shows an animal, so nothing is predicted" in line for line in lines)
    with pytest.raises(DataError, match="nothing is asked of animals with poses in 11: no frame shows one"):
        predict_dataset(clf, RecordingList([blank]), cache=run/"blank")
    assert pairs_of(blank, {}) and pairs_of(blank.replace(labelled=frozenset()), {})


def test_changing_the_judging_videos_changes_nothing_that_is_fitted(colony, tmp_path):
    cfg = TrainConfig(**TINY | {"epochs": 1}, include_pca=True, pca_components=4)
    wild = [v.replace(xy=v.xy * 9) if v.video_id == "13" else v for v in colony]
    for name, data in (("a", colony), ("b", RecordingList(wild))):
        train(data, tmp_path/name, cfg, ["1", "4", "7"], ["13"], cache=tmp_path/f"c{name}")
    a, b = (load_file(tmp_path/n/"best.safetensors") for n in "ab")
    assert {k for k in a if "components" in k} and a.keys() == b.keys()
    for key in a: assert torch.equal(a[key], b[key]), key


def test_nothing_but_the_training_videos_says_how_frequent_and_how_short_actions_are(run, colony, monkeypatch):
    "Nor weighs classes: judging videos choose whether it is used, and not what it is."
    losses = count()
    monkeypatch.setattr(postprocess, "log_loss", lambda of: next(losses)) # rates are kept
    monkeypatch.setattr(postprocess, "LEAST_COST", 1)
    monkeypatch.setattr(postprocess, "where_found", lambda least, counts: least)
    clf = replace(load_classifier(run/"run"/"best.safetensors"), usual=(), least_ms=())
    prepared, learned = clf.prepared(colony, ["1", "4", "7", "10", "13"], run/"cache"), []
    for ids in (["1", "4", "7"], ["10"]), (["1", "4", "7"], ["13"]), (["1", "4"], ["13"]):
        data, (after, *_) = training_set(prepared, *ids, clf.cfg), postprocess.postprocessing(clf, prepared, ids)
        learned.append((data.counts.tolist(), data.weights.tolist(), after.usual, after.least_ms))
    assert learned[0] == learned[1]
    assert not any(a == b for a, b in zip(learned[1], learned[2]))


def test_named_videos_that_nobody_has_annotated_are_told(colony, tmp_path):
    data = [r if k < 3 else r.replace(labelled=None, bouts=bout_table()) for k, r in enumerate(colony)]
    for name, learn, judge, told in (("all", None, None, []), ("some", ["1", "4", "10"], ["7", "13"], [
            "note: left out, as nobody has annotated it: video 10, 13"])):
        said = []
        train(data, tmp_path/name, TrainConfig(**TINY | {"epochs": 1}), learn, judge,
              cache=tmp_path/"cache", say=said.append)
        assert [line for line in said if "annotated" in line] == told


def test_tracks_on_both_sides_are_refused(colony, tmp_path):
    twin = colony["1"].replace(video_id="99", lab_id="Other")
    data = RecordingList([*colony, twin])
    with pytest.raises(DataError, match="shares poses"):
        train(data, tmp_path/"r", TrainConfig(**TINY), ["1", "4"], ["99"])
    assert not (tmp_path/"r").exists()


def test_a_pickle_is_not_loaded(tmp_path):
    class Evil:
        def __reduce__(self): return (open, (str(tmp_path/"owned"), "w"))
    torch.save({"model": Evil()}, tmp_path/"best.safetensors")
    with pytest.raises(DataError, match="safetensors"):
        load_classifier(tmp_path/"best.safetensors")
    assert not (tmp_path/"owned").exists()


@QUICK
@given(st.integers(0, 10**9), st.integers(0, 255))
def test_a_damaged_classifier_is_read_or_refused(run, seed, byte):
    data = bytearray((run/"run"/"best.safetensors").read_bytes())
    data[seed % min(len(data), 6000)] = byte
    path = run/"damaged.safetensors"
    path.write_bytes(data)
    try: clf = load_classifier(path)
    except MabeError as e: assert "damaged" in str(e)
    else: assert clf.actions


def test_tensors_of_another_shape_are_refused(run, tmp_path):
    from safetensors import safe_open
    with safe_open(run/"run"/"best.safetensors", "pt") as f:
        meta, tensors = f.metadata(), {k: f.get_tensor(k) for k in f.keys()}
    save_file(tensors | {"inputs.mean": torch.zeros(3)}, tmp_path/"x.safetensors", meta)
    with pytest.raises(DataError, match="do not fit"):
        load_classifier(tmp_path/"x.safetensors")


@pytest.mark.parametrize("text", ["[]", "{", '{"*": 3}', '{"*": {"a": 2}}',
                                  '{"*": {"a": true}}', '{"*": {"a": null}}'])
def test_bad_thresholds_are_refused(tmp_path, text):
    (tmp_path/"t.json").write_text(text)
    with pytest.raises(DataError, match="t.json"): read_thresholds(tmp_path/"t.json")


def test_thresholds_of_names_that_there_are_not(run, colony):
    clf, data = load_classifier(run/"run"/"best.safetensors"), colony
    def said(table):
        lines = []
        clf.predict(data, data.ids[:1], table, say=lines.append)
        return [x for x in lines if "thresholds" in x]
    first, lab = clf.actions[0], data.lab(data.ids[0])
    assert said({"*": {first: 0.5}}) == said({lab: {first: np.float32(0.5)}}) == said({}) == []
    assert f"{first}x change nothing" in said({lab: {first + "x": 0.5}})[0]
    assert f"did you mean '{first}'?" in said({lab: {first + "x": 0.5}})[0]
    assert "of the labs Nowhere" in said({"Nowhere": {first: 0.5}})[0]
    for bad in ({first: 0.5}, {"*": {first: "low"}}):
        with pytest.raises(DataError): clf.predict(data, data.ids[:1], bad)


class Sure(torch.nn.Module):
    "Says always the same of each class."

    def __init__(self, scores):
        super().__init__()
        self.scores = torch.nn.Parameter(torch.tensor(scores))

    def forward(self, x): return self.scores.expand(*x.shape[:2], -1)


@pytest.mark.parametrize("loss", ["binary", "focal_binary"])
def test_what_is_not_asked_of_a_pair_hides_nothing(run, colony, loss):
    "A binary loss trains no score of rearing in pairs: whatever it says there."
    clf = load_classifier(run/"run"/"best.safetensors")
    own, does = clf.actions[:2]
    scores = [0.0] + [3.0 if a in (own, does) else -9.0 for a in clf.actions]
    clf = replace(clf, model=Sure(scores), cfg=clf.cfg.model_copy(update={"loss": loss}),
                  self_actions=(own,), pair_actions=None, possible=np.ones(len(scores), bool))
    new = RecordingList([colony["1"].replace(labelled=None, bouts=bout_table())])
    for pairs, done in ((None, does), ((own, does), own)): # `own` comes first, where it may be
        found = replace(clf, pair_actions=pairs).predict(new)
        alone = found.target_id == "self"
        assert {*found.action[alone]} == {own} and {*found.action[~alone]} == {done}


FOREIGN = {
    "nan": lambda t, a: next(v for k, v in t.items() if k.startswith("model.")
                             and v.is_floating_point()).fill_(float("nan")),
    "possible": lambda t, a: a["possible"].append(True),
    "possible nested": lambda t, a: a.update(possible=[a["possible"]]),
    "direct of floats": lambda t, a: t.update({"inputs.direct": t["inputs.direct"].float()}),
    "direct of rows": lambda t, a: t.update({"inputs.direct": t["inputs.direct"][None]}),
    "masks of switches": lambda t, a: t.update({"inputs.masks": torch.ones(1).bool()}),
    "base alone": lambda t, a: t.update({"inputs.base": torch.tensor(0)}),
    "no weights": lambda t, a: [t.pop(k) for k in list(t) if k.startswith("model.")],
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_does_not_fit_in_a_classifier_is_one_line(run, tmp_path, kind):
    path = run/"run"/"best.safetensors"
    with safe_open(path, "pt") as f: about = json.loads(f.metadata()["mabe"])
    tensors = load_file(path)
    FOREIGN[kind](tensors, about)
    save_file(tensors, tmp_path/"x.safetensors", {"mabe": json.dumps(about)})
    with pytest.raises(DataError, match="do not fit") as e:
        load_classifier(tmp_path/"x.safetensors")
    assert "\n" not in str(e.value)


def test_history_and_log_agree(run):
    history = pd.read_csv(run/"run"/"history.csv")
    log = [json.loads(line) for line in (run/"run"/"log.jsonl").read_text().splitlines()]
    assert [r["epoch"] for r in log] == history.epoch.tolist()
    best = json.loads((run/"run"/"metrics.json").read_text())["best"]
    assert best["valid_f1"] == pytest.approx(history.valid_f1.max())


def test_an_action_that_is_called_other_is_one_like_any(colony, tmp_path):
    known = sorted({a for v in colony for *_, a in v.labelled})
    called = {a: "other" if a == known[0] else a for a in known}
    data = [v.replace(bouts=v.bouts.assign(action=v.bouts.action.map(called)),
                      labelled=frozenset((*w, called[a]) for *w, a in v.labelled)) for v in colony]
    metrics = train(RecordingList(data), tmp_path/"r", TrainConfig(**TINY | {"epochs": 1}),
                    ["1", "4", "7"], ["10", "13"], cache=tmp_path/"c")
    names = ["none of these", *sorted(called.values())]
    assert [*metrics["classes"]] == metrics["valid"]["confusion"]["columns"] == names
    said = (tmp_path/"r"/"card.md").read_text()
    assert f"It tells apart: {', '.join(names[1:])}, and none of them." in said


def test_missing_points_everywhere_still_train(colony, tmp_path):
    blind = [v.replace(xy=np.full_like(v.xy, np.nan)) if v.video_id in "14" else v
             for v in colony]
    metrics = train(RecordingList(blind), tmp_path/"r", TrainConfig(**TINY | {"epochs": 1}),
                    ["1", "7"], ["10"], cache=tmp_path/"c")
    assert np.isfinite(metrics["best"]["train_loss"])


# the bar

def last_bar(text):
    "Share, windows done and windows in all, as they stand when a bar is closed."
    found = re.findall(r"(\d+)%\|.*?\| (\d+)/(\d+) \[[^]]*windows", text)
    return tuple(map(int, found[-1]))


@pytest.mark.parametrize("epochs, more", [(3, {}), (9, {"early_stopping_patience": 1,
                                                        "learning_rate": 1e-12})])
def test_the_bar_of_a_training_that_has_done_all_ends_at_its_end(
        colony, tmp_path, capsys, epochs, more):
    said, cfg = [], TrainConfig(**TINY | {"epochs": epochs} | more)
    train(colony, tmp_path/"run", cfg, ["1", "4", "7"], ["10", "13"], tmp_path/"cache",
          say=said.append, progress=True)
    out, err = capsys.readouterr()
    share, done, total = last_bar(err)
    assert (share, done) == (100, total) and not out
    rows = len(pd.read_csv(tmp_path/"run"/"history.csv"))
    assert total % rows == 0 and sum(s.startswith("Epoch [") for s in said) == rows


def test_the_bar_of_a_run_that_goes_on_begins_where_it_was(colony, tmp_path, capsys):
    def go(each=lambda row: None, **how):
        train(colony, tmp_path/"run", TrainConfig(**TINY), ["1", "4", "7"], ["10", "13"],
              tmp_path/"cache", each=each, progress=True, **how)
    def end(row):
        if row["epoch"] == 3: raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): go(end)
    _, done, total = last_bar(capsys.readouterr().err)
    assert done * 4 == total * 3
    go(resume=True)
    err = capsys.readouterr().err
    first = re.search(r"(\d+)/(\d+) \[[^]]*windows", err)
    share, done, total = last_bar(err)
    assert int(first[1]) * 2 == int(first[2]) == total and (share, done) == (100, total)

"""Four kinds of trained things, one way to use them."""
import json
import shutil
from pkgutil import resolve_name

import numpy as np
import pandas as pd
import pytest
from short_recipe import short  # noqa: F401

import mabe_nb as mb
from mabe_nb import cli
from mabe_nb.data.checks.defects import check
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.recording import bout_table, pairs
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.kaggle.bundle import make_bundle
from mabe_nb.train.config import make_config
from mabe_nb.train.ensemble import per_lab
from mabe_nb.train.ensemble.per_lab import train_per_lab
from mabe_nb.train.ensemble.recipe import train_recipe
from mabe_nb.train.metrics import submission_table
from mabe_nb.train.model import MODELS, Model, kind_of, load_model
from mabe_nb.train.runs import train
from mabe_nb.train.data_shift import doubt_lines

KINDS = ("classifier", "recipe", "labs", "bundle")
TINY = make_config({"epochs": 2, "conv_channels": [8], "lstm_hidden": 8, "stride": 50,
                    "learning_rate": 0.01, "batch_size": 4, "device": "cpu"})
PARTS = ("ear_left", "ear_right", "nose", "tail_base")
LISTED = {("mouse1", "mouse2", x) for x in ("attack", "sniff")}


@pytest.fixture(scope="module")
def data():
    labs = ("One",) * 3 + ("Two",) * 3 + ("Few",)
    return RecordingList([make_recording([5, i], 1500, 2, PARTS, 30.0, 16.0, True, LISTED,
                                         0.5, str(i), lab) for i, lab in enumerate(labs)])


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    "A folder of each kind, by name, all of which learned from videos 0 to 5 alone."
    work = tmp_path_factory.mktemp("models")
    ids, how = data.ids[:6], {"folds": 3, "cache": work/"features"}
    train(data, work/"classifier", TINY, ids, data.ids[6:], cache=work/"features")
    train_recipe(data, work/"recipe", "quick", ids, **how)
    train_per_lab(data, work/"labs", "quick", ids, common=True, **how)
    make_bundle(work/"recipe", work/"bundle")
    return work


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_answers_the_same_calls(data, folder, tmp_path, kind):
    model = load_model(folder/kind)
    assert kind_of(folder/kind) == kind and isinstance(model, Model)
    assert set(model.actions) == {"attack", "sniff"} and set(model.parts) == set(PARTS)
    assert model.learned_from == set(data.ids[:6])
    assert model.labs in ({}, {lab: ["attack", "sniff"] for lab in ("One", "Two")})
    assert bool(model.labs) == (kind != "classifier")
    evidence = model.evidence()
    assert (evidence is None) == (kind == "classifier")
    looked = model.evidence(data)
    assert set(looked) - {"Few"} == {"One", "Two"}
    assert evidence is None or evidence == looked
    table = model.predict(data, data.ids[5:], cache=tmp_path/"f", workers=1, threads=1,
                          progress=False, say=lambda text: None)
    assert list(table)[0] == "row_id" and table.row_id.tolist() == list(range(len(table)))
    assert set(map(str, table.video_id)) <= set(data.ids[5:])
    assert model.files() and all(path.is_file() for path in model.files().values())


@pytest.mark.slow
def test_animals_that_are_learned_from_and_judge_are_named(data, tmp_path):
    known, lines = RecordingList([*data]), []
    known.groups = lambda: pd.DataFrame({"video": data.ids, "subject": ["M1", "M2", "", "M1", "",
                                                                        "M2", "M5"]})
    how = {"cache": tmp_path/"f", "say": lines.append}
    train(known, tmp_path/"a", TINY, data.ids[:3], data.ids[3:5], **how)
    assert sum("videos of 1 subject (M1) are in training and validation" in x for x in lines) == 1
    train(known, tmp_path/"b", TINY, data.ids[:3], data.ids[6:], **how)
    assert sum("in training and validation" in x for x in lines) == 1
    train_recipe(known, tmp_path/"c", "quick", data.ids[:6], 3, **how)
    assert sum("videos of 1 subject (M2) are" in x for x in lines) == 1 # M1: both in one fold


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_said_of_an_animal_that_no_frame_shows(data, folder, tmp_path, kind):
    "A tracker's list of animals has one more than the cage: bouts are those without it."
    bare = data["6"].replace(labelled=None, bouts=data["6"].bouts[:0])
    ghost = bare.replace(mice=(*bare.mice, "ghost"), xy=np.concatenate(
        [bare.xy, np.full_like(bare.xy[:, :1], np.nan)], 1))
    assert {"ghost"} & {m for pair in pairs(ghost) for m in pair} == set()
    said = [load_model(folder/kind).predict(RecordingList([rec]), cache=tmp_path/name, threads=1)
            for name, rec in (("a", bare), ("b", ghost))]
    pd.testing.assert_frame_equal(*said)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_looked_for_in_a_video_is_said_to_be_left_out(data, folder, tmp_path, kind, capsys):
    "As where annotations spell an action in another way: nothing of it is predicted."
    model = load_model(folder/kind)
    def say(ids):
        lines = []
        model.predict(other, ids, cache=tmp_path/"f", workers=1, threads=1, say=lines.append)
        return [line for line in lines if "only what is looked for there" in line]
    spelled = {(a, b, x.title() if x == "sniff" else x) for a, b, x in LISTED}
    other = RecordingList([data["4"].replace(labelled=frozenset(spelled)), data["5"],
                           data["3"].replace(labelled=None, bouts=data["3"].bouts[:0])])
    assert say(["5"]) == say(["3"]) == []
    line, = say(None)
    assert "in 1 of 3 videos (video 4)" in line or kind == "labs"
    assert line.endswith("is predicted, not sniff; looked for and never learned: Sniff")
    capsys.readouterr()
    model.predict(other, cache=tmp_path/"f", threads=1) # as one writes in a notebook
    assert line in capsys.readouterr().out.splitlines()
    model.predict(other, cache=tmp_path/"f", threads=1, say=None)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_out_is_told_of_each_list(data, folder, tmp_path, kind):
    only = lambda v, x: data[v].replace(labelled=frozenset(t for t in LISTED if t[2] == x), bouts=data[v].bouts[:0])
    lines = []
    load_model(folder/kind).predict(RecordingList([only("3", "attack"), only("4", "sniff"), only("5", "attack")]),
                                    cache=tmp_path/"f", threads=1, say=lines.append)
    line, = [line for line in lines if "looked for there" in line]
    assert line.endswith("not sniff (video 3, 5); not attack (video 4)"), line


@pytest.mark.parametrize("kind", KINDS)
def test_a_video_of_which_nothing_is_asked_is_named(data, folder, tmp_path, kind):
    "Its list is empty, as in a table of new videos that nobody filled; names come in order."
    model, lines = load_model(folder/kind), []
    bare = [data["4"].replace(video_id=v, labelled=frozenset(), bouts=data["4"].bouts[:0])
            for v in ("v8", "v2", "v6", "v1", "v4")]
    table = model.predict(RecordingList([*bare, data["5"]]), cache=tmp_path/"f", threads=1, say=lines.append)
    told, = [line for line in lines if "predicted" in line]
    assert told.startswith("note: in 5 of 6 videos (video v8, v2, v6, v1, v4) no action")
    assert {*map(str, table.video_id)} == {"5"} and {d.kind for d in check(bare[0])} >= {"unlabelled"}
    with pytest.raises(DataError, match="nothing is asked of animals with poses in v8"):
        model.predict(RecordingList(bare[:1]), cache=tmp_path/"g", threads=1)


@pytest.mark.parametrize("kind", ["classifier", "recipe"])
def test_a_video_too_large_to_keep_is_predicted_the_same(data, folder, tmp_path, kind,
                                                         monkeypatch):
    "Of three animals in both orders, and next to nothing is on disk."
    rec = make_recording([5, 9], 600, 3, PARTS, 30.0, 16.0, True, LISTED, 0.5, "9", "One")
    large = RecordingList([rec.replace(labelled=None, bouts=rec.bouts[:0])])
    model, said, tables = load_model(folder/kind), {}, {}
    for name, most in (("kept", 2**29), ("asked", 1)):
        monkeypatch.setattr(f"{type(model).__module__}.MOST", most)
        tables[name] = model.predict(large, cache=tmp_path/name, threads=1,
                                     each=said.setdefault(name, []).append)
    pd.testing.assert_frame_equal(tables["kept"], tables["asked"])
    assert len(said["kept"]) >= 6
    for one, other in zip(said["kept"], said["asked"], strict=True):
        assert one[:5] == other[:5]
        assert (one.p == other.p).all() and (one.on == other.on).all()
    assert [*(tmp_path/"kept").rglob("*.npy")] and not [*(tmp_path/"asked").rglob("*.npy")]


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "bundle"]) # A bundle's files do not tell
def test_a_score_of_videos_that_were_learned_from_says_so(data, folder, tmp_path, kind):
    model, said = load_model(folder/kind), []
    table = model.predict(data, cache=tmp_path/"f", say=None)
    assert {*table.attrs["learned_from"]} == model.learned_from & {*data.ids} != set()
    mb.score(data, table, say=said.append)
    scored = {v for v in data.ids if len(data.annotations(v))}
    told = f"{len(scored & model.learned_from)} of {len(scored)} videos have ids of videos that the run was trained on"
    assert sum(told in line for line in said) == 1


def test_a_doubt_about_many_videos_says_how_many():
    line, = doubt_lines({str(v): ["too fast"] for v in range(1, 8)})
    assert line.endswith("too fast (video 1, 2, 3, 4, 5 and 2 more)")


@pytest.mark.parametrize("kind", KINDS)
def test_doubtful_videos_are_named_beside_the_table(data, folder, tmp_path, kind):
    fast = RecordingList([data[v].replace(fps=4 * data[v].fps) if v == data.ids[-1]
                          else data[v] for v in data.ids])
    said = []
    table = load_model(folder/kind).predict(fast, fast.ids[-2:], cache=tmp_path/"f",
                                            say=said.append)
    found = table.attrs["doubts"]
    assert "120 frames/s" in found[data.ids[-1]][0] and "frames/s" not in str(
        found.get(data.ids[-2], ""))
    assert any("unlike the training" in line and "120 frames/s" in line for line in said)
    assert list(table) == list(submission_table({})) # the competition's columns alone


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("change, told", (
    ({}, ""), ({"px_per_cm": 32.0}, "animals are 0.5"), ({"px_per_cm": 12.0}, "animals are 1."),
    ({"px_per_cm": 8.0}, "animals are 2"),
    ({"parts": (*PARTS[:2], "tail_base", "nose")}, "left and right are exchanged")))
def test_wrong_sizes_and_ends_are_told(data, folder, tmp_path, kind, change, told):
    "Few of the channels are lengths, so that they lie in no tenth of all."
    rec = data[data.ids[-1]].replace(**change)
    found = load_model(folder/kind).predict([rec], cache=tmp_path/"f").attrs["doubts"]
    words = [t for some in found.values() for t in some if "animals are" in t or "exchanged" in t]
    assert [t.startswith(told) for t in words] == [True] * bool(told), found


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_predicted_while_nobody_is_seen(data, folder, tmp_path, kind):
    "Each part of a network goes on answering without any channel."
    model, last, said, seen = load_model(folder/kind), data[data.ids[-1]], [], []
    xy = np.concatenate([last.xy, np.full_like(last.xy[:600], np.nan), last.xy])
    away = last.replace(xy=xy, labelled=None, bouts=last.bouts[:0], video_id="away")
    table = model.predict([away], cache=tmp_path/"f", say=said.append, each=seen.append)
    gone = slice(len(last), len(last) + 600)
    assert seen and all(not q.on[gone].any() and q.on.any() and q.p[:gone.start].any() for q in seen)
    assert len(table) and not ((table.start_frame < gone.stop) & (table.stop_frame > gone.start)).any()
    assert any("up to 20.0 s (video away): nothing is predicted" in line for line in said)
    brief = away.replace(xy=np.delete(xy, range(gone.start + 60, gone.stop), 0))
    model.predict([brief], cache=tmp_path/"f", say=(few := []).append)
    assert not any("nothing is predicted" in line for line in few)


def test_how_long_nobody_was_seen_in_bouts_is_learned(data, tmp_path):
    "Where annotators go on marking, a model goes on predicting; also one that is tuned on such videos."
    rows, xy = [("mouse1", "mouse2", "sniff", 100, 500)], data["0"].xy.copy()
    xy[200:380] = np.nan
    some = RecordingList([data["0"].replace(xy=xy, bouts=bout_table(rows)), data["1"]])
    train(some, tmp_path/"a", TINY, ["0"], ["1"], cache=tmp_path/"f")
    assert load_model(tmp_path/"a").inputs.tracks["unseen_ms"] == 6000
    train(data, tmp_path/"b", TINY, ["2"], ["1"], cache=tmp_path/"f")
    assert load_model(tmp_path/"b").inputs.tracks["unseen_ms"] == 0
    train(some, tmp_path/"c", TINY, ["0"], ["1"], cache=tmp_path/"f", init=tmp_path/"b")
    assert load_model(tmp_path/"c").inputs.tracks["unseen_ms"] == 6000


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("wide, told", (((1, 1.78), "along y, beside x"), ((1.78, 1), "along x, beside y"),
                                        ((3, 3), ""), ((1, 1.1), "")))
def test_a_picture_of_another_shape_is_told(data, folder, tmp_path, kind, wide, told):
    "Most channels follow the animals as they turn."
    rec = data[data.ids[-1]]
    twice = rec.replace(xy=np.concatenate([rec.xy] * 2) * np.float32(wide))
    found = load_model(folder/kind).predict([twice], cache=tmp_path/"f").attrs["doubts"]
    words = [t for some in found.values() for t in some if "longer along" in t]
    assert len(words) == bool(told) and all(told in t for t in words), found


@pytest.mark.parametrize("kind", KINDS[:2])
def test_points_that_most_frames_lack_are_told(data, folder, tmp_path, kind):
    "A channel that some frames have is not missing, and its mean is that of those few."
    last, model, found = data[data.ids[-1]], load_model(folder/kind), {}
    for share in (1.0, 0.3):
        xy = last.xy.copy()
        xy[int(share * len(xy)):, :, PARTS.index("nose")] = np.nan
        found |= model.predict([last.replace(xy=xy, video_id=str(share))],
                               cache=tmp_path/f"{share}").attrs["doubts"]
    assert "most frames lack what was seen in training: front" in found["0.3"]
    assert "most frames lack" not in str(found.get("1.0"))


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_two_animals_exchange_are_told(data, folder, tmp_path, kind):
    "Every frame looks as usual; what one animal does is told of the other."
    last, said = data["2"], []
    xy = np.concatenate([last.xy[:800], last.xy[800:, ::-1]])
    model = load_model(folder/kind)
    found = model.predict([last.replace(video_id="kept"), last.replace(xy=xy, video_id="swapped")],
                          cache=tmp_path/"f", say=said.append).attrs["doubts"]
    assert "mouse1 and mouse2 swap names (1x, first in frame 800), so that in 47% of the frames" in str(found["swapped"])
    assert "swap names" not in str(found.get("kept")) and sum("swap names" in line for line in said) == 1


def test_how_often_names_were_exchanged_in_training_is_learned(data, tmp_path):
    "Scores of a run that learned from such tracks hold what they cost."
    xy = np.concatenate([data["0"].xy[:1000], data["0"].xy[1000:, ::-1]])
    some = RecordingList([data["0"].replace(xy=xy), data["1"]])
    train(some, tmp_path/"a", TINY, ["0"], ["1"], cache=tmp_path/"f")
    train(data, tmp_path/"b", TINY, ["2"], ["1"], cache=tmp_path/"f", init=tmp_path/"a")
    for run in "ab":
        model = load_model(tmp_path/run)
        assert model.inputs.tracks["exchanged"] == pytest.approx(1 / 3)
        assert "swap names" not in str(model.predict(some, cache=tmp_path/"f").attrs["doubts"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_a_pair_that_was_never_learned_from_is_told(data, folder, tmp_path, kind):
    "Only what mouse1 does to mouse2 was looked for; both orders are predicted where nobody looked."
    bare, model = data["2"].replace(labelled=None, bouts=bout_table(), video_id="new"), load_model(folder/kind)
    for rec, told in ((bare, True), (data["2"], False)):
        table = model.predict([rec], cache=tmp_path/rec.video_id, say=(said := []).append)
        assert any("in one order alone (mouse1 to mouse2); here both" in line for line in said) == told
        assert told or {*table.agent_id} == {"mouse1"}


def test_both_orders_are_learned_together_or_one_after_the_other(data, tmp_path):
    turned = data["0"].replace(labelled=frozenset((t, a, x) for a, t, x in LISTED), bouts=bout_table(
        (t, a, *rest) for a, t, *rest in data["0"].bouts.values.tolist()))
    for name, some, init in (("a", data, None), ("b", RecordingList([turned, data["1"]]), None),
                             ("c", RecordingList([turned, data["1"]]), tmp_path/"a")):
        train(some, tmp_path/name, TINY, ["0"], ["1"], cache=tmp_path/"f", init=init)
    assert [load_model(tmp_path/name).inputs.tracks["one_order"] for name in "abc"] == [
        [["mouse1", "mouse2"]], [["mouse2", "mouse1"]], []]


def test_features_without_an_order_are_proposed_where_nobody_can_say_that_it_matters(data, tmp_path):
    "Not where both orders were scored, nor where features were chosen."
    both = RecordingList([data[v].replace(labelled=data[v].labelled | {(t, a, x) for a, t, x in LISTED})
                          for v in "01"])
    for name, some, cfg, told in (("a", data, TINY, True), ("b", both, TINY, False),
                                  ("c", data, TINY.model_copy(update={"features": "smoothed"}), False)):
        train(some, tmp_path/name, cfg, ["0"], ["1"], cache=tmp_path/"f", say=(said := []).append)
        assert any("try --features smoothed" in line for line in said) == told, name


@pytest.mark.parametrize("kind", KINDS)
def test_parts_by_another_name_are_told(data, folder, tmp_path, kind):
    "Absent alone is another tracker, new alone is more than was learned; both may be one part."
    last, model = data[data.ids[-1]], load_model(folder/kind)
    names = last.parts[:-1]
    for parts, told in ((last.parts, False), ((*names, "appendix"), True)):
        rec = last.replace(parts=parts, video_id=f"v{told:d}")
        found = model.predict(RecordingList([rec]), cache=tmp_path/f"{told}").attrs["doubts"]
        assert told == any(f"{last.parts[-1]} were learned from and are absent, appendix" in text
                           and "files of Kaggle's layout" in text
                           for some in found.values() for text in some), found
    few = last.replace(parts=names, xy=last.xy[:, :, :-1], video_id="few")
    found = model.predict(RecordingList([few]), cache=tmp_path/"few").attrs["doubts"]
    assert "learned from and are absent" not in str(found)
    assert f"parts are absent that every training video had: {last.parts[-1]}" in found["few"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_scale_that_is_wrong_is_told(data, folder, tmp_path, kind):
    last, model = data["3"], load_model(folder/kind)
    for times in (1, 2, 0.5):
        rec = last.replace(px_per_cm=last.px_per_cm / times, video_id=f"x{times}")
        found = str(model.predict(RecordingList([rec]), cache=tmp_path/f"{times}", say=None).attrs["doubts"])
        assert ("times as long as those learned from" in found) == (times != 1)
        assert times == 1 or f"animals are {times:g}" in found, found


@pytest.mark.parametrize("kind", KINDS)
def test_its_files_are_all_that_prediction_reads(data, folder, tmp_path, kind):
    model = load_model(folder/kind)
    for name, path in model.files().items():
        (tmp_path/"copy"/name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, tmp_path/"copy"/name)
    copy = load_model(tmp_path/"copy")
    assert copy.learned_from == frozenset() # nobody knows
    want, got = (m.predict(data, data.ids[5:], cache=tmp_path/"f") for m in (model, copy))
    pd.testing.assert_frame_equal(want, got)


@pytest.mark.parametrize("kind", KINDS)
def test_recordings_and_ranges_do_for_data_and_ids(data, folder, tmp_path, kind):
    model = load_model(folder/kind)
    want = model.predict(data, data.ids[5:], cache=tmp_path/"f")
    got = model.predict([*data], "5-6", cache=tmp_path/"f")
    pd.testing.assert_frame_equal(want, got)
    with pytest.raises(ConfigError, match="no video 'nope'"):
        model.predict([*data], "nope", cache=tmp_path/"f")


@pytest.mark.parametrize("kind", KINDS)
def test_options_of_a_single_run_are_for_a_single_run(data, folder, tmp_path, kind):
    options = {"smooth_ms": 100.0, "least_ms": 50.0, "overlap": True, "thresholds": {}, "rates": False}
    for name, value in options.items():
        if kind == "classifier":
            load_model(folder/kind).predict(data, ["3"], cache=tmp_path, **{name: value})
            continue
        with pytest.raises(ConfigError, match="decisions of its own"):
            load_model(folder/kind).predict(data, ["3"], cache=tmp_path, **{name: value})
    if kind == "classifier": assert load_model(folder/kind, "last").file.name
    else:
        with pytest.raises(ConfigError, match="--checkpoint"): load_model(folder/kind, "last")
    with pytest.raises((ConfigError, DataError)):
        load_model(folder/kind).files(thresholds=tmp_path/"none.json")


@pytest.mark.parametrize("kind", KINDS)
def test_on_the_command_line(folder, tmp_path, monkeypatch, capsys, kind):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    write_colony(tmp_path/"colony", videos=2, minutes=0.1)
    words = ["predict", str(folder/kind), str(tmp_path/"colony"), "--json",
             "--out", str(tmp_path/"submission.csv")]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["bouts"] == len(pd.read_csv(tmp_path/"submission.csv"))
    assert cli.main([*words, "--overwrite", "--smooth-ms", "0"]) == (0 if kind == "classifier" else 2)
    if kind != "classifier": assert "decisions of its own" in capsys.readouterr().err


def test_each_recipe_is_read_once(data, folder, tmp_path, monkeypatch):
    read, load = [], per_lab.load_recipe
    monkeypatch.setattr(per_lab, "load_recipe", lambda *a, **k: read.append(a[0]) or load(
        *a, **k))
    model = load_model(folder/"labs")
    for video in data.ids: model.predict(data, [video], cache=tmp_path/video)
    assert len(read) == len(set(read)) == 3


@pytest.mark.slow
def test_a_bundle_of_a_bundle(folder, tmp_path):
    one = json.loads((folder/"bundle"/"manifest.json").read_text())
    two = make_bundle(folder/"bundle", tmp_path/"again")
    for key in ("kind", "actions", "evidence", "learned_from"): assert two[key] == one[key]
    model = {k: v for k, v in two["files"].items() if k.startswith("model/")}
    assert model == {k: v for k, v in one["files"].items() if k.startswith("model/")}


def test_where_it_predicts_can_be_chosen(data, folder, tmp_path):
    with pytest.raises(ConfigError, match="cuda:77"):
        load_model(folder/"classifier", device="cuda:77").predict(data, cache=tmp_path)
    with pytest.raises(ConfigError, match="cuda:77"):
        load_model(folder/"recipe", device="cuda:77").predict(data, cache=tmp_path)
    assert load_model(folder/"classifier").cfg.device == "cpu"


def test_a_folder_that_holds_none(tmp_path):
    with pytest.raises(DataError, match="not found"): load_model(tmp_path/"nowhere")
    with pytest.raises(DataError) as told: load_model(tmp_path)
    for marks, _ in MODELS.values(): assert marks[0] in str(told.value)
    (tmp_path/"best.safetensors").write_text("no weights")
    for path in (tmp_path, tmp_path/"best.safetensors"):
        with pytest.raises(DataError, match="best.safetensors"): load_model(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_no_dataset(folder, kind):
    with pytest.raises(DataError, match=f"{kind}: holds a model, expected a dataset"):
        open_dataset(folder/kind)


def test_every_kind_can_be_imported():
    assert list(MODELS)[-1] == "classifier" and set(MODELS) == set(KINDS)
    for _, where in MODELS.values(): assert callable(resolve_name(where))

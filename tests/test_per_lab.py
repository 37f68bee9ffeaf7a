"""A recipe for each lab: learned from that lab alone, used on it alone."""
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from short_recipe import short  # noqa: F401

from mabe_nb import cli
from mabe_nb.analysis.analyse import analyse
from mabe_nb.data.cache.reader import open_prepared
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.kaggle.bundle import make_bundle, open_bundle
from mabe_nb.kaggle.offline import allowed_actions, predict_in_parts
from mabe_nb.train.ensemble.per_lab import (better_together, labs_with_enough, load_per_lab,
                                            train_per_lab)
from mabe_nb.train.ensemble.blend import load_recipe
from mabe_nb.train.metrics import kaggle_score, solution_table
from mabe_nb.train.ensemble.recipe import begin_training, train_recipe
from mabe_nb.train.model import load_model
from mabe_nb.train.runs import train
from mabe_nb.train.scores.frames import f1_of

PARTS = ("ear_left", "ear_right", "nose", "tail_base")
LISTED = {("mouse1", "mouse2", x) for x in ("attack", "sniff")}


def video(number, lab):
    return make_recording([5, number], 1500, 2, PARTS, 30.0, 16.0, True, LISTED, 0.5,
                          str(number), lab)


@pytest.fixture(scope="module")
def data():
    labs = ("One",) * 3 + ("Two",) * 3 + ("Few",)
    return RecordingList([video(i, lab) for i, lab in enumerate(labs)])


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    work, said = tmp_path_factory.mktemp("per_lab"), []
    done = train_per_lab(data, work/"run", "quick", folds=3, cache=work/"f",
                         say=said.append)
    return work, done, said


@pytest.mark.slow
def test_each_lab_learns_from_its_own_videos(data, run):
    work, done, said = run
    assert list(done) == ["One", "Two", ""]
    assert said[0] == "too few videos, or no bouts, for a recipe of their own: Few"
    for lab, metrics in done.items():
        left = sorted(sum(metrics["folds"], []))
        assert left == [v for v in data.ids if lab in ("", data.lab(v))]
        assert (work/"run"/(f"lab-{lab}" if lab else "all")/"card.md").exists()


def test_a_lab_learns_from_the_parts_that_it_tracks(tmp_path):
    "Six parts beside the usual ones count, and those of other labs took the places of its own."
    parts = ("nose", "tail_base", "tail_tip"), ("ear_left", "ear_right", "hip_left", "hip_right",
                                                 "lateral_left", "lateral_right", "nose", "tail_base")
    data = RecordingList([video(i, lab).replace(parts=names, xy=np.resize(
        video(i, lab).xy, (1500, 2, len(names), 2))) for i, (lab, names) in enumerate(
            (lab, names) for lab, names in zip(("One", "Two"), parts) for _ in range(3))])
    begin_training(data, tmp_path/"one", "quick", ["0", "1", "2"], 3, cache=tmp_path/"f")
    names = open_prepared(tmp_path/"f"/"directed").names
    assert any("tail_tip" in name for name in names)
    assert not any("hip_left" in name for name in names)


def test_what_may_be_chance_is_not_told_as_better():
    "Of two recipes that are equally good one is better in some videos, and that was told as it is."
    rng, told, low = np.random.default_rng(0), [], []
    def counts(right): # Of ten videos, one action of 100 frames
        hit = rng.binomial(100, np.clip(right + rng.normal(0, .1, 10), 0, 1))
        return {str(i): {"attack": [int(n), 10, 100 - int(n)]} for i, n in enumerate(hit)}
    def macro(of): return float(f1_of(np.array([c["attack"] for c in of.values()]).sum(0)))
    for right, sure in ((.6, False), (.95, True)):
        for _ in range(40):
            shared, own = counts(right), counts(.6)
            said = [*better_together({"A": {"macro_f1": macro(own), "counts": own}, "": {
                "by_lab": {"A": {"macro_f1": macro(shared)}}, "counts": shared}})]
            assert len(said) == (macro(shared) > macro(own))
            told += [(sure, "it may be chance" not in line) for line in said]
            low += [float(line.split("its videos: ")[1].split()[0]) for line in said]
    alike, unlike = ([t for s, t in told if s == sure] for sure in (False, True))
    assert 8 < len(alike) < 32 and np.mean(alike) < 0.2 and all(unlike) and len(unlike) == 40
    assert -0.3 < min(low) < -0.01 and all((v > 0) == t for v, (_, t) in zip(low, told) if v)


def test_a_lab_that_all_together_serve_better_is_named(data, run, tmp_path):
    work, done, said = run
    worse = [lab for lab in ("One", "Two")
             if done[""]["by_lab"][lab]["macro_f1"] > done[lab]["macro_f1"]]
    notes = [line for line in said if line.startswith("note: all labs")]
    assert [lab for lab in ("One", "Two") if any(repr(lab) in n for n in notes)] == worse
    counts = {str(i): {"attack": (5, 5, 5)} for i in range(4)}
    other = {"": {"by_lab": {"One": {"macro_f1": .5}, "Two": {"macro_f1": .4}}, "counts": counts},
             "One": {"macro_f1": .4, "counts": counts}, "Two": {"macro_f1": .5, "counts": counts}}
    assert ["One" in line for line in better_together(other)] == [True]
    assert not list(better_together({"One": {"macro_f1": .4}}))
    shutil.copytree(work/"run", tmp_path/"run")
    labs = json.loads((tmp_path/"run/labs.json").read_text())
    (tmp_path/"run/labs.json").write_text(json.dumps({k: labs[k] for k in labs if k != "One"}))
    got = load_per_lab(tmp_path/"run").predict(data, ["0"], cache=tmp_path/"f")
    want = load_recipe(work/"run/all").predict(data, ["0"], cache=tmp_path/"g")
    assert got.drop(columns="row_id").equals(want.drop(columns="row_id"))


def test_each_video_is_predicted_by_its_lab(data, run, tmp_path):
    work = run[0]
    table = load_per_lab(work/"run").predict(data, cache=tmp_path/"f")
    assert len(table) and table.row_id.tolist() == list(range(len(table)))
    want = [load_recipe(work/"run"/folder).predict(data, ids, cache=tmp_path/"g")
            for folder, ids in (("lab-One", data.ids[:3]), ("lab-Two", data.ids[3:6]),
                                ("all", data.ids[6:]))]
    drop = lambda t: t.drop(columns="row_id").reset_index(drop=True)
    pd.testing.assert_frame_equal(drop(table), drop(pd.concat(want)))


def test_a_new_lab_is_for_the_recipe_of_all(data, run, tmp_path):
    new = RecordingList([video(i, "New") for i in range(9, 15)])
    assert len(load_per_lab(run[0]/"run").predict(new, cache=tmp_path/"f"))
    shutil.copytree(run[0]/"run", tmp_path/"run")
    labs = json.loads((tmp_path/"run"/"labs.json").read_text())
    (tmp_path/"run"/"labs.json").write_text(json.dumps(
        {lab: folder for lab, folder in labs.items() if lab}))
    with pytest.raises(DataError, match="lab New.*--common"):
        load_per_lab(tmp_path/"run").predict(new, cache=tmp_path/"g")


@pytest.mark.slow
def test_each_lab_has_the_doubt_of_its_recipe(data, run, tmp_path):
    shutil.copytree(run[0]/"run", tmp_path/"run")
    lines, of = [], tmp_path/"run"/"lab-One"/"metrics.json"
    look = lambda: analyse(data, tmp_path/"out", tmp_path/"run", shuffles=10, say=lines.append)
    before = look()["drawn"]
    assert set(before.video) == set(data.ids) and not any("its doubt" in x for x in lines)
    said = json.loads(of.read_text())
    for told in said["calibration"]["actions"].values(): # nothing of lab One came true
        told.update(frames=[10**6] * 10, observed=[0.0] * 10)
    of.write_text(json.dumps(said))
    after, one = look()["drawn"], before.video.map(data.lab) == "One"
    assert (before.share[one] > 0.01).any() and (after.share[one] < 0.001).all()
    pd.testing.assert_frame_equal(before[~one], after[~one])
    of.unlink()
    assert "drawn" not in look() and any("no interval holds its doubt" in x for x in lines)


def test_ids_of_all_labs_are_of_one_kind(data, run, tmp_path):
    "Numbers in one lab and names in another: names in the table of both."
    mixed = RecordingList([r.replace(video_id=f"b{r.video_id}") if r.lab_id == "Two" else r
                           for r in data])
    model = load_per_lab(run[0]/"run")
    table = model.predict(mixed, cache=tmp_path/"f")
    assert {*table.video_id.map(type)} == {str}
    assert kaggle_score(solution_table(mixed), table) == pytest.approx(kaggle_score(
        solution_table(data), model.predict(data, cache=tmp_path/"g")))
    with pytest.raises(DataError): model.predict(data, [], cache=tmp_path/"f")


def test_labs_without_a_name_or_with_a_long_one(data):
    table = pd.DataFrame({"lab_id": [""] * 3 + ["One"] * 3, "group": range(6),
                          "video_id": [*"abcdef"], "frames_attack": 9})
    assert labs_with_enough(table, 3) == {"One": [*"def"]}
    assert labs_with_enough(table.assign(group=[0, 1, 2, 3, 3, 4]), 3) == {} # two show the same
    with pytest.raises(DataError, match="cannot name a file"):
        labs_with_enough(table.assign(lab_id="L" * 126), 3)


@pytest.mark.slow
def test_a_lab_where_nothing_was_seen_is_served_by_all(data, tmp_path):
    "It was looked for in three videos, and no bout was found."
    said, short = [], [r.replace(bouts=r.bouts.iloc[:0]) if r.lab_id == "Two" else r
                       for r in map(data.__getitem__, data.ids[:6])]
    done = train_per_lab(RecordingList(short), tmp_path/"run", "quick", folds=3,
                         cache=tmp_path/"f", say=said.append)
    assert list(done) == ["One", ""] and said[0].endswith("for a recipe of their own: Two")
    load_per_lab(tmp_path/"run").predict(data, ["3"], cache=tmp_path/"f")


@pytest.mark.parametrize("mark", ["config.yaml", "best.safetensors", "recipe.json", "plan.json",
                                  "labs.json", "manifest.json"])
def test_no_training_fills_a_folder_with_a_model_of_another_kind(mark, data, tmp_path):
    (tmp_path/mark).write_text("{}")
    fits = {"config.yaml": train, "best.safetensors": train, "plan.json": train_recipe}
    for fit in {train, train_recipe, train_per_lab} - {fits.get(mark)}:
        with pytest.raises(ConfigError, match="already holds a run"): fit(data, tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == [mark]


def test_a_folder_elsewhere_is_refused(data, run, tmp_path):
    (tmp_path/"labs.json").write_text(json.dumps({"One": "../../secret"}))
    with pytest.raises(DataError, match="cannot name a file"):
        load_per_lab(tmp_path)


def test_a_file_that_is_no_table_of_labs_is_told(data, tmp_path):
    (tmp_path/"labs.json").write_text('["One"]')
    with pytest.raises(DataError, match="not what train_per_lab writes"):
        load_per_lab(tmp_path)


@pytest.mark.slow
def test_a_bundle_of_all_labs(data, run, tmp_path):
    about = make_bundle(run[0]/"run", tmp_path/"kit")
    assert about["kind"] == "labs" and set(about["evidence"]) == {"One", "Two", "Few"}
    assert about["evidence"] == load_model(run[0]/"run").evidence(data)
    kit = open_bundle(tmp_path/"kit")
    assert set(kit.actions) == {"attack", "sniff"}
    table, left = predict_in_parts(kit, data, tmp_path/"parts", say=lambda text: None)
    want = load_per_lab(run[0]/"run").predict(data, cache=tmp_path/"f")
    want = want[[a in allowed_actions(kit, data.lab(str(v))) # no phantom classes
                 for v, a in zip(want.video_id, want.action)]]
    order = ["video_id", "agent_id", "target_id", "start_frame"]
    tidy = lambda t: t.drop(columns="row_id").sort_values(order).reset_index(drop=True)
    assert not left and len(want)
    pd.testing.assert_frame_equal(tidy(table), tidy(want))


@pytest.mark.slow
def test_a_bundle_without_a_recipe_for_a_lab(data, run, tmp_path):
    shutil.copytree(run[0]/"run", tmp_path/"run")
    labs = json.loads((tmp_path/"run"/"labs.json").read_text())
    del labs[""]
    (tmp_path/"run"/"labs.json").write_text(json.dumps(labs))
    make_bundle(tmp_path/"run", tmp_path/"kit")
    table, left = predict_in_parts(open_bundle(tmp_path/"kit"), data, tmp_path/"parts",
                                   say=lambda text: None)
    assert tuple(left) == tuple(data.ids[6:]) and "no recipe" in left[data.ids[6]]
    assert set(table.video_id.astype(str)) <= set(data.ids[:6])
    (tmp_path/"run"/"lab-Two"/"recipe.json").unlink()
    with pytest.raises(DataError): make_bundle(tmp_path/"run", tmp_path/"no")
    assert not (tmp_path/"no").exists()


def test_a_run_that_is_there_stays(data, run):
    with pytest.raises(ConfigError, match="already holds a run"):
        train_per_lab(data, run[0]/"run", "quick", folds=3)
    with pytest.raises(ConfigError, match="give a number"):
        train_per_lab(data, run[0]/"other", "quick", folds="labs")


@pytest.mark.slow
def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    write_colony(tmp_path/"colony", videos=6, minutes=0.4)
    words = ["train", str(tmp_path/"colony"), "--out", str(tmp_path/"run")]
    for wrong, said in ((["--per-lab"], "--recipe best"), (["--recipe", "quick", "--common"],
                                                           "--per-lab")):
        assert cli.main([*words, *wrong]) == 2
        assert said in capsys.readouterr().err
    assert cli.main([*words, "--recipe", "quick", "--per-lab", "--folds", "2"]) == 0
    said = capsys.readouterr().out
    assert "AmberOtter:" in said and said.count("macro F1") >= 2
    assert cli.main(["predict", str(tmp_path/"run"), str(tmp_path/"colony"),
                     "--out", str(tmp_path/"submission.csv")]) == 0
    table = pd.read_csv(tmp_path/"submission.csv")
    assert table.video_id.nunique() >= 4 and table.row_id.is_unique

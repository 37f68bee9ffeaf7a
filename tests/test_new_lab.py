"""Labs that looked for different things, a lab left out, and one that nobody has seen."""
import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from short_recipe import short  # noqa: F401

from mabe_nb import cli
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.cache.reader import open_prepared
from mabe_nb.data.recording import bout_table
from mabe_nb.data.splits import check_no_leak, groups
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.train.ensemble.decide import Decision
from mabe_nb.train.ensemble.folds import lab_folds, make_folds
from mabe_nb.train.ensemble.labs import actions_by_lab, fold_facts
from mabe_nb.train.metrics import kaggle_score, solution_table
from mabe_nb.train.ensemble.blend import load_recipe
from mabe_nb.train.ensemble.recipe import train_recipe

A7 = ("ear_left", "ear_right", "hip_left", "hip_right", "neck", "nose", "tail_base")
PAIR = (("mouse1", "mouse2"), ("mouse2", "mouse1"))
LISTS = {"LabA": ("attack", "mount", "rear", "sniff"), "LabB": ("attack", "sniff"),
         "LabC": ("attack", "mount", "rear", "sniff")}


def video(number, lab):
    "A video of a lab, of which everything on the lab's list is marked."
    watched = {(a, t, x) for a, t in PAIR for x in LISTS[lab] if x != "rear"}
    if "rear" in LISTS[lab]: watched |= {(a, a, "rear") for a, _ in PAIR}
    return make_recording([7, number], 700, 2, A7, 30.0, 16.0, True, watched, 0.5,
                          str(number), lab)


def unlabelled(rec): return rec.replace(labelled=None, bouts=bout_table())


@pytest.fixture(scope="module")
def learned():
    return RecordingList([video(i, "LabA" if i < 5 else "LabB") for i in range(1, 9)])


@pytest.fixture(scope="module")
def run(learned, tmp_path_factory):
    work, said = tmp_path_factory.mktemp("labs"), []
    metrics = train_recipe(learned, work/"run", "quick", folds=3, cache=work/"features",
                           say=said.append)
    return work, metrics, said


@pytest.fixture(scope="module")
def by_lab(learned, run):
    work, said = run[0], []
    metrics = train_recipe(learned, work/"by_lab", "quick", folds="labs",
                           cache=work/"features", say=said.append)
    return work/"by_lab", metrics, said


# --- many labs, one after the other, as in the competition

def test_every_lab_of_five_videos_is_known_to_those_who_judge_it():
    sizes = {f"Lab{i:02}": 40 if i in (3, 11) else 5 for i in range(19)}
    labs = [lab for lab, n in sizes.items() for _ in range(n)]
    table = pd.DataFrame({"video_id": [str(i) for i in range(len(labs))], "lab_id": labs,
                          "group": range(len(labs)), "frames": 900})
    for i, action in enumerate(("attack", "mount", "sniff")): # each in some labs only
        table[f"frames_{action}"] = [30 * (n % 3 == 0) if int(lab[3:]) % 3 != i else None
                                     for n, lab in enumerate(labs)]
    table = table.astype({c: "Int64" for c in table if c.startswith("frames_")})
    splits = make_folds(table, 5)
    assert fold_facts(table, splits)["lab_unseen"] == [[]] * 5
    assert sorted(v for s in splits for v in s.valid) == sorted(table.video_id)
    for split in splits: # each fold judges every lab, with a fifth of its videos
        judged = table[table.video_id.isin(split.valid)].lab_id.value_counts()
        assert set(judged.index) == set(sizes)
        assert all(abs(judged[lab] - n / 5) <= 2 for lab, n in sizes.items())


@pytest.mark.slow
def test_labs_of_any_size_are_trained_bundled_and_predicted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.chdir(tmp_path)
    assert cli.main("synth colony --labs 2 1 1 2 --minutes 0.05 --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["videos"] == 6
    assert cli.main("train colony --recipe quick --folds 2 --out run".split()) == 0
    assert cli.main("bundle run --out kit".split()) == 0
    data = open_dataset(tmp_path/"colony", "test")
    assert [len(data[v].mice) for v in data.ids] == [2, 3, 2, 4]
    capsys.readouterr()
    assert cli.main("predict kit colony --split test --out sub.csv --json".split()) == 0
    table = pd.read_csv(tmp_path/"sub.csv")
    assert json.loads(capsys.readouterr().out)["videos"] == 4
    for row in table.itertuples():
        target = row.agent_id if row.target_id == "self" else row.target_id
        assert (row.agent_id, target, row.action) in data.whitelist(str(row.video_id))


# --- a lab at a time

@pytest.mark.slow
def test_a_lab_that_looked_for_one_thing_can_be_learned_from(tmp_path, monkeypatch):
    "No frame of it is known to be none of all actions; trees need one to compare with."
    monkeypatch.setitem(LISTS, "LabB", ("sniff",))
    data = RecordingList([video(i, "LabA" if i < 5 else "LabB") for i in range(1, 9)])
    metrics = train_recipe(data, tmp_path/"run", "quick", folds="labs",
                           cache=tmp_path/"features")
    assert metrics["not_learnable"][0] == ["attack", "mount", "rear"]
    assert metrics["f1"]["sniff"] > 0 and metrics["by_lab"]["LabB"]["f1"]["mount"] is None


@pytest.mark.slow
def test_each_lab_is_left_out_once(learned, by_lab):
    folder, metrics, said = by_lab
    assert metrics["fold_labs"] == [["LabA"], ["LabB"]]
    for ids, (lab,) in zip(metrics["folds"], metrics["fold_labs"]):
        assert {learned.lab(v) for v in ids} == {lab}
    assert sorted(sum(metrics["folds"], [])) == sorted(learned.ids)
    card = (folder/"card.md").read_text()
    assert "left out as a whole" in card and "| LabB |" in card
    assert set(metrics["by_lab"]) == {"LabA", "LabB"}


def test_what_only_the_left_out_lab_shows_counts_as_missed(learned, by_lab):
    folder, metrics, said = by_lab
    assert metrics["not_learnable"] == [["mount", "rear"], []]
    assert any("fold 1 (LabA)" in s and "mount, rear" in s for s in said)
    assert metrics["f1"]["mount"] == metrics["f1"]["rear"] == 0
    assert metrics["by_lab"]["LabA"]["f1"]["mount"] == 0
    assert metrics["by_lab"]["LabB"]["f1"]["mount"] is None
    assert "mount, rear" in (folder/"card.md").read_text()


def test_videos_with_poses_of_another_lab_are_on_one_side(learned):
    twin = RecordingList([learned[v].replace(xy=learned["1"].xy) if v == "8"
                          else learned[v] for v in learned.ids])
    table = groups(twin)
    for split in lab_folds(table):
        assert not {"1", "8"} <= {*split.train, *split.valid} or {"1", "8"} <= set(
            split.valid)
        check_no_leak(table, *split)
    assert sorted(v for s in lab_folds(table) for v in s.valid) == sorted(learned.ids)


@pytest.mark.parametrize("folds", ["lab", "1", 1, 2.5, True, None, "", "-3"])
def test_folds_that_are_none(learned, tmp_path, folds):
    with pytest.raises(ConfigError, match="'labs'"):
        train_recipe(learned, tmp_path/"x", "quick", folds=folds)
    assert not (tmp_path/"x").exists()


def test_one_lab_is_too_few(learned, tmp_path):
    one = RecordingList([learned[v] for v in learned.ids[:4]])
    with pytest.raises(DataError, match=r"one lab \(LabA\).*such as 5"):
        train_recipe(one, tmp_path/"x", "quick", folds="labs")
    table = groups(one).assign(lab_id="")
    with pytest.raises(DataError, match="without a name"): make_folds(table, "labs")


@pytest.mark.slow
def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    write_colony(tmp_path/"colony", videos=6, minutes=0.2)
    words = ["train", str(tmp_path/"colony"), "--out", str(tmp_path/"run")]
    assert cli.main([*words, "--folds", "labs"]) == 2
    assert "--recipe" in capsys.readouterr().err
    assert cli.main([*words, "--recipe", "quick", "--folds", "lbas"]) == 2
    assert "'labs'" in capsys.readouterr().err and not (tmp_path/"run").exists()
    assert cli.main([*words, "--recipe", "quick", "--folds", "labs"]) == 0
    said = capsys.readouterr().out
    assert "lab CopperLynx" in said and "AmberOtter: not looked for: approach" in said
    about = json.loads((tmp_path/"run"/"metrics.json").read_text())
    assert about["fold_labs"] == [["AmberOtter"], ["BrightHeron"], ["CopperLynx"]]
    assert about["not_learnable"][1] and about["frames"]


# --- what is not known of a lab

def test_what_a_lab_did_not_look_for_is_said(learned, run):
    work, metrics, said = run
    assert ("LabB: not looked for: mount, rear (unknown there, not learned as absent)"
            in said)
    assert not any(s.startswith("LabA") for s in said)
    assert actions_by_lab(groups(learned)) == {k: sorted(LISTS[k]) for k in ("LabA", "LabB")}
    assert load_recipe(work/"run").labs == {k: sorted(LISTS[k]) for k in ("LabA", "LabB")}


def test_all_three_labs_are_predicted(learned, run, tmp_path):
    truth = RecordingList([*learned, *(video(i, "LabC") for i in (9, 10))])
    asked = RecordingList([unlabelled(r) if r.lab_id == "LabC" else r for r in truth])
    said = []
    table = load_recipe(run[0]/"run").predict(asked, cache=tmp_path/"f",
                           say=said.append)
    assert said[0] == "LabC was not among the training labs; common decisions; all actions predicted"
    assert len(said) == 2 and "in 4 of 10 videos" in said[1] and "not mount, rear" in said[1]
    lab = table.video_id.astype(str).map(truth.lab)
    assert set(lab) == {"LabA", "LabB", "LabC"}
    assert 0 < kaggle_score(solution_table(truth), table) <= 1
    for row in table.itertuples(): # no phantom class: nothing that is not listed
        listed = asked.labelled(str(row.video_id))
        target = row.agent_id if row.target_id == "self" else row.target_id
        assert listed is None or (row.agent_id, target, row.action) in listed
    assert "mount" in set(table.action) and "mount" not in set(table.action[lab == "LabB"])


def test_self_actions_of_unlabelled_videos(learned, run, tmp_path):
    "Each mouse by itself is prepared where nothing is listed, also beside old features."
    new = RecordingList([unlabelled(video(9, "LabC")), video(12, "LabB")])
    recipe, out = load_recipe(run[0]/"run"), tmp_path/"f"
    assert recipe.self_actions == ("rear",)
    kinds = {n: some[0].features for n, some in recipe.members.items()}
    for name in kinds.values(): # as they lie there from before
        old = prepare(new, name, out=out/name.replace("+", "_"), parts=recipe.parts,
                      unlabelled=True, progress=False)
        assert len(old) == 2 + 2
    eager = recipe.decision._replace(thresholds=tuple(
        0.02 if a == "rear" else None for a in recipe.actions))
    table = replace(recipe, decision=eager).predict(new, cache=out)
    alone = table[table.target_id == "self"]
    assert set(alone.action) == {"rear"} and set(alone.agent_id) == {"mouse1", "mouse2"}
    assert set(alone.video_id.astype(str)) == {"9"} # LabB lists no rearing
    assert set(table.action[table.target_id != "self"]) <= {"attack", "mount", "sniff"}
    spared = replace(recipe, self_actions=()).predict(new, cache=tmp_path/"g")
    assert not (spared.target_id == "self").any()
    again = open_prepared(tmp_path/"g"/next(iter(kinds.values())).replace("+", "_"))
    assert len(again) == 4 # nothing is prepared that nobody can use


def test_what_was_never_learned_is_said(learned, run, tmp_path):
    odd = video(11, "LabA").replace(labelled=frozenset(
        {("mouse1", "mouse2", "dig"), ("mouse1", "mouse2", "sniff")}), bouts=bout_table())
    said = []
    table = load_recipe(run[0]/"run").predict(RecordingList([odd]),
                           cache=tmp_path/"f", say=said.append)
    assert said[0] == "LabA lists what was never learned: dig" and len(said) == 2
    assert set(table.action) <= {"sniff"} and set(table.agent_id) <= {"mouse1"}


# --- decisions of a lab

def test_a_lab_has_decisions_of_its_own(learned, run, tmp_path):
    recipe = load_recipe(run[0]/"run")
    never = (1.0,) * len(recipe.actions)
    own = replace(recipe, decision=recipe.decision._replace(labs={"LabA": never}))
    tables = {name: r.predict(learned, cache=tmp_path/"f")
              for name, r in (("common", recipe), ("own", own))}
    at = {name: t.video_id.astype(str).map(learned.lab) for name, t in tables.items()}
    assert (at["common"] == "LabA").any() and not (at["own"] == "LabA").any()
    other = [t[at[n] != "LabA"].drop(columns="row_id").reset_index(drop=True)
             for n, t in tables.items()]
    assert len(other[0]) and other[0].equals(other[1])


def rewritten(run, tmp_path, change):
    folder = tmp_path/"again"
    folder.mkdir()
    shutil.copytree(run[0]/"run"/"members", folder/"members")
    about = json.loads((run[0]/"run"/"recipe.json").read_text())
    change(about)
    (folder/"recipe.json").write_text(json.dumps(about))
    return folder


def test_an_earlier_format_says_how_to_go_on(run, tmp_path):
    folder = rewritten(run, tmp_path, lambda about: about.update(format=3))
    with pytest.raises(DataError, match="train again"): load_recipe(folder)


@pytest.mark.parametrize("labs", [{"LabA": [1.0]}, [1], {"LabA": "no"}, {"LabA": [None]}, {"LabA": 3}])
def test_broken_decisions_of_a_lab(run, tmp_path, labs):
    folder = rewritten(run, tmp_path, lambda about: about["decision"].update(labs=labs))
    with pytest.raises(DataError, match="recipe.json"): load_recipe(folder)


def test_decisions_survive_the_file(run, tmp_path):
    own = [0.5, None, 0.25, 0.125]
    folder = rewritten(run, tmp_path,
                       lambda about: about["decision"].update(labs={"LabB": own}))
    got = load_recipe(folder).decision
    assert isinstance(got, Decision) and got.labs == {"LabB": tuple(own)}
    assert np.isclose(sum(got.shares), 1)

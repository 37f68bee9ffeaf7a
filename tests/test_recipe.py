"""Folds that do not leak, trees without pickle, decisions nested, recipes end to end."""
import json
import pickle
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.recording import bout_table
from mabe_nb.data.splits import Split, check_no_leak, groups
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.files import read_tensors, write_tensors
from mabe_nb.train.ensemble.boosting import (grow_trees, tree_arrays,
                                             tree_probabilities, trees_from)
from mabe_nb.train.ensemble.boosting import trees_of
from mabe_nb.train.ensemble.decide import Decision, OutOfFold, codes_of, nested
from mabe_nb.train.ensemble.directed import completed, fair_shares
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.scores.frames import f1_of, video_counts
from mabe_nb.train.scores.trust import bootstrap
from mabe_nb.train.ensemble import boosting, members, recipe
from mabe_nb.train.arithmetic import windows
from mabe_nb.train.ensemble.members import (ActionFrames, Boost, Net, prepared_for,
                                            train_member, train_net)
from mabe_nb.train.ensemble.blend import load_recipe
from mabe_nb.train.ensemble.recipe import member_tasks, predict_out_of_fold, train_recipe
from mabe_nb.train.ensemble.member_specs import RECIPES, MemberSpec
from mabe_nb.train.folder.card import least_line
from mabe_nb.train.review.moments import predict_for_review

SMALL = {"net": {"features": "symmetric", "epochs": 1, "conv_channels": [8],
                 "lstm_hidden": 8}, "boost": {"sample": 4, "rounds": 4}}


class Changed:
    "A dataset of which `change(recording)` is seen, under a fingerprint of its own."
    def __init__(self, data, change, name="changed"):
        self.data, self.change, self.name, self.root = data, change, name, data.root
        self.ids = data.ids

    def __len__(self): return len(self.ids)
    def __iter__(self): return (self[i] for i in self.ids)
    def __getitem__(self, i): return self.change(self.data[i])
    def labelled(self, i): return self[i].labelled
    def fingerprint(self, i): return [self.name, self.data.fingerprint(i)]


@pytest.fixture(scope="module")
def colony(tmp_path_factory):
    root = tmp_path_factory.mktemp("colony")
    write_colony(root, videos=6, minutes=0.5, seed=1)
    return open_dataset(root)


@pytest.fixture(scope="module")
def run(colony, tmp_path_factory):
    work = tmp_path_factory.mktemp("run")
    return work, train_recipe(colony, work/"run", "quick", folds=3, cache=work/"features")


# --- trees

@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 5), st.floats(0, 0.5), st.booleans())
def test_exported_trees_are_sklearns(seed, classes, missing, gap):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 4)).round(1).astype(np.float32)
    y = rng.integers(0, classes, 300) + (x[:, 0] > 0) * (classes > 2)
    if gap: y = y * 2 # a class that was never seen
    x[rng.random(x.shape) < missing] = np.nan
    model = HistGradientBoostingClassifier(max_iter=4, random_state=0).fit(x, y)
    new = np.r_[x, rng.normal(size=(50, 4)).astype(np.float32) * 9]
    ours = tree_probabilities(trees_of(model), new, int(y.max()) + 1)
    assert np.abs(ours[:, model.classes_] - model.predict_proba(new)).max() < 1e-15
    assert np.delete(ours, model.classes_, axis=1).sum() == 0


def test_trees_of_a_broken_file():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    trees = grow_trees(x, (x[:, 0] > 0).astype(int), rounds=2)
    good = tree_arrays(trees)
    assert np.array_equal(trees_from(good).root, trees.root)
    wrong = {"left": -good["left"] - 1, "right": good["right"] * 0, "feature":
             good["feature"] + 99, "root": good["root"] - 1, "classes":
             good["classes"] - 5, "value": good["value"] * np.nan, "threshold":
             good["threshold"] * np.nan, "baseline": good["baseline"] * np.nan}
    wrong = [*wrong.items(), ("feature", good["feature"].astype(np.float32)), ("threshold",
             good["threshold"][:, None]), ("baseline", good["baseline"].astype(np.int8)),
             ("classes", good["classes"][::-1].copy())]
    for key, value in wrong:
        with pytest.raises(DataError, match="fit together|nowhere"): trees_from(good | {key: value})
    with pytest.raises(DataError, match="threshold"):
        trees_from({k: v for k, v in good.items() if k != "threshold"})
    with pytest.raises(DataError, match="3"): tree_probabilities(trees, x[:, :2], 2)
    with pytest.raises(DataError, match="no frame"): grow_trees(x[:0], np.zeros(0, int))
    for code in (0, 1, 3): # of one class alone
        only = trees_from(tree_arrays(grow_trees(x, np.full(200, code))))
        assert tree_probabilities(only, x, 4)[:, code].min() > 0.999


# --- folds

def test_a_copied_video_is_on_one_side(colony):
    first, last = colony.ids[0], colony.ids[-1]
    twin = Changed(colony, lambda r: r.replace(xy=colony[first].xy)
                   if r.video_id == last else r)
    table = groups(twin)
    for split in contiguous_folds(table, 3):
        assert (first in split.valid) == (last in split.valid)
        assert not set(split.train) & set(split.valid)
    with pytest.raises(DataError, match="shares poses"):
        check_no_leak(table, *Split(tuple(colony.ids[:-1]), (last,)))
    with pytest.raises(DataError, match="at least 6"): contiguous_folds(table, 6)


@pytest.mark.slow
def test_an_action_of_one_video_alone(colony, tmp_path):
    "Who learns without that video has one class to learn from; of no action nothing is learned."
    def only(video):
        def change(rec):
            pair = ("mouse1", "mouse2", "sniff")
            bouts = rec.bouts[[b[:3] == pair for b in rec.bouts.itertuples(index=False)]]
            return rec.replace(bouts=bouts if rec.video_id == video else bouts[:0],
                               labelled=frozenset({pair}))
        return change

    ids = [v for v in colony.ids if colony.labelled(v)]
    video = next(v for v in ids if (colony[v].bouts.values[:, 2] == "sniff").any())
    data = Changed(colony, only(video), video)
    metrics = train_recipe(data, tmp_path/"run", "quick", ids, 2, cache=tmp_path/"cache")
    assert sum(map(len, metrics["not_learnable"])) == 1 and metrics["macro_f1"] == 0
    assert len(load_recipe(tmp_path/"run").predict(data, [video], cache=tmp_path/"more")) >= 0
    with pytest.raises(DataError, match="no action was seen"):
        train_recipe(Changed(colony, only("none"), "none"), tmp_path/"none", "quick", ids, 2,
                     cache=tmp_path/"cache")


def test_folds_are_contiguous(colony):
    table = groups(colony)
    for split in contiguous_folds(table, 3):
        for lab in table.lab_id.unique():
            of = list(table.video_id[table.lab_id == lab])
            at = [of.index(v) for v in split.valid if v in of]
            assert at == [*range(min(at, default=0), max(at, default=-1) + 1)]
            assert len(at) < len(of)
    with pytest.raises(ConfigError): contiguous_folds(groups(colony), 1)


# --- members that tell which action it is, not whether there is one

@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 4), st.integers(1, 5))
def test_completed(seed, plain, which, kinds):
    rng, n = np.random.default_rng(seed), plain + which
    p = rng.dirichlet(np.ones(kinds + 1), (n, 7))
    asked = rng.permutation(n) < which
    p[asked, :, 0] = 0 # Of no more than proportion
    out = completed(p, asked)
    assert np.array_equal(out[~asked], p[~asked])
    if not which: return
    assert np.allclose(out.sum(-1), 1) and np.allclose(
        out[asked, :, 0], p[~asked, :, 0].mean(0))
    share = lambda q: q[asked, :, 1:] / q[asked, :, 1:].sum(-1, keepdims=True)
    assert np.allclose(share(out), share(p))
    p[asked, 3] = np.eye(kinds + 1)[0] # Knows of no action at all
    out = completed(p, asked)
    assert np.allclose(out[asked, 3], p[~asked, 3].mean(0))
    shares = np.array(fair_shares(asked))
    assert np.isclose(shares.sum(), 1) and np.isclose(shares[asked].sum(), 0.5)
    assert len(set(shares[asked])) == len(set(shares[~asked])) == 1


@pytest.mark.parametrize("rates, rate", [
    ((30, 30, 120, 120), 30), ((30, 120, 120), 120), ((25, 30), 25)])
def test_a_network_looks_as_often_as_asked_at_the_rate_learned_at(rates, rate):
    data = RecordingList([make_recording(seed=i, frames=300, video_id=str(i)).replace(
        fps=float(fps)) for i, fps in enumerate((*rates, 60))]) # the last is not learned from
    spec, ids = RECIPES["best"][0], data.ids[:-1]
    small = spec.settings | {"features": "coords", "epochs": 1, "least_steps": 1,
                             "hidden_size": 8, "num_layers": 1, "sequence_length": 20}
    clf = train_net(prepare(data, "coords", progress=False), ids, small).clf
    assert clf.inputs.rate == rate and clf.cfg.gap == round(0.133 * rate)
    del small["every_ms"]
    clf = train_net(prepare(data, "coords", progress=False), ids, small).clf
    assert clf.cfg.gap == round(0.133 * rate) # where a config does not say


@pytest.mark.parametrize("fps, asked", [(1, 30), (5, 30), (15, 16), (30, 11), (120, 11)])
def test_trees_are_asked_ten_times_a_second(fps, asked, monkeypatch):
    seen = []
    monkeypatch.setattr(members, "tree_probabilities",
                        lambda trees, x, n: seen.append(len(x)) or np.zeros((len(x), n)))
    Boost(None, "coords", ("x",), 2)(np.zeros((30, 1), np.float32), fps)
    assert seen == [asked]


def test_only_frames_with_an_action_are_known(colony, tmp_path):
    prepared = prepare(colony, "symmetric", out=tmp_path/"f", progress=False)
    some = pickle.loads(pickle.dumps(ActionFrames(prepared))) # as a worker gets it
    for i in range(len(prepared)):
        y, seen = prepared.labels(i), (prepared.labels(i) == 1).any(1)
        assert np.array_equal(some.labels(i)[seen], y[seen]) and y.dtype == np.int8
        assert (some.labels(i)[~seen] == -1).all() and 0 < (~seen).sum()
        assert np.array_equal(some.values(i), prepared.values(i), equal_nan=True)


@pytest.fixture
def asking(monkeypatch):
    "A recipe with a member of each sort."
    tiny = SMALL["net"] | {"features": None}
    monkeypatch.setitem(RECIPES, "asking", (
        MemberSpec("net", "net", "directed", 1, tiny, ordered=True),
        MemberSpec("kinds", "net", "ownerless", 1, tiny, which=True, ordered=True)))


@pytest.mark.slow
def test_a_member_that_tells_which(colony, tmp_path, asking):
    metrics = train_recipe(colony, tmp_path/"run", "asking", folds=3, cache=tmp_path/"f")
    net, kinds = (np.load(tmp_path/"run"/"oof"/f"{n}.npy", allow_pickle=False)
                  for n in ("net", "kinds"))
    assert np.allclose(net[:, 0], kinds[:, 0]) and np.abs(net - kinds).max() > 0.01
    recipe = load_recipe(tmp_path/"run")
    assert recipe.which == (False, True) and set(metrics["members"]) == {"net", "kinds"}
    assert metrics["shares"] == {"net": 0.5, "kinds": 0.5} and metrics["which"] == ["kinds"]
    card = (tmp_path/"run"/"card.md").read_text()
    assert "| net alone" in card and "| kinds as to which, others as to whether" in card
    assert not any(m.clf.possible[0] for m in recipe.members["kinds"])
    table = recipe.predict(colony, cache=tmp_path/"g")
    assert len(table) and set(table.action) <= set(recipe.actions)


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_left_out_where_most_frames_have_an_action(colony, tmp_path, asking, share):
    def always(rec):
        pair = [(*p, "mount") for p in (rec.mice[:2], rec.mice[1::-1])]
        return rec.replace(labelled=frozenset(pair), bouts=bout_table(
            [(*p, 0, int(share * len(rec))) for p in pair]))
    metrics = train_recipe(Changed(colony, always, f"always{share}"), tmp_path/"run",
                           "asking", folds=3, cache=tmp_path/"f")
    assert list(metrics["members"]) == ["net"] and metrics["macro_f1"] >= share - 0.15
    assert load_recipe(tmp_path/"run").which == (False,)
    assert not (tmp_path/"f"/"ownerless").exists()


@pytest.mark.slow
def test_learning_which_from_next_to_nothing(colony, tmp_path, asking):
    "Bouts in one video only: the fold that it is left out of has nothing to learn from."
    only = Changed(colony, lambda r: r if r.video_id == colony.ids[0] else
                   r.replace(bouts=r.bouts[:0]), "only")
    metrics = train_recipe(only, tmp_path/"run", "asking", folds=3, cache=tmp_path/"f")
    p = np.load(tmp_path/"run"/"oof"/"kinds.npy", allow_pickle=False)
    assert np.isfinite(p).all() and 0 <= metrics["macro_f1"] < 0.5
    load_recipe(tmp_path/"run").predict(only, cache=tmp_path/"g")


# --- nothing leaks

def alike(one, other):
    "Are two files of a member the same? On a card kernels of cuDNN do not repeat themselves."
    if one == other or not torch.cuda.is_available(): return one == other
    one, other = safetensors.torch.load(one), safetensors.torch.load(other)
    return one.keys() == other.keys() and all(
        torch.allclose(one[k].float(), other[k].float(), rtol=0.01, atol=0.01) for k in one)


@pytest.mark.parametrize("kind", ["net", "boost"])
def test_a_held_out_video_changes_nothing_fitted(colony, tmp_path, kind):
    out = colony.ids[2]
    other = Changed(colony, lambda r: r.replace(xy=r.xy * 3 + 50, bouts=r.bouts[:1])
                    if r.video_id == out else r)
    files = []
    for name, data in (("a", colony), ("b", other)):
        prepared = prepare(data, "symmetric", out=tmp_path/f"{name}_features",
                           progress=False)
        member = train_member(kind, prepared, [v for v in data.ids if v != out],
                              SMALL[kind])
        member.save(tmp_path/name)
        files.append((tmp_path/name).read_bytes())
        rows = np.flatnonzero(prepared.sequences.video_id == out)
        files.append(prepared.values(rows[0]).tobytes())
    assert alike(files[0], files[2]) and files[1] != files[3]
    inside = train_member(kind, prepared, colony.ids, SMALL[kind])
    inside.save(tmp_path/"c")
    assert (tmp_path/"c").read_bytes() != files[0]


def told(seed, informed=True):
    rng, out = np.random.default_rng(seed), []
    for i in range(6):
        seen = np.repeat(rng.random(40) < 0.2, 20)
        rare = np.clip(0.15 + 0.25 * seen * informed + rng.normal(0, .1, 800), 0, 1)
        out.append(OutOfFold(np.stack([1 - rare, rare], 1)[None], seen[:, None].astype(np.int8),
                        30.0, i // 2))
    return out


def test_videos_are_predicted_by_all_seeds_of_their_fold_alone(monkeypatch):
    table = pd.DataFrame({"video_id": list("abca"), "fps": [25.0, 30, 50, 25]})
    prepared = SimpleNamespace(sequences=table, values=lambda i: i)
    splits = [Split(tuple(set("abc") - {v}), (v,)) for v in "abc"]
    tasks = member_tasks(MemberSpec("trees", "boost", "coords", 2, {}), prepared, splits, Path("."))
    assert len({t.seed for t in tasks}) == 6 and not any(v in t.ids for t, v in zip(tasks, "aabbcc"))
    monkeypatch.setattr(recipe, "load_member", lambda path, kind: lambda i, fps: np.array(
        [[*map(float, path.stem.split("-")[1:]), i, fps]])) # Of which fold and seed, and what was asked
    assert {i: p.tolist() for i, p in predict_out_of_fold(tasks, splits).items()} == {
        0: [[1, 1.5, 0, 25]], 1: [[2, 1.5, 1, 30]], 2: [[3, 1.5, 2, 50]], 3: [[1, 1.5, 3, 25]]}


def test_videos_that_only_a_review_knows_do_not_judge():
    "Unless there are no others; nor do they choose how to decide."
    told = [OutOfFold(np.array([[[0.2, 0.8]] * 5 + [[0.8, 0.2]] * 5]), np.eye(2, dtype=np.int8).repeat(5, 0)[:, :1],
                      30.0, i % 2, video=str(i)) for i in range(4)]
    spoilt = [s._replace(labels=1 - s.labels, video=f"r{s.video}") for s in told]
    decision, scores = recipe.choose_and_score(["one"], told + spoilt, ["r0", "r1", "r2", "r3"], ("sniff",))
    alone, own = recipe.choose_and_score(["one"], told, (), ("sniff",))
    assert decision == alone and scores["macro_f1"] == own["macro_f1"] == 1
    assert {*scores["counts"]} == {*"0123"} and scores["validation_counts"]["sniff"]["frames"] == 20
    assert scores["only_reviewed"]["r1"] == {"sniff": [0, 5, 5]} and scores["training_counts"]["sniff"]["frames"] == 40
    assert {*recipe.choose_and_score(["one"], told, [*"0123"], ("sniff",))[1]["counts"]} == {*"0123"}


def test_decisions_of_a_fold_do_not_see_it():
    some = told(0)
    changed = [s._replace(labels=1 - s.labels, p=s.p[..., ::-1]) if s.fold == 2 else s
               for s in some]
    before, after = nested(some)[1], nested(changed)[1]
    assert before[2] == after[2] and before[0] != after[0]


def test_a_member_without_a_share_has_no_say():
    some = [s._replace(p=np.concatenate([np.full_like(s.p, 0.5), s.p])) for s in told(1)]
    alone = codes_of(Decision((0.25,), 0.0, (0.0, 1.0)), some[0])
    assert np.array_equal(alone, codes_of(Decision((0.25,)), told(1)[0]))


@pytest.mark.slow
def test_shuffled_labels_score_at_chance(colony, tmp_path, run):
    "On average over three ways to shift them: a rare action has a handful of bouts."
    def shifted(rec, k):
        rng, n = np.random.default_rng([k, int(rec.video_id)]), len(rec)
        by = int(rng.integers(n // 4, 3 * n // 4))
        bouts = rec.bouts.assign(start=(rec.bouts.start + by) % n)
        stop = bouts.start + (rec.bouts.stop - rec.bouts.start)
        return rec.replace(bouts=bouts.assign(stop=stop.clip(upper=n)))

    found, chance = [], []
    for k in range(3):
        data = Changed(colony, partial(shifted, k=k), f"shifted{k}")
        metrics = train_recipe(data, tmp_path/f"run{k}", "quick", folds=2,
                               cache=tmp_path/f"features{k}")
        total = np.sum([list(v.values()) for v in metrics["counts"].values()], 0)
        share = (total[:, 0] + total[:, 2]) / metrics["frames"]
        found.append(metrics["macro_f1"])
        chance.append((2 * share / (1 + share)).mean()) # of saying an action always
    assert max(found) < run[1]["macro_f1"] / 1.5
    assert np.mean(found) < np.mean(chance) + 0.03


# --- end to end

def test_recipe_leaves_a_folder_that_predicts(colony, run, tmp_path, monkeypatch):
    work, metrics = run
    kinds = {p.suffix for p in (work/"run").rglob("*") if p.is_file()}
    assert kinds == {".safetensors", ".json", ".npy", ".csv", ".md"}

    def refuse(*a, **k): raise AssertionError("a pickle was opened")
    for module, name in ((pickle, "load"), (pickle, "loads"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    one = load_recipe(work/"run").predict(colony, cache=tmp_path/"f")
    two = load_recipe(work/"run").predict(colony, cache=tmp_path/"f")
    assert one.equals(two) and set(one.video_id.astype(str)) <= set(colony.ids)
    assert len(one) and (one.start_frame < one.stop_frame).all()
    some = load_recipe(work/"run").predict(colony, colony.ids[:1],
                          cache=tmp_path/"g")
    rest = one[one.video_id.astype(str) == colony.ids[0]]
    assert some.drop(columns="row_id").equals(rest.drop(columns="row_id").reset_index(
        drop=True))
    low, high = metrics["interval"]
    assert low <= metrics["macro_f1"] <= high
    assert f"{metrics['macro_f1']:.3f}" in (work/"run"/"card.md").read_text()


def test_threads_say_the_same_and_leave_torch_its_cores(run, colony, tmp_path):
    recipe, cores = load_recipe(run[0]/"run"), torch.get_num_threads()
    features = {n: some[0].features for n, some in recipe.members.items()}
    prepared = prepared_for(features, colony, colony.ids[:1], recipe.parts, tmp_path/"f")
    values = {n: prepared[n].values(0) for n in recipe.members}
    one, many = (recipe.probabilities(values, threads) for threads in (1, 4))
    plain = np.stack([np.mean([m(values[n]) for m in some], 0)
                      for n, some in recipe.members.items()])
    assert np.array_equal(one, many) and torch.get_num_threads() == cores
    assert np.allclose(one, plain, atol=1e-5) and len(one) == len(recipe.members) > 1


@pytest.mark.parametrize("frames, bits", [(8192, 2**27), (700, 2**27), (8192, 1), (8, 2**27)])
def test_trees_say_the_same_however_many_frames_are_asked_at_once(frames, bits, monkeypatch):
    "Also where their number is none of eight, and where trees are too many for all."
    x = np.random.default_rng(0).normal(size=(1501, 3)).astype(np.float32)
    trees = grow_trees(x, (x[:, :2] > 0).sum(1), rounds=12)
    want = tree_probabilities(trees, x, 3)
    monkeypatch.setattr(boosting, "AT_ONCE", frames)
    monkeypatch.setattr(boosting, "MOST_BITS", bits)
    assert np.array_equal(tree_probabilities(trees, x, 3), want) and len({*want.argmax(1)}) == 3


def test_models_that_sample_alike_look_for_anchors_once(run, colony, tmp_path, monkeypatch):
    "Another one looks for its own, and all say what each says by itself."
    recipe, looked = load_recipe(run[0]/"run"), []
    features = {n: some[0].features for n, some in recipe.members.items()}
    prepared = prepared_for(features, colony, colony.ids[:1], recipe.parts, tmp_path/"f")
    values = {n: prepared[n].values(0) for n in recipe.members}
    net, trees = recipe.members["net"], recipe.members["trees"]
    clf = net[0].clf
    slower = Net(replace(clf, cfg=clf.cfg.model_copy(update={"frame_gap": 5})))
    recipe = replace(recipe, members={"net": [*net, slower], "trees": trees})
    plain = np.stack([np.mean([m(values[n], 60.0) for m in some], 0)
                      for n, some in recipe.members.items()])
    find = windows.anchors
    monkeypatch.setattr(windows, "anchors", lambda *which: looked.append(1) or find(*which))
    assert np.allclose(recipe.probabilities(values, fps=60.0), plain, atol=1e-5)
    assert len(looked) == len({m.sampling(60.0) for m in [*net, slower]}) + 1 < len(net) + 2


def test_out_of_fold_files_agree_with_the_score(run, colony):
    work, metrics = run
    table = np.genfromtxt(work/"run"/"oof"/"sequences.csv", delimiter=",", names=True,
                          dtype=None, encoding="utf-8")
    p = np.load(work/"run"/"oof"/"trees.npy", allow_pickle=False)
    assert len(p) == table["frames"].sum() and np.allclose(p.sum(1), 1, atol=1e-5)
    assert sorted(set(table["fold"])) == [1, 2, 3]
    counts = np.array([list(c.values()) for c in metrics["counts"].values()])
    assert round(float(np.nanmean(f1_of(counts.sum(0)))), 4) == metrics["macro_f1"]


def test_a_killed_recipe_goes_on(run, colony, tmp_path):
    "What it has is kept, what is missing is trained again, and the end is the same."
    shutil.copytree(run[0]/"run", tmp_path/"run")
    for name in ("recipe.json", "members/trees-2-1.safetensors"):
        (tmp_path/"run"/name).unlink()
    before = (tmp_path/"run"/"members"/"net-1-1.safetensors").stat().st_mtime_ns
    with pytest.raises(ConfigError, match="begun with other folds"):
        train_recipe(colony, tmp_path/"run", "quick", folds=2, cache=run[0]/"features")
    again = train_recipe(colony, tmp_path/"run", "quick", folds=3,
                         cache=run[0]/"features")
    assert json.dumps(again, sort_keys=True) == json.dumps(run[1], sort_keys=True)
    assert before == (tmp_path/"run"/"members"/"net-1-1.safetensors").stat().st_mtime_ns
    name = "members/trees-2-1.safetensors"
    assert (tmp_path/"run"/name).read_bytes() == (run[0]/"run"/name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name, left", [("trees-1-1", 0), ("net-3-1", 0), ("trees-2-1", 999)])
def test_a_damaged_member_learns_again(run, colony, tmp_path, name, left):
    shutil.copytree(run[0]/"run", tmp_path/"run")
    (tmp_path/"run"/"recipe.json").unlink()
    path = tmp_path/"run"/"members"/f"{name}.safetensors"
    path.write_bytes((whole := path.read_bytes())[:left])
    lines = []
    train_recipe(colony, tmp_path/"run", "quick", folds=3, cache=run[0]/"features", say=lines.append)
    assert f"{name} is damaged: it learns again" in lines and path.read_bytes() == whole
    assert any(line.startswith(f"{name} learned, 6 of 6") for line in lines)
    assert path.with_suffix(".damaged").stat().st_size == left


@pytest.mark.slow
def test_a_bar_for_all_actions_is_kept_told_and_obeyed(run, colony, tmp_path):
    about = json.loads((run[0]/"run"/"recipe.json").read_text())
    (tmp_path/"members").symlink_to(run[0]/"run"/"members")
    said = {}
    for bar in (0.0, 1.01):
        about["decision"]["any_threshold"] = bar
        (tmp_path/"recipe.json").write_text(json.dumps(about))
        said[bar] = load_recipe(tmp_path).predict(colony, cache=run[0]/"features")
    assert len(said[0.0]) and said[1.01].empty
    del about["decision"]["any_threshold"] # as written by an earlier version
    (tmp_path/"recipe.json").write_text(json.dumps(about))
    assert load_recipe(tmp_path).decision.any_threshold == 0
    assert "together are below 41%" in least_line({"any_threshold": 0.414})
    assert least_line({"any_threshold": 0.0}) == "Bouts may be of any length."


@pytest.mark.slow
def test_usual_rates_are_kept_told_and_obeyed(run, colony, tmp_path):
    about = json.loads((run[0]/"run"/"recipe.json").read_text())
    (tmp_path/"members").symlink_to(run[0]/"run"/"members")
    n, said = len(about["actions"]), {}
    for name, usual in (("none", []), ("seldom", [0.0] * n), ("often", [1.0] * n)):
        about["decision"]["usual"] = usual
        (tmp_path/"recipe.json").write_text(json.dumps(about))
        recipe, pairs = load_recipe(tmp_path), []
        recipe.predict(colony, colony.ids[:2], cache=run[0]/"features", each=pairs.append)
        said[name] = np.mean([pair.on.any(1).mean() for pair in pairs])
        for_review = list(predict_for_review(recipe, colony, colony.ids[:2], run[0]/"features"))
        for pair, again in zip(pairs, for_review, strict=True):
            assert np.allclose(pair.p, again.p) and np.array_equal(pair.on.any(1), again.codes >= 0)
            if name == "none": spread = again.spread
        assert np.array_equal(spread, again.spread) # of the members, whatever is made of them
    assert said["often"] < said["none"] < said["seldom"]
    del about["decision"]["usual"] # as written by an earlier version
    (tmp_path/"recipe.json").write_text(json.dumps(about))
    assert load_recipe(tmp_path).decision.usual == ()


@pytest.mark.parametrize("usual", [[0.5], [float("nan")] * 8, [-1.0] + [0.1] * 7])
def test_rates_that_are_none(run, tmp_path, usual):
    about = json.loads((run[0]/"run"/"recipe.json").read_text())
    (tmp_path/"members").symlink_to(run[0]/"run"/"members")
    about["decision"]["usual"] = usual
    (tmp_path/"recipe.json").write_text(json.dumps(about))
    with pytest.raises(DataError, match="usual"): load_recipe(tmp_path)


@pytest.mark.parametrize("name, change, said", [
    ("format", {"format": 9}, "another format"), ("old", {"format": 2}, "earlier version"),
    ("actions", {"actions": []}, "thresholds"), ("least", {"decision": {
        "thresholds": [None] * 8, "smooth_ms": 0, "shares": [0.5, 0.5], "labs": {},
        "least_ms": [100.0]}}, "thresholds"),
    ("decision", {"decision": 3}, "train_recipe"), ("members", {"members": []}, "shares")])
def test_broken_recipe(run, tmp_path, name, change, said):
    about = json.loads((run[0]/"run"/"recipe.json").read_text()) | change
    (tmp_path/"members").symlink_to(run[0]/"run"/"members")
    (tmp_path/"recipe.json").write_text(json.dumps(about))
    with pytest.raises(DataError, match=said): load_recipe(tmp_path)


NAN, INF, MS = float("nan"), float("inf"), "least_ms"


@pytest.mark.parametrize("key, value", [
    ("shares", [NAN, 0.5]), ("shares", [1e308] * 2), ("shares", [-1, 2]), ("shares", [1, 1]),
    ("smooth_ms", NAN), ("smooth_ms", INF), ("smooth_ms", "5"), (MS, [NAN]), (MS, [INF]), (MS, [-1]),
    ("thresholds", [-1]), ("thresholds", [INF]), ("any_threshold", NAN), ("any_threshold", True),
    ("labs", {"A": [0.5]})])
def test_a_decision_that_cannot_be(run, tmp_path, key, value):
    about = json.loads((run[0]/"run"/"recipe.json").read_text())
    about["decision"][key] = value * len(about["actions"]) if key in (MS, "thresholds") else value
    (tmp_path/"members").symlink_to(run[0]/"run"/"members")
    (tmp_path/"recipe.json").write_text(json.dumps(about))
    key = "thresholds" if key == "labs" else key
    with pytest.raises(DataError, match=f"recipe.json: .*{key}"): load_recipe(tmp_path)


@pytest.mark.parametrize("change, said", [
    (lambda r: {"actions": r["actions"][::-1]}, "other actions"),
    (lambda r: {"actions": r["actions"][:1] * 8}, "actions are no list"),
    (lambda r: {"actions": [{"a": 1}, None, 3, [], "x", "", "y", "z"]}, "actions are no list"),
    (lambda r: {"self_actions": "rear"}, "self_actions are no list"),
    (lambda r: {"pair_actions": "rear"}, "pair_actions are no list"),
    (lambda r: {"labs": {"A": "rear"}}, "labs are no list"),
    (lambda r: {"members": [m | {"name": "net"} for m in r["members"]]}, "members are no list"),
    (lambda r: {"members": [m | {"files": m["files"] * 2} for m in r["members"]]}, "files of")])
def test_names_that_cannot_be(run, tmp_path, change, said):
    about = json.loads((run[0]/"run"/"recipe.json").read_text())
    (tmp_path/"members").symlink_to(run[0]/"run"/"members")
    (tmp_path/"recipe.json").write_text(json.dumps(about | change(about)))
    with pytest.raises(DataError, match=said): load_recipe(tmp_path)


@pytest.mark.parametrize("classes, said", [(3, "differ in number"), (8, "in number|other actions"),
                                           (10**9, "other actions"), (INF, "fit together")])
def test_trees_that_tell_of_other_classes(run, tmp_path, classes, said):
    shutil.copytree(run[0]/"run", tmp_path/"run")
    tensors, about = read_tensors(path := tmp_path/"run"/"members"/"trees-1-1.safetensors",
                                  "mabe_trees")
    write_tensors(path, tensors, {"mabe_trees": json.dumps(about | {"classes": classes})})
    with pytest.raises(DataError, match=said): load_recipe(tmp_path/"run")


def test_refusals(run, colony, tmp_path):
    with pytest.raises(ConfigError, match="best"): train_recipe(colony, tmp_path, "bset")
    with pytest.raises(ConfigError, match="already holds"):
        train_recipe(colony, run[0]/"run", "quick")
    with pytest.raises(DataError): load_recipe(tmp_path)
    with pytest.raises(DataError, match="at least 9"):
        train_recipe(colony, tmp_path/"x", "quick", folds=9)


def test_bootstrap_holds_the_score():
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 2, (100, 2)).astype(np.int8) for _ in range(20)]
    codes = [np.where(rng.random(100) < .7, y.argmax(1), -1) for y in labels]
    counts = video_counts(labels, codes)
    low, high = bootstrap(counts)
    assert low < np.nanmean(f1_of(counts.sum(0))) < high
    assert bootstrap(counts[:1])[0] == bootstrap(counts[:1])[1]


def test_actions_with_a_side():
    from mabe_nb.data.blocks.symmetry import HANDED
    sided = ("left turn", "TurnRight", "limbRight", "clockwise", "anticlockwise", "ccw", "acw", "turnL",
             "R_turn", "turn_l", "Lturn", "ipsilateral", "contraversive circling", "rotation_contra")
    plain = ("upright", "bright", "frightened", "cleft", "outright", "rear", "contraction", "attack",
             "REM", "allogroom", "L2", "syllable_r2", "chase")
    assert all(map(HANDED.search, sided)) and not any(map(HANDED.search, plain))

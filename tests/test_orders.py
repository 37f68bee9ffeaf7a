"One order of a pair on disk is both, to the bit, and agent and target are never mixed up."
import copy
import json
import pickle
import tempfile

import numpy as np
import pytest

from mabe_nb.data import features
from mabe_nb.data.blocks.registry import (BLOCKS, PRESETS, block, blocks_of, kept_once,
                                          named, order_free)
from mabe_nb.data.cache.arrays import Arranged, kept_per_animal
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.cache.reader import FORMAT, open_prepared
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.features import compute
from mabe_nb.data.recording import Recording, pairs
from mabe_nb.errors import ConfigError, DataError

PARTS = ("nose", "ear_left", "neck", "tail_base", "tail_tip")
SETS = [*dict.fromkeys([*BLOCKS, *PRESETS]), "own+speed+between", "coords+others+zscored",
        "directed+directed_multiscale", "unordered+ownerless", "kaggle288+social"]


def walk(mice, frames=200, seed=0):
    "Animals that wander; points and whole animals are lost for a while, one may never be seen."
    rng = np.random.default_rng((mice, seed))
    place = rng.normal(0, 3, (frames, mice, 1, 2)).cumsum(0) + 200
    xy = (place + rng.normal(0, 10, (1, mice, len(PARTS), 2))).astype(np.float32)
    for a in range(0, frames, 40):
        gone = rng.random((mice, len(PARTS))) < .2
        gone[rng.random(mice) < .2] = True
        xy[a:a + int(rng.integers(1, 90))][:, gone] = np.nan
    if seed % 2: xy[:, rng.integers(mice)] = np.nan
    names = rng.permutation([f"mouse{i + 1}" for i in range(mice)])
    return Recording(xy, tuple(map(str, names)), PARTS, 30., 10., video_id=f"{mice}-{seed}")


def bits(values): return np.asarray(values).view(np.uint32)


def kept(rec, name, out):
    return prepare(RecordingList([rec]), name, out, progress=False, unlabelled=True, selves=True)


def by_pair(done):
    return {(r.agent, r.target): bits(done.values(i)) for i, r in done.sequences.iterrows()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("mice", [1, 2, 3, 4])
def test_what_is_kept_is_what_each_ordered_pair_has(name, mice, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "STRETCH", 128)
    for seed in range(min(mice, 2)): # In the second one animal is never seen
        rec = walk(mice, seed=seed)
        done, shown = kept(rec, name, tmp_path/str(seed)), {m for p in pairs(rec, True) for m in p}
        assert len(shown) == mice - seed
        files = len([*(tmp_path/str(seed)).rglob("*.npy")])
        orders = 1 + (not kept_once(blocks_of(name)))
        n = len(shown)
        apart = n if n > 1 and kept_per_animal(blocks_of(name)) else 0
        assert len(done) == n**2
        assert files == n + apart + orders * n * (n - 1) // 2
        for i, row in done.sequences.iterrows():
            want = compute(rec, name, (row.agent, row.target), done.parts).values
            assert np.array_equal(bits(done.values(i)), bits(want)), (row.agent, row.target)


@pytest.mark.parametrize("name", ["social", "coords", "directed+directed_multiscale",
                                  "coords+others+zscored", "unordered+multiscale"])
@pytest.mark.parametrize("mice", [1, 3])
def test_what_is_not_kept_is_computed_when_asked(name, mice, tmp_path, monkeypatch):
    "What would be on disk, of which nothing is used while a pair is looked at."
    monkeypatch.setattr(features, "STRETCH", 128)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path/"temporary"))
    (tmp_path/"temporary").mkdir()
    one, two = walk(mice), walk(2, frames=20)
    data, how = RecordingList([one, two]), dict(unlabelled=True, selves=True, progress=False)
    done = prepare(data, name, tmp_path/"kept", **how)
    size = {v: sum(p.stat().st_size for p in (tmp_path/"kept").glob(f"*/{v}/mouse*.npy"))
            for v in data.ids}
    asked = prepare(data, name, tmp_path/"asked", most=size[two.video_id], **how)
    assert by_pair(asked).keys() == by_pair(done).keys()
    for i in (*range(len(done)), 0):
        assert np.array_equal(asked.values(i)[:], done.values(i)[:], equal_nan=True)
        assert not [*(tmp_path/"temporary").iterdir()]
    assert {p.parent.name for p in (tmp_path/"asked").rglob("*.npy")} == {two.video_id}
    assert [p.name for p in (tmp_path/"asked").glob("*/*")] == [two.video_id]
    assert [*open_prepared(tmp_path/"asked").videos] == [two.video_id]
    assert prepare(data, name, tmp_path/"kept", most=1, **how).compute is None # It is there
    again = prepare(data, name, tmp_path/"asked", **how)
    assert [p.name for p in sorted((tmp_path/"asked").rglob("*.npy"))] == [
        p.name for p in sorted((tmp_path/"kept").rglob("*.npy"))] and again.compute is None


def test_what_an_animal_does_alone_is_written_once(tmp_path):
    rec = walk(4)
    done = kept(rec, "social", tmp_path)
    [info], frames = done.videos.values(), len(rec)
    agent, target = info["individual"]
    assert [done.names[i][6:] for i in agent] == [done.names[i][7:] for i in target]
    assert all(done.names[i].startswith("agent.") for i in agent) and len(agent) > 20
    size = {p.name: np.load(p).shape for p in tmp_path.rglob("*.npy")}
    whole = len(done.names)
    assert size["animal+mouse2.npy"] == (frames, len(agent))
    assert size["mouse1-mouse2.npy"] == (frames, whole - 2 * len(agent))
    assert size["mouse1-mouse1.npy"] == (frames, whole)
    assert not kept_per_animal(["own", "parts"]) and not kept_per_animal(["own", "zscored"])
    [path] = tmp_path.rglob("animal+mouse3.npy")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="holds other values"): open_prepared(tmp_path)
    again = kept(rec, "social", tmp_path)
    assert by_pair(again).keys() == by_pair(done).keys()
    path.unlink()
    with pytest.raises(DataError, match="animal.mouse3.npy: is missing"): open_prepared(tmp_path)


def test_who_does_not_say_what_an_exchange_does_is_kept_in_both_orders(tmp_path, monkeypatch):
    silent = BLOCKS["directed_smoothed"]._replace(exchange=None)
    monkeypatch.setitem(BLOCKS, "directed_smoothed", silent)
    assert not kept_once(["directed_smoothed"])
    test_what_is_kept_is_what_each_ordered_pair_has("directed_smoothed", 3, tmp_path, monkeypatch)


def test_all_of_ours_say_what_an_exchange_does():
    assert all(kept_once([n]) for n in BLOCKS)
    assert order_free(["smoothed", "arena"]) and not order_free(["own"])


@pytest.mark.parametrize("name", ["social", "directed_smoothed", "kaggle288", "others",
                                  "directed+directed_multiscale"])
def test_names_that_change_places_are_the_other_order(name, tmp_path):
    rec = walk(3)
    a, b, c = rec.mice
    one, two = (by_pair(kept(rec.replace(mice=mice), name, tmp_path/"".join(mice)))
                for mice in ((a, b, c), (b, a, c)))
    assert not np.array_equal(one[a, b], one[b, a])
    swap = {a: b, b: a, c: c}
    for agent, target in pairs(rec):
        assert np.array_equal(two[swap[agent], swap[target]], one[agent, target])
    names = compute(rec, name).names
    of_agent = [i for i, k in enumerate(names) if f"target.{k.removeprefix('agent.')}" in names]
    of_target = [names.index("target." + names[i][6:]) for i in of_agent]
    assert of_agent and np.array_equal(one[a, b][:, of_agent], one[b, a][:, of_target])


@pytest.mark.parametrize("cut", [False, True])
def test_an_array_that_is_arranged_is_like_an_array(cut):
    here = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    here[2, 2] = np.nan
    parts = [here[:, :1], here[:, 1:]] if cut else [here]
    there, want = Arranged(parts, [2, 1, -3]), here[:, [1, 0, 2]] * np.float32([1, 1, -1])
    mask = np.isnan(want)
    for at in (3, -1, slice(1, 8, 3), [4, 2], mask[:, 2], mask, (slice(None), 2), ...,
               ([0, 1], [1, 2]), np.array([[0, 1], [1, 2]])):
        assert np.array_equal(there[at], want[at], equal_nan=True), at
    assert there.shape == want.shape and there.dtype == want.dtype and len(there) == 9
    for call in (lambda x: x * 2, lambda x: want - x, np.isnan, lambda x: np.nanmax(x, 0),
                 lambda x: x.T, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)),
                 lambda x: np.asarray(x, np.float64), lambda x: x.astype(int)[3:], list):
        assert np.array_equal(call(there), call(want), equal_nan=True)
    with pytest.raises(ValueError): there[0][0] = 1
    assert not hasattr(there, "nothing")


def test_a_block_whose_names_have_no_counterpart_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(BLOCKS, "lopsided", None)

    @block(exchange="names")
    def lopsided(a): return named("cm", front_rear=a.points[:, 0, 0, 0])
    with pytest.raises(ConfigError, match="rear_front"):
        kept(walk(2).replace(mice=("mouse1", "mouse2")), "lopsided", tmp_path)


@pytest.mark.parametrize("change", [
    {"format": FORMAT[:-1] + "5"}, {"other_order": None}, {"other_order": [0]},
    {"other_order": [1, 2]}, {"other_order": "swap"}, {"individual": [[0], []]},
    {"individual": [[0], [0]]}, {"individual": [[10**9], [1]]}, {"animals": {"mouse1": 1}},
    {"animals": {"mouse1": "1", "mouse2": 2}}, {"individual": [0, 1]}])
def test_another_version_or_odd_order_is_refused_and_made_again(change, tmp_path):
    rec = walk(2)
    want = [np.array(v) for v in map(kept(rec, "own", tmp_path).values, range(4))]
    [path] = tmp_path.rglob("video.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match="resume=False"): open_prepared(tmp_path)
    again = kept(rec, "own", tmp_path)
    assert all(np.array_equal(bits(again.values(i)), bits(v)) for i, v in enumerate(want))

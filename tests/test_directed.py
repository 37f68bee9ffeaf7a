"""Who does it to whom: channels that change places, labels that tell, files cut anywhere."""
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from mabe_nb.data import features
from mabe_nb.data.blocks.bodies import blind_note, of_parts
from mabe_nb.data.blocks.registry import BLOCKS, block
from mabe_nb.data.body_parts import plain_part, usual_names
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.dataset import as_dataset, open_dataset
from mabe_nb.data.features import HALO_S, compute
from mabe_nb.data.recording import Recording, bout_table
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError
from mabe_nb.train.ensemble.directed import more_than_two_animals, directed_actions, members_for
from mabe_nb.train.ensemble.folds import contiguous_folds
from mabe_nb.train.ensemble.labs import fold_facts
from mabe_nb.train.ensemble.member_specs import RECIPES
from mabe_nb.train.ensemble.recipe import begin_training, train_recipe
from mabe_nb.train.metrics import kaggle_score, solution_table
from mabe_nb.train.model import load_model
from mabe_nb.train.data_shift import mixed_units

PARTS = ("nose", "body_center", "tail_base", "ear_left")


def walk(frames, mice=2, seed=0, lost=0.2):
    "Animals that wander about, with points lost for moments and for seconds."
    rng = np.random.default_rng(seed)
    place = rng.normal(0, 3, (frames, mice, 1, 2)).cumsum(0) + 200
    xy = (place + rng.normal(0, 10, (1, mice, len(PARTS), 2))).astype(np.float32)
    for a in range(0, frames, 50):
        some = rng.random((mice, len(PARTS))) < lost
        xy[a:a + int(rng.integers(1, 120))][:, some] = np.nan
    names = tuple(f"mouse{i + 1}" for i in range(mice))
    return Recording(xy, names, PARTS, 30.0, px_per_cm=10.0)


OF_PAIRS = sorted(name for name, b in BLOCKS.items() if b.source == "pair")


@pytest.mark.parametrize("name", OF_PAIRS)
def test_stretches_leave_no_trace(name, monkeypatch):
    rec = walk(1500, mice=3)
    whole = compute(rec, name, rec.mice[:2])
    monkeypatch.setattr(features, "STRETCH", 401)
    parts = compute(rec, name, rec.mice[:2])
    assert parts.names == whole.names
    assert np.allclose(parts.values, whole.values, atol=1e-4, rtol=1e-4, equal_nan=True)


@pytest.mark.parametrize("name", [n for n in OF_PAIRS if not BLOCKS[n].whole_video
                                  and n != "arena"])
@pytest.mark.parametrize("cut", [700, 1111])
def test_a_file_may_be_cut_anywhere(name, cut):
    "All but the last seconds before the cut are what they are in the whole file."
    rec = walk(1500, mice=3)
    whole, part = (compute(r, name, rec.mice[:2])
                   for r in (rec, rec.replace(xy=rec.xy[:cut])))
    same = cut - round(HALO_S * rec.fps)
    assert np.allclose(part.values[:same], whole.values[:same], atol=1e-4, rtol=1e-4,
                       equal_nan=True)


@pytest.mark.parametrize("name", ["directed", "directed_smoothed", "directed_multiscale",
                                  "others"])
def test_exchanged_animals_exchange_channels(name):
    rec = walk(400, mice=4)
    one, two = (compute(rec, name, pair) for pair in (rec.mice[:2], rec.mice[1::-1]))
    at = {k: i for i, k in enumerate(two.names)}
    moved = 0
    for i, channel in enumerate(one.names):
        who, _, what = channel.partition(".")
        if who not in ("agent", "target"): continue
        other = at[f"{'target' if who == 'agent' else 'agent'}.{what}"]
        assert np.allclose(one.values[:, i], two.values[:, other], atol=1e-4,
                           equal_nan=True)
        moved += not np.allclose(one.values[:, i], two.values[:, i], equal_nan=True)
    assert moved > 5


def test_no_block_of_one_that_compares_with_the_whole_video():
    with pytest.raises(ConfigError, match="whole video"):
        block(needs=("zscored",))(lambda a, zscored: {})


@pytest.mark.parametrize("name", [*OF_PAIRS, "coords", "kaggle288"])
@pytest.mark.parametrize("learned", [PARTS[1:], PARTS[2:]])
def test_parts_that_nobody_learned_from_change_nothing(name, learned):
    "A nose beside ears is another front, and a front where there was none."
    rec = walk(300, mice=3).replace(px_per_cm=None)
    less = rec.replace(xy=rec.xy[:, :, [PARTS.index(p) for p in learned]], parts=learned)
    got, want = (compute(r, name, rec.mice[:2], learned) for r in (rec, less))
    assert got.names == want.names and got.units == want.units
    assert np.array_equal(got.values, want.values, equal_nan=True)


@pytest.mark.parametrize("learned, kept", [
    (("nose", "tail_base"), ("nose", "tail_base")), (("head", "neck"), PARTS[:1]), ((), PARTS),
    (("ear_left", "ear_right", "tail_base"), PARTS), (("a", "b"), PARTS)])
def test_a_part_may_stand_in_for_one_that_was_learned_from(learned, kept):
    rec = walk(9)
    found = of_parts(rec, learned)
    assert found.parts == kept
    assert np.array_equal(found.xy, rec.xy[:, :, [PARTS.index(p) for p in found.parts]], equal_nan=True)


@pytest.mark.parametrize("mice", [1, 2, 3, 8])
def test_any_number_of_animals(mice):
    rec = walk(200, mice=mice)
    f = compute(rec, "directed_smoothed+others", (*rec.mice, *rec.mice)[:2])
    seen = np.isfinite(f.values[:, f.names.index("agent.other_nearest")]).any()
    assert seen == (mice > 2) and len(f.names) == len(compute(walk(200), "directed_smoothed+others").names)


# --- labels tell which actions have a direction

def labelled(video, looked_for, bouts):
    return walk(300, seed=int(video)).replace(
        video_id=video, labelled=frozenset(looked_for), bouts=bout_table(bouts))


def test_labels_tell_what_is_directed(tmp_path):
    there, back = ("mouse1", "mouse2"), ("mouse2", "mouse1")
    looked = [(*p, a) for p in (there, back) for a in ("chase", "huddle")]
    data = as_dataset([labelled("1", [*looked, (*there, "sniff")], [
        (*there, "chase", 0, 50), (*back, "chase", 90, 120), (*there, "huddle", 150, 200),
        (*back, "huddle", 150, 210), (*there, "sniff", 220, 240)])])
    prepared = prepare(data, "own", out=tmp_path/"f")
    assert directed_actions(prepared) == {"chase": True, "huddle": False, "sniff": None}
    names = [m.name for m in members_for(RECIPES["best"], prepared)]
    assert {"roles", "pair"} <= {*names}


@pytest.mark.parametrize("mutual, kept, gone", [(True, "pair", "roles"), (False, "roles", "pair")])
def test_only_members_that_the_labels_call_for(tmp_path, mutual, kept, gone):
    there, back = ("mouse1", "mouse2"), ("mouse2", "mouse1")
    bouts = [(*there, "a", 0, 50)] + [(*back, "a", 0, 50)] * mutual
    data = as_dataset([labelled("1", [(*p, "a") for p in (there, back)], bouts)])
    names = [m.name for m in members_for(RECIPES["best"], prepare(data, "own", out=tmp_path/"f"))]
    assert kept in names and gone not in names


def test_where_nobody_can_say_both_sorts_stay(tmp_path):
    there = ("mouse1", "mouse2")
    data = as_dataset([labelled("1", [(*there, "a")], [(*there, "a", 0, 250)])])
    names = {m.name for m in members_for(RECIPES["best"], prepare(data, "own", out=tmp_path/"f"))}
    assert {"roles", "pair"} <= names and "roles_fast" not in names


@pytest.mark.parametrize("stop, which, most", [(250, False, 5), (50, True, 3)])
def test_no_member_has_more_seeds_than_one_that_tells_which(tmp_path, stop, which, most):
    there = ("mouse1", "mouse2")
    data = as_dataset([labelled("1", [(*there, "a")], [(*there, "a", 0, stop)])])
    kept = members_for(RECIPES["best"], prepare(data, "own", out=tmp_path/"f"))
    assert any(m.which for m in kept) == which
    assert max(m.seeds for m in kept) == most and min(m.seeds for m in kept) == 1


def test_crowds_are_seen(tmp_path):
    data = open_dataset(write_colony(tmp_path/"colony", videos=4, minutes=0.1, seed=0))
    table = pd.DataFrame({"video_id": list(data.ids), "lab_id": [data.lab(i) for i in data.ids]})
    assert more_than_two_animals(data, table) == any(len(data[v].mice) > 2 for v in
                                       table.drop_duplicates("lab_id").video_id)
    pairs = as_dataset([walk(60).replace(video_id="1")])
    assert not more_than_two_animals(pairs, pd.DataFrame({"video_id": ["1"], "lab_id": ["x"]}))


# --- folds as Kaggle's order has them

def test_no_lab_of_five_videos_is_judged_unseen():
    sizes = [40, 40, *[5] * 17]
    table = pd.DataFrame([(f"{lab}-{i}", f"lab{lab:02}", 100, int(i < 2)) for lab, n in
                          enumerate(sizes) for i in range(n)],
                         columns=["video_id", "lab_id", "frames", "frames_rare"])
    table["group"] = range(len(table))
    splits = contiguous_folds(table, 5)
    facts = fold_facts(table, splits)
    assert facts["lab_unseen"] == [[]] * 5
    assert sorted(v for s in splits for v in s.valid) == sorted(table.video_id)
    for lab, of in table.groupby("lab_id"): # rare: the first two videos of each lab
        rare = {*of.video_id[of.frames_rare > 0]}
        assert sum(bool(rare & {*s.valid}) for s in splits) == 2, lab
    sizes = [len(s.valid) for s in splits]
    assert max(sizes) - min(sizes) <= 8


# --- the score knows who did it

@pytest.fixture(scope="module")
def colony(tmp_path_factory):
    return open_dataset(write_colony(tmp_path_factory.mktemp("c")/"colony", videos=6,
                                     minutes=0.5, seed=2))


def swapped(table):
    return table.rename(columns={"agent_id": "target_id", "target_id": "agent_id"})[table.columns]


@pytest.mark.slow
def test_roles_exchanged_ruin_the_score(colony, tmp_path):
    metrics = train_recipe(colony, tmp_path/"run", "quick", folds=3, cache=tmp_path/"f")
    assert all(metrics["directed"][a] for a in ("chase", "sniff")
               if a in metrics["directed"])
    card = (tmp_path/"run"/"card.md").read_text()
    assert "## Who does it to whom" in card and "one animal does it to the other" in card
    found = load_model(tmp_path/"run").predict(colony, cache=tmp_path/"g")
    found = found[found.agent_id != found.target_id]
    truth = solution_table(colony, colony.ids)
    truth = truth[truth.agent_id != truth.target_id]
    right = kaggle_score(truth, found)
    assert right > 0.3 and kaggle_score(truth, swapped(found)) < 0.35 * right


@pytest.mark.parametrize("actions, mirrored", [
    (("turn_left", "rear"), False), (("ccw",), False), (("uprightposture", "leave"), True)])
def test_no_mirror_images_where_an_action_has_a_side(monkeypatch, actions, mirrored):
    import pandas as pd
    from mabe_nb.train.ensemble import members
    seen = []
    def stop(prepared, ids, valid, cfg, *rest):
        seen.append(cfg.flip)
        raise InterruptedError
    monkeypatch.setattr(members, "training_set", stop)
    prepared = SimpleNamespace(actions=actions, sequences=pd.DataFrame(
        {"video_id": ["1"], "fps": [30.0], "frames": [900]}))
    roles = next(s for s in RECIPES["best"] if s.name == "roles")
    with pytest.raises(InterruptedError): members.train_net(prepared, ["1"], dict(roles.settings))
    assert (seen[0] > 0) == mirrored


@pytest.mark.parametrize(("parts", "lost"), [
    (("head", "thorax", "abdomen", "wingL"), "center or the rear"), (("nose", "body_center"), "rear"),
    (("nose", "body_center", "tail_base"), None), (("ear_left", "ear_right", "tail_base"), None),
    (("p1", "p2"), None), ((), None), (("body_center",), "front or the rear")])
def test_bodies_of_which_features_know_little_are_told(parts, lost):
    found = blind_note(parts)
    assert bool(found) == bool(lost) and (not lost or f"no body part is the {lost} of" in found[0])
    assert all("or in the files of Kaggle's layout" in line for line in found) # has no dataset.yaml


@pytest.mark.parametrize("features", ["directed_smoothed", "coords"])
def test_a_single_point_in_pixels_and_in_cm_is_told(tmp_path, features):
    "No length of a body says how far it goes, so a network and a recipe have no other measure."
    rear = bout_table([("mouse1", "mouse1", "rear", k, k + 30) for k in (100, 400)])
    data = as_dataset([walk(900, 1, k, 0).replace(parts=("body_center",), video_id=f"v{k}", bouts=rear,
                       xy=walk(900, 1, k, 0).xy[:, :, :1], labelled=frozenset({("mouse1", "mouse1", "rear")}),
                       px_per_cm=10 if k else None) for k in range(4)])
    told, = mixed_units(prepare(data, features, out=tmp_path/"p", progress=False))
    assert told == (f"no pixels per cm in 1 of 4 videos (video v0): {features} is in px there and in cm "
                    "elsewhere; write down their scale")
    begin_training(data, tmp_path/"r", "quick", None, 2, cache=tmp_path/"c", say=(lines := []).append)
    assert sum("no pixels per cm in 1 of 4 videos (video v0)" in line for line in lines) == 1


@pytest.mark.parametrize("scale, told", [(0.1, 1), (None, 0)])
def test_a_length_that_is_guessed_beside_a_known_one_is_told(tmp_path, scale, told):
    "Animals without a scale are taken for mice, which rats and flies are not."
    chase = bout_table([("mouse1", "mouse2", "chase", k, k + 30) for k in (100, 400)])
    data = as_dataset([walk(900, 2, k, 0).replace(
        video_id=f"v{k}", bouts=chase, labelled=frozenset({("mouse1", "mouse2", "chase")}),
        px_per_cm=scale if k else None) for k in range(4)])
    found = mixed_units(prepare(data, "directed", out=tmp_path/"p", progress=False))
    assert len(found) == told and all(line.startswith(
        "no pixels per cm in 1 of 4 videos (video v0): their animals are taken to be 9.7 cm long, those "
        "of the others are ") for line in found)
    begin_training(data, tmp_path/"r", "quick", None, 2, cache=tmp_path/"c", say=(lines := []).append)
    assert sum("(video v0): their animals are" in line for line in lines) == told


@pytest.mark.parametrize("both", [True, False])
def test_a_recipe_says_that_actions_go_on_at_once(tmp_path, both):
    "One alone is told of each frame, so that half of what was marked is missed, without a word."
    pair, labelled = ("mouse1", "mouse2"), frozenset({("mouse1", "mouse2", a) for a in ("contact", "sniff")})
    bouts = bout_table([(*pair, "contact", 100, 300), (*pair, "sniff", 250 - 130 * both, 350 - 100 * both)])
    data = as_dataset([walk(600, 2, k, 0).replace(video_id=f"v{k}", bouts=bouts, labelled=labelled) for k in range(4)])
    begin_training(data, tmp_path/"r", "quick", None, 2, cache=tmp_path/"c", say=(lines := []).append)
    told = [line for line in lines if "beside them" in line]
    assert len(told) == both and all("take a single run with --loss binary" in line for line in told)


def test_insects_have_a_center_and_a_rear():
    assert usual_names(["head", "thorax", "abdomen", "wingL"]) == {
        "head": "head", "thorax": "body_center", "abdomen": "tail_base", "wingL": "wingL"}
    assert usual_names(["center", "thorax"]) == {"center": "body_center", "thorax": "thorax"}


def test_sides_before_and_behind_a_part():
    for name in ("LEar", "earL", "EarL", "L_ear", "leftEar", "Left ear"):
        assert plain_part(name) == "ear_left", name
    assert plain_part("RForepaw") == "forepaw_right"
    assert [plain_part(n) for n in ("LED", "Led", "RNose", "BNose")] == ["led", "led", "r_nose", "bnose"]

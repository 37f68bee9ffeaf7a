"Splits: nothing leaks, everything is dealt, rare actions are on both sides."
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import mabe_nb as mb
from mabe_nb.cli import main
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.kaggle import read_kaggle
from mabe_nb.data.formats.kaggle.write import write_kaggle
from mabe_nb.data.formats.readers import TRACKERS, Points, Tracker
from mabe_nb.data.recording import Recording, bout_table
from mabe_nb.data.splits import (check_no_leak, describe, groups, holdout,
                                 labelled_groups, leave_one_lab_out)
from mabe_nb.data.copies.same_poses import frame_codes, pose_hashes
from mabe_nb.data.synthetic import colony_video, write_colony
from mabe_nb.errors import DataError, MabeError

DATA = Path(__file__).parents[2]/"shared"/"data"
real = pytest.mark.skipif(not (DATA/"rats").exists(), reason="needs shared/data/rats")
quick = settings(max_examples=40, deadline=None)


@st.composite
def tables(draw):
    "Tables of videos as `groups` makes them, with shared groups and rare actions."
    n = draw(st.integers(2, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    group = pd.factorize(rng.integers(0, draw(st.integers(2, n)), n))[0]
    group[:2] = 0, group.max() + 1 # At least two groups
    table = pd.DataFrame({"video_id": [f"v{i}" for i in range(n)],
                          "lab_id": rng.choice(["A", "B", "C"], n),
                          "group": pd.factorize(group)[0],
                          "frames": rng.integers(1, 10**5, n), "seconds": 1.0})
    for a in range(draw(st.integers(0, 5))):
        values = np.where(rng.random(n) < rng.random(), rng.integers(1, 500, n), 0)
        table[f"frames_a{a}"] = pd.array(values, "Int64")
        table.loc[rng.random(n) < 0.2, f"frames_a{a}"] = pd.NA
    return table


def group_of(table, ids): return set(table.group[table.video_id.isin(ids)])


@pytest.mark.slow
@quick
@given(tables(), st.floats(0.05, 0.9), st.integers(0, 99))
def test_holdout_keeps_groups_whole_and_deals_everything(table, valid, seed):
    split = holdout(table, valid, seed)
    assert sorted(split.train + split.valid) == sorted(table.video_id)
    assert split.train and split.valid
    assert not group_of(table, split.train) & group_of(table, split.valid)
    check_no_leak(table, *split)
    assert split == holdout(table, valid, seed)


@quick
@given(tables())
def test_leaving_a_lab_out_leaves_no_trace_of_it(table):
    try: made = leave_one_lab_out(table)
    except DataError as e:
        assert "at least two" in str(e) or "share poses" in str(e)
        return
    for lab, split in made.items():
        assert set(table.lab_id[table.video_id.isin(split.valid)]) == {lab}
        check_no_leak(table, *split)
        shown = describe(table, split)
        assert shown.videos.sum() == len(table)


@pytest.mark.slow
@quick
@given(tables(), st.integers(0, 99))
def test_guard_fires_whenever_one_video_is_moved_across_a_shared_group(table, seed):
    split = holdout(table, 0.3, seed)
    shared = table.group[table.group.duplicated(keep=False)].unique()
    for g in shared[:3]:
        one, two = table.video_id[table.group == g].iloc[:2]
        with pytest.raises(DataError) as e:
            check_no_leak(table, {*split.train, one} - {two},
                          {*split.valid, two} - {one})
        assert "shares poses" in str(e.value)


@pytest.mark.slow
@quick
@given(tables(), st.integers(0, 99), st.booleans())
def test_describe_counts_every_frame(table, seed, by_lab):
    shown = describe(table, holdout(table, 0.3, seed), by_lab)
    assert shown.frames.sum() == table.frames.sum() and shown.videos.sum() == len(table)
    for c in (c for c in table if c.startswith("frames_")):
        assert shown[c[7:]].sum() == table[c].sum()


@pytest.mark.slow
@quick
@given(st.integers(0, 10**6))
def test_rare_actions_are_on_both_sides(seed):
    rng = np.random.default_rng(seed)
    n = 20
    table = pd.DataFrame({"video_id": [str(i) for i in range(n)], "lab_id": "A",
                          "group": range(n), "frames": 1000, "seconds": 33.0})
    for a in range(6): # Each action in 2 to 6 videos
        has = rng.permutation(n) < rng.integers(2, 7)
        table[f"frames_{a}"] = pd.array(100 * has, "Int64")
    split = holdout(table, 0.2, seed)
    shown = describe(table, split)
    missing = (shown.iloc[:, 4:] == 0).sum().sum()
    assert missing <= 1 # Of 12; two actions may claim the same video
    assert 2 <= len(split.valid) <= 8


@pytest.mark.slow
def test_a_video_as_long_as_all_others_is_learned_from():
    "Of three hours and four clips the three hours judged what 200 frames had taught."
    for frames in ([50, 1, 324_000, 50, 120], [50, 90_000, 80_000]):
        table = pd.DataFrame({"video_id": [*map(str, range(len(frames)))], "lab_id": "A", "group": range(len(frames)),
                              "frames": frames, "seconds": 33.0, "frames_sniff": pd.array(frames, "Int64")})
        for seed in range(9):
            learn, judge = holdout(table, 0.2, seed)
            shown = describe(table, (learn, judge)).frames
            assert {*learn, *judge} == {*table.video_id} and shown["valid"] < shown["train"]


# Hashes

@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.randoms())
def test_codes_ignore_names_orders_and_padding(seed, random):
    rec = make_recording(seed, 120, 3, messy=True)
    mice, parts = [0, 1, 2], list(range(7))
    random.shuffle(mice), random.shuffle(parts)
    xy = rec.xy[:, mice][:, :, parts]
    xy = np.concatenate([np.full_like(xy[:3], np.nan), xy])
    same = rec.replace(xy=xy, parts=tuple(rec.parts[i] for i in parts), fps=99.0,
                       video_id="x", lab_id="y", labelled=None)
    assert np.array_equal(frame_codes(same)[0], frame_codes(rec)[0])
    moved = rec.xy.copy()
    moved[random.randrange(120), 1, 2] += 3
    if np.array_equal(moved, rec.xy, equal_nan=True): return
    assert not np.array_equal(frame_codes(rec.replace(xy=moved))[0], frame_codes(rec)[0])


def test_extreme_numbers_do_not_break_the_hash():
    xy = make_recording(frames=50).xy.copy()
    xy[0], xy[1], xy[2] = np.inf, -3e38, 3e38
    rec = Recording(xy, ("mouse1", "mouse2"), tuple("abcdefg"), 30)
    assert [len(a) for a in frame_codes(rec)] == [49, 49]


def test_videos_without_poses_share_nothing():
    nothing = np.full((10, 2, 7, 2), np.nan, np.float32)
    empty = [make_recording(frames=10).replace(xy=nothing, video_id=str(i))
             for i in range(3)]
    empty.append(make_recording(frames=1).replace(
        xy=np.empty((0, 2, 7, 2), np.float32), video_id="none"))
    assert groups(empty).group.nunique() == 4


def test_a_piece_of_a_video_is_found_and_chains_connect():
    long = make_recording(1, 3000)
    piece = lambda i, a, b: long.replace(xy=long.xy[a:b], video_id=i)
    table = groups([piece("a", 0, 1200), piece("b", 900, 2200), piece("c", 1900, 3000),
                    make_recording(2, 1000, video_id="d")])
    assert table.group.tolist() == [0, 0, 0, 1]


def test_a_frozen_tracker_connects_nothing():
    stills = (make_recording(k, 1) for k in range(1000))
    still = next(r for r in stills if len(pose_hashes(r)) == 2)
    still = still.xy.repeat(600, 0) # A pose that would be a mark if it came once
    recs = [make_recording(k, 600, video_id=str(k)) for k in (1, 2)]
    recs = [r.replace(xy=np.concatenate([r.xy, still])) for r in recs]
    assert groups(recs).group.nunique() == 2


def test_one_point_that_comes_by_a_place_of_another_video_connects_nothing():
    "Centres alone, as EthoVision tracks them, in pixels, metres and inches."
    def video(seed, unit):
        steps = np.random.default_rng(seed).normal(0, 3, (9000, 1, 1, 2)).cumsum(0)
        return Recording((abs((steps + 200) % 800 - 400) * unit).astype(np.float32), ("rat",),
                         ("centre",), 30.0, video_id=str(seed))
    for unit in (1, 0.001, 0.0254):
        recs = [video(k, unit) for k in range(12)]
        half = recs[3].replace(xy=np.concatenate([recs[3].xy[4500:], video(99, unit).xy]),
                               video_id="half", px_per_cm=None)
        assert groups([*recs, half]).group.tolist() == [*range(12), 3]


@pytest.mark.parametrize("mice, parts", [(1, 1), (2, 1), (1, 3), (2, 2), (2, 7)])
def test_a_copy_of_fewer_frames_a_second_is_found(mice, parts):
    "Of few points several frames count together, and in a copy others came after them."
    def video(seed):
        steps = np.random.default_rng(seed).normal(0, 3, (9000, mice, parts, 2)).cumsum(0)
        return Recording(abs((steps + 200) % 800 - 400).astype(np.float32), tuple("ab"[:mice]),
                         tuple("hijklmn"[:parts]), 30.0, video_id=str(seed))
    recs = [video(k) for k in range(8)]
    thin = lambda i, k, first=0: recs[i].replace(xy=recs[i].xy[first::k], fps=30 / k, video_id=f"{i} by {k}")
    copies = [thin(0, 2), thin(0, 3, 1), thin(1, 5, 4), thin(2, 6), thin(3, 10)]
    assert groups([*recs, *copies]).group.tolist() == [*range(8), 0, 0, 1, 2, 3]
    assert groups(copies[:2]).group.tolist() == [0, 0]


@pytest.mark.parametrize("mice, parts", [(1, 1), (2, 7)])
def test_a_copy_elsewhere_in_the_picture_is_found(mice, parts):
    "Shifted, turned, mirrored, in centimetres, rounded, cut: each was a group of its own."
    def video(seed):
        steps = np.random.default_rng(seed).normal(0, 3, (9000, mice, parts, 2)).cumsum(0)
        return Recording(abs((steps + 200) % 800 - 400).astype(np.float32), tuple("ab"[:mice]),
                         tuple("hijklmn"[:parts]), 30.0, video_id=str(seed))
    recs = [video(k) for k in range(8)]
    copy = lambda i, name, of: recs[i].replace(xy=of(recs[i].xy).astype(np.float32), video_id=name)
    turn = np.array([[0.8, 0.6], [-0.6, 0.8]])
    copies = [copy(0, "shifted", lambda xy: xy + [7.3, -31]), copy(1, "turned", lambda xy: xy @ turn),
              copy(2, "mirrored", lambda xy: xy * [-1, 1] + [400, 0]), copy(3, "cm", lambda xy: xy / 17.3),
              copy(4, "rounded", lambda xy: (xy * 0.63).round(1)), copy(5, "cut", lambda xy: xy[3000:4500] + 9)]
    assert groups([*recs, *copies]).group.tolist() == [*range(8), *range(6)]
    holes = recs[0].xy.copy()
    holes[np.random.default_rng(0).random(holes.shape[:-1]) < 0.3] = np.nan
    lost = recs[0].replace(xy=holes, video_id="lost"), recs[0].replace(xy=holes * 3, video_id="large")
    assert groups([*recs[1:], *lost]).group.tolist() == [*range(7), 7, 7]


def test_points_that_are_lost_at_the_same_place_connect_nothing():
    "As trackers write those that they do not see, before the animal comes back at a door."
    def video(seed):
        rng = np.random.default_rng(seed)
        seen = np.round(abs((rng.normal(0, 3, (40, 200, 1, 1, 2)).cumsum(1) + 200) % 400 - 200))
        seen[:, 100:] = 1000
        return Recording(seen.reshape(-1, 1, 1, 2).astype(np.float32), ("rat",), ("centre",), 30.0,
                         video_id=str(seed))
    assert groups([video(k) for k in range(12)]).group.nunique() == 12


# Datasets

def test_groups_reads_datasets_and_lists_alike(tmp_path):
    dataset = read_kaggle(write_colony(tmp_path/"c", videos=6, minutes=0.1))
    table = groups(dataset)
    pd.testing.assert_frame_equal(table, groups(list(dataset), progress=True))
    some = groups(dataset, ids=["5", "2"])
    assert some.video_id.tolist() == ["5", "2"]
    assert set(groups(iter(dataset), ids=["5", "2"]).video_id) == {"2", "5"}
    assert table.frames_rear.isna().tolist() == [True, False, False, True, False, True]


@pytest.mark.parametrize("call", [
    lambda t: holdout(t, 0), lambda t: holdout(t, 1), lambda t: holdout(t, np.nan),
    lambda t: holdout(t[:1]), lambda t: leave_one_lab_out(t[:1]),
    lambda t: check_no_leak(t, ["1"], ["1"]), lambda t: check_no_leak(t, ["no"], ["1"]),
    lambda t: describe(t, (["1"], ["1"])), lambda t: groups([])])
def test_bad_arguments(call):
    table = groups(colony_video(k, 0.1) for k in range(4))
    with pytest.raises(MabeError) as e: call(table)
    assert "\n" not in str(e.value)


def test_the_same_id_twice_is_named():
    with pytest.raises(DataError, match="video 3"):
        groups([colony_video(2, 0.1), colony_video(2, 0.1)])


# Real data

@pytest.fixture(scope="module")
def both():
    return groups([*read_kaggle(DATA/"rats"), *read_kaggle(DATA/"rat_fights")])


@pytest.mark.slow
@real
def test_tracks_that_lie_in_two_datasets_are_found(both):
    assert len(both) == 92 and both.group.nunique() == 46
    assert (both.group[:46].to_numpy() == both.group[46:].to_numpy()).all()
    with pytest.raises(DataError, match="shares poses with video 7 in training"):
        check_no_leak(both, ["7", "1008"], ["1007"])


@real
def test_splits_of_both_do_not_leak_where_a_split_by_id_does(both):
    for split in (holdout(both, seed=seed) for seed in range(5)):
        check_no_leak(both, *split)
        assert {i[-2:].lstrip("0") for i in split.train}.isdisjoint(
            i[-2:].lstrip("0") for i in split.valid)
    ids = list(both.video_id)
    np.random.default_rng(0).shuffle(ids)
    with pytest.raises(DataError): check_no_leak(both, ids[18:], ids[:18])
    with pytest.raises(DataError, match="RatFight"): leave_one_lab_out(both)


@real
def test_actions_of_the_real_data_are_on_both_sides(both):
    shown = describe(both, holdout(both), by_lab=True)
    actions = [c for c in both if c.startswith("frames_")]
    present = both.groupby(["lab_id", "group"])[actions].sum()
    for lab in ("RatSocial", "RatFight"):
        for action, n in (present.loc[lab] > 0).sum().items():
            if n >= 2: assert (shown.loc[lab][action[7:]] > 0).all(), (lab, action)
    assert 0.12 < shown.frames.xs("valid", level="part").sum() / both.frames.sum() < 0.3


@pytest.mark.parametrize("kind", ["kaggle", "trackers"])
def test_a_split_reads_only_labelled_videos(tmp_path, monkeypatch, kind):
    from mabe_nb.data import kaggle
    from mabe_nb.data.folder import tracker_folder
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.data.splits import choose_videos
    if kind == "kaggle":
        dataset = read_kaggle(write_colony(tmp_path/"c", videos=12, minutes=0.1))
        for i in dataset.ids[4:]: dataset.file(i, "annotation").unlink(missing_ok=True)
        module, name = kaggle, "read_kaggle_video"
    else:
        for i in range(12):
            rec = make_recording(i, 90, parts=("nose", "neck", "tail_base"))
            np.savetxt(tmp_path/f"v{i:02}.ours", rec.xy.reshape(90, -1))
            if i < 4: (tmp_path/f"v{i:02}.boris.csv").write_text(
                "Time,FPS,Subject,Behavior,Behavior type\n0,30,mouse1,sniff,POINT")
        (tmp_path/"dataset.yaml").write_text("fps: 30\nalone: []")
        monkeypatch.setitem(TRACKERS, "Ours", Tracker(
            (".ours",), lambda path: True, lambda path: Points(
                np.loadtxt(path).reshape(-1, 2, 3, 2), None, ["mouse1", "mouse2"],
                ["nose", "neck", "tail_base"])))
        dataset, module, name = open_dataset(tmp_path), tracker_folder, "read_poses"
    read, reads = getattr(module, name), []
    monkeypatch.setattr(module, name, lambda *a, **k: reads.append(1) or read(*a, **k))
    assert len(labelled_groups(dataset)) == len(reads) == 4 and len(dataset) == 12
    before, split = groups(dataset), choose_videos(dataset, TrainConfig())
    assert len(reads) == 4 + 12 + 4 and sum(map(len, split)) == 4
    same = before[before.video_id.isin(labelled_groups(dataset).video_id)]
    pd.testing.assert_frame_equal(same.dropna(axis=1), labelled_groups(dataset).dropna(
        axis=1), check_dtype=False)
    assert not len(labelled_groups(dataset, dataset.ids[4:]))
    with pytest.raises(DataError, match="and has none; mabe audit tells which"):
        choose_videos(dataset, TrainConfig(), dataset.ids[4:])


def test_a_video_whose_labelled_animals_are_not_tracked_is_told(tmp_path):
    write_colony(tmp_path, videos=2, minutes=0.1)
    table = pd.read_csv(tmp_path/"train.csv", dtype={"video_id": str})
    table.loc[0, "behaviors_labeled"] = '["mouse1,mouse3,sniff"]'
    table.to_csv(tmp_path/"train.csv", index=False)
    lost, kept = table.video_id
    path, = (tmp_path/"train_annotation").rglob(f"{lost}.parquet")
    pd.read_parquet(path).assign(agent_id=1, target_id=3).to_parquet(path)
    with pytest.warns(UserWarning, match=f"video {lost} is left out: labelled are mouse1 to mouse3"):
        assert labelled_groups(read_kaggle(tmp_path)).video_id.tolist() == [kept]


def test_annotated_videos_without_a_list_of_actions_are_told_once(tmp_path):
    recs = [make_recording(k, 60, video_id=f"v{k}") for k in range(9)]
    write_kaggle(recs, tmp_path)
    table = pd.read_csv(tmp_path/"train.csv")
    table["behaviors_labeled"] = [*table.behaviors_labeled[:2], "[]", "[7]", *[None] * 5]
    table.to_csv(tmp_path/"train.csv", index=False)
    with pytest.warns(UserWarning) as said:
        assert labelled_groups(read_kaggle(tmp_path)).video_id.tolist() == ["v0", "v1"]
        assert len(said) == 1
    for words in ("7 annotated videos", "(v2, v3, v4, v5, v6 and 2 more)", "train.csv: behaviors_labeled"):
        assert words in str(said[0].message)
    with pytest.warns(UserWarning, match="1 annotated video without"):
        assert labelled_groups([recs[0].replace(labelled=frozenset())]).empty


def test_a_recipe_learns_nothing_from_poses_that_are_kept_back(tmp_path, capsys):
    recs = [make_recording(frames=60, seed=k, video_id=str(k)) for k in range(1, 4)]
    mb.write_kaggle([*recs, recs[0].replace(video_id="9")], tmp_path/"lab")
    with pytest.raises(DataError, match="2 group"):
        mb.fit(tmp_path/"lab", tmp_path/"run", recipe="quick", valid_videos=["9"], folds=99)
    assert "left out: video 1, of the same poses" in capsys.readouterr().out
    words = ["train", str(tmp_path/"lab"), "--recipe", "quick", "--folds", "99", "--out"]
    assert main([*words, str(tmp_path/"run"), "--valid-videos", "9"]) == 2
    assert "2 group" in capsys.readouterr().err
    with pytest.raises(DataError, match="it shares poses with video 1 in training"):
        mb.fit(tmp_path/"lab", tmp_path/"run", recipe="quick", train_videos=["1", "2"],
               valid_videos=["9"], folds=2)


def test_frames_of_an_action_are_those_where_somebody_looked():
    pair = ("mouse1", "mouse2", "sniff")
    rec = make_recording(0, 300, video_id="v").replace(labelled=frozenset([pair]), bouts=bout_table(
        [(*pair, 10, 60), (*pair, 100, 150)]))
    def frames(**how): return groups([rec.replace(**how)]).frames_sniff[0]
    assert frames() == 100 and frames(scored=(30, 120)) == 30 + 20
    assert frames(reviewed=((*pair, 0, 20), (*pair, 50, 90))) == 10 + 10
    assert frames(scored=(60, 100)) == 0

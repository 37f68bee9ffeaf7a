"Synthetic colonies: exact layouts, exact seeds, honest errors, learnable behaviour."
import errno, json, os, shutil, subprocess, sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from mabe_nb.data.colony.acts import SOCIAL, simulate
from mabe_nb.data.calms21 import read_calms21
from mabe_nb.data.colony.recording import PARTS, all_labels, keypoints, make_recording
from mabe_nb.data.kaggle import read_kaggle
from mabe_nb.data.recording import bout_table, frame_labels
from mabe_nb.data.formats.kaggle.write import (COLUMNS, annotation_table,
                                               tracking_table)
from mabe_nb.data.synthetic import LABS, colony_video, write_colony
from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.files import file_hash

quick = settings(max_examples=15, deadline=None)


def hashes(root):
    return {p.relative_to(root).as_posix(): file_hash(p)
            for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def kaggle(tmp_path_factory):
    return write_colony(tmp_path_factory.mktemp("a")/"colony")


@pytest.fixture(scope="module")
def calms(tmp_path_factory):
    return write_colony(tmp_path_factory.mktemp("b")/"colony", "calms21", videos=3)


def test_of_two_who_write_to_one_folder_one_is_refused(tmp_path):
    def write(seed):
        try: return hashes(write_colony(tmp_path/"colony", videos=1, minutes=0.1, seed=seed))
        except DataError as e: return str(e)
    with ThreadPoolExecutor(2) as both: told = [*both.map(write, (0, 1))]
    (kept,), (words,) = ([t for t in told if isinstance(t, kind)] for kind in (dict, str))
    assert hashes(tmp_path/"colony") == kept and ("is being written by" in words or "holds a colony" in words)
    assert [p.name for p in tmp_path.iterdir()] == ["colony"]


# Layout

def test_kaggle_tables_have_the_columns_of_the_competition(kaggle):
    train, test = (pd.read_csv(kaggle/f"{s}.csv") for s in ("train", "test"))
    assert list(train) == list(test) == COLUMNS and len(COLUMNS) == 38
    assert len(train) == 12 and len(test) == 2
    tracking = pd.read_parquet(next((kaggle/"train_tracking").rglob("*.parquet")))
    assert list(tracking) == ["video_frame", "mouse_id", "bodypart", "x", "y"]
    marked = pd.read_parquet(next((kaggle/"train_annotation").rglob("*.parquet")))
    assert list(marked) == ["agent_id", "target_id", "action", "start_frame",
                            "stop_frame"]
    sample = pd.read_csv(kaggle/"sample_submission.csv")
    assert list(sample) == ["row_id", "video_id", "agent_id", "target_id", "action",
                            "start_frame", "stop_frame"]
    assert not (kaggle/"test_annotation").exists()


def test_one_video_of_twelve_is_not_annotated(kaggle):
    train = pd.read_csv(kaggle/"train.csv")
    unmarked = train[train.behaviors_labeled.isna()]
    assert unmarked.video_id.tolist() == [6]
    files = {int(p.stem) for p in (kaggle/"train_annotation").rglob("*.parquet")}
    assert files == set(train.video_id) - {6}


def test_promised_defects_are_there(kaggle):
    train = pd.read_csv(kaggle/"train.csv").set_index("lab_id")
    assert train.loc["CopperLynx"].pix_per_cm_approx.isna().all()
    assert train.loc["AmberOtter"].pix_per_cm_approx.notna().all()
    assert "'" in train.loc["CopperLynx"].behaviors_labeled.iloc[0]
    assert sorted(train.frames_per_second.unique()) == [25, 30, 50]
    heron = pd.read_parquet(kaggle/"train_tracking/BrightHeron/2.parquet")
    otter = pd.read_parquet(kaggle/"train_tracking/AmberOtter/1.parquet")
    assert ((heron.x == 0) & (heron.y == 0)).sum() > 100
    assert not ((otter.x == 0) & (otter.y == 0)).any()
    assert len(otter) < otter.video_frame.nunique() * 14 # Absent rows
    assert (np.diff(otter.video_frame.unique()) > 1).any() # Frame gaps
    assert set(heron.mouse_id) == {1, 2, 3}


def test_every_lab_marks_every_action_of_its_whitelist(kaggle):
    seen, asked = set(), set()
    for rec in read_kaggle(kaggle):
        asked |= {(rec.lab_id, a) for *_, a in rec.labelled or ()}
        seen |= {(rec.lab_id, a) for a in rec.bouts.action}
    assert seen == asked


def test_most_videos_hold_several_bouts_of_each_action():
    recs = [colony_video(k) for k in range(12)]
    few = [(rec.video_id, action) for rec in recs for action in
           {t[2] for t in rec.labelled} if (rec.bouts.action == action).sum() < 2]
    assert len(few) <= 3, few # Of about 40


def test_kaggle_reader_returns_what_was_simulated(tmp_path):
    root = write_colony(tmp_path/"c", videos=6, minutes=0.3, messy=False)
    for k, rec in enumerate(read_kaggle(root)):
        want = colony_video(k, 0.3, messy=False)
        assert rec.xy.tobytes() == want.xy.tobytes() and rec.parts == want.parts
        assert rec.bouts.equals(want.bouts) and rec.labelled == want.labelled
        assert rec.fps == want.fps and rec.px_per_cm == want.px_per_cm
        assert not rec.findings
    test = read_kaggle(root, split="test")
    assert test.ids == ("7",) and len(test["7"])


def test_calms21_structure(calms):
    train, test = (json.loads((calms/f"calms21_task1_{s}.json").read_text())
                   for s in ("train", "test"))
    assert list(train) == ["annotator-id_0"] and len(train["annotator-id_0"]) == 3
    assert not set(train["annotator-id_0"]) & set(test["annotator-id_0"])
    for seq in train["annotator-id_0"].values():
        assert np.shape(seq["keypoints"]) == (1800, 2, 2, 7)
        assert np.shape(seq["scores"]) == (1800, 2, 7)
        assert set(seq["annotations"]) == {0, 1, 2, 3}
        assert seq["metadata"]["vocab"] == {"attack": 0, "investigation": 1, "mount": 2,
                                            "other": 3}


def test_calms21_reader_reads_it(calms):
    recs = read_calms21(calms/"calms21_task1_train.json")
    assert len(recs) == 3 and recs[0].xy.shape == (1800, 2, 7, 2)
    data = json.loads((calms/"calms21_task1_train.json").read_text())
    first = next(iter(data["annotator-id_0"].values()))
    nose = recs[0].xy[0, 0, recs[0].parts.index("nose")]
    assert nose == pytest.approx([first["keypoints"][0][0][0][0],
                                  first["keypoints"][0][0][1][0]])


# Seeds

@pytest.mark.parametrize("layout", ["kaggle", "calms21"])
def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path, layout):
    make = lambda name, seed: hashes(write_colony(tmp_path/name, layout, 3, 0.1, seed))
    assert make("a", 5) == make("b", 5)
    poses = lambda h: {v for k, v in h.items() if "tracking" in k or "calms21" in k}
    assert not poses(make("c", 6)) & poses(make("d", 5))


def test_a_larger_colony_begins_with_the_smaller(tmp_path):
    small = hashes(write_colony(tmp_path/"a", videos=3, minutes=0.1))
    large = hashes(write_colony(tmp_path/"b", videos=7, minutes=0.1))
    same = {k for k in small if k.startswith("train_") and small[k] == large[k]}
    assert len(same) == 6


@quick
@given(st.integers(0, 2**40), st.integers(1, 200), st.integers(1, 4),
       st.sampled_from(sorted(PARTS)), st.floats(1, 120), st.booleans())
def test_recordings_keep_the_contract(seed, frames, mice, parts, fps, messy):
    rec = make_recording(seed, frames, mice, parts, fps, messy=messy)
    assert rec.xy.shape == (frames, mice, len(PARTS[parts]), 2)
    assert rec.xy.dtype == np.float32 and rec.labelled == all_labels(mice)
    b = rec.bouts
    assert (b.start >= 0).all() and (b.stop <= frames).all()
    assert (b.start < b.stop).all()
    assert set(zip(b.agent, b.target, b.action)) <= rec.labelled
    assert messy or np.isfinite(rec.xy).all()
    again = make_recording(seed, frames, mice, parts, fps, messy=messy)
    assert rec.xy.tobytes() == again.xy.tobytes() and b.equals(again.bouts)


@quick
@given(st.integers(0, 10**6), st.booleans())
def test_bouts_of_one_pair_never_overlap(seed, messy):
    rec = make_recording(seed, 900, 3, messy=messy)
    for _, mine in rec.bouts.groupby(["agent", "target"]):
        assert (mine.start.to_numpy()[1:] >= mine.stop.to_numpy()[:-1]).all()


def test_tables_of_an_empty_recording():
    rec = make_recording(frames=1)
    assert len(annotation_table(rec)) == 0 and len(tracking_table(rec)) == 14
    gone = rec.replace(xy=np.full_like(rec.xy, np.nan))
    assert len(tracking_table(gone)) == len(tracking_table(gone, zeros=True)) == 2 # animals


# Behaviour follows from the poses

def test_each_act_has_its_signature():
    mean = {a: [] for a in (*SOCIAL, "rear")}
    for seed in range(6):
        rec = make_recording(seed, 1800)
        xy, nose, tail = rec.xy / 16, *map(rec.parts.index, ("nose", "tail_base"))
        near = np.linalg.norm(xy[:, :1, nose] - xy[:, 1:, nose], axis=-1)[:, 0]
        pace = np.linalg.norm(np.diff(xy.mean(2), axis=0, prepend=xy[:1].mean(2)),
                              axis=-1) * 30
        long = np.linalg.norm(xy[:, :, nose] - xy[:, :, tail], axis=-1)
        for a, t, x, start, stop in rec.bouts.itertuples(index=False):
            i = rec.mice.index(a)
            mean[x].append((near[start:stop].mean(), pace[start:stop, i].mean(),
                            long[start:stop, i].mean()))
    near, pace, long = np.array([np.mean(mean[a], 0) for a in (*SOCIAL, "rear")]).T
    at = {a: i for i, a in enumerate((*SOCIAL, "rear"))}
    assert pace[at["chase"]] > 12 and pace[at["chase"]] > 2 * pace[at["sniff"]]
    assert pace[at["attack"]] > 2 * pace[at["mount"]]
    assert near[at["mount"]] < near[at["attack"]] < near[at["chase"]]
    assert long[at["rear"]] < 0.8 * long[at["chase"]]


def test_a_small_classifier_learns_it():
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import f1_score
    def table(k):
        rec = make_recording([3, k], 1800, messy=True)
        at = {p: rec.xy[:, :, i] / 16 for i, p in enumerate(rec.parts)}
        far = lambda p, q: np.linalg.norm(at[p][:, 0] - at[q][:, 1], axis=-1)
        neck = at["neck"]
        step = np.linalg.norm(np.diff(neck, axis=0, prepend=neck[:1]), axis=-1)
        x = pd.DataFrame(np.column_stack([far("nose", "nose"), far("nose", "tail_base"),
                                          far("tail_base", "nose"), step]))
        x = x.rolling(15, center=True, min_periods=1).mean().fillna(99)
        y = frame_labels(rec, "mouse1", "mouse2", SOCIAL)
        return x, np.where(y.any(1), y.argmax(1), -1)
    data = [table(k) for k in range(10)]
    x, y = (np.concatenate([d[i] for d in data[:7]]) for i in (0, 1))
    x_new, y_new = (np.concatenate([d[i] for d in data[7:]]) for i in (0, 1))
    forest = RandomForestClassifier(30, min_samples_leaf=5, random_state=0).fit(x, y)
    score = lambda p: f1_score(y_new, p, labels=range(5), average=None)
    f1 = score(forest.predict(x_new))
    chance = score(np.random.default_rng(0).permutation(y_new))
    assert (f1 > chance + 0.15).all() and 0.5 < f1.mean() < 0.95, f1


def test_mice_stay_in_the_arena_and_move_like_mice():
    state, _ = simulate(np.random.default_rng(4), 3000, 50, 3)
    assert np.abs(state[..., :2]).max() <= 18
    assert np.linalg.norm(np.diff(state[..., :2], axis=0), axis=-1).max() * 50 < 60
    assert np.isfinite(keypoints(state, PARTS["B7"])).all()


# Faults

@pytest.mark.parametrize("bad", [
    dict(layout="kagle"), dict(layout=None), dict(videos=0), dict(videos=-1),
    dict(videos=10**9), dict(videos=1.5), dict(videos="3"), dict(minutes=0),
    dict(minutes=float("nan")), dict(minutes=float("inf")), dict(minutes=1e9),
    dict(minutes="one"), dict(seed=-1), dict(seed=0.5), dict(seed=None)])
def test_bad_arguments(tmp_path, bad):
    with pytest.raises(ConfigError) as e: write_colony(tmp_path/"no", **bad)
    assert next(iter(bad)) in str(e.value) and "\n" not in str(e.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path/"thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(DataError, match="no colony"):
            write_colony(tmp_path, videos=1, minutes=0.05, overwrite=overwrite)
    assert (tmp_path/"thesis.txt").read_text() == "mine"


def test_a_dataset_that_is_no_colony_is_left_alone(tmp_path):
    (tmp_path/"train.csv").write_text("real data")
    with pytest.raises(DataError, match="no colony"):
        write_colony(tmp_path, videos=1, minutes=0.05, overwrite=True)
    assert (tmp_path/"train.csv").read_text() == "real data"


def test_overwrite_replaces_a_colony_and_only_when_asked(tmp_path):
    root = write_colony(tmp_path/"c", videos=2, minutes=0.05)
    before = hashes(root)
    with pytest.raises(DataError, match="holds a colony"): write_colony(root, videos=1)
    assert hashes(root) == before
    write_colony(root, layout="calms21", videos=1, minutes=0.05, overwrite=True)
    assert {p.name for p in root.iterdir()} == {
        "README.txt", "calms21_task1_train.json", "calms21_task1_test.json"}


def test_a_file_in_the_way(tmp_path):
    (tmp_path/"c").write_text("x")
    with pytest.raises(DataError, match="is a file"): write_colony(tmp_path/"c")
    with pytest.raises(MabeError): write_colony(tmp_path/"c"/"d", minutes=0.05)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left")])
@pytest.mark.parametrize("layout", ["kaggle", "calms21"])
def test_an_interrupted_colony_leaves_nothing(tmp_path, monkeypatch, layout, error):
    from mabe_nb.data import synthetic
    done = []
    def make(*args):
        done.append(1)
        if len(done) > 3: raise error
        return make_recording(*args)
    monkeypatch.setattr(synthetic, "make_recording", make)
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else DataError):
        write_colony(tmp_path/"c", layout, minutes=0.05)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_asks_for_room(tmp_path, monkeypatch):
    def full(*args): raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("mabe_nb.data.synthetic.make_recording", full)
    with pytest.raises(DataError, match="c: no space is left on the disk; free some"): write_colony(tmp_path/"c")


@pytest.mark.skipif(os.name == "nt" or not (os.geteuid() or shutil.which("setpriv")), reason="needs setpriv")
def test_a_folder_that_cannot_be_written_is_told_by_the_name_that_was_given(tmp_path):
    "Not by that of a file in it which was never to stay."
    drop = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-all"]
    words = f"from mabe_nb.data.synthetic import *; write_colony({str(tmp_path/'c')!r})"
    tmp_path.chmod(0o500)
    done = subprocess.run([*drop, sys.executable, "-c", words], capture_output=True, text=True, check=False)
    tmp_path.chmod(0o700)
    assert f"{tmp_path/'c'}: cannot be written: Permission denied" in done.stderr


def test_labs_are_told_apart():
    assert len({lab.fps for lab in LABS}) == len({lab.parts for lab in LABS}) == 3


def test_any_recordings_survive_the_layout_of_kaggle(tmp_path):
    from mabe_nb.data.formats.kaggle.write import write_kaggle
    recs = [make_recording(k, 300, mice=3, messy=True, video_id=f"v{k}") for k in range(2)]
    recs.append(recs[0].replace(video_id="blank", labelled=None, px_per_cm=None))
    write_kaggle(recs, tmp_path)
    write_kaggle(recs, tmp_path, "test")
    back, hidden = read_kaggle(tmp_path), read_kaggle(tmp_path, "test")
    for rec in recs:
        got = back[rec.video_id]
        assert np.array_equal(got.xy, rec.xy, equal_nan=True) and got.parts == rec.parts
        assert got.labelled == rec.labelled and got.px_per_cm == rec.px_per_cm
        assert rec.labelled is None or got.bouts.equals(rec.bouts)
    assert hidden.labelled("v0") == recs[0].labelled and not len(hidden.annotations("v0"))
    with pytest.raises(DataError, match="is there already"): write_kaggle(recs, tmp_path)


@pytest.mark.parametrize("fault", [dict(mice=tuple("abcde")), dict(video_id="../x")])
def test_a_folder_of_kaggle_is_written_whole_or_not_at_all(tmp_path, fault):
    from mabe_nb.data.formats.kaggle.write import write_kaggle
    good = make_recording(0, 90, mice=2, video_id="good")
    xy = np.repeat(good.xy, 3, 1)[:, :len(fault.get("mice", good.mice))]
    bad = good.replace(**{"video_id": "bad", "xy": xy} | fault)
    (tmp_path/"mine").mkdir()
    (tmp_path/"mine"/"notes.txt").write_text("stay")
    for root in (tmp_path/"new"/"folder", tmp_path/"mine"):
        with pytest.raises(DataError): write_kaggle(iter([good, bad]), root)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["notes.txt"]
    assert not (tmp_path/"new"/"folder").exists() and not [*(tmp_path/"mine").glob(".*")]
    (tmp_path/"mine"/"train_tracking").mkdir()
    with pytest.raises(DataError, match="train_tracking.*is there already"):
        write_kaggle([good], tmp_path/"mine")


@pytest.mark.parametrize("gone", [np.s_[-20:], np.s_[:20], np.s_[:, 1], np.s_[:, 0], np.s_[:]])
def test_videos_keep_their_length_and_animals_without_points(tmp_path, gone):
    from mabe_nb.data.formats.kaggle.write import write_kaggle
    rec = make_recording(frames=100, seed=1, video_id="1")
    xy = rec.xy.copy()
    xy[gone] = np.nan
    bouts = bout_table([(*rec.mice, "chase", 70, 100), (rec.mice[1], rec.mice[1], "rear", 0, 9)])
    rec = rec.replace(xy=xy, bouts=bouts, labelled=frozenset(bouts.iloc[:, :3].itertuples(
        index=False, name=None)))
    for zeros in ((), (rec.lab_id,)):
        write_kaggle([rec], tmp_path/str(len(zeros)), zeros=zeros)
        again = read_kaggle(tmp_path/str(len(zeros)))["1"]
        assert again.mice == rec.mice and np.array_equal(again.xy, xy, equal_nan=True)
        assert again.bouts.equals(bouts) and again.labelled == rec.labelled

"The prepared cache: the same bytes however it came about, and nothing done twice."
import importlib
import linecache
import shutil
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
import psutil
import pytest
from filelock import FileLock
from seed_files import Folder
from waiting import until

import mabe_nb
import mabe_nb.data.cache.arrays as arrays_module
import mabe_nb.data.cache.prepare as prepare_module
from mabe_nb.cli import main
from mabe_nb.data.blocks.registry import BLOCKS, code_version
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.cache.prepare import DataError, default_folder, plan_for, prepare
from mabe_nb.data.cache.shard import prepare_shard
from mabe_nb.data.cache.reader import open_prepared
from mabe_nb.data.cache.disk_use import clear_caches, list_caches
from mabe_nb.data.dataset import RecordingList, dataset_parts, open_dataset
from mabe_nb.data.features import compute
from mabe_nb.data.recording import bout_table, frame_labels, pairs
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, MabeError
from mabe_nb.files import read_json, write_json
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.inputs import fit_inputs


@pytest.fixture
def folder(tmp_path):
    root = tmp_path/"data"
    root.mkdir()
    for i in range(6): (root/f"v{i}.txt").write_text(str(i))
    return root


def run(root, out, features="coords", **settings):
    return prepare(Folder(root), features, out, progress=False, **settings)


def content(out):
    return {p.relative_to(out).as_posix(): p.read_bytes()
            for p in sorted(Path(out).rglob("*")) if p.is_file()}


def times(out):
    "Of videos that are whole; a folder with a dot is being written."
    return {p.parent.name: p.stat().st_mtime_ns for p in out.glob("*/*/video.json")
            if p.parent.name[0] != "."}


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from mabe_nb.data.cache.prepare import prepare
from seed_files import Folder
from waiting import until
if __name__ == "__main__":
    prepare(Folder({root!r}, delay=.3), "coords", {out!r}, workers={workers},
            progress=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_same_bytes_whatever_happened(folder, tmp_path, workers):
    "Killed in the middle and resumed, or with workers: equal to an uninterrupted run."
    run(folder, tmp_path/"plain")
    script = tmp_path/"killed.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent), root=str(folder),
                                    out=str(tmp_path/"killed"), workers=workers))
    with subprocess.Popen([sys.executable, script]) as p:
        while not times(tmp_path/"killed") and p.poll() is None: time.sleep(0.01)
        helpers = psutil.Process(p.pid).children(recursive=True)
        p.kill()
    _, alive = psutil.wait_procs(helpers, timeout=10)
    assert not alive, "workers outlive their parent"
    before = times(tmp_path/"killed")
    assert 0 < len(before) < 6
    assert not (tmp_path/"killed"/"manifest.json").exists()
    with pytest.raises(DataError, match="run mabe prepare first"):
        open_prepared(tmp_path/"killed")
    leftover = tmp_path/"killed"/"Lab0"/".mabe-0123abcd-v0.tmp"
    leftover.mkdir(parents=True)
    (leftover/"mouse1-mouse2.npy").write_bytes(b"half")
    run(folder, tmp_path/"killed", workers=workers)
    after = times(tmp_path/"killed")
    assert {i: after[i] for i in before} == before, "a whole video was done again"
    assert content(tmp_path/"killed") == content(tmp_path/"plain")


def test_other_parts_are_prepared_anew(folder, tmp_path):
    "In the same folder: the cache knows of which body parts its channels are made."
    out, parts = tmp_path/"out", dataset_parts(Folder(folder))
    whole, before = run(folder, out), times(out)
    few = run(folder, out, parts=parts[:3])
    assert all(times(out)[i] != before[i] for i in before)
    assert len(few.names) < len(whole.names) and tuple(few.parts) == parts[:3]
    run(folder, tmp_path/"fresh", parts=parts[:3])
    assert content(out) == content(tmp_path/"fresh")


def test_no_paths_or_times_inside(folder, tmp_path):
    run(folder, tmp_path/"a")
    time.sleep(0.01)
    run(folder, tmp_path/"b")
    assert content(tmp_path/"a") == content(tmp_path/"b")
    assert not any(str(tmp_path).encode() in data
                   for data in content(tmp_path/"a").values())


def test_only_what_changed_is_redone(folder, tmp_path):
    out = tmp_path/"out"
    run(folder, out)
    before = times(out)
    (folder/"v3.txt").write_text("40")  # other poses, and another lab
    (folder/"v5.txt").unlink()
    (out/"Lab1"/"notes.txt").write_text("mine")
    done = run(folder, out)
    after = times(out)
    assert {i for i in after if after[i] == before[i]} == {"v0", "v1", "v2", "v4"}
    assert set(done.sequences.video_id) == {"v0", "v1", "v2", "v3", "v4"}
    assert (out/"Lab0"/"v3").exists() and not (out/"Lab1"/"v3").exists()
    assert (out/"Lab1"/"notes.txt").read_text() == "mine"
    (out/"Lab1"/"notes.txt").unlink()
    run(folder, tmp_path/"fresh")
    assert content(out) == content(tmp_path/"fresh")


def test_changed_setting(folder, tmp_path):
    out = tmp_path/"out"
    full = run(folder, out)
    before = times(out)
    run(folder, out, parts=full.parts)
    assert times(out) == before
    run(folder, out, features="kaggle288")
    assert not set(before.values()) & set(times(out).values())


@pytest.mark.parametrize("module", ["features", "recording", "blocks/geometry",
                                    "blocks/arena"])
def test_changed_code_is_another_version(tmp_path, module):
    "The source of `features` counts, and that of the modules it is made of."
    shutil.copytree(Path(mabe_nb.__file__).parent/"data", tmp_path/"data")
    assert code_version(tmp_path/"data") == code_version()
    with (tmp_path/"data"/f"{module}.py").open("a") as f: f.write("#")
    assert code_version(tmp_path/"data") != code_version()


@pytest.mark.parametrize("module", ["formats/nwb", "formats/kaggle/tracking", "folder/tracker_folder", "kaggle"])
def test_features_are_made_anew_once_files_are_read_in_another_way(folder, tmp_path, monkeypatch, module):
    "What a run learned from is told by its poses, so it goes on."
    shutil.copytree(Path(mabe_nb.__file__).parent/"data", tmp_path/"code")
    assert (file := tmp_path/"code"/f"{module}.py").exists()
    dataset, before = Folder(folder), plan_for(Folder(folder), tmp_path/"out", "coords").code
    monkeypatch.setattr(code_version, "__defaults__", (tmp_path/"code", *code_version.__defaults__[1:]))
    assert plan_for(dataset, tmp_path/"out", "coords").code == before
    features = code_version()
    with file.open("a") as f: f.write("#")
    assert plan_for(dataset, tmp_path/"out", "coords").code != before and code_version() == features


OWN = """
from mabe_nb.data.blocks.registry import block, named
POWER = {power}


@block(needs=("own",))
def power_of(pair, own): return named("1", power=own["speed"].values**POWER)
"""


@pytest.fixture
def own_block(tmp_path, monkeypatch):
    "Writes a module with a block of its own, imports it, and forgets it at the end."
    def write(power):
        (tmp_path/"own_block.py").write_text(OWN.format(power=power))
        sys.modules.pop("own_block", None)
        importlib.invalidate_caches()
        linecache.clearcache()
        return importlib.import_module("own_block")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield write
    BLOCKS.pop("power_of", None)
    for name in ("own_block", "own_power"): sys.modules.pop(name, None)


def test_the_source_of_a_users_block_counts(folder, tmp_path, own_block):
    own_block(2)
    first, ours = code_version(features="coords+power_of"), code_version(features="social")
    run(folder, tmp_path/"out", features="power_of")
    before = times(tmp_path/"out")
    own_block(3)
    assert code_version(features="coords+power_of") != first
    assert code_version(features="social") == ours == code_version()
    run(folder, tmp_path/"out", features="power_of")
    assert not set(before.values()) & set(times(tmp_path/"out").values())


def test_workers_end_at_an_error_that_somebody_keeps(folder, tmp_path):
    "As a notebook does; they would go on without the lock of the folder."
    (folder/"v0.txt").write_text("no number")
    with pytest.raises(DataError, match="v0.*expected a number") as kept:
        run(folder, tmp_path/"out", workers=2)
    left = [p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())]
    assert not left and kept.value.__traceback__


def test_features_of_other_recordings_with_the_same_ids_are_told_apart(tmp_path):
    def made(seed, *bouts):
        return prepare([make_recording(seed, 90, 2, labelled={("mouse1", "mouse2", "chase")}).replace(
            bouts=bout_table(("mouse1", "mouse2", "chase", *b) for b in bouts))],
            "coords", tmp_path/"out", progress=False)
    first = made(1, (3, 9))
    before = np.array(first.values(0))
    made(1, (3, 9), (20, 30)) # another label, the same poses
    assert np.array_equal(first.values(0), before, equal_nan=True)
    other = made(2, (3, 9))
    assert other.root == first.root and not np.array_equal(other.values(0), before, equal_nan=True)
    with pytest.raises(DataError, match="holds features of other data by now.*cache="): first.values(0)


@pytest.mark.slow
def test_a_file_that_is_written_again_counts_once_it_is_imported(folder, tmp_path, own_block):
    own_block(2)
    run(folder, tmp_path/"out", features="power_of")
    before = content(tmp_path/"out")
    (tmp_path/"own_block.py").write_text(OWN.format(power=3))
    run(folder, tmp_path/"out", features="power_of") # by what was imported
    assert content(tmp_path/"out") == before
    with pytest.warns(UserWarning, match="a worker died"): # as it would import something else
        run(folder, tmp_path/"two", features="power_of", workers=2)
    assert content(tmp_path/"two") == before
    own_block(3)
    run(folder, tmp_path/"out", features="power_of")
    assert {k: v for k, v in content(tmp_path/"out").items() if before[k] == v} == {}


def test_what_a_users_block_imports_from_its_folder_counts(tmp_path, own_block):
    found = set()
    for power in (2, 3):
        (tmp_path/"own_power.py").write_text(f"HIGH = {power}")
        sys.modules.pop("own_power", None)
        own_block("__import__('own_power').HIGH\n\ndef later(): import own_power")
        found.add(code_version(features="power_of"))
    assert len(found) == 2


@pytest.mark.slow
def test_workers_import_the_module_of_a_users_block(folder, tmp_path, own_block):
    own_block(2)
    for workers in (1, 2):
        run(folder, tmp_path/str(workers), features="power_of+coords", workers=workers)
    assert content(tmp_path/"1") == content(tmp_path/"2")


def test_a_folder_of_an_older_version_is_prepared_anew(folder, tmp_path):
    out = tmp_path/"out"
    run(folder, out)
    data = content(out)
    for path in out.rglob("*.json"):
        old = {k: v for k, v in read_json(path).items() if k != "roles"}
        write_json(path, old | {"format": "mabe_nb prepared 1"})
    with pytest.raises(DataError, match="not a manifest of this version.*--no-resume"):
        open_prepared(out)
    run(folder, out)
    assert content(out) == data


CHOSEN = {"smoothed": 0, "ownerless": 0, "unordered+multiscale": 300, "social": 75,
          "coords": 0}


@pytest.mark.parametrize("features", CHOSEN)
def test_inputs_without_statistics_over_time(folder, tmp_path, features):
    "Exactly the statistics go: not what is smoothed over a moment, however it is named."
    done = run(folder, tmp_path/"out", features, ids=["v0", "v1"])
    whole, less = (fit_inputs(done, [0, 1], TrainConfig(features=features,
                                                        include_temporal_stats=with_them))
                   for with_them in (True, False))
    left = [done.names[i] for i in less.direct]
    assert len(whole.direct) - len(left) == CHOSEN[features] == done.roles.count("statistic")
    assert left and not any(".later" in n or ".ago" in n or ".mean3000" in n for n in left)
    points = sum(n.endswith(".x") for n in done.names)
    assert [done.names[i][-2:] for i in less.masks] == [".x"] * points


@pytest.mark.slow
def test_training_without_statistics_over_time(tmp_path):
    "Once a traceback: of `steady` no channel was left."
    write_colony(tmp_path/"lab", videos=4, minutes=0.2)
    for features in ("steady", "smoothed"):
        assert main(["train", str(tmp_path/"lab"), "--out", str(tmp_path/features),
                     "--features", features, "--include-temporal-stats", "false",
                     "--epochs", "1", "--device", "cpu", "--lstm-hidden", "8"]) == 0


def test_other_code_prepares_anew(folder, tmp_path, monkeypatch):
    out = tmp_path/"out"
    run(folder, out)
    before = times(out)
    monkeypatch.setattr(prepare_module, "code_version", lambda **_: "0" * 32)
    run(folder, out)
    after = times(out)
    assert all(after[i] != before[i] for i in before)
    run(folder, out)
    assert times(out) == after


def test_some_videos_leave_the_others(folder, tmp_path):
    out = tmp_path/"out"
    run(folder, out)
    before = times(out)
    done = run(folder, out, ids=["v1"])
    assert set(done.sequences.video_id) == {"v1"}
    assert times(out) == before
    with pytest.raises(ConfigError, match="no video 'nope' among 6"): run(folder, out, ids=["nope"])


@pytest.mark.parametrize("ids", ["v1-v3", "v3,v1,v2", ("v1", "v2", "v3"), (f"v{n}" for n in (1, 2, 3))])
def test_videos_are_named_as_for_other_verbs(folder, tmp_path, ids):
    "Text was taken for a list of its letters: of '12' videos 1 and 2 were prepared."
    done = run(folder, tmp_path/"out", ids=ids)
    assert {*done.sequences.video_id} == {"v1", "v2", "v3"}


@pytest.mark.parametrize("given,match", [
    (dict(ids="12"), "no video '12' among 6"), (dict(ids=1), "videos is '1', expected ids"),
    (dict(parts="nose"), "parts is 'nose', expected a list"), (dict(parts=3), "parts is 3, expected a list")])
def test_what_names_no_videos_or_parts_is_refused(folder, tmp_path, given, match):
    "Of parts='nose' channels of the parts n, o, s and e were made, which hold nothing."
    with pytest.raises(ConfigError, match=match): run(folder, tmp_path/"out", **given)
    assert not (tmp_path/"out").exists()


def test_no_resume_starts_over(folder, tmp_path):
    out = tmp_path/"out"
    run(folder, out)
    before, data = times(out), content(out)
    run(folder, out, resume=False)
    assert not set(before.values()) & set(times(out).values())
    assert content(out) == data


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_broken_video(folder, tmp_path, workers):
    out = tmp_path/"out"
    run(folder, out)
    (folder/"v2.txt").write_text("x")
    parts = open_prepared(out).parts
    with pytest.raises(DataError, match=r"v2.txt, video v2: expected a number; .*"
                                        r"--skip-broken"):
        run(folder, out, parts=parts, workers=workers)
    with pytest.raises(DataError, match="v2.txt, video v2: expected a number"): run(folder, out)
    done = run(folder, out, skip_broken=True, workers=workers)
    assert [s["video_id"] for s in done.skipped] == ["v2"]
    assert "expected a number" in read_json(out/"manifest.json")["skipped"][0]["reason"]
    assert "v2" not in times(out) and len(done.videos) == 5


@pytest.mark.slow
def test_killed_worker(folder, tmp_path):
    with pytest.warns(UserWarning, match="a worker died.*--workers"):
        done = prepare(Folder(folder, die="v4"), "coords", tmp_path/"out", workers=2,
                       progress=False)
    run(folder, tmp_path/"plain")
    assert len(done.videos) == 6 and content(tmp_path/"out") == content(tmp_path/"plain")


def test_ctrl_c_can_be_resumed(folder, tmp_path, monkeypatch):
    real = Folder.__getitem__

    def interrupted(self, video_id):
        if video_id == "v3": raise KeyboardInterrupt
        return real(self, video_id)
    parts = dataset_parts(Folder(folder))
    monkeypatch.setattr(Folder, "__getitem__", interrupted)
    with pytest.raises(KeyboardInterrupt): run(folder, tmp_path/"out", parts=parts)
    monkeypatch.undo()
    before = times(tmp_path/"out")
    assert set(before) == {"v0", "v1", "v2"}
    run(folder, tmp_path/"out")
    assert {i: times(tmp_path/"out")[i] for i in before} == before


def test_full_disk(folder, tmp_path, monkeypatch):
    def full(path, *args, **kwargs): raise OSError(28, "No space left on device")
    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    with pytest.raises(DataError, match="no space is left"): run(folder, tmp_path/"out")
    assert not list((tmp_path/"out").glob("*/*"))


def test_two_at_once(folder, tmp_path):
    "The second waits for the first, and says so."
    (tmp_path/"out").mkdir()
    held = Event()

    def first():
        with FileLock(tmp_path/"out"/".lock"):
            held.set()
            time.sleep(0.5)
    thread = Thread(target=first)
    thread.start()
    held.wait()
    with pytest.warns(UserWarning, match="another prepare.*waiting"):
        run(folder, tmp_path/"out")
    thread.join()


def test_shards_fill_one_folder_side_by_side(folder, tmp_path):
    "One that is in the midst of a video stops no other, but whoever fills the whole."
    begun, go, out, done = Event(), Event(), tmp_path/"out", []

    class Held(Folder):
        def __getitem__(self, video_id):
            if video_id == "v2" and [*out.glob(".*lock")]:
                begun.set()
                assert go.wait(60)
            return super().__getitem__(video_id)

    def shard(data, number): done.append((number, prepare_shard(data, number, "coords", out)))
    (out/"Lab0"/".mabe-0123abcd-v1.tmp").mkdir(parents=True) # of the second shard, that was killed
    first = Thread(target=shard, args=(Held(folder), "1/2"))
    first.start()
    assert begun.wait(60)
    (mid := out/"Lab0"/".mabe-0123abcd-v2.tmp").mkdir() # of the first one
    second = Thread(target=shard, args=(Folder(folder), "2/2"), daemon=True)
    second.start()
    second.join(60)
    assert done == [("2/2", 3)] and mid.exists() and not [*out.glob("*/*v1.tmp")]
    with pytest.raises(DataError, match="is being written by"): clear_caches(["out"], folder=tmp_path)
    others = [Thread(target=shard, args=(Folder(folder), "1/3")), Thread(target=run, args=(folder, out))]
    with pytest.warns(UserWarning, match="another prepare.*waiting") as told:
        for other in others: other.start()
        until(lambda: len(told) == 2)
        go.set()
        for other in (first, *others): other.join(60)
    assert sorted(done) == [("1/2", 3), ("1/3", 2), ("2/2", 3)]
    assert len(open_prepared(out).videos) == 6 and not [*out.glob("**/.[ms]*")]


def test_foreign_folder_is_not_removed(folder, tmp_path):
    (tmp_path/"out"/"Lab0"/"v0").mkdir(parents=True)
    (tmp_path/"out"/"Lab0"/"v0"/"thesis.txt").write_text("years")
    with pytest.raises(DataError, match="is no prepared video"):
        run(folder, tmp_path/"out")
    assert (tmp_path/"out"/"Lab0"/"v0"/"thesis.txt").read_text() == "years"


@pytest.mark.parametrize("harm", ["short", "gone", "json", "frames", "channels",
                                  "kind"])
def test_spoilt_cache(folder, tmp_path, harm):
    out = tmp_path/"out"
    run(folder, out)
    data = content(out)
    array = sorted((out/"Lab0"/"v2").glob("*.npy"))[0]
    if harm == "short": array.write_bytes(array.read_bytes()[:-4])
    if harm == "gone": array.unlink()
    values = np.load(sorted((out/"Lab0"/"v2").glob("*.npy"))[-1])
    if harm == "frames": np.save(array, values[:-1])
    if harm == "channels": np.save(array, values[:, :-1])
    if harm == "kind": np.save(array, values.astype(np.float64))
    if harm == "json": (out/"Lab0"/"v2"/"video.json").write_text("{")
    with pytest.raises(DataError, match="no-resume"): open_prepared(out)
    run(folder, out)
    assert content(out) == data


@pytest.mark.parametrize("change", [
    {"pairs": [[1]]}, {"pairs": [["a", "b", "c"]]}, {"labelled": [1]},
    {"labelled": [[{}, 1, 2]]}, {"bouts": [[1, 2]]}, {"fps": 0.0}, {"fps": -1.0},
    {"bouts": [["mouse1", "mouse2", "chase", 5, 10**9]]}, {"frames": -1}])
def test_edited_cache(folder, tmp_path, change):
    out = tmp_path/"out"
    run(folder, out)
    data, path = content(out), out/"Lab0"/"v2"/"video.json"
    write_json(path, read_json(path) | change)
    with pytest.raises(DataError, match="video.json.*no-resume"): open_prepared(out)
    run(folder, out)
    assert content(out) == data


@pytest.mark.parametrize("name", ["names", "units", "roles", "folder"])
def test_cache_that_lacks_what_the_manifest_needs_is_redone(folder, tmp_path, name):
    out = tmp_path/"out"
    run(folder, out)
    data, path = content(out), out/"Lab0"/"v2"/"video.json"
    write_json(path, {k: v for k, v in read_json(path).items() if k != name})
    run(folder, out)
    assert content(out) == data


def test_interrupted_update_is_noticed(folder, tmp_path, monkeypatch):
    "Videos are new, the manifest is not yet: neither the old nor the new dataset."
    out = tmp_path/"out"
    run(folder, out)
    (folder/"v1.txt").write_text("9")
    monkeypatch.setattr(prepare_module, "_manifest", lambda *args: 1/0)
    with pytest.raises(ZeroDivisionError): run(folder, out)
    monkeypatch.undo()
    with pytest.raises(DataError, match="v1.*it was interrupted"): open_prepared(out)
    assert len(run(folder, out).videos) == 6


def with_three_mice(monkeypatch):
    real = Folder.__getitem__
    monkeypatch.setattr(Folder, "__getitem__", lambda self, i: make_recording(
        seed=1, frames=90, mice=3, video_id=i) if i == "v4" else real(self, i))


@pytest.mark.parametrize("features", ["coords", "social", "kaggle288"])
def test_two_and_three_mice_are_one_dataset(folder, tmp_path, monkeypatch, features):
    with_three_mice(monkeypatch)
    done = run(folder, tmp_path/"out", features=features)
    assert len(done.videos) == 6
    assert all(done.values(i).shape[1] == len(done.names) for i in range(len(done)))


def test_channels_that_differ(folder, tmp_path, monkeypatch):
    "Features that do not come out alike are named, not joined."
    with_three_mice(monkeypatch)
    real = arrays_module.compute_pairs
    monkeypatch.setattr(arrays_module, "compute_pairs",
                        lambda rec, name, pairs, parts, **more: real(rec, name, pairs, None))
    with pytest.raises(DataError, match="video v4: has other channels than video v0"):
        run(folder, tmp_path/"out", features="coords")


@pytest.mark.slow
def test_values_and_labels_are_those_of_the_recording(folder, tmp_path):
    from mabe_nb.data.features import compute
    data = Folder(folder)
    done = run(folder, tmp_path/"out", features="social", workers=2)
    assert list(done.sequences.columns) == ["video_id", "lab_id", "agent", "target",
                                            "frames", "fps", "path"]
    for i, row in done.sequences.iterrows():
        rec, pair = data[row.video_id], (row.agent, row.target)
        want = compute(rec, "social", pair=pair, parts=done.parts)
        assert np.array_equal(done.values(i), want.values, equal_nan=True)
        assert done.names == list(want.names)
        assert np.array_equal(done.labels(i), frame_labels(rec, *pair, done.actions))
        assert done.bouts(row.video_id).equals(rec.bouts)
        assert done.labelled(row.video_id) == rec.labelled
    assert len(done) == sum(len(pairs(data[i])) for i in data.ids)


class Unlabelled(Folder):
    "All but v0 and v1 are unlabelled; some say so before they are read."

    def __getitem__(self, video_id):
        rec = super().__getitem__(video_id)
        if video_id in ("v0", "v1"): return rec
        return rec.replace(labelled=None, bouts=rec.bouts[:0])

    def labelled(self, video_id):
        if video_id == "v5": return None
        raise AttributeError if video_id == "v3" else DataError("unreadable")


def test_unlabelled_videos(folder, tmp_path):
    out = tmp_path/"out"
    def prepared(**settings):
        return prepare(Unlabelled(folder), "coords", out, progress=False, **settings)
    done = prepared()
    assert set(done.sequences.video_id) == {"v0", "v1"}
    assert read_json(out/"manifest.json")["left_out"] == 4
    before = times(out)
    done = prepared(unlabelled=True)
    assert len(done.videos) == 6 and done.labelled("v2") is None
    rows = np.flatnonzero(done.sequences.video_id == "v2")
    assert len(rows) == 2 and (done.labels(rows[0], ["sniff"]) == -1).all()
    after = times(out)
    assert {i: after[i] for i in before} == before and len(after) == 6
    assert len(prepared().videos) == 2 and times(out) == after
    with pytest.raises(DataError, match="4 videos, 0 unreadable and 4 unlabelled"):
        prepared(ids=["v2", "v3", "v4", "v5"])


def test_mice_by_themselves_are_added_where_they_are_missing(folder, tmp_path):
    "An unlabelled video that was prepared for pairs alone is no longer up to date."
    def selves(**settings):
        done = prepare(Unlabelled(folder), "coords", tmp_path/"out", progress=False,
                       unlabelled=True, **settings)
        rows = done.sequences[done.sequences.agent == done.sequences.target]
        return set(rows.video_id)
    assert selves() == {"v0", "v1"} # In which somebody looked for what they do alone
    assert selves(selves=True) == {f"v{i}" for i in range(6)}
    assert selves() == {"v0", "v1"} # whatever another model wanted


def test_default_folder(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    done = prepare(Folder(folder), progress=False)
    assert done.root == default_folder(Folder(folder), "social", tuple(done.parts))
    assert done.root.parent == tmp_path/"home"/"prepared"


def test_unknown_features(folder, tmp_path):
    with pytest.raises(MabeError, match="social"): run(folder, tmp_path/"o", features="socal")


def test_a_forgotten_target_does_not_take_an_action_from_pairs(tmp_path):
    "One row of an animal itself among many of pairs; an action seen nowhere stays alone."
    rec = make_recording(1, 600, video_id="1")
    a, b = rec.mice[:2]

    def actions(rows, looked):
        one = rec.replace(bouts=bout_table(rows), labelled=frozenset(looked))
        found = prepare(RecordingList([one]), "coords", out=tmp_path/str(len(rows)), progress=False)
        return found.self_actions, found.pair_actions

    looked = {(a, b, "sniff"), (b, a, "sniff"), (a, a, "sniff"), (a, a, "rear"), (a, a, "dig")}
    slip = [(a, a, "sniff", 0, 9), (a, b, "sniff", 20, 30), (b, a, "sniff", 40, 50),
            (a, a, "rear", 60, 70)]
    assert actions(slip, looked) == (("dig", "rear"), ("sniff",))
    own = [*slip, (a, a, "sniff", 100, 110), (a, a, "sniff", 120, 130)]
    assert actions(own, looked) == (("dig", "rear", "sniff"), ())
    both = [*slip, *((a, a, "sniff", k, k + 1) for k in range(200, 220, 2)),
            *((a, b, "sniff", k, k + 1) for k in range(220, 226, 2))]
    assert actions(both, looked) == (("dig", "rear", "sniff"), ("sniff",))


@pytest.mark.parametrize("features", ["coords", "own"])
def test_pairs_of_animals_with_hyphens_have_files_of_their_own(tmp_path, features):
    names = ("a-b", "c", "a", "b-c")
    rec = make_recording(0, 60, 4).replace(mice=names, bouts=bout_table(), labelled=frozenset(
        (a, t, "sniff") for a in names for t in names))
    done = prepare(RecordingList([rec]), features, out=tmp_path/"cache", selves=True, progress=False)
    for i, row in enumerate(done.sequences.itertuples()):
        whole = compute(rec, features, (row.agent, row.target), done.parts).values
        assert np.array_equal(done.values(i), whole, equal_nan=True), (row.agent, row.target)


def test_too_small_a_disk_is_said_after_the_first_video(folder, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(prepare_module.shutil, "disk_usage", lambda path: usage._replace(free=9))
    with pytest.warns(UserWarning, match="more videos will take about [0-9]+ MB, and 0 MB are free: take fewer"):
        run(folder, tmp_path/"out")


def test_a_list_of_animals_without_poses_is_named_as_such(tmp_path):
    rec = make_recording(1, 300)
    alone = rec.replace(xy=rec.xy[:, :1], mice=rec.mice[:1], bouts=bout_table(), labelled=frozenset(
        {("mouse1", "mouse2", "sniff")}))
    with pytest.raises(DataError, match="nothing is asked of animals with poses in"):
        prepare(RecordingList([alone], tmp_path, "one"), "coords", tmp_path/"out", unlabelled=True,
                progress=False)


def test_bouts_beyond_the_video_are_cut_and_empty_ones_left_out(tmp_path):
    pair = ("mouse1", "mouse2")
    old = [(*pair, "sniff", -5, 9), (*pair, "sniff", 40, 40), (*pair, "sniff", 80, 120),
           (*pair, "sniff", 200, 300)]
    rec = make_recording(0, 100, video_id="v").replace(bouts=bout_table(old))
    data, out = RecordingList([rec], tmp_path), tmp_path/"cache"
    ready = prepare(data, "coords", out, progress=False)
    assert ready.bouts("v").equals(bout_table([(*pair, "sniff", 0, 9), (*pair, "sniff", 80, 100)]))
    for i, row in ready.sequences.iterrows():
        want = frame_labels(rec, row.agent, row.target, ["sniff"])
        assert (ready.labels(i, ["sniff"]) == want).all()
    assert open_prepared(out).bouts("v").equals(ready.bouts("v"))
    written = (out/ready.videos["v"]["folder"]/"video.json").stat().st_mtime_ns
    prepare(data, "coords", out, progress=False)
    assert (out/ready.videos["v"]["folder"]/"video.json").stat().st_mtime_ns == written


def test_the_manifest_of_something_else_is_not_written_over(tmp_path, capsys):
    write_colony(tmp_path/"colony", videos=2, minutes=0.1)
    command = ["prepare", str(tmp_path/"colony"), "--features", "coords", "--out", str(tmp_path/"kit")]
    (tmp_path/"kit").mkdir()
    file, text = tmp_path/"kit"/"manifest.json", '{"format": "mabe_nb bundle 1"}'
    for more in ([], ["--shard", "1/2"]):
        file.write_text(text)
        assert main(command + more) == 2 and file.read_text() == text
        assert "manifest.json is not what prepare writes; choose another folder" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="not what prepare writes"):
        prepare(open_dataset(tmp_path/"colony"), "coords", tmp_path/"kit", progress=False)
    assert [p.name for p in (tmp_path/"kit").iterdir()] == ["manifest.json"]
    file.write_text('{"format": "mabe_nb prepared 5", "videos": []}') # of an older version
    assert main(command) == main(command) == 0
    assert len(open_prepared(tmp_path/"kit").videos) == 2
    file.write_text(text[:-3]) # damaged, perhaps one of ours: made anew, as its error says
    assert main(command + ["--no-resume"]) == 0 and open_prepared(tmp_path/"kit").videos


@pytest.mark.parametrize("videos", [2, 0])
def test_what_an_interrupted_first_prepare_left_is_listed_and_cleared(folder, tmp_path, videos):
    caches, cache = tmp_path/"prepared", tmp_path/"prepared"/"2ffcb91e22bc"
    run(folder, cache, ids=[f"v{i}" for i in range(2)])
    (cache/"manifest.json").unlink()
    lab = next(cache.glob("*/*/video.json")).parent.parent
    for done in [] if videos else [*cache.glob("*/")]: shutil.rmtree(done)
    (lab/".mabe-0123abcd-v2.tmp").mkdir(parents=True)
    (lab/".mabe-0123abcd-v2.tmp"/"mouse1-mouse2.npy").write_bytes(b"half")
    (caches/"mine").mkdir()
    (caches/"mine"/"notes.txt").write_text("mine")
    row, = list_caches(caches).itertuples()
    assert (row.name, row.dataset, row.videos) == (cache.name, "(unfinished)", videos) and row.bytes > 3
    with FileLock(cache/".lock"):
        assert not len(clear_caches(folder=caches)), "it is being filled"
        with pytest.raises(DataError, match="is being written by"): clear_caches([cache.name], folder=caches)
    assert len(clear_caches(folder=caches)) == 1 and not cache.exists() and (caches/"mine"/"notes.txt").exists()

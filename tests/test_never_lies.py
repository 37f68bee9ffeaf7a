"""Runs and caches never lie: what changed is named, and nobody's files are touched."""
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import SoftFileLock

import mabe_nb.train.ensemble.per_lab as per_lab_page
import mabe_nb.train.folder.recorder as sources_page
from mabe_nb.data.cache import arrays, reader
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.recording import bout_table
from mabe_nb.data.synthetic import colony_video
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.files import read_json
from mabe_nb.kaggle.bundle import make_bundle
from mabe_nb.locks import LOCK, locked
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.ensemble import member_specs
from mabe_nb.train.ensemble import recipe as recipe_page
from mabe_nb.train.ensemble.per_lab import train_per_lab
from mabe_nb.train.ensemble.member_specs import MemberSpec
from mabe_nb.train.ensemble.recipe import train_recipe
from mabe_nb.train.classifier import load_classifier
from mabe_nb.train.runs import train
from mabe_nb.train.postprocess import predict_labelled

COLONY = [colony_video(k, minutes=0.2) for k in (0, 3, 6)]
CFG = TrainConfig(features="coords", epochs=2, conv_channels=[4], lstm_hidden=4,
                  batch_size=8, device="cpu")
HIDDEN = (".tmpl", ".mabe-notes.tmp", ".a.tmp", ".best.safetensors.tmp", "sub/.my_tmp_notes",
          "last/.tmp123456", ".tmp/kept.txt")


def fit(out, videos=COLONY, cfg=CFG, resume=True, **how):
    return train(RecordingList(videos), out, cfg, ["1", "4"], ["7"],
                 cache=out.parent/"cache", resume=resume, **how)


def swapped(rec):
    "The same bouts, all of another action that was looked for."
    names = sorted({a for *_, a in rec.labelled})
    other = dict(zip(names, names[1:] + names[:1]))
    return rec.replace(bouts=bout_table([(*row[:2], other[row[2]], *row[3:])
                                         for row in rec.bouts.itertuples(index=False)]))


def shifted(rec): return rec.replace(xy=rec.xy + np.float32(1))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    "A run that was stopped after its first epoch."
    root = tmp_path_factory.mktemp("begun")

    def stop(row): raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): fit(root/"run", resume=False, each=stop)
    return root


def copied(begun, tmp_path):
    subprocess.run(["cp", "-r", str(begun), str(tmp_path/"copy")], check=True)
    return tmp_path/"copy"/"run"


@pytest.mark.parametrize("videos,says", [
    ([swapped(COLONY[0]), *COLONY[1:]], r"labels of 1 video \(1\)\."),
    ([*COLONY[:2], swapped(COLONY[2])], r"labels of 1 video \(7\)\."),
    ([COLONY[0], shifted(COLONY[1]), COLONY[2]], r"tracks of 1 video \(4\)\."),
    ([v.replace(fps=25.0) for v in COLONY], r"tracks of 3 videos \(1, 4, 7\)"),
    ([swapped(COLONY[0]), shifted(COLONY[1]), COLONY[2]],
     r"tracks of 1 video \(4\); labels of 1 video \(1\)")])
def test_other_data_is_refused(begun, tmp_path, videos, says):
    run = copied(begun, tmp_path)
    before = (run/"history.csv").read_bytes(), (run/"sources.json").read_bytes()
    with pytest.raises(ConfigError, match=says): fit(run, videos)
    assert before == ((run/"history.csv").read_bytes(), (run/"sources.json").read_bytes())
    fit(run) # with what it began with it goes on
    assert (run/"metrics.json").exists()


def test_other_settings_are_refused_each_named(begun, tmp_path):
    run = copied(begun, tmp_path)
    other = TrainConfig(**CFG.model_dump() | {"dropout": 0.4, "epochs": 3})
    with pytest.raises(ConfigError, match="epochs 2, not 3.*dropout .*, not 0.4|"
                                          "dropout .*, not 0.4.*epochs 2, not 3"):
        fit(run, cfg=other)


def test_an_edited_config_file_is_noticed(begun, tmp_path):
    run = copied(begun, tmp_path)
    text = (run/"config.yaml").read_text()
    assert text.count("batch_size: 8") == 1
    (run/"config.yaml").write_text(text.replace("batch_size: 8", "batch_size: 4"))
    with pytest.raises(ConfigError, match="batch_size was 8, is 4"):
        fit(run, cfg=TrainConfig.from_yaml(run/"config.yaml"))


def test_other_code_of_features_is_refused(begun, tmp_path, monkeypatch):
    run = copied(begun, tmp_path)
    monkeypatch.setattr(sources_page, "code_version", lambda features: "another")
    with pytest.raises(ConfigError, match="the code of the features 'coords"): fit(run)


def test_videos_of_the_folder_are_compared(begun, tmp_path):
    "Somebody edits which videos are for training and which for validation."
    run = copied(begun, tmp_path)
    (run/"videos.json").write_text(json.dumps({"train": ["1", "7"], "valid": ["4"]}))
    with pytest.raises(ConfigError, match="for training or validation: 2 videos"):
        train(RecordingList(COLONY), run, CFG, cache=run.parent/"cache", resume=True)


def test_a_run_of_an_earlier_version_says_that_it_does_not_know(begun, tmp_path):
    run, said = copied(begun, tmp_path), []
    (run/"sources.json").unlink()
    fit(run, [swapped(COLONY[0]), *COLONY[1:]], say=said.append)
    assert any("is not known" in text for text in said)


SMALL = (MemberSpec("trees", "boost", "coords", 1, {"sample": 6, "rounds": 2}),)


@pytest.fixture
def half(tmp_path, monkeypatch):
    "A recipe that was stopped after its first member."
    monkeypatch.setitem(member_specs.RECIPES, "small", SMALL)
    real = recipe_page.train_members

    def first(tasks, workers, done):
        real(tasks[:1], workers, done)
        raise KeyboardInterrupt
    monkeypatch.setattr(recipe_page, "train_members", first)
    with pytest.raises(KeyboardInterrupt): blend(tmp_path)
    monkeypatch.setattr(recipe_page, "train_members", real)
    assert len(list((tmp_path/"r"/"members").glob("*.safetensors"))) == 1
    return tmp_path


def blend(root, videos=COLONY, out="r", seed=0, folds=3, **how):
    return train_recipe(RecordingList(videos), root/out, "small", folds=folds, seed=seed,
                        cache=root/"cache", **how)


def test_a_recipe_does_not_mix_old_and_new_labels(half):
    for video in range(3):
        videos = list(COLONY)
        videos[video] = swapped(COLONY[video])
        with pytest.raises(ConfigError, match=f"labels of 1 video .{COLONY[video].video_id}"):
            blend(half, videos)
    with pytest.raises(ConfigError, match="tracks of"): blend(half, [shifted(v) for v in COLONY])
    with pytest.raises(ConfigError): blend(half, seed=1)
    assert blend(half) == blend(half, out="fresh")
    for path in (half/"fresh"/"members").iterdir():
        assert path.read_bytes() == (half/"r"/"members"/path.name).read_bytes()


def members(root, out="r"):
    return {p.name: p.read_bytes() for p in (root/out/"members").glob("*.safetensors")}


@pytest.mark.parametrize("video", range(3))
def test_fresh_trains_exactly_the_members_that_a_change_concerns(tmp_path, monkeypatch, video):
    "Two of three folds learn from a video: those are trained again, the third stays."
    monkeypatch.setitem(member_specs.RECIPES, "small", SMALL)
    real = recipe_page.finish_recipe
    monkeypatch.setattr(recipe_page, "finish_recipe", lambda *how: 1 / 0)
    with pytest.raises(ZeroDivisionError): blend(tmp_path)
    monkeypatch.setattr(recipe_page, "finish_recipe", real)
    before, folder = members(tmp_path), tmp_path/"r"/"members"
    (folder/"mine.safetensors").write_text("not of this recipe")
    for path in folder.iterdir(): os.utime(path, (1e9, 1e9))
    videos, said = list(COLONY), []
    videos[video] = shifted(COLONY[video])
    with pytest.raises(ConfigError, match="tracks of 1 video.*--fresh.*2 of 3 members"):
        blend(tmp_path, videos)
    assert {p.stat().st_mtime for p in folder.iterdir()} == {1e9}
    metrics = blend(tmp_path, videos, fresh=True, say=said.append)
    assert "2 of 3 members learned from something else: they learn again" in said
    kept = [p.name for p in folder.iterdir() if p.stat().st_mtime == 1e9]
    assert len(kept) == 2 and "mine.safetensors" in kept
    assert (folder/"mine.safetensors").read_text() == "not of this recipe"
    (folder/"mine.safetensors").unlink()
    assert metrics == blend(tmp_path, videos, out="fresh")
    assert members(tmp_path) == members(tmp_path, "fresh") != before


@pytest.mark.slow
def test_fresh_with_another_seed_and_other_folds(half):
    with pytest.raises(ConfigError, match="with other seed; train again with fresh=True"):
        blend(half, seed=1)
    blend(half, seed=1, fresh=True)
    assert blend(half, seed=1, out="other") and members(half) == members(half, "other")
    blend(half, folds=2, fresh=True) # a recipe that was done
    assert blend(half, folds=2, out="two") and members(half) == members(half, "two")
    with pytest.raises(ConfigError, match="already holds a run"): blend(half, folds=2)


def test_members_of_unknown_settings_are_noticed(half):
    "Somebody edits the record of what they learned from."
    kept = json.loads((half/"r"/"sources.json").read_text())
    kept["members"] = dict.fromkeys(kept["members"], "0" * 16)
    (half/"r"/"sources.json").write_text(json.dumps(kept))
    with pytest.raises(ConfigError, match="settings of members"): blend(half)


@pytest.mark.slow
def test_labs_go_on_after_the_first_is_done(tmp_path, monkeypatch):
    "A recipe for each lab, killed when the first lab's was complete."
    monkeypatch.setitem(member_specs.RECIPES, "small", SMALL)
    data = RecordingList([v.replace(lab_id=lab) for v, lab in zip(
        [*COLONY, *(colony_video(k, minutes=0.2) for k in (9, 12, 15))], "aaabbb")])
    how = {"folds": 3, "cache": tmp_path/"cache"}
    real, calls = per_lab_page.train_recipe, []

    def once(*args, **more):
        if calls: raise KeyboardInterrupt
        calls.append(real(*args, **more))
    monkeypatch.setattr(per_lab_page, "train_recipe", once)
    with pytest.raises(KeyboardInterrupt): train_per_lab(data, tmp_path/"run", "small", **how)
    monkeypatch.setattr(per_lab_page, "train_recipe", real)
    done = train_per_lab(data, tmp_path/"run", "small", **how)
    assert done == train_per_lab(data, tmp_path/"whole", "small", **how)
    assert list(done) == ["a", "b"] and done["a"] == calls[0]


def test_what_is_killed_before_the_first_member_may_change(half):
    for path in (half/"r"/"members").iterdir(): path.unlink()
    assert blend(half, [swapped(COLONY[0]), *COLONY[1:]])["videos"] == 3


@pytest.mark.parametrize("start", [fit, lambda out: blend(out.parent, out=out.name)])
def test_two_in_one_folder(tmp_path, monkeypatch, start):
    "The second one is told who is there, and writes nothing."
    monkeypatch.setitem(member_specs.RECIPES, "small", SMALL)
    (tmp_path/"run").mkdir()
    with locked(tmp_path/"run"/LOCK, tmp_path/"run"):
        with pytest.raises(DataError, match=rf"run: is being written by process {os.getpid()} "
                                            r"on .*, since 20.*wait"):
            start(tmp_path/"run")
        assert [p.name for p in (tmp_path/"run").iterdir()] == [LOCK]
    start(tmp_path/"run")
    assert not (tmp_path/"run"/LOCK).exists() and (tmp_path/"run"/"card.md").exists()


@pytest.mark.parametrize("start", [fit, lambda out: blend(out.parent, out=out.name)])
def test_a_folder_that_refuses_its_lock_is_named(tmp_path, monkeypatch, start):
    monkeypatch.setitem(member_specs.RECIPES, "small", SMALL)
    (tmp_path/"run"/LOCK).mkdir(parents=True) # for root, who may write everywhere
    with pytest.raises(DataError, match="cannot be written: Is a directory"): start(tmp_path/"run")


@pytest.mark.skipif(os.name != "posix", reason="Windows locks in another way")
def test_where_a_disk_has_no_locks_the_file_says_who_holds_it(tmp_path, monkeypatch):
    "In the words of `filelock`: a file of any others passes for one that was left behind."
    def none(*asked): raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    monkeypatch.setattr("fcntl.flock", none)
    with pytest.warns(UserWarning, match="flock not supported"), locked(tmp_path/LOCK, tmp_path):
        assert SoftFileLock(tmp_path/LOCK).pid == os.getpid()
        with pytest.raises(DataError, match=f"is being written by process {os.getpid()} on "):
            with locked(tmp_path/LOCK, tmp_path): raise AssertionError("two of us")
    assert not (tmp_path/LOCK).exists()


@pytest.mark.skipif(os.name != "posix", reason="Windows locks in another way")
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP]) # Of NFS without its service, and others
def test_a_disk_that_refuses_locks_is_told_from_one_that_cannot_be_written(tmp_path, monkeypatch, code):
    "It was 'cannot be written: No locks available', and what is written there without a lock was."
    def none(*asked): raise OSError(code, os.strerror(code))
    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(DataError, match="run: cannot be written: its file system keeps no locks"): fit(tmp_path/"run")


HOLD = """
import sys, time
from mabe_nb.locks import LOCK, locked
with locked(sys.argv[1] + "/" + LOCK, "run"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_dead_owners_lock_is_taken_over(begun, tmp_path):
    run = copied(begun, tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLD, run], stdout=subprocess.PIPE) as p:
        p.stdout.readline()
        with pytest.raises(DataError, match=f"process {p.pid} on"): fit(run)
        p.kill()
    assert (run/LOCK).exists()
    fit(run)
    assert not (run/LOCK).exists()


def test_hidden_files_of_the_user_stay(begun, tmp_path):
    run = copied(begun, tmp_path)
    ours = [run/".mabe-0123abcd-history.csv.tmp", run/"last"/".mabe-0123abcd-x.tmp"]
    for path in [*(run/name for name in HIDDEN), *ours]:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("mine")
    fit(run)
    assert all((run/name).read_text() == "mine" for name in HIDDEN)
    assert not any(path.exists() for path in ours)
    assert not list(run.rglob(".mabe-*-*"))


def test_hidden_files_stay_where_features_are_prepared(tmp_path):
    for name in HIDDEN:
        (tmp_path/name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path/name).write_text("mine")
    prepare(RecordingList(COLONY), "coords", tmp_path, progress=False)
    assert all((tmp_path/name).read_text() == "mine" for name in HIDDEN)


def test_threads_change_no_figure(tmp_path):
    "1, 2 and 4 threads add in another order: weights to 1e-3 after two epochs, probabilities to 1e-3."
    found, before = {}, torch.get_num_threads()
    data = RecordingList(COLONY)
    for n in (1, 2, 4):
        torch.set_num_threads(n)
        try:
            made = fit(tmp_path/str(n)/"run", resume=False)
            clf = load_classifier(tmp_path/str(n)/"run"/"best.safetensors")
            p = predict_labelled(clf, prepare(data, "coords", tmp_path/"1"/"cache",
                                              progress=False), ["7"]).p
        finally: torch.set_num_threads(before)
        found[n] = made["valid"]["macro_f1"], clf.model.state_dict(), p
    for n in (2, 4):
        assert found[n][0] == pytest.approx(found[1][0], abs=0.01)
        for key, w in found[1][1].items():
            assert torch.allclose(w, found[n][1][key], rtol=1e-3, atol=1e-3), key
        assert np.abs(found[n][2] - found[1][2]).max() < 1e-3


@pytest.mark.parametrize("spoil", [lambda x: x * 0, lambda x: np.roll(x, 1), "truncate"])
def test_a_poisoned_cache_is_made_again(tmp_path, monkeypatch, spoil):
    data = RecordingList(COLONY)
    file = Path(prepare(data, "coords", tmp_path, progress=False).sequences.path[0])
    whole, values = file.read_bytes(), np.load(file)
    monkeypatch.setattr(arrays, "_checked", {}) # as in another process
    if spoil == "truncate": file.write_bytes(whole[:-100])
    else: np.save(file, spoil(values))
    assert file.read_bytes() != whole
    with pytest.raises(DataError, match="prepare again"): reader.open_prepared(tmp_path)
    with pytest.warns(UserWarning, match=f"{file.name} did not hold what was written: made"):
        prepare(data, "coords", tmp_path, progress=False)
    assert file.read_bytes() == whole


def test_contents_are_read_once_a_process(tmp_path, monkeypatch):
    data, sums = RecordingList(COLONY), []
    files = prepare(data, "coords", tmp_path, progress=False).sequences.path.nunique()
    real = arrays.zlib.crc32
    monkeypatch.setattr(arrays, "_checked", {})
    monkeypatch.setattr(arrays.zlib, "crc32", lambda x: sums.append(1) or real(x))
    for _ in range(3): prepare(data, "coords", tmp_path, progress=False)
    reader.open_prepared(tmp_path)
    assert len(sums) == files


@pytest.mark.slow
def test_a_killed_bundle_leaves_nothing_for_ever(tmp_path):
    fit(tmp_path/"run")
    left, other = tmp_path/".mabe-0123abcd-kit.tmp", tmp_path/".mabe-0123abcd-other.tmp"
    for folder in (left, other): (folder/"model").mkdir(parents=True)
    with locked(tmp_path/".kit.lock", tmp_path/"kit"):
        with pytest.raises(DataError, match="kit: is being written"):
            make_bundle(tmp_path/"run", tmp_path/"kit")
        assert left.exists()
    make_bundle(tmp_path/"run", tmp_path/"kit")
    assert not left.exists() and other.exists() and not (tmp_path/".kit.lock").exists()


def test_sources_of_a_finished_run_name_every_video(begun):
    kept = read_json(begun/"run"/"sources.json")
    assert {v: d["part"] for v, d in kept["videos"].items()} == {
        "1": "train", "4": "train", "7": "valid"}
    assert kept["settings"]["epochs"] == 2 and len(kept["features"]) == 1

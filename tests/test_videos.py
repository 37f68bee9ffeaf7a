"Videos as items: prepared and predicted in a group, equal to one process byte for byte."
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
from waiting import until

from mabe_nb import cli
from mabe_nb.commands.groups import follow_group
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import DataError, MabeError
from mabe_nb.files import write_json
from mabe_nb.locks import locked_folder
from mabe_nb.remote.groups.group import groups
from mabe_nb.system import cores
from mabe_nb.video_items import forget, predict_item
from mabe_nb.videos import (_plan_of, _to_send, join_prepared, map_predict, map_prepare,
                            predicted_table)

TINY = ["--epochs", "8", "--hidden-size", "32", "--batch-size", "4", "--stride", "20", "--num-workers", "1",
        "--device", "cpu", "--features", "coords"]
VIDEOS = 5


def main(*words):
    try: return cli.main([str(w) for w in words])
    except SystemExit as e: return e.code


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*")
            if p.is_file() and not p.name.startswith(".")}


def in_chinese(data):
    "Gives a lab and a video of it names in another writing."
    table = pd.read_csv(data/"train.csv", dtype={"video_id": str})
    lab, video = table.iloc[-1][["lab_id", "video_id"]]
    name = {lab: "\u5b9e\u9a8c\u5ba4", video: "\u5c0f\u9f205"}
    table.replace({"lab_id": name, "video_id": name}).to_csv(data/"train.csv", index=False)
    for file in [*data.glob(f"train_*/{lab}/{video}.parquet")]:
        file.rename(file.with_stem(name[video]))
    for folder in [*data.glob(f"train_*/{lab}")]: folder.rename(folder.with_name(name[lab]))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "A colony, a run of it, and what one process makes of both."
    root = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MABE_HOME", str(root/"home"))
        patch.setenv("OMP_NUM_THREADS", "1")
        in_chinese(write_colony(root/"data", "kaggle", VIDEOS, 0.2, 0))
        assert main("train", root/"data", "--out", root/"run", *TINY) == 0
        assert main("prepare", root/"data", "--features", "coords", "--out", root/"one") == 0
        assert main("predict", root/"run", root/"data", "--out", root/"one.csv") == 0
    assert len(pd.read_csv(root/"one.csv"))
    return root


@pytest.fixture(autouse=True)
def mabe_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    for group in groups(): group.cancel()


def check_both(lab, tmp_path, *words):
    "Both commands elsewhere equal those of one process."
    assert main("prepare", lab/"data", "--features", "coords", "--out", tmp_path/"many",
                *words) == 0
    assert contents(tmp_path/"many") == contents(lab/"one") and groups() == []
    line = ["predict", lab/"run", lab/"data", "--out", tmp_path/"many.csv", *words]
    assert main(*line) == 0
    assert (tmp_path/"many.csv").read_bytes() == (lab/"one.csv").read_bytes()
    (group,) = groups()
    assert main(*line, "--overwrite") == 0 and len(group.tasks()) == len(group.last_tasks())


@pytest.mark.slow
def test_here(lab, tmp_path, capsys):
    check_both(lab, tmp_path, "--on", "local", "--at-once", "2")
    assert "was started for this before and is done" in capsys.readouterr().out


@pytest.fixture
def damaged(lab, tmp_path):
    "The same colony, of which one video cannot be read; its file and what it should be."
    in_chinese(write_colony(tmp_path/"data", "kaggle", VIDEOS, 0.2, 0))
    file = sorted((tmp_path/"data"/"train_tracking").rglob("3.parquet"))[0]
    good = file.read_bytes()
    file.write_bytes(b"no parquet")
    return tmp_path/"data", file, good


@pytest.mark.slow
def test_a_broken_video_is_named_and_the_others_go_on(lab, damaged, tmp_path, capsys):
    data, file, good = damaged
    one_process = ["--on", "local", "--at-once", "1"]
    line = ["predict", lab/"run", data, "--out", tmp_path/"sub.csv", *one_process]
    assert main(*line) != 0
    said = capsys.readouterr()
    assert "without 1 of 5 videos: 3" in said.out and "item 2 (3): failed" in said.out
    assert "1 of 5 items have no result" in said.err
    one = pd.read_csv(lab/"one.csv")
    assert set(pd.read_csv(tmp_path/"sub.csv").video_id) == set(one.video_id) - {"3"}
    line = ["prepare", data, "--features", "coords", "--out", tmp_path/"many", *one_process]
    assert main(*line) != 0
    made = {p: p.stat().st_mtime_ns for p in (tmp_path/"many").rglob("video.json")}
    assert len(made) == VIDEOS - 1
    file.write_bytes(good)
    capsys.readouterr()
    assert main(*line, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["frames"] == 7140 and found["channels"] == 40 and found["skipped"] == []
    assert contents(tmp_path/"many") == contents(lab/"one")
    assert {p: p.stat().st_mtime_ns for p in made} == made # none of them again


@pytest.mark.slow
def test_killed_and_told_again_it_goes_on(lab, tmp_path, capsys):
    "The terminal is gone, then its task is killed; the same line computes what is left."
    line = ["predict", lab/"run", lab/"data", "--out", tmp_path/"sub.csv", "--on", "local",
            "--at-once", "1"]
    assert main(*line, "--detach") == 0
    (group,) = groups()
    until(lambda: group.done())
    (task,) = group.tasks()
    os.kill(task.spec["handle"]["pid"], signal.SIGKILL)
    until(lambda: task.status() in ("died", "done"))
    before = {n: f.stat().st_mtime_ns for n, f in group.done().items()}
    assert main(*line) == 0
    assert {n: group.done()[n].stat().st_mtime_ns for n in before} == before
    assert (tmp_path/"sub.csv").read_bytes() == (lab/"one.csv").read_bytes()
    (tmp_path/"sub.csv").unlink()
    assert main("jobs", "attach", group.id) == 0 # who attaches later gets it too
    assert (tmp_path/"sub.csv").read_bytes() == (lab/"one.csv").read_bytes()
    (tmp_path/"sub.csv").write_text("mine")
    assert main("jobs", "attach", group.id) == 0
    assert (tmp_path/"sub.csv").read_text() == "mine"


@pytest.mark.slow
def test_two_who_follow_it_both_see_it_done(lab, tmp_path):
    "One brings what was prepared and removes the group; to the other that is no failure."
    line = ["prepare", lab/"data", "--features", "coords", "--out", tmp_path/"many", "--on", "local",
            "--at-once", "2", "--detach"]
    assert main(*line) == 0
    (group,) = groups()
    words = [sys.executable, "-c", "import sys; from mabe_nb.cli import main; sys.exit(main())",
             "jobs", "attach", group.id]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)]
    said = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0], said
    assert all("7,140 frames x 40 channels in" in out for out, _ in said)
    assert contents(tmp_path/"many") == contents(lab/"one") and groups() == []
    group.folder.with_name(f".{group.id}.json").unlink()
    with pytest.raises(MabeError, match="was removed by another process"): follow_group(group, print)


@pytest.mark.slow
def test_a_group_belongs_to_its_videos_settings_and_weights(lab, tmp_path):
    "What changes any of them starts another group; nothing of a record is believed."
    quiet = {"say": lambda text: None, "at_once": 1}
    first = map_predict(lab/"run", lab/"data", tmp_path/"a.csv", videos="1", **quiet)
    assert map_predict(lab/"run", lab/"data", tmp_path/"b.csv", videos="1", **quiet).id == first.id
    assert first.wait(120, progress=False) == "done"
    (file,) = first.done().values()
    for bad in ([1], *({"rows": [["a", "b", "c", *ends]], "doubts": [], "messages": []} for ends in (
            (1, "2"), (1, 10**30), (2, 1), (-1, 2)))):
        write_json(file, bad)
        with pytest.raises(DataError, match="holds no bouts"): predicted_table(first)
    action, known = first.spec["tag"]["actions"][0], {"rows": [], "doubts": [], "messages": []}
    for odd in ({"rows": [["a", "b", "evil", 0, 5]]}, {"doubts": [{"a": 1}]}, {"messages": [5]}):
        write_json(file, known | odd)
        with pytest.raises(DataError, match="holds no bouts"): predicted_table(first)
    write_json(file, known | {"rows": [["a", "b", action, 0, 5]],
                              "messages": ["\x1b]0;owned\x07\x1b[2Jnote", *map(str, range(99))]})
    table = predicted_table(first)
    assert len(table) == 1 and table.attrs["messages"][0] == "note" and len(table.attrs["messages"]) == 50
    others = [map_predict(lab/"run", lab/"data", videos="2", **quiet),
              map_predict(lab/"run", lab/"data", videos="1", options={"smooth_ms": 70.0}, **quiet)]
    assert len({first.id, *(g.id for g in others)}) == 3


def test_weights_that_are_others_now_are_refused(lab, tmp_path, monkeypatch):
    "Of a group that goes on a week later; half of a table would be of another model."
    shutil.copytree(lab/"run", tmp_path/"run")
    model, run, checkpoint, hashes, code = _to_send(tmp_path/"run", "best")
    monkeypatch.setenv("MABE_JOB", str(tmp_path))
    item = lambda: predict_item("1", str(run), str(lab/"data"), "train", checkpoint, {}, [*hashes])
    assert "rows" in item()
    forget() # as in another task
    with open(tmp_path/"run"/"best.safetensors", "r+b") as f:
        f.seek(-1, 2)
        last = f.read(1)
        f.seek(-1, 2)
        f.write(bytes([last[0] ^ 1]))
    with pytest.raises(DataError, match="another model than when"): item()


def test_only_what_is_not_prepared_becomes_an_item(lab, tmp_path):
    assert map_prepare(lab/"data", "coords", lab/"one") is None
    assert main("prepare", lab/"data", "--features", "coords", "--out", tmp_path/"some",
                "--videos", "1-3") == 0
    group = map_prepare(lab/"data", "coords", tmp_path/"some", say=lambda text: None)
    assert group.items == VIDEOS - 3


@pytest.mark.slow
def test_what_was_prepared_is_brought_once_nobody_else_prepares_there(lab, tmp_path):
    "Who does would take away what is being moved."
    out = tmp_path/"some"
    group = map_prepare(lab/"data", "coords", out, say=lambda text: None)
    group.wait()
    with warnings.catch_warnings(record=True) as said, ThreadPoolExecutor() as threads:
        warnings.simplefilter("always")
        with locked_folder(out):
            joined = threads.submit(join_prepared, group, lambda text: None)
            until(lambda: joined.done() or any("another prepare" in str(w.message) for w in said), 60)
            assert not joined.done() and not [*out.glob("*/*/video.json")]
        assert joined.result()["sequences"]
    assert contents(out) == contents(lab/"one")


def test_flags_that_would_be_ignored_are_refused(lab, tmp_path, capsys):
    for words in (["--at-once", "2"], ["--detach"], ["--on", "local", "--workers", "2"],
                  ["--on", "moon"], ["--on", "local", "--option", "x=1"]):
        assert main("predict", lab/"run", lab/"data", "--out", tmp_path/"no.csv", *words) == 2
        assert main("prepare", lab/"data", "--out", tmp_path/"no", *words) == 2
    assert "--workers is for this process" in capsys.readouterr().err and not groups()


def test_a_plan_starts_nothing(lab, tmp_path, capsys):
    line = ["predict", lab/"run", lab/"data", "--out", tmp_path/"no.csv", "--plan"]
    assert main(*line, "--on", "local", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["items"] == VIDEOS and plan["usd"] == 0 and plan["hours"] > 0
    assert main("prepare", lab/"data", "--features", "coords", "--out", tmp_path/"no", "--plan",
                "--on", "local") == 0
    said = capsys.readouterr().out
    assert f"{VIDEOS} items in 1 task, {min(cores(), 4)} at once: about" in said and "0.0 h" not in said
    assert main(*line) == 2 and main(*line, "--on", "local", "--detach") == 2
    assert not groups() and not (tmp_path/"no").exists() and not (tmp_path/"no.csv").exists()


def test_a_plan_of_this_machine_shares_its_cores_among_those_at_once(lab):
    def busy(video, data): # for that much processor time
        end = time.process_time() + 0.02
        while time.process_time() < end: pass
    few = _plan_of(busy, [*"abcd"], {}, {"data": lab/"data"}, {"at_once": 1000})
    many = _plan_of(busy, [*"abcd"] * 250, {}, {"data": lab/"data"}, {"at_once": 1000})
    assert min(few.seconds) >= 4 * 0.02 / cores() and min(many.seconds) >= 1000 * 0.02 / cores()


@pytest.mark.parametrize("ids", [["1", "2"], ("1", "2"), "1-2", (n for n in (1, 2))])
def test_videos_are_named_as_for_other_verbs(lab, tmp_path, ids):
    "As `mb.split` gives them: an AttributeError was the answer."
    group = map_prepare(lab/"data", "coords", tmp_path/"out", videos=ids, say=None)
    assert group.items == 2 and group.spec["tag"]["videos"] == ["1", "2"]


def test_predicted_videos_are_named_as_for_other_verbs(lab, tmp_path):
    group = map_predict(lab/"run", lab/"data", tmp_path/"s.csv", videos=("1", "2"), say=None)
    assert group.items == 2

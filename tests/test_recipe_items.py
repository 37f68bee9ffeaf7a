"A recipe's members as items: the folder is that of one process, byte for byte."
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load
from test_videos import contents, mabe_home, main  # noqa: F401
from waiting import until

from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.recipe_items import map_train, train_item
from mabe_nb.remote.groups.group import groups
from mabe_nb.remote.inside.items import Pack

QUICK = ["--recipe", "quick", "--folds", "2"]
MEMBERS = ["net-1-1", "net-2-1", "trees-1-1", "trees-2-1"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "A colony, and what one process makes of it."
    root = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MABE_HOME", str(root/"home"))
        patch.setenv("OMP_NUM_THREADS", "1")
        write_colony(root/"data", videos=4, minutes=0.1, seed=1)
        assert main("train", root/"data", "--out", root/"one", *QUICK) == 0
    return root


def check_train(lab, tmp_path, *words):
    "Trained elsewhere, the folder is that of one process; networks but for rounding."
    before = {group.id for group in groups()}
    assert main("train", lab/"data", "--out", tmp_path/"run", *QUICK, *words) == 0
    here, there = contents(lab/"one"), contents(tmp_path/"run")
    assert set(here) == set(there) and {group.id for group in groups()} == before
    for name in MEMBERS: # elsewhere torch may take another number of threads
        one, other = (load(c[f"members/{name}.safetensors"]) for c in (here, there))
        near = dict(rtol=0, atol=0.05) if name.startswith("net") else dict(rtol=0, atol=0)
        assert set(one) == set(other)
        for key in one: np.testing.assert_allclose(other[key], one[key], **near)


@pytest.mark.slow
def test_killed_and_told_again_it_goes_on(lab, tmp_path, capsys):
    "Nothing that is done is done again, and nothing wrong reaches the folder in between."
    line = ["train", lab/"data", "--out", tmp_path/"run", *QUICK, "--on", "local", "--at-once", "1"]
    assert main(*line, "--detach") == 0
    (group,) = groups()
    until(lambda: group.done())
    (task,) = group.tasks()
    os.kill(task.spec["handle"]["pid"], signal.SIGKILL)
    until(lambda: task.status() in ("died", "done"))
    members, sources = tmp_path/"run"/"members", tmp_path/"run"/"sources.json"
    file, now = group.done()[0], sources.read_text()
    good = file.read_bytes()
    np.save(file, np.zeros(3))
    refused("holds no member", "jobs", "attach", group.id, capsys=capsys)
    file.write_bytes(good)
    sources.write_text(now.replace(Pack(group.folder/"pack").item(0)["digest"], "another"))
    refused("has gone on with other videos", "jobs", "attach", group.id, capsys=capsys)
    sources.write_text(now)
    assert not list(members.glob("*.safetensors"))
    left = group.counts()["left"] # of a group of four that one process was killed in
    assert main("jobs", "attach", group.id) == (2 if left else 0)
    paid = {p: p.stat().st_mtime_ns for p in members.glob("*.safetensors")}
    assert len(paid) == 4 - left
    capsys.readouterr()
    if left:
        assert main(*line) == 0
        assert f"group {group.id} was started for this before" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in paid} == paid
    assert contents(tmp_path/"run") == contents(lab/"one") and groups() == []


def refused(words, *line, capsys):
    capsys.readouterr()
    assert main(*line) == 2 and words in capsys.readouterr().err


def test_features_that_are_others_now_are_refused(lab, tmp_path, capsys):
    assert main("train", lab/"data", "--out", tmp_path/"run", *QUICK, "--on", "local",
                "--detach") == 0
    (group,) = groups()
    group.cancel()
    pack = Pack(group.folder/"pack")
    assert [pack.item(n)["name"] for n in range(4)] == [f"{m}.safetensors" for m in MEMBERS]
    item, given = pack.item(2), pack.values["given"]
    folders = json.loads((group.folder/"pack"/"pack.json").read_text())["folders"]
    assert main("predict", lab/"one", lab/"data", "--videos", "1", "--out", tmp_path/"a.csv") == 0
    (filled,) = {*folders.values()}
    manifest = json.loads((Path(filled)/"manifest.json").read_text())
    assert [v["video_id"] for v in manifest["videos"]] == ["1"] # by another command, meanwhile
    good = train_item(item, **given, **folders)
    assert good.tobytes() == (lab/"one"/"members"/"trees-1-1.safetensors").read_bytes()
    with pytest.raises(DataError, match="other features than when"):
        train_item(item | {"ids": item["ids"][:1]}, **given, **folders)


def test_a_plan_starts_nothing_and_leaves_nothing(lab, tmp_path, capsys):
    line = ["train", lab/"data", "--out", tmp_path/"no", *QUICK, "--plan"]
    assert main(*line, "--on", "modal", "--gpu", "T4", "--tasks", "2", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["items"] == 4 and plan["tasks"] == 2 and len(plan["seconds"]) == 2
    assert 0 < plan["usd"] < plan["ceiling_usd"]
    assert not groups() and not (tmp_path/"no").exists()


def test_flags_that_would_be_ignored_are_refused(lab, tmp_path, capsys):
    line = ["train", lab/"data", "--out", tmp_path/"no"]
    assert main(*line, *QUICK, "--at-once", "2") == 2
    assert main(*line, "--on", "local") == 2
    assert "--on is for a recipe" in capsys.readouterr().err
    assert main(*line, *QUICK, "--on", "local", "--per-lab") == 2
    assert "--per-lab is several recipes" in capsys.readouterr().err and not groups()


def test_videos_are_named_as_for_other_verbs(lab, tmp_path):
    "Text was taken for a list of its letters."
    assert map_train(lab/"data", tmp_path/"no", "quick", "1-4", 2, say=None, plan=True).items == 4
    with pytest.raises(ConfigError, match="no video '12'"): map_train(lab/"data", tmp_path/"no", train_ids="12", say=None)

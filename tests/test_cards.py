"A machine of several cards: each process of a group sees one. A program lists the cards."
import os

import pytest
from test_map import QUIET, mabe_home, map_items  # noqa: F401
from test_recipe_items import QUICK
from test_videos import main

from mabe_nb.data.synthetic import write_colony
from mabe_nb.remote.groups.group import groups
from mabe_nb.remote.inside.items import GIVEN, Pack
from mabe_nb.system import cores


@pytest.fixture
def three_cards(tmp_path, monkeypatch):
    (tmp_path/"bin").mkdir()
    program = tmp_path/"bin"/"nvidia-smi"
    program.write_text("#!/bin/sh\nfor n in 0 1 2; do echo \"GPU $n: NVIDIA L4 (UUID: $n)\"; "
                       "echo '  MIG 1g.5gb Device 0: (UUID: MIG-x)'; done\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path/'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def look(item):
    "What the process of an item sees; it waits until all processes have begun one."
    import os, time
    top, n, many = item
    open(f"{top}/{os.getpid()}", "a").close()
    end = time.monotonic() + 100
    while len(os.listdir(top)) < many and time.monotonic() < end: time.sleep(0.05)
    return [os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("OMP_NUM_THREADS")]


def seen(tmp_path, processes, name="looked"):
    "Card of each process, and the threads that all of them may use."
    (tmp_path/name).mkdir()
    items = [[str(tmp_path/name), n, processes] for n in range(2 * processes)]
    group = map_items(look, items, at_once=processes, **QUIET)
    assert group.wait(120, progress=False) == "done", group.rest()
    found = {tuple(r) for r in group.results().values()}
    assert len(found) == processes, "a process keeps its card"
    (threads,) = {threads for *_, threads in found}
    return sorted(str(card) for _, card, _ in found), threads


def test_each_process_sees_a_card_of_its_own(three_cards, tmp_path, monkeypatch):
    assert seen(tmp_path, 4)[0] == ["0", "0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-b")
    assert seen(tmp_path, 3, "given")[0] == ["2", "2", "GPU-b"]


def test_what_is_alone_or_has_no_choice_is_left_as_it_is(three_cards, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert seen(tmp_path, 1) == (["None"], None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert seen(tmp_path, 2, "one") == (["1", "1"], str(max(cores() // 2, 1)))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert seen(tmp_path, 2, "chosen") == (["1", "1"], "7")


def test_members_of_a_recipe_know_how_many_share_a_card(three_cards, tmp_path):
    write_colony(tmp_path/"data", videos=4, minutes=0.1, seed=1)
    for number in "48": # the second time a group that was cancelled goes on
        assert main("train", tmp_path/"data", "--out", tmp_path/"run", *QUICK, "--on", "local",
                    "--at-once", number, "--detach") == 0
        (group,) = groups()
        group.cancel()
        given = Pack(group.folder/"pack").values[GIVEN]
        assert (given["side_by_side"], given["cards"]) == (int(number), 3) and given["videos"]

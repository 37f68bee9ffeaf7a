"""Checkpoints of a run: listed, chosen, pruned; those of strangers and damaged ones too."""
import json
import shutil

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.train.folder.weights import checkpoint_path, list_checkpoints, prune
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.runs import train

EPOCHS = 7


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    colony = RecordingList([colony_video(k, minutes=0.2) for k in (0, 3, 6)])
    cfg = TrainConfig(epochs=EPOCHS, save_freq=2, conv_channels=[8], lstm_hidden=8,
                      batch_size=8, learning_rate=0.01, device="cpu")
    train(colony, root/"run", cfg, ["1", "4"], ["7"], cache=root/"cache")
    return root/"run"


@pytest.fixture
def run(made, tmp_path): return shutil.copytree(made, tmp_path/"run")


def score(run, scores):
    "Give the epochs other validation scores."
    table = pd.read_csv(run/"history.csv")
    table["valid_f1"] = scores
    table.to_csv(run/"history.csv", index=False)


def names(run): return {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()}


# list

def test_the_table_is_what_lies_there(made):
    table, history = list_checkpoints(made), pd.read_csv(made/"history.csv")
    assert table.name.tolist() == [
        "best.safetensors", *(f"checkpoints/epoch_{n:04}.safetensors" for n in (2, 4, 6)),
        "last/state.safetensors", "last/previous.safetensors"]
    best = json.loads((made/"metrics.json").read_text())["best"]
    assert table.epoch.tolist() == [best["epoch"], 2, 4, 6, EPOCHS, EPOCHS - 1]
    assert table.kind.tolist() == ["best", *["epoch"] * 3, *["state"] * 2]
    assert table.bytes.tolist() == [(made/name).stat().st_size for name in table.name]
    assert table.loads.all() and not table.fault.any()
    for row in table.itertuples():
        of = history[history.epoch == row.epoch].iloc[0]
        assert (row.valid_f1, row.valid_loss) == (of.valid_f1, of.valid_loss)


@pytest.mark.parametrize("name", ["best.safetensors", "last/state.safetensors",
                                  "checkpoints/epoch_0004.safetensors"])
@pytest.mark.parametrize("damage", [b"", b"\x80\x04K\x01.", b"\xff" * 64, "half", "swap"])
def test_a_damaged_one_is_listed(run, name, damage):
    path = run/name
    other = "best.safetensors" if name.startswith("last") else "last/state.safetensors"
    path.write_bytes(path.read_bytes()[:-100] if damage == "half" else
                     (run/other).read_bytes() if damage == "swap" else damage)
    table = list_checkpoints(run).set_index("name")
    assert len(table) == 6 and not table.loads[name] and "\n" not in table.fault[name]
    assert table.fault[name] and table.loads.sum() == 5


@pytest.mark.slow
@settings(max_examples=25, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 3000), st.integers(0, 255))
def test_no_byte_can_raise(run, place, byte):
    for name in ("best.safetensors", "last/state.safetensors"):
        data = bytearray((run/name).read_bytes())
        data[place] = byte
        (run/"checkpoints"/"epoch_0002.safetensors").write_bytes(data)
        assert len(list_checkpoints(run)) == 6


def test_a_pickle_is_not_loaded(run, tmp_path):
    class Evil:
        def __reduce__(self): return (open, (str(tmp_path/"owned"), "w"))
    for name in ("best.safetensors", "last/state.safetensors"):
        torch.save({"model": Evil()}, run/name)
    assert list_checkpoints(run).loads.sum() == 4 and not (tmp_path/"owned").exists()


def test_what_is_no_run_is_told(tmp_path):
    with pytest.raises(DataError, match="not found"): list_checkpoints(tmp_path/"no")
    with pytest.raises(DataError, match="holds no run"): list_checkpoints(tmp_path)
    with pytest.raises(DataError, match="holds no run"): prune(tmp_path, 1)
    TrainConfig().to_yaml(tmp_path/"config.yaml") # begun, and nothing kept yet
    assert len(list_checkpoints(tmp_path)) == len(prune(tmp_path, 1)) == 0
    with pytest.raises(ConfigError, match="no best weights yet"): checkpoint_path(tmp_path)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "epoch,valid_loss,valid_f1\nx,1,1\n", "\0",
                                  'epoch,valid_loss,valid_f1\n1,"2', "\udcff",
                                  "epoch,valid_loss,valid_f1\n,1,1\n",
                                  "epoch,valid_loss,valid_f1\ninf,1,1\n"])
def test_a_damaged_history_is_one_sentence(run, text):
    (run/"history.csv").write_text(text, errors="surrogateescape")
    for ask in (list_checkpoints, checkpoint_path, lambda run: prune(run, 0)):
        try: ask(run)
        except MabeError as e: assert "history.csv" in str(e) and "\n" not in str(e)
        else: assert ask is checkpoint_path # which needs none
    assert "checkpoints/epoch_0002.safetensors" in names(run)


# choose

def test_choosing(run):
    best = int(list_checkpoints(run).epoch[0])
    assert checkpoint_path(run) == checkpoint_path(run, "best") == run/"best.safetensors"
    for epoch in (2, "4", "0006"):
        assert checkpoint_path(run, epoch).name == f"epoch_{int(epoch):04}.safetensors"
    for path in (run/"checkpoints").iterdir(): path.unlink()
    assert checkpoint_path(run, best) == run/"best.safetensors"


def test_the_best_epoch_kept_under_its_number_is_the_same(run):
    score(run, [.1, .2, .1, .1, .1, .1, .1])
    a, b = load_file(checkpoint_path(run, 2)), load_file(run/"checkpoints"/"epoch_0002.safetensors")
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_the_last_is_the_last_that_was_kept(run):
    score(run, [.9, 0, 0, 0, 0, 0, 0])
    assert checkpoint_path(run, "last").name == "epoch_0006.safetensors"


@pytest.mark.parametrize("which, near", [(99, "epoch 6"), (3, "epoch 2"), (0, "epoch 1"),
                                         ("bets", "'best'"), ("-1", "'best'"), ("", "'best'"),
                                         ("../../x", "'best'"), ("9" * 5000, "'best'"),
                                         ("²", "'best'")])
def test_an_unknown_one_names_the_nearest(run, which, near):
    score(run, [.9, 0, 0, 0, 0, 0, 0])
    with pytest.raises(ConfigError, match=near): checkpoint_path(run, which)


def test_a_file_is_its_own_best(run):
    assert checkpoint_path(run/"best.safetensors") == run/"best.safetensors"
    with pytest.raises(ConfigError, match="one file"): checkpoint_path(run/"best.safetensors", 2)


# prune

@pytest.mark.parametrize("keep, best, left", [(1, True, {2}), (2, True, {2, 6}), (0, True, set()),
                                              (1, False, {6}), (2, False, {4, 6}),
                                              (9, True, {2, 4, 6})])
def test_pruning(run, keep, best, left):
    score(run, [.1, .8, .1, .2, .9, .2, .1]) # of equals the later one stays
    before = names(run)
    dry = prune(run, keep, best, dry=True)
    assert names(run) == before
    gone = prune(run, keep, best)
    assert gone.equals(dry) and set(gone.epoch) == {2, 4, 6} - left
    assert names(run) == before - set(gone.name)
    assert len(prune(run, keep, best)) == 0


def test_pruning_leaves_what_it_cannot_judge(run):
    damaged = run/"checkpoints"/"epoch_0006.safetensors"
    damaged.write_bytes(b"half")
    for name in ("epoch_best.safetensors", "epoch_0001.txt", "epoch_0002.safetensors.bak"):
        (run/"checkpoints"/name).write_bytes(b"mine")
    shutil.copytree(run/"checkpoints", run/"mine")
    before = names(run)
    assert prune(run, 1, best=False).epoch.tolist() == [2] # 4 is the newest that loads
    assert before - names(run) == {"checkpoints/epoch_0002.safetensors"}


def test_epochs_without_a_score_go_first(run):
    table = pd.read_csv(run/"history.csv")
    table[table.epoch < 5].to_csv(run/"history.csv", index=False)
    assert 6 in prune(run, 2).epoch.tolist()


@pytest.mark.parametrize("keep", [-1, 1.5, "2", None, True])
def test_keep_must_be_a_number(run, keep):
    before = names(run)
    with pytest.raises(ConfigError, match="keep"): prune(run, keep)
    assert names(run) == before


def test_a_strangers_config_cannot_lead_outside(run):
    (run.parent/"other").mkdir()
    victim = run.parent/"other"/"epoch_0002.safetensors"
    shutil.copy(run/"best.safetensors", victim)
    text = (run/"config.yaml").read_text()
    for folder in ("../other", str(run.parent/"other")):
        (run/"config.yaml").write_text(
            text.replace("checkpoint_dir: checkpoints", f"checkpoint_dir: {folder}"))
        with pytest.raises(ConfigError, match="checkpoint_dir"): prune(run, 0)
    (run/"config.yaml").write_text(text)
    shutil.rmtree(run/"checkpoints")
    (run/"checkpoints").symlink_to(run.parent/"other")
    assert len(prune(run, 0)) == 0 and victim.exists()


# on the command line

def mabe(capsys, *words):
    from mabe_nb.cli import main
    code = main([*map(str, words)])
    return code, capsys.readouterr()


def test_runs_lists_says_and_prunes(run, capsys):
    _, out = mabe(capsys, "runs", run, "--json")
    assert len(json.loads(out.out)["checkpoints"]) == len(list_checkpoints(run))
    _, out = mabe(capsys, "runs", run, "--prune", "--keep", 1, "--dry-run")
    assert "would remove 2 epochs" in out.out and checkpoint_path(run, 2).exists()
    before = names(run)
    _, out = mabe(capsys, "runs", run, "--prune", "--keep", 1, "--json")
    assert before - names(run) == set(json.loads(out.out)["removed"]) and len(before) - len(
        names(run)) == 2
    code, out = mabe(capsys, "runs", run, "--keep", 1)
    assert code == 2 and "--prune" in out.err

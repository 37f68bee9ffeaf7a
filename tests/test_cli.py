"""The command line as a user meets it: every command, and every way to get it wrong."""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import mabe_nb as mb
from mabe_nb.train.classifier import load_classifier
from mabe_nb import cli
from mabe_nb.analysis.agreement import agreement
from mabe_nb.commands.score import IGNORED
from mabe_nb.commands.parser import LISTED, PRESETS, config_from, setting_words
from mabe_nb.data.blocks.registry import PRESETS as FEATURES
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.synthetic import write_colony
from mabe_nb.kaggle.examine import EFFECTS
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.presets import SPEED
from mabe_nb.train.models import NETWORKS

TINY = ["--epochs", "8", "--hidden-size", "32", "--batch-size", "4", "--stride", "50",
        "--num-workers", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    root = tmp_path_factory.mktemp("cli")
    write_colony(root/"colony", videos=6, minutes=0.5)
    return root


@pytest.fixture
def mabe(work, monkeypatch, capsys):
    "Run one command in the work folder: exit code, standard output, standard error."
    monkeypatch.chdir(work)
    monkeypatch.setenv("MABE_HOME", str(work/"home"))

    def run(*words):
        try: code = cli.main([str(w) for w in words])
        except SystemExit as e: code = e.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def trained(work, mabe):
    if not (work/"run"/"metrics.json").exists():
        code, out, err = mabe("train", "colony", "--out", "run", *TINY, "--json")
        assert code == 0, err
    return work/"run"


def test_a_submission_without_a_bout_counts_0_from_python_and_from_the_terminal(mabe, work):
    (work/"nothing.csv").write_text("row_id,video_id,agent_id,target_id,action,start_frame,stop_frame\n")
    code, out, err = mabe("score", "colony", "nothing.csv", "--json")
    assert code == 0, err
    assert json.loads(out)["score"] == 0 and "no bouts were predicted" in err
    assert json.loads(out)["labs"] == mb.score(work/"colony", work/"nothing.csv", say=None)["labs"]


@pytest.mark.slow
def test_from_colony_to_score(mabe, trained, work):
    code, out, err = mabe("predict", "run", "colony", "--out", "sub.csv", "--json",
                          "--overwrite")
    assert code == 0 and json.loads(out)["bouts"] == len(pd.read_csv(work/"sub.csv"))
    code, out, err = mabe("score", "colony", "sub.csv", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert set(answer) >= {"score", "labs", "chance"}
    labs = answer["labs"].values()
    assert answer["score"] == pytest.approx(sum(x["score"] for x in labs) / len(labs))
    for lab in labs:
        assert lab["score"] == pytest.approx(sum(lab["actions"].values())
                                             / len(lab["actions"]))
    code, out, err = mabe("score", "colony", "sub.csv")
    assert f"score {answer['score']:.4f}" in out and "chance" in out


def test_videos_unlike_the_training_have_a_column_on_request(mabe, trained, work):
    shutil.copytree(work/"colony", work/"fast")
    about = pd.read_csv(work/"fast"/"train.csv")
    about.loc[about.video_id == 2, "frames_per_second"] *= 4
    about.to_csv(work/"fast"/"train.csv", index=False)
    words = ("predict", "run", "fast", "--videos", "1-3", "--json", "--overwrite", "--out")
    code, out, err = mabe(*words, "doubts.csv", "--doubts")
    assert code == 0 and "frames/s" in json.loads(out)["doubts"]["2"][0], err
    table = pd.read_csv(work/"doubts.csv", keep_default_na=False)
    assert list(table)[-1] == "doubt" and set(table.video_id) > {2}
    assert (table.doubt.str.contains("frames/s") == (table.video_id == 2)).all()
    mabe(*words, "plain.csv")
    pd.testing.assert_frame_equal(pd.read_csv(work/"plain.csv"), table.drop(columns="doubt"))
    code, out, err = mabe("analyse", "run", "fast", "--videos", "1-3", "--out", "told")
    told = pd.read_csv(work/"told"/"measures.csv", keep_default_na=False)
    assert (told.doubt.str.contains("frames/s") == (told.video == 2)).all() and code == 0


def test_a_refused_submission_is_mended_on_request(mabe, trained, work):
    mabe("predict", "run", "colony", "--out", "sub.csv", "--overwrite")
    table = pd.read_csv(work/"sub.csv")
    rival = table.iloc[[0]].assign(action="sniff" if table.action[0] != "sniff" else "attack")
    pd.concat([table, rival]).to_csv(work/"bad.csv", index=False)
    code, out, err = mabe("score", "colony", "bad.csv")
    assert code == 2 and "--fix" in err and len(err.strip().splitlines()) == 1
    code, out, err = mabe("score", "colony", "bad.csv", "--fix", "good.csv", "--json")
    assert code == 0 and "changes" in err, err
    assert mabe("score", "colony", "good.csv", "--json")[1] == out
    video = str(rival.video_id[0])
    code, out, err = mabe("score", "colony", "bad.csv", "--fix", "some.csv", "--videos", video)
    assert code == 0 and pd.read_csv(work/"some.csv").equals(pd.read_csv(work/"good.csv")), err
    assert table.video_id.nunique() > 1 and "not in the solution" not in err


def test_what_is_there_is_replaced_on_request_only(mabe, trained, work):
    (work/"mine.csv").write_text("mine")
    words = ("predict", "run", "colony", "--videos", "1", "--out", "mine.csv")
    code, out, err = mabe(*words)
    assert code == 2 and "--overwrite" in err and len(err.splitlines()) == 1
    assert (work/"mine.csv").read_text() == "mine"
    assert mabe(*words, "--overwrite")[0] == 0
    table = pd.read_csv(work/"mine.csv")
    assert len(table)
    (work/"mended.csv").write_text("mine")
    words = ("score", "colony", "mine.csv", "--fix", "mended.csv")
    assert mabe(*words)[0] == 2 and (work/"mended.csv").read_text() == "mine"
    assert mabe(*words, "--overwrite")[0] == 0
    assert pd.read_csv(work/"mended.csv").equals(table)
    words = ("synth", "twice", "--videos", "2", "--minutes", "0.1")
    assert mabe(*words)[0] == 0
    before = (work/"twice"/"README.txt").read_text()
    code, out, err = mabe(*words, "--seed", "1")
    assert code == 2 and "--overwrite" in err
    assert (work/"twice"/"README.txt").read_text() == before
    assert mabe(*words, "--seed", "1", "--overwrite")[0] == 0
    assert "seed 1" in (work/"twice"/"README.txt").read_text()


def test_short_bouts_are_left_out(mabe, trained, work):
    mabe("predict", "run", "colony", "--out", "sub.csv", "--overwrite", "--least-ms", "0")
    code, out, err = mabe("predict", "run", "colony", "--out", "long.csv", "--least-ms", "400")
    assert code == 0, err
    every, some = pd.read_csv(work/"sub.csv"), pd.read_csv(work/"long.csv")
    fps = pd.read_csv(work/"colony"/"train.csv").set_index("video_id").frames_per_second
    long = every[every.stop_frame - every.start_frame >= 0.4 * every.video_id.map(fps)]
    same = lambda t: t.drop(columns="row_id").reset_index(drop=True)
    assert 0 < len(some) < len(every) and same(some).equals(same(long))
    assert mabe("predict", "run", "colony", "--out", "learned.csv")[0] == 0
    clf = load_classifier(trained/"best.safetensors")
    least = dict(zip(clf.actions, clf.least_ms))
    least = every.action.map(least) * every.video_id.map(fps) / 1000
    long = every[every.stop_frame - every.start_frame >= least.round(6)]
    assert 0 < len(long) < len(every) and same(pd.read_csv(work/"learned.csv")).equals(same(long))


def test_actions_overlap_on_request_only(mabe, trained, work):
    (work/"low.json").write_text(json.dumps({"*": {"attack": 0.05, "sniff": 0.05,
                                                   "chase": 0.05, "mount": 0.05}}))
    words = ("predict", "run", "colony", "--thresholds", "low.json")
    assert mabe(*words, "--out", "apart.csv")[0] == 0
    assert mabe("score", "colony", "apart.csv")[0] == 0
    code, out, err = mabe(*words, "--out", "over.csv", "--overlap")
    assert code == 0 and "refuses" in out + err and "--loss binary" in out + err, err
    code, out, err = mabe("score", "colony", "over.csv")
    assert code == 2 and "same frame" in err


def test_test_split_is_predicted_from_its_whitelist(mabe, trained, work):
    code, out, err = mabe("predict", "run", "colony", "--split", "test", "--out", "t.csv")
    assert code == 0, err
    listed = pd.read_csv(work/"colony"/"test.csv").set_index("video_id")
    table = pd.read_csv(work/"t.csv")
    for row in table.itertuples():
        allowed = json.loads(listed.behaviors_labeled[row.video_id])
        assert f"{row.agent_id},{row.target_id},{row.action}" in allowed


def test_prepare_then_again_does_nothing(mabe, work):
    words = ("prepare", "colony", "--features", "coords", "--workers", "1", "--out", "c",
             "--json")
    code, out, err = mabe(*words)
    first = {p: p.stat().st_mtime_ns for p in (work/"c").rglob("*.npy")}
    pairs = {(p.parent, frozenset(p.stem.split("-"))) for p in first}
    assert code == 0 and json.loads(out)["sequences"] > len(pairs) == len(first) > 0
    assert mabe(*words)[0] == 0
    assert first == {p: p.stat().st_mtime_ns for p in (work/"c").rglob("*.npy")}


def test_audit_json_is_all_there_is_on_stdout(mabe):
    code, out, err = mabe("audit", "colony", "--json")
    assert code == 0 and isinstance(json.loads(out), dict)


def test_synth_is_calms21_too(mabe, work):
    code, out, err = mabe("synth", "calms", "--layout", "calms21", "--videos", "3",
                          "--minutes", "0.2", "--json")
    assert code == 0, err
    file = next((work/"calms").glob("*train.json"))
    code, out, err = mabe("train", file, "--out", "calmsrun", *TINY, "--json")
    assert code == 0, err
    assert "other" in json.loads(out)["classes"]


def test_a_run_is_not_written_over(mabe, trained):
    code, out, err = mabe("train", "colony", "--out", "run", *TINY)
    assert code == 2 and "already holds a run" in err


WRONG = {
    "no such folder": (["audit", "nowhere"], "nowhere"),
    "no such video": (["train", "colony", "--out", "x", "--train-videos", "1-3",
                       "--valid-videos", "77"], "77"),
    "flag slip": (["train", "colony", "--out", "x", "--bach-size", "3"],
                  "--batch-size"),
    "word slip": (["train", "colony", "--out", "x", "--scheduler", "plato"], "plateau"),
    "number": (["train", "colony", "--out", "x", "--epochs", "many"], "--epochs"),
    "bound": (["synth", "y", "--videos", "0"], "at least 1"),
    "nan": (["synth", "y", "--minutes", "nan"], "minutes"),
    "feature slip": (["prepare", "colony", "--features", "socail"], "social"),
    "no run": (["predict", "nothing", "colony"], "nothing"),
    "no submission": (["score", "colony", "none.csv"], "none.csv"),
    "leak": (["train", "colony", "--out", "x", "--train-videos", "1-4",
              "--valid-videos", "4"], "both sides"),
    "no command": ([], "COMMAND"),
    "layout": (["synth", "y", "--layout", "kagle"], "kaggle"),
    "device": (["train", "colony", "--out", "x", "--device", "cuda:77"], "cuda:77"),
    "no device": (["train", "colony", "--out", "x", "--device", "meta"], "meta"),
    "run is a file": (["train", "colony", "--out", "file"], "is a file"),
    "run below a file": (["train", "colony", "--out", "file/run"], "file is a file"),
    "prepare below a file": (["prepare", "colony", "--out", "file/c"], "cannot be written"),
    "no name": (["train", "colony", "--out", ""], "expected the name of a folder"),
    "window": (["train", "colony", "--out", "x", "--sequence-length", "100001"],
               "100000"),
    "batch": (["train", "colony", "--out", "x", "--batch-size", "100001"], "100000"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_sentence_and_code_2(mabe, work, name):
    words, hint = WRONG[name]
    (work/"file").write_text("a file")
    code, out, err = mabe(*words)
    assert code == 2 and hint in err and not out, (code, out, err)
    assert len(err.strip().splitlines()) == 1 and "Traceback" not in err
    assert not (work/"x").exists() and not (work/"y").exists()


@pytest.mark.parametrize("words", [
    ["predict", "run", "colony", "--out", "colony"],
    ["predict", "run", "colony", "--out", "run/metrics.json/x.csv"],
    ["score", "colony", "sub.csv", "--fix", "colony"]])
def test_a_place_that_cannot_be_written(mabe, trained, work, words):
    mabe("predict", "run", "colony", "--out", "sub.csv", "--overwrite")
    code, out, err = mabe(*words)
    assert code == 2 and not out and "file" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "x/y"),
                                   MemoryError(), OSError("odd\nand long")])
def test_what_the_machine_refuses_is_one_sentence(mabe, monkeypatch, error):
    def refuse(*_, **how): raise error
    monkeypatch.setattr("mabe_nb.data.synthetic.write_colony", refuse)
    code, out, err = mabe("synth", "z")
    assert code == 2 and not out and len(err.splitlines()) == 1 and "Traceback" not in err


def test_thresholds_are_chosen_for_a_run_folder(trained, work):
    colony = work/"colony"
    assert mb.best_thresholds(str(trained), colony, "1-2") == mb.best_thresholds(
        mb.load_model(trained), colony, "1-2")


def test_all_predicted_videos_count(mabe, trained, work):
    actions = "approach", "attack", "chase", "mount", "rear", "sniff"
    (work/"never.json").write_text(json.dumps({"*": dict.fromkeys(actions, 1.0)}))
    code, out, err = mabe("predict", "run", "colony", "--videos", "1-2", "--out", "no.csv",
                          "--thresholds", "never.json", "--json")
    answer = json.loads(out)
    assert code == 0 and (answer["bouts"], answer["videos"]) == (0, 2), (answer, err)
    learned = json.loads((work/"run"/"videos.json").read_text())["train"]
    assert answer["learned_from"] == len({"1", "2"} & set(learned)) == 0
    code, out, err = mabe("predict", "run", "colony", "--videos", learned[0], "--out",
                          "no.csv", "--overwrite")
    assert "note: 1 of 1 videos have ids of videos that the run was trained on" in out + err


def test_ignored_rows_are_counted_by_kind(mabe, trained, work):
    mabe("predict", "run", "colony", "--out", "sub.csv", "--overwrite")
    table = pd.read_csv(work/"sub.csv")
    judged = pd.read_csv(work/"colony"/"train.csv").dropna(subset=["behaviors_labeled"])
    table = table[table.video_id.isin(judged.video_id)].reset_index(drop=True)
    table.to_csv(work/"clean.csv", index=False)
    assert "ignored" not in json.loads(mabe("score", "colony", "clean.csv", "--json")[1])
    quoted = table.iloc[[0]].assign(agent_id=f"'{table.agent_id[0]}'",
                                    target_id=f"'{table.target_id[0]}'")
    strange = table.iloc[[0, 1]].assign(video_id=99999)
    pd.concat([table, quoted, strange]).to_csv(work/"ignored.csv", index=False)
    code, out, err = mabe("score", "colony", "ignored.csv", "--json")
    assert json.loads(out)["ignored"] == {"unknown_video": 2, "quoted_id": 1}
    assert "quoted_id 1 (a name in quotation marks)" in mabe("score", "colony", "ignored.csv")[1]
    assert set(IGNORED) == {kind for kind, effect in EFFECTS.items() if effect == "ignored"}
    some = [str(v) for v in table.video_id.unique()]
    told = json.loads(mabe("score", "colony", "clean.csv", "--videos", some[0], "--json")[1])
    assert len(some) > 1 and "ignored" not in told # the others are of the dataset, and not asked for


def test_what_a_model_predicted_is_a_rater(mabe, trained, work):
    mabe("predict", "run", "colony", "--out", "sub.csv", "--overwrite")
    code, out, err = mabe("agree", "colony", "sub.csv", "--videos", "1,4", "--json") # of one lab
    assert code == 0, err
    found, table = json.loads(out), pd.read_csv(work/"sub.csv")
    judged = json.loads(mabe("score", "colony", "sub.csv", "--videos", ",".join(found["videos"]), "--json")[1])
    f1 = {row["action"]: row["frame_f1"] for row in found["actions"]}
    scores = judged["labs"]["AmberOtter"]["actions"]
    assert f1 and f1 == pytest.approx({a: scores[a] for a in f1}) and {*f1} <= {*table.action}
    assert {*found["videos"]} == {"1", "4"} & {*table.video_id.astype(str)}
    data = open_dataset(work/"colony")
    assert agreement(data, table).table.equals(agreement(data, work/"sub.csv").table)


def test_fix_is_offered_only_where_it_helps(mabe, trained, work):
    mabe("predict", "run", "colony", "--out", "sub.csv", "--overwrite")
    bad = pd.read_csv(work/"sub.csv").assign(start_frame=9, stop_frame=5)
    bad.to_csv(work/"hopeless.csv", index=False)
    code, out, err = mabe("score", "colony", "hopeless.csv")
    assert code == 2 and "--fix" not in err, err
    code, out, err = mabe("score", "colony", "hopeless.csv", "--fix", "f.csv")
    assert code == 2 and "backwards" in err and "diagnose" not in err
    assert not (work/"f.csv").exists()


def test_config_with_an_unknown_key_names_its_line(mabe, work):
    (work/"c.yaml").write_text("epochs: 2\nbach_size: 3\n")
    code, out, err = mabe("train", "colony", "--out", "x", "--config", "c.yaml")
    assert code == 2 and "line 2" in err and "batch_size" in err
    (work/"c.yaml").write_text("epochs: [1\n")
    assert mabe("train", "colony", "--out", "x", "--config", "c.yaml")[0] == 2


def test_flags_win_over_the_file(work):
    (work/"d.yaml").write_text("epochs: 7\nlearning_rate: 1e-3\ninclude_pca: true\n")
    args = cli.make_parser().parse_args(
        ["train", "d", "--out", "r", "--config", str(work/"d.yaml"), "--epochs", "2",
         "--use_augmentation", "false", "--conv-channels", "8,9", "--class-weights", "1,2"])
    cfg = config_from(args)
    assert (cfg.epochs, cfg.learning_rate, cfg.include_pca) == (2, 1e-3, True)
    assert cfg.conv_channels == [8, 9] and not cfg.use_augmentation
    assert cfg.class_weights == [1, 2]
    args = cli.make_parser().parse_args(["train", "d", "--out", "r", "--conv-channels", "8"])
    assert config_from(args).conv_channels == [8]


def test_broken_video_stops_training_with_its_name_and_can_be_skipped(mabe, work):
    write_colony(work/"broken", videos=4, minutes=0.2)
    victim = next((work/"broken"/"train_tracking").rglob("2.parquet"))
    victim.write_bytes(victim.read_bytes()[:500])
    code, out, err = mabe("prepare", "broken", "--out", "b", "--workers", "1")
    assert code == 2 and "2.parquet" in err and "--skip-broken" in err
    code, out, err = mabe("prepare", "broken", "--out", "b", "--workers", "1",
                          "--skip-broken", "--json")
    assert code == 0 and len(json.loads(out)["skipped"]) == 1
    code, out, err = mabe("audit", "broken", "--json")
    assert code == 0 and "unreadable" in out


def test_importing_the_package_is_cheap():
    code = ("import sys, mabe_nb, mabe_nb.cli, mabe_nb.train.config; "
            "print(sorted({'torch', 'pandas', 'numpy', 'matplotlib'} & set(sys.modules)))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stderr


@pytest.mark.parametrize("word", ["--help", "gpus", "no-such-command"])
def test_only_the_flags_of_the_command_that_was_called_are_made(word):
    code = f"import sys; from mabe_nb.cli import main; main([{word!r}, '--help'])"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], text=True,
                          capture_output=True)
    assert done.returncode == (2 if word == "no-such-command" else 0)
    assert "mabe_nb.commands.train" in done.stderr
    for name in ("pydantic", "mabe_nb.workers", "mabe_nb.remote.fetch"):
        assert name not in done.stderr, name


@pytest.mark.parametrize("loaded", ["mabe_nb.cli", "mabe_nb.commands.data", "pydantic"])
def test_ctrl_c_while_libraries_are_loaded_is_no_traceback(loaded):
    settings = (Path(__file__).parents[1]/"settings.ini").read_text("utf-8")
    module, main = re.search("^console_scripts = mabe=(.*):(.*)$", settings, re.M).groups()
    code = f"""import signal, sys
from importlib.abc import MetaPathFinder
class Finder(MetaPathFinder):
    def find_spec(self, name, *_):
        if name == {loaded!r}: signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
from {module} import {main}
sys.exit({main}())"""
    done = subprocess.run([sys.executable, "-c", code, "train", "colony", "--out", "run"],
                          text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (130, "mabe: interrupted\n")


@pytest.mark.parametrize("words", [["gpus"], ["gpus", "--guide", "--provider", "hf", "--json"]])
def test_prices_are_shown_without_pandas(words):
    code = ("import sys; from mabe_nb.cli import main; main(sys.argv[1:]); "
            "print(sorted({'pandas', 'numpy'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    *answer, loaded = done.stdout.splitlines()
    assert "t4-small" in "".join(answer) and loaded == "[]", done.stderr


def test_help_says_which_network_a_size_is_of():
    words = [sys.executable, "-m", "mabe_nb", "train", "--help"]
    page = " ".join(subprocess.run(words, text=True, capture_output=True).stdout.split())
    assert "--conv-channels VALUE Of conv_bilstm" in page
    assert "--lstm-layers VALUE Depth of conv_bilstm" in page


@pytest.mark.parametrize("flag, value, said", [
    ("epochs", "ten", "'ten': expected a whole number"), ("epochs", "0", "expected at least 1"),
    ("dropout", "1.5", "expected less than 1"), ("amp", "maybe", "expected true or false"),
    ("learning-rate", "fast", "expected a number")])
def test_what_a_setting_should_be_is_said_in_plain_words(mabe, work, flag, value, said):
    code, _, err = mabe("train", "colony", "--out", "wrong", f"--{flag}", value)
    assert code == 2 and err.strip().endswith(said) and "Input" not in err


def test_processes_of_a_recipe_are_a_number(mabe, work, monkeypatch):
    seen = []
    monkeypatch.setattr("mabe_nb.train.ensemble.recipe.train_recipe",
                        lambda *_, workers, **__: seen.append(workers) or 1 / 0)
    words = ("train", "colony", "--out", "counted", "--recipe", "quick", "--num-workers")
    with pytest.raises(ZeroDivisionError): mabe(*words, "2")
    assert seen == [2]
    code, _, err = mabe(*words, "many")
    assert code == 2 and "num_workers" in err and len(err.splitlines()) == 1


@pytest.mark.slow
def test_a_recipe_is_trained_goes_on_and_predicts(mabe, work):
    words = ("train", "colony", "--out", "blend", "--recipe", "quick")
    code, out, err = mabe(*words, "--valid-videos", "6", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["videos"] == 5 and answer["interval"][0] <= answer["macro_f1"]
    (work/"blend"/"recipe.json").unlink()
    assert json.loads(mabe(*words, "--valid-videos", "6", "--json")[1]) == answer
    code, out, err = mabe("predict", "blend", "colony", "--videos", "6", "--out", "six.csv",
                          "--json")
    answer = json.loads(out)
    assert code == 0 and answer["bouts"] == len(pd.read_csv(work/"six.csv")), err
    assert answer["learned_from"] == 0
    code, out, err = mabe("predict", "blend", "colony", "--videos", "5-6", "--out", "two.csv")
    assert "note: 1 of 2 videos have ids of videos that the run was trained on" in out + err
    for slip, hint in ((("--epochs", "3"), "--epochs"), (("--preset", "fastest"), "--preset")):
        code, out, err = mabe(*words, *slip)
        assert code == 2 and hint in err
    for slip in (("--smooth-ms", "9"), ("--least-ms", "9"), ("--overlap",), ("--no-rates",)):
        code, out, err = mabe("predict", "blend", "colony", "--out", "x.csv", *slip)
        assert code == 2 and "decisions of its own" in err
    assert "did you mean 'best'" in mabe("train", "colony", "--out", "b", "--recipe", "bset")[2]


COMMANDS = next(a.choices for a in cli.make_parser()._actions if a.choices)
SLOW = "demo", "bundle", "compare", "retrain" # Have tests of their own
if not (find_spec("onnx") and find_spec("onnxruntime")): SLOW += "export",


@pytest.mark.parametrize("name", COMMANDS)
def test_help_opens_with_an_example_and_shows_one_spelling_a_flag(mabe, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "1000")
    code, page, err = mabe(name, "--help")
    first = page.splitlines()[0].removeprefix("example: ")
    words = shlex.split(first)
    assert code == 0 and words[:2] == ["mabe", name], first
    assert cli.make_parser().parse_args(words[1:]).parser.prog == f"mabe {name}"
    shown = re.findall(r"^  (-.*?)(?:  |$)", page, re.M)
    for flag in (x.split(" ")[0].rstrip(",") for x in shown):
        assert "_" not in flag, flag
    two = {x for x in shown if "," in re.sub(r"\{.*?\}|(?<= )[A-Z].*", "", x)}
    assert two <= {"-h, --help", "--resume, --no-resume"}, two


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_each_word_is_and_what_is_taken_without_it(name):
    for action in (a for a in COMMANDS[name]._actions if a.help != argparse.SUPPRESS):
        usual, words = action.default, action.help or ""
        assert words, action
        if action.option_strings and isinstance(usual, str | float | int) and not (
                isinstance(usual, bool) or usual in ("", argparse.SUPPRESS)):
            assert "default: " in words, action


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_of_80_columns(mabe, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in mabe(name, "--help")[1].splitlines() if len(line) > 80] == []


def test_help_tells_what_each_setting_is():
    "More than its words and its default, but of two that say it with their words."
    bare = [key for key, field in TrainConfig.model_fields.items() if not field.description]
    assert bare == ["optimizer", "class_weights"]


def test_help_says_which_data_a_command_takes(mabe):
    for name in ("audit", "train", "predict", "score", "analyse", "agree"):
        assert "a tracker's files" in " ".join(mabe(name, "--help")[1].split()), name


def test_demo_trains_as_long_as_its_help_says(mabe, monkeypatch):
    from mabe_nb.commands import train
    from mabe_nb.view import demo
    asked = []
    monkeypatch.setattr(demo, "run_demo", lambda *given: asked.append(given[4].epochs))
    for words in (["demo"], ["demo", "--epochs", "3"]):
        train.demo(cli.make_parser().parse_args(words), SimpleNamespace(progress=None))
    assert asked == [int(re.search(r"EPOCHS +default: (\d+)", mabe("demo", "--help")[1])[1]), 3]


def test_a_demo_replaces_no_run_of_somebody_else(mabe, tmp_path):
    (tmp_path/"run").mkdir()
    (tmp_path/"run"/"config.yaml").write_text("epochs: 8\n")
    code, _, err = mabe("demo", "--out", str(tmp_path))
    assert code == 2 and "no demo's; choose another folder (--out)" in err
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
def test_the_examples_of_the_help_run_one_after_the_other(mabe, work, tmp_path,
                                                          monkeypatch):
    shutil.copytree(work/"colony", tmp_path/"colony")
    monkeypatch.chdir(tmp_path)
    first = ["synth", "audit", "prepare", "train", "predict", "score"]
    for name in [*first, *sorted(COMMANDS.keys() - {*first, *SLOW})]:
        if name == "synth": continue # The colony of these tests is a smaller one
        words = shlex.split(COMMANDS[name].example)[1:]
        code, out, err = mabe(*words)
        assert code == 0, (words, err)


def test_both_spellings_of_a_setting_are_read():
    for words in (["--learning-rate", "0.5"], ["--learning_rate", "0.5"]):
        args = cli.make_parser().parse_args(["train", "colony", "--out", "run", *words])
        assert args.set_learning_rate == "0.5"


def test_help_lists_the_words_of_every_choice(mabe, monkeypatch):
    "Those of networks and features too, which the command line does not load."
    import_module("mabe_nb.data.features") # fills the table of presets
    ours = {name for name, made in NETWORKS.items() if made.make.__module__[:7] == "mabe_nb"}
    assert set(LISTED["model_type"]) == ours and set(LISTED["features"]) == set(FEATURES)
    assert set(PRESETS) == {*SPEED, "large", "calms21"}
    monkeypatch.setenv("COLUMNS", "1000")
    page = mabe("train", "--help")[1]
    for key, field in TrainConfig.model_fields.items():
        if field.annotation is bool: continue
        line = re.search(rf"^  --{key.replace('_', '-')} VALUE(.*\n(?:    .*\n)*)", page, re.M)
        for word in setting_words(key): assert word in line[1], (key, word)
    assert setting_words("loss") and setting_words("scheduler") and setting_words("optimizer")


def completed(line, cwd, module):
    "What the shell would offer behind a line of `python -m module`."
    pytest.importorskip("argcomplete")
    env = os.environ | {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": f"{cwd}/tab",
                        "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_TYPE": "9",
                        "COMP_POINT": str(len(line))}
    subprocess.run([sys.executable, "-m", module], cwd=cwd, env=env, timeout=60)
    return set(open(f"{cwd}/tab").read().split())


@pytest.mark.parametrize("line, words", [
    ("mabe tr", {"train"}), ("mabe train --learn", {"--learning-rate"}),
    ("mabe train --loss fo", {"focal", "focal_binary"}),
    ("mabe train --model-type ", set(LISTED["model_type"])),
    ("mabe sweep --preset ", set(PRESETS)), ("mabe jobs ca", {"cancel"})])
def test_tab_completes_commands_flags_and_words(tmp_path, line, words):
    module = "mabe_nb.cli" if "jobs" in line else "mabe_nb" # as good as the script
    assert completed(line, tmp_path, module) == words


def test_tab_offers_folders_and_not_each_flag_too(tmp_path):
    (tmp_path/"pens").mkdir()
    assert completed("mabe audit ", tmp_path, "mabe_nb") == {"pens/", "tab"}


def test_a_path_that_is_not_utf8_is_refused_before_any_work(tmp_path, capsys):
    folder = tmp_path/os.fsdecode(b"K\xe4fig")
    assert cli.main(["synth", str(folder), "--videos", "2", "--minutes", "0.1"]) == 2
    assert "is no name in UTF-8; rename" in capsys.readouterr().err and not folder.exists()


def test_whoever_stops_a_submit_hears_that_the_job_goes_on():
    assert cli.interrupt_message("submit").endswith("a job that has begun goes on")


@pytest.mark.parametrize("slip,hint", [
    ("--actions", "see 'mabe train --help'"), ("--verbose", "see 'mabe train --help'"), ("-v", "see 'mabe train --help'"),
    ("--output", "did you mean '--out'?"), ("--video", "did you mean '--train-videos'?"),
    ("--learn-rate", "did you mean '--learning-rate'?"), ("--epoch", "did you mean '--epochs'?"),
    ("--bach_size", "did you mean '--batch-size'?")])
def test_only_a_near_flag_is_proposed(mabe, slip, hint):
    "Two dashes and a few letters in common are not near: --actions was answered with --rotation."
    assert mabe("train", "colony", "--out", "run", slip, "3")[2].strip() == f"mabe train: unknown argument {slip!r}; {hint}"


@pytest.mark.parametrize("words, said", [
    ([], "mabe: which COMMAND? See 'mabe --help'"),
    (["--verion"], "mabe: unknown argument '--verion'; did you mean '--version'?"),
    (["predict", "run"], "mabe predict: DATA is missing, such as 'mabe predict run colony --out sub.csv'"),
    (["audit", "colon"], "mabe audit: colon: does not exist; expected a file of poses or a folder of such; "
                         "did you mean 'colony'?")])
def test_what_is_missing_is_named_with_a_line_that_would_do(mabe, words, said):
    code, out, err = mabe(*words)
    assert (code, out, err.strip()) == (2, "", said)


@pytest.mark.parametrize("words, said", [
    (["--budget", "$20"], "--budget is '$20', expected a number"),
    (["--budget", "10,5"], "--budget is '10,5', expected a number, decimals after a point"),
    (["--budget", "20", "--runs", "1.5"], "--runs is '1.5', expected a whole number")])
def test_what_is_no_number_is_told_without_a_programmers_word(mabe, words, said):
    assert mabe("advise", *words)[2].strip() == f"mabe advise: {said}"


def test_a_demo_says_only_json_on_stdout(mabe, tmp_path):
    code, out, err = mabe("demo", "--out", str(tmp_path), "--videos", "6", "--minutes", "0.2", "--epochs", "1", "--json")
    assert code == 0 and json.loads(out)["report"] and "5/5 report" in err


def test_a_command_whose_stdout_is_closed_does_its_work(mabe, tmp_path):
    "As of a service that gives its programs none."
    words = f"{sys.executable} -m mabe_nb synth {tmp_path/'c'} --videos 1 --minutes 0.1 >&-"
    done = subprocess.run(["bash", "-c", words], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path/"c"/"train.csv").exists()


@pytest.mark.parametrize("name", ["", "  "])
def test_a_dataset_without_a_name_is_not_the_current_folder(mabe, work, name):
    "As where a script's variable is empty: it was trained on whatever lies there."
    code, out, err = mabe("audit", name)
    assert code == 2 and out == "" and f"the dataset is {name!r}, expected the name of a folder or file" in err

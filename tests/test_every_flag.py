"""Every flag of every command, alone and beside every other: a result, or one sentence.

But for `--load`, which is the same for all and done before any: see `test_extend`.

The parser tells which flags there are; a new one without values in `VALUES` fails. What is
given and never looked at by a command that ends well is a fault too: it should be refused.
"""
import argparse
import itertools
import json
import random
import shutil
import socket
from importlib.util import find_spec

import pytest
import torch

from mabe_nb import cli
from mabe_nb.commands.parser import setting_words
from mabe_nb.data.corrections import Correction, add_correction
from mabe_nb.data.dataset import open_dataset
from mabe_nb.measure import results
from mabe_nb.measure.probe import measure
from mabe_nb.remote.groups.group import groups
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.ensemble import member_specs
from mabe_nb.train.ensemble.member_specs import MemberSpec
from mabe_nb.train.metrics import submission_table

make_parser = cli.make_parser
SMALL = (MemberSpec("net", "net", "coords", 1,
                    {"epochs": 1, "conv_channels": [4], "lstm_hidden": 4}),
         MemberSpec("trees", "boost", "coords", 1, {"sample": 6, "rounds": 2}))
SETTINGS = { # What no list of words tells
    "pca_components": "4", "sequence_length": "20", "frame_gap": "1", "stride": "20",
    "fps": "30", "input_dim": "5", "num_classes": "3", "conv_channels": "4,8",
    "lstm_hidden": "4", "lstm_layers": "2", "hidden_size": "8", "num_layers": "1",
    "num_heads": "2", "dropout": "0.1", "epochs": "1", "batch_size": "4",
    "gradient_accumulation_steps": "2", "limit": "9", "learning_rate": "0.01",
    "weight_decay": "0", "ema_decay": "0.5", "grad_clip": "2", "focal_gamma": "1",
    "focal_alpha": "0.3", "class_weights": "balanced", "label_smoothing": "0.1",
    "scheduler_patience": "1", "scheduler_factor": "0.1", "min_lr": "0.001",
    "early_stopping_patience": "1", "noise_std": "0", "flip": "0.5", "rotation": "0.5",
    "swap_others": "0.5", "keypoint_dropout": "0.1", "temporal_jitter": "1",
    "mixup_alpha": "0.2", "scale": "0.1", "time_stretch": "0.1", "seed": "3", "device": "cpu", "num_workers": "1",
    "resident_gb": "0.001", "valid_share": "0.5", "smooth_ms": "100",
    "checkpoint_dir": "kept", "save_freq": "1", "modal_gpu": "L4", "modal_timeout": "60"}
ID = "--videos 1,2|--videos nonsense"
TINY = ("--hidden-size 8 --num-layers 1 --conv-channels 4 --lstm-hidden 4 --batch-size 4 "
        "--sequence-length 20 --device cpu") # Whatever network, features and batch a preset has
VALUES = { # By command: what every run has, then flags with values, by |
    "synth": ("synth OUT --minutes 0.05 --videos 2",
              "--layout calms21|--layout tiff|--videos 3|--labs 2 1|--minutes 0.1|--seed 4"),
    "open": ("open LAB", "--set fps=30|--set fsp=30"),
    "audit": ("audit DATA", f"--split test|{ID}|--workers 2"),
    "prepare": ("prepare DATA --features coords --out OUT",
                f"--split test|{ID}|--features social|--workers 2|--out OUT|"
                "--on local --at-once 1|--on moon|--at-once 2|--tasks 2|--gpu L4|"
                "--timeout 60|--retries 1|--option x=1|--option nothing|--shard 1/2"),
    "cache": ("cache", "NAME|--limit 5"),
    "predict": ("predict RUN DATA --out OUT.csv",
                f"--checkpoint last|--checkpoint 9|--split test|{ID}|--out OUT.csv|"
                "--thresholds BARS|--smooth-ms 50|--least-ms 100|--workers 2|"
                "--on local --at-once 1|--watch 0|--every 1|--at-once 2|--tasks 2|--gpu L4|"
                "--timeout 60|--retries 1|--option x=1|--engine bfloat16|--engine onnx|"
                "--engine moon"),
    "score": ("score DATA SUB", f"--fix OUT.csv|--split test|{ID}"),
    "demo": ("demo --out OUT --videos 6 --minutes 0.05 --epochs 1",
             "--out OUT|--videos 6|--minutes 0.05|--epochs 1|--seed 5"),
    "runs": ("runs COPY", "--keep 1"),
    "bundle": ("bundle RUN --out OUT",
               "--out OUT|--data DATA|--thresholds BARS|--frames 1000"),
    "gpus": ("gpus", "--provider modal|--provider nobody"),
    "advise": ("advise", "--params 1e9|--method lora|--budget 20|--scenario train|"
               "--scenario x|--training-type demo|--hours T4=5|--retries 1|"
               "--provider modal|--provider hf-jobs|"
               "DATA|--config YAML|--preset fastest|--by 9|--seconds 0.02|--runs 2"),
    "estimate": ("estimate --hidden-size 8 --num-layers 1", "DATA|--config YAML|"
                 "--preset fastest|--card T4|--card nothing"),
    "export": ("export RUN --onnx OUT", f"--onnx OUT|--checkpoint last|--data DATA|{ID}"),
    "analyse": ("analyse annotations DATA --out OUT",
                f"--split test|{ID}|--out OUT|--groups GROUPS|--by dose|--by nothing|"
                "--value bouts|--unit video|--unit cage|--to boris|--to elan simba"),
    "clips": ("clips annotations DATA --out OUT --most 1",
              f"--split test|{ID}|--out OUT|--most 1|--action sniff|--action sleep|"
              "--most-sure 2|--films none|--films nowhere"),
    "review": ("review RUN DATA --minutes 1", f"--split test|{ID}|--out OUT.csv|--minutes 2|"
               "--minutes 0|--corrections SAID|--corrections nowhere"),
    "retrain": ("retrain RUN DATA --out OUT", "--out OUT|--corrections SAID|"
                "--corrections nowhere"),
    "agree": ("agree DATA DATA", f"--split test|{ID}|--out OUT.csv"),
    "cluster": ("cluster", "--effective 64|--effective 0|--per-gpu 2|--slurm 2|"
                "--slurm flexible|--run true|--kind a100|--partition p|--limit 2"),
    "jobs": ("jobs", "attach JOB|logs JOB|cancel JOB|resume JOB|fetch JOB|fetch JOB log|list JOB|"
             "logs nobody|--to OUT|--overwrite|--tail 2|--days 9|rm nobody|costs|prune"),
    "submit": ("submit --timeout 60 WORDS", "--on local|--on moon|--gpu L4|--timeout 60|"
               "--retries 1|--out a|--data DATA|--config YAML|--option cpu=1|"
               "--secrets NOT_THERE|--start-within 9"),
    "train": ("train DATA --out OUT --features coords --epochs 1 --hidden-size 8 "
              "--num-layers 1 --batch-size 8 --device cpu",
              "--out OUT|--config YAML|--preset fastest|--train-videos 1,2|"
              "--valid-videos 3|--init RUN|--init nothing|--corrections SAID"),
    "recipe": ("train DATA --out OUT --recipe small --folds 2 --num-workers 1",
               "--out OUT|--config YAML|--preset fastest|--folds labs|--num-workers 1|"
               "--train-videos 1,2,3|--valid-videos 3|--dropout 0.1|--recipe nothing|"
               "--init RUN|--corrections SAID|--on local --at-once 1|--at-once 2|--tasks 2|"
               "--gpu L4|--timeout 60|--retries 1|--option x=1"),
    "sweep": (f"sweep --sizes 2 --seconds 0.01 {TINY}",
              "DATA|--config YAML|--preset fastest|--seconds 0.02|--sizes 2,4|--on local|"
              "--on moon|--gpu cpu|--memory-gb 4"),
    "compare": (f"compare --seconds 0.01 {TINY}",
                "DATA|--config YAML|--preset fastest|--seconds 0.02|--gpus local|"
                "--gpus moon:L4|--predict none|--predict hf-jobs")}
OF_RECIPES = {"recipe", "folds", "per_lab", "common", "fresh", "on", "at_once", "tasks", "gpu",
              "timeout", "retries", "option", "detach", "plan"}
ROWS = {"train": 24, "recipe": 10, "demo": 2, "submit": 8, "bundle": 2, "sweep": 9,
        "compare": 9, "prepare": 30, "predict": 30, "advise": 20, "estimate": 6, "analyse": 12,
        "clips": 6} # Others: every pair for itself
SLOW = {"train", "demo", "bundle", "sweep", "compare"} # In their rows only
WITH_ONNX = pytest.mark.skipif(not (find_spec("onnx") and find_spec("onnxruntime")),
                               reason="the packages onnx and onnxruntime are not installed")


def parsers():
    "Name of a command -> its parser."
    subs = next(a for a in make_parser()._actions
                if isinstance(a, argparse._SubParsersAction))
    return subs.choices


def flags_of(command):
    "All that may be given beside the base of a command: lists of words, by flag."
    base, more = VALUES[command]
    found = {}
    for text in more.split("|"):
        words = text.split()
        found.setdefault(words[0] if text[0] == "-" else "", []).append(words)
    actions = parsers()[base.split()[0]]._actions
    for action in actions:
        if action.help == argparse.SUPPRESS or action.dest in ("help", "load"): continue
        if command == "train" and action.dest in OF_RECIPES: continue
        key = action.dest.removeprefix("set_")
        if not action.option_strings: continue
        if action.dest.startswith("set_"):
            if command == "train" and not {*action.option_strings} & {*base.split()}:
                values = setting_words(key) or [SETTINGS[key]]
                found[action.option_strings[0]] = [[action.option_strings[0], v]
                                                   for v in values]
        elif action.nargs == 0:
            for flag in action.option_strings: found[flag] = [[flag]]
        else:
            assert {*action.option_strings} & {*found, *base.split()}, \
                f"{command} has a flag without a value: {action.option_strings[0]}"
    return found


def rows_of(command):
    "Lists of lists of words: nothing, each value alone, and all pairs of flags."
    flags = flags_of(command)
    cases = [[], *([value] for values in flags.values() for value in values)]
    pairs = {frozenset(p) for p in itertools.combinations(sorted(flags), 2)}
    if command not in ROWS:
        return cases + [[x, y] for a, b in sorted(map(sorted, pairs))
                        for x in flags[a] for y in flags[b]]
    rng, more = random.Random(command), []
    while pairs and len(more) < ROWS[command]: # greedily, of many drawn at random
        draws = [[f for f in sorted(flags) if rng.random() < 0.5] for _ in range(50)]
        of = lambda row: {frozenset(p) for p in itertools.combinations(row, 2)} & pairs
        best = max(draws, key=lambda row: len(of(row)))
        pairs -= of(best)
        more.append([rng.choice(flags[f]) for f in best])
    return more if command in SLOW else cases + more


class Watched(argparse.Namespace):
    "Arguments that know which of them were looked at."

    def __getattribute__(self, name):
        mine = object.__getattribute__(self, "__dict__")
        if name == "__dict__": mine["looked"] |= {k for k in mine if k[:4] == "set_"}
        elif name in mine: mine["looked"].add(name)
        return object.__getattribute__(self, name)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    "A small colony, a run of it, a submission, a job, and files of settings."
    root, threads = tmp_path_factory.mktemp("flags"), torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MABE_HOME", str(root/"home"))
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setitem(member_specs.RECIPES, "small", SMALL)
        patch.chdir(root)
        connect = socket.socket.connect

        def near(self, address):
            if self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "localhost"):
                return connect(self, address)
            raise OSError(101, "Network is unreachable")
        patch.setattr(socket.socket, "connect", near)
        patch.setattr(socket, "getaddrinfo", lambda *a, **k: (_ for _ in ()).throw(
            socket.gaierror(-2, "Name or service not known")))
        assert cli.main(["synth", "DATA", "--videos", "4", "--minutes", "0.1"]) == 0
        assert cli.main(VALUES["train"][0].replace("OUT", "RUN").split()) == 0
        shutil.copytree(root/"RUN", root/"COPY")
        bouts = open_dataset("DATA").annotations("1")
        submission_table({"1": list(bouts.itertuples(index=False, name=None))}).to_csv(
            root/"SUB", index=False)
        assert cli.main(["submit", "--", "true"]) == 0
        (root/"LAB").mkdir()
        (root/"LAB"/"v1.csv").write_text("scorer,n,n,n\nbodyparts,nose,nose,nose\n"
                                         "coords,x,y,likelihood\n0,1,2,1\n1,2,2,1\n")
        (root/"BARS").write_text(json.dumps({"*": {"sniff": 0.1}}))
        add_correction(root/"SAID", Correction(
            "1", "mouse1", "mouse2", "nothing", "", 0, 20, ("chase", "sniff")), "Ann")
        (root/"YAML").write_text("dropout: 0.2\n")
        (root/"GROUPS").write_text("video,dose\n1,low\n2,high\n3,low\n4,high\n")
        yield root
        for group in groups(): group.cancel()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def parser(world):
    "Made once, as it is no other for another line."
    return make_parser()


@pytest.fixture
def probes(monkeypatch):
    "Steps are measured in this process, but for the first of a command, which has its own."
    start, begun = results._start, []

    def begin(spec, on, gpu, *more):
        begun.append(on)
        if on != "local" or begun.count("local") == 1: return start(spec, on, gpu, *more)
        settings = spec["settings"] | ({"device": gpu} if gpu else {})
        try: return results.checked_result(measure({**spec, "settings": settings}))
        except Exception as e: return {"status": "error", "note": str(e)} # as that of a job
    monkeypatch.setattr(results, "_start", begin)


def run(words, parser, monkeypatch, capsys):
    "Exit code, what was said, and the arguments that nobody looked at."
    seen = []

    def parse(argv):
        args, extra = type(parser).parse_known_args(parser, argv)
        seen.append(Watched(**vars(args), looked=set()))
        return seen[0], extra
    monkeypatch.setattr(parser, "parse_known_args", parse)
    monkeypatch.setattr(cli, "make_parser", lambda word: parser)
    try: code = cli.main(words)
    except SystemExit as e: code = e.code
    said = capsys.readouterr()
    if code != 0: return code, said, set()
    mine = object.__getattribute__(seen[0], "__dict__")
    actions = {f: a.dest for a in mine["parser"]._actions for f in a.option_strings}
    return code, said, {w for w in words if w in actions
                        and actions[w] not in mine["looked"]
                        and not (w == "--resume" and "--recipe" in words)} # always does


def faults_of(command, words, parser, monkeypatch, capsys):
    "What is wrong with the answer to a line, nothing if all is well."
    try: code, said, unseen = run(words, parser, monkeypatch, capsys)
    except Exception as e: # whatever it is, it should have been a sentence
        return [f"{type(e).__name__}: {e}"]
    last = said.err.strip().splitlines()[-1:] or [""]
    out = ["a traceback"] * ("Traceback" in said.out + said.err)
    if code == 0 and unseen: out.append(f"takes and ignores {sorted(unseen)}")
    if code == 0 and "--json" in words: json.loads(said.out)
    if code and not (code in (1, 2) and last[0].startswith("mabe ")):
        out.append(f"ends with {code} and says {said.err[-300:]!r}")
    if code and sum(line.startswith("mabe ") for line in said.err.splitlines()) != 1:
        out.append(f"says more than a sentence: {said.err[-300:]!r}")
    return out + (["ended well"] if not code else [])


@pytest.mark.slow
@pytest.mark.parametrize("command", [
    pytest.param(c, marks=[pytest.mark.slow] * (c in ("sweep", "compare"))
                 + [WITH_ONNX] * (c == "export")) for c in VALUES])
def test_every_flag(command, world, parser, probes, monkeypatch, capsys):
    found, well, rows = [], 0, rows_of(command)
    job = next(p.name for p in sorted((world/"home"/"jobs").iterdir()) if p.name[0].isdigit())
    for number, row in enumerate(rows):
        out, base = str(world/f"{command}{number}"), VALUES[command][0].split()
        flags = {words[0] for words in row}
        for k in [k for k, w in enumerate(base) if w in flags][::-1]: del base[k:k + 2]
        words = [w.replace("OUT", out).replace("JOB", job) for w in base + sum(row, [])]
        if "WORDS" in words: words = [w for w in words if w != "WORDS"] + ["--", "true"]
        faults = faults_of(command, words, parser, monkeypatch, capsys)
        well += "ended well" in faults
        found += [f"mabe {' '.join(words)}: {f}" for f in faults if f != "ended well"]
    assert not found, f"{len(found)} of {len(rows)}:\n" + "\n".join(found[:40])
    assert well >= min(2, len(rows) // 3), f"only {well} of {len(rows)} lines ended well"


def test_every_command_is_here():
    assert {*parsers()} == {*VALUES} - {"recipe"}
    assert {*TrainConfig.model_fields} == {*SETTINGS} | {
        k for k in TrainConfig.model_fields if setting_words(k)}

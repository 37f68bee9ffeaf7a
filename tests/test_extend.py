"What one registration from outside adds, in under 25 lines, and the command line then uses."
import importlib
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from short_recipe import short  # noqa: F401

import mabe_nb as mb
from mabe_nb.cli import main
from mabe_nb.data.blocks.registry import BLOCKS
from mabe_nb.data.cache.prepare import prepare
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.extend import own_source
from mabe_nb.kaggle.bundle import read_manifest
from mabe_nb.train.models import NETWORKS, Network, make_model, network
from mabe_nb.video_items import own_code, predict_item, prepare_item
from mabe_nb.videos import _to_send


def write_ours(folder, rec):
    "A video as a tracker of our own writes it, and a BORIS table of it."
    np.savetxt(folder/f"{rec.video_id}.ours", np.nan_to_num(rec.xy.reshape(len(rec), -1)))
    rows = [(frame / rec.fps, rec.fps, b.agent, b.action, status)
            for b in rec.bouts.itertuples()
            for frame, status in ((b.start, "START"), (b.stop, "STOP"))]
    lines = ["Time,FPS,Subject,Behavior,Behavior type"]
    lines += [",".join(map(str, row)) for row in sorted(rows)]
    (folder/f"{rec.video_id}.boris.csv").write_text("\n".join(lines))


def test_tracker_format(tmp_path, monkeypatch, capsys):
    from mabe_nb.data.poses import TRACKERS, Points, tracker
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setitem(TRACKERS, "Ours", None) # and out again when the test ends

    @tracker("Ours", [".ours"])
    def read_ours(path):
        xy = np.loadtxt(path).reshape(-1, 2, 3, 2)
        return Points(xy, None, ["mouse1", "mouse2"], ["nose", "neck", "tail_base"])

    folder = tmp_path/"lab"
    folder.mkdir()
    (folder/"dataset.yaml").write_text("alone: []")
    looked_for = {("mouse1", "mouse2", x) for x in ("chase", "sniff")}
    for k in range(1, 5):
        write_ours(folder, make_recording(k, 900, parts=("nose", "neck", "tail_base"),
                                          labelled=looked_for, video_id=f"cage{k}"))
    out = str(tmp_path/"run")
    assert main(["train", str(folder), "--out", out, "--epochs", "1", "--device", "cpu",
                 "--valid-videos", "cage4"]) == 0
    assert "3 training videos, 1 validation video" in capsys.readouterr().out
    assert main(["audit", str(tmp_path/"home")]) == 2 # no such files there


@pytest.mark.parametrize("change,wrong", [
    (dict(xy=np.full((9, 2, 2, 2), "1.5")), "xy holds <U3, expected numbers"), (dict(xy=np.full((9, 2, 2, 2), None)), "xy holds object"),
    (dict(animals=[0, 1]), r"animals are \[0, 1\], expected 2 different names"), (dict(animals=["a", "a"]), "expected 2 different names"),
    (dict(parts=["nose"]), r"parts are \['nose'\], expected 2"), (dict(confidence=np.ones(3)), r"confidence has the shape \(3,\), expected")])
def test_tracker_format_with_a_mistake(tmp_path, monkeypatch, change, wrong):
    "A TypeError from inside, or two animals of one name."
    from mabe_nb.data.poses import TRACKERS, Points, tracker
    monkeypatch.setitem(TRACKERS, "Odd", None) # and out again when the test ends
    made = Points(np.ones((9, 2, 2, 2)), None, ["a", "b"], ["nose", "tail"], 30)._replace(**change)
    tracker("Odd", [".odd"])(lambda path: made)
    (tmp_path/"one.odd").write_text("1")
    with pytest.raises(DataError, match=f"one.odd: cannot be read as Odd: .*{wrong}"): mb.read_poses(tmp_path/"one.odd")


READER = """
import numpy as np
from mabe_nb.data.poses import Points, tracker

@tracker("Lists", [".lists"])
def read_lists(path):
    return Points({times} * np.loadtxt(path).reshape(-1, 2, 2, 2), None, ["a", "b"], ["nose", "tail"], 30)
"""


@pytest.mark.slow
def test_a_tracker_that_reads_otherwise_is_read_again(tmp_path, monkeypatch):
    "By workers too, which import its file; what was prepared before is of other poses."
    from mabe_nb.data.poses import TRACKERS
    monkeypatch.setitem(TRACKERS, "Lists", None) # and out again when the test ends
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path/"lab").mkdir()
    for name in ("one", "two"):
        np.savetxt(tmp_path/"lab"/f"{name}.lists", np.random.default_rng(0).uniform(1, 99, (90, 8)))
    found = []
    for times in (1, 2):
        (tmp_path/"lists_reader.py").write_text(READER.format(times=times))
        monkeypatch.delitem(sys.modules, "lists_reader", False)
        importlib.invalidate_caches()
        importlib.import_module("lists_reader")
        made = prepare(tmp_path/"lab", "coords", tmp_path/"out", workers=2, unlabelled=True, progress=False)
        found.append(np.array(made.values(0)))
    code = own_code()
    for known, name in ((sys.modules, "lists_reader"), (TRACKERS, "Lists")): monkeypatch.delitem(known, name)
    monkeypatch.setenv("MABE_JOB", str(tmp_path)) # as in the task of a group, elsewhere
    assert prepare_item("one", str(tmp_path/"lab"), "train", "coords", ["nose", "tail"], code) is None
    monkeypatch.delitem(sys.modules, "lists_reader")
    np.testing.assert_array_equal(2 * found[0], found[1])


def test_what_a_cell_names_counts():
    cell = {"__name__": "a_cell", "factor": 2}
    exec("def inner(x): return [factor * y for y in x]\ndef outer(x): return inner(x)", cell)
    first = own_source(cell["outer"])
    cell["factor"] = 3
    second = own_source(cell["outer"])
    exec("def inner(x): return [factor + y for y in x]", cell)
    assert len({first, second, own_source(cell["outer"])}) == 3
    exec("def around():\n    def early(x): return late(x)\n    said.append(own(early))\n    late = abs\n"
         "    return own(early)", cell := {"__name__": "a_cell", "own": own_source, "said": []})
    assert [cell["around"]()] != cell["said"] # which was asked before there was a `late`


@pytest.fixture(scope="module")
def colony(tmp_path_factory):
    return write_colony(tmp_path_factory.mktemp("extend")/"colony", videos=6, minutes=0.2)


OWN = """
import torch
from mabe_nb.data.blocks.registry import block, named
from mabe_nb.train.models import network
from own_squares import squared

@block(needs=("own",))
def mynew(pair, own): return named("cm2/s2", speed_squared=squared(own["speed"].values))

@network("one_layer", "width", "dropout")
class OneLayer(torch.nn.Sequential):
    def __init__(self, input_dim, num_classes, width, dropout):
        super().__init__(torch.nn.Linear(input_dim, width), torch.nn.ReLU(),
                         torch.nn.Dropout(dropout), torch.nn.Linear(width, num_classes))
"""


REGISTERED = (BLOCKS, "mynew"), (NETWORKS, "one_layer"), (sys.modules, "own_things"), (sys.modules, "own_squares")


def forget():
    for known, name in REGISTERED: del known[name]


@pytest.fixture
def own(tmp_path, monkeypatch):
    "A file with a network and a block, and one that it imports; nothing of them is left when the test ends."
    for known, name in REGISTERED: monkeypatch.setitem(known, name, None)
    forget()
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path/"own_things.py").write_text(OWN)
    (tmp_path/"own_squares.py").write_text("def squared(x): return x**2\n")
    return str(tmp_path/"own_things.py")


@pytest.mark.slow
def test_network_of_a_file(own, colony, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(colony.parent/"home"))
    run, kit, out = tmp_path/"run", tmp_path/"kit", tmp_path/"submission.csv"
    words = ["train", str(colony), "--out", str(run), "--model-type", "one_layer", "--features",
             "mynew+coords", "--hidden-size", "8", "--epochs", "1", "--device", "cpu"]
    assert main(words) == 2 # --load FILE is what it says
    assert "unknown model_type 'one_layer'; known: " in (said := capsys.readouterr().err)
    assert "one of your own: import its file first, on the command line with --load" in said
    assert main([*words, "--load", "nowhere.py"]) == 2
    assert "nowhere.py: file not found" in capsys.readouterr().err
    assert main([*words, "--load", own]) == 0
    assert "takes along" not in capsys.readouterr().out
    assert "model_type: one_layer" in (run/"config.yaml").read_text()
    assert main(["predict", str(run), str(colony), "--split", "train", "--out", str(out),
                 "--load", own]) == 0
    assert out.exists()
    assert main(["bundle", str(run), "--out", str(kit), "--data", str(colony), "--load",
                 own]) == 0 # it is tried in a process that knows nothing of the file
    assert (kit/"model"/"own_things.py").read_text() == OWN
    assert "model/own_things.py" in read_manifest(kit)["files"]
    assert not [*kit.rglob("*.pyc")]
    *_, hashes, code = _to_send(run, "best")
    given = {"data": str(colony), "split": "train", "code": code}
    forget() # as in the task of a group, elsewhere
    (tmp_path/"own_squares.py").unlink()
    monkeypatch.setenv("MABE_JOB", str(tmp_path/"job"))
    (tmp_path/"job").mkdir()
    assert prepare_item("1", features="mynew", parts=["nose", "tail_base"], **given)
    forget()
    assert predict_item("1", run=str(run), checkpoint="best", options={},
                        hashes=hashes, **given)["doubts"] == []


def test_what_no_bundle_takes_along_is_told_first(colony, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MABE_HOME", str(colony.parent/"home"))
    monkeypatch.setitem(NETWORKS, "cell", None) # and out again when the test ends
    del NETWORKS["cell"]

    @network("cell", "width")
    class OfACell(torch.nn.Linear):
        def __init__(self, input_dim, num_classes, width): super().__init__(input_dim, num_classes)

    OfACell.__module__ = "__main__"
    run = str(tmp_path/"run")
    assert main(["train", str(colony), "--out", run, "--model-type", "cell", "--epochs", "1",
                 "--device", "cpu"]) == 0
    said = "OfACell is defined in a notebook or script, which no bundle takes along: "
    lines = capsys.readouterr().out.splitlines()
    assert lines.index(*(s for s in lines if said in s)) < lines.index(*(
        s for s in lines if "training videos" in s))
    assert main(["bundle", run, "--out", str(tmp_path/"kit")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path/"kit").exists()


@pytest.mark.slow
def test_score(colony, tmp_path, monkeypatch, capsys):
    from mabe_nb.train.scores.frames import frame_counts
    from mabe_nb.train.scores.trust import SCORES, TAKEN, frame_score
    monkeypatch.setenv("MABE_HOME", str(colony.parent/"home"))
    monkeypatch.setattr("mabe_nb.train.scores.trust.SCORES", dict(SCORES))

    @frame_score("false_alarms")
    def false_alarms(sequences, actions):
        counts = sum(frame_counts(s.labels, s.codes) for s in sequences)
        return dict(zip(actions, counts[:, 1].tolist()))

    for name, how in {"run": ["--epochs", "1", "--device", "cpu"],
                      "blend": ["--recipe", "quick", "--folds", "2"]}.items():
        assert main(["train", str(colony), "--out", str(tmp_path/name), "--json", *how]) == 0
        told = json.loads(capsys.readouterr().out)["false_alarms"]
        kept = json.loads((tmp_path/name/"metrics.json").read_text())["false_alarms"]
        assert told == kept and len(kept) > 2 and all(n >= 0 for n in kept.values())
        keys = {*json.loads((tmp_path/name/"metrics.json").read_text())} - {*SCORES}
        assert keys - {"false_alarms"} <= TAKEN, keys - TAKEN
    for name in ("best", "videos", "valid"): # would be lost
        with pytest.raises(ConfigError, match=f"cannot be named '{name}'"): frame_score(name)(false_alarms)


@pytest.mark.parametrize("what", ["block", "network", "layer"])
def test_what_fails_in_code_of_ones_own_is_told_as_such(colony, tmp_path, monkeypatch, capsys, what):
    from mabe_nb.data.blocks.registry import block
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    monkeypatch.setitem(BLOCKS, "odd", None) # and out again when the test ends
    monkeypatch.setitem(NETWORKS, "odd", Network(lambda channels, classes: {}[channels], ()))
    if what == "layer":
        class Odd(torch.nn.Linear):
            def forward(self, x): return super().forward(x[..., :2])
        monkeypatch.setitem(NETWORKS, "odd", Network(Odd, ()))

    @block()
    def odd(pair): return pair.nothing

    flags = ["--features", "odd"] if what == "block" else ["--features", "coords", "--model-type", "odd"]
    assert main(["train", str(colony), "--out", str(tmp_path/"run"), "--epochs", "1", *flags]) == 2
    error, kind = capsys.readouterr().err, "feature block" if what == "block" else "network"
    assert f"{kind} 'odd', which is not of this package, fails: " in error and ".py, line " in error, error


@pytest.mark.parametrize("of,kept", [
    (np.float32(0.5), 0.5), (np.arange(3), [0, 1, 2]), ({"a": (1, np.nan)}, {"a": [1, None]}),
    (object(), "it gives a object, expected numbers"), (ZeroDivisionError("no frames"), "ZeroDivisionError: no frames")])
def test_a_score_costs_no_training(colony, tmp_path, monkeypatch, of, kept):
    "NumPy's numbers are as good as Python's; of one that fails the run goes on when it is mended."
    from mabe_nb.train.scores.trust import SCORES, frame_score
    monkeypatch.setattr("mabe_nb.train.scores.trust.SCORES", known := dict(SCORES))
    monkeypatch.setenv("MABE_HOME", str(colony.parent/"home"))

    @frame_score("own")
    def own(sequences, actions):
        if isinstance(of, Exception): raise of
        return of

    train = lambda resume: mb.fit(colony, tmp_path/"run", resume=resume, epochs=1, device="cpu", features="coords", say=None)
    if isinstance(kept, str):
        with pytest.raises(ConfigError, match=f"score 'own' fails .*{kept}.*what was learned is kept"): train(False)
        known["own"], kept = lambda sequences, actions: 1, 1
    train((tmp_path/"run").exists())
    assert json.loads((tmp_path/"run"/"metrics.json").read_text())["own"] == kept


@pytest.mark.parametrize("forward,wrong", [
    (lambda y: y.mean(1), r"a Tensor of the shape \(10, 7\), expected a tensor of the shape \(10, 100, 7\)"),
    (lambda y: y.transpose(1, 2), r"a Tensor of the shape \(10, 7, 100\)"), (lambda y: y[..., :2], r"shape \(10, 100, 2\)"),
    (lambda y: y.detach(), "scores without gradients"), (lambda y: (y, None), "a tuple"), (lambda y: None, "a NoneType"),
    (lambda y: y.detach().numpy(), "a ndarray")])
def test_network_that_gives_no_scores(colony, tmp_path, monkeypatch, forward, wrong):
    "It is named, where the loss failed in words of its own."
    class Odd(torch.nn.Linear):
        def forward(self, x): return forward(super().forward(x))

    monkeypatch.setenv("MABE_HOME", str(colony.parent/"home"))
    monkeypatch.setitem(NETWORKS, "odd", Network(Odd, ()))
    with pytest.raises(ConfigError, match=f"network 'odd' gives .*{wrong}"):
        mb.fit(colony, tmp_path/"run", epochs=1, device="cpu", features="coords", model_type="odd", say=None)


@pytest.mark.parametrize("reads,wrong", [
    ((), r"network 'odd' cannot be made of .* that it reads \(none\): missing a required argument: 'width'"),
    (("width", "depth"), r"reads \(width, depth\): too many positional"), (("widht",), "'widht'; did you mean 'width'")])
def test_network_that_reads_other_settings(monkeypatch, reads, wrong):
    def odd(channels, classes, width): return torch.nn.Linear(channels, classes)
    monkeypatch.setitem(NETWORKS, "odd", Network(odd, reads))
    with pytest.raises(ConfigError, match=wrong): make_model(mb.TrainConfig(model_type="odd"), 3, 4)


def test_block(tmp_path, monkeypatch, capsys):
    from mabe_nb.data.blocks.registry import block, named
    from mabe_nb.data.cache.reader import open_prepared
    from mabe_nb.data.synthetic import write_colony
    monkeypatch.setitem(BLOCKS, "mynew", None) # and out again when the test ends

    @block(needs=("own",))
    def mynew(pair, own):
        return named("cm2/s2", speed_squared=own["speed"].values**2)

    write_colony(tmp_path/"lab", videos=4, minutes=0.2)
    data, features = str(tmp_path/"lab"), ["--features", "mynew+coords"]
    assert main(["prepare", data, *features, "--out", str(tmp_path/"cache")]) == 0
    done = open_prepared(tmp_path/"cache")
    assert done.names[:2] == ["agent.speed_squared", "target.speed_squared"]
    assert done.roles[:4] == ["value", "value", "x", "y"]
    assert main(["train", data, *features, "--out", str(tmp_path/"run"), "--epochs", "1",
                 "--device", "cpu", "--num-layers", "1"]) == 0
    assert main(["predict", str(tmp_path/"run"), data, "--out", str(tmp_path/"s.csv")]) == 0
    assert main(["prepare", data, "--features", "mynwe"]) == 2
    assert "did you mean 'mynew'? (one of your own: " in capsys.readouterr().err


@pytest.mark.parametrize("of", [lambda x: x[:, 0], lambda x: x[:, :2], lambda x: x[:, :, None],
                                lambda x: x[1:], lambda x: x[:, 0].tolist()])
@pytest.mark.parametrize("exchange", ["animals", None])
def test_block_of_each_animal_has_a_number_for_each(monkeypatch, of, exchange):
    from mabe_nb.data.blocks.registry import block, named
    from mabe_nb.data.features import compute
    monkeypatch.setitem(BLOCKS, "odd", None) # and out again when the test ends
    rec = make_recording(1, 90, 3)

    @block(alone=True, exchange=exchange)
    def odd(a): return named("cm", x=of(a.points[:, :, 0, 0]))

    with pytest.raises(ConfigError, match=r"block 'odd' .*'x' has the shape \(.*"
                                          r"expected \(90, 3\), a number for each"):
        compute(rec, "others+odd")

    @block(alone=True, exchange=exchange)
    def odd(a): return named("cm", x=a.points[:, :, 0, 0])

    for pair in ("mouse1", "mouse2"), ("mouse3", "mouse1"), ("mouse2", "mouse2"):
        assert {"agent.x", "target.x"} < {*compute(rec, "others+odd", pair).names}


@pytest.mark.parametrize("of,wrong", [
    (lambda x: {"x": np.diff(x)}, "its channel 'x' has the shape (89,), expected (90,) or (90, 2)"),
    (lambda x: {"x": np.stack([x] * 3, 1)}, "its channel 'x' has the shape (90, 3), expected (90,) or (90, 2)"),
    (lambda x: {"x": x.astype(str)}, "its channel 'x' is a ndarray of <U"), (lambda x: {"x": x.tolist()}, "is a list of no dtype, expected an array"),
    (lambda x: {"x": pd.Series(x)}, "is a Series of float64, expected an array"), (lambda x: {"x": 3.0}, "is a float of no dtype, expected an array"),
    (lambda x: None, "gives a NoneType, expected channels"),
    (lambda x: x, "gives a ndarray, expected channels")])
def test_block_that_gives_no_number_for_each_frame(colony, tmp_path, monkeypatch, of, wrong):
    "Of one frame too few a damaged cache was written, and said to be deleted and prepared again."
    from mabe_nb.data.blocks.registry import block, named
    from mabe_nb.data.features import compute
    monkeypatch.setitem(BLOCKS, "odd", None) # and out again when the test ends

    @block()
    def odd(pair):
        made = of(pair.points[:, 0, 0, 0])
        return named("cm", **made) if isinstance(made, dict) else made

    with pytest.raises(ConfigError, match="feature block 'odd'.*" + re.escape(wrong)):
        compute(make_recording(1, 90, 3), "odd")
    with pytest.raises(ConfigError, match="feature block 'odd'"): prepare(colony, "odd", tmp_path/"out", progress=False)
    assert not [*tmp_path.glob("out/*/*/video.json")]


def test_block_without_a_channel_of_these_parts(colony, tmp_path, monkeypatch):
    "Beside others it is none; alone there is nothing to learn from."
    from mabe_nb.data.blocks.registry import block
    from mabe_nb.data.features import compute
    monkeypatch.setitem(BLOCKS, "odd", None) # and out again when the test ends

    @block()
    def odd(pair): return {}

    rec = make_recording(1, 90, 3)
    assert compute(rec, "own+odd").names == compute(rec, "own").names
    assert len(prepare(colony, "between+odd", tmp_path/"both", progress=False).sequences)
    for names in "odd", "own+odd":
        with pytest.raises(ConfigError, match="no channel is left for .* with these body parts"):
            prepare(colony, names, tmp_path/"out", progress=False)
    ends = [rec.parts.index(p) for p in ("nose", "tail_base")]
    few = replace(rec, xy=rec.xy[:, :, ends], parts=("nose", "tail_base"))
    with pytest.raises(ConfigError, match="no channel is left for mouse1 with"):
        prepare(RecordingList([few]), "parts+between", tmp_path/"ends", progress=False)
    assert not [*tmp_path.glob("out/*/*/video.json")]


def test_place(tmp_path, monkeypatch, capsys):
    "A place of one's own: declared once, then known to the terminal and to the notebook."
    from IPython.core.interactiveshell import InteractiveShell
    from mabe_nb.remote.notebook.magic import load_ipython_extension
    from mabe_nb.remote.places.base import PLACES, get, place, place_names, rents
    from mabe_nb.remote.places.local import Backend
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setitem(PLACES, "mine", None) # and out again when the test ends

    @place("mine", provider="modal", options={"bench": "where it stands", "data": "a folder"})
    class Mine(Backend):
        "The machine beside the cage."
        def start(self, folder, spec): return super().start(folder, spec) | {"bench": 3}

    assert rents("mine") and get("mine").usd_per_hour({"gpu": "T4"}) > 0.1
    assert "mine" in place_names() and not rents("local") and rents("hf")
    words = ["submit", "--on", "mine", "--gpu", "t4", "--option", "bench=3", "--", "echo", "mice"]
    assert main(words) == 0 and "mice" in capsys.readouterr().out
    assert main([*words[:5], "--option", "stool=3", "--", "echo"]) == 2
    assert main([*words[:4], "H10", "--", "echo"]) == 2
    assert "unknown GPU 'H10'" in capsys.readouterr().err
    shell = InteractiveShell()
    load_ipython_extension(shell)
    shell.run_cell_magic("gpu", "--on mine --gpu T4 --out n", "n = 2 + 1")
    assert shell.user_ns["n"] == 3 and shell.user_ns["job"].spec["handle"]["bench"] == 3

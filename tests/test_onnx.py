"Networks as ONNX files and in other engines: the same numbers, or one sentence."
import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from mabe_nb import cli
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, MabeError
from mabe_nb.train.arithmetic import export
from mabe_nb.train.classifier import (Classifier, load_classifier, predict_sequences,
                                      wanted_actions)
from mabe_nb.train.config import choices, make_config
from mabe_nb.train.arithmetic.engines import has_bfloat16, in_engine, to_onnx
from mabe_nb.train.arithmetic.export import by_torch, export_onnx, networks_of
from mabe_nb.train.inputs import PCA, Inputs, Standardize
from mabe_nb.train.model import load_model
from mabe_nb.train.models import make_model
from mabe_nb.train.arithmetic.windows import anchors, gather, overlap_average, window_starts
from mabe_nb.train.runs import train

needs_onnx = pytest.mark.skipif(not (find_spec("onnx") and find_spec("onnxruntime")),
                                reason="the packages onnx and onnxruntime are not installed")
SMALL = {"conv_channels": [4], "lstm_hidden": 4, "hidden_size": 8, "num_heads": 2,
         "sequence_length": 30}


def classifier(kind="tcn", loss="cross_entropy"):
    "One with masks, components and a class that was never seen."
    rng, cfg = np.random.default_rng(0), make_config(SMALL | {"model_type": kind, "loss": loss})
    inputs = Inputs("coords", ("nose",), tuple("abcde"), np.arange(3), np.array([4]),
                    np.array([0, 3]), Standardize(*rng.random((2, 5), np.float32)),
                    (30.0, 30.0), np.arange(5),
                    PCA(rng.random((1, 2), np.float32), np.ones(1, np.float32)))
    torch.manual_seed(1)
    net = make_model(cfg, inputs.dim, 3).eval()
    return Classifier(net, inputs, ("chase", "groom"), ("groom",),
                      np.array([True, True, False]), cfg)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "A colony and a run of it."
    root = tmp_path_factory.mktemp("onnx")
    data = open_dataset(write_colony(root/"colony", videos=3, minutes=0.2))
    cfg = make_config(SMALL | {"epochs": 1, "features": "coords", "device": "cpu"})
    train(data, root/"run", cfg, data.ids[:2], data.ids[2:], cache=root/"cache")
    return root


def test_channels_that_no_training_video_had_change_nothing():
    "Weights that nothing was learned for would read a part that is new, in pixels or cm."
    clf, new = classifier(), [0, 2, 3]
    s, names = clf.inputs.scaler, ("a", "b", "agent.nose_missing.mean200", "d", "agent.ear_missing")
    s.mean[:], s.std[:] = (0, 2, 1, 0, 0), (1, 3, 1, 1, 1) # the ear was never missing
    clf = replace(clf, inputs=replace(clf.inputs, names=names))
    assert np.flatnonzero(clf.inputs.unlearned).tolist() == new
    x = torch.randn(2, 30, 5) * 9
    less = x.clone()
    less[..., new] = torch.nan
    assert (by_torch(clf, x) == by_torch(clf, less)).all()
    assert not (by_torch(clf, x) == by_torch(clf, x + 1)).all()
    told = export.FromFeatures(clf)(x).detach().numpy()
    assert np.allclose(told, by_torch(clf, x), atol=1e-6)


@needs_onnx
@pytest.mark.parametrize("kind", choices("model_type"))
def test_every_network_says_in_onnx_what_it_says_in_pytorch(kind, tmp_path):
    import onnx
    import onnxruntime
    clf = classifier(kind, "binary" if kind == "tcn" else "cross_entropy")
    found = export_onnx(SimpleNamespace(predict=None, members={
        "a": [SimpleNamespace(clf=clf)], "trees": [object()]}), tmp_path/"out")
    assert list(found) == ["a-1.onnx"] and found["a-1.onnx"]["agreement"] == 1
    path = tmp_path/"out"/"a-1.onnx"
    model = onnx.load(path)
    about = json.loads(model.metadata_props[0].value)
    assert about["actions"] == ["chase", "groom"] and about["channels"] == [*"abcde"]
    assert (about["frames"], about["gap"], about["fps"]) == (30, clf.cfg.gap, 30)
    assert about["any_length"] == (kind != "transformer")
    assert {node.domain for node in model.graph.node} == {""}
    assert not any(t.external_data for t in model.graph.initializer)
    assert str(sys.prefix).encode() not in path.read_bytes()
    ask = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for windows, frames in (1, 30), (7, 30), (2, 11), (3, 75):
        if frames != 30 and not about["any_length"]: continue
        x = torch.randn(windows, frames, 5) * 9 # some beyond the clip
        x[:, :5, 1:] = torch.nan
        got = ask.run(None, {"windows": x.numpy()})[0]
        assert abs(got - by_torch(clf, x)).max() < 1e-5 and not got[..., 2].any()


@needs_onnx
@pytest.mark.parametrize("loss", ["binary", "cross_entropy"])
def test_a_file_says_of_whole_videos_what_predict_says(run, tmp_path, loss):
    import onnxruntime
    data = open_dataset(run/"colony")
    cfg = make_config(SMALL | {"epochs": 2, "features": "coords", "device": "cpu", "loss": loss})
    train(data, tmp_path/"run", cfg, data.ids[:2], data.ids[2:], cache=run/"cache")
    clf = load_model(tmp_path/"run")
    assert export_onnx(clf, tmp_path/"out")["network.onnx"]["agreement"] == 1
    ask = onnxruntime.InferenceSession(tmp_path/"out"/"network.onnx",
                                       providers=["CPUExecutionProvider"])
    prepared, length, kinds = clf.prepared(data, cache=run/"cache"), cfg.sequence_length, set()
    for i, want in predict_sequences(replace(clf, usual=()), prepared, smooth_ms=0):
        row, may = prepared.sequences.iloc[i], wanted_actions(clf, prepared, i)
        values, gap = np.asarray(prepared.values(i)), clf.inputs.gap_at(clf.cfg.gap, row.fps)
        starts = window_starts(len(values), length, gap, length // 2 * gap,
                               anchors(values, length * gap))
        more = {"looked_for": np.r_[True, may]} if loss == "binary" else {}
        got = ask.run(None, {"windows": gather(values, starts, length, gap)} | more)[0]
        assert abs(overlap_average(got, starts, gap, len(values)) - want).max() < 1e-4
        assert loss != "binary" or not got[..., 1:][..., ~may].any()
        kinds.add(row.agent == row.target)
    assert kinds == {True, False}


class Moody(nn.Module):
    "Does not do the same with every window, which no record of it tells."
    def forward(self, x): return x[..., :2] * float(x.mean())


@needs_onnx
def test_a_network_that_onnx_cannot_say_is_refused():
    with pytest.raises(ConfigError, match="Moody cannot be written as ONNX"):
        to_onnx(Moody(), 10, 3)


@needs_onnx
def test_a_file_that_says_something_else_is_not_written(tmp_path, monkeypatch):
    other = classifier()
    monkeypatch.setattr(export, "by_torch", lambda clf, x: by_torch(
        SimpleNamespace(**vars(clf) | {"possible": ~clf.possible}), x))
    with pytest.raises(MabeError, match="another class in 100.00%"):
        export_onnx(other, tmp_path/"out")
    assert not any(tmp_path.iterdir())


@needs_onnx
def test_a_run_is_compared_on_its_own_videos(run, capsys, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(run/"home"))
    words = ["export", str(run/"run"), "--onnx", str(run/"out"), "--json"]
    assert cli.main([*words, "--data", str(run/"colony"), "--videos", "1-2"]) == 0
    of = json.loads(capsys.readouterr().out)["files"]["network.onnx"]
    assert of["windows"] > 9 and of["agreement"] == 1 and of["largest_difference"] < 1e-4
    assert cli.main(words) == 2 and "already exists" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["bfloat16", pytest.param("onnx", marks=needs_onnx)])
def test_an_engine_predicts_what_float32_predicts(run, engine):
    data = open_dataset(run/"colony")
    if engine == "bfloat16" and not has_bfloat16():
        with pytest.raises(ConfigError, match="no instructions for bfloat16"):
            load_model(run/"run", device="cpu", engine=engine)
        return
    model = load_model(run/"run", device="cpu", engine=engine)
    assert type(model.model) is not type(load_model(run/"run").model)
    x = torch.from_numpy(model.inputs(np.asarray(
        model.prepared(data, cache=run/"cache").values(0)))[None].numpy())
    with torch.inference_mode():
        off = abs(model.model(x) - load_classifier(run/"run"/"best.safetensors").model(x))
    assert 0 <= off.max() < (1e-4 if engine == "onnx" else 0.1)
    assert "stop_frame" in model.predict(data, cache=run/"cache")


def test_without_the_packages_there_is_a_sentence(run, monkeypatch, capsys):
    for name in ("onnx", "onnxruntime"): monkeypatch.setitem(sys.modules, name, None)
    out = str(run/"nothing")
    for words in (["export", str(run/"run"), "--onnx", out],
                  ["predict", str(run/"run"), str(run/"colony"), "--engine", "onnx",
                   "--out", out]):
        assert cli.main(words) == 2
        assert "pip install 'mabe_nb[onnx]'" in capsys.readouterr().err
    assert not (run/"nothing").exists()


def test_what_holds_no_network_and_what_is_no_engine():
    with pytest.raises(ConfigError, match="no network to export"): networks_of(object())
    with pytest.raises(ConfigError, match="did you mean 'onnx'"):
        in_engine(classifier().model, "onxn", 30, 5)

"""A run that starts from another run's weights."""
import json
import shutil

import pytest
import torch

import mabe_nb as mb
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.errors import ConfigError
from mabe_nb.files import read_json, read_tensors
from mabe_nb.train.classifier import load_classifier
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.folder.fine_tuning import copy_weights, open_start
from mabe_nb.train.models import make_model
from mabe_nb.train.runs import train

SMALL = {"epochs": 3, "hidden_size": 8, "num_layers": 2, "features": "coords",
         "num_workers": 1, "device": "cpu"}
VIDEOS = [colony_video(k, minutes=0.3) for k in range(0, 21, 3)]
DATA = RecordingList(VIDEOS)
OLD, NEW = (["1", "4", "7"], ["10"]), (["13", "16"], ["19"])


def renamed(rec, names):
    "A video whose actions have other names."
    new = lambda a: names.get(a, a)
    return rec.replace(bouts=rec.bouts.assign(action=rec.bouts.action.map(new)),
                       labelled=frozenset((m, t, new(a)) for m, t, a in rec.labelled))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    out = tmp_path_factory.mktemp("fine")
    train(DATA, out/"old", TrainConfig(**SMALL), *OLD, cache=out/"cache")
    return out


def tuned(folder, out, data=None, ids=NEW, **how):
    "A run that starts from the one in `folder`."
    cfg = TrainConfig(**open_start(folder/"old").settings() | {
        "epochs": 3, "num_workers": 1, "device": "cpu"})
    return train(data or DATA, out, cfg, *ids, cache=folder/"cache",
                 **{"init": folder/"old"} | how)


def same_weights(a, b):
    a, b = (read_tensors(folder/"best.safetensors", "mabe")[0] for folder in (a, b))
    return all(torch.equal(a[k], b[k]) for k in a | b)


@pytest.mark.parametrize("model", ["tcn", "conv_bilstm", "lstm", "transformer",
                                   "calms21_conv1d"])
def test_classes_are_found_by_name_in_every_network(root, model):
    old = load_classifier(root/"old"/"best.safetensors")
    cfg = TrainConfig(model_type=model, conv_channels=[8], hidden_size=8, num_layers=2)
    make = lambda n: make_model(cfg, old.inputs.dim, 1 + n)
    of = lambda *actions: type(old)(make(len(actions)), old.inputs, actions, (), None, cfg)
    before, after = of("a", "b", "c"), of("c", "new", "a")
    fresh = after.model.head.bias.detach().clone()
    assert copy_weights(before, after) == ["c", "a"]
    for key, value in before.model.state_dict().items():
        got = after.model.state_dict()[key]
        if not key.startswith("head."): assert torch.equal(got, value), key
        else: assert torch.equal(got[[0, 1, 3]], value[[0, 3, 1]]), key
    assert after.model.head.bias[2] == fresh[2]


def test_the_first_step_is_taken_from_the_old_weights(root, tmp_path):
    still = TrainConfig(**open_start(root/"old").settings() | {
        "epochs": 1, "learning_rate": 1e-30, "scheduler": "none", "weight_decay": 0.0,
        "num_workers": 1, "device": "cpu"})
    train(DATA, tmp_path/"run", still, *NEW, cache=root/"cache", init=root/"old")
    assert same_weights(tmp_path/"run", root/"old") # and the old run's scaling


def test_it_is_resumed_though_the_old_run_is_gone(root, tmp_path):
    whole = tuned(root, tmp_path/"a")
    shutil.copytree(root/"old", tmp_path/"old")
    def stop(row):
        if row["epoch"] == 2: raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        tuned(root, tmp_path/"b", init=tmp_path/"old", each=stop)
    shutil.rmtree(tmp_path/"old")
    assert tuned(root, tmp_path/"b", init=tmp_path/"old", resume=True) == whole
    assert same_weights(tmp_path/"a", tmp_path/"b")


def test_videos_that_it_learned_from_before_are_told_by_their_tracks(root, tmp_path):
    assert not [w for w in tuned(root, tmp_path/"a")["warnings"] if "flatter" in w]
    other = [rec.replace(video_id=str(100 + i)) for i, rec in enumerate(VIDEOS)]
    ids = (["104", "105"], ["100", "103"]) # 1 taught the old run, 10 judged it
    said = tuned(root, tmp_path/"b", RecordingList(other), ids)["warnings"]
    assert "learned from 1 of the 2 validation videos" in said[-1]
    assert said[-1] in (tmp_path/"b"/"card.md").read_text().replace("\n", " ")
    shutil.copytree(tmp_path/"a", tmp_path/"second"/"old") # 1 taught what taught this one
    for resume in (False, True):
        said = tuned(tmp_path/"second", tmp_path/"c", RecordingList(other), ids,
                     resume=resume)["warnings"]
        assert "learned from 1 of the 2 validation videos" in said[-1]


def test_videos_are_known_again_by_their_poses_whatever_the_rate_and_the_scale(root, tmp_path):
    "Another stated frame rate or pixel size made a video that had taught the old run new to it."
    other = [rec.replace(video_id=str(100 + i), fps=rec.fps + 5, px_per_cm=2 * rec.px_per_cm)
             for i, rec in enumerate(VIDEOS)]
    ids = (["104", "105"], ["100", "103"])
    said = tuned(root, tmp_path/"a", RecordingList(other), ids)["warnings"]
    assert "learned from 1 of the 2 validation videos" in said[-1] and not any("not tell all" in s for s in said)
    shutil.copytree(root/"old", tmp_path/"of"/"old") # of a version that kept no such hashes
    kept = read_json(path := tmp_path/"of"/"old"/"sources.json")
    path.write_text(json.dumps({k: v for k, v in kept.items() if k != "poses"}))
    assert not open_start(tmp_path/"of"/"old").known
    said = tuned(tmp_path/"of", tmp_path/"b", RecordingList(other), ids)["warnings"]
    assert "not tell all" in said[-1]
    same = [rec.replace(video_id=str(100 + i)) for i, rec in enumerate(VIDEOS)]
    said = tuned(tmp_path/"of", tmp_path/"c", RecordingList(same), ids)["warnings"]
    assert "not tell all" in said[-2] and "learned from 1 of the 2 validation videos" in said[-1]
    assert open_start(tmp_path/"a").known and not open_start(tmp_path/"b").known # nor what starts from it
    path.unlink()
    assert not open_start(tmp_path/"of"/"old").known and open_start(root/"old").known


def test_what_taught_the_old_run_is_not_new_to_what_started_from_it(root, tmp_path):
    "A score of those videos was told without a word, as if they were new to it."
    tuned(root, tmp_path/"second"/"old")
    tuned(tmp_path/"second", tmp_path/"third", ids=(["19"], ["16"]))
    for run, known in ((root/"old", OLD[0]), (tmp_path/"second"/"old", OLD[0] + NEW[0]),
                       (tmp_path/"third", OLD[0] + NEW[0] + ["19"])):
        model, said = mb.load_model(run), []
        assert model.learned_from == {*known}
        bouts = model.predict(DATA, ["1", "10"], cache=root/"cache", say=None)
        assert bouts.attrs["learned_from"] == ["1"]
        mb.score(DATA, bouts, ["1", "10"], say=said.append)
        assert any("1 of 2 videos have ids of videos that the run was trained on" in line for line in said)
    (tmp_path/"third"/"init"/"sources.json").write_text("[]")
    assert mb.load_model(tmp_path/"third").learned_from == {"19"}


def test_scores_mean_what_they_meant_to_the_old_run(root, tmp_path):
    how = {"device": "cpu", "epochs": 1, "say": None, "progress": False}
    mb.fit(DATA, tmp_path/"old", train_videos=OLD[0], valid_videos=OLD[1],
           **SMALL | how | {"loss": "binary"})
    new = mb.fit(DATA, tmp_path/"new", train_videos=NEW[0], valid_videos=NEW[1],
                 init=tmp_path/"old", **how)
    assert new.cfg.loss == "binary"


def test_what_cannot_be_started_from_is_one_sentence(root, tmp_path):
    with pytest.raises(ConfigError, match="hidden_size 8, not 16: leave"):
        train(DATA, tmp_path/"a", TrainConfig(**SMALL | {"hidden_size": 16}), *NEW,
              cache=root/"cache", init=root/"old")
    (tmp_path/"recipe").mkdir()
    (tmp_path/"recipe"/"recipe.json").write_text("{}")
    with pytest.raises(ConfigError, match="is a recipe, and only a single run"):
        tuned(root, tmp_path/"a", init=tmp_path/"recipe")
    shutil.copytree(root/"old", tmp_path/"fresh")
    with pytest.raises(ConfigError, match="began with fresh weights"):
        train(DATA, tmp_path/"fresh", TrainConfig(**SMALL), *OLD, cache=root/"cache",
              resume=True, init=root/"old")


def test_an_action_that_was_renamed_begins_anew(root, tmp_path):
    names, said = {"sniff": "nose contact"}, []
    data = RecordingList([renamed(rec, names) for rec in VIDEOS])
    tuned(root, tmp_path/"a", data, say=said.append)
    assert [line for line in said if "new to it: nose contact" in line]

"""Folders of the competition as they come: files lost, scales missing, names misspelt."""
import json

import pandas as pd
import pytest

from mabe_nb.cli import main
from mabe_nb.data.checks.defects import check
from mabe_nb.data.dataset import open_dataset, readable_videos
from mabe_nb.data.splits import choose_videos
from mabe_nb.errors import DataError
from mabe_nb.train.config import TrainConfig

SMALL = ["--epochs", "1", "--features", "directed", "--hidden-size", "8",
         "--conv-channels", "8"]


@pytest.fixture
def lost(tmp_path, monkeypatch):
    "A colony of which the tracks of video 4 and of a test video are lost."
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    assert main(["synth", "colony", "--videos", "6", "--minutes", "0.3"]) == 0
    (path,) = tmp_path.glob("colony/train_tracking/*/4.parquet")
    path.unlink()
    return tmp_path/"colony"


def test_what_is_not_named_is_not_read(lost):
    named = ["1", "2", "3", "5", "6"]
    learn, judge = choose_videos(open_dataset(lost), TrainConfig(), named)
    assert {*learn, *judge} == {*named} - {"6"} and learn and judge # 6 is unlabelled


def test_a_lost_file_says_what_to_do(lost, capsys):
    assert main(["train", "colony", "--out", "run", *SMALL]) == 2
    said = capsys.readouterr().err
    assert "4.parquet, video 4: file not found; mabe audit lists all" in said and "--skip-broken" in said


@pytest.mark.parametrize("more", [[], ["--valid-videos", "4,5"], ["--train-videos", "1-4"]])
def test_training_without_what_is_lost(lost, capsys, more):
    run = ["train", "colony", "--out", "run", *SMALL, *more, "--skip-broken"]
    assert main(run) == 0
    assert "video 4 is left out" in capsys.readouterr().out
    used = json.loads((lost.parent/"run/videos.json").read_text())
    assert "4" not in [*used["train"], *used["valid"]] and used["valid"]
    if "--valid-videos" in more: assert used["valid"] == ["5"]
    if "--train-videos" in more: assert "5" not in [*used["train"], *used["valid"]]


def test_prediction_without_what_is_lost(lost, capsys):
    assert main(["train", "colony", "--out", "run", *SMALL, "--skip-broken"]) == 0
    assert main(["predict", "run", "colony", "--out", "sub.csv"]) == 2
    assert "--skip-broken" in capsys.readouterr().err
    assert main(["predict", "run", "colony", "--out", "sub.csv", "--skip-broken"]) == 0
    said = capsys.readouterr().out
    assert "video 4 is left out" in said and "in 5 videos" in said
    for more in (["--on", "local"], ["--watch", "0"]):
        assert main(["predict", "run", "colony", "--out", "o", "--skip-broken", *more]) == 2
        assert "--skip-broken" in capsys.readouterr().err


def test_those_that_can_be_read_are_found_in_their_order(lost):
    said = []
    data = open_dataset(lost)
    assert readable_videos(data, ["6", "4", "1"], said.append) == ["6", "1"]
    assert len(said) == 1 and "video 4" in said[0]
    with pytest.raises(DataError): data["4"]


@pytest.mark.parametrize("table, expected", [
    ({"AmberOtter": {"snif": .5}}, "thresholds of snif change nothing"),
    ({"AmbrOtter": {"sniff": .5}}, "thresholds are of the labs AmbrOtter, the videos of AmberOt"),
    ({"*": {"sniff": .5}}, None),
    ({"AmberOtter": {"sniff": .5}, "Elsewhere": {"sniff": .1}}, None)])
def test_a_threshold_without_effect_is_told(lost, capsys, table, expected):
    assert main(["train", "colony", "--out", "run", *SMALL, "--skip-broken"]) == 0
    (lost.parent/"bars.json").write_text(json.dumps(table))
    capsys.readouterr()
    assert main(["predict", "run", "colony", "--videos", "1", "--thresholds", "bars.json",
                 "--out", "sub.csv"]) == 0
    said = capsys.readouterr().out
    assert expected in said if expected else "note: thresholds" not in said


def test_a_lab_without_a_scale_learns_with_the_others(lost):
    "Its lengths come in the same unit and size as theirs."
    from mabe_nb.data.features import compute
    data = open_dataset(lost)
    free = [v for v in data.ids if v != "4" and not data[v].px_per_cm]
    rest = [v for v in data.ids if v != "4" and data[v].px_per_cm]
    assert free and rest
    lengths = {v: pd.Series(dict(zip((f := compute(data[v], "directed")).names, f.values.T))
                            )["agent.length"] for v in [*free, *rest]}
    typical = {v: pd.Series(x).median() for v, x in lengths.items()}
    for v in free:
        for other in rest: assert .5 < typical[v] / typical[other] < 2, typical


@pytest.mark.slow
def test_coordinates_in_px_beside_others_in_cm_are_told(lost, capsys):
    data = open_dataset(lost)
    free = [v for v in data.ids if v != "4" and not data[v].px_per_cm and data.labelled(v)]
    for features, told in ("speed", True), ("directed", False), ("directed+coords", True):
        words = ["train", "colony", "--skip-broken", "--out", features, *SMALL]
        words[words.index("directed")] = features
        assert main(words) == 0
        said = capsys.readouterr().out
        assert (f"(video {', '.join(free)}): {features.split('+')[-1]} is in px" in said) == told
    assert "coords, speed, acceleration and kaggle288 stay" in check(data[free[0]])[-1].message


def test_a_card_does_not_ask_to_whom_a_mouse_rears():
    from mabe_nb.train.ensemble.card import roles_section
    card = roles_section({"directed": {"rear": None, "chase": True, "mount": None,
                                       "groom": False}, "ordered": ["net"],
                          "self_actions": ["rear", "groom"]})
    assert "- rear: an animal does it by itself." in card
    assert "- mount: only one order of the animals was looked for" in card
    assert "- groom: both take the same part." in card # it is listed of pairs too

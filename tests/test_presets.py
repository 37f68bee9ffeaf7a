"""The speed guide's flags and presets, and the design's config file, as they are written."""
from pathlib import Path

import pytest
import torch
import yaml

from mabe_nb import cli
from mabe_nb.data.synthetic import write_colony
from mabe_nb.train.classifier import load_classifier
from mabe_nb.train.presets import preset

SHARED = Path(__file__).parents[2]/"shared"
SHORT = ["--epochs", "1", "--device", "cpu", "--limit", "2"]


@pytest.fixture(scope="module")
def colony(tmp_path_factory):
    return write_colony(tmp_path_factory.mktemp("presets")/"colony", videos=6, minutes=0.2)


@pytest.fixture
def trained(colony, tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(colony.parent/"home"))

    def run(*words, data=colony):
        assert cli.main(["train", str(data), "--out", str(tmp_path/"run"), *words]) == 0
        return yaml.safe_load((tmp_path/"run"/"config.yaml").read_text())

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name, want", [
    ("fastest", {"model_type": "transformer", "batch_size": 512, "hidden_size": 256,
                 "amp": True, "num_workers": 4, "pin_memory": True, "dropout": 0.2}),
    ("balanced", {"model_type": "lstm", "batch_size": 256, "hidden_size": 128, "amp": True,
                  "num_workers": 2, "pin_memory": True, "dropout": 0.2}),
    ("low-memory", {"model_type": "lstm", "batch_size": 128, "hidden_size": 64,
                    "amp": True, "gradient_accumulation_steps": 2, "dropout": 0.2})])
def test_presets_of_the_speed_guide_train(trained, name, want):
    assert want.items() <= trained("--preset", name, *SHORT).items()


@pytest.mark.parametrize("name, epochs", [("fastest", 100), ("balanced", 50),
                                          ("low-memory", 50), ("large", 100)])
def test_presets_last_as_long_as_the_guide_says(name, epochs):
    assert preset(name)["epochs"] == epochs


@pytest.mark.parametrize("name, told", [
    ("fastest", "2 to 3 times as fast, 6 to 8 GB, 1 to 1.5 h, for cards of 12 GB or more"),
    ("balanced", "1.5 to 2 times as fast, 4 to 6 GB, 1.5 to 2 h, for cards of 8 to 12 GB"),
    ("low-memory", "1.5 times as fast, 2 to 4 GB, 2 to 3 h, for cards of up to 8 GB")])
def test_what_the_guide_expects_stands_beside_what_is_counted(name, told, capsys):
    assert cli.main(["estimate", "--preset", name, "--card", "T4"]) == 0
    said = capsys.readouterr().out
    assert told in said and "counted" in said and "GB (" in said


@pytest.mark.slow
def test_targets_of_the_guide_stand_beside_an_epoch(colony, capsys, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(colony.parent/"home"))
    assert cli.main(["sweep", str(colony), "--sizes", "4,8", "--seconds", "0.1",
                     "--hidden-size", "8", "--num-layers", "1"]) == 0
    said = capsys.readouterr().out
    assert "60-90 s" in said and "20-30 s" in said and "10-15 s at best" in said
    assert said.count("x batch (of two sizes, which any line fits") == 2 and "R2" not in said


def test_a_flag_of_the_guides_program_is_explained(colony, capsys):
    with pytest.raises(SystemExit): cli.main(["prepare", str(colony), "--symbols", "all"])
    assert "all are taken unless --videos" in capsys.readouterr().err


def test_the_large_preset_is_the_model_of_the_guide():
    from mabe_nb.train.config import make_config
    from mabe_nb.train.models import count_parameters, make_model
    cfg = make_config(preset("large"))
    assert count_parameters(make_model(cfg, 131, 4)) == 11_495_044
    assert (cfg.batch_size, cfg.sequence_length, cfg.epochs) == (32, 100, 100)


@pytest.mark.slow
def test_flags_of_the_speed_guide_train(trained):
    cfg = trained("--amp", "--batch-size", "512", "--num-workers", "4", "--pin-memory",
                  "--gradient-accumulation-steps", "4", "--model-type", "transformer",
                  "--hidden-size", "256", "--num-layers", "1", *SHORT)
    assert cfg["amp"] and cfg["pin_memory"] and cfg["gradient_accumulation_steps"] == 4
    assert cfg["num_layers"] == 1 and cfg["limit"] == 2


def test_a_flag_wins_over_the_preset(trained):
    assert trained("--preset", "low-memory", "--hidden-size", "8", *SHORT)["hidden_size"] == 8


@pytest.mark.parametrize("loss", ["focal", "binary", "focal_binary"])
@pytest.mark.parametrize("model", ["tcn", "calms21_conv1d"])
def test_every_loss_trains(trained, loss, model):
    trained("--loss", loss, "--model-type", model, *SHORT)


@pytest.mark.parametrize("scheduler", ["plateau", "cosine", "onecycle", "none"])
def test_every_schedule_trains(trained, scheduler):
    trained("--scheduler", scheduler, "--mixup-alpha", "0.2", "--label-smoothing", "0.1",
            "--conv-channels", "8", "--lstm-hidden", "8", *SHORT)


@pytest.mark.slow
def test_the_designs_config_trains_as_it_lies_there(trained, tmp_path):
    path = SHARED/"facts"/"config_advanced.yaml"
    if not path.exists(): pytest.skip("config_advanced.yaml lies beside the checkout only")
    write_colony(tmp_path/"calms", layout="calms21", videos=4, minutes=0.2)
    cfg = trained("--config", str(path), "--epochs", "1",
                  data=tmp_path/"calms"/"calms21_task1_train.json")
    assert cfg["class_weights"] == [0.5, 10.0, 15.0, 15.0] and cfg["lstm_hidden"] == 256


def test_the_published_baseline_is_one_short_command(trained, tmp_path, capsys):
    "Settings of Sun et al. 2021 (arXiv:2104.02710); its score needs its files."
    write_colony(tmp_path/"calms", layout="calms21", videos=4, minutes=0.5)
    cfg = trained("--preset", "calms21", "--epochs", "2",
                  data=tmp_path/"calms"/"calms21_task1_train.json")
    want = {"features": "coords", "frame_gap": 2, "dropout": 0.5, "learning_rate": 1e-3,
            "class_weights": "none", "weight_decay": 0, "ema_decay": 0, "grad_clip": 0,
            "scheduler": "none", "use_augmentation": False, "loss": "cross_entropy",
            "label_smoothing": 0, "smooth_ms": 0}
    assert want.items() <= cfg.items() and preset("calms21")["epochs"] == 60
    net = load_classifier(tmp_path/"run"/"best.safetensors").model
    convs = [m for m in net.modules() if isinstance(m, torch.nn.Conv1d)][:3]
    assert [c.out_channels for c in convs] == [128, 64, 32]
    assert {c.kernel_size for c in convs} == {(5,)}
    assert convs[0].in_channels in (28, 42) # x and y of 14 points, and what is missing
    with torch.no_grad():
        x = torch.zeros(1, 501, convs[0].in_channels)
        moved = []
        for at in (250 - 101, 250 - 90, 250 + 90, 250 + 101):
            y = x.clone()
            y[0, at] = 9
            moved.append(not torch.equal(net(x)[0, 250], net(y)[0, 250]))
    assert moved == [False, True, True, False] # 100 frames before and after
    assert cli.main(["train", "x", "--out", "y", "--preset", "calms12"]) == 2
    assert "did you mean 'calms21'" in capsys.readouterr().err
    with pytest.raises(SystemExit): cli.main(["train", "--help"])
    assert "calms21" in capsys.readouterr().out


def test_resume_on_the_command_line(trained, colony, tmp_path, capsys):
    short = ["--conv-channels", "8", "--lstm-hidden", "8", "--device", "cpu", "--epochs", "2"]
    trained(*short)
    whole = (tmp_path/"run"/"best.safetensors").read_bytes()
    words = ["train", str(colony), "--out", str(tmp_path/"run")]
    assert cli.main([*words, *short]) == 2 and "--resume" in capsys.readouterr().err
    assert cli.main([*words, "--resume"]) == 0 # with its own settings, nothing left to do
    assert (tmp_path/"run"/"best.safetensors").read_bytes() == whole
    assert cli.main([*words, "--resume", "--epochs", "9"]) == 2
    assert "epochs" in capsys.readouterr().err

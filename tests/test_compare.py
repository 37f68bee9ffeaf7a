"Cards beside each other: measured, predicted and marked, or failed and told."
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mabe_nb.cli import main
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError
from mabe_nb.hardware.catalog import card
from mabe_nb.measure import compare as module
from mabe_nb.measure.compare import (by_bandwidth, by_count, compare, others, pareto,
                                     recurrent_floor)
from mabe_nb.measure.workload import Workload
from mabe_nb.train.config import TrainConfig
from mabe_nb.view.cost_plots import plot_compare

TINY = TrainConfig(model_type="tcn", hidden_size=16, num_layers=2, sequence_length=20,
                   batch_size=8)


@pytest.fixture(autouse=True)
def mabe_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_pareto_is_what_nothing_beats(points):
    s, c = (np.array(points, float).reshape(-1, 2)).T
    front = pareto(s, c)
    for i in range(len(points)):
        beaten = any(s[j] <= s[i] and c[j] <= c[i] and (s[j], c[j]) != (s[i], c[i])
                     for j in range(len(points)))
        assert front[i] == (not beaten)
    assert not points or front.any()


def result(card_name="NVIDIA A100-SXM4-40GB", seconds=0.1, gpu="A100-40GB", device="cuda"):
    return {"status": "ok", "device": device, "card": card_name, "gpu": gpu,
            "windows_s": 80.0, "precision": "bf16", "flops": 1e12, "bytes": 1e11,
            "memory": {"peak": 1e9}, "note": "", "reused": False, "usd": 0.01, "batch": 8,
            "on": "modal", "seconds": dict.fromkeys(("p10", "p50", "p90", "low", "high"),
                                                    seconds)}


def test_prediction_goes_with_bandwidth_and_stops_at_the_floor():
    v100, a100 = card("V100"), card("A100")
    assert np.isclose(1 / by_bandwidth(1, v100, a100), 1555 / 900)
    assert by_bandwidth(1, v100, a100, floor=0.9) == 0.9
    rows = {r["where"]: r for r in others(TINY, [result()])}
    assert np.isclose(rows["modal:T4"]["ms"], 100 * 1555 / 320)
    assert all(np.isclose(r["high"] / r["low"], 2.25) for r in rows.values())
    assert "modal:A100-40GB" not in rows
    assert np.isclose(rows["modal:RTX-PRO-6000"]["ms"], 100 * 1555 / 1792)


def test_a_card_that_we_do_not_know_tells_what_it_computed():
    "No bandwidth to go by: a wide guess, as from a processor."
    rows = others(TINY, [result("NVIDIA GH200 480GB")])
    assert rows and all(np.isclose(r["high"] / r["low"], 10) for r in rows)
    assert all("GH200 480GB, of which we have no figures" in r["note"] for r in rows)


def test_prediction_from_a_processor_is_a_wide_guess():
    cpu = result("AMD EPYC", gpu="cpu", device="cpu")
    rows = others(TINY, [cpu])
    assert all(np.isclose(r["high"] / r["low"], 10) for r in rows)
    assert all("no card measured" in r["note"] for r in rows)
    assert np.isclose(by_count(cpu, card("L4")), 1e11 / 300e9 / 0.3)
    lstm = TINY.model_copy(update={"model_type": "lstm", "sequence_length": 100})
    assert recurrent_floor(lstm) == pytest.approx(0.0036) and recurrent_floor(TINY) == 0
    assert others(TINY, []) == [] and others(TINY, [{"status": "died"}]) == []


@pytest.mark.slow
def test_places_at_once_and_one_that_fails():
    "The processor twice would be one; a device that is not there is a row."
    table = compare(TINY, Workload(windows=800), ["local:cpu", "local:cuda:9", "local:cpu"],
                    seconds=0.2)
    assert (table["where"] == "local:cpu").sum() == 1
    bad = table[table["where"] == "local:cuda:9"].iloc[0]
    assert bad.basis == "error" and "cuda:9" in bad.note and not bad.pareto
    mine = table[table["where"] == "local:cpu"].iloc[0]
    assert mine.seconds == pytest.approx(800 / mine.windows_s) and mine.usd == 0
    assert mine.pareto and (table.basis == "predicted").sum() >= 8
    again = compare(TINY, Workload(windows=800), "local:cpu", None, seconds=0.2)
    assert again.reused.all() and again.paid.sum() == 0
    assert "local:cpu" in plot_compare(table)[0].get_label()


def test_price_of_an_epoch(monkeypatch):
    monkeypatch.setattr(module, "run_probes", lambda asks, *a: [result()])
    monkeypatch.setattr(module, "_rate", lambda *a: 3.6)
    row = compare(TINY, Workload(windows=8000), "modal:A100", None).iloc[0]
    assert row.seconds == pytest.approx(100) and row.usd == pytest.approx(0.1)
    assert compare(TINY, Workload(), "modal:A100", None).seconds[0] == pytest.approx(12_500)


@pytest.mark.parametrize("gpus, words", [([], "no GPUs"), (["moddal:L4"], "unknown place")])
def test_bad_input_is_one_sentence(gpus, words):
    with pytest.raises(ConfigError, match=words): compare(TINY, gpus=gpus)


def test_a_provider_that_is_none_is_refused_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(module, "run_probes", lambda *a: pytest.fail("measured"))
    with pytest.raises(ConfigError, match="moon"): compare(TINY, predict="moon")


@pytest.mark.slow
def test_what_is_rented_and_what_is_ones_own_are_told_apart(capsys):
    "Cards of Hugging Face under the name that its help offers; this machine costs nothing."
    line = ["compare", "--seconds", "0.1", "--predict", "hf-jobs", "--json", "--features", "coords",
            "--epochs", "20", "--model-type", "tcn", "--hidden-size", "8", "--num-layers", "1",
            "--sequence-length", "20", "--batch-size", "4"]
    write_colony(Path(os.environ["MABE_HOME"])/"lab", videos=2, minutes=0.1)
    assert main([*line, os.environ["MABE_HOME"] + "/lab"]) == 0
    out, said = capsys.readouterr()
    answer = json.loads(out)
    assert answer["cheapest"]["where"].startswith("hf:") and answer["cheapest"]["usd"] > 0
    assert answer["own"]["where"] == "local" and 0 < answer["own"]["hours"] < 0.1
    assert "cost least of all that is rented on hf:" in said
    assert "h on local and cost nothing" in said and "USD: " not in said


@pytest.mark.slow
@pytest.mark.parametrize("line", [["compare", "--gpus", "local:cuda:9", "--predict", "none"],
                                  ["sweep", "--on", "local:cuda:9", "--sizes", "2"]])
def test_nothing_measured_is_a_failure_with_an_answer(line, capsys):
    assert main([*line, "--seconds", "0.1", "--json"]) == 2
    out, said = capsys.readouterr()
    assert len(json.loads(out)["rows"]) == 1 and "could be measured; each says why" in said

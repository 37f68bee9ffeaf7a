"""Advice: every row of the guides' lists with their prices, and today's beside it."""
import json
import math
import subprocess
import sys
import time
from argparse import Namespace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mabe_nb.errors import ConfigError, MabeError
from mabe_nb.commands import hardware as commands
from mabe_nb.hardware.advise import by_scenario, by_speed, speeds
from mabe_nb.hardware.billing import most_seconds
from mabe_nb.hardware.catalog import guide_prices, prices
from mabe_nb.hardware.llm_guide import (BUDGETS, SIZES, TRAINING, budget_bands,
                                        by_budget, by_size, by_training, size_of)

GUIDE, NOW = guide_prices(), prices()
HOURS = {"T4": 5, "A10G": 1.7, "A100": 0.8}
few = settings(max_examples=10, deadline=None)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch): monkeypatch.setenv("MABE_HOME",
                                                        str(tmp_path/"home"))


# 100 epochs: card, hours, USD in the guide
@pytest.mark.parametrize("gpu,hours,usd", [
    ("T4", 5, 3.00), ("A10G", 1.7, 2.04), ("A100-40GB", 0.8, 3.20)])
def test_hundred_epochs(gpu, hours, usd):
    answer = by_speed(HOURS, table=GUIDE)
    row = answer.table.set_index("gpu").loc[gpu]
    assert (row.hours, round(row.usd, 2)) == (hours, usd) and answer.pick == "A10G"
    assert answer.reasons[1] == "the next, T4, costs $3.00" and len(by_speed({"T4": 5}).reasons) == 1


def test_five_runs():
    table = by_speed(HOURS, table=GUIDE, runs=5).table.set_index("gpu")
    assert table.usd.round(2).to_dict() == {"A10G": 10.20, "T4": 15, "A100-40GB": 16}
    assert table.hours.to_dict() == pytest.approx({"A10G": 8.5, "T4": 25, "A100-40GB": 4})


def test_todays_prices_change_the_answer():
    answer = by_speed(HOURS, table=NOW)
    assert answer.pick == "A100-40GB" and answer.table.usd.iloc[0] < 2


def test_what_would_change_the_answer_does():
    "At the price that it names, the other card is as cheap."
    answer = by_speed(HOURS, table=GUIDE)
    assert any("A100-40GB cost under $2.55" in c for c in answer.changes)
    for usd, pick in ((2.56, "A10G"), (2.54, "A100-40GB")):
        other = GUIDE.copy()
        other.loc[other.flavor == "A100-40GB", "usd_per_hour"] = usd
        assert by_speed(HOURS, table=other).pick == pick


# Guide: scenario, card, timeout (s), epochs
@pytest.mark.parametrize("name,gpu,timeout,epochs,today", [
    ("debug", "T4", 1800, 10, "T4"), ("train", "A10G", 4 * 3600, 100, "A100-40GB"),
    ("large", "A100-40GB", 2 * 3600, 200, "H100"),
    ("very-large", "A100-80GB", 8 * 3600, None, "A100-80GB")])
def test_scenarios_of_the_guide(name, gpu, timeout, epochs, today):
    then, now = by_scenario(name, table=GUIDE), by_scenario(name, table=NOW)
    row = then.table.set_index("gpu").loc[gpu]
    assert then.pick == gpu and row.timeout_hours * 3600 == timeout and now.pick == today
    assert then.reasons and (epochs is None or f"{epochs} epochs" in then.reasons[1])
    assert any("the guide says of" in r for r in then.reasons) == (gpu != "A100-80GB")
    most = most_seconds("modal", row.timeout_hours * 3600, 2) / 3600
    assert row.upper_usd == pytest.approx(most * row.usd_per_hour)


def test_what_the_guide_knows_is_not_called_unknown():
    "Machines with more memory or more cards of a kind that it has a speed for."
    words = next(r for r in by_scenario("train", "hf", NOW).reasons if "no speed" in r)
    assert "a10g-large" not in words and "t4-medium" not in words
    assert "l40sx1" in words and "h200" in words


def test_card_out_of_stock_is_named():
    assert "H100 can be had" in by_scenario("large", table=GUIDE).changes


def test_relative_speeds():
    assert speeds() == {"T4": 1, "A10G": 3, "A10": 3, "A100-40GB": 6, "A100-80GB": 6,
                        "H100": 10}


# Guide: class, example and its size, flavors, hours
@pytest.mark.parametrize("name,billions,flavors,hours", [
    ("<1B", 0.5, ["t4-small"], (1, 2)),
    ("1-3B", 1.5, ["t4-medium", "a10g-small"], (2, 4)),
    ("1-3B", 2.7, ["t4-medium", "a10g-small"], (2, 4)),
    ("3-7B", 7, ["a10g-small", "a10g-large"], (4, 8)),
    ("7-13B", 8, ["a10g-large", "a100-large"], (6, 12)),
    (">13B", 13, ["a100-large"], (8, 24))])
def test_sizes_of_the_guide(name, billions, flavors, hours):
    size = size_of(billions * 1e9)
    assert (size.name, list(size.flavors), size.hours) == (name, flavors, hours)
    answer = by_size(billions * 1e9, "lora", GUIDE)
    assert answer.pick in flavors
    assert set(answer.table[answer.table.guide].flavor) == set(flavors)
    assert size.lora_only == (billions > 7) and by_size(billions * 1e9, "lora",
                                                        NOW).pick


# The guide's quick reference
@pytest.mark.parametrize("billions,flavor", [
    (0.9, "t4-small"), (2, "a10g-small"), (5, "a10g-large"), (10, "a10g-large"),
    (10, "a100-large"), (30, "a100-large")])
def test_quick_reference(billions, flavor):
    assert flavor in size_of(billions * 1e9).flavors


def test_full_does_not_fit_where_the_guide_says():
    full, lora = (by_size(1.5e9, m, GUIDE) for m in ("full", "lora"))
    fit = full.table.set_index("flavor").fits
    assert fit["t4-small"] == fit["t4-medium"] == "no" and full.pick == "a100-large"
    assert lora.table.set_index("flavor").fits["t4-small"] == "yes"
    assert any("LoRA will do: 6 GB instead" in c for c in full.changes)
    none = by_size(7e9, "full", GUIDE)
    assert none.pick is None and "nothing for rent" in str(none) and none.changes
    assert by_size(70e9, "lora",
                   GUIDE).pick is None # Here the guide contradicts its rule


# Guide: band, flavors, largest model
@pytest.mark.parametrize("low,high,flavors,largest", [
    (0.01, 4.99, "t4-small", "<1B"), (5, 19.99, "t4-medium or a10g-small", "3B"),
    (20, 49.99, "a10g-small or a10g-large", "7B"),
    (50, 200, "a10g-large or a100-large", "13B with LoRA")])
def test_budgets_of_the_guide(low, high, flavors, largest):
    for usd in (low, (low + high) / 2, high):
        answer = by_budget(usd, GUIDE)
        assert answer.pick == flavors and set(answer.table.largest) == {largest}


def test_budget_today():
    assert by_budget(5, NOW).pick == "t4-medium or a10g-small"
    assert by_budget(20, NOW).pick == "a10g-small or a10g-large" # 13B takes $60 by size
    assert by_budget(60, NOW).pick == "a10g-large or a100-large"
    assert (budget_bands(NOW).from_usd <= budget_bands(GUIDE).from_usd).all()
    assert "the guide ends at $200" in by_budget(500, NOW).reasons


@pytest.mark.parametrize("kind,flavors,hours", [
    ("demo", "t4-small", (1/6, 1/4)),
    ("development", "t4-medium or a10g-small", (1/2, 1)),
    ("production", "a10g-large or a100-large", (4, 12)),
    ("research", "a100-large", (20, 50))])
def test_training_types_of_the_guide(kind, flavors, hours):
    then, now = by_training(kind, GUIDE), by_training(kind, NOW)
    assert then.pick == now.pick == flavors
    assert tuple(then.table.loc[0, ["hours_from", "hours_to"]]) == hours
    assert (now.table.usd_to < then.table.usd_to).all()
    assert (then.table.upper_usd >= then.table.usd_to).all()


def test_all_rows_are_there():
    assert (len(SIZES), len(BUDGETS), len(TRAINING)) == (5, 4, 4)


@few
@given(st.floats(1e8, 2e11), st.floats(1, 3), st.sampled_from(["full", "lora"]))
def test_more_parameters_never_fit_better(params, more, method):
    level = ["yes", "likely", "maybe", "no"].index
    one, two = (by_size(p, method, NOW).table.set_index("flavor").fits
                for p in (params, params * more))
    assert all(level(two[f]) >= level(one[f]) for f in one.index)


@pytest.mark.slow
@few
@given(st.floats(0.01, 1000), st.floats(1, 5))
def test_more_money_is_never_less(usd, more):
    starts = list(budget_bands(NOW).flavors)
    assert starts.index(by_budget(usd * more, NOW).pick) >= starts.index(
        by_budget(usd, NOW).pick)
    answer = by_budget(usd, NOW)
    for row in answer.table.itertuples():
        most = most_seconds("hf", row.safe_hours * 3600, 2) / 3600 * row.usd_per_hour
        assert most <= usd * 1.0001 or not row.safe_hours


@few
@given(st.dictionaries(st.sampled_from(["T4", "L4", "A10", "H100"]),
                       st.floats(0.01, 100),
                       min_size=1))
def test_the_cheapest_is_picked(hours):
    answer = by_speed(hours, table=NOW)
    assert answer.table.usd.is_monotonic_increasing and answer.pick == answer.table.gpu[0]
    assert (answer.table.upper_usd >= answer.table.usd).all()
    json.dumps(answer.to_json(), allow_nan=False)


@pytest.mark.parametrize("call", [
    lambda: by_speed({}), lambda: by_speed({"T4": 0}),
    lambda: by_speed({"T4": math.nan}),
    lambda: by_speed({"T4": "5"}), lambda: by_speed({"T400": 5}),
    lambda: by_speed({"T4": 5}, "aws"), lambda: by_speed({"T4": 5}, slack=0.5),
    lambda: by_scenario("trian"), lambda: by_scenario("train", "aws"),
    lambda: by_budget(0), lambda: by_budget(math.inf), lambda: by_budget(9, retries=-1),
    lambda: by_training("prod"), lambda: by_size(-1), lambda: by_size(1e9, "qqlora"), lambda: by_size(1.5),
    lambda: by_size(2_761_284),
    lambda: by_size(math.nan)])
def test_bad_questions(call):
    with pytest.raises(MabeError) as e: call()
    assert "\n" not in str(e.value)


def ask(function, **given):
    "A command's answer and what it said."
    said, words = [], dict(provider=None, guide=False, refresh=False, params=None,
                           method=None,
                           budget=None, scenario=None, training_type=None, hours=None,
                           retries=2)
    answer = getattr(commands, function)(Namespace(**words | given), said.append)
    json.dumps(answer, allow_nan=False)
    return answer, "\n".join(said)


def test_commands():
    answer, said = ask("advise", params=1.5e9, method="lora")
    assert answer["pick"] == "a10g-small" and "6 GB" in said
    assert ask("advise", hours="T4=5,A10G=1.7,A100=0.8",
               guide=True)[0]["pick"] == "A10G"
    assert set(ask("advise")[0]["scenarios"]) == {"debug", "train", "large",
                                                  "very-large"}
    assert ask("advise", budget=12.0,
               guide=True)[0]["pick"] == "t4-medium or a10g-small"
    assert ask("advise", training_type="demo")[0]["pick"] == "t4-small"
    assert ask("advise", scenario="debug")[0]["pick"] == "T4"
    assert ask("advise", params=7e9)[0]["pick"] is None
    answer, said = ask("gpus")
    assert len(answer["prices"]) == len(NOW) and "H100" in said
    for bad in (dict(budget=1.0, params=1e9), dict(method="lora"), dict(hours="x"),
                dict(budget=0.0), dict(hours="T4=5", runs=0), dict(hours="T4=5,T4=3")):
        with pytest.raises(ConfigError): ask("advise", **bad)


def test_a_moment_across_a_change_of_summer_time(monkeypatch):
    "At 2 o'clock it is 3: to noon there are 11 hours."
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    try:
        time.tzset()
        midnight = datetime(2026, 3, 29)
        assert commands.until("2026-03-29T12:00", midnight) == 11
        assert commands.until("2026-03-29T12:00+00:00", midnight) == 13
    finally:
        monkeypatch.undo()
        time.tzset()


def test_nothing_heavy_is_imported():
    code = ("import sys, mabe_nb.commands.hardware, mabe_nb.hardware.llm_guide, "
            "mabe_nb.hardware.refresh, mabe_nb.hardware.slurm\n"
            "print([m for m in ('torch', 'modal', 'huggingface_hub', 'pynvml', 'matplotlib')"
            " if m in sys.modules])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stderr

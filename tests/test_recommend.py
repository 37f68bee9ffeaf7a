"Advice for a run of one's own: dated, with a range, and never against itself."
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from mabe_nb import cli
from mabe_nb.data.synthetic import write_colony
from mabe_nb.measure.choice import how_to_settle, run_hours
from mabe_nb.measure.past import past_results
from mabe_nb.measure.recommend import answer, batch_for, candidates, choose, known_step
from mabe_nb.measure.workload import Workload
from mabe_nb.hardware.catalog import card
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.models import NETWORKS

CFG = TrainConfig(conv_channels=[16], lstm_hidden=16, sequence_length=20)
few = settings(max_examples=40, deadline=None)
BASES = {"measured here", "predicted", "unknown"}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def probe(name="a processor", device="cpu", seconds=0.1, **more):
    return {"status": "ok", "device": device, "card": name, "created": 1.79e9,
            "on": "local" if device == "cpu" else "modal", "gpu": None,
            "precision": "fp32", "flops": 1e12, "bytes": 1e10,
            "launches": 500, "batch": 16, "windows_s": 16 / seconds,
            "seconds": dict.fromkeys(("p50", "low", "high"), seconds)} | more


HERE = {"ms": 100.0, "low_ms": 90.0, "high_ms": 120.0, "card": "a processor",
        "date": "2026-11-22", "hours": 1e6, "high_hours": 2e6}
def asked(budget=None, by=None, epochs=10):
    return {"epochs": epochs, "budget": budget, "by": by, "windows": 5000, "batch": 16,
            "frames": 20, "here": HERE}


prices = st.floats(0.01, 100)
def row_of(name, hours, spread, rate, fit):
    return {
        "name": f"modal:{name}", "card": name, "fits": fit, "hours": hours,
        "low_hours": hours / spread, "high_hours": hours * spread, "usd": hours * rate,
        "low_usd": hours / spread * rate, "high_usd": hours * spread * rate,
        "most_usd": 3 * hours * spread * rate, "usd_per_hour": rate, "memory_gb": 16.0,
        "batch": 16, "accumulation": 1, "basis": "predicted", "source": "x",
        "price_as_of": "2026-08", "price_age_days": 9.0, "price_stale": False}


rows_of = st.lists(st.builds(
    row_of, st.text("ABCDEFGH", min_size=1, max_size=4), prices, st.floats(1, 3), prices,
    st.sampled_from(["yes", "likely", "maybe", "no"])), max_size=8,
    unique_by=lambda r: r["name"])


@few
@given(rows_of, prices, st.floats(1, 10), st.one_of(st.none(), prices))
def test_more_money_never_gives_less(rows, budget, more, by):
    one, two = choose(rows, budget, by), choose(rows, budget * more, by)
    if one is None: return
    key = "hours" if by is None else "usd"
    assert two is not None and two[key] <= one[key]


@few
@given(rows_of, st.one_of(st.none(), prices), prices, st.floats(1, 10))
def test_more_time_never_costs_more(rows, budget, by, more):
    one, two = choose(rows, budget, by), choose(rows, budget, by * more)
    assert one is None or two["usd"] <= one["usd"]


@few
@given(rows_of, st.one_of(st.none(), prices), st.one_of(st.none(), prices),
       st.integers(0, 7), st.floats(1.01, 5), st.floats(1.01, 5))
def test_a_card_that_is_faster_and_cheaper_never_loses(rows, budget, by, i, fast, cheap):
    best = choose(rows, budget, by)
    if best is None: return
    keys = ("hours", "low_hours", "high_hours")
    money = ("usd", "low_usd", "high_usd", "most_usd")
    better = {**best, "name": "better", "fits": "yes",
              **{k: best[k] / fast for k in keys}, **{k: best[k] / cheap for k in money}}
    assert choose([*rows, better], budget, by)["name"] == "better"


@few
@given(rows_of, st.one_of(st.none(), prices), st.one_of(st.none(), prices))
def test_the_proposal_keeps_what_was_asked(rows, budget, by):
    found = answer(rows, asked(budget, by))
    best = next((r for r in rows if r["name"] == found.pick), None)
    if found.pick in (None, "local"):
        assert choose(rows, budget, by) is None
        return
    assert best["fits"] in ("yes", "likely")
    assert budget is None or best["most_usd"] <= budget
    assert by is None or best["high_hours"] <= by
    json.dumps(found.to_json(), allow_nan=False)


def test_what_this_machine_does_for_nothing_is_told_beside_the_fastest_card():
    "It said that no card is faster where the cheapest alone was not."
    rows = [row_of("T4", 3.0, 1.2, 0.6, "yes"), row_of("H100", 0.5, 1.2, 4.0, "yes"),
            row_of("B200", 0.1, 1.2, 6.0, "no")]
    def said(hours, budget=None, by=None, rows=rows):
        here = HERE | {"hours": hours, "high_hours": 1.25 * hours}
        found = answer(rows, asked(budget, by) | {"here": here})
        return found.pick, found.reasons[0]
    assert said(2.0) == ("local", "this machine does it in 2 h for nothing, and modal:H100, the "
                         "fastest card that will do, takes 0.5 h and $2.00")
    assert said(0.4) == ("local", "this machine does it in 0.4 h for nothing, and no card that "
                         "will do is faster")
    assert said(2.0, by=1.0)[0] == "modal:H100", "this machine would be late"
    assert said(2.0, budget=20)[0] == "modal:H100", "money is there for what is faster"
    assert said(4.0)[0] == "modal:T4"
    assert said(4.0, by=6.0) == ("local", "this machine does it in 4 h for nothing, and modal:H100, "
                                 "the fastest card that will do, takes 0.5 h and $2.00")
    assert said(4.0, rows=rows[2:])[1].endswith("for nothing, and no card will do")
    assert said(4.0, by=4.5, rows=rows[2:])[0] is None


near_rows = st.lists(st.builds(row_of, st.text("ABCD", min_size=1, max_size=4), st.floats(1, 4),
                               st.floats(1, 3), st.floats(1, 4), st.just("yes")),
                     min_size=2, max_size=5, unique_by=lambda r: r["name"])


def cheaper_or_faster(text, r, best, budget, by):
    "The card as a sentence says that it would have to be, and the budget."
    if text.startswith("an hour of"):
        assert budget is None or by is not None, "the cheapest was chosen"
        less = 0.97 * float(re.search(r"under \$([\d.]+)", text)[1]) / r["usd_per_hour"]
        return r | {k: r[k] * less for k in ("usd", "most_usd", "usd_per_hour")}, budget
    hours, paid = (re.search(p, text) for p in (r"takes under ([\d.]+) h", r"budget is \$([\d.]+)"))
    assert hours or paid and budget is not None and by is None, "the fastest was chosen"
    faster = r | {"hours": 0.95 * float(hours[1])} if hours else r
    return faster, float(paid[1]) if paid else budget


@settings(max_examples=150, deadline=None)
@given(near_rows, st.one_of(st.none(), st.floats(5, 60)), st.one_of(st.none(), st.floats(1, 9)))
def test_what_would_change_the_choice_does(rows, budget, by):
    "A sentence names a price, a time or a budget; with that, the card would be chosen."
    found, best = answer(rows, asked(budget, by)), choose(rows, budget, by)
    if best is None: return
    named = {r["name"]: r for r in found.rows if r["name"] != best["name"]}
    for text in found.changes:
        if "prediction is off" in text: continue
        r = next(named[n] for n in named if n in text.split())
        if " may take up to " in text:
            assert budget is None or by is not None
            assert r["high_hours"] > (by or 0) or r["most_usd"] > budget
        else:
            changed, paid = cheaper_or_faster(text, r, best, budget, by)
            assert choose([best, changed], paid, by) is changed, text


def test_a_price_that_would_change_the_choice_keeps_the_budget_too():
    "An hour at $1.00 would be as cheap, but might then cost $12 of $6."
    rows = [row_of("T4", 2.0, 1.0, 1.0, "yes"), row_of("L4", 2.0, 2.0, 1.5, "yes")]
    found = answer(rows, asked(6, 5))
    assert found.pick == "modal:T4"
    assert found.changes[0] == "an hour of modal:L4 cost under $0.50 (now $1.50)"


def test_minutes_of_a_start_are_billed():
    assert run_hours(36, 100) == pytest.approx((120 + 3600) / 3600)
    near = row_of("L4", 2.0, 2.0, 1.5, "yes")
    settle = how_to_settle([near], row_of("T4", 2.0, 1.0, 0.6, "yes"), "rats")
    assert settle["usd"] == pytest.approx((0.6 + 1.5) * 3 / 60) and settle["minutes"] == 3


@few
@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_batch_that_does_not_fit_is_accumulated(batch, largest):
    take, parts = batch_for(batch, largest)
    assert take <= largest and 0 <= take * parts - batch < parts
    assert parts == 1 or -(-batch // (parts - 1)) > largest


def test_what_was_measured_on_a_card_counts_before_what_is_foretold():
    l4 = probe("NVIDIA L4", "cuda", 0.01)
    there = known_step([l4, probe()], card("L4"), 0.0)
    assert there["basis"] == "measured on L4" and there["seconds"] == 0.01
    other = known_step([l4, probe()], card("A100"), 0.0)
    assert other["basis"] == "predicted" and "from L4" in other["source"]
    assert other["high"] / other["low"] == pytest.approx(2.25)
    wide = known_step([probe()], card("A100"), 0.0)
    assert wide["high"] / wide["low"] == pytest.approx(10) and wide["date"] == "2026-09-21"


def test_a_sweep_on_a_card_tells_the_batch_that_was_asked_for(tmp_path):
    from test_estimate import keep
    for batch, ms in ((8, 4.0), (64, 18.0)):
        keep(CFG, batch, int(1e9), seconds=dict.fromkeys(("p10", "p50", "p90", "low", "high"),
                                                         ms / 1e3))
    results = [*past_results(CFG, Workload()), probe()]
    l4 = next(r for r in candidates(CFG, Workload(windows=5000), results, 100)
              if r["name"] == "modal:L4")
    assert l4["basis"] == "measured on L4" and "sweep of 2 sizes" in l4["source"]
    assert l4["epoch_s"] == pytest.approx(6e-3 * 5000 / CFG.batch_size)
    assert l4["low_epoch_s"] < 0.89 * l4["epoch_s"] and l4["date"] == "2026-09-21"
    assert not past_results(CFG.model_copy(update={"batch_size": 512}), Workload())
    assert not past_results(CFG.model_copy(update={"amp": True}), Workload())


@pytest.mark.slow
def test_a_training_that_was_paid_for_is_measured_on_that_card(colony, tmp_path, capsys,
                                                              monkeypatch):
    "A real run folder in a job's folder, its receipt, and what the command says of it."
    from test_costs import end
    from mabe_nb.remote import costs
    from mabe_nb.remote.job import submit
    from mabe_nb.remote.places import base
    class Rented(base.DiskPlace):
        def start(self, folder, spec): return {"n": 1}
        def alive(self, folder, spec): return True
        def usd_per_hour(self, spec): return 1.0
    base.place("rented", provider="modal")(Rented)
    try:
        job = submit("1", on="rented", timeout=10)
        model = ["--model-type", "tcn", "--hidden-size", "8", "--num-layers", "1",
                 "--features", "coords"]
        assert cli.main(["train", colony, "--epochs", "2", "--device", "cpu", *model,
                         "--out", str(job.folder/"ckpt/run")]) == 0
        end(job)
        assert job.status() == "done"
    finally: del base.PLACES["rented"]
    receipt, = costs.receipts()
    assert receipt["training"]["epochs"] == 2 and receipt["training"]["device"] == "cpu"
    there = receipt | {"on": "modal", "gpu": "L4", "created": 1.79e9}
    costs.record(there) # on the processor beside the card: that says nothing of the card
    asked = TrainConfig(**receipt["training"]["settings"])
    assert past_results(asked, Workload(42)) == []
    costs.record(there | {"training": receipt["training"] | {"device": "cuda"}})
    capsys.readouterr()
    ask = ["advise", colony, *model, "--epochs", "9", "--seconds", "0.2"]
    assert cli.main(ask) == 0
    assert "measured on L4 2026-09-21" in " ".join(capsys.readouterr().out.split())
    assert cli.main([*ask, "--json"]) == 0
    rows = {r["name"]: r for r in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["modal:L4"]["source"] == f"job {receipt['id']}, 2 epochs"
    assert rows["modal:A10"]["basis"] == "predicted"
    assert "from L4" in rows["modal:A10"]["source"]
    assert past_results(asked.model_copy(update={"amp": True}), Workload(42)) == []


@pytest.mark.parametrize("training", [
    None, 3, {}, {"settings": 1, "parameters": 1, "windows_s": []},
    {"settings": {"model_type": "nonsense"}, "parameters": 0, "windows_s": [1, 1, 1]}])
def test_a_receipt_that_was_damaged_is_passed_over(training):
    from mabe_nb.remote.costs import ledger_locked, record
    with ledger_locked():
        record({"id": "a", "on": "modal", "gpu": "L4", "created": 1.79e9, "foretold": 1.0,
                "usd": 1.0, "seconds": 9.0, "status": "done", "training": training})
    assert past_results(CFG, Workload()) == []


def test_every_row_has_its_basis_and_dates():
    rows = candidates(CFG, Workload(windows=5000), [probe()], 100)
    assert {r["provider"] for r in rows} == {"modal", "hf-jobs"}
    assert {r["card"] for r in rows} >= {"T4", "L4", "L40S", "H200", "B200", "RTX-PRO-6000"}
    for r in rows:
        for key in ("basis", "source", "date", "price_as_of", "price_source",
                    "memory_basis", "card_as_of", "card_source"): assert r[key], key
        if r["hours"]: assert r["low_usd"] <= r["usd"] <= r["high_usd"] <= r["most_usd"]


def numbers(value):
    "Every number in a structure, and those inside of its words."
    if isinstance(value, dict): value = list(value.values())
    if isinstance(value, (list, tuple)):
        for v in value: yield from numbers(v)
    elif isinstance(value, str): yield from map(float, NUMBER.findall(value))
    elif value is not None: yield float(value)


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@pytest.fixture(scope="module")
def colony(tmp_path_factory):
    return str(write_colony(tmp_path_factory.mktemp("data")/"colony", videos=6, minutes=0.5))


@pytest.mark.slow
def test_every_number_that_is_said_is_in_the_json(colony, capsys):
    words = ["advise", colony, "--features", "coords", "--epochs", "200", "--seconds",
             "0.3"]
    for more in ([], ["--budget", "0.5"], ["--budget", "0.0001", "--by", "1m"]):
        assert cli.main([*words, *more]) == 0
        said = capsys.readouterr().out
        assert cli.main([*words, *more, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        known = set(numbers({k: v for k, v in data.items()
                             if k not in ("reasons", "changes")}))
        for text in NUMBER.findall(said.replace(colony, "").replace(",", "")):
            value = float(text)
            assert any(abs(value - k) <= max(0.0051, 0.051 * abs(k)) for k in known), \
                (text, said)
        assert {r["basis"] for r in data["rows"]} <= BASES
        assert data["request"]["epochs"] == 200 and data["request"]["windows"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("words,says", [
    ("--scenario train", "--scenario is a question without DATA"),
    ("--guide", "--guide is a question without DATA"),
    ("--params 1e9", "--params is a question without DATA"),
    ("--by soon", "--by 'soon', expected hours such as 3h"), ("--seconds 0", "seconds is 0"),
    ("--budget -1", "budget is -1.0, expected a number above 0"),
    ("--provider aws", "unknown provider 'aws'")])
def test_flags_that_do_not_belong_are_refused(colony, words, says, capsys):
    assert cli.main(["advise", colony, "--features", "coords", "--seconds", "0.2",
                     *words.split()]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("words,says", [
    ("--scenario train --by 3h", "--by goes with DATA"),
    ("--params 1e9 --provider modal", "--provider goes with --hours"),
    ("--hours T4=5 --batch-size 64", "--batch-size goes with DATA"),
    ("--budget 9 --runs 2", "--runs goes with --hours"),
    ("--training-type demo --config x.yaml", "--config goes with DATA")])
def test_flags_of_another_question_are_refused(words, says, capsys):
    assert cli.main(["advise", *words.split()]) == 2
    assert says in capsys.readouterr().err


def command(**given):
    "The card that `mabe advise` names, and its JSON."
    from argparse import Namespace
    from mabe_nb.commands import hardware
    words = dict(provider=None, guide=False, params=None, method=None, budget=None,
                 scenario=None, training_type=None, hours=None, retries=2)
    return hardware.advise(Namespace(**words | given), lambda text: None)


NAMES = {"modal": ["T4", "L4", "A10", "A100-80GB", "H200"],
         "hf": ["t4-small", "l4x1", "a10g-small", "a100-large", "h200"]}


@pytest.fixture(scope="module")
def counted():
    from mabe_nb.measure.estimate import estimate
    return estimate(CFG)


@pytest.mark.slow
@settings(max_examples=25, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["modal", "hf"]),
       st.lists(st.floats(1e-4, 1), min_size=5, max_size=5, unique=True),
       st.integers(500, 10**6))
def test_panel_advice_comparison_and_python_name_the_same_card(monkeypatch, counted, on,
                                                              seconds, windows):
    "Each answers by its own code, from the same measured steps of the same run."
    from mabe_nb.hardware.advise import by_speed
    from mabe_nb.measure import compare as comparing, recommend
    from mabe_nb.measure.choice import run_hours
    from mabe_nb.view.panels.plan import advice_for
    shape, epochs = Workload(windows=windows), 100
    results = [probe(card(n)["name"], "cuda", s) | {"gpu": n, "note": "", "usd": 0.0,
               "reused": False, "memory": {"peak": 1e9}}
               for n, s in zip(NAMES[on], seconds, strict=True)]
    monkeypatch.setattr(comparing, "run_probes", lambda *a, **k: iter(results))
    monkeypatch.setattr(comparing, "_rate", lambda on, gpu, o: 1.0)
    monkeypatch.setattr(recommend, "estimate", lambda *a: counted)
    table = comparing.compare(CFG, shape, [f"{on}:{n}" for n in NAMES[on]], None)
    rows = [r for r in candidates(CFG, shape, results, epochs, on)
            if r["flavor"] in NAMES[on]]
    hours = {n: run_hours(windows / CFG.batch_size * s, epochs)
             for n, s in zip(NAMES[on], seconds, strict=True)}
    words = ",".join(f"{n}={h!r}" for n, h in hours.items())
    names = {"advise DATA": choose(rows)["flavor"],
             "advise --hours": command(hours=words, provider=on)["pick"],
             "panel": advice_for(on, "train", table)[1]["Advice"],
             "compare": comparing.cheapest(table, epochs)["where"].partition(":")[2],
             "by_speed": by_speed(hours, on).pick}
    assert len(set(names.values())) == 1, names
    fastest = advice_for(on, "large", table)[1]["Advice"]
    assert hours[fastest] == pytest.approx(min(hours.values())) # equal but for rounding


@pytest.mark.parametrize("on", NAMES)
@pytest.mark.parametrize("purpose", ["debug", "train", "large", "very-large"])
def test_without_a_measurement_panel_and_command_say_the_same(on, purpose):
    from mabe_nb.hardware.advise import by_scenario
    from mabe_nb.view.panels.plan import advice_for
    panel = advice_for(on, purpose, None)[1]["Advice"]
    assert panel == by_scenario(purpose, on).pick
    assert panel == command(scenario=purpose, provider=on)["pick"]


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.sampled_from(sorted(NETWORKS)), st.integers(10, 400), st.integers(1, 512),
       st.integers(1, 10**7), st.integers(1, 200), st.floats(1e-3, 1e3), st.floats(1, 100))
def test_models_data_and_budgets_at_random(name, frames, batch, windows, epochs, usd, more):
    "More money and more time never give less; what is chosen keeps what was asked."
    cfg = TrainConfig(model_type=name, sequence_length=frames, batch_size=batch,
                      hidden_size=16, conv_channels=[8], lstm_hidden=8)
    work = probe(flops=1e6 * frames * batch, bytes=1e4 * frames * batch)
    rows = candidates(cfg, Workload(windows=windows), [work], epochs)
    one, two = (choose(rows, budget) for budget in (usd, usd * more))
    if one: assert two["hours"] <= one["hours"] and one["most_usd"] <= usd
    for r in rows:
        if r["hours"] is None: continue
        assert r["low_hours"] <= r["hours"] <= r["high_hours"] == r["timeout_hours"]
        assert r["batch"] * r["accumulation"] >= batch and r["batch"] <= r["largest_batch"]
        assert all(r[k] for k in ("basis", "date", "source", "price_as_of", "price_source"))


def test_advice_of_the_guides_has_date_and_source_in_each_row(capsys):
    for words in (["--scenario", "train"], ["--hours", "T4=5,A10=1.7"], ["--params", "7e9"],
                  ["--budget", "60"], ["--training-type", "production"]):
        for guide in ([], ["--guide"]):
            assert cli.main(["advise", *words, *guide]) == 0
            said = capsys.readouterr().out
            assert cli.main(["advise", *words, *guide, "--json"]) == 0
            data = json.loads(capsys.readouterr().out)
            for row in data["table"]:
                assert row["price_as_of"] and row["price_source"] and row["hours_basis"]
                if guide: assert row["price_as_of"] == "undated" and row["price_stale"]
            known = set(numbers(data["table"]))
            for text in NUMBER.findall(said.partition("because")[0]):
                assert any(abs(float(text) - k) <= 0.0051 for k in known), (text, said)
            assert all(r in said for r in data["reasons"] + data["changes"])


@few
@given(near_rows, st.none() | st.floats(0.01, 60), st.none() | st.floats(0.01, 9))
def test_if_nothing_will_do_it_is_said_which_card_comes_nearest_and_to_what(rows, budget, by):
    if choose(rows, budget, by): return
    cheap, fast = (min(rows, key=lambda r: r[k]) for k in ("most_usd", "high_hours"))
    said = [s for s in answer(rows, asked(budget, by)).reasons if "comes nearest" in s]
    want = []
    if budget is not None and cheap["most_usd"] > budget: want.append(f"{cheap['name']} .* over \\${budget:g}$")
    if by is not None and fast["high_hours"] > by: want.append(f"{fast['name']} .* h, over {by:g} h$")
    assert len(said) == len(want) and all(map(re.match, want, said))


@pytest.mark.parametrize("fit", ["maybe", "no"])
def test_a_card_that_holds_it_with_luck_is_not_said_to_be_too_small(fit):
    said = [s for s in answer([row_of("A", 1, 1, 1, fit)], asked()).reasons if "no card is likely to hold it" in s]
    assert len(said) == 1 and "; the largest, modal:A, has 16 GB: 'mabe estimate' has remedies" in said[0]

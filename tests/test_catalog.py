"""Cards, prices and memory: the guides' figures, bad names, bad files, laws of arithmetic."""
import math
import subprocess
import sys
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.files import home
from mabe_nb.hardware import refresh as live
from mabe_nb.hardware.billing import (INTERRUPTIONS, OVERRUN, UNSEEN, billed_seconds,
                                      longest_timeout, most_seconds, most_starts)
from mabe_nb.hardware.catalog import (card, check_gpu, cost, gpus, guide_prices, prices,
                                      usd_per_hour)
from mabe_nb.hardware.memory import (CONTEXT_GB, GUIDE_BATCHES, WINDOW_GB, Need, fits,
                                     guide_batch, language_need, largest_batches,
                                     remedies, training_need)
from mabe_nb.hardware.tables import age_days

TODAY = date(2026, 11, 21)
PRICES = prices()
few = settings(max_examples=20, deadline=None)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch): monkeypatch.setenv("MABE_HOME",
                                                        str(tmp_path/"home"))


def own(name, text):
    home().mkdir(exist_ok=True)
    path = home()/f"{name}.csv"
    path.write_text(text)
    return path


# The guide's Modal table: memory, relative speed, price
MODAL = [("T4", 16, 1, 0.60), ("A10G", 24, 3, 1.20), ("A100-40GB", 40, 6, 4.00),
         ("A100-80GB", 80, 6, 5.00), ("H100", 80, 10, 8.00)]


@pytest.mark.parametrize("gpu,memory,speed,usd", MODAL)
def test_modal_guide_table(gpu, memory, speed, usd):
    row = guide_prices().set_index(["provider", "flavor"]).loc[("modal", gpu)]
    assert (row.relative_speed, row.usd_per_hour) == (speed, usd)
    assert card(gpu).memory_gb == memory
    assert row.available == (gpu != "H100")
    assert usd_per_hour(gpu, table=guide_prices()) == usd


# The guide's table of Hugging Face: cards, kind, all memory, price from and to
FLAVORS = [("t4-small", 1, "T4", 16, .5, 1), ("t4-medium", 1, "T4", 16, 1, 2),
           ("l4x1", 1, "L4", 24, 2, 3), ("l4x4", 4, "L4", 96, 8, 12),
           ("a10g-small", 1, "A10G", 24, 3, 4), ("a10g-large", 1, "A10G", 24, 4, 6),
           ("a10g-largex2", 2, "A10G", 48, 8, 12),
           ("a10g-largex4", 4, "A10G", 96, 16, 24),
           ("a100-large", 1, "A100-40GB", 40, 8, 12)]


@pytest.mark.parametrize("flavor,count,gpu,memory,low,high", FLAVORS)
def test_flavors_of_the_guide(flavor, count, gpu, memory, low, high):
    row = guide_prices().set_index(["provider", "flavor"]).loc[("hf-jobs", flavor)]
    assert (row["count"], row.gpu, row.usd_low, row.usd_high) == (count, gpu, low, high)
    assert count * card(gpu).memory_gb == memory and row.usd_per_hour == (low + high) / 2
    assert check_gpu(flavor, "hf") == flavor and usd_per_hour(flavor, "hf") < low + 0.6


@pytest.mark.parametrize("flavor,cards",
                         [("v5e-1x1", 1), ("v5e-2x2", 4), ("v5e-2x4", 8)])
def test_tpus_are_listed_and_not_for_rent(flavor, cards):
    for table, there in ((guide_prices(), False), (PRICES, False)):
        row = table.set_index("flavor").loc[flavor]
        assert row["count"] == cards and bool(row.available) == there
    with pytest.raises(ConfigError, match="no longer among the flavors"):
        check_gpu(flavor, "hf")


@pytest.mark.parametrize("flavor", ["cpu-basic", "cpu-upgrade"])
def test_processors_are_listed(flavor):
    assert flavor in set(guide_prices().flavor) and check_gpu(flavor, "hf") == flavor


# The guide's sums: card, hours of all runs, runs, USD
SUMS = [("T4", 5, 1, 3.00), ("A10G", 2, 1, 2.40), ("A10G", 1.7, 1, 2.04),
        ("A100", 0.8, 1, 3.20), ("T4", 25, 5, 15.00), ("A10G", 8.5, 5, 10.20),
        ("A100", 4, 5, 16.00)]


@pytest.mark.parametrize("gpu,hours,runs,usd", SUMS)
def test_sums_of_the_modal_guide(gpu, hours, runs, usd):
    assert round(cost(hours / runs, gpu, runs=runs, table=guide_prices()).usd, 2) == usd


@pytest.mark.parametrize("flavor,hours,usd", [
    ("t4-small", 0.25, 0.19), ("a10g-small", 2, 7), ("a10g-large", 6, 30),
    ("a100-large", 8, 80)])
def test_sums_of_the_flavor_guide(flavor, hours, usd):
    assert round(cost(hours, flavor, "hf", table=guide_prices()).usd, 2) == usd


@few
@given(st.floats(0.01, 1000), st.floats(1, 3), st.integers(0, 3), st.integers(1, 5))
def test_cost_grows(hours, more, retries, runs):
    def bill(h, r=retries, n=runs, gpu="A10"):
        return cost(h, gpu, retries=r, runs=n, table=PRICES)
    a = bill(hours)
    assert bill(hours * more).usd >= a.usd and bill(hours * more).upper_usd >= a.upper_usd
    assert bill(hours, retries + 1).upper_usd >= a.upper_usd >= a.usd
    assert bill(hours, n=runs + 1).usd >= a.usd
    assert bill(hours, gpu="H100").usd >= a.usd
    assert bill(hours, gpu="H100,A10").usd_per_hour == bill(hours,
                                                            gpu="H100").usd_per_hour


@pytest.mark.parametrize("name, known", [
    ("NVIDIA H100 80GB HBM3", "H100"), ("Tesla V100-SXM2-32GB", "V100"), ("T4-16GB", "T4"),
    ("NVIDIA A100-PCIE-40GB", "A100-40GB"), ("NVIDIA A100 80GB PCIe", "A100-80GB"),
    ("NVIDIA H200 NVL", "H200"), ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX-PRO-6000"),
    ("NVIDIA H100 PCIe", "H100-PCIE"), ("NVIDIA H100 NVL", "H100-NVL"), ("NVIDIA A40", "A40"),
    ("Tesla V100-PCIE-16GB", "V100-16GB"), ("NVIDIA GeForce RTX 3090", "RTX-3090"),
    ("NVIDIA RTX A6000", "RTX-A6000"), ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-ADA")])
def test_what_a_driver_calls_a_card(name, known): assert card(name)["name"] == known


@pytest.mark.parametrize("name, why", [
    ("Tesla V100-SXM2-12GB", "our V100 has 32 GB, not 12; a row"), ("H100-96GB", "80 GB, not 96"),
    ("T4-8GB", "16 GB, not 8"), ("NVIDIA GH200 480GB", "unknown card 'GH200-480GB'"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "unknown card"),
    ("Quadro RTX 6000", "unknown card 'QUADRO-RTX-6000'")])
def test_another_card_of_a_like_name_is_not_taken_for_it(name, why):
    with pytest.raises(ConfigError, match=why): card(name)


def test_upper_bound_is_every_attempt_to_its_timeout():
    bill = cost(1, "L4", runs=3, retries=2, timeout_hours=4, cpu=0, memory_gib=0)
    assert bill.usd == pytest.approx(3 * 0.80)
    hours = 3 * 4 + (3 + INTERRUPTIONS) * UNSEEN / 3600 + OVERRUN / 3600
    assert bill.upper_usd == pytest.approx(3 * hours * 0.80)


@pytest.mark.parametrize("provider, gpu", [("modal", "A100-80GB"), ("hf", "t4-small")])
@pytest.mark.parametrize("seconds, retries", [(180, 0), (3600, 2), (200_000, 1)])
def test_at_most_is_what_is_said_before_a_job_is_sent(provider, gpu, seconds, retries):
    from mabe_nb.remote.job import quote
    most = quote(provider, gpu, seconds, retries)["most_usd"]
    assert cost(seconds / 3600, gpu, provider, retries=retries).upper_usd == pytest.approx(most)


def test_what_is_billed_for_a_start():
    assert most_starts(3600, 0) == 6 and most_starts(3600, 2) == 8
    assert most_starts(120_000, 1) == 3 + 5 # both attempts are longer than a leg
    assert most_starts(600_000, 0) == 8 + 5 and most_starts(100, 0, leg=9) == 12 + 5
    assert most_seconds("modal", 3600, 2) == 3 * 3600 + 8 * 60 + 300
    assert most_seconds("hf", 180) == 60 * (3 + 15 + 1) == most_seconds("hf-jobs", 121)
    assert most_seconds("slurm", 180, 1) == 360
    assert billed_seconds("hf", 61) == 120 and billed_seconds("modal", 61) == 61


@few
@given(st.sampled_from(["modal", "hf", "hf-jobs", "slurm"]), st.floats(0, 1e7),
       st.integers(0, 5))
def test_the_longest_timeout_that_is_paid_for(provider, paid, retries):
    limit = longest_timeout(provider, paid, retries)
    assert limit == 0 or most_seconds(provider, limit, retries) <= paid
    assert most_seconds(provider, limit + 1, retries) > paid


def test_what_is_billed_on_top():
    bare = usd_per_hour("L4", cpu=0, memory_gib=0)
    assert usd_per_hour("L4", cpu=4, memory_gib=0) == pytest.approx(bare + 4 * 0.047)
    assert usd_per_hour("L4",
                        region="narrow") == pytest.approx(1.75 * usd_per_hour("L4"))
    assert usd_per_hour("l4x1", "hf", cpu=64) == 0.80
    assert cost(0.3334, "l4x1", "hf").usd == pytest.approx(21 / 60 * 0.80)



@pytest.mark.parametrize("name", [
    "H1000", "", ":2", "H100:0", "H100:-1", "H100:9", "A10:5", "A10G:8", "H100:1.5",
    "H100,,T4",
    "T4!", "H100+", "../etc", "H100\nT4", "T4$(x)", "x" * 10_000, "Ｔ４", "memory-gib",
    None, 3,
    [], ["H100", None]])
def test_bad_names_are_one_sentence(name):
    with pytest.raises(ConfigError) as e: check_gpu(name)
    assert len(str(e.value)) < 400 and "\n" not in str(e.value)


def test_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'H100'"): check_gpu("H1000")
    with pytest.raises(ConfigError, match="did you mean 'a10g-large'"):
        check_gpu("a10g-larg", "hf")
    with pytest.raises(ConfigError, match="1 to 4 cards"): check_gpu("A10G:5")
    assert check_gpu("A100-80") == "A100-80GB"


@few
@given(st.text(max_size=30) | st.builds(
    lambda name, more, case: case(name) + more, st.sampled_from(sorted({*PRICES.flavor})),
    st.sampled_from(["", "!", "+", ":2", ":9", ",T4"]), st.sampled_from([str, str.lower, str.upper])))
@example("h100:2")
def test_any_name_is_answered(name):
    for provider in ("modal", "hf"):
        try: got = check_gpu(name, provider, PRICES)
        except ConfigError: continue
        assert check_gpu(got, provider, PRICES) == got


def test_age():
    table = prices(today=TODAY).set_index(["provider", "flavor"])
    assert table.loc[("modal", "T4")].age_days == 83 and table.loc[("modal",
                                                                    "T4")].stale
    assert not table.loc[("hf-jobs", "t4-small")].stale
    assert math.isnan(age_days(None)) and age_days("2026-11-21", TODAY) == 0
    assert not prices(today=date(2026, 10, 29)).query("flavor == 'T4'").stale.any()
    assert prices(today=date(2026, 10, 30)).query("flavor == 'T4'").stale.all()


def test_own_prices_win():
    own("prices", "provider,flavor,usd_per_hour,as_of\nmodal,T4,0.10,2026-11-20\n"
                  "hf-jobs,h200x8,40,2026-11-20\nlab,v100,0,\n")
    own("gpus", "name,memory_gb,bandwidth_gb_s\nMyCard,12,500\n")
    assert usd_per_hour("T4", cpu=0, memory_gib=0) == 0.10
    assert usd_per_hour("H200:8", "hf") == 40
    assert "MyCard" in set(gpus().name) and prices("lab").stale.all()
    assert prices(path=own("prices", "provider,flavor\n")).equals(prices())


HEAD = "provider,flavor,gpu,usd_per_hour\nmodal,T4,T4,0.5\n"
BAD_PRICES = {
    "negative": (HEAD + "modal,L4,L4,-1\n", "line 3: usd_per_hour is '-1'"),
    "words": (HEAD + "modal,L4,L4,cheap\n", "line 3: usd_per_hour is 'cheap'"),
    "infinite": (HEAD + "modal,L4,L4,inf\n", "line 3: usd_per_hour is 'inf'"),
    "absurd": (HEAD + "modal,L4,L4,1e9\n", "line 3: usd_per_hour is '1e9'"),
    "free": (HEAD + "modal,L4,L4,0\n", "line 3: usd_per_hour is 0, but modal bills every machine"),
    "underscore": (HEAD + "modal,L4,L4,1_0\n", "line 3: usd_per_hour is '1_0'"),
    "other digits": (HEAD + "modal,L4,L4,\u0663\n", "line 3: usd_per_hour is '\u0663'"),
    "unknown card": (HEAD + "modal,X9,X9000,1\n", "line 3: unknown card 'X9000'"),
    "near card": (HEAD + "modal,X9,A100-80G,1\n", "line 3: .*did you mean 'A100-80GB'"),
    "short line": (HEAD + "modal,L4\n", "line 3: has 2 cells, expected 4"),
    "torn quote": (HEAD + 'modal,"L4,1,1\n', "line 3"),
    "no key": (HEAD + ",L4,L4,1\n", "line 3: needs provider and flavor"),
    "twice": (HEAD + HEAD.split("\n")[1] + "\n", "line 3: has modal/T4 twice"),
    "unknown column": ("provider,flavor,prise\n", "line 1: unknown column 'prise'"),
    "missing column": ("provider,usd_per_hour\n", "line 1: has no column 'flavor'"),
    "column twice": ("provider,flavor,flavor\n", "line 1: has a column twice"),
    "empty": ("", "is empty"),
    "future": ("provider,flavor,as_of\nmodal,T4,2999-01-01\n", "line 2: as_of.*clock: that says 2"),
    "no date": ("provider,flavor,as_of\nmodal,T4,2026-13\n", "line 2: as_of"),
    "odd date": ("provider,flavor,as_of\nmodal,T4,2_026-08\n", "line 2: as_of is '2_026-08', expected a day"),
    "half a card": ("provider,flavor,count\nmodal,T4,0.5\n", "line 2: count is '0.5'"),
    "flag": ("provider,flavor,available\nmodal,T4,maybe\n", "expected yes or no"),
    "escape": ("provider,flavor,note\nmodal,T4,\x1b[2J\n", "line 2: note is"),
    "huge": ("x" * 2_000_000, "over 1 MB"),
}


@pytest.mark.parametrize("kind", BAD_PRICES)
def test_bad_price_file_names_its_line(kind):
    text, match = BAD_PRICES[kind]
    path = own("prices", text)
    with pytest.raises(MabeError, match=match) as e: prices()
    assert str(path) in str(e.value) and "\n" not in str(e.value)


def test_an_edit_is_seen_at_once_and_a_table_is_ones_own():
    own("prices", "provider,flavor,usd_per_hour\nmodal,T4,0.10\n")
    assert usd_per_hour("T4", cpu=0, memory_gib=0) == 0.10
    path = own("prices", "provider,flavor,usd_per_hour\nmodal,T4,0.20\n") # same size
    assert usd_per_hour("T4", cpu=0, memory_gib=0) == 0.20
    for table in (prices(), gpus()): table.iloc[:, 0] = "changed"
    assert check_gpu("T4") == "T4" and "changed" not in {*prices().provider, *gpus().name}
    path.unlink()
    assert usd_per_hour("T4", cpu=0, memory_gib=0) == 0.59


def test_a_name_and_a_price_need_no_pandas():
    code = ("import sys; from mabe_nb.hardware.catalog import check_gpu, usd_per_hour; "
            "check_gpu('H100:2'), usd_per_hour('L4'); sys.exit('pandas' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_other_bad_files(tmp_path):
    with pytest.raises(DataError,
                       match="file not found"): prices(path=tmp_path/"no.csv")
    with pytest.raises(DataError, match="is a folder"): prices(path=tmp_path)
    (tmp_path/"b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not text"): prices(path=tmp_path/"b.csv")
    with pytest.raises(DataError, match="line 2.*'New' needs memory_gb"):
        gpus(own("gpus", "name,tdp_w\nNew,100\n"))


def test_refresh_keeps_what_it_can_read():
    rates = {"GPU_T4": Decimal("0.0002"), "nvidia-h100 (per second)": "0.0012",
             "x": "y",
             "A10G": 1.2, "memory_gib": "0.00000222", "l40s": None, "B200": 0.0}
    done = live.refresh("modal", lambda: rates, TODAY)
    assert set(done.table.flavor) == {"T4", "H100", "A10", "memory-gib"}
    assert set(done.unread) == {"x", "l40s", "B200"}
    table = prices("modal", today=TODAY).set_index("flavor")
    assert table.usd_per_hour["T4"] == pytest.approx(0.72) and not table.stale["T4"]
    assert table.usd_per_hour["L4"] == 0.80 and table.stale["L4"]
    own("prices", "provider,flavor,usd_per_hour\nmodal,T4,0.01\n")
    assert prices("modal").set_index("flavor").usd_per_hour["T4"] == 0.01


def test_refresh_of_flavors():
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import _jobs_api
    machine = _jobs_api.JobHardwareInfo(
        name="h200x8", prettyName="8x H200", cpu="", ram="", unitCostMicroUSD=666_667,
        unitCostUSD=0.666667, unitLabel="minute")
    done = live.refresh("hf", lambda: [machine,
                                       SimpleNamespace(name="new", unit_cost_usd=1,
                                                                unit_label="hour")],
                                                                TODAY)
    assert done.new == ["new"] and usd_per_hour("H200:8", "hf") == pytest.approx(40,
                                                                                 rel=1e-5)
    live.refresh("modal", lambda: {"T4": 0.6}, TODAY)
    assert usd_per_hour("H200:8", "hf") == pytest.approx(40, rel=1e-5)


def test_refresh_says_what_changed(capsys, monkeypatch):
    from mabe_nb import cli
    answer = {"T4": 0.60, "L4": 0.80, "H900": 3.0, "A10": 1.00}
    monkeypatch.setitem(live.ASK, "modal", lambda: answer)
    assert cli.main(["gpus", "--refresh", "--provider", "modal"]) == 0
    said = capsys.readouterr().out
    assert "modal: T4: 0.59 -> 0.6 USD an hour" in said and "A10: 1.1 -> 1 USD" in said
    assert "as before: L4" in said and "could not be read: H900" in said
    assert "no price in the answer, kept as they were: L40S, A100-40GB" in said
    done = live.refresh("hf", lambda: [SimpleNamespace(name="h200x8", unit_cost_usd=40,
                                                       unit_label="hour")], TODAY)
    assert "h200x8: 40 USD an hour, not known before" in done.lines


def test_a_price_without_a_date_is_undated_and_stale(capsys):
    import json

    from mabe_nb import cli
    own("prices", "provider,flavor,usd_per_hour\nmodal,T4,0.10\n")
    for words, flavor in ((["gpus"], "T4"), (["gpus", "--guide"], "T4")):
        assert cli.main([*words, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["prices"]
        row = next(r for r in rows if r["flavor"] == flavor)
        assert row["as_of"] is None and row["stale"] and row["source"]
        assert cli.main(words) == 0
        assert "undated" in {line.split()[-1] for line in capsys.readouterr().out.splitlines()}


def test_refresh_that_fails_says_no_secret_and_keeps_nothing():
    def ask(): raise RuntimeError("Authorization: hf_secret")
    with pytest.raises(ConfigError) as e: live.refresh("hf", ask)
    assert "secret" not in str(e.value) and e.value.__cause__ is None
    assert not (home()/"prices_live.csv").exists()


# Memory: the guide's five examples, parameters in billions
@pytest.mark.parametrize("billions,method,gb,flavor,guide,ours", [
    (0.5, "full", 10, "T4", True, "likely"), (1.5, "full", 30, "T4", False, "no"),
    (1.5, "lora", 6, "T4", True, "yes"), (7, "full", 140, "A100-80GB", False, "no"),
    (7, "lora", 28, "A10G", True, "maybe")])
def test_memory_examples_of_the_guide(billions, method, gb, flavor, guide, ours):
    need = language_need(billions * 1e9, method)
    assert need.likely == pytest.approx(gb) and fits(need, flavor) == ours
    assert (ours != "no") == guide


def test_remedies_in_the_order_of_the_guide():
    table = remedies(language_need(7e9), 24, 28.0, language_need(7e9, "lora"))
    one = remedies(language_need(7e9), 24, 28.0, batch=1).remedy
    assert table.remedy.str.contains("half the batch").any()
    assert not one.str.contains("half the batch").any()
    words = ["LoRA", "half the batch", "accumulated", "checkpointing",
             "mixed precision",
             "larger card"]
    assert all(w in r for w, r in zip(words, table.remedy, strict=True))


def test_what_each_remedy_saves():
    table = remedies(Need(10, 20, 30), 16, 12.0, Need(2, 4, 6))
    assert table.saves_gb.tolist() == pytest.approx([16, 6, 6, 8, 0.38 * 12, 0])
    assert table.needs_gb.tolist() == pytest.approx([4, 14, 14, 12, 20 - 0.38 * 12, 20])
    assert table.fits.tolist() == ["yes", "likely", "likely", "likely", "maybe", "yes"]


@pytest.mark.parametrize("optimizer, precision, state, part", [
    ("adamw", "float32", 16, 1), ("adamw", "amp", 18, 0.62), ("sgd", "float32", 8, 1)])
def test_a_training_needs_its_state_and_its_windows(optimizer, precision, state, part):
    need = training_need(10**9, 1000, optimizer, precision)
    assert need == pytest.approx([c + state + 1000 * part * w for c, w in zip(
        CONTEXT_GB, WINDOW_GB)])


@pytest.mark.parametrize("memory,low,high",
                         [(8, 256, 512), (10, 256, 512), (12, 512, 1024), (16, 1024, 2048)])
def test_batches_of_the_speed_guide(memory, low, high):
    assert guide_batch(memory)[:2] == (low, high) and len(GUIDE_BATCHES) == 3
    assert guide_batch(memory)[2] == ("fastest" if memory >= 12 else "balanced" if memory > 8 else
                                      "low-memory")


LEVELS = ["yes", "likely", "maybe", "no"]


@few
@given(st.integers(1, 10**5), st.integers(1, 10), st.floats(1, 300), st.floats(1, 3))
def test_fits_is_monotone(batch, more, memory, bigger):
    at = LEVELS.index
    one, two = training_need(10**6, batch), training_need(10**6, batch * more)
    assert at(fits(two, memory)) >= at(fits(one, memory)) >= at(fits(one,
                                                                     memory * bigger))
    amp = training_need(10**6, batch, precision="amp")
    assert amp.low <= amp.likely <= amp.high and amp.likely < one.likely + 0.01


@few
@given(st.floats(0, 10), st.floats(1e-4, 1))
def test_measured_line(a, b):
    table = largest_batches(a, b)
    assert table.largest.is_monotonic_increasing
    assert ((a + b * table.largest <= 0.9 * table.memory_gb + 1e-6) | (table.largest == 0)).all()


@pytest.mark.parametrize("call", [
    lambda: language_need(0), lambda: language_need(math.nan),
    lambda: language_need(1e99),
    lambda: language_need(1e9, "qqlora"), lambda: training_need(1, 0),
    lambda: training_need(1, 1, optimizer="adan"), lambda: fits(Need(3, 2, 1), 16),
    lambda: fits(math.nan, 16), lambda: fits(1.0, "T5000"),
    lambda: guide_batch(math.nan),
    lambda: largest_batches(1, 0),
    lambda: usd_per_hour("cpu-upgrade", "hf"),
    lambda: usd_per_hour("T4", cpu=math.nan)])
def test_bad_arguments_are_ours(call):
    with pytest.raises(MabeError): call()

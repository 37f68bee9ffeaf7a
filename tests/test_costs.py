"""No bill exceeds what was said before; the ledger and the budget.

Bills follow the rule of `localcloud.billing`; the clock is the one that runs at Modal.
"""
import json
import os
import random
import subprocess
import sys
import threading
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
from localcloud.billing import Resources

from mabe_nb.cli import main
from mabe_nb.commands import remote as commands
from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.hardware.billing import OVERRUN, UNSEEN, most_starts
from mabe_nb.hardware.catalog import usd_per_hour
from mabe_nb.remote import costs
from mabe_nb.remote.costs import reserved
from mabe_nb.remote.handle import Job
from mabe_nb.remote.job import attach, quote, refresh_reserved, submit
from mabe_nb.remote.places import base
from mabe_nb.remote.places.base import DiskPlace, place
from mabe_nb.remote.places.modal_app import function_options
from mabe_nb.remote.places.modal_clock import EVERY, Clock
from mabe_nb.remote.row import row


@pytest.fixture(autouse=True)
def mabe_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.delenv("MABE_BUDGET", raising=False)
    (tmp_path/"home").mkdir()
    yield tmp_path/"home"


def limits(cpu, memory):
    "The limits that a job of ours sets, as the client sends them."
    asked = function_options({"retries": 0, "secrets": [], "gpu": "L4", "timeout": 9,
                              "cpu": cpu, "memory": memory})
    (low, high), (little, much) = asked["cpu"], asked["memory"]
    return Resources(low, little / 1024, high, much / 1024)


def run_at_modal(rng, folder, spec, leg, size):
    "Seconds and cores and GiB of each container of a job that wants ever more."
    clock, starts = Clock(folder), most_starts(spec["timeout"], spec["retries"], leg)
    total = spec["timeout"] * (1 + spec["retries"])
    now, crashes, containers = 0.0, 0, []
    while True:
        now += rng.uniform(0, 40_000) # in the queue
        boot, use = rng.uniform(0, 25), (rng.uniform(0, 40), rng.uniform(0, 200))
        left = clock.begin(total, starts, now)
        if not left: return [*containers, (boot + rng.uniform(0, 5), use)]
        wants = min(rng.uniform(0, 1.5 * spec["timeout"]), leg)
        killed = size.used(*use)[2] # beyond its memory
        fate = "crash" if killed else rng.choice(["done", "preempt", "preempt", "crash"])
        ran = min(wants, left)
        if fate == "done" and wants < left:
            return [*containers, (boot + ran, use)]
        if wants >= left: # its time is over; the disk may hold it up until Modal stops it
            return [*containers, (boot + left + rng.uniform(0, OVERRUN), use)]
        now += ran
        if fate == "crash":
            clock.tick(now - rng.uniform(0, min(ran, EVERY)))
            crashes += 1
            containers.append((boot + ran, use))
            if crashes > spec["retries"] + 3: return containers
        else:
            clock.end(now)
            containers.append((boot + ran + rng.uniform(0, 30), use)) # 30 s of grace


def bill(containers, gpu, size):
    return sum(seconds / 3600 * usd_per_hour(gpu, "modal", *size.billed(*use))
               for seconds, use in containers)


@pytest.mark.slow
def test_no_bill_exceeds_what_was_said(tmp_path):
    rng, worst, interrupted = random.Random(21), 0.0, 0
    for number in range(500):
        gpu = rng.choice([None, "T4", "L4", "H100:2"])
        spec = {"timeout": rng.choice([30, 600, 3600, 90_000]), "retries": rng.randint(0, 3)}
        options = {"cpu": rng.choice([0.5, 2.0, 8.0]), "memory": rng.choice([1.0, 8.0, 64.0])}
        size = limits(**options)
        most = quote("modal", gpu, spec["timeout"], spec["retries"], **options)["most_usd"]
        folder = tmp_path/str(number)
        folder.mkdir()
        containers = run_at_modal(rng, folder, spec, 82_800.0, size)
        worst = max(worst, bill(containers, gpu, size) / most)
        interrupted += len(containers) > 1
    assert worst <= 1 and interrupted > 200
    assert worst > 0.8, "a ceiling that is far too high says nothing"


def test_without_limits_it_would_be_exceeded():
    "What the rule is for."
    loose = Resources(2.0, 8.0)
    said = quote("modal", "L4", 3600)["most_usd"]
    assert bill([(3600, (18.0, 64.0))], "L4", loose) > 1.7 * said
    assert bill([(3600, (18.0, 64.0))], "L4", limits(2.0, 8.0)) < said


def test_prices_need_no_account(monkeypatch):
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", "/nowhere")
    assert quote("modal", "L4")["most_usd"] > 0.9 and quote("hf", "A10G")["most_usd"] > 1
    assert quote("modal", "L4")["most_seconds"] == 3600 + 6 * UNSEEN + OVERRUN
    with pytest.raises(ConfigError, match="unknown GPU"): quote("modal", "H10")


def test_a_sum_by_old_prices_says_so(mabe_home, monkeypatch, capsys):
    assert costs.price_note(["L4:2", "H100!"], "modal", date(2026, 8, 30)) == ""
    assert costs.price_note(None, "hf", date(2030, 1, 1)).startswith(" by prices of 20")
    (mabe_home/"prices.csv").write_text("provider,flavor,usd_per_hour,as_of\n"
        + "".join(f"modal,{name},1,{date.today()}\n" for name in ("L4", "cpu-core", "memory-gib")))
    assert costs.price_note("L4", "modal") == "" and costs.price_note("T4", "modal", date(2030, 1, 1))
    (mabe_home/"prices.csv").write_text("provider,flavor,usd_per_hour,as_of\nmodal,L4,1,2020-01-02\n")
    monkeypatch.setenv("MODAL_TOKEN_ID", "")
    assert main(["submit", "--on", "modal", "--gpu", "L4", "--", "true"]) == 2 # there is no account
    assert " USD by prices of 2020-01-02 ('mabe gpus --refresh' asks" in capsys.readouterr().out


# the ledger

@pytest.fixture
def rented():
    "A place that bills an hour on a T4 for each second."
    class Rented(DiskPlace):
        def start(self, folder, spec): return {"n": 1}
        def alive(self, folder, spec): return not (folder/"over").exists()
        def usd_per_hour(self, spec): return 3600.0
    yield place("rented", provider="modal")(Rented)
    del base.PLACES["rented"]


def end(job, status="done", seconds=3.0):
    (job.folder/"status.json").write_text(json.dumps(
        {"status": status, "error": None, "seconds": seconds, "attempt": 1}))


def rows(): return [(r["id"], r["foretold"], r["usd"], r["status"]) for r in costs.receipts()]


def test_a_receipt_once(rented, capsys):
    job = submit("1", on="rented", timeout=10)
    assert reserved(job.folder.parent) == 10 and rows() == []
    end(job)
    for _ in range(3): assert Job(job.folder, job.spec).status() == "done"
    assert rows() == [(job.id, 10.0, 3.0, "done")] and costs.receipts()[0]["difference"] == 7
    lost = submit("1", on="rented", timeout=20, retries=1)
    (lost.folder/"over").touch()
    assert lost.status() == "died" and rows()[1] == (lost.id, 40.0, 40.0, "died")
    assert reserved(job.folder.parent) == 0
    commands.follow(job)
    assert "[done after 3.0 s, 3.00 USD of at most 10.00]" in capsys.readouterr().out


def test_a_price_of_later_changes_no_bill_and_hides_no_job(rented, monkeypatch, capsys):
    "The list of prices is another by now, or has no such machine any more."
    job = submit("1", on="rented", timeout=10)
    end(job)
    monkeypatch.setattr(rented, "usd_per_hour", lambda self, spec: 36000.0)
    assert job.status() == "done" and rows() == [(job.id, 10.0, 3.0, "done")]
    lost = submit("1", on="rented", timeout=10)
    end(lost, "error")
    def unknown(self, spec): raise ConfigError("no price known; write one to prices.csv")
    monkeypatch.setattr(rented, "usd_per_hour", unknown)
    with pytest.raises(MabeError, match="has no result"): commands.follow(lost)
    assert lost.cost() == 30 and reserved(job.folder.parent) == 0 and "unknown" not in str(row(lost))
    with pytest.raises(ConfigError, match="no price known"): lost.resume()
    lost.remove()


def test_a_job_on_its_way_is_not_billed_as_dead(rented, monkeypatch, mabe_home):
    "Another shell lists jobs, while data is still sent to a place that knows no such job."
    seen = []
    def start(self, folder, spec):
        job = attach(spec["id"])
        seen.append((job.status(), job.state()["reason"]))
        with pytest.raises(ConfigError, match="is being sent"): job.cancel()
        return {"n": 1}
    def lost(self, folder, spec): raise KeyError(spec["handle"]["n"])
    monkeypatch.setattr(rented, "on_disk", False)
    monkeypatch.setattr(rented, "start", start)
    monkeypatch.setattr(rented, "alive", lost)
    submit("1", on="rented", timeout=10)
    assert seen == [("queued", "is being sent")] and rows() == []
    assert reserved(mabe_home/"jobs") == 10


def test_who_had_asked_before_it_goes_on_does_not_end_it(rented, monkeypatch, mabe_home):
    "The answer of a slow network is written down while it starts again."
    job = submit("1", on="rented", timeout=10)
    end(job, "error")
    assert job.status() == "error"
    def start(self, folder, spec):
        end(job, "error")
        (folder/"receipt.json").write_text("{}")
        return {"n": 2}
    monkeypatch.setattr(rented, "on_disk", False)
    monkeypatch.setattr(rented, "start", start)
    job.resume()
    assert attach(job.id).status() == "running" and reserved(mabe_home/"jobs") == 10


def test_refused_to_go_on_it_is_billed_once(rented, monkeypatch):
    job = submit("1", on="rented", timeout=10)
    end(job, "error")
    assert job.status() == "error"
    def refuse(self, folder, spec): raise MabeError("no room")
    monkeypatch.setattr(rented, "start", refuse)
    with pytest.raises(MabeError, match="no room"): job.resume()
    assert attach(job.id).status() == "error" and rows() == [(job.id, 10.0, 3.0, "error")]
    assert job.cost() == attach(job.id).cost() == 3


def test_a_list_asks_for_many_jobs_at_once(rented, monkeypatch, capsys):
    "A place that does not answer takes a minute for each."
    sent, both = [submit("1", on="rented", timeout=10) for _ in range(2)], threading.Barrier(2, timeout=30)
    monkeypatch.setattr(rented, "alive", lambda self, folder, spec: both.wait() is not None)
    assert main(["jobs", "list"]) == 0
    out = capsys.readouterr().out
    assert out.index(sent[1].id) < out.index(sent[0].id) and out.count("running") == 2 # the newest first


def test_the_budget_of_a_month(rented, monkeypatch, mabe_home):
    monkeypatch.setenv("MABE_BUDGET", "25")
    job = submit("1", on="rented", timeout=20)
    with pytest.raises(ConfigError, match="10.00 USD, and MABE_BUDGET allows 25.00 a month: "
                       "0.00 are spent and 20.00 set aside") as e:
        submit("1", on="rented", timeout=10)
    assert "\n" not in str(e.value) and len(list((mabe_home/"jobs").glob("[!.]*"))) == 1
    end(job) # nobody has looked since
    again = submit("1", on="rented", timeout=10)
    assert rows() == [(job.id, 20.0, 3.0, "done")]
    end(again, "error")
    again.status()
    again.resume() # pays again
    end(again)
    again.status()
    assert costs.spent() == 9.0 and len(rows()) == 3
    submit("1", on="local").wait() # bills nothing
    monkeypatch.setenv("MABE_BUDGET", "lots")
    with pytest.raises(ConfigError, match="expected USD a month"):
        submit("1", on="rented", timeout=1)


def test_many_short_jobs_cannot_pass_the_budget(rented, monkeypatch, capsys):
    "Their starts are billed where no job can count them."
    monkeypatch.setattr(rented, "unseen_seconds", 4.0)
    monkeypatch.setenv("MABE_BUDGET", "25")
    for _ in range(2):
        job = submit("1", on="rented", timeout=10)
        end(job, seconds=1.0)
        job.status()
    assert [(r["usd"], r["start_usd"]) for r in costs.receipts()] == [(1, 4), (1, 4)] and job.cost() == 1
    assert main(["jobs", "costs"]) == 0
    assert "USD a month: 15.00 left, with 8.00 for starts that no job can count\n" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="10.00 are spent"): submit("1", on="rented", timeout=16)
    end(submit("1", on="rented", timeout=3), seconds=1.0)
    refresh_reserved()
    assert costs.receipts()[-1]["start_usd"] == 2 # no more than was foretold


@pytest.mark.slow
def test_two_at_once_cannot_pass_the_budget(rented, mabe_home):
    code = ("import sys; sys.path.insert(0, 'tests'); import test_costs as t\n"
            "next(t.rented.__wrapped__() if hasattr(t.rented, '__wrapped__') else "
            "t.rented._get_wrapped_function()())\n"
            "try: t.submit('1', on='rented', timeout=10)\n"
            "except t.ConfigError as e: print('refused')\n"
            "else: print('sent')")
    env = os.environ | {"MABE_BUDGET": "25"}
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                             env=env) for _ in range(4)]
    said = sorted(p.communicate(timeout=120)[0].strip() for p in both)
    assert said == ["refused", "refused", "sent", "sent"]


def test_many_write_the_ledger():
    code = ("import sys; from mabe_nb.remote import costs\n"
            "for n in range(40):\n  with costs.ledger_locked(): costs.record({'id': "
            "f'{sys.argv[1]}-{n}', 'on': 'modal', 'gpu': None, 'created': n, 'foretold': 1, "
            "'usd': 1, 'seconds': 1, 'status': 'x' * 500})")
    all_ = [subprocess.Popen([sys.executable, "-c", code, str(n)]) for n in range(4)]
    assert [p.wait(120) for p in all_] == [0] * 4 and len(costs.receipts()) == 160


def test_a_ledger_that_was_damaged(mabe_home):
    good = {"id": "a", "on": "modal", "gpu": None, "created": 1, "foretold": 1, "usd": 1,
            "seconds": None, "status": "done"}
    lines = [b"", b"[]", b"{", b"\xff", b"[" * 10**5, json.dumps(good | {"usd": -1}).encode(),
             json.dumps(good | {"usd": "1"}).encode(), json.dumps(good).encode()[:-4]]
    (mabe_home/"costs.jsonl").write_bytes(b"\n".join(lines))
    with costs.ledger_locked(): costs.record(good)
    assert costs.receipts() == [good]


def test_a_clock_that_was_damaged(tmp_path):
    (tmp_path/"clock.json").write_text("{")
    with pytest.raises(DataError): Clock(tmp_path).tick(1.0)


def test_a_job_that_waits_costs_nothing(rented):
    from mabe_nb.remote.places.job_state import unended
    job = submit("1", on="rented", timeout=7200)
    job.spec["started"] -= 60
    assert job.cost(unended("queued")) == 0 < job.cost(unended("running")) < 62
    job.spec["started"] -= 10**6
    assert job.cost(unended("running")) == 7200


def test_a_job_that_goes_on_costs_all_its_starts(rented, capsys):
    "In the job, its row, the notebook and the list; it is one job of the month."
    from mabe_nb.remote.notebook.display import JobView
    job = submit("1", on="rented", timeout=10)
    job.spec["created"] -= 1000 # sent long ago
    (job.folder/"job.json").write_text(json.dumps(job.spec))
    end(job, "error", 4.0)
    assert job.cost() == 4
    job.resume()
    again = attach(job.id)
    assert again.spec["billed"] == 4 and 4 <= again.cost() < 7
    view = JobView(again)
    view.ask_price(again, 1e9)
    assert view.usd == 4
    view.add({"k": "start", "attempt": 2})
    view.ask_price(again, 1e9 + 1) # at once, as it has another status
    assert 4 < view.usd < 7
    words = " ".join(view.summary(again.spec["started"] + 65))
    assert "about 4." in words and "0:01:05" in words, "of this start"
    end(again, "done", 2.0)
    assert again.status() == "done" and again.cost() == 6 and row(again)["usd"] == 6
    one, = costs.by_group(costs.receipts())
    assert (one["usd"], one["foretold"], one["seconds"], one["status"]) == (6, 20, 6, "done")
    said = costs.costs_text(costs.receipts())
    assert ": 1 job, about 6.00 USD of at most 20.00" in said and "20.00  about     6.00" in said


def test_lost_it_costs_the_most_that_it_can(rented, mabe_home, capsys):
    job = submit("1", on="rented", timeout=20)
    (job.folder/"over").touch()
    assert job.status() == "died" and job.cost() == 20 == rows()[0][2]
    with pytest.raises(MabeError, match="without a word"): commands.follow(job)
    assert "[died, 20.00 USD of at most 20.00]" in capsys.readouterr().out
    (mabe_home/"prices.csv").write_text("provider,flavor,usd_per_hour,as_of\nmodal,cpu-core,1,2020-01-02\n")
    assert main(["jobs", "resume", job.id]) == 0
    assert "at most about 20.00 USD more by prices of 2020-01-02 (" in capsys.readouterr().out
    job = attach(job.id)
    assert job.spec["billed"] == 20
    (job.folder/"receipt.json").write_text("{")
    end(job, "done", 1.0)
    assert job.cost() == 21, "a receipt that cannot be read"
    commands.follow(job)
    assert "21.00 USD of at most 40.00]" in capsys.readouterr().out


def test_a_job_that_tells_of_too_many_seconds_costs_no_more_than_it_can(rented):
    job = submit("1", on="rented", timeout=3600)
    end(job, seconds=9.9e8)
    assert job.status() == "done"
    (receipt,) = costs.receipts()
    assert receipt["usd"] == receipt["foretold"] == costs.spent() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name, content", [
    ("config.yaml", "a0: &a0 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n" + "\n".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10))),
    ("config.yaml", "features: " + "x" * 2**17), ("config.yaml", "epochs: " + "[" * 9999),
    ("metrics.json", "3"), ("metrics.json", '{"parameters": Infinity}'), ("metrics.json", "[" * 99999),
    ("log.jsonl", '{"event": "epoch", "device": "cuda", "windows_s": NaN}'), ("log.jsonl", "[]")])
def test_what_a_job_says_of_its_training_is_bounded(tmp_path, name, content):
    files = {"config.yaml": "epochs: 2", "metrics.json": '{"parameters": 9}',
             "log.jsonl": '{"event": "epoch", "device": "cuda", "windows_s": 4}'}
    job = SimpleNamespace(files=lambda under: ["ckpt/log.jsonl"],
                          _fetched=lambda name, most: tmp_path/Path(name).name)
    for other, text in files.items(): (tmp_path/other).write_text(text)
    assert costs.trained(job)["training"]["settings"]["epochs"] == 2
    (tmp_path/name).write_text(content)
    assert costs.trained(job) == {}


def test_a_group_of_tasks_of_which_some_went_on():
    def of(task, status, created):
        return {"id": f"261122-101500-ab12cd-1-{task:04d}", "on": "modal", "gpu": None,
                "usd": 0.5, "foretold": 1.0, "created": created, "seconds": 60, "status": status}
    group, = costs.by_group([of(0, "died", 1), of(1, "done", 2), of(0, "done", 3), of(2, "died", 4)])
    assert group["status"] == "2/3 done" and group["usd"] == 2 and group["seconds"] == 240


def test_the_exact_budget_is_enough(monkeypatch):
    monkeypatch.setenv("MABE_BUDGET", "0.3")
    costs.check_budget(0.1, 0.2)
    with pytest.raises(ConfigError): costs.check_budget(0.1, 0.21)

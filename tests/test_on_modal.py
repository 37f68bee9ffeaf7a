"Jobs at Modal, through the stand-in: sent, watched, interrupted, distrusted, and trained."
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

modal = pytest.importorskip("modal")
from grpclib import Status  # noqa: E402
from modal_jobs import (calm, cloud, elsewhere, kept, log_of, preempt,  # noqa: E402, F401
                        printed, send, until, volume)

from mabe_nb.cli import main  # noqa: E402
from mabe_nb.data.dataset import open_dataset  # noqa: E402
from mabe_nb.errors import ConfigError, DataError, MabeError  # noqa: E402
from mabe_nb.hardware.catalog import usd_per_hour  # noqa: E402
from mabe_nb.remote import costs  # noqa: E402
from mabe_nb.files import file_hash  # noqa: E402
from mabe_nb.remote.places import modal as modal_place, modal_app, modal_volume  # noqa: E402
from mabe_nb.remote.places.base import get  # noqa: E402
from mabe_nb.remote.handle import JobError  # noqa: E402
from mabe_nb.remote.job import attach, jobs, quote  # noqa: E402
from mabe_nb.remote.places.job_state import Unanswered, Unreachable, unended  # noqa: E402
from mabe_nb.remote.places.modal_call import seconds_counted  # noqa: E402
from mabe_nb.remote.places.modal_volume import manifest, send_data, upload  # noqa: E402

pytestmark = pytest.mark.cloud


# -- what a job gives back
def test_outputs_and_figure_come_back():
    job = send("import matplotlib.pyplot as plt\nplt.plot(X[0]); plt.show()\n"
               "Y, steps = X + cfg['n'], [1, 2]\nprint('hello')\nY.sum()",
               inputs={"X": np.ones((2, 3)), "cfg": {"n": 1}}, outputs=["Y", "steps"])
    found = [e for e in job.events() if e["k"] != "beat"]
    kinds = [e["k"] for e in found]
    assert kinds == ["start", "figure", "print", "result", "end"]
    assert found[-1]["status"] == "done" and "12.0" in found[-2]["text"]
    assert np.array_equal(job.result()["Y"], np.full((2, 3), 2.0))
    assert job.result()["steps"] == [1, 2] and 0 < job.cost() < 0.01
    assert [job.figure("fig/001.png")] == job.figures()
    assert job.files()["out/Y.npy"] > 48 and not [n for n in job.files() if "log.d" in n]


def test_failures_and_a_cap():
    "Five at once: the fifth waits for the first, as four may run side by side."
    sent = {"ZeroDivisionError: division by zero": send("def f(): 1/0\nf(); x = 1", outputs=["x"]),
            "stopped after its limit of 1 s": send("import time; time.sleep(60)", timeout=1),
            "'f' is or holds something of type function":
                send("f = lambda: 1", outputs=["f"]),
            "'f' makes 8,000,000": send("import numpy as np; f = np.zeros(10**6)",
                                        outputs=["f"], limit=10**6),
            "'no-such-program' cannot be run": send(["no-such-program"])}
    for why, job in sent.items():
        with pytest.raises(JobError, match=why) as e: job.result()
        if "Zero" in why: assert "line 1, in f" in e.value.traceback
    assert [job.status() for job in sent.values()] == ["error", "timeout"] + ["error"]*3


def test_two_at_once():
    source = "import time; time.sleep(1)\nprint(who); got = who"
    both = [send(source, inputs={"who": w}, outputs=["got"]) for w in ("a", "b")]
    assert [j.result()["got"] for j in both] == ["a", "b"]
    assert [j.log() for j in both] == ["a\n", "b\n"]
    assert [j.id for j in jobs()][:2] == [both[1].id, both[0].id]


def test_one_at_a_time_if_asked(cloud):
    both = [send("import time\nprint('on', flush=True); time.sleep(1)", max_containers=1)
            for _ in range(2)]
    until(lambda: "on" in log_of(cloud, both[0]))
    assert both[1].status() == "queued"
    assert [j.wait() for j in both] == ["done", "done"]


def test_hundred_thousand_lines(cloud):
    job = send("for i in range(100_000): print(i)")
    found = [e["text"] for e in job.events() if e["k"] == "print"]
    assert "".join(found).split() == list(map(str, range(100_000))) and len(found) < 10_000
    whole = b"".join(job.backend.log(job.folder, job.spec, 0, False))
    assert whole == (kept(cloud, job)/"log").read_bytes()
    assert b"".join(job.backend.log(job.folder, job.spec, 300_001)) == whole[300_001:]


# -- interruptions
STEPS = """
import os, time
kept = CKPT/'n'
first = int(kept.read_text()) if kept.exists() else 0
for n in range(first, 60):
    print('step', n, flush=True)
    (CKPT/'new').write_text(str(n + 1))
    os.replace(CKPT/'new', kept)
    time.sleep(0.04)
"""


def test_left_preempted_and_found_by_another_process(cloud):
    "No line is lost, whoever looks and whenever."
    held = STEPS + "    while n == 59 and not first: time.sleep(0.04)\n" # until preempted
    id = elsewhere(f"print(submit({held!r}, on='modal', gpu='T4', outputs=['n']).id)").strip()
    job = attach(id)
    until(lambda: "step 9\n" in log_of(cloud, job))
    assert job.status() == "running" and preempt(cloud) == 1
    there = elsewhere(f"for e in attach({id!r}).events():\n"
                      "    if e['k'] == 'print': print(e['text'], end='')")
    steps = [int(line.split()[1]) for line in there.splitlines() if "step" in line]
    assert set(steps) == set(range(60)) and steps == sorted(steps)
    assert printed(job) == there and job.result() == {"n": 59}
    assert job.state()["attempt"] == 2


def test_followed_through_a_dropped_connection(cloud):
    job = send(STEPS.replace("60", "100"))
    until(lambda: "step 2\n" in log_of(cloud, job))
    cloud.call(lambda: cloud.faults.drop(10))
    quiet, last, text = 0.0, time.monotonic(), ""
    for e in job.events():
        quiet, last = max(quiet, time.monotonic() - last), time.monotonic()
        text += e.get("text", "")
    assert text.split() == [w for n in range(100) for w in ("step", str(n))]
    assert quiet < 2, "the follower must be able to show that it lives"


def test_a_connection_that_is_there_and_silent_is_waited_for_no_longer_than_a_minute(
        cloud, monkeypatch):
    job = send("import time\nprint('on', flush=True); time.sleep(600)")
    until(lambda: "on" in log_of(cloud, job))
    monkeypatch.setattr(modal_volume, "SILENT", 0.5)
    disk = job.backend.volume(job.spec)
    to = (lambda: upload(disk, lambda batch: batch.put_file(__file__, "/late"), 1000),
          lambda: modal_volume.remove(disk, "nothing"))
    cloud.call(lambda: cloud.cloud.wire.hush(True))
    read = lambda: [*job.backend.read(job.folder, job.spec, "job.json", 10**6)]
    try:
        for ask in (job.status, job.files, job.log, read, lambda: job.wait(0.1), *to):
            with pytest.raises(Unreachable, match="what runs there goes on"): ask()
    finally: cloud.call(lambda: cloud.cloud.wire.hush(False))
    monkeypatch.setattr(modal_volume, "SILENT", 60)
    assert job.status() == "running"
    job.cancel()


def steps_of(log): # Of whole lines
    whole = log[:log.rfind(b"\n") + 1].decode()
    return [int(n) for n in re.findall(r"^step (\d+)$", whole, re.M)] # A crash may cut one


def test_a_lost_container_loses_no_line_that_was_seen(cloud):
    "Its machine is gone, with what was not committed; what was read stays as it was."
    cloud.faults.lose_uncommitted = True
    job = send(STEPS, retries=1)
    follower = job.backend.log(job.folder, job.spec)
    got = b""
    while b"step 20\n" not in got: got += next(follower)
    seen = steps_of(got)
    cloud.call(lambda: cloud.faults.crash())
    got += b"".join(follower)
    assert got == (kept(cloud, job)/"log").read_bytes()
    # A commit is no snapshot: a checkpoint may go with it whose line came too late for it,
    # so a few lines that nobody has seen can be lost between the two attempts, no others.
    lost = sorted(set(range(60)) - set(steps_of(got)))
    assert seen == list(range(max(seen) + 1)) and steps_of(got)[:len(seen)] == seen
    assert steps_of(got)[-1] == 59 and len(lost) < 10
    assert not lost or lost == list(range(lost[0], lost[-1] + 1)) and lost[0] > max(seen)
    assert job.wait() == "done"


def test_a_crash_without_retries_is_the_end(cloud):
    job = send("import time\nprint('deep', flush=True)\ntime.sleep(60)")
    until(lambda: "deep" in log_of(cloud, job))
    cloud.call(lambda: cloud.faults.crash())
    assert job.wait(120) == "died"
    with pytest.raises(JobError, match="its container crashed or was lost"): job.result()
    job.spec["command"] = ["true"] # what would have helped
    (job.folder/"source.py").unlink()
    job.resume()
    assert job.wait(120) == "done"


class Silent:
    def spawn(*args): raise TimeoutError


def unanswered(monkeypatch, *sent, begin=True, **more):
    "A start whose answer is lost, or that is lost itself."
    real = modal_place.spawned
    def lost(function, *args):
        if begin: function.spawn(*args)
        return real(Silent, *args)
    with monkeypatch.context() as patch, pytest.raises(Unanswered, match="may have begun there all the same"):
        patch.setattr(modal_place, "spawned", lost)
        return send(*sent, **more) if sent else more["job"].resume()


def test_a_start_whose_answer_was_lost_is_found_and_stopped(cloud, monkeypatch):
    "At the first start, and at one that goes on; by a process that knew the one before, too."
    before = {job.id for job in jobs()}
    unanswered(monkeypatch, "import time\nprint('on', flush=True); time.sleep(60)")
    job, = (job for job in jobs() if job.id not in before)
    until(lambda: "on" in log_of(cloud, job))
    assert job.status() == "running" and job.cost() > 0
    elsewhere(f"attach({job.id!r}).cancel()")
    assert job.status() == "cancelled"
    other = attach(job.id)
    unanswered(monkeypatch, job=job)
    for same in (other, job):
        until(lambda: same.status() == "running")
        with pytest.raises(ConfigError, match="is running"): same.resume()
    other.cancel()
    assert other.status() == job.status() == "cancelled"
    until(lambda: not cloud.cloud.busy())


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_while_a_start_gets_no_answer_leaves_no_call_without_a_word(again, cloud, monkeypatch):
    "It ends soon and says so; what begins there once the wire is back is found, and ends."
    real, before = modal_place.spawned, {job.id for job in jobs()}
    def silent(function, *args):
        cloud.call(lambda: cloud.cloud.wire.hush(True))
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        return real(function, *args)
    if again:
        old = send("1/0")
        assert old.wait() == "error"
    told = [] # `catch_warnings` would lose some to a thread that uses it, too
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(warnings, "warn", lambda text, *_, **how: told.append(str(text)))
        patch.setattr(modal_place, "spawned", silent)
        patch.setattr(modal_volume, "SILENT", 600) # for ever, in a test
        try: old.resume() if again else send("import time; time.sleep(60)")
        finally: cloud.call(lambda: cloud.cloud.wire.hush(False))
    job, = (job for job in jobs() if job.id not in before)
    assert again or any(f"'mabe jobs cancel {job.id}'" in text for text in told), told
    until(lambda: job.status() != "queued")
    job.cancel()
    assert job.status() in ("cancelled", "error")
    until(lambda: not cloud.cloud.busy())


def test_a_start_that_was_lost_before_it_began_runs_no_more(cloud, monkeypatch):
    cloud.faults.no_capacity.add("T4")
    before = {job.id for job in jobs()}
    unanswered(monkeypatch, "print('on', flush=True)")
    unanswered(monkeypatch, "print('on', flush=True)", begin=False)
    late, never = (job for job in jobs() if job.id not in before)
    for job in (late, never):
        assert job.status() == "queued" and "got no answer" in job.state()["reason"] and job.cost() == 0
        job.cancel()
        assert attach(job.id).status() == "cancelled"
    cloud.faults.no_capacity.clear()
    until(lambda: not cloud.cloud.busy())
    assert log_of(cloud, late) == log_of(cloud, never) == ""
    never.resume()
    assert never.wait(60) == "done" and printed(never) == "on\n"


def test_cancelled_from_another_process(cloud):
    job = send("import time\nprint('on', flush=True)\ntry: time.sleep(60)\n"
               "except KeyboardInterrupt: (CKPT/'saved').touch()")
    until(lambda: "on" in log_of(cloud, job))
    elsewhere(f"attach({job.id!r}).cancel()")
    assert job.status() == "cancelled" and "ckpt/saved" in job.files()
    job.cancel() # again does nothing
    with pytest.raises(JobError, match="was cancelled"): job.result()


def test_no_capacity_then_fallback(cloud):
    cloud.faults.no_capacity |= {"H100", "L4"}
    waits, job = send("1", gpu="L4"), send("print('here')", gpu="H100,A100-80GB")
    assert job.spec["gpu"] == ["H100", "A100-80GB"] and printed(job) == "here\n"
    assert "A100-80GB" in [c.gpu for c in cloud.cloud.containers.values()] + [
        u["gpu"] for u in cloud.cloud.usage]
    assert waits.status() == "queued"
    waits.cancel()
    assert waits.status() == "cancelled"
    two = send("import os\ngot = os.environ['LC_GPU']", gpu="H100:2", outputs=["got"])
    cloud.faults.no_capacity.clear()
    assert two.result() == {"got": "H100"}


def test_longer_than_a_leg(cloud):
    job = send(STEPS, leg=2, timeout=20)
    assert job.wait(120) == "done" and job.state()["attempt"] >= 2
    assert set(printed(job).split()) == {"step", *map(str, range(60))}
    with pytest.raises(JobError, match="stopped after its limit"):
        send("import time; time.sleep(60)", leg=1, timeout=2).result()


# -- data, files, money
def test_data_is_sent_once(cloud, tmp_path):
    data = tmp_path/"data"
    (data/"tracking").mkdir(parents=True)
    (data/"train.csv").write_text("id\n1\n")
    (data/"tracking"/"1.bin").write_bytes(os.urandom(10_000))
    read = "import pathlib; n = sum(p.stat().st_size for p in pathlib.Path(DATA).rglob('*.*'))"
    job = send(read, data=str(data), outputs=["n"])
    assert job.result() == {"n": 10_005}
    there = modal.Volume.from_name("mabe-nb-data")
    assert send_data(there, data, manifest(data)) == 0
    job = send(["sh", "-c", "cat {DATA}/train.csv; mabe --version"], data=str(data))
    assert printed(job).startswith("id\n1\nmabe")
    (data/"tracking"/"2.bin").write_bytes(b"more")
    assert send_data(there, data, manifest(data)) == 4
    blobs = volume(cloud, "mabe-nb-data")/"blobs"
    assert {p.name for p in blobs.iterdir()} == {
        file_hash(p) for p in data.rglob("*.*") if p.is_file()}
    for wrong in (tmp_path/"none", tmp_path/"data"/"train.csv"):
        with pytest.raises(DataError, match="is no folder"): send("1", data=str(wrong))


def test_who_resumes_a_job_from_another_folder_sends_the_same_data(cloud, tmp_path, monkeypatch):
    for where in ("first", "second"):
        (tmp_path/where/"data").mkdir(parents=True)
        (tmp_path/where/"data"/"x.csv").write_text(where)
    monkeypatch.chdir(tmp_path/"first")
    job = send(["sh", "-c", 'cat "$1/x.csv"; exit 3', "sh", "{DATA}"], data="data")
    assert job.wait(60) == "error" and job.log().startswith("first")
    monkeypatch.chdir(tmp_path/"second")
    attach(job.id).resume()
    until(lambda: len(job.log().split("CommandError")) == 3)
    assert job.log().count("first") == 2 and "second" not in job.log()
    assert str(tmp_path) not in (kept(cloud, job)/"job.json").read_text()


def test_files_are_listed_and_fetched(tmp_path):
    job = send("for n in range(3): (CKPT/f'epoch{n}').write_text(str(n))")
    job.wait()
    assert sorted(job.files("ckpt")) == [f"ckpt/epoch{n}" for n in range(3)]
    assert job.fetch("ckpt/epoch2", tmp_path).read_text() == "2"
    assert len(list(job.fetch("ckpt", tmp_path/"all").iterdir())) == 3
    with pytest.raises(DataError, match="has no file"): job.fetch("ckpt/../../x", tmp_path)


def test_folders_without_files_come_too(tmp_path):
    job = send("(CKPT/'run'/'logs').mkdir(parents=True)\n(CKPT/'run'/'a').touch()")
    assert job.wait(60) == "done"
    for name in ("ckpt/run", "ckpt/run/logs"): job.fetch(name, tmp_path)
    assert (tmp_path/"run"/"logs").is_dir() and (tmp_path/"run"/"a").exists() and (tmp_path/"logs").is_dir()


def test_bouts_that_their_videos_do_not_have_are_told(tmp_path, capsys):
    "As those of `mabe predict --on modal` are, in a table that a command left."
    assert main(["synth", str(tmp_path/"data"), "--videos=5", "--minutes=0.1"]) == 0
    test = open_dataset(tmp_path/"data", "test")
    rec = test[test.ids[0]]
    head = "row_id,video_id,agent_id,target_id,action,start_frame,stop_frame\n"
    for agent, stop, told in (("mouse1", len(rec), 0), ("mouse9", 2, 1), ("mouse1", len(rec) + 1, 1)):
        text = f"{head}0,{test.ids[0]},{agent},self,rear,0,{stop}\n"
        job = send(["sh", "-c", 'mkdir "$1"; printf %s "$2" > "$1/sub.csv"; echo a,b > "$1/other.csv"', "sh",
                    "{JOB}/ckpt/own", text, "--split", "test"], data=str(tmp_path/"data"))
        assert job.wait(60) == "done", job.log()
        for name in ("ckpt/own", "ckpt/own/sub.csv"):
            assert main(["jobs", "fetch", job.id, name, "--to", str(tmp_path/"got"), "--overwrite"]) == 0
            out = capsys.readouterr().out
            assert out.count(f"video {test.ids[0]}: has no such animals or frames ('{agent}' to") == told
            shutil.rmtree(tmp_path/"got") if name == "ckpt/own" else (tmp_path/"got").unlink()


def test_links_on_a_volume_are_named(capsys, monkeypatch):
    "The stand-in keeps none, so that one is listed as Modal would."
    job = send("(CKPT/'a').touch()")
    assert job.wait(60) == "done"
    real = modal_place._volume("mabe-nb")
    def iterdir(*args, **how):
        yield from real.iterdir(*args, **how)
        yield modal.volume.FileEntry(f"jobs/{job.id}/ckpt/best", modal.volume.FileEntryType.SYMLINK, 0, 1)
    monkeypatch.setattr(modal_place, "_volume", lambda name: SimpleNamespace(iterdir=iterdir, read_file=real.read_file))
    assert main(["jobs", "fetch", job.id]) == 0
    out = capsys.readouterr().out
    assert "left out, as links are not followed: ckpt/best\n" in out and "  ckpt/a\n" in out


def test_all_attempts_together_cost_no_more_than_was_said(cloud):
    until(lambda: not cloud.cloud.containers) # of the tests before
    before = len(cloud.cloud.usage)
    job = send("import time\nprint('on', flush=True)\ntime.sleep(60)", timeout=8)
    until(lambda: "on" in log_of(cloud, job))
    assert preempt(cloud) == 1
    assert job.wait(120) == "timeout" and job.state()["attempt"] == 2
    until(lambda: len(cloud.cloud.usage) == before + 2)
    used = cloud.cloud.usage[before:]
    size = used[-1]["resources"]
    assert (size.cpu, size.cpu_limit, size.memory, size.memory_limit) == (2, 2, 8, 8)
    assert size.used(2, 9)[2] and size.billed(40, 9) == (2, 8)
    usd = sum(u["seconds"] for u in used) / 3600 * job.backend.usd_per_hour(job.spec)
    assert usd <= job.spec["most_usd"] and job.cost() <= job.spec["most_usd"]
    assert [r["usd"] for r in costs.receipts() if r["id"] == job.id] == [job.cost()]
    paid = job.cost()
    job.resume() # the clock begins anew, and so does the receipt
    assert job.cost() >= paid
    job.cancel()
    assert job.status() == "cancelled"
    assert job.cost() == paid + receipt_of(job)["usd"]


def receipt_of(job):
    "Its last one."
    return [r for r in costs.receipts() if r["id"] == job.id][-1]


def test_interrupted_waiting_and_cancelled_it_costs_what_it_ran(cloud):
    job = send("import time\nprint('on', flush=True)\ntime.sleep(60)")
    until(lambda: "on" in log_of(cloud, job))
    time.sleep(2)
    assert 0 < job.cost() < 60 / 3600 * job.backend.usd_per_hour(job.spec)
    cloud.faults.no_capacity |= {"T4"}
    assert preempt(cloud) == 1
    until(lambda: job.status() == "queued")
    waits = job.cost()
    time.sleep(1)
    assert job.cost() == waits > 0
    job.cancel()
    assert job.state()["status"] == "cancelled" and job.state()["seconds"] >= 2
    assert job.cost() == receipt_of(job)["usd"] == pytest.approx(waits)
    assert receipt_of(job)["seconds"] == job.state()["seconds"]


@pytest.mark.parametrize("clock", [b"{", b"[1]", b'{"spent": "x", "since": 1, "seen": 1}',
                                   b'{"spent": 1, "since": null}', b"[" * 10**5, None])
def test_a_clock_that_lies_is_no_reason_to_bill_less(cloud, clock):
    "What was left by a job that is gone: the most that it can have cost is what counts."
    job = send("import time\nprint('on', flush=True)\ntime.sleep(60)")
    until(lambda: "on" in log_of(cloud, job))
    disk, file = job.backend.volume(job.spec), kept(cloud, job)/"clock.json"
    at = json.loads(file.read_text())
    assert seconds_counted(disk, job.id, at["since"] + 9) == at["spent"] + 9
    assert seconds_counted(disk, job.id) == at["spent"] + at["seen"] - at["since"] + 30
    waits = job.backend.used(job.folder, job.spec, unended("queued")) # its machine was lost
    assert waits == at["spent"] + at["seen"] - at["since"] + 30
    before = file.read_bytes()
    file.write_bytes(clock) if clock else file.unlink()
    assert seconds_counted(disk, job.id) is None
    file.write_bytes(before)
    job.cancel()


GREEDY = """
import subprocess, sys, time
spin = "import time; t = time.time() + 2; x = bytearray({} << 20)\\nwhile time.time() < t: pass"
for p in [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(3)]: p.wait()
"""


def bill(used):
    return sum(u["seconds"] / 3600 * usd_per_hour(u["gpu"] or None, "modal", *u["billed"])
               for u in used)


def test_what_wants_more_than_it_asked_for_is_billed_no_more_than_was_said(cloud):
    "Its processor is counted up to the limit, and beyond its memory it is killed."
    until(lambda: not cloud.cloud.containers)
    before = len(cloud.cloud.usage)
    job = send(GREEDY.format(1), cpu=0.25, memory=2, timeout=30)
    assert job.wait(120) == "done", job.log()
    until(lambda: len(cloud.cloud.usage) > before)
    cores, gib = cloud.cloud.usage[-1]["billed"]
    assert (cores, gib) == pytest.approx((0.25, 2), 1e-3)
    assert 0 < bill(cloud.cloud.usage[before:]) <= job.spec["most_usd"]
    before = len(cloud.cloud.usage)
    large = send(GREEDY.format(900), cpu=0.25, memory=1, timeout=30)
    assert large.wait(120) == "died"
    used = cloud.cloud.usage[before:]
    assert max(u["most_gib"] for u in used) > 1 and bill(used) <= large.spec["most_usd"]


def test_the_stand_in_bills_the_greater_of_request_and_use():
    from localcloud.billing import Resources
    from localcloud.meter import Meter
    meter, process = Meter(Resources(0.01, 0.001)), psutil.Process()
    end = time.process_time() + 0.5
    while time.process_time() < end: pass
    assert meter.look(process) is False and meter.billed()[1] > 0.01 and meter.most_gib > 0.01
    tight = Meter(Resources(0.01, 0.001, 0.01, 0.002))
    time.sleep(0.01) # A life under a millisecond counts as one
    assert tight.look(process) is True and tight.billed() == pytest.approx((0.01, 0.002), 1e-3)


def test_a_call_graph_that_is_late_or_lost_ends_no_job(cloud):
    "Modal says that it is not populated in real time, and may be truncated."
    cloud.faults.graph_delay = 2.0
    job, lost = send("print('on', flush=True); n = 1", outputs=["n"]), send(
        "import time\nprint('on', flush=True)\ntime.sleep(600)")
    assert lost.status() == "queued", "nothing is known yet"
    assert job.wait(120) == "done" and job.result() == {"n": 1}
    until(lambda: lost.status() == "running")
    cloud.call(lambda: cloud.faults.crash())
    assert lost.wait(120) == "died"
    cloud.faults.lose_graphs = True
    job, lost = send("n = 2", outputs=["n"]), send("import os; os.kill(os.getppid(), 9)")
    assert job.wait(120) == "done" and job.result() == {"n": 2}
    assert lost.status() == "queued", "no graph, no last word: it may still come"
    lost.spec["created"] -= 3 * 86400 # sent long ago, and resumed now
    assert lost.status() == "queued"
    lost.spec["started"] -= 3 * 86400
    (lost.folder/"job.json").write_text(json.dumps(lost.spec))
    assert lost.status() == "died" and "it is lost" in lost.state()["error"]["message"]


def test_interrupted_too_often(cloud):
    job = send(STEPS + "    time.sleep(1)\n")
    for attempt in range(1, 7):
        until(lambda n=attempt: log_of(cloud, job).count('"k": "start"') == n)
        until(lambda: preempt(cloud) == 1)
    assert job.wait(120) == "died"
    assert "resume it to go on" in job.state()["error"]["message"]


def test_the_price_is_known_before():
    one = quote("modal", "L4", timeout=3600)
    assert 0.80 < one["most_usd"] < 1.2
    assert quote("modal", "L4", timeout=3600, cpu=32)["most_usd"] > one["most_usd"] + 1


# -- slips and refusals
SLIPS = {
    "unknown GPU 'H10'": {"gpu": "H10"}, "A10:5 is not for rent": {"gpu": "A10:5"},
    "unknown option of modal 'gpus'; did you mean": {"gpus": 2},
    "cpu is 'many'": {"cpu": "many"}, "names no package": {"pip": "--index-url=http://x"},
    "more than 11 legs": {"timeout": 30*86400},
    "'modal secret create absent KEY=VALUE'": {"secrets": ["absent"]}}


@pytest.mark.parametrize("why", SLIPS)
def test_slips_leave_nothing(why, cloud):
    before = len(jobs()), cloud.cloud.calls_seen["FunctionMap"]
    with pytest.raises(MabeError) as e: send("x = 1", **{"gpu": "T4"} | SLIPS[why])
    assert why in str(e.value) and "\n" not in str(e.value)
    assert (len(jobs()), cloud.cloud.calls_seen["FunctionMap"]) == before


def apart(code, **env):
    "The error that another process with another environment meets."
    out = subprocess.run(
        [sys.executable, "-c", "from mabe_nb.remote.job import *\n"
         "from mabe_nb.errors import MabeError\n"
         f"try: {code}\nexcept MabeError as e: print(e)"],
        capture_output=True, text=True, timeout=60, env={**os.environ, **env})
    assert out.returncode == 0, out.stderr
    assert out.stdout.count("\n") == 1
    return out.stdout


def test_no_token_a_wrong_one_and_no_network():
    code = "submit('1', on='modal', gpu='T4')"
    with ThreadPoolExecutor() as pool:
        away = pool.submit(apart, code, MODAL_SERVER_URL="http://127.0.0.1:9")
        none = pool.submit(apart, code, MODAL_TOKEN_ID="", MODAL_TOKEN_SECRET="")
        wrong = pool.submit(apart, code, MODAL_TOKEN_SECRET="as-wrong")
    assert "there is no Modal token; 'modal token new' makes one" in none.result()
    assert "Modal refuses the token" in wrong.result()
    assert "Modal cannot be reached" in away.result() and "try again" in away.result()


def test_a_full_volume(cloud):
    cloud.faults.volume_bytes = 10
    with pytest.raises(MabeError, match="'modal volume rm -r NAME jobs/ID'"): send("x = 1")
    cloud.faults.volume_bytes = None
    job = send("import time\nprint('on', flush=True); time.sleep(2)\n"
               "(CKPT/'big').write_bytes(bytes(10**6))")
    until(lambda: "on" in log_of(cloud, job))
    cloud.faults.volume_bytes = 1000
    assert job.wait(120) == "died" and "volume is full" in job.state()["error"]["message"]


def test_a_refused_upload_leaves_nothing(cloud):
    cloud.faults.fail["FunctionMap"] = [Status.RESOURCE_EXHAUSTED] * 20
    before = {p.name for p in (volume(cloud)/"jobs").iterdir()}
    with pytest.raises(MabeError, match="Modal has no room"): send("x = 1")
    assert {p.name for p in (volume(cloud)/"jobs").iterdir()} == before


def test_an_image_that_cannot_be_built(monkeypatch):
    other = (3, 12, 0) if sys.version_info[1] != 12 else (3, 11, 0)
    monkeypatch.setattr(modal_app.sys, "version_info", other)
    with pytest.raises(MabeError, match="Modal could not build the image.*'modal") as e:
        send("x = 1")
    assert "\n" not in str(e.value)


def test_an_old_client(monkeypatch):
    monkeypatch.setattr(modal, "__version__", "1.2.6")
    with pytest.raises(ConfigError, match="'pip install -U modal'"): send("x = 1")


def test_deleted_jobs(cloud):
    job = send("import time; time.sleep(60)")
    job.spec["handle"]["call"] = "fc-01NOTHING"
    assert job.status() == "died" # Modal has forgotten the call
    job.spec["handle"] = attach(job.id).spec["handle"]
    job.cancel()
    (job.folder/"job.json").unlink()
    with pytest.raises(MabeError, match="was deleted"): job.status()
    with pytest.raises(MabeError, match="there is no job"): attach(job.id)


# -- a container that was taken over
class Bomb:
    def __reduce__(self): return exec, ("import sys; sys.PWNED = True",)


class BombError(Exception):
    def __reduce__(self): return exec, ("import sys; sys.PWNED = True",)


def test_bad_pickles_as_result_and_exception(cloud):
    "The call of a job is one that answers with a pickle; nobody reads the answer."
    code = ("import sys; sys.PWNED = True")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    app = modal.App("evil")

    @app.function(serialized=True, image=modal.Image.debian_slim(python_version=python))
    def evil(code, fail):
        class Bomb(Exception):
            def __reduce__(self): return exec, (code,)
        if fail: raise Bomb
        return Bomb()
    app.deploy()
    job = send("if 0: x = 1", outputs=["x"])
    job.wait()
    for fail in (False, True):
        job.spec["handle"]["call"] = evil.spawn(code, fail).object_id
        for path in (job.folder/"status.json", kept(cloud, job)/"status.json"):
            path.unlink(missing_ok=True)
        assert job.wait(120) == "died"
        assert list(job.events())[-1]["status"] == "died"
        with pytest.raises(JobError, match="ended without a word"): job.result()
        job.cancel()
    assert not hasattr(sys, "PWNED")


def test_hostile_files(cloud, tmp_path):
    job = send("x = 1\nprint('\\x1b]0;owned\\x07\\x1b[2J<script>alert(1)</script>\\u202e')",
               outputs=["x"], limit=10**6)
    assert printed(job) == "<script>alert(1)</script>\n"
    there, own = kept(cloud, job), "import sys; sys.PWNED = True"
    claims = ((b'{"x": "pickle"}', "x.pickle", pickle.dumps(Bomb())),
              (b'{"x": "npy"}', "x.npy", pickle.dumps(Bomb())),
              (b'{"../../x": "json", "x": "json"}', "x.json", b"1"),
              (b'{"y": "json"}', "y.json", b"1"), (b"[" * 10**5, "x.json", b"1"))
    for index, name, data in claims:
        (there/"out"/"index.json").write_bytes(index)
        (there/"out"/name).write_bytes(data)
        with pytest.raises(DataError): job.result()
    (there/"out"/"index.json").write_bytes(b'{"x": "npy"}')
    with open(there/"out"/"x.npy", "wb") as f: f.truncate(2**30)
    before = cloud.cloud.calls_seen["VolumeGetFile2"]
    with pytest.raises(DataError, match="'x' makes 1,073,741,824 bytes"): job.result()
    assert cloud.cloud.calls_seen["VolumeGetFile2"] == before + 1 # the index alone
    with pytest.raises(DataError, match="more than the"): job.fetch("out", tmp_path/"got")
    with pytest.raises(DataError, match="larger than allowed"):
        list(job.backend.read(job.folder, job.spec, "out/x.npy", 10**6))
    (there/"out"/"x.npy").unlink() # or each later container gets a copy of it
    (there/"fig"/"001.png").write_bytes(b"<svg onload=alert(1)>")
    with pytest.raises(DataError, match="no PNG"): job.figures()
    (there/"ckpt"/"a\nb\x1b[2J").write_text(own)
    (there/"ckpt"/"link").symlink_to("/etc/hostname")
    assert [n for n in job.files("ckpt") if "\x1b" in n or "\n" in n] == []
    for name in ("../../other/job.json", "/etc/passwd", "out/../../x", "a\\b"):
        with pytest.raises(DataError): list(job.backend.read(job.folder, job.spec, name, 9))
        assert job.backend.files(job.folder, job.spec, name) == {}
    assert not hasattr(sys, "PWNED")


LIES = [b'{"status": "done", "error": "<b>", "seconds": [], "attempt": 1}', b"[" * 10**5,
        b'{"status": "rich", "seconds": 1, "attempt": 1}', bytes(2**21), b"\xff",
        pickle.dumps(Bomb())]


def test_a_status_and_a_log_that_lie(cloud):
    job = send("1")
    job.wait()
    until(lambda: not cloud.cloud.containers) # which would commit over the lies
    for lie in LIES:
        (job.folder/"status.json").unlink(missing_ok=True)
        (kept(cloud, job)/"status.json").write_bytes(lie)
        assert job.status() == "died" and not (job.folder/"status.json").exists()
    (kept(cloud, job)/"log.d"/"000000").write_bytes(bytes(2**19))
    with pytest.raises(DataError, match="larger than allowed"): list(job.events())
    with open(kept(cloud, job)/"log", "wb") as f: f.truncate(2**40)
    (kept(cloud, job)/"log.d"/"000000").write_bytes(b"short")
    begun = time.monotonic()
    assert printed(job) == "short" and time.monotonic() - begun < 15
    (kept(cloud, job)/"log").unlink() # or each later container gets a copy of it


# -- the work this package is for
TINY = ["--epochs=20", "--conv-channels=16,", "--lstm-hidden=16", "--batch-size=8",
        "--stride=40", "--device=cpu", "--features=coords", "--valid-videos=4",
        "--train-videos=1-3"]


def under_way(cloud, job, attempt):
    "Has this attempt finished an epoch, or gone on where the one before stopped?"
    log = log_of(cloud, job)
    said = "Epoch [1" if attempt == 1 else "going on from"
    return log.count('"k": "start"') == attempt and said in log.rpartition('"start"')[2]


def test_training_preempted_three_times(cloud, tmp_path):
    """Ends with the same weights as one that nobody disturbed, here.

    Once trained it waits for its fourth attempt: on a busy machine the third may be done
    before it is interrupted.
    """
    assert main(["synth", str(tmp_path/"data"), "--videos=4", "--minutes=0.5"]) == 0
    held = 'mabe train "$@" && until grep -q 4 {JOB}/attempt; do sleep 0.1; done'
    job = send(["env", "OMP_NUM_THREADS=1", "sh", "-c", held, "sh", "{DATA}", "--out",
                "{JOB}/ckpt/run", "--resume", *TINY],
               data=str(tmp_path/"data"), timeout=600)
    for n in range(1, 4):
        until(lambda: under_way(cloud, job, n))
        assert preempt(cloud) == 1
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try: assert main(["train", str(tmp_path/"data"), "--out", str(tmp_path/"run"), *TINY]) == 0
    finally: torch.set_num_threads(threads)
    assert job.wait(120) == "done", job.log()
    assert job.state()["attempt"] == 4
    best = job.fetch("ckpt/run/best.safetensors", tmp_path/"best.safetensors")
    assert file_hash(best) == file_hash(tmp_path/"run"/"best.safetensors")


# -- what holds for all of the above; the last test of the file
def test_no_result_was_unpickled_and_no_token_was_written(cloud):
    seen = cloud.cloud.calls_seen
    assert seen["FunctionGetOutputs"] == 0 and not cloud.cloud.missing
    token = cloud.env["MODAL_TOKEN_SECRET"].encode()
    places = [get("modal") and job.folder for job in jobs()] + [
        v.folder for v in cloud.cloud.volumes.values()]
    files = [p for place in places for p in place.rglob("*") if p.is_file()
             and not p.is_symlink() and p.stat().st_size < 10**8]
    assert len(files) > 30
    for path in files: assert token not in path.read_bytes(), path

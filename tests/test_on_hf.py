"""Jobs at Hugging Face: the real client against a stand-in on loopback (localhf)."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from huggingface_hub import HfApi
from hypothesis import given, settings, strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from localhf import LocalHub
from test_jobs import small_disk  # noqa: F401
from waiting import until

from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.files import write_json
from mabe_nb.locks import this_process
from mabe_nb.remote import costs
from mabe_nb.remote.places import hf_inside, hf_send
from mabe_nb.remote.places.hf_inside import LogWriter, Mirror, read_log_line
from mabe_nb.remote.job import attach, jobs, quote, refresh_reserved, submit
from mabe_nb.remote.handle import JobError
from mabe_nb.remote.row import row
from mabe_nb.remote.places.hf import Backend
from mabe_nb.remote.places.job_state import Unanswered, Unreachable

SLOW = "import time\nfor i in range(12): print('line', i); time.sleep(0.1)\nn = i"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setattr(Backend, "patience", 0.3)
    with LocalHub(tmp_path/"hub") as hub:
        for name, value in hub.env.items(): monkeypatch.setenv(name, value)
        yield hub


@pytest.fixture
def hasty(monkeypatch):
    "Nobody waits for what does not answer."
    monkeypatch.setattr(hf_send, "LOOKED", 0.1)
    from huggingface_hub.utils import _http
    monkeypatch.setattr(_http, "time", SimpleNamespace(**vars(time) | {"sleep": lambda s: None}))


def lines(job): return "".join(e["text"] for e in job.events() if e["k"] == "print").split("\n")


def folder_of(hub, job): return hub.buckets.folder("mouse/mabe-jobs")/job.id


def container(hub, job): return hub.jobs[job.spec["handle"]["job"]]


def until_printed(hub, job, text):
    until(lambda: any(text in line["data"] for line in container(hub, job).lines))


@pytest.mark.slow
def test_outputs_and_figure_come_back(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("MICE_KEY", "a-secret-of-mine")
    job = submit("import matplotlib.pyplot as plt, mabe_nb, os\nplt.plot(X[0]); plt.show()\n"
                 "where, key = mabe_nb.__file__, len(os.environ['MICE_KEY'])\nY = X + 1\n"
                 "has_token = 'HF_TOKEN' in os.environ\nprint('hello')\nY.sum()",
                 on="hf", inputs={"X": np.ones((2, 3))}, secrets=["MICE_KEY"], gpu="A10G",
                 outputs=["Y", "where", "key", "has_token"])
    kinds = [e["k"] for e in job.events() if e["k"] != "beat"]
    assert kinds == ["start", "figure", "print", "result", "end"]
    found = job.result()
    assert np.array_equal(found["Y"], np.full((2, 3), 2.0)) and found["key"] == 16
    assert "/code/mabe_nb/" in found["where"] and found["has_token"] is False
    assert job.figures()[0].startswith(b"\x89PNG") and job.spec["gpu"] == "a10g-small"
    assert job.cost() > 0 and not any(n.startswith("code") for n in job.files())
    info = container(hub, job).spec
    assert info["flavor"] == "a10g-small" and info["command"][:2] == ["uv", "run"]
    assert hub.buckets.private == {"mouse/mabe-jobs": True}
    for top in (tmp_path/"home", folder_of(hub, job)):
        for path in (p for p in top.rglob("*") if p.is_file()):
            data = path.read_bytes()
            assert b"a-secret-of-mine" not in data and hub.token.encode() not in data, path
    asked = len(hub.asked)
    assert attach(job.id).status() == "done" and len(hub.asked) == asked, "known by now"


def test_data_is_sent_with_the_job(hub, tmp_path):
    (tmp_path/"colony"/"in").mkdir(parents=True)
    (tmp_path/"colony"/"in"/"train.csv").write_text("id\n1\n")
    data = str(tmp_path/"colony")
    job = submit(["cat", "{DATA}/in/train.csv"], on="hf", data=data)
    assert job.wait() == "done" and "id\n1" in job.log()
    assert not any(name.startswith("data") for name in job.files())
    assert str(data) not in (folder_of(hub, job)/"job.json").read_text()
    cell = submit("import os\nnames = os.listdir(DATA)", on="hf", data=data, outputs=["names"])
    assert cell.result() == {"names": ["in"]}
    with pytest.raises(DataError, match="wants a dataset"): submit("1", on="hf", data="absent")


def test_an_exception_comes_with_its_traceback(hub):
    with pytest.raises(JobError, match="ZeroDivisionError: division by zero") as e:
        submit("def f(): 1/0\nf(); x = 1", on="hf", outputs=["x"]).result()
    assert "line 1, in f" in e.value.traceback and e.value.status == "error"


def test_followed_over_broken_connections_no_line_is_lost(hub):
    hub.drop = [4, 9]
    job = submit(SLOW, on="hf", outputs=["n"])
    first = next(e for e in job.events() if e["k"] == "print")
    assert first["text"] == "line 0\n" and container(hub, job).stage == "RUNNING"
    assert lines(job) == [f"line {i}" for i in range(12)] + [""]
    assert hub.drop == [] and sum("/logs" in a for a in hub.asked) >= 3


def test_lines_that_never_arrive_come_from_the_bucket(hub):
    hub.skip = (5, 6, 11)
    job = submit(SLOW, on="hf")
    data = b"".join(job.backend.log(job.folder, job.spec))
    assert data == (folder_of(hub, job)/"log").read_bytes()
    assert lines(job) == [f"line {i}" for i in range(12)] + [""]


def test_out_of_reach_for_a_while(hub):
    job = submit(SLOW, on="hf")
    hub.refuse["GET /api/jobs"] = 503
    threading.Timer(1.5, hub.refuse.clear).start()
    assert lines(job) == [f"line {i}" for i in range(12)] + [""]


def test_too_many_requests_end_no_wait(hub, monkeypatch):
    "Nor do they end following, though they last longer than a lost connection may."
    monkeypatch.setattr(Backend, "lost", 0.2)
    job = submit(SLOW, on="hf")
    hub.refuse["GET /api/jobs"] = 429
    threading.Timer(1.5, hub.refuse.clear).start()
    assert lines(job) == [f"line {i}" for i in range(12)] + [""]
    hub.refuse["GET /api/jobs"] = 429
    threading.Timer(0.5, hub.refuse.clear).start()
    (job.folder/"status.json").unlink()
    assert job.wait() == "done"


def test_out_of_reach_for_good(hub, monkeypatch):
    monkeypatch.setattr(Backend, "lost", 1.0)
    job = submit(SLOW, on="hf")
    hub.refuse["GET /api/jobs"] = 503
    with pytest.raises(MabeError, match="refused .503.*status.huggingface.co"): lines(job)


def test_followed_from_any_byte(hub):
    job = submit(SLOW, on="hf")
    follower, parts = job.backend.log(job.folder, job.spec), []
    while sum(map(len, parts)) < 120: parts.append(next(follower))
    follower.close() # as on an interrupt
    seen = sum(map(len, parts))
    parts += job.backend.log(job.folder, job.spec, seen)
    assert b"".join(parts) == (folder_of(hub, job)/"log").read_bytes()
    assert b"".join(attach(job.id).backend.log(job.folder, job.spec, 50)) == \
        b"".join(parts)[50:]


def test_cancelled_from_another_process_it_can_save(hub):
    job = submit("import time\nprint('ready')\ntry: time.sleep(60)\n"
                 "except KeyboardInterrupt: (CKPT/'saved').touch()", on="hf")
    until_printed(hub, job, "ready")
    subprocess.run([sys.executable, "-c", "from mabe_nb.remote.job import attach\n"
                    f"attach({job.id!r}).cancel()"], check=True, timeout=60)
    assert job.status() == "cancelled" and "ckpt/saved" in job.files()
    job.cancel() # again does nothing


def test_waiting_it_is_queued_and_can_be_cancelled(hub):
    hub.hold.clear()
    job = submit("1", on="hf")
    assert job.status() == "queued" and job.cost() == 0
    job.cancel()
    assert job.status() == "cancelled" and job.state()["error"] is None and job.cost() == 0


def test_the_installation_is_paid_too(hub):
    "Of a job of a second in a container of three minutes, four minutes are billed if begun."
    job = submit("import time\nprint('ready')\ntime.sleep(60)", on="hf", gpu="t4-small")
    minute = job.backend.usd_per_hour(job.spec) / 60
    until_printed(hub, job, "ready")
    container(hub, job).begun -= 1
    assert job.cost() == pytest.approx(minute)
    container(hub, job).begun -= 181
    assert job.cost() == pytest.approx(4 * minute)
    job.cancel()
    assert job.wait(20) == "cancelled" and job.state()["seconds"] < 60
    assert job.cost() == pytest.approx(4 * minute)
    assert json.loads((job.folder/"receipt.json").read_text())["usd"] == job.cost()


def test_timeouts_of_the_job_and_of_the_container(hub):
    job, other = (submit("import time; time.sleep(60)", on="hf", timeout=t) for t in (1, 50))
    assert container(hub, other).spec["timeoutSeconds"] == 950
    until(lambda: container(hub, other).process)
    container(hub, other).kill()
    container(hub, other).finish("ERROR", "Job timeout")
    with pytest.raises(JobError, match="stopped after its limit of 1 s"): job.result()
    assert other.wait(20) == "timeout"


def test_machine_gone_it_died_and_can_be_resumed(hub):
    job = submit("import time\nfound = sorted(p.name for p in CKPT.iterdir())\n"
                 "(CKPT/'kept').touch(); commit(); print('ready')\n"
                 "if not found: time.sleep(60)", on="hf", outputs=["found"])
    until_printed(hub, job, "ready")
    container(hub, job).kill()
    assert job.wait(20) == "died"
    assert "without a word (Job failed with exit code: -9)" in job.state()["error"]["message"]
    job.resume()
    again = attach(job.id)
    assert again.result() == {"found": ["kept"]} and again.state()["attempt"] == 2


def test_started_though_the_answer_was_lost_it_is_followed_and_stopped(hub):
    "It runs and is billed: at the first start, and at one that goes on."
    hub.lose = 1
    job = submit("print('on')\nif not list(CKPT.iterdir()): (CKPT/'x').touch(); commit(); 1 / 0\n"
                 "import time; time.sleep(60)", on="hf")
    assert len(hub.jobs) == 1 and job.wait(30) == "error"
    hub.lose = 1
    job.resume()
    assert len(hub.jobs) == 2 and job.spec["handle"]["job"] == [*hub.jobs][1]
    until(lambda: attach(job.id).status() == "running")
    attach(job.id).cancel()
    assert job.wait(20) == "cancelled" and container(hub, job).stage == "CANCELED"


def test_nobody_knows_whether_it_started_and_it_is_found_later(hub, hasty):
    "Nothing runs there that no list shows: at the first start, and at one that goes on."
    hub.lose = 9
    with pytest.raises(Unanswered, match="it may have begun there all the same, and be billed"):
        submit("print('on', flush=True); import time; time.sleep(60)", on="hf", gpu="t4-small")
    job, = jobs()
    assert row(job)["status"] == "unknown" and refresh_reserved() > 0 # it cannot be asked
    with pytest.raises(Unreachable): job.cancel()
    hub.lose = 0
    until(lambda: job.status() == "running")
    until_printed(hub, job, "on")
    assert attach(job.id).spec["handle"]["job"] == [*hub.jobs][0]
    job.cancel()
    assert job.wait(20) == "cancelled" and container(hub, job).stage == "CANCELED"
    other, hub.lose = attach(job.id), 9
    with pytest.raises(Unanswered): job.resume()
    hub.lose = 0
    for same in (other, attach(job.id)):
        until(lambda: same.status() == "running")
        assert container(hub, same) is hub.jobs[[*hub.jobs][1]]
        with pytest.raises(ConfigError, match="is running"): same.resume()
    until_printed(hub, other, "on")
    other.cancel()
    assert other.wait(20) == "cancelled" and len(hub.jobs) == 2


def test_an_answer_of_a_proxy_is_no_refusal(hub):
    "It began there all the same, and is found."
    hub.proxy = 504
    job = submit("print('on', flush=True); import time; time.sleep(60)", on="hf")
    until_printed(hub, job, "on")
    assert len(hub.jobs) == 1 and container(hub, job).stage != "ERROR"
    job.cancel()


@pytest.mark.parametrize("answer", [b"<html>please log in", b"{}"])
def test_a_start_whose_answer_is_none_is_found(hub, answer):
    hub.proxy = answer
    job = submit("import time; time.sleep(60)", on="hf")
    assert [*hub.jobs] == [job.spec["handle"]["job"]]
    job.cancel()


def test_nobody_understands_what_is_said_of_a_start_and_it_is_found_later(hub, hasty):
    hub.proxy, hub.say["GET /api/jobs/mouse"] = b"{}", b"[7]"
    with pytest.raises(Unanswered, match="not understood .* looks for it"):
        submit("import time; time.sleep(60)", on="hf")
    hub.say.clear()
    job, = jobs()
    assert job.status() in ("queued", "running") and len(hub.jobs) == 1
    job.cancel()


@pytest.mark.parametrize("headers", [{"Retry_After": "86400"}, {"Retry_After": "9" * 5000},
                                     {"RateLimit": '"api";r=0;t=86400'}])
def test_nobody_waits_for_a_day(hub, monkeypatch, headers):
    "As a server, or a proxy before it, may tell the client to."
    from huggingface_hub.utils import _http
    naps, job = [], submit("import time; time.sleep(60)", on="hf")
    monkeypatch.setattr(_http, "time", SimpleNamespace(**vars(time) | {"sleep": naps.append}))
    hub.refuse["/tree"], hub.later = 429, headers
    with pytest.raises(Unreachable, match="too many requests"): job.files()
    assert naps and max(naps) < 60
    hub.later = {"Retry_After": "20"} # as it may be
    with pytest.raises(Unreachable): job.files()
    assert max(naps) == 21
    job.cancel()


def test_an_id_that_is_none_is_not_followed(hub):
    "The container runs by then: it is found by its label, or said to be billed."
    first = submit("1", on="hf")
    bad = container(hub, first).info() | {"id": "../../x"}
    hub.proxy = json.dumps(bad).encode()
    job = submit("import time; time.sleep(60)", on="hf")
    assert job.spec["handle"]["job"] == [*hub.jobs][1]
    job.cancel()
    hub.odd = {"id": "../../x"}
    with pytest.raises(Unanswered, match="job '../../x' cannot name a file.*be billed"):
        submit("1", on="hf")
    for one in hub.jobs.values(): one.end("CANCELED", grace=0)


ODD = json.dumps({"id": "x", "createdAt": "yesterday"}).encode()


@pytest.mark.parametrize("answer, why", [
    (b"<html>please log in", "is no JSON; check the network"), (b"", "is no JSON"),
    (b"[" * 10**5, "is no JSON"), (b"\xff\xfe\0", "is no JSON"), (b"7" * 5000, "not understood"),
    (ODD, "not understood"), (b"null", "not understood"), (None, "cannot be reached .ReadTimeout")])
def test_an_answer_that_is_none(hub, hasty, monkeypatch, answer, why):
    "One sentence; the job goes on, and is followed when answers are good again."
    job = submit("import time; time.sleep(2)", on="hf")
    if answer is None: monkeypatch.setattr(hf_send, "SILENT", 0.5)
    hub.say = {"GET /api/jobs/mouse/": answer, "/tree": answer}
    for ask in (job.status, job.files):
        with pytest.raises(MabeError, match=why) as e: ask()
        assert "\n" not in str(e.value) and len(str(e.value)) < 400
    monkeypatch.setattr(hf_send, "SILENT", 60)
    hub.say.clear()
    assert job.wait(30) == "done"


def test_a_log_that_cannot_be_read_is_not_empty(hub):
    job = submit("print('on', flush=True); import time; time.sleep(60)", on="hf")
    until_printed(hub, job, "on")
    for answer in (b'data: {"data": 7}\n\n', b'data: {}\n\n'):
        hub.say["/logs"] = answer
        with pytest.raises(MabeError, match="not understood"): job.log()
    hub.say.clear()
    hub.refuse["/logs"] = 502
    with pytest.raises(MabeError, match="refused .502"): job.log()
    hub.refuse.clear()
    assert job.log() == "on\n"
    job.cancel()


def test_it_never_got_there_and_costs_nothing(hub, hasty):
    hub.lose = 9
    with pytest.raises(Unanswered): submit("1", on="hf", gpu="t4-small")
    for job in hub.jobs.values(): job.end("CANCELED", grace=0)
    hub.jobs.clear()
    hub.lose = 0
    job, = jobs()
    assert job.status() == "died" and "send it again" in job.state()["error"]["message"]
    assert job.cost() == 0 and [r["usd"] for r in costs.receipts()] == [0]
    job.cancel() # does nothing
    for ask in (job.log, job.files):
        with pytest.raises(ConfigError, match="has no place yet"): ask()
    job.resume()
    assert job.wait(30) == "done"


def ended(): return [this_process()[0], 2**22 + 1] # As `this_process` of one that was killed


def test_its_sender_was_killed_before_it_wrote_down_who_runs(hub):
    job = submit("print('on', flush=True); import time; time.sleep(60)", on="hf")
    until_printed(hub, job, "on")
    write_json(job.folder/"job.json", job.spec | {"handle": {}, "sender": ended()})
    job, = jobs()
    assert job.spec["handle"] == {} and job.status() == "running"
    attach(job.id).cancel()
    assert job.wait(20) == "cancelled" and container(hub, job).stage == "CANCELED"
    write_json(job.folder/"job.json", job.spec | {"handle": {}, "sender": ended(), "started": 1.0})
    for name in ("status.json", "receipt.json"): (job.folder/name).unlink(missing_ok=True)
    assert attach(job.id).status() == "died" and attach(job.id).cost() == 0 # no container of that start


def test_interrupted_as_it_starts_it_is_stopped(hub, monkeypatch):
    start = HfApi.run_job
    def begun(*args, **how):
        start(*args, **how)
        raise KeyboardInterrupt
    monkeypatch.setattr(HfApi, "run_job", begun)
    with pytest.raises(KeyboardInterrupt): submit("import time; time.sleep(60)", on="hf")
    assert [job.stage for job in hub.jobs.values()] == ["CANCELED"] and jobs() == []


def test_a_command_of_this_package(hub):
    job = submit(["mabe", "synth", "{JOB}/ckpt/data", "--videos", "1", "--minutes", "0.1"],
                 on="hf", pip="einops==0.8.1")
    assert job.wait(60) == "done", job.log()
    assert "1 video" in job.log() and "ckpt/data/train.csv" in job.files()
    needs = (folder_of(hub, job)/"code"/"requirements.txt").read_text().split("\n")
    assert "einops==0.8.1" in needs and any(n.startswith("torch==") for n in needs)
    assert not any("+" in n or "/" in n for n in needs)


def test_a_folder_and_a_file_are_fetched(hub, tmp_path):
    job = submit("(CKPT/'a').mkdir(); (CKPT/'a'/'w').write_bytes(b'1' * 10**6)", on="hf")
    assert job.wait(60) == "done", job.log()
    assert (job.fetch("ckpt/a", tmp_path)/"w").stat().st_size == 10**6
    with pytest.raises(DataError, match="more than the 10 allowed"):
        job.fetch("ckpt/a/w", tmp_path/"w", limit=10)
    assert not (tmp_path/"w").exists()


# hostile containers

def hostile(hub, change, outputs=()):
    "A job whose bucket somebody else wrote to."
    job = submit("x = 1", on="hf", outputs=["x"])
    until(lambda: (folder_of(hub, job)/"status.json").exists())
    change(folder_of(hub, job))
    until(lambda: job.status() not in ("queued", "running"))
    return job


@pytest.mark.parametrize("word", [b"{}", b"[" * 10**5, b"\xff", b'{"status": "great"}',
                                  b'{"status": "done", "seconds": "1", "attempt": 1}',
                                  b" " * 2**21])
def test_a_last_word_that_lies(hub, word):
    job = hostile(hub, lambda top: (top/"status.json").write_bytes(word))
    assert job.status() == "died"
    with pytest.raises(JobError, match="status.json|without a word"): job.result()


def test_an_output_of_a_gigabyte(hub):
    def grow(top):
        with open(top/"out"/"x.json", "wb") as f: f.truncate(2**30)
    job = hostile(hub, grow)
    begun = time.monotonic()
    with pytest.raises(DataError, match="more than the"): job.result()
    with pytest.raises(DataError, match="more than the"):
        list(job.backend.read(job.folder, job.spec, "out/x.json", 2**20))
    assert time.monotonic() - begun < 5


def test_names_and_links(hub, tmp_path):
    def fill(top):
        for name in ("a\x1b[2Jb", "..x", "a:b", "code/x", "fig/001.png"):
            (top/name).parent.mkdir(exist_ok=True)
            (top/name).write_bytes(b"<script>")
        (top/"out"/"index.json").write_text('{"../../x": "json"}')
    job = hostile(hub, fill)
    assert {"..x", "a:b", "fig/001.png"} <= set(job.files()) and not any(
        "\x1b" in n or n.startswith("code") for n in job.files())
    assert job.backend.others(job.folder, job.spec) == {"a\x1b[2Jb": "name"}
    with pytest.raises(DataError, match="names a value"): job.result()
    with pytest.raises(DataError, match="no PNG"): job.figures()
    for name in ("../secret", "/etc/passwd", "a/../../b", ""):
        with pytest.raises(DataError): list(job.backend.read(job.folder, job.spec, name, 10))


def test_false_pieces_of_a_log(hub):
    job = submit("import time; print('true'); time.sleep(1.5)", on="hf")
    until_printed(hub, job, "true")
    for line in ("<b>html</b>", '{"at": 1e400, "log": "x"}', '{"at": 0, "log": 1}', "\x1b[2J",
                 '{"at": 10000000, "log": "far"}', "9" * 10**5):
        container(hub, job).tell(line)
    assert lines(job) == ["true", ""]


@given(st.lists(st.binary(min_size=1, max_size=5000), max_size=5), st.integers(0, 2**30))
@settings(max_examples=50, deadline=None)
def test_pieces_make_the_log(parts, at):
    class Out(list):
        write = list.append
    out = Out()
    frames = LogWriter(out, at)
    for part in parts: frames.write(part)
    found = [read_log_line(line.decode()) for line in out]
    assert b"".join(data for _, data in found) == b"".join(parts)
    assert [a for a, _ in found] == list(np.cumsum([at] + [len(d) for _, d in found])[:-1])
    assert all(len(line) < 16_000 for line in out)


# what can go wrong before

def fails(match, **more):
    with pytest.raises(MabeError, match=match) as e: submit("1", on="hf", **more)
    assert "\n" not in str(e.value) and len(str(e.value)) < 300
    assert not list((Path(os.environ["MABE_HOME"])/"jobs").glob("*"))
    return str(e.value)


@pytest.mark.parametrize("more, why", [
    ({"gpu": "A10H"}, "did you mean 'A10'"), ({"gpu": "a10g-smal"}, "did you mean"),
    ({"gpu": "A100:3"}, "there are machines with"), ({"gpu": ["A10G", "T4"]}, "takes one GPU"),
    ({"bukket": "a"}, "did you mean 'bucket'"), ({"bucket": "../a"}, "cannot name a file"),
    ({"image": "x y"}, "expected such as"), ({"pip": "-r /etc/passwd"}, "no package of PyPI"),
    ({"secrets": ["NOT_SET_1"]}, "set it before you submit")])
def test_what_is_refused_before_anything_is_sent(hub, more, why):
    fails(why, **more)
    assert hub.asked == []


def test_no_token_and_a_wrong_one(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "hf_wrong" not in fails("refused .401.*'hf auth login'")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path/"none"))
    fails("no token for Hugging Face; 'hf auth login'")


def test_no_network(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    begun = time.monotonic()
    fails("cannot be reached .*check the network")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("status, why", [(402, "no credit left"), (403, "settings/tokens"),
                                         (429, "too many requests; wait some minutes")])
def test_refused_it_leaves_nothing(hub, status, why):
    hub.refuse["POST /api/jobs"] = status
    fails(why)
    found = hub.buckets.folder("mouse/mabe-jobs").rglob("*")
    assert not [p for p in found if p.is_file()] and not hub.jobs


def test_full_storage_and_a_public_bucket(hub):
    hub.refuse["/batch"] = 507
    fails("storage is full")
    hub.refuse = {"xet-write-token": 401}
    fails("cannot be reached|refused")
    hub.refuse.clear()
    hub.buckets.create("mouse/open", private=False)
    fails("is public", bucket="open")


def test_forgotten_by_hugging_face(hub):
    job = submit("import time; time.sleep(60)", on="hf")
    container(hub, job).end("CANCELED", grace=0)
    hub.jobs.clear()
    assert job.status() in ("cancelled", "died")
    assert [j.id for j in jobs()] == [job.id] and json.dumps(job.state())


def test_the_price_is_known_before(hub):
    assert quote("hf", "A10G", 3600)["usd_per_hour"] == 1.0


def test_what_is_taken_away_while_it_is_copied_is_passed_over(tmp_path, monkeypatch):
    here, there = tmp_path/"here", tmp_path/"there"
    here.mkdir()
    mirror, copy = Mirror(here, there), shutil.copyfile
    (here/".mabe-1.tmp").mkdir()
    for name in (".mabe-1.tmp/half", "a", "b"): (here/name).write_text(name)
    def late(path, to):
        if path.name == "a": path.unlink()
        return copy(path, to)
    monkeypatch.setattr(hf_inside.shutil, "copyfile", late)
    mirror()
    assert [p.name for p in there.rglob("*")] == ["b"]
    shutil.rmtree(there)
    there.write_text("no folder") # a fault of the bucket is no file taken away
    (here/"b").write_text("changed")
    with pytest.raises(OSError): mirror()


def test_what_a_job_takes_away_does_not_come_back(tmp_path):
    "Nor are outputs of an attempt before those of this one; a link to a file of the job is a file."
    here, there = tmp_path/"here", tmp_path/"there"
    (here/"ckpt").mkdir(parents=True)
    (here/"source.py").touch()
    shutil.copytree(here, there)
    mirror = Mirror(here, there)
    for name in ("1", "2"): (here/"ckpt"/name).write_text(name)
    for name, to in (("best", "1"), ("out", "/etc/hostname"), ("all", "."), ("gone", "3")):
        (here/"ckpt"/name).symlink_to(to)
    mirror()
    assert sorted(p.name for p in (there/"ckpt").iterdir()) == ["1", "2", "best"]
    (here/"ckpt"/"best").unlink()
    (here/"ckpt"/"best").symlink_to("2")
    (here/"ckpt"/"1").unlink()
    mirror()
    assert {p.name: p.read_text() for p in (there/"ckpt").iterdir()} == {"2": "2", "best": "2"}
    shutil.rmtree(here/"ckpt")
    (there/"ckpt"/"2").unlink() # as by somebody else
    mirror()
    assert [p.name for p in there.rglob("*") if p.is_file()] == ["source.py"]


def test_a_full_disk_hides_no_job_and_forgets_no_bill(small_disk, hub, monkeypatch):
    "The last word and the bill cannot be kept: asked again, written once there is room."
    monkeypatch.setenv("MABE_HOME", str(small_disk))
    job = submit(["echo", "hello"], on="hf", gpu="t4-small")
    until(lambda: container(hub, job).stage == "COMPLETED")
    with open(small_disk/"more", "wb", 0) as file, contextlib.suppress(OSError):
        while True: file.write(b"0" * 4096)
    assert row(job)["status"] == "done" and row(job)["usd"] > 0 and "hello" in job.log()
    assert costs.receipts() == [] and refresh_reserved() > 0
    with pytest.raises(DataError, match="no space is left"): job.remove()
    (small_disk/"more").unlink()
    job.remove()
    assert [r["id"] for r in costs.receipts()] == [job.id] and refresh_reserved() == 0

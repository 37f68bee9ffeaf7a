"One job where it is: its log, its last word, its time limit, and nothing left behind."
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from waiting import lives, until

from mabe_nb.files import write_json
from mabe_nb.remote.inside import log, runner
from mabe_nb.remote.places.base import ENDED, checked_state
from mabe_nb.remote.events import clean, events, read_event, terminal_text
from mabe_nb.remote.values import write_values


def job(folder, source=None, command=None, **spec):
    folder.mkdir(exist_ok=True)
    if source is not None: (folder/"source.py").write_text(source)
    write_json(folder/"job.json", {"command": command, "outputs": [], "timeout": 30,
                                   "retries": 0, "limit": 10**6, **spec})
    return folder


def status(folder): return json.loads((folder/"status.json").read_text())


def prints(folder):
    return "".join(e["text"] for e in events([(folder/"log").read_bytes()]) if e["k"] == "print")


def kinds(folder): return [e["k"] for e in events([(folder/"log").read_bytes()])]


def start(folder):
    return subprocess.Popen([sys.executable, "-m", "mabe_nb.remote.inside.runner", str(folder)],
                            stdout=subprocess.PIPE)


def test_the_whole_tree_is_heard_in_order(tmp_path):
    "Prints, C code, subprocesses and events, the same bytes in the log and in the stream."
    out = io.BytesIO()
    runner.run(job(tmp_path/"j", "import os, subprocess, sys\nprint('one')\nprogress(1, 2)\n"
                   "print('two', file=sys.stderr)\n_ = os.write(1, b'three\\n')\nprogress(2, 2)\n"
                   "subprocess.run(['sh', '-c', 'echo four; echo five >&2'])\n"
                   "print('six', end='')\nprogress(3)\n'seven'"), out=out)
    assert (tmp_path/"j"/"log").read_bytes() == out.getvalue()
    assert kinds(tmp_path/"j") == ["start", "print", "progress", "print", "progress", "print",
                                   "progress", "result"]
    assert prints(tmp_path/"j") == "one\ntwo\nthree\nfour\nfive\nsix\n"
    assert status(tmp_path/"j")["status"] == "done"


def test_prints_cannot_fake_events(tmp_path):
    fake = '\\x1e{"k": "figure", "t": 0, "path": "fig/001.png"}'
    runner.run(job(tmp_path/"j", f"print('{fake}')\nimport os\n_ = os.write(1, b'{fake}\\n')"))
    assert kinds(tmp_path/"j") == ["start", "print"]
    assert (tmp_path/"j"/"log").read_bytes().count(b"\x1e") == 1


def test_hundred_thousand_lines(tmp_path):
    "All of them, and not slower than some multiple of writing them to a file."
    source = "for i in range(100_000): print('line', i)"
    begun = time.monotonic()
    runner.run(job(tmp_path/"j", source))
    assert time.monotonic() - begun < 10
    lines = prints(tmp_path/"j").splitlines()
    assert len(lines) == 100_000 and lines[-1] == "line 99999"


def test_a_full_log_keeps_head_events_and_tail(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "LOG_LIMIT", 10_000)
    runner.run(job(tmp_path/"j", "print('head')\nfor i in range(50_000): print('x'*20, i)\n"
                   "progress(1)\nprint('the end')"))
    text = prints(tmp_path/"j")
    assert text.startswith("head\n") and text.endswith("the end\n")
    assert "log is full" in text and "bytes left out" in text and len(text) < 90_000
    assert kinds(tmp_path/"j").count("progress") == 1


def test_errors_show_the_users_lines(tmp_path):
    runner.run(job(tmp_path/"j", "def f():\n    raise OSError('broken')\nf()"))
    error = status(tmp_path/"j")["error"]
    assert (error["type"], error["message"]) == ("OSError", "broken")
    assert "raise OSError('broken')" in error["traceback"]
    assert "mabe_nb" not in error["traceback"] and "broken" in prints(tmp_path/"j")


@pytest.mark.parametrize("source, kind", [
    ("x = ", "SyntaxError"), ("import sys; sys.exit('no')", "SystemExit"),
    ("class E(Exception):\n    def __str__(self): 1/0\nraise E", "E"),
    ("import asyncio; raise asyncio.CancelledError", "CancelledError")])
def test_every_way_to_fail(tmp_path, source, kind):
    runner.run(job(tmp_path/"j", source))
    assert status(tmp_path/"j")["error"]["type"] == kind


def test_outputs_refused_or_missing(tmp_path):
    for source, why in (("f = len", "'f' is or holds something of type builtin"),
                        ("g = 1", "never set its output 'f'"),
                        ("import numpy as np; f = np.zeros(10**6)", "'f' makes 8,000,000")):
        runner.run(job(tmp_path/"j", source, outputs=["f"]))
        error = status(tmp_path/"j")["error"]
        assert error["type"] == "DataError" and why in error["message"]
        left = sorted((tmp_path/"j"/"out").iterdir())
        assert [p.read_text() for p in left] == ["{}"], "nothing but the index of nothing"


def test_timeout_kills_all_of_it(tmp_path):
    runner.run(job(tmp_path/"j", "import os, signal, subprocess, time\n"
                   "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                   "p = subprocess.Popen(['sleep', '60'])\nprint(p.pid, os.getpid())\n"
                   "time.sleep(60)", timeout=0.7), grace=0.3)
    assert status(tmp_path/"j")["status"] == "timeout"
    for pid in map(int, prints(tmp_path/"j").split()): until(lambda: not lives(pid))


def test_daemons_do_not_outlive_the_job(tmp_path):
    begun = time.monotonic()
    runner.run(job(tmp_path/"j", command=["sh", "-c", "sleep 60 & echo $!"]))
    assert time.monotonic() - begun < 5 and status(tmp_path/"j")["status"] == "done"
    until(lambda: not lives(int(prints(tmp_path/"j"))))


def test_commands(tmp_path):
    folder = tmp_path/"j"
    runner.run(job(folder, command=["sh", "-c", "echo 7 > {JOB}/out/n.json"], outputs=["n"]))
    assert status(folder)["status"] == "done"
    assert json.loads((folder/"out"/"index.json").read_text()) == {"n": "json"}
    for command, why in ((["sh", "-c", "echo last; exit 3"], "exit code 3"),
                         (["no-such-program"], "cannot be run"), (["true"], "no output 'n'")):
        runner.run(job(folder, command=command, outputs=["n"]))
        assert status(folder)["status"] == "error"
        assert why in status(folder)["error"]["message"]
    runner.run(job(folder, command=["sh", "-c", "echo last; exit 3"]))
    assert "last" in status(folder)["error"]["traceback"]


def test_killed_child_is_named_and_retried(tmp_path):
    source = ("import os, signal\nn = len(list(CKPT.iterdir()))\n(CKPT/str(n)).touch()\n"
              "if n < 2: os.kill(os.getpid(), signal.SIGKILL)\nprint('whole')")
    runner.run(job(tmp_path/"a", source, retries=1))
    assert status(tmp_path/"a")["status"] == "died" and status(tmp_path/"a")["attempt"] == 2
    assert "SIGKILL; the machine may have run out of memory" in \
        status(tmp_path/"a")["error"]["message"]
    runner.run(job(tmp_path/"b", source, retries=2))
    assert status(tmp_path/"b")["status"] == "done" and status(tmp_path/"b")["attempt"] == 3
    starts = [e for e in events([(tmp_path/"b"/"log").read_bytes()]) if e["k"] == "start"]
    assert [e["resumed"] for e in starts] == [False, True, True]
    runner.run(job(tmp_path/"c", command=["sh", "-c", "kill -SEGV $$"]))
    assert "SIGSEGV" in status(tmp_path/"c")["error"]["message"]


SAVES = ("import time\nn = len(list(CKPT.iterdir()))\nif n: print('resumed', n)\nelse:\n"
         "    try: print('ready'); time.sleep(60)\n"
         "    except KeyboardInterrupt: (CKPT/'saved').touch(); raise\n")


def test_preempted_then_resumed(tmp_path):
    process = start(job(tmp_path/"j", SAVES))
    until(lambda: (tmp_path/"j"/"log").exists() and "ready" in prints(tmp_path/"j"))
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130 and not (tmp_path/"j"/"status.json").exists()
    assert process.stdout.read() == (tmp_path/"j"/"log").read_bytes()
    runner.run(tmp_path/"j")
    assert status(tmp_path/"j") | {"seconds": 0} == {"status": "done", "error": None,
                                                     "seconds": 0, "attempt": 2}
    assert "resumed 1" in prints(tmp_path/"j") and "ready" in prints(tmp_path/"j")


def test_cancelled(tmp_path):
    process = start(job(tmp_path/"j", SAVES))
    until(lambda: (tmp_path/"j"/"log").exists() and "ready" in prints(tmp_path/"j"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0 and status(tmp_path/"j")["status"] == "cancelled"
    assert (tmp_path/"j"/"ckpt"/"saved").exists()


def test_in_process_exceptions_are_passed_on(tmp_path):
    "As on Modal, where an exception in our thread says what is happening."
    class InputCancellation(BaseException): pass
    for kind, left in ((InputCancellation, "cancelled"), (KeyboardInterrupt, None)):
        def commit():
            raise kind
        folder = job(tmp_path/kind.__name__, "commit()\nimport time\ntime.sleep(60)")
        with pytest.raises(kind): runner.run(folder, commit=commit, grace=0.5)
        assert (status(folder)["status"] if left else None) == left


def test_job_ends_with_a_killed_runner(tmp_path):
    for name, part in (("cell", {"source": "import os, time\nprint(os.getpid())\ntime.sleep(60)"}),
                       ("command", {"command": ["sh", "-c", "echo $$; exec sleep 60"]})):
        process = start(job(tmp_path/name, **part))
        until(lambda: (tmp_path/name/"log").exists() and prints(tmp_path/name).strip())
        process.kill()
        pid = int(prints(tmp_path/name))
        until(lambda: not lives(pid))
        assert not (tmp_path/name/"status.json").exists()


@given(st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=4, unique=True),
       st.lists(st.text("abc", max_size=5), max_size=12))
@settings(deadline=None)
def test_no_part_of_a_secret_passes_between_two_reads(secrets, pieces):
    "Also where one begins or ends with another."
    mask = log.Mask(sorted((s.encode() for s in secrets), key=len, reverse=True))
    passed = b"".join(mask(p.encode()) for p in pieces) + mask.rest()
    assert passed == mask.whole("".join(pieces).encode())


def test_a_commit_that_fails_is_tried_again(tmp_path):
    calls = []
    def commit():
        calls.append(1)
        if len(calls) == 1: raise OSError("the network is away")
    run = runner.run(job(tmp_path/"j", "import time\ntime.sleep(1)"), commit=commit, every=0.1)
    assert run == "done" and len(calls) > 4


def test_commit_is_called_for_and_waited_for(tmp_path):
    seen = []
    def commit(): seen.append((tmp_path/"j"/"ckpt"/"x").exists())
    runner.run(job(tmp_path/"j", "(CKPT/'x').touch()\ncommit()\n(CKPT/'x').unlink()"),
               commit=commit)
    assert seen == [True, False]


def test_figures(tmp_path):
    folder = job(tmp_path/"j", "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\n"
                 "print('between')\nplt.figure(); plt.plot([2])\nplt.figure()")
    runner.run(folder)
    assert kinds(folder) == ["start", "figure", "print", "result", "figure", "figure"]
    files = sorted((folder/"fig").iterdir())
    assert [f.name for f in files] == ["001.png", "002.png", "003.png"]
    assert all(f.read_bytes().startswith(b"\x89PNG") for f in files)


LOG = (b"a mouse\n\xf0\x9f\x90\xad 10%\r20%\r\n\x1b[31mred\x1b[0m\n"
       b'\x1e{"k": "result", "t": 1, "text": "12"}\nlast')


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(LOG)), max_size=12))
def test_any_chunking_gives_the_same(cuts):
    edges = [0, *sorted(cuts), len(LOG)]
    found = list(events(LOG[a:b] for a, b in zip(edges, edges[1:])))
    text = "".join(e["text"] for e in found if e["k"] == "print")
    assert text == "a mouse\n\U0001f42d 10%\r20%\nred\nlast"
    assert [e for e in found if e["k"] == "result"] == [{"k": "result", "t": 1.0, "text": "12"}]
    assert terminal_text(text) == "a mouse\n20%\nred\nlast"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.sampled_from([
    b"\x1e", b"\n", b"\x1e[", b'\x1e{"k": "progress", "step": NaN}\n', b"\x1e" + b"["*5000])))
def test_any_bytes_are_read(chunks):
    for event in events(chunks):
        if event["k"] != "print": continue
        assert clean(event["text"]) == event["text"]
        assert not set(event["text"]) & set(map(chr, [*range(9), *range(14, 32), 127, 155]))


def test_long_lines_come_in_pieces_and_memory_stays_small():
    found = list(events("é".encode()*500 for _ in range(2000)))
    text = [e["text"] for e in found if e["k"] == "print"]
    assert "".join(text) == "é"*10**6 and max(map(len, text)) <= 2**16
    assert read_event(b'{"k": "result", "t": 0, "text": "' + b"x"*10**6 + b'"}') is None


@pytest.mark.parametrize("line", [
    b"", b"null", b"[]", b'{"k": []}', b'{"k": "end"}', b'{"k": "result", "text": 3}',
    b'{"k": "figure", "path": "../a.png"}', b'{"k": "figure", "path": "fig/001.png\\n"}',
    b'{"k": "progress", "step": 1, "metrics": {"a": "b"}}', b'{"k": "progress", "step": 1e400}',
    b'{"k": "progress", "step": 1, "metrics": [1]}', b'{"k": "progress", "step": true}',
    b'{"k": "start", "attempt": -1}', b'{"k": "result", "t": "x", "text": ""}'])
def test_lying_events(line): assert read_event(line) is None


def test_a_loss_that_overflows_is_progress():
    event = read_event(b'{"k": "progress", "t": 1.0, "step": 3, "metrics": {"loss": Infinity, "norm": 1e300}}')
    assert event["metrics"] == {"loss": float("inf"), "norm": 1e300}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=50) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(
    max_size=5) | st.sampled_from(ENDED), lambda v: st.lists(v, max_size=2) | st.dictionaries(
    st.sampled_from(["status", "error", "seconds", "attempt", "type"]), v)).map(
        lambda v: json.dumps(v).encode()))
def test_any_status_is_read(data):
    state = checked_state(data)
    assert state["status"] in ENDED and set(state) == {"status", "error", "seconds", "attempt"}


def test_a_grandchild_has_its_grace_too(tmp_path):
    "A shell dies of the signal at once; what it runs still gets to save."
    code = ("import time, pathlib\ntry: print('ready', flush=True); time.sleep(60)\n"
            "except KeyboardInterrupt: time.sleep(0.3); pathlib.Path('{JOB}/ckpt/saved').touch()")
    process = start(job(tmp_path/"j", command=["sh", "-c", f'{sys.executable} -c "$1"; echo', "-",
                                               code]))
    until(lambda: (tmp_path/"j"/"log").exists() and "ready" in prints(tmp_path/"j"))
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130 and (tmp_path/"j"/"ckpt"/"saved").exists()


def test_a_process_without_the_socket_prints_its_progress(tmp_path):
    "Such as a worker of torchrun; and it never writes into a socket that is not ours."
    code = "from mabe_nb.remote.inside.cell import progress; progress(1, 2, loss=.5)"
    runner.run(job(tmp_path/"j", "import subprocess, sys, socket, os\n"
                   f"code = {code!r}\nsubprocess.run([sys.executable, '-c', code])\n"
                   "number = int(os.environ['MABE_EVENTS'].split(':')[0])\n"
                   "a, b = socket.socketpair()\nos.dup2(a.fileno(), number)\n"
                   "progress(2, 2)"), grace=0.5)
    assert prints(tmp_path/"j").startswith("[1/2] loss=0.5\n[2/2]\n")


NEEDED = [f"mabe_nb/{name}.py" for name in (
    "__init__", "errors", "files", "system", "remote/__init__", "remote/values",
    "remote/compound", *(f"remote/inside/{name}" for name in (
        "__init__", "channel", "figures", "cell", "child", "log", "runner", "win32")))]


def test_few_files_are_enough(tmp_path):
    "On a machine that has Python and NumPy, but not this package."
    top = Path(runner.__file__).parents[3]
    for name in NEEDED:
        (tmp_path/"carried"/name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(top/name, tmp_path/"carried"/name)
    folder = job(tmp_path/"j", "import mabe_nb\nimport matplotlib.pyplot as plt\nplt.plot(X)\n"
                 "Y = {'w': X}\nmabe_nb.__file__", outputs=["Y"])
    write_values(folder/"in", {"X": np.ones(3)})
    done = subprocess.run([sys.executable, "-m", "mabe_nb.remote.inside.runner", str(folder)],
                          cwd=tmp_path, capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path/"carried")})
    assert done.returncode == 0 and status(folder)["status"] == "done", done.stdout
    assert str(tmp_path/"carried").encode() in done.stdout
    assert (folder/"out"/"Y.safetensors").exists() and (folder/"fig"/"001.png").exists()

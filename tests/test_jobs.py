"Jobs on this machine: sent, left, found again from another process, stopped, distrusted."
import contextlib
import importlib.util
import json
import linecache
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
from waiting import until

from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, DataError, MabeError
from mabe_nb.cli import main
from mabe_nb.commands import remote as commands
from mabe_nb.files import write_json
from mabe_nb.locks import has_ended, this_process
from mabe_nb.remote.places.base import DiskPlace
from mabe_nb.remote.places.job_state import data_files
from mabe_nb.remote.handle import JobError
from mabe_nb.remote.groups.map import map as mb_map
from mabe_nb.remote.groups.plan import task_seconds
from mabe_nb.remote.choice import parse_options
from mabe_nb.remote.job import attach, jobs, quote, submit
from mabe_nb.remote.groups.prune import prune
from mabe_nb.remote.packages import modules_beside
from mabe_nb.remote.travel import job_code
from mabe_nb.view.panels.source import split_options

SECRETS = {"MODAL_TOKEN_SECRET": "as-THIS-IS-A-SECRET-1", "HF_TOKEN": "hf_THIS_IS_A_SECRET_2"}


@pytest.fixture(autouse=True)
def mabe_home(tmp_path, monkeypatch):
    for name, value in SECRETS.items(): monkeypatch.setenv(name, value)
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    yield tmp_path/"home"
    for job in jobs() if (tmp_path/"home"/"jobs").exists() else (): job.cancel()


def elsewhere_ends(code):
    "Exit code of another process."
    return subprocess.run([sys.executable, "-c", "from mabe_nb.remote.job import *\n" + code],
                          capture_output=True, check=False).returncode


def elsewhere(code):
    "What another process prints."
    out = subprocess.run([sys.executable, "-c", "from mabe_nb.remote.job import *\n" + code],
                         capture_output=True, text=True, timeout=30)
    assert out.returncode == 0, out.stderr
    return out.stdout


def printed(job): return [e["text"] for e in job.events() if e["k"] == "print"]


def test_outputs_and_figure_come_back():
    job = submit("import matplotlib.pyplot as plt\nplt.plot(X[0]); plt.show()\n"
                 "Y, steps = X + cfg['n'], [1, 2]\nprint('hello')\nY.sum()",
                 inputs={"X": np.ones((2, 3)), "cfg": {"n": 1}}, outputs=["Y", "steps"])
    found = [e for e in job.events() if e["k"] != "beat"] # of a slow machine
    assert [e["k"] for e in found] == ["start", "figure", "print", "result", "end"]
    assert found[-1]["status"] == "done" and "12.0" in found[-2]["text"]
    assert np.array_equal(job.result()["Y"], np.full((2, 3), 2.0))
    assert job.result()["steps"] == [1, 2] and job.cost() == 0
    assert [job.figure("fig/001.png")] == job.figures()


def test_pictures_of_the_cell_s_own_beside_its_figures():
    job = submit("import matplotlib.pyplot as plt\nfor name in ('mine', '1a'):\n"
                 "    (CKPT.parent/'fig'/f'{name}.png').write_bytes(b'no PNG')\n"
                 "plt.plot([1]); plt.show()")
    job.wait()
    assert job.figures() == [job.figure("fig/001.png")] and "fig/mine.png" in job.files()


def test_an_exception_comes_with_its_traceback():
    with pytest.raises(JobError, match="ZeroDivisionError: division by zero") as e:
        submit("def f(): 1/0\nf(); x = 1", outputs=["x"]).result()
    assert "line 1, in f" in e.value.traceback and e.value.status == "error"


def test_timeout_refused_output_and_cap():
    slow = submit("import time; time.sleep(60)", timeout=1)
    for source, why in (("f = lambda: 1", "'f' is or holds something of type function"),
                        ("import numpy as np; f = np.zeros(10**6)", "'f' makes 8,000,000")):
        with pytest.raises(JobError, match=why):
            submit(source, outputs=["f"], limit=10**6).result()
    with pytest.raises(JobError, match="stopped after its limit of 1 s"): slow.result()
    assert slow.status() == "timeout"


def test_left_by_one_process_and_found_by_another(tmp_path):
    "Not a line is lost, whoever looks and whenever."
    id = elsewhere("print(submit('import time\\nfor i in range(40): print(i); "
                   "time.sleep(0.02)\\nn = 40', outputs=['n']).id)").strip()
    job = attach(id)
    until(lambda: "5\n" in job.log())
    assert job.status() == "running"
    lines = elsewhere(f"for e in attach({id!r}).events():\n"
                      "    if e['k'] == 'print': print(e['text'], end='')")
    assert lines.split() == "".join(printed(job)).split() == list(map(str, range(40)))
    assert job.result() == {"n": 40}


def test_followed_from_any_byte():
    job = submit("import time\nfor i in range(30): print('é', i); time.sleep(0.01)")
    backend, seen, parts = job.backend, 0, []
    while job.status() == "running":
        for data in backend.log(job.folder, job.spec, seen, follow=False):
            parts.append(data)
            seen += len(data)
        follower = backend.log(job.folder, job.spec, seen)
        parts.append(next(follower, b""))
        seen += len(parts[-1])
        follower.close() # as on an interrupt
    parts += backend.log(job.folder, job.spec, seen)
    assert b"".join(parts) == (job.folder/"log").read_bytes()


def test_a_silent_job_beats():
    job = submit("import time; time.sleep(1.3)")
    assert sum(e["k"] == "beat" for e in job.events()) >= 2


def test_cancelled_from_another_process():
    job = submit("import time\nprint('on')\ntry: time.sleep(60)\n"
                 "except KeyboardInterrupt: (CKPT/'saved').touch()")
    until(lambda: "on" in job.log())
    elsewhere(f"attach({job.id!r}).cancel()")
    assert job.status() == "cancelled" and "ckpt/saved" in job.files()
    job.cancel() # again does nothing
    with pytest.raises(JobError, match="was cancelled"): job.result()


def test_cancelled_at_once():
    job = submit("import time; time.sleep(60)")
    job.cancel()
    assert job.wait(5) == "cancelled"


def test_a_runner_that_is_too_slow_to_say_so_was_cancelled_all_the_same(monkeypatch):
    "On a busy machine it is killed before it wrote its status, or before it heard of it."
    job = submit("import time; time.sleep(60)")
    monkeypatch.setattr(DiskPlace, "write_cancelled", lambda *_: None) # not yet
    os.kill(job.spec["handle"]["pid"], signal.SIGSTOP)
    job.backend.cancel(job.folder, job.spec, grace=0.1)
    assert not job.backend.alive(job.folder, job.spec) and job.status() == "cancelled"
    with pytest.raises(JobError, match="it was cancelled"): job.result()
    job.resume()
    assert job.status() == "running"


def test_died_by_sigkill():
    job = submit("import os, time\nprint('deep in thought')\nprint(os.getpid())\ntime.sleep(60)")
    until(lambda: job.log().count("\n") == 2)
    pid = int(job.log().split()[-1])
    os.kill(pid, signal.SIGKILL) # the cell: the runner tells
    assert job.wait(5) == "died" and "out of memory" in job.state()["error"]["message"]
    job = submit("import time\nprint('deep in thought')\ntime.sleep(60)")
    until(lambda: "deep" in job.log())
    os.kill(job.spec["handle"]["pid"], signal.SIGKILL) # the runner: nobody is left to tell
    assert job.wait(5) == "died"
    with pytest.raises(JobError, match="it last printed: deep in thought"): job.result()
    assert next(e for e in job.events() if e["k"] == "end")["status"] == "died"


def test_a_job_whose_sender_was_killed_is_not_on_its_way(mabe_home):
    code = ("import os, signal; from mabe_nb.remote.places.local import Backend; "
            "Backend.start = lambda *_: os.kill(os.getpid(), signal.SIGKILL); submit('1')")
    assert elsewhere_ends(code) == -signal.SIGKILL
    job, = jobs()
    assert job.status() == "died" and "killed before its place" in job.state()["error"]["message"]
    job.spec["sender"] = [job.spec["sender"][0], os.getpid()]
    assert job.state()["reason"] == "is being sent" # by who lives
    job.spec["sender"] = ["elsewhere", 2**22 + 1]
    assert job.state()["reason"] == "is being sent" # which cannot be known from here
    job, = jobs()
    job.resume()
    assert job.wait(20) == "done"


def test_a_job_whose_sender_was_killed_as_it_began_can_be_stopped():
    "Nobody has written down the number of its process."
    job = submit("import time\nprint('on', flush=True)\ntry: time.sleep(60)\nfinally: (CKPT/'saved').touch()")
    until(lambda: "on" in job.log())
    write_json(job.folder/"job.json", job.spec | {"handle": {}})
    again = attach(job.id)
    assert again.spec["handle"] == {} and again.status() == "running"
    again.cancel()
    assert again.status() == "cancelled" and "ckpt/saved" in again.files()


def test_a_process_id_that_is_somebody_elses_is_left_alone():
    job = submit("1")
    job.wait()
    until(lambda: not job.backend.alive(job.folder, job.spec))
    (job.folder/"status.json").unlink()
    other = subprocess.Popen(["sleep", "60"])
    job.spec["handle"]["pid"] = other.pid
    assert job.status() == "died"
    job.cancel()
    assert other.poll() is None
    other.kill(); other.wait()


def test_resumed_from_its_checkpoint():
    job = submit("n = len(list(CKPT.iterdir()))\n(CKPT/str(n)).touch()\nassert n == 1, n",
                 outputs=["n"])
    assert job.wait() == "error"
    job.resume()
    assert attach(job.id).result() == {"n": 1} and job.state()["attempt"] == 2
    with pytest.raises(ConfigError, match="is done"): job.resume()


def test_two_at_once_and_a_table():
    source = "import time; time.sleep(0.5)\nprint(who); got = who"
    both = [submit(source, inputs={"who": w}, outputs=["got"]) for w in ("a", "b")]
    assert [j.status() for j in both] == ["running", "running"]
    assert [j.result()["got"] for j in both] == ["a", "b"]
    assert [j.log() for j in both] == ["a\n", "b\n"]
    assert [j.id for j in jobs()] == [both[1].id, both[0].id]


def test_hundred_thousand_lines():
    job = submit("for i in range(100_000): print(i)")
    found = printed(job)
    assert "".join(found).split() == list(map(str, range(100_000)))
    assert len(found) < 10_000 and job.log(tail=1) == "99999\n"


def test_no_secret_in_any_file(monkeypatch):
    sent = [submit("1/0"), submit("if 0: y = 1", outputs=["y"], secrets=["HF_TOKEN"]),
            submit(["sh", "-c", "exit 3"]), submit("import os\nos.kill(os.getpid(), 9)")]
    for job in sent: job.wait()
    names = [p for job in sent for p in job.folder.rglob("*") if p.is_file()]
    assert len(names) > 15
    for path in names:
        assert not any(s.encode() in path.read_bytes() for s in SECRETS.values()), path
    assert sent[1].spec["secrets"] == ["HF_TOKEN"]
    assert all(job.folder.stat().st_mode & 0o077 == 0 for job in sent)
    assert sent[0].folder.parent.stat().st_mode & 0o077 == 0 # nor who sent how many, and when


SLIPS = {
    "unknown place to run at 'locla'; did you mean 'local'?": {"on": "locla"},
    "gpu is 'L4', but 'local' is this machine": {"gpu": "L4"},
    "timeout is nan": {"timeout": math.nan}, "retries is True": {"retries": True},
    "'../x' is no name for an output": {"outputs": ["../x"]},
    "'a b' is no name for a secret": {"secrets": ["a b"]},
    "unknown option of local 'gpus'": {"gpus": 2}, "options of a backend": {"image": len},
    "'NO_TOKEN' is not in the environment": {"secrets": ["NO_TOKEN"]},
    "'f' is or holds something": {"inputs": {"f": len}},
    "'X' makes": {"inputs": {"X": np.zeros(10**6)}, "limit": 10**6},
}


@pytest.mark.parametrize("why", SLIPS)
def test_slips_leave_nothing(why, mabe_home):
    with pytest.raises(MabeError) as e: submit("x = 1", **SLIPS[why])
    assert why in str(e.value) and "\n" not in str(e.value)
    assert not list((mabe_home/"jobs").glob("*"))


def test_a_backend_that_cannot_start_leaves_nothing(mabe_home, monkeypatch):
    def fails(*a): raise ConfigError("no capacity")
    monkeypatch.setattr("mabe_nb.remote.places.local.Backend.start", fails)
    with pytest.raises(ConfigError, match="no capacity"): submit("x = 1")
    assert not list((mabe_home/"jobs").iterdir())


def test_one_output_that_cannot_travel_does_not_lose_the_others():
    job = submit("a, m, X = [1, 2], lambda: 1, np.zeros(10**6)\nif not a: never = 1",
                 outputs=["a", "m", "X", "never"], limit=10**6, namespace={"np": np})
    with pytest.raises(JobError) as e: job.result()
    for why in ("'m' is or holds something of type function", "'X' makes 8,000,0",
                "never set its output 'never'", "what came back: a;"):
        assert why in str(e.value), e.value
    assert job.result(partial=True) == {"a": [1, 2]} and job.status() == "error"
    job = submit("import torch\nclass Odd(dict):\n    def values(self): raise KeyError('odd')\na = [1]\n"
                 "b = {'x': torch.ones(2, dtype=torch.complex128)}\nc = Odd(x=1)", outputs=["a", "b", "c"])
    with pytest.raises(JobError, match="'b' holds an array of dtype .*'c' cannot travel .KeyError.*back: a;"):
        job.result()
    job = submit(["sh", "-c", "echo 1 > $MABE_JOB/out/a.json"], outputs=["a", "b"])
    with pytest.raises(JobError, match="left no output 'b'.*what came back: a;"): job.result()
    assert job.result(partial=True) == {"a": 1}
    job = submit(["mkdir", "$MABE_JOB/out/b", "{JOB}/out/c"], outputs=["b", "c"])
    with pytest.raises(JobError, match="'b' is a folder, 'mabe jobs fetch .* out/b' brings"):
        job.result()
    assert submit("1/0").result(partial=True) == {}


def test_a_value_may_be_called_index():
    "As the list of the values of a job is, in `index.json`."
    for index in (3, {"b": "json"}, np.arange(3)):
        job = submit("b = index\nindex = [b, 4]", inputs={"index": index}, outputs=["index", "b"],
                     namespace={})
        found = job.result()
        assert np.array_equal(found["b"], index) and found["index"][1] == 4
    write = ["sh", "-c", "echo 1 > $MABE_JOB/out/index.json"]
    job = submit(write)
    assert job.result() == {} and (job.folder/"out"/"index.json").read_text() == "1\n"
    job = submit(write, outputs=["index"])
    with pytest.raises(JobError, match="own out/index.json is now out/index_of_command.json"):
        job.result()
    assert (job.folder/"out"/"index_of_command.json").read_text() == "1\n"


STOPPED = {
    "division by zero": "a = [1]; 1/0",
    "no text of it": "a = [1]\nclass Table:\n    def __repr__(self): raise ValueError('no "
                     "text of it')\nTable()",
    "Expected": "from matplotlib import pyplot\na = [1]\npyplot.title('$x_{$')",
    "its limit of 1 s": "import time\na = []\na += [1]\ntime.sleep(60)",
    "bad end": "import sys\na = [1]\nsys.exit('bad end')",
}


@pytest.mark.parametrize("why", STOPPED)
def test_what_a_cell_had_set_before_it_was_stopped_comes_back(why):
    job = submit(STOPPED[why], outputs=["a"], timeout=1 if "limit" in why else 60)
    with pytest.raises(JobError, match="(?s)" + why + ".*what came back: a;"): job.result()
    assert job.result(partial=True) == {"a": [1]}


def test_a_cell_that_is_cancelled_keeps_no_half_of_an_output():
    job = submit("import time\na = [1]\nprint('on', flush=True)\ntime.sleep(60)",
                 outputs=["a"])
    until(lambda: "on" in job.log())
    job.cancel()
    assert job.status() == "cancelled" and not (job.folder/"out"/"index.json").exists()


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    "A disk of a megabyte, on which the jobs are."
    disk = tmp_path/"disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if os.getuid() or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("needs to mount a small disk")
    monkeypatch.setenv("MABE_HOME", str(disk))
    yield disk
    until(lambda: not subprocess.run(["umount", str(disk)], capture_output=True).returncode)


def test_a_full_disk_is_said_and_what_fits_comes_back(small_disk):
    job = submit("import numpy as np\nX, n = np.zeros(10**6), 1", outputs=["X", "n"])
    with pytest.raises(JobError, match="'X' .*No space left.*what came back: n;"):
        job.result()
    assert job.result(partial=True) == {"n": 1}
    job = submit("(CKPT/'all').write_bytes(b'0' * 2**21)")
    with pytest.raises(JobError, match="OSError: .*No space left"): job.result()
    (job.folder/"more").write_bytes(b"0" * shutil.disk_usage(small_disk).free)
    with pytest.raises(DataError, match="no space is left on the disk; 'mabe jobs prune'"):
        submit("n = 1", outputs=["n"])


FILL = """
scores = {"f1": 0.9}
with open(CKPT/"all", "wb", 0) as file:
    while True: file.write(b"0" * 4096)"""


@pytest.mark.parametrize("source, said", [
    (FILL, "No space left.*what came back: scores;"), # a checkpoint, and the cell ends
    ("for k in range(3000): print('x' * 1000)\nscores = {'f1': 0.9}", None), # the log
    ("import numpy as np\nX, scores = {'w': np.zeros(10**6)}, {'f1': 0.9}", "'X' .*No space left")])
def test_small_outputs_come_back_whatever_fills_the_disk(small_disk, source, said):
    job = submit(source, outputs=["X", "scores"] if "X," in source else ["scores"])
    if said:
        with pytest.raises(JobError, match=said): job.result()
    assert job.result(partial=True) == {"scores": {"f1": 0.9}}
    assert not (job.folder/"spare").exists()


def test_a_disk_that_is_full_before_the_job_says_a_word(small_disk):
    job = submit("n = 1")
    job.wait()
    (job.folder/"status.json").unlink()
    with open(job.folder/"more", "wb", 0) as file, contextlib.suppress(OSError):
        while True: file.write(b"0" * 4096)
    until(lambda: job.status() == "died")
    assert "its disk is full, free some" in job.state()["error"]["message"]


def test_a_thread_that_a_cell_leaves_behind_does_not_keep_the_job():
    "A pool that nobody closed ends at once, by itself."
    for cell, told in (("import threading, time\nthreading.Thread(target=time.sleep, args=[600], name='logger').start()", True),
                       ("from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(int)", False)):
        job = submit(cell + "\nm = 1", outputs=["m"], timeout=120)
        assert job.result() == {"m": 1} and job.status() == "done"
        assert ("left a thread behind (logger)" in job.log()) == told


def test_a_missing_module_is_told_with_its_package():
    job = submit("import no_such_module")
    with pytest.raises(JobError, match="'pip install no_such_module' in the Python that runs"):
        job.result()


@pytest.mark.parametrize("end,shown", [("", 1), (";", 0), (";  # of a mouse", 0), ("  # of mice;", 1)])
def test_a_semicolon_hides_the_value_of_the_last_line(end, shown):
    job = submit(f"speed = 3\nspeed{end}")
    job.wait()
    assert [e["text"] for e in job.events() if e["k"] == "result"] == ["3"] * shown


def test_figures_beyond_the_most_are_told_once():
    job = submit("from matplotlib import pyplot\nfrom mabe_nb.remote.inside import figures\n"
                 "figures.MOST = 2\nfor i in range(5): pyplot.plot([i]); pyplot.show()")
    job.wait()
    assert len(job.figures()) == 2 and "".join(printed(job)).count("figures are kept") == 1


def test_packages_that_a_cluster_adds_by_its_path_are_installed(tmp_path, monkeypatch):
    "`module load` puts them on PYTHONPATH; what lies beside a script still goes along."
    folder = tmp_path/"apps"/"lib"/"python3.11"/"site-packages"/"swiftlib"
    folder.mkdir(parents=True)
    (folder/"__init__.py").write_text("SPEED = 3")
    (folder/"_fast.so").write_bytes(b"compiled")
    (tmp_path/"mine.py").write_text("import swiftlib")
    for path in (folder.parent, tmp_path): monkeypatch.syspath_prepend(path)
    assert [*modules_beside(["swiftlib"])[0]] == []
    found, imported = modules_beside(["mine"])
    assert [*found] == ["mine.py"] and "swiftlib" in imported


def test_modules_beside_the_script(tmp_path, monkeypatch):
    "As they were when it was sent, also where the folder is another one."
    monkeypatch.chdir(tmp_path)
    (tmp_path/"lab").mkdir()
    (tmp_path/"lab"/"__init__.py").write_text("from .units import FPS")
    (tmp_path/"lab"/"units.py").write_text("FPS = 30")
    said = []
    code = "import lab, os\nv = lab.FPS\nwhere = lab.__file__"
    job = submit(code, outputs=["v", "where"], say=said.append)
    assert job.result()["v"] == 30 and job.result()["where"] == str(tmp_path/"lab/__init__.py")
    assert said == ["goes along: lab/__init__.py (module, 22 bytes), lab/units.py (module, "
                    "8 bytes)"]
    code = code.replace("import lab, os", "import os, sys; sys.path.remove('')\nimport lab")
    job = submit(code, outputs=["v", "where"])
    assert job.result() == {"v": 30, "where": str(job.folder/"modules/lab/__init__.py")}
    with pytest.raises(ConfigError, match="'mabe_modules' is taken"):
        submit("x = 1", inputs={"mabe_modules": 1})


def test_packages_that_a_cluster_puts_on_the_path_stay_there(tmp_path, monkeypatch):
    "They hold compiled code, and are found where they are."
    there = tmp_path/"scipy_bundle"/"lib"/"python3"/"site-packages"
    (there/"fast").mkdir(parents=True)
    (there/"fast"/"__init__.py").write_text("FPS = 30")
    (there/"fast"/"core.so").touch()
    monkeypatch.syspath_prepend(there)
    monkeypatch.setenv("PYTHONPATH", f"{there}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    said = []
    job = submit("import fast\nv = fast.FPS", outputs=["v"], say=said.append)
    assert job.result() == {"v": 30} and said == []


def test_functions_and_helpers():
    def shift(x, by=np.int64(1)): return [x + b for b in by]
    def caller(x): return {"a": shift(x, [1, 2]), "b": np.sum([x])}
    source = job_code(caller, {"x": 1}, ["a", "b"]).source
    assert source.startswith("mabe_inputs = {'x': x}; del x\nimport numpy as np\ndef shift")
    assert source == job_code(caller, {"x": 1}, ["a", "b"], with_=[shift]).source
    job = submit(caller, inputs={"x": 1}, outputs=["a", "b"])
    assert job.result() == {"a": [2, 3], "b": 1}
    table = np.zeros(9)
    def reader(x): return x + table
    with pytest.raises(ConfigError, match=r"'table' \(ndarray\) from outside.*an argument"):
        submit(reader, inputs={"x": 1})
    def twice(x): return 2*x
    assert submit(twice, inputs={"x": 4}).result() == {"value": 8}
    with pytest.raises(ConfigError, match="missing a required argument: 'x'"): submit(twice)
    with pytest.raises(ConfigError, match="list of words"): submit([1, 2])
    with pytest.raises(ConfigError, match="cannot send a int"): submit(3)


NAMES = """
import json
from mabe_nb.remote.inside.channel import progress
x, id, STEP, K, DATA = 5, "mouse3", 2, 2, 7
CKPT = "my.pt"
def commit(v): return v * 2
def helper(): return [x, sum([1, 2]), json.dumps(id)]
def f(x, sum, json): return [x, sum, json, helper()]
def late(v, n=K, *, m=STEP): return [v, n, m]
class Late:
    def get(self, n=K): return n
def keeps(v): progress(v, 1); return CKPT
def adds(v): return commit(v)
def times(v): return v * DATA
def scale(k):
    def scaled(v): return v * k
    return scaled
threefold = scale(3)
"""


@pytest.fixture
def defined(monkeypatch):
    "Runs a text as a cell of a notebook; what it then defines."
    def run(text):
        found = {"__name__": "__main__", "In": [text]}
        monkeypatch.setitem(linecache.cache, "<names>",
                            (len(text), None, text.splitlines(True), "<names>"))
        exec(compile(text, "<names>", "exec"), found)
        return found
    return run


@pytest.fixture
def names(defined): return defined(NAMES)


def test_arguments_are_what_was_given(names):
    "A global that goes along, or a builtin, of the same name takes no argument's place."
    given = {"x": 100, "sum": 1, "json": 7}
    there = submit(names["f"], inputs=given).result()["value"]
    assert there == names["f"](**given) == [100, 1, 7, [5, 3, '"mouse3"']]
    with pytest.raises(ConfigError, match="'threefold', which has a 'k' of its own"):
        submit("y = threefold(k)", inputs={"k": 2}, outputs=["y"], namespace=names)
    names["scaled"] = names["helper"]
    with pytest.raises(ConfigError, match="'threefold' was written as 'scaled', and another"):
        job_code("y = threefold(1), scaled()", {}, ["y"], namespace=names)
    with pytest.raises(ConfigError, match="'mabe_inputs' is taken"):
        def held(mabe_inputs): return mabe_inputs
        submit(held, inputs={"mabe_inputs": 1})


def test_names_of_python_that_the_notebook_has(names):
    "They go along, or are asked for, as all others."
    with pytest.raises(ConfigError, match=r"uses 'id' \(str\) of the notebook"):
        submit("name = f'{id}_1'", outputs=["name"], namespace=names)
    job = submit("name = f'{id}_{input}'", outputs=["name"], inputs={"id": "a", "input": 2},
                 namespace=names)
    assert job.result() == {"name": "a_2"}
    with pytest.raises(ConfigError, match="calls input"): job_code("input()", {}, [])
    from IPython.core.interactiveshell import _modified_open
    assert not job_code("open", {}, [], namespace={"open": _modified_open}).names


@pytest.mark.parametrize("cell, name", [("x = x + 1", "x"), ("if x: pass\nx = 2", "x"), ("for i in [1]: x += i", "x"),
                                        ("def up():\n    global x\n    x += 1\nup()", "x"), ("with open(id) as id: 1", "id"),
                                        ("sum = sum([1]); K = 1; K += 1", None), ("del x", None)])
def test_a_name_that_is_read_before_it_is_set_is_asked_for(names, cell, name):
    if name:
        with pytest.raises(ConfigError, match=f"the cell uses '{name}' .* of the notebook"):
            job_code(cell, {}, [], namespace=names)
    assert job_code(cell, {name: 1} if name else {}, [], namespace=names | {"sum": sum}).names == {}


def test_a_default_that_would_be_another(names):
    assert submit(names["late"], inputs={"v": 1}).result()["value"] == [1, 2, 2]
    names["STEP"] = 3
    with pytest.raises(ConfigError, match="'late' has the default m=2, and in a job .* be 3"):
        submit(names["late"], inputs={"v": 1})
    job_code("Late().get()", {}, [], namespace=names)
    names["K"] = [2]
    with pytest.raises(ConfigError, match=r"'get' has the default n=2, .* would be \[2\]"):
        job_code("Late().get()", {}, [], namespace=names)


def counted(v, n=max(1, 2), *, m=os.getpid()): return [n, m] # noqa: B008


def test_a_default_that_a_call_makes_is_told(mabe_home):
    "It is another one in the job, which may be meant."
    said = []
    assert submit(counted, inputs={"v": 1}, say=said.append).result()["value"] != counted(1)
    assert [line for line in said if line.startswith("note")] == [
        "note: 'counted' has the default m=os.getpid(), which the machine of the job makes anew; "
        "give the argument if yours is meant"]
    said.clear()
    mb_map(counted, [1], say=said.append).wait()
    assert sum("m=os.getpid()" in line for line in said) == 1


AROUND = """
import enum, functools
def timed(fn):
    def wrapper(*a): return fn(*a) * 10
    return wrapper
def doubled(fn):
    @functools.wraps(fn)
    def wrapper(*a): return fn(*a) * 2
    return wrapper
def scaler(n):
    def scale(x): return x * n
    return scale
def plain(x): return x
@timed
def bare(x): return x
@doubled
def kept(x): return x
@doubled
@timed
def mixed(x): return x
by_hand, again, twice, nine = doubled(plain), plain, scaler(2), 9
again = doubled(again)
class Base:
    n = 0
    names = []
    here = a, b = 1, 2
    def __init__(self): self.here = 2; Base.names.append(1)
    def shift(self, x=1): return x
class Heir(Base): pass
class Config:
    epochs: int = 1
    if epochs: more: int
class Kind(enum.Enum): a = 1
shift, made = Base().shift, Heir()
def counts(): return counts.calls
SIZES, FACTOR = [1, 2], 2
def biggest(n=max(SIZES)): return n
def times(k):
    def around(fn):
        @functools.wraps(fn)
        def wrapper(*a): return fn(*a) * k
        return wrapper
    return around
@times(FACTOR)
def times_two(x): return x
"""


@pytest.mark.parametrize("more, cell, words", [
    ("", "bare(1)", "'bare' uses 'fn', which cannot go along: what a call or a decorator made around 'bare'"),
    ("", "mixed(1)", "'mixed', which cannot go along: what a call or a decorator made"),
    ("", "by_hand(1)", "'by_hand', which cannot go along: what a call .* with functools.wraps"),
    ("plain = doubled(plain)", "plain(1)", "around 'plain' would be lost or made twice"),
    ("", "shift(1)", "'shift', which cannot go along: it is a method of an object"),
    ("Base.n = 5", "Base", "'Base' has the attribute n=5, and in a job it would be 0"),
    ("Base.shift = lambda self: 1", "Base", "'Base' has another 'shift' than its definition; write it there"),
    ("Config.rate = 2", "Config", "'Config' has another 'rate' than"),
    ("counts.calls = 0", "counts()", "'counts' has another 'calls' than"),
    ("SIZES = [1, 2, 50]", "biggest()", "'biggest' has the default n=2, and in a job it would be 50"),
    ("FACTOR = 3", "times_two(1)", "a decorator of 'times_two' was given FACTOR when it was 2, .* would be 3"),
    ("Base = type('Base', (), {})", "Heir()", "another 'Base' was defined since; define 'Heir' again"),
    ("", "for n in range(3): twice(n)", "'twice', which has a 'n' of its own beside that of the job"),
    ("n = twice.__closure__[0].cell_contents", "n = 3; twice(n)", "'twice', which has a 'n' of its own"),
], ids=str)
def test_what_is_another_thing_than_its_source(defined, more, cell, words):
    found = defined(AROUND + more)
    with pytest.raises(ConfigError, match=words): job_code(cell, {}, [], namespace=found)


def test_what_its_source_makes_goes_along(defined):
    found = defined(AROUND)
    code = job_code("v = [kept(2), twice(3), Heir().shift(), Base.names, Config.epochs, Kind.a.value,\n"
                    "     biggest(), times_two(1)]",
                    {}, ["v"], namespace=found)
    exec(code.source, there := {})
    assert there["v"] == [4, 6, 1, [1], 1, 1, 2, 2]


def test_a_class_goes_as_the_cell_that_made_it(defined):
    "Not as one that failed on its way to the class; of a newer class of that name it is told."
    found = defined("class Config: rate = 1\nOld = Config")
    found["In"] += ["1 / 0\nclass Config: rate = 2", "1 / 0\nclass Config:\n    rate = 1\n    more: int"]
    assert job_code("Config", {}, [], namespace=found).source.startswith("class Config: rate = 1\n")
    found["Config"].rate = 3
    with pytest.raises(ConfigError, match="'Config' has "): job_code("Config", {}, [], namespace=found)
    exec("class Config: rate = 1", found)
    with pytest.raises(ConfigError, match="another 'Config' was"): job_code("Old", {}, [], namespace=found)
    found["Old"].rate = 1
    assert job_code("Old", {}, [], namespace=found).names, "a cell that was run twice"
    exec("class Config: rate = 1; more = 2", found)
    with pytest.raises(ConfigError, match="'Old', which cannot go along: another 'Config' was defined"):
        job_code("Old", {}, [], namespace=found)


def test_what_a_cell_with_a_magic_defined_goes_along(mabe_home, monkeypatch):
    "Python itself finds no source of it; the notebook remembers the cell."
    from IPython.core.interactiveshell import InteractiveShell
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"]) # a shell takes its place
    monkeypatch.setenv("IPYTHONDIR", str(mabe_home))
    shell = InteractiveShell()
    cells = ("def half(x): return x / 3", "%%time\ndef half(x): return x / 2\n\nclass Net:\n"
             "    def forward(self, x): return x\n",
             "%%capture\nimport dataclasses\n@dataclasses.dataclass\nclass Config:\n    rate: int = 3",
             "%%time\ndef half_of(x):\n    def half(y): return y / 2\n    return half(x)")
    for cell in cells: shell.run_cell(cell, store_history=True).raise_error()
    code = job_code("v = [half(3), Net().forward(2), Config().rate, half_of(4)]", {}, ["v"],
                    namespace=shell.user_ns)
    exec(code.source, there := {})
    assert there["v"] == [1.5, 2, 3, 2]
    shell.user_ns["half"].__code__ = shell.user_ns["half_of"].__code__
    with pytest.raises(ConfigError, match="the source of 'half' cannot be found"):
        job_code("half(1)", {}, [], namespace=shell.user_ns)


def test_names_that_a_function_around_it_set_are_not_the_functions(defined):
    found = defined("""
def make(f):
    def inner(x): return f(x) + 1
    return inner
def base(x): return x * 2
h = make(base)
def f(x): return h(x - 1) if x > 0 else -1
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n > 0 and even(n - 1)
""")
    with pytest.raises(ConfigError, match="two different things called 'f'"):
        job_code(found["f"], {"x": 3}, [])
    assert submit(found["even"], inputs={"n": 4}).result()["value"]


def test_a_module_within_a_package_is_imported(names):
    import concurrent.futures
    import xml.etree.ElementTree
    found = names | {"concurrent": concurrent, "xml": xml}
    cell = "v = [concurrent.futures.Future.__name__, xml.etree.ElementTree.XML('<a/>').tag]"
    assert submit(cell, outputs=["v"], namespace=found).result() == {"v": ["Future", "a"]}


def test_own_things_called_as_those_of_a_job(names):
    for name, what in (("keeps", "CKPT"), ("adds", "commit")):
        with pytest.raises(ConfigError, match=f"own '{what}' does not travel.*rename it"):
            job_code(names[name], {"v": 1}, [])
    names["CKPT"] = Path("ckpt")
    job_code(names["keeps"], {"v": 1}, [])
    assert "DATA = 7" in job_code(names["times"], {"v": 1}, []).source
    assert "DATA" not in job_code("DATA", {}, [], options={"data": "."}).source[:-4]
    with pytest.raises(ConfigError, match="'DATA', which .*; a job that is given data="):
        job_code("print(DATA)", {}, [], namespace={})


def hostile(job, name, data):
    (job.folder/name).write_bytes(data)


def test_hostile_folder(tmp_path):
    "What a container that was taken over may leave, read as carefully as it must be."
    job = submit("x = 1", outputs=["x"])
    job.wait()
    until(lambda: not job.backend.alive(job.folder, job.spec))
    claim = (b"\x93NUMPY\x01\x00\x3f\x00{'descr': '<f8', 'fortran_order': False, "
             b"'shape': (125000000000,)}")
    for index, name, data in ((b'{"x": "pickle"}', "x.pickle", b"cos\nsystem\n(S'true'\ntR."),
                              (b'{"../../x": "json", "x": "json"}', "x.json", b"1"),
                              (b'{"x": "npy"}', "x.npy", claim), (b'{"y": "json"}', "y.json", b"1"),
                              (b"[" * 10**5, "x.json", b"1"), (b'{"x": "json"}', "x.json", b"{")):
        hostile(job, "out/index.json", index)
        hostile(job, f"out/{name}", data)
        with pytest.raises(DataError): job.result()
    (job.folder/"out"/"x.json").unlink()
    (job.folder/"out"/"x.json").symlink_to("/etc/hostname")
    hostile(job, "out/index.json", b'{"x": "json"}')
    with pytest.raises(DataError, match="not there"): job.result()
    assert "out/x.json" not in job.files()
    hostile(job, "fig/001.png", b"<svg onload=alert(1)>")
    with pytest.raises(DataError, match="no PNG"): job.figures()
    for path in ("fig/../job.json", "/etc/passwd", "fig/001.png\n"):
        with pytest.raises(DataError): job.figure(path)
        with pytest.raises(DataError): job.fetch(path, tmp_path/"got")
    hostile(job, "status.json", b'{"status": "done", "error": "<b>", "seconds": [], "attempt": 1}')
    assert job.status() == "died"
    (tmp_path/"true").write_text('{"status": "done", "error": null, "seconds": 1, "attempt": 1}')
    for name in ("status.json", "log"):
        (job.folder/name).unlink()
        (job.folder/name).symlink_to(tmp_path/"true")
    assert job.status() == "died" and job.log() == ""


def test_escapes_and_html_are_only_text():
    job = submit(r"print('\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>\x9b1m\u202e')"
                 "\nraise ValueError('\\x1b[31m<b>')")
    text = "".join(printed(job))
    assert text.startswith("<script>alert(1)</script>1m\n") and "\x1b" not in text
    assert job.state()["error"]["message"] == "<b>"


class Cloud(DiskPlace):
    "A backend whose files lie elsewhere, and whose listing lies."
    name, on_disk = "cloud", False
    listing = {"out/index.json": 12, "out/x.npy": 2**40}
    def alive(self, folder, spec): return False
    def files(self, folder, spec, under=""): return self.listing
    def read(self, folder, spec, name, limit):
        if name == "out/x.npy": raise AssertionError("read before its size was checked")
        yield b'{"x": "npy"}'


def test_sizes_elsewhere_are_checked_before_reading(tmp_path):
    job = submit("x = 1", outputs=["x"])
    job.wait()
    job.backend = Cloud()
    with pytest.raises(DataError, match="'x' makes 1,099,511,627,776 bytes"): job.result()
    with pytest.raises(DataError, match="more than"): job.fetch("out", tmp_path/"got")
    assert not (tmp_path/"got").exists()


def test_unknown_deleted_and_broken_jobs(mabe_home):
    for id in ("nothing", "../../x", ""):
        with pytest.raises(MabeError) as e: attach(id)
        assert "\n" not in str(e.value)
    job = submit("1")
    job.wait()
    shutil.copytree(job.folder, job.folder.with_name(f"{job.id}.bak"))
    with pytest.warns(UserWarning, match=f"is a copy of job '{job.id}'"): assert len(jobs()) == 1
    with pytest.raises(DataError, match="is a copy"): attach(f"{job.id}.bak")
    shutil.rmtree(job.folder.with_name(f"{job.id}.bak"))
    for key, value in (("billed", "x"), ("started", None), ("cwd", None), ("billed", float("nan")), ("timeout", float("nan"))):
        (job.folder/"job.json").write_text(json.dumps(job.spec | {key: value}))
        with pytest.warns(UserWarning, match=f"'{key}' is missing or of the wrong"): assert jobs() == []
    write_json(job.folder/"job.json", {k: v for k, v in job.spec.items() if k not in ("gpu", "secrets", "sender")})
    assert attach(job.id).status() == "done" # of an earlier version
    (job.folder/"job.json").write_text('{"id": 3}')
    with pytest.raises(DataError, match="'id' is missing"): attach(job.id)
    with pytest.warns(UserWarning, match="left out"): assert jobs() == []
    (job.folder/"job.json").unlink()
    with pytest.raises(MabeError, match="was deleted; 'mabe jobs list'"): job.status()


def test_quote_and_cost():
    assert quote("local", timeout=60) == {"usd_per_hour": 0.0, "most_usd": 0.0,
                                          "most_seconds": 60, "estimate": True}
    with pytest.raises(ConfigError, match="timeout is 0"): quote(timeout=0)


def call(*words):
    return subprocess.run([sys.executable, "-c", """
import argparse, json, sys
from mabe_nb.commands.remote import COMMANDS
function, add_flags = COMMANDS[sys.argv[1]]
p = argparse.ArgumentParser()
p.add_argument("--json", action="store_true")
add_flags(p)
args = p.parse_args(sys.argv[2:])
answer = function(args, lambda t: print(t, file=sys.stderr if args.json else sys.stdout))
if args.json: print(json.dumps(answer))
""", *words], capture_output=True, text=True, timeout=30)


def test_a_folder_of_jobs_that_is_empty_or_of_somebody_else_is_named(mabe_home):
    assert call("jobs").stdout == f"no jobs in {mabe_home/'jobs'}\n"
    with TemporaryDirectory() as top: # others may come to it, unlike to tmp_path
        Path(top).chmod(0o755)
        (Path(top)/"jobs").mkdir(0o700 if (root := not os.getuid()) else 0o000)
        if root: os.seteuid(65534)
        try:
            os.environ["MABE_HOME"] = top # as the fixture does, and puts back
            with pytest.warns(UserWarning, match="jobs holds jobs of another user.*MABE_HOME"):
                assert jobs() == []
        finally:
            os.environ["MABE_HOME"] = str(mabe_home)
            if root: os.seteuid(0)


def test_command_line(tmp_path):
    done = call("submit", "--out", "n", "--json", "--", "sh", "-c",
                "echo counting -- mice; echo 3 > {JOB}/out/n.json")
    about = json.loads(done.stdout)
    assert about["status"] == "done" and "counting -- mice" in done.stderr
    assert attach(about["id"]).result() == {"n": 3}
    left = json.loads(call("submit", "--detach", "--json", "--", "sleep", "60").stdout)
    assert left["status"] == "running"
    assert {r["id"] for r in json.loads(call("jobs", "--json").stdout)} == {
        about["id"], left["id"]}
    assert call("jobs", "cancel", left["id"]).stdout == f"job {left['id']}: cancelled\n"
    assert call("jobs", "logs", about["id"]).stdout == "counting -- mice\n"
    assert "counting" in call("jobs", "attach", about["id"]).stdout
    call("jobs", "fetch", about["id"], "out", "--to", str(tmp_path/"got"))
    assert (tmp_path/"got"/"n.json").read_text() == "3\n"
    assert "out/n.json" in call("jobs", "fetch", about["id"]).stdout


def test_a_failed_command_fails_the_command_line():
    with pytest.raises(JobError, match="'sh' ended with exit code 4; it said: no mice;"):
        commands.follow(submit(["sh", "-c", "echo no mice; exit 4"]))


def test_a_failure_is_one_for_a_script_too(capsys):
    "With --json there is the object, and the exit code of a command that failed."
    assert main(["submit", "--json", "--", "sh", "-c", "exit 3"]) == 2
    out, said = capsys.readouterr()
    about = json.loads(out)
    assert about["status"] == "error" and f"job {about['id']} has no result" in said
    assert main(["jobs", "attach", about["id"], "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["status"] == "error"
    assert main(["jobs", "resume", about["id"], "--failed"]) == 2
    assert "resume ID of a group" in capsys.readouterr().err


def test_ctrl_c_leaves_it_running(monkeypatch):
    job = submit("import time\nprint('on')\ntime.sleep(60)")
    class Stream:
        def flush(self): pass
        def write(self, text):
            self.said = text
            if text == "on\n": raise KeyboardInterrupt
    stream = Stream()
    with monkeypatch.context() as m:
        m.setattr(sys, "stdout", stream)
        with pytest.raises(KeyboardInterrupt) as stopped: commands.follow(job)
    assert stopped.value.answer["status"] == "running"
    assert f"mabe jobs attach {job.id}" in stream.said and "cancel" in stream.said


def test_started_again_the_moment_it_ended():
    job = submit("1/0")
    for attempt in range(1, 5):
        while job.status() != "error": pass
        assert job.state()["attempt"] == attempt
        job.resume()
    assert job.wait() == "error"


def test_never_started_twice():
    job = submit("import time; time.sleep(60)")
    with pytest.raises(ConfigError, match="is running; only"): job.resume()
    with pytest.raises(ConfigError, match="is still running; 'mabe jobs cancel"):
        job.backend.start(job.folder, job.spec)


def test_survives_the_kernel_and_all_its_children():
    kernel = subprocess.Popen(
        [sys.executable, "-c", "import time\nfrom mabe_nb.remote.job import submit\n"
         "print(submit('import time\\ntime.sleep(0.5)\\nn = 1', outputs=['n']).id, flush=True)\n"
         "time.sleep(60)"], stdout=subprocess.PIPE, text=True, start_new_session=True)
    job = attach(kernel.stdout.readline().strip())
    os.killpg(kernel.pid, signal.SIGKILL)
    kernel.wait()
    assert job.result() == {"n": 1}


def test_data_is_where_it_is(tmp_path, monkeypatch):
    "`{DATA}` of a command, `DATA` of a cell: the folder itself, on this machine and a cluster."
    (tmp_path/"colony").mkdir()
    (tmp_path/"colony"/"train.csv").write_text("id\n1\n")
    monkeypatch.chdir(tmp_path)
    places = [{}] + [{"on": "slurm", "cluster": "local"}] * bool(importlib.util.find_spec("submitit"))
    for place in places:
        job = submit(["cat", "{DATA}/train.csv"], data="colony", **place)
        assert job.wait() == "done" and "id\n1" in job.log()
        cell = submit("import os\nnames, top = os.listdir(DATA), DATA", data="colony",
                      outputs=["names", "top"], **place)
        assert cell.result() == {"names": ["train.csv"], "top": str(tmp_path/"colony")}
        for wrong in ("absent", 3):
            with pytest.raises(MabeError, match="wants a dataset"): submit("1", data=wrong, **place)
    monkeypatch.chdir("/")
    assert submit(["ls", "{DATA}"], data=str(tmp_path/"colony")).wait() == "done"


def test_settings_of_a_training_name_the_card(tmp_path, monkeypatch):
    "`modal_gpu` and `modal_timeout`: defaults on modal, named where they are not used."
    (tmp_path/"c.yaml").write_text("modal_gpu: L4\nmodal_timeout: 7200\n")
    spoken = []
    def machine(on="modal", gpu=None, timeout=None, config=str(tmp_path/"c.yaml")):
        spoken.clear()
        args = SimpleNamespace(on=on, gpu=gpu, timeout=timeout, config=config)
        return commands._machine(args, spoken.append)
    assert machine() == ("L4", 7200) and not spoken
    assert machine(gpu="T4,A10", timeout=60.0) == (["T4", "A10"], 60.0)
    assert machine(on="hf", gpu="t4-small") == ("t4-small", 3600)
    assert "modal_gpu and modal_timeout" in spoken[0] and "not used on hf" in spoken[0]
    assert machine(config=None) == (None, 3600)
    (tmp_path/"c.yaml").write_text("epochs: 3\n")
    assert machine(on="hf") == (None, 3600) and not spoken
    (tmp_path/"c.yaml").write_text("modal_gup: L4\n")
    with pytest.raises(ConfigError, match="did you mean 'modal_gpu'"): machine()


@pytest.mark.parametrize("text, options", [
    ("cpu=4, memory=8", {"cpu": 4, "memory": 8}), (" a=1\nb=2,", {"a": 1, "b": 2}), ("", {}),
    ("pip=einops,timm==1.0.9 cpu=2", {"pip": "einops,timm==1.0.9", "cpu": 2}),
    ('extra={"reservation": "mice"}, env=A,B', {"extra": {"reservation": "mice"}, "env": "A,B"})])
def test_options_of_a_panel_hold_lists(text, options):
    assert parse_options(split_options(text)) == options


def test_resumed_from_elsewhere_it_runs_where_it_was_sent_from(tmp_path, monkeypatch):
    "Relative paths mean the same files, whoever resumes it; not others of the same name."
    for name in "ab":
        (tmp_path/name).mkdir()
        (tmp_path/name/"data.txt").write_text(name)
    monkeypatch.chdir(tmp_path/"a")
    job = submit("import os\nfound = open('data.txt').read()\nassert 'go' in os.listdir(CKPT)",
                 outputs=["found"])
    assert job.wait() == "error"
    (job.folder/"ckpt"/"go").touch()
    monkeypatch.chdir(tmp_path/"b")
    job.resume()
    assert job.result() == {"found": "a"}
    job = submit("1 / 0")
    job.wait()
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path/"b")
    with pytest.raises(ConfigError, match="sent from .*b, which is no more"): job.resume()
    assert job.status() == "error"


def test_resumed_without_its_secrets_it_is_refused(monkeypatch):
    "It would run with an empty one: no file holds them, and another shell may not have them."
    monkeypatch.setenv("LAB_KEY", "a-key-of-the-lab")
    job = submit("import os\nheld = len(os.environ['LAB_KEY'])\nassert list(CKPT.iterdir())",
                 outputs=["held"], secrets=["LAB_KEY"])
    assert job.wait() == "error"
    (job.folder/"ckpt"/"go").touch()
    monkeypatch.delenv("LAB_KEY")
    with pytest.raises(ConfigError, match="'LAB_KEY' is not in the environment"): job.resume()
    assert attach(job.id).state()["attempt"] == 1 and job.status() == "error"
    monkeypatch.setenv("LAB_KEY", "a-key-of-the-lab")
    job.resume()
    assert job.result() == {"held": 16}


def test_of_two_who_resume_it_at_once_one_does():
    "The other is told that it runs; what is known of it stays known, so it can be stopped."
    job = submit("import time\nprint('BEGUN')\nif not list(CKPT.iterdir()): 1 / 0\ntime.sleep(60)")
    assert job.wait() == "error"
    (job.folder/"ckpt"/"go").touch()
    (job.folder/"collected").touch()
    code = ("import sys; from mabe_nb.remote.job import attach\njob = attach(sys.argv[1])\n"
            "print(1, flush=True); input()\ntry: job.resume()\nexcept Exception as e: print(e)")
    both = [subprocess.Popen([sys.executable, "-c", code, job.id], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for one in both: one.stdout.readline()
    for one in both: one.stdin.write("\n"); one.stdin.flush()
    said = sorted(one.communicate()[0] for one in both)
    assert said[0] == "" and "is running; only" in said[1]
    until(lambda: job.log().count("BEGUN") == 2)
    again = attach(job.id)
    assert again.status() == "running" and not (job.folder/"collected").exists()
    with pytest.raises(ConfigError, match="is running"): again.remove()
    job.cancel() # by one who has not heard of the second attempt
    assert again.status() == "cancelled"
    until(lambda: not again.backend.alive(again.folder, again.spec))


def test_what_stays_behind_is_named(tmp_path, monkeypatch, capsys):
    "Other trainers leave `best` and `last` as links, pipes, odd names; folders come without files too."
    monkeypatch.chdir(tmp_path)
    job = submit(["bash", "-c", "cd {JOB}/ckpt; mkdir -p run/logs/tb none; echo x > run/a; ln -s a run/best; "
                                "ln -s / run/all; mkfifo run/pipe; touch 'run/b\\c'"])
    assert job.wait(60) == "done"
    left = ["left out, as links are not followed: ckpt/run/all, ckpt/run/best",
            "left out, as it is no file: ckpt/run/pipe",
            "left out, as another disk may not take such a name: 'ckpt/run/b\\\\c'"]
    for more in (["ckpt/run", "--to", "out"], []):
        assert main(["jobs", "fetch", job.id, *more]) == 0
        assert capsys.readouterr().out.splitlines()[:3] == left
    assert sorted(str(p.relative_to("out")) for p in Path("out").rglob("*")) == ["a", "logs", "logs/tb"]
    assert [*job.fetch("ckpt/none").iterdir()] == []
    for name in ("ckpt/run/best", "ckpt/run/all"):
        assert main(["jobs", "fetch", job.id, name]) == 2
        assert f"left out, as links are not followed: {name}\n" in capsys.readouterr().out
    assert main(["jobs", "fetch", job.id, "ckpt/run/a"]) == 0
    assert "left out" not in capsys.readouterr().out


def test_data_in_folders_that_are_links_goes_along(tmp_path):
    "Large files lie on another disk; what leads back to the dataset is passed over."
    (tmp_path/"data").mkdir()
    (tmp_path/"disk"/"lab").mkdir(parents=True)
    for path in ("data/train.csv", "disk/lab/1.parquet"): (tmp_path/path).touch()
    for name, to in (("tracking", "../disk"), ("loop", ".."), ("self", "."), ("disk", "tracking/lab"), ("gone", "no")):
        (tmp_path/"data"/name).symlink_to(to)
    (tmp_path/"disk"/"back").symlink_to(tmp_path/"data")
    assert data_files(tmp_path/"data") == ["disk/1.parquet", "tracking/lab/1.parquet", "train.csv"]


def test_what_is_large_is_fetched_if_the_disk_has_room(tmp_path, monkeypatch, capsys):
    "A person who names a file wants it; a program has the limit of the job."
    job = submit("with open(CKPT/'large', 'wb') as f: f.truncate(2**20)", limit=2**10)
    assert job.wait(60) == "done"
    with pytest.raises(DataError, match="more than the 1,024 allowed; raise 'limit'"):
        job.fetch("ckpt/large", tmp_path)
    usage = shutil.disk_usage
    with monkeypatch.context() as m:
        m.setattr(shutil, "disk_usage", lambda path: usage(path)._replace(free=10**6))
        assert main(["jobs", "fetch", job.id, "ckpt/large", "--to", str(tmp_path)]) == 2
    assert "has 1,048,576 bytes, and 1,000,000 are free there; free some" in capsys.readouterr().err
    assert main(["jobs", "fetch", job.id, "ckpt/large", "--to", str(tmp_path)]) == 0
    assert (tmp_path/"large").stat().st_size == 2**20


def test_a_fetch_that_fails_or_is_interrupted_waits_for_no_large_file(tmp_path):
    job, pieces, begun = submit("for n in 'ab': (CKPT/n).touch()"), [], threading.Event()
    assert job.wait(60) == "done"

    class Far(Cloud):
        listing = {"ckpt/a": 1, "ckpt/b": 1}
        def read(self, folder, spec, name, limit):
            if name == "ckpt/b":
                assert begun.wait(60)
                raise DataError("is no more", name)
            for n in range(3000):
                begun.set()
                pieces.append(n)
                time.sleep(0.01)
                yield b"x"
    job.backend = Far()
    with pytest.raises(DataError, match="is no more"): job.fetch("ckpt", tmp_path/"got")
    assert len(pieces) < 2000 and not [*tmp_path.glob("*got*")]


def test_what_is_fetched_replaces_nothing_unasked(tmp_path, monkeypatch):
    job = submit("(CKPT/'run').mkdir()\n(CKPT/'run'/'new').touch()")
    job.wait()
    (tmp_path/"run").mkdir()
    (tmp_path/"run"/"mine").touch()
    with pytest.raises(ConfigError, match="is there already.*--overwrite"):
        job.fetch("ckpt/run", tmp_path)
    assert [p.name for p in (tmp_path/"run").iterdir()] == ["mine"]
    monkeypatch.chdir(tmp_path)
    assert main(["jobs", "fetch", job.id, "ckpt/run", "--overwrite"]) == 0
    assert [p.name for p in (tmp_path/"run").iterdir()] == ["new"]
    with pytest.raises(ConfigError, match="there already"): job.fetch("ckpt/run/new", "run/new")


def test_a_signal_without_a_name_is_told():
    job = submit("import os\nos.kill(os.getpid(), 40)")
    assert job.wait() == "died" and "signal 40" in job.state()["error"]["message"]


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_map_wants_a_time_limit_that_is_one(timeout):
    with pytest.raises(ConfigError, match="timeout"): task_seconds(timeout, "local")
    assert task_seconds(None, "local") == 30 * 86400 and task_seconds(None, "modal") == 3600


def test_options_in_words_are_the_same_everywhere():
    from mabe_nb.remote.choice import parse_options
    assert parse_options(['pip=["einops"]', "cluster=true", "n=3", "x=nan", "y=NaN", "z=-Infinity"]) \
        == {"pip": ["einops"], "cluster": True, "n": 3, "x": "nan", "y": "NaN", "z": "-Infinity"}
    for bad in ("cpu", "=3", "a b=1"):
        with pytest.raises(ConfigError, match="should be NAME=VALUE"): parse_options([bad])
    done = call("submit", "--option", 'data=["a"]', "--", "true")
    assert "wants a dataset" in done.stderr, "JSON in a terminal too"


# house-keeping

def test_the_end_of_a_long_log(mabe_home):
    "Read from its end: the rest of 100 MB is not touched."
    job = submit("1")
    job.wait()
    line = b"x" * 99 + b"\n"
    with open(job.folder/"log", "wb") as f:
        for _ in range(100): f.write(line * 10_000)
        f.write(b'\x1e{"k": "progress", "t": 1, "step": 1}\nlast\xc3\xa9 one\nlast')
    read, log = [], job.backend.log
    def counted(*args):
        for data in log(*args):
            read.append(len(data))
            yield data
    job.backend.log = counted
    assert job.log(tail=2) == "x" * 99 + "\nlasté one\nlast"
    assert sum(read) < 10**6
    assert len(job.log(tail=5000).split("\n")) == 5001 and sum(read) < 10**7
    job.backend.log = log
    (job.folder/"log").write_bytes(b"a\nb\n")
    for tail in (0, 1, 2, 3, 9):
        assert job.log(tail=tail) == "\n".join(job.log().split("\n")[-tail - 1:])
    with pytest.raises(ConfigError, match="tail is -3"): job.log(tail=-3)


def test_secrets_are_not_in_the_log(monkeypatch):
    monkeypatch.setenv("MY_OWN", 'opens "the" door')
    job = submit("import os, sys, time\nfor c in os.environ['HF_TOKEN']:\n"
                 "    sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.002)\n"
                 "print(' and', os.environ['MY_OWN'], flush=True)\nprint(1)\n"
                 "raise ValueError(os.environ['MY_OWN'])", secrets=["MY_OWN"])
    assert job.wait(60) == "error"
    assert job.log().startswith("*** and ***\n1\n")
    assert job.state()["error"]["message"] == "***"
    kept = b"".join(p.read_bytes() for p in job.folder.rglob("*") if p.is_file())
    for secret in (*SECRETS.values(), "the\" door", 'the\\" door'):
        assert secret.encode() not in kept
    monkeypatch.setenv("MY_OWN", 'pa"ss\\word/1 2')
    job = submit("import os\nfrom urllib.parse import quote, quote_plus\nkey = os.environ['MY_OWN']\n"
                 "print({'key': key}, quote(key), quote(key, ''), quote_plus(key))\n"
                 "raise ValueError({'key': key})", secrets=["MY_OWN"])
    assert job.wait(60) == "error" and job.log().startswith("{'key': '***'} *** *** ***\n")
    assert job.state()["error"]["message"] == "{'key': '***'}"
    shown = submit("import os\nos.environ['HF_TOKEN']")
    assert [e["text"] for e in shown.events() if e["k"] == "result"] == ["'***'"]


def test_jobs_are_removed(mabe_home, capsys):
    old, new, again = submit("1"), submit("1"), submit("1")
    runs = submit("import time; time.sleep(60)")
    for job in (old, new, again): job.wait()
    with pytest.raises(ConfigError, match=f"is .*; 'mabe jobs cancel {runs.id}'"): runs.remove()
    for job in (old, runs, again):
        spec = json.loads((job.folder/"job.json").read_text()) | {"created": 1.0}
        if job is not again: spec["started"] = 1.0 # that one was resumed now
        (job.folder/"job.json").write_text(json.dumps(spec))
    until(lambda: not old.backend.alive(old.folder, old.spec))
    assert prune(30) == ([old.id], [])
    assert {j.id for j in jobs()} == {new.id, runs.id, again.id}
    again.remove()
    main(["jobs", "rm", new.id])
    assert f"job {new.id}: removed" in capsys.readouterr().out
    assert [p.name for p in (mabe_home/"jobs").iterdir()] == [runs.id]


@pytest.mark.parametrize("text", ['{"id": ', "[]", '{"id": 3}', "\xff", None])
def test_a_job_that_cannot_be_read_is_removed_when_asked_by_its_name(mabe_home, capsys, text):
    job, runs = submit("1"), submit("import time; time.sleep(60)")
    job.wait()
    until(lambda: not job.backend.alive(job.folder, job.spec))
    kept = (runs.folder/"job.json").read_bytes()
    for one in (job, runs):
        text_of_one = text or json.dumps(one.spec | {"on": "a place of an extension that is gone"})
        (one.folder/"job.json").write_bytes(text_of_one.encode("latin-1"))
    assert main(["jobs", "rm", runs.id]) == 2 # its process would go on unseen
    assert f"job {runs.id} still runs on this machine" in capsys.readouterr().err and runs.folder.exists()
    (runs.folder/"job.json").write_bytes(kept)
    runs.cancel()
    assert main(["jobs", "rm", job.id]) == 0
    assert f"job {job.id}: removed: its folder on this disk alone" in capsys.readouterr().out
    assert not job.folder.exists() and main(["jobs", "rm", job.id]) == 2
    assert main(["jobs", "rm", "../x"]) == 2 and mabe_home.exists()


def test_two_who_remove_and_send_at_once(mabe_home, monkeypatch):
    job = submit("1")
    job.wait()
    monkeypatch.setattr(DiskPlace, "remove", lambda self, folder, spec: shutil.rmtree(folder)) # the other is faster
    assert prune(0) == ([job.id], [])
    (mabe_home/"jobs"/".mabe-00000000-x.tmp").symlink_to("gone") # listed, and no more there
    assert submit("1").wait() == "done"


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_process_of_another_container_is_not_taken_for_ended():
    "It may have the same name of a machine, and numbers of its own."
    code = "import json; from mabe_nb.locks import this_process; print(json.dumps(this_process()))"
    out = subprocess.run(["unshare", "--fork", "--pid", sys.executable, "-c", code],
                         capture_output=True, text=True, check=False)
    if out.returncode: pytest.skip(f"no new process ids here: {out.stderr[-100:]}")
    machine, _ = json.loads(out.stdout)
    assert machine != this_process()[0] and not has_ended([machine, 2**22 + 1])
    assert has_ended([this_process()[0], 2**22 + 1]) and not has_ended(this_process())


def test_the_bar_of_a_training_that_stopped_early_is_full(tmp_path):
    "It stayed at a tenth, beside the word done."
    write_colony(tmp_path/"colony", videos=3, minutes=0.2)
    job = submit(["mabe", "train", str(tmp_path/"colony"), "--out", str(tmp_path/"run"), "--features",
                  "coords", "--hidden-size", "8", "--epochs", "40", "--early-stopping-patience", "1",
                  "--learning-rate", "1e-9", "--min-lr", "0", "--train-videos", "1,2",
                  "--valid-videos", "3"], timeout=300)
    assert job.wait() == "done", job.log(40)
    told = [(e["step"], e["total"]) for e in job.events() if e["k"] == "progress"]
    assert told[0][1] == 40 and told[-1][0] == told[-1][1] == told[-2][0] < 40

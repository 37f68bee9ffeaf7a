"""Killed at random moments, commands leave what they leave undisturbed; Ctrl-C answers."""
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import processes_of, until
from warm import forking

import mabe_nb as mb
from mabe_nb.cli import main
from mabe_nb.data.synthetic import write_colony

HERE = Path(__file__).parent
MABE = [sys.executable, "-c", "import sys; from mabe_nb.cli import main; sys.exit(main())"]
TRAIN = ["train", "data", "--out", "run", "--features", "coords", "--epochs", "500",
         "--device", "cpu"]
RECIPE = ["train", "data", "--out", "run", "--recipe", "quick", "--num-workers", "2",
          "--resume"] # which a recipe does by itself


@pytest.mark.slow
def test_killed_and_done_is_undisturbed(tmp_path):
    "`python bench/kills.py` does it twenty times each, with workers too."
    names = ["prepare", "train", "predict", "recipe", "bundle", "job"]
    out = subprocess.run([sys.executable, HERE/"killed_commands.py", tmp_path/"k", "2", "7",
                          *names], capture_output=True, text=True, check=False)
    assert not out.returncode, out.stderr[-2000:]
    kills = {name: of["kills"] for name, of in json.loads(out.stdout).items()}
    assert kills == dict.fromkeys(names, 2)


@pytest.fixture(scope="module")
def colony(tmp_path_factory):
    return write_colony(tmp_path_factory.mktemp("kills")/"data", videos=6, minutes=0.5)


@pytest.fixture
def place(colony, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    shutil.copytree(colony, tmp_path/"data")
    return tmp_path


@pytest.fixture(scope="module")
def begin(tmp_path_factory):
    "Begins a command, in a process that need not import the large libraries again."
    with forking(tmp_path_factory.mktemp("forking")) as begin: yield begin


def begun(begin, words, sign, place):
    "A command that has come as far as a file that is there; what it says goes into `said`."
    (place/"said").write_text("")
    p = begin(words, place/"said")
    while not list(place.glob(sign)) and p.poll() is None: time.sleep(0.02)
    assert p.poll() is None or p.poll() == 0, (place/"said").read_text()
    time.sleep(0.2)
    return p


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("words,sign,kept", [
    (TRAIN, "run/history.csv", "--resume goes on"),
    (["prepare", "data", "--out", "cache", "--workers", "2"], "cache/.lock",
     "the same line goes on"),
    (RECIPE, "run/sources.json", "the same line goes on")])
def test_ctrl_c(place, begin, times, words, sign, kept):
    "It is answered while the command is busy, and ends it; no process stays behind."
    for attempt in range(5): # It may be done before it is told
        p = begun(begin, words, sign, place)
        before = (place/"said").read_text()
        for _ in range(times):
            if p.poll() is None: os.killpg(p.pid, signal.SIGINT)
            while p.poll() is None and (place/"said").read_text() == before: time.sleep(0.01)
        if p.wait(90): break
        shutil.rmtree(place/sign.split("/")[0])
    assert p.returncode in (130, -signal.SIGINT)
    said = (place/"said").read_text().removeprefix(before)
    assert kept in said and "Ctrl-C again ends at once" in said
    assert "Traceback" not in said and "Error" not in said
    end = time.monotonic() + 10
    while time.monotonic() < end: # workers notice that their starter has ended
        try: os.killpg(p.pid, 0)
        except ProcessLookupError: break
        time.sleep(0.05)
    else: raise AssertionError("a worker outlives its starter")


LATE = """
import atexit, os, signal, sys, time
from mabe_nb.cli import main
def late():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
atexit.register(late)
sys.exit(main())
"""


@pytest.mark.parametrize("words", [["cache"], ["audit", "nothing"]])
def test_ctrl_c_while_a_command_that_is_done_ends_is_no_traceback(tmp_path, words):
    out = subprocess.run([sys.executable, "-c", LATE, *words], capture_output=True, text=True,
                         check=False, env={**os.environ, "MABE_HOME": str(tmp_path)})
    assert out.returncode == -signal.SIGINT and "Traceback" not in out.stderr, out.stderr


def test_who_is_told_to_end_says_what_is_kept(place, begin):
    p = begun(begin, TRAIN, "run/last/state.safetensors", place)
    p.send_signal(signal.SIGTERM)
    assert p.wait(60) == 130 and "--resume goes on" in (place/"said").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_sweep_that_is_told_to_end_takes_its_jobs_along(place, begin, number):
    p = begun(begin, ["sweep", "--sizes", "16", "--seconds", "300"], "home/jobs/*/attempt", place)
    for _ in range(2): p.send_signal(number) # as Slurm and shells do
    assert p.wait(60) == 130
    said = (place/"said").read_text()
    assert said.count("mabe sweep: interrupted") == 1 and "Traceback" not in said
    until(lambda: not processes_of(str(place)), 10)


def test_who_tells_all_processes_to_end_is_told_of_no_dead_worker(place, begin):
    words = ["prepare", "data", "--out", "cache", "--workers", "2"]
    for attempt in range(5): # It may be done before it is told
        p = begun(begin, words, "cache/.lock", place)
        if p.poll() is None: os.killpg(p.pid, signal.SIGTERM)
        if p.wait(60): break
        shutil.rmtree(place/"cache")
    said = (place/"said").read_text()
    assert p.returncode == 130 and "the same line goes on" in said and "died" not in said


def test_a_closed_terminal_ends_a_training_in_order(place, begin):
    terminal, files = pty.openpty()
    p = begin(TRAIN, os.ttyname(files))
    os.close(files)
    until(lambda: list(place.glob("run/last/state.safetensors")))
    os.close(terminal)
    assert p.wait(60) == 130


def test_after_ctrl_c_the_same_line_goes_on(place, begin):
    p = begun(begin, TRAIN, "run/last/state.safetensors", place)
    p.send_signal(signal.SIGINT)
    assert p.wait(60) == 130
    rows = (place/"run"/"history.csv").read_text().count("\n")
    (place/"again").write_text("")
    again = begin([*TRAIN, "--resume"], place/"again")
    said = lambda: re.search(r"^going on.*\n", (place/"again").read_text(), re.M)
    found = until(said)[0]
    again.send_signal(signal.SIGINT)
    again.wait(60)
    assert int(re.search(r"epoch (\d+)", found)[1]) >= rows - 1 >= 1


HOLD = """
import sys, time
from mabe_nb.locks import locked
with locked(sys.argv[1], "it"):
    print("held", flush=True)
    time.sleep(600)
"""
SMALL = ["train", "data", "--features", "coords", "--epochs", "1", "--hidden-size", "8",
         "--num-layers", "1", "--device", "cpu"]


@pytest.mark.slow
def test_a_second_process_is_told_who_is_there(place, capfd):
    "Predictions, bundles and jobs of two processes into one place."
    assert main([*SMALL, "--out", "run"]) == 0
    for words, lock, made in (
            (["predict", "run", "data", "--out", "s.csv"], ".s.csv.lock", "s.csv"),
            (["bundle", "run", "--out", "kit"], ".kit.lock", "kit/manifest.json"),
            (["submit", "--", *MABE, *SMALL, "--out", "other"], "other/.lock",
             "other/metrics.json")):
        (place/"other").mkdir(exist_ok=True)
        with subprocess.Popen([sys.executable, "-c", HOLD, place/lock],
                              stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            assert main(words) == 2
            said = "".join(capfd.readouterr())
            holder.kill()
        assert f"process {holder.pid} on" in said and "Traceback" not in said, said
        assert not (place/made).exists()
        assert main(words) == 0 and (place/made).exists() # a dead owner's lock is free


def test_two_predictions_at_once_into_one_file(place, begin):
    "One is written, the other one is told; whose bouts they are is not mixed up."
    for seed in "01": assert main([*SMALL, "--out", seed, "--seed", seed]) == 0
    for seed in "01": (place/f"said{seed}").write_text("")
    both = [begin(["predict", seed, "data", "--out", "s.csv"], os.devnull, place/f"said{seed}")
            for seed in "01"]
    codes = [p.wait(60) for p in both]
    said = [(place/f"said{seed}").read_text() for seed in "01"]
    assert sorted(codes) == [0, 2], said
    winner = codes.index(0)
    assert re.search("is being written by process|already exists", said[1 - winner])
    assert main(["predict", str(winner), "data", "--out", "alone.csv"]) == 0
    assert (place/"alone.csv").read_bytes() == (place/"s.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("lines", [0, 1])
def test_a_reader_that_leaves_is_no_error(place, begin, lines):
    "As in `mabe train ... | head -1`."
    os.mkfifo(place/"pipe")
    (place/"said").write_text("")
    p = begin(TRAIN, place/"pipe", place/"said")
    with open(place/"pipe") as out:
        for _ in range(lines): out.readline()
    assert (p.wait(60), (place/"said").read_text()) == (141, "")


def sleep(seconds): # an item of a group
    import time
    time.sleep(seconds)


@pytest.mark.parametrize("group", [False, True])
def test_ctrl_c_leaves_a_job_running_and_is_no_success(place, group):
    "`mabe submit ... && mabe jobs fetch ...` does not go on; a program gets the job all the same."
    job = mb.submit(sleep, inputs={"seconds": 90}, say=None) if not group else mb.map(sleep, [90], say=None)
    for seconds in (3, 9, 27): # until it follows
        with open(place/"said", "w") as said:
            p = subprocess.Popen([*MABE, "jobs", "attach", job.id, "--json"], stdout=subprocess.PIPE,
                                 stderr=said, text=True)
        time.sleep(seconds)
        p.send_signal(signal.SIGINT)
        if out := p.communicate(timeout=60)[0]: break
    job.cancel()
    assert p.returncode in (130, -signal.SIGINT) and json.loads(out)["status"] == "running"
    assert "left running: " in (said := (place/"said").read_text()) and "Traceback" not in said

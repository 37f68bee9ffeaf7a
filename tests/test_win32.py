"""The package without what Windows lacks; on Windows itself see `tests/windows`.

What only Unix has is taken away from Python before anything of the package is imported, and a
whole job is done by the command line.
"""
import json
import os
import subprocess
import sys

import pytest

ABSENT = """
import builtins, os, select, signal, subprocess, sys
import psutil # which has ways of its own there
UNIX = {"fcntl", "grp", "pwd", "resource", "termios"}
found = builtins.__import__
def imported(name, globals=None, *how, **more):
    if name in UNIX and (globals or {}).get("__name__", "").startswith("mabe_nb"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return found(name, globals, *how, **more)
builtins.__import__ = imported
for module, names in ((os, "O_NOFOLLOW getuid geteuid killpg pwrite sched_getaffinity "
                           "sysconf sysconf_names"),
                      (signal, "SIGALRM SIGKILL SIGUSR2 pthread_kill pthread_sigmask setitimer"),
                      (select, "poll epoll")):
    for name in names.split(): vars(module).pop(name, None)
"""
CLI = ABSENT + """
from mabe_nb.cli import main
for words in sys.argv[1:]:
    print(words, flush=True)
    if main(words.split()): sys.exit(1)
"""


@pytest.mark.slow
def test_a_whole_job(tmp_path):
    "And a kit for Kaggle, which is tried before it is kept."
    done = subprocess.run(
        [sys.executable, "-c", CLI, "synth colony --videos 6 --minutes 0.5", "audit colony",
         "train colony --out run --epochs 4", "predict run colony --out said.csv",
         "score colony said.csv", "analyse said.csv colony --out results",
         "bundle run --data colony --out kit", "jobs", "gpus"], cwd=tmp_path,
        text=True, capture_output=True, env=os.environ | {"MABE_HOME": str(tmp_path/"home")})
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
    assert (tmp_path/"kit"/"manifest.json").exists() and (tmp_path/"results").is_dir()


def test_signs_that_the_encoding_lacks(tmp_path):
    "Elsewhere than in its terminal, Windows prints in an encoding of few letters."
    def mabe(*words):
        done = subprocess.run([sys.executable, "-m", "mabe_nb.cli", *words], cwd=tmp_path,
                              capture_output=True, env=os.environ | {"PYTHONIOENCODING": "cp1252"})
        assert done.returncode == 0, done.stderr
        return done.stdout
    assert b"K\xe4fig\\u2642" in mabe("synth", "Käfig♂", "--videos", "2", "--minutes", "0.1")
    assert json.loads(mabe("audit", "Käfig♂", "--json").decode("ascii"))

"""The package without what Windows lacks; on Windows itself see `tests/windows`.

What only Unix has is taken away from Python before anything of the package is imported, and a
whole job is done by the command line.
"""
import os
import subprocess
import sys

import pytest

ABSENT = """
import builtins, os, select, signal, subprocess, sys
UNIX = {"fcntl", "grp", "pwd", "resource", "termios"}
found = builtins.__import__
def imported(name, globals=None, *how, **more):
    if name in UNIX and (globals or {}).get("__name__", "").startswith("mabe_nb"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return found(name, globals, *how, **more)
builtins.__import__ = imported
for module, names in ((os, "O_NOFOLLOW O_NONBLOCK getuid geteuid killpg pwrite sched_getaffinity "
                           "sysconf sysconf_names"),
                      (signal, "SIGALRM SIGKILL SIGUSR2 pthread_kill pthread_sigmask setitimer"),
                      (select, "poll epoll")):
    for name in names.split(): vars(module).pop(name, None)
"""
CLI = ABSENT + "from mabe_nb.cli import main\nsys.exit(main(sys.argv[1:]))\n"


@pytest.fixture(scope="module")
def mabe(tmp_path_factory):
    "`mabe` in a process that lacks all that; its exit code and what it printed."
    folder = tmp_path_factory.mktemp("win32")
    def run(*words):
        done = subprocess.run([sys.executable, "-c", CLI, *words], cwd=folder, text=True,
                              capture_output=True,
                              env=os.environ | {"MABE_HOME": str(folder/"home")})
        return done.returncode, done.stdout + done.stderr
    run.folder = folder
    return run


@pytest.mark.parametrize("words", (
    "synth colony --videos 4 --minutes 0.2", "audit colony", "jobs", "gpus",
    "train colony --out run --epochs 1 --features social",
    "predict run colony --split train --out said.csv", "score colony said.csv",
    "analyse said.csv colony --out results"))
def test_a_whole_job(mabe, words):
    code, out = mabe(*words.split())
    assert code == 0 and "Traceback" not in out, out


def test_a_kit_for_kaggle(mabe):
    "It is tried before it is kept, and its memory looked at."
    code, out = mabe("bundle", "run", "--data", "colony", "--out", "kit")
    assert code == 0 and (mabe.folder/"kit"/"manifest.json").exists(), out

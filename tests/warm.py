"""`mabe` in processes of its own that need not import the large libraries again.

Run as a program, this file imports what takes seconds, and nothing of ours. Then it forks,
for each name of a file on its standard input, a process that is what a shell begins: a
session, a folder, an environment, files to write to, and the words of the command.
"""
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path

from waiting import until

LARGE = "pandas", "sklearn.ensemble", "torch"


class Begun:
    "A process, with what the tests need of `subprocess.Popen`."
    def __init__(self, ask):
        self.ask, self.returncode = ask, None
        self.pid = int(until(lambda: said(ask, "pid"), nap=0.005))

    def poll(self):
        if self.returncode is None and (code := said(self.ask, "code")):
            self.returncode = int(code)
        return self.returncode

    def wait(self, timeout):
        until(lambda: self.poll() is not None, timeout, nap=0.01)
        return self.returncode

    def send_signal(self, number): os.kill(self.pid, number)


def said(ask, what):
    "A word of the one that forks, None if it has not come yet."
    path = ask.with_suffix(f".{what}")
    return path.read_text() if path.exists() else None


@contextmanager
def forking(folder):
    "A function that begins `mabe WORDS`; both files are there, and may be pipes with names."
    numbers = count()
    with subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE) as server:
        def begin(words, out, err=None):
            ask = folder/f"{next(numbers)}.json"
            ask.write_text(json.dumps({"words": words, "files": [str(out), str(err or out)],
                                       "folder": os.getcwd(), "env": {**os.environ}}))
            server.stdin.write(f"{ask}\n".encode())
            server.stdin.flush()
            return Begun(ask)
        yield begin
        server.stdin.close()


# --- the one that forks

def say(ask, what, word):
    "Whole or not at all."
    new = ask.with_suffix(".new")
    new.write_text(str(word))
    new.rename(ask.with_suffix(f".{what}"))


def serve():
    "Path of what was asked for, in each process that is forked; None at the end."
    children, line = {}, b""
    while True:
        ready, *_ = select.select([0], [], [], 0.01 if children else None)
        for pid in [*children]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done: say(children.pop(pid), "code", os.waitstatus_to_exitcode(status))
        if not ready: continue
        if not (got := os.read(0, 1 << 16)): return None
        *asks, line = (line + got).split(b"\n")
        for ask in map(Path, map(os.fsdecode, asks)):
            if not (pid := os.fork()): return ask
            children[pid] = ask
            say(ask, "pid", pid)


def become(ask):
    "As if a shell had begun it; in the background of a script, Ctrl-C would be ignored."
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for n, path in enumerate(ask["files"], 1):
        how = os.O_RDWR if Path(path).is_char_device() else os.O_WRONLY # its terminal, if it is one
        os.dup2(os.open(path, how | os.O_APPEND), n)
    os.chdir(ask["folder"])
    os.environ.clear()
    os.environ.update(ask["env"])
    sys.argv[1:] = ask["words"]


if __name__ == "__main__":
    for name in LARGE: import_module(name)
    if ask := serve():
        become(json.loads(ask.read_text()))
        from mabe_nb.cli import main
        sys.exit(main())

"Containers as processes of this machine."
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

OVER = ("COMPLETED", "CANCELED", "ERROR")


def now(): return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class Container:
    def __init__(self, id, owner, spec, mounts, hold):
        self.id, self.owner, self.spec, self.mounts = id, owner, spec, mounts
        self.stage, self.message, self.begun, self.ended = "SCHEDULING", None, None, None
        self.lines, self.news, self.process = [], threading.Condition(), None
        threading.Thread(target=self.run, args=[hold], daemon=True).start()

    def words(self):
        "The command, with the Python of the tests, and the bucket's folder as its mount."
        words = list(self.spec["command"])
        words = [sys.executable, *words[words.index("python3") + 1:]]
        for mount, folder in self.mounts.items():
            words = [word.replace(mount, str(folder)) for word in words]
        return words

    def run(self, hold):
        while not hold.wait(0.05):
            if self.stage in OVER: return
        self.begun = time.time()
        self.tell("===== Job started at now =====", "RUNNING")
        env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"),
               "OMP_NUM_THREADS": "1", **self.spec["environment"],
               **self.spec.get("secrets", {})}
        self.process = subprocess.Popen(
            self.words(), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True, cwd="/")
        limit = threading.Timer(self.spec.get("timeoutSeconds", 1800), self.end,
                                ["ERROR", "Job timeout"])
        limit.start()
        for line in self.process.stdout:
            self.tell(line.decode("utf-8", "replace").rstrip("\n"))
        code = self.process.wait()
        limit.cancel()
        if self.stage == "RUNNING":
            self.finish(*(("COMPLETED", None) if code == 0 else
                          ("ERROR", f"Job failed with exit code: {code}")))

    def tell(self, line, stage=None):
        with self.news:
            self.stage = stage or self.stage
            self.lines.append({"data": line, "timestamp": now()})
            self.news.notify_all()

    def finish(self, stage, message=None):
        with self.news:
            self.stage, self.message, self.ended = stage, message, time.time()
            self.news.notify_all()

    def end(self, stage, message=None, grace=4):
        "Ask the process to end, then make it."
        if self.stage in OVER: return
        if self.process is None: return self.finish(stage, message)
        self.process.send_signal(signal.SIGTERM)
        try: self.process.wait(grace)
        except subprocess.TimeoutExpired: os.killpg(self.process.pid, signal.SIGKILL)
        self.finish(stage, message)

    def kill(self):
        "The machine is gone."
        os.killpg(self.process.pid, signal.SIGKILL)

    def info(self):
        spent = int((self.ended or time.time()) - self.begun) if self.begun else None
        ended = datetime.fromtimestamp(self.ended, UTC) if self.ended else None
        return {"id": self.id, "createdAt": now(), "flavor": self.spec["flavor"],
                "finishedAt": ended.isoformat().replace("+00:00", "Z") if ended else None,
                "dockerImage": self.spec["dockerImage"], "command": self.spec["command"],
                "labels": self.spec.get("labels"),
                "status": {"stage": self.stage, "message": self.message},
                "durations": {"runningSecs": spent},
                "owner": {"id": "1", "name": self.owner, "type": "user"}}

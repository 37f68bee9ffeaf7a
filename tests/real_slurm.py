"""A real Slurm on loopback: munged, slurmctld and slurmd with files in one folder.

One node of four processors, a partition `main` and one named `high` that preempts its
jobs (they are sent to the queue again, but with `preempt="CANCEL"`), no accounting.
`why_not()` says why there is none.
"""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel",
            "setpriv")
WORDS = """ClusterName=mabe
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={top}/munge/socket
CredType=cred/munge
StateSaveLocation={top}/state
SlurmdSpoolDir={top}/spool
SlurmctldPidFile={top}/slurmctld.pid
SlurmdPidFile={top}/slurmd.pid
SlurmctldLogFile={top}/slurmctld.log
SlurmdLogFile={top}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PreemptType=preempt/partition_prio
PreemptMode={preempt}
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
ReturnToService=2
KillWait=5
SlurmdTimeout=10
SlurmdParameters=config_overrides
{more}
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES PriorityTier=1 GraceTime={grace}
PartitionName=high Nodes={host} PriorityTier=10 PreemptMode=OFF
"""


def why_not():
    "Why no Slurm can be started here; empty if one can."
    missing = [name for name in PROGRAMS if not shutil.which(name, path=_path())]
    if missing: return f"no {missing[0]}: apt-get install slurm-wlm munge"
    return "" if os.getuid() == 0 else "slurmd has to be started by root"


def _path(): return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


def processes(folder):
    "Those that name a folder in their command line."
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if str(folder) in " ".join(p.info["cmdline"] or [])]


def _free_ports(number):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for s in sockets: s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


class Slurm:
    "The three daemons; `env` is what a client needs."
    def __init__(self, folder, preempt="REQUEUE", grace=6):
        self.top, self.daemons = Path(folder), {}
        self.preempt, self.grace = preempt, grace
        self.host = socket.gethostname().partition(".")[0]
        self.ports = _free_ports(2)
        self.env = {"SLURM_CONF": str(self.top/"slurm.conf")}
        for name in ("munge", "state", "spool"):
            (self.top/name).mkdir(parents=True, mode=0o755)

    def configure(self, more=""):
        "Write slurm.conf; `more` are further lines of it."
        import getpass
        (self.top/"slurm.conf").write_text(WORDS.format(
            host=self.host, user=getpass.getuser(), ports=self.ports, top=self.top,
            more=more, preempt=self.preempt, grace=self.grace))

    def launch(self, name, *words):
        with open(self.top/f"{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", # it ends with whoever started it
                 shutil.which(name, path=_path()), *words], stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, env={**os.environ, **self.env},
                start_new_session=True)

    def start(self, more=""):
        key = self.top/"munge"/"key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.configure(more)
        own = [f"--{name}={self.top}/munge/{name}" for name in ("socket", "pid-file",
               "log-file", "seed-file")]
        self.launch("munged", "--foreground", "--force", f"--key-file={key}", *own)
        self.until(lambda: (self.top/"munge"/"socket").exists())
        self.launch("slurmctld", "-D", "-i")
        self.start_node()
        return self

    def start_node(self):
        self.launch("slurmd", "-D", "-N", self.host)
        self.until(lambda: self("sinfo", "-h", "-o", "%T").startswith("idle"))

    def kill_jobs(self):
        "All that runs for a job, and first what Slurm has put above it."
        for process in psutil.process_iter(["environ"]):
            env = process.info["environ"] or {}
            if "SLURM_JOB_ID" not in env or env.get("SLURM_CONF") != self.env["SLURM_CONF"]: continue
            with contextlib.suppress(psutil.Error):
                above = process.parent()
                if above and above.name() == "slurmstepd": above.kill()
                process.kill()

    def crash_node(self):
        "As if its machine, with a job on it, had lost its power."
        self.daemons["slurmd"].kill()
        self.kill_jobs()
        self.daemons.pop("slurmd").wait(20)
        self("scontrol", "update", f"node={self.host}", "state=down", "reason=test")

    def until(self, test, seconds=60):
        end = time.monotonic() + seconds
        while not test():
            dead = [n for n, p in self.daemons.items() if p.poll() is not None]
            if dead or time.monotonic() > end: raise RuntimeError(self.words())
            time.sleep(0.1)

    def words(self):
        "What the daemons said last."
        logs = sorted([*self.top.glob("*.log"), *self.top.glob("*.out")])
        return "\n".join(f"{p.name}: {p.read_text(errors='replace')[-800:]}" for p in logs)

    def __call__(self, *words):
        "What a program of Slurm prints."
        out = subprocess.run(words, capture_output=True, text=True, timeout=60,
                             env={**os.environ, **self.env})
        return out.stdout.strip() or out.stderr.strip()

    def end_jobs(self):
        "Cancel what is there until it is gone: who is preempted just then asks to go on."
        def gone():
            self("scancel", "--user", str(os.getuid()))
            return not self("squeue", "-h")
        self.until(gone)

    def stop(self):
        "Jobs first: a step whose slurmctld is gone asks for it for ever."
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired): self.end_jobs()
        for name in ("slurmd", "slurmctld", "munged"):
            process = self.daemons.get(name)
            if process is None or process.poll() is not None: continue
            process.terminate()
            try: process.wait(20)
            except subprocess.TimeoutExpired: process.kill()
        self.kill_jobs() # which were not gone in time


@contextlib.contextmanager
def running(folder, more="", **options):
    slurm = Slurm(folder, **options)
    try: yield slurm.start(more)
    finally: slurm.stop()


if __name__ == "__main__": # python tests/real_slurm.py FOLDER: until it is interrupted
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), running(sys.argv[1]) as there:
        print(f"export SLURM_CONF={there.env['SLURM_CONF']}", flush=True)
        signal.pause()

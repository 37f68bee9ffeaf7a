"What tests of processes share: waiting for something to be so, and whether a process lives."
import os
import time


def until(test, seconds=120, must=True, nap=0.05):
    "Wait until `test()` is true; what it said. Without `must`, None when the time is over."
    end = time.monotonic() + seconds
    while not (found := test()):
        if time.monotonic() > end:
            assert not must, "waited in vain"
            return None
        time.sleep(nap)
    return found


def lives(pid):
    "Is there such a process that is no zombie?"
    try: os.kill(pid, 0)
    except ProcessLookupError: return False
    state = open(f"/proc/{pid}/stat").read() if os.path.exists(f"/proc/{pid}/stat") else ""
    return ") Z" not in state


def processes_of(id):
    "Those that a job or group started."
    import psutil
    found = psutil.process_iter(["cmdline", "environ"])
    return [p for p in found if id in " ".join(p.info["cmdline"] or ())
            or id in (p.info["environ"] or {}).get("MABE_JOB", "")]

"What tests of jobs at Modal share: a cloud for a file of tests, and looks into its Volume."
import os
import subprocess
import sys

import pytest
from localcloud import start_thread
from localcloud.pytest_fixture import forget_client
from waiting import until

from mabe_nb.remote.job import jobs, submit


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    "One cloud for all tests of a file, so that the app is deployed once."
    folder = tmp_path_factory.mktemp("modal")
    with pytest.MonkeyPatch.context() as patch:
        cloud = start_thread(folder/"cloud")
        for name, value in cloud.env.items(): patch.setenv(name, value)
        patch.setenv("MABE_HOME", str(folder/"home"))
        forget_client()
        yield cloud
        until(lambda: not cloud.cloud.busy(), 5, must=False)
        left = cloud.stop()
        forget_client()
        if left: pytest.fail(f"the tests left work in the cloud: {', '.join(left)}")


@pytest.fixture(autouse=True)
def calm(cloud):
    "No fault outlives its test, and no job."
    before = {name: value for name, value in vars(cloud.faults).items() if name != "cloud"}
    yield
    for name in list(cloud.faults.fail): cloud.faults.fail[name].clear()
    cloud.faults.no_capacity.clear()
    vars(cloud.faults).update({n: v for n, v in before.items()
                               if n not in ("fail", "no_capacity")})
    for job in jobs():
        if job.spec["on"] == "modal" and not (job.folder/"status.json").exists(): job.cancel()


def elsewhere(code):
    "What another process prints."
    out = subprocess.run([sys.executable, "-c", "from mabe_nb.remote.job import *\n" + code],
                         capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert out.returncode == 0, out.stderr
    return out.stdout


def send(source, gpu="T4", **options): return submit(source, on="modal", gpu=gpu, **options)


def printed(job): return "".join(e["text"] for e in job.events() if e["k"] == "print")


def volume(cloud, name="mabe-nb"):
    "The folder in which the cloud keeps a Volume."
    return next(v.folder for v in cloud.cloud.volumes.values() if v.name == name)


def kept(cloud, job): return volume(cloud)/"jobs"/job.id


def log_of(cloud, job):
    path = kept(cloud, job)/"log"
    return path.read_text() if path.exists() else ""


def preempt(cloud): return cloud.call(lambda: cloud.faults.preempt())

"What tests of panels share: a home of their own, and work that has ended when they have."
import threading
import time

import pytest

from mabe_nb.remote.job import jobs


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    yield tmp_path
    for job in jobs(): job.cancel()
    for thread in threading.enumerate():
        if thread.name in ("mabe-panel", "mabe-aside"): thread.join(20)


def soon(true, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)

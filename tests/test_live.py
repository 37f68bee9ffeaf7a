"""One minute on a real T4, about a cent: `MABE_MODAL_LIVE=1 pytest tests/test_live.py`.

Needs an account of your own (`modal token new`). It was never run by those who wrote it:
they had no account. All else is tested through the stand-in in `tests/localcloud`.
"""
import os

import pytest

live = pytest.mark.skipif(os.environ.get("MABE_MODAL_LIVE") != "1",
                          reason="talks to Modal and costs a cent; set MABE_MODAL_LIVE=1")
SOURCE = """
import time, torch
x = torch.randn(2000, 2000, device="cuda")
for step in range(10):
    progress(step + 1, 10, norm=(x @ x).norm() / 2000)
    print("step", step, flush=True)
    time.sleep(1)
name, n = torch.cuda.get_device_name(), N + 1
"""


@pytest.mark.cloud
@live
def test_a_minute_on_a_t4(tmp_path, monkeypatch):
    from mabe_nb.remote.job import attach, submit
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    job = submit(SOURCE, on="modal", gpu="T4", inputs={"N": 1}, outputs=["name", "n"],
                 timeout=60, volume="mabe-nb-live-test")
    try:
        found = list(attach(job.id).events())
        steps = [e["step"] for e in found if e["k"] == "progress"]
        text = "".join(e["text"] for e in found if e["k"] == "print")
        assert found[-1]["status"] == "done", job.state()
        assert steps == list(range(1, 11)) and "step 9" in text
        assert job.result()["n"] == 2 and "T4" in job.result()["name"]
    finally: job.cancel()

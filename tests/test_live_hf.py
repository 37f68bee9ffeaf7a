"""One minute on cpu-basic at the real Hugging Face, a fraction of a cent; on request only.

    MABE_HF_LIVE=1 pytest tests/test_live_hf.py

Needs a token ('hf auth login') and an account that may start jobs. It was never run by the
people who wrote it, nor by any machine of theirs: what passes on the stand-in (localhf) may
fail here.
"""
import os

import pytest

pytestmark = [pytest.mark.cloud, pytest.mark.skipif(
    not os.environ.get("MABE_HF_LIVE"),
    reason="costs money at Hugging Face; set MABE_HF_LIVE=1 to run it")]


def test_a_minute_on_the_smallest_machine(tmp_path, monkeypatch):
    from mabe_nb.remote.job import attach, submit
    monkeypatch.setenv("MABE_HOME", str(tmp_path))
    job = submit("import platform\nprint('hello')\n(CKPT/'kept').write_text('1')\n"
                 "n, where = n + 1, platform.node()", on="hf", inputs={"n": 1},
                 outputs=["n", "where"], timeout=60)
    printed = "".join(e["text"] for e in job.events() if e["k"] == "print")
    assert printed == "hello\n" and job.result()["n"] == 2
    assert attach(job.id).status() == "done" and "ckpt/kept" in job.files()

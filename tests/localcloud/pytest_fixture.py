"""The fixture `localcloud`: a cloud for one test that cannot leave a job behind."""
import sys

import pytest

from .thread import start_thread


def forget_client():
    "modal keeps one client per process; a new cloud needs a new one."
    if "modal.client" in sys.modules:
        sys.modules["modal.client"]._Client._client_from_env = None


@pytest.fixture
def localcloud(tmp_path, monkeypatch):
    cloud = start_thread(tmp_path/"cloud")
    for name, value in cloud.env.items(): monkeypatch.setenv(name, value)
    forget_client()
    yield cloud
    left = cloud.stop()
    forget_client()
    if left: pytest.fail(f"the test left work in the cloud: {', '.join(left)}")

"Videos as items at Modal, through the stand-in: what comes back is that of one process."
import pytest

modal = pytest.importorskip("modal")
from modal_jobs import calm, cloud  # noqa: E402, F401
from test_videos import check_both, lab  # noqa: E402, F401

pytestmark = pytest.mark.cloud


def test_at_modal(lab, cloud, tmp_path, capsys):
    check_both(lab, tmp_path, "--on", "modal", "--at-once", "2")
    assert "at most 2 at once, at most about" in capsys.readouterr().out

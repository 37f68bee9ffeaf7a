"Videos as items at Modal, through the stand-in: what comes back is that of one process."
import pytest

modal = pytest.importorskip("modal")
from modal_jobs import calm, cloud  # noqa: E402, F401
import test_recipe_items  # noqa: E402
from test_recipe_items import check_train  # noqa: E402
from test_videos import check_both, lab  # noqa: E402, F401

pytestmark = pytest.mark.cloud
recipe_lab = test_recipe_items.lab


def test_at_modal(lab, cloud, tmp_path, capsys):
    check_both(lab, tmp_path, "--on", "modal", "--at-once", "2")
    assert "at most 2 at once, at most about" in capsys.readouterr().out


def test_a_recipe_at_modal(recipe_lab, cloud, tmp_path):
    check_train(recipe_lab, tmp_path, "--on", "modal", "--at-once", "2")

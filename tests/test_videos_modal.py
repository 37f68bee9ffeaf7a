"Videos as items at Modal, through the stand-in: what comes back is that of one process."
import pytest

modal = pytest.importorskip("modal")
from modal_jobs import calm, cloud  # noqa: E402, F401
import test_recipe_items  # noqa: E402
from test_recipe_items import check_train  # noqa: E402
from test_videos import check_both, lab  # noqa: E402, F401

from mabe_nb.data.dataset import open_dataset  # noqa: E402
from mabe_nb.errors import DataError  # noqa: E402
from mabe_nb.files import write_json  # noqa: E402
from mabe_nb.videos import map_predict, predicted_table  # noqa: E402

pytestmark = pytest.mark.cloud
recipe_lab = test_recipe_items.lab


def test_at_modal(lab, cloud, tmp_path, capsys):
    check_both(lab, tmp_path, "--on", "modal", "--at-once", "2")
    assert "at most 2 at once, at most about" in capsys.readouterr().out


def test_bouts_are_held_against_the_videos(lab, cloud, tmp_path):
    "A machine that is not ours sends what it likes: animals and frames that a video does not have."
    group = map_predict(lab/"run", lab/"data", tmp_path/"a.csv", videos="1", say=None, on="modal", at_once=1)
    assert group.wait(120, progress=False) == "done"
    rec, action, (file,) = open_dataset(lab/"data")["1"], group.spec["tag"]["actions"][0], group.done().values()
    one, other = rec.mice[:2]
    for row, good in (([one, other, action, 0, len(rec)], True), ([one, "self", action, 0, 5], True),
                      ([one, other, action, 0, len(rec) + 1], False), (["=1+1", other, action, 0, 5], False),
                      ([one, "nobody", action, 0, 5], False)):
        write_json(file, {"rows": [row], "doubts": [], "messages": []})
        if good: assert len(predicted_table(group)) == 1
        else:
            with pytest.raises(DataError, match="video 1: has no such animals or frames .*'mabe jobs rm'"):
                predicted_table(group)


def test_a_recipe_at_modal(recipe_lab, cloud, tmp_path):
    check_train(recipe_lab, tmp_path, "--on", "modal", "--at-once", "2")

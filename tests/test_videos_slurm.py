"Videos as items of one job array of a real Slurm: what comes back is that of one process."
from test_real_slurm import mabe_home, pytestmark, slurm  # noqa: F401
import test_recipe_items
from test_recipe_items import check_train
from test_videos import check_both, lab  # noqa: F401

recipe_lab = test_recipe_items.lab


def test_on_slurm(lab, slurm, tmp_path):
    check_both(lab, tmp_path, "--on", "slurm", "--at-once", "2", "--tasks", "3")


def test_a_recipe_on_slurm(recipe_lab, slurm, tmp_path):
    check_train(recipe_lab, tmp_path, "--on", "slurm", "--at-once", "2")

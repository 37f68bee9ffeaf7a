"Videos as items of one job array of a real Slurm: what comes back is that of one process."
from test_real_slurm import mabe_home, pytestmark, slurm  # noqa: F401
from test_videos import check_both, lab  # noqa: F401


def test_on_slurm(lab, slurm, tmp_path):
    check_both(lab, tmp_path, "--on", "slurm", "--at-once", "2", "--tasks", "3")

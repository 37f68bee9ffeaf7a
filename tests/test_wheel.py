"The wheel, installed where nothing of this checkout is, takes a newcomer to a score."
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
PATH_OF_A_NEWCOMER = '''import mabe_nb as mb
data = mb.open_dataset(mb.write_colony("colony", videos=9))
train, valid = mb.split(data, valid=0.34)
model = mb.fit(data, "run", train_videos=train, valid_videos=valid, epochs=8,
               conv_channels=[64, 64], lstm_hidden=48, batch_size=16, learning_rate=0.003)
bouts = model.predict(data, valid)
result = mb.score(data, bouts, valid)
print(result["score"], result["chance"])
'''


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    "The interpreter of a new environment: the wheel, and the libraries that it needs."
    work = tmp_path_factory.mktemp("wheel")
    (work/"source").mkdir()
    for name in ("setup.py", "settings.ini", "README.md", "MANIFEST.in", "LICENSE"):
        shutil.copy(TOP/name, work/"source") # a build folder in the checkout may be stale
    shutil.copytree(TOP/"mabe_nb", work/"source"/"mabe_nb",
                    ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", work/"source", "--no-deps", "--no-build-isolation", "-w", work],
                   check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", work/"env"], check=True)
    site = next((work/"env").glob("lib/python*/site-packages"))
    wheel, = work.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    (site/"libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return work/"env"/"bin"/"python"


def run(python, code, folder):
    return subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True,
                          env={"MABE_HOME": str(folder/"home"), "OMP_NUM_THREADS": "1"})


@pytest.mark.slow
def test_from_the_wheel_to_a_score_in_ten_lines(python, tmp_path):
    assert len(PATH_OF_A_NEWCOMER.strip().splitlines()) <= 10
    done = run(python, PATH_OF_A_NEWCOMER, tmp_path)
    assert done.returncode == 0, done.stderr
    score, chance = map(float, done.stdout.split()[-2:])
    assert score > 2 * chance > 0


def test_the_wheel_stands_alone(python, tmp_path):
    "It is what is imported; its tables and type marker came along; nbdev is not needed."
    done = run(python, "import sys, mabe_nb as mb\n"
               "mb.open_dataset, mb.fit, mb.sweep, mb.submit\n"
               "from mabe_nb.hardware.catalog import prices\n"
               "print(mb.__file__, len(prices()) > 10)\n"
               "assert not {'nbdev', 'fastcore'} & set(sys.modules)", tmp_path)
    place, priced = done.stdout.split()
    assert done.returncode == 0 and priced == "True", done.stderr
    assert Path(place).is_relative_to(python.parents[1])
    assert all((Path(place).parent/n).exists() for n in ("py.typed", "__init__.pyi"))


def test_the_package_is_imported_at_once(python, tmp_path):
    "`import mabe_nb` brings no library; each verb is there when asked for, and listed."
    done = run(python, "import sys; before = set(sys.modules); import mabe_nb as mb\n"
               "assert not {'numpy', 'torch', 'pandas'} & (set(sys.modules) - before)\n"
               "assert set(mb.__all__) <= set(dir(mb)) and callable(mb.score)\n"
               "mb.fitt", tmp_path)
    assert "no attribute 'fitt'" in done.stderr and "AssertionError" not in done.stderr

"What is sent to users: versions that agree, a changelog to scan, workflows."
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from mabe_nb.files import home

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/".ci"))
import version

TOP = version.TOP


def read(name): return yaml.safe_load((TOP/name).read_text(encoding="utf-8"))


@pytest.fixture
def copy(tmp_path):
    "The files that name the version."
    for name in version.PLACES:
        (tmp_path/name).parent.mkdir(exist_ok=True)
        shutil.copy(TOP/name, tmp_path/name)
    return tmp_path


def change(path, old, new):
    words = path.read_text()
    assert old in words
    path.write_text(words.replace(old, new, 1))


def test_what_tests_keep_is_not_in_the_home_of_who_runs_them():
    assert home().is_dir() and home().is_relative_to(tempfile.gettempdir())


def test_one_version_everywhere(copy):
    assert version.faults() == version.faults(top=copy) == []
    change(copy/"CITATION.cff", "version: 0.", "version: 9.")
    assert len(version.faults(top=copy)) == 1
    assert "CITATION.cff names version 9." in version.faults(top=copy)[0]


def test_a_tag_wants_a_date(copy):
    number = version.versions()["settings.ini"]
    assert version.faults(f"v{number}", copy) == [
        f"CHANGELOG.md has no date for {number}"]
    change(copy/"CHANGELOG.md", "not released", "2026-01-31")
    assert version.faults(f"v{number}", copy) == []
    assert len(version.faults("v9.9", copy)) == 5


def test_the_changelog_is_lists():
    "Sections of bullet points: below a version nothing stands outside of them."
    words = (TOP/"CHANGELOG.md").read_text(encoding="utf-8")
    for part in re.split(r"^## ", words, flags=re.M)[1:]:
        for line in part.splitlines()[1:]:
            assert not line or line.startswith(("### ", "- ", "  ")), line
    kinds = set(re.findall(r"^### (\w+)", words, re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_changelog_can_be_scanned():
    "Short entries, few in a section: it tells what is new, not what was ever mended."
    words = (TOP/"CHANGELOG.md").read_text(encoding="utf-8")
    for section in re.split(r"^### ", words, flags=re.M)[1:]:
        entries = re.split(r"^- ", section.partition("\n## ")[0], flags=re.M)[1:]
        assert 0 < len(entries) <= 15
        for entry in entries:
            lines = entry.strip().splitlines()
            assert len(lines) <= 3 and all(len(line) <= 100 for line in lines), entry


def test_types_and_tables_are_packed():
    "What is no module has to be named twice: for the wheel and for the source."
    setup, manifest = ((TOP/n).read_text() for n in ("setup.py", "MANIFEST.in"))
    assert (TOP/"mabe_nb"/"py.typed").exists()
    for name in ("py.typed", "*.csv"): assert name in setup and name in manifest
    assert "*.pyi" in setup and "mabe_nb/__init__.pyi" in manifest


def test_editors_know_the_verbs():
    "`python .ci/stub.py` writes it: each verb, and what it takes now."
    from stub import stub
    assert (TOP/"mabe_nb"/"__init__.pyi").read_text(encoding="utf-8") == stub()


USER = """
import mabe_nb as mb
data = mb.open_dataset(mb.write_colony("colony", videos=None))
rec = mb.read_poses("x.csv", fps=None)
mb.score(data, mb.load_model("run").predict(data), say=None)["score"]
print(mb.submit("x = 1").result(), mb.prepare(data).values(0), len(data), data["1"].fps)
mb.opne_dataset("colony")
mb.score(data, "s.csv", vidoes=["1"])
mb.fit(data, 3)
"""


@pytest.mark.slow
def test_a_type_checker_sees_slips_in_a_users_script(tmp_path):
    "All verbs were Any: a misspelled one was right, and an editor completed none."
    (tmp_path/"user.py").write_text(USER)
    found = subprocess.run([sys.executable, "-m", "mypy", "--config-file=", f"--cache-dir={tmp_path}", "user.py"],
                           cwd=tmp_path, env=os.environ | {"MYPYPATH": str(TOP)}, capture_output=True, text=True)
    slips = [x for x in found.stdout.splitlines() if x.startswith("user.py:") and ": error:" in x]
    assert [line.split(":")[1] for line in slips] == ["7", "8", "9"], found.stdout


@pytest.mark.parametrize("name", ["test", "docs", "release"])
def test_workflows_ask_for_little(name):
    "Read alone is the rule, every job has a time limit, and steps do something."
    flow = read(f".github/workflows/{name}.yaml")
    assert flow["permissions"]["contents"] == "read"
    for job in flow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        assert all("uses" in s or "run" in s for s in job["steps"])


def test_every_python_that_is_promised_is_tested():
    matrix = read(".github/workflows/test.yaml")["jobs"]["test"]["strategy"]["matrix"]
    least = re.search(r"^min_python = (.+)$", (TOP/"settings.ini").read_text(), re.M)[1]
    assert matrix["python"][0] == least and len(matrix["python"]) >= 3
    assert any("macos" in more["os"] for more in matrix["include"])


def test_nothing_is_sent_before_it_was_installed():
    jobs = read(".github/workflows/release.yaml")["jobs"]
    assert jobs["publish"]["needs"] == "smoke" and jobs["smoke"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}


def test_hooks_are_ours():
    "They fetch nothing, and what they call is what `make install` brings."
    for repo in read(".pre-commit-config.yaml")["repos"]:
        assert repo["repo"] == "local"
        for hook in repo["hooks"]:
            assert hook["language"] == "system"
            assert hook["entry"].startswith(".venv/bin/")

"The benchmark of steps and predictions runs, whatever it would measure."
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1]/"bench/all.py"


@pytest.mark.slow
def test_quick_runs_every_case(tmp_path):
    out = tmp_path/"all.json"
    subprocess.run([sys.executable, BENCH, "--quick", "--json", out], check=True,
                   timeout=600, capture_output=True)
    rows = json.loads(out.read_text())["rows"]
    names = [row["what"] for row in rows]
    assert len(names) == len(set(names)) == 6
    assert sum("step" in name for name in names) == 4
    assert all(0 < row["now_ms"] < 1e6 for row in rows)

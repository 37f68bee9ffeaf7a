"The bench for an evening with a card, on the processor: whole, and cut off anywhere."
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1]/"bench/gpu.py"


def start(out, *words):
    env = os.environ | {"OMP_NUM_THREADS": "1", "MABE_HOME": str(out.parent/"home")}
    return subprocess.Popen([sys.executable, str(BENCH), "--device", "cpu", "--json",
                             str(out), *words], env=env, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_all_parts_run_on_a_processor(tmp_path):
    done = start(out := tmp_path/"gpu.json", "--minutes", "60")
    said, _ = done.communicate(timeout=1500)
    found = json.loads(out.read_text())
    assert done.returncode == 0, said
    assert {n: p["status"] for n, p in found["parts"].items()} == dict.fromkeys(
        ("parity", "resume", "monitor", "too_large", "team", "speed", "sweep", "memory",
         "forecast", "utilisation", "side_by_side", "graphs", "compiled", "peers"),
        "ok"), said
    rows = {n: p["rows"] for n, p in found["parts"].items()}
    assert rows["resume"][0]["right"] and rows["too_large"][0]["right"]
    assert len(rows["speed"]) == 4 and len(rows["memory"]) == 5
    assert all(r["right"] for r in rows["parity"] + rows["team"])
    assert [r["status"] for r in rows["sweep"]] == ["ok", "ok", "knee"]
    assert [r["members"] for r in rows["side_by_side"]] == [1, 2]
    assert all(r["windows_s"] > 0 for r in rows["side_by_side"])
    assert rows["compiled"][0]["compiled_ms"] > 0
    peers = {r["variant"]: r for r in rows["peers"]}
    assert set(peers) == {"floor", "ours", "plain", "lightning", "accelerate"}
    assert all(r.get("windows_s") or r["say"] for r in peers.values())
    for name in ("forecast", "utilisation", "graphs"): # a card's figures are not made up
        assert [list(r) for r in rows[name]] == [["say"]]
    text = out.with_suffix(".md").read_text()
    assert found["machine"]["card"] in text and found["date"] in text
    assert all(f"## {name}" in text for name in rows) and "| ours |" in text


@pytest.mark.slow
def test_a_run_that_is_killed_has_left_what_it_found(tmp_path):
    job = start(out := tmp_path/"gpu.json", "--only", "monitor,speed,memory")
    end = time.monotonic() + 120
    while time.monotonic() < end:
        parts = json.loads(out.read_text())["parts"] if out.exists() else {}
        if len(parts.get("speed", {}).get("rows", [])) >= 1: break
        time.sleep(0.1)
    job.send_signal(signal.SIGKILL)
    job.communicate(timeout=60)
    found = json.loads(out.read_text())
    assert found["parts"]["monitor"]["status"] == "ok"
    assert found["parts"]["speed"]["rows"][0]["windows_s"] > 0


def test_parts_that_the_time_does_not_allow_for_are_named(tmp_path, monkeypatch):
    out = tmp_path/"gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu", "--json", str(out),
                                      "--minutes", "0", "--only", "speed,memory"])
    with pytest.raises(SystemExit, match="0"): runpy.run_path(str(BENCH), run_name="__main__")
    parts = json.loads(out.read_text())["parts"]
    assert {p["status"] for p in parts.values()} == {"no time"}

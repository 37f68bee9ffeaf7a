"Whether a job can be sent somewhere, as `GPUPanel` says it: each state, and the way out of it."
import logging
import os
import stat
import time

import pytest

from mabe_nb.errors import ConfigError, MabeError
from mabe_nb.view.panels import connect
from mabe_nb.view.panels.connect import STATES, connection, connection_html
from mabe_nb.view.panels.gpu import GPUPanel

TOKEN = '[default]\ntoken_id = "ak-1"\ntoken_secret = "as-1"\nactive = true\n'


@pytest.fixture(autouse=True)
def nobody(tmp_path, monkeypatch):
    "No account anywhere, and no Slurm."
    pytest.importorskip("modal")
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path/"modal.toml"))
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: os.environ.get("HF_TOKEN"))
    monkeypatch.setenv("PATH", str(tmp_path/"bin"))
    (tmp_path/"bin").mkdir()
    return tmp_path


def states(): return {on: connection(on).state for on in ("local", "modal", "hf", "slurm")}


def program(folder, name, code):
    (folder/name).write_text(f"#!/bin/sh\nexit {code}\n")
    (folder/name).chmod(stat.S_IRWXU)


def test_nobody_has_an_account():
    assert states() == {"local": "ready", "modal": "no account", "hf": "no account",
                        "slurm": "cluster unreachable"}
    for on in ("modal", "hf", "slurm"):
        found = connection(on)
        assert found.do and found.state in STATES and found.do in connection_html(
            found._replace(do="the way out"), on).replace("the way out", found.do)


def test_a_token_that_comes_while_the_kernel_lives(nobody, monkeypatch):
    "The client of Modal reads its file once; here that counts no more."
    assert connection("modal").state == "no account"
    handlers = len(logging.getLogger("modal-client").handlers)
    (nobody/"modal.toml").write_text(TOKEN)
    monkeypatch.setenv("HF_TOKEN", "hf_1")
    assert [connection(on, ask=False).state for on in ("modal", "hf")] == ["token found"] * 2
    monkeypatch.setattr(connect, "_check_token", lambda on: None)
    assert [connection(on).state for on in ("modal", "hf")] == ["ready"] * 2
    from modal.config import config
    assert config.get("token_id") == "ak-1", "what submit asks knows it too"
    (nobody/"modal.toml").unlink()
    assert connection("modal").state == "no account"
    assert len(logging.getLogger("modal-client").handlers) == handlers


@pytest.mark.parametrize("error, state", (
    (ConfigError("Modal refuses the token; 'modal token new' makes one"), "token refused"),
    (MabeError("Modal cannot be reached; try again"), "unreachable")))
def test_a_place_that_says_no(nobody, monkeypatch, error, state):
    (nobody/"modal.toml").write_text(TOKEN)
    def refuses(on): raise error
    monkeypatch.setattr(connect, "_check_token", refuses)
    found = connection("modal")
    assert found.state == state and str(error) in found.do


def test_a_library_that_is_missing(monkeypatch):
    monkeypatch.setattr(connect, "find_spec", lambda name: None)
    found = connection("modal")
    assert (found.state, found.do) == ("library missing", "'pip install modal'")


def test_a_cluster_that_does_not_answer(nobody, monkeypatch):
    monkeypatch.setattr(connect, "find_spec", lambda name: True)
    program(nobody/"bin", "sbatch", 0)
    program(nobody/"bin", "sinfo", 1)
    assert connection("slurm").state == "cluster unreachable"
    program(nobody/"bin", "sinfo", 0)
    assert connection("slurm").state == "ready"


def test_the_panel_checks_again_and_runs_here(nobody, monkeypatch):
    panel = GPUPanel("modal", "L4")
    panel.connect()
    assert panel.found["modal"].state == "no account", panel.found["modal"]
    assert "USD an hour" in panel.facts.value, "prices need no account"
    (nobody/"modal.toml").write_text(TOKEN)
    monkeypatch.setattr(connect, "_check_token", lambda on: None)
    panel.check_button.click()
    for _ in range(200):
        if panel.check_button.description == "Check again" and "ready" == \
                panel.found["modal"].state: break
        time.sleep(0.05)
    else: raise AssertionError(panel.found)
    panel.here_button.click()
    assert panel.on == "local" and panel.place.value == "local"

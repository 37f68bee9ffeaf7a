"Cards of several providers: the first place with an account gets the job, and it alone."
import pytest

pytest.importorskip("huggingface_hub")
pytest.importorskip("modal")
from test_on_hf import hub  # noqa: F401

from mabe_nb import cli
from mabe_nb.errors import ConfigError
from mabe_nb.remote.groups.map import map as map_items
from mabe_nb.remote.groups.plan import plan_map
from mabe_nb.remote.job import all_jobs, attach, quote, submit

BOTH = ["modal:T4", "hf:t4-small"]


@pytest.fixture(autouse=True)
def no_account_at_modal(monkeypatch, tmp_path):
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"): monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path/"none"))


def test_who_has_no_account_at_the_first_gets_the_second(hub):
    said = []
    job = submit("n = 1", gpu=BOTH, outputs=["n"], say=said.append)
    assert job.on == "hf" and job.spec["gpu"] == "t4-small" and job.result() == {"n": 1}
    assert said[0].startswith("modal is passed over: there is no Modal token")
    assert attach(job.id).on == "hf" and len(hub.jobs) == 1
    other = submit("1", on="modal", gpu=["hf-jobs:t4-small", "T4"], say=said.append)
    assert other.on == "hf" and other.wait(60) == "done" and len(said) == 1


def test_a_command_too(hub, capsys):
    assert cli.main(["submit", "--gpu", ",".join(BOTH), "--", "echo", "hello"]) == 0
    said = capsys.readouterr().out
    assert "modal is passed over" in said and "hello" in said and all_jobs()[0].on == "hf"


def test_a_slip_is_no_reason_to_go_elsewhere(hub):
    for slip, words in ((["modal:H10", "hf:t4-small"], "unknown GPU 'H10'"),
                        (["hf:t4-small", "modal:H10"], "unknown GPU 'H10'")):
        with pytest.raises(ConfigError, match=words): submit("1", gpu=slip)
    with pytest.raises(ConfigError, match="unknown option of modal 'bucket'"):
        submit("1", gpu=BOTH, bucket="mine")
    assert hub.asked == [] and all_jobs() == []


def test_an_account_nowhere(hub, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path/"none"))
    with pytest.raises(ConfigError, match="modal: there is no Modal token.*; hf: there is no token"):
        submit("1", gpu=BOTH)
    assert hub.asked == [] and all_jobs() == []


def test_the_price_is_that_of_the_dearest():
    each = [quote("modal", "T4")["most_usd"], quote("hf", "t4-small")["most_usd"]]
    assert quote("local", BOTH)["most_usd"] == max(each) and min(each) < max(each)


def test_a_group_runs_at_one_place(hub):
    def same(n): return n
    for start in (lambda: map_items(same, [1], on="hf", gpu=BOTH),
                  lambda: plan_map([1.0], 9, "hf", gpu="modal:T4")):
        with pytest.raises(ConfigError, match="a group runs at one place"): start()
    assert hub.asked == []

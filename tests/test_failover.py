"A job that does not start goes to the next place, and runs and is paid at one of them."
import pytest

modal = pytest.importorskip("modal")
pytest.importorskip("huggingface_hub")
from grpclib import Status  # noqa: E402
from localhf import LocalHub  # noqa: E402
from modal_jobs import calm, cloud, until  # noqa: E402, F401

from mabe_nb import cli  # noqa: E402
from mabe_nb.errors import ConfigError, MabeError  # noqa: E402
from mabe_nb.remote import choice  # noqa: E402
from mabe_nb.remote.job import all_jobs, attach, jobs, quote, submit  # noqa: E402
from mabe_nb.remote.places import hf, modal as at_modal  # noqa: E402

pytestmark = pytest.mark.cloud
TO_HF = ["modal:T4", "hf:t4-small"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(hf.Backend, "patience", 0.3)
    with LocalHub(tmp_path/"hub") as hub:
        for name, value in hub.env.items(): monkeypatch.setenv(name, value)
        yield hub


def when_cancelled(monkeypatch, do):
    "Do something in the moment in which a job at Modal is to be stopped."
    real = at_modal.Backend.cancel
    def late(self, folder, spec, *args):
        do(self, folder, spec)
        return real(self, folder, spec, *args)
    monkeypatch.setattr(at_modal.Backend, "cancel", late)


def test_a_card_that_never_comes_is_left_for_the_next_place(cloud, hub):
    cloud.faults.no_capacity, said = {"T4"}, []
    most = quote("local", TO_HF)["most_usd"]
    job = submit("n = 1", gpu=TO_HF, outputs=["n"], say=said.append, start_within=0.5)
    first = next(j for j in jobs() if j.on == "modal")
    assert said == [f"job {first.id} waits at modal; without a start within 0.5 s it goes to hf",
                    "modal did not start it within 0.5 s and has stopped it; it goes to hf"]
    assert first.status() == "cancelled" and first.cost() == 0 and not cloud.cloud.busy()
    assert job.on == "hf" and job.result() == {"n": 1} and attach(job.id).on == "hf"
    assert len(hub.jobs) == 1 and job.spec["most_usd"] <= most


def test_who_starts_in_time_stays(cloud, hub):
    said = []
    job = submit("n = 1", gpu=TO_HF, outputs=["n"], say=said.append, start_within=120)
    assert job.on == "modal" and job.result() == {"n": 1} and hub.jobs == {}
    assert not any("stopped" in line for line in said)


def test_one_place_and_one_that_cannot_be_left_wait_as_ever(cloud, hub, monkeypatch, capsys):
    cloud.faults.no_capacity = {"T4"}
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "/none")
    said = []
    for gpu in (TO_HF, "modal:T4"):
        job = submit("1", gpu=gpu, say=said.append, start_within=0)
        assert job.on == "modal" and job.status() == "queued" and said == []
        job.cancel()
    assert cli.main(["submit", "--gpu", "modal:T4", "--start-within", "9", "--", "true"]) == 2
    assert "--start-within is for cards of several places" in capsys.readouterr().err


def test_a_start_in_the_moment_of_the_stop_is_paid_once_and_within_what_was_said(
        cloud, hub, monkeypatch):
    def starts(backend, folder, spec):
        cloud.faults.no_capacity.clear()
        until(lambda: backend.state(folder, spec)["status"] == "running")
    when_cancelled(monkeypatch, starts)
    cloud.faults.no_capacity = {"T4"}
    most, before = quote("local", TO_HF, 60)["most_usd"], len(cloud.cloud.usage)
    job = submit("n = 1\nimport time\ntime.sleep(5)", gpu=TO_HF, outputs=["n"], timeout=60,
                 start_within=0.3)
    first = next(j for j in jobs() if j.on == "modal")
    assert first.status() == "cancelled" and not cloud.cloud.busy()
    assert job.on == "hf" and job.result() == {"n": 1}
    until(lambda: len(cloud.cloud.usage) > before)
    at_modal = sum(used["seconds"] for used in cloud.cloud.usage[before:]) / 3600
    assert at_modal * first.backend.usd_per_hour(first.spec) + job.spec["most_usd"] <= most


def test_what_ended_before_it_was_stopped_is_the_job(cloud, hub, monkeypatch):
    def ends(backend, folder, spec):
        cloud.faults.no_capacity.clear()
        until(lambda: backend.state(folder, spec)["status"] == "done")
    when_cancelled(monkeypatch, ends)
    cloud.faults.no_capacity = {"T4"}
    job = submit("n = 2", gpu=TO_HF, outputs=["n"], start_within=0.3)
    assert job.on == "modal" and job.result() == {"n": 2} and hub.jobs == {}


def test_nothing_starts_elsewhere_before_the_stop_is_confirmed(cloud, hub, monkeypatch):
    monkeypatch.setattr(choice, "STOPPED", 0.5)
    cloud.faults.no_capacity = {"T4"}
    cloud.faults.fail["FunctionCallCancel"] = [Status.UNAVAILABLE] * 12
    with pytest.raises(MabeError, match="modal does not confirm that job .* nothing was started"):
        submit("1", gpu=TO_HF, start_within=0)
    cloud.faults.fail["FunctionCallCancel"].clear()
    (job,) = [j for j in jobs() if j.status() not in ("done", "cancelled", "died")]
    assert job.on == "modal" and job.status() == "queued" and hub.jobs == {}
    job.cancel()


def test_a_refusal_and_a_late_call_graph(cloud, hub, tmp_path):
    said = []
    cloud.faults.fail["FunctionMap"] = [Status.RESOURCE_EXHAUSTED] * 20
    job = submit("n = 1", gpu=TO_HF, outputs=["n"], say=said.append)
    assert job.on == "hf" and job.wait(60) == "done" and said[0].startswith("modal refuses it: ")
    cloud.faults.fail["FunctionMap"].clear()
    known = len(all_jobs())
    cloud.faults.graph_delay = 60.0 # that a container works is seen on the Volume
    job = submit("import os, time\nwhile not os.path.exists(go): time.sleep(0.1)\nn = 3",
                 gpu=TO_HF, inputs={"go": str(tmp_path/"go")}, outputs=["n"], start_within=60)
    (tmp_path/"go").touch()
    assert job.on == "modal" and job.result() == {"n": 3} and len(all_jobs()) == known + 1


def test_hugging_face_first_and_this_machine_last(cloud, hub):
    hub.hold.clear() # no machine is free
    job = submit("n = 4", gpu=["hf:t4-small", "local:"], outputs=["n"], start_within=0.3)
    (there,) = hub.jobs.values()
    assert there.stage == "CANCELED" and job.on == "local" and job.result() == {"n": 4}
    with pytest.raises(ConfigError, match="start_within"): submit("1", start_within=-1)

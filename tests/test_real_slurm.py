"Jobs on a real Slurm of one node, on loopback: preempted, requeued, cancelled, killed."
import contextlib
import json
import os
import subprocess
import sys

import psutil
import pytest
import real_slurm
from real_slurm import processes
from waiting import until

from mabe_nb import cli
from mabe_nb.commands import remote as commands
from mabe_nb.errors import MabeError
from mabe_nb.remote.handle import JobError
from mabe_nb.remote.job import attach, submit
from mabe_nb.remote.places.slurm import Backend
from mabe_nb.remote.places.slurm_queue import all_jobs_in_queue, end_at_slurm, own_queue
from mabe_nb.view.panels.gpu import GPUPanel
from mabe_nb.view.panels.job import JobPanel

pytestmark = [pytest.mark.cloud, pytest.mark.skipif(bool(real_slurm.why_not()),
                                                    reason=real_slurm.why_not())]
SIGNAL = "SlurmctldParameters=preempt_send_user_signal"
STEPS = """
import os, time
n = int((CKPT/'n').read_text()) if (CKPT/'n').exists() else 0
found = n
print('from', n, flush=True)
try:
    while not (CKPT/'enough').exists():
        n += 1; time.sleep(0.1)
finally:
    time.sleep(0.5) # what is interrupted twice is not saved
    (CKPT/'new').write_text(str(n)); os.replace(CKPT/'new', CKPT/'n')
    print('saved', n, flush=True)
"""
SLOW = STEPS.replace("time.sleep(0.5)", "time.sleep(2); print('saves', flush=True)\n    time.sleep(2)")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with real_slurm.running(tmp_path_factory.mktemp("slurm")) as found: yield found


@pytest.fixture(autouse=True)
def mabe_home(slurm, tmp_path, monkeypatch):
    for name, value in slurm.env.items(): monkeypatch.setenv(name, value)
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setattr(Backend, "pause", 0.2)
    yield tmp_path/"home"
    slurm.end_jobs()


def number(job): return job.spec["handle"]["job"]


def send(source=STEPS, **options):
    "A job that has begun."
    job = submit(source, on="slurm", timeout=300, **options)
    until(lambda: "from" in job.log())
    return job


def goes_on(slurm, job, saved=True):
    "There is a second attempt; it begins where the first one was stopped, if that was said."
    until(lambda: not processes(job.folder)) # Slurm itself waits for this: two minutes
    slurm("scontrol", "update", f"job={number(job)}", "StartTime=now+4seconds")
    until(lambda: job.log().count("from") == 2)
    assert job.status() == "running" and ("saved" in job.log()) is saved
    (job.folder/"ckpt"/"enough").touch()
    assert job.wait(100) == "done" and job.state()["attempt"] == 2, job.log()
    assert (job.result()["found"] > 0) is saved


def take_the_node(slurm): return slurm("sbatch", "--parsable", "-p", "high", "-n4", "-o",
                                       "/dev/null", "--wrap", "sleep 2")


def test_it_runs_and_its_environment_is_what_was_named(monkeypatch):
    for name in ("MY_TOKEN", "NAMED", "ASKED"): monkeypatch.setenv(name, "a-secret-of-mine")
    job = submit("import os\nfound = sorted(os.environ)", on="slurm", outputs=["found"],
                 secrets=["NAMED"], env="ASKED", tasks_per_node=2)
    found = job.result()["found"]
    assert "MY_TOKEN" not in found and {"NAMED", "ASKED", "PATH", "RANK"} <= set(found)


def test_a_variable_that_was_not_named_is_told(monkeypatch):
    monkeypatch.setenv("MY_COHORT", "b")
    job = submit("import os\nfound = os.environ['MY_COHORT']", on="slurm", outputs=["found"],
                 timeout=60)
    with pytest.raises(JobError, match="'MY_COHORT', which is set in the environment here; "
                       "the option env=MY_COHORT takes it along"): job.result()


def test_its_time_is_over_and_what_was_found_comes_back():
    job = submit("import time\nfound = [7]\ntime.sleep(300)", on="slurm", outputs=["found"],
                 timeout=3)
    assert job.wait(100) == "timeout", job.state()
    assert "limit of 3 s; what came back: found" in job.state()["error"]["message"]
    assert job.result(partial=True) == {"found": [7]}


def test_preempted_it_goes_on(slurm):
    job = send(outputs=["found"])
    take_the_node(slurm)
    until(lambda: job.status() == "queued")
    goes_on(slurm, job)


def test_preempted_with_a_signal_of_its_own_it_goes_on(tmp_path, monkeypatch):
    with real_slurm.running(tmp_path/"slurm", SIGNAL) as other:
        monkeypatch.setenv("SLURM_CONF", other.env["SLURM_CONF"])
        job = send(outputs=["found"])
        take_the_node(other)
        until(lambda: job.status() == "queued")
        goes_on(other, job)


@pytest.mark.parametrize("how", ["CANCEL", "REQUEUE"])
def test_preempted_at_once_it_saves_and_goes_on(how, tmp_path, monkeypatch):
    "Without a `GraceTime` Slurm sends SIGTERM twice; CANCEL sends no job to the queue."
    with real_slurm.running(tmp_path/"slurm", preempt=how, grace=0) as other:
        monkeypatch.setenv("SLURM_CONF", other.env["SLURM_CONF"])
        job = send(outputs=["found"])
        take_the_node(other)
        until(lambda: job.status() == "queued")
        goes_on(other, job)


@pytest.mark.parametrize("how", ["CANCEL", "REQUEUE"])
def test_cancelled_outside_while_it_saves_it_does_not_go_on(how, tmp_path, monkeypatch):
    "By a person, more than a second after it was preempted, who has times written otherwise."
    with real_slurm.running(tmp_path/"slurm", preempt=how, grace=20) as other:
        monkeypatch.setenv("SLURM_CONF", other.env["SLURM_CONF"])
        monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
        job = send(SLOW, env="SLURM_TIME_FORMAT")
        take_the_node(other)
        until(lambda: "saves" in job.log())
        other("scancel", number(job))
        assert job.wait(60) == "cancelled" and "saved" in job.log()
        other.until(lambda: not other("squeue", "-h"))
        assert job.log().count("from") == 1 and job.status() == "cancelled"


def test_requeued_it_goes_on(slurm):
    job = send(outputs=["found"])
    assert slurm("scontrol", "requeue", number(job)) == ""
    goes_on(slurm, job)


def test_cancelled_outside_it_is_cancelled(slurm):
    job = send()
    slurm("scancel", number(job))
    assert job.wait(60) == "cancelled" and "saved" in job.log()
    until(lambda: not slurm("squeue", "-h"))
    assert attach(job.id).status() == "cancelled"


def test_its_processes_killed_it_died(slurm):
    job = send()
    for process in processes(job.folder):
        with contextlib.suppress(psutil.NoSuchProcess): process.kill() # gone with another
    assert job.wait(60) == "died"
    assert "Slurm ended it (FAILED); it last printed" in job.state()["error"]["message"]


def test_the_node_is_lost_and_comes_back(slurm):
    job = send(outputs=["found"])
    slurm.crash_node()
    until(lambda: job.status() == "queued")
    slurm.start_node()
    goes_on(slurm, job, saved=False)


def test_why_it_waits_is_said(slurm, capsys):
    other = send(cpus=4)
    job = submit("1", on="slurm", cpus=2)
    until(lambda: "waits for" in job.state().get("reason", ""))
    assert "(Resources)" in job.state()["reason"] and other.status() == "running"
    code = ("import warnings; warnings.simplefilter('error')\n"
            "from mabe_nb.remote.job import jobs\nprint([j.status() for j in jobs()])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout == "['queued', 'running']\n" and out.stderr == ""
    (other.folder/"ckpt"/"enough").touch()
    commands.follow(job)
    assert "[waits for machines that are free (Resources)]\n" in capsys.readouterr().out
    assert job.status() == "done"


def test_a_panel_asks_for_no_card_and_says_why_its_job_waits(slurm):
    "This cluster has no cards, as many partitions have none."
    card, other = GPUPanel("slurm"), send(cpus=4)
    card.count.value = 0
    assert card.gpu is None and card.known_facts()["Asks for"] == "no card"
    panel = JobPanel("n = 1", gpu=card, outputs="n", timeout=300)
    panel.options.value = "cpus=2"
    panel.start()
    until(lambda: "waits for machines that are free (Resources)" in panel.view.value
          or panel.status == "error")
    assert panel.status == "running", panel.error
    (other.folder/"ckpt"/"enough").touch()
    until(lambda: panel.status != "running", 100)
    assert (panel.status, panel.result) == ("done", {"n": 1}), panel.error


def test_cancelled_while_it_waits(slurm):
    send(cpus=4)
    job = submit("1", on="slurm", cpus=2)
    job.cancel()
    assert job.status() == "cancelled"


def test_what_slurm_was_not_told_to_end_is_not_cancelled(slurm, monkeypatch, tmp_path):
    "It would begin beside the one that `resume` starts."
    send(cpus=4)
    job = submit("1", on="slurm", cpus=2)
    (tmp_path/"slurm.conf").write_text((slurm.top/"slurm.conf").read_text().replace(
        f"SlurmctldPort={slurm.ports[0]}", "SlurmctldPort=9") + "MessageTimeout=2\n")
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_CONF", str(tmp_path/"slurm.conf"))
        with pytest.raises(MabeError, match=f"Slurm did not end job {job.id} .*'mabe jobs cancel {job.id}'"):
            job.cancel()
    assert job.status() == "queued"
    job.cancel()
    assert job.status() == "cancelled" and number(job) not in slurm("squeue", "-h", "-o", "%i")


def test_forgotten_by_slurm_its_heart_is_heard(slurm):
    job = send()
    assert (job.folder/"beat").exists()
    job.spec["handle"]["job"] = "99999" # which Slurm does not know
    assert job.status() == "running"
    os.utime(job.folder/"beat", (1, 1))
    assert job.status() == "died"
    assert "Slurm knows it no more" in job.state()["error"]["message"]


def test_habits_of_a_person_and_names_of_other_jobs_hide_no_job(slurm, monkeypatch):
    "What a shell sets for `squeue` and `scancel`; a name that is no UTF-8."
    for name, value in {"SQUEUE_STATES": "SUSPENDED", "SQUEUE_PARTITION": "high",
                        "SCANCEL_INTERACTIVE": "1", "SCANCEL_STATE": "SUSPENDED"}.items():
        monkeypatch.setenv(name, value)
    other = subprocess.run(
        [b"sbatch", b"--parsable", b"-n4", b"-o", b"/dev/null", b"--wrap", b"sleep 60", b"-J",
         b"M\xe4use"], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
    job = submit("1", on="slurm") # has to wait for the other
    assert job.status() == "queued" and own_queue().keys() == {other, number(job), f"mabe-{job.id}"}
    assert (job.id, "root", "pending") in all_jobs_in_queue()
    job.cancel()
    assert job.status() == "cancelled"
    end_at_slurm(job.id, [other]) # as the others end theirs, but for its name
    until(lambda: not own_queue())


def test_a_controller_that_does_not_answer_is_no_end(slurm, monkeypatch, tmp_path):
    job = send()
    (tmp_path/"slurm.conf").write_text((slurm.top/"slurm.conf").read_text().replace(
        f"SlurmctldPort={slurm.ports[0]}", "SlurmctldPort=9") + "MessageTimeout=2\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path/"slurm.conf"))
    monkeypatch.setattr(Backend, "pause", 100.0)
    job.backend.answers.clear()
    assert job.status() == "running"
    job.spec["created"] -= 30 * 86400 # sent long ago, and resumed now
    assert job.status() == "running"
    job.spec["started"] -= 30 * 86400
    (job.folder/"job.json").write_text(json.dumps(job.spec))
    assert job.status() == "died" and "it is lost" in job.state()["error"]["message"]


def test_jobs_of_others_are_seen_and_left_alone(slurm, mabe_home, tmp_path, monkeypatch, capsys):
    "A colleague on the same cluster is one whose jobs lie in another folder."
    job = send()
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"other"))
    slurm.until(lambda: "running" in [r["status"] for r in listed(capsys)])
    (row,) = listed(capsys)
    assert row["id"] == job.id and row["on"] == "slurm" and row["user"]
    for action in ("cancel", "rm", "resume"):
        assert cli.main(["jobs", action, job.id]) == 2
        assert "there is no job" in capsys.readouterr().err
    monkeypatch.setenv("MABE_HOME", str(mabe_home))
    assert [r["id"] for r in listed(capsys)] == [job.id] # one's own stands there once
    assert job.status() == "running"
    job.cancel()


def listed(capsys):
    capsys.readouterr()
    assert cli.main(["jobs", "list", "--all-users", "--json"]) == 0
    return json.loads(capsys.readouterr().out)

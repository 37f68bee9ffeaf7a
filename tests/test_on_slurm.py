"""Jobs on a cluster: through submitit's local executor, and through a stand-in for Slurm.

The stand-in is some shell scripts named sbatch, srun, squeue, sacct and so on, on PATH, which
really run what they are given; `test_real_slurm.py` has a real one. It shows that our side of the talk is right, not that a
cluster is content with it.
"""
import os
import pickle
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import psutil
import pytest
from waiting import until
from hypothesis import given, settings, strategies as st
from submitit.slurm.slurm import _make_sbatch_string

from mabe_nb.errors import ConfigError, MabeError
from mabe_nb.files import write_json
from mabe_nb.remote.groups.map import map as map_items
from mabe_nb.remote.job import attach, jobs, submit
from mabe_nb.remote.places.slurm import Backend, check_options, gres, parameters
from mabe_nb.remote.places.slurm_queue import preemption, send_again

MABE = str(Path(sys.executable).with_name("mabe"))
SETTINGS = """{conv_channels: [16], lstm_hidden: 16, epochs: 4, stride: 40, batch_size: 4,
device: cpu, learning_rate: 0.02, dropout: 0.0, use_augmentation: false, sequence_length: 25,
ema_decay: 0.5}"""


@pytest.fixture(autouse=True)
def mabe_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(Backend, "pause", 0.0)
    yield tmp_path/"home"
    for job in jobs() if (tmp_path/"home"/"jobs").exists() else (): job.cancel()


def local(source, **more): return submit(source, on="slurm", cluster="local", **more)


def preempt(job):
    "What Slurm does before it takes the machines away."
    for task in psutil.Process(int(job.spec["handle"]["job"])).children():
        task.send_signal(signal.SIGUSR2)


@pytest.mark.slow
def test_two_tasks_train_one_model_preempted_and_requeued(tmp_path):
    subprocess.run([MABE, "synth", tmp_path/"data", "--videos", "4", "--minutes", "0.4",
                    "--layout", "calms21"], check=True, capture_output=True)
    (tmp_path/"config.yaml").write_text(SETTINGS)
    words = [MABE, "train", str(tmp_path/"data"), "--out", "{JOB}/ckpt/run", "--resume",
             "--config", str(tmp_path/"config.yaml")]
    whole = local(words, tasks_per_node=2)
    assert whole.wait(100) == "done", whole.log()
    job = local(words, tasks_per_node=2)
    until(lambda: "Epoch [1/" in job.log())
    preempt(job)
    assert job.wait(100) == "done", job.log()
    assert job.state()["attempt"] == 2 and "going on from" in job.log()
    for name in ("best.safetensors", "history.csv", "last/state.safetensors"):
        a, b = ((j.folder/"ckpt"/"run"/name).read_bytes() for j in (whole, job))
        assert a == b, name
    assert "WORLD_SIZE" not in os.environ and "log.1" in job.files()
    rows = (job.folder/"ckpt"/"run"/"history.csv").read_text().split("\n")
    assert len([r for r in rows if r]) == 5, "every epoch once"


@pytest.mark.slow
def test_every_task_finds_its_team():
    job = local("import os\nteam = {k: os.environ[k] for k in ('RANK', 'LOCAL_RANK', "
                "'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')}\nprint(team)\nx = X",
                tasks_per_node=2, outputs=["team", "x"], inputs={"X": [1, 2]})
    until(lambda: (job.folder/"tasks"/"1"/"status.json").exists())
    found = job.result()
    assert found["x"] == [1, 2] and found["team"]["RANK"] == "0"
    assert 20_000 <= int(found["team"]["MASTER_PORT"]) < 32_768, "none that others are lent"
    other = b"".join(job.backend.read(job.folder, job.spec, "log.1", 10**5)).decode()
    assert str(found["team"] | {"RANK": "1", "LOCAL_RANK": "1"}) in other


@pytest.mark.slow
def test_cancelled_from_another_process_it_can_save():
    job = local("import time\nprint('on')\ntry: time.sleep(60)\n"
                "except KeyboardInterrupt: (CKPT/'saved').touch()")
    until(lambda: "on" in job.log())
    subprocess.run([sys.executable, "-c", "from mabe_nb.remote.job import attach\n"
                    f"attach({job.id!r}).cancel()"], check=True, timeout=30)
    assert job.status() == "cancelled" and "ckpt/saved" in job.files()
    job.cancel() # again does nothing
    until(lambda: not job.backend.alive(job.folder, job.spec))


def test_killed_it_died_and_can_be_resumed():
    job = local("import time\nfound = sorted(p.name for p in CKPT.iterdir())\n"
                "(CKPT/'kept').touch(); print('on')\nif not found: time.sleep(60)",
                outputs=["found"])
    until(lambda: "on" in job.log())
    controller = psutil.Process(int(job.spec["handle"]["job"]))
    for process in [controller, *controller.children(recursive=True)]: process.kill()
    until(lambda: job.status() == "died")
    assert "killed; it last printed: on" in job.state()["error"]["message"]
    job.resume()
    assert attach(job.id).result() == {"found": ["kept"]}


def test_where_it_was_sent_from_is_gone_it_is_an_error(tmp_path, monkeypatch):
    "Elsewhere its relative paths would be other files, and what it writes would be lost."
    (tmp_path/"at").mkdir()
    monkeypatch.chdir(tmp_path/"at")
    job = local("import time\nprint('on')\nif len(list(CKPT.iterdir())) == 0:\n"
                "    (CKPT/'one').touch(); time.sleep(60)")
    until(lambda: "on" in job.log())
    monkeypatch.chdir(tmp_path)
    (tmp_path/"at").rmdir()
    preempt(job) # as any start that comes later
    assert job.wait(60) == "error", job.log()
    assert "was sent from " + str(tmp_path/"at") + ", which its machine" in job.state()["error"]["message"]


@pytest.mark.slow
def test_a_job_is_done_if_all_of_its_tasks_are():
    source = ("import os, time\nrank = int(os.environ['RANK'])\n"
              "if rank:\n    time.sleep(1)\n    if not list(CKPT.iterdir()): raise ValueError('odd')")
    job = local(source, tasks_per_node=2)
    assert job.wait(60) == "error" and job.state()["error"]["message"] == "task 1: odd"
    (job.folder/"ckpt"/"go").touch()
    job.resume()
    assert not (job.folder/"tasks"/"1"/"status.json").exists() # that of before
    assert job.wait(60) == "done"


@pytest.mark.slow
def test_a_task_that_has_not_begun_is_waited_for(tmp_path):
    job = local("import os, time\nif os.environ['RANK'] == '1': time.sleep(8)", tasks_per_node=2)
    first = job.folder/"status.json"
    until(lambda: (job.folder/"tasks"/"1").exists() and first.exists() and '"done"' in first.read_text())
    processes = psutil.Process(int(job.spec["handle"]["job"])).children(recursive=True)
    for process in processes: process.suspend() # Or it may write where there is no folder
    (job.folder/"tasks"/"1").rename(tmp_path/"1") # as before it made its folder
    assert job.status() == "running"
    (tmp_path/"1").rename(job.folder/"tasks"/"1")
    for process in processes: process.resume()
    assert job.wait(60) == "done"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "cancelled"])
def test_a_job_is_not_done_if_a_task_was_ended_before_it_could_say_so(how):
    job = local("import os, time\nif os.environ['RANK'] == '1': (CKPT/str(os.getpid())).touch(); time.sleep(60)",
                tasks_per_node=2)
    first = job.folder/"status.json"
    until(lambda: first.exists() and '"done"' in first.read_text() and os.listdir(job.folder/"ckpt"))
    if how == "cancelled": job.cancel()
    else:
        code = psutil.Process(int(os.listdir(job.folder/"ckpt")[0]))
        for process in (code.parent(), code): process.kill() # its runner first, which would tell
    until(lambda: not job.backend.alive(job.folder, job.spec))
    assert job.status() == {"killed": "died"}.get(how, how)
    if how == "killed": assert "task 1: its process was killed" in job.state()["error"]["message"]


def nap(i):
    import time
    print("on")
    time.sleep(60)


@pytest.mark.slow
def test_each_task_of_a_group_has_a_process_of_its_own(mabe_home):
    group = map_items(nap, range(4), on="slurm", cluster="local", at_once=2,
                      say=lambda words: None)
    first, second = group.tasks()
    until(lambda: "on" in first.log() and "on" in second.log())
    assert [first.status(), second.status()] == ["running"] * 2
    process = psutil.Process(int(second.spec["handle"]["job"]))
    second.cancel()
    assert first.status() == "running" and second.status() == "cancelled"
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    group.cancel()
    assert first.status() == "cancelled"


def stubborn(item):
    import os
    import time
    while item["n"] and not os.path.exists(item["go"]): time.sleep(0.05)
    raise ValueError("always")


@pytest.mark.slow
def test_an_item_that_is_tried_first_when_others_are_tried_again_fails_as_they_do(tmp_path):
    "Three attempts of the first are no reason to wait for a third of the second."
    group = map_items(stubborn, [{"n": n, "go": str(tmp_path/"go")} for n in (0, 1)], on="slurm",
                      cluster="local", at_once=2, say=lambda words: None)
    until(lambda: group.counts()["failed"] == 1)
    group.cancel()
    (tmp_path/"go").touch()
    group.resume(failed=True)
    assert group.wait(120, progress=False) == "error"
    assert group.counts() == {"items": 2, "done": 0, "failed": 2, "left": 0}
    assert group.rest().attempts.tolist() == [3, 2]


class Evil:
    def __reduce__(self): return open, (os.environ["MABE_HOME"] + "/ran", "w")


@pytest.mark.slow
def test_nothing_that_submitit_brings_is_unpickled(mabe_home):
    job = local("x = 1", outputs=["x"])
    job.wait()
    until(lambda: not job.backend.alive(job.folder, job.spec))
    pickles = list((job.folder/"submitit").glob("*.pkl"))
    assert len(pickles) == 2
    for path in pickles: path.write_bytes(pickle.dumps(Evil()))
    again = attach(job.id)
    assert again.result() == {"x": 1} and list(again.events())[-1]["status"] == "done"
    again.cancel(); again.files(); again.cost()
    assert not (mabe_home/"ran").exists()


# what is asked for

@given(st.sampled_from(["partition", "account", "qos", "constraint"]), st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_no_word_becomes_a_command(option, word):
    options = {option: word}
    try: check_options(options)
    except ConfigError as e: assert len(str(e).splitlines()) == 1
    else: only_flags(options)


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=20) | st.booleans(), max_size=3))
@settings(max_examples=200, deadline=None)
def test_no_flag_becomes_a_command(flags):
    try: check_options({"extra": flags})
    except ConfigError as e: assert len(str(e).splitlines()) == 1
    else: only_flags({"extra": flags})


def only_flags(options):
    spec = {"id": "a", "timeout": 60, "retries": 0, "gpu": None, "options": options,
            "secrets": []}
    asked = {k.removeprefix("slurm_"): v for k, v in parameters(spec).items()
             if k.startswith("slurm_")}
    text = _make_sbatch_string(command="run", folder="jobs", **asked)
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    assert lines[0] == "export SUBMITIT_EXECUTOR=slurm" and len(lines) == 2, text


@pytest.mark.parametrize("gpu", ["A100:0", "A100:", "a b", "x;id", "A100:2:3", "100", "\n2"])
def test_cards_that_are_none(gpu):
    with pytest.raises(ConfigError, match="sinfo"): gres(gpu)


@pytest.mark.parametrize("more, why", [
    ({}, "no Slurm on this machine"), ({"partion": "a"}, "did you mean 'partition'"),
    ({"cluster": "local", "nodes": 2}, "has one node"), ({"cpus": True}, "cpus is True"),
    ({"cluster": "local", "secrets": ["NOT_SET_1"]}, "set it before you submit"),
    ({"cluster": "local", "env": "PATH,NOT_SET_1"}, "'NOT_SET_1' is not in the environment"),
    ({"extra": {"output": "x"}}, "set by mabe itself"), ({"extra": "a"}, "expected flags"),
    ({"gpu": ["A100", "H100"]}, "sinfo -o %G")])
def test_errors_are_one_sentence_and_leave_nothing(more, why, mabe_home, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=why) as e: submit("1", on="slurm", **more)
    assert "\n" not in str(e.value) and not list((mabe_home/"jobs").glob("*"))


# a stand-in for Slurm

SCRIPTS = {
    "sbatch": """[ -e refuse ] && { echo 'sbatch: error: invalid partition' >&2; exit 1; }
cp "$1" script; echo PENDING > state
[ -e hold ] || (./start >/dev/null 2>&1 &)
[ -e greeting ] && echo 'job 12 of ann is too large'
echo Submitted batch job 7""",
    "start": """echo RUNNING > state
export SLURM_JOB_ID=7 SLURM_NTASKS=$(sed -n 's/.*ntasks-per-node=//p' script)
export SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=localhost
cd "$HERE/.."; bash "$HERE/script"; cd "$HERE"
if [ -e again ]; then rm again; exec ./start; fi
echo COMPLETED > state""",
    "srun": """while [ "${1#-}" != "$1" ]; do
  case "$1" in --output|--error) shift 2;; *) shift;; esac; done
for i in $(seq 0 $((SLURM_NTASKS - 1))); do
  SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_NODEID=0 "$@" >> srun.$i 2>&1 &
  echo $! >> pids; done
wait""",
    "squeue": """echo "$@" >> questions
case "$(cat state)" in PENDING|RUNNING|SUSPENDED) shown="$(cat state)|None";; esac
case "$*" in *-u*) name=$(sed -n 's/.*--job-name=//p' script)
  [ "$shown" ] && echo "7|$name|$shown"; exit 0;; esac
[ "$shown" ] && echo "$shown" && exit
echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1""",
    "sacct": """cat state""", # `scontrol show` knows the job no more
    "scontrol": """[ "$2" = show ] && exit 1; echo "$@" >> asked; touch again""",
    "scancel": """echo "$@" >> cancelled; echo 'CANCELLED by 1000' > state"""}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    folder = tmp_path/"slurm"
    folder.mkdir()
    for name, text in SCRIPTS.items():
        (folder/name).write_text(f"#!/bin/bash\nHERE={folder}; cd {folder}\n{text}\n")
        (folder/name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(Backend, "answers", {})
    return folder


def test_preempted_on_slurm_it_goes_on(slurm):
    job = submit("import os, time\nn = len(list(CKPT.iterdir()))\n"
                 "(CKPT/f'{n}-{os.environ[\"RANK\"]}').touch(); print('attempt', n)\n"
                 "size = os.environ['WORLD_SIZE']\nif n < 2: time.sleep(60)",
                 on="slurm", tasks_per_node=2, gpu="a100:2", outputs=["n", "size"],
                 partition="gpu", extra={"reservation": "mice"})
    until(lambda: "attempt" in job.log() and (job.folder/"log.1").exists()
          and b"attempt" in (job.folder/"log.1").read_bytes())
    for pid in (slurm/"pids").read_text().split(): os.kill(int(pid), signal.SIGUSR2)
    assert job.wait(100) == "done" and job.state()["attempt"] == 2
    assert job.result()["size"] == "2" and (slurm/"asked").read_text() == "requeue incomplete 7\n"
    script = (slurm/"script").read_text()
    for line in ("gres=gpu:a100:2", "partition=gpu", "reservation=mice", "time=63",
                 "ntasks-per-node=2", "signal=USR2@90", f"job-name=mabe-{job.id}"):
        assert f"#SBATCH --{line}\n" in script
    assert "attempt" in job.log() and not (slurm/"cancelled").exists()
    until(lambda: "COMPLETED" in (slurm/"state").read_text())


def test_waiting_it_is_queued_and_can_be_cancelled(slurm):
    (slurm/"hold").touch()
    job = submit("1", on="slurm")
    assert job.status() == "queued"
    job.cancel()
    assert job.status() == "cancelled" and (slurm/"cancelled").read_text() == "7\n"


def test_a_number_in_what_a_site_prints_is_not_its_id(slurm):
    for name in ("hold", "greeting"): (slurm/name).touch()
    job = submit("1", on="slurm")
    job.cancel()
    assert (slurm/"cancelled").read_text() == "7\n"


@pytest.mark.parametrize("asked, state, ends, again", [
    ("RUNNING", "COMPLETING", 12, False), ("RUNNING", "COMPLETING", 20, True),
    ("RUNNING", "COMPLETING", 27, True), ("COMPLETING", "COMPLETING", 10, True),
    (None, "COMPLETING", 11, True), ("COMPLETING", "COMPLETING", 14, False)])
def test_preempted_at_ten_o_clock_and_who_ended_it(slurm, asked, state, ends, again):
    "It had ten seconds, or none; whoever ended it sooner than it was told cancelled it."
    (slurm/"scontrol").write_text(f"""#!/bin/bash
[ "$2" = show ] && echo 'JobId=7 JobState={state} EndTime=2026-11-30T10:00:{ends} \
PreemptTime=2026-11-30T10:00:10' || echo "$@" >> {slurm}/asked""")
    told = asked and (asked, datetime(2026, 11, 30, 10, 0, 10), datetime(2026, 11, 30, 10, 0, 20))
    assert preemption("7")[0] == state and send_again("7", True, told) is again
    assert (slurm/"asked").exists() is again


def test_submitit_is_left_as_it_was(slurm, tmp_path):
    from submitit import SlurmExecutor
    (slurm/"hold").touch()
    submit("1", on="slurm")
    assert SlurmExecutor._get_job_id_from_submission_command("job 3 of 12; job 4") == "3"
    (slurm/"refuse").touch()
    with pytest.raises(MabeError, match="'sinfo' shows"): submit("1", on="slurm")
    assert SlurmExecutor._get_job_id_from_submission_command("job 3 of 12; job 4") == "3"


@pytest.mark.parametrize("word, status", [
    ("CANCELLED by 12", "cancelled"), ("TIMEOUT", "timeout"), ("OUT_OF_MEMORY", "died"),
    ("NODE_FAIL", "died"), ("COMPLETED", "died"), ("PENDING", "queued"),
    ("RUNNING", "running"), ("SUSPENDED", "running"), ("PREEMPTED", "died")])
def test_what_slurm_says(slurm, word, status):
    (slurm/"hold").touch()
    job = submit("1", on="slurm")
    (slurm/"state").write_text(word)
    assert job.status() == status
    if status == "died": assert word in job.state()["error"]["message"]
    (slurm/"state").write_text("COMPLETED")


def test_what_slurm_refuses(slurm, mabe_home, capfd):
    (slurm/"refuse").touch()
    with pytest.raises(MabeError, match="invalid partition.*'sinfo' shows") as e:
        submit("1", on="slurm", partition="gup")
    assert "\n" not in str(e.value) and not list((mabe_home/"jobs").glob("*"))
    assert capfd.readouterr() == ("", "") # what it said stands in the sentence alone


def test_all_jobs_are_asked_for_at_once(slurm, monkeypatch):
    (slurm/"hold").touch()
    for _ in range(3): submit("1", on="slurm")
    monkeypatch.setattr(Backend, "pause", 100.0)
    Backend.answers.clear()
    (slurm/"questions").unlink(missing_ok=True)
    for _ in range(3): assert [job.status() for job in jobs()] == ["queued"] * 3
    assert len((slurm/"questions").read_text().split("\n")[:-1]) == 1


def test_a_last_word_that_is_seen_late_is_waited_for(slurm):
    (slurm/"hold").touch()
    job = submit("1", on="slurm")
    (slurm/"state").write_text("COMPLETED")
    (job.folder/"beat").touch()
    assert job.status() == "running"
    os.utime(job.folder/"beat", (1, 1))
    assert job.status() == "died"


def test_forgotten_before_it_began(slurm):
    (slurm/"hold").touch()
    job = submit("1", on="slurm")
    for name in ("state", "sacct"): (slurm/name).write_text("")
    assert job.status() == "died" and "it never began" in job.state()["error"]["message"]


def test_where_no_file_can_be_made_it_can_be_stopped(slurm):
    (slurm/"hold").touch()
    job = submit("1", on="slurm")
    (job.folder/"cancel").symlink_to("/nowhere/cancel")
    job.cancel()
    assert (slurm/"cancelled").read_text() == "7\n"


def test_a_job_whose_handle_cannot_be_written_is_stopped(slurm, mabe_home):
    text = (slurm/"sbatch").read_text()
    spoil = 'echo PENDING > state; d="$(dirname "$1")/.."; rm "$d/job.json"; mkdir "$d/job.json"'
    (slurm/"sbatch").write_text(text.replace("echo PENDING > state", spoil))
    (slurm/"hold").touch()
    with pytest.raises(MabeError, match="job.json: cannot be written"): submit("1", on="slurm")
    assert (slurm/"cancelled").read_text() == "7\n"
    assert not list((mabe_home/"jobs").glob("*"))


def test_refused_when_it_should_go_on_it_is_what_it_was(slurm):
    (slurm/"hold").touch()
    job = submit("1", on="slurm")
    job.cancel()
    (slurm/"refuse").touch()
    (slurm/"state").write_text("COMPLETED")
    with pytest.raises(MabeError, match="invalid partition"): job.resume()
    assert attach(job.id).status() == "cancelled"
    (slurm/"refuse").unlink()
    attach(job.id).resume()
    assert attach(job.id).status() == "queued"


def test_its_sender_was_killed(slurm):
    "Before it wrote the number of the job: Slurm knows its name, too."
    (slurm/"hold").touch()
    job = submit("1", on="slurm")
    write_json(job.folder/"job.json", job.spec | {"handle": {}})
    assert attach(job.id).status() == "queued"
    attach(job.id).cancel()
    assert (slurm/"cancelled").read_text() == f"-u {os.getuid()} --name mabe-{job.id}\n"
    (job.folder/"status.json").unlink()
    assert attach(job.id).state()["reason"] == "is being sent" # as Slurm knows it no more
    long_ago = {"handle": {}, "started": 1.0}
    write_json(job.folder/"job.json", job.spec | long_ago)
    assert attach(job.id).status() == "died"


def double(n): return 2 * n


def test_an_item_that_is_left_names_the_end_of_its_own_task(slurm):
    (slurm/"hold").touch()
    group = map_items(double, range(4), on="slurm", tasks=2, say=lambda words: None)
    for task, why in zip(group.tasks(), ("no memory", "no disk")):
        write_json(task.folder/"status.json", {"status": "died", "seconds": 1.0, "attempt": 1,
                   "error": {"type": "Died", "message": why, "traceback": ""}})
    assert group.rest().error.tolist() == ["no memory", "no disk"] * 2

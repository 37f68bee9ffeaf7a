"""The stand-in for Modal: the real client, user code in modal's own container.

Runs on loopback, needs no account. `tests/localcloud/matrix.sh`: on other versions.
"""
import contextlib
import io
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from grpclib import Status

modal = pytest.importorskip("modal")
from localcloud import start_thread, volumes  # noqa: E402
from localcloud.copies import Copy  # noqa: E402
from localcloud.pytest_fixture import forget_client, localcloud  # noqa: E402, F401

pytestmark = pytest.mark.cloud
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER = "3.12" if PYTHON != "3.12" else "3.11"
HAS_LOGS = hasattr(modal.FunctionCall, "logs")


def image(*packages, python=PYTHON):
    bare = modal.Image.debian_slim(python_version=python)
    return bare.uv_pip_install(*packages) if packages else bare


def functions(app, volume, mount):
    "The functions that the tests call; nested, so that they travel by value."
    plain = dict(serialized=True, image=image())

    @app.function(**plain, name="one")
    def one(): return 1

    @app.function(serialized=True, image=image("attrs"))
    def imports(names):
        import importlib
        import importlib.util
        found = {name: importlib.util.find_spec(name) is not None for name in names}
        try: importlib.import_module("yaml")
        except ModuleNotFoundError as e: return found, str(e)

    @app.function(**plain, gpu=["H100", "A100-80GB"], single_use_containers=True)
    def which():
        import os
        return os.environ["LC_GPU"], os.getpid()

    @app.function(**plain, timeout=1, retries=modal.Retries(max_retries=1,
                                                            initial_delay=0.1))
    def slow():
        import time
        print("attempt", flush=True)
        time.sleep(60)

    @app.function(**plain, retries=modal.Retries(max_retries=2, initial_delay=0.1))
    def flaky(folder):
        import pathlib
        tries = pathlib.Path(folder)/"tries"
        number = int(tries.read_text()) if tries.exists() else 0
        tries.write_text(str(number + 1))
        if number < 2: raise ValueError(number)
        return number

    @app.function(**plain, name="die")
    def die():
        import os
        print("about to die", flush=True)
        os._exit(137)

    @app.function(**plain)
    def count_up(n):
        yield from range(n)

    @app.function(**plain)
    def echo(data): return data[::-1]

    @app.function(**plain, secrets=[modal.Secret.from_dict({"HF_TOKEN": "s3"})])
    def token():
        import os
        return os.environ["HF_TOKEN"]

    @app.function(**plain)
    def produce(queue, shared):
        for i in range(3): queue.put(i)
        shared["k"] = "v"

    @app.function(**plain)
    def talk(n, pause):
        import time
        for i in range(n):
            print("line", i, flush=True)
            time.sleep(pause)

    @app.function(**plain, volumes={mount: volume}, single_use_containers=True)
    def train(n, mount):
        import os
        import pathlib
        import time
        state = pathlib.Path(mount)/"state"
        first = int(state.read_text()) if state.exists() else 0
        for i in range(first, n):
            print("step", i, flush=True)
            time.sleep(0.1)
            part = state.with_suffix(".part")
            part.write_text(str(i + 1))
            os.replace(part, state)
        volume.commit()
        return first

    @app.function(**plain, volumes={mount: volume})
    def scribble(mount):
        import pathlib
        import time
        (pathlib.Path(mount)/"draft").write_text("x")
        print("written", flush=True)
        time.sleep(60)

    @app.function(**plain, _experimental_restrict_output=True)
    def hostile():
        import pickle

        import modal._runtime.container_io_manager as manager

        class Payload:
            def __reduce__(self): return exec, ("import sys; sys.PWNED = True",)
        manager.IOContext._determine_output_format = lambda self, wanted: 1
        def forged(value, data_format): return pickle.dumps(Payload())
        manager.serialize_data_format = forged
        return 1

    return SimpleNamespace(**{name: found for name, found in locals().items()
                              if isinstance(found, modal.Function)})


@contextlib.contextmanager
def a_cloud(folder, **settings):
    with pytest.MonkeyPatch.context() as patch:
        cloud = start_thread(folder, **settings)
        for name, value in cloud.env.items(): patch.setenv(name, value)
        forget_client()
        yield cloud
        cloud.stop()
    forget_client()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with a_cloud(tmp_path_factory.mktemp("cloud")) as cloud:
        yield cloud
        assert not cloud.cloud.missing, "the client asked for RPCs that are not there"


@pytest.fixture(scope="module")
def run(cloud):
    "A running app, its functions, and the volume that lies at `run.mount`."
    app = modal.App("tests")
    volume = modal.Volume.from_name("work", create_if_missing=True, version=2)
    mount = str(cloud.cloud.root/"mnt")
    named = functions(app, volume, mount)
    with app.run(): yield SimpleNamespace(**vars(named), volume=volume, mount=mount)


@pytest.fixture(autouse=True)
def same_knobs(request):
    "Whatever a test turns is turned back."
    if "cloud" not in request.fixturenames: return (yield)
    faults = request.getfixturevalue("cloud").faults
    before = dict(vars(faults), no_capacity=set(faults.no_capacity))
    yield
    vars(faults).update(before)


def wait_for(condition, seconds=15):
    end = time.time() + seconds
    while not (found := condition()):
        assert time.time() < end, "it did not happen in time"
        time.sleep(0.03)
    return found


def printed(cloud, call):
    "Lines of a call, as the server keeps them."
    logs = cloud.cloud.calls[call.object_id].function.app.logs
    return "".join(item.data for batch in list(logs) for item in batch.items
                   if item.function_call_id == call.object_id)


def status(call): return [one.status.name for one in call.get_call_graph()]


def ended(call): return wait_for(lambda: "PENDING" not in status(call) and status(call))


# -- sessions
def test_call_returns_and_containers_stay_warm(cloud, run):
    assert run.one.remote() == 1
    before = cloud.cloud.calls_seen["ContainerHello"]
    assert run.one.remote() == 1
    assert cloud.cloud.calls_seen["ContainerHello"] == before


def test_wrong_token_is_refused(cloud):
    with pytest.raises(modal.exception.AuthError, match="bad token"):
        modal.Client.from_credentials("ak-wrong", "as-wrong").hello()


def test_loopback_only_and_blobs_behind_a_key(cloud):
    places = cloud.call(lambda: [line.server.sockets[0].getsockname()[0]
                                 for line in cloud.cloud.wire.lines])
    assert places == ["127.0.0.1"] * 2
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{cloud.cloud.blob_url}/wrong/bl-1")


def test_a_transient_failure_is_tried_again_by_the_client(cloud, run):
    cloud.faults.fail["FunctionMap"] = [Status.UNAVAILABLE] * 2
    assert run.one.remote() == 1
    assert cloud.faults.fail["FunctionMap"] == []


def test_what_is_not_there_is_counted(tmp_path):
    with a_cloud(tmp_path) as cloud:
        volume = modal.Volume.from_name("v", create_if_missing=True)
        volume.hydrate()
        with pytest.raises(Exception, match="VolumeRename"):
            modal.Volume.rename("v", "w")
        assert cloud.cloud.missing == {"VolumeRename": 1}


@pytest.mark.skipif(not hasattr(modal, "Workspace"), reason="no modal.Workspace yet")
def test_prices(cloud):
    rates = modal.Workspace.from_context().billing.rates()
    assert float(rates["gpu_t4_per_hour"]) == 0.5904


# -- images
def test_a_package_that_the_image_lacks_cannot_be_imported(run):
    found, error = run.imports.remote(["yaml", "attr", "numpy", "json"])
    assert found == {"yaml": False, "attr": True, "numpy": False, "json": True}
    assert error.startswith("No module named 'yaml'")


def test_another_python_is_refused(cloud):
    app = modal.App("other")
    function = app.function(serialized=True, image=image(python=OTHER))(lambda: 1)
    with pytest.raises(Exception, match=f"wants Python {OTHER}"):
        with app.run(): function.remote()


FROM_FILE = """
import modal
app = modal.App("from-file")
image = modal.Image.debian_slim(python_version="{python}")
image = image.add_local_python_source("helper")

volume = modal.Volume.from_name("from-file", create_if_missing=True, version=2)

@app.function(image=image, volumes={{"{mount}": volume}})
def job():
    import helper
    volume.commit()
    return helper.__file__, helper.answer()
"""


def test_source_travels_as_files(cloud, tmp_path, monkeypatch):
    (tmp_path/"helper.py").write_text("def answer(): return 42")
    (tmp_path/"from_file.py").write_text(FROM_FILE.format(
        python=PYTHON, mount=cloud.cloud.root/"from-file"))
    monkeypatch.syspath_prepend(tmp_path)
    import from_file
    with from_file.app.run(): place, answer = from_file.job.remote()
    assert answer == 42 and Path(place).is_relative_to(cloud.cloud.root/"tasks")


# -- functions
def test_gpu_fallback_options_and_usage(cloud, run):
    cloud.faults.no_capacity.add("H100")
    gpu, pid = run.which.remote()
    other, second = run.which.with_options(gpu="L40S").remote()
    assert (gpu, other) == ("A100-80GB", "L40S")
    wait_for(lambda: {"A100-80GB", "L40S"} <= {u["gpu"] for u in cloud.cloud.usage})
    assert all(0 < u["seconds"] < 60 for u in cloud.cloud.usage)
    with pytest.raises(modal.exception.InvalidError, match="A100-4GB"):
        run.which.with_options(gpu="A100-4GB").remote()
    with pytest.raises(modal.exception.InvalidError):
        run.which.with_options(gpu=["H100", "A100"]).remote()


def test_single_use_containers_are_used_once(cloud, run):
    pids = [run.which.remote()[1] for _ in range(2)]
    assert pids[0] != pids[1]
    wait_for(lambda: not [c for c in cloud.cloud.containers.values()
                          if c.function.definition.function_name == "which"], 2.5)


def test_no_capacity_waits(cloud, run):
    cloud.faults.no_capacity |= {"H100", "A100-80GB"}
    call = run.which.spawn()
    time.sleep(0.7)
    assert status(call) == ["PENDING"]
    cloud.faults.no_capacity.clear()
    assert call.get(timeout=20)[0] == "H100"


def test_retries(run, tmp_path): assert run.flaky.remote(str(tmp_path)) == 2


def test_timeout_is_of_each_attempt(cloud, run):
    call = run.slow.spawn()
    with pytest.raises(modal.exception.FunctionTimeoutError, match="timeout of 1s"):
        call.get(timeout=30)
    assert printed(cloud, call).count("attempt") == 2


def test_generator_and_big_payload(run):
    assert list(run.count_up.remote_gen(5)) == [0, 1, 2, 3, 4]
    data = os.urandom(3_000_000)
    assert run.echo.remote(data) == data[::-1]


def test_secrets_by_value_and_by_name(run):
    assert run.token.remote() == "s3"
    with pytest.raises(modal.exception.NotFoundError):
        modal.Secret.from_name("absent").hydrate()
    modal.Secret.objects.create("keys", {"A": "1"})
    assert modal.Secret.from_name("keys", required_keys=["A"]).hydrate().object_id


def test_queue_and_dict(run):
    with modal.Queue.ephemeral() as queue, modal.Dict.ephemeral() as shared:
        run.produce.remote(queue, shared)
        assert [queue.get(timeout=2) for _ in range(3)] == [0, 1, 2]
        assert shared["k"] == "v" and "k" in shared and shared.len() == 1
        assert shared.pop("k") == "v" and list(shared.keys()) == []


# -- calls
def test_call_by_id_status_and_cancel_without_reading_a_result(cloud, run):
    before = cloud.cloud.calls_seen["FunctionGetOutputs"]
    done, long = run.talk.spawn(1, 0), run.talk.spawn(1000, 0.1)
    wait_for(lambda: "line 3" in printed(cloud, long))
    again = modal.FunctionCall.from_id(long.object_id)
    assert status(again) == ["PENDING"]
    again.cancel()
    assert ended(again) == ["TERMINATED"] and ended(done) == ["SUCCESS"]
    assert cloud.cloud.calls_seen["FunctionGetOutputs"] == before


def test_a_hostile_container_reaches_only_those_who_read_results(cloud, run):
    sys.PWNED = False
    call = run.hostile.spawn()
    assert ended(call) == ["SUCCESS"] and not sys.PWNED
    call.get(timeout=10)
    assert sys.PWNED, "declared CBOR only, and still unpickled: never call get()"
    del sys.PWNED


@pytest.mark.parametrize("what", ["preempt", "crash"])
def test_interrupted_work_starts_again_from_the_volume(cloud, run, what):
    call = run.train.spawn(20, run.mount)
    wait_for(lambda: "step 8" in printed(cloud, call))
    assert cloud.call(lambda: getattr(cloud.faults, what)()) == 1
    assert call.get(timeout=30) >= 8
    run.volume.remove_file("state")


def test_a_crash_in_a_run_is_given_up(cloud, run):
    cloud.faults.crashes_allowed = 1
    call = run.die.spawn()
    with pytest.raises(modal.exception.RemoteError, match="exited with code 137"):
        call.get(timeout=30)
    assert printed(cloud, call).count("about to die") == 2


def test_a_container_that_dies_at_its_start_is_replaced(cloud, run):
    cloud.faults.crash_on_start = 1
    assert run.which.remote()[0] == "H100"


# -- volumes
def test_files_go_in_and_out(run):
    volume, blob = run.volume, os.urandom(9_000_000)
    with volume.batch_upload(force=True) as batch:
        batch.put_file(io.BytesIO(b"hello"), "/in/a.txt")
        batch.put_file(io.BytesIO(blob), "/in/b.bin")
    assert [(e.path, e.size) for e in volume.listdir("/in")] == [
        ("in/a.txt", 5), ("in/b.bin", 9_000_000)]
    assert b"".join(volume.read_file("in/b.bin")) == blob
    with pytest.raises(FileExistsError):
        with volume.batch_upload() as batch:
            batch.put_file(io.BytesIO(b"x"), "/in/a.txt")
    volume.remove_file("in", recursive=True)
    with pytest.raises(FileNotFoundError): b"".join(volume.read_file("in/a.txt"))
    with pytest.raises(Exception, match="leaves the volume"):
        b"".join(volume.read_file("../../blobs"))


def test_uncommitted_writes_are_invisible(cloud, run):
    cloud.faults.background_commit, cloud.faults.lose_uncommitted = 1e9, True
    call = run.scribble.spawn(run.mount)
    wait_for(lambda: "written" in printed(cloud, call))
    assert "draft" not in [e.path for e in run.volume.listdir("/")]
    cloud.faults.background_commit = 0.1  # now somebody commits for it
    wait_for(lambda: "draft" in [e.path for e in run.volume.listdir("/")])
    run.volume.remove_file("draft")
    call.cancel(terminate_containers=True)
    assert ended(call) == ["TERMINATED"]
    assert "draft" not in [e.path for e in run.volume.listdir("/")]


@pytest.fixture
def two(tmp_path):
    "A volume with one file, and the copies of two containers."
    volume = SimpleNamespace(folder=tmp_path/"volume")
    volume.folder.mkdir()
    (volume.folder/"f").write_text("0")
    a, b = (Copy(volume, tmp_path/name, "/m") for name in "ab")
    return volume.folder, a, b


def test_the_last_commit_of_a_file_wins(two):
    volume, a, b = two
    (a.folder/"f").write_text("from a")
    (b.folder/"f").write_text("from b!")
    (b.folder/"g").write_text("only b")
    b.commit()
    a.commit()
    assert (volume/"f").read_text() == "from a" and (volume/"g").read_text() == "only b"


def test_an_old_file_never_overwrites_a_new_one(two):
    volume, a, b = two
    (a.folder/"f").write_text("new")
    a.commit()
    b.commit()
    assert (volume/"f").read_text() == "new" and (b.folder/"f").read_text() == "0"
    b.reload()
    assert (b.folder/"f").read_text() == "new"


def test_reload_keeps_uncommitted_work_and_deletions_travel(two):
    volume, a, b = two
    (b.folder/"mine").write_text("1")
    (a.folder/"f").unlink()
    (a.folder/"empty").mkdir()
    a.commit()
    assert not (volume/"f").exists()
    b.reload()
    assert (b.folder/"mine").exists() and (b.folder/"empty").is_dir()
    assert not (b.folder/"f").exists()


def test_a_slow_disk_holds_up_nobody_else(cloud, run, monkeypatch):
    begun, over, in_time = threading.Event(), threading.Event(), []
    real = volumes.Copy.commit
    def slow(copy):
        begun.set()
        in_time.append(over.wait(20))
        real(copy)
    monkeypatch.setattr(volumes.Copy, "commit", slow)
    call = run.train.spawn(1, run.mount)
    assert begun.wait(60)
    assert run.one.remote() == 1 and run.volume.listdir("/") is not None
    over.set()
    assert ended(call) == ["SUCCESS"] and all(in_time)
    run.volume.remove_file("state")


def test_full_and_deleted_volumes(cloud):
    volume = modal.Volume.from_name("small", create_if_missing=True, version=2)
    cloud.faults.volume_bytes = 100
    with pytest.raises(Exception, match="volume is full"):
        with volume.batch_upload() as batch:
            batch.put_file(io.BytesIO(b"x" * 101), "/x")
    assert volume.listdir("/") == []
    modal.Volume.objects.delete("small")
    with pytest.raises(modal.exception.NotFoundError): volume.listdir("/")
    with pytest.raises(modal.exception.NotFoundError):
        modal.Volume.from_name("small").hydrate()


def test_symlinks_where_namespaces_are_not_allowed(tmp_path):
    with a_cloud(tmp_path/"cloud", namespaces=False):
        app = modal.App("links")
        volume = modal.Volume.from_name("v", create_if_missing=True)
        mount = str(tmp_path/"mnt")
        run = functions(app, volume, mount)
        with app.run(): assert run.train.remote(2, mount) == 0
        assert b"".join(volume.read_file("state")) == b"2"
        wait_for(lambda: not Path(mount).is_symlink())


def test_a_commit_to_a_full_volume_fails_in_the_container(cloud, run):
    cloud.faults.volume_bytes = 0
    with pytest.raises(Exception, match="volume is full"):
        run.train.remote(1, run.mount)
    assert "state" not in [e.path for e in run.volume.listdir("/")]


# -- logs
needs_logs = pytest.mark.skipif(not HAS_LOGS, reason="no call.logs before modal 1.5.3")


def lines(call):
    "Entries are whatever a pipe gave at once: only their sum is made of lines."
    return "".join(entry.message for entry in call.logs.stream(timeout=5)).splitlines()


EXPECTED = [f"line {i}" for i in range(12)]


@needs_logs
def test_logs_from_the_beginning_while_it_runs_and_after(cloud, run):
    call = run.talk.spawn(12, 0.1)
    wait_for(lambda: "line 4" in printed(cloud, call))
    assert lines(call) == EXPECTED
    assert lines(modal.FunctionCall.from_id(call.object_id)) == EXPECTED
    assert "".join(e.message for e in call.logs.fetch()).splitlines() == EXPECTED


@needs_logs
def test_a_broken_log_stream_goes_on_where_it_was(cloud, run):
    cloud.faults.break_log_streams = 3
    assert lines(run.talk.spawn(12, 0.05)) == EXPECTED
    assert cloud.faults.break_log_streams == 0


@needs_logs
def test_a_dropped_connection_loses_no_line_and_no_job(cloud, run):
    call = run.talk.spawn(12, 0.1)
    wait_for(lambda: "line 2" in printed(cloud, call))
    cloud.call(lambda: cloud.faults.drop(0.6))
    with pytest.raises(OSError): lines(call)  # not tried again by the client: read anew
    assert ended(call) == ["SUCCESS"] and lines(call) == EXPECTED


@needs_logs
def test_late_and_lost_lines(cloud, run):
    cloud.faults.log_delay = 2.0
    late = run.talk.spawn(2, 0)
    assert ended(late) == ["SUCCESS"]
    assert [e.message for e in late.logs.fetch()] == []
    time.sleep(2.0)
    assert len(list(late.logs.fetch())) >= 1
    cloud.faults.log_delay, cloud.faults.lose_logs = 0.0, True
    lost = run.talk.spawn(2, 0)
    assert ended(lost) == ["SUCCESS"] and lines(lost) == []


# -- apps
def cli(*words):
    done = subprocess.run([sys.executable, "-m", "modal", *words], capture_output=True,
                          text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_deploy_look_up_crash_for_ever_and_stop(cloud):
    app = modal.App("deployed")
    functions(app, modal.Volume.from_name("d", create_if_missing=True),
              str(cloud.cloud.root/"deployed"))
    app.deploy()
    def found(name): return modal.Function.from_name("deployed", name)
    assert found("one").remote() == 1
    cloud.faults.crashes_allowed, cloud.faults.crash_backoff = 0, 0.0
    call = found("die").spawn()
    wait_for(lambda: printed(cloud, call).count("about to die") >= 2, 30)
    cloud.faults.crash_backoff = 60.0 # or it would start again all the time from here on
    assert status(call) == ["PENDING"], "a deployed app tries again for ever"
    assert "deployed" in cli("app", "list", "--json")
    cli("app", "stop", "deployed", "--yes")
    assert ended(call) == ["TERMINATED"]
    with pytest.raises(modal.exception.NotFoundError): found("one").hydrate()


def test_somebody_deletes_the_app_and_the_volume_in_the_dashboard(cloud):
    app = modal.App("doomed")
    volume = modal.Volume.from_name("doomed", create_if_missing=True, version=2)
    mount = str(cloud.cloud.root/"doomed")
    run = functions(app, volume, mount)
    app.deploy()
    call = run.scribble.spawn(mount)
    wait_for(lambda: "written" in printed(cloud, call))
    cloud.call(lambda: cloud.faults.delete_volume("doomed"))
    with pytest.raises(modal.exception.NotFoundError): volume.listdir("/")
    assert status(call) == ["PENDING"]
    cloud.call(lambda: cloud.faults.delete_app("doomed"))
    assert ended(call) == ["TERMINATED"]
    with pytest.raises(modal.exception.Error, match="App is stopped"): run.one.spawn()


DYING_KERNEL = """
import os, sys, modal
app = modal.App("kernel")
image = modal.Image.debian_slim(python_version=sys.argv[1])
@app.function(serialized=True, image=image)
def sleep():
    import time
    time.sleep(60)
app.run().__enter__()
print(sleep.spawn().object_id, flush=True)
os._exit(0)
"""


def test_a_dead_kernel_takes_its_ephemeral_app_along(cloud):
    cloud.faults.heartbeat_timeout = 1.5
    env = {**os.environ, "MODAL_HEARTBEAT_INTERVAL": "1"}
    out = subprocess.run([sys.executable, "-c", DYING_KERNEL, PYTHON], env=env,
                         capture_output=True, text=True)
    call = cloud.cloud.calls[out.stdout.strip()]
    wait_for(lambda: call.function.app.stopped)
    assert all(one.done for one in call.inputs)
    assert not cloud.call(lambda: cloud.cloud.containers_of(call.function.app))


# -- the fixture
def test_the_fixture_gives_a_cloud(localcloud):
    assert os.environ["MODAL_SERVER_URL"] == localcloud.env["MODAL_SERVER_URL"]
    assert modal.Volume.from_name("v", create_if_missing=True).listdir("/") == []
    assert localcloud.cloud.calls_seen["VolumeListFiles2"] == 1


LEAK = """
import sys
from localcloud.pytest_fixture import localcloud
def test_leak(localcloud):
    import modal
    app = modal.App("leak")
    image = modal.Image.debian_slim(python_version=sys.version[:4].rstrip("."))
    @app.function(serialized=True, image=image)
    def sleep(): __import__("time").sleep(60)
    app.deploy()
    sleep.spawn()
"""


def test_the_fixture_fails_a_test_that_leaves_a_job(tmp_path):
    (tmp_path/"test_leak.py").write_text(LEAK)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, env=env)
    assert done.returncode == 1 and "left work in the cloud: fc-" in done.stdout

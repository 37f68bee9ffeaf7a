"""A bundle in a room without the checkout and without a network: run, killed, gone on with."""
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time

import nbformat
import pandas as pd
import psutil
import pytest
from short_recipe import short  # noqa: F401

from mabe_nb import cli
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.kaggle.bundle import FORMAT, make_bundle, open_bundle, read_manifest
from mabe_nb.train.config import make_config
from mabe_nb.kaggle.offline import (Clock, allowed_actions, at_least_one_row,
                                    predict_in_parts, requested_actions)
from mabe_nb.train.metrics import kaggle_score, submission_table
from mabe_nb.kaggle.wheel import fetch_wheels
from mabe_nb.train.ensemble.recipe import train_recipe
from mabe_nb.train.model import load_model
from mabe_nb.train.runs import train

TINY = make_config({"epochs": 8, "conv_channels": [16], "lstm_hidden": 16, "stride": 50,
                    "frame_gap": 2, "learning_rate": 0.01, "batch_size": 4, "device": "cpu"})
LAB = "AmberOtter" # Of the colony; mouse1 mounts mouse2 there

KERNEL = '''
import importlib.util, runpy, socket, sys
assert importlib.util.find_spec("mabe_nb") is None, "the checkout can be imported"
sys.path = [p for p in sys.path if p] # not the folder it runs in
connect, look_up = socket.socket.connect, socket.getaddrinfo
def near(host): return host in ("127.0.0.1", "localhost", "::1", None)
def guarded(self, address):
    if self.family != socket.AF_UNIX and not near(address[0]): raise OSError("no network")
    return connect(self, address)
def looked_up(host, *a, **k):
    if not near(host): raise OSError("no network")
    return look_up(host, *a, **k)
socket.socket.connect, socket.getaddrinfo = guarded, looked_up
sys.argv = ["ipykernel_launcher", "-f", sys.argv[1]]
runpy.run_module("ipykernel_launcher", run_name="__main__")
'''
DRIVER = '''
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], 4)
probe = "import mabe_nb, resource, socket\\nprint(mabe_nb.__file__)\\n" \\
    "try: socket.create_connection(('192.0.2.1', 80), 2)\\n" \\
    "except OSError as e: print(e)\\n" \\
    "print('limit', resource.getrlimit(resource.RLIMIT_DATA)[0] >> 30)"
book.cells.append(nbformat.v4.new_code_cell(probe))
NotebookClient(book, timeout=120, kernel_name="bare").execute()
nbformat.write(book, sys.argv[2])
'''


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    "A colony of which four videos are for testing, a run, a recipe, and a bundle."
    root = tmp_path_factory.mktemp("bundle")
    write_colony(root/"colony", videos=24, minutes=0.2, seed=1)
    data = open_dataset(root/"colony")
    ids = [v for v in data.ids[:7] if data.annotated(v)]
    train(data, root/"run", TINY, ids[:-2], ids[-2:], cache=root/"features")
    train_recipe(data, root/"blend", "quick", ids, folds=2, cache=root/"more")
    make_bundle(root/"run", root/"kit", root/"colony") # a path will do
    return root


@pytest.fixture(scope="module")
def blend(work):
    assert cli.main(["bundle", str(work/"blend"), "--out", str(work/"blend_kit"),
                     "--json"]) == 0
    return work/"blend_kit"


def bare_kernel(folder):
    "A kernel with the packages of this environment, but for this one, and no network."
    spec = folder/"jupyter"/"kernels"/"bare"
    spec.mkdir(parents=True)
    (folder/"kernel.py").write_text(KERNEL)
    (folder/"driver.py").write_text(DRIVER)
    (spec/"kernel.json").write_text(json.dumps({
        "argv": [sys.executable, "-S", "-P", str(folder/"kernel.py"), "{connection_file}"],
        "display_name": "bare", "language": "python",
        "env": {"PYTHONPATH": sysconfig.get_path("purelib")}})) # no .pth: not installed


def start(folder, kit, data, **settings):
    "Begin to run the bundle's notebook in `folder`, in a process of its own."
    folder.mkdir(exist_ok=True)
    if not (folder/"kernel.py").exists(): bare_kernel(folder)
    given = {"FOLDER": kit, "DATA": data, "MEMORY_GB": 4} | settings
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "JUPYTER_PATH": str(folder/"jupyter"), "OMP_NUM_THREADS": "1"}
    env |= {f"MABE_KIT_{k}": str(v) for k, v in given.items()}
    return subprocess.Popen(
        [sys.executable, str(folder/"driver.py"), str(kit/"predict.ipynb"),
         str(folder/"done.ipynb")], cwd=folder, env=env,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(process, folder):
    "What the notebook printed."
    out = process.communicate(timeout=120)[0]
    assert process.returncode == 0, out
    cells = nbformat.read(folder/"done.ipynb", 4).cells
    return "".join(o.get("text", "") for c in cells if c.cell_type == "code"
                   for o in c.outputs)


def in_one_go(kit, data, folder, **how):
    "Bytes of the submission of a process that nobody disturbs, and what was left out."
    table, left = predict_in_parts(open_bundle(kit), data, folder/"own_parts",
                                   say=lambda text: None, **how)
    table.to_csv(folder/"own.csv", index=False)
    return (folder/"own.csv").read_bytes(), table, left


# --- the notebook

@pytest.mark.slow
def test_killed_and_gone_on_with(work, tmp_path):
    room = tmp_path/"room"
    process = start(room, work/"kit", work/"colony")
    end = time.monotonic() + 60
    while not list(room.glob("parts/[0-9]*.json")) and time.monotonic() < end:
        time.sleep(0.005)
    family = psutil.Process(process.pid).children(recursive=True)
    for p in [*family, process]: p.kill() # SIGKILL, to the kernel first
    process.communicate()
    kept = {p: p.stat().st_mtime_ns for p in room.glob("parts/[0-9]*.json")}
    assert 0 < len(kept) < 4 and not (room/"submission.csv").exists()
    said = finished(start(room, work/"kit", work/"colony"), room)
    assert f"4 of 4 videos done, {len(kept)} of them before" in said
    assert all(p.stat().st_mtime_ns == t for p, t in kept.items())
    test = open_dataset(work/"colony", "test")
    whole, table, left = in_one_go(work/"kit", test, tmp_path)
    assert (room/"submission.csv").read_bytes() == whole and len(table) and not left
    assert "scored against itself: 1.0000" in said and "no network" in said
    assert "/own/mabe_nb/__init__.py" in said and "memory limit 4 GB" in said
    assert 4 <= int(said.split("limit ")[-1]) <= 6 # with what is reserved and untouched


@pytest.mark.slow
def test_recipe_in_a_bare_room(work, blend, tmp_path):
    said = finished(start(tmp_path/"room", blend, work/"colony"), tmp_path/"room")
    test = open_dataset(work/"colony", "test")
    whole, table, left = in_one_go(blend, test, tmp_path)
    assert (tmp_path/"room"/"submission.csv").read_bytes() == whole
    assert len(table) and not left and "scored against itself: 1.0000" in said
    kit, labs = open_bundle(blend), {v: test.lab(v) for v in test.ids}
    for row in table.itertuples():
        video = str(row.video_id)
        target = row.agent_id if row.target_id == "self" else row.target_id
        assert (row.agent_id, target, row.action) in test.whitelist(video)
        assert kit.evidence()[labs[video]][row.action] > 0


def test_nothing_but_what_is_needed(work, blend):
    wheel = "mabe_nb-0.1.0-py3-none-any.whl"
    names = lambda kit: {p.relative_to(kit).as_posix() for p in kit.rglob("*.*")
                         if p.is_file()}
    for name in ("kit", "blend_kit"): # where Kaggle shows a folder of that name
        book = nbformat.read(work/name/"predict.ipynb", 4)
        assert f'"/kaggle/input/{name}"' in book.cells[1].source
    common = {"manifest.json", "predict.ipynb", wheel}
    assert names(work/"kit") == common | {"model/best.safetensors"}
    assert names(blend) == common | {"model/recipe.json"} | {
        f"model/members/{p.name}" for p in (work/"blend"/"members").iterdir()}
    about = json.loads((blend/"manifest.json").read_text())
    assert {"torch", "numpy", "array-api-compat"} <= set(about["needs"])
    assert about["frames_per_second"] > 0 and about["peak_mb"] > 50
    assert about["hours"] > 0 and about["frames"] == 5_000_000 and about["actions"]
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--quiet", "--target"]
    done = subprocess.run([*pip, work/"pip", work/"kit"/wheel], capture_output=True)
    assert done.returncode == 0 and (work/"pip"/"mabe_nb"/"kaggle"/"bundle.py").exists()


# --- what is wrong

@pytest.mark.parametrize("kind", ["weights", "wheel", "gone", "outside", "manifest"])
def test_a_tampered_bundle_is_refused(work, tmp_path, kind):
    kit = tmp_path/"kit"
    shutil.copytree(work/"kit", kit)
    about = json.loads((kit/"manifest.json").read_text())
    name = "model/best.safetensors" if kind != "wheel" else next(kit.glob("*.whl")).name
    if kind in ("weights", "wheel"):
        raw = bytearray((kit/name).read_bytes())
        raw[-1] ^= 1
        (kit/name).write_bytes(raw)
    elif kind == "gone": (kit/name).unlink()
    elif kind == "outside": about["files"]["../x"] = name = "0" * 32
    else: about["format"] = "another"
    (tmp_path/"x").write_text("x")
    (kit/"manifest.json").write_text(json.dumps(about))
    said = {"weights": "hash", "wheel": "hash", "manifest": "version"}.get(kind, "not there")
    with pytest.raises(DataError, match=said): open_bundle(kit)


@pytest.mark.parametrize("ids", [5, {}, "1", None, [1], [["1"]]])
def test_a_manifest_that_lists_no_videos_is_refused(tmp_path, ids):
    about = {"format": FORMAT, "files": {}, "kind": "classifier", "evidence": None}
    (tmp_path/"manifest.json").write_text(json.dumps(about))
    assert read_manifest(tmp_path) == about
    (tmp_path/"manifest.json").write_text(json.dumps(about | {"learned_from": ids}))
    with pytest.raises(DataError, match="manifest.json: learned_from"): read_manifest(tmp_path)


@pytest.mark.parametrize("change", [{"evidence": {"lab": "sniff"}}, {"evidence": {"lab": ["sniff"]}},
    {"evidence": {"lab": {"sniff": -5}}}, {"evidence": {"lab": {"sniff": "0"}}}, {"files": {"a" * 5000: "x"}}])
def test_a_manifest_of_odd_values_is_refused(tmp_path, change):
    about = {"format": FORMAT, "files": {}, "kind": "classifier", "evidence": {"lab": {"sniff": 5}}}
    (tmp_path/"manifest.json").write_text(json.dumps(about))
    assert read_manifest(tmp_path) == about
    (tmp_path/"manifest.json").write_text(json.dumps(about | change))
    with pytest.raises(DataError): read_manifest(tmp_path)


def test_parts_of_another_model_or_video_are_not_taken(work, tmp_path):
    test, kit = open_dataset(work/"colony", "test"), open_bundle(work/"kit")
    calls = []

    class Counted:
        actions, evidence, learned_from = kit.actions, kit.evidence, kit.learned_from
        def __init__(self, key): self.key = key
        def predict(self, dataset, ids, **how):
            calls.extend(ids)
            return submission_table({video: [] for video in ids})

    for key, number in (("a", 4), ("a", 0), ("b", 4)):
        predict_in_parts(Counted(key), test, tmp_path, say=lambda text: None)
        assert len(calls) == number, key
        calls.clear()
    torn = next(tmp_path.glob("*.json"))
    torn.write_text(torn.read_text()[:9])
    predict_in_parts(Counted("b"), test, tmp_path, say=lambda text: None)
    assert calls == [torn.stem]


def test_videos_that_were_learned_from_are_told(work, tmp_path):
    "As `mabe predict` tells of them, of what is kept from before too; of new ones nothing."
    data, kit = open_dataset(work/"colony"), open_bundle(work/"kit")
    known = sorted(kit.learned_from)
    some, news = RecordingList([data[v] for v in data.ids[:7]]), open_dataset(work/"colony", "test")
    for videos, number in ((some, len(known)), (some, len(known)), (news, 0)):
        said = []
        table, _ = predict_in_parts(kit, videos, tmp_path, say=said.append)
        assert table.attrs["learned_from"] == known[:number]
        told = [line for line in said if "have ids of videos that the run was trained on" in line]
        assert len(told) == bool(number)
        assert all(line.startswith(f"note: {number} of 7 videos have") for line in told)


def test_a_video_that_is_unlike_the_training_is_told(work, tmp_path):
    "As `mabe predict` does, and again by who goes on with what is kept."
    test, kit = open_dataset(work/"colony", "test"), open_bundle(work/"kit")
    odd = test[test.ids[0]]
    videos = RecordingList([odd.replace(fps=4 * odd.fps), test[test.ids[1]]])
    for _ in range(2):
        said = []
        table, _ = predict_in_parts(kit, videos, tmp_path, say=said.append)
        assert "frames/s, learned at" in table.attrs["doubts"][odd.video_id][0]
        assert said[1].startswith("unlike the training videos, look before") and odd.video_id in said[1]


def test_unknown_labs_and_empty_lists(work, tmp_path):
    "What nobody knows is said; nothing crashes; the rest is as it was."
    root = tmp_path/"colony"
    shutil.copytree(work/"colony", root)
    table = pd.read_csv(root/"test.csv", dtype={"video_id": str})
    table.loc[0, "lab_id"] = "NewLab"
    listed = ["mouse1,mouse2,sniff", "mouse1,mouse2,dig"]
    table.loc[0, "behaviors_labeled"] = json.dumps(listed)
    table.loc[1, "behaviors_labeled"] = None
    old, video = root/"test_tracking"/LAB/f"{table.video_id[0]}.parquet", table.video_id[0]
    (root/"test_tracking"/"NewLab").mkdir()
    old.rename(root/"test_tracking"/"NewLab"/old.name)
    broken = next(root.glob(f"test_tracking/*/{table.video_id[2]}.parquet"))
    broken.write_bytes(b"PAR1 and no more")
    table.to_csv(root/"test.csv", index=False)
    test, kit, said = open_dataset(root, "test"), open_bundle(work/"kit"), []
    answers = requested_actions(kit, test).set_index(["lab", "action"]).answer
    assert "unknown" in answers["NewLab", "sniff"]
    assert "never learned" in answers["NewLab", "dig"]
    assert answers.str.contains("nothing is listed").sum() == 1
    got, left = predict_in_parts(kit, test, tmp_path/"parts", say=said.append)
    assert set(left) == {table.video_id[2]} and table.video_id[2] in said[0]
    assert str(table.video_id[1]) not in set(got.video_id.astype(str))
    whole = in_one_go(work/"kit", open_dataset(work/"colony", "test"), tmp_path)[1]
    same = [int(v) for v in table.video_id[3:]]
    pick = lambda t: t[t.video_id.isin(same)].drop(columns="row_id").reset_index(drop=True)
    assert pick(got).equals(pick(whole)) and video not in left


@pytest.mark.slow
def test_a_list_that_cannot_be_read_costs_one_video(work, tmp_path):
    "The notebook says so, and writes all that it would have written without that video."
    root = tmp_path/"colony"
    shutil.copytree(work/"colony", root)
    table = pd.read_csv(root/"test.csv", dtype={"video_id": str})
    table.loc[1, "behaviors_labeled"] = '["mouse1,mouse2,sniff", '
    table.to_csv(root/"test.csv", index=False)
    room, odd = tmp_path/"room", int(table.video_id[1])
    said = finished(start(room, work/"kit", root), room)
    assert f"video {odd} is left out" in said and "row 3" in said and "3 of 4 videos" in said
    whole = in_one_go(work/"kit", open_dataset(work/"colony", "test"), tmp_path)[1]
    rest = whole[whole.video_id != odd].drop(columns="row_id").reset_index(drop=True)
    got = pd.read_csv(room/"submission.csv").drop(columns="row_id")
    assert len(rest) and got.equals(rest) and odd in set(whole.video_id)
    answers = requested_actions(open_bundle(work/"kit"), open_dataset(root, "test")).answer
    assert answers.str.contains("damaged").sum() == 1
    for row in table.index: table.loc[row, "behaviors_labeled"] = "nothing, really"
    table.to_csv(root/"test.csv", index=False)
    test = open_dataset(root, "test")
    assert not len(at_least_one_row(whole[:0], open_bundle(work/"kit"), test))


def test_phantom_classes_are_kept_out(work, tmp_path):
    kit, data = open_bundle(work/"kit"), open_dataset(work/"colony")
    unseen = [(lab, a) for lab, of in kit.evidence().items() for a, n in of.items() if not n]
    assert all(a not in allowed_actions(kit, lab) for lab, a in unseen)
    ids = json.loads((work/"run"/"videos.json").read_text())
    bouts = pd.concat([data.annotations(v).assign(lab=data.lab(v))
                       for v in ids["train"] + ids["valid"]])
    frames = (bouts.stop - bouts.start).groupby([bouts.lab, bouts.action]).sum()
    assert {(lab, a): n for lab, of in kit.evidence().items() for a, n in of.items() if n
            } == frames.to_dict()
    copy = tmp_path/"kit"
    shutil.copytree(work/"kit", copy)
    test = open_dataset(work/"colony", "test")
    whole = in_one_go(work/"kit", test, tmp_path)[1]
    action, lab = whole.action[0], test.lab(whole.video_id[0])
    about = json.loads((copy/"manifest.json").read_text())
    about["evidence"][lab][action] = 0
    (copy/"manifest.json").write_text(json.dumps(about))
    less = in_one_go(copy, test, tmp_path)[1] # parts of the other bundle are not taken
    gone = (whole.action == action) & (whole.video_id.astype(str).map(test.lab) == lab)
    drop = lambda t: t.drop(columns="row_id").reset_index(drop=True)
    assert gone.any() and drop(whole[~gone]).equals(drop(less))
    blend = load_model(work/"blend")
    kept, looked = blend.evidence(), blend.evidence(data)
    assert {lab: {a for a, n in of.items() if n} for lab, of in kept.items()} == {
        lab: {a for a, n in of.items() if n} for lab, of in looked.items()}


def test_time_runs_out(work, tmp_path):
    "What is done in time is a valid submission, and the rest follows another day."
    test = open_dataset(work/"colony", "test")

    class Slow:
        model = open_bundle(work/"kit")
        key, actions, evidence = model.key, model.actions, model.evidence
        learned_from = model.learned_from
        def predict(self, dataset, ids, **how):
            if ids == [test.ids[2]]: time.sleep(120) # hangs: is broken off
            found = self.model.predict(dataset, ids, **how)
            if ids == [test.ids[1]]: # however long that took, the next are to take no time
                clock.end, clock.work = time.monotonic() + 1, 10**12
            return found

    clock, begun = Clock(), time.monotonic()
    table, left = predict_in_parts(Slow(), test, tmp_path/"parts", clock, say=lambda text: None)
    assert time.monotonic() - begun < 100
    assert set(left) == set(test.ids[2:]) and all("OutOfTime" in r for r in left.values())
    truth = table.assign(lab_id="x", behaviors_labeled=json.dumps(sorted(
        {f"{r.agent_id},{r.target_id},{r.action}" for r in table.itertuples()})))
    assert kaggle_score(truth.drop(columns="row_id"), table) == 1
    again = predict_in_parts(open_bundle(work/"kit"), test, tmp_path/"parts",
                             say=lambda text: None)[0]
    assert again.equals(in_one_go(work/"kit", test, tmp_path)[1])


@pytest.mark.slow
def test_a_video_too_large_for_the_memory(work):
    "It is left out under its own name, in a process that lives on."
    code = f'''
import numpy as np, psutil
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.recording import Recording
from mabe_nb.kaggle.bundle import open_bundle
from mabe_nb.kaggle.offline import limit_memory, predict_in_parts
kit = open_bundle({str(work/"kit")!r})
known = [("mouse1", "mouse2", a) for a in kit.actions]
make = lambda v, n: Recording(np.ones((n, 2, len(kit.parts), 2), np.float32),
                              ("mouse1", "mouse2"), tuple(kit.parts), 30.0, 16.0,
                              labelled=frozenset(known), video_id=v)
videos = RecordingList([make("short", 200), make("long", 1_000_000), make("next", 200)])
predict_in_parts(kit, RecordingList([make("first", 200)]), "parts") # loads what it needs
now = psutil.Process().memory_info() # without pages of files: a PyTorch for CUDA has many
assert limit_memory((now.rss - now.shared) / 2**30 + 0.05)
table, left = predict_in_parts(kit, videos, "parts")
assert list(left) == ["long"], left
'''
    done = subprocess.run([sys.executable, "-c", code], cwd=work, text=True,
                          capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert "long is left out" in done.stdout and "emory" in done.stdout


@pytest.mark.slow
def test_refusals(work, tmp_path, monkeypatch, capsys):
    with pytest.raises(ConfigError, match="already exists"): make_bundle(work/"run", work)
    with pytest.raises(DataError, match="not found"): make_bundle(work/"no", tmp_path/"k")
    (tmp_path/"t.json").write_text("{}")
    with pytest.raises(ConfigError, match="of its own"):
        make_bundle(work/"blend", tmp_path/"k", thresholds=tmp_path/"t.json")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ConfigError, match="needs a network"):
        fetch_wheels({"array-api-compat": "1.9", "torch": "2.9"}, tmp_path)
    assert fetch_wheels({"torch": "2.9"}, tmp_path) == []
    assert not (tmp_path/"k").exists()
    assert cli.main(["bundle", str(work/"run"), "--out", str(tmp_path/"k"), "--frames",
                     "1000"]) == 0
    said = capsys.readouterr().out
    assert "--data DATA tells it" in said and "1,000 frames in" in said
    assert open_bundle(tmp_path/"k").evidence() is None

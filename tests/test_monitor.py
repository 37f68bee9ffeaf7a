"""The GPU monitor against a stand-in for the driver's library, called by the real `pynvml`."""
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import pandas as pd
import pytest
import torch

from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.train.folder import recorder as keeper
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.fit.monitor import (Monitor, card_names, card_reader, in_words,
                                       summary)
from mabe_nb.train.runs import train

TOLD = {"utilisation": 87, "memory": 12.3, "total": 24.0, "temperature": 65, "power": 250.0}

NVML = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Busy;
static const char *NAMES[] = {"GPU-aaaa", "GPU-bbbb", "MIG-cccc"};
enum { GOOD, UNKNOWN = 6, UNSUPPORTED = 3, NO_DRIVER = 9 };
#ifdef BROKEN
int nvmlInitWithFlags(unsigned flags) { return NO_DRIVER; }
#else
int nvmlInitWithFlags(unsigned flags) { return GOOD; }
#endif
const char *nvmlErrorString(int code) { return "stub"; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **card) {
    if (i > 1) return UNKNOWN;
    *card = (void *)(long)(i + 1); return GOOD;
}
int nvmlDeviceGetHandleByUUID(const char *name, void **card) {
    for (long i = 0; i < 3; i++)
        if (!strcmp(name, NAMES[i])) { *card = (void *)(i + 1); return GOOD; }
    return UNKNOWN;
}
int nvmlDeviceGetMemoryInfo(void *card, Memory *m) {
    m->total = 24ULL << 30; m->used = (unsigned long long)(long)card << 30;
    m->free = m->total - m->used; return GOOD;
}
#define MIG(card) if ((long)card == 3) return UNSUPPORTED
int nvmlDeviceGetUtilizationRates(void *card, Busy *b) {
    MIG(card); b->gpu = 50 + (long)card; b->memory = 1; return GOOD;
}
int nvmlDeviceGetPowerUsage(void *card, unsigned *mw) { MIG(card); *mw = 250500; return GOOD; }
#ifndef NO_TEMPERATURE_FUNCTION
int nvmlDeviceGetTemperature(void *card, int sensor, unsigned *t) {
    MIG(card);
#ifdef COLD
    return UNSUPPORTED;
#endif
    *t = 60 + (long)card; return GOOD;
}
#endif
"""

ASK = """
import ctypes, json, os, sys, types
import torch
from mabe_nb.train.fit.monitor import Monitor, card_reader, in_words
true = torch.cuda.get_device_properties
for line in sys.stdin:
    library, index, visible, uuid = json.loads(line)
    if os.fork(): # PyTorch is loaded once, a library of the driver by a process of its own
        if os.wait()[1]: sys.exit(1)
        continue
    if library: ctypes.CDLL(library) # which is the one of this name from now on
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None: os.environ["CUDA_VISIBLE_DEVICES"] = visible
    torch.cuda.get_device_properties = true if not uuid else (
        lambda i: types.SimpleNamespace(uuid=uuid))
    with Monitor(card_reader(torch.device("cuda", index)), 0.01) as monitor:
        got = monitor.readings()
    print(json.dumps([got, in_words(got), monitor.thread.is_alive()]), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    "Readings, words and whether a thread is left; each time by a new process."
    root, name = tmp_path_factory.mktemp("nvml"), "libnvidia-ml.so.1"
    (root/"nvml.c").write_text(NVML)
    env = os.environ | {"LD_LIBRARY_PATH": str(root/"nowhere")}
    process = subprocess.Popen([sys.executable, "-c", ASK], env=env, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def build(flag):
        if not shutil.which("gcc"): pytest.skip("needs gcc to build a stand-in for NVML")
        if not (root/flag).exists():
            (root/flag).mkdir()
            subprocess.run(["gcc", "-shared", "-fPIC", f"-D{flag}", f"-Wl,-soname,{name}", "-o",
                            root/flag/name, root/"nvml.c"], check=True)
        return str(root/flag/name)

    def run(flag="PLAIN", index=0, visible=None, uuid=""):
        pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
        library = flag and build(flag)
        print(json.dumps([library, index, visible, uuid]), file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())

    yield run
    process.communicate(timeout=20)
    assert process.returncode == 0


needs_no_card = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a card")


@needs_no_card
def test_normal_readings(ask):
    got, words, alive = ask()
    assert got == {"utilisation": 51, "memory": 1, "total": 24, "temperature": 61,
                   "power": 250.5}
    assert words == "GPU: 51% 1.0/24.0 GiB 61 C" and not alive


@needs_no_card
@pytest.mark.parametrize("flag", ["COLD", "NO_TEMPERATURE_FUNCTION"])
def test_a_temperature_that_is_not_told_is_none(ask, flag):
    got, words, _ = ask(flag)
    assert got["temperature"] is None and got["utilisation"] == 51
    assert words == "GPU: 51% 1.0/24.0 GiB"


@needs_no_card
def test_the_second_of_two_cards(ask):
    assert ask(visible="1")[0]["utilisation"] == 52
    assert ask(visible="1,0", index=1)[0]["utilisation"] == 51
    assert ask(visible="GPU-bbbb")[0]["utilisation"] == 52


def test_the_uuid_that_torch_gives_wins_over_the_order(ask):
    assert ask(visible="0,1", uuid="bbbb")[0]["utilisation"] == 52
    assert ask(uuid="zzzz")[0] == {} # rather none than another card


def test_a_slice_of_a_card(ask):
    for how in ({"visible": "MIG-cccc"}, {"visible": "MIG-cccc", "uuid": "aaaa"},
                {"uuid": "cccc"}):
        got, words, _ = ask(**how)
        assert got == {"utilisation": None, "memory": 3, "total": 24, "temperature": None,
                       "power": None}
        assert words == "GPU: 3.0/24.0 GiB"


@needs_no_card
@pytest.mark.parametrize("how", [{"visible": ""}, {"visible": "-1"}, {"visible": "7"},
                                 {"visible": "0", "index": 1}, {"visible": "GPU-nope"}])
def test_no_such_card_is_silent(ask, how): assert ask(**how) == [{}, "", False]


@needs_no_card
@pytest.mark.parametrize("flag", ["", "BROKEN"])
def test_without_library_or_driver_it_is_silent(ask, flag):
    assert ask(flag) == [{}, "", False]


def test_without_the_package_it_is_silent(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert card_reader(torch.device("cuda", 0)) is None


def test_the_thread_looks_and_ends():
    with Monitor(lambda: TOLD, 0.005) as monitor:
        deadline = time.monotonic() + 20
        while len(monitor.seen) < 3 and time.monotonic() < deadline: time.sleep(0.005)
        assert len(monitor.seen) >= 3 and monitor.readings() == TOLD
    assert "mabe-monitor" not in {t.name for t in threading.enumerate()}


def test_a_failing_run_leaves_no_thread():
    with pytest.raises(RuntimeError, match="training"), Monitor(lambda: TOLD, 60) as monitor:
        raise RuntimeError("training")
    assert not monitor.thread.is_alive()


def test_means_and_peaks():
    hot = TOLD | {"utilisation": 97, "memory": 20.0, "temperature": 80, "power": None}
    assert summary([TOLD, hot, TOLD | {"memory": 1.0}]) == {
        "utilisation": 90.3, "memory": 20.0, "total": 24.0, "temperature": 80, "power": 250.0}


def test_readings_go_to_the_log_and_the_line_but_not_to_the_history(tmp_path, monkeypatch):
    colony = RecordingList([colony_video(k, minutes=0.2) for k in (0, 3, 6)])
    cfg = TrainConfig(epochs=2, conv_channels=[8], lstm_hidden=8, batch_size=8, device="cpu")
    lines = {"without": [], "with": []}
    for name in lines:
        train(colony, tmp_path/name, cfg, ["1", "4"], ["7"], cache=tmp_path/"cache",
              say=lines[name].append)
        monkeypatch.setattr(keeper, "card_reader", lambda device: lambda: TOLD)
        monkeypatch.setattr(keeper, "WATCHED", {"cpu"})
    logs = {name: [json.loads(line) for line in
                   (tmp_path/name/"log.jsonl").read_text().splitlines()] for name in lines}
    assert [e["gpu"] for e in logs["with"]] == [TOLD, TOLD]
    assert not any("gpu" in e for e in logs["without"])
    epochs = {name: [s for s in said if s.startswith("Epoch")] for name, said in lines.items()}
    assert len(epochs["with"]) == 2 and not any("GPU" in s for s in epochs["without"])
    assert all(s.endswith(", GPU: 87% 12.3/24.0 GiB 65 C") for s in epochs["with"])
    a, b = ((tmp_path/name/"history.csv").read_bytes() for name in lines)
    assert a == b and "gpu" not in pd.read_csv(tmp_path/"with"/"history.csv")


def test_words_of_nothing_are_nothing(): assert in_words({}) == in_words(dict.fromkeys(TOLD)) == ""


@pytest.mark.slow
@needs_no_card
def test_names_without_the_variable(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert card_names(1) == ["1"]

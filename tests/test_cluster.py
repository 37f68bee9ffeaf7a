"""Several cards: the guide's plans, recorded allocations, job scripts that really run."""
import math
import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mabe_nb.errors import ConfigError
from mabe_nb.hardware.cluster import (STRATEGIES, allocation, cards_from, compare_mixed, plan,
                                      plans, read_gpus, worth_waiting, zero_stage)
from mabe_nb.hardware.slurm import Request, fixed_script, flexible_script, shell_word

A80, A40 = ("NVIDIA A100-SXM4-80GB", 81920), ("NVIDIA A100-SXM4-40GB", 40960)
V32 = ("Tesla V100-SXM2-32GB", 32768)
few = settings(max_examples=50, deadline=None)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch): monkeypatch.setenv("MABE_HOME",
                                                        str(tmp_path/"home"))


# The guide's table: cards, effective batch, speed-up
@pytest.mark.parametrize("n,says,speed", [
    (2, "1x4x2 = 8", 1.5), (3, "1x3x3 = 9", 2.2), (4, "1x2x4 = 8", 3.2)])
def test_plans_of_the_guide(n, says, speed):
    assert str(plan(n)) == says and plan(n).speed_up == speed and plan(n).basis == "guide"


def test_all_plans():
    table = plans(single_hours=48, need={2: 27.0, 3: 21.0})
    assert table.gpus.tolist() == list(range(1, 9))
    assert table.speed_up.is_monotonic_increasing
    assert (table.efficiency <= 1).all() and set(table.zero2_gb) == {27.0}
    assert table.hours[3] == 15


@few
@given(st.integers(1, 8), st.integers(1, 4096), st.integers(1, 256))
def test_effective_batch_is_kept(n, effective, per_gpu):
    p = plan(n, effective, per_gpu)
    assert p.effective == p.gpus * p.per_gpu * p.accumulation and p.accumulation >= 1
    if effective >= n * per_gpu: assert abs(p.effective - effective) <= n * per_gpu / 2
    for other in (p.accumulation - 1, p.accumulation + 1):
        if other: assert abs(other * n * per_gpu - effective) >= abs(p.effective - effective)


# The guide's table of cards: cards, GB a card, ZeRO
@pytest.mark.parametrize("card,n,gb,zero", [
    (A80, 4, 27, 2), (A40, 4, 27, 2), (A40, 3, 27, 2), (A40, 2, 27, 2),
    (V32, 4, 21, 3)])
def test_equal_cards_of_the_guide(card, n, gb, zero):
    found = allocation(cards_from([card] * n))
    assert found.zero == zero and not found.mixed and not found.warnings
    assert found.setups is None and found.plan == plan(n)
    assert {2: 27, 3: 21}[zero] == gb


def test_mixed_cards_of_the_guide():
    found = allocation(cards_from([A80, A80, V32, V32]), speeds=[1, 1, 0.6, 0.6])
    assert found.mixed and found.zero == 3 and found.setups.speed[0] == pytest.approx(2.4)
    assert "mixed cards" in found.warnings[0] and "40% below" in found.warnings[1]
    text = str(found)
    for name, mib in (A80, V32): assert name in text
    assert "ZeRO-3" in text and "1x2x4 = 8" in text


def test_mixed_generations_of_a100():
    found = allocation(cards_from([A80, A80, A40, A40]))
    assert found.mixed and found.zero == 2
    assert found.setups.speed[0] == pytest.approx(4 * 1555 / 2039)
    assert len(found.warnings) == 2 # Still faster than the fast ones alone


def test_fast_cards_alone():
    found = allocation(cards_from([A80, A80, V32, V32]))
    assert any("leave the others out" in w for w in found.warnings)


def test_unknown_cards_carry_on():
    found = allocation(cards_from([A80, ("Radeon X", 65536)]), need=None)
    assert found.mixed and found.zero == 0 and found.setups is None
    assert any("measure it" in w for w in found.warnings)
    known = allocation(cards_from([A80, ("Radeon X", 65536)]), speeds=[2, 1])
    assert known.setups.speed.tolist() == [1.0, 1.0, 1.5]


class Nvml:
    "Recorded answers of NVML."
    def __init__(self, cards): self.cards, self.open = cards, 0

    def nvmlInit(self): self.open += 1
    def nvmlShutdown(self): self.open -= 1
    def nvmlDeviceGetCount(self): return len(self.cards)
    def nvmlDeviceGetHandleByIndex(self, i): return self.cards[i]
    def nvmlDeviceGetName(self, card): return card[0].encode()
    def nvmlDeviceGetMemoryInfo(self,
                                card): return SimpleNamespace(total=card[1] * 2**20)


def test_nvml():
    nvml = Nvml([A80, V32, ("NVIDIA H200", 143771)])
    table = read_gpus(nvml)
    assert table.card.tolist() == ["A100-80GB", "V100", "H200"] and nvml.open == 0
    assert table.memory_gb.tolist() == [80, 32, 140.4]
    nvml.nvmlDeviceGetName = None
    with pytest.raises(TypeError): read_gpus(nvml)
    assert nvml.open == 0


def test_no_driver():
    pytest.importorskip("pynvml")
    if shutil.which("nvidia-smi"): pytest.skip("this machine has a driver")
    with pytest.raises(ConfigError, match="no driver answers through NVML"): read_gpus()


@few
@example([100.0, 99.9375]) # Both are the fast ones
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_batches_by_speed_are_never_slower(speeds):
    ways = compare_mixed(cards_from([A80] * len(speeds)), speeds).speed
    assert ways[2] >= max(ways[0], ways[1]) - 1e-9


@pytest.mark.parametrize("call", [
    lambda: plan(0), lambda: plan(9), lambda: plan(2.5), lambda: plan(2, 0),
    lambda: plan(2, 8, 0), lambda: plan(math.nan), lambda: zero_stage(16),
    lambda: allocation(cards_from([])),
    lambda: compare_mixed(cards_from([A80]), [1, 2]),
    lambda: compare_mixed(cards_from([A80]), [-1])])
def test_bad_clusters(call):
    with pytest.raises(ConfigError): call()


# Job scripts
WORDS = ["python", "show.py", "--accumulate", "{accumulation}", "--zero={zero}", "a b",
         "$(id)"]
SCRIPTS = {**{str(n): lambda w, n=n: fixed_script(w, Request(gpus=n, kind="a100"))
              for n in (2, 3, 4)}, "flexible": lambda w: flexible_script(w)}
SMI = """#!/bin/bash
case "$*" in
  *query-gpu=name*) printf '%b' "${NAMES}" ;;
  *query-gpu=memory.total*) printf '%b' "${MEMORY}" ;;
  *) echo "index, name, memory.total, memory.free" ;;
esac
"""
SBATCH = """#!/bin/bash
# Reads the options of a script as Slurm does, makes the job's environment, runs it.
set -eu
grep '^#SBATCH --' "$1" > options
test "$(grep -c -- '--gres=gpu:' options)" = 1
bash "$1"
"""
TORCHRUN = "#!/bin/bash\nfor word in \"$@\"; do printf '%s\\n' \"${word}\"; done > started\n"


@pytest.fixture
def slurm(tmp_path):
    "A folder with a fake sbatch, nvidia-smi and torchrun; gives a function that submits."
    (tmp_path/"bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("nvidia-smi", SMI), ("torchrun", TORCHRUN)):
        (tmp_path/"bin"/name).write_text(text)
        (tmp_path/"bin"/name).chmod(0o755)

    def submit(script, cards=()):
        (tmp_path/"job.sh").write_text(script)
        env = {"PATH": f"{tmp_path/'bin'}:{os.environ['PATH']}",
               "NAMES": "".join(f"{n}\\n" for n, _ in cards),
               "MEMORY": "".join(f"{m}\\n" for _, m in cards)}
        done = subprocess.run(["sbatch", "job.sh"], cwd=tmp_path, env=env, text=True,
                              capture_output=True)
        return done, (tmp_path/"started").read_text().split("\n")[:-1] \
            if done.returncode == 0 else None
    return submit


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_good_bash(name):
    for words in (WORDS, WORDS[:-1]): # Shellcheck doubts that '$(id)' is meant as it is
        text = SCRIPTS[name](words)
        assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    done = subprocess.run(["shellcheck", "-"], input=text, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("n,steps", [(2, 4), (3, 3), (4, 2)])
def test_fixed_jobs_start(n, steps, slurm):
    done, words = slurm(SCRIPTS[str(n)](WORDS))
    assert done.returncode == 0, done.stderr
    assert words == ["--standalone", "--nproc-per-node", str(n), "--no-python",
                     "python",
                     "show.py", "--accumulate", str(steps), "--zero=2", "a b", "$(id)"]
    assert f"--gres=gpu:a100:{n}" in SCRIPTS[str(n)](WORDS)


@pytest.mark.parametrize("cards,n,steps,zero,mixed", [
    ([A80] * 4, 4, 2, 2, False), ([A40] * 2, 2, 4, 2, False),
    ([V32] * 4, 4, 2, 3, False),
    ([A80, A80, V32, V32], 4, 2, 3, True), ([A80, A40, A80], 3, 3, 2, True),
    ([A80], 1, 8, 2, False)])
def test_flexible_job_adapts(cards, n, steps, zero, mixed, slurm):
    "It decides as `allocation` does, and carries on with mixed cards."
    done, words = slurm(flexible_script(WORDS), cards)
    assert done.returncode == 0, done.stderr
    assert words[2] == str(n) and words[7:9] == [str(steps), f"--zero={zero}"]
    assert ("WARNING: mixed" in done.stdout) == mixed
    found = allocation(cards_from(cards))
    assert (found.plan.accumulation, found.zero, found.mixed) == (steps, zero, mixed)


def test_flexible_job_refuses_nine(slurm):
    done, _ = slurm(flexible_script(WORDS), [A80] * 9)
    assert done.returncode == 1 and "expected 1 to 8 GPUs, got 9" in done.stderr


BAD = [dict(name="x; rm -rf"), dict(name="a\n#SBATCH --uid=0"), dict(name=""),
       dict(name=None),
       dict(name="-x"), dict(partition="$(id)"), dict(account="a b"),
       dict(kind="a100:2"),
       dict(gpus=0), dict(gpus=9), dict(gpus="2"), dict(gpus=2.0), dict(hours=0),
       dict(hours=math.nan), dict(hours=1e9), dict(memory_gb=-1), dict(cpus_per_gpu=0),
       dict(logs="$(id)"), dict(logs="a b"), dict(logs=""), dict(logs="l\n#SBATCH")]


@pytest.mark.parametrize("ask", BAD)
def test_bad_values_never_reach_a_script(ask):
    for script in (fixed_script, flexible_script):
        with pytest.raises(ConfigError) as e: script(WORDS, Request(**ask))
        assert "\n" not in str(e.value)


@pytest.mark.parametrize("command", ["", [], [""], "a 'b", ["a\nb"], [3], ["x"] * 2000])
def test_bad_commands(command):
    with pytest.raises(ConfigError): fixed_script(command)


def test_flexible_job_takes_no_kind():
    with pytest.raises(ConfigError, match="leave it out"):
        flexible_script(WORDS, Request(kind="a100"))


@few
@given(st.text(st.characters(min_codepoint=32, blacklist_categories=["Cs"]),
               max_size=40))
def test_any_word_arrives_as_it_is(word):
    env = {"MABE_GPUS": "2", "MABE_ACCUMULATION": "4", "MABE_ZERO": "3"}
    out = subprocess.run(["bash", "-c", f"printf %s {shell_word(word)}"], env=env,
                         capture_output=True).stdout.decode()
    assert out == word.replace("{gpus}", "2").replace("{accumulation}", "4").replace(
        "{zero}", "3")


def default_words(slurm, capsys, n, effective, per_gpu):
    "The script that the command prints, run with fake cards: what each process is told."
    from mabe_nb import cli
    ask = ["cluster", "--slurm", str(n), "--per-gpu", str(per_gpu), "--effective",
           str(effective)]
    assert cli.main(ask) == 0
    done, words = slurm(capsys.readouterr().out, [A80] * (n if n != "flexible" else 4))
    assert done.returncode == 0, done.stderr
    args = cli.make_parser().parse_args(words[words.index("train"):])
    return int(args.set_batch_size), int(args.set_gradient_accumulation_steps)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, "flexible"])
@pytest.mark.parametrize("effective,per_gpu", [(8, 1), (64, 8)])
def test_the_default_job_trains_with_the_batch_that_it_prints(n, effective, per_gpu, slurm,
                                                              capsys):
    "By the trainer's own plan of an epoch, for every process of the team."
    import numpy as np
    import torch
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.fit.frames import Frames
    from mabe_nb.train.fit.loop import Trainer
    from mabe_nb.train.machine import Team
    from mabe_nb.train.models import make_model
    batch, steps = default_words(slurm, capsys, n, effective, per_gpu)
    cards = 4 if n == "flexible" else n
    want = plan(cards, effective, per_gpu)
    cfg = TrainConfig(batch_size=batch, gradient_accumulation_steps=steps, hidden_size=8,
                      sequence_length=10, model_type="tcn", device="cpu")
    frames = Frames(torch.zeros(5000, 4), torch.zeros(5000, 1, dtype=torch.int8),
                    np.array([5000]))
    for rank in range(cards):
        t = Trainer(make_model(cfg, 4, 2), frames, frames, np.ones(2, np.float32),
                    np.ones(2, bool), cfg, Team(rank, cards))
        whole, parts = t.plan_epoch()
        assert len(whole[0]) == want.effective
        assert [len(p) for p in parts[0]] == [per_gpu] * want.accumulation


@pytest.mark.slow
def test_two_processes_of_the_script_are_one_with_the_batch_of_its_table(tmp_path, slurm,
                                                                         capsys):
    "gloo: one process at 8 and two at 1x4x2 have the same losses."
    import numpy as np
    import pandas as pd
    import team_run
    from test_trainer import EVEN, team
    batch, steps = default_words(slurm, capsys, 2, 8, 1)
    common = dict(EVEN, epochs=1, num_workers=1, hidden_size=8, stride=40)
    team_run.run(tmp_path/"one", common | {"batch_size": 8})
    team(tmp_path, ["two", common | {"batch_size": batch, "gradient_accumulation_steps": steps}])
    one, two = (pd.read_csv(tmp_path/n/"run"/"history.csv") for n in ("one", "two"))
    assert np.allclose(one.train_loss, two.train_loss, atol=1e-5)
    assert np.allclose(one.valid_loss, two.valid_loss, atol=1e-5)


@pytest.mark.parametrize("kind,zero", [("v100", 3), ("a100", 2), (None, 2), ("t4", 3),
                                       ("a100-80gb", 2), ("mystery", 2)])
def test_stage_follows_the_kind_of_card(kind, zero):
    assert f"MABE_ZERO={zero}" in fixed_script(WORDS, Request(gpus=4, kind=kind))


def test_logs_folder_is_made_and_asked_for(slurm, tmp_path):
    done, _ = slurm(fixed_script(WORDS, Request(gpus=2, logs="logs/deep")), [A80] * 2)
    assert done.returncode == 0 and (tmp_path/"logs/deep").is_dir()
    assert "# Slurm opens its log first: mkdir -p logs before sbatch" in fixed_script(WORDS)


def test_a_node_of_small_cards_carries_on(slurm):
    t4 = ("Tesla T4", 15360)
    found = allocation(cards_from([t4] * 2))
    assert found.zero == 3 and "too small" in found.warnings[0] and found.plan == plan(2)
    done, words = slurm(flexible_script(WORDS), [t4] * 2)
    assert done.returncode == 0 and words[8] == "--zero=3"


def test_strategies_of_the_guide():
    names = [(s.gpus, s.gres) for s in STRATEGIES]
    assert names == [(2, "gpu:a100:2"), (3, "gpu:a100:3"), (4, "gpu:a100:4"), (4, "gpu:4")]
    assert worth_waiting(48, 2, 4) == pytest.approx(17) and worth_waiting(48, 4, 4) == 0

"""Train under torchrun: python -m torch.distributed.run ... tests/team_run.py RUNS

RUNS is a JSON list of [folder, settings, steps], trained one after the other; with numbers
of steps each process is told to stop after its own. A run that is there goes on. Each leaves
the history that it saw, as history-RANK.json.
"""
import json
import os
import signal
import sys
from pathlib import Path

import torch

from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.runs import train

torch.set_num_threads(1)
take_step, fit = Trainer.take_step, Trainer.fit
RANK = int(os.environ.get("RANK", 0))


def run(out, settings, stop_after=()):
    "A run in `out`; what is there already goes on."
    colony = RecordingList([colony_video(k, minutes=0.3) for k in (0, 3, 6, 9)])
    steps, last = 0, dict(enumerate(stop_after)).get(RANK)

    def counted(*words):
        nonlocal steps
        steps += 1
        if steps == last: os.kill(os.getpid(), signal.SIGTERM)
        return take_step(*words)

    def kept(trainer):
        history = fit(trainer)
        (out/f"history-{RANK}.json").write_text(json.dumps(history))
        return history

    Trainer.take_step, Trainer.fit = counted, kept
    try:
        return train(colony, out/"run", TrainConfig(**settings), ["1", "4", "7"], ["10"],
                     cache=out/"cache", resume=(out/"run").exists())
    except KeyboardInterrupt: print("stopped")
    finally: Trainer.take_step, Trainer.fit = take_step, fit


if __name__ == "__main__":
    for out, *about in json.loads(sys.argv[1]): run(Path(out), *about)

"""Train under torchrun: python -m torch.distributed.run ... tests/team_run.py OUT SETTINGS

With a third word, a number of steps, every process is told to stop after those. A run
that is there already goes on."""
import json
import os
import signal
import sys
from pathlib import Path

import torch

from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.train.fit.loop import Trainer
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.runs import train

torch.set_num_threads(1)
out, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
colony = RecordingList([colony_video(k, minutes=0.3) for k in (0, 3, 6, 9)])
take_step, steps = Trainer.take_step, [0]


def counted(*words):
    steps[0] += 1
    if steps[0] == int(sys.argv[3]): os.kill(os.getpid(), signal.SIGTERM)
    return take_step(*words)


if len(sys.argv) > 3: Trainer.take_step = counted
try:
    train(colony, out/"run", TrainConfig(**settings), ["1", "4", "7"], ["10"],
          cache=out/"cache", resume=(out/"run").exists())
except KeyboardInterrupt: print("stopped")

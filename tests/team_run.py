"""Train under torchrun: python -m torch.distributed.run ... tests/team_run.py OUT SETTINGS"""
import json
import sys
from pathlib import Path

import torch

from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.synthetic import colony_video
from mabe_nb.train.config import TrainConfig
from mabe_nb.train.runs import train

torch.set_num_threads(1)
out, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
colony = RecordingList([colony_video(k, minutes=0.3) for k in (0, 3, 6, 9)])
train(colony, out/"run", TrainConfig(**settings), ["1", "4", "7"], ["10"], cache=out/"cache")

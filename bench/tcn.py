"""A training step of the `TCN` as one writes it first, and as it is here, on one core.

    OMP_NUM_THREADS=1 python bench/tcn.py --json F

Forward and backward of 16 windows of 256 frames and 292 channels, width 64, six layers,
dropout 0.3; processor time, rounds in turn, medians of the paired ratios.
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from mabe_nb.train.arithmetic.dropout import ByteDropout
from mabe_nb.train.models import TCN

WINDOWS, FRAMES, CHANNELS, CLASSES, WIDTH, LAYERS, SHARE = 16, 256, 292, 8, 64, 6, 0.3


class Layer(nn.Module):
    "A dilated layer by `nn.Conv1d`, which wants the frames of a channel side by side."

    def __init__(self, dilation, dropout):
        super().__init__()
        self.wide = nn.Conv1d(WIDTH, WIDTH, 3, padding=dilation, dilation=dilation)
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Conv1d(WIDTH, WIDTH, 1)
        self.dropout = dropout(SHARE)

    def forward(self, x):
        new = F.gelu(self.norm(self.wide(x).transpose(1, 2)).transpose(1, 2))
        return x + self.dropout(self.mix(new))


class ByConv(nn.Module):
    "The network of such layers."

    def __init__(self, dropout):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(CHANNELS, WIDTH, 1), nn.GELU(), dropout(SHARE),
            *[Layer(2**i, dropout) for i in range(LAYERS)], nn.Conv1d(WIDTH, CLASSES, 1))

    def forward(self, x): return self.net(x.transpose(1, 2)).transpose(1, 2)


p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--rounds", type=int, default=15)
p.add_argument("--json")
args = p.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
nets = {"Conv1d and Dropout": ByConv(nn.Dropout), "Conv1d, dropout by bytes":
        ByConv(ByteDropout), "ours": TCN(CHANNELS, CLASSES, WIDTH, LAYERS, SHARE)}
x = torch.randn(WINDOWS, FRAMES, CHANNELS)
y = torch.randint(0, CLASSES, (WINDOWS * FRAMES,))
took = {name: [] for name in nets}
for _ in range(args.rounds + 2):
    for name, net in nets.items():
        begun = time.process_time()
        F.cross_entropy(net(x).flatten(0, 1), y).backward()
        took[name].append(time.process_time() - begun)
took = {name: np.array(some[2:]) for name, some in took.items()}
rows = [{"variant": name, "ms": round(float(np.median(some)) * 1e3, 1), "ours is": round(
    float(np.median(some / took["ours"])), 2)} for name, some in took.items()]
for row in rows: print(f"{row['variant']:26}{row['ms']:8.1f} ms {row['ours is']:6.2f}x")
if args.json: Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")

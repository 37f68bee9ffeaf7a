"nbs/images/ethogram.png, the README's picture, from what `make demo` left in demo/."
import sys
from pathlib import Path

import pandas as pd

from mabe_nb.data.dataset import open_dataset
from mabe_nb.files import read_json
from mabe_nb.view.demo import plot_predicted

TOP = Path(__file__).resolve().parents[1]
demo = Path(sys.argv[1] if len(sys.argv) > 1 else TOP/"demo")
judged = read_json(demo/"run"/"metrics.json")["valid_videos"]
figure, _ = plot_predicted(open_dataset(demo/"colony"), pd.read_csv(demo/"submission.csv"), judged)
figure.savefig(TOP/"nbs"/"images"/"ethogram.png", dpi=110, facecolor="white",
               metadata={"Software": None})

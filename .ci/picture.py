"nbs/images/ethogram.png, the README's picture, from what `make demo` left in demo/."
import sys
from pathlib import Path

import pandas as pd

from mabe_nb.data.dataset import open_dataset
from mabe_nb.files import read_json
from mabe_nb.data.recording import of_pair, submitted_bouts
from mabe_nb.view.demo import most_eventful_pair
from mabe_nb.view.plots import plot_ethogram

TOP = Path(__file__).resolve().parents[1]
demo = Path(sys.argv[1] if len(sys.argv) > 1 else TOP/"demo")
colony = open_dataset(demo/"colony")
judged = read_json(demo/"run"/"metrics.json")["valid_videos"]
video, agent, target = most_eventful_pair(colony, judged)
predicted = submitted_bouts(pd.read_csv(demo/"submission.csv"), video)
figure, _ = plot_ethogram({"seen": of_pair(colony.annotations(video), agent, target),
                           "predicted": of_pair(predicted, agent, target)},
                          colony[video].fps)
figure.savefig(TOP/"nbs"/"images"/"ethogram.png", dpi=110, facecolor="white",
               metadata={"Software": None})

"""Poses in, behaviour out, on the GPU that earns its price: `import mabe_nb as mb`.

    data = mb.open_dataset(mb.write_colony("colony"))   # or your own folder
    train, valid = mb.split(data)
    model = mb.fit(data, "run", train_videos=train, valid_videos=valid)
    bouts = model.predict(data, valid)
    mb.score(data, bouts, valid)

Each name is imported when it is first asked for; `help(mb.fit)` tells more of one.
"""
import os

__version__ = "0.1.0"

# Threads of PyTorch that wait for each other hold their cores, 30 ms long unless told
# otherwise; beside another program training then takes many times as long. Read when
# PyTorch is first imported. `bench/neighbour.py` has figures.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

VERBS = { # Name -> module, or module and the name that it has there
    "write_colony": "data.synthetic", "open_dataset": "data.dataset",
    "read_poses": "data.poses", "read_boris": "data.annotations",
    "with_bouts": "data.annotations", "submitted_bouts": "data.recording",
    "write_kaggle": "data.kaggle", "audit": "data.audit", "split": "verbs",
    "prepare": "data.cache.prepare", "TrainConfig": "train.config", "fit": "verbs",
    "load_model": "train.model", "score": "verbs", "best_thresholds": "verbs",
    "kaggle_score": "train.metrics", "solution_table": "train.metrics", "diagnose": "kaggle.doctor",
    "fix_submission": "kaggle.doctor", "bundle": "kaggle.bundle:make_bundle",
    "sweep": "measure.sweep", "compare": "measure.compare", "submit": "remote.job",
    "gpu": "remote.notebook.decorator", "jobs": "remote.job", "attach": "remote.groups.group", "map": "remote.groups.map",
    "groups": "remote.groups.group", "map_prepare": "videos", "map_predict": "videos",
    "map_train": "recipe_items",
    "plots": "view.plots:", "analyse": "analysis.analyse", "agreement": "analysis.agreement",
    "write_clips": "analysis.clips",
    "review": "view.video.review", "retrain": "train.review.retrain",
    "with_corrections": "data.corrections",
    "plot_predicted": "view.demo", "MabeError": "errors"}
__all__ = [name for name in VERBS if name != "map"] # `import *` leaves Python's own


def __getattr__(name):
    if name not in VERBS: raise AttributeError(f"module 'mabe_nb' has no attribute {name!r}")
    from importlib import import_module
    place, colon, own = VERBS[name].partition(":")
    found = import_module(f"mabe_nb.{place}")
    if own or not colon: found = getattr(found, own or name)
    from mabe_nb.arguments import checks_arguments, with_parameters
    if isinstance(found, type(__getattr__)): # A function, as users call it
        found = checks_arguments(with_parameters(found))
        found.__module__, found.__qualname__ = __name__, name # Where pickle finds it
    globals()[name] = found
    return found


def __dir__(): return sorted({*globals(), *VERBS})


def load_ipython_extension(shell):
    "What `%load_ext mabe_nb` calls."
    from mabe_nb.remote.notebook.magic import load_ipython_extension as load
    load(shell)

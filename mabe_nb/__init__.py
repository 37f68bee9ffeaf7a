import os

__version__ = "0.1.0"

# Threads of PyTorch that wait for each other hold their cores, 30 ms long unless told
# otherwise; beside another program training then takes many times as long. Read when
# PyTorch is first imported. `bench/neighbour.py` has figures.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def load_ipython_extension(shell):
    "What `%load_ext mabe_nb` calls."
    from mabe_nb.remote.notebook.magic import load_ipython_extension as load
    load(shell)

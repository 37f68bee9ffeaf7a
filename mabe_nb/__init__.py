__version__ = "0.1.0"


def load_ipython_extension(shell):
    "What `%load_ext mabe_nb` calls."
    from mabe_nb.remote.magic import load_ipython_extension as load
    load(shell)

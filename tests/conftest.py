"""What the tests import stays to the end: no search for garbage while it comes, or in it later.

What they prepare and send lies in a folder of their own, not in the home of who runs them.
"""
import gc
import os
import signal
import tempfile


def pytest_configure(config):
    if hasattr(config, "workerinput"): return # Those of xdist share one
    own = tempfile.TemporaryDirectory(prefix="mabe-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(own.cleanup)
    os.environ["MABE_HOME"] = own.name


def pytest_sessionstart(session):
    "Who tells the tests to end lets them end what they began."
    def end(number, frame):
        session.shouldstop = "told to end"
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, end)


def pytest_collectstart(): gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()

"What the tests import stays to the end: no search for garbage while it comes, or in it later."
import gc


def pytest_collectstart(): gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()

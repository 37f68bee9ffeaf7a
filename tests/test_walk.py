"The walk notes each function once, in the order of first calls, in every thread."
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/".ci"))
import walk

FILES = {"__init__": "", "a": """
from .b import add, Box
def run():
    add(1, 2)
    box = Box()
    add(3, 4)
    return box.size, [f(1) for f in [lambda x: x]]
def threaded():
    from threading import Thread
    thread = Thread(target=run)
    thread.start()
    thread.join()
""", "b": """
def add(x, y): return helper(x) + y
def helper(x): return x
class Box:
    @property
    def size(self): return 1
"""}


def walked(tmp_path, monkeypatch, name, call, **how):
    "The walk of one function of the small package, imported while it is watched."
    folder = tmp_path/name
    folder.mkdir()
    for file, text in FILES.items(): (folder/f"{file}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(walk, "PACKAGE", str(folder) + "/")
    with walk.Walk(**how) as found: getattr(import_module(f"{name}.a"), call)()
    assert sys.getprofile() is None
    return found


def test_functions_in_order_of_first_calls(tmp_path, monkeypatch):
    found = walked(tmp_path, monkeypatch, "walk_one", "run")
    assert found.order == [("a.py", "run"), ("b.py", "add"), ("b.py", "helper"),
                           ("b.py", "Box.size")]
    assert found.figures == {"functions": 4, "files": 2, "changes of file": 1}


def test_threads_are_watched_too(tmp_path, monkeypatch):
    found = walked(tmp_path, monkeypatch, "walk_two", "threaded")
    assert found.order[0] == ("a.py", "threaded")
    assert ("b.py", "Box.size") in found.order


def test_all_counts_what_no_def_defines(tmp_path, monkeypatch):
    names = [n for _, n in walked(tmp_path, monkeypatch, "walk_all", "run",
                                  everything=True).order]
    assert {"<module>", "Box", "run.<locals>.<lambda>"} < set(names)

"""The `sitecustomize` of a container: what its image lacks cannot be imported.

`hidden.txt` beside it names the modules. They are absent for `find_spec` too, which
many packages use to look for optional ones. A module of the app's own source is fine.
"""
import os
import sys
from pathlib import Path

ROOT = os.environ.get("LC_ROOT", "")
HIDDEN = set((Path(__file__).parent/"hidden.txt").read_text().split())


def hidden(name): return name.partition(".")[0] in HIDDEN


class Gate:
    "A finder that does not see hidden modules outside the app's source."
    def __init__(self, finder): self.finder = finder

    def __getattr__(self, name): return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        spec = self.finder.find_spec(name, path, target)
        if spec is None or not hidden(name): return spec
        places = [spec.origin or "", *(spec.submodule_search_locations or ())]
        ours = any(str(place).startswith(ROOT + os.sep) for place in places)
        return spec if ours else None


class Explain:
    "The last finder: tells an import, but not a mere question, why it fails."
    def find_spec(self, name, path=None, target=None):
        asker = sys._getframe(2).f_code.co_name  # above us: _find_spec, then who asked
        if hidden(name) and asker.startswith("_find_and_load"):
            raise ModuleNotFoundError(
                f"No module named {name!r} (localcloud: installed here, but not in "
                "this modal.Image)", name=name)


sys.meta_path[:] = [*map(Gate, sys.meta_path), Explain()]

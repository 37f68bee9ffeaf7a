"""Write `mabe_nb/__init__.pyi`: what editors and type checkers know of the verbs.

`mabe_nb/__init__.py` imports each verb when it is first asked for, which no tool that only
reads can follow. What a verb gives is `Any` where its class gets methods by `patch`.
"""
import ast
import inspect
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
HEAD = '''"""The verbs, for editors and type checkers: made from the sources by .ci/stub.py."""
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

__version__: str
VERBS: dict[str, str]
__all__: list[str]

def load_ipython_extension(shell: object) -> None: ...
'''
KNOWN = {"str", "int", "float", "bool", "dict", "list", "tuple", "object", "Any", "Path",
         "Callable", "Iterable", "pd"}


def plain(annotation):
    "An annotation that the stub can name, else `Any`; None if there is none."
    if annotation is None: return None
    names = {n.id for n in ast.walk(annotation) if isinstance(n, ast.Name)}
    return annotation if names <= KNOWN else ast.Name("Any")


def declared(name, function):
    "A function's head, its defaults left out."
    made = ast.parse(inspect.getsource(function)).body[0]
    args = made.args
    for arg in (*args.args, *args.kwonlyargs, args.kwarg):
        if arg: arg.annotation = plain(arg.annotation)
    args.defaults = [ast.Constant(...) for _ in args.defaults]
    gives = ast.unparse(plain(made.returns) or ast.Name("Any"))
    return f"def {name}({ast.unparse(args)}) -> {gives}: ..."


def stub():
    "The text of the file."
    sys.path.insert(0, str(TOP))
    import mabe_nb
    lines = []
    for name, place in mabe_nb.VERBS.items():
        module, colon, own = place.partition(":")
        verb, (room, _, last) = getattr(mabe_nb, name), module.rpartition(".")
        if inspect.isfunction(verb): lines.append(declared(name, verb))
        elif colon and not own: lines.append(f"from mabe_nb.{room} import {last} as {name}")
        else: lines.append(f"from mabe_nb.{module} import {own or name} as {name}")
    return "\n".join([HEAD, *lines]) + "\n"


if __name__ == "__main__": (TOP/"mabe_nb"/"__init__.pyi").write_text(stub(), encoding="utf-8")

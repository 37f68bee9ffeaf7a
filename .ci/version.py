"""Do all files name one version? `python .ci/version.py v0.1.0` asks the tag too.

A tag also wants a date in CHANGELOG.md instead of `not released`.
"""
import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PLACES = {"settings.ini": r"^version = (.+)$",
          "mabe_nb/__init__.py": r'^__version__ = "(.+)"',
          "CITATION.cff": r"^version: (.+)$", "CHANGELOG.md": r"^## \[(.+?)\]"}


def versions(top=TOP):
    "Version by file, None where there is none."
    found = {}
    for name, pattern in PLACES.items():
        m = re.search(pattern, (Path(top)/name).read_text(encoding="utf-8"), re.M)
        found[name] = m and m[1]
    return found


def faults(tag="", top=TOP):
    "What does not agree, a line each."
    found = versions(top)
    wanted = tag.removeprefix("v") or found["settings.ini"]
    lines = [f"{name} names version {v}, expected {wanted}"
             for name, v in found.items() if v != wanted]
    words = (Path(top)/"CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.search(rf"^## \[{re.escape(wanted)}\] - \d{{4}}-\d\d-\d\d$", words, re.M)
    if tag and not dated: lines.append(f"CHANGELOG.md has no date for {wanted}")
    return lines


if __name__ == "__main__":
    print(*(found := faults(*sys.argv[1:2])), sep="\n")
    sys.exit(bool(found))

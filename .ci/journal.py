"""What became of each test or notebook, written as it happens: a line of JSON each.

So it is known what had failed, what was running and what never ran even when the tool
itself was stopped. `python .ci/journal.py FILE ...` is `python -m pytest ...` with a
journal; `.ci/each_notebook.py` writes the same lines.
"""
import json
import os
import sys
from collections import Counter
from pathlib import Path

STATES = ("failed", "skipped", "passed", "started") # The first that was noted counts


def note(path, **row):
    "Add a line; lines of several processes do not mix."
    with open(path, "a", encoding="utf-8") as f: f.write(json.dumps(row) + "\n")


def rows(path):
    "The lines of a journal; one that was cut off is passed over."
    if not Path(path).exists(): return
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try: yield json.loads(line)
        except ValueError: continue


class Journal:
    "What a journal says, by now."

    def __init__(self, path):
        self.reasons, self.seconds, noted, planned = {}, Counter(), {}, []
        for row in rows(path):
            if "planned" in row: planned = row["planned"]
            else: noted.setdefault(row["name"], set()).add(row["state"])
            if row.get("seconds"): self.seconds[row["name"]] += row["seconds"]
            if row.get("why"): self.reasons.setdefault(row["name"], row["why"])
        states = {name: next(s for s in STATES if s in seen)
                  for name, seen in noted.items()}
        self.failed, self.skipped, self.passed, self.running = (
            [n for n, state in states.items() if state == s] for s in STATES)
        self.never = [name for name in planned if name not in states]

    def slowest(self, most=12):
        "What took longest, and all of a file together, in lines."
        files = Counter()
        for name, took in self.seconds.items(): files[name.partition("::")[0]] += took
        for found in (files, self.seconds):
            if len(found) > 1: yield "slowest: " + ", ".join(
                f"{name} {took:.0f} s" for name, took in found.most_common(most))
            if found == self.seconds: break # notebooks: every file is one

    def told(self):
        "What was cut off, in lines: failures with their reasons, the rest by file."
        for name in self.failed:
            yield f"  failed: {name}"
            yield self.reasons.get(name, "")[-3000:]
        yield from (f"  was running: {name}" for name in self.running)
        by_file = Counter(name.partition("::")[0] for name in self.never)
        for file, count in by_file.items():
            tests = f" ({count} tests)" if ".py" in file else ""
            yield f"  never ran: {file}{tests}"


class Notes:
    "Hooks of pytest; under xdist the first process hears of everything."

    def __init__(self, path): self.path, self.planned = path, False

    def pytest_configure(self, config):
        if config.pluginmanager.hasplugin("xdist"):
            config.pluginmanager.register(NotesOfWorkers(self))

    def plan(self, names):
        if names and not self.planned: note(self.path, planned=list(names))
        self.planned = self.planned or bool(names)

    def pytest_collection_finish(self, session):
        self.plan([item.nodeid for item in session.items])

    def pytest_runtest_logstart(self, nodeid):
        note(self.path, name=nodeid, state="started")

    def pytest_runtest_logreport(self, report):
        if report.passed and report.when != "teardown":
            return note(self.path, name=report.nodeid, state="started",
                        seconds=round(report.duration, 2))
        note(self.path, name=report.nodeid, state=report.outcome,
             why=report.longreprtext if report.failed else "")

    def pytest_collectreport(self, report):
        if report.failed:
            note(self.path, name=report.nodeid or "collection", state="failed",
                 why=report.longreprtext)


class NotesOfWorkers:
    "What the processes of xdist have collected: a hook that only xdist knows."

    def __init__(self, notes): self.notes = notes

    def pytest_xdist_node_collection_finished(self, node, ids): self.notes.plan(ids)


def main(path, *how):
    import pytest
    sys.path[0] = os.getcwd() # As `python -m pytest` has it
    return pytest.main([*how], plugins=[Notes(path)])


if __name__ == "__main__": sys.exit(main(*sys.argv[1:]))

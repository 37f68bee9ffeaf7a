"""Signals to a container's whole process group."""
import contextlib
import os


def send_signal(process, number):
    "To the process and its children; a dead process is fine."
    if process is None: return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)

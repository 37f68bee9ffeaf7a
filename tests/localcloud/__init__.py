"""localcloud: a loopback stand-in for Modal's control plane.

The real `modal` client talks to it over gRPC; user code runs for real, in a subprocess,
through modal's own container entry point. No GPU, no image, no isolation: a test
double, never a sandbox. Start with README.md, then `faults.py`.
"""
from .faults import Faults
from .server import LocalCloud
from .thread import start_thread

__all__ = ["Faults", "LocalCloud", "start_thread"]

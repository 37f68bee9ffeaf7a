"""Every way in which this cloud can misbehave, in one place.

Set a knob from any thread; run a method on the server's loop:
`cloud.call(lambda: cloud.faults.preempt())`.
"""
from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .process import send_signal

if TYPE_CHECKING:
    from .server import LocalCloud


@dataclass
class Faults:
    cloud: LocalCloud = field(repr=False)
    # RPC name, or "container/" + name -> statuses that its next calls answer with
    fail: dict = field(default_factory=lambda: defaultdict(list))
    no_capacity: set = field(default_factory=set)  # GPU names that cannot be had now
    start_delay: float = 0.0  # s a container stays queued
    idle_seconds: float = 3.0  # s a container waits for more inputs
    heartbeat_timeout: float = 60.0  # s before a silent client's app is stopped
    background_commit: float = 5.0  # s between commits nobody asked for
    volume_bytes: int | None = None  # a volume is full beyond this
    lose_uncommitted: bool = False  # a killed container publishes nothing more
    crash_on_start: int = 0  # so many containers die before they work
    # of one input in a run; a deployed app tries again for ever, as Modal's guide says
    crashes_allowed: int = 2
    crash_backoff: float = 0.2  # s before a crashed input starts again
    graph_delay: float = 0.0  # s by which the call graph is late; asked for, it is kept
    lose_graphs: bool = False  # calls of which Modal keeps no graph (any more)
    log_delay: float = 0.0  # s by which lines arrive late
    lose_logs: bool = False  # lines never arrive
    break_log_streams: int = 0  # so many streams break after one batch

    def _working(self, task_id):
        return [c for c in self.cloud.containers.values()
                if task_id in (None, c.id) and c.input and c.process
                and c.process.returncode is None]

    def preempt(self, task_id=None, grace=5.0):
        "SIGINT, `grace` s, SIGKILL; the input starts again. Returns how many were hit."
        hit = self._working(task_id)
        for container in hit: self.cloud.preempted(container, grace)
        return len(hit)

    def crash(self, task_id=None):
        "SIGKILL, as when memory runs out. Returns how many were hit."
        hit = self._working(task_id)
        for container in hit: send_signal(container.process, signal.SIGKILL)
        return len(hit)

    def drop(self, seconds):
        "Cut every connection of clients, and refuse new ones for `seconds`."
        asyncio.ensure_future(self.cloud.wire.drop(seconds))

    def delete_app(self, name):
        "As somebody who stops it in the dashboard."
        asyncio.ensure_future(self.cloud.stop_app(self.cloud.deployed[name]))

    def delete_volume(self, name):
        "As somebody who deletes it in the dashboard."
        self.cloud.delete_volume(self.cloud.named["vo", name])

"""What a container uses, for its bill, and its end if it goes beyond its memory.

Looked at twice a second: the processes below it, their processor time and resident memory.
A processor is not throttled here; what was used beyond the limit is not billed, as it would
not have been had there.
"""
import asyncio
import contextlib
import signal
import time

import psutil

from .billing import Resources
from .process import send_signal

EVERY = 0.5 # s


class Meter:
    "Core and GiB seconds on the bill of one container."
    def __init__(self, size: Resources):
        self.size, self.cpu_of = size, {}
        self.begun = self.last = time.time()
        self.most_gib = self.core_seconds = self.gib_seconds = 0.0

    def look(self, process) -> bool:
        "Count the time since the last look; is it to be killed?"
        before, gib = sum(self.cpu_of.values()), 0.0
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(process.pid)
            for one in [top, *top.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    times, gib = one.cpu_times(), gib + one.memory_info().rss / 2**30
                    self.cpu_of[one.pid] = times.user + times.system
        spent, self.last = time.time() - self.last, time.time()
        cores = (sum(self.cpu_of.values()) - before) / max(spent, 1e-3)
        cpu, memory = self.size.billed(max(cores, 0.0), gib)
        self.core_seconds += cpu * spent
        self.gib_seconds += memory * spent
        self.most_gib = max(self.most_gib, gib)
        return self.size.used(cores, gib)[2]

    def billed(self) -> tuple: # Cores, GiB: means over its life
        seconds = max(self.last - self.begun, 1e-3)
        if not self.core_seconds: return self.size.billed(0, 0)
        return self.core_seconds / seconds, self.gib_seconds / seconds


async def watch(container):
    "Until the container ends."
    while True:
        await asyncio.sleep(EVERY)
        if not await asyncio.to_thread(container.meter.look, container.process): continue
        container.note("localcloud: out of memory")
        send_signal(container.process, signal.SIGKILL)

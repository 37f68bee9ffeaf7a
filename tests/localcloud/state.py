"""What the cloud remembers: apps, functions, calls, inputs and containers."""
from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

from .meter import Meter
from .tolerant import pb


class Bell:
    "Wakes everybody who waits. There is no gap between looking and waiting: one loop."
    def __init__(self): self._event = asyncio.Event()

    def ring(self):
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds):
        "Until the next ring, or `seconds` have passed."
        event = self._event
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(event.wait(), max(0.01, seconds))


@dataclass
class App:
    id: str
    name: str
    state: int
    functions: dict = field(default_factory=dict)  # name in the app -> function id
    logs: list = field(default_factory=list)  # TaskLogsBatch, oldest first
    bell: Bell = field(default_factory=Bell)
    created: float = field(default_factory=time.time)
    stopped: float = 0.0
    closing: bool = False

    def log(self, *, task_id="", function_id="", app_done=False, **item):
        "Append one batch; its place in the list is its entry id."
        now = dict(timestamp=time.time(), timestamp_ns=time.time_ns())
        self.logs.append(pb.TaskLogsBatch(
            entry_id=f"{len(self.logs) + 1}-0", task_id=task_id,
            function_id=function_id, app_done=app_done,
            items=[pb.TaskLogs(**now, **item)] if item else []))
        self.bell.ring()

    def note(self, text, **where):
        "A line of the system, as Modal's own notes in a log."
        self.log(data=text + "\n", file_descriptor=pb.FILE_DESCRIPTOR_INFO, **where)


@dataclass
class Function:
    id: str
    app: App
    definition: pb.Function
    ranked: list  # one definition per GPU of the list
    base: str = ""  # what with_options varies
    queue: list = field(default_factory=list)  # inputs that wait
    bell: Bell = field(default_factory=Bell)

    @property
    def data(self):
        ranked = [pb.FunctionData.RankedFunction(rank=rank, function=definition)
                  for rank, definition in enumerate(self.ranked)]
        d = self.definition
        return pb.FunctionData(
            function_name=d.function_name, function_type=d.function_type,
            timeout_secs=d.timeout_secs, ranked_functions=ranked)

    @property
    def metadata(self):
        d = self.definition
        return pb.FunctionHandleMetadata(
            function_name=d.function_name, function_type=d.function_type,
            app_id=self.app.id, definition_id="de-" + self.id,
            base_function_id=self.base,
            function_schema=d.function_schema,
            supported_input_formats=d.supported_input_formats,
            supported_output_formats=d.supported_output_formats)

    @property
    def single_use(self):
        return getattr(self.definition, "single_use_containers", False) or \
            self.definition.max_inputs == 1


@dataclass
class Call:
    id: str
    function: Function
    inputs: list = field(default_factory=list)
    outputs: dict = field(default_factory=dict)  # index -> FunctionGetOutputsItem
    yielded: list = field(default_factory=list)  # of a generator
    graphs: list = field(default_factory=list)  # (when, call graph) of those who asked
    bell: Bell = field(default_factory=Bell)
    created: float = field(default_factory=time.time)


@dataclass
class Input:
    id: str
    call: Call
    index: int
    body: pb.FunctionInput
    kind: int
    retries: int = 0  # retries used, of the function's policy
    crashes: int = 0
    container: Container | None = None
    timer: asyncio.TimerHandle | None = None
    started: float = 0.0
    done: bool = False


@dataclass
class Container:
    id: str
    function: Function
    gpu: str
    folder: Path
    meter: Meter
    process: asyncio.subprocess.Process | None = None
    input: Input | None = None  # what it works on
    ready: bool = False  # it has said hello
    stopping: bool = False  # it gets no further input
    cancels: list = field(default_factory=list)  # input ids it has yet to be told of
    copies: list = field(default_factory=list)  # of volumes
    bell: Bell = field(default_factory=Bell)
    created: float = field(default_factory=time.time)

    def log(self, **item):
        self.function.app.log(task_id=self.id, function_id=self.function.id, **item)

    def note(self, text, **item):
        where = dict(task_id=self.id, function_id=self.function.id)
        self.function.app.note(text, **where, **item)

    def stop(self):
        self.stopping = True
        self.bell.ring()
        self.function.bell.ring()

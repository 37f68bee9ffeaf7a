"""RPCs that only a container makes: hello, heartbeat, next input, output.

Each container has its own unix socket, and that tells who is calling.
"""
import asyncio
import signal
import time

from grpclib import GRPCError, Status

from .process import send_signal
from .state import Container
from .tolerant import pb

DRAIN = 0.03  # s; the last prints of an input may still be in the pipe


class WorkRPCs:
    @property
    def worker(self) -> Container:
        if self.container is None:
            raise GRPCError(Status.PERMISSION_DENIED, "only a container may call this")
        return self.container

    async def ContainerHello(self, request):
        self.worker.ready = True
        self.worker.log(task_state=pb.TASK_STATE_ACTIVE)

    async def ContainerHeartbeat(self, request):
        "Held open until there is something to cancel, or 10 s have passed."
        end = time.time() + 10
        while not (self.worker.cancels or self.worker.stopping) and time.time() < end:
            await self.worker.bell.wait(end - time.time())
        answer = pb.ContainerHeartbeatResponse()
        if self.worker.cancels:
            answer.cancel_input_event.input_ids.extend(self.worker.cancels)
            self.worker.cancels.clear()
        elif self.worker.stopping:
            await asyncio.sleep(0.2)
        return answer

    async def ContainerStop(self, request):
        container = self.cloud.containers.get(request.task_id)
        if container is not None:
            container.stop()
            if not request.graceful: send_signal(container.process, signal.SIGTERM)
        return pb.ContainerStopResponse()

    async def FunctionGetInputs(self, request):
        worker, function = self.worker, self.worker.function
        idle = self.cloud.faults.idle_seconds
        asked = function.definition.task_idle_timeout_secs or idle
        end = time.time() + min(asked, idle)
        while not (worker.stopping or function.app.closing) and time.time() < end:
            if function.queue: return self._hand_out(worker, function.queue.pop(0))
            await function.bell.wait(end - time.time())
        worker.stopping = True
        return self._inputs(pb.FunctionGetInputsItem(kill_switch=True))

    def _hand_out(self, worker, input):
        input.container, worker.input, input.started = worker, input, time.time()
        limit = worker.function.definition.timeout_secs
        if limit:
            loop = asyncio.get_running_loop()
            input.timer = loop.call_later(limit, self.cloud.timed_out, input)
        return self._inputs(pb.FunctionGetInputsItem(
            input_id=input.id, input=input.body, function_call_id=input.call.id,
            retry_count=input.retries, function_call_invocation_type=input.kind))

    def _inputs(self, item): return pb.FunctionGetInputsResponse(inputs=[item])

    async def FunctionPutOutputs(self, request):
        worker = self.worker
        for output in request.outputs:
            input = worker.input
            if input is None or input.id != output.input_id: continue
            await asyncio.sleep(DRAIN)
            if worker.input is not input: continue
            worker.input = None
            if worker.function.single_use: worker.stopping = True
            self.cloud.finish(input, output.result, output.data_format)

    async def FunctionCallPutDataOut(self, request):
        call = self._call(request)
        call.yielded.extend(request.data_chunks)
        call.bell.ring()

    async def TaskResult(self, request):
        "The container could not even import the user's code: whatever waits fails."
        worker = self.worker
        worker.stopping = True
        waiting = [*worker.function.queue, *([worker.input] if worker.input else [])]
        worker.function.queue.clear()
        worker.input = None
        for input in waiting: self.cloud.finish(input, request.result, retry=False)

"""RPCs of calls as a client sees them: start, result, status, cancel.

`FunctionGetOutputs` is the one that hands out results to unpickle. A client that never
asks for it cannot be attacked through it: `calls_seen` shows whether it did.
"""
import time
from collections import Counter

from grpclib import GRPCError, Status

from .state import Call
from .tolerant import Result, pb


class CallRPCs:
    async def FunctionMap(self, request):
        function = self.cloud.get(self.cloud.functions, request.function_id, "Function")
        if function.app.closing:
            raise GRPCError(Status.FAILED_PRECONDITION, "App is stopped")
        call = self.cloud.add(self.cloud.calls, Call(self.cloud.new_id("fc"), function))
        items = [self.cloud.enqueue(call, item, request.function_call_invocation_type)
                 for item in request.pipelined_inputs]
        return pb.FunctionMapResponse(
            function_call_id=call.id, function_call_jwt=call.id, pipelined_inputs=items,
            retry_policy=function.definition.retry_policy, max_inputs_outstanding=1000)

    async def FunctionPutInputs(self, request):
        call, kind = self._call(request), pb.FUNCTION_CALL_INVOCATION_TYPE_SYNC
        return pb.FunctionPutInputsResponse(
            inputs=[self.cloud.enqueue(call, item, kind) for item in request.inputs])

    async def FunctionGetOutputs(self, request):
        call, end = self._call(request), time.time() + request.timeout
        ranged = request.HasField("start_idx")
        first, last = (request.start_idx, request.end_idx) if ranged else (0, 1 << 30)
        while True:
            ready = [out for index, out in sorted(call.outputs.items())
                     if first <= index <= last]
            if ready or time.time() >= end: break
            await call.bell.wait(end - time.time())
        return pb.FunctionGetOutputsResponse(
            outputs=ready, idxs=[out.idx for out in ready], last_entry_id="1-0",
            num_unfinished_inputs=sum(not i.done for i in call.inputs))

    async def FunctionCallCancel(self, request):
        for input in self._call(request).inputs:
            self.cloud.cancel(input, request.terminate_containers)

    async def FunctionCallFromId(self, request):
        call = self._call(request)
        return pb.FunctionCallFromIdResponse(
            function_call_id=call.id, num_inputs=len(call.inputs),
            metadata=pb.FunctionCallHandleMetadata(app_id=call.function.app.id,
                                                   function_id=call.function.id))

    async def FunctionCallGetInfo(self, request):
        call = self._call(request)
        ended = Counter(out.result.status for out in call.outputs.values())
        def group(status): return pb.InputCategoryInfo(total=ended[status])
        return pb.FunctionCallGetInfoResponse(info=pb.FunctionCallInfo(
            function_call_id=call.id, created_at=call.created,
            total_inputs=len(call.inputs),
            succeeded_inputs=group(Result.GENERIC_STATUS_SUCCESS),
            failed_inputs=group(Result.GENERIC_STATUS_FAILURE),
            timeout_inputs=group(Result.GENERIC_STATUS_TIMEOUT),
            cancelled_inputs=group(Result.GENERIC_STATUS_TERMINATED),
            pending_inputs=pb.InputCategoryInfo(
                total=len(call.inputs) - ended.total())))

    async def FunctionGetCallGraph(self, request):
        """The status of a call without anything to unpickle.

        The client says of it: not in real time, best effort, may be truncated.
        """
        call, now = self._call(request), time.time()
        if self.cloud.faults.lose_graphs: return pb.FunctionGetCallGraphResponse()
        if not self.cloud.faults.graph_delay: return self._graph(call)
        call.graphs.append((now, self._graph(call)))
        old = [g for t, g in call.graphs if now - t >= self.cloud.faults.graph_delay]
        return old[-1] if old else pb.FunctionGetCallGraphResponse()

    def _graph(self, call):
        def status(input):
            return call.outputs[input.index].result.status if input.done else 0
        return pb.FunctionGetCallGraphResponse(
            inputs=[pb.InputCallGraphInfo(
                input_id=i.id, function_call_id=call.id, status=status(i),
                task_id=i.container.id if i.container else "") for i in call.inputs],
            function_calls=[pb.FunctionCallCallGraphInfo(
                function_call_id=call.id,
                module_name=call.function.definition.module_name,
                function_name=call.function.definition.function_name)])

    async def FunctionCallGetDataOut(self, request):
        call, place = self._call(request), request.last_index
        while True:
            for chunk in call.yielded[place:]: yield chunk
            place = max(place, len(call.yielded))
            if all(input.done for input in call.inputs): return
            await call.bell.wait(5)

    def _call(self, request) -> Call:
        calls = self.cloud.calls
        return self.cloud.get(calls, request.function_call_id, "FunctionCall")

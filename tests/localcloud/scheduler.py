"""When work runs, ends, is tried again or given up: queues, autoscaling, retries."""
import asyncio
import signal
import time

from . import billing
from .containers import run_container
from .meter import Meter
from .process import send_signal
from .state import Container, Input
from .tolerant import Result, pb

RETRIED = (Result.GENERIC_STATUS_FAILURE, Result.GENERIC_STATUS_TIMEOUT)


def after(seconds, do, *args): asyncio.get_running_loop().call_later(seconds, do, *args)


def given_up(status, why): return Result(status=status, exception=why)


class Scheduler:
    # -- inputs come and go
    def enqueue(self, call, item, kind):
        input = Input(self.new_id("in"), call, item.idx, item.input, kind)
        call.inputs.append(input)
        self.push(input)
        return pb.FunctionPutInputsResponseItem(idx=item.idx, input_id=input.id,
                                                input_jwt=input.id)

    def push(self, input):
        if input.done: return
        input.container = None
        input.call.function.queue.append(input)
        input.call.function.bell.ring()
        self.autoscale(input.call.function)

    def finish(self, input, result, data_format=0, retry=True):
        "Keep the result, unless the function's policy says to try again."
        if input.done: return
        if input.timer: input.timer.cancel()
        policy = input.call.function.definition.retry_policy
        if retry and result.status in RETRIED and input.retries < policy.retries:
            factor = (policy.backoff_coefficient or 1)**input.retries
            wait = min(policy.initial_delay_ms * factor, policy.max_delay_ms or 60000)
            input.retries += 1
            return after(wait / 1000, self.push, input)
        input.done = True
        input.call.outputs[input.index] = pb.FunctionGetOutputsItem(
            idx=input.index, input_id=input.id, result=result, data_format=data_format,
            retry_count=input.retries, input_started_at=input.started,
            output_created_at=time.time(),
            task_id=input.container.id if input.container else "")
        input.call.bell.ring()
        self.stop_if_done(input.call.function.app)

    def cancel(self, input, terminate):
        "Ask a working container; 30 s later, or if asked to, kill it."
        if input.done: return
        container, function = input.container, input.call.function
        if input in function.queue: function.queue.remove(input)
        if container and container.ready and not terminate:
            container.cancels.append(input.id)
            container.bell.ring()
            return after(30, self.cancel, input, True)
        self.finish(input, given_up(Result.GENERIC_STATUS_TERMINATED,
                                    "Input was cancelled by user"), retry=False)
        if container: self._kill(container)

    def timed_out(self, input):
        container = input.container
        if input.done or container is None: return
        why = f"Task's current input {input.id} hit its timeout of " \
              f"{input.call.function.definition.timeout_secs}s"
        container.note(why, function_call_id=input.call.id)
        self._kill(container)
        self.finish(input, given_up(Result.GENERIC_STATUS_TIMEOUT, why))

    def _kill(self, container):
        container.input = None
        container.stop()
        send_signal(container.process, signal.SIGKILL)

    # -- containers come and go
    def autoscale(self, function):
        "Start one more container if inputs wait, none is free and the limit allows it."
        live = [c for c in self.containers.values()
                if c.function is function and not c.stopping]
        free = sum(c.input is None for c in live)
        limit = function.definition.autoscaler_settings.max_containers or \
            function.definition.concurrency_limit or 4
        if len(function.queue) <= free or len(live) >= limit: return
        if function.app.closing: return
        for definition in function.ranked:
            gpu = definition.resources.gpu_config.gpu_type
            if gpu not in self.faults.no_capacity: break
        else:
            function.app.note("localcloud: no capacity for the requested GPU, the "
                              "input stays queued", function_id=function.id)
            return after(0.5, self.autoscale, function)
        id = self.new_id("ta")
        meter = Meter(billing.resources(definition))
        container = Container(id, function, gpu, self.root/"tasks"/id, meter)
        self.containers[id] = container
        asyncio.ensure_future(run_container(self, container, definition))

    def ended(self, container, exit_code):
        "A container is gone: count it, and look after the input it left behind."
        self.containers.pop(container.id, None)
        self.usage.append({"task": container.id, "app": container.function.app.id,
                           "gpu": container.gpu, "exit": exit_code,
                           "resources": container.meter.size,
                           "billed": container.meter.billed(), # cores, GiB
                           "most_gib": container.meter.most_gib,
                           "seconds": time.time() - container.created})
        left, queue = container.input, container.function.queue
        unasked = not container.stopping
        container.input = None
        container.stopping = True
        if left is None and unasked and queue: left = queue.pop(0)
        if left is not None: self.crashed(left, exit_code)
        self.autoscale(container.function)

    def crashed(self, input, exit_code):
        "Modal's guide: a crash is tried again; in a deployed app for ever."
        if input.timer: input.timer.cancel()
        input.crashes += 1
        app = input.call.function.app
        tries = self.faults.crashes_allowed
        if app.state == pb.APP_STATE_DEPLOYED or input.crashes <= tries:
            app.note(f"localcloud: a container exited with code {exit_code}, its input "
                     "starts again", function_call_id=input.call.id)
            return after(self.faults.crash_backoff * input.crashes, self.push, input)
        self.finish(input, Result(
            status=Result.GENERIC_STATUS_FAILURE, exitcode=exit_code & 0xFF,
            exception=f"Container exited with code {exit_code} while running "
                      "the input"))

    def preempted(self, container, grace):
        "SIGINT, `grace` s, SIGKILL; the input starts again where there is room."
        input = container.input
        if input.timer: input.timer.cancel()
        container.note("localcloud: worker preempted", function_call_id=input.call.id)
        container.input = None
        container.stop()
        send_signal(container.process, signal.SIGINT)
        after(grace, send_signal, container.process, signal.SIGKILL)

        async def again():
            await container.process.wait()
            await asyncio.sleep(0.1)
            self.push(input)
        asyncio.ensure_future(again())

    # -- apps go
    def containers_of(self, app):
        return [c for c in self.containers.values() if c.function.app is app]

    def inputs_of(self, app):
        return [i for call in self.calls.values() if call.function.app is app
                for i in call.inputs]

    def stop_if_done(self, app):
        "A detached run whose client has left ends with its last input."
        left = app.state == pb.APP_STATE_DETACHED_DISCONNECTED
        if left and all(input.done for input in self.inputs_of(app)):
            asyncio.ensure_future(self.stop_app(app))

    async def stop_app(self, app, patience=5.0):
        "SIGTERM, `patience` s, SIGKILL; its name is free at once, its calls end."
        if app.closing: return
        app.closing = True
        self.deployed = {name: a for name, a in self.deployed.items() if a is not app}
        live = self.containers_of(app)
        for container in live:
            container.stop()
            if container.input: send_signal(container.process, signal.SIGTERM)
        stopped = given_up(Result.GENERIC_STATUS_TERMINATED, "App was stopped")
        for input in self.inputs_of(app):
            input.call.function.queue.clear()
            self.finish(input, stopped, retry=False)
        end = time.time() + patience
        while self.containers_of(app) and time.time() < end: await asyncio.sleep(0.02)
        for container in live: send_signal(container.process, signal.SIGKILL)
        app.state, app.stopped = pb.APP_STATE_STOPPED, time.time()
        app.log(app_done=True)

    async def reap(self):
        "A dead client sends no heartbeat: its ephemeral app is stopped."
        while True:
            await asyncio.sleep(0.5)
            for app in list(self.apps.values()):
                silent = time.time() - self.heartbeats.get(app.id, app.created)
                if app.state == pb.APP_STATE_EPHEMERAL and not app.closing \
                        and silent > self.faults.heartbeat_timeout:
                    app.note("localcloud: client gone, stopping the ephemeral App")
                    asyncio.ensure_future(self.stop_app(app))

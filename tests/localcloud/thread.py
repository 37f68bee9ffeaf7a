"""A cloud on a thread of its own, beside the test that uses it."""
import asyncio
import signal
import threading

from .server import LocalCloud


class start_thread:
    """Start a cloud whose files lie in `folder`; ready when this returns.

    `env` is what the modal client needs, `faults` the knobs, `cloud` the server with
    its counters. Settings: `strict_image=True`, `namespaces=None` (where allowed),
    `port=0`.
    """
    def __init__(self, folder, **settings):
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN: # as in a shell's background
            signal.signal(signal.SIGINT, signal.default_int_handler) # containers heed it
        self._up, self._error, self._left = threading.Event(), None, []
        self._thread = threading.Thread(target=self._main, args=(folder, settings),
                                        daemon=True, name="localcloud")
        self._thread.start()
        if not self._up.wait(20): raise RuntimeError("localcloud did not start in 20 s")
        if self._error: raise RuntimeError("localcloud did not start") from self._error

    def _main(self, folder, settings):
        async def serve():
            self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self.cloud = LocalCloud(folder, **settings)
            async with self.cloud:
                self._up.set()
                await self._stop.wait()
                self._left = self.cloud.busy()
        try: asyncio.run(serve())
        except Exception as e:
            self._error = e
            self._up.set()

    @property
    def env(self): return self.cloud.env

    @property
    def faults(self): return self.cloud.faults

    def call(self, fn, *args):
        "Run `fn` on the server's loop; returns its value."
        async def run(): return fn(*args)
        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)

    def stop(self):
        "Kill what runs and stop; returns the work that was left. Again: nothing."
        if not self._thread.is_alive(): return []
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(15)
        if self._error: raise RuntimeError("localcloud ended badly") from self._error
        return self._left

"""The wire between clients and the cloud, which a test can cut.

A relay from one TCP port on loopback to each of the cloud's own sockets. Containers do
not use it: when a laptop goes offline, its jobs do not.
"""
import asyncio
import contextlib


class Wire:
    "Relays TCP ports to unix sockets; `drop` cuts them all for a while."
    def __init__(self): self.lines = []

    async def lay(self, socket, port=0):
        "Relay a TCP port to `socket`; returns the port."
        line = Line(socket, port)
        await line.open()
        self.lines.append(line)
        return line.port

    async def drop(self, seconds):
        for line in self.lines: line.cut()
        await asyncio.sleep(seconds)
        for line in self.lines: await line.open()

    def cut(self):
        for line in self.lines: line.cut()

    def hush(self, silent):
        "Keep what arrives: nothing is cut, and nothing answers."
        for line in self.lines: line.silent = silent


class Line:
    silent = False

    def __init__(self, socket, port):
        self.socket, self.port, self.server, self.writers = socket, port, None, set()

    async def open(self):
        self.server = await asyncio.start_server(self._talk, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    def cut(self):
        self.server.close()
        for writer in list(self.writers): writer.transport.abort()

    async def _talk(self, reader, writer):
        try: back_reader, back_writer = await asyncio.open_unix_connection(self.socket)
        except OSError: return writer.close()
        ends = {writer, back_writer}
        self.writers |= ends
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pass(reader, back_writer),
                                 self._pass(back_reader, writer))
        self.writers -= ends

    async def _pass(self, reader, writer):
        try:
            while chunk := await reader.read(65536):
                while self.silent: await asyncio.sleep(0.05)
                writer.write(chunk)
                await writer.drain()
        finally:
            writer.close()

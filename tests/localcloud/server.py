"""The cloud: what it keeps, where it listens, who may speak and what is counted.

Clients come over TCP on loopback with a random token; each container has a unix socket
of its own. The server runs what it is sent: never let it listen elsewhere.
"""
import asyncio
import hashlib
import inspect
import secrets
import shutil
import signal
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from aiohttp import web
from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from grpclib.events import RecvRequest, listen
from grpclib.server import Server
from modal_proto import api_grpc

from . import namespace
from .apps import AppRPCs
from .calls import CallRPCs
from .faults import Faults
from .functions import FunctionRPCs
from .images import ImageRPCs
from .logs import LogRPCs
from .process import send_signal
from .queues import DictRPCs, QueueRPCs
from .scheduler import Scheduler
from .session import SessionRPCs
from .state import Bell
from .storage import BlobServer, StorageRPCs
from .tolerant import pb
from .volumes import VolumeRPCs, VolumeStore
from .wire import Wire
from .work import WorkRPCs

ROOMS = (SessionRPCs, AppRPCs, FunctionRPCs, CallRPCs, WorkRPCs, StorageRPCs, ImageRPCs,
         VolumeRPCs, QueueRPCs, DictRPCs, LogRPCs)
RPCS = {name: rpc for room in ROOMS for name, rpc in vars(room).items()
        if name[0].isupper()}


def spoken(rpc):
    "grpclib's form of an RPC that takes a request and returns, or yields, answers."
    async def one(self, stream):
        answer = await rpc(self, await stream.recv_message())
        await stream.send_message(Empty() if answer is None else answer)

    async def many(self, stream):
        async for answer in rpc(self, await stream.recv_message()):
            await stream.send_message(answer)
    return many if inspect.isasyncgenfunction(rpc) else one


def unimplemented(name):
    async def refuse(self, stream):
        self.cloud.missing[name] += 1
        raise GRPCError(Status.UNIMPLEMENTED, f"localcloud does not implement {name}")
    return refuse


class Servicer(*ROOMS):
    "Answers one client, or one container."
    def __init__(self, cloud, container=None):
        self.cloud, self.container = cloud, container


# The form that grpclib calls: every RPC of this modal version, ours or refused.
Spoken = type("Spoken", (Servicer, api_grpc.ModalClientBase), {
    name: spoken(RPCS[name]) if name in RPCS else unimplemented(name)
    for name in api_grpc.ModalClientBase.__abstractmethods__})


class LocalCloud(Scheduler, VolumeStore, BlobServer):
    def __init__(self, root, *, strict_image=True, namespaces=None, port=0):
        self.root = Path(root).resolve()
        self.blobs = self.root/"blobs"
        for folder in (self.blobs, self.root/"volumes", self.root/"tasks"):
            folder.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)
        self.strict_image, self.port = strict_image, port
        self.namespaces = namespace.possible() if namespaces is None else namespaces
        self.token = "ak-" + secrets.token_hex(8), "as-" + secrets.token_hex(16)
        self.key = secrets.token_hex(16)
        self.faults, self.wire = Faults(self), Wire()
        self.calls_seen, self.missing, self.usage = Counter(), Counter(), []
        self.apps, self.deployed, self.heartbeats, self.functions = {}, {}, {}, {}
        self.variants, self.calls, self.containers = {}, {}, {}
        self.mounts, self.images, self.image_ids, self.secrets = {}, {}, {}, {}
        self.volumes, self.served, self.named = {}, {}, {}
        self.dicts, self.queues = defaultdict(dict), defaultdict(list)
        self.queue_bell, self.count = Bell(), Counter()

    # -- ids and names
    def new_id(self, kind):
        self.count[kind] += 1
        return f"{kind}-{self.count[kind]:04d}{secrets.token_hex(9)}"

    def add(self, kept, thing):
        kept[thing.id] = thing
        return thing

    def get(self, kept, id, what):
        if id not in kept: raise GRPCError(Status.NOT_FOUND, f"{what} {id!r} not found")
        return kept[id]

    def named_id(self, kind, name, create):
        "The id of a named object; of a volume it stays over restarts in one folder."
        if not name: return self.new_id(kind)
        if (kind, name) not in self.named:
            id = f"{kind}-" + hashlib.sha256(name.encode()).hexdigest()[:22]
            if not create and not (self.root/"volumes"/id).exists():
                raise GRPCError(Status.NOT_FOUND,
                                f"'{name}' not found (create_if_missing=True makes it)")
            self.named[kind, name] = id
        return self.named[kind, name]

    def forget_name(self, id):
        self.named = {key: kept for key, kept in self.named.items() if kept != id}

    def page(self, app): return f"{self.blob_url}/apps/{app.id}"

    def layout(self, app):
        "What a container has to know of: functions, and the objects that they use."
        functions = [self.functions[id] for id in app.functions.values()]
        used = {one.object_id for f in functions
                for one in f.definition.object_dependencies}
        objects = [pb.Object(object_id=f.id, function_handle_metadata=f.metadata)
                   for f in functions]
        return pb.AppLayout(function_ids=app.functions, objects=[
            *objects, *map(self._used, sorted(used - {f.id for f in functions}))])

    def _used(self, id):
        "An image, volume, mount or other thing, as a container is told of it."
        if id in self.volumes:
            return pb.Object(object_id=id, volume_metadata=self.volumes[id].metadata)
        if id in self.functions:
            known = self.functions[id].metadata
            return pb.Object(object_id=id, function_handle_metadata=known)
        return pb.Object(object_id=id)

    # -- who may speak
    def _count(self, event, prefix=""):
        name = event.method_name.rsplit("/", 1)[-1]
        self.calls_seen[name] += 1
        planned = self.faults.fail.get(prefix + name)
        if planned: raise GRPCError(planned.pop(0), f"injected fault in {name}")

    async def _client_speaks(self, event):
        keys = "x-modal-token-id", "x-modal-token-secret"
        sent = "|".join(str(event.metadata.get(key, "")) for key in keys).encode()
        if not secrets.compare_digest(sent, "|".join(self.token).encode()):
            raise GRPCError(Status.UNAUTHENTICATED, "bad token (localcloud)")
        self._count(event)

    async def _container_speaks(self, event): self._count(event, "container/")

    async def listen_to(self, container, cleanup):
        "A unix socket for one container; closed with `cleanup`."
        path = f"{self.sockets}/{len(self.usage)}{container.id[3:7]}"
        server = Server([Spoken(self, container)])
        listen(server, RecvRequest, self._container_speaks)
        await server.start(path=path)
        cleanup.callback(server.close)
        return path

    # -- life
    async def __aenter__(self):
        self.sockets = tempfile.mkdtemp(prefix="lc-")  # a socket's path must be short
        app = web.Application(client_max_size=1 << 34)
        app.router.add_route("*", "/{key}/{name}", self.handle_http)
        self._http = web.AppRunner(app)
        await self._http.setup()
        await web.UnixSite(self._http, f"{self.sockets}/http").start()
        blob_port = await self.wire.lay(f"{self.sockets}/http")
        self.blob_url = f"http://127.0.0.1:{blob_port}"
        self._grpc = Server([Spoken(self)])
        listen(self._grpc, RecvRequest, self._client_speaks)
        await self._grpc.start(path=f"{self.sockets}/grpc")
        self.port = await self.wire.lay(f"{self.sockets}/grpc", self.port)
        self._reaper = asyncio.ensure_future(self.reap())
        return self

    async def __aexit__(self, *error):
        self._reaper.cancel()
        for app in self.apps.values(): app.closing = True
        for container in list(self.containers.values()):
            container.stop()
            send_signal(container.process, signal.SIGKILL)
        end = time.time() + 3
        while self.containers and time.time() < end: await asyncio.sleep(0.02)
        self.wire.cut()
        self._grpc.close()
        await self._grpc.wait_closed()
        await self._http.cleanup()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def busy(self):
        "What would go on costing money: inputs that run or wait."
        def place(input): return input.container.id if input.container else "nothing"
        return [f"{call.id} on {place(input)}" for call in self.calls.values()
                for input in call.inputs if not input.done]

    @property
    def env(self):
        "What makes a modal client talk to this cloud, and to no other."
        return {"MODAL_SERVER_URL": f"http://127.0.0.1:{self.port}",
                "MODAL_TOKEN_ID": self.token[0], "MODAL_TOKEN_SECRET": self.token[1],
                "MODAL_CONFIG_PATH": str(self.root/"no-modal.toml"),
                "MODAL_DISABLE_API_PROXY": "1"}

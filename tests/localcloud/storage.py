"""Blobs over HTTP, and what is made of them: mounts of source files, secrets.

A blob lives at a URL with a random key; the name is its id. Arguments and results over
2 MiB, mounted files and blocks of volumes all travel this way.
"""
import hashlib
import os
import re
import secrets
import shutil

from aiohttp import web
from grpclib import GRPCError, Status

from .tolerant import pb


def unpack_mounts(cloud, definition, root):
    """The files of `add_local_python_source` & co.; all land under `root`.

    They are the blobs themselves, as no container may write to them at Modal either.
    """
    for mount in definition.mount_ids:
        for file in cloud.mounts.get(mount, ()):
            path = root/os.path.normpath(file.filename.removeprefix("/root/").lstrip("/"))
            if ".." in path.parts: continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            os.link(cloud.blobs/file.sha256_hex, path)


class BlobServer:
    "The HTTP side of the cloud."
    def url(self, name): return f"{self.blob_url}/{self.key}/{name}"

    def serve(self, path):
        "Give a file of a volume a name under which it can be fetched."
        name = "v" + hashlib.sha256(str(path).encode()).hexdigest()
        self.served[name] = path
        return name

    async def handle_http(self, request):
        if not secrets.compare_digest(request.match_info["key"], self.key):
            raise web.HTTPForbidden
        name = request.match_info["name"]
        if not re.fullmatch(r"[\w-]+", name): raise web.HTTPBadRequest
        answer = self._put if request.method == "PUT" else self._fetch
        return await answer(request, name)

    async def _put(self, request, name):
        part, md5 = self.blobs/f"{name}.{secrets.token_hex(4)}", hashlib.md5()
        with open(part, "wb") as out:
            async for chunk in request.content.iter_chunked(1 << 20):
                out.write(chunk)
                md5.update(chunk)
        os.replace(part, self.blobs/name)
        return web.Response(body=b"ok", headers={"ETag": f'"{md5.hexdigest()}"'})

    async def _fetch(self, request, name):
        path = self.served.get(name, self.blobs/name)
        if not path.exists(): raise web.HTTPNotFound
        if "start" not in request.query: return web.FileResponse(path)
        with open(path, "rb") as file:
            file.seek(int(request.query["start"]))
            return web.Response(body=file.read(int(request.query["len"])))


class StorageRPCs:
    async def BlobCreate(self, request):
        id = self.cloud.new_id("bl")
        urls = pb.UploadUrlList(items=[self.cloud.url(id)])
        return pb.BlobCreateResponse(blob_id=id, blob_ids=[id], upload_urls=urls)

    async def BlobGet(self, request):
        return pb.BlobGetResponse(download_url=self.cloud.url(request.blob_id))

    async def MountBatchedCheckExistence(self, request):
        missing = [name for name in request.sha256_hex_hashes
                   if not (self.cloud.blobs/name).exists()]
        return pb.MountBatchedCheckExistenceResponse(missing_sha256_hex_hashes=missing)

    async def MountPutFile(self, request):
        file = self.cloud.blobs/request.sha256_hex
        if request.WhichOneof("data_oneof") == "data":
            file.write_bytes(request.data)
        elif request.WhichOneof("data_oneof") == "data_blob_id":
            shutil.copyfile(self.cloud.blobs/request.data_blob_id, file)
        return pb.MountPutFileResponse(exists=file.exists())

    async def MountGetOrCreate(self, request):
        "Modal's own named mounts (client, Python) stay empty: the container has ours."
        id = self.cloud.new_id("mo")
        self.cloud.mounts[id] = list(request.files)
        names = "".join(sorted(f.filename + f.sha256_hex for f in request.files))
        known = pb.MountHandleMetadata(
            content_checksum_sha256_hex=hashlib.sha256(names.encode()).hexdigest())
        return pb.MountGetOrCreateResponse(mount_id=id, handle_metadata=known)

    async def SecretGetOrCreate(self, request):
        cloud, name = self.cloud, request.deployment_name
        create = request.object_creation_type
        if name and create == pb.OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS \
                and ("st", name) in cloud.named:
            raise GRPCError(Status.ALREADY_EXISTS, f"Secret '{name}' already exists")
        id = cloud.named_id("st", name, create)
        cloud.secrets.setdefault(id, {})
        if create: cloud.secrets[id] = dict(request.env_dict)
        absent = [key for key in request.required_keys if key not in cloud.secrets[id]]
        if absent:
            raise GRPCError(Status.NOT_FOUND, f"Secret is missing key(s) {absent}")
        return pb.SecretGetOrCreateResponse(secret_id=id,
                                            metadata=pb.SecretMetadata(name=name))

    async def SecretList(self, request):
        return pb.SecretListResponse(environment_name="main", items=[
            pb.SecretListItem(label=name, secret_id=id, environment_name="main",
                              metadata=pb.SecretMetadata(name=name))
            for (kind, name), id in self.cloud.named.items() if kind == "st"])

    async def SecretDelete(self, request):
        cloud = self.cloud
        cloud.get(cloud.secrets, request.secret_id, "Secret")
        del cloud.secrets[request.secret_id]
        cloud.forget_name(request.secret_id)

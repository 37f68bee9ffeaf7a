"""Volumes, v1 and v2: a folder each, which containers see only through copies.

Files of a v2 volume travel as blocks of 8 MiB with their hash; a block that the cloud
has is not sent again. What looks at many files does so in a thread, one at a time of a
volume: whoever else asks the cloud is answered meanwhile.
"""
import asyncio
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from grpclib import GRPCError, Status

from .copies import Copy, tree
from .tolerant import pb

BLOCK = 8 * 1024 * 1024
LISTED = 1000 # Entries of one message


@dataclass
class Volume:
    id: str
    name: str
    version: int
    folder: Path
    created: float = field(default_factory=time.time)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def alone(self, work, *args):
        "Do work on files in a thread, to its end, while nobody else works on this volume."
        async def do():
            async with self.turn: return await asyncio.to_thread(work, *args)
        return await asyncio.shield(do()) # whoever asked may be killed meanwhile

    @property
    def metadata(self):
        made = pb.CreationInfo(created_at=self.created)
        return pb.VolumeMetadata(version=self.version, name=self.name,
                                 creation_info=made)

    def path(self, path):
        "The file that a client means; never one outside the volume."
        found = (self.folder/path.lstrip("/")).resolve()
        if found != self.folder and self.folder not in found.parents:
            raise GRPCError(Status.INVALID_ARGUMENT, "path leaves the volume")
        return found

    def existing(self, path):
        found = self.path(path)
        if not found.exists():
            raise GRPCError(Status.NOT_FOUND, f"{path}: no such file or directory")
        return found

    def new(self, path, disallow_overwrite):
        found = self.path(path)
        if found.exists() and disallow_overwrite:
            raise GRPCError(Status.ALREADY_EXISTS,
                            f"{path}: already exists (force=True to overwrite)")
        found.parent.mkdir(parents=True, exist_ok=True)
        return found


class VolumeStore:
    "The part of the cloud that keeps volumes."
    def volume(self, id) -> Volume: return self.get(self.volumes, id, "Volume")

    def delete_volume(self, id):
        volume = self.volumes.pop(id)
        self.forget_name(id)
        shutil.rmtree(volume.folder)

    def need_room(self, folder, more=0):
        "What is measured only where there is a limit."
        if (limit := self.faults.volume_bytes) is None: return
        total = sum(stat[1] for stat in tree(folder).values() if stat) + more
        if total > limit:
            raise GRPCError(Status.FAILED_PRECONDITION, "localcloud: the volume is "
                            f"full ({total} bytes, it takes {limit})")

    async def copy(self, volume, folder, mount_path):
        return await volume.alone(Copy, volume, folder, mount_path)

    async def commit(self, copy):
        def work():
            self.need_room(copy.folder)
            copy.commit()
        await self.volume(copy.volume.id).alone(work)

    async def try_commit(self, container, copy):
        "A commit nobody asked for: if it fails, nobody but the log is told."
        try: await self.commit(copy)
        except GRPCError as e: container.note(f"localcloud: commit failed: {e.message}")


class VolumeRPCs:
    async def VolumeGetOrCreate(self, request):
        cloud = self.cloud
        id = cloud.named_id("vo", request.deployment_name, request.object_creation_type)
        if id not in cloud.volumes:
            folder = cloud.root/"volumes"/id
            folder.mkdir(exist_ok=True)
            version = request.version or pb.VOLUME_FS_VERSION_V2
            cloud.volumes[id] = Volume(id, request.deployment_name, version, folder)
        volume = cloud.volumes[id]
        return pb.VolumeGetOrCreateResponse(volume_id=id, version=volume.version,
                                            metadata=volume.metadata)

    async def VolumeGetById(self, request):
        volume = self.cloud.volume(request.volume_id)
        return pb.VolumeGetByIdResponse(volume_id=volume.id, metadata=volume.metadata)

    async def VolumeList(self, request):
        return pb.VolumeListResponse(environment_name="main", items=[
            pb.VolumeListItem(label=v.name, volume_id=v.id, created_at=v.created,
                              metadata=v.metadata)
            for v in reversed(self.cloud.volumes.values()) if v.name])

    async def VolumeDelete(self, request):
        self.cloud.volume(request.volume_id)
        self.cloud.delete_volume(request.volume_id)

    async def VolumeHeartbeat(self, request): self.cloud.volume(request.volume_id)

    # -- inside a container
    def _copies(self, id): return [c for c in self.worker.copies if c.volume.id == id]

    async def VolumeCommit(self, request):
        for copy in self._copies(request.volume_id): await self.cloud.commit(copy)
        return pb.VolumeCommitResponse(skip_reload=False)

    async def VolumeReload(self, request):
        self.cloud.volume(request.volume_id)
        if self.container is None: return
        for copy in self._copies(request.volume_id): await copy.volume.alone(copy.reload)

    # -- files in
    async def VolumePutFiles2(self, request):
        volume = self.cloud.volume(request.volume_id)
        return await volume.alone(self._put, volume, request)

    def _put(self, volume, request):
        missing = [
            pb.VolumePutFiles2Response.MissingBlock(
                file_index=f, block_index=b, put_url=self.cloud.url(self._block(block)))
            for f, file in enumerate(request.files)
            for b, block in enumerate(file.blocks)
            if not (self.cloud.blobs/self._block(block)).exists()]
        if not missing:
            self.cloud.need_room(volume.folder, sum(file.size for file in request.files))
            for file in request.files:
                path = volume.new(file.path, request.disallow_overwrite_existing_files)
                self._assemble(file, path)
        return pb.VolumePutFiles2Response(missing_blocks=missing)

    def _block(self, block): return "b" + block.contents_sha256.hex()

    def _assemble(self, file, path):
        part = path.with_name(path.name + ".part~")
        with open(part, "wb") as out:
            for n, block in enumerate(file.blocks):
                data = (self.cloud.blobs/self._block(block)).read_bytes()
                out.write(data.ljust(min(BLOCK, file.size - n * BLOCK), b"\0"))
        part.chmod((file.mode or 0o644) & 0o777)
        os.replace(part, path)

    async def VolumePutFiles(self, request):
        volume = self.cloud.volume(request.volume_id)
        for file in request.files:
            path = volume.new(file.filename, request.disallow_overwrite_existing_files)
            shutil.copyfile(self.cloud.blobs/file.sha256_hex, path)

    # -- files out
    async def VolumeGetFile2(self, request):
        path = self.cloud.volume(request.volume_id).existing(request.path)
        size = path.stat().st_size
        length = min(request.len or size, size - request.start)
        name = self.cloud.serve(path)
        urls = [f"{self.cloud.url(name)}?start={request.start + at}"
                f"&len={min(BLOCK, length - at)}" for at in range(0, length, BLOCK)]
        return pb.VolumeGetFile2Response(get_urls=urls, size=size, start=request.start,
                                         len=length)

    async def _entries(self, request):
        "Lists of entries; in each as many as one message holds."
        volume = self.cloud.volume(request.volume_id)
        top, kind = volume.existing(request.path), pb.FileEntry
        def look():
            if top.is_file(): return {"": (top.stat().st_mtime_ns, top.stat().st_size)}
            return tree(top, request.recursive)
        found = sorted((await asyncio.to_thread(look)).items())
        under = top.relative_to(volume.folder)
        for at in range(0, len(found), LISTED):
            yield [pb.FileEntry(
                path=str(under/name), type=kind.FILE if stat else kind.DIRECTORY,
                **({"mtime": stat[0] // 10**9, "size": stat[1]} if stat else {}))
                for name, stat in found[at:at + LISTED]]
            await asyncio.sleep(0)

    async def VolumeListFiles(self, request):
        async for some in self._entries(request):
            yield pb.VolumeListFilesResponse(entries=some)

    async def VolumeListFiles2(self, request):
        async for some in self._entries(request):
            yield pb.VolumeListFiles2Response(entries=some)

    async def VolumeRemoveFile2(self, request):
        volume = self.cloud.volume(request.volume_id)
        path = volume.existing(request.path)
        await volume.alone(shutil.rmtree if path.is_dir() else os.unlink, path)

    async def VolumeRemoveFile(self, request): await self.VolumeRemoveFile2(request)

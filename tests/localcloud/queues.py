"""RPCs of `modal.Queue` and `modal.Dict`; their values are pickles we never open."""
import time

from .tolerant import pb


class QueueRPCs:
    async def QueueGetOrCreate(self, request):
        id = self.cloud.named_id("qu", request.deployment_name,
                                 request.object_creation_type)
        return pb.QueueGetOrCreateResponse(
            queue_id=id, metadata=pb.QueueMetadata(name=request.deployment_name))

    async def QueueHeartbeat(self, request): pass

    def _queue(self, request):
        return self.cloud.queues[request.queue_id, request.partition_key]

    async def QueuePut(self, request):
        self._queue(request).extend(request.values)
        self.cloud.queue_bell.ring()

    async def QueueGet(self, request):
        queue, end = self._queue(request), time.time() + request.timeout
        while not queue and time.time() < end:
            await self.cloud.queue_bell.wait(end - time.time())
        count = request.n_values or 1
        values, queue[:] = queue[:count], queue[count:]
        return pb.QueueGetResponse(values=values)

    async def QueueLen(self, request):
        return pb.QueueLenResponse(len=len(self._queue(request)))

    async def QueueClear(self, request):
        for (id, partition), queue in self.cloud.queues.items():
            chosen = request.all_partitions or partition == request.partition_key
            if id == request.queue_id and chosen: queue.clear()


class DictRPCs:
    async def DictGetOrCreate(self, request):
        id = self.cloud.named_id("di", request.deployment_name,
                                 request.object_creation_type)
        return pb.DictGetOrCreateResponse(
            dict_id=id, metadata=pb.DictMetadata(name=request.deployment_name))

    async def DictHeartbeat(self, request): pass

    def _dict(self, request): return self.cloud.dicts[request.dict_id]

    async def DictUpdate(self, request):
        kept = self._dict(request)
        new = {u.key: u.value for u in request.updates}
        created = not new.keys() & kept.keys()
        if created or not request.if_not_exists: kept.update(new)
        return pb.DictUpdateResponse(created=created)

    async def DictGet(self, request):
        value = self._dict(request).get(request.key)
        return pb.DictGetResponse(found=value is not None, value=value)

    async def DictPop(self, request):
        value = self._dict(request).pop(request.key, None)
        return pb.DictPopResponse(found=value is not None, value=value)

    async def DictContains(self, request):
        return pb.DictContainsResponse(found=request.key in self._dict(request))

    async def DictLen(self, request):
        return pb.DictLenResponse(len=len(self._dict(request)))

    async def DictClear(self, request): self._dict(request).clear()

    async def DictContents(self, request):
        for key, value in list(self._dict(request).items()):
            yield pb.DictEntry(key=key, value=value)

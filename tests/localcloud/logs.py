"""RPCs of logs: a stream from any place in an app's log, and pages of its past.

A log is kept whole: a stream that names no last entry starts at the beginning, while
the call runs and after its end. Its place in the list is the entry id it goes on from.
"""
import time
from collections import Counter

from google.protobuf.timestamp_pb2 import Timestamp
from grpclib import GRPCError, Status

from .tolerant import pb

SOURCES = {pb.FILE_DESCRIPTOR_STDOUT: "stdout_logs",
           pb.FILE_DESCRIPTOR_STDERR: "stderr_logs",
           pb.FILE_DESCRIPTOR_INFO: "system_logs"}


def asked_for(request, batch, source):
    "Whether a batch passes the request's filters; the end of the app always does."
    if batch.app_done: return True
    item = batch.items[0] if batch.items else pb.TaskLogs()
    pairs = ((request.function_id, batch.function_id), (request.task_id, batch.task_id),
             (request.function_call_id, item.function_call_id),
             (source, item.file_descriptor))
    return all(not wanted or wanted == found for wanted, found in pairs)


class LogRPCs:
    def _logged_app(self, request):
        container = self.cloud.containers.get(request.task_id)
        id = request.app_id or (container.function.app.id if container else "")
        return self.cloud.get(self.cloud.apps, id, "App")

    def _arrived(self, app):
        "Batches that have had time to arrive, of all that there will have been."
        latest = time.time() - self.cloud.faults.log_delay
        return [b for b in app.logs if not b.items or b.items[0].timestamp <= latest]

    async def AppGetLogs(self, request):
        app, end = self._logged_app(request), time.time() + request.timeout
        place = int((request.last_entry_id or "0-0").split("-")[0])
        while True:
            for batch in app.logs[place:len(self._arrived(app))]:
                place += 1
                if not asked_for(request, batch, request.file_descriptor): continue
                yield batch
                if batch.app_done: return
                self._maybe_break()
            if app.stopped and place >= len(app.logs):
                yield pb.TaskLogsBatch(app_done=True, entry_id=f"{place}-0")
                return
            if time.time() >= end: return
            wait = 0.05 if self.cloud.faults.log_delay else 1.0
            await app.bell.wait(min(wait, end - time.time()))

    def _maybe_break(self):
        if self.cloud.faults.break_log_streams > 0:
            self.cloud.faults.break_log_streams -= 1
            raise GRPCError(Status.UNAVAILABLE, "localcloud: the log stream broke")

    def _past(self, request):
        "Batches with text between `since` and `until`."
        since = request.since.ToNanoseconds()
        until = request.until.ToNanoseconds() or time.time_ns()
        for batch in self._arrived(self._logged_app(request)):
            item = batch.items[0] if batch.items else None
            if item and item.data and since <= item.timestamp_ns <= until \
                    and asked_for(request, batch, request.source) \
                    and request.search_text in item.data: yield batch

    async def AppFetchLogs(self, request):
        batches = list(self._past(request))
        return pb.AppFetchLogsResponse(batches=batches[-(request.limit or 10000):])

    async def AppCountLogs(self, request):
        counts, width = Counter(), request.bucket_secs or 1
        for batch in self._past(request):
            item = batch.items[0]
            start = int(item.timestamp // width) * width
            counts[start, SOURCES.get(item.file_descriptor, "system_logs")] += 1
        bucket = pb.AppCountLogsResponse.LogBucket
        return pb.AppCountLogsResponse(app_id=request.app_id, buckets=[
            bucket(bucket_start_at=Timestamp(seconds=start), **{
                name: counts[start, name] for name in SOURCES.values()})
            for start in sorted({start for start, _ in counts})])

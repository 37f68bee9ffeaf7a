"""RPCs of apps: create, deploy, list, look up by name, stop, die with their client."""
import asyncio
import time

from grpclib import GRPCError, Status

from .state import App
from .tolerant import pb

RUN = (pb.APP_STATE_EPHEMERAL, pb.APP_STATE_INITIALIZING)


def lifecycle(app): return pb.AppLifecycle(app_state=app.state, created_at=app.created,
                                           stopped_at=app.stopped)


class AppRPCs:
    async def AppCreate(self, request):
        app = self.cloud.add(self.cloud.apps, App(
            self.cloud.new_id("ap"), request.description, request.app_state))
        return pb.AppCreateResponse(app_id=app.id, app_page_url=self.cloud.page(app))

    async def AppGetOrCreate(self, request):
        app = self.cloud.deployed.get(request.app_name)
        if app is None:
            if not request.object_creation_type:
                raise GRPCError(Status.NOT_FOUND, f"App '{request.app_name}' not found")
            app = self.cloud.add(self.cloud.apps, App(
                self.cloud.new_id("ap"), request.app_name, pb.APP_STATE_DEPLOYED))
            self.cloud.deployed[request.app_name] = app
        return pb.AppGetOrCreateResponse(
            app_id=app.id, handle_metadata=pb.AppHandleMetadata(
                app_id=app.id, description=app.name, environment_name="main"))

    async def AppGetByDeploymentName(self, request):
        app = self.cloud.deployed.get(request.name)
        gone = [a for a in self.cloud.apps.values()
                if a.name == request.name and a.stopped]
        known = app or (gone[-1] if gone else None)
        return pb.AppGetByDeploymentNameResponse(
            app_id=app.id if app else "", environment_name="main",
            previous_app_id=known.id if known and not app else "",
            lifecycle=lifecycle(known) if known else None)

    async def AppGetLayout(self, request):
        return pb.AppGetLayoutResponse(app_layout=self.cloud.layout(self._app(request)))

    async def AppGetLifecycle(self, request):
        return pb.AppGetLifecycleResponse(lifecycle=lifecycle(self._app(request)))

    async def AppList(self, request):
        item = pb.AppListResponse.AppListItem
        return pb.AppListResponse(apps=[
            item(app_id=app.id, name=app.name, description=app.name, state=app.state,
                 created_at=app.created, stopped_at=app.stopped,
                 n_running_tasks=len(self.cloud.containers_of(app)))
            for app in self.cloud.apps.values()])

    async def TaskList(self, request):
        app = self._app(request)
        return pb.TaskListResponse(tasks=[
            pb.TaskStats(app_id=app.id, task_id=c.id, started_at=c.created)
            for c in self.cloud.containers_of(app)])

    async def AppPublish(self, request):
        app = self._app(request)
        app.functions, app.state = dict(request.function_ids), request.app_state
        if request.name:
            app.name = request.name
            self.cloud.deployed[request.name] = app
        return pb.AppPublishResponse(url=self.cloud.page(app), deployed_at=time.time())

    async def AppSetTags(self, request): self._app(request)

    async def AppHeartbeat(self, request):
        self.cloud.heartbeats[request.app_id] = time.time()

    async def AppClientDisconnect(self, request):
        app = self._app(request)
        if app.state in RUN:
            asyncio.ensure_future(self.cloud.stop_app(app))
        elif app.state == pb.APP_STATE_DETACHED:
            app.state = pb.APP_STATE_DETACHED_DISCONNECTED
            self.cloud.stop_if_done(app)

    async def AppStop(self, request):
        asyncio.ensure_future(self.cloud.stop_app(self._app(request)))

    def _app(self, request) -> App:
        return self.cloud.get(self.cloud.apps, request.app_id, "App")

"""RPCs of functions: create, look up by name, vary with other options."""
from grpclib import GRPCError, Status

from .state import Function
from .tolerant import pb

GPUS = {"", "ANY", "T4", "L4", "A10", "A10G", "L40S", "A100", "A100-40GB", "A100-80GB",
        "RTX-PRO-6000", "H100", "H100!", "H200", "B200", "B200+"}


def check(definition):
    "The client checks neither: a wrong GPU name is found out here."
    gpu = definition.resources.gpu_config.gpu_type
    if gpu not in GPUS:
        raise GRPCError(Status.INVALID_ARGUMENT, f"Unknown GPU type: {gpu!r}")
    if not 1 <= definition.timeout_secs <= 86400:
        raise GRPCError(Status.INVALID_ARGUMENT, "timeout must be between 1 and "
                        f"86400 s, got {definition.timeout_secs}")


def vary(base, options):
    "The definition of `base.with_options(...)`."
    varied = type(base)()
    varied.CopyFrom(base)
    if options.HasField("resources"): varied.resources.MergeFrom(options.resources)
    if options.HasField("timeout_secs"): varied.timeout_secs = options.timeout_secs
    if options.HasField("retry_policy"):
        varied.retry_policy.CopyFrom(options.retry_policy)
    if options.HasField("concurrency_limit"):
        varied.concurrency_limit = options.concurrency_limit
        varied.autoscaler_settings.max_containers = options.concurrency_limit
    if options.replace_volume_mounts:
        del varied.volume_mounts[:]
        varied.volume_mounts.extend(options.volume_mounts)
    if options.replace_secret_ids:
        del varied.secret_ids[:]
        varied.secret_ids.extend(options.secret_ids)
    return varied


class FunctionRPCs:
    async def FunctionPrecreate(self, request):
        id = request.existing_function_id or self.cloud.new_id("fu")
        if id not in self.cloud.functions:
            definition = pb.Function(
                function_name=request.function_name,
                function_type=request.function_type,
                function_schema=request.function_schema,
                supported_input_formats=request.supported_input_formats,
                supported_output_formats=request.supported_output_formats)
            self.cloud.functions[id] = Function(id, self._app(request), definition, [])
        return pb.FunctionPrecreateResponse(
            function_id=id, handle_metadata=self.cloud.functions[id].metadata)

    async def FunctionCreate(self, request):
        id = request.existing_function_id or self.cloud.new_id("fu")
        ranked = request.function_data.ranked_functions
        ranked = [one.function for one in sorted(ranked, key=lambda one: one.rank)]
        ranked = ranked or [request.function]
        for definition in ranked: check(definition)
        function = Function(id, self._app(request), ranked[0], ranked)
        self.cloud.functions[id] = function
        return pb.FunctionCreateResponse(
            function_id=id, handle_metadata=function.metadata, function=ranked[0],
            function_data=function.data)

    async def FunctionGet(self, request):
        app = self.cloud.deployed.get(request.app_name)
        if app is None or request.object_tag not in app.functions:
            raise GRPCError(Status.NOT_FOUND, f"Function '{request.object_tag}' in App "
                            f"'{request.app_name}' not found")
        function = self.cloud.functions[app.functions[request.object_tag]]
        return pb.FunctionGetResponse(function_id=function.id, function=function.data,
                                      handle_metadata=function.metadata)

    async def FunctionBindParams(self, request):
        base = self.cloud.get(self.cloud.functions, request.function_id, "Function")
        definition = vary(base.definition, request.function_options)
        check(definition)
        key = base.id, definition.SerializeToString(deterministic=True)
        if key not in self.cloud.variants:
            self.cloud.variants[key] = self.cloud.add(self.cloud.functions, Function(
                self.cloud.new_id("fu"), base.app, definition, [definition], base.id))
        bound = self.cloud.variants[key]
        return pb.FunctionBindParamsResponse(bound_function_id=bound.id,
                                             handle_metadata=bound.metadata)

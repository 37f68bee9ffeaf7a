"""RPCs of a session: hello, tokens, environment, workspace, prices."""
import base64
import json
import time

from .tolerant import pb

PRICES = {  # USD per hour, 2026-11; the key names of the answer are our guess
    "T4": 0.5904, "L4": 0.7992, "A10": 1.1016, "L40S": 1.9512, "A100-40GB": 2.0988,
    "A100-80GB": 2.4984, "RTX-PRO-6000": 3.0312, "H100": 3.9492, "H200": 4.5396,
    "B200": 6.2496}


class SessionRPCs:
    async def ClientHello(self, request):
        return pb.ClientHelloResponse()

    async def AuthTokenGet(self, request):
        body = json.dumps({"exp": time.time() + 3600}).encode()
        body = base64.urlsafe_b64encode(body).decode().rstrip("=")
        return pb.AuthTokenGetResponse(token=f"e30.{body}.x")

    async def EnvironmentGetOrCreate(self, request):
        settings = pb.EnvironmentSettings(image_builder_version="2025.06")
        return pb.EnvironmentGetOrCreateResponse(
            environment_id="en-local", metadata=pb.EnvironmentMetadata(
                name=request.deployment_name or "main", settings=settings))

    async def EnvironmentList(self, request):
        return pb.EnvironmentListResponse(items=[pb.EnvironmentListItem(name="main")])

    async def WorkspaceNameLookup(self, request):
        return pb.WorkspaceNameLookupResponse(workspace_name="localcloud",
                                              username="localcloud")

    async def WorkspaceBillingRates(self, request):
        rates = {f"gpu_{gpu.lower()}_per_hour": str(usd) for gpu, usd in PRICES.items()}
        lines = "\n".join(f"{name} {usd}" for name, usd in rates.items())
        return pb.WorkspaceBillingRatesResponse(rates=rates, formatted=lines)

"""`/runner/v1`: a bare ASGI application in front of Django.

Django's ASGI handler costs about 1 ms a request and keeps a thread for each one that waits; with a
thousand runners that beat every 5 s and hold a long poll, both would fill a process.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from accounts.rights import Right
from webui.runner_api import checkpoints, event_files, proofs, slurm, streams
from webui.runner_api.answers import RefusedRequest, endpoint


@endpoint("*", Right.OPEN)
async def _nothing(request: Request) -> Response:
    raise RefusedRequest(404, f"There is nothing at {request.url.path}.")


_STREAM = "/streams/{allocation_id}/{member:int}"
_FILE = "/checkpoints/{uuid:uuid}/files/{path:path}"
_PARTS = "/checkpoints/{uuid:uuid}/parts/{path:path}"

application = Router(
    [
        Route(_STREAM, streams.batch, methods=["POST"]),
        Route(f"{_STREAM}/heartbeat", streams.heartbeat, methods=["POST"]),
        Route(f"{_STREAM}/signals", streams.signals, methods=["GET"]),
        Route(_FILE, checkpoints.put_file, methods=["PUT"]),
        Route(_FILE, checkpoints.get_file, methods=["GET"]),
        Route(_PARTS, checkpoints.put_part, methods=["PUT"]),
        Route(_PARTS, checkpoints.get_part, methods=["GET"]),
        Route("/checkpoints/check", checkpoints.check, methods=["POST"]),
        Route("/checkpoints/{uuid:uuid}/sign", checkpoints.sign, methods=["POST"]),
        Route("/checkpoints/{uuid:uuid}/complete", checkpoints.complete, methods=["POST"]),
        Route("/event-files/{path:path}", event_files.put, methods=["PUT"]),
        Route("/tensorboard", event_files.listing, methods=["GET"]),
        Route("/tensorboard/file", event_files.file, methods=["GET"]),
        Route("/slurm/{attempt}/begun", slurm.begun, methods=["POST"]),
        Route("/nonce", proofs.nonce, methods=["GET"]),
        Route("/identity", proofs.identity, methods=["GET"]),
        Route("/{rest:path}", _nothing, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
    ],
    redirect_slashes=False,
)

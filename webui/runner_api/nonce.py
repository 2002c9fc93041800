"""By which a host tells that an address leads to this very server: an HMAC that only this server can make."""

from __future__ import annotations

import hashlib
import hmac

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from accounts.models import Cluster
from webui.runner_api import limits
from webui.runner_api.answers import RefusedRequest, endpoint
from webui.waiting.threads import reading


@endpoint
async def nonce(request: Request) -> Response:
    """GET `value`: {"hmac": hex HMAC-SHA256 of it}. No login: it proves something about the server only."""
    value = request.query_params.get("value", "")
    if not 1 <= len(value) <= limits.NONCE_CHARACTERS_MAX:
        raise RefusedRequest(400, f"value must have 1 to {limits.NONCE_CHARACTERS_MAX} characters.")
    cluster = await reading(Cluster.get)
    proof = hmac.new(cluster.nonce_key.encode(), value.encode(), hashlib.sha256).hexdigest()
    return JSONResponse({"hmac": proof, "cluster_id": str(cluster.cluster_id)})

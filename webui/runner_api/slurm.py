"""What a job in Slurm tells before it has a run: that it has begun, so that nobody waits for the next look at Slurm."""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from accounts.rights import Right
from jobs import feeding
from webui.runner_api.answers import RefusedRequest, endpoint, token_of
from webui.waiting.threads import asking


@endpoint("POST", Right.RUN)
async def begun(request: Request) -> Response:
    """POST, with the token of the job's script: {"seen"}, whether the server knows. If not, it asks Slurm now.

    What Slurm says counts, not this word. The job says it again until it is seen.
    """
    attempt = str(request.path_params["attempt"])
    if not hmac.compare_digest(token_of(request).encode(), feeding.start_token(attempt).encode()):
        raise RefusedRequest(401, "The token is not that of a job for this attempt.")
    return JSONResponse({"seen": await asking(feeding.told_begun, attempt)})

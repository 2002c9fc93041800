"""`GET /metrics`, for Prometheus (docs/monitoring.md)."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden
from django.views.decorators.http import require_safe
from prometheus_client.exposition import choose_encoder

from accounts.models import LoginToken
from accounts.rights import Right, declares
from shown.prometheus import registry
from webui.api.authentication import bearer_tokens

#: that a request comes from this machine says nothing: jobs run here, and others come through tunnels
_REFUSED = (
    "The figures need `Authorization: Bearer TOKEN`, with the token of TRAINMASTER_METRICS_TOKEN or an access token of "
    "any user; its scope may be read (`trainmaster token create --scope read`).\n"
)


@declares({"GET": Right.READ})
@require_safe
def scrape(request: HttpRequest) -> HttpResponse:
    """The figures in the text format, or OpenMetrics for those who ask for it; 503 while PostgreSQL is away."""
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    try:
        if not _may_read(request):
            return HttpResponseForbidden(_REFUSED, content_type="text/plain; charset=utf-8")
        body = encode(registry)
    except DatabaseError:
        connection.close()
        return HttpResponse("PostgreSQL does not answer in time.\n", status=503, content_type="text/plain")
    return HttpResponse(body, content_type=content_type, headers={"Cache-Control": "no-store"})


def _may_read(request: HttpRequest) -> bool:
    """Does it bring the token that was set for Prometheus, or one of a user's? A run's is no user's."""
    for token in bearer_tokens(request.headers):
        wanted = settings.METRICS_TOKEN
        if (wanted and secrets.compare_digest(token.encode(), wanted.encode())) or LoginToken.find_user(
            token
        ):
            return True
    return False

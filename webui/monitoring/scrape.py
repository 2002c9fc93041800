"""`GET /metrics`, for Prometheus (docs/monitoring.md)."""

from __future__ import annotations

import ipaddress
import secrets

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from webui.monitoring.collector import ClusterCollector

_WRONG_TOKEN = "The figures need the token of TRAINMASTER_METRICS_TOKEN, as `Authorization: Bearer TOKEN`.\n"
_NOT_LOOPBACK = (
    "Without TRAINMASTER_METRICS_TOKEN only this machine itself may read the figures, and not through a proxy. "
    "Set it, and let Prometheus send it as its bearer token.\n"
)

registry = CollectorRegistry()
registry.register(ClusterCollector())
ProcessCollector(registry=registry)  # of the web process that answers


@require_safe
def scrape(request: HttpRequest) -> HttpResponse:
    """The figures in the text format, or OpenMetrics for those who ask for it; 503 while PostgreSQL is away."""
    if refusal := _refusal(request):
        return HttpResponseForbidden(refusal, content_type="text/plain; charset=utf-8")
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    try:
        body = encode(registry)
    except DatabaseError:
        connection.close()
        return HttpResponse("PostgreSQL does not answer in time.\n", status=503, content_type="text/plain")
    return HttpResponse(body, content_type=content_type, headers={"Cache-Control": "no-store"})


def _refusal(request: HttpRequest) -> str:
    """Why this asker may not read; empty if it may."""
    if settings.METRICS_TOKEN:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        right = secrets.compare_digest(token.strip().encode(), settings.METRICS_TOKEN.encode())
        return "" if scheme.lower() == "bearer" and right else _WRONG_TOKEN
    forwarded = "X-Forwarded-For" in request.headers or "Forwarded" in request.headers
    return "" if _is_loopback(request.META.get("REMOTE_ADDR", "")) and not forwarded else _NOT_LOOPBACK


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # a Unix socket has no address
        return False

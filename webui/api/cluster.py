"""What the server says about itself: /info, /health and the master's records."""

from __future__ import annotations

from typing import NotRequired

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from accounts.models import Cluster
from hosts.models import ResourcePool
from webui.api import cluster_message
from webui.api.errors import json_error
from webui.api.views import ApiView, Json


def info(request: HttpRequest) -> JsonResponse:
    """Read by the CLI before every command, without login."""
    cluster = str(Cluster.get().cluster_id)
    return JsonResponse(
        {
            "cluster_id": cluster,
            "cluster_name": settings.CLUSTER_NAME,
            "master_id": cluster,
            "version": settings.VERSION,
            "telemetry": {"enabled": False},
        }
    )


def health(request: HttpRequest) -> JsonResponse:
    """200 while requests can be served: Redis only makes things faster, PostgreSQL is the truth."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        connection.close()
        return json_error(
            503, "PostgreSQL does not answer; running jobs go on, and so does the server once it is back."
        )
    return JsonResponse({"status": "ok", "postgresql": "ok", "redis": _redis_state()})


def _redis_state() -> str:
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=0.5, socket_connect_timeout=0.5
        ) as client:
            client.ping()
    except redis.RedisError:
        return "away"
    return "ok"


class MasterRecord(TypedDict):
    version: str
    masterId: str
    clusterId: str
    clusterName: str
    telemetryEnabled: bool
    userManagementEnabled: bool
    rbacEnabled: bool
    strictJobQueueControl: bool
    hasCustomLogo: bool
    externalLoginUri: str
    externalLogoutUri: str
    ssoProviders: list[Json]
    featureSwitches: list[str]
    product: str
    branding: str
    clusterMessage: NotRequired[cluster_message.ClusterMessageRecord | None]


class MasterConfigAnswer(TypedDict):
    """`config`: settings by name, in small letters."""

    config: Json


def encode_master() -> Json:
    cluster = Cluster.get()
    row: Json = {
        "version": settings.VERSION,
        "masterId": str(cluster.cluster_id),
        "clusterId": str(cluster.cluster_id),
        "clusterName": settings.CLUSTER_NAME,
        "telemetryEnabled": False,
        "userManagementEnabled": True,
        "rbacEnabled": False,
        "strictJobQueueControl": ResourcePool.objects.filter(strict=True).exists(),
        "hasCustomLogo": False,
        "externalLoginUri": "",
        "externalLogoutUri": "",
        "ssoProviders": [],
        "featureSwitches": [],
        "product": "PRODUCT_UNSPECIFIED",
        "branding": "trainmaster",
    }
    if cluster.message_now:
        row["clusterMessage"] = cluster_message.encode()
    return row


class Master(ApiView):
    """The installation: name, version, what it can do. Open, because the login page shows it."""

    open_to_all = True
    answers = {"GET": MasterRecord}

    def get(self, request: Request) -> Response:
        return Response(encode_master())


#: Settings that the configuration record shows: limits and intervals, never an address or a secret.
_SHOWN = (
    "TICK_SECONDS", "SWEEP_SECONDS", "HOST_SILENT_AFTER_SECONDS", "SSH_CONNECT_TIMEOUT_SECONDS",
    "SSH_KEEPALIVE_SECONDS",
    "STOP_GRACE_SECONDS", "GANG_FAILURE_GRACE_SECONDS", "PREEMPTION_TIMEOUT_SECONDS", "LAUNCH_ATTEMPTS",
    "HEARTBEAT_SECONDS", "SPOOL_BYTES", "LOG_LINE_BYTES", "CONTEXT_BYTES", "LOGIN_TOKEN_DAYS", "PORT_LEASE_FIRST",
    "PORT_LEASE_LAST",
)  # fmt: skip


class MasterConfig(ApiView):
    """The settings that this server runs with."""

    admin_methods = frozenset({"GET"})
    answers = {"GET": MasterConfigAnswer}

    def get(self, request: Request) -> Response:
        config = {name.lower(): getattr(settings, name) for name in _SHOWN}
        return Response({"config": {"cluster_name": settings.CLUSTER_NAME, **config}})

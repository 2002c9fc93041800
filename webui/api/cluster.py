"""What the server says about itself: /info, /health and the master's records."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from rest_framework.request import Request

from accounts.models import Cluster
from accounts.rights import Right, declares
from hosts.models import ResourcePool
from webui.api import cluster_message
from webui.api.answers import Answer, Maybe
from webui.api.cluster_message import ClusterMessageRecord
from webui.api.errors import json_error
from webui.api.views import ApiView


@declares({"GET": Right.OPEN})
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


@declares({"GET": Right.OPEN})
def health(request: HttpRequest) -> JsonResponse:
    """200 while requests can be served: Redis only makes things faster, PostgreSQL is the truth."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        connection.close()
        return json_error(
            503,
            "PostgreSQL is not responding. Running jobs continue, and the server recovers when PostgreSQL is back.",
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


class SsoProvider(Answer):
    """Single sign-on that the CLI can go through. There is none: it logs in by password or token."""

    name: str
    sso_url: str
    type: str
    always_redirect: bool


class MasterRecord(Answer):
    version: str
    master_id: str
    cluster_id: str
    cluster_name: str
    telemetry_enabled: bool = False
    user_management_enabled: bool = True
    rbac_enabled: bool = False
    strict_job_queue_control: bool
    has_custom_logo: bool = False
    external_login_uri: str = ""
    external_logout_uri: str = ""
    sso_providers: list[SsoProvider] = []
    feature_switches: list[str] = []
    product: str = "PRODUCT_UNSPECIFIED"
    branding: str = "trainmaster"
    cluster_message: Maybe[ClusterMessageRecord] = None


class Master(ApiView):
    """The installation: name, version and capabilities. No login is needed, because the login page shows it."""

    rights = {"GET": Right.OPEN}

    def get(self, request: Request) -> MasterRecord:
        cluster = Cluster.get()
        return MasterRecord(
            version=settings.VERSION,
            master_id=str(cluster.cluster_id),
            cluster_id=str(cluster.cluster_id),
            cluster_name=settings.CLUSTER_NAME,
            strict_job_queue_control=ResourcePool.objects.filter(strict=True).exists(),
            cluster_message=cluster_message.encode() if cluster.message_now else None,
        )

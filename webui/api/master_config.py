"""`GET /api/v1/master/config`: what this server is set to, under the keys of Determined's master configuration.

What a key of the dialect asks about and this server does not have is null, or off. The server's own limits stand beside
them, by the setting's name in lower case. No address of another system and no secret is among them.
"""

from __future__ import annotations

import logging

from django.conf import settings
from rest_framework.request import Request

from accounts.rights import Right
from experiments.config.storage import Server
from hosts.models import ResourcePool
from webui.api.answers import Answer
from webui.api.views import ApiView, Json

#: limits and intervals
_OWN = (
    "TICK_SECONDS", "SWEEP_SECONDS", "HOST_SILENT_AFTER_SECONDS", "SSH_CONNECT_TIMEOUT_SECONDS",
    "SSH_KEEPALIVE_SECONDS",
    "STOP_GRACE_SECONDS", "GANG_FAILURE_GRACE_SECONDS", "PREEMPTION_TIMEOUT_SECONDS", "LAUNCH_ATTEMPTS",
    "HEARTBEAT_SECONDS", "SPOOL_BYTES", "LOG_LINE_BYTES", "CONTEXT_BYTES", "LOGIN_TOKEN_DAYS", "PORT_LEASE_FIRST",
    "PORT_LEASE_LAST",
)  # fmt: skip


class MasterConfigAnswer(Answer):
    """`config`: the dialect's master configuration, and this server's own settings by name, in lower case."""

    config: Json


class MasterConfig(ApiView):
    """The settings of this server."""

    rights = {"GET": Right.ADMIN}

    def get(self, request: Request) -> MasterConfigAnswer:
        own = {name.lower(): getattr(settings, name) for name in _OWN}
        return MasterConfigAnswer(config=own | _dialect(list(ResourcePool.objects.order_by("name"))))


def _dialect(pools: list[ResourcePool]) -> Json:
    compute = next((pool for pool in pools if pool.default_compute), None)
    auxiliary = next((pool for pool in pools if pool.default_aux), None)
    defaults = _task_defaults()
    return {
        "config_file": "",
        "log": {"level": logging.getLevelName(logging.root.level).lower(), "color": False},
        # where the database is, and as whom it is used, concerns nobody who asks here
        "db": {
            "user": None, "password": None, "migrations": None, "views_and_triggers": None, "host": None, "port": None,
            "name": None, "ssl_mode": None, "ssl_root_cert": None,
        },
        "tensorboard_timeout": settings.TENSORBOARD_IDLE_SECONDS,
        "notebook_timeout": None,
        "security": _security(pools),
        "checkpoint_storage": Server(type="server").model_dump(mode="json"),
        "task_container_defaults": defaults,
        "port": settings.LISTEN_PORT,
        "root": str(settings.STATIC_ROOT),
        "telemetry": {
            "enabled": False, "segment_master_key": "", "otel_enabled": False, "otel_endpoint": "",
            "segment_webui_key": "", "cluster_id": "",
        },
        "enable_cors": False,
        "launch_error": all(pool.launch_error for pool in pools),
        "cluster_name": settings.CLUSTER_NAME,
        "ui_customization": {"logo_paths": None},
        "logging": {"type": "default"},
        "retention_policy": {"log_retention_days": settings.LOG_RETENTION_DAYS, "schedule": None},
        "observability": {"enable_prometheus": True},
        "cache": {"cache_dir": str(settings.DATA_DIR)},
        "webhooks": {"base_url": settings.LINK_URL, "signing_key": None},
        "feature_switches": [],
        "reserved_ports": [],
        "resource_manager": {
            "type": "agent",
            "cluster_name": settings.CLUSTER_NAME,
            "name": "default",
            "metadata": None,
            "scheduler": _scheduler(compute) if compute else None,
            "default_compute_resource_pool": compute.name if compute else "",
            "default_aux_resource_pool": auxiliary.name if auxiliary else "",
            "no_default_resource_pools": compute is None and auxiliary is None,
            "require_authentication": True,
            "client_ca": "",
        },
        "resource_pools": [_pool(pool, defaults) for pool in pools],
        "additional_resource_managers": None,
        "__internal": {"audit_logging_enabled": False, "external_sessions": None, "proxied_servers": None},
        **_single_sign_on(),
        "det_cloud": {"enabled": False, "login_url": "", "always_redirect": False},
        "integrations": {"pachyderm": {"address": ""}},
    }  # fmt: skip


def _single_sign_on() -> Json:
    with_oidc = bool(settings.OIDC_ISSUER)
    return {
        "scim": {"enabled": False, "auth": None},
        "saml": {
            "enabled": False,
            "provider": "",
            **_not_told("idp_sso_descriptor_url", "idp_metadata_url"),
            "auto_provision_users": False,
            "always_redirect": False,
        },
        "oidc": {
            **_not_told(
                "client_id", "client_secret", "authentication_claim", "scim_authentication_attribute"
            ),
            "exclude_groups_scope": False,
            "enabled": with_oidc,
            "provider": settings.OIDC_NAME if with_oidc else "",
            "auto_provision_users": with_oidc,
            "always_redirect": False,
        },
    }


def _not_told(*more: str) -> Json:
    """What a section of single sign-on has about its provider: addresses of another system, and names of claims."""
    names = [
        "idp_recipient_url", "idp_sso_url", "groups_attribute_name", "display_name_attribute_name",
        "agent_uid_attribute_name", "agent_gid_attribute_name", "agent_user_name_attribute_name",
        "agent_group_name_attribute_name", *more,
    ]  # fmt: skip
    return dict.fromkeys(names)


def _security(pools: list[ResourcePool]) -> Json:
    return {
        "default_task": {"uid": None, "gid": None, "user": None, "group": None},  # the login's own account
        "tls": {"cert": settings.CERT_FILE or "", "key": ""},
        "ssh": {"rsa_key_size": None, "key_type": "ED25519"},
        "authz": {
            "type": "basic", "fallback": None, "rbac_ui_enabled": None, "_strict_ntsc_enabled": False,
            "workspace_creator_assign_role": None, "strict_job_queue_control": any(pool.strict for pool in pools),
        },
        "token": {
            "max_lifespan_days": int(settings.ACCESS_TOKEN_DAYS_MAX),
            "default_lifespan_days": int(settings.ACCESS_TOKEN_DAYS),
        },
        "initial_user_password": None,
    }  # fmt: skip


def _task_defaults() -> Json:
    """Defaults of all tasks: the server has none but the time to save; templates are for the others."""
    return {
        "shm_size_bytes": None, "nccl_port_range": "", "gloo_port_range": "", "network_mode": "host",
        "dtrain_network_interface": "", "cpu_pod_spec": None,
        "gpu_pod_spec": None, "checkpoint_gc_pod_spec": None, "image": None, "registry_auth": None,
        "force_pull_image": False, "environment_variables": None, "add_capabilities": [], "drop_capabilities": [],
        "devices": [], "bind_mounts": [], "work_dir": None, "slurm": None, "pbs": None, "startup_hook": "",
        "log_policies": [], "preemption_timeout": int(settings.PREEMPTION_TIMEOUT_SECONDS), "kubernetes": None,
    }  # fmt: skip


def _scheduler(pool: ResourcePool) -> Json:
    own = (
        {"preemption": pool.preemption, "default_priority": pool.default_priority}
        if "priority" in pool.policy.knobs
        else {}
    )
    return {
        "type": pool.scheduler,
        "fitting_policy": pool.fitting,
        "allow_heterogeneous_fits": pool.allow_heterogeneous_fits,
        **own,
    }


def _pool(pool: ResourcePool, defaults: Json) -> Json:
    return {
        "pool_name": pool.name,
        "description": pool.description,
        "provider": None,
        "scheduler": _scheduler(pool),
        "max_aux_containers_per_agent": pool.aux_per_host,
        "task_container_defaults": {**defaults, "dtrain_network_interface": pool.network_interface},
        "agent_reattach_enabled": True,
        "agent_reconnect_wait": pool.host_lost_after_seconds,
    }

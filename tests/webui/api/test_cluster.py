"""What the server says about itself, with and without its parts."""

import json
import logging
import re

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client, override_settings

from accounts.models import User
from hosts.models import ResourcePool
from tests.rig.api import Cast
from tests.rig.html import Html
from webui.api import master_log
from webui.api.docs import schema

#: the keys of the published server's configuration
_MASTER_CONFIG = """
config_file log db tensorboard_timeout notebook_timeout security checkpoint_storage task_container_defaults port root
telemetry enable_cors launch_error cluster_name ui_customization logging retention_policy observability cache webhooks
feature_switches reserved_ports resource_manager resource_pools additional_resource_managers __internal scim saml oidc
det_cloud integrations
"""
#: those of its sections
_SECTIONS = {
    "log": "level color",
    "db": "user password migrations views_and_triggers host port name ssl_mode ssl_root_cert",
    "security": "default_task tls ssh authz token initial_user_password",
    "task_container_defaults": "dtrain_network_interface nccl_port_range gloo_port_range shm_size_bytes network_mode "
    "cpu_pod_spec gpu_pod_spec checkpoint_gc_pod_spec image registry_auth force_pull_image environment_variables "
    "add_capabilities drop_capabilities devices bind_mounts work_dir slurm pbs startup_hook log_policies "
    "preemption_timeout kubernetes",
    "telemetry": "enabled segment_master_key otel_enabled otel_endpoint segment_webui_key cluster_id",
    "retention_policy": "log_retention_days schedule",
    "webhooks": "base_url signing_key",
    "__internal": "audit_logging_enabled external_sessions proxied_servers",
    "scim": "enabled auth",
    "saml": "enabled provider idp_recipient_url idp_sso_url idp_sso_descriptor_url idp_metadata_url "
    "auto_provision_users groups_attribute_name display_name_attribute_name agent_uid_attribute_name "
    "agent_gid_attribute_name agent_user_name_attribute_name agent_group_name_attribute_name always_redirect",
    "oidc": "enabled provider client_id client_secret idp_sso_url idp_recipient_url authentication_claim "
    "scim_authentication_attribute auto_provision_users groups_attribute_name display_name_attribute_name "
    "agent_uid_attribute_name agent_gid_attribute_name agent_user_name_attribute_name agent_group_name_attribute_name "
    "always_redirect exclude_groups_scope",
    "det_cloud": "enabled login_url always_redirect",
}


def test_info_needs_no_login_and_has_what_the_client_reads(cast: Cast) -> None:
    status, answer = cast.stranger.send("GET", "/info")
    assert status == 200
    assert {"cluster_id", "cluster_name", "master_id", "version", "telemetry"} <= answer.keys()
    assert answer["cluster_id"] == cast.stranger.send("GET", "/info")[1]["cluster_id"]


@pytest.mark.survive(22)
def test_health_is_good_while_redis_is_away(cast: Cast) -> None:
    with override_settings(REDIS_URL="redis://127.0.0.1:1/0"):
        status, answer = cast.stranger.send("GET", "/health")
    assert status == 200
    assert answer["redis"] == "away"


@pytest.mark.survive(23)
@pytest.mark.django_db(transaction=True)
def test_health_and_every_request_answer_503_while_postgresql_is_away(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.close()
    with monkeypatch.context() as patched:
        patched.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        patched.setitem(connection.settings_dict, "PORT", "1")
        for path, headers in (("/health", {}), ("/api/v1/experiments", cast.ada.headers)):
            answer = Client().get(path, headers=headers)
            assert answer.status_code == 503, path
            assert int(answer["Retry-After"]) > 0
            assert "message" in answer.json()
        connection.close()
    assert Client().get("/health").status_code == 200


def test_master_has_every_field_that_the_client_insists_on(cast: Cast) -> None:
    answer = cast.stranger.get("master")
    assert {
        "clusterId", "clusterName", "hasCustomLogo", "masterId", "strictJobQueueControl", "version"
    } <= answer.keys()  # fmt: skip


def test_the_configuration_is_for_admins_and_holds_no_secret(cast: Cast) -> None:
    config = cast.admin.get("master/config")["config"]
    assert config["tick_seconds"] > 0
    assert not any("secret" in name or "url" in name for name in config)
    secrets = (settings.SECRET_KEY, connection.settings_dict["NAME"], settings.REDIS_URL)
    assert not any(secret in json.dumps(config) for secret in secrets)
    assert cast.ada.refused("GET", "master/config")[0] == 403
    assert cast.stranger.refused("GET", "master/config")[0] == 401


def test_the_configuration_has_what_programs_for_determined_read(
    cast: Cast, pool: ResourcePool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    cast.admin.patch("resource-pools/default", {"defaultPriority": 30, "defaultCompute": True})
    config = cast.admin.get("master/config")["config"]
    manager, pools = (
        config["resource_manager"],
        {pool["pool_name"]: pool for pool in config["resource_pools"]},
    )
    assert (manager["type"], manager["default_compute_resource_pool"]) == ("agent", "default")
    assert config["log"] == {"level": "error", "color": False}
    assert pools["default"]["scheduler"] == {
        "type": "priority", "fitting_policy": "best", "allow_heterogeneous_fits": False, "preemption": True,
        "default_priority": 30,
    }  # fmt: skip
    assert config["checkpoint_storage"] == {
        "type": "server", "save_experiment_best": 0, "save_trial_best": 1, "save_trial_latest": 1
    }  # fmt: skip
    assert config["cluster_name"] == cast.stranger.get("master")["clusterName"]
    assert set(_MASTER_CONFIG.split()) <= config.keys()
    for section, keys in _SECTIONS.items():
        assert config[section].keys() >= set(keys.split()), section
    assert config["oidc"]["client_secret"] is None


def test_the_cluster_message_is_set_shown_and_removed(cast: Cast) -> None:
    cast.admin.put("master/cluster_message", {"message": "Down at noon"})
    assert cast.stranger.get("master")["clusterMessage"]["message"] == "Down at noon"
    assert cast.ada.refused("DELETE", "master/cluster_message")[0] == 403
    browser = Client()
    browser.force_login(User.objects.get(username="admin"))
    assert "Down at noon" in Html(browser.get("/settings").content)
    cast.admin.delete("master/cluster_message")
    assert "clusterMessage" not in cast.stranger.get("master")


def test_the_cluster_message_has_its_time(cast: Cast) -> None:
    soon = {"message": "Down at noon", "startTime": "2100-01-01T11:00:00Z", "duration": "1h"}
    cast.admin.put("master/cluster_message", soon)
    assert "clusterMessage" not in cast.stranger.get("master"), "not yet"
    known = cast.ada.get("master/cluster_message")["clusterMessage"]
    assert (known["startTime"][:19], known["endTime"][:19]) == ("2100-01-01T11:00:00", "2100-01-01T12:00:00")
    for wrong in (
        {"duration": "soon"},
        {"endTime": "2000-01-01T00:00:00Z"},
        {**soon, "endTime": "2100-01-01T12:00:00Z"},
    ):
        assert cast.admin.refused("PUT", "master/cluster_message", {"message": "x", **wrong})[0] == 400
    cast.admin.put("master/cluster_message", {"message": "Now", "duration": "1h"})
    assert cast.stranger.get("master")["clusterMessage"]["message"] == "Now"


def test_what_the_server_has_done_is_read_from_its_events(cast: Cast) -> None:
    cast.admin.post("users", {"user": {"username": "newcomer"}})
    cast.admin.post("resource-pools", {"name": "spare"})

    def said(everything: bool, offset: int = 0, most: int = 100) -> list[str]:
        return [
            row["message"] for row in master_log.read(everything, master_log.before(everything, offset), most)
        ]

    assert any(line.startswith("pool") for line in said(False))
    assert any(line.startswith("user") for line in said(True))
    assert not any(line.startswith("user") for line in said(False)), "accounts are for admins"
    assert said(True, -1) == said(True)[-1:] == said(True, len(said(True)) - 1)
    assert said(True, 1, most=1) == said(True)[1:2]
    assert said(True, 10_000) == []
    assert cast.ada.refused("GET", "master/logs?offset=x")[0] == 400


def test_admins_read_who_changed_what_from_where(cast: Cast) -> None:
    number = cast.ada.post("workspaces", {"name": "vision"})["workspace"]["id"]
    cast.ada.patch(f"workspaces/{number}", {"name": "speech"})
    cast.stranger.send("POST", "auth/login", {"username": "ada", "password": "guessed"})

    def said(everything: bool) -> str:
        return "\n".join(row["message"] for row in master_log.read(everything, 0, 100))

    whole = said(True)
    assert f"workspace {number}: (changed) by user:ada from 127.0.0.1" in whole
    assert '"changes": {"name": ["vision", "speech"]}' in whole
    assert "(login_failed) by nobody from 127.0.0.1" in whole
    for others in ("127.0.0.1", "vision", "login_failed"):
        assert others not in said(False), "addresses, words and logins are for admins"


def test_an_unknown_address_is_a_404_in_json(cast: Cast) -> None:
    status, sentence = cast.ada.refused("GET", "nothing/here")
    assert status == 404
    assert "/api/v1/docs" in sentence


@pytest.mark.parametrize(
    ("method", "path", "status", "instead"),
    [
        ("GET", "/api/v1/models/resnet/versions", 404, "metadata"),
        ("POST", "/api/v1/generic-tasks", 404, "trainmaster command run"),
        ("GET", "/api/v1/roles/workspace/1", 404, "trainmaster user edit"),
        ("PATCH", "/api/v1/master/config", 405, "TRAINMASTER_LOG_LEVEL"),
        ("PUT", "/api/v1/me", 405, 'Method "PUT" not allowed'),
    ],
)
def test_what_the_dialect_has_and_this_server_does_not_says_what_to_use(
    cast: Cast, method: str, path: str, status: int, instead: str
) -> None:
    answer = cast.admin.client.generic(method, path, headers=cast.admin.headers)
    assert (answer.status_code, instead in answer.json()["message"]) == (status, True), answer.content


def test_the_openapi_document_lists_every_resource(cast: Cast) -> None:
    document = cast.vic.get("openapi")
    paths = document["paths"]
    assert "post" in paths["/api/v1/experiments"]
    assert "get" in paths["/api/v1/allocations/{allocation_id}/signals/preemption"]
    assert paths["/api/v1/job-queues"]["post"]["requestBody"]
    assert cast.stranger.refused("GET", "openapi")[0] == 401


def test_the_openapi_document_says_how_to_log_in_and_what_errors_are(cast: Cast) -> None:
    document = cast.vic.get("openapi")
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "error" in document["components"]["schemas"]["ErrorAnswer"]["properties"]
    operations = {
        f"{method} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    for name, operation in operations.items():
        assert operation["responses"]["default"]["content"], name
        assert {"token": []} in operation.get("security", []) or "auth/login" in name, name
    assert "202" in operations["post /api/v1/hosts"]["responses"]
    assert "202" in operations["post /api/v1/hosts/{name}/doctor"]["responses"]
    assert "200" in operations["post /api/v1/hosts/{name}/drain"]["responses"]


def test_the_page_for_people_lists_every_request_and_asks_for_a_login(cast: Cast) -> None:
    client = Client()
    assert client.get("/api/v1/docs").status_code == 302
    client.force_login(User.objects.get(username="vic"))
    nouns = set(re.findall(r'href="/api/v1/docs\?of=([\w-]+)"', client.get("/api/v1/docs").content.decode()))
    pages = {noun: Html(client.get("/api/v1/docs", {"of": noun}).content) for noun in nouns}
    listed = [
        f"{method} {path.replace('<wbr>', '')}"
        for text in pages.values()
        for method, path in re.findall(r"<code>([A-Z]+) ?(<wbr>/[^ ]*?)</code>", text)
    ]
    assert len(listed) == len(set(listed)) == sum(len(each) for each in schema()["paths"].values())
    assert "without <code>drain</code>" in pages["agents"]
    assert '<a class="room" href="/docs/"' in pages["agents"]
    assert "<code>config</code> (required): string" in pages["experiments"]
    assert 'list of <a href="#TrialRecord">TrialRecord</a>' in pages["experiments"]
    for noun, text in pages.items():
        assert set(re.findall(r'href="#(\w+)"', text)) - {"main"} <= set(re.findall(r'id="(\w+)"', text)), (
            noun
        )
    found = Html(client.get("/api/v1/docs", {"q": "KILL trial"}).content)
    assert "<wbr>/kill</code>" in found and "<wbr>/job-queues" not in found
    assert "Add a word" in Html(client.get("/api/v1/docs", {"q": "e"}).content)
    assert "No request has zzz" in Html(client.get("/api/v1/docs", {"q": "zzz"}).content)
    assert client.get("/api/v1/docs", {"of": "zzz"}).status_code == 404

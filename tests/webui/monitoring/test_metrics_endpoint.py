"""What Prometheus reads: the real web process over rows that are known, parsed as Prometheus parses."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError

import pytest
from django.test import Client, override_settings
from django.utils import timezone
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from accounts import tokens
from accounts.models import LoginToken, Scope, User
from dispatch.passes import pool_pass
from hosts import pool_edits
from hosts.models import Host, ResourcePool, Slot
from jobs.models import Member
from jobs.states import MemberState
from shown import goodput
from tests.rig.many import make_commands
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import ROOT, Web, running_web
from tests.rig.world import make_host, make_user

Read = dict[tuple[str, frozenset[tuple[str, str]]], float]

pytestmark = pytest.mark.django_db(transaction=True)


def get(web: Web, **headers: str) -> str:
    user = User.objects.filter(username="scraper").first() or make_user("scraper")
    headers = {"Authorization": f"Bearer {LoginToken.issue(user)}", **headers}
    request = urllib.request.Request(f"{web.url}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def samples(families: Iterator[Metric]) -> Read:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def at(read: Read, name: str, **labels: str) -> float:
    return read[name, frozenset(labels.items())]


@pytest.fixture
def pool() -> ResourcePool:
    """Four slots on two hosts; a pass over a queue of three tasks, of which one holds two slots."""
    pool = ResourcePool.objects.create(name="research")
    hosts = [make_host(f"research-{number}", slots=2, pool=pool) for number in range(2)]
    Slot.objects.filter(host=hosts[1], index=1).update(enabled=False)
    make_commands(pool, make_user("ada"), 3, slots=2)
    pool_pass.run(pool.pk)
    return pool


def test_a_scrape_counts_tasks_slots_and_hosts_of_each_pool(web: Web, pool: ResourcePool) -> None:
    pool_edits.edit("research", {"spare_hosts": 1}, actor="user:ada")
    pool_pass.run(pool.pk)
    Host.objects.filter(name="research-1").update(contact=Host.Contact.SILENT)
    Slot.objects.filter(host__name="research-0", index=0).update(quarantine={"sentence": "It burns."})
    before = time.time()
    read = samples(plain_text(get(web)))
    assert at(read, "trainmaster_queue_tasks", pool="research", state="assigned") == 1
    assert at(read, "trainmaster_queue_tasks", pool="research", state="waiting") == 2
    assert at(read, "trainmaster_queue_tasks", pool="research", state="running") == 0
    assert at(read, "trainmaster_queue_wanted_slots", pool="research") == 4
    assert at(read, "trainmaster_slots", pool="research") == 4
    assert at(read, "trainmaster_slots_usable", pool="research") == 2
    assert at(read, "trainmaster_slots_used", pool="research") == 2
    assert at(read, "trainmaster_slots_quarantined", pool="research") == 1
    assert at(read, "trainmaster_hosts_burn_in_findings", pool="research") == 0
    assert at(read, "trainmaster_hosts", pool="research", state="ready") == 1
    assert at(read, "trainmaster_hosts", pool="research", state="silent") == 1
    spares = [at(read, f"trainmaster_spare_hosts{which}", pool="research") for which in ("", "_free")]
    assert spares == [1, 0], "a run must end first on the one that is kept"
    assert 0 < at(read, "trainmaster_pass_duration_seconds", pool="research") < 60
    assert before - 60 < at(read, "trainmaster_pass_timestamp_seconds", pool="research") <= before + 1


def test_the_lag_of_runs_is_read_from_their_heartbeats_and_spools(web: Web) -> None:
    members = make_gang(hosts=2)
    now = timezone.now()
    for age, member in zip((3, 90), members, strict=True):
        Member.objects.filter(pk=member.pk).update(
            state=MemberState.RUNNING,
            heartbeat_at=now - timedelta(seconds=age),
            spool={"unshipped_bytes": 1000 * age},
        )
    read = samples(plain_text(get(web)))
    pool = members[0].allocation.pool.name
    assert at(read, "trainmaster_runs", pool=pool) == 2
    assert at(read, "trainmaster_runs_unshipped_bytes", pool=pool) == 93_000
    newest = at(read, "trainmaster_heartbeat_newest_timestamp_seconds", pool=pool)
    oldest = at(read, "trainmaster_heartbeat_oldest_timestamp_seconds", pool=pool)
    assert newest - oldest == pytest.approx(87)
    assert now.timestamp() - newest == pytest.approx(3)


def test_all_web_processes_give_the_same_figures_of_the_cluster(
    web: Web, pool: ResourcePool, tmp_path: Path
) -> None:
    with running_web(tmp_path) as another:
        first, second = (samples(plain_text(get(each))) for each in (web, another))
    moving = ("process_", "trainmaster_database_", "trainmaster_rows_", "trainmaster_table_")
    kept = {key: value for key, value in first.items() if not key[0].startswith(moving)}
    assert kept
    assert kept == {key: second[key] for key in kept}
    assert first.keys() == second.keys()


def test_openmetrics_is_given_to_who_asks_for_it(web: Web, pool: ResourcePool) -> None:
    text = get(web, Accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    read = samples(openmetrics(text))
    assert at(read, "trainmaster_slots", pool="research") == 4
    assert at(read, "process_resident_memory_bytes") > 10_000_000
    assert at(read, "trainmaster_rows_inserted_total", table="logs_chunk") >= 0


def test_every_name_follows_the_conventions(web: Web, pool: ResourcePool) -> None:
    for family in plain_text(get(web)):
        assert family.documentation.endswith("."), family.name
        assert not family.name.endswith(("_ms", "_milliseconds", "_mb", "_percent")), family.name
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name


def test_with_a_token_nobody_reads_without_it(tmp_path: Path) -> None:
    with running_web(tmp_path, TRAINMASTER_METRICS_TOKEN="scraper") as web:
        for headers in (
            {"Authorization": ""},
            {"Authorization": "Bearer other"},
            {"Authorization": "scraper"},
        ):
            with pytest.raises(HTTPError) as refused:
                get(web, **headers)
            assert refused.value.code == HTTPStatus.FORBIDDEN
            assert "TRAINMASTER_METRICS_TOKEN" in refused.value.read().decode()
        assert "trainmaster_build_info" in get(web, Authorization="Bearer scraper")


@pytest.mark.parametrize("setting", ["", "scraper"])
def test_users_read_with_a_token_of_their_own_and_nobody_for_being_near(setting: str) -> None:
    user, run = make_user("ada"), make_gang(1)[0].allocation
    _, token = tokens.create(user, description="prometheus", days=1, scope=Scope.READ, actor="user:ada")
    with override_settings(METRICS_TOKEN=setting):
        for sent, status in ((token, 200), (RUN_TOKEN, 403), ("", 403), ("other", 403)):
            headers = {"Authorization": f"Bearer {sent}"}
            assert Client().get("/metrics", REMOTE_ADDR="127.0.0.1", headers=headers).status_code == status, (
                sent
            )
        for address in ("127.0.0.1", "::1", "10.0.0.7", ""):
            assert Client().get("/metrics", REMOTE_ADDR=address).status_code == 403
        tokens.revoke_all(user)
        assert Client().get("/metrics", headers={"Authorization": f"Bearer {token}"}).status_code == 403
    assert run.token_hash


def test_the_dashboard_and_the_page_name_figures_that_exist(web: Web, pool: ResourcePool) -> None:
    Member.objects.update(state=MemberState.RUNNING, heartbeat_at=timezone.now())
    given = {name for name, _ in samples(plain_text(get(web)))}
    dashboard = json.loads((ROOT / "deploy/grafana/trainmaster.json").read_text())
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    asked += (ROOT / "docs/monitoring.md").read_text()
    named = set(re.findall(r"\b(?:trainmaster|process)_[a-z_]*[a-z]\b", asked))
    assert len(named) > 12
    assert named - given <= {"trainmaster_token"}
    parts = {part for matched in re.findall(r'part!?[=~]~?"([^"]+)"', asked) for part in matched.split("|")}
    assert {"progress", "not_told"} <= parts <= goodput.WORDS.keys()


def test_every_figure_stands_in_the_page_that_explains_them(web: Web, pool: ResourcePool) -> None:
    page = (ROOT / "docs/monitoring.md").read_text()
    families = [family.name for family in plain_text(get(web)) if family.name.startswith("trainmaster_")]
    abbreviated = {"trainmaster_slots_usable", "trainmaster_slots_used", "trainmaster_build_info"}
    abbreviated |= {"trainmaster_heartbeat_oldest_timestamp_seconds", "trainmaster_database_connections_max"}
    assert [name for name in families if name not in page and name not in abbreviated] == []

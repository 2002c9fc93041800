"""Who changed what and when: the page, its filters and rights, the file, a pool's history, and what it costs."""

from __future__ import annotations

import csv
import io
import re

import pytest
from django.db import connection
from django.test import Client

from accounts import users
from accounts.models import LoginToken, User
from accounts.refusals import Refusal
from events.models import Event
from events.origin import asked_from
from events.record import record
from experiments import outcomes, transitions
from experiments.models import Experiment, Trial
from hosts import pool_edits, registry
from hosts.pools import default_pool
from jobs import queue_edits
from jobs.queue_edits import Update
from shown import audit
from shown.audit import AuditFilters
from tests.rig.api import Api
from tests.rig.html import without_tags
from tests.rig.world import make_host, make_project, make_user, submit_experiment

pytestmark = pytest.mark.django_db
BOB = "user:bob"


def logged_in(name: str, role: str = User.Role.EDITOR) -> Client:
    client = Client()
    client.force_login(make_user(name, role), backend="django.contrib.auth.backends.ModelBackend")
    return client


def rows(client: Client, path: str) -> list[str]:
    """The rows of the table as a reader sees them."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.content
    body = answer.content.partition(b"<tbody>")[2].partition(b"</tbody>")[0]
    return [without_tags(row).strip() for row in body.split(b"</tr>")[:-1]]


def whats(client: Client, path: str) -> list[str]:
    found = re.findall(r'<td class="wide what">(.*?)</td>', client.get(path).content.decode(), re.S)
    return [" ".join(text.split()) for text in found]


@pytest.fixture
def world(db: None) -> Experiment:
    """What bob did: from 10.0.0.7, to a job of ada's, to a host, to a pool and to ada herself."""
    make_project()
    ada, bob, host = make_user("ada"), make_user("bob", User.Role.ADMIN), make_host("gpu1", 2)
    pool_edits.create("night", {}, actor=BOB)
    experiment = submit_experiment(name="llama", owner=ada)
    job = str(experiment.job_id)
    with asked_from("10.0.0.7"):
        queue_edits.apply([Update(job, priority=7)], actor=BOB, role=User.Role.ADMIN)
        queue_edits.apply([Update(job, pool="night")], actor=BOB, role=User.Role.ADMIN)
        registry.drain(host.pk, actor=BOB)
        pool_edits.edit("night", {"strict": True}, actor=BOB)
        users.change(ada, {"role": User.Role.VIEWER, "unix_uid": 7, "unix_user": "ada"}, asking=bob)
        transitions.kill(experiment.pk, actor=BOB)
    return experiment


def test_each_act_is_one_row_with_what_was_and_is_and_a_link(world: Experiment) -> None:
    root = logged_in("root", User.Role.ADMIN)
    record(Event.Kind.HOST, "x", reason="silent", actor="host:gpu1")
    assert whats(root, "/audit?user=bob") == [
        "Killed",
        "Changed; role: editor to viewer; agent uid: none to 7; agent user: none to ada",
        "Changed; strict: no to yes",
        "Drained",
        "Resource pool default to night",
        "Priority 42 to 7",
        "Created",
    ], "neither the server's own rows nor what followed from the kill"
    page = root.get("/audit?user=bob").content.decode()
    links = [f"/experiments/{world.pk}", "/hosts/gpu1", "/pools/night", f"/jobs/job/{world.job_id}"]
    assert all(f'href="{link}"' in page for link in links)
    assert f'href="/users/{User.objects.get(username="ada").pk}">ada<' in page and "10.0.0.7" in page


def test_a_trial_that_is_killed_alone_is_an_act(db: None) -> None:
    make_project()
    trial = Trial.objects.get(experiment=submit_experiment())
    outcomes.kill_trial(trial.pk, actor=BOB)
    (row,) = rows(logged_in("root", User.Role.ADMIN), "/audit?change=stopped&kind=trial")
    assert f"trial {trial.pk} Killed" in row


def test_filters_are_in_the_address_and_unknown_ones_are_told(world: Experiment) -> None:
    root = logged_in("root", User.Role.ADMIN)
    for query, found in (
        ("change=priority", ["Priority 42 to 7"]),
        ("kind=host&id=gpu1", ["Drained"]),
        (f"kind=job&id={world.job_id}", ["Resource pool default to night", "Priority 42 to 7"]),
        (f"kind=experiment&id={world.pk}&change=stopped", ["Killed"]),
        ("kind=pool&id=night&change=edited", ["Changed; strict: no to yes"]),
        ("user=bob&to=2020-01-01", []),
        ("user=bob&change=stopped&from=2020-01-01", ["Killed"]),
        ("kind=pool&id=gone", []),
    ):
        assert whats(root, f"/audit?{query}") == found, query
    assert "Filter ignored" in root.get("/audit?kind=ghost").content.decode()
    assert root.get("/audit?from=yesterday").status_code == 400


def test_others_see_what_they_did_and_what_happened_in_a_pool(world: Experiment) -> None:
    ada = logged_in("ada")
    assert whats(ada, "/audit?user=bob") == ["Logged in", "Submitted"], "their own, whatever the address says"
    history = rows(ada, "/pools/night/history")
    assert history[0].endswith(" llama Killed")
    assert "Resource pool default to night" in history[2] and " bob " in history[2]
    assert "10.0.0.7" not in str(history)
    assert "10.0.0.7" in str(rows(logged_in("root", User.Role.ADMIN), "/pools/night/history"))
    both = whats(ada, "/pools/default/history")
    assert both == ["Drained", "Resource pool default to night", "Priority 42 to 7", "Submitted"]
    assert whats(ada, "/pools/default/history?change=priority") == ["Priority 42 to 7"]
    assert "Changed; role" not in str(whats(ada, "/pools/night/history"))
    answer = Api(LoginToken.issue(make_user("vic", User.Role.VIEWER))).get("audit?pool=night&change=pool")
    (change,) = answer["rows"]
    assert (change["actor"], change["origin"], change["name"]) == (BOB, "", "llama")
    assert change["changes"] == [{"field": "resource pool", "was": "default", "now": "night"}]
    assert Api(LoginToken.issue(make_user("vic"))).get("audit")["rows"] == []


def test_who_changed_this_priority_takes_one_click_from_the_queue(world: Experiment) -> None:
    other = submit_experiment(name="other", owner=make_user("ada"))
    queue_edits.apply([Update(str(other.job_id), priority=9)], actor=BOB, role=User.Role.ADMIN)
    ada = logged_in("ada")
    assert f'href="/jobs/job/{other.job_id}"' in ada.get("/jobs/default").content.decode()
    said = without_tags(ada.get(f"/jobs/job/{other.job_id}").content)
    assert "Priority changed: priority 42 to 9 by bob" in said


def test_the_file_has_the_same_rows_and_no_formulas(world: Experiment) -> None:
    root = logged_in("root", User.Role.ADMIN)
    submit_experiment(name="=HYPERLINK(1)", owner=make_user("ada"))
    experiment = Experiment.objects.latest("pk")
    Experiment.objects.filter(pk=experiment.pk).update(name="=1+2")
    job = str(experiment.job_id)
    queue_edits.apply([Update(job, priority=8)], actor=BOB, role=User.Role.ADMIN)
    viewer = User.objects.get(username="root")
    filters = AuditFilters(change="priority")
    found = b"".join(audit.csv_blocks(audit.found(filters, viewer), viewer)).decode()
    newest, first = list(csv.DictReader(io.StringIO(found)))
    assert newest["object"] == "'=HYPERLINK(1)"
    about = ("user", "address", "what", "before", "after")
    told = ["bob", "10.0.0.7", "Priority 42 to 7", "priority: 42", "priority: 7"]
    assert [first[name] for name in about] == told
    answer = root.get("/audit.csv?change=priority")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert re.search(r'filename="audit-\d{4}-\d\d-\d\d\.csv"', answer.headers["Content-Disposition"])


#: people's rows among those of attempts, as a server has them after a year
MANY = """
INSERT INTO events_event (at, kind, subject, from_state, to_state, reason, actor, origin, detail, task_id, pools)
SELECT now() - (20000 - n) * interval '1 minute', CASE WHEN n % 50 = 0 THEN 'pool' ELSE 'allocation' END, n::text,
  '', '', 'changed', CASE WHEN n % 50 = 0 THEN 'user:u' || n % 7 ELSE 'scheduler' END, '', '{}', '',
  CASE WHEN n % 500 = 0 THEN ARRAY[999]::bigint[] ELSE '{}' END
FROM generate_series(1, 20000) AS n
"""


def test_pages_are_ranges_of_an_index_and_lead_to_each_other(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(MANY)
        cursor.execute("ANALYZE events_event")
    root = make_user("root", User.Role.ADMIN)
    for filters, index in (
        (AuditFilters(), "events_by_people"),
        (AuditFilters(user="u3"), "events_by_person"),
        (AuditFilters(pool_id=999), "events_by_people"),
    ):
        found = audit.found(filters, root)
        plan = found.order_by("-at", "-id")[:51].explain()
        assert index in plan and "Seq Scan" not in plan, plan
        last = found.order_by("at", "id")[5]
        plan = audit._next_to(found, (last.at, last.pk))[:51].explain()
        assert index in plan and "Seq Scan" not in plan, plan
    everything = audit.found(AuditFilters(), root)
    first = audit.page(everything, root)
    second = audit.page(everything, root, before=first.older)
    ids = [row.id for row in [*first.rows, *second.rows]]
    assert len(set(ids)) == 2 * audit.PER_PAGE and ids == sorted(ids, reverse=True)
    assert first.newer is None and second.newer == second.rows[0].id
    assert audit.page(everything, root, after=second.newer) == first
    Event.objects.filter(pk=first.older).delete()
    assert audit.page(everything, root, before=first.older).newer is None, (
        "retention took it: from the top again"
    )


def test_no_history_of_a_pool_that_is_not_there(db: None) -> None:
    default_pool()
    assert logged_in("ada").get("/pools/ghost/history").status_code == 404


def test_an_id_without_a_kind_of_object_is_said_and_refused_over_rest(world: Experiment) -> None:
    client = logged_in("root", User.Role.ADMIN)
    assert "Select an object to filter" in client.get("/audit?id=7").content.decode()
    with pytest.raises(Refusal, match="only together with kind"):
        audit.found(AuditFilters(subject="7"), User.objects.get(username="root"))

"""What held slots went to, on its page, over REST, as CSV, for Prometheus, and as the bar of a trial."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from accounts.models import User
from dispatch.keeping import slot_days
from experiments.models import Trial
from hosts.pools import default_pool
from jobs.models import SlotTimeTotal, UsageRecord
from shown.prometheus import registry
from tests.rig.html import Html
from tests.rig.world import assigned, make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
WEEK = "by=week&from=2026-03-09&to=2026-03-09"
#: of two slots for an hour, by day in UTC
PARTS = {"progress": 3600, "again:host_lost": 1800, "start": 1080, "idle": 720}


def told(trial: Trial | None, parts: dict[str, int] | None, slots: int = 2, user: str = "ada") -> None:
    UsageRecord.objects.create(
        run_key=f"{trial.task_id if trial else 'c'}.1.0", kind="TRIAL" if trial else "COMMAND", owner=make_user(user),
        pool=default_pool(), slots=slots, started_at=NOON, ended_at=NOON + timedelta(hours=1),
        experiment_number=trial.experiment_id if trial else None,
        went_to=parts and {"2026-03-10": {part: seconds * 10**6 for part, seconds in parts.items()}},
    )  # fmt: skip
    slot_days.rebuild()


@pytest.fixture
def trial(db: None) -> Trial:
    found = trial_of(submit_experiment(name="digits"))
    Trial.objects.filter(pk=found.pk).update(started_at=NOON - timedelta(minutes=1))
    told(found, PARTS)
    told(None, None, slots=1, user="bob")
    return found


@pytest.fixture
def viewer(db: None) -> Client:
    client = Client()
    client.force_login(make_user("vic", User.Role.VIEWER))
    return client


def test_the_page_says_what_was_progress_and_what_the_rest_went_to(trial: Trial, viewer: Client) -> None:
    page = Html(viewer.get(f"/usage/goodput?{WEEK}&group=user").content)
    assert (
        '<b class="goodput">50 %</b>of 2 slot-hours was new progress; 1 slot-hour more cannot be told'
        in " ".join(page.split())
    )
    assert "Steps done again: its host was declared lost" in page and "Not told" in page
    assert page.index(">ada<") < page.index(">bob<") and "not told" in page
    assert (
        "/resources/goodput?start_date=2026-03-09&amp;end_date=2026-03-09&amp;period=week&amp;group_by=user"
        in page
    )
    by_experiment = Html(viewer.get(f"/usage/goodput?{WEEK}&group=experiment").content)
    assert f'<a href="/experiments/{trial.experiment_id}">{trial.experiment_id} digits</a>' in by_experiment
    assert "commands and other tasks" in by_experiment
    assert "No slots were held" in Html(viewer.get("/usage/goodput?from=2026-01-05&to=2026-01-05").content)
    refused = viewer.get("/usage/goodput?from=2026-03-10&to=2026-01-05")
    assert refused.status_code == 400 and "swap them" in Html(refused.content)


def test_the_largest_lines_are_shown_and_the_others_as_one(trial: Trial, viewer: Client) -> None:
    ada = User.objects.get(username="ada")
    UsageRecord.objects.bulk_create(
        UsageRecord(
            run_key=f"t{number}.1.0", kind="TRIAL", owner=ada, pool=default_pool(), slots=1,
            started_at=NOON, ended_at=NOON + timedelta(hours=1), experiment_number=10**6 + number,
            went_to={"2026-03-10": {"progress": 3600 * 10**6}},
        )
        for number in range(103)
    )  # fmt: skip
    slot_days.rebuild()
    page = Html(viewer.get(f"/usage/goodput?{WEEK}&group=experiment").content)
    assert "5 others, in the CSV" in page and page.count("(deleted)") == 98
    asked = "startDate=2026-03-10&endDate=2026-03-10&groupBy=experiment"
    answer = viewer.get(f"/api/v1/resources/goodput?{asked}&limit=2").json()
    assert len(answer["lines"]) == 2 and answer["more"] == 103
    held = sum(each["slotSeconds"] for each in answer["lines"]) + answer["rest"]["slotSeconds"]
    assert held == 106 * 3600
    refused = viewer.get(f"/api/v1/resources/goodput?{asked}&limit=0")
    assert refused.status_code == 400 and "limit" in json.dumps(refused.json())


def test_the_bar_of_a_trial_fetches_itself_as_a_part_until_the_trial_has_ended(
    trial: Trial, viewer: Client
) -> None:
    host = make_host("gpu1", 2)
    placement = [(host.pk, list(host.slots.values_list("pk", flat=True))[:1])]
    assigned(task_id=trial.task_id, placement=placement, on_sufferance=False, actor="test")
    address = f'hx-get="/trials/{trial.pk}/goodput?part=1"'
    live = viewer.get(f"/trials/{trial.pk}").content.decode()
    assert address in live and '<section id="goodput"' in live and "every 60s" in live
    Trial.objects.filter(pk=trial.pk).update(state="COMPLETED", ended_at=NOON)
    ended = viewer.get(f"/trials/{trial.pk}").content.decode()
    assert address in ended and '<section id="goodput-at-last"' in ended


def test_a_trial_has_its_own_bar(trial: Trial, viewer: Client) -> None:
    part = Html(viewer.get(f"/trials/{trial.pk}/goodput").content)
    assert "<b>50 %</b>of 2 slot-hours was new progress." in part and "Idle GPUs<b>10 %</b>" in part


def test_rest_and_csv_have_the_same_parts(trial: Trial, viewer: Client) -> None:
    asked = "startDate=2026-03-10&endDate=2026-03-10&period=day&groupBy=pool"
    (line,) = viewer.get(f"/api/v1/resources/goodput?{asked}").json()["lines"]
    (period,) = line["periods"]
    assert (line["name"], line["slotSeconds"], line["progress"]) == ("default", 3 * 3600, 0.5)
    assert period == {
        "periodStart": "2026-03-10",
        **{k: line[k] for k in ("slotSeconds", "progress", "parts")},
    }
    parts = {(part["part"], part["afterStop"]): part["slotSeconds"] for part in line["parts"]}
    assert parts == {
        ("progress", ""): 3600, ("again", "host_lost"): 1800, ("start", ""): 1080, ("idle", ""): 720,
        ("not_told", ""): 3600,
    }  # fmt: skip
    assert sum(part["share"] for part in line["parts"]) == pytest.approx(1)
    of_trial = viewer.get(f"/api/v1/trials/{trial.pk}/goodput").json()
    assert (of_trial["slotSeconds"], of_trial["progress"]) == (7200, 0.5)
    refused = viewer.get("/api/v1/resources/goodput?startDate=2026-03-10&endDate=2026-03-10&groupBy=label")
    assert refused.status_code == 400 and "groupBy" in json.dumps(refused.json())


@pytest.mark.django_db(transaction=True)
def test_the_file_has_a_line_for_each_part(trial: Trial, viewer: Client) -> None:
    query = "start_date=2026-03-10&end_date=2026-03-10&group_by=user"
    file = viewer.get(f"/resources/goodput?{query}")
    assert file.status_code == 200 and file["Content-Type"] == "text/csv", file.content
    rows = list(csv.DictReader(io.StringIO(file.content.decode())))
    assert {(row["name"], row["part"], row["after_stop"], float(row["slot_seconds"])) for row in rows} == {
        ("ada", "progress", "", 3600.0), ("ada", "again", "host_lost", 1800.0), ("ada", "start", "", 1080.0),
        ("ada", "idle", "", 720.0), ("bob", "not_told", "", 3600.0),
    }  # fmt: skip


def test_prometheus_counts_slot_seconds_by_pool_and_part(db: None) -> None:
    for part, seconds in (("progress", 3600), ("again:preempted", 60)):
        SlotTimeTotal.objects.create(pool=default_pool(), part=part, slot_microseconds=seconds * 10**6)
    (family,) = (each for each in registry.collect() if each.name == "trainmaster_slot_seconds")
    samples = {(each.labels["part"], each.labels["after_stop"]): each.value for each in family.samples}
    counted = {part: seconds for part, seconds in samples.items() if seconds}
    assert counted == {("progress", ""): 3600.0, ("again", "preempted"): 60.0}
    assert (
        samples["stalled", ""] == samples["again", "host_lost"] == 0
    )  # so that the first counts as an increase

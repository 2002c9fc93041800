"""History of usage in the dialect: entries, sums, and the CSV that Determined's command line prints."""

import csv
import io

import pytest
from asgiref.sync import async_to_sync
from django.http import StreamingHttpResponse

from dispatch.runs import settle
from experiments.models import Experiment, Trial
from hosts.models import Host
from jobs.models import Allocation, UsageRecord
from tests.rig.api import Api, Cast, Json
from tests.rig.world import assigned
from tests.webui.api.conftest import Submit

pytestmark = pytest.mark.django_db
DAILY = "period=RESOURCE_ALLOCATION_AGGREGATION_PERIOD_DAILY"
MONTHLY = "period=RESOURCE_ALLOCATION_AGGREGATION_PERIOD_MONTHLY"
THE_DAY = "timestamp_after=2026-03-10T00:00:00Z&timestamp_before=2026-03-11T00:00:00Z"


@pytest.fixture
def history(submit: Submit, host: Host) -> int:
    """Ada's experiment with two labels held one slot from 10:00 to 11:00. Its id."""
    experiment = int(submit()["id"])
    Experiment.objects.filter(pk=experiment).update(labels=["llm", "a,b"])
    trial = Trial.objects.get(experiment=experiment)
    slot = host.slots.get(index=0)
    allocation = assigned(
        task_id=trial.task_id, placement=[(host.pk, [slot.pk])], on_sufferance=False, actor="test"
    )
    settle.member_exited(allocation.members.get().pk, code=0, signal=None, ended_at=None, first_failure=None)
    times = {"started_at": "2026-03-10T10:00:00Z", "ended_at": "2026-03-10T11:00:00Z"}
    UsageRecord.objects.update(**times)
    return experiment


async def whole(answer: StreamingHttpResponse) -> bytes:
    return b"".join([piece async for piece in answer])


def lines(by: Api, path: str) -> list[list[str]]:
    answer = by.client.get(f"/resources/allocation/{path}", headers=by.headers)
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv"), answer.content
    content = async_to_sync(whole)(answer) if answer.streaming else answer.content
    return list(csv.reader(io.StringIO(content.decode())))


def test_entries_tell_who_held_how_much_and_when(cast: Cast, history: int) -> None:
    path = "resources/allocation/raw?timestampAfter=2026-03-10T10:30:00Z&timestampBefore=2026-03-11T00:00:00Z"
    (entry,) = cast.vic.get(path)["resourceEntries"]
    allocation = Allocation.objects.get()
    assert entry == {
        "kind": "training", "startTime": "2026-03-10T10:00:00.000000Z", "endTime": "2026-03-10T11:00:00.000000Z",
        "experimentId": history, "username": "ada", "userId": allocation.task.job.owner_id, "labels": ["llm", "a,b"],
        "seconds": 1800.0, "slots": 1, "resourcePool": "default", "allocationId": allocation.pk,
    }  # fmt: skip


def test_sums_come_by_day_and_by_month_in_either_spelling(cast: Cast, history: int) -> None:
    def entries(query: str) -> list[Json]:
        return list(cast.ada.get(f"resources/allocation/aggregated?{query}")["resourceEntries"])

    nothing, day = entries(f"{DAILY}&startDate=2026-03-09&endDate=2026-03-10")
    assert nothing["seconds"] == 0 and nothing["byUsername"] == {}
    assert day == {
        "periodStart": "2026-03-10", "period": "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_DAILY", "seconds": 3600.0,
        "byUsername": {"ada": 3600.0}, "byExperimentLabel": {"llm": 3600.0, "a,b": 3600.0},
        "byResourcePool": {"default": 3600.0}, "byGroup": {},
    }  # fmt: skip
    (month,) = entries(f"{MONTHLY}&start_date=2026-03&end_date=2026-03")
    assert (month["periodStart"], month["seconds"]) == ("2026-03", 3600.0)


@pytest.mark.django_db(transaction=True)
def test_csv_has_the_columns_of_determined(cast: Cast, history: int) -> None:
    header, row = lines(cast.ada, f"raw?{THE_DAY}")
    assert header == [
        "experiment_id",
        "kind",
        "username",
        "labels",
        "slots",
        "start_time",
        "end_time",
        "seconds",
    ]
    assert row[:5] == [str(history), "training", "ada", "llm,a\\,b", "1"] and float(row[7]) == 3600
    assert lines(cast.ada, f"aggregated?start_date=2026-03-10&end_date=2026-03-10&{DAILY}") == [
        ["aggregation_type", "aggregation_key", "date", "seconds"],
        ["experiment_label", "a,b", "2026-03-10", "3600.000000"],
        ["experiment_label", "llm", "2026-03-10", "3600.000000"],
        ["username", "ada", "2026-03-10", "3600.000000"],
        ["resource_pool", "default", "2026-03-10", "3600.000000"],
        ["total", "total", "2026-03-10", "3600.000000"],
    ]
    header, row = lines(cast.ada, f"allocations-csv?{THE_DAY}")
    assert header[:5] == ["allocation_id", "task_type", "username", "workspace_name", "experiment_id"]
    assert row[1:6] == ["TRIAL", "ada", "Uncategorized", str(history), "1"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("raw?timestampAfter=yesterday&timestampBefore=2026-03-11T00:00:00Z", "Found 'yesterday', allowed: a time"),
        ("raw?timestampAfter=2026-03-11&timestampBefore=2026-03-10", "is after the last"),
        ("raw?timestampAfter=2026-03-11", "timestampBefore: This field is required."),
        (f"aggregated?{DAILY}&startDate=2024-01-01&endDate=2026-01-01", "Found 732 days, allowed: at most 366."),
        (f"aggregated?{MONTHLY}&startDate=2001-01&endDate=2026-01", "Found 301 months, allowed: at most 120."),
        ("aggregated?period=WEEKLY&startDate=2026-03-01&endDate=2026-03-02", "period: "),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_with_a_sentence(cast: Cast, path: str, sentence: str) -> None:
    for root in ("/api/v1", ""):
        status, said = cast.ada.refused("GET", f"{root}/resources/allocation/{path}")
        assert status == 400 and sentence in said


def test_usage_needs_a_person(cast: Cast, running: tuple[Trial, Allocation, Api]) -> None:
    assert cast.stranger.refused("GET", f"/resources/allocation/raw?{THE_DAY}")[0] == 401
    for root in ("/api/v1", ""):
        assert running[2].refused("GET", f"{root}/resources/allocation/raw?{THE_DAY}")[0] == 403

"""The page of usage: what is shown stands in its address, with numbers beside the chart and files of both."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from accounts.models import User
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs.models import UsageRecord
from tests.rig.html import Html
from tests.rig.world import make_user
from webui.templatetags.usage import hours

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MARCH = "from=2026-03-09&to=2026-03-11"


def used(
    key: str, user: str, slots: int, hours: float, *labels: str, pool: ResourcePool | None = None
) -> None:
    """`slots` held from NOON on."""
    UsageRecord.objects.create(
        run_key=f"{key}.0", kind="TRIAL", owner=make_user(user), pool=pool or default_pool(), slots=slots,
        started_at=NOON, ended_at=NOON + timedelta(hours=hours), labels=list(labels),
    )  # fmt: skip


@pytest.fixture
def history(db: None) -> None:
    used("a", "ada", 4, 1, "llm", "night")
    used("b", "bob", 2, 16, pool=ResourcePool.objects.create(name="a100"))


def get(path: str, status: int = 200) -> str:
    client = Client()
    client.force_login(make_user("ada", User.Role.VIEWER))
    answer = client.get(path)
    assert answer.status_code == status, path
    return Html(answer.content)


def rows(page: str) -> list[list[str]]:
    found = re.findall(
        r'<tr><td class="name-of">(.*?)</td><td class="number">(.*?)</td><td class="number">(.*?)</td>', page
    )
    return [[re.sub("(<[^>]*>)+", " ", text).strip() for text in row] for row in found]


def test_numbers_have_the_digits_that_people_compare() -> None:
    wanted = {
        0: "0",
        0.00082: "< 0.01",
        0.0149: "0.01",
        0.416: "0.42",
        4: "4",
        9.96: "10",
        1234.56: "1,234.6",
    }
    assert {value: hours(value) for value in wanted} == wanted


def test_numbers_are_grouped_as_the_address_says(history: None) -> None:
    assert rows(get(f"/usage?{MARCH}")) == [["bob", "32.0", "89 %"], ["ada you", "4", "11 %"]]
    assert rows(get(f"/usage?{MARCH}&group=pool")) == [["a100", "32.0", "89 %"], ["default", "4", "11 %"]]
    assert rows(get(f"/usage?{MARCH}&group=label")) == [
        ["no label", "32.0", "89 %"], ["llm", "4", "11 %"], ["night", "4", "11 %"],
    ]  # fmt: skip
    assert rows(get(f"/usage?{MARCH}&group=total")) == [["all slots", "36.0", "100 %"]]
    months = get("/usage?by=month&from=2026-03&to=2026-03")
    assert rows(months)[0] == ["bob", "32.0", "89 %"] and '<td class="mono">2026-03</td>' in months


def test_the_files_are_of_what_is_shown(history: None) -> None:
    page = get(f"/usage?{MARCH}")
    assert (
        "/resources/allocation/aggregated?start_date=2026-03-09&amp;end_date=2026-03-11&amp;"
        "period=RESOURCE_ALLOCATION_AGGREGATION_PERIOD_DAILY"
    ) in page
    assert "timestamp_after=2026-03-09T00:00:00Z&amp;timestamp_before=2026-03-12T00:00:00Z" in page
    assert 'data-figures="/usage/chart?by=day&amp;from=2026-03-09&amp;to=2026-03-11&amp;group=user"' in page


def test_the_chart_stacks_who_used_most_first_and_the_small_ones_together(history: None) -> None:
    for number in range(9):
        used(f"c{number}", f"user{number}", 1, 0.5)
    (figure,) = json.loads(get(f"/usage/chart?{MARCH}"))["figures"]
    assert figure["name"] == "Slot-hours by user"
    assert [trace["name"] for trace in figure["data"]][:3] == ["bob", "ada", "user0"]
    assert (figure["data"][-1]["name"], figure["data"][-1]["y"]) == ("4 others", [0.0, 2.0, 0.0])
    assert figure["data"][0]["x"] == ["2026-03-09", "2026-03-10", "2026-03-11"]
    assert figure["data"][0]["y"] == [0.0, 24.0, 8.0]
    assert json.loads(get("/usage/chart?from=2026-01-01&to=2026-01-02"))["figures"] == []


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("from=2026-01-01&to=2026-02-01", "Found 32 days, allowed: at most 31."),
        ("by=month&from=2023-01&to=2026-01", "Found 37 months, allowed: at most 36."),
        ("from=spring&to=2026-02-01", "Found &#x27;spring&#x27;, allowed: a day, such as 2026-11-21."),
        ("from=2026-03-02&to=2026-03-01", "is after the last"),
    ],
)
def test_a_wrong_period_is_told_and_the_usual_one_is_shown(query: str, sentence: str) -> None:
    page = get(f"/usage?{query}", 400)
    assert sentence in page and "No slots were held from" in page

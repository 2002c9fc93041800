"""`resources` and `pool shares` in scripts, against the whole server with a host of this machine."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.rig.pace import wait_until
from tests.trainmaster.cli.conftest import CommandLine


@pytest.fixture(scope="module")
def used(local_host: CommandLine) -> CommandLine:
    """One slot was held by a command that has ended; its owner is in the team vision of research."""
    ran = local_host("command", "run", "--slots", "1", "true")
    assert ran.returncode == 0, ran.stderr
    local_host("user-group", "create", "research")
    local_host("user-group", "create", "vision", "--parent", "research", "--add-user", "admin")
    assert wait_until(lambda: len(raw(local_host)) >= 1, 60)
    return local_host


def around() -> tuple[str, str]:
    now = datetime.now(UTC)
    return tuple(f"{now + timedelta(hours=shift):%Y-%m-%dT%H:%M:%SZ}" for shift in (-12, 1))  # type: ignore[return-value]


def raw(tm: CommandLine) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(tm("resources", "raw", *around()).stdout)))


def test_what_was_held_is_printed_as_csv_table_and_json(used: CommandLine) -> None:
    row = raw(used)[-1]
    assert (row["kind"], row["username"], row["slots"]) == ("command", "admin", "1") and float(
        row["seconds"]
    ) > 0
    entry = json.loads(used("res", "raw", *around(), "-o", "json").stdout)["resourceEntries"][-1]
    assert entry["resourcePool"] == "default" and entry["seconds"] == pytest.approx(
        float(row["seconds"]), 0.01
    )
    assert "Slot-hours" in used("res", "raw", *around(), "-o", "table").stdout
    attempts = csv.DictReader(io.StringIO(used("res", "allocations", *around()).stdout))
    assert [each["task_type"] for each in attempts][-1] == "COMMAND"


def test_sums_are_by_day_or_month(used: CommandLine) -> None:
    now = datetime.now(UTC)
    lines = used("resources", "aggregated", f"{now - timedelta(days=1):%Y-%m-%d}", f"{now:%Y-%m-%d}").stdout
    assert lines.startswith("aggregation_type,aggregation_key,date,seconds\n")
    assert (
        f"username,admin,{now:%Y-%m-%d}," in lines
        or f"username,admin,{now - timedelta(days=1):%Y-%m-%d}," in lines
    )
    month = f"{now:%Y-%m}"
    table = used("res", "agg", "--monthly", month, month, "-o", "table").stdout
    assert f"{month} | total" in table and "| pool  | default" in table
    (entry,) = json.loads(used("res", "agg", "--monthly", month, month, "--json").stdout)["resourceEntries"]
    assert set(entry["byUsername"]) == {"admin"}


def test_sums_of_a_group_are_those_of_its_members(used: CommandLine) -> None:
    month = f"{datetime.now(UTC):%Y-%m}"

    def sums(*more: str) -> list[dict[str, str]]:
        return list(
            csv.DictReader(io.StringIO(used("resources", "agg", "--monthly", month, month, *more).stdout))
        )

    (admins,) = [row for row in sums() if row["aggregation_type"] == "username"]
    for group in ("vision", "research"):
        of_group = {"aggregation_type": "group", "aggregation_key": group}
        assert sums("--group", group) == [admins | of_group] and float(admins["seconds"]) > 0
    refused = used("resources", "agg", "--monthly", month, month, "--group", "moon")
    assert (refused.returncode, refused.stdout) == (1, "") and "there is no group moon" in refused.stderr


def test_a_wrong_time_is_a_sentence(used: CommandLine) -> None:
    refused = used("resources", "raw", "yesterday", "today")
    assert refused.returncode == 1 and "Found 'yesterday', allowed: a time, such as" in refused.stderr
    refused = used("resources", "aggregated", "--daily", "2020-01-01", "2026-01-01")
    assert refused.returncode == 1 and "allowed: at most 366" in refused.stderr
    assert used("resources").returncode == 2


def test_shares_of_a_pool_are_by_user_or_by_job(used: CommandLine) -> None:
    started = used("command", "run", "--slots", "1", "-d", "sleep 60")
    assert started.returncode == 0, started.stderr

    def shares(*more: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(used("pool", "shares", "default", "-o", "csv", *more).stdout)))

    assert wait_until(lambda: bool(shares()) and shares()[0]["Slots held"] == "1", 60), shares()
    assert shares() == [{"User": "admin", "Slots held": "1", "Waiting for": "0", "Entitled to": ""}]
    assert shares("--jobs")[0]["User"] == "admin"
    used("pool", "edit", "default", "--group", "vision=weight:2,limit:4")
    (row,) = [row for row in shares("--groups") if row["Group"] == "vision"]
    assert row == {
        "Group": "vision", "Department": "research", "Guaranteed": "0", "Limit": "4", "Weight": "2",
        "Slots held": "1", "Borrowed": "1", "Lent": "0", "Waiting for": "0",
    }  # fmt: skip
    used("pool", "edit", "default", "--group", "vision=none")
    assert "Pool moon not found" in used("pool", "shares", "moon").stderr


def test_what_slots_went_to_is_printed_as_table_csv_and_json(used: CommandLine) -> None:
    now = datetime.now(UTC)
    days = f"{now - timedelta(days=1):%Y-%m-%d}", f"{now:%Y-%m-%d}"
    table = used("resources", "goodput", "--daily", *days, "--by", "user").stdout
    assert "| admin | " in table and "Start and load" in table
    (line,) = json.loads(used("resources", "goodput", *days, "-o", "json").stdout)["lines"]
    assert line["name"] == "default" and {part["part"] for part in line["parts"]} <= {
        "start",
        "not_told",
        "idle",
    }
    rows = list(csv.DictReader(io.StringIO(used("resources", "goodput", *days, "-o", "csv").stdout)))
    assert sum(float(row["slot_seconds"]) for row in rows) >= line["slotSeconds"] - 0.001
    refused = used("trial", "goodput", "999999")
    assert refused.returncode != 0 and "999999" in refused.stderr

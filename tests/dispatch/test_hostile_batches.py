"""A job writes into its runner's outbox: what is no record is named in the log, and holds up nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from accounts.models import LoginToken
from dispatch.passes import pool_pass
from dispatch.runs import batches, heartbeats, intake
from jobs.models import Member
from logs import read, streams
from metrics import reported
from tests.rig.world import make_host, members_of, submit_experiment, trial_of

pytestmark = [pytest.mark.django_db, pytest.mark.survive(43)]


@pytest.fixture
def member() -> Member:
    make_host("gpu1", 1)
    experiment = submit_experiment()
    pool_pass.run(experiment.job.pool_id)
    return members_of(experiment)[0]


def line(text: str) -> bytes:
    return json.dumps({"k": "lines", "t": 1.0, "r": 0, "s": "stdout", "m": text}).encode() + b"\n"


def shown(member: Member) -> list[str]:
    return [each.text for each in read.forward(member.allocation.task_id).lines]


HOSTILE: dict[str, dict[str, Any]] = {
    "a gap of words": {"k": "gap", "bytes": "many"},
    "a gap beyond all disks": {"k": "gap", "bytes": 1e300},
    "a gap beyond the database": {"k": "gap", "bytes": 2**70},
    "a gap below nothing": {"k": "gap", "bytes": -(2**70)},
    "a kind that is a list": {"k": ["core"]},
    "a kind that is an object": {"k": {}},
    "a time beyond all": {"k": "log", "t": 1e300, "r": 0, "s": "stdout", "m": "x"},
    "a rank that is a list": {"k": "lines", "t": 1.0, "r": [1], "s": "stdout", "m": "x"},
    "a rank beyond the database": {"k": "lines", "t": 1.0, "r": 2**70, "s": "stdout", "m": "x"},
    "samples of words": {"k": "samples", "t": 1.0, "d": "x", "v": 7},
    "timings of words": {"k": "timings", "d": 5, "r": "x"},
    "a start beyond all": {"k": "state", "state": "running", "t": 1e300},
    "an end with a list": {"k": "exit", "t": 1.0, "code": [1], "signal": {}},
    "an end beyond the database": {"k": "exit", "t": 1.0, "code": 2**70, "signal": None},
    "a time of hundreds of digits": {"k": "log", "t": 10**400, "r": 0, "s": "stdout", "m": "x"},
    "a sample of hundreds of digits": {"k": "samples", "t": 10**400, "d": 10**400, "v": [[10**400]]},
    "timings of hundreds of digits": {"k": "timings", "t": 10**400, "r": 0, "d": [{"seconds": 10**400}]},
    "reports that are a word": {"k": "reports", "d": "x"},
    "reports without lists": {"k": "reports", "d": [{}, [], 7, None]},
    "reports of unequal lists": {
        "k": "reports",
        "d": [{"steps": [1, 2], "times": [1.0], "values": {"a": [1.0]}}],
    },
    "reports of hundreds of digits": {
        "k": "reports",
        "d": [{"steps": [10**400], "times": [10**400], "values": {"a": [10**400]}, "run_id": 10**400}],
    },
    "a first failure of words": {
        "k": "exit",
        "t": "x",
        "code": 0,
        "first_failure": {"rank": []},
        "left": ["x"],
    },
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_record_of_another_form_holds_up_nothing(what: str, member: Member) -> None:
    spoiled = json.dumps(HOSTILE[what]).encode() + b"\n"
    body = line("before") + spoiled
    assert intake.store(member.pk, 0, body).offset == len(body)
    assert "before" in shown(member)
    if HOSTILE[what]["k"] != "exit":
        assert intake.store(member.pk, len(body), line("after")).offset == len(body + line("after"))
        assert shown(member)[-1] == "after"


def test_tables_of_another_form_become_one_line_of_the_log(member: Member) -> None:
    ok = {"group": "training", "run_id": 1, "steps": [3], "times": [1.0], "values": {"a": [1.0]}}
    wrong = b'{"k":"reports","d":[' + b",".join([b"0"] * 100_000) + b"]}\n"
    body = (
        wrong + b'{"k":"reports","d":0}\n' * 1000 + json.dumps({"k": "reports", "d": [ok]}).encode() + b"\n"
    )
    assert intake.store(member.pk, 0, body + line("after")).offset == len(body + line("after"))
    lines = shown(member)
    assert len(lines) < 10 and lines[-1] == "after"
    (told,) = [text for text in lines if "a table of reports must be an object" in text]
    assert "(101,000 tables of reports in this batch were left out)" in told
    trial = trial_of(member.allocation.task.job.experiment)
    assert [each.steps_completed for each in reported.read([trial.pk])] == [3]


@pytest.mark.parametrize(("limit", "most"), [("REPORTS_PER_BATCH", 5), ("TABLES_PER_BATCH", 1)])
def test_columns_beyond_the_limits_of_a_batch_are_named_in_the_log(
    limit: str, most: int, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, limit, most)
    tables = [
        {"steps": steps, "times": [1.0] * 3, "values": {"a": [1.0] * 3}} for steps in ([1, 2, 3], [4, 5, 6])
    ]
    body = json.dumps({"k": "reports", "d": tables}).encode() + b"\n"
    body += json.dumps({"k": "reports", "d": tables[:1]}).encode() + b"\n"
    assert intake.store(member.pk, 0, body).offset == len(body)
    trial = trial_of(member.allocation.task.job.experiment)
    assert [each.steps_completed for each in reported.read([trial.pk])] == [1, 2, 3]
    (told,) = [text for text in shown(member) if "more than" in text]
    assert "(2 tables of reports" in told


def test_columns_nested_without_end_are_named_in_the_log(member: Member) -> None:
    body = b'{"k":"reports","d":[{"steps":[1],"times":[1.0],"values":{"a":[%s]}}]}\n' % (
        b"[" * 150 + b"]" * 150
    )
    assert intake.store(member.pk, 0, body + line("after")).offset == len(body + line("after"))
    assert any("nested deeper" in text for text in shown(member)) and shown(member)[-1] == "after"


def test_a_metric_of_hundreds_of_digits_breaks_no_page(member: Member) -> None:
    data = {"type": "metrics", "group": "training", "steps_completed": 1, "metrics": {"a": 10**400, "b": 1.0}}
    body = json.dumps({"k": "core", "d": {**data, "t": 1.0}}).encode() + b"\n" + line("after")
    assert intake.store(member.pk, 0, body).offset == len(body)
    assert shown(member)[-1] == "after"
    trial = trial_of(member.allocation.task.job.experiment)
    client = Client()
    client.force_login(trial.experiment.owner)
    for path in ("", "/metrics", "/overview", "/logs"):
        assert client.get(f"/trials/{trial.pk}{path}").status_code in {200, 302, 404}, path
    token = {"Authorization": f"Bearer {LoginToken.issue(trial.experiment.owner)}"}
    for path in ("", "/summarize", "/trainingMetrics?metricNames=a", "/workloads"):
        assert client.get(f"/api/v1/trials/{trial.pk}{path}", headers=token).status_code < 500, path


@pytest.mark.parametrize("what", ["a gap of words", "a gap beyond the database", "a kind that is a list"])
def test_the_log_names_what_was_left_out(what: str, member: Member) -> None:
    intake.store(member.pk, 0, json.dumps(HOSTILE[what]).encode() + b"\n")
    assert any(text.startswith("[a report could not be read: ") for text in shown(member))


@pytest.mark.parametrize("garbage", [b"[]", b"no JSON", b"[" * 20_000, b"\xff\xfe", b"1" * 10_000, b""])
def test_lines_that_are_no_records_are_counted_in_one_line_of_the_log(garbage: bytes, member: Member) -> None:
    body = line("before") + (garbage + b"\n") * 3 + line("after")
    assert intake.store(member.pk, 0, body).offset == len(body)
    told = "[a report could not be read: 3 lines of the outbox are not JSON objects]"
    assert shown(member)[-3:] == ["before", told, "after"]


def test_what_was_tried_alone_is_stored_once(member: Member) -> None:
    body = (
        line("one") + json.dumps({"k": "gap", "bytes": 7}).encode() + b"\n" + b'{"k": ["x"]}\n' + line("two")
    )
    intake.store(member.pk, 0, body)
    texts = shown(member)
    assert texts.count("one") == texts.count("two") == 1
    assert sum("7 bytes missing" in text for text in texts) == 1
    assert streams.stored(member.pk) == len(body)


@pytest.mark.parametrize("value", ["many", [1], {}, 1e300, -5, 2**70, float("nan"), True, None])
def test_a_heartbeat_of_another_form_is_a_sign_of_life(value: object, member: Member) -> None:
    heartbeats.heartbeat(
        member.pk, {"spool_bytes": value, "unshipped_bytes": 3, "pulse": value, "state": value}
    )
    member.refresh_from_db()
    assert member.spool == {"spool_bytes": 0, "unshipped_bytes": 3, "dropped_bytes": 0}
    assert member.heartbeat_at is not None

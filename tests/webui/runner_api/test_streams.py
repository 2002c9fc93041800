"""Batches, heartbeats and signals over HTTP, against a real web process."""

import gzip
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from django.conf import LazySettings

import experiments.detached
from accounts.models import Cluster, User
from dispatch.runs import detached
from experiments import submit
from experiments.config import parse
from experiments.models import Trial
from jobs import transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, Reason, StopKind
from logs import read
from logs.streams import stored
from tests.rig.many import empty_context
from tests.rig.pace import wait_until
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import Web
from tests.rig.world import be_whole, make_project

pytestmark = pytest.mark.django_db(transaction=True)


def records(*texts: str, rank: int = 0) -> bytes:
    rows = [
        {"k": "log", "f": "rank0.stdout", "e": 1, "t": 1.5, "r": rank, "s": "stdout", "l": None, "m": text}
        for text in texts
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def runner(web: Web) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {RUN_TOKEN}", "X-Trainmaster-Protocol": "1"}
    with httpx.Client(base_url=f"{web.url}/runner/v1", headers=headers, timeout=90) as client:
        yield client


def send(runner: httpx.Client, member: Member, offset: int, body: bytes, **headers: str) -> httpx.Response:
    path = f"/streams/{member.allocation_id}/{member.index}?offset={offset}"
    return runner.post(
        path, content=gzip.compress(body, mtime=0), headers={"Content-Encoding": "gzip", **headers}
    )


def texts(member: Member) -> list[str]:
    lines = read.tail(member.allocation.task_id, read.Filters(), 100)
    return [line.text for line in lines if line.stream != "s"]


def test_a_batch_is_stored_once_however_often_it_is_sent(runner: httpx.Client) -> None:
    member = make_gang()[0]
    body = records("one", "two \udcff")
    answer = send(runner, member, 0, body)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"offset": len(body), "preempt": None, "stop": None}
    again = send(runner, member, 0, body)
    assert again.status_code == 409 and again.json()["offset"] == len(body)
    assert send(runner, member, len(body), records("three")).status_code == 200
    assert texts(member) == ["one", "two \udcff", "three"]


def test_batches_that_race_from_one_offset_are_stored_once(web: Web, runner: httpx.Client) -> None:
    member = make_gang()[0]
    body = records("only once")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: send(runner, member, 0, body).status_code, range(8)))
    assert sorted(answers) == [200] + [409] * 7
    assert texts(member) == ["only once"]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"X-Trainmaster-Protocol": "99"}, gzip.compress(b"{}\n", mtime=0), 400),
        ({}, b"not gzip", 400),
        ({}, gzip.compress(b'{"k":"log"}\n', mtime=0)[:-4], 400),
        ({}, gzip.compress(b"half a rec", mtime=0), 400),
        ({}, gzip.compress(b" " * (33 * 1024**2) + b"\n", mtime=0), 413),
        ({}, b"x" * (8 * 1024**2 + 1), 413),
        ({"Content-Encoding": "br"}, b"x", 415),
        ({"Authorization": "Bearer wrong"}, gzip.compress(b"{}\n", mtime=0), 401),
        ({"Authorization": ""}, gzip.compress(b"{}\n", mtime=0), 401),
    ],
)
def test_what_cannot_be_stored_gets_a_sentence(
    runner: httpx.Client, headers: dict[str, str], body: bytes, status: int
) -> None:
    member = make_gang()[0]
    path = f"/streams/{member.allocation_id}/0?offset=0"
    answer = runner.post(path, content=body, headers={"Content-Encoding": "gzip", **headers})
    assert answer.status_code == status, answer.text
    assert answer.json()["message"].endswith((".", ")"))
    assert stored(member.pk) == 0


def test_a_token_opens_its_own_run_alone_and_none_that_is_over(runner: httpx.Client) -> None:
    member, other = make_gang()[0], make_gang(token="another")[0]
    assert send(runner, other, 0, records("x")).status_code == 401
    assert runner.get(f"/streams/{other.allocation_id}/0/signals").status_code == 401
    assert runner.get("/streams/no.such.allocation/0/signals").status_code == 401
    Allocation.objects.filter(pk=member.allocation_id).update(state=AllocationState.TERMINATED, token_hash="")
    for answer in (
        send(runner, member, 0, records("late")),
        runner.post(f"/streams/{member.allocation_id}/0/heartbeat", json={}),
        runner.get(f"/streams/{member.allocation_id}/0/signals"),
    ):
        assert answer.status_code == 410, answer.text


@pytest.mark.survive(36)
def test_an_attempt_from_after_the_backup_is_over_only_once_its_task_has_another(
    runner: httpx.Client,
) -> None:
    """A restored server does not know it. Until its trial has started anew, nobody has decided against it (401)."""
    member = make_gang()[0]
    task_id = member.allocation.task_id
    lost = f"/streams/{task_id}.7/0/heartbeat"
    assert runner.post(lost, json={}).status_code == 401
    Allocation.objects.filter(pk=member.allocation_id).update(number=1001)
    answer = runner.post(lost, json={})
    assert (answer.status_code, "later attempt" in answer.text) == (410, True)
    for name in (f"{task_id}.x", f"{task_id}.{'9' * 400}", f"{task_id}.1002", "7", "."):
        assert runner.post(f"/streams/{name}/0/heartbeat", json={}).status_code in (401, 404), name


def test_a_heartbeat_is_noted_and_answered_with_the_orders(runner: httpx.Client) -> None:
    member = make_gang()[0]
    transitions.request_stop(
        member.allocation_id, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler"
    )
    body = {"state": "running", "spool_bytes": 10, "unshipped_bytes": 4, "dropped_bytes": 0}
    answer = runner.post(f"/streams/{member.allocation_id}/0/heartbeat", json=body)
    assert answer.json() == {"offset": 0, "preempt": {"reason": "preempted"}, "stop": None}
    member.refresh_from_db()
    assert member.heartbeat_at is not None and member.spool["unshipped_bytes"] == 4


def test_the_long_poll_answers_as_soon_as_something_is_ordered(runner: httpx.Client) -> None:
    member = make_gang()[0]
    path = f"/streams/{member.allocation_id}/0/signals"
    answers: list[tuple[float, dict[str, Any]]] = []

    def poll() -> None:
        body = runner.get(path, params={"wait": 30}).json()
        answers.append((time.monotonic(), body))

    poller = threading.Thread(target=poll)
    poller.start()
    assert runner.get(path, params={"wait": 0.3}).json() == {"preempt": None, "stop": None}
    ordered = time.monotonic()
    transitions.request_stop(
        member.allocation_id, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler"
    )
    poller.join(60)
    assert answers[0][1] == {"preempt": {"reason": "preempted"}, "stop": None}
    assert answers[0][0] - ordered < 20, "long before the poll is over"
    member.refresh_from_db()
    assert member.preempt_told_at is None, "that answer may have been lost on its way"
    begin = time.monotonic()
    assert runner.get(path, params={"wait": 1, "have": "preempt"}).status_code == 200
    assert time.monotonic() - begin >= 1
    member.refresh_from_db()
    assert member.preempt_told_at is not None, "the runner has the order"


def test_a_lost_wake_up_costs_a_second(runner: httpx.Client) -> None:
    member = make_gang()[0]
    with ThreadPoolExecutor(1) as pool:
        path = f"/streams/{member.allocation_id}/0/signals"
        poll = pool.submit(lambda: runner.get(path, params={"wait": 30}).json())
        assert runner.get(path, params={"wait": 0.3}).status_code == 200
        begin = time.monotonic()
        # without an announcement
        Allocation.objects.filter(pk=member.allocation_id).update(
            stop_kind=StopKind.STOP, stop_grace_seconds=5, stop_reason=Reason.KILLED_BY_USER
        )
        assert poll.result(60)["stop"] == {"grace_seconds": 5, "reason": "killed_by_user"}
        assert time.monotonic() - begin < 20, "long before the poll is over"


def test_a_runner_that_hangs_up_leaves_no_traceback(web: Web, runner: httpx.Client) -> None:
    member = make_gang()[0]
    path = f"/streams/{member.allocation_id}/0/signals"
    before = len(web.log())
    for _ in range(3):
        with pytest.raises(httpx.ReadTimeout):
            runner.get(path, params={"wait": 30}, timeout=httpx.Timeout(60, read=0.5))
    assert runner.get(path, params={"wait": 0.3}).status_code == 200
    log = web.log(before)
    assert "Traceback" not in log and "ERROR" not in log, log


@pytest.mark.survive(41)
def test_the_nonce_proves_which_server_it_is(runner: httpx.Client) -> None:
    answer = httpx.get(f"{runner.base_url}nonce", params={"value": "abc"}).json()
    cluster = Cluster.get()
    expected = hmac.new(cluster.nonce_key.encode(), b"abc", hashlib.sha256).hexdigest()
    assert answer == {"hmac": expected, "cluster_id": str(cluster.cluster_id)}
    assert httpx.get(f"{runner.base_url}nonce").status_code == 400


def test_two_hundred_long_polls_hold_no_thread_and_no_page_waits_for_them(
    web: Web, runner: httpx.Client
) -> None:
    members = [make_gang(token=f"token-{i}")[0] for i in range(8)]
    limits = httpx.Limits(max_connections=300)
    process = psutil.Process(web.pid)
    without = process.num_fds()
    with httpx.Client(base_url=f"{web.url}/runner/v1", timeout=90, limits=limits) as polls:

        def poll(i: int) -> dict[str, Any]:
            path = f"/streams/{members[i % 8].allocation_id}/0/signals"
            headers = {"Authorization": f"Bearer token-{i % 8}"}
            return dict(polls.get(path, params={"wait": 60}, headers=headers).json())

        with ThreadPoolExecutor(200) as pool:
            answers = [pool.submit(poll, i) for i in range(200)]
            try:
                assert wait_until(lambda: process.num_fds() >= without + 200, 60), "the polls do not arrive"
                page, threads = httpx.Client(base_url=web.url, timeout=50), []
                for _ in range(10):
                    assert page.get("/login").status_code == 200
                    threads.append(thread_count(web.pid))
                assert not any(answer.done() for answer in answers), "pages came when polls had ended"
                assert max(threads) < 60
            finally:
                for member in members:
                    transitions.request_stop(
                        member.allocation_id, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler"
                    )
            assert all(answer.result()["preempt"] == {"reason": "preempted"} for answer in answers)


def thread_count(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))


def test_a_detached_run_that_was_given_up_in_silence_goes_on_where_its_stream_stood(
    web: Web, runner: httpx.Client, settings: LazySettings
) -> None:
    project = make_project()
    owner, context = User.objects.create_user("laptop"), empty_context()
    experiment = submit.create(
        owner=owner, config=parse("name: laptop\nsearcher: {name: single, metric: loss}", managed=False), original="",
        context=context, project=project, parent=None, activate=True, idempotency_key=None, actor="user:laptop",
        unmanaged=True,
    )  # fmt: skip
    trial = experiments.detached.create_trial(experiment, {}, external_id=None, actor="user:laptop")
    allocation = detached.start(trial.pk, ["laptop"], resume=False, actor="user:laptop")
    member = allocation.members.get()
    runner.headers["Authorization"] = f"Bearer {transitions.run_token(allocation)}"
    assert send(runner, member, 0, records("before")).status_code == 200
    settings.DETACHED_LOST_SECONDS = -1.0
    be_whole()
    detached.give_up_silent()
    assert Trial.objects.get().state == "ERROR"
    path = f"/streams/{allocation.pk}/0"
    assert runner.get(f"{path}/signals?wait=0").json() == {"preempt": None, "stop": None}
    detached.give_up_silent()
    beat = runner.post(f"{path}/heartbeat", json={"state": "running"})
    assert beat.json()["offset"] == len(records("before"))
    detached.give_up_silent()
    assert send(runner, member, len(records("before")), records("after")).status_code == 200
    assert Trial.objects.get().state == "ACTIVE" and texts(member) == ["before", "after"]
    detached.give_up_silent()
    detached.start(trial.pk, ["laptop"], resume=True, actor="user:laptop")
    assert send(runner, member, 0, records("late")).status_code == 410

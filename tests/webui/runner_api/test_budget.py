"""What one job may ship: a flood of it is told to wait, and costs the others nothing."""

import gzip
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from django.conf import settings

from embedded.redis import Redis
from jobs.models import Member
from logs import read
from tests.rig.rows import make_gang
from tests.rig.web import Web, running_web
from webui.runner_api import limits
from webui.runner_api.answers import RefusedRequest
from webui.runner_api.streams import Budgets


def test_a_job_may_burst_and_then_pays_its_debt() -> None:
    now, job, other = [100.0], uuid.uuid4(), uuid.uuid4()
    budgets = Budgets(clock=lambda: now[0])
    budgets.admit(job).take(int(settings.LOG_BURST_BYTES))
    budgets.admit(job).take(int(2.5 * settings.LOG_BYTES_PER_SECOND))
    with pytest.raises(RefusedRequest, match="bytes per second") as refused:
        budgets.admit(job)
    assert refused.value.status == 429 and refused.value.retry_after == 3
    budgets.admit(other)
    now[0] += 2.6
    budgets.admit(job)


def test_batches_on_their_way_in_count_so_that_a_job_leaves_room_for_others() -> None:
    job, other, budgets = uuid.uuid4(), uuid.uuid4(), Budgets(clock=lambda: 100.0)
    with ExitStack() as arriving:
        for _ in range(limits.JOB_PENDING_BATCHES):
            arriving.enter_context(budgets.admit(job).one())
        with pytest.raises(RefusedRequest, match="many batches of this job"):
            budgets.admit(job)
        budgets.admit(other)
    budgets.admit(job)


@pytest.fixture
def small_web(
    transactional_db: None, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    """A web process in which a job may ship 1 MiB at once and 64 KiB per second from then on."""
    folder: Path = tmp_path_factory.mktemp("web")
    variables = {
        "TRAINMASTER_LOG_BURST_BYTES": str(1024**2),
        "TRAINMASTER_LOG_BYTES_PER_SECOND": str(64 * 1024),
    }
    with running_web(folder, **variables) as process:
        yield process


def shipper(web: Web, member: Member, token: str, lines: int) -> Iterator[httpx.Response]:
    """Ships as fast as it is let; a batch that is sent away is sent again."""
    record = {
        "k": "lines",
        "f": "rank0.stdout",
        "e": 1,
        "t": 1.0,
        "r": 0,
        "s": "stdout",
        "m": "x\n" * (lines - 1),
    }
    body = json.dumps(record).encode() + b"\n"
    offset = 0
    with httpx.Client(base_url=f"{web.url}/runner/v1", timeout=60) as client:
        while True:
            answer = client.post(
                f"/streams/{member.allocation_id}/{member.index}?offset={offset}",
                content=gzip.compress(body, 1),
                headers={"Authorization": f"Bearer {token}", "Content-Encoding": "gzip"},
            )
            offset = answer.json()["offset"] if answer.status_code == 200 else offset
            yield answer


@pytest.mark.survive(28)
def test_a_flood_is_sent_away_while_other_jobs_pass(small_web: Web) -> None:
    flooding, slow = make_gang(2, token="flood"), make_gang(token="slow")[0]
    stop, answers = threading.Event(), []

    def flood(member: Member) -> None:
        for answer in shipper(small_web, member, "flood", 50_000):
            answers.append(answer)
            if stop.is_set():
                return

    floods = [threading.Thread(target=flood, args=(member,)) for member in flooding]
    for each in floods:
        each.start()
    took = []
    ships = shipper(small_web, slow, "slow", 5)
    while not any(answer.status_code == 429 for answer in list(answers)) or len(took) < 50:
        begin = time.monotonic()
        assert next(ships).status_code == 200
        took.append(time.monotonic() - begin)
        assert len(took) < 5000
    stop.set()
    for each in floods:
        each.join(60)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused and int(refused[0].headers["retry-after"]) >= 1
    assert refused[0].json()["message"].startswith("This job ships more than 65,536 bytes per second")
    assert sorted(took)[len(took) // 2] < 10, "not behind the flood"
    assert read.last_number(slow.allocation.task_id) == 5 * len(took)
    stored = 50_000 * sum(answer.status_code == 200 for answer in answers)
    assert read.last_number(flooding[0].allocation.task_id) == stored

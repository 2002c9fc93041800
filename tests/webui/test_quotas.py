"""What one user, one trial and one run may have at once: beyond it, a sentence."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgiref.testing import ApplicationCommunicator
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from accounts import tokens
from accounts.models import LoginToken, Scope, User
from accounts.refusals import Code, Refusal
from dispatch.passes import pool_pass
from dispatch.runs import intake
from jobs.models import Job, Member
from jobs.states import JobState
from logs import read
from metrics import reported
from metrics.models import Group
from tests.rig import pace
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import running_web
from tests.rig.world import make_host, make_user, members_of, submit_experiment, trial_of
from tests.webui.runner_api.test_checkpoints import make_checkpoint, make_trial
from webui import request_bounds
from webui.runner_api.answers import RefusedRequest
from webui.runner_api.uploads import Uploads

pytestmark = pytest.mark.django_db


def refused(**asked: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        submit_experiment(**asked)
    return caught.value


def test_a_user_may_have_so_many_jobs_that_have_not_ended(settings: Any) -> None:
    settings.UNFINISHED_JOBS_PER_USER = 2
    first = submit_experiment()
    submit_experiment()
    refusal = refused()
    assert refusal.code == Code.CONFLICT and "2 jobs that have not ended" in str(refusal)
    submit_experiment(owner=User.objects.create(username="bob"))
    Job.objects.filter(pk=first.job_id).update(state=JobState.ENDED)
    submit_experiment()


def test_a_user_submits_so_many_jobs_a_minute(settings: Any) -> None:
    settings.SUBMISSIONS_PER_MINUTE = 2
    submit_experiment(), submit_experiment()
    refusal = refused()
    assert refusal.code == Code.TOO_MANY and "within a minute" in str(refusal)
    submit_experiment(owner=User.objects.create(username="bob"))


def test_a_user_has_so_many_access_tokens(settings: Any) -> None:
    settings.ACCESS_TOKENS_PER_USER = 1
    ada = make_user()
    tokens.create(ada, description="a", days=1, scope=Scope.READ, actor="user:ada")
    with pytest.raises(
        Refusal, match=r"has 1 access tokens, as many as this server allows .*; revoke some first"
    ):
        tokens.create(ada, description="b", days=1, scope=Scope.READ, actor="user:ada")


@pytest.fixture
def member() -> Member:
    make_host("gpu1", 1)
    experiment = submit_experiment()
    pool_pass.run(experiment.job.pool_id)
    return members_of(experiment)[0]


def shown(member: Member) -> list[str]:
    return [each.text for each in read.forward(member.allocation.task_id).lines]


def metrics(step: int, group: str = "training", **values: float) -> bytes:
    data = {"type": "metrics", "group": group, "steps_completed": step, "metrics": values, "t": 1.0}
    return json.dumps({"k": "core", "d": data}).encode() + b"\n"


def test_a_trial_has_so_many_metrics_in_all_groups_and_keeps_those_it_has(
    member: Member, settings: Any
) -> None:
    settings.METRIC_NAMES_PER_TRIAL = 3
    body = metrics(1, a=1.0, b=2.0) + metrics(1, "other", a=5.0)
    body += metrics(2, a=1.0, c=3.0) + metrics(2, "third", d=1.0) + metrics(2, "empty") + metrics(3, b=4.0)
    intake.store(member.pk, 0, body)
    trial = trial_of(member.allocation.task.job.experiment)
    kept = [(report.group, report.values) for report in reported.read([trial.pk])]
    assert sorted(kept, key=str) == [
        ("other", {"a": 5.0}),
        ("training", {"a": 1.0, "b": 2.0}),
        ("training", {"b": 4.0}),
    ]
    refused = [text for text in shown(member) if "the trial would have 4 metrics; allowed: at most 3" in text]
    assert len(refused) == 3
    assert not Group.objects.filter(trial_id=trial.pk, name__in=["third", "empty"]).exists()


def test_a_run_keeps_so_many_bytes_of_its_log_and_all_of_its_reports(member: Member, settings: Any) -> None:
    def line(text: str) -> bytes:
        return json.dumps({"k": "lines", "t": 1.0, "r": 0, "s": "stdout", "m": text}).encode() + b"\n"

    settings.LOG_BYTES_PER_RUN = 150
    bodies = [line("kept"), line("x" * 200), line("dropped") + metrics(1, a=1.0), line("dropped")]
    offset = 0
    for body in bodies:
        offset += len(body)
        assert intake.store(member.pk, offset - len(body), body).offset == offset
    texts = shown(member)
    assert "kept" in texts and not any("xxx" in text or "dropped" in text for text in texts)
    assert sum("its further lines are not kept" in text for text in texts) == 1
    assert len(list(reported.read([trial_of(member.allocation.task.job.experiment).pk]))) == 1


@pytest.mark.django_db(transaction=True)
def test_a_user_has_so_many_sockets_open(tmp_path: Path) -> None:
    ada, bob = make_user("ada"), make_user("bob")

    def opened(user: User) -> Any:
        """A socket that has heard its first word, or was closed before."""
        headers = {"Authorization": f"Bearer {LoginToken.issue(user)}"}
        socket = connect(f"{web.socket_url}/ws/pages?topics=hosts", additional_headers=headers)
        return sockets.enter_context(socket)

    with running_web(tmp_path, TRAINMASTER_SOCKETS_PER_USER="2") as web, ExitStack() as sockets:
        first = opened(ada)
        for each in (first, opened(ada)):
            assert each.recv(timeout=60)
        third = opened(ada)
        with pytest.raises(ConnectionClosed) as closed:
            third.recv(timeout=60)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4429
        assert "2 live views open; close some" in closed.value.rcvd.reason
        assert opened(bob).recv(timeout=60)
        first.close()
        assert opened(ada).recv(timeout=60)


def test_a_user_sends_so_many_large_requests_at_once(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.UPLOADS_PER_USER = 2

    async def login_of(scope: Any) -> str:
        return scope["path"].strip("/")  # type: ignore[no-any-return]

    monkeypatch.setattr(request_bounds, "_login_of", login_of)
    go_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def played() -> tuple[list[int], bytes]:
        application = request_bounds.Bounded(slow)

        def begun(user: str, size: int) -> ApplicationCommunicator:
            headers = [(b"content-length", str(size).encode())]
            return ApplicationCommunicator(
                application, {"type": "http", "path": f"/{user}", "headers": headers}
            )

        async def status(request: ApplicationCommunicator) -> int:
            return int((await request.receive_output(5))["status"])

        one, two = begun("ada", 10**6), begun("ada", 10**6)
        await asyncio.sleep(0)
        for request in (one, two):
            await request.receive_nothing(0.05)
        refused = begun("ada", 10**6)
        found = [await status(refused)]
        sentence = (await refused.receive_output(5))["body"]
        small, other = begun("ada", 10), begun("bob", 10**6)
        go_on.set()
        found += [await status(request) for request in (one, two, small, other)]
        for request in (one, two):
            await request.wait(5)
        return [*found, await status(begun("ada", 10**6))], sentence

    statuses, sentence = asyncio.run(played())
    assert statuses == [429, 200, 200, 200, 200, 200]
    assert b"You have 2 large requests under way; send this one when one of them is done." in sentence


def test_the_runs_of_a_user_upload_so_many_files_at_once(settings: Any) -> None:
    settings.RUN_UPLOADS_PER_USER = 2
    ada, bob, bound = 1, 2, Uploads()
    with bound.one(ada), bound.one(bob):
        with bound.one(ada), pytest.raises(RefusedRequest, match="have 2 uploads under way; send this") as no:
            bound.one(ada).__enter__()
        assert no.value.status == 429 and no.value.retry_after
        with bound.one(ada):
            pass


@pytest.mark.django_db(transaction=True)
def test_uploads_of_checkpoints_and_event_files_share_the_bound(tmp_path: Path) -> None:
    """One sender is slow; the next is told so, whatever it brings, and may come once the first is done."""
    member = make_gang()[0]
    checkpoint = make_checkpoint(make_trial(member), member, {"f": b"1234"})
    whole = f"/runner/v1/checkpoints/{checkpoint.pk}/files/f"
    ways = [("PUT", whole), ("PUT", whole.replace("files", "parts") + "?offset=0&size=4&sha256=" + "0" * 64),
            ("PUT", "/runner/v1/event-files/events.out.tfevents.1?offset=0"),
            ("POST", f"/runner/v1/checkpoints/{checkpoint.pk}/complete")]  # fmt: skip
    headers = {"Authorization": f"Bearer {RUN_TOKEN}"}
    with running_web(tmp_path, TRAINMASTER_RUN_UPLOADS_PER_USER="1") as web:

        def asked(way: tuple[str, str]) -> httpx.Response:
            return httpx.request(way[0], web.url + way[1], content=b"1234", headers=headers, timeout=60)

        with closing(HTTPConnection(web.url.removeprefix("http://"), timeout=60)) as slow:
            slow.putrequest(*ways[0])
            for name, value in {**headers, "Content-Length": "4"}.items():
                slow.putheader(name, value)
            slow.endheaders(b"12")
            assert pace.wait_until(lambda: asked(ways[0]).status_code == 429, 60)
            for way in ways:
                answer = asked(way)
                assert answer.status_code == 429 and "1 uploads under way" in answer.text, way
                assert answer.headers["Retry-After"]
            slow.send(b"34")
            assert slow.getresponse().status == 200
        assert asked(ways[2]).status_code == 200

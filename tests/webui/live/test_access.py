"""Who may open which socket, and what is mounted before Django: every address, with every kind of login."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from accounts import tokens
from accounts.models import AccessToken, LoginToken, Scope, User
from commands.models import Command, Service
from jobs import transitions
from jobs.models import Job, Member
from tests.rig.many import empty_context
from tests.rig.rows import make_gang
from tests.rig.web import Web
from tests.rig.world import make_user
from tests.webui.live.test_log_viewer import cookie
from webui.live import routing
from webui.proxy import access as proxy_access
from webui.proxy.access import ProxyAnswer, Visitor

pytestmark = pytest.mark.django_db(transaction=True)
NOT_LOGGED_IN, FORBIDDEN, NOT_FOUND = 4401, 4403, 4404
#: address, with {task} for a task's id -> what those who are logged in get
SOCKETS = {
    "ws/tasks/<str:task_id>/logs": "open",
    "ws/tasks/<str:task_id>/terminal": NOT_FOUND,
    "ws/pages": "open",
    "": NOT_FOUND,
}
#: sockets that editors may open -> who is logged in and may not
REFUSED = {
    "ws/tasks/<str:task_id>/terminal": {
        "viewer's login token", "viewer's session", "a token for reading", "an editor who is a viewer now",
    }
}  # fmt: skip


@pytest.fixture
def members(db: None) -> list[Member]:
    return [make_gang()[0], make_gang(token="another")[0]]


def callers(web: Web, members: list[Member]) -> Iterator[tuple[str, dict[str, str], bool]]:
    """Name, headers, and whether that is a login."""
    now, owner = datetime.now(UTC), members[0].allocation.task.job.owner

    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    def access(scope: Scope, **fields: Any) -> dict[str, str]:
        row, made = tokens.create(owner, description="t", days=1, scope=scope, actor="user:root")
        AccessToken.objects.filter(pk=row.pk).update(**fields)
        return bearer(made)

    for role in User.Role.values:
        user = make_user(f"a-{role}", User.Role(role))
        yield f"{role}'s login token", bearer(LoginToken.issue(user)), True
        yield f"{role}'s session", {**cookie(user), "Origin": web.url}, True
    yield "the owner", bearer(LoginToken.issue(owner)), True
    yield "a token for reading", access(Scope.READ), True
    yield "nobody", {}, False
    yield "a made-up token", bearer("made-up"), False
    yield "an expired token", access(Scope.FULL, expires_at=now - timedelta(seconds=1)), False
    yield "a revoked token", access(Scope.FULL, revoked_at=now), False
    for whose, member in zip(("its own run", "another run"), members, strict=True):
        yield whose, bearer(transitions.run_token(member.allocation)), False
    demoted = make_user("demoted")
    sent = bearer(LoginToken.issue(demoted))
    User.objects.filter(pk=demoted.pk).update(role=User.Role.VIEWER)
    yield "an editor who is a viewer now", sent, True
    left = make_user("left")
    headers = [bearer(LoginToken.issue(left)), cookie(left)]
    User.objects.filter(pk=left.pk).update(is_active=False)
    for each in headers:
        yield "who was deactivated", each, False


def answer(web: Web, path: str, headers: dict[str, str]) -> object:
    """ "open", or the code with which it was closed."""
    with connect(f"{web.socket_url}/{path}", additional_headers=headers) as socket:
        try:
            socket.recv(timeout=60)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None
        return "open"


def test_every_socket_lets_in_whom_it_should(web: Web, members: list[Member]) -> None:
    addresses = [str(route.pattern).strip("^") for route in routing.ROUTES]
    assert addresses == list(SOCKETS), "a new socket says here who may open it"
    for who, headers, is_login in callers(web, members):
        for address, opened in SOCKETS.items():
            path = address.replace("<str:task_id>", members[0].allocation.task_id) or "ws/nothing"
            right = FORBIDDEN if who in REFUSED.get(address, ()) else opened
            assert answer(web, path, headers) == (right if is_login else NOT_LOGGED_IN), (who, address)


#: addresses of what is mounted before Django and needs no login
OPEN = ["/static/css/base.css", "/static/none", "/docs", "/docs/", "/runner/v1/nonce?value=x"]


def test_what_is_mounted_before_django_is_open(web: Web, members: list[Member]) -> None:
    for address in OPEN:
        answers = {
            httpx.get(web.url + address, headers=headers, timeout=60).status_code
            for _, headers, _ in callers(web, members)
        }
        assert len(answers) == 1 and not answers & {401, 403}, (address, answers)


@pytest.fixture
def notebook(members: list[Member]) -> Command:
    """A notebook of the first run's owner, which is not ready yet: whoever may use it is told to wait."""
    task = members[0].allocation.task
    Job.objects.filter(pk=task.job_id).update(kind=Job.Kind.NOTEBOOK)
    command = Command.objects.create(
        job=task.job, task=task, owner=task.job.owner, description="n", config={}, context=empty_context()
    )
    Service.objects.create(command=command)
    return command


#: who may use it, beside its owner as long as that is an editor
ADMINS = {"admin's login token", "admin's session"}


def test_a_task_is_used_by_its_owner_and_admins(web: Web, members: list[Member], notebook: Command) -> None:
    for who, headers, is_login in callers(web, members):
        may = who in {*ADMINS, "the owner"}
        status = 503 if may else 403 if is_login else 401
        for method in ("GET", "POST"):
            url = f"{web.url}/proxy/{notebook.pk}/lab?x=1"
            assert httpx.request(method, url, headers=headers, timeout=60).status_code == status, (
                who,
                method,
            )
        socket = Visitor(
            str(notebook.pk), {name.lower(): value for name, value in headers.items()}, False, True
        )
        answers = {503: ProxyAnswer.WAITING, 403: ProxyAnswer.FORBIDDEN, 401: ProxyAnswer.NOT_LOGGED_IN}
        assert proxy_access.look(socket).answer == answers[status], who


def test_an_owner_who_is_a_viewer_now_uses_a_task_no_longer(web: Web, notebook: Command) -> None:
    headers = {"Authorization": f"Bearer {LoginToken.issue(notebook.owner)}"}
    User.objects.filter(pk=notebook.owner_id).update(role=User.Role.VIEWER)
    url = f"{web.url}/proxy/{notebook.pk}/lab"
    assert httpx.get(url, headers=headers, timeout=60).status_code == 403

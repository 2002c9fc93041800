"""Who may use which route of the runner's road: every method of every route, asked with every kind of token."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from starlette.routing import Route

from accounts import tokens
from accounts.models import LoginToken, Scope, User
from jobs import feeding
from jobs.models import Allocation, Member
from jobs.states import AllocationState
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import Web
from tests.rig.world import make_user
from tests.webui.runner_api.test_checkpoints import make_checkpoint, make_trial
from webui.runner_api.routes import application

pytestmark = pytest.mark.django_db(transaction=True)

OTHER_TOKEN, OVER_TOKEN = "the-token-of-another-run", "the-token-of-a-run-that-is-over"
#: what needs no token: who the server is
OPEN = {"GET /nonce", "GET /identity"}
#: which run it is about is said by the token alone, so that every run has its own
OF_ANY_RUN = {
    "PUT /event-files/{path:path}",
    "POST /checkpoints/check",
    "GET /tensorboard",
    "GET /tensorboard/file",
}
#: by no run, but what Slurm starts before there is one; its token is good for nothing else
OF_A_JOB_IN_SLURM = "POST /slurm/{attempt}/begun"
DENIED = {401, 403, 404, 410}


@pytest.fixture
def member() -> Member:
    return make_gang()[0]


@pytest.fixture
def who(member: Member) -> dict[str, str]:
    """Kind of token -> the token."""
    ada: User = make_user("ada")
    make_gang(token=OTHER_TOKEN)
    over = make_gang(token=OVER_TOKEN)[0].allocation
    Allocation.objects.filter(pk=over.pk).update(state=AllocationState.TERMINATED)
    _, access = tokens.create(ada, description="t", days=1, scope=Scope.FULL, actor="user:ada")
    return {
        "nobody": "",
        "garbage": "no-such-token",
        "user": LoginToken.issue(ada),
        "access token": access,
        "another run": OTHER_TOKEN,
        "a run that is over": OVER_TOKEN,
    }


def routes(member: Member) -> Iterator[tuple[str, str, str]]:
    """`METHOD route`, the method and an address with rows of the member."""
    checkpoint = make_checkpoint(make_trial(member), member, {"model.pt": b"weights"})
    place = {
        "allocation_id": member.allocation_id,
        "member": "0",
        "uuid": str(checkpoint.pk),
        "path": "model.pt",
        "attempt": member.allocation_id,
    }
    for route in application.routes:
        assert isinstance(route, Route)
        if "{rest" in route.path:
            continue
        path = re.sub(r"{(\w+)[^}]*}", lambda found: place[found[1]], route.path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield f"{method} {route.path}", method, path


def asked(web: Web, method: str, path: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    query = "offset=0&size=7&wait=0"
    content = b"{}" if method == "POST" else b"weights" if method == "PUT" else None
    url = f"{web.url}/runner/v1{path}?{query}"
    return httpx.request(method, url, content=content, headers=headers, timeout=60).status_code


def test_a_run_reaches_its_own_and_nobody_else_reaches_it(
    web: Web, member: Member, who: dict[str, str]
) -> None:
    for name, method, path in list(routes(member)):
        if name == OF_A_JOB_IN_SLURM:
            assert {asked(web, method, path, token) for token in (*who.values(), RUN_TOKEN)} == {401}
            assert asked(web, method, path, feeding.start_token(member.allocation_id)) == 200
            continue
        if name in OPEN:
            assert asked(web, method, path, "") not in DENIED, name
            continue
        for kind, token in who.items():
            if kind == "another run" and name in OF_ANY_RUN:
                continue
            status = asked(web, method, path, token)
            assert status in DENIED, (name, kind, status)
            assert status == 401 or kind in {"another run", "a run that is over"}, (name, kind, status)
        if not name.startswith("GET /tensorboard"):  # this run is none
            assert asked(web, method, path, RUN_TOKEN) not in DENIED - {404}, name

"""What somebody may send who is not logged in, against a real web process."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, ClassVar

import httpx
import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import RequestFactory
from starlette.routing import Route
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from accounts.models import LoginToken
from accounts.refusals import Refusal
from accounts.rights import Right
from embedded.redis import Redis
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import Web, running_web
from tests.rig.world import make_user
from tests.webui.runner_api.test_checkpoints import make_checkpoint, make_trial
from webui.api import custom_search
from webui.api.errors import BadRequest
from webui.live.sockets import Closed, Socket
from webui.models import UserSetting
from webui.pages.experiments import create
from webui.runner_api import limits
from webui.runner_api.routes import application as runner_road

pytestmark = pytest.mark.django_db(transaction=True)

LARGE = 300_000


def post(web: Web, path: str, content: bytes, token: str = "", **headers: str) -> httpx.Response:
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    headers.setdefault("Content-Type", "application/json")
    return httpx.post(f"{web.url}{path}", content=content, headers=headers, timeout=60)


@pytest.mark.parametrize(
    "path", ["/api/v1/auth/login", "/login", "/api/v1/experiments", "/api/v1/users/setting"]
)
@pytest.mark.parametrize("token", ["", "no-such-token"])
def test_without_a_login_nothing_long_is_taken(web: Web, path: str, token: str) -> None:
    begun = time.monotonic()
    answer = post(web, path, b"[" + b"[]," * (LARGE // 3) + b"[]]", token)
    assert answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert answer.json() == {
        "message": f"The request has {LARGE + 4:,} bytes; allowed without a login: at most 65,536."
    }
    assert time.monotonic() - begun < 30


def test_who_is_logged_in_sends_more_but_not_to_log_in(web: Web) -> None:
    token = LoginToken.issue(make_user("ada"))
    settings = {"settings": [{"key": f"k{number}", "value": "x" * 60_000} for number in range(5)]}
    assert (
        post(web, "/api/v1/users/setting", json.dumps(settings).encode(), token).status_code == HTTPStatus.OK
    )
    login = json.dumps({"username": "ada", "password": "x" * LARGE}).encode()
    assert post(web, "/api/v1/auth/login", login, token).status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_a_browsers_session_is_a_login(web: Web) -> None:
    from django.test import Client

    browser = Client()
    browser.force_login(make_user("ada"), backend="django.contrib.auth.backends.ModelBackend")
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    answer = post(web, "/api/v1/users/setting", b" " * LARGE, Cookie=cookie)
    assert answer.status_code == HTTPStatus.FORBIDDEN and "CSRF" in answer.text
    assert post(web, "/api/v1/users/setting", b" " * LARGE, Cookie="sessionid=x").status_code == 413


def test_a_body_that_hides_its_length_is_cut(web: Web) -> None:
    def parts() -> object:
        for _ in range(40):
            yield b" " * 10_000

    with pytest.raises(httpx.HTTPError):
        httpx.post(f"{web.url}/api/v1/auth/login", content=parts(), timeout=20).raise_for_status()  # type: ignore[arg-type]
    assert httpx.get(f"{web.url}/health", timeout=60).status_code == HTTPStatus.OK


@pytest.mark.parametrize("body", [{"username": "x" * 151}, {"username": "ada", "password": "x" * 1025}])
def test_names_and_passwords_have_a_length(web: Web, body: dict[str, str]) -> None:
    answer = post(web, "/api/v1/auth/login", json.dumps(body).encode())
    assert answer.status_code == HTTPStatus.BAD_REQUEST and "characters" in answer.text


def test_deep_json_is_a_sentence(web: Web) -> None:
    for body in (b"[" * 20_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000):
        answer = post(web, "/api/v1/auth/login", body)
        assert answer.status_code == HTTPStatus.BAD_REQUEST and "JSON" in answer.text


DEEP = (b"[" * 20_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000)
MANY = b'{"resources":[' + b"[]," * 400_000 + b"[]]}"


def runner_routes() -> list[tuple[str, str]]:
    """(method, path) of every route of the runner's road that may have a body, with made-up names in it."""
    named = {
        "allocation_id": "a.1",
        "attempt": "a.1",
        "member:int": "0",
        "uuid:uuid": str(uuid.UUID(int=1)),
        "path:path": "f",
    }
    return [
        (method, re.sub(r"{([^}]*)}", lambda found: named[found[1]], route.path))
        for route in runner_road.routes
        if isinstance(route, Route) and "{rest" not in route.path
        for method in sorted((route.methods or set()) & {"POST", "PUT"})
    ]


@pytest.mark.parametrize(("method", "path"), runner_routes())
@pytest.mark.parametrize("token", ["", "made-up"])
def test_the_runners_road_reads_no_byte_of_a_stranger(method: str, path: str, token: str) -> None:
    """Played without a server between, so that reading would be seen."""
    headers = [(b"content-length", b"7"), (b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": headers,
             "query_string": b"offset=0&size=7&sha256=" + b"0" * 64}  # fmt: skip
    asked, answered = [], []

    async def receive() -> Any:
        asked.append(path)
        return {"type": "http.request", "body": b"weights"}

    async def send(message: Any) -> None:
        answered.append(message)

    asyncio.run(runner_road(scope, receive, send))
    assert answered[0]["status"] == HTTPStatus.UNAUTHORIZED and not asked


@pytest.mark.parametrize(("method", "path"), runner_routes())
def test_large_and_deep_bodies_of_a_stranger_cost_the_runners_road_nothing(
    web: Web, method: str, path: str
) -> None:
    for body in (*DEEP, MANY):
        headers = {"Authorization": "Bearer made-up"}
        url = f"{web.url}/runner/v1{path}?offset=0&size={len(body)}"
        try:
            status = httpx.request(method, url, content=body, headers=headers, timeout=60).status_code
        except httpx.WriteError:  # it answered and hung up while this was still sending
            continue
        assert status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.BAD_REQUEST}


def test_deep_json_of_a_run_is_a_sentence_and_a_long_list_of_files_has_a_limit(web: Web) -> None:
    member = make_gang()[0]
    checkpoint = make_checkpoint(make_trial(member), member, {"f": b"1"})
    for path in (f"/streams/{member.allocation_id}/0/heartbeat", f"/checkpoints/{checkpoint.pk}/complete"):
        for body in DEEP:
            answer = post(web, f"/runner/v1{path}", body, RUN_TOKEN)
            assert answer.status_code == HTTPStatus.BAD_REQUEST and "not JSON" in answer.text
    complete = f"/runner/v1/checkpoints/{checkpoint.pk}/complete"
    assert "must be an object" in post(web, complete, MANY, RUN_TOKEN).text
    assert post(web, complete, b" " * (limits.COMPLETE_BODY_BYTES + 1), RUN_TOKEN).status_code == 413


@pytest.fixture(scope="module")
def sso_web(
    django_db_setup: None, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    """A web process with single sign-on, whose provider does not answer."""
    variables = {"ISSUER": "http://127.0.0.1:1", "CLIENT_ID": "id", "CLIENT_SECRET": "secret"}
    settings = {f"TRAINMASTER_OIDC_{name}": value for name, value in variables.items()}
    with running_web(tmp_path_factory.mktemp("sso"), **settings) as process:
        yield process


@pytest.mark.parametrize("path", ["login/", "login/callback/", "token/"])
def test_single_sign_on_takes_nothing_long_and_nothing_deep(sso_web: Web, path: str) -> None:
    address = f"/sso/oidc/oidc/{path}"
    assert post(sso_web, address, MANY).status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    for body in DEEP:
        assert post(sso_web, address, body).status_code < HTTPStatus.INTERNAL_SERVER_ERROR


@pytest.mark.parametrize("path", ["/ws/tasks/a/logs", "/ws/pages", "/ws/none"])
def test_frames_before_the_login_are_not_read(web: Web, path: str) -> None:
    since = len(web.log())
    for frame in (*DEEP, MANY[:900_000], b"x" * (2**20 + 1)):
        with (
            connect(f"{web.socket_url}{path}", max_size=None) as socket,
            pytest.raises(ConnectionClosed) as end,
        ):
            socket.send(frame.decode())
            socket.recv(timeout=60)
        assert end.value.rcvd is not None and end.value.rcvd.code in {4401, 1009}
    assert "Traceback" not in web.log(since)


class Deaf(Socket):
    """Says whether it was given a frame."""

    rights: ClassVar[dict[str, Right]] = {"GET": Right.READ}
    heard: ClassVar[list[str]] = []

    async def check_login(self) -> int:
        await asyncio.sleep(0.05)
        raise Closed(4401)

    def hear(self, text: str) -> None:
        self.heard.append(text)


def test_a_frame_waits_until_it_is_known_whose_it_is() -> None:
    async def played() -> int:
        scope = {"type": "websocket", "path": "/", "headers": []}
        played = ApplicationCommunicator(Deaf.as_asgi(), scope)
        await played.send_input({"type": "websocket.connect"})
        assert (await played.receive_output(5))["type"] == "websocket.accept"
        await played.send_input({"type": "websocket.receive", "text": "frame"})
        return int((await played.receive_output(5))["code"])

    assert asyncio.run(played()) == 4401 and not Deaf.heard


@pytest.mark.parametrize("deep", DEEP)
def test_deep_texts_within_requests_are_read_with_a_limit(deep: bytes) -> None:
    assert UserSetting(value=deep.decode()).names == []
    with pytest.raises(BadRequest, match="nested deeper than 100 levels"):
        custom_search._wanted({"createTrial": {"requestId": "1", "hyperparams": deep.decode()}}, 0)


def test_a_deep_list_of_files_is_a_sentence() -> None:
    form = RequestFactory().post(
        "/experiments/new",
        {"manifest": DEEP[0].decode(), "contents": SimpleUploadedFile("contents", b"")},
    )
    with pytest.raises(Refusal, match="list of files is invalid"):
        create._code(form, None)

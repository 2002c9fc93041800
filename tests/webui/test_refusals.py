"""A refusal is answered by its code on every road, and nothing but its code and field is read."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory
from rest_framework.request import Request
from rest_framework.response import Response
from starlette.requests import Request as RunnerRequest
from starlette.responses import Response as RunnerResponse

from accounts.refusals import Code, FieldRefusals, Refusal, refused_as
from accounts.rights import Right
from tests.rig.world import make_user
from webui.api.views import ApiView
from webui.live.sockets import Socket
from webui.pages.frame import page, refusing
from webui.refusals import STATUS
from webui.runner_api.answers import endpoint

ROOT = Path(__file__).resolve().parents[2]
SENTENCE = "Host gpu1 is out of order; choose another one."
STATUSES = {
    Code.INVALID: 400,
    Code.UNKNOWN_PERSON: 401,
    Code.FORBIDDEN: 403,
    Code.NOT_FOUND: 404,
    Code.TAKEN: 409,
    Code.CONFLICT: 409,
    Code.ENDED: 409,
    Code.TOO_LARGE: 413,
    Code.TOO_MANY: 429,
    Code.BUSY: 503,
    Code.FULL: 507,
}
codes = pytest.mark.parametrize("code", Code)


def test_every_code_has_its_status() -> None:
    assert STATUS == STATUSES


@codes
def test_rest_answers_with_status_and_sentence(code: Code) -> None:
    class Refusing(ApiView):
        authentication_classes = []
        rights = {"GET": Right.OPEN}

        def get(self, request: Request) -> Response:
            raise Refusal(SENTENCE, code)

    answer = Refusing.as_view()(RequestFactory().get("/api/v1/refusing"))
    assert answer.status_code == STATUSES[code]
    assert answer.data["message"] == answer.data["error"]["error"] == SENTENCE


@codes
@pytest.mark.django_db
def test_a_page_says_it(code: Code) -> None:
    @page
    def refused(request: HttpRequest) -> HttpResponse:
        raise Refusal(SENTENCE, code)

    request = RequestFactory().get("/refusing")
    request.user = make_user()
    answer = refused(request)
    assert isinstance(answer, HttpResponse)
    assert answer.status_code == STATUSES[code]
    assert SENTENCE in answer.content.decode()


@codes
@pytest.mark.django_db
def test_what_scripts_read_of_a_page_is_json(code: Code) -> None:
    @refusing
    def data(request: HttpRequest) -> HttpResponse:
        raise Refusal(SENTENCE, code)

    request = RequestFactory().get("/data")
    request.user = make_user()
    answer = data(request)
    assert isinstance(answer, JsonResponse)
    assert (answer.status_code, json.loads(answer.content)) == (STATUSES[code], {"message": SENTENCE})


def test_a_page_sends_strangers_to_the_login_first() -> None:
    @page
    def refused(request: HttpRequest) -> HttpResponse:
        raise Refusal(SENTENCE)

    request = RequestFactory().get("/refusing")
    request.user = AnonymousUser()
    assert refused(request).status_code == 302


@codes
async def test_runners_are_answered_likewise(code: Code) -> None:
    @endpoint("GET", Right.OPEN)
    async def refusing(request: RunnerRequest) -> RunnerResponse:
        raise Refusal(SENTENCE, code)

    answer = await refusing(RunnerRequest({"type": "http", "headers": []}))
    assert answer.status_code == STATUSES[code]
    assert SENTENCE in bytes(answer.body).decode()


@codes
async def test_a_socket_closes_with_the_status_and_the_sentence(code: Code) -> None:
    class Refusing(Socket):
        rights = {"GET": Right.READ}

        async def check_login(self) -> None:
            """Logins have tests of their own (live/test_log_viewer.py)."""

        async def serve(self) -> None:
            raise Refusal(SENTENCE * 3, code)

    visitor = ApplicationCommunicator(
        Refusing.as_asgi(), {"type": "websocket", "path": "/ws/refusing", "headers": []}
    )
    await visitor.send_input({"type": "websocket.connect"})
    assert (await visitor.receive_output())["type"] == "websocket.accept"
    closed = await visitor.receive_output()
    assert closed["code"] == 4000 + STATUSES[code]
    assert closed["reason"] == (SENTENCE * 3)[:123]


def test_a_refusal_of_several_fields_has_a_sentence_for_each() -> None:
    refusal = FieldRefusals({"name": "A name is required.", "port": "A port is a number."}, Code.TAKEN)
    assert str(refusal) == "A name is required. A port is a number."
    assert (refusal.code, refusal.field) == (Code.TAKEN, "name")


def test_a_caller_may_give_it_the_code_that_it_answers_with() -> None:
    with pytest.raises(Refusal, match="gpu1") as given, refused_as(Code.INVALID):
        raise Refusal(SENTENCE, Code.ENDED, "host")
    assert (given.value.code, given.value.field) == (Code.INVALID, "host")


# --- the guard: no other class that only carries a sentence, and nobody reads one back ------------------------------

#: Rooms that may import accounts.refusals. What `manage.py up` runs before there is a server prints its sentences.
ROOMS = (
    "accounts", "commands", "experiments", "logs", "metrics", "notifications", "queue/dispatch", "queue/hosts",
    "queue/jobs", "shown", "submissions", "webui/api", "webui/downloads", "webui/live", "webui/pages", "webui/proxy",
    "webui/runner_api",
)  # fmt: skip
#: Callers tell these by their type, and nobody is shown what they say.
SIGNALS = {
    "Gone",
    "NoSuchExperiment",
    "NotYet",
    "Over",
    "Stale",
    "Unanswered",
    "Unreadable",
    "WrongAnswer",
    "_Refused",
}
READS = {"startswith", "endswith", "find", "index", "partition", "rpartition", "removeprefix"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if "migrations" not in path.parts:
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def sentence_classes(tree: ast.Module) -> list[str]:
    """Exceptions of no base but a general one, with nothing in them but a docstring."""
    general = {"Exception", "ValueError", "RuntimeError", "Refusal", "FieldRefusals", "APIException"}
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).rpartition(".")[2] in general for base in node.bases)
        and all(isinstance(line, ast.Pass | ast.Expr) for line in node.body)
    ]


def is_sentence(node: ast.expr, caught: set[str]) -> bool:
    """`sentence`, `refusal.sentence`, or `str(error)` of an exception that was caught."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args:
        return ast.unparse(node.args[0]) in caught
    return ast.unparse(node).rpartition(".")[2] == "sentence"


def readers(tree: ast.Module) -> list[str]:
    caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    found: list[Any] = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[text]) if is_sentence(text, caught):
                found.append(node)
            case ast.Call(func=ast.Attribute(value=text, attr=name)) if is_sentence(text, caught):
                found += [node] if name in READS else []
            case ast.Call(
                func=ast.Attribute(attr="search" | "match" | "fullmatch" | "findall"), args=[*texts]
            ):
                found += [node] if any(is_sentence(text, caught) for text in texts) else []
    return [ast.unparse(node) for node in found]


def test_no_other_exception_only_carries_a_sentence() -> None:
    found = {
        f"{path}: {name}"
        for path, tree in modules()
        for name in sentence_classes(tree)
        if name not in SIGNALS
    }
    assert not found, "raise accounts.refusals.Refusal with a code instead"


def test_nobody_reads_a_sentence() -> None:
    found = {f"{path}: {reader}" for path, tree in modules() for reader in readers(tree)}
    assert not found, "read the code or the field of the refusal instead"


def test_the_guard_sees_what_it_forbids() -> None:
    bad = """
class Refused(Exception):
    '''The message is a sentence.'''
try:
    pass
except Refusal as error:
    if "already" in str(error) or str(error).startswith("job"):
        re.search("job", str(error))
    sentence.partition(":")
"""
    tree = ast.parse(bad)
    assert sentence_classes(tree) == ["Refused"]
    assert len(readers(tree)) == 4

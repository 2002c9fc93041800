"""Errors in the dialect: a status, and a sentence in `error.error` and `message` (features.md 11.1)."""

from __future__ import annotations

import logging
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from django.core.exceptions import PermissionDenied
from django.db import DataError, InterfaceError, OperationalError
from django.db.models import Manager, Model, QuerySet
from django.http import Http404, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

from accounts.refusals import Code, Refusal
from shown import full_disk
from webui.refusals import STATUS

log = logging.getLogger(__name__)

Row = TypeVar("Row", bound=Model)

#: A client that finds the database away comes back after this long.
RETRY_AFTER_SECONDS = 2
_LATER = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INSUFFICIENT_STORAGE)


#: how views refuse most often
BadRequest = Refusal
TooLarge = partial(Refusal, code=Code.TOO_LARGE)
Conflict = partial(Refusal, code=Code.CONFLICT)
Missing = partial(Refusal, code=Code.NOT_FOUND)
Forbidden = partial(Refusal, code=Code.FORBIDDEN)


def existing(rows: Manager[Row] | QuerySet[Row], noun: str, **by: Any) -> Row:
    """The first of the rows that has this value. Raises Missing, which names it: `host gpu1 not found`."""
    row = rows.filter(**by).first()
    if row is None:
        (value,) = by.values()
        raise Missing(f"{noun} {value} not found")
    return row


def body(code: int, sentence: str) -> dict[str, Any]:
    """The JSON of an error answer."""
    return {
        "error": {"code": code, "reason": HTTPStatus(code).phrase, "error": sentence},
        "message": sentence,
    }


def json_error(code: int, sentence: str) -> JsonResponse:
    """The answer of a view outside DRF that refuses."""
    answer = JsonResponse(body(code, sentence), status=code)
    if code in _LATER:
        answer["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if code == HTTPStatus.UNAUTHORIZED:
        answer["WWW-Authenticate"] = "Bearer"
    return answer


def describe(error: Exception) -> tuple[int, str]:
    """Status and sentence of anything that a view may raise; what nobody foresaw is logged and hidden."""
    if isinstance(error, Refusal):
        return STATUS[error.code], str(error)
    if isinstance(error, exceptions.ValidationError):
        return error.status_code, "; ".join(_sentences(error.detail))
    if isinstance(error, exceptions.APIException):
        return error.status_code, str(error.detail)
    if isinstance(error, Http404):
        return HTTPStatus.NOT_FOUND, str(error) or "not found"
    if isinstance(error, PermissionDenied):
        return HTTPStatus.FORBIDDEN, str(error) or "permission denied"
    if isinstance(error, (DataError, UnicodeEncodeError)):
        log.warning("the database rejected a value: %s", error)
        why = "a number is invalid or too large, or text contains invalid characters such as U+0000"
        return HTTPStatus.BAD_REQUEST, f"A value in the request cannot be stored: {why}."
    if sentence := full_disk.sentence_of(error):
        log.warning("%s (%s)", sentence, error)
        return HTTPStatus.INSUFFICIENT_STORAGE, sentence
    if isinstance(error, (OperationalError, InterfaceError)):
        log.warning("the database is not responding: %s", error)
        return HTTPStatus.SERVICE_UNAVAILABLE, "The database is not responding. Try again in a moment."
    log.exception("unexpected error in a view", exc_info=error)
    return HTTPStatus.INTERNAL_SERVER_ERROR, "Internal server error. The server's log has the details."


def _sentences(detail: Any, path: str = "") -> list[str]:
    """DRF's nested error detail as "field.path: sentence" lines."""
    if isinstance(detail, dict):
        return [line for name, inner in detail.items() for line in _sentences(inner, _inside(path, name))]
    if isinstance(detail, list):
        return [
            line
            for index, inner in enumerate(detail)
            for line in _sentences(inner, f"{path}[{index}]" if isinstance(inner, (dict, list)) else path)
        ]
    return [f"{path}: {detail}" if path else str(detail)]


def _inside(path: str, name: str | int) -> str:
    """The path of a field: `jumps[0].address`."""
    if name == "non_field_errors":
        return path
    return f"{path}[{name}]" if isinstance(name, int) or name.isdigit() else f"{path}.{name}".lstrip(".")


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """DRF's hook: every error of the API leaves as JSON with a sentence."""
    code, sentence = describe(error)
    headers: dict[str, str] = {}
    if code in _LATER:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    return Response(body(code, sentence), status=code, headers=headers)

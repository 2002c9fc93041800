"""The base of every view: bodies and queries are declared, so that checks and OpenAPI come from one place."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from http import HTTPMethod
from typing import IO, Any, ClassVar

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from rest_framework import exceptions, serializers
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from accounts import rights
from accounts.rights import Right
from events import prepared
from shown import absent
from trainmaster import bounded_json, quantities
from webui.api import answers
from webui.api.errors import BadRequest, TooLarge
from webui.api.openapi import DialectSchema
from webui.api.permissions import is_open
from webui.api.protojson import query_in_camel_case, renamed

Json = dict[str, Any]
#: where the addresses are whose queries Determined's gateway takes in snake_case too
DIALECT = "/api/v1/"
SerializerClass = type[serializers.Serializer[Any]]
CHANGES = frozenset({HTTPMethod.POST, HTTPMethod.PUT, HTTPMethod.PATCH, HTTPMethod.DELETE})


class DialectParser(BaseParser):
    """Bodies are JSON whatever the Content-Type says, because the published client sends none."""

    media_type = "*/*"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        is_free = is_open(rights.declared_by((parser_context or {}).get("view")))
        limit = settings.OPEN_REQUEST_BYTES if is_free else settings.REQUEST_BYTES
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            raise TooLarge(f"The request's body is larger than {quantities.size(limit)}.")
        if not raw.strip():
            return {}
        try:
            return bounded_json.loads(raw)
        except ValueError as error:
            raise BadRequest(f"The request's body is not JSON: {error}") from error


class AnyMedia(BaseContentNegotiation):
    """Answers are JSON and bodies are JSON, whatever the headers ask for."""

    def select_parser(self, request: Request, parsers: Any) -> BaseParser | None:
        return parsers[0] if parsers else None

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """A resource of the dialect. Subclasses have one method per HTTP method and say who may call it.

    A method returns the answer itself, which is sent with the status that `statuses` gives it.
    """

    parser_classes = [DialectParser]
    content_negotiation_class = AnyMedia
    schema = DialectSchema()
    #: HTTP method -> serializer of its body, or of its query string
    bodies: ClassVar[dict[str, SerializerClass]] = {}
    queries: ClassVar[dict[str, SerializerClass]] = {}
    #: HTTP method -> type of a body that is no object of fields and that the view reads by hand, for OpenAPI
    described_bodies: ClassVar[Mapping[str, Any]] = {}
    #: HTTP method -> type of a success (webui.api.answers), where it is not what the method returns
    answers: ClassVar[Mapping[str, Any]] = {}
    #: HTTP method -> status of a success, where it is not 200
    statuses: ClassVar[dict[str, int]] = {}
    #: HTTP methods that programs call again and again, and so by the short way (webui.short_way): quick and short
    polled: ClassVar[frozenset[str]] = frozenset()
    #: HTTP method -> a statement that finds a row by what the address says, and the name of that part of the address:
    #: read together with the login
    reads: ClassVar[Mapping[str, tuple[prepared.Prepared[Any], str]]] = {}
    #: HTTP method -> what it asks of whoever calls it
    rights: ClassVar[Mapping[str, Right]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for method in ("GET", *sorted(CHANGES)):
            is_there = method.lower() in cls.http_method_names and hasattr(cls, method.lower())
            if is_there and method not in cls.rights:
                raise TypeError(f"{cls.__name__}.rights does not say who may use {method}")

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        statement, name = self.reads.get(request.method or "", (None, ""))
        if statement is None:
            return super().dispatch(request, *args, **kwargs)
        with prepared.ahead(statement, kwargs[name]):
            return super().dispatch(request, *args, **kwargs)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        raise exceptions.MethodNotAllowed(str(request.method), detail=absent.sentence(request.path))

    def body(self, request: Request) -> Json:
        """The checked body. Fields that were not sent are absent."""
        return checked(self.bodies[request.method or ""], request.data)

    def query(self, request: Request) -> Json:
        """The checked query string."""
        return checked(self.queries[request.method or "GET"], request.query_params)

    @classmethod
    @cache
    def answered(cls) -> Mapping[str, Any]:
        """HTTP method -> type of a success: what the method is annotated to return, unless `answers` has it."""
        found = dict(cls.answers)
        for method in {"GET", *CHANGES} - found.keys():
            if handler := getattr(cls, method.lower(), None):
                found[method] = answers.declared_by(handler)
        return found

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        if request.path.startswith(DIALECT):
            request.GET = query_in_camel_case(request.GET)  # type: ignore[assignment]  # made mutable while it is read
        return super().initialize_request(request, *args, **kwargs)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Response:
        method = request.method or ""
        if not isinstance(response, HttpResponseBase):
            response = Response({} if response is None else response, self.statuses.get(method))
        answer = super().finalize_response(request, response, *args, **kwargs)
        if settings.CHECK_ANSWERS:
            answers.check(self.answered(), method, request.path, type(self).__name__, answer)
        return answer


def checked(kind: SerializerClass, data: Any) -> Json:
    """What was sent, as the serializer takes it. Raises ValidationError."""
    serializer = _serializer(kind)
    if data is None:  # `null`
        raise exceptions.ValidationError({api_settings.NON_FIELD_ERRORS_KEY: ["No data provided"]})
    return dict(serializer.run_validation(renamed(serializer, data)))


@cache
def _serializer(kind: SerializerClass) -> Any:
    """One for all requests: it copies all its fields when it is made, which takes longer than to check a report."""
    return kind()

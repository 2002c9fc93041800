"""The base of every view: bodies and queries are declared, so that checks and OpenAPI come from one place."""

from __future__ import annotations

import re
from http import HTTPMethod
from typing import Any, ClassVar

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from webui.api.parsing import DialectParser

Json = dict[str, Any]
SerializerClass = type[serializers.Serializer[Any]]


class DialectSchema(AutoSchema):
    """OpenAPI of a view from its `bodies`, its `queries` and the docstrings of its methods."""

    def get_tags(self) -> list[str]:
        return [self.view.__class__.__module__.rsplit(".", 1)[-1]]

    def get_operation_id(self) -> str:
        """The view's own name: `experiments_experiment_pause_post`."""
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", self.view.__class__.__name__).lower()
        path = re.sub(r"\W+", "_", self.path.replace("/api/v1/", "")).strip("_")
        return f"{name}_{path}_{self.method.lower()}"

    def get_request_serializer(self) -> Any:
        return getattr(self.view, "bodies", {}).get(self.method)

    def get_response_serializers(self) -> Any:
        return OpenApiTypes.OBJECT

    def get_override_parameters(self) -> list[Any]:
        query = getattr(self.view, "queries", {}).get(self.method)
        return [query] if query else []


class AnyMedia(BaseContentNegotiation):
    """Answers are JSON and bodies are JSON, whatever the headers ask for."""

    def select_parser(self, request: Request, parsers: Any) -> BaseParser | None:
        return parsers[0] if parsers else None

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """A resource of the dialect. Subclasses have one method per HTTP method and say who may call it."""

    parser_classes = [DialectParser]
    content_negotiation_class = AnyMedia
    schema = DialectSchema()
    #: HTTP method -> serializer of its body, or of its query string
    bodies: ClassVar[dict[str, SerializerClass]] = {}
    queries: ClassVar[dict[str, SerializerClass]] = {}
    #: methods that need no login, only admins, any role, or that a run's token may use
    open_to_all: ClassVar[bool] = False
    admin_methods: ClassVar[frozenset[str]] = frozenset()
    viewer_methods: ClassVar[frozenset[str]] = frozenset()
    run_methods: ClassVar[frozenset[str]] = frozenset()

    def body(self, request: Request) -> Json:
        """The checked body. Fields that were not sent are absent."""
        return _checked(self.bodies[request.method or ""], request.data)

    def query(self, request: Request) -> Json:
        """The checked query string."""
        return _checked(self.queries[request.method or "GET"], request.query_params)


def _checked(kind: SerializerClass, data: Any) -> Json:
    serializer = kind(data=data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


CHANGES = frozenset({HTTPMethod.POST, HTTPMethod.PUT, HTTPMethod.PATCH, HTTPMethod.DELETE})

"""How OpenAPI describes the views: derived from what each declares, so that no view needs a decorator."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.authentication import SessionScheme
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

from webui.api import answers


class ErrorDetail(serializers.Serializer[Any]):
    code = serializers.IntegerField(help_text="the HTTP status")
    reason = serializers.CharField(help_text="the status in words")
    error = serializers.CharField(help_text="what was found, what is allowed, what to do")


class ErrorAnswer(serializers.Serializer[Any]):
    """The body of every error response."""

    error = ErrorDetail()
    message = serializers.CharField(help_text="the error message")


class DialectSchema(AutoSchema):
    """OpenAPI of a view from its `bodies`, `queries`, `statuses`, and what its methods return and say."""

    view: Any  # an ApiView

    def get_tags(self) -> list[str]:
        return [self.view.__class__.__module__.rsplit(".", 1)[-1]]

    def get_operation_id(self) -> str:
        """The view's own name: `experiments_experiment_pause_post`; two underlines lead a path outside /api/v1."""
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", self.view.__class__.__name__).lower()
        path = re.sub(r"\W+", "_", self.path.removeprefix("/api/v1/")).rstrip("_")
        return f"{name}_{path}_{self.method.lower()}"

    def get_request_serializer(self) -> Any:
        if self.method in self.view.described_bodies:
            return answers.content(self.view.described_bodies[self.method])
        return self.view.bodies.get(self.method)

    def get_response_serializers(self) -> Any:
        status = self.view.statuses.get(self.method, 200)
        answer = self.view.answered()[self.method]
        return {
            **{
                (status, media): OpenApiResponse(schema, "The requested data.")
                for media, schema in answers.content(answer).items()
            },
            "default": OpenApiResponse(ErrorAnswer, "An error, with a message."),
        }

    def get_override_parameters(self) -> list[Any]:
        query = self.view.queries.get(self.method)
        return [query] if query else []


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "webui.api.authentication.BearerAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "The token from POST /api/v1/auth/login, or a run's own token.",
        }


class BrowserScheme(SessionScheme):  # type: ignore[no-untyped-call]
    target_class = "webui.api.authentication.BrowserAuthentication"
    name = "session"


#: as every operation names them
SCHEMES = (BearerScheme.name, BrowserScheme.name)

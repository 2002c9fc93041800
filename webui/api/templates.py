"""Templates: parts of configs, kept by name. Checked when they are saved."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments import templates
from experiments.config import shown_template
from experiments.models import Template, Workspace
from trainmaster import yamltext
from webui.api import encoding
from webui.api.answers import Answer, Pagination, Time
from webui.api.errors import BadRequest, Missing, existing
from webui.api.permissions import person
from webui.api.views import ApiView, Json


class TemplateRecord(Answer):
    name: str
    config: Json
    workspace_id: int
    changed_at: Time
    changed_by: Annotated[str, Field(description="who last changed it; empty if unknown")]
    owner: Annotated[str, Field(description="who can change it, apart from admins; empty if only admins can")]


class TemplateAnswer(Answer):
    template: TemplateRecord


class TemplatesAnswer(Answer):
    templates: list[TemplateRecord]
    pagination: Pagination


def encode_template(template: Template) -> TemplateRecord:
    """`changedAt`, `changedBy` and `owner` are beside the dialect's fields."""
    return TemplateRecord.of(
        template,
        config=shown_template(template.config),
        changed_by=template.changed_by.username if template.changed_by else "",
        owner=template.owner.username if template.owner else "",
    )


class TemplateBody(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=128, required=False)
    config = serializers.JSONField()
    workspaceId = serializers.IntegerField(required=False, allow_null=True)


class TemplatesQuery(encoding.PageQuery):
    sortBy = serializers.CharField(required=False)
    name = serializers.CharField(required=False, allow_blank=True)
    workspaceIds = encoding.list_of(serializers.IntegerField())


def _text(config: Any) -> str:
    if not isinstance(config, dict):
        raise BadRequest("config: a template must be a map, like an experiment's config.")
    return yamltext.dump(config)


def _workspace(workspace_id: int | None) -> Workspace:
    return existing(Workspace.objects, "workspace", pk=workspace_id or 1)


def find(name: str) -> Template:
    template = templates.find(name)
    if template is None:
        raise Missing(f"template {name} not found")
    return template


class Templates(ApiView):
    """All templates."""

    rights = {"GET": Right.READ}
    queries = {"GET": TemplatesQuery}

    def get(self, request: Request) -> TemplatesAnswer:
        query = self.query(request)
        rows = Template.objects.select_related("changed_by", "owner")
        rows = encoding.narrowed(rows, query, name="name__icontains", workspaceIds="workspace_id__in")
        rows = rows.order_by(*encoding.ordering(query, {}, "name"))
        return encoding.page(TemplatesAnswer, rows, query, encode_template)


class OneTemplate(ApiView):
    """One template: POST creates it, PUT creates or replaces it, PATCH replaces its config."""

    rights = {
        "GET": Right.READ,
        "POST": Right.EDIT,
        "PUT": Right.EDIT,
        "PATCH": Right.EDIT,
        "DELETE": Right.EDIT,
    }
    bodies = {"POST": TemplateBody, "PUT": TemplateBody}
    described_bodies = {"PATCH": Json}

    def get(self, request: Request, name: str) -> TemplateAnswer:
        return TemplateAnswer(template=encode_template(find(name)))

    def post(self, request: Request, name: str) -> TemplateAnswer:
        body = self.body(request)
        text, workspace = _text(body["config"]), _workspace(body.get("workspaceId"))
        template = templates.create(name, text, workspace=workspace, user=person(request))
        return TemplateAnswer(template=encode_template(template))

    def put(self, request: Request, name: str) -> TemplateAnswer:
        body = self.body(request)
        text, workspace = _text(body["config"]), _workspace(body.get("workspaceId"))
        template = templates.put(name, text, workspace=workspace, user=person(request))
        return TemplateAnswer(template=encode_template(template))

    def patch(self, request: Request, name: str) -> TemplateAnswer:
        """The body is the config itself."""
        find(name)
        template = templates.replace(name, _text(request.data), user=person(request))
        return TemplateAnswer(template=encode_template(template))

    def delete(self, request: Request, name: str) -> None:
        find(name)
        templates.remove(name, user=person(request))


class RenameBody(serializers.Serializer[Any]):
    oldName = serializers.CharField()
    newName = serializers.CharField(max_length=128)


class TemplateRename(ApiView):
    """Rename a template."""

    rights = {"PATCH": Right.EDIT}
    bodies = {"PATCH": RenameBody}

    def patch(self, request: Request) -> TemplateAnswer:
        body = self.body(request)
        find(body["oldName"])
        template = templates.rename(body["oldName"], body["newName"], user=person(request))
        return TemplateAnswer(template=encode_template(template))

"""Templates: parts of configs, kept by name. Checked when they are saved."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from experiments.config import ConfigError, check_template, masked, restored
from experiments.models import Template, Workspace
from trainmaster import yamltext
from webui.api import encoding
from webui.api.errors import BadRequest, Conflict, Missing
from webui.api.views import ApiView, Json


def encode_template(template: Template) -> Json:
    return {"name": template.name, "config": masked(template.config), "workspaceId": template.workspace_id}


class TemplateBody(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=128, required=False)
    config = serializers.JSONField()
    workspaceId = serializers.IntegerField(required=False, allow_null=True)


class TemplatesQuery(encoding.PageQuery):
    sortBy = serializers.CharField(required=False)
    name = serializers.CharField(required=False, allow_blank=True)
    workspaceIds = serializers.ListField(child=serializers.IntegerField(), required=False)


def _checked(config: Any, standing: Json | None = None) -> Json:
    """The config as it may be stored; masks of a shown copy are put back."""
    if not isinstance(config, dict):
        raise BadRequest("config: a template is a map, like an experiment's config.")
    if standing:
        config = restored(config, standing)
    try:
        return check_template(yamltext.dump(config))
    except ConfigError as error:
        raise BadRequest(str(error)) from error


def _workspace(workspace_id: int | None) -> Workspace:
    workspace = Workspace.objects.filter(pk=workspace_id or 1).first()
    if workspace is None:
        raise Missing(f"workspace {workspace_id} not found")
    return workspace


def find(name: str) -> Template:
    template = Template.objects.filter(name=name).first()
    if template is None:
        raise Missing(f"template {name} not found")
    return template


class Templates(ApiView):
    """All templates."""

    queries = {"GET": TemplatesQuery}

    def get(self, request: Request) -> Response:
        query = self.query(request)
        rows = Template.objects.all()
        if query.get("name"):
            rows = rows.filter(name__icontains=query["name"])
        if query.get("workspaceIds"):
            rows = rows.filter(workspace_id__in=query["workspaceIds"])
        rows = rows.order_by(*encoding.ordering(query, {}, "name"))
        return Response(encoding.page(rows, query, "templates", encode_template))


class OneTemplate(ApiView):
    """One template: POST makes it, PUT makes or replaces it, PATCH replaces its config."""

    bodies = {"POST": TemplateBody, "PUT": TemplateBody}

    def get(self, request: Request, name: str) -> Response:
        return Response({"template": encode_template(find(name))})

    def post(self, request: Request, name: str) -> Response:
        body = self.body(request)
        config, workspace = _checked(body["config"]), _workspace(body.get("workspaceId"))
        try:
            with transaction.atomic():
                template = Template.objects.create(name=name, config=config, workspace=workspace)
        except IntegrityError as error:
            raise Conflict(f"there is already a template {name}") from error
        return Response({"template": encode_template(template)})

    def put(self, request: Request, name: str) -> Response:
        body = self.body(request)
        standing = Template.objects.filter(name=name).first()
        config = _checked(body["config"], standing.config if standing else None)
        if standing is None:
            workspace = _workspace(body.get("workspaceId"))
            standing = Template.objects.get_or_create(
                name=name, defaults={"config": config, "workspace": workspace}
            )[0]
        Template.objects.filter(name=name).update(config=config)
        return Response({"template": encode_template(find(name))})

    def patch(self, request: Request, name: str) -> Response:
        """The body is the config itself."""
        standing = find(name)
        Template.objects.filter(name=name).update(config=_checked(request.data, standing.config))
        return Response({"template": encode_template(find(name))})

    def delete(self, request: Request, name: str) -> Response:
        find(name).delete()
        return Response({})


class RenameBody(serializers.Serializer[Any]):
    oldName = serializers.CharField()
    newName = serializers.CharField(max_length=128)


class TemplateRename(ApiView):
    """Give a template another name."""

    bodies = {"PATCH": RenameBody}

    def patch(self, request: Request) -> Response:
        body = self.body(request)
        find(body["oldName"])
        try:
            with transaction.atomic():
                Template.objects.filter(name=body["oldName"]).update(name=body["newName"])
        except IntegrityError as error:
            raise Conflict(f"there is already a template {body['newName']}") from error
        return Response({"template": encode_template(find(body["newName"]))})

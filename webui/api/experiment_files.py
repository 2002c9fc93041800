"""The code that an experiment was submitted with."""

from __future__ import annotations

import base64
import mimetypes
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments.models import Experiment
from submissions import contexts
from webui.api.answers import Answer, Time
from webui.api.errors import existing
from webui.api.views import ApiView, Json


def _experiment(experiment_id: int) -> Experiment:
    return existing(Experiment.objects.select_related("context"), "experiment", pk=experiment_id)


class ModelDefAnswer(Answer):
    b64_tgz: Annotated[str, Field(description="a tar.gz in base64")]


class FileNode(Answer):
    """A file, or a folder with its contents."""

    path: str
    name: str
    is_dir: bool
    content_length: Annotated[int, Field(description="bytes; 0 for a folder")]
    content_type: str = ""
    modified_time: Time | None = None
    files: list[FileNode]


class FileTreeAnswer(Answer):
    files: list[FileNode]


class FileAnswer(Answer):
    file: Annotated[str, Field(description="its content in base64")]


class ModelDef(ApiView):
    """The context folder as tar.gz, in base64."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, experiment_id: int) -> ModelDefAnswer:
        archive = bytes(_experiment(experiment_id).context.archive)
        return ModelDefAnswer(b64_tgz=base64.b64encode(archive).decode())


class FileTree(ApiView):
    """Names, sizes and types of the files."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, experiment_id: int) -> FileTreeAnswer:
        return FileTreeAnswer(files=tree(_experiment(experiment_id).context.listing))


def tree(listing: list[Json]) -> list[FileNode]:
    """The flat listing as nested nodes; folders that were not sent as such appear too."""
    top: list[FileNode] = []
    folders: dict[str, list[FileNode]] = {"": top}
    for row in sorted(listing, key=lambda row: str(row["path"])):
        parts = row["path"].split("/")
        for depth in range(1, len(parts)):
            _folder(folders, "/".join(parts[:depth]))
        if row["type"] == "d":
            _folder(folders, row["path"])
            continue
        folders["/".join(parts[:-1])].append(
            FileNode(
                path=row["path"],
                name=parts[-1],
                is_dir=False,
                content_length=row["size"],
                content_type=mimetypes.guess_type(parts[-1])[0] or "text/plain; charset=utf-8",
                modified_time=datetime.fromtimestamp(row.get("mtime") or 0, UTC),
                files=[],
            )
        )
    return top


def _folder(folders: dict[str, list[FileNode]], path: str) -> None:
    if path in folders:
        return
    parent, _, name = path.rpartition("/")
    node = FileNode(path=path, name=name, is_dir=True, content_length=0, files=[])
    folders[parent].append(node)
    folders[path] = node.files


class FileBody(serializers.Serializer[Any]):
    path = serializers.CharField()
    experimentId = serializers.IntegerField(required=False)


class File(ApiView):
    """Content of one file, in base64. This POST changes nothing, so viewers may use it."""

    rights = {"POST": Right.OWN}
    bodies = {"POST": FileBody}

    def post(self, request: Request, experiment_id: int) -> FileAnswer:
        content = contexts.read_file(_experiment(experiment_id).context, self.body(request)["path"])
        return FileAnswer(file=base64.b64encode(content).decode())

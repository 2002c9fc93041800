"""The code that an experiment was submitted with."""

from __future__ import annotations

import base64
import mimetypes
from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from experiments.models import Experiment
from submissions import contexts
from webui.api import encoding
from webui.api.answers import Time
from webui.api.errors import Missing
from webui.api.views import ApiView, Json


def _experiment(experiment_id: int) -> Experiment:
    experiment = Experiment.objects.select_related("context").filter(pk=experiment_id).first()
    if experiment is None:
        raise Missing(f"experiment {experiment_id} not found")
    return experiment


class ModelDefAnswer(TypedDict):
    b64Tgz: Annotated[str, Field(description="a tar.gz in base64")]


class FileNode(TypedDict):
    """A file, or a folder with what is in it."""

    path: str
    name: str
    isDir: bool
    contentLength: Annotated[int, Field(description="bytes; 0 of a folder")]
    contentType: NotRequired[str]
    modifiedTime: NotRequired[Time]
    files: list[FileNode]


class FileTreeAnswer(TypedDict):
    files: list[FileNode]


class FileAnswer(TypedDict):
    file: Annotated[str, Field(description="its content in base64")]


class ModelDef(ApiView):
    """The whole folder as tar.gz, in base64."""

    answers = {"GET": ModelDefAnswer}

    def get(self, request: Request, experiment_id: int) -> Response:
        archive = contexts.targz(_experiment(experiment_id).context)
        return Response({"b64Tgz": base64.b64encode(archive).decode()})


class FileTree(ApiView):
    """Names, sizes and types of the files."""

    answers = {"GET": FileTreeAnswer}

    def get(self, request: Request, experiment_id: int) -> Response:
        return Response({"files": tree(_experiment(experiment_id).context.listing)})


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
            {
                "path": row["path"],
                "name": parts[-1],
                "isDir": False,
                "contentLength": row["size"],
                "contentType": mimetypes.guess_type(parts[-1])[0] or "text/plain; charset=utf-8",
                "modifiedTime": encoding.time(datetime.fromtimestamp(row.get("mtime") or 0, UTC)),
                "files": [],
            }
        )
    return top


def _folder(folders: dict[str, list[FileNode]], path: str) -> None:
    if path in folders:
        return
    parent, _, name = path.rpartition("/")
    files: list[FileNode] = []
    folders[parent].append({"path": path, "name": name, "isDir": True, "contentLength": 0, "files": files})
    folders[path] = files


class FileBody(serializers.Serializer[Any]):
    path = serializers.CharField()
    experimentId = serializers.IntegerField(required=False)


class File(ApiView):
    """Content of one file, in base64. A POST that changes nothing, so viewers may send it."""

    viewer_methods = frozenset({"POST"})
    bodies = {"POST": FileBody}
    answers = {"POST": FileAnswer}

    def post(self, request: Request, experiment_id: int) -> Response:
        content = contexts.read_file(_experiment(experiment_id).context, self.body(request)["path"])
        return Response({"file": base64.b64encode(content).decode()})

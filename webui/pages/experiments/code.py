"""The code of an experiment as a tree and file by file, what differs from its parent's, and all of it as a zip."""

from __future__ import annotations

import tempfile
import zipfile
from typing import Any

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from accounts.refusals import Refusal
from experiments.config import masked, masked_text
from experiments.config.origins import explained
from experiments.config.reading import SUBJECT
from experiments.models import Experiment
from jobs import queue_history
from shown.experiments import effective_config
from submissions import code_changes, contexts
from submissions.config.problems import ConfigError
from submissions.config.reading import read_yaml
from trainmaster import yamltext
from webui.pages.experiments import experiment, notebook_cells
from webui.pages.experiments.access import find
from webui.pages.frame import page, show
from webui.pages.source_text import colored
from webui.query import as_whole

MOST_SHOWN_BYTES = 512 * 1024
#: so many files are shown with all folders open
OPEN_FILES = 60
#: what edits of the queue call otherwise than the config
_FIELDS = {"pool": "resource_pool"}
_SPOOLED_BYTES = 8 * 1024 * 1024


@page
def code(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """`?file=<path>` shows that file, with `raw` a notebook's text; `?against=<id>` what differs from another
    experiment's code and config."""
    found = find(experiment_id)
    context = experiment.head(request, found, "code")
    if request.GET.get("part") != "head":
        against = request.GET.get("against", "")
        context |= _compared(found, against) if against else _read(request, found)
        context["files"] = tree(found, str(context.get("path") or ""))
    return show(request, "experiment_code", context, room="Experiments", fragment="experiment")


@page
def config(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """The config in force with what each line comes from, what the queue has changed of it, and what was submitted.

    `?part=config`: only what is in force, `?part=head`: only what stands above the tabs.
    """
    found = find(experiment_id)
    part = request.GET.get("part")
    context = experiment.head(request, found, "config")
    if part != "head":
        context |= _in_force(found)
        context["original"] = colored(masked_text(found.original_config), "config.yaml")
    fragment = "config_in_force" if part == "config" else "experiment"
    return show(request, "experiment_config", context, room="Experiments", fragment=fragment)


def _in_force(found: Experiment) -> dict[str, Any]:
    try:
        given = masked(read_yaml(found.original_config, SUBJECT))
    except ConfigError:
        given = {}  # an unmanaged experiment may have none
    changed = [] if found.unmanaged else queue_history.changed_of(found.job)
    fields = [(_FIELDS.get(each.name, each.name), each) for each in changed]
    submitted = {"resources": {name: each.was for name, each in fields}}
    lines = explained(effective_config(found), given, masked(found.template_config), submitted)
    return {"lines": lines, "changed": fields}


@page
def download(request: HttpRequest, experiment_id: int) -> HttpResponseBase:
    """All files as a zip."""
    found = find(experiment_id)
    modes = {entry["path"]: int(entry.get("mode") or 0o644) for entry in found.context.listing}
    out = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115, closed by the response
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in contexts.files_of(found.context):
            info = zipfile.ZipInfo(path)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3  # Unix, whose modes follow
            info.external_attr = (0o100000 | modes.get(path, 0o644)) << 16
            archive.writestr(info, content)
    out.seek(0)
    return FileResponse(out, as_attachment=True, filename=f"experiment-{experiment_id}-code.zip")


def tree(found: Experiment, shown: str) -> list[dict[str, Any]]:
    """Folders and files, nested: {"name", "path", "size"} or {"name", "inside", "is_open"}; folders first."""
    files = [entry for entry in found.context.listing if entry.get("type") != "d"]
    top: dict[str, Any] = {}
    for entry in files:
        *folders, name = entry["path"].split("/")
        here = top
        for folder in folders:
            here = here.setdefault(folder, {})
        here[name] = entry["path"], entry["size"]
    return _nodes(top, "", shown, len(files) <= OPEN_FILES)


def _nodes(inside: dict[str, Any], above: str, shown: str, are_open: bool) -> list[dict[str, Any]]:
    nodes = []
    for name, value in sorted(inside.items(), key=lambda item: (isinstance(item[1], tuple), item[0])):
        path = f"{above}{name}"
        if isinstance(value, tuple):
            nodes.append({"name": name, "path": value[0], "size": value[1]})
            continue
        is_open = are_open or shown.startswith(f"{path}/")
        nodes.append(
            {
                "name": name,
                "inside": _nodes(value, f"{path}/", shown, are_open),
                "is_open": is_open,
                "id": path,
            }
        )
    return nodes


def _read(request: HttpRequest, found: Experiment) -> dict[str, Any]:
    paths = [entry["path"] for entry in found.context.listing if entry.get("type") != "d"]
    path = request.GET.get("file") or next((path for path in paths if path.endswith(".py")), None)
    path = path or next(iter(paths), None)
    if path is None:
        return {"path": None}
    try:
        content = contexts.read_file(found.context, path)
    except Refusal as error:
        raise Http404(f"The code of experiment {found.pk} has no file {path}.") from error
    if b"\0" in content[:8192]:
        return {"path": path, "is_binary": True, "file_bytes": len(content)}
    notebook = _notebook(request, path, content)
    return notebook if "notebook" in notebook else notebook | _text(path, content)


def _notebook(request: HttpRequest, path: str, content: bytes) -> dict[str, Any]:
    """A notebook as `notebook`, or `no_cells`, a sentence why its text is shown; of other files nothing."""
    if not path.endswith(".ipynb"):
        return {}
    if "raw" in request.GET:
        return {"is_raw": True}
    try:
        return {"path": path, "notebook": notebook_cells.read(content)}
    except Refusal as error:
        return {"no_cells": f"{error} Its raw text is shown instead."}


def _text(path: str, content: bytes) -> dict[str, Any]:
    text = content[:MOST_SHOWN_BYTES].decode("utf-8", "replace")
    return {
        "path": path,
        "content": colored(text, path),
        "line_numbers": "\n".join(str(number) for number in range(1, _lines(text) + 1)),
        "cut": len(content) > MOST_SHOWN_BYTES,
        "file_bytes": len(content),
    }


def _lines(text: str) -> int:
    """As they are shown: form feeds and the like end none."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return len(lines) - (lines[-1] == "")


def _canonical(text: str) -> bytes:
    """A config in one form, so that what differs is not how it is written; its secrets masked."""
    try:
        return yamltext.dump(dict(sorted(masked(read_yaml(text, SUBJECT)).items()))).encode()
    except ConfigError:
        return b""


def _compared(found: Experiment, against: str) -> dict[str, Any]:
    """What differs from another experiment; the files that have changed are marked in the tree too."""
    number = as_whole(against)
    if number is None:
        raise Http404(f"{against} is not the ID of an experiment.")
    other = find(number)
    texts = [_canonical(each.original_config) for each in (other, found)]
    changes = code_changes.between(other.context, found.context)
    return {
        "other": other,
        "config_change": code_changes.of_file("config", *texts) if texts[0] != texts[1] else None,
        "changes": changes,
        "counts": {
            kind: sum(each.kind == kind for each in changes) for kind in ("added", "removed", "changed")
        },
    }

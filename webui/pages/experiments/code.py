"""The code of an experiment as a tree and file by file, what differs from its parent's, and all of it as a zip."""

from __future__ import annotations

import tempfile
from typing import Any

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from accounts.refusals import Refusal
from experiments.config import masked_text
from experiments.models import Experiment
from shown import notebook_cells
from shown.experiments import config_change, config_in_force
from shown.source_text import colored
from submissions import code_changes, contexts
from webui.pages.experiments import experiment
from webui.pages.experiments.access import find
from webui.pages.frame import page, show
from webui.query import as_whole

MOST_SHOWN_BYTES = 512 * 1024
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
        context["files"] = contexts.tree(found.context, str(context.get("path") or ""))
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
        context["lines"], context["changed"] = config_in_force(found)
        context["original"] = colored(masked_text(found.original_config), "config.yaml")
    fragment = "config_in_force" if part == "config" else "experiment"
    return show(request, "experiment_config", context, room="Experiments", fragment=fragment)


@page
def download(request: HttpRequest, experiment_id: int) -> HttpResponseBase:
    """All files as a zip."""
    found = find(experiment_id)
    out = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115, closed by the response
    contexts.zip_into(found.context, out)
    out.seek(0)
    return FileResponse(out, as_attachment=True, filename=f"experiment-{experiment_id}-code.zip")


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


def _compared(found: Experiment, against: str) -> dict[str, Any]:
    """What differs from another experiment; the files that have changed are marked in the tree too."""
    number = as_whole(against)
    if number is None:
        raise Http404(f"{against} is not the ID of an experiment.")
    other = find(number)
    changes = code_changes.between(other.context, found.context)
    return {
        "other": other,
        "config_change": config_change(other, found),
        "changes": changes,
        "counts": {
            kind: sum(each.kind == kind for each in changes) for kind in ("added", "removed", "changed")
        },
    }

"""`experiment set`, `label`, `move`, `download-model-def`, `delete-tb-files`: what may change of one that is there."""

from __future__ import annotations

import argparse
import base64
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple
from urllib.parse import quote

from trainmaster.cli import output, places
from trainmaster.cli.errors import CliError
from trainmaster.cli.job import confirm_stops
from trainmaster.cli.output import done
from trainmaster.client import Client
from trainmaster.quantities import number_or_text


def add_settings(settings: Any) -> None:
    """The settings of `experiment set` that are fields of it."""
    for what, (text, metavar, _) in _SETTINGS.items():
        parser = _add_one(settings, what, text, run=_set, action=f"set the {what.replace('-', ' ')}")
        parser.add_argument("value", metavar=metavar)
        if what in _OF_RESOURCES:
            parser.add_argument(
                "-y", "--yes", action="store_true", help="do not ask, even if this stops running work"
            )
        parser.set_defaults(what=what)


def add(verbs: Any) -> None:
    labels = verbs.add_parser("label", help="add and remove labels").add_verbs("WHAT")
    for verb, method, text in (("add", "PUT", "add a label"), ("remove", "DELETE", "remove a label")):
        parser = _add_one(labels, verb, text, run=_label)
        parser.add_argument("label", metavar="LABEL")
        parser.set_defaults(method=method)
    parser = _add_one(verbs, "move", "move it to another project", run=_move)
    parser.add_argument("workspace_name", metavar="WORKSPACE", help="its name or id")
    parser.add_argument("project_name", metavar="PROJECT", help="its name or id")
    text = "download its code as submitted, as a .tgz"
    parser = _add_one(verbs, "download-model-def", text, run=_download_code, action="download the code")
    parser.add_argument(
        "--output-dir", type=Path, default=Path(), metavar="DIR", help="default: the current folder"
    )
    parser = _add_one(verbs, "delete-tb-files", "delete its TensorBoard files; its metrics are kept")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.set_defaults(run=_delete_event_files, action="delete the TensorBoard files")


def _add_one(verbs: Any, verb: str, text: str, **options: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(verb, help=text, **options)
    parser.add_argument("experiment_id", metavar="ID", type=int)
    return parser


def _or_none(text: str) -> Optional[Any]:
    return None if text.lower() == "none" else number_or_text(text)


#: setting → (help, what its value is called, how it is read)
_SETTINGS: Dict[str, Tuple[str, str, Callable[[str], Any]]] = {
    "name": ("set its name", "TEXT", str),
    "description": ("set its description", "TEXT", str),
    "priority": ("set its priority: 1 (highest) to 99", "N", number_or_text),
    "weight": ("set its weight in a fair-share pool: a number above 0", "X", number_or_text),
    "max-slots": ("limit the slots it may hold at once, or none", "N", _or_none),
}
_OF_RESOURCES = {"priority": "priority", "weight": "weight", "max-slots": "maxSlots"}


def _path(args: argparse.Namespace) -> str:
    return f"/api/v1/experiments/{args.experiment_id}"


def _set(client: Client, args: argparse.Namespace) -> None:
    value, field = _SETTINGS[args.what][2](args.value), _OF_RESOURCES.get(args.what)
    if field:
        confirm_stops(client, [{"jobId": f"exp {args.experiment_id}", field: value}], args.yes)
    body = {"resources": {field: value}} if field else {args.what: value}
    answer = client.call("PATCH", _path(args), body)
    done(f"Set {args.what.replace('-', ' ')} of experiment {args.experiment_id} to {args.value}")
    for notice in answer.get("notices", ()):  # an older server sends none
        done(notice)


def _label(client: Client, args: argparse.Namespace) -> None:
    labels = client.call(args.method, f"{_path(args)}/labels/{quote(args.label, safe='')}")["labels"]
    done(f"Labels of experiment {args.experiment_id}: {', '.join(labels) or 'none'}")


def _move(client: Client, args: argparse.Namespace) -> None:
    project = places.project(client, args.workspace_name, args.project_name)
    body = {"experimentId": args.experiment_id, "destinationProjectId": project["id"]}
    client.post(f"{_path(args)}/move", body)
    done(f"Moved experiment {args.experiment_id} to {args.workspace_name}/{project['name']}")


def _download_code(client: Client, args: argparse.Namespace) -> None:
    if not args.output_dir.is_dir():
        raise CliError(f"there is no folder {args.output_dir}.")
    archive = base64.b64decode(client.get(f"{_path(args)}/model_def")["b64Tgz"])
    file = args.output_dir / f"experiment_{args.experiment_id}_model_def.tgz"
    file.write_bytes(archive)
    done(f"Wrote {file}")


def _delete_event_files(client: Client, args: argparse.Namespace) -> None:
    question = f"Delete the TensorBoard files of experiment {args.experiment_id}?"
    output.confirm(question, "Nothing was deleted.", args.yes or not output.is_interactive())
    client.call("DELETE", f"{_path(args)}/tensorboard-files")
    done(f"Deleted the TensorBoard files of experiment {args.experiment_id}")

"""What commands, shells, notebooks and TensorBoards are started with: their options, and the config from them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import trainmaster.yamltext as yamltext
from trainmaster.cli import places
from trainmaster.cli.errors import CliError, UsageError
from trainmaster.cli.submission import add_fields, add_include, config_text
from trainmaster.client import Client, Json
from trainmaster.overrides import BadOverride, apply_overrides


def add(parser: argparse.ArgumentParser, verb: str, example: str, slots: str = "") -> None:
    """`verb`: what is done with it ("run", "start"); `example`: a KEY=VALUE; `slots`: what holds without --slots."""
    parser.add_argument("--slots", type=int, metavar="N", help=f"slots (GPUs), all on one host{slots}")
    parser.add_argument("--resource-pool", metavar="POOL", help="the pool (default: the default pool)")
    parser.add_argument("--config-file", type=Path, metavar="FILE", help="YAML file")
    add_fields(parser, example)
    parser.add_argument("--template", metavar="NAME", help="the template to use")
    parser.add_argument(
        "-c", "--context", type=Path, metavar="DIR", help=f"{verb} it in a copy of this folder"
    )
    add_include(parser)
    parser.add_argument(
        "-v",
        "--volume",
        action="append",
        default=[],
        metavar="HOST_PATH:CONTAINER_PATH",
        help="mount a folder of the host into the container; adds to bind_mounts",
    )
    parser.add_argument("-w", "--workspace-name", metavar="NAME", help="the workspace to create it in")
    parser.add_argument("-d", "--detach", action="store_true", help="print its id and exit")


def request_of(client: Client, args: argparse.Namespace) -> Json:
    """Template and workspace, as requests name them. Raises CliError where there is no such workspace."""
    found: Json = {"templateName": args.template} if args.template else {}
    if args.workspace_name:
        found["workspaceId"] = places.workspace(client, args.workspace_name)["id"]
    return found


def config_of(args: argparse.Namespace) -> Json:
    """The file's config with the options on top. Raises CliError, UsageError."""
    config: Json = yamltext.load(config_text(args.config_file, [])) if args.config_file else {}
    short = [("resources.slots", args.slots), ("resources.resource_pool", args.resource_pool)]
    overrides = [f"{path}={json.dumps(value)}" for path, value in short if value is not None]
    mounts = [_mount(text) for text in args.volume]
    if mounts:
        config["bind_mounts"] = [*(config.get("bind_mounts") or []), *mounts]
    try:
        return apply_overrides(config, [*args.config, *overrides])
    except BadOverride as error:
        raise CliError(f"{error}.") from error


def _mount(text: str) -> Json:
    host, _, inside = text.partition(":")
    if not host or not inside or ":" in inside:
        raise UsageError(f"--volume is {text!r}, allowed: HOST_PATH:CONTAINER_PATH, such as /data:/data.")
    return {"host_path": host, "container_path": inside}

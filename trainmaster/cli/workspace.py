"""`workspace`: what groups projects."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from trainmaster.cli import output, places
from trainmaster.cli.arguments import Adder
from trainmaster.cli.output import Column
from trainmaster.client import Client, Json

_PATH = "/api/v1/workspaces"
_SORTS = ["id", "name"]
COLUMNS = [
    Column("ID", lambda row: row["id"]),
    Column("Name", lambda row: row["name"]),
    Column("Owner", lambda row: row.get("username")),
    Column("# Projects", lambda row: row.get("numProjects")),
    Column("# Experiments", lambda row: row.get("numExperiments")),
    Column("Archived", lambda row: row.get("archived")),
]
PROJECTS = [
    Column("ID", lambda row: row["id"]),
    Column("Name", lambda row: row["name"]),
    Column("Key", lambda row: row.get("key")),
    Column("Description", lambda row: row.get("description"), lambda text: str(text)[:50]),
    Column("Owner", lambda row: row.get("username")),
    Column("# Experiments", lambda row: row.get("numExperiments")),
    Column("# Active", lambda row: row.get("numActiveExperiments")),
    Column("Archived", lambda row: row.get("archived")),
]


def add(add_noun: Adder) -> None:
    verbs = add_noun("workspace", aliases=["w"], help="manage workspaces, which group projects").add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list all workspaces")
    places.add_paging(parser, _SORTS)
    parser.set_defaults(run=_list, action="list the workspaces")
    parser = _add_one(verbs, "list-projects", "list the projects of a workspace")
    places.add_paging(parser, ["id", "name", "description"])
    parser.set_defaults(run=list_projects, action="list the projects")
    parser = _add_one(verbs, "list-pools", "list the pools that its experiments may use")
    output.add_format(parser)
    parser.set_defaults(run=_list_pools, action="list the pools")
    parser = _add_one(verbs, "describe", "show its owner and what it contains")
    output.add_format(parser)
    parser.set_defaults(run=_describe, action="describe the workspace")
    _add_changes(verbs)


def _add_changes(verbs: Any) -> None:
    parser = verbs.add_parser("create", help="create a workspace")
    parser.add_argument("name")
    output.add_format(parser)
    parser.set_defaults(run=_create, action="create the workspace")
    parser = _add_one(verbs, "edit", "rename a workspace")
    parser.add_argument("--name", required=True, help="the new name")
    output.add_format(parser)
    parser.set_defaults(run=_edit, action="edit the workspace")
    places.add_ends(partial(_add_one, verbs), "workspace", "projects", _found)


def _add_one(verbs: Any, verb: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(verb, help=text)
    parser.add_argument("workspace_name", metavar="WORKSPACE", help="its name or id")
    return parser


def _found(client: Client, args: argparse.Namespace) -> Json:
    return places.workspace(client, args.workspace_name)


def _list(client: Client, args: argparse.Namespace) -> None:
    places.show_page(client, args, _PATH, "workspaces", COLUMNS)


def list_projects(client: Client, args: argparse.Namespace) -> None:
    """List the projects of the workspace that the arguments name."""
    path = f"{_PATH}/{_found(client, args)['id']}/projects"
    places.show_page(client, args, path, "projects", PROJECTS)


def _list_pools(client: Client, args: argparse.Namespace) -> None:
    found = _found(client, args)
    names = client.get(f"{_PATH}/{found['id']}/available-resource-pools")["resourcePools"]
    output.show([{"name": name} for name in names], [Column("Name", lambda row: row["name"])], args.output)


def _describe(client: Client, args: argparse.Namespace) -> None:
    output.show_one(_found(client, args), COLUMNS, args.output)


def _create(client: Client, args: argparse.Namespace) -> None:
    made = client.post(_PATH, {"name": args.name})["workspace"]
    output.told(made, COLUMNS, args, f"Created workspace {made['name']} ({made['id']})")


def _edit(client: Client, args: argparse.Namespace) -> None:
    found = _found(client, args)
    changed = client.call("PATCH", f"{_PATH}/{found['id']}", {"name": args.name})["workspace"]
    output.told(changed, COLUMNS, args, f"Renamed workspace {found['name']} to {changed['name']}")

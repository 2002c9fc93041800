"""`project`: what groups experiments, in a workspace."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, List

from trainmaster.cli import output, places
from trainmaster.cli.arguments import Adder, given
from trainmaster.cli.errors import UsageError
from trainmaster.cli.experiment import EXPERIMENTS
from trainmaster.cli.output import Column, done
from trainmaster.cli.workspace import PROJECTS, list_projects
from trainmaster.client import Client, Json

_DETAILS = [*PROJECTS, Column("Workspace", lambda row: row.get("workspaceName"))]


def add(add_noun: Adder) -> None:
    noun = add_noun("project", aliases=["p"], help="manage projects, which group experiments in a workspace")
    verbs = noun.add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list the projects of a workspace")
    parser.add_argument("workspace_name", metavar="WORKSPACE", help="its name or id")
    places.add_paging(parser, ["id", "name", "description"])
    parser.set_defaults(run=list_projects, action="list the projects")
    parser = _add_one(verbs, "list-experiments", "list the experiments of a project")
    parser.add_argument("-a", "--all", action="store_true", help="include all users and archived experiments")
    places.add_paging(parser, ["id", "name", "start_time", "end_time", "state"])
    parser.set_defaults(run=_list_experiments, action="list the experiments")
    parser = _add_one(verbs, "describe", "show its key, owner and experiments")
    parser.add_argument("-a", "--all", action="store_true", help="include archived experiments")
    output.add_format(parser)
    parser.set_defaults(run=_describe, action="describe the project")
    _add_changes(verbs)


def _add_changes(verbs: Any) -> None:
    parser = verbs.add_parser("create", help="create a project")
    parser.add_argument("workspace_name", metavar="WORKSPACE", help="its name or id")
    parser.add_argument("name")
    _add_fields(parser)
    parser.set_defaults(run=_create, action="create the project")
    parser = _add_one(verbs, "edit", "change its name, description or key")
    parser.add_argument("--new-name", "--new_name", metavar="NAME", help="the new name")
    _add_fields(parser)
    parser.set_defaults(run=_edit, action="edit the project")
    parser = _add_one(verbs, "move", "move it, with its experiments, to another workspace")
    parser.add_argument("destination", metavar="DESTINATION", help="name or id of the other workspace")
    parser.set_defaults(run=_move, action="move the project")
    places.add_ends(partial(_add_one, verbs), "project", "experiments", _found)


def _add_one(verbs: Any, verb: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(verb, help=text)
    parser.add_argument("workspace_name", metavar="WORKSPACE", help="its name or id")
    parser.add_argument("project_name", metavar="PROJECT", help="its name or id")
    return parser


def _add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--description", metavar="TEXT", help="a description")
    parser.add_argument(
        "--key", metavar="KEY", help="a key of one to five letters and digits, unique among projects"
    )
    output.add_format(parser)


def _found(client: Client, args: argparse.Namespace) -> Json:
    return places.project(client, args.workspace_name, args.project_name)


def _experiments(client: Client, found: Json, archived_too: bool, query: List[Any]) -> List[Any]:
    only = [] if archived_too else [("archived", "false")]
    return [("projectId", found["id"]), *only, *query]


def _list_experiments(client: Client, args: argparse.Namespace) -> None:
    found = _found(client, args)
    query = _experiments(client, found, args.all, list(places.query(args.sort_by, args.order_by)))
    if not args.all:
        query.append(("users", client.me()["username"]))
    rows = client.pages("/api/v1/experiments", "experiments", query, args.limit, args.offset)
    output.show(rows, EXPERIMENTS, args.output)


def _describe(client: Client, args: argparse.Namespace) -> None:
    found = _found(client, args)
    query = _experiments(client, found, args.all, list(places.query("id", "asc")))
    rows = client.pages("/api/v1/experiments", "experiments", query)
    if args.output == "table":
        output.show_one(found, _DETAILS, "table")
        print()
        output.show(rows, EXPERIMENTS, "table")
    else:
        output.show_one({**found, "experiments": rows}, _DETAILS, args.output)


def _create(client: Client, args: argparse.Namespace) -> None:
    workspace = places.workspace(client, args.workspace_name)
    body = given(name=args.name, description=args.description, key=args.key)
    made = client.post(f"/api/v1/workspaces/{workspace['id']}/projects", body)["project"]
    output.told(made, _DETAILS, args, f"Created project {made['name']} ({made['id']}) in {workspace['name']}")


def _edit(client: Client, args: argparse.Namespace) -> None:
    changes = given(name=args.new_name, description=args.description, key=args.key)
    if not changes:
        raise UsageError("no change given, allowed: --new-name, --description or --key.")
    found = _found(client, args)
    changed = client.call("PATCH", f"/api/v1/projects/{found['id']}", changes)["project"]
    output.told(changed, _DETAILS, args, f"Changed project {changed['name']}")


def _move(client: Client, args: argparse.Namespace) -> None:
    found, to = _found(client, args), places.workspace(client, args.destination)
    client.post(f"/api/v1/projects/{found['id']}/move", {"destinationWorkspaceId": to["id"]})
    done(f"Moved project {found['name']} to workspace {to['name']}")

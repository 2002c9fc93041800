"""`workspace`, which groups projects, and `project`, which groups experiments."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, List

from trainmaster.cli import output, places
from trainmaster.cli.arguments import Adder, given
from trainmaster.cli.errors import UsageError
from trainmaster.cli.experiment import EXPERIMENTS
from trainmaster.cli.output import Column, done
from trainmaster.client import Client, Json

_PATH = "/api/v1/workspaces"
_SORTS = ["id", "name"]
_COLUMNS = [
    Column("ID", lambda row: row["id"]),
    Column("Name", lambda row: row["name"]),
    Column("Owner", lambda row: row.get("username")),
    Column("# Projects", lambda row: row.get("numProjects")),
    Column("# Experiments", lambda row: row.get("numExperiments")),
    Column("Archived", lambda row: row.get("archived")),
]
_PROJECTS = [
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
    _add_workspace(add_noun)
    _add_project(add_noun)


def _add_workspace(add_noun: Adder) -> None:
    verbs = add_noun("workspace", aliases=["w"], help="manage workspaces, which group projects").add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list all workspaces")
    places.add_paging(parser, _SORTS)
    parser.set_defaults(run=_list, action="list the workspaces")
    parser = _add_one(verbs, "list-projects", "list the projects of a workspace")
    places.add_paging(parser, ["id", "name", "description"])
    parser.set_defaults(run=_list_projects, action="list the projects")
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
    places.show_page(client, args, _PATH, "workspaces", _COLUMNS)


def _list_projects(client: Client, args: argparse.Namespace) -> None:
    """List the projects of the workspace that the arguments name."""
    path = f"{_PATH}/{_found(client, args)['id']}/projects"
    places.show_page(client, args, path, "projects", _PROJECTS)


def _list_pools(client: Client, args: argparse.Namespace) -> None:
    found = _found(client, args)
    names = client.get(f"{_PATH}/{found['id']}/available-resource-pools")["resourcePools"]
    output.show([{"name": name} for name in names], [Column("Name", lambda row: row["name"])], args.output)


def _describe(client: Client, args: argparse.Namespace) -> None:
    output.show_one(_found(client, args), _COLUMNS, args.output)


def _create(client: Client, args: argparse.Namespace) -> None:
    made = client.post(_PATH, {"name": args.name})["workspace"]
    output.told(made, _COLUMNS, args, f"Created workspace {made['name']} ({made['id']})")


def _edit(client: Client, args: argparse.Namespace) -> None:
    found = _found(client, args)
    changed = client.call("PATCH", f"{_PATH}/{found['id']}", {"name": args.name})["workspace"]
    output.told(changed, _COLUMNS, args, f"Renamed workspace {found['name']} to {changed['name']}")


# --- project --------------------------------------------------------------------------------------------------

_DETAILS = [*_PROJECTS, Column("Workspace", lambda row: row.get("workspaceName"))]


def _add_project(add_noun: Adder) -> None:
    noun = add_noun("project", aliases=["p"], help="manage projects, which group experiments in a workspace")
    verbs = noun.add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list the projects of a workspace")
    parser.add_argument("workspace_name", metavar="WORKSPACE", help="its name or id")
    places.add_paging(parser, ["id", "name", "description"])
    parser.set_defaults(run=_list_projects, action="list the projects")
    parser = _add_one_project(verbs, "list-experiments", "list the experiments of a project")
    parser.add_argument("-a", "--all", action="store_true", help="include all users and archived experiments")
    places.add_paging(parser, ["id", "name", "start_time", "end_time", "state"])
    parser.set_defaults(run=_list_experiments, action="list the experiments")
    parser = _add_one_project(verbs, "describe", "show its key, owner and experiments")
    parser.add_argument("-a", "--all", action="store_true", help="include archived experiments")
    output.add_format(parser)
    parser.set_defaults(run=_describe_project, action="describe the project")
    _add_project_changes(verbs)


def _add_project_changes(verbs: Any) -> None:
    parser = verbs.add_parser("create", help="create a project")
    parser.add_argument("workspace_name", metavar="WORKSPACE", help="its name or id")
    parser.add_argument("name")
    _add_fields(parser)
    parser.set_defaults(run=_create_project, action="create the project")
    parser = _add_one_project(verbs, "edit", "change its name, description or key")
    parser.add_argument("--new-name", "--new_name", metavar="NAME", help="the new name")
    _add_fields(parser)
    parser.set_defaults(run=_edit_project, action="edit the project")
    parser = _add_one_project(verbs, "move", "move it, with its experiments, to another workspace")
    parser.add_argument("destination", metavar="DESTINATION", help="name or id of the other workspace")
    parser.set_defaults(run=_move, action="move the project")
    places.add_ends(partial(_add_one_project, verbs), "project", "experiments", _found_project)


def _add_one_project(verbs: Any, verb: str, text: str) -> argparse.ArgumentParser:
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


def _found_project(client: Client, args: argparse.Namespace) -> Json:
    return places.project(client, args.workspace_name, args.project_name)


def _experiments(client: Client, found: Json, archived_too: bool, query: List[Any]) -> List[Any]:
    only = [] if archived_too else [("archived", "false")]
    return [("projectId", found["id"]), *only, *query]


def _list_experiments(client: Client, args: argparse.Namespace) -> None:
    found = _found_project(client, args)
    query = _experiments(client, found, args.all, list(places.query(args.sort_by, args.order_by)))
    if not args.all:
        query.append(("users", client.me()["username"]))
    rows = client.pages("/api/v1/experiments", "experiments", query, args.limit, args.offset)
    output.show(rows, EXPERIMENTS, args.output)


def _describe_project(client: Client, args: argparse.Namespace) -> None:
    found = _found_project(client, args)
    query = _experiments(client, found, args.all, list(places.query("id", "asc")))
    rows = client.pages("/api/v1/experiments", "experiments", query)
    if args.output == "table":
        output.show_one(found, _DETAILS, "table")
        print()
        output.show(rows, EXPERIMENTS, "table")
    else:
        output.show_one({**found, "experiments": rows}, _DETAILS, args.output)


def _create_project(client: Client, args: argparse.Namespace) -> None:
    workspace = places.workspace(client, args.workspace_name)
    body = given(name=args.name, description=args.description, key=args.key)
    made = client.post(f"/api/v1/workspaces/{workspace['id']}/projects", body)["project"]
    output.told(made, _DETAILS, args, f"Created project {made['name']} ({made['id']}) in {workspace['name']}")


def _edit_project(client: Client, args: argparse.Namespace) -> None:
    changes = given(name=args.new_name, description=args.description, key=args.key)
    if not changes:
        raise UsageError("no change given, allowed: --new-name, --description or --key.")
    found = _found_project(client, args)
    changed = client.call("PATCH", f"/api/v1/projects/{found['id']}", changes)["project"]
    output.told(changed, _DETAILS, args, f"Changed project {changed['name']}")


def _move(client: Client, args: argparse.Namespace) -> None:
    found, to = _found_project(client, args), places.workspace(client, args.destination)
    client.post(f"/api/v1/projects/{found['id']}/move", {"destinationWorkspaceId": to["id"]})
    done(f"Moved project {found['name']} to workspace {to['name']}")

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
    parser = verbs.add_parser("list", aliases=["ls"], help="list all workspaces", run=_list)
    places.add_paging(parser, ["id", "name"])
    _add_projects(verbs, "list-projects")
    one = partial(verbs.add_parser, form=True)
    text = "list the pools that its experiments may use"
    one("list-pools", "workspace_name", help=text, run=_list_pools, action="list the pools")
    one("describe", "workspace_name", help="show its owner and what it contains", run=_describe)
    one("create", "name", help="create a workspace", run=_create)
    parser = verbs.add_parser("edit", "workspace_name", help="rename a workspace", run=_edit)
    parser.add_argument("--name", required=True, help="the new name")
    output.add_format(parser)
    places.add_ends(verbs, ["workspace_name"], "workspace", "projects", _found)


def _add_projects(verbs: Any, verb: str, **options: Any) -> None:
    text = "list the projects of a workspace"
    parser = verbs.add_parser(
        verb, "workspace_name", help=text, run=_list_projects, action="list the projects", **options
    )
    places.add_paging(parser, ["id", "name", "description"])


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
    _add_projects(verbs, "list", aliases=["ls"])
    names, text = ["workspace_name", "project_name"], "list the experiments of a project"
    parser = verbs.add_parser(
        "list-experiments", *names, help=text, run=_list_experiments, action="list the experiments"
    )
    parser.add_argument("-a", "--all", action="store_true", help="include all users and archived experiments")
    places.add_paging(parser, ["id", "name", "start_time", "end_time", "state"])
    text = "show its key, owner and experiments"
    parser = verbs.add_parser("describe", *names, help=text, run=_describe_project)
    parser.add_argument("-a", "--all", action="store_true", help="include archived experiments")
    output.add_format(parser)
    text = "create a project"
    _add_fields(verbs.add_parser("create", "workspace_name", "name", help=text, run=_create_project))
    text = "change its name, description or key"
    parser = verbs.add_parser("edit", *names, help=text, run=_edit_project)
    parser.add_argument("--new-name", "--new_name", metavar="NAME", help="the new name")
    _add_fields(parser)
    text = "move it, with its experiments, to another workspace"
    parser = verbs.add_parser("move", *names, help=text, run=_move)
    parser.add_argument("destination", metavar="DESTINATION", help="name or id of the other workspace")
    places.add_ends(verbs, names, "project", "experiments", _found_project)


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

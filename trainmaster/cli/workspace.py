"""`workspace`: what groups projects."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Dict

from trainmaster.cli import output, places
from trainmaster.cli.errors import FAILED, OK
from trainmaster.cli.output import Column, done, say
from trainmaster.client import Client

Json = Dict[str, Any]
Adder = Callable[..., argparse.ArgumentParser]

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
    noun = add_noun("workspace", aliases=["w"], help="what groups projects")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    parser = verbs.add_parser("list", aliases=["ls"], help="all workspaces")
    add_paging(parser, _SORTS)
    parser.set_defaults(run=_list, action="list the workspaces")
    parser = _add_one(verbs, "list-projects", "the projects of a workspace")
    add_paging(parser, ["id", "name", "description"])
    parser.set_defaults(run=_list_projects, action="list the projects")
    parser = _add_one(verbs, "list-pools", "the pools that its experiments may use")
    output.add_format(parser)
    parser.set_defaults(run=_list_pools, action="list the pools")
    parser = _add_one(verbs, "describe", "its owner, and what it holds")
    output.add_format(parser)
    parser.set_defaults(run=_describe, action="describe the workspace")
    _add_changes(verbs)


def _add_changes(verbs: Any) -> None:
    parser = verbs.add_parser("create", help="a new workspace")
    parser.add_argument("name")
    output.add_format(parser)
    parser.set_defaults(run=_create, action="create the workspace")
    parser = _add_one(verbs, "edit", "give a workspace another name")
    parser.add_argument("--name", required=True, help="the new name")
    output.add_format(parser)
    parser.set_defaults(run=_edit, action="edit the workspace")
    for verb, text in (("archive", "take it out of the lists"), ("unarchive", "put it back into the lists")):
        parser = _add_one(verbs, verb, text)
        parser.set_defaults(run=_archive, verb=verb, action=f"{verb} the workspace")
    parser = _add_one(verbs, "delete", "delete a workspace that has no projects left")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.set_defaults(run=_delete, action="delete the workspace")


def _add_one(verbs: Any, verb: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(verb, help=text)
    parser.add_argument("workspace_name", metavar="WORKSPACE", help="its name or number")
    return parser


def add_paging(parser: argparse.ArgumentParser, sorts: Any) -> None:
    """--sort-by, --order-by, --limit, --offset and the forms of output."""
    parser.add_argument("--sort-by", choices=sorts, default=sorts[0], help="what the rows are sorted by")
    parser.add_argument(
        "--order-by", choices=sorted(places.ORDERS), default="asc", help="upwards or downwards"
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="so many rows; 0: all")
    parser.add_argument("--offset", type=int, default=0, metavar="N", help="without the first N")
    output.add_format(parser)


def _list(client: Client, args: argparse.Namespace) -> int:
    query = places.query(args.sort_by, args.order_by)
    output.show(client.pages(_PATH, "workspaces", query, args.limit, args.offset), COLUMNS, args.output)
    return OK


def _list_projects(client: Client, args: argparse.Namespace) -> int:
    found = places.workspace(client, args.workspace_name)
    query = places.query(args.sort_by, args.order_by)
    path = f"{_PATH}/{found['id']}/projects"
    output.show(client.pages(path, "projects", query, args.limit, args.offset), PROJECTS, args.output)
    return OK


def _list_pools(client: Client, args: argparse.Namespace) -> int:
    found = places.workspace(client, args.workspace_name)
    names = client.get(f"{_PATH}/{found['id']}/available-resource-pools")["resourcePools"]
    output.show([{"name": name} for name in names], [Column("Name", lambda row: row["name"])], args.output)
    return OK


def _describe(client: Client, args: argparse.Namespace) -> int:
    output.show_one(places.workspace(client, args.workspace_name), COLUMNS, args.output)
    return OK


def _create(client: Client, args: argparse.Namespace) -> int:
    made = client.post(_PATH, {"name": args.name})["workspace"]
    return told(made, COLUMNS, args, f"Created workspace {made['name']} ({made['id']})")


def _edit(client: Client, args: argparse.Namespace) -> int:
    found = places.workspace(client, args.workspace_name)
    changed = client.call("PATCH", f"{_PATH}/{found['id']}", {"name": args.name})["workspace"]
    return told(changed, COLUMNS, args, f"Renamed workspace {found['name']} to {changed['name']}")


def told(row: Json, columns: Any, args: argparse.Namespace, sentence: str) -> int:
    """What was done as a sentence, or the record where a form was asked for."""
    if args.output == "table":
        done(sentence)
    else:
        output.show_one(row, columns, args.output)
    return OK


def _archive(client: Client, args: argparse.Namespace) -> int:
    found = places.workspace(client, args.workspace_name)
    client.post(f"{_PATH}/{found['id']}/{args.verb}")
    done(f"{args.verb.capitalize()}d workspace {found['name']}")
    return OK


def _delete(client: Client, args: argparse.Namespace) -> int:
    found = places.workspace(client, args.workspace_name)
    if not args.yes and not output.ask(f"Delete the workspace {found['name']}?", default=False):
        say("Nothing was deleted.")
        return FAILED
    client.call("DELETE", f"{_PATH}/{found['id']}")
    done(f"Deleted workspace {found['name']}")
    return OK

"""`user-group`: departments and teams, whose jobs share what a pool gives them."""

from __future__ import annotations

import argparse
from typing import Any, List

from trainmaster.cli import output
from trainmaster.cli.arguments import Adder, given
from trainmaster.cli.errors import CliError, UsageError
from trainmaster.cli.output import Column, done
from trainmaster.client import Client, Json

_PATH = "/api/v1/groups"


def add(add_noun: Adder) -> None:
    verbs = add_noun(
        "user-group", aliases=["ug"], help="manage groups of users: departments and teams"
    ).add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list all groups", form=True, run=_list)
    parser.add_argument(
        "--groups-user-belongs-to", dest="of", metavar="USER", help="only the group of this user"
    )
    verbs.add_parser("describe", "group", help="show a group and its users", form=True, run=_describe)
    parser = verbs.add_parser("create", "group", help="create a group", run=_create)
    parser.add_argument(
        "--add-user", dest="users", action="append", default=[], metavar="USER", help="a first member"
    )
    parser.add_argument("--parent", metavar="GROUP", default="", help="the department that it is a team of")
    for verb, field, text in (
        ("add-user", "addUsers", "move users into a group, out of the groups they are in"),
        ("remove-user", "removeUsers", "take users out of a group"),
    ):
        parser = verbs.add_parser(verb, "group", help=text, run=_members)
        parser.add_argument("users", metavar="USER[,USER]", help="one user, or several with commas")
        parser.set_defaults(field=field)
    parser = verbs.add_parser("change-name", "group", help="rename a group", run=_edit)
    parser.add_argument("name", metavar="NEW_NAME")
    parser.set_defaults(parent=None)
    parser = verbs.add_parser(
        "edit", "group", help="rename a group, or move it to another department", run=_edit
    )
    parser.add_argument("--name", help="the new name")
    parser.add_argument("--parent", metavar="GROUP", help="the department that it is a team of, or none")
    parser = verbs.add_parser("delete", "group", help="delete a group without teams", run=_delete)
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


_GROUPS = [
    Column("Group ID", lambda row: row["group"]["groupId"]),
    Column("Group Name", lambda row: row["group"]["name"]),
    Column("Department", lambda row: row["group"]["parent"]),
    Column("# Users", lambda row: row["numMembers"]),
]
_GROUP = [
    Column("Group ID", lambda row: row["groupId"]),
    Column("Group Name", lambda row: row["name"]),
    Column("Department", lambda row: row["parent"]),
    Column("Users", lambda row: ", ".join(user["username"] for user in row["users"])),
]


def _search(client: Client, asked: Json) -> List[Json]:
    return list(client.post(f"{_PATH}/search", {"limit": -1, **asked})["groups"])


def path_of(client: Client, name: str) -> str:
    """The address of the group of this name. Raises CliError."""
    for row in _search(client, {"name": name}):
        return f"{_PATH}/{row['group']['groupId']}"
    raise CliError(f"there is no group {name}.")


def _ids(client: Client, names: List[str]) -> List[Any]:
    return [client.user(name)["id"] for name in names]


def _list(client: Client, args: argparse.Namespace) -> None:
    output.show(
        _search(client, {"userId": client.user(args.of)["id"]} if args.of else {}), _GROUPS, args.output
    )


def _describe(client: Client, args: argparse.Namespace) -> None:
    output.show_one(client.get(path_of(client, args.group))["group"], _GROUP, args.output)


def _create(client: Client, args: argparse.Namespace) -> None:
    names = [name for text in args.users for name in text.split(",")]
    client.post(_PATH, {"name": args.group, "parent": args.parent, "addUsers": _ids(client, names)})
    done(f"Created group {args.group}")


def _members(client: Client, args: argparse.Namespace) -> None:
    names = args.users.split(",")
    client.call("PUT", path_of(client, args.group), {args.field: _ids(client, names)})
    verb = "Added {} to" if args.field == "addUsers" else "Removed {} from"
    done(f"{verb.format(', '.join(names))} group {args.group}")


def _edit(client: Client, args: argparse.Namespace) -> None:
    parent = "" if args.parent == "none" else args.parent
    changes = given(name=args.name, parent=parent)
    if not changes:
        raise UsageError("no change given, allowed: --name or --parent.")
    client.call("PUT", path_of(client, args.group), changes)
    done(f"Changed group {args.group}")


def _delete(client: Client, args: argparse.Namespace) -> None:
    output.confirm(f"Delete the group {args.group}?", "Nothing was deleted.", args.yes)
    client.call("DELETE", path_of(client, args.group))
    done(f"Deleted group {args.group}")

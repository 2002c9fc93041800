"""`list` of commands, shells, notebooks and TensorBoards: its options, and the rows that they leave."""

from __future__ import annotations

import argparse
from typing import Any, List

from trainmaster.cli import output, places
from trainmaster.client import Client, Json

#: as the published client names what it sorts by; `workspaceName` by the workspace's number
_SORTS = {
    "startTime": "startTime",
    "id": "id",
    "username": "username",
    "description": "description",
    "state": "phase",
    "exitStatus": "exitStatus",
    "resourcePool": "resourcePool",
    "workspaceName": "workspaceId",
}


def add_list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help="include all users")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the ids")
    parser.add_argument("-w", "--workspace-name", metavar="NAME", help="only from this workspace")
    parser.add_argument("--sort-by", choices=list(_SORTS), default="startTime", help="default: startTime")
    parser.add_argument("--order-by", choices=["asc", "desc"], default="desc", help="default: desc")
    parser.add_argument("--limit", type=int, default=200, help="the newest N (default: 200); 0: all")
    output.add_format(parser)


def rows_of(client: Client, path: str, field: str, args: argparse.Namespace) -> List[Json]:
    """Raises CliError where there is no such workspace."""
    query: List[Any] = [("sortBy", "SORT_BY_START_TIME"), ("orderBy", "ORDER_BY_DESC")]
    if not args.all:
        query.append(("users", client.me()["username"]))
    if args.workspace_name:
        query.append(("workspaceId", places.workspace(client, args.workspace_name)["id"]))
    rows = client.pages(path, field, query, args.limit)
    key = _SORTS[args.sort_by]

    def value(row: Json) -> Any:
        found = row.get(key)
        return (found is not None, found if isinstance(found, int) else str(found or ""))

    return sorted(rows, key=value, reverse=args.order_by == "desc")


def show(rows: List[Json], columns: List[output.Column], args: argparse.Namespace) -> None:
    """As a table, or only the ids."""
    if args.quiet:
        for row in rows:
            print(row["id"])
    else:
        output.show(rows, columns, args.output)

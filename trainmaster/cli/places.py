"""Workspaces and projects: found by the names that people give them, and the verbs that both have."""

from __future__ import annotations

import argparse
from typing import Any, Callable, List, Sequence, Tuple

from trainmaster.cli import output
from trainmaster.cli.errors import CliError
from trainmaster.cli.output import done
from trainmaster.client import Client, Json

#: the workspace or project that the arguments name
Finder = Callable[[Client, argparse.Namespace], Json]

#: how the lists may be sorted, by the words of the command line
ORDERS = {"asc": "ORDER_BY_ASC", "desc": "ORDER_BY_DESC"}


def workspace(client: Client, name: str) -> Json:
    """The workspace of this name or number. Raises CliError, which names those there are."""
    return _chosen(client.pages("/api/v1/workspaces", "workspaces"), name, "there is no workspace")


def project(client: Client, workspace_name: str, name: str) -> Json:
    """The project of this name or number in the workspace. Raises CliError, which names those there are."""
    found = workspace(client, workspace_name)
    rows = client.pages(f"/api/v1/workspaces/{found['id']}/projects", "projects")
    return _chosen(rows, name, f"workspace {found['name']} has no project")


def _chosen(rows: Sequence[Json], name: str, none: str) -> Json:
    for row in rows:
        if row["name"] == name:
            return row
    for row in rows:
        if str(row["id"]) == name:
            return row
    there = ", ".join(str(row["name"]) for row in rows) or "none"
    raise CliError(f"{none} {name}; there are: {there}.")


def query(sort_by: str, order_by: str) -> List[Tuple[str, Any]]:
    """sortBy and orderBy of the API for `--sort-by` and `--order-by`."""
    return [("sortBy", f"SORT_BY_{sort_by.upper()}"), ("orderBy", ORDERS[order_by])]


def add_paging(parser: argparse.ArgumentParser, sorts: Sequence[str]) -> None:
    """--sort-by, --order-by, --limit, --offset and the forms of output."""
    parser.add_argument("--sort-by", choices=sorts, default=sorts[0], help="the column to sort by")
    parser.add_argument(
        "--order-by", choices=sorted(ORDERS), default="asc", help="ascending or descending order"
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="at most N rows; 0: all")
    parser.add_argument("--offset", type=int, default=0, metavar="N", help="skip the first N")
    output.add_format(parser)


def show_page(
    client: Client, args: argparse.Namespace, path: str, field: str, columns: Sequence[output.Column]
) -> None:
    """The rows that the options of `add_paging` ask for."""
    rows = client.pages(path, field, query(args.sort_by, args.order_by), args.limit, args.offset)
    output.show(rows, columns, args.output)


def add_ends(verbs: Any, names: Sequence[str], word: str, holds: str, found: Finder) -> None:
    """archive, unarchive and delete. `word`: workspace or project; `holds`: what must be gone before."""
    for verb, text in (("archive", "hide it from lists"), ("unarchive", "show it in lists again")):
        parser = verbs.add_parser(verb, *names, help=text, run=_archive)
        parser.set_defaults(word=word, found=found)
    text = f"delete a {word} that has no {holds} left"
    parser = verbs.add_parser("delete", *names, help=text, run=_delete)
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.set_defaults(word=word, found=found)


def _archive(client: Client, args: argparse.Namespace) -> None:
    found = args.found(client, args)
    client.post(f"/api/v1/{args.word}s/{found['id']}/{args.verb}")
    done(f"{args.verb.capitalize()}d {args.word} {found['name']}")


def _delete(client: Client, args: argparse.Namespace) -> None:
    found = args.found(client, args)
    output.confirm(f"Delete the {args.word} {found['name']}?", "Nothing was deleted.", args.yes)
    client.call("DELETE", f"/api/v1/{args.word}s/{found['id']}")
    done(f"Deleted {args.word} {found['name']}")

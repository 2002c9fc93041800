"""Workspaces and projects by the names that people give them."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from trainmaster.cli.errors import CliError
from trainmaster.client import Client

Json = Dict[str, Any]

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

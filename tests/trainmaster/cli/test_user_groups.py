"""`user-group` against the whole server."""

from __future__ import annotations

import json

from tests.trainmaster.cli.conftest import CommandLine


def test_groups_are_created_changed_and_deleted(tm: CommandLine) -> None:
    assert tm("user-group", "create", "research").stdout.strip() == "Created group research"
    tm("user-group", "create", "vision", "--parent", "research", "--add-user", "admin")
    shown = json.loads(tm("user-group", "describe", "vision", "-o", "json").stdout)
    assert (shown["parent"], [user["username"] for user in shown["users"]]) == ("research", ["admin"])
    assert "vision" in tm("ug", "list", "--groups-user-belongs-to", "admin").stdout
    assert tm("user-group", "change-name", "vision", "sight").stdout.strip() == "Changed group vision"
    tm("user-group", "remove-user", "sight", "admin")
    tm("user-group", "edit", "sight", "--parent", "none")
    shown = json.loads(tm("user-group", "describe", "sight", "-o", "json").stdout)
    assert (shown["parent"], shown["users"]) == ("", [])
    wrong = tm("user-group", "edit", "sight", "--parent", "sight")
    assert wrong.returncode == 1 and "Group sight cannot be in itself." in wrong.stderr
    assert tm("user-group", "add-user", "sight", "admin").stdout.strip() == "Added admin to group sight"
    for name in ("sight", "research"):
        assert tm("user-group", "delete", name, "--yes").stdout.strip() == f"Deleted group {name}"
    assert "there is no group sight" in tm("user-group", "describe", "sight").stderr

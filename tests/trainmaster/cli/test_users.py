"""Accounts from the command line, on the whole server."""

from __future__ import annotations

import csv
import io

from tests.trainmaster.cli.conftest import CommandLine


def role(tm: CommandLine, name: str) -> str:
    rows = csv.DictReader(io.StringIO(tm("user", "list", "-o", "csv").stdout))
    return next(row["Role"] for row in rows if row["Username"] == name)


def test_a_user_is_created_with_a_role_which_is_edited_later(tm: CommandLine) -> None:
    made = tm("user", "create", "vera", "--role", "viewer", "--no-password")
    assert (made.returncode, made.stdout.strip()) == (0, "Created user vera with the role viewer")
    assert role(tm, "vera") == "viewer"
    assert tm("user", "edit", "vera").returncode == 2
    edited = tm("user", "edit", "vera", "--role", "editor", "--display-name", "Vera")
    assert edited.stdout.splitlines() == [
        "Changed the role of vera from viewer to editor",
        "Changed the display name of vera from none to Vera",
    ]
    assert role(tm, "vera") == "editor"
    for options, expected in (((), "editor"), (("--admin",), "admin")):
        name = f"user{len(options)}"
        tm("user", "create", name, "--no-password", *options)
        assert role(tm, name) == expected
    assert tm("user", "create", "x", "--admin", "--role", "viewer").returncode == 2
    tm("user", "edit", "user1", "--role", "viewer")
    last = tm("user", "edit", "admin", "--role", "viewer")
    assert (last.returncode, "is the only active admin" in last.stderr) == (1, True)

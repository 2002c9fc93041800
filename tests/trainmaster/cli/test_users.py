"""Accounts from the command line, on the whole server."""

from __future__ import annotations

import csv
import io

from tests.trainmaster.cli.conftest import CommandLine
from tests.trainmaster.cli.terminal import Terminal


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


def test_ones_own_password_is_changed_with_the_old_one(tm: CommandLine) -> None:
    old, new = "Right1234", "Better5678"
    made = Terminal(tm.command("user", "create", "walt"), tm.environment)
    for question in ("New password for walt", "Confirm new password"):
        made.answer(question, old)
    assert made.wait() == 0, made.said
    login = {"DET_USER": "walt", "DET_PASS": old}
    as_walt = {name: value for name, value in tm.environment.items() if name != "TRAINMASTER_TOKEN"} | login
    for current, code in (("Wrong1234", 1), (old, 0)):
        changed = Terminal(tm.command("user", "change-password"), as_walt)
        changed.answer("Current password of walt", current)
        for question in ("New password for walt", "Confirm new password"):
            changed.answer(question, new)
        assert changed.wait() == code, changed.said
    assert "Changed the password of walt" in changed.said
    assert (
        tm("user", "whoami", environment={**login, "DET_PASS": new, "TRAINMASTER_TOKEN": ""}).returncode == 0
    )

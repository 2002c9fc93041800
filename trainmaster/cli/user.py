"""`user`: log in and out, and the accounts of the server."""

from __future__ import annotations

import argparse
import os
from typing import Any, Optional

from trainmaster.cli import output
from trainmaster.cli.arguments import Adder, given
from trainmaster.cli.errors import CliError, UsageError
from trainmaster.cli.output import Column, ask_password, boolean, done, local_time, say
from trainmaster.cli.session import connect, explicit_user, fresh_token
from trainmaster.client import Client, Json
from trainmaster.credentials import salted_hash
from trainmaster.http import Answered

_ROLES = ["viewer", "editor", "admin"]
_STRONG = "at least 8 characters with an upper-case letter, a lower-case letter and a digit"


def add(add_noun: Adder) -> None:
    verbs = add_noun("user", aliases=["u"], help="log in and manage accounts").add_verbs()
    parser = verbs.add_parser("login", help="log in; later commands remember it")
    parser.add_argument("username", nargs="?")
    parser.set_defaults(run_alone=_login, action="log in")
    parser = verbs.add_parser("logout", help="log out, on this machine and on the server")
    parser.add_argument(
        "-a", "--all", action="store_true", help="log out all users of this machine from this server"
    )
    parser.set_defaults(run_alone=_logout, action="log out")
    verbs.add_parser(
        "whoami", help="show who is logged in", form=True, run=_whoami, action="show who is logged in"
    )
    parser = verbs.add_parser("list", aliases=["ls"], help="list users who can log in", run=_list)
    parser.add_argument("-a", "--all", action="store_true", help="include deactivated users")
    output.add_format(parser)
    _add_accounts(verbs)


def _add_accounts(verbs: Any) -> None:
    parser = verbs.add_parser("create", "username", help="create a user", run=_create)
    role = parser.add_mutually_exclusive_group()
    role.add_argument("--role", choices=_ROLES, help="the role (default: editor)")
    role.add_argument(
        "--admin", dest="role", action="store_const", const="admin", help="same as --role admin"
    )
    parser.add_argument(
        "--no-password", action="store_true", help="create without a password; an admin sets one later"
    )
    parser = verbs.add_parser(
        "edit", "username", help="change the role, display name or email address of a user", run=_edit
    )
    parser.add_argument(
        "--role",
        choices=_ROLES,
        help="viewers can read, editors can submit and edit jobs, admins can change everything",
    )
    parser.add_argument("--username", dest="new_name", metavar="NAME", help="the new login name")
    for field, text in (
        ("admin", "true: --role admin; false: --role editor"),
        ("active", "whether the user can log in"),
    ):
        parser.add_argument(f"--{field}", type=boolean, metavar="true|false", help=text)
    parser.add_argument("--display-name", metavar="TEXT", help="the name shown on pages")
    parser.add_argument(
        "--email", metavar="ADDRESS", help="email address, used by single sign-on to find the account"
    )
    parser = verbs.add_parser("rename", help="change the login name of a user")
    parser.add_argument("username")
    parser.add_argument("new_name", metavar="NEW_NAME")
    nothing_else = {"role": None, "admin": None, "active": None, "display_name": None, "email": None}
    parser.set_defaults(run=_edit, action="rename the user", **nothing_else)
    parser = verbs.add_parser("change-password", help="change your password, or as an admin another user's")
    parser.add_argument("username", nargs="?")
    parser.set_defaults(run=_change_password, action="change the password")
    for verb, active in (("activate", True), ("deactivate", False)):
        parser = verbs.add_parser(verb, "username", help=f"{verb} a user", run=_set_active)
        parser.set_defaults(active=active)
    parser = verbs.add_parser("link-with-agent-user", help="set the Unix account that runs a user's jobs")
    parser.add_argument("username")
    parser.add_argument("--agent-user", required=True)
    parser.add_argument("--agent-group")
    parser.add_argument("--agent-uid", type=int)
    parser.add_argument("--agent-gid", type=int)
    parser.set_defaults(run=_link, action="link the user")


def strong(password: str) -> bool:
    kinds = (str.isupper, str.islower, str.isdigit)
    return len(password) >= 8 and all(any(kind(letter) for letter in password) for kind in kinds)


def _login(args: argparse.Namespace) -> None:
    client, credentials = connect(args)
    user = explicit_user(args, args.username)
    password = _from_environment(user)
    if password is None:
        password = ask_password(f"Password for {user}: ")
    credentials.remember(user, fresh_token(client, user, password))
    if not strong(password):
        say(f"This password is weak. Use {_STRONG}.", "yellow")
    done(f"You are logged in as user '{user}' at {client.url}")


def _from_environment(user: str) -> Optional[str]:
    named = os.environ.get("DET_USER")
    return os.environ.get("DET_PASS") if named in (None, user) else None


def _logout(args: argparse.Namespace) -> None:
    client, credentials = connect(args)
    active = args.user or credentials.active_user
    users = credentials.users if args.all else [active] if active else []
    known = [(user, token) for user in users for token in [credentials.token(user)] if token]
    if not known:
        say("You are not logged in.")
    for user, token in known:
        client.token = token
        try:
            client.post("/api/v1/auth/logout")
        except Answered as error:
            if error.status != 401:  # its end had come already
                raise
        finally:
            credentials.forget(user)
        done(f"{user} is logged out.")


def _whoami(client: Client, args: argparse.Namespace) -> None:
    me = client.me()
    if args.output == "table":
        print(f"You are logged in as user '{me['username']}'")
    else:
        output.show_one(me, _USERS, args.output)


_USERS = [
    Column("Username", lambda row: row["username"]),
    Column("Display Name", lambda row: row.get("displayName")),
    Column("Active", lambda row: row.get("active")),
    Column("Admin", lambda row: row.get("admin")),
    Column("Role", lambda row: row.get("role")),
    Column("Agent User", lambda row: (row.get("agentUserGroup") or {}).get("agentUser")),
    Column("Last Login", lambda row: local_time(row.get("lastAuthAt"))),
]


def _list(client: Client, args: argparse.Namespace) -> None:
    only = [] if args.all else [("active", "true")]
    output.show(client.pages("/api/v1/users", "users", only), _USERS, args.output)


def _new_password(user: str) -> str:
    first = ask_password(f"New password for {user}: ")
    if not strong(first):
        raise CliError(f"found a weak password, allowed: {_STRONG}.")
    if ask_password("Confirm new password: ") != first:
        raise CliError("the passwords do not match; nothing was changed.")
    return salted_hash(first)


def _create(client: Client, args: argparse.Namespace) -> None:
    role = args.role or "editor"
    user: Json = {"username": args.username, "admin": role == "admin", "role": role, "active": True}
    body: Json = {"user": user}
    if not args.no_password:
        body.update(password=_new_password(args.username), isHashed=True)
    client.post("/api/v1/users", body)
    done(f"Created user {args.username} with the role {role}")


_WORDS = {
    "username": "name",
    "role": "role",
    "active": "state",
    "displayName": "display name",
    "email": "address",
}


def _shown(value: Any) -> Any:
    return {True: "active", False: "inactive"}[value] if isinstance(value, bool) else value or "none"


def _edit(client: Client, args: argparse.Namespace) -> None:
    if args.role and args.admin is not None:
        raise UsageError("--role and --admin set the same thing; allowed: one of them.")
    changes = given(
        username=args.new_name,
        role=args.role if args.admin is None else "admin" if args.admin else "editor",
        active=args.active,
        displayName=args.display_name,
        email=args.email,
    )
    if not changes:
        raise UsageError(
            "no change given, allowed: --username, --role, --admin, --active, --display-name or --email."
        )
    user = client.user(args.username)
    client.call("PATCH", f"/api/v1/users/{user['id']}", changes)
    for field, value in changes.items():
        done(
            f"Changed the {_WORDS[field]} of {args.username} from {_shown(user.get(field))} to {_shown(value)}"
        )


def _change_password(client: Client, args: argparse.Namespace) -> None:
    user = client.user(args.username) if args.username else client.me()
    body = {"password": _new_password(user["username"]), "isHashed": True}
    client.call("PATCH", f"/api/v1/users/{user['id']}", body)
    done(f"Changed the password of {user['username']}")


def _set_active(client: Client, args: argparse.Namespace) -> None:
    client.call("PATCH", f"/api/v1/users/{client.user(args.username)['id']}", {"active": args.active})
    done(f"{'Activated' if args.active else 'Deactivated'} user {args.username}")


def _link(client: Client, args: argparse.Namespace) -> None:
    group = given(
        agentUser=args.agent_user,
        agentGroup=args.agent_group or args.agent_user,
        agentUid=args.agent_uid,
        agentGid=args.agent_gid,
    )
    client.call("PATCH", f"/api/v1/users/{client.user(args.username)['id']}", {"agentUserGroup": group})
    done(f"Jobs of {args.username} run as the Unix account {args.agent_user}")

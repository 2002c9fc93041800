"""`user`: log in and out, and the accounts of the server; `token`: access tokens for programs that act for you."""

from __future__ import annotations

import argparse
from typing import Any, List

from trainmaster.cli import output
from trainmaster.cli.arguments import Adder, given
from trainmaster.cli.errors import CliError, UsageError
from trainmaster.cli.output import Column, ask_password, boolean, done, local_time, say
from trainmaster.cli.session import connect, explicit_user, fresh_token, password_given
from trainmaster.client import Client, Json
from trainmaster.credentials import salted_hash
from trainmaster.http import Answered

_ROLES = ["viewer", "editor", "admin"]
_STRONG = "at least 8 characters with an upper-case letter, a lower-case letter and a digit"


def add(add_noun: Adder) -> None:
    _add_user(add_noun)
    _add_token(add_noun)


def _add_user(add_noun: Adder) -> None:
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
    parser.add_argument(
        "--keep-tokens",
        action="store_true",
        help="keep the access tokens of another user, which are otherwise revoked with the old password",
    )
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
    password = password_given(user)
    if password is None:
        password = ask_password(f"Password for {user}: ")
    credentials.remember(user, fresh_token(client, user, password))
    if not strong(password):
        say(f"This password is weak. Use {_STRONG}.", "yellow")
    done(f"You are logged in as user '{user}' at {client.url}")


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
    Column("Last Seen", lambda row: local_time(row.get("lastSeenAt"))),
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
    is_own = user["id"] == client.me()["id"]
    body: Json = {"isHashed": True}
    if is_own:
        body["oldPassword"] = salted_hash(ask_password(f"Current password of {user['username']}: "))
    body["password"] = _new_password(user["username"])
    if not is_own:
        revoke = not args.keep_tokens and output.ask(
            f"Revoke the access tokens of {user['username']} as well?", default=True
        )
        body["keepAccessTokens"] = not revoke
    client.call("PATCH", f"/api/v1/users/{user['id']}", body)
    kept = "" if is_own else f"; their access tokens are {'valid still' if not revoke else 'revoked'}"
    done(f"Changed the password of {user['username']}{kept}")


def _set_active(client: Client, args: argparse.Namespace) -> None:
    client.call("PATCH", f"/api/v1/users/{client.user(args.username)['id']}", {"active": args.active})
    done(f"{'Activated' if args.active else 'Deactivated'} user {args.username}")


def _link(client: Client, args: argparse.Namespace) -> None:
    group = given(
        agentUser=args.agent_user,
        agentGroup=args.agent_group,
        agentUid=args.agent_uid,
        agentGid=args.agent_gid,
    )
    client.call("PATCH", f"/api/v1/users/{client.user(args.username)['id']}", {"agentUserGroup": group})
    done(f"Jobs of {args.username} run as the Unix account {args.agent_user}")


# --- token ----------------------------------------------------------------------------------------------------


def _add_token(add_noun: Adder) -> None:
    noun = add_noun("token", aliases=["tkn"], help="manage access tokens for programs that act for you")
    verbs = noun.add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list active tokens (admins: everyone's)")
    parser.add_argument("username", nargs="?")
    parser.add_argument("--show-inactive", action="store_true", help="include revoked and expired tokens")
    output.add_format(parser)
    parser.set_defaults(run=_list_tokens, action="list the tokens")
    parser = verbs.add_parser(
        "describe", help="show tokens by id", form=True, run=_describe_tokens, action="describe the tokens"
    )
    parser.add_argument("token_id", type=int, nargs="+")
    parser = verbs.add_parser("create", help="create a token; it is shown only once", run=_create_token)
    parser.add_argument("username", nargs="?", help="create it for this user (admins only)")
    parser.add_argument(
        "-e", "--expiration-days", type=int, metavar="N", help="how long it is valid; -1: until it is revoked"
    )
    parser.add_argument("-d", "--description", default="")
    parser.add_argument(
        "--scope", choices=["read", "write", "full"], default="full", help="what it may do (default: full)"
    )
    for form in ("json", "yaml"):
        parser.add_argument(f"--{form}", dest="output", action="store_const", const=form, default="")
    parser = verbs.add_parser("edit", "token_id", help="change the description of a token", run=_edit_token)
    parser.add_argument("-d", "--description", required=True)
    verbs.add_parser("revoke", "token_id", help="revoke a token permanently", run=_revoke_token)
    parser = verbs.add_parser("login", help="log in with a token; later commands remember it")
    parser.add_argument(
        "token",
        nargs="?",
        help="the token; if omitted, you are asked for it (arguments are visible to others)",
    )
    parser.set_defaults(run_alone=_log_in_by_token, action="log in")


_TOKENS = [
    Column("ID", lambda row: row["id"]),
    Column("User", lambda row: row["username"]),
    Column("Description", lambda row: row.get("description")),
    Column("Scope", lambda row: row["scope"]),
    Column("Created At", lambda row: local_time(row["createdAt"])),
    Column("Expires At", lambda row: local_time(row.get("expiry")) or "never"),
    Column("Last Used", lambda row: local_time(row.get("lastUsedAt"))),
    Column("Revoked", lambda row: row["revoked"]),
]


def _list_tokens(client: Client, args: argparse.Namespace) -> None:
    query = [("showInactive", str(args.show_inactive).lower())]
    if args.username:
        query.append(("username", args.username))
    output.show(client.pages("/api/v1/tokens", "tokenInfo", query), _TOKENS, args.output)


def _describe_tokens(client: Client, args: argparse.Namespace) -> None:
    rows: List[Json] = [client.get(f"/api/v1/tokens/{token_id}")["tokenInfo"] for token_id in args.token_id]
    output.show(rows, _TOKENS, args.output)


def _create_token(client: Client, args: argparse.Namespace) -> None:
    body: Json = {"description": args.description, "scope": args.scope}
    if args.username:
        body["userId"] = client.user(args.username)["id"]
    if args.expiration_days is not None:
        body["lifespan"] = "-1" if args.expiration_days == -1 else f"{24 * args.expiration_days}h"
    made = client.post("/api/v1/tokens", body)
    if args.output in output.STRUCTURED:
        output.structured(made, args.output)
    else:
        print(f"TokenID: {made['tokenId']}\nAccess-Token: {made['token']}")


def _edit_token(client: Client, args: argparse.Namespace) -> None:
    client.call("PATCH", f"/api/v1/tokens/{args.token_id}", {"description": args.description})
    done(f"Changed token {args.token_id}")


def _revoke_token(client: Client, args: argparse.Namespace) -> None:
    client.call("PATCH", f"/api/v1/tokens/{args.token_id}", {"setRevoked": True})
    done(f"Revoked token {args.token_id}")


def _log_in_by_token(args: argparse.Namespace) -> None:
    client, credentials = connect(args)
    client.token = (args.token or ask_password("Access token: ")).strip()
    try:
        user = client.me()["username"]
    except Answered as error:
        if error.status == 401:
            raise CliError(
                f"{client.url} does not accept this token: it is unknown, expired or revoked."
            ) from error
        raise
    credentials.remember(user, client.token)
    if args.token:
        say(
            "The token is now in your shell's history. Omit the argument to be asked for it instead.",
            "yellow",
        )
    done(f"You are logged in as user '{user}' at {client.url}")

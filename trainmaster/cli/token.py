"""`token`: access tokens for programs that act for you."""

from __future__ import annotations

import argparse
from typing import Any, List

from trainmaster.cli import output
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import CliError
from trainmaster.cli.output import Column, ask_password, done, local_time, say
from trainmaster.cli.session import connect
from trainmaster.client import Client, Json
from trainmaster.http import Answered


def add(add_noun: Adder) -> None:
    noun = add_noun("token", aliases=["tkn"], help="manage access tokens for programs that act for you")
    verbs = noun.add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list active tokens (admins: everyone's)")
    parser.add_argument("username", nargs="?")
    parser.add_argument("--show-inactive", action="store_true", help="include revoked and expired tokens")
    output.add_format(parser)
    parser.set_defaults(run=_list, action="list the tokens")
    parser = verbs.add_parser(
        "describe", help="show tokens by id", form=True, run=_describe, action="describe the tokens"
    )
    parser.add_argument("token_id", type=int, nargs="+")
    _add_create(verbs)
    parser = verbs.add_parser("edit", "token_id", help="change the description of a token", run=_edit)
    parser.add_argument("-d", "--description", required=True)
    verbs.add_parser("revoke", "token_id", help="revoke a token permanently", run=_revoke)
    parser = verbs.add_parser("login", help="log in with a token; later commands remember it")
    parser.add_argument(
        "token",
        nargs="?",
        help="the token; if omitted, you are asked for it (arguments are visible to others)",
    )
    parser.set_defaults(run_alone=_login, action="log in")


def _add_create(verbs: Any) -> None:
    parser = verbs.add_parser("create", help="create a token; it is shown only once", run=_create)
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


_COLUMNS = [
    Column("ID", lambda row: row["id"]),
    Column("User", lambda row: row["username"]),
    Column("Description", lambda row: row.get("description")),
    Column("Scope", lambda row: row["scope"]),
    Column("Created At", lambda row: local_time(row["createdAt"])),
    Column("Expires At", lambda row: local_time(row.get("expiry")) or "never"),
    Column("Last Used", lambda row: local_time(row.get("lastUsedAt"))),
    Column("Revoked", lambda row: row["revoked"]),
]


def _list(client: Client, args: argparse.Namespace) -> None:
    query = [("showInactive", str(args.show_inactive).lower())]
    if args.username:
        query.append(("username", args.username))
    output.show(client.pages("/api/v1/tokens", "tokenInfo", query), _COLUMNS, args.output)


def _describe(client: Client, args: argparse.Namespace) -> None:
    rows: List[Json] = [client.get(f"/api/v1/tokens/{token_id}")["tokenInfo"] for token_id in args.token_id]
    output.show(rows, _COLUMNS, args.output)


def _create(client: Client, args: argparse.Namespace) -> None:
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


def _edit(client: Client, args: argparse.Namespace) -> None:
    client.call("PATCH", f"/api/v1/tokens/{args.token_id}", {"description": args.description})
    done(f"Changed token {args.token_id}")


def _revoke(client: Client, args: argparse.Namespace) -> None:
    client.call("PATCH", f"/api/v1/tokens/{args.token_id}", {"setRevoked": True})
    done(f"Revoked token {args.token_id}")


def _login(args: argparse.Namespace) -> None:
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

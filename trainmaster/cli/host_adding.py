"""`host add`: from a name of the user's ssh config to a host that is ready for jobs."""

from __future__ import annotations

import argparse
import time
from typing import Any, List, Optional, Tuple

from trainmaster.cli import output
from trainmaster.cli.arguments import given
from trainmaster.cli.errors import FAILED, OK, CliError
from trainmaster.cli.host_rows import interpreter_lines, show_doctor, slots_held
from trainmaster.cli.output import ask, ask_text, done, say
from trainmaster.cli.ssh_config import Hop, Route, install_key, known_fingerprints, parse_target, resolve
from trainmaster.client import Client, Json
from trainmaster.http import Answered

LOCAL = "local"
ADMISSION_LIMIT_SECONDS = 300.0
_POLL_SECONDS = 0.5


class KeyDeclined(CliError):
    """The user does not accept the first key that a new host has shown: whoever added it takes it back."""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("add", help="add a machine: if `ssh NAME` works, this works", run=add_host)
    parser.add_argument(
        "target",
        metavar="NAME|user@address[:port]",
        help="the host, as you would pass it to ssh; `local` is the server itself",
    )
    parser.add_argument("--name", help="its name in Trainmaster (default: the name or address)")
    parser.add_argument("--pool", metavar="POOL", help="the pool to add it to (default: the default pool)")
    parser.add_argument(
        "--slots",
        type=_slots,
        metavar="N",
        help="number of slots of a host without GPUs (default: one per core)",
    )
    parser.add_argument("--python", metavar="PATH", help="the Python interpreter for jobs on this host")
    parser.add_argument("--activate", metavar="SCRIPT", help="a script to source before jobs (conda, venv)")
    parser.add_argument("--workdir", metavar="DIR", help="the folder for the files of runs on this host")
    parser.add_argument("--gang-address", metavar="ADDRESS", help="the address at which other hosts reach it")
    parser.add_argument(
        "--no-key", action="store_true", help="do not install the server's key; it is already there"
    )
    parser.add_argument(
        "--allow-login-account",
        action="store_true",
        help="let jobs of users without a linked account run as the login account, even if that is root or may "
        "become root (a rule of the pool)",
    )
    parser.add_argument("--yes", "-y", action="store_true", help="answer yes to all questions")


def _slots(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 1024:
        raise argparse.ArgumentTypeError(f"found {text}, allowed: 0 to 1024")
    return number


def add_host(client: Client, args: argparse.Namespace) -> int:
    body = given(
        pool=args.pool,
        slots=args.slots,
        python=args.python,
        activate=args.activate,
        workdir=args.workdir,
        gangAddress=args.gang_address,
        allowLoginAccount=args.allow_login_account or None,
    )
    if args.target == LOCAL:
        body.update(name=args.name or LOCAL, transport="local")
    else:
        route = resolve(args.target)
        body.update(_reached(args, route))
        if not args.no_key:
            bring_key(client, route, args.yes)
    added = _half_added(client, body) or client.add_host(body)
    try:
        host = admitted(client, added, args.yes)
    except KeyDeclined:
        client.remove_host(str(added["name"]))
        raise
    return _conclude(client, host, args)


def _half_added(client: Client, body: Json) -> Optional[Json]:
    """Return this host from an earlier `host add` that left the question about its key unanswered."""
    try:
        host = client.host(str(body["name"]))
    except Answered as error:
        if error.status == 404:
            return None
        raise
    same = all(host.get(field) == body.get(field) for field in ("transport", "address", "port", "user"))
    if host["state"] != "admitting" or not same or not _unaccepted(host):
        return None
    say(f"{host['name']} was added before; its host key has not been accepted yet.")
    return host


def _reached(args: argparse.Namespace, route: Route) -> Json:
    way = "".join(f" via {hop}" for hop in route.jumps)
    say(f"{args.target} is {route.target}{way}.")
    return {
        "name": args.name or parse_target(args.target).host,
        "transport": "ssh",
        **hop_json(route.target),
        "jumps": [hop_json(jump) for jump in route.jumps],
    }


def hop_json(hop: Hop) -> Json:
    return {"address": hop.address, "port": hop.port, "user": hop.user}


def bring_key(client: Client, route: Route, agreed: bool) -> None:
    """Install the server's public key on the host and on the way to it, if the user consents."""
    key = client.server_key()
    hops = [*route.jumps, route.target]
    places = " and ".join(str(hop) for hop in hops)
    say(f"The server logs in with its own key:\n  {key}")
    if not agreed and not ask(
        f"Add it to ~/.ssh/authorized_keys of {places}, using your own ssh?", default=True
    ):
        say("The key must already be there, or you must add it yourself.")
        return
    for hop in hops:
        install_key(hop, key)


def admitted(client: Client, host: Json, agreed: bool) -> Json:
    """Wait until the server has probed the host; each key that is shown is put to the user. Raises CliError."""
    name, deadline, told = str(host["name"]), time.monotonic() + ADMISSION_LIMIT_SECONDS, ""
    while True:
        waiting = _unaccepted(host)
        if waiting:
            host = _accept(client, name, *waiting[0], agreed)
            deadline = time.monotonic() + ADMISSION_LIMIT_SECONDS
            continue
        if host["state"] != "admitting":
            return host
        if time.monotonic() > deadline:
            limit = f"{ADMISSION_LIMIT_SECONDS:.0f} s"
            raise CliError(f"{name} was not ready after {limit}. See `trainmaster host show {name}`.")
        reason = str(host.get("stateReason") or "the server is checking the host.")
        if reason != told:
            say(f"{name}: {reason}")
            told = reason
        time.sleep(_POLL_SECONDS)
        host = client.host(name)


def _unaccepted(host: Json) -> List[Tuple[Json, Json]]:
    """Return the jump hosts and the host itself that have an unaccepted key, each with that key."""
    if host["state"] not in ("admitting", "failed", "suspended"):
        return []
    hops = [*(host.get("jumps") or []), host]
    keys = [(hop, hop.get("hostKey") or {}) for hop in hops]
    return [
        (hop, key) for hop, key in keys if key.get("state") in ("unknown", "changed") and key.get("offered")
    ]


def _accept(client: Client, name: str, hop: Json, key: Json, agreed: bool) -> Json:
    shown, address = str(key["offered"]), str(hop.get("address") or "")
    say(f"The host key of {address}, as the server sees it: {shown}")
    changed = key["state"] == "changed"
    if changed:
        say(
            f"It was {key.get('fingerprint')} before! Someone may be intercepting the connection, "
            "or the host was reinstalled.",
            "red",
        )
    known = shown in known_fingerprints(address, int(hop.get("port") or 22))
    if known and not changed:
        say("Your own known_hosts has the same key.", "green")
    if (changed or not agreed) and not ask("Accept this host key?", default=known and not changed):
        sentence = f"the host key of {address} was not accepted."
        raise CliError(sentence) if changed else KeyDeclined(sentence)
    client.host_action(name, "accept-key", {"fingerprint": shown})
    return client.host(name)


def _conclude(client: Client, host: Json, args: argparse.Namespace) -> int:
    name = str(host["name"])
    print()
    show_doctor(host)
    if host["state"] not in ("ready", "draining"):
        say(f"\n{name} is not ready: {host.get('stateReason') or host['state']}", "red")
        say(f"Once this is fixed, run: trainmaster host doctor {name}")
        return FAILED
    if not (args.python or args.activate):
        _choose_interpreter(client, host, args.yes)
    slots = slots_held(host).split("/")[1]
    done(f"Added host {name} to the pool {host.get('pool')}: {slots} slot{'' if slots == '1' else 's'}")
    if host["state"] == "draining":  # its pool wants a burn-in first
        say(str(host.get("stateReason") or ""), "yellow")
    _ask_about_login(client, host, args.yes)
    return OK


def _ask_about_login(client: Client, host: Json, agreed: bool) -> None:
    """Say whose jobs are refused there, and on a terminal ask whether they may run as the login account.

    `--yes` is no answer to this question: it gives others the machine.
    """
    checks = (host.get("doctor") or {}).get("checks") or []
    refused = [
        str(check["sentence"]) for check in checks if check["name"] == "account" and check["state"] == "fail"
    ]
    if not refused:
        return
    say(f"\n{refused[0]}", "yellow")
    question = f"Allow it in the pool {host.get('pool')}? Such jobs can read and end everything on its hosts."
    if agreed or not output.is_interactive() or not ask(question, default=False):
        return
    client.edit_resource_pool(str(host["pool"]), {"allowLoginAccount": True})
    done(f"The pool {host.get('pool')} runs jobs of users without a linked account as the login account")


def _choose_interpreter(client: Client, host: Json, agreed: bool) -> None:
    """Ask the user to choose one of several interpreters; without a terminal the server's choice stays."""
    lines = interpreter_lines(host)
    if len(lines) < 2 or agreed or not output.is_interactive():
        return
    paths = [str(found["path"]) for found in host["interpreters"]]
    current = paths.index(host["python"]) if host.get("python") in paths else 0
    say("\nWhich Python should jobs on this host use?")
    for number, line in enumerate(lines, 1):
        say(f"  {number}  {line}")
    chosen = _number(ask_text(f"[{current + 1}] "), current, len(paths))
    if paths[chosen] != host.get("python"):
        client.edit_host(str(host["name"]), {"python": paths[chosen]})
        done(f"Jobs on {host['name']} use {paths[chosen]}")


def _number(text: str, current: int, count: int) -> int:
    if not text:
        return current
    if not text.isdigit() or not 1 <= int(text) <= count:
        raise CliError(f"found {text!r}, allowed: 1 to {count}.")
    return int(text) - 1

"""`host`: the machines that run jobs."""

from __future__ import annotations

import argparse
import sys
import time
from typing import List, Optional
from urllib.parse import quote

from trainmaster.cli import host_adding, host_health, output
from trainmaster.cli.agent import hosts_of, running, tell_stopped
from trainmaster.cli.arguments import Adder, given
from trainmaster.cli.errors import FAILED, OK, CliError, UsageError
from trainmaster.cli.host_rows import CHECKS, HOSTS, MEASURED, MEASURED_SECONDS, show_doctor, show_host
from trainmaster.cli.output import clean, colored, done, say
from trainmaster.client import Client, Json

_DOCTOR_LIMIT_SECONDS = 120.0
#: verb → (what is printed, help)
_ACTIONS = {
    "enable": ("Enabled host", "let it take new work"),
    "disable": ("Disabled host", "stop its work and give it no new work"),
    "drain": ("Draining host", "let its work finish and give it no new work"),
}


def add(add_noun: Adder) -> None:
    verbs = add_noun("host", help="manage the machines that run jobs").add_verbs()
    host_adding.add_parser(verbs)
    verbs.add_parser("list", aliases=["ls"], help="list all hosts", form=True, run=_list)
    parser = verbs.add_parser(
        "show", aliases=["describe"], help="show a host: slots, interpreters, doctor", form=True, run=_show
    )
    parser.add_argument("name")
    parser = verbs.add_parser("doctor", help="check a host again, or test all pairs of hosts in a pool")
    parser.add_argument("name", nargs="?")
    parser.add_argument(
        "--pool", help="test for each pair of its hosts whether they can form a gang, and how fast"
    )
    output.add_format(parser)
    parser.set_defaults(run=_doctor, action="examine the host")
    parser = verbs.add_parser(
        "edit", "name", help="change its interpreter (for later runs) or its pool", run=_edit
    )
    parser.add_argument("--python", metavar="PATH", help="the Python interpreter for jobs on this host")
    parser.add_argument("--activate", metavar="SCRIPT", help="a script to source before jobs (conda, venv)")
    parser.add_argument("--pool", metavar="POOL", help="move it to this pool; nothing may be running on it")
    output.add_format(parser)
    for verb, (_, text) in _ACTIONS.items():
        parser = verbs.add_parser(verb, help=text, run=_act)
        parser.add_argument("names", nargs="+", metavar="name")
    host_health.add_parsers(verbs)
    parser = verbs.add_parser(
        "remove", "name", aliases=["rm"], help="remove a host; nothing may be running on it", run=_remove
    )
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def _list(client: Client, args: argparse.Namespace) -> None:
    hosts: List[Json] = client.hosts()
    output.show(hosts, HOSTS, args.output)
    if args.output == "table" and not hosts:
        say("There are no hosts yet. If `ssh gpu1` works, run: trainmaster host add gpu1")


def _show(client: Client, args: argparse.Namespace) -> None:
    host = client.host(args.name)
    if args.output == "table":
        measured = client.host_samples(args.name, MEASURED, MEASURED_SECONDS)
        show_host(host, measured)
    else:
        output.show_one(host, HOSTS, args.output)


def _doctor(client: Client, args: argparse.Namespace) -> int:
    """Ask for a new look, wait for its result, and end with 1 if a check failed."""
    if bool(args.name) == bool(args.pool):
        raise UsageError("name one host, or a pool with --pool.")
    if args.pool:
        return _examine(client, args)
    before = (client.host(args.name).get("doctor") or {}).get("at")
    host = client.host_action(args.name, "doctor") or client.host(args.name)
    deadline = time.monotonic() + _DOCTOR_LIMIT_SECONDS
    while host["state"] == "admitting" or (host.get("doctor") or {}).get("at") == before:
        if time.monotonic() > deadline:
            say(
                f"The doctor did not finish within {_DOCTOR_LIMIT_SECONDS:.0f} s; showing its previous result.",
                "yellow",
            )
            break
        if host["state"] in ("failed", "suspended"):
            break
        time.sleep(0.5)
        host = client.host(args.name)
    if args.output == "table":
        show_doctor(host)
    else:
        output.show(host["doctor"]["checks"], CHECKS, args.output)
    if host["state"] != "ready":
        say(f"{args.name} is {host['state']}: {host.get('stateReason') or 'no reason given'}", "red")
    failed = any(check["state"] == "fail" for check in (host.get("doctor") or {}).get("checks") or [])
    return FAILED if failed or host["state"] in ("failed", "suspended", "lost") else OK


def _edit(client: Client, args: argparse.Namespace) -> None:
    changes = given(python=args.python, activate=args.activate, pool=args.pool)
    if not changes:
        raise UsageError("name at least one of --python, --activate and --pool.")
    host = client.edit_host(args.name, changes)
    if args.output == "table":
        done(f"Jobs on {args.name} use {host['activate'] or host['python']} (pool {host['pool']})")
        if host["state"] == "admitting":
            say(f"The server tests it first; see the result with `trainmaster host show {args.name}`.")
    else:
        output.show_one(host, HOSTS, args.output)


def _act(client: Client, args: argparse.Namespace) -> None:
    there = [task for task in running(client) if set(args.names) & set(hosts_of(task))]
    for name in args.names:
        client.host_action(name, args.verb)
        done(f"{_ACTIONS[args.verb][0]} {name}")
    if args.verb == "disable":
        tell_stopped(there)


def _remove(client: Client, args: argparse.Namespace) -> None:
    output.confirm(f"Remove the host {args.name}?", "Nothing was removed.", args.yes)
    client.remove_host(args.name)
    done(f"Removed host {args.name}")


# --- host doctor --pool P: every pair of its hosts meets ------------------------------------------------------

#: No pair is done for so long: nobody works on it.
_STILL_SECONDS = 600.0
_LOOK_SECONDS = 0.5


def _examine(client: Client, args: argparse.Namespace) -> int:
    """Start the test, tell how far it is, _show_pairs the result; 1 where a pair is bad or was not tested."""
    path = f"/api/v1/resource-pools/{quote(args.pool, safe='')}/doctor"
    answer = _await(client, path, client.post(path))
    if args.output in output.STRUCTURED:
        output.structured(answer, args.output)
    else:
        _show_pairs(answer)
    bad = any(not pair["ok"] for pair in answer["pairs"])
    return FAILED if bad or answer["untested"] else OK


def _await(client: Client, path: str, answer: Json) -> Json:
    told, moved = -1, time.monotonic()
    while answer["running"]:
        if answer["done"] != told:
            told, moved = answer["done"], time.monotonic()
            _progress(min(told + 1, answer["all"]), answer["all"])
        if time.monotonic() - moved > _STILL_SECONDS:
            raise CliError(
                f"No pair finished within {_STILL_SECONDS:.0f} s. Is a worker running? Check again with "
                f"`host doctor --pool`; the current test continues."
            )
        time.sleep(_LOOK_SECONDS)
        answer = client.get(path)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return answer


def _progress(number: int, pairs: int) -> None:
    text = f"Pair {number} of {pairs} …"
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        say(text)


def _show_pairs(answer: Json) -> None:
    """The matrix, the sentences of what is wrong, the networks, and what to do."""
    hosts: List[str] = answer["hosts"]
    cells = {frozenset(row["hosts"]): "not tested" for row in answer["untested"]}
    for pair in answer["pairs"]:
        names = frozenset((pair["first"], pair["second"]))
        if names not in cells or not pair["ok"]:  # a bad one stays bad until a test says otherwise
            cells[names] = _cell(pair)
    rows = [
        [host, *("·" if host == other else cells.get(frozenset((host, other)), "?") for other in hosts)]
        for host in hosts
    ]
    print(output.table(["Host", *hosts], rows))
    bad = [pair for pair in answer["pairs"] if not pair["ok"]]
    for pair in bad:
        _problem(f"{pair['first']} and {pair['second']} cannot be in one gang", pair["sentence"], "red")
    for row in answer["untested"]:
        _problem(f"{' and '.join(row['hosts'])} were not tested", row["sentence"], "yellow")
    if not bad and any("No all-reduce" in pair["sentence"] for pair in answer["pairs"]):
        pair = next(pair for pair in answer["pairs"] if "No all-reduce" in pair["sentence"])
        print(clean(f"\n{pair['first']} and {pair['second']}: {pair['sentence']}"))
    if answer["advice"]:
        print(f"\n{clean(answer['advice'])}")


def _problem(what: str, sentence: str, color: str) -> None:
    print(colored(clean(f"{what}: {sentence}"), color, sys.stdout))


def _cell(pair: Json) -> str:
    """The rate of the all-reduce, else that of the connection."""
    if not pair["ok"]:
        return "BAD"
    if pair["allReduceMbPerSecond"] is not None:
        return f"{pair['allReduceMbPerSecond']:.0f} MB/s"
    rate: Optional[float] = pair["mbPerSecond"]
    return "ok" if rate is None else f"ok {rate:.0f} MB/s"

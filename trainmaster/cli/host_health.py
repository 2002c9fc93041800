"""`host health`, `host quarantine`, `host release`, `host burn-in`: faults of hosts, and what is done about them."""

from __future__ import annotations

import argparse
import time
from typing import Any, Callable, List
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.command import wait_end
from trainmaster.cli.errors import FAILED, OK, CliError, UsageError
from trainmaster.cli.output import Column, done, local_time, say
from trainmaster.client import Client, Json

#: a burn-in that has ended is judged within about a minute at the latest
_JUDGED_SECONDS, _LOOK_SECONDS = 90.0, 0.5
_HOSTS = [
    Column("Name", lambda row: row["name"]),
    Column("Health", lambda row: row["health"]),
    Column("Reason", lambda row: row.get("stateReason")),
]
_OUT = [
    Column("Slot", lambda row: "all" if row["slot"] is None else row["slot"]),
    Column("Since", lambda row: local_time(row["since"])),
    Column("Reason", lambda row: row["sentence"]),
    Column("Out", lambda row: row["returns"]),
]
_OVERRULED = [
    Column("Slot", lambda row: "all" if row["slot"] is None else row["slot"]),
    Column("In use until", lambda row: local_time(row["until"])),
    Column("By", lambda row: row["by"]),
    Column("Reason", lambda row: row["reason"]),
]
_SIGNS = [
    Column("Reported", lambda row: local_time(row["at"])),
    Column("Slot", lambda row: "" if row["slot"] is None else row["slot"]),
    Column("Verdict", lambda row: row["sentence"]),
    Column("Done", lambda row: row["done"]),
    Column("Evidence", lambda row: row["line"]),
]


_FIGURES = [
    Column("Slot", lambda row: "host" if row["slot"] is None else row["slot"]),
    Column("Measured", lambda row: row["name"]),
    Column("Here", lambda row: _amount(row["value"], row["unit"])),
    Column("Median", lambda row: "" if row["median"] is None else _amount(row["median"], row["unit"])),
    Column("Hosts", lambda row: row["hosts"]),
    Column("Verdict", lambda row: row["verdict"]),
]


_RATES = [
    Column("Hosts", lambda row: (" to " if row["measure"] == "send" else ", ").join(row["hosts"])),
    Column("Measured", lambda row: row["name"]),
    Column("Rate", lambda row: row["error"] or _amount(row["value"], row["unit"])),
    Column("Median", lambda row: "" if row["median"] is None else _amount(row["median"], row["unit"])),
]


def _amount(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".rstrip()


def add_parsers(verbs: Any) -> None:
    parser = verbs.add_parser(
        "health",
        help="show the faults of a host and its GPUs, or the health of all hosts",
        form=True,
        run=_health,
    )
    parser.add_argument("name", nargs="?")
    parser = verbs.add_parser("quarantine", "name", help="take a host or a slot out of use", run=_quarantine)
    parser.add_argument("--slot", type=int, metavar="N", help="only this slot")
    parser.add_argument("--reason", required=True, help="why, shown to everybody whose work waits")
    parser = verbs.add_parser("release", "name", help="let it back into use", run=_release)
    parser.add_argument("--slot", type=int, metavar="N", help="only this slot")
    parser.add_argument(
        "--hours",
        type=float,
        metavar="H",
        help="for so long no fault takes it out of use again; needs --reason",
    )
    parser.add_argument("--reason", default="", help="why it may be used in spite of its faults")
    parser = verbs.add_parser(
        "burn-in",
        help="measure hosts by jobs of the lowest priority, and compare them with the other hosts of their pool",
        run=_burn_in,
        action="start the burn-in",
    )
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--pool", help="measure all hosts of this pool that can run jobs")
    parser.add_argument(
        "--together",
        action="store_true",
        help="measure the links between these hosts, by one job on all of them",
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait for the results; end with 1 if something was found"
    )


def _path(name: str, what: str) -> str:
    return f"/api/v1/hosts/{quote(name, safe='')}/{what}"


def _health(client: Client, args: argparse.Namespace) -> None:
    if not args.name:
        output.show(client.hosts(), _HOSTS, args.output)
        return
    answer = client.get(_path(args.name, "health"))
    signs: List[Json] = answer["signs"]
    if args.output in output.STRUCTURED:
        output.structured(answer, args.output)
        return
    if args.output != "table":
        output.show(signs, _SIGNS, args.output)
        return
    print(f"{args.name}: {answer['state']}")
    if answer["outOfUse"]:
        output.show(answer["outOfUse"], _OUT, "table")
    if answer["overruled"]:
        output.show(answer["overruled"], _OVERRULED, "table")
    if answer["burnIn"]:
        _show_burn_in(answer["burnIn"])
    if answer.get("groupBurnIn"):
        say(f"Burn-in together: {', '.join(answer['groupBurnIn']['hosts'])}")
        _show_together(answer["groupBurnIn"])
    if signs:
        output.show(signs, _SIGNS, "table")
    elif answer["kernelLog"]:
        say(f"No fault since Trainmaster began to look (kernel's log: {answer['kernelLog']}).")
    elif not answer["denied"]:
        say("Nobody has looked for faults yet.")
    if answer["denied"]:
        say(answer["denied"], "yellow")


def _quarantine(client: Client, args: argparse.Namespace) -> None:
    client.post(_path(args.name, "quarantine"), {"slot": args.slot, "reason": args.reason})
    done(f"Took {_what(args)} out of use. What runs there ends in its own time.")


def _release(client: Client, args: argparse.Namespace) -> None:
    body = {"slot": args.slot, "hours": args.hours, "reason": args.reason}
    client.post(_path(args.name, "release"), body)
    for_a_time = f". No fault takes it out of use for {args.hours:g} h" if args.hours else ""
    done(f"Released {_what(args)}{for_a_time}")


def _what(args: argparse.Namespace) -> str:
    return str(args.name) if args.slot is None else f"slot {args.slot} of {args.name}"


def _show_burn_in(burn_in: Json) -> None:
    if burn_in["openId"]:
        say(f"A burn-in waits or is running: trainmaster command describe {burn_in['openId'][:8]}")
    if burn_in["figures"]:
        output.show(burn_in["figures"], _FIGURES, "table")
    for finding in burn_in["findings"]:
        say(f"Burn-in: {finding}", "yellow")


def _burn_in(client: Client, args: argparse.Namespace) -> int:
    """Ask for all of them first, so that they run at the same time."""
    if bool(args.names) == bool(args.pool):
        raise UsageError("name one or more hosts, or a pool with --pool.")
    names = args.names or [each["name"] for each in client.hosts() if _may_run(each, args.pool)]
    if not names:
        raise CliError(f"Pool {args.pool} has no host that can run jobs now.")
    if args.together:
        return _together(client, names, wait=args.wait)
    asked = {name: client.post(_path(name, "burn-in"))["commandId"] for name in names}
    for name, command_id in asked.items():
        done(f"Burn-in of {name}: command {command_id[:8]}, once all its slots are free")
    if not args.wait:
        return OK
    found = [name for name, command_id in asked.items() if _found(client, name, command_id)]
    return FAILED if found else OK


def _may_run(host: Json, pool: str) -> bool:
    return (host["pool"], host["state"]) == (pool, "ready")


def _found(client: Client, name: str, command_id: str) -> bool:
    """Wait until it has ended and was judged, and show what was measured; whether anything is wrong."""
    record = wait_end(client, command_id)
    burn_in = _judged(lambda: client.get(_path(name, "health"))["burnIn"])
    if burn_in["commandId"] != command_id:
        raise CliError(f"The burn-in {command_id[:8]} of {name} was followed by another one.")
    print(f"{name}: {record['phase']}")
    _show_burn_in(burn_in)
    wrong: List[str] = burn_in["findings"]
    return bool(wrong) or not burn_in["figures"]


def _judged(read: Callable[[], Json]) -> Json:
    """What a burn-in that has ended has found, once it was judged."""
    deadline = time.monotonic() + _JUDGED_SECONDS
    while True:
        burn_in = read()
        if burn_in.get("judgedAt") or time.monotonic() > deadline:
            return burn_in
        time.sleep(_LOOK_SECONDS)


def _together(client: Client, names: List[str], *, wait: bool) -> int:
    command_id: str = client.post("/api/v1/group-burn-ins", {"hosts": names})["commandId"]
    done(
        f"Burn-in of {len(set(names))} hosts together: command {command_id[:8]}, once all their slots are free"
    )
    if not wait:
        return OK
    record = wait_end(client, command_id)
    burn_in = _judged(lambda: client.get(f"/api/v1/group-burn-ins/{command_id}"))
    print(f"{', '.join(burn_in['hosts'])}: {burn_in['ending'] or record['phase']}")
    _show_together(burn_in)
    return OK if _is_well(record, burn_in) else FAILED


def _is_well(record: Json, burn_in: Json) -> bool:
    """Whether it has measured all and found nothing; one that was killed or withdrawn has no findings either."""
    return record["phase"] == "COMPLETED" and bool(burn_in["rates"]) and not burn_in["findings"]


def _show_together(burn_in: Json) -> None:
    if burn_in["rates"]:
        output.show(burn_in["rates"], _RATES, "table")
    for finding in burn_in["findings"]:
        say(f"Burn-in: {finding['sentence']}", "yellow")

"""`pool`: resource pools and their rules."""

from __future__ import annotations

import argparse
from typing import Any, Callable, List, Optional
from urllib.parse import quote

from trainmaster import group_shares, pool_access, slurm_settings
from trainmaster.cli import output, pool_window, slurm_pool
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import OK, UsageError
from trainmaster.cli.output import SHORT_ID, Column, done
from trainmaster.client import Client, Json
from trainmaster.quantities import duration

#: option → (field of the API, how its value is read, help). A switch has `--NAME` and `--no-NAME`.
_TEXTS = {
    "description": ("description", "a description of the pool"),
    "scheduler": ("scheduler", "the scheduling policy, such as priority or fair_share"),
    "fitting": ("fitting", "where to place work: best (fullest host that fits) or worst (emptiest)"),
    "hang-do": ("hangDo", "what is done if a training hangs: tell, restart or restart_elsewhere"),
    "burn-in": ("burnIn", "when hosts are burnt in without being asked for: never, before_joining or weekly"),
    "burn-in-do": ("burnInDo", "what is done if a burn-in finds less than half: tell or quarantine"),
    "network-interface": ("networkInterface", "the network interface for traffic within gangs"),
}
_NUMBERS = {
    "default-priority": ("defaultPriority", "the priority of jobs that set none, 1 to 99"),
    "default-max-time": ("defaultMaxTimeSeconds", "time limit of jobs that set none, in seconds, or none"),
    "longest-max-time": (
        "longestMaxTimeSeconds",
        "highest time limit that jobs may set, in seconds, or none",
    ),
    "unpreemptible-slots": (
        "unpreemptibleSlots",
        "slots that non-preemptible work may hold in total, or none",
    ),
    "patience": (
        "patienceSeconds",
        "reserve hosts for a gang only if it should start within N seconds plus the time since its submission; or none",
    ),
    "spare-hosts": (
        "spareHosts",
        "keep N hosts on which only work whose own host failed, and burn-ins, run; 0: none",
    ),
    "usage-half-life": (
        "usageHalfLifeSeconds",
        "seconds after which what a group has held counts half in its turn for what is left over; 0: not at all",
    ),
    "aux-per-host": ("auxPerHost", "concurrent zero-slot runs per host"),
    "hang-after": (
        "hangAfterSeconds",
        "look at trainings that make no progress for N seconds (at least 60), or none: never",
    ),
    "host-lost-after": (
        "hostLostAfterSeconds",
        "declare a silent host lost after N seconds, or none: only users declare it",
    ),
}
_SWITCHES = {
    "preemption": ("preemption", "preempt lower-priority work for higher-priority work"),
    "heterogeneous-fits": ("allowHeterogeneousFits", "allow gangs across hosts of different sizes"),
    "launch-error": (
        "launchError",
        "refuse work on one host that is larger than every host; otherwise it waits for such a host",
    ),
    "strict": ("strict", "only its owner and admins may change a job"),
    "shared-account": ("sharedAccount", "run all jobs as the login account, without isolation"),
    "allow-login-account": (
        "allowLoginAccount",
        "run jobs of users without a linked account as the login account, even if that is root or may become root",
    ),
    "default-compute": ("defaultCompute", "use it for work with slots that sets no pool"),
    "default-aux": ("defaultAux", "use it for work without slots that sets no pool"),
}
#: rules that are given in pairs, KEY=N, or as `none`; the key of a number alone, where that is allowed
_PAIRS = {
    "priority-floor": (
        "priorityFloor", "ROLE=N", "editor=20", None,
        "the highest priority a role may use, such as editor=20; none: 1 for all roles",
    ),
    "min-runtime": (
        "minRuntimeSeconds", "[PRIORITY=]SECONDS", "50=600", "1",
        "seconds that work of this priority or lower runs before others can preempt it, such as 600 or 50=60; "
        "none: stop it at any time",
    ),
}  # fmt: skip
_RULES = [
    *_TEXTS.values(),
    *_NUMBERS.values(),
    *_SWITCHES.values(),
    *((one[0], "") for one in _PAIRS.values()),
]
_GROUPS = ("groupShares", "group")
_OPEN_TO = ("openTo", "open-to")


def add(add_noun: Adder) -> None:
    noun = add_noun("pool", aliases=["resource-pool", "rp"], help="manage resource pools and their rules")
    verbs = noun.add_verbs()
    verbs.add_parser("list", aliases=["ls"], help="list all pools", form=True, run=_list)
    verbs.add_parser(
        "describe", "name", aliases=["show"], help="show a pool with all its rules", form=True, run=_describe
    )
    parser = verbs.add_parser(
        "forecasts", "name", help="show promised starts against real ones", form=True, run=_forecasts
    )
    parser.set_defaults(action="read the forecasts of the pool")
    parser = verbs.add_parser("shares", help="show what users and jobs hold, wait for and are entitled to")
    parser.add_argument("name", metavar="POOL")
    by = parser.add_mutually_exclusive_group()
    by.add_argument("--jobs", action="store_true", help="by job instead of by user")
    by.add_argument("--groups", action="store_true", help="by group: guaranteed, held, borrowed, lent")
    output.add_format(parser)
    parser.set_defaults(run=_shares, action="read the shares of the pool")
    for verb, run, text in (
        ("create", _create, "create a pool"),
        ("edit", _edit, "change rules of a pool"),
    ):
        parser = verbs.add_parser(verb, "name", help=text, run=run)
        _add_rules(parser)
        if verb == "create":
            slurm_pool.add_options(parser)
        output.add_format(parser)
    parser = verbs.add_parser("delete", "name", aliases=["rm"], help="delete an empty pool", run=_delete)
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    pool_window.add(verbs)
    parser = verbs.add_parser("move-host", help="move idle hosts to a pool")
    parser.add_argument("name", metavar="POOL")
    parser.add_argument("hosts", nargs="+", metavar="HOST")
    parser.set_defaults(run=_move, action="move the host")


def _add_rules(parser: argparse.ArgumentParser) -> None:
    for name, (field, text) in {**_TEXTS, **_NUMBERS}.items():
        parser.add_argument(f"--{name}", dest=field, metavar="N" if name in _NUMBERS else "TEXT", help=text)
    for name, (field, text) in _SWITCHES.items():
        either = parser.add_mutually_exclusive_group()
        either.add_argument(f"--{name}", dest=field, action="store_true", default=None, help=text)
        either.add_argument(f"--no-{name}", dest=field, action="store_false", help=argparse.SUPPRESS)
    for name, (field, metavar, _, _, text) in _PAIRS.items():
        parser.add_argument(f"--{name}", dest=field, action="append", metavar=metavar, help=text)
    parser.add_argument(
        f"--{_OPEN_TO[1]}",
        dest=_OPEN_TO[0],
        action="append",
        metavar="WHO",
        help=f"who may use the pool: {pool_access.FORM} (may be repeated), or everyone",
    )
    parser.add_argument(
        "--slurm",
        action="append",
        metavar=slurm_settings.FORM,
        help="make it a pool of a Slurm cluster, such as login=stars,partition=gpu (docs/slurm_pool.md has all "
        "settings); with edit: change these, SETTING= takes one back",
    )
    parser.add_argument(
        "--group",
        dest=_GROUPS[0],
        action="append",
        metavar=group_shares.FORM,
        help="what a group gets: slots whenever it asks, a limit, and its weight for what is left over; other "
        "groups stay unchanged; GROUP=none: nothing",
    )


def _rules(args: argparse.Namespace) -> Json:
    """The rules that were given, as the API takes them; the server has the one sentence for what is wrong."""
    given: Json = {field: getattr(args, field) for field, _ in _RULES}
    rules = {field: value for field, value in given.items() if value is not None}
    for field, _ in _NUMBERS.values():
        if field in rules:
            rules[field] = _number(rules[field])
    for name, (field, metavar, example, key, _) in _PAIRS.items():
        if field in rules:
            rules[field] = _pairs(rules[field], f"--{name}", f"{metavar}, such as {example}", key)
    return rules


def _open_to(args: argparse.Namespace) -> Json:
    """The rule who may use the pool, if it was given. Raises UsageError."""
    texts = getattr(args, _OPEN_TO[0])
    if not texts:
        return {}
    try:
        return {_OPEN_TO[0]: {} if texts == ["everyone"] else pool_access.read(texts)}
    except ValueError as error:
        raise UsageError(str(error)) from error


def _slurm(args: argparse.Namespace, before: Json) -> Json:
    """The settings of the cluster with those that were given, if any were. Raises UsageError."""
    if not args.slurm:
        return {}
    try:
        given = slurm_settings.read(",".join(args.slurm))
    except ValueError as error:
        raise UsageError(str(error)) from error
    return {"slurm": slurm_settings.merged(before.get("slurm") or {}, given)}


def _groups(args: argparse.Namespace, before: Json) -> Json:
    """The rule with the groups that were given, if any were. Raises UsageError."""
    texts = getattr(args, _GROUPS[0])
    if not texts:
        return {}
    try:
        shares = {**(before.get(_GROUPS[0]) or {}), **group_shares.read(texts)}
    except ValueError as error:
        raise UsageError(str(error)) from error
    return {_GROUPS[0]: {name: share for name, share in shares.items() if share is not None}}


def _number(text: str) -> Any:
    if text.lower() == "none":
        return None
    try:
        return int(text)
    except ValueError:
        return text


def _pairs(texts: List[str], option: str, allowed: str, key: Optional[str]) -> Json:
    """`key`: that of a value alone, if one may be left out."""
    if texts == ["none"]:
        return {}
    found = {}
    for text in texts:
        first, equals, number = text.partition("=")
        if not equals:
            if key is None:
                raise UsageError(f"found {option} {text!r}, allowed: {allowed}.")
            first, number = key, text
        found[first] = _number(number)
    return found


def _default(row: Json) -> str:
    named = {"compute": row.get("defaultComputePool"), "aux": row.get("defaultAuxPool")}
    return ", ".join(name for name, wears in named.items() if wears)


_POOLS = [
    Column("Name", lambda row: row["name"]),
    Column("Scheduler", lambda row: str(row.get("scheduler") or "").replace("_", " ")),
    Column("Default", _default),
    Column("Agents", lambda row: row.get("numAgents")),
    Column("Slots (used/all)", lambda row: f"{row.get('slotsUsed')}/{row.get('slotsAvailable')}"),
    Column(
        "Aux (running/capacity)",
        lambda row: f"{row.get('auxContainersRunning')}/{row.get('auxContainerCapacity')}",
    ),
    Column("Scheduled", lambda row: (row.get("stats") or {}).get("scheduledCount")),
    Column("Queued", lambda row: (row.get("stats") or {}).get("queuedCount")),
    Column("Accelerator", lambda row: row.get("accelerator")),
]


def _rule(field: str, heading: str) -> Column:
    return Column(heading, lambda row: "none" if row.get(field) is None else row[field])


_DETAILS = [
    *_POOLS,
    *(
        _rule(field, name.replace("-", " ").capitalize() + (" (s)" if field.endswith("Seconds") else ""))
        for name, (field, _) in {**_TEXTS, **_NUMBERS, **_SWITCHES}.items()
        if field != "scheduler"
    ),
    *(_rule(one[0], name.replace("-", " ").capitalize()) for name, one in _PAIRS.items()),
    Column("Spares", lambda row: ", ".join(map(_spare, row.get("spares") or []))),
    Column("Open to", lambda row: pool_access.written(row.get(_OPEN_TO[0]) or {}) or "everyone"),
    Column("Groups", lambda row: " ".join(group_shares.written(row.get(_GROUPS[0]) or {}))),
    Column("Slurm", lambda row: slurm_settings.written(row.get("slurm") or {}) or "no"),
]


def _spare(spare: Json) -> str:
    runs = ", ".join(spare["runs"])
    return f"{spare['host']} (once {runs} ended)" if runs else str(spare["host"])


def _path(name: str) -> str:
    return f"/api/v1/resource-pools/{quote(name, safe='')}"


def _list(client: Client, args: argparse.Namespace) -> None:
    output.show(client.resource_pools(), _POOLS, args.output)


def _describe(client: Client, args: argparse.Namespace) -> None:
    found = client.get(_path(args.name))["resourcePool"]
    output.show_one(found, [*_DETAILS, *(slurm_pool.COLUMNS if found.get("slurm") else [])], args.output)


_SLOTS = [
    Column("Slots held", lambda row: row["held"]),
    Column("Waiting for", lambda row: row["waiting"]),
    Column("Entitled to", lambda row: row.get("entitled")),
]
_SHARES_OF_USERS = [Column("User", lambda row: row["username"]), *_SLOTS]
_SHARES_OF_GROUPS = [
    Column("Group", lambda row: row["group"]),
    Column("Department", lambda row: row["parent"]),
    Column("Guaranteed", lambda row: row["guaranteed"]),
    Column("Limit", lambda row: row["limit"]),
    Column("Weight", lambda row: row["weight"]),
    Column("Slots held", lambda row: row["held"]),
    Column("Borrowed", lambda row: row["borrowed"]),
    Column("Lent", lambda row: row["lent"]),
    Column("Waiting for", lambda row: row["waiting"]),
]
_SHARES_OF_JOBS = [
    Column("Job", lambda row: row["jobId"], lambda job_id: str(job_id)[:SHORT_ID]),
    Column("Name", lambda row: row["name"]),
    Column("User", lambda row: row["username"]),
    Column("Weight", lambda row: row["weight"]),
    *_SLOTS,
]


def _shares(client: Client, args: argparse.Namespace) -> None:
    path = f"{_path(args.name)}/shares"
    if args.jobs:
        rows, columns = client.pages(path, "jobs"), _SHARES_OF_JOBS
    elif args.groups:
        rows, columns = client.get(path)["groups"], _SHARES_OF_GROUPS
    else:
        rows, columns = client.get(path)["users"], _SHARES_OF_USERS
    output.show(rows, columns, args.output)


def _percent(field: str) -> Callable[[Json], Any]:
    return lambda row: None if row.get(field) is None else f"{row[field]:g} %"


def _seconds(field: str) -> Callable[[Json], Any]:
    return lambda row: None if row.get(field) is None else duration(row[field])


_FORECASTS = [
    Column("Promises", lambda row: f"{row['promises']} in {row['days']} days"),
    Column("Started in their range", _percent("inside")),
    Column("Sooner", _percent("sooner")),
    Column("Later", _percent("later")),
    Column("Withdrawn", _percent("withdrawn")),
    Column("Misses after a queue edit", lambda row: row["edited"]),
    Column("Median width", _seconds("medianWidthSeconds")),
    Column("Median error", _seconds("medianErrorSeconds")),
]
_MISSES = [
    Column("Job", lambda row: row["label"]),
    Column("Earliest", lambda row: row["earliest"]),
    Column("Latest", lambda row: row["latest"]),
    Column("Started", lambda row: row.get("startedAt")),
    Column("Off by", lambda row: duration(abs(row["errorSeconds"]))),
    Column("Queue edited", lambda row: row["edited"]),
    Column("Why", lambda row: row["why"]),
]


def _forecasts(client: Client, args: argparse.Namespace) -> None:
    found = client.get(f"{_path(args.name)}/forecasts")
    output.show_one(found, _FORECASTS, args.output)
    if args.output == "table" and found["worst"]:
        print()
        output.show(found["worst"], _MISSES, args.output)


def _create(client: Client, args: argparse.Namespace) -> int:
    body = {"name": args.name, **_rules(args), **_open_to(args), **_groups(args, {}), **_slurm(args, {})}
    if body.get("slurm"):
        return slurm_pool.create(client, args, body)
    made = client.post("/api/v1/resource-pools", body)["resourcePool"]
    output.told(made, _DETAILS, args, f"Created pool {args.name}")
    return OK


def _edit(client: Client, args: argparse.Namespace) -> None:
    rules = _rules(args)
    rules.update(_open_to(args))
    if not (rules or args.slurm or getattr(args, _GROUPS[0])):
        raise UsageError("name at least one rule to change; see --help.")
    before = client.get(_path(args.name))["resourcePool"]
    rules.update(_groups(args, before))
    rules.update(_slurm(args, before))
    answer = client.edit_resource_pool(args.name, rules)
    changes = _changes(before, answer["resourcePool"], answer.get("changed") or [])
    sentence = f"Changed pool {args.name}: {', '.join(changes)}" if changes else "Nothing changed."
    output.told(answer["resourcePool"], _DETAILS, args, sentence)


def _changes(before: Json, after: Json, fields: List[str]) -> List[str]:
    """`default-priority from 42 to 30`, by the names of the options."""
    options = {field: name for name, (field, _) in {**_TEXTS, **_NUMBERS, **_SWITCHES}.items()}
    options.update((one[0], name) for name, one in _PAIRS.items())
    options.update([_GROUPS, _OPEN_TO])
    if "slurm" in fields:
        before, after = ({**row, "slurm": slurm_settings.written(row["slurm"])} for row in (before, after))
    return [
        f"{options.get(field, field)} from {_in_words(before.get(field))} to {_in_words(after.get(field))}"
        for field in fields
    ]


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict) and any(isinstance(each, list) for each in value.values()):
        return pool_access.written(value)
    if isinstance(value, dict) and any(isinstance(each, dict) for each in value.values()):
        return " ".join(group_shares.written(value))
    if isinstance(value, dict):
        return " ".join(f"{role}={floor}" for role, floor in sorted(value.items())) or "none"
    return "none" if value in (None, "") else str(value)


def _delete(client: Client, args: argparse.Namespace) -> None:
    output.confirm(f"Delete the pool {args.name}?", "Nothing was deleted.", args.yes)
    client.call("DELETE", _path(args.name))
    done(f"Deleted pool {args.name}")


def _move(client: Client, args: argparse.Namespace) -> None:
    for host in args.hosts:
        client.call("PATCH", f"/api/v1/hosts/{quote(host, safe='')}", {"pool": args.name})
        done(f"Moved host {host} to pool {args.name}")

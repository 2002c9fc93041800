"""`slot`: the slots (GPUs, CPU shares) of all hosts, and switching one for new work."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.agent import confirm_stops, hosts_of, running, tell_stopped
from trainmaster.cli.arguments import Adder
from trainmaster.cli.output import Column, done, say
from trainmaster.client import Client, Json


def add(add_noun: Adder) -> None:
    verbs = add_noun("slot", aliases=["s"], help="manage the slots (GPUs) of hosts").add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list all slots and what holds them")
    output.add_format(parser)
    parser.set_defaults(run=_list, action="list the slots")
    for verb, text in (
        ("enable", "let a slot take new work again"),
        ("disable", "stop the work on a slot and give it no new work"),
    ):
        parser = verbs.add_parser(verb, help=text)
        parser.add_argument("agent_id", metavar="AGENT_ID")
        parser.add_argument("slot_id", type=int, metavar="SLOT_ID")
        parser.set_defaults(run=_enable if verb == "enable" else _disable, action=f"{verb} the slot")
    parser.add_argument("--drain", action="store_true", help="let running work finish")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask before stopping running work")


_SLOTS = [
    Column("Agent ID", lambda row: row["agent"]["id"]),
    Column("Resource Pool", lambda row: ", ".join(row["agent"].get("resourcePools") or [])),
    Column("Slot ID", lambda row: row["id"]),
    Column("Enabled", lambda row: row.get("enabled")),
    Column("Draining", lambda row: row.get("draining")),
    Column("Allocation ID", lambda row: _holder(row).get("allocationId") or _use(row)),
    Column("Task Name", lambda row: _holder(row).get("name") or _other(row)),
    Column("Type", lambda row: str((row.get("device") or {}).get("type", "")).replace("TYPE_", "").lower()),
    Column("Device", lambda row: (row.get("device") or {}).get("brand")),
]


def _holder(row: Json) -> Json:
    return dict(row.get("heldBy") or {})


def _use(row: Json) -> str:
    return "OCCUPIED" if row.get("container") else "FREE"


def _other(row: Json) -> str:
    """What stands under the task's name of a slot that no task holds."""
    return str((row.get("container") or {}).get("id") or "FREE")


def _list(client: Client, args: argparse.Namespace) -> None:
    rows = [
        {**slot, "agent": {"id": agent["id"], "resourcePools": agent.get("resourcePools")}}
        for agent in client.pages("/api/v1/agents", "agents")
        for slot in (agent.get("slots") or {}).values()
    ]
    output.show(rows, _SLOTS, args.output)


def _path(args: argparse.Namespace, verb: str) -> str:
    return f"/api/v1/agents/{quote(args.agent_id, safe='')}/slots/{args.slot_id}/{verb}"


def _enable(client: Client, args: argparse.Namespace) -> None:
    client.post(_path(args, "enable"))
    done(f"Enabled slot {args.slot_id} of agent {args.agent_id}")


def _disable(client: Client, args: argparse.Namespace) -> None:
    there = [task for task in running(client) if args.slot_id in hosts_of(task).get(args.agent_id, [])]
    what = f"Disabling slot {args.slot_id} of {args.agent_id}"
    if not args.drain:
        confirm_stops(there, what, args.yes)
    client.post(_path(args, "disable"), {"drain": args.drain})
    done(f"{'Draining' if args.drain else 'Disabled'} slot {args.slot_id} of agent {args.agent_id}")
    if not args.drain:
        tell_stopped(there)
        return
    for task in there:
        say(f"Still in progress there: {output.clean(str(task.get('name')))}")

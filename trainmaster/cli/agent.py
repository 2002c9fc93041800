"""`agent` and `slot`: hosts under the names that Determined's users know."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Dict, List
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.errors import OK, CliError
from trainmaster.cli.output import Column, done, local_time
from trainmaster.client import Client

Json = Dict[str, Any]
Adder = Callable[..., argparse.ArgumentParser]


def add(add_noun: Adder) -> None:
    noun = add_noun("agent", aliases=["a"], help="hosts, by Determined's name")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    parser = verbs.add_parser("list", aliases=["ls"], help="all hosts")
    output.add_format(parser)
    parser.set_defaults(run=_agents, action="list the agents")
    for verb in ("enable", "disable"):
        parser = verbs.add_parser(verb, help=f"{verb} hosts for new work")
        parser.add_argument("agent_id", nargs="?")
        parser.add_argument("--all", action="store_true")
        if verb == "disable":
            parser.add_argument("--drain", action="store_true", help="let running work finish")
        parser.set_defaults(run=_switch, verb=verb, drain=False, action=f"{verb} the agent")
    noun = add_noun("slot", aliases=["s"], help="the slots (GPUs) of hosts")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    parser = verbs.add_parser("list", aliases=["ls"], help="all slots")
    output.add_format(parser)
    parser.set_defaults(run=_slots, action="list the slots")
    for verb in ("enable", "disable"):
        parser = verbs.add_parser(verb, help=f"{verb} one slot")
        parser.add_argument("agent_id")
        parser.add_argument("slot_id")
        parser.set_defaults(run=_switch_slot, verb=verb, action=f"{verb} the slot")


_AGENTS = [
    Column("Agent ID", lambda row: row["id"]),
    Column("Version", lambda row: row.get("version")),
    Column("Registered Time", lambda row: local_time(row.get("registeredTime"))),
    Column("Slots", lambda row: len(row.get("slots") or {})),
    Column("Containers", lambda row: len(row.get("containers") or {})),
    Column("Resource Pool", lambda row: ", ".join(row.get("resourcePools") or [])),
    Column("Enabled", lambda row: row.get("enabled")),
    Column("Draining", lambda row: row.get("draining")),
    Column("Addresses", lambda row: ", ".join(row.get("addresses") or [])),
]
_SLOTS = [
    Column("Agent ID", lambda row: row["agent"]["id"]),
    Column("Resource Pool", lambda row: ", ".join(row["agent"].get("resourcePools") or [])),
    Column("Slot ID", lambda row: row["id"]),
    Column("Enabled", lambda row: row.get("enabled")),
    Column("Draining", lambda row: row.get("draining")),
    Column("Allocation ID", lambda row: (row.get("container") or {}).get("allocationId") or _use(row)),
    Column("Task Name", lambda row: (row.get("container") or {}).get("taskName")),
    Column("Type", lambda row: str((row.get("device") or {}).get("type", "")).replace("TYPE_", "")),
    Column("Device", lambda row: (row.get("device") or {}).get("brand")),
]


def _use(row: Json) -> str:
    return "OCCUPIED" if row.get("container") else "FREE"


def _agents(client: Client, args: argparse.Namespace) -> int:
    output.show(client.pages("/api/v1/agents", "agents"), _AGENTS, args.output)
    return OK


def _slots(client: Client, args: argparse.Namespace) -> int:
    rows = [
        {**slot, "agent": {"id": agent["id"], "resourcePools": agent.get("resourcePools")}}
        for agent in client.pages("/api/v1/agents", "agents")
        for slot in (agent.get("slots") or {}).values()
    ]
    output.show(rows, _SLOTS, args.output)
    return OK


def _chosen(client: Client, args: argparse.Namespace) -> List[str]:
    if bool(args.agent_id) == args.all:
        raise CliError("name one agent, or use --all.")
    return (
        [agent["id"] for agent in client.pages("/api/v1/agents", "agents")] if args.all else [args.agent_id]
    )


def _switch(client: Client, args: argparse.Namespace) -> int:
    for agent_id in _chosen(client, args):
        body = {"agentId": agent_id, "drain": args.drain} if args.verb == "disable" else {}
        client.post(f"/api/v1/agents/{quote(agent_id, safe='')}/{args.verb}", body)
        done(
            f"{'Enabled' if args.verb == 'enable' else 'Draining' if args.drain else 'Disabled'} agent {agent_id}"
        )
    return OK


def _switch_slot(client: Client, args: argparse.Namespace) -> int:
    client.post(
        f"/api/v1/agents/{quote(args.agent_id, safe='')}/slots/{quote(args.slot_id, safe='')}/{args.verb}"
    )
    done(f"{args.verb.capitalize()}d slot {args.slot_id} of agent {args.agent_id}")
    return OK

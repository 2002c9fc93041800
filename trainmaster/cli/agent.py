"""`agent`: hosts under the name that Determined's users know; `slot`: their slots (GPUs, CPU shares)."""

from __future__ import annotations

import argparse
from typing import Dict, List
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import UsageError
from trainmaster.cli.output import SHORT_ID, Column, done, local_time, say
from trainmaster.client import Client, Json


def add(add_noun: Adder) -> None:
    _add_agent(add_noun)
    _add_slot(add_noun)


def _add_agent(add_noun: Adder) -> None:
    verbs = add_noun("agent", aliases=["a"], help="manage hosts (Determined's name for `host`)").add_verbs()
    verbs.add_parser("list", aliases=["ls"], help="list all hosts", form=True, run=_list)
    parser = verbs.add_parser("enable", help="let hosts take new work again", run=_enable)
    _add_which(parser)
    parser = verbs.add_parser("disable", help="stop work on hosts and give them no new work", run=_disable)
    _add_which(parser)
    parser.add_argument("--drain", action="store_true", help="let running work finish; list it")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask before stopping running work")
    output.add_format(parser)


def _add_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent_id", nargs="?", metavar="AGENT_ID")
    parser.add_argument("--all", action="store_true", help="every host")


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
TASKS = [
    Column("Task ID", lambda row: row["taskId"]),
    Column("Allocation ID", lambda row: row["allocationId"]),
    Column("Name", lambda row: row.get("name")),
    Column("Slots Needed", lambda row: row.get("slotsNeeded")),
    Column("Registered Time", lambda row: local_time(row.get("registeredTime"))),
    Column("Agent", lambda row: ", ".join(hosts_of(row)) or "unassigned"),
    Column("Priority", lambda row: row.get("priority")),
    Column("Resource Pool", lambda row: row.get("resourcePool")),
]


def hosts_of(task: Json) -> Dict[str, List[int]]:
    """Host -> the slots of it that the task holds."""
    found: Dict[str, List[int]] = {}
    for resource in task.get("resources") or []:
        for host, held in (resource.get("agentDevices") or {}).items():
            found.setdefault(host, []).extend(device["id"] for device in held.get("devices") or [])
    return found


def running(client: Client) -> List[Json]:
    """What holds slots now, by the server's own records."""
    return list(client.get("/api/v1/tasks")["allocationIdToSummary"].values())


def _confirm_stops(tasks: List[Json], what: str, yes: bool) -> None:
    """Ask whether these tasks may be stopped; without a terminal nobody is asked. Raises Declined."""
    if yes or not tasks or not output.is_interactive():
        return
    again = "which goes back to the queue" if len(tasks) == 1 else "which go back to the queue"
    say(
        f"{what} stops {len(tasks)} running task{'' if len(tasks) == 1 else 's'}, {again} (commands end for good):"
    )
    for task in tasks:
        say(f"  {output.clean(str(task.get('name')))} on {', '.join(sorted(hosts_of(task)))}")
    output.confirm("Continue? Use --drain to let them finish instead.", "Nothing was changed.")


def tell_stopped(tasks: List[Json]) -> None:
    """`stopped: cmd 85ff004b, exp 4`, for scripts above all, which nobody asks."""
    if tasks:
        say(f"stopped: {', '.join(dict.fromkeys(_short(str(task['taskId'])) for task in tasks))}", "yellow")


def _short(task_id: str) -> str:
    """A trial's task is named after its experiment, `4.…`; a command's has the command's id."""
    experiment, dot, _ = task_id.partition(".")
    return f"exp {experiment}" if dot else f"cmd {task_id[:SHORT_ID]}"


def _list(client: Client, args: argparse.Namespace) -> None:
    output.show(client.pages("/api/v1/agents", "agents"), _AGENTS, args.output)


def _chosen(client: Client, args: argparse.Namespace) -> List[str]:
    if bool(args.agent_id) == args.all:
        raise UsageError("name one agent, or use --all.")
    if args.agent_id:
        return [args.agent_id]
    return [agent["id"] for agent in client.pages("/api/v1/agents", "agents")]


def _enable(client: Client, args: argparse.Namespace) -> None:
    for agent_id in _chosen(client, args):
        client.post(f"/api/v1/agents/{quote(agent_id, safe='')}/enable")
        done(f"Enabled agent {agent_id}.")


def _disable(client: Client, args: argparse.Namespace) -> None:
    chosen = _chosen(client, args)
    there = [task for task in running(client) if set(chosen) & set(hosts_of(task))]
    what = f"Disabling {', '.join(chosen[:3])}{f' and {len(chosen) - 3} more' if len(chosen) > 3 else ''}"
    if not args.drain:
        _confirm_stops(there, what, args.yes)
    for agent_id in chosen:
        body = {"agentId": agent_id, "drain": args.drain}
        client.post(f"/api/v1/agents/{quote(agent_id, safe='')}/disable", body)
        say(f"{'Draining' if args.drain else 'Disabled'} agent {agent_id}.", "green")
    if not args.drain:
        tell_stopped(there)
    if args.drain:
        there = [task for task in running(client) if set(chosen) & set(hosts_of(task))]
        if args.output == "table":
            say(f"{'Tasks still in progress' if there else 'No tasks in progress'} on draining agents.")
        if there or args.output != "table":
            output.show(there, TASKS, args.output)


# --- slot -----------------------------------------------------------------------------------------------------


def _add_slot(add_noun: Adder) -> None:
    verbs = add_noun("slot", aliases=["s"], help="manage the slots (GPUs) of hosts").add_verbs()
    parser = verbs.add_parser(
        "list", aliases=["ls"], help="list all slots and what holds them", form=True, run=_list_slots
    )
    for verb, text in (
        ("enable", "let a slot take new work again"),
        ("disable", "stop the work on a slot and give it no new work"),
    ):
        parser = verbs.add_parser(verb, help=text, run=_enable_slot if verb == "enable" else _disable_slot)
        parser.add_argument("agent_id", metavar="AGENT_ID")
        parser.add_argument("slot_id", type=int, metavar="SLOT_ID")
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


def _list_slots(client: Client, args: argparse.Namespace) -> None:
    rows = [
        {**slot, "agent": {"id": agent["id"], "resourcePools": agent.get("resourcePools")}}
        for agent in client.pages("/api/v1/agents", "agents")
        for slot in (agent.get("slots") or {}).values()
    ]
    output.show(rows, _SLOTS, args.output)


def _slot_path(args: argparse.Namespace, verb: str) -> str:
    return f"/api/v1/agents/{quote(args.agent_id, safe='')}/slots/{args.slot_id}/{verb}"


def _enable_slot(client: Client, args: argparse.Namespace) -> None:
    client.post(_slot_path(args, "enable"))
    done(f"Enabled slot {args.slot_id} of agent {args.agent_id}")


def _disable_slot(client: Client, args: argparse.Namespace) -> None:
    there = [task for task in running(client) if args.slot_id in hosts_of(task).get(args.agent_id, [])]
    what = f"Disabling slot {args.slot_id} of {args.agent_id}"
    if not args.drain:
        _confirm_stops(there, what, args.yes)
    client.post(_slot_path(args, "disable"), {"drain": args.drain})
    done(f"{'Draining' if args.drain else 'Disabled'} slot {args.slot_id} of agent {args.agent_id}")
    if not args.drain:
        tell_stopped(there)
        return
    for task in there:
        say(f"Still in progress there: {output.clean(str(task.get('name')))}")

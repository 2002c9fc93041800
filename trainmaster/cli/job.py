"""`job`: the queue of a pool and its order."""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, Optional, Set

from trainmaster.cli import output
from trainmaster.cli.errors import OK, CliError
from trainmaster.cli.output import Column, done, local_time
from trainmaster.cli.prefixes import SHOWN, the_one
from trainmaster.client import Client
from trainmaster.http import Answered

Json = Dict[str, Any]
Adder = Callable[..., argparse.ArgumentParser]

#: operation → (field of the request, how its value is read)
_OPERATIONS: Dict[str, "tuple[str, Callable[[str], Any]]"] = {
    "priority": ("priority", int),
    "weight": ("weight", float),
    "resource-pool": ("resourcePool", str),
    "ahead-of": ("aheadOf", str),
    "behind-of": ("behindOf", str),
}
_ANCHORS = ("aheadOf", "behindOf")


def add(add_noun: Adder) -> None:
    noun = add_noun("job", aliases=["j"], help="the job queue")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    parser = verbs.add_parser("list", aliases=["ls"], help="the queue of a pool, in order")
    parser.add_argument("-p", "--resource-pool", metavar="POOL", help="default: the default pool")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--pages", choices=["1", "all"], default="1")
    parser.add_argument("--reverse", action="store_true", help="the last job first")
    output.add_format(parser, "yaml")
    parser.set_defaults(run=_list, action="list the jobs")
    parser = verbs.add_parser("explain", aliases=["why"], help="all that keeps a job waiting")
    parser.add_argument("job_id", metavar="JOB_ID")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="how to print the answer")
    parser.set_defaults(run=_explain, action="explain the job")
    _add_update(verbs)


def _add_update(verbs: Any) -> None:
    parser = verbs.add_parser("update", aliases=["u"], help="priority, weight, place or pool of a job")
    parser.add_argument("job_id", metavar="JOB_ID")
    change = parser.add_mutually_exclusive_group(required=True)
    change.add_argument("-p", "--priority", metavar="N", help="1 to 99, 1 is the highest")
    change.add_argument("-w", "--weight", metavar="F", help="share in a fair-share pool, above 0")
    change.add_argument("--resource-pool", metavar="POOL")
    change.add_argument("--ahead-of", metavar="JOB_ID")
    change.add_argument("--behind-of", metavar="JOB_ID")
    parser.set_defaults(run=_update, action="update the job")
    parser = verbs.add_parser(
        "update-batch", help="several changes at once, such as ID.priority=1 ID.ahead-of=ID"
    )
    parser.add_argument("updates", nargs="+", metavar="ID.OPERATION=VALUE")
    parser.set_defaults(run=_update_batch, action="update the jobs")


def _columns(weighted: bool, short: bool) -> List[Column]:
    worth = (
        Column("Weight", lambda row: row.get("weight"))
        if weighted
        else Column("Priority", lambda row: row.get("priority"))
    )
    return [
        Column("#", lambda row: _ahead(row)),
        Column("ID", lambda row: row["jobId"][:SHOWN] if short else row["jobId"]),
        Column("Type", lambda row: row["type"]),
        Column("Job Name", lambda row: row.get("name")),
        worth,
        Column("Submitted", lambda row: local_time(row.get("submissionTime"))),
        Column("Slots (acquired/needed)", lambda row: f"{row['allocatedSlots']}/{row['requestedSlots']}"),
        Column("Status", lambda row: _status(row, short)),
        Column("User", lambda row: row.get("username")),
    ]


def _ahead(row: Json) -> Any:
    ahead = (row.get("summary") or {}).get("jobsAhead", -1)
    return "N/A" if ahead < 0 else ahead


def _status(row: Json, short: bool) -> str:
    found = str((row.get("summary") or {}).get("state", ""))
    return f"{found} (stopping)" if short and row.get("stopping") else found


def _reason(row: Json) -> Optional[str]:
    reason = row.get("reason")
    if isinstance(reason, dict):
        reason = reason.get("sentence") or reason.get("text") or reason.get("code")
    return str(reason) if reason else None


def _list(client: Client, args: argparse.Namespace) -> int:
    limit = 0 if args.pages == "all" else args.limit
    rows = client.job_queue(args.resource_pool, limit, args.offset, args.reverse)
    columns = _columns(_is_weighted(client, args.resource_pool), args.output == "table")
    if args.output != "table" or any(map(_reason, rows)):
        columns.append(Column("Waits for", _reason))
    output.show(rows, columns, args.output)
    return OK


def _explain(client: Client, args: argparse.Namespace) -> int:
    found = client.explain_job(args.job_id)
    if args.output == "json":
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(_explained(found)))
    return OK


def _explained(found: Json) -> List[str]:
    """The job's place, then task by task all that it waits for."""
    ahead = (found.get("summary") or {}).get("jobsAhead", -1)
    place = f", {ahead} ahead of it" if ahead >= 0 else ""
    lines = [f"Job {found['jobId'][:SHOWN]} in pool {found['resourcePool']}: {found['state'].lower()}{place}"]
    for task in found["tasks"]:
        slots = "1 slot" if task["slots"] == 1 else f"{task['slots']} slots"
        lines.append(f"{task['taskId']} ({slots}): {task['state'].lower()}")
        blockers = task.get("blockers")
        if blockers is not None:
            lines += [f"  - {blocker['sentence']}" for blocker in blockers] or ["  - starts with the next pass"]
        forecast = task.get("forecast")
        if forecast:
            lines.append("  starts between " + " and ".join(local_time(_utc(moment)) for moment in forecast))
    return [output.clean(line) for line in lines]


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_weighted(client: Client, name: Optional[str]) -> bool:
    try:
        pools = client.resource_pools()
    except Answered:
        return False
    chosen = [pool for pool in pools if pool["name"] == name or (not name and pool.get("defaultComputePool"))]
    return bool(chosen) and str(chosen[0].get("schedulerType", "")).endswith("FAIR_SHARE")


def _update(client: Client, args: argparse.Namespace) -> int:
    given = {name: getattr(args, name.replace("-", "_")) for name in _OPERATIONS}
    name, text = next((name, text) for name, text in given.items() if text is not None)
    return _send(client, [_change(args.job_id, name, text)])


def _update_batch(client: Client, args: argparse.Namespace) -> int:
    return _send(client, [_parsed(text) for text in args.updates])


def _parsed(text: str) -> Json:
    left, equals, value = text.partition("=")
    job_id, dot, operation = left.rpartition(".")
    if not (equals and dot and job_id and value):
        raise CliError(f"found {text!r}, allowed: <jobID>.<operation>=<value>.")
    if operation not in _OPERATIONS:
        raise CliError(f"found the operation {operation!r}, allowed: {', '.join(_OPERATIONS)}.")
    return _change(job_id, operation, value)


def _change(job_id: str, operation: str, text: str) -> Json:
    field, read = _OPERATIONS[operation]
    try:
        return {"jobId": job_id, field: read(text)}
    except ValueError:
        return {"jobId": job_id, field: text}  # the server has the one sentence for it


def _send(client: Client, updates: List[Json]) -> int:
    known = _known_ids(client)
    for update in updates:
        for field in ("jobId", *_ANCHORS):
            if field in update:
                update[field] = the_one(update[field], known, "Job")
    changes = client.update_jobs(updates)
    done("\n".join(changes) if changes else f"Updated {_counted(updates)}.")
    return OK


def _counted(updates: List[Json]) -> str:
    jobs = {update["jobId"] for update in updates}
    return f"job {jobs.pop()}" if len(jobs) == 1 else f"{len(jobs)} jobs"


def _known_ids(client: Client) -> Set[str]:
    """Ids of the jobs in all pools: only with them can a prefix be told to be unique."""
    names: List[Optional[str]] = [pool["name"] for pool in client.resource_pools()]
    return {str(row["jobId"]) for name in names or [None] for row in client.job_queue(name)}

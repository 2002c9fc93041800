"""`job`: the queue of a pool, and why a job waits in it."""

from __future__ import annotations

import argparse
from typing import Any, List, Optional

from trainmaster.cli import job_edits, output
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import CliError
from trainmaster.cli.job_edits import local_clock
from trainmaster.cli.output import SHORT_ID, Column, local_time
from trainmaster.client import Client, Json
from trainmaster.http import Answered
from trainmaster.quantities import counted


def add(add_noun: Adder) -> None:
    verbs = add_noun("job", aliases=["j"], help="show and edit the job queue").add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list the queue of a pool, in order")
    parser.add_argument("-p", "--resource-pool", metavar="POOL", help="the pool (default: the default pool)")
    parser.add_argument(
        "--mine", action="store_true", help="only your jobs, with their places among all jobs"
    )
    parser.add_argument(
        "--why", action="store_true", help="also show why each job is waiting and when it starts"
    )
    output.add_part(parser, 100)
    parser.add_argument("--reverse", action="store_true", help="list the last job first")
    output.add_format(parser)
    parser.set_defaults(run=_list, action="list the jobs")
    parser = verbs.add_parser("explain", aliases=["why"], help="show everything that keeps a job waiting")
    parser.add_argument("job_id", metavar="JOB_ID|EXPERIMENT_ID")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")
    parser.set_defaults(run=_explain, action="explain the job")
    job_edits.add(verbs)


def _columns(weighted: bool, short: bool) -> List[Column]:
    worth = (
        Column("Weight", lambda row: row.get("weight"))
        if weighted
        else Column("Priority", lambda row: row.get("priority"))
    )
    return [
        Column("#", lambda row: _ahead(row)),
        Column("ID", lambda row: row["jobId"][:SHORT_ID] if short else row["jobId"]),
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
    """The state, and beside it that runs are leaving: `STATE_SCHEDULED (pausing)`."""
    found = str((row.get("summary") or {}).get("state", ""))
    leaving = row.get("leaving")
    return f"{found} ({leaving})" if short and leaving else found


def _reason(row: Json) -> Optional[str]:
    reason = row.get("reason")
    if isinstance(reason, dict):
        reason = reason.get("sentence") or reason.get("code")
    return str(reason) if reason else None


def _starts(row: Json) -> Optional[str]:
    if row.get("forecast"):
        return " to ".join(map(local_clock, row["forecast"]))
    return "unknown" if row.get("reason") else None


def _list(client: Client, args: argparse.Namespace) -> None:
    user = client.me()["username"] if args.mine else None
    rows = client.job_queue(args.resource_pool, output.limit(args), args.offset, args.reverse, user)
    columns = _columns(_is_weighted(client, args.resource_pool), args.output == "table")
    if args.why or args.output != "table":
        columns += [Column("Waiting for", _reason), Column("Starts", _starts)]
    output.show(rows, columns, args.output)


def _explain(client: Client, args: argparse.Namespace) -> None:
    found = client.explain_job(_job_id(client, args.job_id))
    if args.output in output.STRUCTURED:
        output.structured(found, args.output)
    else:
        print("\n".join(_explained(found)))


def _job_id(client: Client, given: str) -> str:
    """The job of an experiment that is given by its number. Digits that are no experiment's may begin a job's id."""
    if not given.isdecimal():
        return given
    try:
        return str(client.experiment(int(given))["experiment"]["jobId"])
    except Answered as error:
        if error.status != 404:
            raise
    try:
        return str(client.explain_job(given)["jobId"])
    except Answered as error:
        if error.status != 404:
            raise
        raise CliError(
            f"there is no experiment {given}, and no job whose id begins with {given}; "
            "`trainmaster job list` shows job ids, `trainmaster experiment list` shows experiment ids."
        ) from error


def _explained(found: Json) -> List[str]:
    """The job's place, task by task all that it waits for and when it starts, and the last edits."""
    ahead = (found.get("summary") or {}).get("jobsAhead", -1)
    place = f", {counted(ahead, 'job')} ahead" if ahead >= 0 else ""
    leaving = f", {found['leaving']}" if found.get("leaving") else ""
    job = f"Job {found['jobId'][:SHORT_ID]} in pool {found['resourcePool']}"
    lines = [f"{job}: {found['state'].lower()}{leaving}{place}"]
    for task in found["tasks"]:
        lines.append(f"{task['taskId']} ({counted(task['slots'], 'slot')}): {task['state'].lower()}")
        if task.get("blockers") is not None:
            lines += _waits(task)
    if found.get("edits"):
        lines += ["Edits:", *(f"  {_edit(edit)}" for edit in found["edits"])]
    return [output.clean(line) for line in lines]


def _waits(task: Json) -> List[str]:
    blockers = task["blockers"]
    if not blockers:
        return ["  - starts on the next pass"]
    lines = [f"  - {blocker['sentence']}" for blocker in blockers]
    if task.get("forecast"):
        return [*lines, "  starts between " + " and ".join(map(local_clock, task["forecast"]))]
    unknown = task.get("forecastUnknown") or "the last pass made no forecast for it"
    return [*lines, f"  start time unknown: {unknown}"]


def _edit(edit: Json) -> str:
    undo = " (undo)" if edit.get("undo") else ""
    return f"{local_time(edit['at'])}  {edit['user']}: {edit['change']}{undo}"


def _is_weighted(client: Client, name: Optional[str]) -> bool:
    try:
        pools = client.resource_pools()
    except Answered:
        return False
    chosen = [pool for pool in pools if pool["name"] == name or (not name and pool.get("defaultComputePool"))]
    return bool(chosen) and "priorityScheduler" not in (chosen[0].get("details") or {})

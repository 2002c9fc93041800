"""`job`: the queue of a pool, why a job waits in it, and edits of the queue, shown before they are made."""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, Optional, Tuple

from trainmaster.cli import output
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import CliError
from trainmaster.cli.output import SHORT_ID, Column, clean, done, is_interactive, local_time, say
from trainmaster.client import Client, Json
from trainmaster.http import Answered
from trainmaster.quantities import counted, duration


def add(add_noun: Adder) -> None:
    verbs = add_noun("job", aliases=["j"], help="show and edit the job queue").add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list the queue of a pool, in order", run=_list)
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
    parser = verbs.add_parser("explain", aliases=["why"], help="show everything that keeps a job waiting")
    parser.add_argument("job_id", metavar="JOB_ID|EXPERIMENT_ID")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")
    parser.set_defaults(run=_explain, action="explain the job")
    _add_edits(verbs)


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
    return _when(row) if row.get("forecast") else "unknown" if row.get("reason") else None


def _list(client: Client, args: argparse.Namespace) -> None:
    user = client.me()["username"] if args.mine else None
    rows = client.job_queue(args.resource_pool, output.limit(args), args.offset, args.reverse, user)
    columns = _columns(_is_weighted(client, args.resource_pool), args.output == "table")
    if args.why or args.output != "table":
        columns += [Column("Waiting for", _reason), Column("Starts", _starts)]
    if args.output != "table" or any(row.get("deadline") for row in rows):
        columns.append(Column("Deadline", lambda row: local_time(row.get("deadline"))))
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
    if found.get("deadline"):
        outlook = (found.get("deadlineOutlook") or {}).get("sentence")
        lines.append(f"Deadline {local_time(found['deadline'])}" + (f": {outlook}" if outlook else ""))
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
    if task.get("forecastBy"):
        said = _local_clock(task["forecastSaidAt"])
        return [*lines, f"  {_when(task)}, reported at {said}"]
    if task.get("forecast"):
        return [*lines, "  starts between " + " and ".join(map(_local_clock, task["forecast"]))]
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
    return bool(chosen) and not (chosen[0].get("details") or {}).get("priorityScheduler")


# --- job update, update-batch and undo ------------------------------------------------------------------------

#: operation → (field of the request, how its value is read)
_OPERATIONS: Dict[str, Tuple[str, Callable[[str], Any]]] = {
    "priority": ("priority", int),
    "weight": ("weight", float),
    "max-slots": ("maxSlots", lambda text: None if text.lower() == "none" else int(text)),
    "deadline": ("deadline", lambda text: None if text.lower() == "none" else text),
    "resource-pool": ("resourcePool", str),
    "ahead-of": ("aheadOf", str),
    "behind-of": ("behindOf", str),
    "position": ("position", int),
}
_TO_TOP = "to-top"  # the one operation without a value
#: places of the new order that are printed
_MOST_PLACES = 12


def _add_edits(verbs: Any) -> None:
    parser = verbs.add_parser(
        "update",
        aliases=["u"],
        help="change priority, weight, slot limit, pool and position of a job in one step",
    )
    parser.add_argument("job_id", metavar="JOB_ID")
    parser.add_argument("-p", "--priority", metavar="N", help="1 (highest) to 99")
    parser.add_argument("-w", "--weight", metavar="F", help="weight in a fair-share pool: a number above 0")
    parser.add_argument(
        "--max-slots", metavar="N", help="slots its trials may hold at once, or none: no limit"
    )
    parser.add_argument(
        "--deadline",
        metavar="WHEN",
        help="when it should have ended: a date and time (UTC), a duration from now such as 8h, or none",
    )
    parser.add_argument("--resource-pool", metavar="POOL")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--ahead-of", metavar="JOB_ID")
    place.add_argument("--behind-of", metavar="JOB_ID")
    place.add_argument("--position", metavar="N", help="position in the queue; 1 is the first")
    place.add_argument("--to-top", action="store_true", help="move it ahead of all jobs in the pool")
    _add_caution(parser)
    parser.set_defaults(run=_update, action="update the job", usage_error=parser.error)
    parser = verbs.add_parser(
        "update-batch",
        help="make several changes at once, such as ID.priority=1 ID.ahead-of=ID",
        epilog="Operations: priority=N, weight=F, max-slots=N (or none), deadline=WHEN (or none), resource-pool=POOL, "
        "ahead-of=JOB_ID, behind-of=JOB_ID, position=N and to-top, which takes no value: ID.to-top. Either all changes "
        "are made or none.",
    )
    parser.add_argument("updates", nargs="+", metavar="ID.OPERATION=VALUE", help="see below")
    _add_caution(parser)
    parser.set_defaults(run=_update_batch, action="update the jobs")
    verbs.add_parser("undo", help="undo your last edit of the queue", run=_undo, action="undo the last edit")


def _add_caution(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would happen; change nothing")
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="output format of --dry-run"
    )
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask, even if this stops running work"
    )


def _update(client: Client, args: argparse.Namespace) -> None:
    update = {"jobId": args.job_id}
    for name in _OPERATIONS:
        text = getattr(args, name.replace("-", "_"))
        if text is not None:
            update.update(_change(args.job_id, name, text))
    if args.to_top:
        update["toTop"] = True
    if len(update) == 1:
        options = ", ".join(f"--{name}" for name in [*_OPERATIONS, _TO_TOP])
        args.usage_error(f"no change given, allowed: at least one of {options}")
    _send(client, [update], args)


def _update_batch(client: Client, args: argparse.Namespace) -> None:
    _send(client, [parsed(text) for text in args.updates], args)


def parsed(text: str) -> Json:
    """`ID.priority=1` or `ID.to-top` as a record of the request. Raises CliError."""
    left, equals, value = text.partition("=")
    job_id, dot, operation = left.rpartition(".")
    if operation == _TO_TOP and dot and job_id:
        if equals and value != "true":
            raise CliError(f"found {text!r}, allowed: {job_id}.{_TO_TOP}, which takes no value.")
        return {"jobId": job_id, "toTop": True}
    if not (equals and dot and job_id and value):
        raise CliError(f"found {text!r}, allowed: <jobID>.<operation>=<value>.")
    if operation not in _OPERATIONS:
        raise CliError(f"found the operation {operation!r}, allowed: {', '.join([*_OPERATIONS, _TO_TOP])}.")
    return _change(job_id, operation, value)


def _change(job_id: str, operation: str, text: str) -> Json:
    field, read = _OPERATIONS[operation]
    try:
        return {"jobId": job_id, field: read(text)}
    except ValueError:
        return {"jobId": job_id, field: text}  # the server has the one sentence for it


def _send(client: Client, updates: List[Json], args: argparse.Namespace) -> None:
    if args.dry_run:
        found = client.preview_jobs(updates)
        print(json.dumps(found, indent=2) if args.output == "json" else "\n".join(previewed(found)))
        return
    confirm_stops(client, updates, args.yes)
    changes = client.update_jobs(updates)
    done("\n".join(map(clean, changes)) if changes else "No change was needed.")


def confirm_stops(client: Client, updates: List[Json], yes: bool) -> None:
    """On a terminal: show what edits would do, and ask, if they stop running work. Raises CliError for a no."""
    if yes or not is_interactive():
        return
    found = client.preview_jobs(updates)
    if found["stops"]:
        say("\n".join(previewed(found)))
        whose = "other users' work" if found["stopsOthers"] else "running work"
        output.confirm(f"This stops {whose}. Continue?", "Nothing was changed.")


def _undo(client: Client, args: argparse.Namespace) -> None:
    done("\n".join(map(clean, client.undo_edit())))


# --- the preview as text ------------------------------------------------------------------------------------


def previewed(found: Json, now: Optional[datetime] = None) -> List[str]:
    """What an edit would do, for people; `now` is the present moment unless given."""
    now = now or datetime.now(timezone.utc)
    lines = ["With this edit:", *(f"  {sentence}" for sentence in found["changes"])]
    if not found["changes"]:
        return ["Nothing would change."]
    lines += _order(found)
    lines += ["It stops:", *(f"  {_stop(stop, now)}" for stop in found["stops"])] if found["stops"] else []
    lines += [] if found["stops"] else ["It stops nothing."]
    for start in found["starts"]:
        lines.append(_start(start))
        if start.get("deadline"):
            lines.append(f"Job {start['jobId'][:SHORT_ID]}: {start['deadline']}.")
    return [clean(line) for line in lines]


def _order(found: Json) -> List[str]:
    """The new places, of which a long list shows the first."""
    rows = found["order"]
    if not rows:
        return []
    shown = [
        [row["place"], "" if row.get("was") is None else row["was"], row["jobId"][:SHORT_ID], row["name"]]
        for row in rows[:_MOST_PLACES]
    ]
    more = max(found.get("movedJobs", 0), len(rows)) - len(shown)
    lines = [
        "New order:",
        *(f"  {line}" for line in output.table(["#", "was", "ID", "Job Name"], shown).split("\n")),
    ]
    return [*lines, f"  and {more} more jobs that move"] if more > 0 else lines


def _stop(stop: Json, now: datetime) -> str:
    runs = f"{stop['runs']} runs of " if stop.get("runs", 1) > 1 else ""
    if stop["neverSaved"]:
        saved = f"it has never saved and would lose {_age(stop['startedAt'], now)} of work"
    elif stop.get("lastSavedAt"):
        saved = f"it last saved {_age(stop['lastSavedAt'], now)} ago"
    else:
        saved = f"it has not saved in {_age(stop['startedAt'], now)}; it will save when asked to stop"
    group = f" of group {stop['group']}" if stop.get("group") else ""
    whose = "yours" if stop["mine"] else f"of {stop['username']}{group}"
    progress = stop.get("progress")
    done = "" if progress is None else f", {100 * progress:.0f} % done"
    again = f"; {counted(stop['stepsAgain'], 'step')} done again" if stop.get("stepsAgain") else ""
    resumes = f"; resumes {_when(stop['resumes'])}" if stop.get("resumes") else ""
    about = f"({counted(stop['slots'], 'slot')}, {whose}{done})"
    return f"{runs}job {stop['jobId'][:SHORT_ID]} {stop['name']} {about}: {saved}{again}{resumes}"


def _when(start: Json) -> str:
    """When it starts, also of a row of the queue and of a task."""
    if start.get("now"):
        return "immediately"
    if not start.get("forecast"):
        return "at a time not known"
    if start.get("forecastBy"):
        return f"{start['forecastBy']} expects {_local_clock(start['forecast'][1])}"
    return " to ".join(map(_local_clock, start["forecast"]))


def _start(start: Json) -> str:
    job = f"Job {start['jobId'][:SHORT_ID]}"
    if start["now"]:
        return f"{job} starts immediately."
    if start.get("forecastBy"):
        return f"{job}: {_when(start)}: {start.get('reason') or 'waiting'}."
    if start.get("forecast"):
        earliest, latest = (_local_clock(moment) for moment in start["forecast"])
        return f"{job} starts between {earliest} and {latest}: {start.get('reason') or 'waiting'}."
    unknown = start.get("forecastUnknown") or start.get("reason") or "the scheduler has not seen it yet"
    return f"{job}: start time unknown: {unknown}."


def _local_clock(seconds: float) -> str:
    """A moment in the zone of this machine, which is named."""
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M %z")


def _age(text: str, now: datetime) -> str:
    """How long ago a time of the server's was."""
    moment = datetime.strptime(text[:19] + "+0000", "%Y-%m-%dT%H:%M:%S%z")
    return duration((now - moment).total_seconds())

"""`task`: everything that holds slots or waits for them, and its logs."""

from __future__ import annotations

import argparse
from typing import Optional
from urllib.parse import quote

from trainmaster.cli import output, rank_pulse
from trainmaster.cli.agent import TASKS, running
from trainmaster.cli.arguments import Adder
from trainmaster.cli.log_options import add_log_options
from trainmaster.cli.log_retention import add_cleanup, add_set
from trainmaster.cli.log_stream import End, Source, show_log
from trainmaster.cli.output import Column, done
from trainmaster.client import Client, Json
from trainmaster.http import Answered


def add(add_noun: Adder) -> None:
    verbs = add_noun("task", help="manage running and waiting tasks").add_verbs()
    verbs.add_parser(
        "list", aliases=["ls"], help="list all tasks with the slots they hold or need", form=True, run=_list
    )
    parser = verbs.add_parser(
        "logs", "task_id", help="show the log of a task", run=_logs, action="show the log"
    )
    add_log_options(parser, with_allocations=True)
    text = "stop a task (a trial, command, notebook, ...) immediately"
    verbs.add_parser("kill", "task_id", help=text, run=_kill)
    add_cleanup(verbs, "cleanup-logs")
    add_set(verbs, "task", lambda client, args: _whole_id(client, args.entity_id))
    rank_pulse.add(verbs, "task_id", str, lambda client, args: _whole_id(client, args.task_id))


_PORTS = Column(
    "Ports", lambda row: ", ".join(str(port.get("port", port)) for port in row.get("proxyPorts") or [])
)


def _list(client: Client, args: argparse.Namespace) -> None:
    rows = sorted(running(client), key=lambda row: row.get("registeredTime") or "")
    output.show(rows, [*TASKS, _PORTS], args.output)


def _logs(client: Client, args: argparse.Namespace) -> int:
    task_id = _whole_id(client, args.task_id)
    source = Source(
        f"Task {task_id}",
        f"/api/v1/tasks/{quote(task_id, safe='')}",
        f"trainmaster task logs -f {task_id}",
        lambda: _is_over(client, task_id),
        lambda: _end(client, task_id),
        lambda: _queued_job(client, task_id),
    )
    return show_log(client, source, args)


def _kill(client: Client, args: argparse.Namespace) -> None:
    task_id = _whole_id(client, args.task_id)
    client.post(f"/api/v1/tasks/{quote(task_id, safe='')}/kill")
    done(f"Killed task {task_id}")


def _whole_id(client: Client, given: str) -> str:
    """Return the whole id of any task, ended ones too; the server names those that match a prefix."""
    return str(_task(client, given)["taskId"])


def _task(client: Client, task_id: str) -> Json:
    return dict(client.get(f"/api/v1/tasks/{quote(task_id, safe='')}")["task"])


def _is_over(client: Client, task_id: str) -> bool:
    try:
        return bool(_task(client, task_id).get("endTime"))
    except Answered as error:
        if error.status == 404:  # it was deleted, and has said all
            return True
        raise


def _end(client: Client, task_id: str) -> End:
    """By its newest attempt: a task has no exit code of its own."""
    attempts = _task(client, task_id).get("allocations") or [{}]
    code = attempts[0].get("statusCode")
    return End(completed=code == 0, failed=bool(code), code=code)


def _queued_job(client: Client, task_id: str) -> Optional[str]:
    """A task without an open attempt waits, or is paused, of which the queue knows no reason."""
    task = _task(client, task_id)
    attempts = task.get("allocations") or []
    is_open = bool(attempts) and attempts[0].get("state") != "STATE_TERMINATED"
    return None if task.get("endTime") or is_open else str(task["jobId"])

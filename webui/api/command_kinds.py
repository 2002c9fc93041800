"""What the REST resources of commands, shells, notebooks and TensorBoards share: addresses, records and answers."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, ClassVar, NamedTuple

from django.db.models import TextField
from django.db.models.functions import Cast
from pydantic import create_model
from rest_framework.request import Request

from jobs import dialect_ends, phases
from jobs.models import Job
from shown import arrays, task_list, tasks
from shown.arrays import ArrayCounts
from shown.tasks import TaskRow
from trainmaster import dialect_words
from webui.api.answers import Answer, Maybe, Pagination, Time
from webui.api.errors import BadRequest, Missing
from webui.api.views import Json

#: as Determined's tasks have them; how it ended is told beside it
DIALECT = {
    phases.QUEUED: "STATE_QUEUED",
    phases.STARTING: "STATE_STARTING",
    phases.RUNNING: "STATE_RUNNING",
    "STOPPING_KILLED": "STATE_TERMINATING",
}
_BEGINNING = re.compile(r"[0-9a-f][0-9a-f-]*")


class ArrayRecord(Answer):
    """An array and its elements. `atOnce`: how many of them may run at a time."""

    id: str
    name: str
    state: str
    elements: int
    at_once: Maybe[int] = None
    waiting: int
    running: int
    done: int
    failed: int
    canceled: int

    @classmethod
    def of_job(cls, job: Job, counts: ArrayCounts) -> ArrayRecord:
        assert job.elements is not None
        return cls(
            id=str(job.pk),
            name=job.name,
            state=counts.state,
            elements=job.elements,
            at_once=job.at_once,
            **asdict(counts),
        )


class CommandRecord(Answer):
    """Determined's command record, extended by slots, hosts and how it ended.

    `exitStatus`: how it ended in Determined's words, with ours behind them; `ending`: ours alone.
    `array` and `arrayIndex`: of an element of an array.
    """

    id: str
    description: str
    state: str
    start_time: Time
    container: None = None
    end_time: Maybe[Time] = None
    username: str
    display_name: str
    user_id: int
    resource_pool: str
    job_id: str
    workspace_id: int
    exit_status: str = ""
    ending: Maybe[str] = None
    phase: str
    exit_code: Maybe[int] = None
    slots: int
    priority: int
    hosts: list[str]
    allocation_id: Maybe[str] = None
    run_start_time: Maybe[Time] = None
    array_index: Maybe[int] = None
    array: Maybe[ArrayRecord] = None


class LaunchedAnswer(Answer):
    """Added to the record in the answer to any submission: the effective config, and warnings."""

    config: Json
    warnings: list[str]
    notices: list[str]


class KindAnswers(NamedTuple):
    """HTTP method -> answer of the views of a kind: of its list, of one, and of what changes one."""

    many: Mapping[str, Any]
    one: Mapping[str, Any]
    changed: Mapping[str, Any]


@cache
def answers_of(kind: Job.Kind, record: Any) -> KindAnswers:
    """For shells: ShellsAnswer, NewShellAnswer, ShellAndConfigAnswer and ShellAnswer, with records of this type."""
    name, noun = kind.value.capitalize(), kind.value.lower()
    rows: Json = {f"{noun}s": list[record], "pagination": Pagination}
    created: Json = {noun: record | None}
    changed = create_model(f"{name}Answer", __base__=Answer, **{noun: record})
    return KindAnswers(
        {
            "GET": create_model(f"{name}sAnswer", __base__=Answer, **rows),
            "POST": create_model(f"New{name}Answer", __base__=LaunchedAnswer, **created),
        },
        {"GET": create_model(f"{name}AndConfigAnswer", __base__=changed, config=Json)},
        {"POST": changed},
    )


class OfKind:
    """A kind of command, as its addresses, lists and answers have it."""

    kind = Job.Kind.COMMAND
    record: ClassVar[type[CommandRecord]] = CommandRecord
    #: which of the kind's answers the view has, by their name in KindAnswers; empty: none
    part: ClassVar[str] = ""
    answers: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        if cls.part:
            cls.answers = getattr(answers_of(cls.kind, cls.record), cls.part)

    @property
    def noun(self) -> str:
        """As the answers' one object is called."""
        return self.kind.value.lower()

    def find(self, command_id: str) -> TaskRow:
        """The one of this kind whose id is the text or alone begins with it. Raises Missing, BadRequest.

        The id of an array, which lists have, finds its first element.
        """
        return self.found(command_id)[0]

    def found(self, command_id: str) -> tuple[TaskRow, Job | None]:
        """What `find` finds, and the array if the id is that of one."""
        wanted = command_id.strip().lower()
        rows = task_list.of_kind(tasks.with_parts(), self.kind)
        try:
            rows = rows.filter(pk=uuid.UUID(wanted))
        except ValueError:
            if not _BEGINNING.fullmatch(wanted):
                raise Missing(f"{self.noun} {command_id} not found") from None
            rows = rows.annotate(text_id=Cast("id", TextField())).filter(text_id__startswith=wanted)
        found = list(rows[:2])
        array = None if found or self.kind != Job.Kind.COMMAND else arrays.find(wanted)
        if array is not None:
            elements = task_list.of_kind(tasks.with_parts(), self.kind)
            found = list(elements.filter(job=array).order_by("array_index")[:1])
        if not found:
            raise Missing(f"{self.noun} {command_id} not found")
        if len(found) > 1:
            raise BadRequest(
                f"{self.noun} {command_id} is ambiguous: several ids start with it; give more characters"
            )
        return tasks.row(found[0]), array

    def encoded(self, row: TaskRow, request: Request) -> CommandRecord:
        """One row, as whoever asks may see it."""
        command = row.command
        return CommandRecord.of(
            command,
            id=str(command.pk),
            state=DIALECT.get(row.phase, "STATE_TERMINATED"),
            start_time=command.submitted_at,
            end_time=command.ended_at,
            username=command.owner.username,
            display_name=command.owner.display_name,
            user_id=command.owner_id,
            resource_pool=command.job.pool.name,
            job_id=str(command.job_id),
            workspace_id=command.workspace_number,
            exit_status=_exit_status(row),
            ending=command.ending or None,
            phase=row.phase,
            slots=command.task.slots,
            priority=command.job.priority,
            hosts=row.hosts,
            allocation_id=row.current.pk if row.current else None,
            run_start_time=row.attempt.started_at if row.attempt else None,
            array=ArrayRecord.of_job(command.job, row.array) if row.array else None,
        )


def _exit_status(row: TaskRow) -> str:
    if not row.command.has_ended:
        return ""
    end = (dialect_ends.end_of(row.attempt) if row.attempt else None) or dialect_words.aborted()
    return dialect_words.beside(end.exit_status, row.command.ending)

"""Lines of a log as records of the dialect (features.md 3.2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from jobs.models import Member
from logs.levels import Level
from logs.lines import SERVER, STDERR, LogLine, shown
from logs.models import RankSeen
from webui.api.answers import Answer, Maybe, Time, one_of
from webui.api.log_query import SERVER_SOURCE, TASK_SOURCE

#: member's row id -> (allocation id, run key)
Runs = dict[int, tuple[str, str]]


Continues = Annotated[bool, Field(description="the rank's next record continues this line")]


class LogRecord(Answer):
    """A line of the log of a trial or task."""

    trial_id: Maybe[int] = None
    task_id: Maybe[str] = None
    id: Annotated[str, Field(description="the line's number, for use in `after`")]
    timestamp: Time
    level: Annotated[str, one_of(*(level.determined for level in Level))]
    message: Annotated[str, Field(description="the line as the CLI prints it")]
    log: Annotated[str, Field(description="the text only")]
    source: Annotated[str, one_of(SERVER_SOURCE, TASK_SOURCE)]
    stdtype: Annotated[str, one_of("stdout", "stderr")]
    continues: Maybe[Continues] = None
    agent_id: Maybe[str] = None
    rank_id: Maybe[int] = None
    allocation_id: Maybe[str] = None
    container_id: Maybe[str] = None


class LogFields(Answer):
    """The values that filters can currently use."""

    agent_ids: list[str]
    container_ids: list[str]
    rank_ids: Annotated[list[int], Field(description="-1: none")]
    sources: list[str]
    stdtypes: list[str]
    allocation_ids: Maybe[list[str]] = None


class Encoder:
    """Turns lines of one task into NDJSON. `about` are fields of every record, such as the trial's id."""

    def __init__(self, task_id: str, about: dict[str, Any]) -> None:
        self._task_id = task_id
        self._about = about
        self._runs: Runs = {}

    def ndjson(self, lines: Sequence[LogLine]) -> bytes:
        """`{"result": record}` per line. Reads the database when a run appears that it has not met yet."""
        if any(line.member is not None and line.member not in self._runs for line in lines):
            members = Member.objects.filter(allocation__task_id=self._task_id)
            self._runs = {member.pk: (member.allocation_id, member.run_key) for member in members}
        return b"".join(
            json.dumps({"result": self.record(line)}, separators=(",", ":")).encode() + b"\n"
            for line in lines
        )

    def record(self, line: LogLine) -> dict[str, Any]:
        text, at = shown(line.text), _timestamp(line.time)
        level = line.level or Level.UNSPECIFIED.name
        record: dict[str, Any] = {
            **self._about,
            "id": str(line.number),
            "timestamp": at,
            "level": Level[level].determined,
            "message": flat(line, text, at),
            "log": text,
            "source": SERVER_SOURCE if line.stream == SERVER else TASK_SOURCE,
            "stdtype": "stderr" if line.stream == STDERR else "stdout",
        }
        if line.cut:  # ours: the next record of this rank and stream goes on with the same line
            record["continues"] = True
        if line.host:
            record["agentId"] = line.host
        if line.rank is not None:
            record["rankId"] = line.rank
        run = self._runs.get(line.member) if line.member is not None else None
        if run is not None:
            record["allocationId"], record["containerId"] = run
        return record


def flat(line: LogLine, text: str, at: str) -> str:
    """The one-line form that command lines print: `[time] host [rank=N] || LEVEL: text`."""
    rank = f"[rank={line.rank}] " if line.rank is not None else ""
    level = f"{line.level}: " if line.level and not text.startswith(f"{line.level}:") else ""
    return f"[{at}] {line.host or 'server'} {rank}|| {level}{text}\n"


def _timestamp(seconds: float) -> str:
    try:
        value = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # a host whose clock is out of this world
        value = datetime.fromtimestamp(0, UTC)
    return value.isoformat(timespec="microseconds").replace("+00:00", "Z")


def fields(task_id: str, *, with_allocations: bool) -> LogFields:
    """What a filter may choose from by now: hosts, runs, ranks (-1: none), sources, streams."""
    seen = list(RankSeen.objects.filter(task_id=task_id).values_list("rank", "host"))
    members = Member.objects.filter(allocation__task_id=task_id).order_by("pk")
    return LogFields(
        agent_ids=sorted({host for _, host in seen}),
        container_ids=[member.run_key for member in members],
        rank_ids=sorted({rank for rank, _ in seen}),
        sources=[SERVER_SOURCE, TASK_SOURCE],
        stdtypes=["stderr", "stdout"],
        allocation_ids=list(dict.fromkeys(member.allocation_id for member in members))
        if with_allocations
        else None,
    )

"""Why an attempt ended, as a story: what failed first and where, its exit code in words and its last words, who or
what stopped it, and what follows (ux.md 5). For trials and commands alike, from rows and lines alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from events.models import Event
from jobs import exits
from jobs.models import Allocation, Task
from jobs.states import NEVER_STARTED, NOT_THE_CODES_FAULT, AllocationState, Reason, TaskState
from logs import last_words, log_labels, sentences, tracebacks
from logs.last_words import LastWords
from logs.log_labels import Match
from scheduling.reasons import listed

#: Ends that a process of the job brought about, so that its last words tell why.
OWN_FAILURES = frozenset(
    {Reason.RANK_FAILED, Reason.COMMAND_FAILED, Reason.COMMAND_NOT_FOUND, Reason.INVALID_HP, Reason.RUN_VANISHED,
     Reason.PORT_IN_USE, Reason.STORAGE_FAILED, Reason.REPORTED_FAILURE}
)  # fmt: skip

#: Ends after which a trial may not be tried again because its restarts are used.
_MAY_BE_THE_LAST = OWN_FAILURES | NEVER_STARTED | {Reason.HOST_FAULT, Reason.HANG, Reason.HANG_OF_HOST}
_NOT_FOUND = 127


@dataclass(frozen=True)
class Story:
    """The end of one attempt. `sentences` are empty while it goes on; `rank` is None where none is known.

    `meaning` is the exit code in words, `words` what the process said last, `stopped_by` is {"user"?, "reason"} of an
    attempt that was told to end, `matches` the log policies that its lines matched. `failed`: nobody wanted this end.
    """

    attempt: int | None = None
    sentences: list[str] = field(default_factory=list)
    rank: int | None = None
    host: str = ""
    exit_code: int | None = None
    signal: int | None = None
    meaning: str = ""
    words: LastWords = field(default_factory=LastWords)
    stopped_by: dict[str, str] | None = None
    matches: list[Match] = field(default_factory=list)
    failed: bool = False

    @property
    def line(self) -> int | None:
        """The number of the first line that tells why."""
        return self.words.lines[0].number if self.words.lines else None


def of_task(task: Task, attempt: int | None = None) -> Story:
    """The end of an attempt, by its number; without one, of the newest."""
    rows = task.allocations.order_by("-number")
    if attempt is not None:
        rows = rows.filter(number=attempt)
    allocation = rows.first()
    if allocation is None:
        return _without_attempt(task) if attempt is None else Story()
    allocation.task = task
    return of_attempt(allocation)


def last_failure(task: Task) -> Story | None:
    """The end of the newest attempt that is over, if nobody wanted it: what a page shows while it is tried again."""
    over = task.allocations.filter(state=AllocationState.TERMINATED).order_by("-number").first()
    if over is None:
        return None
    over.task = task
    story = of_attempt(over)
    return story if story.failed else None


def of_attempt(allocation: Allocation) -> Story:
    """The end of one attempt, with its task."""
    if allocation.state != AllocationState.TERMINATED:
        return Story(allocation.number)
    reason = Reason(allocation.exit_reason)
    members = list(allocation.members.select_related("host"))
    matches = log_labels.of_attempt(allocation)
    told = sentences.stop_told(allocation, reason)
    if told is not None:
        return Story(
            allocation.number,
            [
                *sentences.stop_sentences(allocation, members, reason),
                *_policies(matches),
                *_what_follows(allocation),
            ],
            host=members[0].host.name if len(members) == 1 else "",
            exit_code=allocation.exit_code,
            meaning=exits.meaning(allocation.exit_code, None),
            stopped_by=told,
            matches=matches,
            failed=reason == Reason.TIME_LIMIT,
        )
    if reason == Reason.COMPLETED:
        return Story(
            allocation.number,
            ["It ended with exit code 0."],
            exit_code=0,
            meaning="exit code 0",
            matches=matches,
        )
    ends = [end for member in members for end in member.rank_ends]
    return _failure(allocation, reason, ends, matches)


def _failure(
    allocation: Allocation, reason: Reason, ends: list[dict[str, Any]], matches: list[Match]
) -> Story:
    detail = allocation.exit_detail
    rank, host = detail.get("rank"), str(detail.get("host") or "")
    code, signal = detail.get("code", allocation.exit_code), detail.get("signal")
    lacking = reason == Reason.COMMAND_NOT_FOUND and detail.get("sentence")  # which says it all
    asked = reason in OWN_FAILURES and not lacking
    words = last_words.of(allocation, rank, code, signal) if asked else LastWords()
    meaning = exits.meaning(code, signal)
    if words.cause and code == 1:
        meaning = f"exit code 1: {words.cause}"
    elif words.cause:
        meaning = f"{meaning} ({words.cause})"
    program = tracebacks.missing_program(line.text for line in words.lines) if code == _NOT_FOUND else ""
    if program:
        meaning = f"{meaning}: {program}"
    sentences = [
        _headline(reason, detail, rank, host, meaning),
        *([tracebacks.about_missing(program, host or "the host")] if program else []),
        *_memory(detail.get("oom_kills"), code, signal, host),
        *_others(ends, rank),
        *_policies(matches),
        *_what_follows(allocation),
    ]
    return Story(
        allocation.number, sentences, rank, host, code, signal, meaning, words, matches=matches, failed=True
    )


def _headline(reason: Reason, detail: dict[str, Any], rank: int | None, host: str, meaning: str) -> str:
    where = f" on {host}" if host else ""
    if detail.get("sentence") and reason == Reason.COMMAND_NOT_FOUND:  # it names the program and the host
        return _sentence(str(detail["sentence"]))
    if detail.get("sentence") and reason in {Reason.RANK_FAILED, Reason.COMMAND_FAILED}:  # of a hook
        return _sentence(f"it failed{where}: {detail['sentence']}")
    if detail.get("sentence"):
        return _sentence(f"{reason.label}{where}: {detail['sentence']}")
    if reason == Reason.HOST_LOST:
        return sentences.lost_host(host)
    if rank is not None:
        return _sentence(f"rank {rank}{where} failed first: {meaning}")
    if reason in {Reason.RANK_FAILED, Reason.COMMAND_FAILED, Reason.COMMAND_NOT_FOUND}:
        return _sentence(f"it failed{where}: {meaning}")
    return _sentence(f"{reason.label}{where}")


def _memory(kills: object, code: int | None, signal: int | None, host: str) -> list[str]:
    """Who sent SIGKILL, as far as the kernel's counters say; a guess is never stated as a fact."""
    if signal != 9 and code != 137:
        return []
    counts = kills if isinstance(kills, dict) else {}
    for place, how_sure, where in (
        ("cgroup", "Out of memory", "of its cgroup"),
        ("host", "Possibly out of memory", "somewhere"),
    ):
        if count := counts.get(place, 0):
            killed = f"{count} process{'' if count == 1 else 'es'} {where}"
            return [f"{how_sure}: the kernel's OOM killer ended {killed} on {host} during the run."]
    if counts:
        return [f"Not out of memory: the kernel's OOM killer ended no process on {host} during the run."]
    return ["It is unknown whether memory ran out: nothing on the host recorded it."]


def _others(ends: list[dict[str, Any]], first: int | None) -> list[str]:
    """What became of the other ranks, folded into one sentence."""
    if first is None:
        return []
    codes = Counter(end["code"] for end in ends if end["rank"] != first)
    if not codes:
        return []
    count = sum(codes.values())
    if len(codes) == 1:
        how = f"code {next(iter(codes))}"
    else:
        how = ", ".join(f"{number} with code {code}" for code, number in codes.most_common())
    return [f"{count} other rank{'' if count == 1 else 's'} then exited ({how})."]


def _policies(matches: list[Match]) -> list[str]:
    """The retries that one cancels are told with what follows."""
    excluded = log_labels.EXCLUDE_NODE
    return [
        match.told([f"{match.host} will not be used for it again"] if excluded in match.actions else [])
        for match in matches
    ]


def _what_follows(allocation: Allocation) -> list[str]:
    """What was decided on after the end: once more, rest, or nothing."""
    closed = Event.objects.filter(
        kind=Event.Kind.ALLOCATION, subject=allocation.pk, to_state=AllocationState.TERMINATED
    ).first()
    if closed is None:
        return []
    event = Event.objects.filter(kind=Event.Kind.TASK, subject=allocation.task_id, pk__gt=closed.pk).first()
    if event is None:
        return []
    restarts, most = event.detail.get("restarts"), event.detail.get("max_restarts")
    if event.reason == Reason.REPLACED:
        return ["It was replaced by the next run."]
    if allocation.exit_reason == Reason.NO_SIGN_OF_LIFE:
        return ["It continues as soon as it responds again, or you can resume it as another run."]
    if event.to_state == TaskState.PAUSED:
        return ["It stays paused until you activate it."]
    if event.to_state == TaskState.WAITING:
        if allocation.exit_reason in NOT_THE_CODES_FAULT and not event.detail.get("is_counted"):
            return ["Queued again; this does not count as a restart."]
        return [f"Retried (restart {restarts} of {most})."]
    if event.reason == Reason.RETRIES_CANCELED:
        return ["Not retried: a log policy canceled its retries."]
    if event.reason == Reason.SAME_FAILURE:
        return [_failed_alike(event.detail)]
    if event.reason == Reason.INVALID_HP:
        return ["Not retried: the training code rejected its hyperparameters."]
    if most is None or allocation.exit_reason not in _MAY_BE_THE_LAST:
        return []
    if event.reason in NEVER_STARTED:
        if any(failed["final"] for failed in allocation.task.failed_starts):
            return ["Not retried: every process that tries to start it crashes."]
        tries = f"{settings.LAUNCH_ATTEMPTS} attempts in a row failed to start"
        return [f"Not retried: {tries}. Fix that, then continue it, or fork it with another config."]
    return [f"Not retried: {restarts} of {most} restarts used." if most else "Not retried (max_restarts: 0)."]


def _failed_alike(detail: dict[str, Any]) -> str:
    what = f"the last {detail['attempts']} attempts failed of the same exception at step {detail['steps']:,}"
    return f"Not retried: {what}, on {listed(detail['hosts'])}. Fix its code or data, then continue it."


def _without_attempt(task: Task) -> Story:
    """It ended before it had any slots: somebody's wish."""
    if task.state != TaskState.ENDED:
        return Story()
    event = Event.objects.filter(kind=Event.Kind.TASK, subject=task.pk, to_state=TaskState.ENDED).last()
    if event is None:
        return Story()
    user = sentences.user_of(event.actor)
    stopped_by = {"user": user} if user else {}
    said = _sentence(f"{sentences.label(event.reason)}{sentences.by(event.actor)} before it started")
    return Story(sentences=[said], stopped_by={**stopped_by, "reason": event.reason})


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")

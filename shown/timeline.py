"""Event rows as sentences for people: in the timeline of what they are about, and as acts in the audit log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby, pairwise
from typing import NamedTuple
from urllib.parse import quote

from django.db.models import Q, QuerySet

from events.models import Event
from jobs import exits, quarantine, queue_history
from jobs.states import Reason
from logs.alerts import alert_of
from logs.log_labels import match_of
from logs.sentences import hang_sentence, known_late, label
from searching.words import judgment
from shown import words

NEWEST = 200
#: so long without an event is said
GAP_SECONDS = 600
#: ends of attempts and of their parts that are faults
FAILURES = {
    Reason.RANK_FAILED, Reason.COMMAND_FAILED, Reason.COMMAND_NOT_FOUND, Reason.INVALID_HP, Reason.LAUNCH_FAILED,
    Reason.PORT_IN_USE, Reason.STORAGE_FAILED, Reason.HOST_LOST, Reason.HOST_RESTARTED, Reason.RUN_VANISHED,
    Reason.STOP_TIMED_OUT, Reason.REPORTED_FAILURE, Reason.NO_SIGN_OF_LIFE,
}  # fmt: skip
_UNIT = "units"
#: (kind, state) -> what happened; {n} is the attempt's number, {host} the host, {s} the subject
_SENTENCES = {
    (Event.Kind.ALLOCATION, "ASSIGNED"): "Attempt {n} was assigned slots",
    (Event.Kind.ALLOCATION, "STARTING"): "Attempt {n} was launched on all its hosts",
    (Event.Kind.ALLOCATION, "RUNNING"): "Attempt {n} is running",
    (Event.Kind.ALLOCATION, "TERMINATING"): "Attempt {n} is being stopped",
    (Event.Kind.ALLOCATION, "TERMINATED"): "Attempt {n} ended",
    (Event.Kind.MEMBER, "LAUNCHED"): "{host}: launched",
    (Event.Kind.MEMBER, "RUNNING"): "{host}: the entrypoint started",
    (Event.Kind.MEMBER, "ENDED"): "{host}: its run ended",
    (Event.Kind.MEMBER, Reason.CLEANING): "{host}: processes may be left, so the slots stay held",
    (Event.Kind.MEMBER, Reason.STOP_TIMED_OUT): "{host}: the remaining processes survived SIGKILL",
    (Event.Kind.MEMBER, Reason.CLEANED): "{host}: no processes are left, and the slots are free",
    (Event.Kind.TASK, "WAITING"): "It is in the queue",
}
#: The end of an attempt or of its part says how it ended.
_ENDED = {(Event.Kind.ALLOCATION, "TERMINATED"), (Event.Kind.MEMBER, "ENDED")}
#: Reasons that name the searcher.
_BY_SEARCHER = {Reason.SEARCHER_STOPPED, Reason.SEARCHER_PROMOTED}
#: Reasons that such a sentence already says.
_SAID = {Reason.SCHEDULED, Reason.LAUNCHED, Reason.STARTED, Reason.CLEANING, Reason.CLEANED}
_SUBJECTS = {
    Event.Kind.EXPERIMENT: "Experiment {s}",
    Event.Kind.TRIAL: "Trial {s}",
    Event.Kind.CHECKPOINT: "Checkpoint {s}",
    Event.Kind.COMMAND: "Command {s}",
}
#: A task only repeats what its attempts and its trial say, but for its way into the queue.
_REPEATS = Q(kind=Event.Kind.TASK) & ~Q(to_state="WAITING")
_CHANGED = {
    Event.Kind.POOL, Event.Kind.EXPERIMENT, Event.Kind.USER, Event.Kind.GROUP, Event.Kind.WORKSPACE, Event.Kind.PROJECT
}  # fmt: skip
#: columns, and values that are no words for people
_FIELDS = {
    "is_active": "active",
    "unix_user": "agent user",
    "unix_uid": "agent uid",
    "unix_group": "agent group",
    "unix_gid": "agent gid",
}
_VALUES = {"True": "yes", "False": "no", "None": "none", "": "none"}
#: Reasons of acts that need more words than their code has.
_ACTS = {
    "made": "created",
    "draining": "drained",
    "quarantined": "taken out of use because of a fault",
    "quarantine_over": "released from quarantine",
    "quarantine_overruled": "kept in use for a time in spite of faults",
    "quarantine_withheld": "left in use in spite of a fault",
    "burn_in_asked": "burn-in asked for",
    "burn_in_passed": "passed its burn-in",
    "burn_in_found": "slower than usual in its burn-in, or faulty",
    "written": "backup written",
    "restored": "restored from a backup",
    "message_set": "cluster message set",
    "message_removed": "cluster message removed",
    "removal_of_due_ones_asked_for": "removal of expired logs started",
    "login_failed": "wrong password",
    "login_refused": "login refused, since the user is deactivated",
    "logins_refused_from_here": "too many wrong passwords from this address",
    "login_token_issued": "login token created with manage.py",
    "pair_test_begun": "test of all pairs started",
}
#: What the detail of an act tells besides changes.
_TOLD = {
    "token": "token {}",
    "description": "{}",
    "scope": "scope {}",
    "rule": "{}",
    "message": "“{}”",
    "file": "{}",
    "was": "formerly {}",
    "days": "kept {} days",
    "accessTokens": "access tokens {}",
}
_OF_ATTEMPTS = {Event.Kind.ALLOCATION, Event.Kind.MEMBER}
_ACTORS = {"server": "the server", "scheduler": "the scheduler", "searcher": "the searcher"}


class Change(NamedTuple):
    """A field with its former and its present value; both are empty where an event says only that it changed."""

    field: str
    was: str
    now: str

    def __str__(self) -> str:
        return self.field + (f": {self.was} to {self.now}" if self.was or self.now else "")


@dataclass(frozen=True)
class TimelineEntry:
    """`lamp`: of the state that it led to. `named`: the beginning of the sentence that leads to `href`."""

    at: datetime
    sentence: str
    actor: str
    lamp: str = ""
    attempt: int | None = None
    ends_attempt: bool = False
    named: str = ""
    href: str = ""
    #: since the event before it
    seconds: float | None = None

    @property
    def rest(self) -> str:
        return self.sentence[len(self.named) :]

    @property
    def is_behind_gap(self) -> bool:
        return (self.seconds or 0) >= GAP_SECONDS


@dataclass(frozen=True)
class Stretch:
    """What happened during an attempt, or before, between and after attempts; the newest first."""

    attempt: int | None
    entries: list[TimelineEntry]

    @property
    def began(self) -> datetime:
        return self.entries[-1].at

    @property
    def seconds(self) -> float | None:
        """From its assignment to its end; None while it has none."""
        ends = [each.at for each in self.entries if each.ends_attempt]
        return (ends[0] - self.began).total_seconds() if ends else None


class Timeline(list[TimelineEntry]):
    """The newest first."""

    @property
    def stretches(self) -> list[Stretch]:
        """By attempt: what lies between the first and the last event of one belongs to it."""
        spans: dict[int, tuple[int, int]] = {}
        for place, entry in enumerate(self):
            if entry.attempt is not None:
                spans[entry.attempt] = (spans.get(entry.attempt, (place, 0))[0], place)

        def attempt_at(pair: tuple[int, TimelineEntry]) -> int | None:
            return next((n for n, (newest, oldest) in spans.items() if newest <= pair[0] <= oldest), None)

        parts = groupby(enumerate(self), key=attempt_at)
        return [Stretch(attempt, [entry for _, entry in pairs]) for attempt, pairs in parts]


def of(events: QuerySet[Event], unit: str = _UNIT) -> Timeline:
    """The newest events first. `unit`: in which a search's lengths are counted, in the plural."""
    return _timed(_entry(event, unit) for event in _newest(events))


def of_experiment(experiment_id: int, trials: Mapping[str, int], unit: str = _UNIT) -> Timeline:
    """The newest events of an experiment first. `trials`: by their tasks; where there are several, each attempt's
    sentence says whose it is."""
    rows = Event.objects.filter(experiment_id=experiment_id) | Event.objects.filter(
        task_id__in=list(trials), kind__in=[Event.Kind.ALLOCATION, Event.Kind.MEMBER]
    )
    several = len(trials) > 1
    entries = [(event, _entry(event, unit)) for event in _newest(rows)]
    return _timed(_of_trial(entry, event, trials) if several else entry for event, entry in entries)


def _timed(entries: Iterable[TimelineEntry]) -> Timeline:
    """With the time since the event before; the oldest that is shown has none."""
    found = list(entries)
    timed = [
        replace(entry, seconds=(entry.at - before.at).total_seconds()) for entry, before in pairwise(found)
    ]
    return Timeline([*timed, *found[-1:]])


def act(event: Event) -> str:
    """What someone did, not to what: `Priority changed: priority 42 to 7`, `Changed; role: editor to admin`."""
    if event.kind == Event.Kind.JOB and (change := queue_history.in_words(event)):
        done = change + (" (undo)" if "undoes" in event.detail else "")
    elif event.kind == Event.Kind.EXPERIMENT and event.to_state == "DELETING":
        done = "deleted"
    else:
        done = _ACTS.get(event.reason) or label(event.reason)
        told = [form.format(event.detail[name]) for name, form in _TOLD.items() if event.detail.get(name)]
        done += _details(event, _UNIT) + (f" ({', '.join(told)})" if told else "")
    return done[:1].upper() + done[1:]


def changes_of(event: Event) -> list[Change]:
    """What was before and after, where the event has it."""
    if event.kind == Event.Kind.JOB:
        return [Change(*each) for each in queue_history.changes_of(event)]
    if event.kind == Event.Kind.HOST and "from" in event.detail:
        return [Change("resource pool", event.detail["from"], event.detail["to"])]
    if event.kind not in _CHANGED:
        return []
    return [
        Change(_FIELDS.get(field, field.replace("_", " ")), *(pair if pair == ["", ""] else _in_words(pair)))
        for field, pair in event.detail.get("changes", {}).items()
    ]


def _in_words(values: Iterable[object]) -> Iterator[str]:
    return (_VALUES.get(str(each), str(each)) for each in values)


def _newest(events: QuerySet[Event]) -> QuerySet[Event]:
    return events.exclude(_REPEATS).order_by("-id")[:NEWEST]


def _of_trial(entry: TimelineEntry, event: Event, trials: Mapping[str, int]) -> TimelineEntry:
    trial = trials.get(event.task_id)
    if trial is None or event.kind not in _OF_ATTEMPTS:
        return entry
    sentence = entry.sentence
    if event.kind == Event.Kind.ALLOCATION or event.reason == Reason.LOG_POLICY:  # not a host's name
        sentence = sentence[:1].lower() + sentence[1:]
    named = f"Trial {trial}"
    said = f"{named}, {sentence}"
    return replace(entry, sentence=said, named=named, href=f"/trials/{trial}", attempt=None)


def _entry(event: Event, unit: str) -> TimelineEntry:
    kind = Event.Kind(event.kind)
    if event.reason == Reason.LOG_POLICY:
        attempt = event.subject.rpartition(".")[2]
        return TimelineEntry(event.at, f"Attempt {attempt}: {match_of(event).sentence}", "")
    if hang := hang_sentence(event):
        return TimelineEntry(event.at, f"Attempt {event.subject.rpartition('.')[2]}: {hang}", "")
    if alert := alert_of(event):
        return TimelineEntry(event.at, f"{kind.label} {event.subject}: {alert.sentence}", "")
    names = {
        "n": event.subject.rsplit(".", 1)[-1],
        "host": event.detail.get("host", ""),
        "s": event.subject[:8],
    }
    known = _SENTENCES.get((kind, event.to_state))
    if event.reason == Reason.STARTED_BY_USER and kind == Event.Kind.ALLOCATION:
        known = "Attempt {n} was started"  # where, and that it was outside the queue, is said behind it
    if known:
        sentence = known.format(**names)
        reason = "" if event.reason in _SAID else label(event.reason)
    else:
        is_edit = kind == Event.Kind.JOB and event.from_state == event.to_state
        to = "" if is_edit else words.word_of(kind, event.to_state)
        subject = _SUBJECTS.get(kind, "").format(**names)
        sentence, reason = ": ".join(filter(None, [subject, to])), label(event.reason)
    if event.reason == Reason.COMPLETED and (kind, event.to_state) in _ENDED:
        sentence, reason = f"{sentence} with exit code 0", ""
    sentence = f"{sentence}, {reason}" if sentence and reason and reason != sentence else sentence or reason
    if kind != Event.Kind.MEMBER:  # whose sentences begin with the name of a host
        sentence = sentence[:1].upper() + sentence[1:]
    actor = actor_of(event.actor)
    by_searcher = event.actor == "searcher" and event.reason in _BY_SEARCHER
    is_said = by_searcher or (kind == Event.Kind.MEMBER and actor == names["host"])
    sentence += _details(event, unit) + known_late(event)
    href = _address(event)
    named = names["host"] if kind == Event.Kind.MEMBER else _SUBJECTS.get(kind, "").format(**names)
    # the sentences known of hosts begin with theirs, and of the other subjects all that are put together
    is_linked = bool(href and named) and bool(known) == (kind == Event.Kind.MEMBER)
    return TimelineEntry(
        event.at,
        sentence,
        "" if is_said else actor,
        lamp=_lamp(event),
        attempt=_attempt(event),
        ends_attempt=(kind, event.to_state) == (Event.Kind.ALLOCATION, "TERMINATED"),
        named=named if is_linked else "",
        href=href if is_linked else "",
    )


def _attempt(event: Event) -> int | None:
    """The number of the attempt that it is about: what follows the task in the names of attempts and their members."""
    number = event.subject.removeprefix(f"{event.task_id}.").partition(".")[0]
    return int(number) if event.kind in _OF_ATTEMPTS and number.isdecimal() else None


def _lamp(event: Event) -> str:
    if event.from_state == event.to_state or not event.to_state:
        return ""
    if (Event.Kind(event.kind), event.to_state) in _ENDED and event.reason in FAILURES:
        return "failed"
    if event.to_state == "WAITING":
        return "waiting"
    return (words.host_state if event.kind == Event.Kind.HOST else words.state)(event.to_state).lamp


def _address(event: Event) -> str:
    """The page of what the event is about, where the sentence begins with its name."""
    if event.kind == Event.Kind.MEMBER and event.detail.get("host"):
        return f"/hosts/{quote(event.detail['host'])}"
    root = {Event.Kind.TRIAL: "trials", Event.Kind.CHECKPOINT: "checkpoints"}.get(Event.Kind(event.kind))
    return f"/{root}/{event.subject}" if root else ""


def actor_of(actor: str) -> str:
    """Whoever did something, by name."""
    kind, _, name = actor.partition(":")
    if kind == "run":  # a key of 40 characters, which tells people nothing
        return "the run"
    return _ACTORS.get(actor) or name or actor


def _details(event: Event, unit: str) -> str:
    detail = event.detail
    if event.kind == Event.Kind.JOB and (change := queue_history.in_words(event)):
        return f": {change}"
    if event.kind == Event.Kind.HOST and event.reason == quarantine.REASON:
        where = f"slot {detail['slot']}: " if "slot" in detail else ""
        return f" ({where}{detail['sentence']})"
    if event.kind == Event.Kind.HOST and detail.get("slot") is not None:
        return f" (slot {detail['slot']})"
    if event.kind == Event.Kind.HOST and "slots" in detail:
        return f" ({detail['slots']})"
    if event.kind == Event.Kind.HOST and event.reason == "name_resolved":
        return f" ({detail['sentence']})"
    if event.kind == Event.Kind.HOST and "from" in detail:
        return f" ({detail['from']} to {detail['to']})"
    if event.kind in _CHANGED:
        return "".join(f"; {change}" for change in changes_of(event))
    if hosts := detail.get("hosts"):
        return f" ({', '.join(hosts)})"
    if event.kind == Event.Kind.MEMBER and detail.get("code") is not None and event.to_state == "ENDED":
        is_said = event.reason == Reason.COMPLETED
        return "" if is_said else f" ({exits.words(detail['code'], detail.get('signal'))})"
    if detail.get("rank") is not None:
        how = exits.words(detail.get("code"), detail.get("signal"))
        return f" (rank {detail['rank']} on {detail.get('host')}, {how})"
    if event.kind == Event.Kind.TRIAL and "among" in detail:
        return f" ({judgment(detail, unit)})"
    if detail.get("restarts"):
        return f" (restart {detail['restarts']} of {detail['max_restarts']})"
    return ""

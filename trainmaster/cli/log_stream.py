"""Shows logs, follows them across broken connections, and ends with the exit code of what is followed."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Optional

from trainmaster.cli.errors import FAILED, OK, CliError
from trainmaster.cli.log_options import Printer, Query, check, query_of
from trainmaster.cli.output import SHORT_ID, clean, say
from trainmaster.client import Client, Json, StreamFailed, StreamQuiet
from trainmaster.http import Answered, Later, Unreachable
from trainmaster.quantities import spans

Show = Callable[[Json], None]

ENDED = ("STATE_COMPLETED", "STATE_CANCELED", "STATE_ERROR", "STATE_DELETED", "STATE_DELETE_FAILED")
RECONNECT_LIMIT_SECONDS = 120.0
_POLL_SECONDS = 1.0
_AWAY = 503  # what the server says while its database is away


class End(NamedTuple):
    """How a job ended: completed, failed (with `code` and `sentence` where they are known), or canceled or killed."""

    completed: bool
    failed: bool
    code: Optional[int] = None
    sentence: str = ""


class Source(NamedTuple):
    """A log and whose it is. `name` begins a sentence (`Trial 7`), `owner_path` is its REST path.

    `is_over`: nothing more will come. `queued_job`: the id of its job while that is queued.
    """

    name: str
    owner_path: str
    reopen: str
    is_over: Callable[[], bool]
    end: Callable[[], End]
    queued_job: Callable[[], Optional[str]]

    @property
    def path(self) -> str:
        return f"{self.owner_path}/logs"


def show_log(client: Client, source: Source, args: argparse.Namespace) -> int:
    """Print what the options ask for; the exit code (log_options.EXIT_CODES)."""
    check(args)
    args.reopen = source.reopen
    printer, query = Printer(args, sys.stdout), query_of(args)
    if args.follow:
        return _follow_to_the_end(client, source, args, printer, query)
    for record in _part(client, source.path, args, query):
        printer(record)
    sys.stdout.flush()
    if printer.count == 0 and (args.ranks or args.agent_id):
        return _nothing_of_these(client, source, args)
    job_id = source.queued_job() if printer.count == 0 else None
    if job_id is not None:
        say_what_it_waits_for(client, job_id)
    elif printer.count == 0:
        say(f"{source.name} has no log lines {'that match these options' if query else 'yet'}.", "yellow")
    return OK


def _part(client: Client, path: str, args: argparse.Namespace, query: Query) -> Iterator[Json]:
    """All lines, the first or the last ones."""
    if args.tail:
        newest = client.lines(path, [*query, ("orderBy", "ORDER_BY_DESC"), ("limit", args.tail)])
        yield from reversed(list(newest))
    else:
        yield from client.lines(path, [*query, *([("limit", args.head)] if args.head else [])])


def _follow_to_the_end(
    client: Client, source: Source, args: argparse.Namespace, printer: Printer, query: Query
) -> int:
    last: Optional[str] = None
    job_id = source.queued_job()
    if args.tail or job_id is not None:  # what is there already comes before the reason why it waits
        for record in _part(client, source.path, args, query):
            printer(record)
            last = record.get("id")
    if job_id is not None:
        tell_what_it_waits_for(client, source.queued_job)
    follow(client, source.path, query, printer, source.is_over, last=last)
    sys.stdout.flush()
    kind = source.name.split()[0]
    say(f"{kind} log stream ended. To reopen log stream, run: {source.reopen}", "green")
    code = end_of(client, source)
    if printer.count == 0 and (args.ranks or args.agent_id):
        return _nothing_of_these(client, source, args) or code
    return code


def end_of(client: Client, source: Source) -> int:
    """Say why a failed run stopped, on stderr; the exit code of its job."""
    end = source.end()
    if end.completed:
        return OK
    why = why_stopped(client, source.owner_path)
    tell(why, end.sentence)
    return exit_code(why, end.code) if end.failed else FAILED


def _nothing_of_these(client: Client, source: Source, args: argparse.Namespace) -> int:
    """Nothing of the ranks or hosts asked for was shown: say so, and which have written."""
    (found,) = client.lines(f"{source.path}/fields")
    ranks, hosts = list(args.ranks or []), list(args.agent_id or [])
    asked, written = [], []
    if ranks:
        asked.append(f"--rank {' '.join(str(rank) for rank in ranks)}")
        written.append(ranks_in_words([rank for rank in found.get("rankIds") or [] if rank >= 0]))
    if hosts:
        asked.append(f"--host {' '.join(hosts)}")
        written.append(hosts_in_words(found.get("agentIds") or []))
    is_all = len(query_of(args)) == len(ranks) + len(hosts)
    filters = "" if is_all else " that match the other options"
    is_one = len(written) == 1 and written[0].startswith(("rank ", "host ", "no "))
    say(
        f"{source.name} has no log lines from {' '.join(asked)}{filters}; "
        f"{' on '.join(written)} {'has' if is_one else 'have'} log lines.",
        "yellow",
    )
    return FAILED


def follow(
    client: Client,
    path: str,
    query: Query,
    show: Show,
    is_over: Callable[[], bool],
    patience_seconds: float = RECONNECT_LIMIT_SECONDS,
    last: Optional[str] = None,
) -> None:
    """Show every record behind the one with the id `last` once, in order, until the stream ends and `is_over` agrees.

    A stream that breaks is taken up again after the last record. Raises CliError when that fails for too long.
    """
    broken_since: Optional[float] = None
    while True:
        try:
            for record in _after(client.lines(path, _query_from(query, last)), last):
                if broken_since is not None:
                    say("The log continues after the last line shown.", "green")
                    broken_since = None
                show(record)
                last = record.get("id")
            if is_over():
                return
            broken_since = None
        except StreamQuiet:
            broken_since = None
        except (Unreachable, Later, StreamFailed) as error:
            if isinstance(error, StreamFailed) and error.code != _AWAY:
                raise
            broken_since = _still_patient(error, broken_since, patience_seconds)
        time.sleep(_POLL_SECONDS)


def _query_from(query: Query, last: Optional[str]) -> Query:
    """`after` is ours: a server that knows it begins behind that record, another one at the first."""
    return [*query, ("follow", "true"), *([("after", last)] if last is not None else [])]


def _after(records: Iterator[Json], last: Optional[str]) -> Iterator[Json]:
    """The records behind the one with the id `last`, for a server that begins anew."""
    if last is None:
        yield from records
        return
    skipping = not last.isdigit()
    for record in records:
        found = str(record.get("id"))
        if skipping:
            skipping = found != last
        elif not found.isdigit() or not last.isdigit() or int(found) > int(last):
            yield record


def _still_patient(error: Exception, since: Optional[float], patience_seconds: float) -> float:
    now = time.monotonic()
    if since is None:
        say(f"{error} Reconnecting to the log for up to {patience_seconds:.0f} s.", "yellow")
        return now
    if now - since > patience_seconds:
        raise CliError(f"the log stream was interrupted: {error}") from error
    return since


def wait_for_experiment(client: Client, experiment_id: int, poll_seconds: float = _POLL_SECONDS) -> str:
    """Wait until the experiment has ended, through restarts of the server; its state."""
    while True:
        state = str(client.experiment(experiment_id)["experiment"]["state"])
        if state in ENDED:
            return state
        time.sleep(poll_seconds)


def log_of_trial(client: Client, trial_id: int) -> Source:
    """The log of a trial."""
    return Source(
        f"Trial {trial_id}",
        f"/api/v1/trials/{trial_id}",
        f"trainmaster trial logs -f {trial_id}",
        lambda: _trial_is_over(client, trial_id),
        lambda: _end_of_trial(client, trial_id),
        lambda: _queued_job_of_trial(client, trial_id),
    )


def _trial_is_over(client: Client, trial_id: int) -> bool:
    """Whether no more lines of the trial will come; one that is gone has said all."""
    try:
        return client.trial(trial_id)["state"] in ENDED
    except Answered as error:
        if error.status == 404:
            return True
        raise


def _end_of_trial(client: Client, trial_id: int) -> End:
    trial = client.trial(trial_id)
    failure = trial.get("failure") or {}
    completed, failed = trial["state"] == "STATE_COMPLETED", trial["state"] == "STATE_ERROR"
    return End(completed, failed, failure.get("code"), str(failure.get("sentence") or ""))


def _queued_job_of_trial(client: Client, trial_id: int) -> Optional[str]:
    trial = client.trial(trial_id)
    if trial["state"] in ENDED:
        return None
    return queued_job_of_experiment(client, int(trial["experimentId"]))


def queued_job_of_experiment(client: Client, experiment_id: int) -> Optional[str]:
    """The id of its job while that is queued."""
    found = client.experiment(experiment_id)
    queued = (found.get("jobSummary") or {}).get("state", "") == "STATE_QUEUED"
    return str(found["experiment"]["jobId"]) if queued else None


# --- how it ended ---------------------------------------------------------------------------------------------

_HOSTS_NAMED = 8


def why_stopped(client: Client, owner_path: str) -> Json:
    """What the server knows of the end of `/api/v1/trials/7` or `/api/v1/tasks/ID`; empty where it does not say."""
    try:
        return dict(client.get(f"{owner_path}/why-stopped") or {})
    except Answered as error:
        if error.status in (404, 405):
            return {}
        raise


def tell(why: Json, otherwise: str) -> None:
    """The sentences (or what is known `otherwise`) and the last lines of the rank that failed first, on stderr."""
    for sentence in why.get("sentences") or ([otherwise] if otherwise else []):
        say(clean(str(sentence)), "red")
    for line in why.get("lines") or []:
        rank = f"[rank={line['rank']}] " if line.get("rank") is not None else ""
        say(f"  | {rank}{clean(str(line.get('text', '')))}")


def exit_code(why: Json, known: Any = None) -> int:
    """The failed job's own code as a shell gives it, else 1. `known` is one from elsewhere."""
    code, signal = why.get("exitCode"), why.get("signal")
    if code is None and isinstance(signal, int):
        code = 128 + signal
    for found in (code, known):
        if isinstance(found, int) and OK < found < 256:
            return found
    return FAILED


def hosts_in_words(hosts: List[str]) -> str:
    """`hosts gpu1, gpu2`, `host gpu1`, `no host`; of many the first ones."""
    names = [clean(str(host)) for host in hosts if host]
    if not names:
        return "no host"
    more = f" and {len(names) - _HOSTS_NAMED} more" if len(names) > _HOSTS_NAMED else ""
    return f"host{'' if len(names) == 1 else 's'} {', '.join(names[:_HOSTS_NAMED])}{more}"


def ranks_in_words(ranks: List[int]) -> str:
    """`ranks 0-3 and 7`, `rank 5`, `no rank`."""
    texts = spans(sorted(set(ranks)))
    if not texts:
        return "no rank"
    listed = ", ".join(texts[:-1]) + (" and " if len(texts) > 1 else "") + texts[-1]
    return f"rank {listed}" if len(set(ranks)) == 1 else f"ranks {listed}"


# --- what a job waits for, said where its log has nothing to show yet -----------------------------------------

START_SECONDS = 3.0  # within which a job starts when nothing is in its way
ASK_SECONDS = 5.0  # between two looks at the reason
_WAITED_POLL_SECONDS = 1.0  # once it has waited for a while
REPEAT_SECONDS = 60.0  # the reason is said again after so long, changed or not


def tell_what_it_waits_for(
    client: Client,
    queued_job: Callable[[], Optional[str]],
    poll_seconds: float = 0.3,
    start_seconds: float = START_SECONDS,
    ask_seconds: float = ASK_SECONDS,
    repeat_seconds: float = REPEAT_SECONDS,
) -> None:
    """Until it is not queued, say why: after a moment, when the reason changes, and else once a minute.

    `queued_job`: the id of the job while it is queued. A server that is away for long is left to what comes next,
    which follows the log and is the more patient.
    """
    ask_at = time.monotonic() + start_seconds
    said: Optional[str] = None
    repeat_at = 0.0
    while True:
        now = time.monotonic()
        try:
            job_id = queued_job()
            reason = _reason(client, job_id) if job_id is not None and now > ask_at else None
        except (Unreachable, Later):
            return
        if job_id is None:
            return
        if now > ask_at:
            ask_at = now + ask_seconds
            if reason is not None and (reason != said or now > repeat_at):
                _say_reason(reason, job_id, again=said is not None)
                said, repeat_at = reason, now + repeat_seconds
        time.sleep(poll_seconds if said is None else max(_WAITED_POLL_SECONDS, poll_seconds))


def say_what_it_waits_for(client: Client, job_id: str) -> None:
    """Say it once, if the server gives a reason."""
    reason = _reason(client, job_id)
    if reason is not None:
        say(f"Waiting: {reason}. All reasons: trainmaster job explain {job_id[:SHORT_ID]}", "yellow")


def _say_reason(reason: str, job_id: str, again: bool) -> None:
    if again:
        say(f"Still waiting: {reason}. Press Ctrl-C to leave it in the queue.", "yellow")
        return
    say(
        f"Waiting: {reason}. Press Ctrl-C to leave it in the queue. "
        f"All reasons: trainmaster job explain {job_id[:SHORT_ID]}",
        "yellow",
    )


def _reason(client: Client, job_id: str) -> Optional[str]:
    """The first reason; None where the server gives none: it has started or ended meanwhile, or is an older one."""
    try:
        tasks = client.explain_job(job_id)["tasks"]
    except Answered as error:
        if error.status == 404:
            return None
        raise
    return next(
        (str(blocker["sentence"]) for task in tasks[:1] for blocker in task.get("blockers") or []), None
    )

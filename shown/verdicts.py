"""Why a task waits, and which of its hosts are silent, in sentences (ux.md 4)."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from dispatch.passes import last_plan
from dispatch.passes.preview import blockers
from experiments import failures
from experiments.models import Experiment, Trial
from experiments.states import TrialState
from hosts.models import Host, ResourcePool
from jobs.models import Allocation, Job, Member, Task
from jobs.states import AllocationState, MemberState, TaskState
from logs.hangs import rows as hangs
from trainmaster.quantities import duration


def waiting(task: Task, pool: ResourcePool, experiment: Experiment | None = None) -> str:
    """Why the task does not run, from the plan of the last pass; empty when it runs or rests."""
    if task.state != TaskState.WAITING:
        return ""
    wait = last_plan.of(pool).waits.get(task.pk)
    return _sentence(wait, experiment) if wait else "It will be considered in the next scheduler pass."


def _sentence(wait: Mapping[str, Any], experiment: Experiment | None) -> str:
    """With the limit that has so many trials of one search open, where they are what is in the way."""
    sentence = str(wait["sentence"])
    if experiment is None or not (wait.get("data") or {}).get("own"):
        return sentence
    most = experiment.searcher.get("max_concurrent_trials")
    return f"{sentence}; max_concurrent_trials is {most}" if most else sentence


def of_trials(trials: Iterable[Trial], pool: ResourcePool) -> dict[int, str]:
    """Trial id -> why it waits, where it hangs, or how it failed, in one sentence; others are left out."""
    trials = list(trials)
    waits = last_plan.of(pool).waits
    said = {
        trial.pk: _sentence(waits[trial.task_id], trial.experiment)
        for trial in trials
        if trial.task_id in waits and trial.task.state == TaskState.WAITING
    }
    running = {trial.task_id: trial.pk for trial in trials if trial.task.state == TaskState.RUNNING}
    if running:
        said |= {running[task]: sentence for task, sentence in hangs.sentences(list(running)).items()}
    return said | failures.sentences(trial for trial in trials if trial.state == TrialState.ERROR)


def silent_hosts(allocation: Allocation | None) -> str:
    """The hosts of a live attempt that do not answer, with their age: silence is shown, never acted on."""
    if allocation is None or allocation.state == AllocationState.TERMINATED:
        return ""
    members = list(allocation.members.select_related("host"))
    live = [member.host for member in members if member.state != MemberState.ENDED]
    silent = [host for host in live if host.contact == Host.Contact.SILENT]
    if not silent:
        return ""
    alone = len(silent) == len(live) < len(members)
    who = "; ".join(
        f"{host.name}{' ' if alone else ' silent '}{_silent_for(host)}".rstrip() for host in silent
    )
    held = f"Held by silent {who}: the rest of its gang has ended" if alone else who
    return f"{held}. Its work is left alone until the host answers or someone declares it lost."


def _silent_for(host: Host) -> str:
    heard = host.heard_at
    return f"for {duration((timezone.now() - heard).total_seconds())}" if heard else ""


@dataclass(frozen=True)
class GangPart:
    """An attempt's part on one host: its run folder, and the command that logs in there (empty: this machine)."""

    member: Member
    folder: str
    ssh: str


def parts(allocation: Allocation | None) -> list[GangPart]:
    """The gang of an attempt."""
    if allocation is None:
        return []
    return [_part(member) for member in allocation.members.select_related("host")]


def _part(member: Member) -> GangPart:
    host = member.host
    folder = f"{host.workdir}/runs/{member.run_key}" if host.workdir else ""
    if host.transport == Host.Transport.LOCAL:
        return GangPart(member, folder, "")
    command = ["ssh", *(["-p", str(host.port)] if host.port != 22 else [])]
    if host.jumps:
        command += ["-J", ",".join(f"{jump['user']}@{jump['address']}:{jump['port']}" for jump in host.jumps)]
    where = f"{host.login_user}@{host.address}" if host.login_user else host.address
    return GangPart(member, folder, shlex.join([*command, where]))


def missing_bytes(task_id: str) -> int:
    """Bytes of log that were lost on their hosts, and those that had not arrived when the end was told, nor since."""
    members = Member.objects.filter(allocation__task_id=task_id)
    rows = members.values_list("outbox_bytes", "stream__offset", "stream__missing_bytes")
    return sum(max(0, (outbox or 0) - (stored or 0)) + (lost or 0) for outbox, stored, lost in rows)


def blockers_of(job: Job) -> tuple[int, list[tuple[str, int]]]:
    """How many of its tasks wait, and each reason with the number of its tasks, worked out now; the commonest first."""
    found = blockers(job, timezone.now())
    counts = Counter(
        sentence for each in found.values() for sentence in dict.fromkeys(reason.sentence for reason in each)
    )
    return len(found), counts.most_common()

"""Deletion of checkpoints: what is superfluous, what may not go, and the wish that is written down before a file goes.

A checkpoint that is to go is DELETING from then on: no trial starts from it any more.
`dispatch.keeping.deletion` removes its files, again and again until they are gone, and calls `gone`.
"""

from __future__ import annotations

import fnmatch
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.refusals import Code, Refusal
from events.announce import announce, wake
from experiments import borrowers, edits, metric_reports
from experiments.checkpoints import with_files
from experiments.keeping import Candidate, Policy, reasons
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import GONE, TRIAL_END_STATES, USABLE, CheckpointState
from experiments.transitions import lock, set_checkpoint_state

#: in the metadata of what batch inference has stored (trainmaster.pytorch.experimental)
RESULTS = "batch_process_results"
#: dispatch.tasks: decides for an experiment; removes files
COLLECT, REMOVE = "dispatch.tasks.collect_checkpoints", "dispatch.tasks.remove_checkpoint_files"


@dataclass(frozen=True)
class Standing:
    """The checkpoints of an experiment that are there: why each is kept, and which are superfluous."""

    kept: dict[uuid.UUID, list[str]]
    superfluous: list[uuid.UUID]
    metrics: dict[tuple[int, int], float]  # (trial, step) -> the searcher's
    candidates: list[Candidate]  # those that a trial can start from

    def to_go(self) -> QuerySet[Checkpoint]:
        """The superfluous ones, by trial and time."""
        rows = Checkpoint.objects.filter(pk__in=self.superfluous).select_related("trial")
        return rows.order_by("trial_id", "reported_at")


def standing(experiment: Experiment, policy: Policy | None = None) -> Standing:
    """As the experiment's policy says, or another one. Those still being uploaded are neither."""
    there = Checkpoint.objects.filter(
        trial__experiment=experiment, state__in=[*USABLE, CheckpointState.ERROR]
    ).order_by()
    rows = list(there.values_list("pk", "trial_id", "steps_completed", "reported_at", "state"))
    results = set(there.filter(metadata__contains={RESULTS: True}).values_list("pk", flat=True))
    metrics = metric_reports.validations_of({trial for _, trial, *_ in rows}, experiment.searcher_metric)
    candidates = [
        Candidate(pk, trial, steps, at, metrics.get((trial, steps)))
        for pk, trial, steps, at, state in rows
        if state in USABLE and pk not in results  # which must not take the place of progress
    ]
    kept = reasons(
        candidates,
        policy or Policy.of(experiment.config),
        smaller_is_better=experiment.smaller_is_better,
    )
    for pk, words in [
        *dict.fromkeys(results, "results of batch inference").items(),
        *_needed(experiment).items(),
    ]:
        kept.setdefault(pk, []).append(words)
    superfluous = [pk for pk, *_ in rows if not kept.get(pk)]
    return Standing({pk: words for pk, words in kept.items() if words}, superfluous, metrics, candidates)


def edited(before: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a checkpoint that a user edits: whether it has results of batch inference stays as it was."""
    mark = {RESULTS: before[RESULTS]} if RESULTS in before else {}
    return {name: value for name, value in sent.items() if name != RESULTS} | mark


def _needed(experiment: Experiment) -> dict[uuid.UUID, str]:
    """Checkpoints that a trial began with or continues from: kept whatever the policy says."""
    found: dict[uuid.UUID, str] = {}
    going_on = Trial.objects.filter(latest_checkpoint__trial__experiment=experiment)
    living = going_on.exclude(state__in=TRIAL_END_STATES).order_by("-pk")
    for trial_id, pk in living.values_list("pk", "latest_checkpoint_id"):
        found[pk] = f"trial {trial_id} is training from it"
    began = Trial.objects.filter(source_checkpoint__trial__experiment=experiment).order_by("-pk")
    for trial_id, pk in began.values_list("pk", "source_checkpoint_id"):
        found[pk] = f"trial {trial_id} started from it"
    return found


def change_policy(experiment_id: int, policy: Policy, *, actor: str) -> bool:
    """Keep so many from now on, and delete what is superfluous by it; False when that is the policy already.

    That of a detached run's config counts only once somebody has set it here. The caller holds a transaction.
    """
    experiment = lock(experiment_id)
    if Policy.of(experiment.config) == policy and not experiment.unmanaged:
        return False
    storage = {
        **(experiment.config.get("checkpoint_storage") or {"type": "server"}),
        "save_experiment_best": policy.experiment_best,
        "save_trial_best": policy.trial_best,
        "save_trial_latest": policy.trial_latest,
    }
    config = {**experiment.config, "checkpoint_storage": storage}
    Experiment.objects.filter(pk=experiment_id).update(config=config, collect_due=True)
    edits.note(experiment, actor, asdict(policy), asdict(Policy.of(experiment.config)))
    announce(f"experiment:{experiment_id}")
    wake(COLLECT, experiment_id)
    return True


@transaction.atomic
def collect(experiment_id: int) -> int:
    """Mark what is superfluous for deletion, where an end or a changed policy asked for it; how many.

    While a checkpoint is still being uploaded, it is done once more afterwards: that one may become the latest.
    """
    experiment = lock(experiment_id)
    if not experiment.collect_due:
        return 0
    superfluous = list(standing(experiment).to_go())
    for checkpoint in superfluous:
        checkpoint.trial.experiment = experiment
        _doom(checkpoint, actor="server", reason="superfluous")
    uploading = Checkpoint.objects.filter(trial__experiment=experiment, state=CheckpointState.PARTIAL)
    if not uploading.exists():
        Experiment.objects.filter(pk=experiment_id).update(collect_due=False)
    if superfluous:
        wake(REMOVE)
    return len(superfluous)


@transaction.atomic
def delete(uuids: Collection[uuid.UUID], *, actor: str) -> list[Checkpoint]:
    """Delete all of these, or none: raises Refusal. Those that are gone already are passed over."""
    chosen = _locked(uuids)
    _require_deletable(chosen)
    for checkpoint in chosen:
        _doom(checkpoint, actor=actor, reason="deleted")
    wake(REMOVE)
    return chosen


@transaction.atomic
def remove_files(uuids: Collection[uuid.UUID], globs: Sequence[str], *, actor: str) -> int:
    """Remove the files whose paths match a glob (`**` crosses folders) from these checkpoints; how many they are.

    One that loses all its files is deleted. Raises Refusal.
    """
    chosen = _locked(uuids)
    matching = {row.pk: [path for path in row.resources if matches(path, globs)] for row in chosen}
    _take_all([row for row in chosen if matching[row.pk]], matching, actor=actor)
    return sum(map(len, matching.values()))


@transaction.atomic
def left_there(left: Mapping[uuid.UUID, Collection[str]], *, actor: str) -> None:
    """Somebody has removed files of these checkpoints: of each, these paths are left. Raises Refusal, of any.

    What is not named any more is removed here too, as by `remove_files`: a record never says gone of what still lies
    somewhere. Paths that a checkpoint never had are passed over.
    """
    chosen = _locked(left)
    going = {
        row.pk: [path for path in row.resources if not path.endswith("/") and path not in left[row.pk]]
        for row in chosen
    }
    _take_all([row for row in chosen if going[row.pk] or not left[row.pk]], going, actor=actor)


def _take_all(
    losing: Sequence[Checkpoint], going: Mapping[uuid.UUID, Collection[str]], *, actor: str
) -> None:
    """These files of these checkpoints go after this transaction, or none: raises Refusal."""
    _require_deletable(losing)
    for row in losing:
        _take(row, going[row.pk], actor=actor)
    wake(REMOVE)


def _take(row: Checkpoint, going: Collection[str], *, actor: str) -> None:
    """These files of it go after this transaction; all of it, if no other is left."""
    rest = {path: size for path, size in row.resources.items() if path not in going}
    if not any(not path.endswith("/") for path in rest):
        _doom(row, actor=actor, reason="deleted")
        return
    doomed = sorted({*(row.doomed or []), *going})
    Checkpoint.objects.filter(pk=row.pk).update(doomed=doomed, **with_files(rest))
    if row.state != CheckpointState.PARTIALLY_DELETED:
        set_checkpoint_state(row, CheckpointState.PARTIALLY_DELETED, reason="files removed", actor=actor)


@transaction.atomic
def found_there(checkpoint_uuid: uuid.UUID, files: Mapping[str, int]) -> None:
    """Its files are these (path -> bytes), but for those that are about to go."""
    for row in _locked([checkpoint_uuid]):
        if row.state in USABLE:
            left = {path: size for path, size in files.items() if path not in (row.doomed or [])}
            Checkpoint.objects.filter(pk=row.pk).update(**with_files(left))


def matches(path: str, globs: Sequence[str]) -> bool:
    """Whether a glob names this file as a whole; `*` stays within a folder, `**` is any number of folders."""
    return not path.endswith("/") and any(_fits(path.split("/"), glob.split("/")) for glob in globs)


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    ends = {0}  # how many parts the pattern so far can be; many `**` in it must not make this slow
    for each in pattern:
        if each == "**":
            ends = set(range(min(ends, default=len(parts) + 1), len(parts) + 1))
        else:
            ends = {end + 1 for end in ends if end < len(parts) and fnmatch.fnmatchcase(parts[end], each)}
    return len(parts) in ends


def objections(chosen: Collection[Checkpoint]) -> Iterator[str]:
    """A sentence for each that may not go now; those that are gone already are passed over."""
    there = [row for row in chosen if row.state not in GONE]
    goes_on, begin = borrowers.of({row.pk for row in there})
    for row in there:
        if row.state == CheckpointState.PARTIAL:
            yield f"Checkpoint {row.pk} is still being uploaded; delete it when the upload is complete."
        elif trial_id := goes_on.get(row.pk):
            yield (
                f"Checkpoint {row.pk} cannot be deleted while trial {trial_id} is training from it; "
                "end its experiment first, or wait for its next checkpoint."
            )
        elif experiment_id := begin.get(row.pk):
            yield (
                f"Checkpoint {row.pk} cannot be deleted while experiment {experiment_id} is running, "
                "because its trials start from it."
            )


def _require_deletable(chosen: Collection[Checkpoint]) -> None:
    if problems := list(objections(chosen)):
        raise Refusal(" ".join(problems), Code.CONFLICT)


def _locked(uuids: Collection[uuid.UUID]) -> list[Checkpoint]:
    """The checkpoints that are not gone, their experiments locked in order. Raises Refusal for one that does not
    exist."""
    rows = Checkpoint.objects.filter(pk__in=uuids)
    for experiment_id in sorted(set(rows.values_list("trial__experiment_id", flat=True))):
        lock(experiment_id)
    found = list(rows.select_related("trial__experiment").order_by("reported_at"))
    if missing := set(uuids) - {row.pk for row in found}:
        raise Refusal(f"checkpoint {min(map(str, missing))} not found; nothing was deleted.", Code.CONFLICT)
    return [row for row in found if row.state not in GONE]


def _doom(checkpoint: Checkpoint, *, actor: str, reason: str) -> None:
    """Nothing starts from it from now on; its files go after this transaction."""
    set_checkpoint_state(checkpoint, CheckpointState.DELETING, reason=reason, actor=actor)
    for trial in Trial.objects.filter(latest_checkpoint=checkpoint).select_related("source_checkpoint"):
        own = trial.checkpoints.filter(state__in=USABLE).order_by("-steps_completed", "-reported_at")
        source = trial.source_checkpoint
        left = own.first() or (source if source and source.state in USABLE else None)
        Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=left)


def to_remove() -> QuerySet[Checkpoint]:
    """Checkpoints with files that are to go."""
    waiting = Q(state=CheckpointState.DELETING) | Q(doomed__isnull=False)
    return Checkpoint.objects.filter(waiting).select_related("trial__experiment")


@transaction.atomic
def gone(checkpoint: Checkpoint, removed: Sequence[str] | None) -> None:
    """These files are gone from its storage, or all of them (None)."""
    lock(checkpoint.trial.experiment_id)
    row = Checkpoint.objects.select_related("trial").get(pk=checkpoint.pk)
    if row.state == CheckpointState.DELETING:
        if removed is None:
            Checkpoint.objects.filter(pk=row.pk).update(doomed=None, deletion_waits_for="")
            set_checkpoint_state(row, CheckpointState.DELETED, reason="files removed", actor="server")
        return
    rest = [path for path in row.doomed or [] if path not in (removed or [])]
    Checkpoint.objects.filter(pk=row.pk).update(doomed=rest or None, deletion_waits_for="")
    announce(f"experiment:{row.trial.experiment_id}")


def waits(checkpoint: Checkpoint, why: str) -> None:
    """The files cannot be removed now; it is tried again."""
    rows = Checkpoint.objects.filter(pk=checkpoint.pk).exclude(deletion_waits_for=why)
    if rows.update(deletion_waits_for=why):
        announce(f"experiment:{checkpoint.trial.experiment_id}")


def lost_with(checkpoint: Checkpoint, facts: Standing) -> list[str]:
    """Sentences on what deleting it takes away, for who is about to."""
    told: list[str] = []
    trial: Any = checkpoint.trial
    others = trial.checkpoints.filter(state__in=USABLE).exclude(pk=checkpoint.pk)
    newest = others.order_by("-steps_completed", "-reported_at").first()
    if trial.latest_checkpoint_id == checkpoint.pk:
        then = f"from step {newest.steps_completed}" if newest else "from the beginning"
        told.append(
            f"It is the latest of trial {trial.pk}. Without it, the trial can only be continued {then}."
        )
    told += [f"It is the {why}." for why in facts.kept.get(checkpoint.pk, []) if why.startswith("best")]
    for other in checkpoint.started.exclude(pk=trial.pk).order_by("pk")[:5]:
        told.append(f"Trial {other.pk} of experiment {other.experiment_id} started from it.")
    return told

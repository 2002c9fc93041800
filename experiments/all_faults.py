"""Every fault of a submission at once: a wrong config does not hide an unknown pool, nor one unknown name another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django.db import transaction

from accounts.models import User
from accounts.refusals import Together
from experiments import places, submit
from experiments.config import ExperimentConfig, check
from experiments.config.reading import check_part, merged
from experiments.models import Project
from experiments.templates import Used
from jobs.accepting import refuse_unknown_pool


class Submission(NamedTuple):
    """What a submission asks for, once nothing is wrong with it."""

    config: ExperimentConfig
    project: Project
    template: Used | None


def checked(
    faults: Together,
    text: str,
    template: Callable[[], Used | None],
    *,
    owner: User,
    project_id: int | None,
    unmanaged: bool = False,
) -> Submission:
    """Read a submission as a step of `faults`, whose other steps are done. Raises Refusal with the faults of all.

    What creating the experiment would refuse is looked for only if there are others, since creating says it then.
    """
    config, project, used, is_whole = None, None, None, False
    values: dict[str, Any] = {}
    with faults:
        with faults.step():
            used = template()
            is_whole = True
        with faults.step():
            values = merged(text, used.config if used else None)
            if is_whole:
                config = check(values, managed=not unmanaged)
            else:  # what it lacks may be in the template that is not known
                check_part(values)
        with faults.step():
            project = places.chosen(values.get("workspace"), values.get("project"), project_id)
        if faults.refused:
            with faults.step():
                _refuse_creating(config, values, owner, unmanaged)
    assert config is not None and project is not None
    return Submission(config, project, used)


def _refuse_creating(
    config: ExperimentConfig | None, values: dict[str, Any], owner: User, unmanaged: bool
) -> None:
    if config is None:
        refuse_unknown_pool({} if unmanaged else values)
        return
    with transaction.atomic():
        submit.accepted(config.effective(), owner, unmanaged=unmanaged)

"""A config as it stands in an editor: all its faults by line, and where each line of what would run comes from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import transaction

from accounts import rights
from accounts.models import User
from accounts.refusals import Refusal
from experiments import continuing, places, search_preview, submit, templates
from experiments.config import ConfigError, ExperimentConfig, check, check_template, masked, restored, schema
from experiments.config.reading import SUBJECT, merged
from experiments.models import Experiment, Project, Trial
from jobs.accepting import refuse_unknown_pool
from searching import BadSearch
from submissions import host_remarks
from submissions.config.origins import OriginLine, explained
from submissions.config.places import Placed, broken_at, placed
from submissions.config.reading import read_yaml
from trainmaster import yamltext
from trainmaster.cli.submission import missing_scripts

#: fields of refusals that are shown beside their sentence
_PARTS = ("code", "project", "searcher", "template")
#: a search of more trials is not simulated with each key that is pressed
MOST_TRIALS = 1_000
#: what a search says that one trial needs too; the rest is about trying several
_OF_ONE_TRIAL = ("metric", "smaller_is_better", "max_length", "source_trial_id", "source_checkpoint_uuid")


class Typed(NamedTuple):
    """What a form has beside the text of the config; `paths` are those of the chosen files."""

    template: str = ""
    name: str = ""
    project_id: int = 0
    seconds_per_unit: float = 0.0
    paths: Collection[str] = ()


class Forecast(NamedTuple):
    """What a search would do. `hours` are those of one slot, `span_hours` until its end; None where unknown."""

    preview: search_preview.Preview
    hours: float | None
    span_hours: float | None
    saved: float  # share of the units of all trials that early stopping saves


@dataclass
class Draft:
    """What a form says. `text` is the YAML as it would be submitted; problems of it come with their lines."""

    text: str
    original: str = ""
    template: templates.Used | None = None
    project: Project | None = None
    config: ExperimentConfig | None = None
    problems: list[Placed] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    lines: list[OriginLine] = field(default_factory=list)
    search: Forecast | None = None

    def refuse(self, where: str, sentence: str) -> None:
        self.problems.append(Placed(None, where, sentence, ""))

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run something that may refuse the draft, for one reason or several; faults of the text get their lines."""
        try:
            yield
        except ConfigError as error:
            broken = broken_at(self.text)
            self.problems += [
                each._replace(line=broken) if broken else each for each in placed(self.text, error.problems)
            ]
        except Refusal as refusal:
            for each in refusal.each:
                self.refuse(each.field if each.field in _PARTS else "", str(each))


def of_experiment(text: str, typed: Typed, parent: Experiment | None, user: User) -> Draft:
    """The draft of an experiment; nothing is kept. Masked secrets are the parent's, for users who may see them."""
    text = text.replace("\r\n", "\n")
    draft = Draft(text)
    _take_template(draft, typed.template, parent)
    with draft.step():
        values = read_yaml(text, SUBJECT)
        if parent is not None and rights.may_change(user, parent):
            values = restored(values, read_yaml(parent.original_config, SUBJECT))
        _choose(values, typed)
        draft.original = text if values == yamltext.load(text) else yamltext.dump(values)
        template = draft.template.config if draft.template else {}
        draft.config = _checked(draft, merged(draft.original, template), typed.project_id)
        effective = draft.config.effective()
        draft.lines = explained(schema.of_config, masked(effective), masked(values), masked(template))
        draft.notices = [*templates.changes_since_last_use(draft.template, user), *draft.config.remarks()]
        _accept(draft, effective, parent, user)
        _preview(draft, effective, typed.seconds_per_unit / 3600)
    _look_for_scripts(draft, typed.paths)
    return draft


def of_trial(config: Mapping[str, Any], trial: Trial) -> dict[str, Any]:
    """A config that runs one trial of a search by itself: `config` (as it was submitted) with the searcher `single`,
    and constants for hyperparameters."""
    searcher = config.get("searcher")
    kept = (
        {key: searcher[key] for key in _OF_ONE_TRIAL if key in searcher}
        if isinstance(searcher, Mapping)
        else {}
    )
    return {
        **config,
        "description": f"Trial {trial.pk} of experiment {trial.experiment_id} by itself",
        "searcher": {"name": "single", **kept},
        "hyperparameters": trial.hparams,
    }


def of_template(text: str) -> Draft:
    """The draft of a template: like a config, but anything may be absent."""
    draft = Draft(text.replace("\r\n", "\n"))
    with draft.step():
        check_template(draft.text)
    return draft


def of_changes(text: str, experiment: Experiment, role: str) -> Draft:
    """The draft of what changes in the config of an experiment that is continued; empty for nothing."""
    draft = Draft(text.replace("\r\n", "\n"))
    with draft.step():
        changes = read_yaml(draft.text, "change of the config") if draft.text.strip() else {}
        continuing.checked(experiment, changes, role=role)
    return draft


def _take_template(draft: Draft, name: str, parent: Experiment | None) -> None:
    """A fork goes on with its parent's template as it was then, also where that was changed or removed."""
    if parent is not None and name and name == parent.template_name:
        draft.template = templates.Used(name, parent.template_config)
        return
    try:
        draft.template = templates.used(name)
    except Refusal:
        draft.refuse("template", f"template {name} no longer exists; choose another.")


def _choose(values: dict[str, Any], typed: Typed) -> None:
    """What was chosen beside the text is laid over it."""
    if typed.name:
        values["name"] = typed.name


def _checked(draft: Draft, values: dict[str, Any], project_id: int) -> ExperimentConfig:
    """The config, once the project that it names is the draft's. A wrong one names a pool, too. Raises ConfigError."""
    with draft.step():
        draft.project = places.chosen(values.get("workspace"), values.get("project"), project_id)
    try:
        return check(values)
    except ConfigError:
        with draft.step():
            refuse_unknown_pool(values)
        raise


def _accept(draft: Draft, effective: dict[str, Any], parent: Experiment | None, user: User) -> None:
    """What submitting would refuse or say beyond the config's own faults."""
    with draft.step(), transaction.atomic():
        pool = submit.accepted(dict(effective, resources=dict(effective["resources"])), user)
        code = parent.context if parent else None
        draft.notices += host_remarks.remarks(effective, code, pool, user.unix_user) if pool else []


def _preview(draft: Draft, effective: dict[str, Any], hours: float) -> None:
    """What the search would do if a unit takes so many hours (0: unknown); an impossible search is an error."""
    searcher = effective["searcher"]
    if searcher["name"] in {"single", "custom"}:
        return
    try:
        found = search_preview.of(effective, most=MOST_TRIALS)
    except (Refusal, BadSearch):  # which submitting would say, too, or of too many trials to simulate
        return
    longest = found.trials * max(found.lengths, default=0)
    draft.search = Forecast(
        found,
        found.units * hours * max(1, found.slots_per_trial) if found.units and hours else None,
        found.span * hours if found.span and hours else None,
        1 - found.units / longest if found.units and longest else 0.0,
    )


def _look_for_scripts(draft: Draft, paths: Collection[str]) -> None:
    """Only a hint: a host may have more files."""
    if draft.config is None or not paths:
        return
    for script in missing_scripts({"entrypoint": draft.config.entrypoint}, set(paths)):
        draft.notices.append(f"The entrypoint names {script}, which is not among the files.")

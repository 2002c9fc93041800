"""From text to a checked experiment config, with every fault reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from experiments.config.merging import merge
from experiments.config.model import ExperimentConfig, TemplateConfig
from experiments.config.rules import broken_rules, contradictions
from experiments.config.searcher import ENDED, SEARCHERS
from experiments.config.storage import STORAGES
from searching.hyperparameters import TYPES
from submissions.config.problems import ConfigError
from submissions.config.reading import checked, once, overridden, read_yaml
from submissions.config.task_fields import TaskFields
from submissions.config.translating import Shape, is_missing, translated

SUBJECT = "experiment configuration"
_SHAPE = Shape(
    ExperimentConfig,
    unions={"name": SEARCHERS, "type": STORAGES},
    tags=frozenset({*TYPES, "map", "Length"}),
    refused=frozenset({"slots"}),
    ended=ENDED,
)
_TEMPLATE_SHAPE = _SHAPE._replace(model=TemplateConfig)


def parse(
    text: str,
    overrides: Sequence[str] = (),
    *,
    template: dict[str, Any] | None = None,
    managed: bool = True,
) -> ExperimentConfig:
    """The config that `text` and `overrides` ("resources.slots_per_trial=2") describe, on top of `template`.

    A detached experiment is not `managed` and needs no entrypoint. Raises ConfigError with all problems.
    """
    return check(merged(text, template, overrides), managed=managed)


def merged(text: str, template: dict[str, Any] | None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The values of a config as they are written, on top of `template`. Raises ConfigError."""
    config = overridden(read_yaml(text, SUBJECT), overrides, SUBJECT)
    return merge(_of_template(template), config) if template else config


def _of_template(template: dict[str, Any]) -> dict[str, Any]:
    """Templates serve every kind of job: an experiment takes the fields that it has."""
    return {name: value for name, value in template.items() if name not in TaskFields.model_fields}


def check(config: dict[str, Any], *, managed: bool = True) -> ExperimentConfig:
    """A checked config from its values. Raises ConfigError with all problems."""
    problems = list(broken_rules(config, managed=managed))
    return checked(config, ExperimentConfig, _SHAPE, problems, SUBJECT)


def check_template(text: str) -> dict[str, Any]:
    """The content of a template: like a config, but anything may be absent. Raises ConfigError."""
    template = read_yaml(text, "template")
    check_part(template, "template", _TEMPLATE_SHAPE)
    return template


def check_part(values: dict[str, Any], subject: str = SUBJECT, shape: Shape = _SHAPE) -> None:
    """Refuse what a config cannot have, in whatever there is of it. Raises ConfigError."""
    problems = []
    try:
        shape.model.model_validate(values)
    except ValidationError as error:
        present = [details for details in error.errors(include_url=False) if not is_missing(details)]
        problems = translated(present, values, shape)
    if problems := once([*problems, *contradictions(values)]):
        raise ConfigError(problems, subject)

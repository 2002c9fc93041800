"""From text to a checked config, with every fault reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from experiments.config.merging import merge
from experiments.config.model import ExperimentConfig
from experiments.config.problems import ROOT, ConfigError, Problem, shown
from experiments.config.rules import broken_rules
from experiments.config.translating import is_missing, translated
from trainmaster import yamltext
from trainmaster.overrides import BadOverride, apply_overrides

MAX_TEXT_BYTES = 1024 * 1024


def read_yaml(text: str, subject: str = "experiment configuration") -> dict[str, Any]:
    """The map that `text` holds. Raises ConfigError with line and column."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT_BYTES:
        raise ConfigError([Problem(ROOT, f"{size} bytes", f"at most {MAX_TEXT_BYTES} bytes")], subject)
    try:
        value = yamltext.load(text)
    except yamltext.YamlError as error:
        raise ConfigError([Problem(ROOT, f"text that is not YAML ({error})", "YAML")], subject) from error
    if not isinstance(value, dict):
        found = "an empty text" if value is None else shown(value)
        raise ConfigError([Problem(ROOT, found, "a map")], subject)
    return value


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
    config = read_yaml(text)
    try:
        config = apply_overrides(config, overrides)
    except BadOverride as error:
        raise ConfigError([Problem(f"--config {error.override}", error.found, error.allowed)]) from error
    return check(merge(template, config) if template else config, managed=managed)


def check(config: dict[str, Any], *, managed: bool = True) -> ExperimentConfig:
    """A checked config from its values. Raises ConfigError with all problems."""
    problems = list(broken_rules(config, managed=managed))
    try:
        checked = ExperimentConfig.model_validate(config)
    except ValidationError as error:
        raise ConfigError(
            _once(translated(error.errors(include_url=False), config, ExperimentConfig) + problems)
        ) from None
    if problems:
        raise ConfigError(problems)
    return checked


def check_template(text: str) -> dict[str, Any]:
    """The content of a template: like a config, but anything may be absent. Raises ConfigError."""
    template = read_yaml(text, "template")
    try:
        ExperimentConfig.model_validate(template)
    except ValidationError as error:
        present = [details for details in error.errors(include_url=False) if not is_missing(details)]
        problems = translated(present, template, ExperimentConfig)
        if problems:
            raise ConfigError(problems, "template") from None
    return template


def _once(problems: list[Problem]) -> list[Problem]:
    """One problem for each path: the first says it best."""
    return list({problem.path: problem for problem in reversed(problems)}.values())[::-1]

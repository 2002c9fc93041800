"""The experiment config: Determined's fields with their defaults and rules, and a few of ours.

`parse` reads and checks a text, `ExperimentConfig.effective` is what is stored, `shown` what people see.
"""

from __future__ import annotations

from experiments.config.merging import merge
from experiments.config.model import ExperimentConfig, legacy_trial
from experiments.config.reading import check, check_template, parse
from experiments.config.showing import shown, shown_template
from submissions.config.masking import MASK, masked, masked_text, restored
from submissions.config.problems import ConfigError, Problem

__all__ = [
    "MASK",
    "ConfigError",
    "ExperimentConfig",
    "Problem",
    "check",
    "check_template",
    "legacy_trial",
    "masked",
    "masked_text",
    "merge",
    "parse",
    "restored",
    "shown",
    "shown_template",
]

"""The experiment config: Determined's fields with their defaults and rules, and a few of ours.

`parse` reads and checks a text, `ExperimentConfig.effective` is what is stored, `shown` what people see.
"""

from __future__ import annotations

from experiments.config.merging import merge as merge
from experiments.config.model import ExperimentConfig as ExperimentConfig
from experiments.config.reading import check as check
from experiments.config.reading import check_template as check_template
from experiments.config.reading import parse as parse
from experiments.config.schema import shown as shown
from experiments.config.schema import shown_template as shown_template
from submissions.config.masking import MASK as MASK
from submissions.config.masking import masked as masked
from submissions.config.masking import masked_text as masked_text
from submissions.config.masking import restored as restored
from submissions.config.problems import ConfigError as ConfigError
from submissions.config.problems import Problem as Problem

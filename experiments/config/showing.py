"""Configs and templates as they are shown: without secrets, in the order of the documentation."""

from __future__ import annotations

from experiments.config import schema
from submissions.config.masking import masked
from submissions.config.ordering import Json, order_of


def shown(config: Json) -> Json:
    """A copy of an effective config for whoever may see the experiment."""
    return in_order(masked(config))


def shown_template(config: Json) -> Json:
    return order_of(schema.of_template).of(masked(config))


def in_order(config: Json) -> Json:
    return order_of(schema.of_config).of(config)

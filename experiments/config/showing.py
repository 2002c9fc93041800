"""Configs and templates as they are shown: without secrets, in the order of the documentation."""

from __future__ import annotations

from functools import cache
from typing import Any

from experiments.config import schema
from submissions.config.masking import masked
from submissions.config.ordering import Order

Json = dict[str, Any]


def shown(config: Json) -> Json:
    """A copy of an effective config for whoever may see the experiment."""
    return in_order(masked(config))


def shown_template(config: Json) -> Json:
    return _of_templates().of(masked(config))


def in_order(config: Json) -> Json:
    return _of_configs().of(config)


@cache
def _of_configs() -> Order:
    return Order(schema.of_config())


@cache
def _of_templates() -> Order:
    return Order(schema.of_template())

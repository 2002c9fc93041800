"""JSON Schemas of an experiment's config and of a template; both are shown in their order, without secrets."""

from __future__ import annotations

from functools import cache

from experiments.config.model import ExperimentConfig
from searching.hyperparameters import TYPES
from submissions.config import schema
from submissions.config.masking import masked
from submissions.config.ordering import Json, in_order


@cache
def of_config() -> Json:
    found = schema.of_model(
        ExperimentConfig,
        title="Trainmaster experiment config",
        description="What `trainmaster experiment create` submits.",
        required=["entrypoint", "searcher"],
    )
    found["$defs"]["Hyperparameter"] = _hyperparameter()
    return found


@cache
def of_template() -> Json:
    found = schema.of_part(of_config())
    about = "A stored part of a config: every field is optional, and `--template NAME` adds it to a config."
    return {**found, "title": "Trainmaster template", "description": about}


def _hyperparameter() -> Json:
    """A kind by its `type`, else a map of such, else a constant: told apart here, for all of them fit a map."""
    typed = {"required": ["type"], "properties": {"type": {"type": "string"}}}
    kinds = [{"$ref": f"#/$defs/{name.capitalize()}"} for name in TYPES]
    nested = {"type": "object", "additionalProperties": {"$ref": "#/$defs/Hyperparameter"}}
    return {
        "description": "A constant, a hyperparameter with a type, or a map of these.",
        "if": {"type": "object", **typed},
        "then": {
            "properties": {"type": {"enum": list(TYPES)}},
            "allOf": [
                {"if": {"properties": {"type": {"const": name}}}, "then": kind}
                for name, kind in zip(TYPES, kinds, strict=True)
            ],
        },
        "else": {"if": {"type": "object"}, "then": nested},
    }


def shown(config: Json) -> Json:
    """A copy of an effective config for whoever may see the experiment."""
    return in_order(masked(config), of_config)


def shown_template(config: Json) -> Json:
    return in_order(masked(config), of_template)

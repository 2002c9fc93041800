"""JSON Schemas of an experiment's config and of a template; both are shown in their order, without secrets."""

from __future__ import annotations

from functools import cache

from experiments.config.model import ExperimentConfig, TemplateConfig
from searching.hyperparameters import TYPES
from submissions.config import schema
from submissions.config.masking import masked
from submissions.config.ordering import Json, in_order


@cache
def of_config() -> Json:
    return _of(
        ExperimentConfig,
        title="Trainmaster experiment config",
        description="What `trainmaster experiment create` submits.",
        required=["entrypoint", "searcher"],
    )


@cache
def of_template() -> Json:
    return schema.of_part(
        _of(
            TemplateConfig,
            title="Trainmaster template",
            description=(
                "A stored part of a config: every field is optional, and `--template NAME` adds it to a config."
            ),
            required=[],
        )
    )


def _of(model: type[ExperimentConfig], *, title: str, description: str, required: list[str]) -> Json:
    found = schema.of_model(model, title=title, description=description, required=required)
    found["$defs"]["Hyperparameter"] = _hyperparameter()
    return found


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

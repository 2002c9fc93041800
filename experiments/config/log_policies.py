"""`log_policies`: what a line of a trial's log does besides being kept (features.md 3.5)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import regex
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    field_serializer,
    model_validator,
)

from logs.patterns import compiled
from submissions.config.section import OLDER, Section, refuse

PATTERN_CHARACTERS_MAX = 1000
_Action = Literal["cancel_retries", "exclude_node"]
_Word = _Action | dict[Literal["type"], _Action]
_Older = list[_Word | dict[Literal["signal"], str]]


def _pattern(value: Any) -> Any:
    if isinstance(value, str) and len(value) <= PATTERN_CHARACTERS_MAX:  # the field's own sentence otherwise
        try:
            compiled(value, regex.V0)
        except ValueError as error:
            raise refuse(f"a regular expression ({error})") from None
    return value


def _actions(value: Any) -> Any:
    """One word, the older `{type: word}`, or a list of these."""
    if value is None:
        return []
    found = [_word(each) for each in value] if isinstance(value, list) else [_word(value)]
    return list(dict.fromkeys(found))


def _word(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"type"}:
        value = value["type"]
    if value not in get_args(_Action):
        raise refuse("cancel_retries, exclude_node, or a list of them")
    return str(value)


def _with_older_form(schema: dict[str, Any]) -> None:
    """For editors: what `_older_form` reads."""
    older = TypeAdapter(_Older).json_schema()
    schema["properties"]["actions"] = {**older, "description": "The older form of action and name.", **OLDER}


class LogPolicy(Section):
    """A line that matches `pattern` labels its trial with `name` and triggers `action`."""

    model_config = ConfigDict(json_schema_extra=_with_older_form)

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Shown as a label; policies without a name (the older form) set no label."""
    pattern: Annotated[str, BeforeValidator(_pattern), Field(max_length=PATTERN_CHARACTERS_MAX)] | None = None
    """Matched anywhere in a line; without a pattern the policy does nothing, which turns off an inherited name."""
    action: Annotated[
        list[_Action],
        BeforeValidator(_actions, json_schema_input_type=_Word | list[_Word]),
    ] = []
    """One action or a list; without an action the policy only sets the label."""

    @model_validator(mode="before")
    @classmethod
    def _older_form(cls, data: Any) -> Any:
        """`actions: [cancel_retries, exclude_node, {signal: label}]`."""
        if not isinstance(data, dict) or not isinstance(data.get("actions"), list) or "action" in data:
            return data
        rest = {key: value for key, value in data.items() if key != "actions"}
        signals = [each for each in data["actions"] if isinstance(each, dict) and set(each) == {"signal"}]
        if signals and rest.get("name") is None:
            rest["name"] = signals[0]["signal"]
        return {**rest, "action": [each for each in data["actions"] if each not in signals]}

    @model_validator(mode="after")
    def _does_something(self) -> LogPolicy:
        if self.name is None and (self.pattern is None or not self.action):
            raise refuse("a name or, in the older form, a pattern with an action")
        return self

    @field_serializer("action")
    def _as_written(self, action: list[str]) -> str | list[str] | None:
        """One action is a word, as Determined has it."""
        return action if len(action) > 1 else action[0] if action else None


def built_ins() -> list[LogPolicy]:
    """What every experiment has unless its config says otherwise under the same name; they only label."""
    return [
        LogPolicy(name="CUDA OOM", pattern=".*CUDA out of memory.*"),
        LogPolicy(name="ECC Error", pattern=".*uncorrectable ECC error encountered.*"),
    ]


def _joined(policies: list[LogPolicy]) -> list[LogPolicy]:
    names = [policy.name for policy in policies if policy.name is not None]
    if len(set(names)) < len(names):
        raise refuse("policies with different names")
    return [*(policy for policy in built_ins() if policy.name not in names), *policies]


LogPolicies = Annotated[list[LogPolicy], AfterValidator(_joined)]

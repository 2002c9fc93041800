"""What a rule may be about, and the conditions that narrow it. Pure."""

from __future__ import annotations

from typing import Any

import regex
from django.db import models

from accounts.refusals import Refusal
from logs.patterns import compiled

Json = dict[str, Any]


class Trigger(models.TextChoices):
    """The first three are Determined's (its enum TRIGGER_TYPE_…)."""

    EXPERIMENT_STATE_CHANGE = "EXPERIMENT_STATE_CHANGE", "an experiment changes state"
    TASK_LOG = "TASK_LOG", "a log line matches"
    CUSTOM = "CUSTOM", "training code raises an alert"
    COMMAND_STATE_CHANGE = "COMMAND_STATE_CHANGE", "a command ends"
    PREEMPTED = "PREEMPTED", "a job is preempted by another job"
    LONG_WAIT = "LONG_WAIT", "a job waits a long time"
    DEADLINE = "DEADLINE", "the deadline of a job cannot be met"
    IDLE_GPU = "IDLE_GPU", "a job holds idle GPUs"
    HANG = "HANG", "a training stops making progress"
    HOST_SILENT = "HOST_SILENT", "a host stops responding"
    HOST_FAILS_STARTS = "HOST_FAILS_STARTS", "a host is drained because it cannot start jobs"
    HOST_FAULT = "HOST_FAULT", "a host or GPU has a fault"


EXPERIMENT_STATES = ("ACTIVE", "PAUSED", "COMPLETED", "CANCELED", "ERROR")
COMMAND_STATES = ("COMPLETED", "CANCELED", "ERROR")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
WAIT_MINUTES = 30
MINUTES_MAX = 30 * 24 * 60
PATTERN_CHARACTERS = 1000
#: what each trigger's condition may have
CONDITIONS: dict[str, tuple[str, ...]] = {
    Trigger.EXPERIMENT_STATE_CHANGE: ("state",),
    Trigger.COMMAND_STATE_CHANGE: ("state",),
    Trigger.TASK_LOG: ("regex", "policy"),
    Trigger.CUSTOM: ("level",),
    Trigger.LONG_WAIT: ("minutes",),
}


#: those that are not narrowed
PLAIN = [trigger for trigger in Trigger if trigger not in CONDITIONS]


def checked(triggers: Any) -> list[Json]:
    """The triggers as they are kept. Raises Refusal."""
    if not isinstance(triggers, list) or not triggers:
        raise Refusal("triggers: at least one is required; it selects what is sent to the receiver.")
    return [_checked(each, f"triggers[{index}]") for index, each in enumerate(triggers)]


def _checked(trigger: Any, path: str) -> Json:
    kind = trigger.get("type") if isinstance(trigger, dict) else None
    if kind not in Trigger.values:
        raise Refusal(f"{path}.type: found {kind!r}; allowed: {', '.join(Trigger.values)}.")
    condition = trigger.get("condition") or {}
    if not isinstance(condition, dict):
        raise Refusal(f"{path}.condition: found {condition!r}; allowed: a map.")
    condition = {name: value for name, value in condition.items() if value not in (None, "")}
    allowed = CONDITIONS.get(kind, ())
    for name in condition:
        if name not in allowed:
            may = ", ".join(allowed) or "nothing"
            raise Refusal(f"{path}.condition.{name}: {kind} has no such condition; allowed: {may}.")
    return {"type": kind, "condition": _values(kind, condition, f"{path}.condition")}


def _values(kind: str, condition: Json, path: str) -> Json:
    if "state" in condition:
        states = EXPERIMENT_STATES if kind == Trigger.EXPERIMENT_STATE_CHANGE else COMMAND_STATES
        condition["state"] = _one_of(condition["state"], states, f"{path}.state")
    if "level" in condition:
        condition["level"] = _one_of(condition["level"], LEVELS, f"{path}.level")
    if kind == Trigger.LONG_WAIT:
        minutes = condition.get("minutes", WAIT_MINUTES)
        if isinstance(minutes, bool) or not isinstance(minutes, int) or not 1 <= minutes <= MINUTES_MAX:
            raise Refusal(f"{path}.minutes: found {minutes!r}; allowed: 1 to {MINUTES_MAX}.")
        condition["minutes"] = minutes
    if kind == Trigger.TASK_LOG:
        _check_log(condition, path)
    return condition


def _one_of(value: Any, allowed: tuple[str, ...], path: str) -> str:
    word = str(value).upper()
    if word not in allowed:
        raise Refusal(f"{path}: found {value!r}; allowed: {', '.join(allowed)}.")
    return word


def _check_log(condition: Json, path: str) -> None:
    if len(condition) != 1:
        raise Refusal(f"{path}: set either a regex or the name of a policy in log_policies.")
    [(name, value)] = condition.items()
    if not isinstance(value, str) or len(value) > PATTERN_CHARACTERS:
        raise Refusal(f"{path}.{name}: allowed: text of at most {PATTERN_CHARACTERS} characters.")
    if name == "regex":
        try:
            compiled(value, regex.V0)
        except ValueError as error:
            raise Refusal(
                f"{path}.regex: found {value!r}, which is not a regular expression: {error}."
            ) from error


def fits(condition: Json, facts: Json) -> bool:
    """Whether what happened (of the trigger's own kind) meets the condition."""
    if "state" in condition and facts.get("state") != condition["state"]:
        return False
    if "level" in condition and _rank(facts.get("level")) < _rank(condition["level"]):
        return False
    if "policy" in condition and facts.get("policy") != condition["policy"]:
        return False
    if "regex" in condition and facts.get("pattern") != condition["regex"]:
        return False
    return "minutes" not in condition or facts.get("limit") == condition["minutes"]


def _rank(level: Any) -> int:
    """Return the rank of a level's name; it knows more names than LEVELS (logs.levels.Level)."""
    order = ["TRACE", *LEVELS, "CRITICAL"]
    return order.index(level if level in order else "INFO")

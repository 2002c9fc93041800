"""A notification rule as a form: what may be chosen, what was chosen, and the rule in words."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from accounts.models import User
from experiments.models import Project, Workspace
from experiments.states import ExperimentState
from notifications.models import Rule
from notifications.triggers import (
    COMMAND_STATES,
    EXPERIMENT_STATES,
    LEVELS,
    PLAIN,
    WAIT_MINUTES,
    Trigger,
)
from shown.words import STATES

Json = dict[str, Any]
FORMS = [
    (Rule.Form.WEBHOOK, "Webhook (signed JSON by POST)"),
    (Rule.Form.SLACK, "Slack (an incoming webhook)"),
    (Rule.Form.MAIL, "Email"),
]


def choices(rule: Rule, user: User) -> Json:
    """What the form offers, with what the rule has marked."""
    return {
        "forms": FORMS,
        "scopes": _scopes(user),
        "scope": _scope_of(rule),
        "experiment_states": _states(rule, Trigger.EXPERIMENT_STATE_CHANGE, EXPERIMENT_STATES),
        "command_states": _states(rule, Trigger.COMMAND_STATE_CHANGE, COMMAND_STATES),
        "plain": [(kind.value, str(kind.label), _has(rule, kind)) for kind in PLAIN],
        "levels": LEVELS,
        "custom": _has(rule, Trigger.CUSTOM),
        "level": _condition(rule, Trigger.CUSTOM, "level") or "DEBUG",
        "wait": _has(rule, Trigger.LONG_WAIT),
        "minutes": _condition(rule, Trigger.LONG_WAIT, "minutes") or WAIT_MINUTES,
        "regex": _condition(rule, Trigger.TASK_LOG, "regex"),
        "policy": _condition(rule, Trigger.TASK_LOG, "policy"),
    }


def _scopes(user: User) -> list[tuple[str, str]]:
    found = [("mine", "my jobs")]
    if user.is_admin:
        found.append(("cluster", "everything"))
    found += [
        (f"workspace:{each.pk}", f"workspace {each.name}")
        for each in Workspace.objects.order_by("name")[:500]
    ]
    projects = Project.objects.select_related("workspace").order_by("workspace__name", "name")[:500]
    return found + [
        (f"project:{each.pk}", f"project {each.workspace.name} / {each.name}") for each in projects
    ]


def _scope_of(rule: Rule) -> str:
    match rule.scope:
        case Rule.Scope.PROJECT:
            return f"project:{rule.project_id}"
        case Rule.Scope.WORKSPACE:
            return f"workspace:{rule.workspace_id}"
        case _:
            return str(rule.scope)


def _states(rule: Rule, kind: Trigger, states: tuple[str, ...]) -> list[tuple[str, str, bool]]:
    of_kind = [each["condition"].get("state") for each in rule.triggers if each["type"] == kind]
    return [(f"{kind.value}:{state}", _word(state), None in of_kind or state in of_kind) for state in states]


def _word(state: str) -> str:
    """A state that somebody is told of; being submitted is no change, so active is active after a pause."""
    return "Active again" if state == ExperimentState.ACTIVE else STATES[state].text


def _has(rule: Rule, kind: Trigger) -> bool:
    return any(each["type"] == kind for each in rule.triggers)


def _condition(rule: Rule, kind: Trigger, name: str) -> Any:
    found = (each["condition"].get(name) for each in rule.triggers if each["type"] == kind)
    return next((value for value in found if value), "")


def values(request: HttpRequest) -> Json:
    """What was sent, in the words of `notifications.rules`."""
    sent = request.POST
    scope, _, number = sent.get("scope", "").partition(":")
    return {
        "name": sent.get("name", ""),
        "form": sent.get("form", ""),
        "target": sent.get("target", ""),
        "scope": scope,
        "project_id": number,
        "workspace_id": number,
        "named_only": sent.get("named_only") == "on",
        "template": sent.get("template", "").replace("\r\n", "\n"),
        "triggers": _triggers(request),
    }


def _triggers(request: HttpRequest) -> list[Json]:
    sent, found = request.POST, []
    for chosen in (name.removeprefix("on.") for name in sent if name.startswith("on.")):
        kind, _, state = chosen.partition(":")
        condition: Json = {"state": state} if state else {}
        if kind == Trigger.CUSTOM:
            condition = {"level": sent.get("level", "")}
        if kind == Trigger.LONG_WAIT:
            minutes = sent.get("minutes", "").strip()
            condition = {
                "minutes": int(minutes) if minutes.isascii() and minutes.isdecimal() else minutes or 0
            }
        found.append({"type": kind, "condition": condition})
    for name in ("regex", "policy"):
        if text := sent.get(name, "").strip():
            found.append({"type": Trigger.TASK_LOG, "condition": {name: text}})
    return found


def draft(request: HttpRequest, rule: Rule) -> Rule:
    """What was sent, as a rule that is never saved, so that the form shows it again beside what is wrong."""
    sent = values(request)
    scope = sent["scope"] if sent["scope"] in Rule.Scope.values else "mine"
    number = int(sent["project_id"]) if str(sent["project_id"]).isdecimal() else None
    return Rule(
        pk=rule.pk, owner=rule.owner, name=sent["name"], form=sent["form"], shown=sent["target"], scope=scope,
        project_id=number if scope == "project" else None, workspace_id=number if scope == "workspace" else None,
        named_only=sent["named_only"], triggers=sent["triggers"], template=sent["template"],
    )  # fmt: skip


def in_words(rule: Rule) -> Json:
    """`of`: whose jobs it is about; `when`: what it tells of, each in a few words."""
    of = {
        Rule.Scope.MINE: f"jobs of {rule.owner.username}",
        Rule.Scope.CLUSTER: "everything",
        Rule.Scope.PROJECT: f"project {rule.project.name if rule.project else ''}",
        Rule.Scope.WORKSPACE: f"workspace {rule.workspace.name if rule.workspace else ''}",
    }[Rule.Scope(rule.scope)]
    if rule.named_only:
        of += ", if the config names this rule"
    return {"of": of, "when": list(dict.fromkeys(_when(each) for each in rule.triggers))}


def _when(trigger: Json) -> str:
    condition = trigger["condition"]
    match trigger["type"]:
        case Trigger.EXPERIMENT_STATE_CHANGE | Trigger.COMMAND_STATE_CHANGE:
            subject = "experiment" if trigger["type"] == Trigger.EXPERIMENT_STATE_CHANGE else "command"
            state = condition.get("state")
            return f"{subject} {_word(state).lower()}" if state else f"{subject} changes state"
        case Trigger.LONG_WAIT:
            return f"waits {condition['minutes']} min"
        case Trigger.TASK_LOG:
            return f"log matches {condition.get('policy') or condition.get('regex')}"
        case Trigger.CUSTOM:
            return f"alert at {condition.get('level', 'DEBUG').lower()} or above"
        case kind:
            return str(Trigger(kind).label)

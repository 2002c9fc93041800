"""A notification rule as a form: what may be chosen, what was chosen, and the rule in words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Self, cast

from django import forms
from django.forms.boundfield import BoundWidget
from django.http import HttpRequest

from accounts.models import User
from accounts.refusals import FieldRefusals
from experiments.models import Project, Workspace
from experiments.states import ExperimentState
from notifications.models import Rule
from notifications.rules import NAME_CHARACTERS
from notifications.text import STANDARD
from notifications.triggers import (
    COMMAND_STATES,
    EXPERIMENT_STATES,
    LEVELS,
    PLAIN,
    WAIT_MINUTES,
    Trigger,
)
from shown.words import STATES
from webui.forms import Chosen, Form
from webui.pages.frame import user_of
from webui.query import as_whole

Json = dict[str, Any]
FORMS = [
    (Rule.Form.WEBHOOK, "Webhook (signed JSON by POST)"),
    (Rule.Form.SLACK, "Slack (an incoming webhook)"),
    (Rule.Form.MAIL, "Email"),
]


def _boxes(kind: Trigger, states: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(f"{kind.value}:{state}", _word(state).lower()) for state in states]


def _word(state: str) -> str:
    """A state that somebody is told of; submission is not a change, so active means resumed."""
    return "Active again" if state == ExperimentState.ACTIVE else STATES[state].text


#: group -> value and label of each box
WHEN: dict[str, list[tuple[str, str]]] = {
    "experiments": _boxes(Trigger.EXPERIMENT_STATE_CHANGE, EXPERIMENT_STATES),
    "commands": _boxes(Trigger.COMMAND_STATE_CHANGE, COMMAND_STATES),
    "waits": [(Trigger.LONG_WAIT.value, "A job waits longer than")],
    "alerts": [(Trigger.CUSTOM.value, "Training code sends an alert at or above")],
    "plain": [(kind.value, f"{kind.label[0].upper()}{kind.label[1:]}") for kind in PLAIN],
}


class _Boxes(forms.CheckboxSelectMultiple):
    """Boxes with a name each, `<field>.<value>`: other inputs are drawn between them, so they are no group."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> list[str]:
        return [sent.removeprefix(f"{name}.") for sent in data if sent.startswith(f"{name}.")]

    def create_option(self, name: str, value: Any, *rest: Any, **more: Any) -> dict[str, Any]:
        return super().create_option(f"{name}.{value}", value, *rest, **more)


class RuleForm(Form):
    """What a rule says, as fields. `notifications.rules` checks the values."""

    name = forms.CharField(required=False, widget=forms.TextInput({"maxlength": NAME_CHARACTERS}))
    form = Chosen("Send by", FORMS)
    target = forms.CharField(
        label="To",
        help_text="The URL of the webhook, or up to 5 email addresses, comma-separated.",
        required=False,
        widget=forms.TextInput({"maxlength": 2000, "autocomplete": "off", "spellcheck": "false"}),
    )
    scope = Chosen("About")
    named_only = forms.BooleanField(required=False)
    on = forms.MultipleChoiceField(choices=list(WHEN.items()), required=False, widget=_Boxes)
    minutes = forms.CharField(
        label="Minutes waiting",
        required=False,
        widget=forms.TextInput({"inputmode": "numeric", "size": 4}),
    )
    level = Chosen("Lowest alert level", [(each, each.lower()) for each in LEVELS])
    policy = forms.CharField(
        label="A log line matches this log policy",
        required=False,
        widget=forms.TextInput({"placeholder": "CUDA OOM"}),
    )
    regex = forms.CharField(
        label="A log line of a trial matches this regular expression",
        required=False,
        widget=forms.TextInput({"placeholder": "loss is nan", "spellcheck": "false"}),
    )
    template = forms.CharField(
        label="Text",
        help_text="If empty: the sentence, the last lines of what failed, and the link.",
        required=False,
        strip=False,
        widget=forms.Textarea(
            {
                "rows": 6,
                "spellcheck": "false",
                "placeholder": STANDARD,
                "hx-post": "/settings/notifications/preview",
                "hx-trigger": "input changed delay:400ms",
                "hx-target": "#preview",
            }
        ),
    )

    @classmethod
    def of_rule(cls, request: HttpRequest, rule: Rule) -> Self:
        """What the rule is now, or what was sent."""
        initial = {
            "name": rule.name,
            "form": rule.form,
            "target": rule.shown,
            "scope": _scope_of(rule),
            "named_only": rule.named_only,
            "on": [value for group in WHEN.values() for value, _ in group if _tells(rule, value)],
            "minutes": _condition(rule, Trigger.LONG_WAIT, "minutes") or WAIT_MINUTES,
            "level": _condition(rule, Trigger.CUSTOM, "level") or LEVELS[0],
            "policy": _condition(rule, Trigger.TASK_LOG, "policy"),
            "regex": _condition(rule, Trigger.TASK_LOG, "regex"),
            "template": rule.template,
        }
        form = cls(request.POST if request.method == "POST" else None, initial=initial)
        cast("forms.Select", form.fields["scope"].widget).choices = _scopes(user_of(request))
        if rule.pk:
            hidden = " The saved value is partly hidden. Leave it unchanged to keep it."
            form.fields["target"].help_text += hidden
        else:
            form.fields["name"].widget.attrs["autofocus"] = True
        return form

    @property
    def when(self) -> dict[str, list[BoundWidget]]:
        """The boxes by group."""
        boxes = iter(self["on"].subwidgets)
        return {group: list(islice(boxes, len(choices))) for group, choices in WHEN.items()}

    def values(self) -> Json:
        """What was sent, in the words of `notifications.rules`."""
        sent = self.cleaned_data
        scope, _, number = sent["scope"].partition(":")
        return {
            **{name: sent[name] for name in ("name", "form", "target", "named_only")},
            "scope": scope,
            "project_id": number,
            "workspace_id": number,
            "template": sent["template"].replace("\r\n", "\n"),
            "triggers": self._triggers(),
        }

    def _triggers(self) -> list[Json]:
        sent = self.cleaned_data
        minutes = as_whole(sent["minutes"])
        conditions: dict[str, Json] = {
            Trigger.LONG_WAIT: {"minutes": (sent["minutes"] or 0) if minutes is None else minutes},
            Trigger.CUSTOM: {"level": sent["level"]},
        }
        found = []
        for kind, _, state in (value.partition(":") for value in sent["on"]):
            found.append({"type": kind, "condition": {"state": state} if state else conditions.get(kind, {})})
        logs = [{name: sent[name]} for name in ("regex", "policy") if sent[name]]
        return found + [{"type": Trigger.TASK_LOG, "condition": condition} for condition in logs]

    def add_refused(self, refusal: FieldRefusals) -> None:
        """Put each sentence beside its field."""
        for field, sentence in refusal.errors.items():
            self.add_error("on" if field == "triggers" else field, sentence)


def _tells(rule: Rule, value: str) -> bool:
    """Whether a rule has what the box of this value says; a condition without a state is about all states."""
    kind, _, state = value.partition(":")
    told = [each["condition"].get("state") for each in rule.triggers if each["type"] == kind]
    return bool(told) and (not state or None in told or state in told)


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
    ids: dict[str, int | None] = {
        Rule.Scope.PROJECT: rule.project_id,
        Rule.Scope.WORKSPACE: rule.workspace_id,
    }
    return f"{rule.scope}:{ids[rule.scope]}" if rule.scope in ids else str(rule.scope)


def _condition(rule: Rule, kind: Trigger, name: str) -> Any:
    found = (each["condition"].get(name) for each in rule.triggers if each["type"] == kind)
    return next((value for value in found if value), "")


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

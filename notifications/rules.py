"""Making and changing rules: what may be in one, who may have which, and what is shown of it."""

from __future__ import annotations

import re
import secrets
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from accounts.refusals import FieldRefusals, Refusal
from events.models import Event
from events.record import record
from experiments.models import Project, Workspace
from notifications import text, triggers
from notifications.addresses import parts_of
from notifications.models import Rule
from notifications.sealed import masked_url, seal

Json = dict[str, Any]
NAME_CHARACTERS = 128
RECIPIENTS = 5
RULES_PER_USER = 100
_MAIL = re.compile(r"[^\s@,<>\"]+@[^\s@,<>\"]+")


def of(user: User) -> Any:
    """The rules that somebody may see and change: their own, and all for an admin."""
    rows = Rule.objects.select_related("owner", "project", "workspace")
    return rows if user.is_admin else rows.filter(owner=user)


def create(user: User, values: Json) -> tuple[Rule, str]:
    """The rule, and the key of its signatures, which nobody sees again (empty where nothing is signed).

    `values`: name, form, target, scope, project_id, workspace_id, named_only, triggers, template. Raises FieldRefusals.
    """
    if Rule.objects.filter(owner=user).count() >= RULES_PER_USER:
        raise FieldRefusals(
            {"name": f"{user.username} already has {RULES_PER_USER} rules; remove one first."}
        )
    rule = Rule(owner=user)
    _take(rule, user, values, set(values) | {"name", "form", "target", "scope", "triggers"})
    key = ""
    if rule.form == Rule.Form.WEBHOOK:
        key = secrets.token_urlsafe(32)
        rule.secret = seal(key)
    with transaction.atomic():
        rule.save()
        _record(rule, "made", user)
    return rule, key


def edit(rule: Rule, user: User, values: Json) -> None:
    """Change the fields that `values` has; an address that is the mask of what stands leaves it. Raises Refusal."""
    if values.get("target") in ("", None, rule.shown):
        values = {name: value for name, value in values.items() if name != "target"}
    if values.get("form", rule.form) != rule.form and "target" not in values:
        raise FieldRefusals({"target": "target: the address is required when the form changes."})
    _take(rule, user, values, set(values))
    if rule.form == Rule.Form.WEBHOOK and not rule.secret:
        rule.secret = seal(secrets.token_urlsafe(32))
    with transaction.atomic():
        rule.save()
        _record(rule, "changed", user)


def new_key(rule: Rule, user: User) -> str:
    """Another key for the signatures; the one before does not count any more."""
    key = secrets.token_urlsafe(32)
    with transaction.atomic():
        Rule.objects.filter(pk=rule.pk).update(secret=seal(key))
        _record(rule, "key changed", user)
    return key


def set_paused(rule: Rule, user: User, paused: bool) -> None:
    """What happens while it is paused is not told afterwards."""
    if rule.paused == paused:
        return
    rule.paused = paused
    if not paused:
        rule.since = timezone.now()
    with transaction.atomic():
        rule.save(update_fields=["paused", "since"])
        _record(rule, "paused" if paused else "resumed", user)


def remove(rule: Rule, user: User) -> None:
    with transaction.atomic():
        _record(rule, "removed", user)
        rule.delete()


def _record(rule: Rule, what: str, user: User) -> None:
    detail = {"rule": rule.name, "id": rule.pk}
    record(
        Event.Kind.USER, rule.owner_id, reason=f"notification rule {what}", actor=f"user:{user.username}", detail=detail
    )  # fmt: skip


def _take(rule: Rule, user: User, values: Json, fields: set[str]) -> None:
    errors: dict[str, str] = {}
    for name, read in _READERS.items():
        if name in fields:
            try:
                read(rule, values)
            except Refusal as error:
                errors[name] = str(error)
    if "scope" not in errors and not user.is_admin and rule.scope == Rule.Scope.CLUSTER:
        errors["scope"] = "scope: only admins can create rules for everything; choose your jobs or a project."
    if errors:
        raise FieldRefusals(errors)


def _name(rule: Rule, values: Json) -> None:
    name = str(values.get("name") or "").strip()
    if not name or len(name) > NAME_CHARACTERS or not name.isprintable():
        raise Refusal(f"name: allowed: 1 to {NAME_CHARACTERS} printable characters.")
    rule.name = name


def _form(rule: Rule, values: Json) -> None:
    if values.get("form") not in Rule.Form.values:
        raise Refusal(f"form: found {values.get('form')!r}; allowed: {', '.join(Rule.Form.values)}.")
    rule.form = values["form"]


def _target(rule: Rule, values: Json) -> None:
    target = str(values.get("target") or "").strip()
    if rule.form == Rule.Form.MAIL:
        addresses = [each.strip() for each in target.split(",") if each.strip()]
        if not 1 <= len(addresses) <= RECIPIENTS or not all(_MAIL.fullmatch(each) for each in addresses):
            raise Refusal(f"target: allowed: 1 to {RECIPIENTS} mail addresses, separated by commas.")
        target = ",".join(addresses)
        rule.shown = target[:255]
    else:
        parts_of(target)
        rule.shown = masked_url(target)[:255]
    rule.target = seal(target)


def _scope(rule: Rule, values: Json) -> None:
    scope = values.get("scope") or Rule.Scope.MINE
    if scope not in Rule.Scope.values:
        raise Refusal(f"scope: found {scope!r}; allowed: {', '.join(Rule.Scope.values)}.")
    rule.scope, rule.project, rule.workspace = scope, None, None
    if scope == Rule.Scope.PROJECT:
        rule.project = Project.objects.filter(pk=_number(values.get("project_id"))).first()
        if rule.project is None:
            raise Refusal("scope: choose an existing project.")
    if scope == Rule.Scope.WORKSPACE:
        rule.workspace = Workspace.objects.filter(pk=_number(values.get("workspace_id"))).first()
        if rule.workspace is None:
            raise Refusal("scope: choose an existing workspace.")


def _number(value: Any) -> int:
    text_of = str(value or "")
    return int(text_of) if text_of.isascii() and text_of.isdecimal() and len(text_of) < 10 else 0


def _named_only(rule: Rule, values: Json) -> None:
    rule.named_only = bool(values.get("named_only"))


def _triggers(rule: Rule, values: Json) -> None:
    rule.triggers = triggers.checked(values.get("triggers"))


def _template(rule: Rule, values: Json) -> None:
    rule.template = text.check(str(values.get("template") or ""))


_READERS = {
    "name": _name,
    "form": _form,
    "target": _target,
    "scope": _scope,
    "named_only": _named_only,
    "triggers": _triggers,
    "template": _template,
}


def preview(rule: Rule) -> str:
    """The text as it would be sent of an example."""
    from notifications.messages import example

    return text.filled(rule.template, example(rule).facts)

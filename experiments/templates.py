"""Templates: parts of configs, kept by name, checked when they are saved.

A submission takes a template as it is then (`Used`); what is changed afterwards touches no experiment.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import OuterRef, QuerySet

from accounts import rights
from accounts.models import User
from accounts.refusals import Code, Refusal
from events.announce import announce
from events.models import Event
from events.record import record
from experiments.config import check_template, restored, shown_template
from experiments.models import Experiment, Template, TemplateUse, Workspace
from trainmaster import yamltext

NAME_CHARACTERS = 128


class Used(NamedTuple):
    """The template of a submission, as it was then."""

    name: str
    config: dict[str, Any]


def find(name: str) -> Template | None:
    return Template.objects.select_related("workspace", "changed_by", "owner").filter(name=name).first()


def _required(rows: QuerySet[Template], name: str) -> Template:
    row = rows.filter(name=name).first()
    if row is None:
        raise Refusal(f"template {name} not found", Code.NOT_FOUND, "template")
    return row


def uses(name: str | OuterRef) -> QuerySet[Experiment]:
    """Experiments that were submitted with the template of this name."""
    return Experiment.objects.filter(template_name=name).exclude(template_name="")  # as the index says it


def used(name: str | None) -> Used | None:
    """The template of this name for a submission, or None for an empty name. Raises Refusal."""
    if not name:
        return None
    row = _required(Template.objects.all(), name)
    return Used(row.name, row.config)


def changes_since_last_use(used: Used | None, user: User) -> list[str]:
    """How the template of a submission differs from what it was when `user` last used it."""
    last = used and TemplateUse.objects.filter(user=user, template_name=used.name).first()
    if not used or not last or last.config == used.config:
        return []
    before, after = (yamltext.dump(shown_template(each)) for each in (last.config, used.config))
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    difference = "\n".join(list(lines)[2:]) or "A masked value differs."
    return [f"Template {used.name} has changed since you last used it, in {last.submission}:\n{difference}"]


def note_use(used: Used | None, user: User, submission: str) -> None:
    """Keep what `user` has now submitted with; `submission` names that to people."""
    if used:
        TemplateUse.objects.update_or_create(
            user=user,
            template_name=used.name,
            defaults={"config": used.config, "submission": submission},
        )


def _own(rows: QuerySet[Template], name: str, user: User) -> Template:
    """The template, which `user` may change. Raises Refusal."""
    row = _required(rows, name)
    rights.require_owner(user, row, f"template {name}")
    return row


def checked(text: str, standing: Template | None = None) -> dict[str, Any]:
    """The content of a template; masks of a shown copy get their secrets from `standing`. Raises Refusal."""
    config = check_template(text)
    return restored(config, standing.config) if standing else config


def create(
    name: str, text: str, *, workspace: Workspace, user: User, copy_of: Template | None = None
) -> Template:
    """A new template; masked secrets of a copy are those of `copy_of`. Raises Refusal."""
    _check_name(name)
    config = checked(text, copy_of)
    with _once(name):
        template = Template.objects.create(
            name=name,
            config=config,
            source=_source(text, config),
            workspace=workspace,
            changed_by=user,
            owner=user,
        )
        _record(template, "made", user)
    announce("templates")
    return template


@transaction.atomic
def replace(name: str, text: str, *, user: User, seen: str = "") -> Template:
    """Give a template another content. Raises Refusal.

    `seen`: `stamp` of the template that was edited; what others have changed since is not written over.
    """
    rows = Template.objects.select_for_update(of=("self",)).select_related("changed_by", "owner")
    standing = _own(rows, name, user)
    if seen and seen != stamp(standing):
        who = standing.changed_by.username if standing.changed_by else "someone"
        raise Refusal(
            f"{who} changed {name} while you were editing it; reload it and merge both changes.",
            Code.CONFLICT,
        )
    _record(standing, "changed", user)
    standing.config = checked(text, standing)
    standing.source = _source(text, standing.config)
    standing.changed_by = user
    standing.save()
    announce("templates")
    return standing


def stamp(template: Template) -> str:
    """Names what a template holds at one time."""
    return template.changed_at.isoformat()


def put(name: str, text: str, *, workspace: Workspace, user: User) -> Template:
    """Make it or replace what it holds. Raises Refusal."""
    if not Template.objects.filter(name=name).exists():
        try:
            return create(name, text, workspace=workspace, user=user)
        except Refusal as refusal:
            if refusal.code is not Code.TAKEN:
                raise
            # somebody was faster
    return replace(name, text, user=user)


@transaction.atomic
def rename(name: str, to: str, *, user: User) -> Template:
    """The experiments that were submitted with it use the new name. Raises Refusal.

    What users last used is known under both names: another template may get the old one.
    """
    _check_name(to)
    template = _own(Template.objects.select_for_update(), name, user)
    if to == name:
        return template
    template.name, template.changed_by = to, user
    with _once(to):
        template.save()
    _record(template, "renamed", user, was=name)
    uses(name).update(template_name=to)
    last = TemplateUse.objects.filter(template_name=name).values("user_id", "config", "submission")
    TemplateUse.objects.bulk_create(
        [TemplateUse(template_name=to, **use) for use in last], ignore_conflicts=True
    )
    announce("templates")
    return template


@transaction.atomic
def remove(name: str, *, user: User) -> None:
    """Experiments that were submitted with it keep their configs. Raises Refusal."""
    template = _own(Template.objects.all(), name, user)
    _record(template, "removed", user)
    template.delete()
    announce("templates")


def _record(template: Template, reason: str, user: User, **detail: str) -> None:
    detail = {"name": template.name, **detail}
    record(Event.Kind.TEMPLATE, template.pk, reason=reason, actor=f"user:{user.username}", detail=detail)


def _check_name(name: str) -> None:
    if not name.strip():
        raise Refusal("name is required", field="name")
    if (
        len(name) > NAME_CHARACTERS
        or name != name.strip()
        or not name.isprintable()
        or "/" in name
        or name[0] == "+"
    ):
        raise Refusal(
            f"{name[:40]!r} is not a valid template name: allowed are 1 to {NAME_CHARACTERS} printable characters "
            "without a slash, with no leading plus and no leading or trailing spaces.",
            field="name",
        )


@contextmanager
def _once(name: str) -> Iterator[None]:
    """A name that is taken is said so, and the transaction around goes on."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        raise Refusal(
            f"a template {name} already exists; choose another name, or edit that one", Code.TAKEN
        ) from error


def _source(text: str, config: dict[str, Any]) -> str:
    """The text as it was written, unless its masks now stand for secrets: then none."""
    return text if yamltext.load(text) == config else ""

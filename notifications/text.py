"""The text of a message: a template with `{{ names }}` of a documented set, nothing else. Pure."""

from __future__ import annotations

import re
from typing import Any

from accounts.refusals import Refusal

#: what a template may say, and what it means; docs/notifications.md has the same table
NAMES = {
    "sentence": "what happened, in one sentence",
    "trigger": "the kind of thing, such as EXPERIMENT_STATE_CHANGE",
    "kind": "experiment, command, job or host",
    "id": "its number or id",
    "name": "its name",
    "user": "whose job it is",
    "state": "the new state",
    "reason": "why it came to it",
    "project": "the project's name",
    "workspace": "the workspace's name",
    "pool": "the resource pool",
    "host": "the host, where one is concerned",
    "title": "of an alert",
    "description": "of an alert",
    "level": "of an alert",
    "line": "of a log that matched: its number",
    "waited": "how long a job has waited",
    "duration": "how long an ended experiment went on",
    "lines": "the last lines of what failed",
    "link": "the address of its page",
    "time": "when, in UTC",
    "cluster": "the name of this server",
}
TEMPLATE_CHARACTERS = 4000
STANDARD = "{{ sentence }}\n{{ lines }}\n{{ link }}"
_NAME = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)


def check(template: str) -> str:
    """The template as it is kept. Raises Refusal."""
    if len(template) > TEMPLATE_CHARACTERS:
        raise Refusal(
            f"template: {len(template)} characters were found; allowed: {TEMPLATE_CHARACTERS} at most.",
            field="template",
        )
    if "\0" in template:
        raise Refusal("template: the character U+0000 is not allowed.", field="template")
    unknown = [name for name in _NAME.findall(template) if name not in NAMES]
    if unknown:
        raise Refusal(
            f"template: there is no {{{{ {unknown[0]} }}}}; allowed: {', '.join(NAMES)}.", field="template"
        )
    return template.strip()


def filled(template: str, facts: dict[str, Any], escape: Any = str) -> str:
    """The text. Lines that hold only names without a value are left out; values go through `escape`."""
    kept = []
    for line in (template or STANDARD).split("\n"):
        values = [facts.get(name) for name in _NAME.findall(line)]
        if values and not any(values) and not _NAME.sub("", line).strip():
            continue
        kept.append(_NAME.sub(lambda found: escape(str(facts.get(found[1]) or "")), line))
    return "\n".join(kept).strip()

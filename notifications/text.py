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
    "id": "its id",
    "name": "its name",
    "user": "the owner of the job",
    "state": "the new state",
    "reason": "the reason for the new state",
    "project": "the project's name",
    "workspace": "the workspace's name",
    "pool": "the resource pool",
    "host": "the host, if there is one",
    "title": "the title of an alert",
    "description": "the description of an alert",
    "level": "the level of an alert",
    "line": "the number of the matching log line",
    "waited": "how long a job has been waiting",
    "duration": "how long an ended experiment ran",
    "lines": "the last log lines of what failed",
    "link": "the address of its page",
    "time": "the time, in UTC",
    "cluster": "the name of this server",
}
TEMPLATE_CHARACTERS = 4000
STANDARD = "{{ sentence }}\n{{ lines }}\n{{ link }}"
_NAME = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)


def check(template: str) -> str:
    """The template as it is kept. Raises Refusal."""
    if len(template) > TEMPLATE_CHARACTERS:
        raise Refusal(f"template: found {len(template)} characters; allowed: at most {TEMPLATE_CHARACTERS}.")
    if "\0" in template:
        raise Refusal("template: the character U+0000 is not allowed.")
    unknown = [name for name in _NAME.findall(template) if name not in NAMES]
    if unknown:
        raise Refusal(f"template: there is no {{{{ {unknown[0]} }}}}; allowed: {', '.join(NAMES)}.")
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

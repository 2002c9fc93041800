"""What is sent: the body of each form, and the signature that proves whose it is. Pure but for the clock given in.

The JSON has the shape of Determined's webhooks, and its headers, so that receivers made for those understand it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from notifications.models import Delivery, Rule
from notifications.text import filled
from trainmaster import dialect_words

Json = dict[str, Any]
SIGNATURE_HEADER = "X-Determined-AI-Signature"
TIMESTAMP_HEADER = "X-Determined-AI-Signature-Timestamp"
DELIVERY_HEADER = "X-Trainmaster-Delivery"
SUBJECT_CHARACTERS = 150
_COLORS = {"ERROR": "#B42318", "COMPLETED": "#27864B", "WARNING": "#B26B00"}


@dataclass(frozen=True)
class Message:
    body: bytes
    headers: dict[str, str]


def webhook(delivery: Delivery, template: str, secret: str, timestamp: int) -> Message:
    """JSON, signed over `<timestamp>,<body>` with HMAC-SHA256 in hex."""
    facts = delivery.facts
    content: Json = {
        "event_id": str(delivery.pk),
        "event_type": delivery.trigger,
        "timestamp": int(delivery.created_at.timestamp()),
        "condition": delivery.condition,
        "text": filled(template, facts),
        "event_data": {str(facts.get("kind", "")): _subject(facts), **_data(delivery.trigger, facts)},
    }
    body = json.dumps(content, ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json", DELIVERY_HEADER: str(delivery.pk)}
    if secret:
        headers |= {TIMESTAMP_HEADER: str(timestamp), SIGNATURE_HEADER: signature(body, secret, timestamp)}
    return Message(body, headers)


def signature(body: bytes, secret: str, timestamp: int) -> str:
    return hmac.new(secret.encode(), f"{timestamp},".encode() + body, hashlib.sha256).hexdigest()


def _subject(facts: Json) -> Json:
    number = str(facts.get("id", ""))
    named = {
        "id": int(number) if facts.get("kind") == "experiment" and number.isdecimal() else number,
        "name": facts.get("name"), "state": facts.get("state"), "duration": facts.get("duration_seconds"),
        "resource_pool": facts.get("pool"), "slots_per_trial": facts.get("slots"), "workspace": facts.get("workspace"),
        "project": facts.get("project"), "user": facts.get("user"), "reason": facts.get("reason"),
        "link": facts.get("link"),
    }  # fmt: skip
    return {name: value for name, value in named.items() if value not in (None, "")}


def _data(trigger: str, facts: Json) -> Json:
    """What a trigger has beside its subject."""
    match trigger:
        case "CUSTOM":
            said = {name: facts.get(name, "") for name in ("title", "description", "level")}
            return {"custom": {**said, "trial": facts.get("trial", "")}, "custom_data": said}
        case "TASK_LOG":
            names = ("task_id", "triggering_log", "host", "line", "policy", "pattern")
            return {
                "task_log": {
                    "node_name": facts.get("host", ""),
                    **{name: facts.get(name, "") for name in names},
                }
            }
        case "LONG_WAIT" | "IDLE_GPU":
            return {"waited": facts.get("waited", "")}
        case _:
            return {}


def slack(delivery: Delivery, template: str) -> Message:
    """An incoming webhook's body; Slack reads <, > and & as markup."""
    text = filled(template, delivery.facts, _slack_escaped)
    color = _COLORS.get(str(delivery.facts.get("state") or delivery.facts.get("level")), "#8A8F98")
    ours = {"color": color, "text": text, "fallback": text}
    content = {"text": text.split("\n")[0], **(_of_determined(delivery) if not template else {})}
    content["attachments"] = [*content.get("attachments", []), ours]
    body = json.dumps(content, ensure_ascii=False).encode()
    return Message(body, {"Content-Type": "application/json", DELIVERY_HEADER: str(delivery.pk)})


def _of_determined(delivery: Delivery) -> Json:
    """The blocks that Determined sends, of what it tells of; empty for other triggers."""
    facts = {
        name: _slack_escaped(value) if isinstance(value, str) else value
        for name, value in delivery.facts.items()
    }
    if delivery.trigger == "TASK_LOG":
        named = dialect_words.task_named(facts.get("task_id", ""), str(facts.get("kind", "")).upper())
        if facts.get("trial"):
            named = dialect_words.trial_named(facts["id"], facts["trial"])
        line = dialect_words.log_matched(
            named, facts.get("host", ""), facts.get("triggering_log", ""), facts.get("pattern", "")
        )
        return {"blocks": [_section(line)]}
    if delivery.trigger != "EXPERIMENT_STATE_CHANGE":
        return {}
    status = dialect_words.experiment_status(facts["state"])
    name, link = f"{facts['name']} (#{facts['id']})", str(facts.get("link", ""))
    lines = {
        "Status": status.word,
        "Duration": dialect_words.hours(float(delivery.facts.get("duration_seconds") or 0)),
    }
    lines |= {name.capitalize(): facts[name] for name in ("workspace", "project") if facts.get(name)}
    about = _section(status.mark + (f"<{link} | {name}>" if link.startswith("http") else name))
    about["fields"] = [_text(f"*{name}*: {value}") for name, value in lines.items()]
    return {
        "blocks": [{"type": "section", "text": {"type": "plain_text", "text": status.sentence}}],
        "attachments": [{"color": status.color, "blocks": [about]}],
    }


def _section(text: str) -> Json:
    return {"type": "section", "text": _text(text)}


def _text(text: str) -> Json:
    return {"type": "mrkdwn", "text": text}


def _slack_escaped(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def mail(delivery: Delivery, template: str) -> tuple[str, str]:
    """Subject, on one line, and text."""
    text = filled(template, delivery.facts)
    sentence = str(delivery.facts.get("sentence") or text)
    cluster = delivery.facts.get("cluster") or "trainmaster"
    return f"[{cluster}] {' '.join(sentence.split())}"[:SUBJECT_CHARACTERS], text


def example(rule: Rule) -> Delivery:
    """A delivery that tells of nothing real, for previews and the test button."""
    facts = {
        "sentence": "This is a test, as if experiment 1 (digits) had completed.", "kind": "experiment", "id": "1",
        "trigger": "EXPERIMENT_STATE_CHANGE", "name": "digits", "user": rule.owner.username, "state": "COMPLETED",
        "reason": "ended with exit code 0", "project": "Uncategorized", "workspace": "Uncategorized",
        "pool": "default", "duration": "2 h 5 min", "waited": "31 min", "title": "Loss is low",
        "description": "0.02 after 900 steps", "level": "INFO", "host": "gpu1", "line": "120",
        "link": "/experiments/1", "time": "2026-01-31 12:00:00 UTC", "cluster": "trainmaster", "lines": "",
    }  # fmt: skip
    delivery = Delivery(rule=rule, trigger=facts["trigger"], facts=facts, created_at=timezone.now())
    delivery.source = f"test:{delivery.pk}"
    return delivery

"""`webhook`: who is told of what, by JSON, Slack or mail."""

from __future__ import annotations

import argparse
from typing import Any, List

from trainmaster.cli import output
from trainmaster.cli.arguments import Adder, given
from trainmaster.cli.errors import FAILED, OK, UsageError
from trainmaster.cli.output import Column, done, local_time, say
from trainmaster.client import Client, Json

_TYPES = {
    "json": "WEBHOOK_TYPE_DEFAULT",
    "slack": "WEBHOOK_TYPE_SLACK",
    "mail": "WEBHOOK_TYPE_MAIL",
}
_WORD_OF = {name: word for word, name in _TYPES.items()}
_PREFIX = "TRIGGER_TYPE_"
#: --on WORD=CONDITION: the trigger and the name of its condition; other words are a trigger's name: host-silent
_TRIGGERS = {
    "experiment": ("EXPERIMENT_STATE_CHANGE", "state"),
    "command": ("COMMAND_STATE_CHANGE", "state"),
    "alert": ("CUSTOM", "level"),
    "log": ("TASK_LOG", "regex"),
    "log-policy": ("TASK_LOG", "policy"),
    "wait": ("LONG_WAIT", "minutes"),
}
_ON = (
    "experiment[=STATE], command[=STATE], alert[=LEVEL], log=REGEX, log-policy=NAME, wait[=MINUTES], preempted, "
    "deadline, idle-gpu, hang, host-silent, host-fails-starts or host-fault; may be repeated"
)


def add(add_noun: Adder) -> None:
    noun = add_noun("webhook", aliases=["webhooks"], help="manage notifications by JSON, Slack or mail")
    verbs = noun.add_verbs()
    parser = verbs.add_parser(
        "list", aliases=["ls"], help="list your webhooks (admins: all)", form=True, run=_list
    )
    _add_changes(verbs)
    for verb, run, text in (
        ("remove", _remove, "remove a webhook"),
        ("test", _test, "send a test message now and show the receiver's response"),
    ):
        verbs.add_parser(verb, "webhook_id", aliases=["rm"] if verb == "remove" else [], help=text, run=run)
    parser = verbs.add_parser("deliveries", help="list what was sent and how the receiver responded")
    parser.add_argument("webhook_id", type=int)
    parser.add_argument("--retry", metavar="DELIVERY", help="resend this delivery now")
    output.add_format(parser)
    parser.set_defaults(run=_deliveries, action="list the deliveries")


def _add_changes(verbs: Any) -> None:
    for verb, run, new in (("create", _create, True), ("edit", _edit, False)):
        parser = verbs.add_parser(verb, help="create a webhook" if new else "change or pause a webhook")
        if new:
            parser.add_argument("name")
            parser.add_argument(
                "url", help="the receiver's URL; for mail, its addresses, separated by commas"
            )
        else:
            parser.add_argument("webhook_id", type=int)
            parser.add_argument("--name")
            parser.add_argument("--url")
            group = parser.add_mutually_exclusive_group()
            group.add_argument("--pause", dest="paused", action="store_true", default=None)
            group.add_argument("--resume", dest="paused", action="store_false")
        parser.add_argument("--type", choices=list(_TYPES), default="json" if new else None)
        parser.add_argument("--on", action="append", default=[], metavar="WHAT", required=new, help=_ON)
        parser.add_argument(
            "--scope", choices=["mine", "cluster"], help="your jobs (default), or everything (admins only)"
        )
        parser.add_argument("--workspace-id", type=int, help="all jobs of a workspace")
        parser.add_argument("--project-id", type=int, help="all experiments of a project")
        parser.add_argument(
            "--template", metavar="TEXT", help="the text of messages, with variables such as {{ sentence }}"
        )
        parser.set_defaults(run=run, action=f"{verb} the webhook")


def trigger(text: str) -> Json:
    """`experiment=ERROR` as the API has it. Raises UsageError."""
    word, _, value = text.partition("=")
    kind, condition = _TRIGGERS.get(word) or (word.upper().replace("-", "_"), "")
    if not word or (value and not condition):
        raise UsageError(f"--on {text}: allowed: {_ON}.")
    found: Json = {}
    if value:
        found = {condition: int(value) if condition == "minutes" and value.isdecimal() else value}
    return {"triggerType": _PREFIX + kind, "condition": found}


def _on(each: Json) -> str:
    kind = each["triggerType"][len(_PREFIX) :]
    condition = each.get("condition") or {}
    for word, (name, field) in _TRIGGERS.items():
        if name == kind and (not condition or field in condition):
            return "{}={}".format(word, condition[field]) if condition else word
    return str(kind).lower().replace("_", "-")


_COLUMNS = [
    Column("ID", lambda row: row["id"]),
    Column("Name", lambda row: row["name"]),
    Column("Type", lambda row: _WORD_OF.get(row["webhookType"], row["webhookType"])),
    Column("To", lambda row: row["url"]),
    Column("About", lambda row: row["scope"]),
    Column("On", lambda row: ", ".join(_on(each) for each in row["triggers"])),
    Column("Paused", lambda row: row["paused"]),
    Column("Owner", lambda row: row["username"]),
]
_DELIVERIES = [
    Column("ID", lambda row: row["id"]),
    Column("When", lambda row: local_time(row["createdAt"])),
    Column("What", lambda row: row["sentence"]),
    Column("State", lambda row: row["state"] + (" (test)" if row.get("test") else "")),
    Column("Tries", lambda row: row["attempts"]),
    Column("Answer", lambda row: row.get("answer")),
]


def _list(client: Client, args: argparse.Namespace) -> None:
    output.show(client.get("/api/v1/webhooks")["webhooks"], _COLUMNS, args.output)


def _body(args: argparse.Namespace) -> Json:
    return given(
        name=args.name,
        url=args.url,
        webhookType=_TYPES.get(args.type) if args.type else None,
        triggers=[trigger(text) for text in args.on] or None,
        scope=args.scope,
        workspaceId=args.workspace_id,
        projectId=args.project_id,
        template=args.template,
    )


def _create(client: Client, args: argparse.Namespace) -> None:
    body = _body(args)
    if not any(name in body for name in ("scope", "workspaceId", "projectId")):
        body["scope"] = "mine"
    made = client.post("/api/v1/webhooks", body)
    done(f"Created webhook {made['webhook']['id']} ({args.name})")
    if made.get("signingKey"):
        say("Its messages are signed with this key, which is shown only once:")
        print(made["signingKey"])


def _edit(client: Client, args: argparse.Namespace) -> None:
    changes = _body(args)
    if args.paused is not None:
        changes["paused"] = args.paused
    if not changes:
        raise UsageError("no change given, allowed: options such as --url or --pause.")
    client.call("PATCH", f"/api/v1/webhooks/{args.webhook_id}", changes)
    done(f"Changed webhook {args.webhook_id}")


def _remove(client: Client, args: argparse.Namespace) -> None:
    client.call("DELETE", f"/api/v1/webhooks/{args.webhook_id}")
    done(f"Removed webhook {args.webhook_id}")


def _test(client: Client, args: argparse.Namespace) -> int:
    answer = client.post(f"/api/v1/webhooks/{args.webhook_id}/test")
    if answer["completed"]:
        done(f"The receiver accepted it: {answer['answer']}")
        return OK
    say(f"The receiver did not accept it: {answer['answer']}", "red")
    return FAILED


def _deliveries(client: Client, args: argparse.Namespace) -> None:
    path = f"/api/v1/webhooks/{args.webhook_id}/deliveries"
    if args.retry:
        client.post(f"{path}/{args.retry}/retry")
        done(f"Delivery {args.retry} will be resent within seconds")
        return
    rows: List[Json] = client.pages(path, "deliveries")
    output.show(rows, _DELIVERIES, args.output)

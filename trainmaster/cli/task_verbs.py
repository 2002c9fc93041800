"""What `command`, `shell`, `notebook` and `tensorboard` share: how they start, and all verbs about what was started."""

from __future__ import annotations

import argparse
import json
import time
import webbrowser
from functools import partial
from pathlib import Path
from typing import Any, Callable, List, Mapping, NamedTuple, Optional
from urllib.parse import quote

import trainmaster.yamltext as yamltext
from trainmaster.cli import output, places
from trainmaster.cli.errors import FAILED, OK, CliError, UsageError
from trainmaster.cli.log_options import add_log_options
from trainmaster.cli.log_stream import End, Source, show_log, tell_what_it_waits_for
from trainmaster.cli.output import SHORT_ID, Bar, Column, done, local_time, say, say_notices
from trainmaster.cli.submission import add_fields, add_include, config_text, fields_of, packed
from trainmaster.client import Client, Json
from trainmaster.http import HttpError
from trainmaster.overrides import BadOverride, apply_overrides

ENDED = ("COMPLETED", "CANCELED", "ERROR")
_POLL_SECONDS = 0.3
#: as the published client names what it sorts by; `workspaceName` by the workspace's number
_SORTS = {
    "startTime": "startTime",
    "id": "id",
    "username": "username",
    "description": "description",
    "state": "phase",
    "exitStatus": "exitStatus",
    "resourcePool": "resourcePool",
    "workspaceName": "workspaceId",
}


class Kind(NamedTuple):
    """A kind of task: its noun, how people call one, the columns of `list`, and those that `describe` adds."""

    noun: str
    shown: str
    columns: List[Column]
    details: List[Column]

    @property
    def path(self) -> str:
        return f"/api/v1/{self.noun}s"

    def one(self, client: Client, task_id: str) -> Json:
        """{<noun>, config}; the id may be its beginning."""
        return dict(client.get(f"{self.path}/{quote(task_id, safe='')}"))

    def record(self, client: Client, task_id: str) -> Json:
        return dict(self.one(client, task_id)[self.noun])

    def queued_job(self, client: Client, task_id: str) -> Optional[str]:
        """The id of its job while that is queued."""
        record = self.record(client, task_id)
        return str(record["jobId"]) if record["phase"] == "QUEUED" else None


_WHAT = [
    Column("ID", lambda row: row["id"], lambda value: str(value)[:SHORT_ID]),
    Column("Owner", lambda row: row["username"]),
    Column("Description", lambda row: row["description"], lambda value: str(value)[:60]),
    Column("State", lambda row: "READY" if row.get("ready") else row["phase"]),
]
_WHERE = [
    Column("Slots", lambda row: row.get("slots")),
    Column("Host", lambda row: ", ".join(row.get("hosts") or [])),
]
_SUBMITTED = Column("Submitted", lambda row: local_time(row.get("startTime")))
_LAST_USED = Column("Last used", lambda row: local_time(row.get("lastUsed")))
_ENDED_AT = Column("Ended", lambda row: local_time(row.get("endTime")))
_POOL = Column("Resource Pool", lambda row: row.get("resourcePool"))
_HOW_ENDED = Column("How it ended", lambda row: row.get("ending"))
_PRIORITY = Column("Priority", lambda row: row.get("priority"))
_JOB = Column("Job", lambda row: row.get("jobId"))

COMMAND = Kind(
    "command",
    "Command",
    [*_WHAT, Column("Exit Code", lambda row: row.get("exitCode")), *_WHERE, _SUBMITTED, _ENDED_AT, _POOL],
    [_HOW_ENDED, _PRIORITY, _JOB, Column("Workspace", lambda row: row.get("workspaceId"))],
)


def service(noun: str, shown: str, *columns: Column) -> Kind:
    """A kind whose program people use through the server; `columns` are those that it alone has."""
    details = [
        _HOW_ENDED,
        Column("Idle timeout", lambda row: row.get("idleTimeoutSeconds")),
        Column("Address", lambda row: row.get("serviceAddress")),
        _PRIORITY,
        _JOB,
    ]
    return Kind(noun, shown, [*_WHAT, *_WHERE, *columns, _SUBMITTED, _LAST_USED, _ENDED_AT, _POOL], details)


def add_verbs(verbs: Any, kind: Kind) -> None:
    """All verbs but those that start or open one."""
    text = f"list your {kind.noun}s (or everyone's), newest first"
    _add_list_options(verbs.add_parser("list", aliases=["ls"], help=text, run=partial(_list, kind=kind)))
    text = "show its state, host, times and how it ended"
    add_one(verbs, "describe", text, kind, _describe, form=True)
    add_one(verbs, "config", "show the config in force, as YAML", kind, _config, action="show the config")
    add_log_options(add_one(verbs, "logs", "show its log", kind, _logs, action="show the log"))
    text = "stop it and everything running in it"
    parser = verbs.add_parser("kill", help=text, run=partial(_kill, kind=kind))
    parser.add_argument("ids", metavar="ID", nargs="+", help="the id, or its first characters")
    parser.add_argument("-f", "--force", action="store_true", help="continue if one cannot be killed")
    settings = verbs.add_parser("set", help="change its settings").add_verbs("WHAT")
    text = "set the priority: 1 (highest) to 99"
    parser = add_one(settings, "priority", text, kind, _set_priority, action="set the priority")
    parser.add_argument("priority", metavar="N", type=_priority)


def add_one(
    verbs: Any,
    verb: str,
    text: str,
    kind: Kind,
    run: Callable[..., Optional[int]],
    **options: Any,
) -> argparse.ArgumentParser:
    """A verb about one task."""
    run = partial(run, kind=kind)
    parser: argparse.ArgumentParser = verbs.add_parser(verb, "id", help=text, run=run, **options)
    return parser


def start(
    client: Client, args: argparse.Namespace, kind: Kind, config: Json, more: Mapping[str, Any] = {}
) -> Json:
    """Send it; {<noun>, config, …}. Raises CliError."""
    request: Json = {"config": config, "files": packed(args.context, args.include), **more}
    request.update(_request_of(client, args))
    with Bar("Sending") as bar:
        answer = dict(client.upload(kind.path, request, bar))
    say_notices(answer)
    return answer


def say_on_interrupt(args: argparse.Namespace, kind: Kind, task_id: str) -> None:
    """What Ctrl-C says from now on: that it keeps running, and how to stop it and to see its log."""
    short = task_id[:SHORT_ID]
    args.goes_on = f"{kind.shown} {short} keeps running; stop it with `trainmaster {kind.noun} kill {short}`."
    args.reopen = f"trainmaster {kind.noun} logs -f {short}"


# --- services ---------------------------------------------------------------------------------------------------


def start_service(client: Client, args: argparse.Namespace, kind: Kind, more: Mapping[str, Any] = {}) -> Json:
    """Send it; {<noun>, config, …}. Raises CliError."""
    return start(client, args, kind, config_of(args), more)


def add_open(verbs: Any, kind: Kind, starting: argparse.ArgumentParser) -> None:
    """`open`, and the option that it shares with `start`."""
    opened = add_one(verbs, "open", "open it in the browser when it is ready", kind, _open_one)
    for parser in (starting, opened):
        parser.add_argument("--no-browser", action="store_true", help="only print its URL")


def wait_until_ready(client: Client, kind: Kind, service_id: str, args: argparse.Namespace) -> Json:
    """Say what it waits for until it is ready. Raises CliError when it ends instead."""
    say_on_interrupt(args, kind, service_id)
    tell_what_it_waits_for(client, lambda: kind.queued_job(client, service_id), _POLL_SECONDS)
    while True:
        record = kind.record(client, service_id)
        if record.get("ready"):
            return record
        if record["phase"] in ENDED:
            why = record.get("ending") or record["phase"].lower()
            raise CliError(
                f"it has ended: {why}. Its log: trainmaster {kind.noun} logs {service_id[:SHORT_ID]}."
            )
        time.sleep(_POLL_SECONDS)


def show_started(client: Client, kind: Kind, service_id: str, args: argparse.Namespace) -> None:
    """With --detach its id; else where it is used, once it is ready. Raises CliError when it ends instead."""
    if args.detach:
        print(service_id)
        return
    say(f"Launched {kind.noun} {service_id}")
    _open(client, kind, service_id, args)


def _open_one(client: Client, args: argparse.Namespace, kind: Kind) -> None:
    _open(client, kind, str(kind.record(client, args.id)["id"]), args)


def _open(client: Client, kind: Kind, service_id: str, args: argparse.Namespace) -> None:
    url = f"{client.url}{wait_until_ready(client, kind, service_id, args)['serviceAddress']}"
    done(f"{kind.shown} is running at {url}")
    if not args.no_browser:
        webbrowser.open(url)


# --- the verbs --------------------------------------------------------------------------------------------------


def _add_list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help="include all users")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the ids")
    parser.add_argument("-w", "--workspace-name", metavar="NAME", help="only from this workspace")
    parser.add_argument("--sort-by", choices=list(_SORTS), default="startTime", help="default: startTime")
    parser.add_argument("--order-by", choices=["asc", "desc"], default="desc", help="default: desc")
    parser.add_argument("--limit", type=int, default=200, help="the newest N (default: 200); 0: all")
    output.add_format(parser)


def _rows_of(client: Client, kind: Kind, args: argparse.Namespace) -> List[Json]:
    """What the options of `list` leave. Raises CliError where there is no such workspace."""
    query: List[Any] = [("sortBy", "SORT_BY_START_TIME"), ("orderBy", "ORDER_BY_DESC")]
    if not args.all:
        query.append(("users", client.me()["username"]))
    if args.workspace_name:
        query.append(("workspaceId", places.workspace(client, args.workspace_name)["id"]))
    rows = client.pages(kind.path, f"{kind.noun}s", query, args.limit)
    key = _SORTS[args.sort_by]

    def value(row: Json) -> Any:
        found = row.get(key)
        return (found is not None, found if isinstance(found, int) else str(found or ""))

    return sorted(rows, key=value, reverse=args.order_by == "desc")


def _list(client: Client, args: argparse.Namespace, kind: Kind) -> None:
    rows = [_folded(_without_key(row)) for row in _rows_of(client, kind, args)]
    if args.quiet:
        for row in rows:
            print(row["id"])
    else:
        output.show(rows, kind.columns, args.output)


def _folded(row: Json) -> Json:
    """Of the first element of an array, the row of the whole array."""
    array = row.get("array")
    if not array:
        return row
    name = f"{array['name']}: {counts_of_array(array)}"
    return {
        **row,
        "id": array["id"],
        "description": name,
        "phase": array["state"],
        "exitCode": None,
        "hosts": [],
    }


def _asked(record: Json, task_id: str) -> Json:
    """The row of the whole array if the id is that of an array, whose first element the record is."""
    text, array = task_id.strip().lower().replace("-", ""), record.get("array")
    is_element = record["id"].replace("-", "").startswith(text)
    return (
        _folded(record)
        if array and array["id"].replace("-", "").startswith(text) and not is_element
        else record
    )


def counts_of_array(array: Json) -> str:
    """`90 done, 8 running, 2 waiting`."""
    names = ("done", "running", "waiting", "failed", "canceled")
    return ", ".join(f"{array[name]} {name}" for name in names if array[name])


def _describe(client: Client, args: argparse.Namespace, kind: Kind) -> None:
    record = _without_key(_asked(kind.record(client, args.id), args.id))
    output.show_one(record, [*kind.columns, *kind.details], args.output)


def _without_key(row: Json) -> Json:
    """Without the key of a shell, which nobody asked for."""
    return {name: value for name, value in row.items() if name != "privateKey"}


def _config(client: Client, args: argparse.Namespace, kind: Kind) -> None:
    print(yamltext.dump(kind.one(client, args.id)["config"]), end="")


def _logs(client: Client, args: argparse.Namespace, kind: Kind) -> int:
    record = kind.record(client, args.id)
    if _asked(record, args.id)["id"] != record["id"]:
        more = f"trainmaster array elements {args.id}"
        raise CliError(f"{args.id} is an array, and each element has a log of its own. Choose one: {more}.")
    task_id = str(record["id"])
    short = task_id[:SHORT_ID]
    args.goes_on = f"{kind.shown} {short} keeps running."

    def end() -> End:
        record = kind.record(client, task_id)
        return End(record["phase"] == "COMPLETED", record["phase"] == "ERROR", record.get("exitCode"))

    source = Source(
        f"{kind.shown} {short}",
        f"/api/v1/tasks/{quote(task_id, safe='')}",
        f"trainmaster {kind.noun} logs -f {short}",
        lambda: kind.record(client, task_id)["phase"] in ENDED,
        end,
        lambda: kind.queued_job(client, task_id),
    )
    return show_log(client, source, args)


def _kill(client: Client, args: argparse.Namespace, kind: Kind) -> int:
    code = OK
    for task_id in args.ids:
        try:
            before = _asked(kind.record(client, task_id), task_id)
            if before["phase"] in ENDED:
                # no failure, as in Determined's client
                why = before.get("ending") or str(before["phase"]).lower()
                done(f"{kind.noun.capitalize()} {before['id']} had already ended: {why}.")
                continue
            client.post(f"{kind.path}/{before['id']}/kill")
        except HttpError as error:
            if not args.force:
                raise
            say(f"Skipping {task_id}: {error}", "red")
            code = FAILED
        else:
            done(f"Killed {kind.noun} {before['id']}")
    return code


def _priority(text: str) -> int:
    if not text.lstrip("-").isdecimal():
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 1 (highest) to 99")
    return int(text)


def _set_priority(client: Client, args: argparse.Namespace, kind: Kind) -> None:
    path = f"{kind.path}/{quote(args.id, safe='')}/set_priority"
    changed = client.post(path, {"priority": args.priority})[kind.noun]
    done(f"Set priority of {kind.noun} {changed['id']} to {changed['priority']}")


# --- the options of what starts, and the config from them -----------------------------------------------------


def add_start_options(
    parser: argparse.ArgumentParser, verb: str = "start", example: str = "idle_timeout=2h", slots: str = ""
) -> None:
    """`verb`: what is done with it ("run", "start"); `example`: a KEY=VALUE; `slots`: what holds without --slots."""
    parser.add_argument("--slots", type=int, metavar="N", help=f"slots (GPUs), all on one host{slots}")
    parser.add_argument("--resource-pool", metavar="POOL", help="the pool (default: the default pool)")
    parser.add_argument("--config-file", type=Path, metavar="FILE", help="YAML file")
    add_fields(parser, example)
    parser.add_argument("--template", metavar="NAME", help="the template to use")
    parser.add_argument(
        "-c", "--context", type=Path, metavar="DIR", help=f"{verb} it in a copy of this folder"
    )
    add_include(parser)
    parser.add_argument(
        "-v",
        "--volume",
        action="append",
        default=[],
        metavar="HOST_PATH:CONTAINER_PATH",
        help="mount a folder of the host into the container; adds to bind_mounts",
    )
    parser.add_argument("-w", "--workspace-name", metavar="NAME", help="the workspace to create it in")
    parser.add_argument("-d", "--detach", action="store_true", help="print its id and exit")


def _request_of(client: Client, args: argparse.Namespace) -> Json:
    """Template and workspace, as requests name them. Raises CliError where there is no such workspace."""
    found: Json = {"templateName": args.template} if args.template else {}
    if args.workspace_name:
        found["workspaceId"] = places.workspace(client, args.workspace_name)["id"]
    return found


def config_of(args: argparse.Namespace) -> Json:
    """The file's config with the options on top. Raises CliError, UsageError."""
    config: Json = yamltext.load(config_text(args.config_file, [])) if args.config_file else {}
    short = [("resources.slots", args.slots), ("resources.resource_pool", args.resource_pool)]
    overrides = [f"{path}={json.dumps(value)}" for path, value in short if value is not None]
    mounts = [_mount(text) for text in args.volume]
    if mounts:
        config["bind_mounts"] = [*(config.get("bind_mounts") or []), *mounts]
    try:
        return apply_overrides(config, [*fields_of(args), *overrides])
    except BadOverride as error:
        raise CliError(f"{error}.") from error


def _mount(text: str) -> Json:
    host, _, inside = text.partition(":")
    if not host or not inside or ":" in inside:
        raise UsageError(f"--volume is {text!r}, allowed: HOST_PATH:CONTAINER_PATH, such as /data:/data.")
    return {"host_path": host, "container_path": inside}

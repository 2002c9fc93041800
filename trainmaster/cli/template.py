"""`template`: parts of configs that are kept on the server."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import quote

import trainmaster.yamltext as yamltext
from trainmaster.cli import config_schema, output, places
from trainmaster.cli.arguments import Adder
from trainmaster.cli.output import Column, done, local_time
from trainmaster.cli.submission import config_text
from trainmaster.client import Client, Json


def add(add_noun: Adder) -> None:
    noun = add_noun("template", aliases=["tpl"], help="manage templates, the shared parts of configs")
    verbs = noun.add_verbs()
    parser = verbs.add_parser("list", aliases=["ls", "l"], help="list all templates", run=_list)
    parser.add_argument("-d", "--details", "--detail", action="store_true", help="include their content")
    output.add_format(parser)
    config_schema.add(verbs, "template")
    verbs.add_parser("describe", "name", help="show the content of a template", run=_describe)
    saved: Json = {"action": "save the template"}
    for verb, method, said, text in (
        ("create", "POST", "Created", "create a template"),
        ("set", "PUT", "Set", "create or replace a template"),
    ):
        parser = verbs.add_parser(verb, "name", "file", help=text, run=_save, **saved)
        parser.add_argument(
            "-w",
            "--workspace",
            "--workspace-name",
            metavar="NAME",
            help="its workspace (default: Uncategorized)",
        )
        parser.set_defaults(method=method, said=said)
    saved.update(help="replace the content of a template", run=_configure)
    verbs.add_parser("config", "name", "file", **saved)
    text = "same as `config`, in Determined's form: set-value config NAME FILE"
    verbs.add_parser("set-value", help=text).add_verbs("VALUE").add_parser("config", "name", "file", **saved)
    parser = verbs.add_parser("rename", "name", aliases=["mv"], help="rename a template", run=_rename)
    parser.add_argument("to", metavar="NEW_NAME")
    verbs.add_parser("remove", "name", aliases=["rm"], help="delete a template", run=_remove)


def _path(name: str) -> str:
    return f"/api/v1/templates/{quote(name, safe='')}"


def _list(client: Client, args: argparse.Namespace) -> None:
    columns = [Column("Name", lambda row: row["name"])]
    if args.details:
        columns.append(Column("Workspace", lambda row: row.get("workspaceId")))
        columns.append(Column("Owner", lambda row: row.get("owner")))
        columns.append(Column("Changed", lambda row: local_time(row.get("changedAt"))))
        columns.append(Column("By", lambda row: row.get("changedBy")))
        columns.append(Column("Config", lambda row: row.get("config")))
    output.show(client.pages("/api/v1/templates", "templates"), columns, args.output)


def _describe(client: Client, args: argparse.Namespace) -> None:
    print(yamltext.dump(client.get(_path(args.name))["template"]["config"]), end="")


def _config(file: Path) -> Json:
    """The content of a template. Raises CliError."""
    return dict(yamltext.load(config_text(file, [])))


def _save(client: Client, args: argparse.Namespace) -> None:
    config = _config(args.file)
    workspace_id = places.workspace(client, args.workspace)["id"] if args.workspace else 1
    body = {"name": args.name, "config": config, "workspaceId": workspace_id}
    client.call(args.method, _path(args.name), body)
    done(f"{args.said} template {args.name}")


def _configure(client: Client, args: argparse.Namespace) -> None:
    client.call("PATCH", _path(args.name), _config(args.file))
    done(f"Updated template {args.name}")


def _rename(client: Client, args: argparse.Namespace) -> None:
    client.call("PATCH", "/api/v1/template/rename", {"oldName": args.name, "newName": args.to})
    done(f"Renamed template {args.name} to {args.to}")


def _remove(client: Client, args: argparse.Namespace) -> None:
    client.call("DELETE", _path(args.name))
    done(f"Removed template {args.name}")

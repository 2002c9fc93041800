"""`template`: parts of configs that are kept on the server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Callable, Dict
from urllib.parse import quote

import trainmaster.yamltext as yamltext
from trainmaster.cli import output
from trainmaster.cli.errors import OK, CliError
from trainmaster.cli.output import Column, done
from trainmaster.client import Client

Json = Dict[str, Any]
Adder = Callable[..., argparse.ArgumentParser]


def add(add_noun: Adder) -> None:
    noun = add_noun("template", aliases=["tpl"], help="shared parts of configs")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    parser = verbs.add_parser("list", aliases=["ls"], help="all templates")
    parser.add_argument("-d", "--details", "--detail", action="store_true", help="with their content")
    output.add_format(parser)
    parser.set_defaults(run=_list, action="list the templates")
    parser = verbs.add_parser("describe", help="the content of one")
    parser.add_argument("name")
    parser.set_defaults(run=_describe, action="describe the template")
    for verb, text in (("create", "Created"), ("set", "Set")):
        parser = verbs.add_parser(
            verb, help="a new template" if verb == "create" else "create or replace one"
        )
        parser.add_argument("name")
        parser.add_argument("file", type=Path)
        parser.set_defaults(
            run=_save, method="POST" if verb == "create" else "PUT", text=text, action="save the template"
        )
    parser = verbs.add_parser("remove", aliases=["rm"], help="delete one")
    parser.add_argument("name")
    parser.set_defaults(run=_remove, action="remove the template")


def _path(name: str) -> str:
    return f"/api/v1/templates/{quote(name, safe='')}"


def _list(client: Client, args: argparse.Namespace) -> int:
    columns = [Column("Name", lambda row: row["name"])]
    if args.details:
        columns.append(Column("Config", lambda row: row.get("config")))
    output.show(client.pages("/api/v1/templates", "templates"), columns, args.output)
    return OK


def _describe(client: Client, args: argparse.Namespace) -> int:
    print(yamltext.dump(client.get(_path(args.name))["template"]["config"]), end="")
    return OK


def _save(client: Client, args: argparse.Namespace) -> int:
    try:
        config = yamltext.load(args.file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CliError(f"{args.file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise CliError(f"{args.file} is not YAML: {error}.") from error
    client.call(args.method, _path(args.name), {"name": args.name, "config": config, "workspaceId": 1})
    done(f"{args.text} template {args.name}")
    return OK


def _remove(client: Client, args: argparse.Namespace) -> int:
    client.call("DELETE", _path(args.name))
    done(f"Removed template {args.name}")
    return OK

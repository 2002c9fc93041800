"""`config-schema` of experiments, commands and templates: the JSON Schema of the config, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parent / "schemas"


def add(verbs: Any, noun: str) -> None:
    """The verb of `noun`: experiment, command or template."""
    parser = verbs.add_parser(
        "config-schema", help="print the JSON Schema of its config, for editors; needs no server"
    )
    parser.set_defaults(run_alone=lambda args: _print(noun), action="print the schema")


def _print(noun: str) -> None:
    document = json.loads(_FOLDER.joinpath(f"{noun}-config.json").read_text(encoding="utf-8"))
    print(json.dumps(document, indent=2, ensure_ascii=False))

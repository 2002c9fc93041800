"""`trial support-bundle`: what somebody who helps has to know of a trial, in one file."""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any, Iterator, Tuple

from trainmaster.cli.errors import CliError
from trainmaster.cli.log_stream import log_of_trial
from trainmaster.cli.output import done
from trainmaster.client import Client, Json


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "support-bundle", help="save its records, its log and the server's log as a .tar.gz"
    )
    parser.add_argument("trial_id", type=int)
    parser.add_argument(
        "-o", "--output-dir", type=Path, default=Path(), metavar="DIR", help="default: the current folder"
    )
    parser.set_defaults(run=_bundle, action="write the bundle")


def _bundle(client: Client, args: argparse.Namespace) -> None:
    if not args.output_dir.is_dir():
        raise CliError(f"there is no folder {args.output_dir}.")
    name = f"trainmaster-trial-{args.trial_id}-{time.strftime('%Y%m%dT%H%M%S')}"
    file = args.output_dir / f"{name}.tar.gz"
    unfinished = file.with_suffix(".part")
    try:
        with tarfile.open(str(unfinished), "w:gz") as archive:
            for path, content in _contents(client, args.trial_id):
                member = tarfile.TarInfo(f"{name}/{path}")
                member.size, member.mtime = len(content), int(time.time())
                archive.addfile(member, io.BytesIO(content))
        unfinished.replace(file)
    finally:
        if unfinished.exists():
            unfinished.unlink()
    done(f"Wrote {file}")


def _contents(client: Client, trial_id: int) -> Iterator[Tuple[str, bytes]]:
    """File name -> content. Secrets in configs are masked by the server."""
    trial = client.trial(trial_id)
    yield "trial.json", _json(trial)
    yield "experiment.json", _json(client.experiment(int(trial["experimentId"])))
    log = client.lines(log_of_trial(client, trial_id).path)
    yield "trial_logs.txt", _lines(str(record.get("message", "")).rstrip("\n") for record in log)
    entries = client.lines("/api/v1/master/logs")
    yield (
        "master_logs.txt",
        _lines(f"{one['logEntry']['timestamp']} {one['logEntry']['message']}" for one in entries),
    )


def _json(value: Json) -> bytes:
    return json.dumps(value, indent=2).encode()


def _lines(lines: Iterator[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")

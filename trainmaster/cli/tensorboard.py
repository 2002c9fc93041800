"""`trial download-tensorboard`, `experiment download-tensorboard`: metrics as a folder that TensorBoard reads."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from trainmaster.cli.errors import CliError
from trainmaster.cli.output import done
from trainmaster.client import Client


def add(verbs: Any, noun: str) -> None:
    """The verb of `noun`, trial or experiment."""
    of_all = ", for all its trials" if noun == "experiment" else ""
    parser = verbs.add_parser(
        "download-tensorboard", help=f"download its metrics as TensorBoard event files{of_all}"
    )
    parser.add_argument("id", metavar=f"{noun}_id", type=int)
    parser.add_argument(
        "-o",
        "--output-dir",
        metavar="DIR",
        default="tensorboard",
        help="the folder to download to (default: tensorboard)",
    )
    parser.set_defaults(run=_download, noun=noun, action="download the TensorBoard event files")


def _download(client: Client, args: argparse.Namespace) -> None:
    folder = Path(args.output_dir)
    with tempfile.TemporaryFile() as file:
        for piece in client.pieces(f"/api/v1/{args.noun}s/{args.id}/tensorboard"):
            file.write(piece)
        try:
            count = _unpack(zipfile.ZipFile(file), folder)
        except zipfile.BadZipFile as error:
            raise CliError(f"The download was interrupted: {error}. Nothing was written.") from error
        except OSError as error:
            raise CliError(f"The files cannot be written to {folder}: {error}.") from error
    if count == 0:
        print(f"The {args.noun} {args.id} has reported no metrics yet.", file=sys.stderr)
        return
    done(
        f"Wrote {count} file{'s' * (count != 1)} to {folder}. To view them, run: tensorboard --logdir {folder}"
    )


def _unpack(archive: zipfile.ZipFile, folder: Path) -> int:
    """All files, without the archive's own first folder; those of an earlier download are replaced."""
    for info in archive.infolist():
        parts = Path(info.filename).parts[1:]
        if not parts or ".." in parts:
            raise CliError(
                f"The archive contains a file {info.filename!r}, which would be written outside {folder}."
            )
        target = folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    return len(archive.infolist())

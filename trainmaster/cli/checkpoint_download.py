"""Brings the files of checkpoints to this machine; a download that broke off goes on where it stopped.

The server lists the files and hands them out, or the addresses at which their storage does. Where it cannot reach
them, they are copied from the folder that the hosts share, if this machine has it.
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence
from urllib.parse import quote

from trainmaster.cli.errors import CliError
from trainmaster.cli.output import Bar, say
from trainmaster.client import Client, Json
from trainmaster.file_digest import sha256_of
from trainmaster.http import Answered, Unreachable

_BLOCK_BYTES = 1 << 20
_TRIES = 5
#: before it is tried again; twice as long each time
FIRST_PAUSE_SECONDS = 2.0
_TIMEOUT_SECONDS = 60.0


def add_options(parser: argparse.ArgumentParser, default: str) -> None:
    """The options of everything that downloads."""
    parser.add_argument(
        "-o", "--output-dir", metavar="DIR", help=f"the folder to download to (default: {default})"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="only print the paths")
    parser.add_argument(
        "--file", action="append", default=[], metavar="GLOB", help="only these files; repeatable"
    )
    parser.add_argument(
        "--mode",
        choices=["auto", "direct", "master"],
        default="auto",
        help="how to download: from the shared folder (direct), through the server (master), or whichever works (auto)",
    )


def download(client: Client, record: Json, folder: Path, args: argparse.Namespace) -> Path:
    """Bring one checkpoint to `folder` and say so. Raises CliError with a sentence."""
    uuid = str(record["uuid"])
    if record["state"] not in ("STATE_COMPLETED", "STATE_PARTIALLY_DELETED"):
        word = {"STATE_ACTIVE": "still being uploaded", "STATE_ERROR": "incomplete"}.get(
            record["state"], "deleted"
        )
        raise CliError(f"checkpoint {uuid} is {word}, so it cannot be downloaded.")
    shared = _shared_folder(record)
    if args.mode == "direct" or (args.mode == "auto" and shared is not None and shared.is_dir()):
        _copy(shared, uuid, folder, args.file)
    else:
        _fetch(client, uuid, folder, args.file)
    if args.quiet:
        print(folder)
    return folder


def _shared_folder(record: Json) -> Optional[Path]:
    """Where a shared folder would have it on this machine."""
    config = (record.get("training") or {}).get("experimentConfig") or {}
    storage = config.get("checkpoint_storage") or {}
    if record.get("storage") == "shared_fs":
        return Path(
            str(storage.get("host_path")), str(storage.get("storage_path") or ""), str(record["uuid"])
        )
    if record.get("storage") == "directory":
        return Path(str(storage.get("container_path")), str(record["uuid"]))
    return None


def _copy(source: Optional[Path], uuid: str, folder: Path, globs: Sequence[str]) -> None:
    if source is None:
        raise CliError(f"checkpoint {uuid} is not in a shared folder; download it with --mode master.")
    if not source.is_dir():
        raise CliError(
            f"checkpoint {uuid} is stored in {source}, which is not mounted on this machine; mount it, "
            "or run this command on a machine that has it."
        )
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source).as_posix()
        if path.is_file() and _wanted(relative, globs):
            target = _inside(folder, relative)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(path), str(target))


def _fetch(client: Client, uuid: str, folder: Path, globs: Sequence[str]) -> None:
    base = f"/api/v1/checkpoints/{uuid}/files"
    try:
        listed: List[Json] = client.get(base)["files"]
    except Answered as error:
        if error.status == 409:
            raise CliError(str(error)) from error
        raise
    files = [each for each in listed if _wanted(each["path"], globs)]
    if not files:
        raise CliError(f"checkpoint {uuid} has no file that matches; it has {_names(listed)}.")
    total, before = sum(int(each["sizeBytes"]) for each in files), 0
    with Bar(f"Downloading {uuid[:8]}") as bar:
        for each in files:
            start = before

            def told(here: int, start: int = start) -> None:
                bar(start + here, total)

            _one(client, f"{base}/{quote(each['path'])}", each, _inside(folder, each["path"]), told)
            before += int(each["sizeBytes"])


def _one(client: Client, path: str, file: Json, target: Path, told: Any) -> None:
    """One file, whole or not at all: what has arrived of it lies beside it until then."""
    size, beside = int(file["sizeBytes"]), target.with_name(target.name + ".part")
    if target.is_file() and target.stat().st_size == size and _is_right(target, file):
        told(size)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    tries = 0
    while True:
        here = beside.stat().st_size if beside.is_file() else 0
        if here > size:
            beside.unlink()
            continue
        if here == size and beside.is_file():
            break
        try:
            _append(client, path, file.get("url"), beside, here, told)
        except Unreachable as error:
            tries += 1
            if tries == _TRIES:
                raise CliError(f"{error} Run the command again to resume the download.") from error
            say(f"{error} Resuming {file['path']}.")
            time.sleep(min(FIRST_PAUSE_SECONDS * 2.0 ** (tries - 1), 10.0))
        else:
            if beside.stat().st_size < size:
                tries += 1
                if tries == _TRIES:
                    raise CliError(
                        f"{file['path']} is incomplete: {beside.stat().st_size:,} of {size:,} bytes were downloaded."
                    )
    if not _is_right(beside, file):
        beside.unlink()
        raise CliError(f"{file['path']} was corrupted in transit (SHA-256 mismatch); run the command again.")
    beside.replace(target)


def _append(client: Client, path: str, url: Optional[str], beside: Path, here: int, told: Any) -> None:
    headers = {"Range": f"bytes={here}-"} if here else {}
    pieces = _from_storage(url, headers) if url else client.pieces(path, headers=headers)
    with beside.open("ab") as out:
        for piece in pieces:
            out.write(piece)
            here += len(piece)
            told(here)


def _from_storage(url: str, headers: Dict[str, str]) -> Iterator[bytes]:
    """From the storage itself, without our token. Raises Unreachable."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_SECONDS
        ) as answer:
            while True:
                piece = answer.read(_BLOCK_BYTES)
                if not piece:
                    return
                yield piece
    except urllib.error.HTTPError as error:  # its text would show the signed address
        raise CliError(f"The storage refused the download: {error.code} {error.reason}.") from None
    except OSError as error:
        raise Unreachable(f"The storage did not respond: {getattr(error, 'reason', error)}.") from None


def _is_right(file: Path, record: Json) -> bool:
    """Whether it has the SHA-256 of the record, where that has one."""
    return "sha256" not in record or bool(sha256_of(file) == record["sha256"])


def _wanted(path: str, globs: Sequence[str]) -> bool:
    return not globs or any(
        fnmatch.fnmatchcase(path, glob) or fnmatch.fnmatchcase(path.rsplit("/", 1)[-1], glob)
        for glob in globs
    )


def _inside(folder: Path, relative: str) -> Path:
    parts = relative.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise CliError(
            f"the checkpoint contains a file {relative!r}, which would be written outside {folder}."
        )
    return folder.joinpath(*parts)


def _names(files: Sequence[Json]) -> str:
    shown = [str(each["path"]) for each in files[:10]]
    return ", ".join(shown) + (f" and {len(files) - 10} more" if len(files) > 10 else "") if shown else "none"

"""The submitted folder of code: checked, packed once by content, and read back: by file, as a tree, as a zip."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import io
import posixpath
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, NamedTuple

from django.conf import settings
from django.db.models import ProtectedError

from accounts.refusals import Code, Refusal
from submissions.config.reading import UNSTORABLE
from submissions.models import Context
from trainmaster import quantities

#: `type` of an uploaded file is tar's type flag as a number.
_FILE, _LINK, _FOLDER = ord("0"), ord("2"), ord("5")
_LARGEST_LISTED = 5
#: up to so many files are shown with all folders open
OPEN_FILES = 60
MOST_FOLDERS = 40  # one inside the other, as pages show them
_COMPRESSION = 5  # the archive travels to every host of a gang; beyond this gzip costs more than it saves


#: the refusal of a submitted folder
refused = partial(Refusal, field="code")


@dataclass(frozen=True)
class _Entry:
    path: str
    kind: int
    mode: int
    mtime: int
    content: bytes  # of a link: its target


class PlainFile(NamedTuple):
    """One file of a folder; `mode` as chmod takes it, `mtime` in seconds since 1970."""

    path: str
    mode: int
    mtime: int
    content: bytes


def store(files: list[dict[str, Any]]) -> Context:
    """Keep the files: [{"path", "type", "content" (base64), "mtime", "mode"}], as the dialect sends them.

    The same content is stored once. Raises Refusal and keeps nothing then.
    """
    return _keep([_entry(file) for file in files])


def store_plain(files: Iterable[PlainFile]) -> Context:
    """Keep files whose contents are at hand, as `store` does. Raises Refusal."""
    return _keep(
        [
            _Entry(_checked_path(path), _FILE, mode & 0o777, _clocked(mtime), content)
            for path, mode, mtime, content in files
        ]
    )


def _keep(entries: list[_Entry]) -> Context:
    entries = sorted(entries, key=lambda entry: entry.path)
    _refuse_doubles(entries)
    _refuse_too_large(entries)
    digest = _digest(entries)
    standing = Context.objects.defer("archive").filter(pk=digest).first()
    if standing is not None:
        return standing
    return Context.objects.get_or_create(
        sha256=digest,
        defaults={
            "archive": _pack(entries),
            "size_bytes": sum(len(entry.content) for entry in entries),
            "listing": [_listed(entry) for entry in entries],
        },
    )[0]


def empty() -> Context:
    """The context of a submission that is a config alone."""
    return store([])


def forget(sha256: str) -> None:
    """Drop the folder unless another submission is made of it."""
    with contextlib.suppress(ProtectedError):
        Context.objects.filter(pk=sha256).delete()


def read_file(context: Context, path: str) -> bytes:
    """Content of one file. Raises Refusal."""
    wanted = posixpath.normpath(path).lstrip("/")
    with tarfile.open(fileobj=io.BytesIO(context.archive), mode="r:gz") as archive:
        try:
            member = archive.extractfile(wanted)
        except KeyError:
            member = None
        if member is None:
            raise Refusal(f"The submitted folder has no file {path}.", Code.NOT_FOUND)
        return member.read()


def files_of(context: Context) -> Iterator[tuple[str, bytes]]:
    """Path and content of every file, in one pass over the archive; links are left out."""
    with tarfile.open(fileobj=io.BytesIO(context.archive), mode="r:gz") as archive:
        for member in archive:
            if member.isreg() and (content := archive.extractfile(member)) is not None:
                yield member.name, content.read()


def _entry(file: dict[str, Any]) -> _Entry:
    raw = str(file.get("path") or "")
    path = _checked_path(raw)
    try:
        kind = int(file.get("type") or _FILE)
        mode, mtime = int(file.get("mode") or 0), int(file.get("mtime") or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise refused(f"{raw}: type, mode and mtime must be numbers.") from error
    if kind not in {_FILE, _FOLDER, _LINK}:
        raise refused(f"{raw} has the type {kind}; allowed: files, folders, and links within the folder.")
    try:
        content = base64.b64decode(file.get("content") or "", validate=True)
    except (TypeError, binascii.Error, ValueError) as error:
        raise refused(f"{raw}: its content is not base64.") from error
    if kind == _LINK:
        _refuse_link_out(path, content.decode("utf-8", "surrogateescape"))
    mode = mode & 0o777 or (0o755 if kind == _FOLDER else 0o644)
    return _Entry(path, kind, mode, _clocked(mtime), b"" if kind == _FOLDER else content)


def _clocked(mtime: int) -> int:
    """A time that hosts' file systems take."""
    return min(max(mtime, 0), 2**33)


def _checked_path(raw: str) -> str:
    """The path without `./`; everything that could leave the folder is refused, not repaired."""
    if not raw or "\n" in raw or UNSTORABLE.search(raw):  # the list of files is JSON
        raise refused(f"{raw!r} is not a file path.")
    if raw.count("/") > MOST_FOLDERS:
        raise refused(f"{raw[:80]}… is {raw.count('/')} folders deep; allowed: at most {MOST_FOLDERS}.")
    if raw.startswith("/") or "\\" in raw.split("/", 1)[0]:
        raise refused(f"{raw} is an absolute path; paths must be relative to the submitted folder.")
    if ".." in raw.split("/"):
        raise refused(f"{raw} leads outside the submitted folder; `..` is not allowed in a path.")
    path = posixpath.normpath(raw)
    if path == ".":
        raise refused(f"{raw!r} is not a file path.")
    return path


def _refuse_link_out(path: str, target: str) -> None:
    landing = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith("/") or landing == ".." or landing.startswith("../"):
        raise refused(f"{path} is a link to {target}, which is outside the submitted folder.")


def _refuse_doubles(entries: list[_Entry]) -> None:
    kinds: dict[str, int] = {}
    for entry in entries:
        if entry.path in kinds:
            raise refused(f"{entry.path} is in the folder twice.")
        kinds[entry.path] = entry.kind
    for entry in entries:
        parent = posixpath.dirname(entry.path)
        while parent:
            if kinds.get(parent, _FOLDER) != _FOLDER:
                what = "a link" if kinds[parent] == _LINK else "a file"
                raise refused(f"{entry.path} is inside {parent}, which is {what}.")
            parent = posixpath.dirname(parent)


def _refuse_too_large(entries: list[_Entry]) -> None:
    total = sum(len(entry.content) for entry in entries)
    if total <= settings.CONTEXT_BYTES:
        return
    largest = sorted(entries, key=lambda entry: -len(entry.content))[:_LARGEST_LISTED]
    names = ", ".join(f"{entry.path} ({quantities.size(len(entry.content))})" for entry in largest)
    raise refused(
        f"The folder has {quantities.size(total)}; the limit is {quantities.size(settings.CONTEXT_BYTES)}. "
        f"The largest files are {names}. List files that training does not need in .detignore."
    )


def _digest(entries: list[_Entry]) -> str:
    """Names a content: two folders that differ in times alone are one."""
    digest = hashlib.sha256()
    for entry in entries:
        head = f"{entry.path}\0{entry.kind}\0{entry.mode:o}\0{len(entry.content)}\0"
        digest.update(head.encode("utf-8", "surrogateescape"))
        digest.update(entry.content)
    return digest.hexdigest()


def _listed(entry: _Entry) -> dict[str, Any]:
    kind = {_FILE: "f", _FOLDER: "d", _LINK: "l"}[entry.kind]
    return {
        "path": entry.path,
        "size": len(entry.content),
        "mode": entry.mode,
        "type": kind,
        "mtime": entry.mtime,
    }


def _pack(entries: list[_Entry]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w:gz", compresslevel=_COMPRESSION, format=tarfile.PAX_FORMAT
    ) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.type = {_FILE: tarfile.REGTYPE, _FOLDER: tarfile.DIRTYPE, _LINK: tarfile.SYMTYPE}[entry.kind]
            info.mode, info.mtime = entry.mode, entry.mtime
            if entry.kind == _LINK:
                info.linkname = entry.content.decode("utf-8", "surrogateescape")
                archive.addfile(info)
            else:
                info.size = len(entry.content)
                archive.addfile(info, io.BytesIO(entry.content))
    return out.getvalue()


def tree(context: Context, shown: str) -> list[dict[str, Any]]:
    """Folders and files, nested: {"name", "path", "size"} or {"name", "inside", "is_open"}; folders first."""
    files = [entry for entry in context.listing if entry.get("type") != "d"]
    top: dict[str, Any] = {}
    for entry in files:
        *folders, name = entry["path"].split("/")
        here = top
        for folder in folders:
            here = here.setdefault(folder, {})
        here[name] = entry["path"], entry["size"]
    return _nodes(top, "", shown, len(files) <= OPEN_FILES)


def _nodes(inside: dict[str, Any], above: str, shown: str, are_open: bool) -> list[dict[str, Any]]:
    nodes = []
    for name, value in sorted(inside.items(), key=lambda item: (isinstance(item[1], tuple), item[0])):
        path = f"{above}{name}"
        if isinstance(value, tuple):
            nodes.append({"name": name, "path": value[0], "size": value[1]})
            continue
        is_open = are_open or shown.startswith(f"{path}/")
        below = _nodes(value, f"{path}/", shown, are_open)
        nodes.append({"name": name, "inside": below, "is_open": is_open, "id": path})
    return nodes


def zip_into(context: Context, out: IO[bytes]) -> None:
    """Write all files as a zip."""
    modes = {entry["path"]: int(entry.get("mode") or 0o644) for entry in context.listing}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files_of(context):
            info = zipfile.ZipInfo(path)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3  # Unix, whose modes follow
            info.external_attr = (0o100000 | modes.get(path, 0o644)) << 16
            archive.writestr(info, content)

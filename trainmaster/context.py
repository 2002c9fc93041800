"""Packs the folder of code that is submitted with an experiment: Determined's `modelDefinition`."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import pathspec

from trainmaster import quantities

LIMIT_BYTES = 95 * 1024 * 1024  # of all files together, before they are encoded
IGNORE_FILE = ".detignore"
ALWAYS_IGNORED = (
    "__pycache__/",
    "*.py[co]",
    "*$py.class",
    ".git",
    ".terraform/",
    "*.tfstate",
    "*.tfstate.*",
    ".idea/",
    ".vscode/",
    ".vs/",
    ".ipynb_checkpoints/",
)
_LARGEST_LISTED = 10
#: tar's type flags, as numbers
_FILE, _FOLDER = ord("0"), ord("5")

Progress = Callable[[int, int], None]


class ContextError(Exception):
    """The folder cannot be submitted; the message is a sentence."""


class ContextEntry(NamedTuple):
    """One file or folder to send: its name inside the context and where its content lies."""

    path: str
    source: Path
    stat: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.stat.st_mode)

    @property
    def size(self) -> int:
        return 0 if self.is_folder else self.stat.st_size


class Listing(NamedTuple):
    """What would be sent, and the paths that are left out (a folder stands for all that is in it)."""

    entries: List[ContextEntry]
    skipped: List[str]

    @property
    def files(self) -> int:
        return sum(not entry.is_folder for entry in self.entries)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries)


def survey(folder: Optional[Path], includes: Sequence[Path] = ()) -> Listing:
    """The files of `folder` and of each path in `includes`, which is put at the root. Raises ContextError.

    Nothing is read but names and sizes; more than LIMIT_BYTES is an error that names the largest files.
    """
    listing = Listing([], [])
    if folder is not None:
        _walk_root(_folder(folder), "", listing)
    taken = {entry.path.split("/")[0] for entry in listing.entries}
    for path in includes:
        name = _name(path)
        if name in taken:
            raise ContextError(f"{path} cannot be included: the context already has {name} at its root.")
        taken.add(name)
        _include(path, name, listing)
    _refuse_too_large(listing)
    return listing


def encode(listing: Listing, progress: Optional[Progress] = None) -> List[Dict[str, Any]]:
    """Read the files: [{path, type, content (base64), mtime, mode, uid, gid}]. Raises ContextError.

    `progress` is called with the bytes read and the bytes in all.
    """
    done, total = 0, listing.size
    encoded = []
    for entry in listing.entries:
        content = b"" if entry.is_folder else _read(entry)
        done += len(content)
        if done > LIMIT_BYTES:
            raise ContextError(
                f"{entry.path} grew while it was read: the files are now larger than 95 MiB in total."
            )
        encoded.append(_encoded(entry, content))
        if progress is not None:
            progress(min(done, total), total)
    return encoded


def made(path: str, content: bytes) -> Dict[str, Any]:
    """A file that is on no disk, as `encode` gives one."""
    text = base64.b64encode(content).decode("ascii")
    return {"path": path, "type": _FILE, "content": text, "mtime": "0", "mode": 0o600, "uid": 0, "gid": 0}


def _name(path: Path) -> str:
    """What `path` is called; `.` and `..` by the folder that they mean."""
    return path.name if path.name not in ("", "..") else path.resolve().name


def _folder(path: Path) -> Path:
    if not path.exists():
        raise ContextError(f"The folder {path} does not exist.")
    if not path.is_dir():
        raise ContextError(
            f"{path} is a file; give the folder that contains the code, or add single files with -i."
        )
    return path


def _include(path: Path, name: str, listing: Listing) -> None:
    if not path.exists():
        raise ContextError(f"{path} cannot be included: it does not exist.")
    if path.is_dir():
        listing.entries.append(ContextEntry(name, path, _stat(path)))
        _walk_root(path, name, listing)
    else:
        listing.entries.append(ContextEntry(_text(name, path), path, _stat(path)))


def _walk_root(root: Path, prefix: str, listing: Listing) -> None:
    real = Path(os.path.realpath(str(root)))
    _Walk(root, real, prefix, _rules(root), listing).enter(root, "", (str(real),))


def _rules(root: Path) -> List[pathspec.GitIgnoreSpec]:
    """Two sets: what is never sent, and the folder's own."""
    rules = [pathspec.GitIgnoreSpec.from_lines(ALWAYS_IGNORED)]
    own = root / IGNORE_FILE
    if own.is_file():
        try:
            lines = own.read_text(encoding="utf-8").splitlines()
            rules.append(pathspec.GitIgnoreSpec.from_lines(lines))
        except (OSError, ValueError) as error:
            raise ContextError(f"{own} cannot be used: {error}.") from error
    return rules


class _Walk(NamedTuple):
    root: Path
    real_root: Path
    prefix: str
    rules: List[pathspec.GitIgnoreSpec]
    listing: Listing

    def enter(self, folder: Path, relative: str, above: Tuple[str, ...]) -> None:
        """Add what is in `folder`; `above` are the real paths of it and the folders around it."""
        for entry in self._sorted(folder):
            path = f"{relative}/{entry.name}" if relative else entry.name
            self._add(Path(entry.path), path, entry, above)

    def _sorted(self, folder: Path) -> List["os.DirEntry[str]"]:
        try:
            with os.scandir(str(folder)) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise ContextError(f"{folder} cannot be read: {error.strerror}.") from error

    def _add(self, source: Path, path: str, entry: "os.DirEntry[str]", above: Tuple[str, ...]) -> None:
        linked = entry.is_symlink()
        if self._ignored(path, source.is_dir()):
            self.listing.skipped.append(self._name(path, source.is_dir()))
            return
        real = self._inside(source) if linked else None
        found = _stat(source)
        name = _text(f"{self.prefix}/{path}" if self.prefix else path, source)
        if stat.S_ISDIR(found.st_mode):
            here = str(real) if real else os.path.realpath(str(source))
            if here in above:
                raise ContextError(
                    f"{source} links to a folder that contains it; remove the link or ignore it in {IGNORE_FILE}."
                )
            self.listing.entries.append(ContextEntry(name, source, found))
            self.enter(source, path, (*above, here))
        elif stat.S_ISREG(found.st_mode):
            self.listing.entries.append(ContextEntry(name, source, found))
        else:
            self.listing.skipped.append(f"{name} (neither a file nor a folder)")

    def _ignored(self, path: str, is_folder: bool) -> bool:
        shown = path + "/" if is_folder else path
        return any(rule.match_file(shown) for rule in self.rules)

    def _name(self, path: str, is_folder: bool) -> str:
        return (f"{self.prefix}/{path}" if self.prefix else path) + ("/" if is_folder else "")

    def _inside(self, source: Path) -> Path:
        target = Path(os.path.realpath(str(source)))
        if not target.exists():
            raise ContextError(f"{source} is a broken link.")
        if self.real_root not in (target, *target.parents):
            raise ContextError(
                f"{source} is a link out of the folder, to {target}. Copy what it points to, "
                f"ignore it in {IGNORE_FILE}, or add it with -i."
            )
        return target


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise ContextError(f"{path} cannot be read: {error.strerror}.") from error


def _text(name: str, source: Path) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ContextError(
            f"{source!s:.200}: the name is not UTF-8 and cannot be sent; rename it.".encode(
                "utf-8", "replace"
            ).decode()
        ) from error
    return name


def _read(entry: ContextEntry) -> bytes:
    try:
        return entry.source.read_bytes()
    except OSError as error:
        raise ContextError(
            f"{entry.source} cannot be read: {error.strerror}. Make it readable, or ignore it in {IGNORE_FILE}."
        ) from error


def _encoded(entry: ContextEntry, content: bytes) -> Dict[str, Any]:
    return {
        "path": entry.path,
        "type": _FOLDER if entry.is_folder else _FILE,
        "content": base64.b64encode(content).decode("ascii"),
        "mtime": str(int(entry.stat.st_mtime)),  # 64-bit numbers travel as text
        "mode": stat.S_IMODE(entry.stat.st_mode),
        "uid": entry.stat.st_uid,
        "gid": entry.stat.st_gid,
    }


def _refuse_too_large(listing: Listing) -> None:
    if listing.size <= LIMIT_BYTES:
        return
    largest = sorted(listing.entries, key=lambda entry: -entry.size)[:_LARGEST_LISTED]
    lines = "\n".join(f"  {quantities.size(entry.size):>10}  {entry.path}" for entry in largest)
    raise ContextError(
        f"The folder contains {quantities.size(listing.size)} of files, allowed: {quantities.size(LIMIT_BYTES)}. "
        f"List what is not needed in {IGNORE_FILE} (it works like .gitignore). The largest files:\n{lines}"
    )

"""The folder of collected static files: gathered, compressed once per version, and named by what is in it.

A page's addresses of static files begin with the version, so browsers keep what they have fetched for good and ask
for nothing until the files change; modules go on importing each other by relative addresses.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.core.management import call_command

#: name of a content coding, and what its files end with; the first that a browser takes is sent. Brotli takes seconds,
#: so deploy/npm/compress.js makes it at set-up, of large files alone
ENCODINGS = {"br": ".br", "gzip": ".gz"}
VERSION_DIGITS = 16
#: the folder of what set-up has made of static/: smaller, and a page's modules in one file (deploy/setup.sh)
PACKED = "packed"
_COMPRESSED_TYPES = {".js", ".css", ".svg", ".json"}
_LEAST_BYTES = 512


class VersionedFiles(StaticFilesStorage):
    """What `{% static %}` asks: addresses with the version, once there is one."""

    def url(self, name: str | None) -> str:
        address = super().url(name)
        if (found := version()) is None:
            return address
        assert self.base_url is not None
        return f"{self.base_url}{found}/{address.removeprefix(self.base_url)}"

    def post_process(
        self, paths: object, dry_run: bool = False, **_: object
    ) -> Iterator[tuple[str, str, bool]]:
        """The end of `collectstatic`: compress what has come, and name the version of all."""
        if dry_run:
            return
        if not is_packed_of_these():
            shutil.rmtree(Path(settings.STATIC_ROOT) / PACKED, ignore_errors=True)
        digest = hashlib.sha256()
        for path in _sources():
            content = path.read_bytes()
            name = str(path.relative_to(settings.STATIC_ROOT))
            digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
            yield name, name, _compress(path, content)
        _replace(_note(), digest.hexdigest()[:VERSION_DIGITS].encode())


def version() -> str | None:
    """The version of the collected files, as the name of 16 hexadecimal digits; None where sources are served."""
    if settings.DEBUG:
        return None
    try:
        return _note().read_text() or None
    except OSError:
        return None


def collect() -> None:
    """Gather and compress the files. Meanwhile there is no version: nothing old is kept by a name of the new."""
    _note().unlink(missing_ok=True)
    call_command("collectstatic", interactive=False, verbosity=0)


def is_packed_of_these() -> bool:
    """Whether the packed files were built from the current sources.

    deploy/setup.sh notes the checksums of static/ and the scripts that templates name, since each is packed by itself.
    """
    noted = finders.find(f"{PACKED}/sources.txt")
    pages = [path.read_text() for path in (settings.ROOT / "templates").rglob("*.html")]
    named = {script for page in pages for script in re.findall(r"static '(js/[^'\n]+)'", page)}
    files = [path for path in (settings.ROOT / "static").rglob("*") if path.is_file()]
    sums = {path.relative_to(settings.ROOT): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    here = sorted([*named, *(f"{digest}  {name}" for name, digest in sums.items())])
    return isinstance(noted, str) and Path(noted).read_text().splitlines() == here


def _note() -> Path:
    return Path(settings.STATIC_ROOT) / "version"


def _sources() -> Iterator[Path]:
    made = (*ENCODINGS.values(), _SCRATCH)
    for path in sorted(Path(settings.STATIC_ROOT).rglob("*")):
        if path.is_file() and path != _note() and not path.name.endswith(made):
            yield path


def _compress(path: Path, content: bytes) -> bool:
    """Write what is not there yet, or older than the file; whether there was any."""
    if path.suffix not in _COMPRESSED_TYPES or len(content) < _LEAST_BYTES:
        return False
    changed, is_new = path.stat().st_mtime_ns, False
    for coding, ending in ENCODINGS.items():
        form = path.with_name(path.name + ending)
        is_behind = not form.exists() or form.stat().st_mtime_ns <= changed
        if is_behind and (packed := _packed(coding, path, content)):
            _replace(form, packed)
            is_new = True
    return is_new


def _packed(coding: str, path: Path, content: bytes) -> bytes | None:
    if coding == "gzip":
        return gzip.compress(content, mtime=0)
    made = finders.find(f"{path.relative_to(settings.STATIC_ROOT)}{ENCODINGS[coding]}")
    return Path(made).read_bytes() if isinstance(made, str) else None


_SCRATCH = ".new"


def _replace(path: Path, content: bytes) -> None:
    """At once: several servers may prepare the same folder, and readers see one or the other."""
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, suffix=_SCRATCH)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    Path(scratch).chmod(0o644)
    Path(scratch).replace(path)

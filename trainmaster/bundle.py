"""Builds what the server brings to a host: the host part of trainmaster and the two modules it can use there.

The layout is docs/protocol.md's, with the third-party modules in `vendor/`, away from PYTHONPATH. The bundle is
named by the SHA-256 of its contents, so the same code is pushed to a host once.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import platform
import tarfile
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

_PACKAGE = Path(__file__).resolve().parent
_NOT_FOR_HOSTS = {"cli", "__main__.py"}  # it needs YAML, and nobody types commands inside a run
_SITE = "compat/sitecustomize.py"


class Bundle(NamedTuple):
    """`archive` is a tar.gz whose members lie in the bundle folder itself."""

    sha256: str
    archive: bytes


# Run on the host as `<python> -c INSTALLER <workdir> <sha256>` with the archive on stdin; Python 3.8 or newer.
# It says `{"bundle": path}`. Renaming a folder onto one that is there fails, and then that one is as good, unless
# another account made it.
_OWN_FOLDERS = (_PACKAGE / "own_folders.py").read_text(encoding="utf-8")
_INSTALL = """
import io, json, pathlib, shutil, sys, tarfile, uuid
work, name = pathlib.Path(sys.argv[1]).expanduser().absolute(), sys.argv[2]
target = work / "bundle" / name
archive = sys.stdin.buffer.read()
os.umask(0o022)
def check():
    for place in (work, work / "runs", work / "bundle", target):
        if refusal(str(place)):
            sys.exit(refusal(str(place)))
check()
if not target.is_dir():
    target.parent.mkdir(parents=True, exist_ok=True)
    check()
    new = target.parent / ("." + uuid.uuid4().hex)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            tar.extractall(str(new))
        new.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(str(new), ignore_errors=True)
    check()
print(json.dumps({"bundle": str(target)}))
""".strip()
INSTALLER = f"{_OWN_FOLDERS}\n\n{_INSTALL}"


def installer_command(python: str, workdir: str, sha256: str) -> List[str]:
    """The words to run on the host, with the bundle's archive on stdin (empty if it is known to be there)."""
    return [python, "-c", INSTALLER, workdir, sha256]


def host_command(python: str, workdir: str, sha256: str, verb: str) -> List[str]:
    """The words that run a verb on the host by its installed bundle."""
    return [python, f"{workdir.rstrip('/')}/bundle/{sha256}/trainmaster/host", verb, "--workdir", workdir]


def build_bundle() -> Bundle:
    """The bundle of the installed code; the same bytes each time for the same files."""
    files = dict(sorted({**_own_files(), **_vendored_files()}.items()))
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return Bundle(digest.hexdigest(), _tar_gz(files))


def _own_files() -> Dict[str, bytes]:
    files = {}
    for path in _PACKAGE.rglob("*.py"):
        relative = path.relative_to(_PACKAGE)
        if relative.parts[0] not in _NOT_FOR_HOSTS:
            files[f"trainmaster/{relative.as_posix()}"] = path.read_bytes()
    site = _PACKAGE / _SITE
    if site.exists():
        files["sitecustomize.py"] = site.read_bytes()
    return files


def _vendored_files() -> Dict[str, bytes]:
    """pynvml, and psutil for the server's own architecture; hosts do without either."""
    files = {}
    for name, target in (("pynvml", "vendor"), ("psutil", f"vendor/{platform.machine()}")):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        for relative, path in _module_files(Path(spec.origin)):
            files[f"{target}/{relative}"] = path.read_bytes()
    return files


def _module_files(origin: Path) -> Iterator[Tuple[str, Path]]:
    """(path in the bundle, file) of a module, or of all of its package that runs."""
    if origin.name != "__init__.py":
        yield origin.name, origin
        return
    for path in sorted(origin.parent.rglob("*")):
        relative = path.relative_to(origin.parent)
        if path.suffix in (".py", ".so") and "tests" not in relative.parts:
            yield f"{origin.parent.name}/{relative.as_posix()}", path


def _tar_gz(files: Dict[str, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=6) as file:
        file.write(plain.getvalue())
    return packed.getvalue()

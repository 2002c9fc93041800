"""The Python interpreters of this host, each with its version and torch, so that a person can choose one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from trainmaster.image_packages import PACKAGES

_MOST = 40
_AT_ONCE = 8
_SECONDS = 15
_NAME = re.compile(r"python3(\.\d+)?")
_CONDAS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda")
_VENVS = (".venv", "venv", "env", ".env", "virtualenv")

# torch and others are looked up, not imported: an import takes seconds and may touch the GPUs.
_QUESTION = """
import importlib.util, json, pathlib, platform, runpy, sys
facts = {"version": platform.python_version(), "prefix": sys.prefix, "torch": None, "cuda": None, "lacks": []}
for name in sys.argv[1:]:
    try:
        lacks = importlib.util.find_spec(name) is None
    except Exception:
        lacks = True
    if lacks:
        facts["lacks"].append(name)
try:
    spec = importlib.util.find_spec("torch")
    folder = spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else None
    if folder:
        found = runpy.run_path(str(pathlib.Path(folder) / "version.py"))
        facts["torch"], facts["cuda"] = str(found.get("__version__")), found.get("cuda")
except Exception as error:
    facts["torch_error"] = repr(error)
print(json.dumps(facts))
"""


def find_interpreters() -> List[Dict[str, Any]]:
    """[{"path", "kind", "version", "torch", "cuda", "lacks"}]: `kind` is `path`, `conda`, `pyenv`, `opt` or `venv`.

    Those that do not answer are left out; torch and cuda are None where there is none. `lacks` are modules of
    Determined's images.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda candidate: _ask(*candidate), _distinct(_candidates(Path.home())))
        return [answer for answer in answers if answer is not None]


def _candidates(home: Path) -> Iterator[Tuple[str, Path]]:
    yield "path", Path(sys.executable)
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), "/usr/local/bin", "/usr/bin"]:
        yield from (("path", path) for path in _pythons(Path(folder or ".")))
    for root in [home / name for name in _CONDAS] + [Path("/opt") / name for name in ("conda", *_CONDAS)]:
        yield "conda", root / "bin/python"
        yield from (("conda", path) for path in sorted(_glob(root, "envs/*/bin/python")))
    yield from (("conda", Path(line) / "bin/python") for line in _lines(home / ".conda/environments.txt"))
    yield from (("pyenv", path) for path in sorted(_glob(home, ".pyenv/versions/*/bin/python")))
    yield from (("pyenv", path) for path in sorted(_glob(home, ".local/share/uv/python/*/bin/python3")))
    for pattern in ("*/bin/python3", "*/*/bin/python3"):
        yield from (("opt", path) for path in sorted(_glob(Path("/opt"), pattern)))
    for base in (home, Path("/"), Path("/srv"), Path("/workspace")):
        for name in _VENVS:
            yield "venv", base / name / "bin/python"
            if base == home:
                yield from (("venv", path) for path in sorted(_glob(base, f"*/{name}/bin/python")))
    yield from (("venv", path) for path in sorted(_glob(home, ".virtualenvs/*/bin/python")))


def _pythons(folder: Path) -> List[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if _NAME.fullmatch(entry.name))
    except OSError:
        return []


def _glob(folder: Path, pattern: str) -> List[Path]:
    try:
        return list(folder.glob(pattern))
    except OSError:
        return []


def _lines(path: Path) -> List[str]:
    try:
        return path.read_text(errors="replace").split("\n")
    except OSError:
        return []


def _distinct(candidates: Iterable[Tuple[str, Path]]) -> List[Tuple[str, Path]]:
    """One candidate per interpreter and folder; a venv's link to the same binary is an interpreter of its own."""
    found: Dict[Tuple[str, str], Tuple[str, Path]] = {}
    for kind, path in candidates:
        try:
            if not os.access(path, os.X_OK) or path.is_dir():
                continue
            found.setdefault((str(path.parent.resolve()), str(path.resolve())), (kind, path))
        except OSError:
            continue
        if len(found) >= _MOST:
            break
    return list(found.values())


def _ask(kind: str, path: Path) -> Optional[Dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        result = subprocess.run(
            [str(path), "-c", _QUESTION, *PACKAGES],
            capture_output=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=False,
        )
        facts = json.loads(result.stdout.decode("utf-8", "replace").splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return None
    return {"path": str(path), "kind": kind, **facts}

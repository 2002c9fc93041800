"""`determined` as another name of the very same modules, by import and by `python -m`.

There is no package of that name in our wheel: `install` adds a finder to the import system, which
`sitecustomize.py` beside this file does in every Python of a run and under `trainmaster run -- CMD`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import CodeType, ModuleType
from typing import Any, Optional, Sequence

from trainmaster.compat import absent

ALIAS = "determined"
_OWN = "trainmaster"
_RENAMED = {"launcher": "launch"}  # a seed spells determined.launcher.wrap_rank
#: packages of their own in early releases of Determined -> where it has them since
FORMER = {f"determined_{part}": f"determined.{part}" for part in ("common", "cli", "deploy")}


def own_name(name: str) -> Optional[str]:
    """Our module's name for `determined...`, None for any other name."""
    first, *rest = name.split(".")
    if first != ALIAS:
        return None
    if rest:
        rest[0] = _RENAMED.get(rest[0], rest[0])
    return ".".join([_OWN, *rest])


class AliasFinder(importlib.abc.MetaPathFinder):
    """Finds `determined.x` as `trainmaster.x`."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        own = own_name(fullname)
        if own is None:
            return _former(fullname, path)
        try:
            original = importlib.util.find_spec(own)
        except ModuleNotFoundError:
            original = None
        if original is None or original.loader is None:
            raise ModuleNotFoundError(absent.module_message(fullname), name=fullname)
        spec = importlib.machinery.ModuleSpec(
            fullname,
            AliasLoader(fullname, own, original),
            origin=original.origin,
            is_package=original.submodule_search_locations is not None,
        )
        spec.has_location = original.has_location
        if original.submodule_search_locations is not None:
            spec.submodule_search_locations = list(original.submodule_search_locations)
        return spec


def _former(name: str, path: Optional[Sequence[str]]) -> Optional[importlib.machinery.ModuleSpec]:
    """The host's own module of an early release, or what to use instead; None for any other name."""
    first, dot, rest = name.partition(".")
    if first not in FORMER:
        return None
    found = importlib.machinery.PathFinder.find_spec(name, path)
    if found is None:
        now = FORMER[first] + dot + rest
        said = (
            f"No module named {name!r}: later releases of Determined have it as {now}. {absent.sentence(now)}"
        )
        raise ModuleNotFoundError(said, name=name)
    return found


class AliasLoader(importlib.abc.InspectLoader):
    """Gives our module itself, not a copy; for `python -m` its code."""

    def __init__(self, name: str, own: str, original: importlib.machinery.ModuleSpec) -> None:
        self._name = name
        self._own = own
        self._original = original
        self._loader: Any = original.loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return importlib.import_module(self._own)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._original  # the import system has just put the alias there
        absent.tell(module, self._name)

    def is_package(self, fullname: str) -> bool:
        return self._original.submodule_search_locations is not None

    def get_code(self, fullname: str) -> Optional[CodeType]:
        code: Optional[CodeType] = self._loader.get_code(self._own)
        return code

    def get_source(self, fullname: str) -> Optional[str]:
        source: Optional[str] = self._loader.get_source(self._own)
        return source

    def get_filename(self, fullname: str) -> str:
        return self._original.origin or ""


def install() -> None:
    """Make `import determined` give our modules from now on, before any installed package of that name."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())

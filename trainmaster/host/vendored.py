"""The third-party modules that the bundle brings along; each is optional on a host."""

from __future__ import annotations

import importlib
import platform
import sys
from pathlib import Path
from types import ModuleType
from typing import Optional

_VENDOR = Path(__file__).resolve().parents[2] / "vendor"


def import_vendored(name: str) -> Optional[ModuleType]:
    """The module `name`, from the bundle first, None where it cannot be imported.

    The bundle's folder for them is not on PYTHONPATH, so that a job's own copies are not hidden from it.
    """
    for folder in (str(_VENDOR / platform.machine()), str(_VENDOR)):
        if folder not in sys.path and Path(folder).is_dir():
            sys.path.insert(1, folder)
    try:
        return importlib.import_module(name)
    except Exception:  # a wheel for another C library, too: whatever it raises, the caller goes on without
        return None

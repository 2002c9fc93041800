"""`import_from_path`: code of a checkpoint beside code of the same names."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Iterator, Union


@contextlib.contextmanager
def import_from_path(path: Union[str, "os.PathLike[str]"]) -> Iterator[None]:
    """In the block imports look into this folder first; afterwards its modules are known by no name any more.

        with det.import_from_path(checkpoint_folder / "code"):
            import model_def as old_model_def

    A module that was imported before under a name that the folder has too is set aside meanwhile. Nothing is written
    into the folder. NotADirectoryError when it is none.
    """
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise NotADirectoryError(f"{path} is not a folder, so nothing can be imported from it.")
    before = {name: module for name, module in sys.modules.items() if _has(folder, name)}
    for name in before:
        del sys.modules[name]
    wrote = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = wrote
        for name in [name for name in sys.modules if _has(folder, name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _has(folder: Path, module: str) -> bool:
    first = module.partition(".")[0]
    return (folder / f"{first}.py").is_file() or (folder / first).is_dir()

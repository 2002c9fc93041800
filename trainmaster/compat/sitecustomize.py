"""Run by Python at its start when the folder of this file is on PYTHONPATH, beside the package `trainmaster`.

It makes `determined` a name of ours, and then runs the sitecustomize that it hides, if the host has one.
The finder is loaded at the first import of that name: most Python programs of a job never ask for it.
"""
# ruff: noqa: PTH100, PTH113, PTH118, PTH120, PTH121, PTH123 (pathlib is slow to import)

from __future__ import annotations

import os
import sys


class _Lazy:
    """Stands first among the finders until somebody asks for `determined`."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname.partition(".")[0] != "determined":
            return None
        sys.meta_path.remove(_Lazy)
        from trainmaster.compat import AliasFinder, install

        install()
        return AliasFinder().find_spec(fullname, path, target)


def _run_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in sys.path:
        path = os.path.join(folder or os.curdir, "sitecustomize.py")
        if os.path.isfile(path) and not os.path.samefile(path, __file__) and os.path.abspath(folder) != here:
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec")
            exec(code, {"__name__": "sitecustomize", "__file__": path, "__builtins__": __builtins__})
            return


if os.environ.get("TRAINMASTER_SDK", "") != "installed":
    sys.meta_path.insert(0, _Lazy)
_run_hidden()

"""Decide whether torchrun and its ranks on this host share one import of PyTorch, and what is imported.

An import takes about 2 s of processor, in torchrun and again in each rank. `warm_torchrun.py` does it once and forks.
A rank must not be able to tell, so everything that happens before its import must be known: the program, the variables,
and the statements of its script up to that import. In every other case each rank imports PyTorch by itself.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import json
import shutil
import site
import sys
from pathlib import Path
from typing import Collection, Dict, Iterable, List, Mapping, Optional, Sequence

from trainmaster.protocol import RANK, RUN_DIR, WARM_ORDER

#: set by users: "0" for never, "tell" for the reason on stderr
CHOICE = "TRAINMASTER_WARM_RANKS"
APART = "INFO: trainmaster: each rank imports PyTorch by itself: {}."
#: at least so long: forks later show the variables of their rank in its place (`shown_memory.py`)
ORDER_BYTES = 1280
# What watches a process from its start, or counts its imports, would see one process instead of many.
_WATCHED = (
    "COVERAGE_PROCESS_START",
    "CUDA_INJECTION64_PATH",
    "LD_AUDIT",
    "LD_PRELOAD",
    "LOCAL_RANK",
    "PYTHONINSPECT",
    "PYTHONPROFILEIMPORTTIME",
    "RANK",
    "TORCH_LOGS_OUT",
    RANK,
)
# Options of torchrun that change nothing in how a rank's process is made. `--numa-binding`, for one, does.
_OPTIONS = {
    "log-dir",
    "master-addr",
    "master-port",
    "max-restarts",
    "monitor-interval",
    "nnodes",
    "node-rank",
    "nproc-per-node",
    "rdzv-backend",
    "rdzv-conf",
    "rdzv-endpoint",
    "rdzv-id",
    "redirects",
    "tee",
}
_OURS = ("determined", "trainmaster")


class ColdStart(Exception):
    """Each rank must import PyTorch by itself; the message is the reason."""


def warmed(
    command: List[str],
    environment: Mapping[str, str],
    words: Sequence[str],
    overrides: Sequence[str],
    trial_module: str,
) -> "tuple[List[str], Dict[str, str]]":
    """Return what to start for `command` (torchrun) and its ranks (`words`): itself, or `words` with an order.

    That program becomes torchrun before its first line, and each rank is a fork of it that continues with that line.
    """
    try:
        imports = shared_imports(words, overrides, environment, trial_module)
    except ColdStart as cold:
        if environment.get(CHOICE) == "tell":
            print(APART.format(cold), file=sys.stderr)
        return command, dict(environment)
    order = json.dumps({"imports": imports, "launcher": command, "words": list(words)})
    return list(words), {**environment, WARM_ORDER: order.ljust(ORDER_BYTES)}


def shared_imports(
    words: Sequence[str], overrides: Sequence[str], environment: Mapping[str, str], trial_module: str
) -> List[str]:
    """Return the modules to import once for all ranks, in order, the last being torch; else ColdStart."""
    if environment.get(CHOICE) == "0":
        raise ColdStart(f"{CHOICE} is 0")
    if RUN_DIR not in environment:
        raise ColdStart("this is not a run")
    if not hasattr(sys.modules.get("sitecustomize"), "start_warm"):
        raise ColdStart("this Python was started without the run's sitecustomize")
    for name in environment:
        if name in _WATCHED or name.startswith("PET_"):
            raise ColdStart(f"the variable {name} is set")
    for option in overrides:
        name = option.lstrip("-").partition("=")[0].replace("_", "-")
        if "=" not in option or name not in _OPTIONS:
            raise ColdStart(f"of torchrun's option {option} it is unknown what it changes")
    if len(words) < 2 or not _is_this_python(words[0]):
        raise ColdStart("the ranks run another program than this Python")
    if site.ENABLE_USER_SITE and importlib.util.find_spec("usercustomize") is not None:
        raise ColdStart("this account has a usercustomize")
    standard = getattr(sys, "stdlib_module_names", ())
    if not standard:
        raise ColdStart("Python older than 3.10 does not tell which modules are its own")
    hidden = hidden_module(words, standard)
    if hidden:
        raise ColdStart(f"the job has a module {hidden} of its own")
    if list(words[1:3]) == ["-m", trial_module]:
        return ["torch"]  # imports the trial only afterwards
    if not words[1].endswith(".py"):
        raise ColdStart("the ranks run no script")
    try:
        tree = ast.parse(Path(words[1]).read_bytes())
    except (OSError, SyntaxError, ValueError):
        raise ColdStart(f"{words[1]} cannot be read") from None
    return _imports_until_torch(tree, environment)


def hidden_module(
    words: Sequence[str], modules: Iterable[str], missing: Collection[str] = ()
) -> Optional[str]:
    """Return a module that a rank finds in its script's folder, or torchrun in the current one, before any other.

    `missing` are those that are nowhere else, so that a mere folder counts.
    """
    script = Path(words[1])  # of `-m MODULE`, its folder is the current one, too
    folders = [str(folder) for folder in (Path.cwd(), script.absolute().parent, script.resolve().parent)]
    try:
        for name in sorted({name.partition(".")[0] for name in [*modules, *missing]}):
            found = importlib.machinery.PathFinder.find_spec(name, folders)
            if found is not None and (found.origin is not None or name in missing):
                return name
        return None
    finally:
        for folder in folders:  # as if nobody had looked
            sys.path_importer_cache.pop(folder, None)


def _is_this_python(word: str) -> bool:
    found = Path(shutil.which(word) or word)
    here = Path(sys.executable)
    return found.parent == here.parent and found.resolve() == here.resolve()


def _imports_until_torch(tree: ast.Module, environment: Mapping[str, str]) -> List[str]:
    ours = _OURS if environment.get("TRAINMASTER_SDK") != "installed" else ()
    found: List[str] = []
    for statement in tree.body:
        for name in _imported(statement, environment):
            top, _, rest = name.partition(".")
            if top == "torch" or (top in ours and rest.partition(".")[0] == "pytorch"):
                return [*found, "torch"]
            if top == "numpy":  # with some builds it matters which of the two is imported first
                found = ["numpy"]
            elif top not in sys.stdlib_module_names and top not in ours:
                raise ColdStart(f"line {statement.lineno} imports {top} before torch")
    raise ColdStart("the script does not import torch")


def _imported(statement: ast.stmt, environment: Mapping[str, str]) -> List[str]:
    """Return the modules and names that a statement imports; ColdStart if it may do something else."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return [f"{statement.module}.{alias.name}" for alias in statement.names]
    if isinstance(statement, ast.Expr):
        if isinstance(statement.value, ast.Constant):
            return []  # a docstring
        name = _default_of(statement.value)
        if name is not None and name in environment:
            return []
    raise ColdStart(f"line {statement.lineno} does more than import before torch is imported")


def _default_of(call: ast.expr) -> Optional[str]:
    """Return NAME of `os.environ.setdefault("NAME", "…")`."""
    if not isinstance(call, ast.Call) or ast.dump(call.func) != _SETDEFAULT or len(call.args) != 2:
        return None
    name, value = call.args
    if not isinstance(name, ast.Constant) or not isinstance(value, ast.Constant):
        return None
    return name.value if isinstance(name.value, str) and not call.keywords else None


_SETDEFAULT = ast.dump(ast.parse("os.environ.setdefault", mode="eval").body)

"""Every public name of the published package is one of ours, or says what to use instead."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainmaster.made_run import environment_of
from trainmaster.compat import absent

pytestmark = pytest.mark.compat

LOOK = """
import importlib, json, sys
wanted, lacking = json.load(sys.stdin), []
for module, names in wanted.items():
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "determined":  # else it needs a package that is not installed
            lacking.append([module, str(error)])
        continue
    for name in names:
        try:
            getattr(found, name)
        except AttributeError as error:
            lacking.append([f"{module}.{name}", str(error)])
json.dump(lacking, sys.stdout)
"""


def public_names(root: Path) -> dict[str, list[str]]:
    """Module -> the public names that it defines, or of a package those that it takes from within."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = [part for part in path.relative_to(root).with_suffix("").parts if part != "__init__"]
        if not any(part.startswith("_") for part in parts):
            names = _defined(ast.parse(path.read_text()).body, is_package=path.name == "__init__.py")
            found[".".join(["determined", *parts])] = sorted(
                each for each in set(names) if not each.startswith("_")
            )
    return found


def _defined(body: list[ast.stmt], *, is_package: bool) -> list[str]:
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [
                each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)
            ]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
        elif isinstance(node, ast.ImportFrom) and is_package and (node.module or "").startswith("determined"):
            names += [each.asname or each.name for each in node.names]
        elif isinstance(node, ast.If | ast.Try):
            names += _defined([*node.body, *node.orelse], is_package=is_package)
    return names


def test_every_public_name_is_here_or_says_what_to_use(det_program: Path) -> None:
    (root,) = (det_program.parent.parent / "lib").glob("python3*/site-packages/determined")
    wanted = public_names(root)
    assert len(wanted) > 150 and "PyTorchTrial" in wanted["determined.pytorch"]
    done = subprocess.run(
        [sys.executable, "-c", LOOK], input=json.dumps(wanted), env=environment_of(None), text=True,
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    lacking = json.loads(done.stdout)
    unsaid = [
        name for name, said in lacking if (instead := absent.sentence(name)) is None or instead not in said
    ]
    assert not unsaid
    used = {
        pattern for name, _ in lacking for pattern, said in absent.ABSENT if said == absent.sentence(name)
    }
    assert used == {pattern for pattern, _ in absent.ABSENT}, "each row of the table is about something"

"""Reads which names, members and parameters a package has, from its source: nothing of it is imported."""

from __future__ import annotations

import ast
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
#: member -> its parameters; "" are those of a function
Shape = dict[str, list[str]]


def public_names(root: Path) -> dict[str, list[str]]:
    """Return the public names that each module defines, and those that a package takes from within."""
    return {
        module: sorted({each for each in _defined(body, is_package=is_package) if not each.startswith("_")})
        for module, is_package, body in _modules(root)
        if not _is_private(module)
    }


def public_shapes(root: Path) -> dict[str, Shape]:
    """Return the members and parameters of each public class, and the parameters of each public function."""
    modules = {module: body for module, _, body in _modules(root)}
    return {
        f"{module}.{name}": shape
        for module, names in public_names(root).items()
        for name in names
        if (node := _find(modules, module, name)) is not None and (shape := _shape(node))
    }


def _modules(root: Path) -> list[tuple[str, bool, list[ast.stmt]]]:
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = [part for part in path.relative_to(root).with_suffix("").parts if part != "__init__"]
        body = ast.parse(path.read_text()).body
        found.append((".".join([root.name, *parts]), path.name == "__init__.py", body))
    return found


def _is_private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split("."))


def _defined(body: list[ast.stmt], *, is_package: bool) -> list[str]:
    names: list[str] = []
    for node in body:
        if isinstance(node, Function | ast.ClassDef):
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


def _find(modules: dict[str, list[ast.stmt]], module: str, name: str) -> Function | ast.ClassDef | None:
    """The definition behind a name, wherever the module takes it from; None for what is not a class or a function."""
    if f"{module}.{name}" in modules:
        return None
    for node in modules.get(module, []):
        if isinstance(node, Function | ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                if (each.asname or each.name) == name:
                    return _find(modules, node.module or "", each.name)
    return None


def _shape(node: Function | ast.ClassDef) -> Shape:
    if not isinstance(node, ast.ClassDef):
        return {"": _parameters(node)}
    methods = [each for each in node.body if isinstance(each, Function)]
    return {
        each.name: _parameters(each)[0 if _is_static(each) else 1 :]
        for each in methods
        if each.name == "__init__" or not each.name.startswith("_")
    }


def _is_static(node: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)


def _parameters(node: Function) -> list[str]:
    every = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    return [each.arg for each in every]

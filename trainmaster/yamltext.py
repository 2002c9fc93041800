"""YAML as configs mean it: the core schema of YAML 1.2, JSON values only, errors with line and column.

PyYAML follows YAML 1.1, where `1e-3` is a string, `12:30` a number, `on` a boolean and a date an object;
configs written for Determined mean none of these. Numbers are those that Determined's reader takes: beyond the core
schema, `60_000`, `0b11` and `-0x1f`. Keys become strings, a key given twice is an error.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Hashable, List, Optional

import yaml

MAX_DEPTH = 100
MAX_VALUES = 100_000  # aliases counted as often as they are used


class YamlError(ValueError):
    """The text is not usable YAML; the message is a sentence. `line` and `column` count from 1."""

    def __init__(self, sentence: str, line: Optional[int] = None, column: Optional[int] = None) -> None:
        self.line = line
        self.column = column
        where = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(where + sentence)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: Dict[str, Any] = {}


class _Dumper(yaml.SafeDumper):
    """Quotes whatever a reader of YAML 1.1 or 1.2 could take for something other than a string."""

    yaml_implicit_resolvers = {k: list(found) for k, found in yaml.SafeDumper.yaml_implicit_resolvers.items()}

    def ignore_aliases(self, data: Any) -> bool:
        return True


_CORE = [
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    (
        "int",
        re.compile(r"^[-+]?(?:[0-9][0-9_]*|0o_*[0-7][0-7_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0b_*[01][01_]*)$"),
        list("-+0123456789"),
    ),
    (
        "float",
        re.compile(
            r"^(?:[-+]?(?:\._*[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        list("-+.0123456789"),
    ),
    ("merge", re.compile(r"^(?:<<)$"), ["<"]),
]
for _name, _pattern, _first in _CORE:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _pattern, _first)
    if _name != "merge":
        _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _pattern, _first)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    if len(text) > 400:  # Python refuses thousands of digits with a sentence of its own
        raise YamlError("found a number of more than 400 digits", *_at(node.start_mark))
    return int(text, 0 if text.lstrip("-+")[:2] in ("0o", "0x", "0b") else 10)


def _number(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower().replace("_", "")
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    """JSON escapes what lies beyond 16 bits in two halves, which YAML takes for two characters."""
    text = str(loader.construct_scalar(node))
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise YamlError("found half a character (a lone surrogate)", *_at(node.start_mark)) from error


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Dict[str, Any]:
    _refuse_doubles(loader, node)
    loader.flatten_mapping(node)
    found: Dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        found[_key(key, key_node)] = loader.construct_object(value_node, deep=True)
    return found


def _key(key: object, node: yaml.Node) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if key is None or isinstance(key, (int, float)):
        return "null" if key is None else str(key)
    raise YamlError("found a list or a map as a key, allowed: text", *_at(node.start_mark))


def _refuse_doubles(loader: _Loader, node: yaml.MappingNode) -> None:
    seen: Dict[Hashable, Any] = {}
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
            continue
        if key_node.value in seen:
            first = seen[key_node.value].line + 1
            sentence = f"found the key {key_node.value} again; it is first on line {first}"
            raise YamlError(sentence, *_at(key_node.start_mark))
        seen[key_node.value] = key_node.start_mark


_Loader.add_constructor("tag:yaml.org,2002:str", _text)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load(text: str) -> Any:
    """The one document in `text` as JSON values (None for an empty text). Raises YamlError."""
    try:
        value = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        raise YamlError(_sentence(error), *_at(error.problem_mark or error.context_mark)) from error
    except yaml.reader.ReaderError as error:
        raise YamlError(f"found a character that YAML does not allow: {error.reason}") from error
    except RecursionError as error:
        raise YamlError(f"values are nested deeper than {MAX_DEPTH} levels") from error
    except YamlError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # such as `!!int` without a number
        raise YamlError("found a value that is not what its tag says") from error
    _check(value, "", 0, [0])
    return value


def dump(value: Any) -> str:
    """`value` as YAML in its own order of keys."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def _at(mark: Any) -> "tuple[Optional[int], Optional[int]]":
    return (mark.line + 1, mark.column + 1) if mark is not None else (None, None)


def _sentence(error: yaml.MarkedYAMLError) -> str:
    parts: List[str] = [part for part in (error.context, error.problem) if part]
    return ", ".join(parts) or "this is not YAML"


def _check(value: Any, path: str, depth: int, count: List[int]) -> None:
    """Refuse what JSON or PostgreSQL cannot hold, and aliases that unfold without bound."""
    count[0] += 1
    if depth > MAX_DEPTH:
        raise YamlError(f"values are nested deeper than {MAX_DEPTH} levels at {path[:80]}")
    if count[0] > MAX_VALUES:
        raise YamlError(f"found more than {MAX_VALUES} values")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check(key, f"{path}.{key}", depth + 1, count)
            _check(inner, f"{path}.{key}", depth + 1, count)
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            _check(inner, f"{path}[{index}]", depth + 1, count)
    elif isinstance(value, str):
        if "\0" in value:
            raise YamlError(f"found a NUL character at {path[:80] or 'the top'}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise YamlError(f"found {value} at {path[:80] or 'the top'}, allowed: a finite number")
    elif value is not None and not isinstance(value, (bool, int)):
        raise YamlError(
            f"found a {type(value).__name__} at {path[:80] or 'the top'}, allowed: text, numbers, lists, maps"
        )

"""How a command line is read: nouns by any unique beginning, a noun alone lists, and what is wrong is a sentence."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence

from trainmaster.cli.errors import USAGE
from trainmaster.cli.output import add_format
from trainmaster.client import Json

_WHAT = {int: "a whole number", float: "a number"}
_LIST = "list"
_BEGINNING = {"metavar": "ID", "help": "the id, or its first characters"}
#: arguments of many verbs
_KNOWN: Dict[str, Dict[str, Any]] = {
    "file": {"type": Path, "help": "YAML file"},
    "config_file": {"metavar": "CONFIG", "type": Path, "help": "YAML file"},
    "id": _BEGINNING,
    "task_id": _BEGINNING,
    "workspace_name": {"metavar": "WORKSPACE", "help": "its name or id"},
    "project_name": {"metavar": "PROJECT", "help": "its name or id"},
}


class _Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]  # not generic before Python 3.9
    """Nouns, verbs and settings: the phrase that lists one is the sentence at the top of its own help."""

    def add_parser(self, name: str, *arguments: str, form: bool = False, **options: Any) -> Any:
        """As argparse does it. `arguments`: names of _KNOWN, or plain ones, of which an `…_id` is a number; `form`:
        whether it has the forms of output; `run` or `run_alone`: what the verb does; `action`: what has failed if
        that fails, else "<name> the <noun>".
        """
        defaults: Dict[str, Any] = {
            key: options.pop(key) for key in ("run", "run_alone", "action") if key in options
        }
        if defaults:
            defaults["verb"] = name
            if "action" not in defaults:
                defaults["action"] = (
                    f"{name} the {self._prog_prefix.split()[-1]}{'s' if name == _LIST else ''}"
                )
        text = options.get("help")
        if text and "description" not in options:
            options["description"] = f"{text[0].upper()}{text[1:].rstrip('.')}."
        parser = super().add_parser(name, **options)
        parser.set_defaults(**defaults)
        for argument in arguments:
            number = {"type": int} if argument.endswith("_id") else {}
            parser.add_argument(argument, **_KNOWN.get(argument, number))
        if form:
            add_format(parser)
        return parser

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        """What the verb does not take is its own fault to tell: argparse would leave that to `trainmaster` itself."""
        super().__call__(parser, namespace, values, option_string)
        left = getattr(namespace, argparse._UNRECOGNIZED_ARGS_ATTR, None)
        if left and "_ARGCOMPLETE" not in os.environ:
            verb = self.choices[values[0]]
            meant = _meant(left[0].split("=")[0], list(verb._option_string_actions))
            verb.error(f"unrecognized arguments: {' '.join(left)}{meant}")

    def long_names(self) -> List[str]:
        """Each once, without its short names, and without `help`, which usage names anyway."""
        names = {id(parser): name for name, parser in reversed(list(self.choices.items()))}
        return [name for name in reversed(list(names.values())) if name != "help"]


class Parser(argparse.ArgumentParser):
    """A wrong command line says what would be right; `NOUN help` is another way to say `NOUN --help`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("action", "parsers", _Verbs)
        self._verbs: Optional[_Verbs] = None

    def add_subparsers(self, **options: Any) -> Any:
        verbs: Any = super().add_subparsers(**options)  # a _Verbs, by the register
        self._verbs = verbs
        parser = verbs.add_parser("help", help="print this help and exit")
        parser.set_defaults(run_alone=lambda args: self.print_help(), action="print the help")
        return verbs

    def add_verbs(self, metavar: str = "VERB") -> Any:
        """What parsers are added to, one of which must be chosen."""
        return self.add_subparsers(metavar=metavar, required=True)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """A noun without a verb lists, if a list of it needs nothing said; not while Tab asks what may follow."""
        if args is not None and _wants_no_verb(args) and "_ARGCOMPLETE" not in os.environ and self._lists():
            args = [_LIST, *args]
        return super().parse_known_args(args, namespace)

    def _lists(self) -> bool:
        found: Optional[Parser] = self._verbs.choices.get(_LIST) if self._verbs else None
        if found is None or any(group.required for group in found._mutually_exclusive_groups):
            return False
        return not any(action.required for action in found._actions)

    def _get_values(self, action: argparse.Action, arg_strings: List[str]) -> Any:
        if isinstance(action, _Verbs) and arg_strings and action.metavar == "NOUN":
            arg_strings = [_whole(arg_strings[0], action.choices), *arg_strings[1:]]
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, _Verbs) and value not in action.choices:
            raise argparse.ArgumentError(
                action,
                f"found {value!r}, allowed: {', '.join(action.long_names())}{_meant(value, action.long_names())}",
            )
        super()._check_value(action, value)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            what = _WHAT.get(action.type) if isinstance(action.type, type) else None
            if what is None:
                raise
            raise argparse.ArgumentError(action, f"found {arg_string!r}, allowed: {what}") from error

    def error(self, message: str) -> NoReturn:
        verbs = self._verbs
        if verbs is not None and message.endswith(f"are required: {verbs.metavar}"):
            message = f"say what to do: {', '.join(verbs.long_names())}"
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\nSee `{self.prog} --help`.\n")


def count(text: str) -> int:
    """An argument's type."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a number, 0 or more")
    return int(text)


def given(**fields: Any) -> Json:
    """The fields that have a value: what the options leave out is left out of the request."""
    return {field: value for field, value in fields.items() if value is not None}


#: what the module of a noun is given to add it
Adder = Callable[..., Parser]


def _meant(word: str, names: List[str]) -> str:
    begun = [name for name in names if word and name.startswith(word)]
    if len(begun) > 1:
        return f" ({word!r} is ambiguous between {', '.join(begun)})"
    close = begun or difflib.get_close_matches(word, names, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _wants_no_verb(args: Sequence[str]) -> bool:
    return not args or (args[0].startswith("-") and args[0] not in ("-h", "--help"))


def _whole(name: str, choices: Dict[str, Any]) -> str:
    """`exp` → `experiment`, where one noun alone begins so."""
    if name in choices:
        return name
    begun = {id(parser): found for found, parser in reversed(list(choices.items())) if found.startswith(name)}
    return next(iter(begun.values())) if len(begun) == 1 and name else name

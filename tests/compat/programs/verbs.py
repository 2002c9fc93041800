"""The published `det` as a server of its own commands: the package is imported once, each command is a fork.

Run by a Python that has it. `tree` prints every verb, a line each, and `addresses` every address that it knows; `serve`
reads a JSON object of `words` and `typed` a line and answers with one of `code` and `said`, what the command wrote.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator

from determined import cli  # type: ignore[attr-defined]
from determined.cli import cli as whole  # type: ignore[import-not-found]
from determined.common.api import bindings  # type: ignore[attr-defined]


def verbs(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Each verb by its longest name, without the help that each noun has."""
    branches = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not branches:
        yield " ".join(words)
    for branch in branches:
        names: dict[int, str] = {}
        for name, below in branch.choices.items():
            names[id(below)] = max(names.get(id(below), ""), name, key=len)
        for below in {id(each): each for each in branch.choices.values()}.values():
            if names[id(below)] != "help":
                yield from verbs(below, (*words, names[id(below)]))


def run(words: list[str], typed: str) -> dict[str, object]:
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as typing:
        typing.write(typed.encode())
        typing.seek(0)
        child = os.fork()
        if child == 0:
            os.setsid()  # questions are asked of a terminal, where there is one
            os.dup2(typing.fileno(), 0)
            sys.stdin = os.fdopen(0)
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            os._exit(_main(words))
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "said": said.read().decode(errors="replace")}


def _main(words: list[str]) -> int:
    code: object = 0
    try:
        whole.main(words)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


if sys.argv[1] == "tree":
    everything = whole.make_parser()
    cli.add_args(everything, whole.all_args_description)
    print("\n".join(sorted(verbs(everything))))
elif sys.argv[1] == "addresses":
    calls = re.findall(r'method="(\w+)",\s+path=f?"([^"]+)"', inspect.getsource(bindings))
    print("\n".join(f"{method} {re.sub('{[^}]*}', '{}', path)}" for method, path in calls))
else:
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), flush=True)

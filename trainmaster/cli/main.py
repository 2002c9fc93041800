"""The command line `trainmaster`, also installed as `tm` and `det`.

Exit codes stand in `--help`; a log that is shown has its own (log_options.EXIT_CODES).
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from trainmaster import __version__
from trainmaster.address import BadAddress
from trainmaster.cli import (
    agent,
    array,
    beginning,
    browser_services,
    checkpoint,
    command,
    completion,
    experiment,
    host,
    job,
    log_retention,
    master,
    pool,
    preview_search,
    resources,
    sbatch,
    schedule,
    shell,
    task,
    template,
    trial,
    user,
    user_group,
    webhook,
    workspace,
)
from trainmaster.cli.arguments import Parser
from trainmaster.cli.errors import (
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    CliError,
    Declined,
    UsageError,
    answered,
    unreachable,
)
from trainmaster.cli.output import clean, colored, no_pager, say
from trainmaster.cli.session import log_in
from trainmaster.credentials import UnreadableCredentials
from trainmaster.http import Answered, HttpError, Unreachable

_NOUNS = (
    experiment,
    trial,
    checkpoint,
    command,
    array,
    sbatch,
    schedule,
    shell,
    browser_services,
    job,
    pool,
    resources,
    task,
    log_retention,
    host,
    agent,
    template,
    workspace,
    user,
    user_group,
    webhook,
    master,
    preview_search,
    beginning,
    completion,
)

_EXIT_CODES = (
    "Exit codes: 0 success, 1 failure, 2 invalid usage, 3 interrupted. `experiment wait` and `-f` fail unless the "
    "experiment completed; `command run` exits with the code of the command. See NOUN --help and NOUN VERB --help for "
    "details."
)


def build_parser(prog: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=prog,
        description="Submit training jobs to your team's hosts and monitor them.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument("-u", "--user", metavar="NAME", help="act as this user (default: the logged-in user)")
    parser.add_argument(
        "-m",
        "--master",
        metavar="ADDRESS",
        help="address of the server (default: TRAINMASTER_MASTER, DET_MASTER, http://localhost:8080)",
    )
    parser.add_argument("--no-pager", action="store_true", help="do not show long tables in $PAGER")
    parser.add_argument("-v", "--version", action="version", version=f"{prog} {__version__}")
    nouns = parser.add_subparsers(metavar="NOUN", required=True, parser_class=Parser)
    for noun in _NOUNS:
        noun.add(nouns.add_parser)
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command and return its exit code. Console scripts pass it to sys.exit."""
    _print_anything()
    prog = Path(sys.argv[0]).name if argv is None else "trainmaster"
    parser = build_parser("trainmaster" if prog.endswith(".py") else prog)
    completion.answer(parser)
    args = parser.parse_args(argv)
    if args.no_pager:
        no_pager()
    try:
        code = run(args)
        sys.stdout.flush()
        return code
    except Declined as declined:
        say(str(declined))
        return FAILED
    except (UsageError, BadAddress) as error:
        return _failed(args, str(error), USAGE)
    except Answered as error:
        return _failed(args, answered(error), FAILED)
    except Unreachable as error:
        return _failed(args, unreachable(error), FAILED)
    except (CliError, UnreadableCredentials, HttpError) as error:
        return _failed(args, str(error), FAILED)
    except KeyboardInterrupt:
        return _interrupted(args)
    except BrokenPipeError:
        _drop_stdout()
        return OK
    except OSError as error:
        return _failed(
            args, f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}.", FAILED
        )


def _print_anything() -> None:
    """What a terminal or a pipe cannot write becomes `?`, and is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def run(args: argparse.Namespace) -> int:
    """Run the command, logged in unless it goes alone; its exit code. A command that returns None has succeeded."""
    if hasattr(args, "run_alone"):
        return int(args.run_alone(args) or OK)
    return int(args.run(log_in(args), args) or OK)


def _failed(args: argparse.Namespace, sentence: str, code: int) -> int:
    lines: List[str] = [clean(line) for line in sentence.splitlines()] or ["no reason given."]
    say(colored(f"Failed to {args.action}: " + "\n".join(lines), "red", sys.stderr))
    return code


def _interrupted(args: argparse.Namespace) -> int:
    say("\nInterrupting...")
    reopen = getattr(args, "reopen", None)
    if reopen:
        goes_on = getattr(args, "goes_on", "The job keeps running.")
        say(f"{goes_on} To reopen the log, run: {reopen}")
    return int(getattr(args, "interrupted", INTERRUPTED))


def _drop_stdout() -> None:
    """`… | head` has read enough; nothing more can be flushed at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())

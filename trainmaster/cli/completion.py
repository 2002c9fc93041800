"""`completion`: what makes Tab finish nouns, verbs and options in bash, zsh and fish.

argcomplete, the package that does it, is asked for here and while Tab is pressed: without it all the rest works.
"""

from __future__ import annotations

import argparse
import os

from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import CliError

PROGRAMS = ["trainmaster", "tm", "det"]
_HOW = """\
To use it in this shell and in later ones:
  bash   trainmaster completion bash > ~/.local/share/bash-completion/completions/trainmaster
         (for det and tm too: eval "$(trainmaster completion bash)" in ~/.bashrc)
  zsh    eval "$(trainmaster completion zsh)" in ~/.zshrc, after compinit
  fish   trainmaster completion fish > ~/.config/fish/completions/trainmaster.fish
It needs the package argcomplete: pip install argcomplete"""


def add(add_noun: Adder) -> None:
    parser = add_noun(
        "completion",
        help="print the Tab completion of nouns, verbs and options for a shell",
        epilog=_HOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell to print it for")
    parser.set_defaults(run_alone=_print, action="print the completion")


def _print(args: argparse.Namespace) -> None:
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError as error:
        raise CliError("this needs the package argcomplete: pip install argcomplete") from error
    print(shellcode(PROGRAMS, shell=args.shell))


def answer(parser: argparse.ArgumentParser) -> None:
    """While Tab is pressed, the shell runs this program to ask what may follow; it is answered and ended here."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        import argcomplete
    except ImportError:
        raise SystemExit(1) from None
    argcomplete.autocomplete(parser)

"""A batch script: its first line, and the #SBATCH lines before its first command (pure)."""

from __future__ import annotations

from typing import List, Optional

from trainmaster.slurm.options import BadScript, Given, parsed

_MARK = "#SBATCH"


def checked(text: str, name: str) -> str:
    """The script as it is run. Raises BadScript for what sbatch refuses, too."""
    if not text.strip():
        raise BadScript(f"{name} is empty.")
    if "\0" in text:
        raise BadScript(f"{name} contains a NUL byte, so it is not a script.")
    if not text.startswith("#!"):
        raise BadScript(
            f"{name} is not a batch script: its first line must be #! and an interpreter, such as #!/bin/bash."
        )
    return text


def directives(text: str, name: str) -> Given:
    """What its #SBATCH lines say, the last line of an option last. Raises BadScript with the line's number."""
    given: Given = []
    for number, line in enumerate(text.splitlines(), 1):
        rest = _of_line(line)
        if rest is None:
            if line.strip() and not line.lstrip().startswith("#"):
                break  # the first command: Slurm reads no further
            continue
        try:
            words = split(rest)
            if words and words[0] == "hetjob":
                raise BadScript("heterogeneous jobs do not exist here; submit each part as a job of its own.")
            found, left = parsed(words)
        except BadScript as error:
            raise BadScript(f"{name}, line {number}: {error}") from error
        if left:
            raise BadScript(f"{name}, line {number}: {left[0]!r} belongs to no option.")
        given += found
    return given


def _of_line(line: str) -> Optional[str]:
    """What is behind the mark, None of another line."""
    return line[len(_MARK) :] if line.startswith(_MARK) else None  # as in Slurm, no space is needed


def split(text: str) -> List[str]:
    """Words as Slurm splits a directive: quotes and backslashes count, `#` between words begins a comment."""
    words: List[str] = []
    word, quote, begun = "", "", False
    letters = iter(text)
    for letter in letters:
        if quote and letter != quote:
            word += next(letters, "") if letter == "\\" and quote == '"' else letter
        elif quote:
            quote = ""
        elif letter in "'\"":
            quote, begun = letter, True
        elif letter == "\\":
            word, begun = word + next(letters, ""), True
        elif letter.isspace():
            if begun:
                words.append(word)
            word, begun = "", False
        elif letter == "#" and not begun:
            return words
        else:
            word, begun = word + letter, True
    if quote:
        raise BadScript(f"the quote {quote} is not closed.")
    return [*words, word] if begun else words


def wrapped(command: str) -> str:
    """The script of --wrap."""
    return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"

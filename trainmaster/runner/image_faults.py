"""What kept the container of a run from starting, so that it is not taken for a failure of the training code."""

from __future__ import annotations

import contextlib
import re
from typing import List, Optional

from trainmaster.paths import RunPaths, rank_of
from trainmaster.runner.state import note_sentence

#: by which exit codes a runtime says that it failed itself, and how its own last line begins. podman and docker say 126
#: and 127 of a command that the image lacks, but of a device or a limit that the host refuses, too.
_OWN_CODES = {"podman": (125, 126, 127), "docker": (125, 126, 127), "apptainer": (255,)}
_OWN_LINE = {"podman": "Error:", "docker": "docker:", "apptainer": "FATAL:"}
_OF_THE_COMMAND = re.compile(r"""\bexec:? ["/]|executable file\b.* not found|\bexec format error""")
_TAIL_BYTES = 8192
_LAST_LINES = 3  # after its own line a runtime names its help


def note(paths: RunPaths, sentence: str) -> None:
    """On a full disk it is left to the log and the exit code: the launcher, which asks for this, must outlast that."""
    with contextlib.suppress(OSError):
        note_sentence(paths.image_fault, sentence)


def of_runtime(paths: RunPaths, runtime: str, code: Optional[int]) -> Optional[str]:
    """The last words of `runtime` where it ended with `code` before anything ran in the container; None otherwise.

    What ran may end with such a code itself. It is told apart by the runtime's line, and by what it has printed.
    """
    if code not in _OWN_CODES[runtime] or _has_ranks(paths):
        return None
    for line in reversed(_last_lines(paths)):
        if line.startswith(_OWN_LINE[runtime]):
            return None if _OF_THE_COMMAND.search(line) else line.partition(":")[2].strip()
    return None


def _has_ranks(paths: RunPaths) -> bool:
    """Has a rank begun? Its output is not among the launcher's, so a training of hours may have left that empty."""
    return any(rank_of(entry.name) is not None for entry in paths.spool.glob("*"))


def _last_lines(paths: RunPaths) -> List[str]:
    """Return the last lines of its errors; none if it has printed anything else."""
    try:
        if paths.launcher_stream("stdout").stat().st_size:
            return []
        with paths.launcher_stream("stderr").open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip()][-_LAST_LINES:]

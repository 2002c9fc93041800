"""What the attempt of a command has to run: its part of the run spec."""

from __future__ import annotations

from typing import Any

from commands.models import Command
from jobs.models import Allocation
from jobs.run import Run
from submissions.config.environment import hooks_of, sdk_variables, variables

#: `sh -c` with the folder as $1: what follows is the command itself
_IN_FOLDER = 'cd -- "$1" && shift && exec "$@"'


def describe(allocation: Allocation, slot_kind: str) -> Run:
    """Everything that the host must know to run it. `slot_kind` picks per-device settings."""
    command = Command.objects.select_related("context", "owner").get(task_id=allocation.task_id)
    config = command.config
    environment = config.get("environment") or {}
    return Run(
        entrypoint=entrypoint(config),
        environment={
            **variables(environment.get("environment_variables"), slot_kind),
            **sdk_variables(environment),
        },
        python=environment.get("python") or "",
        activate=environment.get("activate") or "",
        hooks=hooks_of(environment),
        unix_user=command.owner.unix_user,
        user_data={},
        checkpoint_storage={"type": "server"},
        grace_seconds=None,
        trial=None,
        code=bytes(command.context.archive),
        user=command.owner.username,
    )


def entrypoint(config: dict[str, Any]) -> str | list[str]:
    """The command as the host starts it, in the config's folder where there is one.

    A list of one is text for the shell, as in Determined; text is so by itself.
    """
    given, folder = config["entrypoint"], config.get("work_dir")
    words = [str(word) for word in given] if isinstance(given, list) else [str(given)]
    shell = len(words) == 1
    if folder is None:
        return words[0] if shell else words
    return ["/bin/sh", "-c", _IN_FOLDER, "sh", folder, *(["/bin/sh", "-c"] if shell else []), *words]

"""What the attempt of a command has to run: its part of the run spec."""

from __future__ import annotations

from typing import Any

from commands import arrays, shell_keys
from commands.models import Command
from events.prepared import Prepared
from jobs.models import Allocation, Job
from jobs.run import RunSpec
from submissions.config.containers import container_of
from submissions.config.environment import hooks_of, sdk_variables, variables
from trainmaster.serving.shell import AUTHORIZED_KEY, HOST_KEY

_SERVING = ["python3", "-m", "trainmaster.serving"]
#: `sh -c` with the folder as $1: what follows is the command itself
_IN_FOLDER = (
    'cd -- "$1" 2>/dev/null || { printf "work_dir: the folder %s does not exist on %s, or this account has no '
    'access to it. Create it there, or change work_dir in the config.\\n" "$1" "$DET_AGENT_ID" >&2; exit 2; }; '
    'shift; exec "$@"'
)


_command = Prepared(lambda: Command.objects.select_related("context", "owner", "job"), "task_id", "no task")


def describe(allocation: Allocation, slot_kind: str) -> RunSpec:
    """Everything that the host must know to run it. `slot_kind` picks per-device settings."""
    command = _command.get(allocation.task_id)
    config = command.config
    environment = config.get("environment") or {}
    return RunSpec(
        entrypoint=_started(command),
        environment={
            **variables(environment.get("environment_variables"), slot_kind),
            **_keys(command),
            **_of_element(command),
            **sdk_variables(environment),
        },
        python=environment.get("python") or "",
        activate=environment.get("activate") or "",
        hooks=hooks_of(environment),
        container=container_of(config, slot_kind),
        mounts=config.get("bind_mounts") or [],
        user_data={},
        checkpoint_storage={"type": "server"},
        trial=None,
        code=bytes(command.context.archive),
        user=command.owner.username,
    )


def _started(command: Command) -> str | list[str]:
    """What the host starts: the command, or the program that people use through the server, with its door."""
    config = command.config
    if command.kind == Job.Kind.COMMAND:
        words = entrypoint(config)
        if not command.proxy_ports:
            return words
        own = ["/bin/sh", "-c", words] if isinstance(words, str) else words
        return [*_SERVING, "port", str(command.proxy_ports[0]["proxy_port"]), "--", *own]
    more = config["tensorboard_args"] if command.kind == Job.Kind.TENSORBOARD else []
    return [*_SERVING, command.kind.value.lower(), *more]


def _of_element(command: Command) -> dict[str, str]:
    """What an element of an array is told: which one it is."""
    if command.array_index is None:
        return {}
    indices = arrays.parse(command.config["array"], command.job.elements or 0)
    return arrays.variables(indices, command.array_index, command.job.entity_id)


def _keys(command: Command) -> dict[str, str]:
    """What a shell's sshd is known by, and whom it lets in."""
    if command.kind != Job.Kind.SHELL:
        return {}
    host, user = shell_keys.of_host(command.pk), shell_keys.of_user(command.pk)
    return {HOST_KEY: host.private, AUTHORIZED_KEY: user.public}


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

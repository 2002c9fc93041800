"""The wordings that scripts made for Determined look for: in task logs, in how things ended, in webhooks.

Each is here and nowhere else; docs/determined.md lists them. Our own words follow behind SEPARATOR in the same line, so
that a pattern which ends with a name or a number finds that alone.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence, Tuple

SEPARATOR = " — "

# --- how an attempt ended -------------------------------------------------------------------------

SUCCEEDED = "resources exited successfully with a zero exit code"
_FAILED = "resources failed with non-zero exit code"
_CONTAINER_FAILED = "container failed with non-zero exit code"
_HOST_FAILED = "agent failed while the container was running"
_NOT_STARTED = "agent failed to launch the container"
_VANISHED = "RM failed to restore the allocation"
_NO_CODE = "task failed without an associated exit code"
_BEFORE_START = "task was aborted before the task was started"


class End(NamedTuple):
    """Of an attempt: why the allocation ended, and the exit status of the command, shell or notebook that it was."""

    exit_reason: str
    exit_status: str


def succeeded() -> End:
    """It ended by itself."""
    return End(
        f"allocation stopped early after all resources exited: {SUCCEEDED}", "allocation exited successfully"
    )


def preempted() -> End:
    """It saved and left, as it was asked to."""
    end = f"allocation preempted after all resources exited: {SUCCEEDED}"
    return End(end, end)


def killed() -> End:
    """Not "allocation exited successfully", as Determined has it of a killed command: scripts look for "success"."""
    end = "allocation killed after resources were killed"
    return End(end, end)


def failed(code: int) -> End:
    return _failure("allocation failed", container_failed(code))


def failed_without_a_code() -> End:
    return _failure("allocation failed", _NO_CODE)


def host_failed() -> End:
    return _failure("allocation failed due to agent failure", _HOST_FAILED)


def not_launched() -> End:
    return _failure("allocation failed due to agent failure", _NOT_STARTED)


def vanished() -> End:
    return _failure("allocation failed due to restore error", _VANISHED)


def aborted() -> End:
    """It was ended before it had slots."""
    return _failure("allocation aborted", _BEFORE_START)


def container_failed(code: int) -> str:
    """What is said of the part on one host."""
    return f"{_FAILED}: {_CONTAINER_FAILED}: {code} (exit code {code})"


def _failure(how: str, what: str) -> End:
    return End(f"{how}: {what}", what)


# --- refusals -------------------------------------------------------------------------------------

NEVER_FITS = "request unfulfillable, please try requesting less slots"

# --- lines of a task's log ------------------------------------------------------------------------

_KINDS = {"COMMAND": "Command", "SHELL": "Shell", "NOTEBOOK": "JupyterLab", "TENSORBOARD": "TensorBoard"}
RETRIES_CANCELED = "trial failed and matched logs to a don't retry policy"


def kind_of(kind: str) -> str:
    """The kind of a job, as Determined calls it: it knows no arrays."""
    return "COMMAND" if kind == "ARRAY" else kind


def named(kind: str, name: str) -> str:
    """A task that is not a trial, as Determined's logs call it: `Command (train.py)`."""
    return f"{_KINDS[kind_of(kind)]} ({name})"


def assigned(name: str) -> str:
    return f"{name} was assigned to an agent"


def started(name: str) -> str:
    return f"Resources for {name} have started"


def trial_runners(containers: Sequence[Tuple[str, str]]) -> str:
    """Of the parts of one attempt, each with its host: once for an attempt, since scripts count them."""
    return "New trial runner in " + ", ".join(
        f"(container {key}) on agent {host}" for key, host in containers
    )


def terminated(name: str, exit_reason: str) -> str:
    return f"{name} was terminated: {exit_reason}"


def crashed(code: int) -> str:
    """Of the part on one host that failed."""
    return f"crashed: {container_failed(code)}"


def excludes(pattern: str, line: int, host: str) -> str:
    return f"(log line {line} matched regex {pattern}) therefore will not schedule on {host}"


def listening(address: str, port: int) -> str:
    """A shell takes connections."""
    return f"Server listening on {address} port {port}."


def tensorboard_at(version: str, address: str) -> str:
    return f"TensorBoard {version} at {address}"


# --- messages to Slack ----------------------------------------------------------------------------


class Status(NamedTuple):
    """Of an experiment: the message's first line, the mark of its name, the word for its state, and the color."""

    sentence: str
    mark: str
    word: str
    color: str


def experiment_status(state: str) -> Status:
    if state == "COMPLETED":
        return Status("Your experiment completed successfully 🎉", "✅ ", "Completed", "#13B670")
    if state == "ERROR":
        return Status("Your experiment has stopped with errors", "❌ ", "Errored", "#DD5040")
    return Status(f"The status of your experiment is {state}", "", state, "#009bde")


def hours(seconds: float) -> str:
    return f"{int(seconds // 3600)}h {int(seconds % 3600 // 60)}min"


def log_matched(what: str, host: str, line: str, pattern: str) -> str:
    """`what`: `task_named` or `trial_named`."""
    reported = f"{what}, running on node `{host}`, reported a log\n```{line}```\n"
    return f"{reported}This log matched the regex\n```{pattern}```\n"


def trial_named(experiment: str, trial: str) -> str:
    return f"Experiment ID `{experiment}`, Trial ID `{trial}`"


def task_named(task_id: str, kind: str) -> str:
    return f"Task ID `{task_id}`, task type `{kind}`"


def beside(theirs: str, ours: str) -> str:
    """Both in one line; either may be empty."""
    return SEPARATOR.join(filter(None, [theirs, ours]))

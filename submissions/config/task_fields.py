"""Fields of the config that commands, shells, notebooks and TensorBoards have and experiments do not."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from submissions.config.resources import Duration
from submissions.config.section import Section


class TaskFields(Section):
    """A template may have them too: it serves every kind of job, and experiments leave them out."""

    work_dir: Annotated[str, Field(min_length=1)] | None = None
    """A folder on the host, or one in the submitted folder; null is the submitted folder itself."""
    idle_timeout: Duration | None = None
    """Ends a shell, notebook or TensorBoard when nobody has used it for this time: seconds, or text such as 30m."""
    notebook_idle_type: Literal["kernels_or_terminals", "kernel_connections", "activity"] = (
        "kernels_or_terminals"
    )
    """When a notebook counts as used: while it has a kernel or terminal, while a user is connected to a kernel, or
    while someone uses it."""
    tensorboard_args: list[str] = []
    """Additional arguments for TensorBoard."""

"""What a config asks of Slurm, in pools of kind `slurm`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from hosts.slurm import settings
from submissions.config.section import Section, refuse


def _arguments(value: Any) -> Any:
    if sentence := settings.arguments_fault(value):
        raise refuse(sentence.partition("allowed: ")[2] or sentence)
    return value


def _gpu_type(value: Any) -> Any:
    if settings.gpu_type_fault(value):
        raise refuse("one name of a GPU type, such as a100")
    return value


class Slurm(Section):
    """Unlike Determined's, it has an effect without another launcher."""

    sbatch_args: Annotated[list[str], BeforeValidator(_arguments)] = []
    """More options of sbatch, after those of the pool, such as --constraint=ib."""
    slots_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    """At most this many slots of each node are used; null: all."""
    gpu_type: Annotated[str, BeforeValidator(_gpu_type)] = ""
    """The type of GPU to ask for, as Slurm names it; if empty, the pool's."""

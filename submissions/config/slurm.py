"""What a config asks of Slurm, in pools of kind `slurm`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ModelWrapValidatorHandler, SerializeAsAny, ValidationError, WrapValidator

from submissions.config.section import Section


class SlurmFields(Section):
    """Unlike Determined's, it has an effect without another launcher."""

    sbatch_args: list[str] = []
    """More options of sbatch, after those of the pool, such as --constraint=ib."""
    slots_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    """At most this many slots of each node are used; null: all."""
    gpu_type: str = ""
    """The type of GPU to ask for, as Slurm names it; if empty, the pool's."""


def _as_it_is(value: Any, check: ModelWrapValidatorHandler[SlurmFields]) -> Any:
    """A section that is wrong is kept as it is: in pools of hosts it has no effect, and configs for Determined have it.
    A Slurm pool refuses it (`jobs.accepting`)."""
    try:
        return check(value)
    except ValidationError:
        return value


#: its schema names the fields and, since a wrong section is kept, takes anything
Slurm = Annotated[
    SerializeAsAny[SlurmFields], WrapValidator(_as_it_is, json_schema_input_type=SlurmFields | Any)
]

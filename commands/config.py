"""The command config: Determined's fields with their defaults and rules, and a few of ours."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import BeforeValidator, ConfigDict, Field

from commands import arrays
from jobs.models import Job
from submissions.config import masking, resources, schema, without_effect
from submissions.config.environment import Environment
from submissions.config.merging import merge
from submissions.config.ordering import in_order, set_values
from submissions.config.origins import OriginLine, explained
from submissions.config.problems import NOTHING, Problem, at, look_up
from submissions.config.reading import checked, overridden, read_yaml
from submissions.config.resources import BindMounts
from submissions.config.section import DependsOn, Entrypoint, Ignored, NotNegative, leading, refuse
from submissions.config.slurm import Slurm
from submissions.config.task_fields import TaskFields
from submissions.config.translating import Shape

SUBJECT = "command configuration"
_DESCRIPTION_CHARACTERS = 100


def _no_slots_per_trial(value: Any) -> Any:
    raise refuse("not in a command; use slots")


class Resources(resources.Resources):
    model_config = ConfigDict(json_schema_extra=leading("slots"))

    slots: NotNegative = 1
    """Slots (GPUs), all on one host; 0 for none."""
    slots_per_trial: Annotated[Literal[None], BeforeValidator(_no_slots_per_trial)] = Field(
        default=None, exclude=True
    )


def _indices(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise refuse(arrays.FORMS)
    try:
        return str(arrays.parse(str(value), settings.ELEMENTS_PER_ARRAY))
    except ValueError as error:
        raise refuse(str(error)) from None


#: as `commands.arrays` writes it
Array = Annotated[
    str, BeforeValidator(_indices, json_schema_input_type=Annotated[str, Field(pattern=r"^[-0-9]")])
]


class CommandConfig(TaskFields):
    """A checked config with its defaults. Make one by `parse` or `check`."""

    model_config = ConfigDict(
        json_schema_extra=leading(
            "description",
            "entrypoint",
            "array",
            "resources",
            "environment",
            "bind_mounts",
            "work_dir",
            "debug",
        )
    )

    description: Annotated[str, Field(max_length=255)] = ""
    """The name shown in lists; if empty, the entrypoint."""
    entrypoint: Entrypoint | None = None
    """A list of words is executed directly; text, or a list of one word, is run by /bin/sh -c."""
    array: Array | None = None
    """Runs the command once for each index: `0-99`, with a step `0-99:2`, or a list `1,3,7`; add `%8` to run at most 8
    at once."""
    resources: Resources = Resources()
    """The resources of the command."""
    environment: Environment = Environment()
    """The entrypoint's environment: variables, Python, hooks, image."""
    bind_mounts: BindMounts = []
    """Host paths to mount in a container or, without one, in the run's own view of its host."""
    debug: bool = False
    """Accepted from Determined; the program can read it."""
    depends_on: DependsOn = []
    """Jobs that must end before this one starts: numbers of experiments or ids of jobs, each with `:success` (the
    default), `:end` or `:failure`. In an array, the id of another array with `:each`: each element waits for the
    success of the one with its index."""
    pbs: Ignored = None
    slurm: Slurm | None = None
    """What is asked of Slurm, in pools that are Slurm clusters."""

    def effective(self) -> dict[str, Any]:
        """What is stored with the command: every field with its value, as JSON; `array` and `slurm` if given."""
        found = self.model_dump(mode="json")
        for field in ("array", "slurm"):
            if found[field] is None:
                del found[field]
        found["description"] = self.description.strip() or _words(self.entrypoint)
        return found

    def remarks(self) -> list[str]:
        """Sentences about masks in the place of secrets, and about fields that have no effect here."""
        return [*masking.remarks(self.effective()), *without_effect.remarks(self, {})]


@cache
def schema_of_config() -> dict[str, Any]:
    """What a command runs may stand on the command line, so its config may lack anything."""
    return schema.of_model(
        CommandConfig,
        title="Trainmaster command config",
        description="`--config-file` of commands, notebooks, shells and TensorBoards.",
        required=[],
    )


def shown(config: dict[str, Any]) -> dict[str, Any]:
    """A copy of an effective config as people see it: without secrets, in the order of the documentation."""
    return in_order(masking.masked(config), schema_of_config)


def explained_config(config: dict[str, Any]) -> list[OriginLine]:
    """The lines of an effective config without its secrets; what differs from the defaults is told apart."""
    values = masking.masked(config)
    return explained(schema_of_config, values, set_values(values, schema_of_config), {})


_SHAPE = Shape(CommandConfig, refused=frozenset({"slots_per_trial"}))


def parse(
    text: str,
    overrides: Sequence[str] = (),
    *,
    template: dict[str, Any] | None = None,
    kind: Job.Kind = Job.Kind.COMMAND,
) -> CommandConfig:
    """The config that `text` and `overrides` describe, on top of `template`. Raises ConfigError with all problems."""
    return check(overridden(read_yaml(text, SUBJECT), overrides, SUBJECT), template=template, kind=kind)


def check(
    config: dict[str, Any], *, template: dict[str, Any] | None = None, kind: Job.Kind = Job.Kind.COMMAND
) -> CommandConfig:
    """A checked config from its values, on top of `template`. Raises ConfigError with all problems."""
    whole = merge(_of_template(template), config) if template else config
    if kind != Job.Kind.COMMAND:
        whole = _of_service(whole, kind)
    broken = list(_broken_rules(whole))
    if kind != Job.Kind.COMMAND and whole.get("array") is not None:
        broken.append(Problem(at(("array",)), json.dumps(whole["array"]), "arrays of commands only"))
    return checked(whole, CommandConfig, _SHAPE, broken, SUBJECT)


def typed(
    text: str, beside: dict[str, Any], *, template: dict[str, Any] | None, kind: Job.Kind
) -> CommandConfig:
    """A checked config from an editor, with what was typed in fields beside it. Raises ConfigError."""
    lines = (line.strip() for line in text.splitlines())
    has_fields = any(
        line and not line.startswith("#") for line in lines
    )  # else comments alone, which are no map
    config = read_yaml(text.replace("\r\n", "\n"), SUBJECT) if has_fields else {}
    resources = config.get("resources") or {}
    for name, value in beside.items():
        if name == "resources" and isinstance(resources, dict):  # else `check` says what is wrong with it
            config[name] = resources | {
                field: given for field, given in value.items() if given not in ("", None)
            }
        elif name != "resources" and value:
            is_whole = name == "idle_timeout" and value.isascii() and value.isdecimal() and len(value) < 20
            config[name] = int(value) if is_whole else value
    return check(config, template=template, kind=kind)


def _of_service(config: dict[str, Any], kind: Job.Kind) -> dict[str, Any]:
    """What is started is the kind's own, and what lists call it has a name; TensorBoard needs no GPU."""
    found = {
        **config,
        "entrypoint": [kind.label.lower()],
        "description": config.get("description") or kind.label,
    }
    resources = config.get("resources") or {}
    if kind == Job.Kind.TENSORBOARD and isinstance(resources, dict) and resources.get("slots") is None:
        found["resources"] = {**resources, "slots": 0}
    return found


def _of_template(template: dict[str, Any]) -> dict[str, Any]:
    """Templates serve every kind of job: a command takes the fields that it has, but never what to run."""
    found = {name: value for name, value in template.items() if name in CommandConfig.model_fields}
    found.pop("entrypoint", None)
    found.pop("description", None)
    asked = found.get("resources")
    if isinstance(asked, dict):
        known = Resources.model_fields.keys() - _SHAPE.refused
        found["resources"] = {name: value for name, value in asked.items() if name in known}
    return found


def _broken_rules(config: dict[str, Any]) -> Iterator[Problem]:
    if config.get("entrypoint") is None:
        yield Problem(at(("entrypoint",)), NOTHING, "a command, such as nvidia-smi, or a list of its words")
    environment = look_up(config, ("environment",))
    if isinstance(environment, dict) and environment.get("python") and environment.get("activate"):
        yield Problem(at(("environment",)), "python and activate", "either python or activate, not both")


def _words(entrypoint: str | list[str] | None) -> str:
    """The entrypoint in one line, cut where it is long."""
    if isinstance(entrypoint, list):
        entrypoint = entrypoint[0] if len(entrypoint) == 1 else shlex.join(entrypoint)
    text = " ".join((entrypoint or "").split())
    return text if len(text) <= _DESCRIPTION_CHARACTERS else text[: _DESCRIPTION_CHARACTERS - 1] + "…"

"""What a script says of a detached run, and the experiment config that is made of it."""

from __future__ import annotations

import dataclasses
import uuid
import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from trainmaster.core._records import encode_strict

Storage = Union[str, Dict[str, Any]]


@dataclasses.dataclass
class Config:
    """A detached run's experiment; inside a managed trial all of it is ignored.

    `hparams` are the trial's, as they are; `data` is what `info.user_data` gives; `checkpoint_storage` is a section of
    the config, a folder, or an address such as s3://bucket/prefix, by default the server's own store. With the same
    `external_experiment_id` runs are trials of one experiment; with the same `external_trial_id` too, a run resumes the
    trial where it stood.
    """

    name: Optional[str] = None
    hparams: Optional[Dict[str, Any]] = None
    data: Optional[Dict[str, Any]] = None
    description: Optional[str] = None
    labels: Optional[List[str]] = None
    workspace: Optional[str] = None
    project: Optional[str] = None
    checkpoint_storage: Optional[Storage] = None
    searcher: Optional[Dict[str, Any]] = None
    external_experiment_id: Optional[str] = None
    external_trial_id: Optional[str] = None


class _OldConfig(Config):
    def __init__(self, **fields: Any) -> None:
        old = f"{type(self).__name__} is an old name: use core_v2.Config."
        warnings.warn(old, FutureWarning, stacklevel=2)
        super().__init__(**fields)


class DefaultConfig(_OldConfig):
    """Determined's older name of `Config`."""


class UnmanagedConfig(_OldConfig):
    """Determined's older place for workspace, project and external ids; now in `Config`."""


def merged(
    config: Union[Config, Dict[str, Any], None], defaults: Optional[Config], unmanaged: Optional[Config]
) -> Config:
    """One config of what `init` was given: `config`, else `defaults` completed by `unmanaged`.

    ValueError for a field that a dict has and `Config` has not, and for an external trial without its experiment.
    """
    if config is None:
        given = dataclasses.asdict(unmanaged) if unmanaged is not None else {}
        own = dataclasses.asdict(defaults) if defaults is not None else {}
        config = {**given, **{name: value for name, value in own.items() if value is not None}}
    if isinstance(config, dict):
        known = [field.name for field in dataclasses.fields(Config)]
        unknown = sorted(set(config) - set(known))
        if unknown:
            raise ValueError(
                f"The config of a detached run has {', '.join(map(repr, unknown))}; allowed: {', '.join(known)}."
            )
        config = Config(**config)
    if config.external_trial_id is not None and config.external_experiment_id is None:
        raise ValueError(
            f"external_trial_id is {config.external_trial_id!r}, but external_experiment_id is not set: "
            "a trial is resumed within its experiment, so set both."
        )
    return config


def experiment_config(config: Config, checkpoint_storage: Optional[Storage]) -> Dict[str, Any]:
    """The experiment config as the server takes it.

    ValueError for values that JSON cannot hold, and for hyperparameters that are to be searched.
    """
    storage = checkpoint_storage if checkpoint_storage is not None else config.checkpoint_storage
    document = {
        "name": config.name or f"unmanaged-{uuid.uuid4().hex[:8]}",
        "data": config.data,
        "description": config.description,
        "labels": config.labels,
        "workspace": config.workspace,
        "project": config.project,
        "hyperparameters": _constants(config.hparams),
        "searcher": config.searcher or {"name": "single", "metric": "unmanaged"},
        "checkpoint_storage": storage_section(storage) if storage is not None else None,
    }
    plain: Dict[str, Any] = encode_strict(document, "The config of a detached run")
    return {name: value for name, value in plain.items() if value is not None}


def _constants(hparams: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """The values that the trial trains with: `{"type": "const", "val": x}` is x. ValueError for one to be searched."""
    return {name: _constant(name, value) for name, value in (hparams or {}).items()}


def _constant(name: str, value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "const":
        return value.get("val")
    if kind in ("int", "double", "log", "categorical"):
        raise ValueError(
            f"The hyperparameter {name} is a range ({kind}); a detached run needs one value for each. "
            "Choose it in your script, or submit an experiment, whose searcher chooses it."
        )
    if isinstance(value, dict):
        return {part: _constant(f"{name}.{part}", inner) for part, inner in value.items()}
    return value


def storage_section(storage: Storage) -> Dict[str, Any]:
    """A folder or an address as a section of the config; a section as it is."""
    if not isinstance(storage, str):
        return storage
    kind, separator, rest = storage.partition("://")
    if not separator:
        return {"type": "directory", "container_path": str(Path(storage).expanduser().resolve())}
    bucket, _, prefix = rest.partition("/")
    kinds = {"s3": "s3", "gs": "gcs"}
    if kind not in kinds or not bucket:
        raise ValueError(
            f"checkpoint_storage is {storage!r}; it must be a folder, s3://bucket/prefix, gs://bucket/prefix, "
            "or a section as in an experiment's config."
        )
    return {"type": kinds[kind], "bucket": bucket, **({"prefix": prefix} if prefix else {})}

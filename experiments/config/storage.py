"""`checkpoint_storage`: where checkpoints go and which are kept when the experiment has ended."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from submissions.config.section import AbsolutePath, Name, NotNegative, Section, kinds_of, refuse
from trainmaster.address import is_http_url


class _Kept(Section):
    save_experiment_best: NotNegative = 0
    """How many checkpoints to keep per experiment, those with the best validation."""
    save_trial_best: NotNegative = 1
    """How many checkpoints to keep per trial, those with the best validation."""
    save_trial_latest: NotNegative = 1
    """How many checkpoints to keep per trial, the latest ones."""


class Server(_Kept):
    """The default: files are uploaded to the Trainmaster server."""

    type: Literal["server"]


class SharedFs(_Kept):
    """A folder that every host of the pool mounts."""

    type: Literal["shared_fs"]
    host_path: AbsolutePath
    """The folder, with this path on every host."""
    storage_path: str | None = None
    """A folder in it: relative to host_path, or an absolute path below it."""
    propagation: str = "rprivate"
    """Mount propagation between host and container, as in mount(8)."""
    container_path: str | None = None
    """Obsolete, no effect."""
    checkpoint_path: str | None = None
    """Obsolete, no effect."""
    tensorboard_path: str | None = None
    """Obsolete, no effect."""


class Directory(_Kept):
    """A folder with the same path on each host; you are responsible for keeping its contents the same."""

    type: Literal["directory"]
    container_path: AbsolutePath
    """The folder."""


def _prefix(value: Any) -> Any:
    if isinstance(value, str) and ".." in value.split("/"):
        raise refuse("a prefix without ..")
    return value


_PREFIX = r"^(?!(.*/)?\.\.(/|$))"
Prefix = Annotated[
    str,
    BeforeValidator(
        _prefix,
        json_schema_input_type=Annotated[str, WithJsonSchema({"type": "string", "pattern": _PREFIX})],
    ),
]


def _endpoint(value: Any) -> Any:
    if isinstance(value, str) and value and not is_http_url(value):
        raise refuse("an address, such as https://s3.example.com:9000")
    return value


Endpoint = Annotated[
    str,
    BeforeValidator(_endpoint, json_schema_input_type=Annotated[str, Field(pattern="^(https?://[^/]+|$)")]),
]


class S3(_Kept):
    """With both keys, the server signs for the hosts, which never see them; without keys, hosts use their own role."""

    type: Literal["s3"]
    bucket: Name
    """The bucket."""
    access_key: str | None = None
    """Requires secret_key; masked wherever the config is shown."""
    secret_key: str | None = None
    """Requires access_key; masked."""
    endpoint_url: Endpoint | None = None
    """An address other than Amazon's, such as https://s3.example.com:9000."""
    prefix: Prefix | None = None
    """Prefix of all object names."""


class Gcs(_Kept):
    """Uses the package gcsfs in the job's Python, with the host's credentials."""

    type: Literal["gcs"]
    bucket: Name
    """The bucket."""
    prefix: Prefix | None = None
    """Prefix of all object names."""


class Azure(_Kept):
    """Uses the package adlfs in the job's Python; its secrets are sent to the hosts."""

    type: Literal["azure"]
    container: Name
    """The blob container."""
    connection_string: str | None = None
    """Contains address and key; masked wherever the config is shown."""
    account_url: str | None = None
    """The address of the account, instead of connection_string."""
    credential: str | None = None
    """Requires account_url; masked."""


class _Unnamed(_Kept):
    """Only what is kept: in the storage of the template, else on the server."""


def _server_unless_named(value: Any) -> Any:
    return {**value, "type": "server"} if isinstance(value, dict) and value.get("type") is None else value


_Storage = Annotated[Server | SharedFs | Directory | S3 | Gcs | Azure, Field(discriminator="type")]
CheckpointStorage = Annotated[
    _Storage,
    BeforeValidator(_server_unless_named, json_schema_input_type=_Storage | _Unnamed),
]
STORAGES = kinds_of(_Storage, "type")

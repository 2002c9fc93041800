"""`checkpoint_storage`: where checkpoints go and which are kept when the experiment has ended."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from submissions.config.section import AbsolutePath, Name, NotNegative, Section, refuse
from trainmaster.address import is_http_url


class _Kept(Section):
    save_experiment_best: NotNegative = 0
    """Checkpoints kept of the whole experiment, those with the best validation."""
    save_trial_best: NotNegative = 1
    """Checkpoints kept of each trial, those with the best validation."""
    save_trial_latest: NotNegative = 1
    """Checkpoints kept of each trial, the latest ones."""


class Server(_Kept):
    """The default: files are uploaded to the Trainmaster server."""

    type: Literal["server"]


class SharedFs(_Kept):
    """A folder that every host of the pool mounts."""

    type: Literal["shared_fs"]
    host_path: AbsolutePath
    """The folder, which every host has under this name."""
    storage_path: str | None = None
    """A folder in it: relative to host_path, or an absolute path below it."""
    propagation: str = "rprivate"
    """How mounts below it pass between host and container, as mount(8) calls it."""
    container_path: str | None = None
    """Of older configs, without effect."""
    checkpoint_path: str | None = None
    """Of older configs, without effect."""
    tensorboard_path: str | None = None
    """Of older configs, without effect."""


class Directory(_Kept):
    """A folder that stands on each host under one name; keeping it the same everywhere is up to its owners."""

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
    """With both keys the server signs for the hosts, which see neither; without, hosts use a role of their own."""

    type: Literal["s3"]
    bucket: Name
    """The bucket."""
    access_key: str | None = None
    """Goes with secret_key; masked wherever the config is shown."""
    secret_key: str | None = None
    """Goes with access_key; masked."""
    endpoint_url: Endpoint | None = None
    """An address other than Amazon's, such as https://s3.example.com:9000."""
    prefix: Prefix | None = None
    """What the names of all objects begin with."""


class Gcs(_Kept):
    """By the package gcsfs in the job's Python, with what its host is allowed."""

    type: Literal["gcs"]
    bucket: Name
    """The bucket."""
    prefix: Prefix | None = None
    """What the names of all objects begin with."""


class Azure(_Kept):
    """By the package adlfs in the job's Python; its secrets go to the hosts."""

    type: Literal["azure"]
    container: Name
    """The container of blobs."""
    connection_string: str | None = None
    """Holds address and key; masked wherever the config is shown."""
    account_url: str | None = None
    """The address of the account, in place of connection_string."""
    credential: str | None = None
    """Goes with account_url; masked."""


class _Unnamed(_Kept):
    """Only what is kept: in the storage of the template, else on the server."""


def _server_unless_named(value: Any) -> Any:
    return {**value, "type": "server"} if isinstance(value, dict) and value.get("type") is None else value


_Storage = Annotated[Server | SharedFs | Directory | S3 | Gcs | Azure, Field(discriminator="type")]
CheckpointStorage = Annotated[
    _Storage,
    BeforeValidator(_server_unless_named, json_schema_input_type=_Storage | _Unnamed),
]
STORAGES: dict[str, type[Section]] = {
    "server": Server,
    "shared_fs": SharedFs,
    "directory": Directory,
    "s3": S3,
    "gcs": Gcs,
    "azure": Azure,
}

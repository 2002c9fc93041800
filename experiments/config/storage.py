"""`checkpoint_storage`: where checkpoints go and which are kept when the experiment has ended."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from submissions.config.section import AbsolutePath, Name, NotNegative, Section, refuse
from trainmaster.address import is_http_url


class _Kept(Section):
    save_experiment_best: NotNegative = 0
    save_trial_best: NotNegative = 1
    save_trial_latest: NotNegative = 1


class Server(_Kept):
    """The default: files are uploaded to the Trainmaster server."""

    type: Literal["server"]


class SharedFs(_Kept):
    """A folder that every host of the pool mounts."""

    type: Literal["shared_fs"]
    host_path: AbsolutePath
    storage_path: str | None = None
    """Relative to host_path, or an absolute path below it."""
    propagation: str = "rprivate"
    container_path: str | None = None
    checkpoint_path: str | None = None
    tensorboard_path: str | None = None


class Directory(_Kept):
    type: Literal["directory"]
    container_path: AbsolutePath


def _prefix(value: Any) -> Any:
    if isinstance(value, str) and ".." in value.split("/"):
        raise refuse("a prefix without ..")
    return value


Prefix = Annotated[str, BeforeValidator(_prefix)]


def _endpoint(value: Any) -> Any:
    if isinstance(value, str) and value and not is_http_url(value):
        raise refuse("an address, such as https://s3.example.com:9000")
    return value


Endpoint = Annotated[str, BeforeValidator(_endpoint)]


class S3(_Kept):
    """With both keys the server signs for the hosts, which see neither; without, hosts use a role of their own."""

    type: Literal["s3"]
    bucket: Name
    access_key: str | None = None
    secret_key: str | None = None
    endpoint_url: Endpoint | None = None
    prefix: Prefix | None = None


class Gcs(_Kept):
    """By the package gcsfs in the job's Python, with what its host is allowed."""

    type: Literal["gcs"]
    bucket: Name
    prefix: Prefix | None = None


class Azure(_Kept):
    """By the package adlfs in the job's Python; its secrets go to the hosts."""

    type: Literal["azure"]
    container: Name
    connection_string: str | None = None
    account_url: str | None = None
    credential: str | None = None


CheckpointStorage = Annotated[Server | SharedFs | Directory | S3 | Gcs | Azure, Field(discriminator="type")]
STORAGES: dict[str, type[Section]] = {
    "server": Server,
    "shared_fs": SharedFs,
    "directory": Directory,
    "s3": S3,
    "gcs": Gcs,
    "azure": Azure,
}

"""Checkpoints in S3 for which the server has keys: signed addresses for hosts and people, listing, deletion.

Keys are those of the config's `checkpoint_storage`, else the server's own (TRAINMASTER_S3_*), which are for the
buckets that it names alone. Hosts never see either: `for_hosts` is what they are told. Without keys the hosts use
their own role, and the server reaches nothing. Objects are named `<prefix>/<uuid>/<path>`, as Determined names them.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from django.conf import settings

from experiments.models import Checkpoint
from submissions.config.masking import STORAGE_SECRETS

#: how long a signed address works
UPLOAD_SECONDS = 3600
DOWNLOAD_SECONDS = 3600
_TIMEOUT_SECONDS = 20
_DELETED_AT_ONCE = 1000  # what S3 takes in one request
_PLACE = ("type", "bucket", "endpoint_url", "container", "account_url")


class NotHere(OSError):
    """The server cannot reach these files; the sentence says where they are."""


@dataclass(frozen=True)
class Account:
    """What requests to a bucket are signed with."""

    bucket: str
    prefix: str
    endpoint_url: str | None
    access_key: str
    secret_key: str = field(repr=False)


def account_of(section: dict[str, Any]) -> Account | None:
    """The keys for an `s3` section; None when the hosts use a role of their own."""
    bucket, endpoint = str(section.get("bucket")), section.get("endpoint_url") or None
    prefix = str(section.get("prefix") or "").strip("/")
    if section.get("access_key") and section.get("secret_key"):
        return Account(bucket, prefix, endpoint, str(section["access_key"]), str(section["secret_key"]))
    at_home = endpoint in (None, settings.S3_ENDPOINT_URL)
    if bucket in settings.S3_BUCKETS and settings.S3_ACCESS_KEY and at_home:
        keys = settings.S3_ACCESS_KEY, settings.S3_SECRET_KEY
        return Account(bucket, prefix, settings.S3_ENDPOINT_URL, *keys)
    return None


def endpoint_refusal(section: dict[str, Any]) -> str:
    """Why the server asks no S3 at the section's `endpoint_url`; empty where it does (TRAINMASTER_S3_ENDPOINTS).

    Addresses are compared as they are written: readers differ in what they take for the host of an odd one.
    """
    endpoint = section.get("endpoint_url") if section.get("type") == "s3" else None
    if not endpoint or not settings.S3_ENDPOINTS or endpoint == settings.S3_ENDPOINT_URL:
        return ""
    if str(endpoint).rstrip("/") in {each.rstrip("/") for each in settings.S3_ENDPOINTS}:
        return ""
    allowed = dict.fromkeys(filter(None, [*settings.S3_ENDPOINTS, settings.S3_ENDPOINT_URL]))
    return (
        f"checkpoint_storage.endpoint_url: found {endpoint}, allowed on this server: {', '.join(allowed)}, or none, "
        "for Amazon's. TRAINMASTER_S3_ENDPOINTS sets this list."
    )


def for_hosts(section: dict[str, Any]) -> dict[str, Any]:
    """A `checkpoint_storage` section as hosts need it: `signed` instead of the keys of S3 where the server signs."""
    if section.get("type") != "s3":
        return section
    return {**without_secrets(section), "signed": True} if account_of(section) else section


def without_secrets(section: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name not in STORAGE_SECRETS}


def section_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Its storage with the secrets of its experiment's config, which the record of a run does not have.

    They are for the place that the config names alone: training code writes the record.
    """
    configured = checkpoint.trial.experiment.config.get("checkpoint_storage") or {}
    reported: dict[str, Any] = checkpoint.storage
    if any(configured.get(name) != reported.get(name) for name in _PLACE):
        return reported
    return {**reported, **{name: configured[name] for name in STORAGE_SECRETS if configured.get(name)}}


def is_signed(storage: dict[str, Any]) -> bool:
    """Whether a checkpoint's record says that its runner uploads it by addresses that the server signs."""
    return storage.get("type") == "s3" and storage.get("signed") is True


def store_of(checkpoint: Checkpoint) -> S3Store:
    """Raises NotHere without keys, and PermissionError for an endpoint that is not allowed (any more)."""
    section = section_of(checkpoint)
    account = account_of(section)
    if account is None:
        bucket = checkpoint.storage.get("bucket")
        raise NotHere(
            f"The files of checkpoint {checkpoint.pk} are in the S3 bucket {bucket!r}, for which the server has no "
            "keys; hosts use a role of their own."
        )
    if refusal := endpoint_refusal(section):  # of an experiment that is older than the setting
        raise PermissionError(refusal)
    return S3Store(account, str(checkpoint.pk))


class S3Store:
    """The objects below `<prefix>/<name>/`. Errors are ConnectionErrors with a sentence, or FileNotFoundError."""

    def __init__(self, account: Account, name: str) -> None:
        self._account = account
        self._base = f"{account.prefix}/{name}/" if account.prefix else f"{name}/"
        self._client = _client(account)

    def listing(self) -> dict[str, int]:
        return {key[len(self._base) :]: size for key, size in self._objects() if not key.endswith("/")}

    def open_file(self, path: str, offset: int = 0) -> BinaryIO:
        extra = {"Range": f"bytes={offset}-"} if offset else {}
        answer = self._call("get_object", Key=self._base + path, **extra)
        return cast(BinaryIO, answer["Body"])

    def signed_url(self, path: str) -> str | None:
        return self.sign("get_object", DOWNLOAD_SECONDS, path)

    def sign(self, operation: str, seconds: int, path: str, **extra: Any) -> str:
        parameters = {"Bucket": self._account.bucket, "Key": self._base + path, **extra}
        return str(self._client.generate_presigned_url(operation, Params=parameters, ExpiresIn=seconds))

    def delete(self, paths: Collection[str] | None = None) -> None:
        keys = [key for key, _ in self._objects()] if paths is None else [self._base + path for path in paths]
        for first in range(0, len(keys), _DELETED_AT_ONCE):
            some = [{"Key": key} for key in keys[first : first + _DELETED_AT_ONCE]]
            answer = self._call("delete_objects", Delete={"Objects": some, "Quiet": True})
            if failed := answer.get("Errors"):
                raise ConnectionError(f"S3 did not delete {failed[0]['Key']}: {failed[0].get('Message')}.")
        if paths is None:
            for path, upload in self._open_uploads():
                self._call("abort_multipart_upload", Key=path, UploadId=upload)

    # of an upload in parts

    def size(self, path: str) -> int | None:
        """Bytes of the object, None when there is none."""
        try:
            return int(self._call("head_object", Key=self._base + path)["ContentLength"])
        except FileNotFoundError:
            return None

    def open_upload(self, path: str) -> str | None:
        """The id of the newest upload in parts of this file that is under way."""
        mine = [upload for key, upload in self._open_uploads(path) if key == self._base + path]
        return mine[-1] if mine else None

    def begin_upload(self, path: str) -> str:
        return str(self._call("create_multipart_upload", Key=self._base + path)["UploadId"])

    def parts(self, path: str, upload: str) -> dict[int, tuple[int, str]]:
        """Number → (bytes, ETag) of the parts that have arrived."""
        found: dict[int, tuple[int, str]] = {}
        marker: dict[str, Any] = {}
        while True:
            answer = self._call("list_parts", Key=self._base + path, UploadId=upload, **marker)
            for part in answer.get("Parts") or []:
                found[int(part["PartNumber"])] = int(part["Size"]), str(part["ETag"])
            if not answer.get("IsTruncated"):
                return found
            marker = {"PartNumberMarker": answer["NextPartNumberMarker"]}

    def finish_upload(self, path: str, upload: str, parts: dict[int, tuple[int, str]]) -> None:
        listed = [{"PartNumber": number, "ETag": parts[number][1]} for number in sorted(parts)]
        key = self._base + path
        self._call("complete_multipart_upload", Key=key, UploadId=upload, MultipartUpload={"Parts": listed})

    def _open_uploads(self, path: str = "") -> list[tuple[str, str]]:
        """Key and id of uploads in parts under way, oldest first."""
        found: list[dict[str, Any]] = []
        markers: dict[str, Any] = {}
        while True:
            answer = self._call("list_multipart_uploads", Prefix=self._base + path, **markers)
            found += answer.get("Uploads") or []
            if not answer.get("IsTruncated"):
                break
            markers = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}
        uploads = sorted(found, key=lambda each: each["Initiated"])
        return [(str(each["Key"]), str(each["UploadId"])) for each in uploads]

    def _objects(self) -> Iterator[tuple[str, int]]:
        more: dict[str, Any] = {}
        while True:
            answer = self._call("list_objects_v2", Prefix=self._base, **more)
            for each in answer.get("Contents") or []:
                yield str(each["Key"]), int(each["Size"])
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        bucket = self._account.bucket
        try:
            answer = getattr(self._client, operation)(Bucket=bucket, **parameters)
        except ClientError as error:
            said = error.response.get("Error", {})
            if said.get("Code") in ("NoSuchKey", "404"):
                raise FileNotFoundError(f"There is no object {parameters.get('Key')} in {bucket}.") from error
            raise ConnectionError(
                f"The S3 bucket {bucket!r} refuses {operation}: {said.get('Message') or said.get('Code')}."
            ) from error
        except BotoCoreError as error:
            raise ConnectionError(f"The S3 bucket {bucket!r} does not answer: {error}") from error
        return cast(dict[str, Any], answer)


@functools.lru_cache(maxsize=16)
def _client(account: Account) -> Any:
    """Clients of botocore take a tenth of a second to make, and may be used by any thread."""
    import botocore.session
    from botocore.config import Config

    session = botocore.session.Session()
    session.set_credentials(account.access_key, account.secret_key)
    return session.create_client(
        "s3",
        region_name=session.get_config_variable("region") or "us-east-1",
        endpoint_url=account.endpoint_url,
        config=Config(
            signature_version="s3v4",
            connect_timeout=_TIMEOUT_SECONDS,
            read_timeout=_TIMEOUT_SECONDS,
            retries={"max_attempts": 2},
            # as old S3 servers understand it
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if account.endpoint_url else "auto"},
        ),
    )

"""Uploads into S3 by addresses that the server signs. How a file stands it asks S3, and keeps nothing itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments import s3_stores
from experiments.models import Checkpoint
from experiments.s3_stores import UPLOAD_SECONDS, S3Store

#: files up to this size are one request. S3 takes parts of 5 MiB to 5 GiB, 10,000 of them at most.
PART_BYTES = 32 * 1024**2
_PARTS_MAX = 10_000
#: addresses in one answer; the sender comes again for the next
_SIGNED_AT_ONCE = 32


@dataclass
class Standing:
    """How an upload stands. `parts`: {"url", "offset", "bytes"} of what S3 lacks, the first of them."""

    stored: bool
    parts: list[dict[str, str | int]] = field(default_factory=list)


def go_on(checkpoint: Checkpoint, path: str, size: int, sha256: str | None) -> Standing:
    """What is still to be sent of a file; with `sha256`, and when all has been, it is made an object. Blocking.

    Raises NotHere and PermissionError as `s3_stores.store_of` does, ConnectionError where S3 does not answer.
    """
    store = s3_stores.store_of(checkpoint)
    if sha256 is not None and store.size(path) == size and checkpoint.digests.get(path) == sha256:
        return Standing(stored=True)
    return _whole(store, path, size, sha256) if size <= PART_BYTES else _in_parts(store, path, size, sha256)


def part_bytes(size: int) -> int:
    """How long the parts of a file are: a whole number of MiB, so that there are few enough of them."""
    least = -(-size // _PARTS_MAX)
    return max(PART_BYTES, -(-least // 1024**2) * 1024**2)


def _whole(store: S3Store, path: str, size: int, sha256: str | None) -> Standing:
    if sha256 is not None and store.size(path) == size:
        return Standing(stored=True)
    url = store.sign("put_object", UPLOAD_SECONDS, path)
    return Standing(stored=False, parts=[{"url": url, "offset": 0, "bytes": size}])


def _in_parts(store: S3Store, path: str, size: int, sha256: str | None) -> Standing:
    upload = store.open_upload(path)
    if upload is None:
        if sha256 is not None and store.size(path) == size:  # the answer to the last request was lost
            return Standing(stored=True)
        upload = store.begin_upload(path)
    each = part_bytes(size)
    wanted = {number + 1: min(each, size - number * each) for number in range(-(-size // each))}
    there = store.parts(path, upload)
    lacking = [number for number, length in wanted.items() if there.get(number, (None,))[0] != length]
    if not lacking and sha256 is not None:
        store.finish_upload(path, upload, there)
        return Standing(stored=True)
    signed: list[dict[str, str | int]] = [
        {
            "url": store.sign("upload_part", UPLOAD_SECONDS, path, UploadId=upload, PartNumber=number),
            "offset": (number - 1) * each,
            "bytes": wanted[number],
        }
        for number in lacking[:_SIGNED_AT_ONCE]
    ]
    return Standing(stored=False, parts=signed)

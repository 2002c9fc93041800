"""Checkpoints that the ranks bring to a cloud themselves, with what their host is allowed there.

`s3` by boto3, `gcs` and `azure` by fsspec; these packages must be in the Python of the job.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union
from urllib.parse import urlsplit

from trainmaster.core._storage import METADATA_FILE, Selector, Storage, inside, list_files, read_metadata
from trainmaster.storage_faults import StorageFault, remote_fault

_SECRETS = ("access_key", "secret_key", "connection_string", "credential")
_DELETED_AT_ONCE = 1000  # what S3 takes in one request


class S3Bucket:
    """Objects by their name: with the section's keys or, without them, whatever role boto3 finds on the host.

    All methods may raise whatever boto3 raises.
    """

    def __init__(self, section: Dict[str, Any]) -> None:
        import boto3

        self._name = section["bucket"]
        self._client = boto3.client(
            "s3",
            endpoint_url=section.get("endpoint_url"),
            aws_access_key_id=section.get("access_key"),
            aws_secret_access_key=section.get("secret_key"),
        )

    def put(self, source: Path, name: str) -> None:
        self._client.upload_file(str(source), self._name, name)

    def get(self, name: str, target: Path) -> None:
        self._client.download_file(self._name, name, str(target))

    def sizes(self, prefix: str) -> Dict[str, int]:
        """Name → bytes of all objects whose names begin with `prefix`, which ends with `/`."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix=prefix)
        return {each["Key"]: int(each["Size"]) for page in pages for each in page.get("Contents") or []}

    def delete(self, names: List[str]) -> None:
        for first in range(0, len(names), _DELETED_AT_ONCE):
            some = [{"Key": name} for name in names[first : first + _DELETED_AT_ONCE]]
            answer = self._client.delete_objects(Bucket=self._name, Delete={"Objects": some, "Quiet": True})
            if answer.get("Errors"):
                raise OSError(f"S3 did not delete {answer['Errors'][0]}")


class FsspecBucket:
    """Objects by their name in any file system of fsspec."""

    def __init__(self, protocol: str, root: str, **options: Any) -> None:
        import fsspec

        self._files = fsspec.filesystem(protocol, **options)
        self._root = root.rstrip("/")

    def put(self, source: Path, name: str) -> None:
        target = f"{self._root}/{name}"
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(source), target)

    def get(self, name: str, target: Path) -> None:
        self._files.get_file(f"{self._root}/{name}", str(target))

    def sizes(self, prefix: str) -> Dict[str, int]:
        self._files.invalidate_cache()
        folder = f"{self._root}/{prefix}".rstrip("/")
        if not self._files.exists(folder):
            return {}
        # names come back with or without a leading protocol or slash: what matters is what follows the folder
        found = self._files.find(folder, detail=True)
        marker = prefix.rstrip("/") + "/"
        return {
            marker + path.partition(marker)[2]: int(entry["size"] or 0)
            for path, entry in found.items()
            if marker in path
        }

    def delete(self, names: List[str]) -> None:
        for name in names:
            self._files.rm_file(f"{self._root}/{name}")


Bucket = Union[S3Bucket, FsspecBucket]


class ObjectStorage(Storage):
    """Objects `<prefix>/<uuid>/<path>`, as Determined names them; made in a folder of this host first."""

    carries = True

    def __init__(self, section: Dict[str, Any], bucket: Bucket, folder: Path, host: str) -> None:
        super().__init__(
            {name: value for name, value in section.items() if name not in _SECRETS}, folder, host
        )
        self._bucket = bucket
        prefix = str(section.get("prefix") or "").strip("/")
        self._prefix = f"{prefix}/" if prefix else ""

    def carry(self, storage_id: str) -> None:
        folder = self.path(storage_id)
        with self._reaching():
            for relative in list_files(folder):
                self._bucket.put(folder / relative, self._object(storage_id, relative))
        shutil.rmtree(folder, ignore_errors=True)

    def fetch(self, storage_id: str, target: Path, selector: Optional[Selector]) -> None:
        for relative, name in self._objects(storage_id):
            if selector is None or selector(relative):
                place = inside(target, relative)
                place.parent.mkdir(parents=True, exist_ok=True)
                beside = place.with_name(f".{place.name}.coming")
                with self._reaching():
                    self._bucket.get(name, beside)
                beside.replace(place)

    def metadata(self, storage_id: str) -> Dict[str, Any]:
        with self.opened(storage_id, lambda path: path == METADATA_FILE) as folder:
            return read_metadata(folder, storage_id)

    def delete(self, storage_id: str) -> None:
        names = [name for _, name in self._objects(storage_id)]
        with self._reaching():
            self._bucket.delete(names)

    def discard(self, storage_id: str, paths: Optional[List[str]]) -> None:
        """Remove the files at `paths`, or all; what is gone already is fine."""
        base = self._object(storage_id, "")
        with self._reaching():
            there = [name for name in self._bucket.sizes(base) if paths is None or name[len(base) :] in paths]
            self._bucket.delete(there)

    def check(self, name: str) -> None:
        with tempfile.TemporaryDirectory() as folder, self._reaching():
            written, read = Path(folder, "written"), Path(folder, "read")
            written.write_text(name)
            where = f"{self._prefix}{name}/check"
            self._bucket.put(written, where)
            self._bucket.get(where, read)
            self._bucket.delete([where])
            if read.read_text() != name:
                raise OSError("the content read back differs from what was written")

    def _objects(self, storage_id: str) -> List[Tuple[str, str]]:
        """(relative path, name of the object). FileNotFoundError when there is none."""
        base = self._object(storage_id, "")
        with self._reaching():
            names = sorted(self._bucket.sizes(base))
        found = [(name[len(base) :], name) for name in names if not name.endswith("/")]
        if not found:
            raise FileNotFoundError(f"There is no checkpoint {storage_id} in {_named(self.section)}.")
        return found

    def _object(self, storage_id: str, relative: str) -> str:
        return f"{self._prefix}{storage_id}/{relative}"

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each library has its own kinds
            raise remote_fault(_named(self.section), self._host, error) from error


def object_storage(section: Dict[str, Any], folder: Path, host: str) -> ObjectStorage:
    """For a section of `s3`, `gcs` or `azure`. StorageFault when the package that it needs is not there."""
    kind = section["type"]
    try:
        return ObjectStorage(section, _bucket(section), folder, host)
    except ImportError as error:
        package = {"s3": "boto3", "gcs": "gcsfs", "azure": "adlfs"}[kind]
        raise StorageFault(
            f"checkpoint storage {_named(section)} needs the Python package {package} in the job's Python on host "
            f"{host} ({error}): install it there, or change checkpoint_storage"
        ) from error
    except Exception as error:  # wrong keys or addresses, as each library says it
        raise remote_fault(_named(section), host, error) from error


def _bucket(section: Dict[str, Any]) -> Bucket:
    kind = section["type"]
    if kind == "s3":
        return S3Bucket(section)
    if kind == "gcs":
        return FsspecBucket("gcs", section["bucket"])
    options = {name: section[name] for name in ("connection_string", "credential") if section.get(name)}
    if section.get("account_url"):  # https://<account>.blob.core.windows.net
        options["account_name"] = str(urlsplit(section["account_url"]).hostname).partition(".")[0]
    return FsspecBucket("abfs", section["container"], **options)


def _named(section: Dict[str, Any]) -> str:
    return f"{section['type']} {section.get('bucket') or section.get('container')}"

"""Checkpoints that the runner uploads: into the server's own store, or into S3 by addresses that the server signs."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional
from urllib.parse import quote

from trainmaster._info import ClusterInfo
from trainmaster.core._server import PATIENCE_SECONDS, patiently, server_client
from trainmaster.core._storage import METADATA_FILE, Selector, Storage, copy_file, inside, read_metadata
from trainmaster.file_digest import sha256_of
from trainmaster.storage_faults import StorageFault, remote_fault

if TYPE_CHECKING:  # a training that stores and never restores does not pay for their import
    from http.client import HTTPResponse

    from trainmaster.http import ServerClient

logger = logging.getLogger("trainmaster.core")

_CHUNK_BYTES = 1 << 20
_TEMPORARY_REDIRECT, _PARTIAL_CONTENT = 307, 206
_ATTEMPTS = 3
#: for a checkpoint of another rank, whose record is still on its way when that rank tells its id
_NEWS_SECONDS = 60.0


class ServerStorage(Storage):
    """Files are complete on this host first; the runner uploads them, and a restore downloads them."""

    def __init__(self, info: ClusterInfo, section: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(section or {"type": "server"}, Path(info._run_dir) / "checkpoints", info.agent_id)
        self._info = info
        self._stored: Dict[str, Dict[str, int]] = {}  # by this gang, perhaps not known to the server yet

    def stored(self, storage_id: str, resources: Dict[str, int]) -> None:
        """The checkpoint is complete on its hosts; the server hears of it in its own time."""
        self._stored[storage_id] = resources

    def fetch(self, storage_id: str, target: Path, selector: Optional[Selector]) -> None:
        """From the server unless they still lie here; what another host is still uploading is waited for."""
        resources = self._stored.get(storage_id) or self._listing(storage_id)["resources"]
        wanted = {
            relative: int(size)
            for relative, size in sorted(resources.items())
            if not relative.endswith("/") and (selector is None or selector(relative))
        }
        elsewhere = [
            relative
            for relative, size in wanted.items()
            if not self._copied(storage_id, relative, size, inside(target, relative))
        ]
        if elsewhere and storage_id in self._stored:
            self._listing(storage_id)  # the server has all of it when this returns
        for relative in elsewhere:
            self._bring(storage_id, relative, wanted[relative], inside(target, relative))

    def _copied(self, storage_id: str, relative: str, size: int, target: Path) -> bool:
        """Whether the file was here; false where it never was, or has been uploaded and removed."""
        here = inside(self.path(storage_id), relative)
        with contextlib.suppress(FileNotFoundError):
            if here.stat().st_size == size:
                copy_file(here, target)
                return True
        return False

    def _bring(self, storage_id: str, relative: str, size: int, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{storage_id[:8]}.coming")
        path = f"/runner/v1/checkpoints/{storage_id}/files/{quote(relative)}"
        for attempt in range(_ATTEMPTS):
            problem = patiently(
                self._info, f"Checkpoint {storage_id}", lambda client: _download(client, path, beside, size)
            )
            if problem is None:
                beside.replace(target)
                return
            beside.unlink()
            logger.warning("%s of checkpoint %s: %s (attempt %d)", relative, storage_id, problem, attempt + 1)
        raise StorageFault(f"The file {relative} of checkpoint {storage_id} cannot be downloaded: {problem}")

    def metadata(self, storage_id: str) -> Dict[str, Any]:
        if (self.path(storage_id) / METADATA_FILE).is_file():
            return read_metadata(self.path(storage_id), storage_id)
        return self._listing(storage_id).get("metadata") or {}

    def delete(self, storage_id: str) -> None:
        """Nothing here: the server removes what it keeps once it hears of the wish."""

    def check(self, name: str) -> None:
        """Whether this host may write to S3 by addresses of the server's. A server that is away is no fault."""
        from trainmaster.http import Answered, HttpError, Unreachable

        if self.section.get("type") != "s3":
            return
        try:
            with server_client(self._info) as client:
                body = json.dumps({"name": name}).encode()
                urls = client.request("POST", "/runner/v1/checkpoints/check", body, timeout=60).json()
        except Unreachable:
            return
        except Answered as error:
            if error.status in (404, 500, 502, 503, 504):
                return
            raise remote_fault(_named(self.section), self._host, error) from error
        try:
            _write_read_delete(urls, name.encode())
        except HttpError as error:
            raise remote_fault(_named(self.section), self._host, error) from error

    def _listing(self, storage_id: str) -> Dict[str, Any]:
        """The server's record of a checkpoint that is uploaded. FileNotFoundError when it knows none."""
        until: Optional[float] = None

        def ask(client: ServerClient) -> Dict[str, Any]:
            from trainmaster.http import Unreachable

            nonlocal until
            try:
                return _listing(client, storage_id)
            except FileNotFoundError as error:
                if until is None:  # from when the server could be asked
                    until = time.monotonic() + self._news_seconds(storage_id)
                if time.monotonic() < until:
                    raise Unreachable(f"it does not know {storage_id} yet.") from error
                raise

        return patiently(self._info, f"Checkpoint {storage_id}", ask)

    def _news_seconds(self, storage_id: str) -> float:
        """For how long a checkpoint that the server does not know may be one whose record is on its way."""
        if storage_id in self._stored:
            return PATIENCE_SECONDS
        return _NEWS_SECONDS if sum(self._info.container_slot_counts) > 1 else 0.0


def _named(section: Dict[str, Any]) -> str:
    return f"{section['type']} bucket {section.get('bucket')}"


def _write_read_delete(urls: Dict[str, str], content: bytes) -> None:
    from trainmaster import signed
    from trainmaster.http import Unreachable

    for method in ("PUT", "GET", "DELETE"):
        with signed.opened(method, urls[method.lower()], content if method == "PUT" else None) as answer:
            if answer.read() != content and method == "GET":
                raise Unreachable("the content read back differs from what was written")


def _listing(client: ServerClient, storage_id: str) -> Dict[str, Any]:
    from trainmaster.http import Answered, Unreachable

    try:
        record: Dict[str, Any] = client.get(f"/api/v1/checkpoints/{storage_id}").json()["checkpoint"]
    except Answered as error:
        if error.status == 404:
            raise FileNotFoundError(f"There is no checkpoint {storage_id} that this run may read.") from None
        raise
    # the dialect knows no PARTIAL: what is being uploaded is ACTIVE in it
    if str(record.get("state", "")).endswith(("ACTIVE", "PARTIAL")):
        raise Unreachable(f"{storage_id} is still being uploaded by the host that wrote it.")
    return record


def _download(client: ServerClient, path: str, target: Path, size: int) -> Optional[str]:
    """Get what `target` still lacks of the file. What is wrong with its digest afterwards, None if nothing."""
    from trainmaster import signed
    from trainmaster.http import Unreachable

    there = min(target.stat().st_size, max(0, size - 1)) if target.exists() else 0
    wanted = {"Range": f"bytes={there}-"} if there else {}
    with client.stream("GET", path, headers=wanted) as answer:
        sha256 = answer.getheader("X-Trainmaster-Sha256")
        if answer.status == _TEMPORARY_REDIRECT:
            with signed.opened("GET", answer.getheader("Location") or "", headers=wanted) as elsewhere:
                _save(elsewhere, target, there)
        else:
            _save(answer, target, there)
    if target.stat().st_size != size:
        raise Unreachable(f"{path} is incomplete: {target.stat().st_size} of {size} bytes were downloaded.")
    found = sha256_of(target) if sha256 else None
    return None if found == sha256 else f"its SHA-256 is {found}, expected {sha256}."


def _save(answer: HTTPResponse, target: Path, there: int) -> None:
    with target.open("r+b" if there else "wb") as file:
        file.truncate(there if answer.status == _PARTIAL_CONTENT else 0)
        file.seek(0, 2)
        shutil.copyfileobj(answer, file, _CHUNK_BYTES)

"""One file of a checkpoint on its way: in parts to the server, or to S3 by addresses that the server signs.

It is read once, and hashed while it is read; of its bytes one part at a time is in memory.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from pathlib import Path
from typing import IO, Any, Callable, Dict, List, Optional
from urllib.parse import quote

from trainmaster import signed
from trainmaster.http import Answered, Conflict
from trainmaster.runner.link import Link, expect_object

PART_BYTES = 32 * 1024 * 1024
_BLOCK_BYTES = 256 * 1024
_TIMEOUT_SECONDS = 300.0
_WRONG_DIGEST = 422
_DIGEST_ATTEMPTS = 3

Moved = Callable[[int], None]  # is told of so many bytes that have left


class FileUpload:
    """Sends `folder`/`name` of the checkpoint at `base`. `moved` hears of bytes, sent or found to be there."""

    def __init__(self, link: Link, base: str, folder: Path, name: str, moved: Moved) -> None:
        self._link = link
        self._base = base
        self._path = folder / name
        self._name = name
        self._moved = moved
        self._size = self._path.stat().st_size

    def to_server(self) -> None:
        """Raises HttpError; after some tries the one that says that its digest differs there."""
        address = f"{self._base}/parts/{quote(self._name)}"
        there = 0
        if self._size > PART_BYTES:
            there = int(expect_object(self._link.request("GET", address))["offset"])
        for attempt in range(_DIGEST_ATTEMPTS):
            try:
                while not self._send_rest(address, there):
                    there = 0
                return
            except Answered as error:
                if error.status != _WRONG_DIGEST or attempt + 1 == _DIGEST_ATTEMPTS:
                    raise
                there = 0

    def _send_rest(self, address: str, there: int) -> bool:
        """Send what follows `there`; False when the server has less of it than it said."""
        hashed, position = hashlib.sha256(), 0
        with self._path.open("rb") as file:
            while True:
                part = file.read(PART_BYTES)
                hashed.update(part)
                end = position + len(part)
                is_last = end >= self._size
                if not part and not is_last:
                    raise OSError(f"{self._path} became shorter while it was being uploaded.")
                self._moved(max(0, min(there, end) - position))
                while there < end or is_last:
                    if there < position:
                        return False
                    digest = {"sha256": hashed.hexdigest()} if is_last else {}
                    stands = self._send_part(address, there, part[there - position :], digest)
                    is_last = is_last and stands < end
                    if stands >= end and end >= self._size:
                        return True
                    there = stands
                position = end

    def _send_part(self, address: str, offset: int, part: bytes, digest: Dict[str, str]) -> int:
        """Where the file stands at the server afterwards."""
        query: Dict[str, Any] = {"offset": offset, "size": self._size, **digest}
        try:
            reply = self._link.request(
                "PUT",
                address,
                _Body(part, self._moved),
                query=query,
                headers={"Content-Length": str(len(part)), "Content-Type": "application/octet-stream"},
                timeout=_TIMEOUT_SECONDS,
            )
        except Conflict as conflict:
            if conflict.offset is None or conflict.offset == offset:
                raise
            return conflict.offset
        return int(expect_object(reply)["offset"])

    def to_bucket(self) -> None:
        """Raises HttpError. S3 compares each part with its MD5; the SHA-256 of the whole is for who downloads it."""
        address = f"{self._base}/sign"
        wanted: Dict[str, Any] = {"path": self._name, "size": self._size}
        hashed = hashlib.sha256()
        with self._path.open("rb") as file:
            while True:
                parts = self._ask(address, wanted)
                for part in parts:
                    self._skip(file, int(part["offset"]), hashed)
                    content = file.read(int(part["bytes"]))
                    hashed.update(content)
                    self._put(str(part["url"]), content)
                if not parts or file.tell() >= self._size:
                    break
            self._skip(file, self._size, hashed)
        wanted["sha256"] = hashed.hexdigest()
        for part in self._ask(address, wanted):
            with self._path.open("rb") as file:
                file.seek(int(part["offset"]))
                self._put(str(part["url"]), file.read(int(part["bytes"])))
        if self._ask(address, wanted):
            raise Answered(
                _WRONG_DIGEST, {"message": f"S3 did not keep the uploaded parts of {self._name}."}, ""
            )

    def _ask(self, address: str, wanted: Dict[str, Any]) -> List[Dict[str, Any]]:
        answer = expect_object(
            self._link.request("POST", address, json.dumps(wanted).encode(), timeout=_TIMEOUT_SECONDS)
        )
        return [] if answer.get("stored") else list(answer["parts"])

    def _skip(self, file: IO[bytes], to: int, hashed: Any) -> None:
        """Hash what lies before `to`: it is there already."""
        while file.tell() < to:
            block = file.read(min(_BLOCK_BYTES, to - file.tell()))
            if not block:
                return
            hashed.update(block)
            self._moved(len(block))

    def _put(self, url: str, content: bytes) -> None:
        md5 = base64.b64encode(hashlib.md5(content).digest()).decode("ascii")
        headers = {"Content-Length": str(len(content)), "Content-MD5": md5}
        with signed.opened(
            "PUT", url, _Body(content, self._moved), headers=headers, timeout=_TIMEOUT_SECONDS
        ) as answer:
            answer.read()


class _Body(io.BytesIO):
    """A body that tells of its progress, read in larger blocks than http.client asks for."""

    def __init__(self, content: bytes, moved: Moved) -> None:
        super().__init__(content)
        self._tell = moved

    def read(self, size: Optional[int] = -1) -> bytes:
        block = super().read(_BLOCK_BYTES)
        self._tell(len(block))
        return block

    def seek(self, offset: int, whence: int = 0) -> int:
        """Back to the start, to be sent again."""
        self._tell(-self.tell())
        return super().seek(offset, whence)

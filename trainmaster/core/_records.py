"""The road of everything training code reports: one JSON line per record in the rank's own spool file.

No network and no thread: the server may be away for hours, and nothing here can slow or end a training run.
In the JSON NaN and the infinities stand by name, and what cannot be sent is left out.
"""

from __future__ import annotations

import datetime
import enum
import json
import logging
import math
import os
import re
import time
import uuid
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from trainmaster import bounded_json, quantities

logger = logging.getLogger("trainmaster.core")

#: of one record; checkpoints of very many files are the largest
RECORD_BYTES = 16 * 1024 * 1024
NAME_CHARACTERS = 512
#: of one report, or of metadata, as JSON: what the server takes in one piece with much room to spare
VALUE_BYTES = 4 * 1024 * 1024
_UNSAFE = re.compile("[\x00\ud800-\udfff]")  # no database keeps these in text
_LARGEST = 2**1024  # as a float it would be infinite
_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode  # made once: written at every step
_complained: Set[Tuple[str, str]] = set()


class Records:
    """Appends this rank's records to `spool/core.rank<N>.jsonl` of the run folder."""

    def __init__(self, run_dir: str, rank: int) -> None:
        self.path = Path(run_dir, "spool", f"core.rank{rank}.jsonl")
        self._descriptor: Optional[int] = None
        self._torn = False
        self._lost = 0  # since the file could be written the last time

    def append(self, type_: str, **fields: Any) -> None:
        """Append one record with a single write. A full disk costs the record, never the training."""
        record: Dict[str, Any] = {"type": type_, **fields}
        if type_ in ("metrics", "media", "checkpoint"):
            record["t"] = time.time()
        line = _encoded(record).encode() + b"\n"
        if len(line) > RECORD_BYTES:
            logger.error(
                "A %s record of %s is dropped: the server accepts at most %s per record.",
                type_, quantities.size(len(line)), quantities.size(RECORD_BYTES),
            )  # fmt: skip
            return
        if self._torn:  # the line that a full disk cut ends here, so that it spoils no other
            line = b"\n" + line
        try:
            if self._descriptor is None:
                self.path.parent.mkdir(mode=0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self.path, flags, 0o600)
            written = os.write(self._descriptor, line)
        except OSError as error:
            self._lose(type_, f"cannot be written ({error.strerror})")
            return
        self._torn = written < len(line)
        if self._torn:
            self._lose(type_, "was written only in part; is the disk full?")
        elif self._lost:
            self._say_lost("Writing works again.")

    def _lose(self, type_: str, why: str) -> None:
        """Say so once; a training that reports every few milliseconds must not fill its log with it."""
        if not self._lost:
            logger.warning(
                "A %s record was lost: %s %s. Further lost records are only counted.", type_, self.path, why
            )
        self._lost += 1

    def _say_lost(self, more: str = "") -> None:
        logger.warning("%d of this rank's records were lost. %s", self._lost, more)
        self._lost = 0

    def close(self) -> None:
        if self._lost:
            self._say_lost()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Unserializable(Exception):
    pass


def encode_metrics(metrics: Mapping[str, Any], where: str) -> Dict[str, Any]:
    """`metrics` without what cannot be sent: an error in the log names each such metric once and says `where`."""
    kept: Dict[str, Any] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise ValueError(
                f"The metric name {name!r} in {where} is {_a(type(name).__name__)}; it must be text."
            )
        if len(name) > NAME_CHARACTERS:
            _left_out(where, name, f"has a name of {len(name)} characters (at most {NAME_CHARACTERS})")
            continue
        try:
            kept[name if not _UNSAFE.search(name) else storable_text(name)] = _plain(value)
        except _Unserializable as error:
            of = "" if str(error) == type(value).__name__ else f" with {_a(str(error))} in it"
            _left_out(where, name, f"is {_a(type(value).__name__)}{of}")
        except RecursionError:
            _left_out(where, name, f"is {_a(type(value).__name__)} that contains itself")
    return kept


def _a(kind: str) -> str:
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _left_out(where: str, name: str, why: str) -> None:
    """Say so once: it may be reported at every step."""
    if len(_complained) < 1000 and (name, why) not in _complained:
        _complained.add((name, why))
        shown = name if len(name) < 100 else f"{name[:80]}…"
        logger.error("%s: the metric %r %s and is skipped, now and later.", where, shown, why)


def too_large(value: Any) -> str:
    """What to say of a value that is larger, as JSON, than one report or metadata may be; empty if it is not."""
    size = len(json.dumps(value))
    if size <= VALUE_BYTES:
        return ""
    allowed = f"{quantities.size(size)} as JSON, allowed: {quantities.size(VALUE_BYTES)}"
    return f"{allowed}; put large data in the files of a checkpoint"


def encode_strict(value: Any, where: str) -> Any:
    """`value` as plain JSON; ValueError when any part of it cannot be sent, or when it is too large."""
    try:
        plain = _plain(value)
    except _Unserializable as error:
        raise ValueError(f"{where} contains a {error}, which JSON cannot represent.") from None
    except RecursionError:
        raise ValueError(f"{where} contains itself, which JSON cannot represent.") from None
    if bounded_json.is_deep(plain):
        raise ValueError(f"{where} is nested deeper than {bounded_json.NESTING_MAX} levels.")
    problem = too_large(plain)
    if problem:
        raise ValueError(f"{where} is {problem}.")
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return _number(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, int):
        if not -_LARGEST < value < _LARGEST:
            raise _Unserializable(f"whole number of {value.bit_length()} bits")
        return int(value)
    if isinstance(value, Mapping):
        return {storable_text(str(key)): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    # numpy's and torch's scalars and arrays, without importing either.
    if callable(getattr(value, "tolist", None)):
        return _plain(value.tolist())
    raise _Unserializable(type(value).__name__)


def storable_text(value: str) -> str:
    return _UNSAFE.sub("\ufffd", value)


def _number(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def merge_metadata(parts: List[Tuple[int, Mapping[str, Any]]]) -> Dict[str, Any]:
    """The metadata of all ranks as one; RuntimeError names what two ranks say differently."""
    merged: Dict[str, Any] = {}
    conflicts: List[str] = []
    for rank, part in parts:
        _merge_into(merged, part, "", rank, conflicts)
    if conflicts:
        raise RuntimeError(
            "Metadata conflict between the ranks of a sharded checkpoint: " + "; ".join(conflicts) + "."
        )
    return merged


def _merge_into(
    target: Dict[str, Any], part: Mapping[str, Any], at: str, rank: int, conflicts: List[str]
) -> None:
    for key, value in part.items():
        path = f"{at}.{key}" if at else str(key)
        if key not in target:
            target[key] = dict(value) if isinstance(value, Mapping) else value
        elif isinstance(value, Mapping) and isinstance(target[key], dict):
            target[key] = dict(target[key])
            _merge_into(target[key], value, path, rank, conflicts)
        elif target[key] != value:
            conflicts.append(f"{path} is {target[key]!r} and, on rank {rank}, {value!r}")

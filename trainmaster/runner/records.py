"""The records of the outbox, one JSON object per line (docs/protocol.md, "The outbox"). Pure."""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii
from typing import Any, Dict, List, Optional, Sequence, Tuple

from trainmaster import bounded_json
from trainmaster.protocol import ExitFile, FirstFailure


def lines_record(
    file: str,
    end: int,
    at: float,
    rank: Optional[int],
    stream: str,
    levels: Sequence[Tuple[int, str]],
    cut: bool,
    text: bytes,
) -> bytes:
    """Lines of a stream, joined by `\\n`; bytes that are not UTF-8 become lone surrogates (`\\udcXX`).

    `levels` are (index of a line, its level), `cut` says that the next record continues the last line.
    """
    decoded = text.decode("utf-8", "surrogateescape")
    message: str = encode_basestring_ascii(decoded)
    stated = ",".join(f'[{index},"{level}"]' for index, level in levels)
    marks = (f'"l":[{stated}],' if stated else "") + (f'"c":[{decoded.count(chr(10))}],' if cut else "")
    who = "null" if rank is None else rank
    record = (
        f'{{"k":"lines","f":"{file}","e":{end},"t":{at:.6f},"r":{who},"s":"{stream}",{marks}"m":{message}}}\n'
    )
    return record.encode("ascii")


def own_line(at: float, level: str, text: str) -> bytes:
    """A word of the runner itself, which stands in no file."""
    fields = {"k": "lines", "f": None, "e": None, "t": at, "r": None, "s": "stderr"}
    return _line({**fields, "l": [[0, level]], "m": text})


def parse_core(text: bytes) -> Tuple[Dict[str, Any], bytes]:
    """(the SDK's record, its JSON for the outbox). Raises ValueError for what is not a JSON object, or is too deep.

    NaN and infinities, which JSON does not know, become strings.
    """
    odd: List[str] = []

    def name(constant: str) -> str:
        odd.append(constant)
        return constant

    decoded = text.decode("utf-8")
    record = bounded_json.loads(decoded, parse_constant=name)
    if not isinstance(record, dict):
        raise ValueError(f"it is not an object but a value of type {type(record).__name__}")
    return record, json.dumps(record).encode() if odd or not decoded.isascii() else text.strip()


def core_record(file: str, end: int, data: bytes) -> bytes:
    return b'{"k":"core","f":"%s","e":%d,"d":%s}\n' % (file.encode(), end, data)


def timings_record(file: str, end: int, record: Dict[str, Any]) -> bytes:
    """The SDK's timings under a kind of their own: the server takes them in without looking at their trial."""
    fields = {name: value for name, value in record.items() if name not in ("type", "k", "f", "e")}
    return _line({"k": "timings", "f": file, "e": end, **fields})


def gap_record(file: Optional[str], end: Optional[int], dropped: int) -> bytes:
    """`dropped` bytes of a source, up to `end`, are missing."""
    return _line({"k": "gap", "f": file, "e": end, "bytes": dropped})


def filler(size: int) -> bytes:
    """A gap record that is exactly `size` bytes long, in place of journal bytes that were already freed."""
    record = gap_record(None, None, size).rstrip(b"\n")
    return (record if len(record) < size else b"").ljust(size - 1) + b"\n"


def state_record(at: float, state: str) -> bytes:
    return _line({"k": "state", "t": at, "state": state})


def exit_record(
    ended: ExitFile,
    first_failure: Optional[FirstFailure],
    boot: str,
    left: Sequence[int],
    kernel: Sequence[Sequence[Any]],
) -> bytes:
    """`kernel`: the signs of faults in the kernel's log, where it failed: [microseconds since boot, text]."""
    return _line(
        {
            "k": "exit",
            "t": ended["ended_at"],
            "code": ended["code"],
            "signal": ended["signal"],
            "stopped": ended["stopped"],
            "first_failure": first_failure,
            "boot_id": boot,
            "oom_kills": ended.get("oom_kills"),
            "port_in_use": ended.get("port_in_use"),
            "storage_fault": ended.get("storage_fault"),
            "image_fault": ended.get("image_fault"),
            "hook_fault": ended.get("hook_fault"),
            "left": list(left),
            "kernel": list(kernel),
        }
    )


def earlier(first: Optional[FirstFailure], record: Dict[str, Any]) -> Optional[FirstFailure]:
    """The earlier of a known first failure and a `rank_failed` record; later ones are mostly consequences."""
    try:
        failure: FirstFailure = {
            "rank": int(record["rank"]),
            "code": record.get("code"),
            "signal": record.get("signal"),
            "t": float(record["t"]),
        }
    except (KeyError, OverflowError, TypeError, ValueError):  # `1e999` is a number, and no rank
        return first
    return failure if first is None or failure["t"] < first["t"] else first


def _line(record: Dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"

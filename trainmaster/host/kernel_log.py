"""The lines of the kernel's log that are signs of faults, since the last look.

Only what the kernel itself wrote counts. What a program writes to /dev/kmsg the kernel marks as a user's, whoever the
program is, so no job can invent a fault.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from trainmaster.host.asking import output_of
from trainmaster.kernel_signs import LONGEST_LINE, OF_PROGRAMS, Sign, sign_of
from trainmaster.processes import boot_id

#: a fault may repeat its line a thousand times a second: so many are sent
MOST_LINES = 100
#: the log may be moved by a fraction of a second between processors, so the last second is read again
_AGAIN_US = 1_000_000
_OFF_SECONDS, _OFF_SHARE = 30.0, 0.0005
_KMSG = "/dev/kmsg"
_SECONDS = 10
_RECORD_BYTES = 16_384
_KERNEL = 0  # the facility
_DMESG = re.compile(r"<(\d+)>\[\s*(\d+)\.(\d{6})\](?:\[\s*[TC]\d+\])? (.*)")

Json = Dict[str, Any]
#: (microseconds since boot, text)
Line = Tuple[int, str]


def look(question: Json) -> Json:
    """{"boot", "source", "until", "lines": [[microseconds since boot, text]]}; with "denied" why nothing could be read.

    Question: {"boot", "until"} of the last answer. Of another boot since then all is told; without an earlier look
    nothing, since nobody knows what was done about it meanwhile. The time is the log's own; no other clock follows it.
    """
    boot, before = boot_id(), str(question.get("boot") or "")
    known = int(question.get("until") or 0) if before == boot else 0
    source, lines = _read()
    if lines is None:
        # no boot: once it may be read, its lines are old
        return {"boot": "", "source": "", "until": 0, "lines": [], "denied": _denied()}
    first = known - _AGAIN_US
    found = _chosen(line for line in lines if line[0] > first) if before else []
    until = max((at for at, _ in lines), default=0)
    return {
        "boot": boot,
        "source": source,
        "until": max(until, known),
        "lines": [list(line) for line in found],
    }


def of_last(seconds: float, most: int) -> List[List[Any]]:
    """Of each sign of about so many seconds until now its newest line; what programs cause is left out first.

    The log's clock is adjusted by nobody: it may be off by a fraction of the time since boot.
    """
    uptime = time.clock_gettime(time.CLOCK_MONOTONIC)
    first = (uptime - seconds - _OFF_SECONDS - _OFF_SHARE * uptime) * 1e6
    _, lines = _read()
    newest: Dict[Sign, Line] = {}
    for line in lines or ():
        sign = sign_of(line[1]) if line[0] >= first else None
        if sign:
            newest[sign] = line
    ranked = sorted(newest.items(), key=lambda found: (found[0].kind in OF_PROGRAMS, -found[1][0]))
    return sorted(list(line) for _, line in ranked[:most])


def _chosen(lines: Iterable[Line]) -> List[Line]:
    """The signs in order, at most MOST_LINES: the newest line of each sign before more of the same."""
    last: Dict[Sign, Line] = {}
    more: List[Line] = []
    for line in lines:
        sign = sign_of(line[1])
        if sign:
            if sign in last:
                more.append(last[sign])
            last[sign] = line
    chosen = list(last.values())[-MOST_LINES:]
    room = MOST_LINES - len(chosen)
    return sorted([*chosen, *(more[-room:] if room else [])])


def _denied() -> str:
    return (
        f"{getpass.getuser()} may read neither {_KMSG} nor the kernel's part of the journal nor dmesg, so faults "
        "that the kernel reports are not seen here. Add it to the group systemd-journal or adm, or set "
        "kernel.dmesg_restrict=0."
    )


def _read() -> Tuple[str, Optional[List[Line]]]:
    for source, read in (("kmsg", _of_kmsg), ("journal", _of_journal), ("dmesg", _of_dmesg)):
        lines = read()
        if lines is not None:
            return source, lines
    return "", None


def _of_kmsg() -> Optional[List[Line]]:
    try:
        log = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return [line for record in _records(log) for line in _line_of(record)]
    except OSError:
        return None
    finally:
        os.close(log)


def _records(log: int) -> Iterator[bytes]:
    """Each read gives one record of the ring, until there is no more."""
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        try:
            record = os.read(log, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:  # it was overwritten meanwhile
            continue
        if not record:
            return
        yield record


def _line_of(record: bytes) -> Iterator[Line]:
    """`6,339,5140900,-;text`, and below it ` KEY=value`, which is left out. A line end in the text is `\\x0a`."""
    head, _, text = record.decode("utf-8", "replace").partition(";")
    words = head.split(",")
    if len(words) >= 3 and words[0].isdigit() and words[2].isdigit() and int(words[0]) >> 3 == _KERNEL:
        yield int(words[2]), text.split("\n", 1)[0].replace("\\x0a", " ")[:LONGEST_LINE]


def _of_journal() -> Optional[List[Line]]:
    said = output_of(
        [
            "journalctl",
            "-k",
            "-b",
            "-q",
            "-n",
            "5000",
            "--no-pager",
            "-o",
            "json",
            f"SYSLOG_FACILITY={_KERNEL}",
        ],
        _SECONDS,
    )
    if said is None or not said.strip():
        return None  # without the right to read it, it is empty
    lines = []
    for row in said.decode("utf-8", "replace").splitlines():
        try:
            entry = json.loads(row)
            at = int(entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry["__MONOTONIC_TIMESTAMP"])
            lines.append((at, str(entry["MESSAGE"])[:LONGEST_LINE]))
        except (KeyError, TypeError, ValueError):
            continue
    return lines


def _of_dmesg() -> Optional[List[Line]]:
    said = output_of(["dmesg", "--raw"], _SECONDS)
    if said is None:
        return None
    rows = map(_DMESG.match, said.decode("utf-8", "replace").splitlines())
    return [
        (int(row.group(2)) * 1_000_000 + int(row.group(3)), row.group(4)[:LONGEST_LINE])
        for row in rows
        if row and int(row.group(1)) >> 3 == _KERNEL
    ]

"""How busy this host is: processors, memory, disks and network, from /proc alone.

All values are the host's, whoever uses it. What the kernel here does not tell (a container without disks, say) is
left out rather than given as zero.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Tuple

from trainmaster.host.asking import text_of
from trainmaster.processes import PROC

SYS = Path("/sys")
_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own are
_CPU_COLUMNS = 8  # the two behind them, guests, are in the first two already
_IDLE = (3, 4)  # idle, and idle while a disk works

#: name of a rate -> device -> its counter
Counters = Dict[str, Dict[str, float]]


class HostSamples:
    """Values since the look before; `read` is called again and again."""

    def __init__(self) -> None:
        self._at: Optional[float] = None
        self._before: Counters = {}
        self._cpu: Tuple[int, int] = (0, 0)
        self._devices: Dict[str, bool] = {}

    def read(self, now: float) -> Dict[str, float]:
        """By name (docs/protocol.md, "Samples"); `now` in monotonic seconds. The first look knows no rates."""
        found = self._cpu_percent()
        memory = _memory_available()
        if memory is not None:
            found["memory_free"] = memory
        counters = {**self._disk_counters(), **self._network_counters()}
        if self._at is not None and now > self._at:
            for name, counted in counters.items():
                before = self._before.get(name, {})
                # of each device alone: one that came or went, or counts anew, takes nothing from the others
                more = [
                    count - before[device]
                    for device, count in counted.items()
                    if count >= before.get(device, count + 1)
                ]
                if more:
                    found[name] = round(sum(more) / (now - self._at), 1)
        self._at, self._before = now, counters
        return found

    def kept(self) -> Dict[str, Any]:
        """What the last look found, for a meter of another process to go on from."""
        return {"at": self._at, "counters": self._before, "cpu": list(self._cpu)}

    def resume(self, kept: Dict[str, Any]) -> None:
        """Go on from what `kept` gave. Raises KeyError, TypeError or ValueError for anything else."""
        total, busy = kept["cpu"]
        before = {
            str(name): {str(device): float(count) for device, count in dict(counted).items()}
            for name, counted in dict(kept["counters"]).items()
        }
        self._at, self._before, self._cpu = float(kept["at"]), before, (int(total), int(busy))

    def _cpu_percent(self) -> Dict[str, float]:
        """Return the CPU use of all cores together; iowait counts as idle."""
        ticks = [int(word) for word in _first_line("stat").split()[1 : 1 + _CPU_COLUMNS]]
        if len(ticks) <= max(_IDLE):
            return {}
        total = sum(ticks)
        busy = total - sum(ticks[column] for column in _IDLE)
        spent, worked = total - self._cpu[0], busy - self._cpu[1]
        is_first = self._cpu == (0, 0)
        self._cpu = (total, busy)
        if is_first or spent <= 0:
            return {}
        return {"cpu_util_simple": round(min(100.0, max(0.0, 100.0 * worked / spent)), 1)}

    def _disk_counters(self) -> Counters:
        found: Counters = {"disk_iops": {}, "disk_throughput_read": {}, "disk_throughput_write": {}}
        for fields in _table("diskstats"):
            if len(fields) < 10 or not self._is_device(f"block/{fields[2]}"):
                continue
            disk = fields[2]
            found["disk_iops"][disk] = int(fields[3]) + int(fields[7])
            found["disk_throughput_read"][disk] = int(fields[5]) * _SECTOR_BYTES
            found["disk_throughput_write"][disk] = int(fields[9]) * _SECTOR_BYTES
        return found

    def _is_device(self, name: str) -> bool:
        """Whether `name`, below /sys, is a whole disk (what is made of others would count twice) or a network card."""
        if name not in self._devices:
            self._devices[name] = (SYS / name / "device").exists()
        return self._devices[name]

    def _network_counters(self) -> Counters:
        """Return counters of network cards if any (bonds, bridges and tunnels send through them), never of lo."""
        received: Dict[str, float] = {}
        sent: Dict[str, float] = {}
        for fields in _table("net/dev"):
            name, colon, first = fields[0].partition(":")
            numbers = ([first] if first else []) + fields[1:]
            if colon and len(numbers) >= 9 and name != "lo":
                received[name], sent[name] = int(numbers[0]), int(numbers[8])
        cards = {name for name in sent if self._is_device(f"class/net/{name}")} or set(sent)
        return {
            "net_throughput_recv": {name: count for name, count in received.items() if name in cards},
            "net_throughput_sent": {name: count for name, count in sent.items() if name in cards},
        }


def _memory_available() -> Optional[int]:
    """Bytes that programs can still get without swapping, as the kernel estimates it."""
    for fields in _table("meminfo"):
        if fields[0] == "MemAvailable:":
            return int(fields[1]) * 1024
    return None


def _first_line(name: str) -> str:
    try:
        with (PROC / name).open("rb") as file:
            return file.readline().decode("ascii", "replace")
    except OSError:
        return ""


def _table(name: str) -> Iterable[List[str]]:
    """The lines that have a word, split; empty where there is no such file."""
    for line in text_of(PROC / name).splitlines():
        fields = line.split()
        if fields:
            yield fields

"""What hosts measure while a job runs: the names of samples, their units and titles, and the charts they belong to.

On the wire and in storage a column is `<name>` or `<name>/<part>`, where the part is a GPU's UUID or a rank
(docs/protocol.md, "The outbox").
"""

from __future__ import annotations

from typing import NamedTuple

GPU = "gpu"
RANK = "rank"


class Metric(NamedTuple):
    """One name. `group` is a chart's, in the dialect's words (features.md 5.2); `part_is` says what its parts are."""

    name: str
    unit: str
    title: str
    group: str
    part_is: str = ""


#: In the order in which pages show them.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("gpu_util", "%", "GPU utilization", "gpu", GPU),
        Metric("gpu_memory_used", "bytes", "GPU memory used", "gpu", GPU),
        Metric("gpu_memory_free", "bytes", "GPU memory free", "gpu", GPU),
        Metric("gpu_temperature", "°C", "GPU temperature", "gpu", GPU),
        Metric("gpu_power", "W", "GPU power", "gpu", GPU),
        Metric("cpu_util_simple", "%", "CPU utilization, mean of all cores", "cpu"),
        Metric("memory_free", "bytes", "Memory available", "memory"),
        Metric("disk_iops", "1/s", "Disk operations", "disk"),
        Metric("disk_throughput_read", "bytes/s", "Disk read", "disk"),
        Metric("disk_throughput_write", "bytes/s", "Disk written", "disk"),
        Metric("net_throughput_sent", "bytes/s", "Network sent", "network"),
        Metric("net_throughput_recv", "bytes/s", "Network received", "network"),
        Metric("rank_memory", "bytes", "Memory of each rank (resident)", "ranks", RANK),
        Metric("rank_cpu", "cores", "CPU of each rank", "ranks", RANK),
    )
}
GROUPS: list[str] = list(dict.fromkeys(metric.group for metric in METRICS.values()))

PART_CHARACTERS = 96


def split(column: str) -> tuple[str, str]:
    """(name, part) of a column; the part is empty where it has none."""
    name, _, part = column.partition("/")
    return name, part


def is_known(column: str) -> bool:
    """May it be stored? Newer runners may measure what this server does not know."""
    name, part = split(column)
    metric = METRICS.get(name)
    if metric is None or bool(part) != bool(metric.part_is) or len(part) > PART_CHARACTERS:
        return False
    return part.isascii() and (part.isdecimal() if metric.part_is == RANK else part.isprintable())

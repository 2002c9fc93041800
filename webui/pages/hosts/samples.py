"""What a host measured in the last hour or day: its charts, and the same in words. The range is in the address."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings
from django.http import HttpRequest, JsonResponse, QueryDict

from hosts import registry
from hosts.models import Host
from metrics import host_charts, samples
from metrics.sample_chunks import MINUTE
from metrics.samples import SampleSeries
from metrics.units import spelled
from trainmaster.cli.host_rows import of_gpu
from webui.pages.frame import or_404, page
from webui.query import choice

#: word in the address -> seconds
RANGES = {"hour": 3600.0, "day": 86_400.0}
#: of a line: as many as its panel has room for
POINTS = 240
#: what stands beside a slot is at most so old
NOW_SECONDS = 120.0
_BESIDE_SLOTS = ("gpu_util", "gpu_memory_used", "gpu_memory_free", "gpu_temperature")


@dataclass(frozen=True)
class SamplesView:
    """What the address asks for."""

    range: str
    first_time: float
    last_time: float

    @property
    def point_seconds(self) -> float:
        """What one point stands for; in both ranges they are made of minutes (metrics/samples.py)."""
        return max((self.last_time - self.first_time) / POINTS, MINUTE)

    @property
    def gap_seconds(self) -> float:
        """Points that lie further apart have nothing measured between them."""
        return 3 * max(self.point_seconds, settings.HOST_SAMPLE_SECONDS, settings.SAMPLE_SECONDS)


@dataclass(frozen=True)
class MeasuredRow:
    """One series in words."""

    title: str
    part: str
    last: str
    least: str
    mean: str
    most: str


@dataclass(frozen=True)
class Measured:
    """All series of the range; `newest_at` is when the last sample of all was taken, by the host's clock."""

    rows: list[MeasuredRow]
    newest_at: datetime | None


def read(query: QueryDict) -> SamplesView:
    name = choice(query, "range", RANGES, "hour")
    first, last = samples.last_seconds(RANGES[name])
    return SamplesView(name, first, last)


def find(name: str) -> Host:
    """The host or 404."""
    return or_404(registry.present().filter(name=name).first(), f"There is no host {name}.")


def gpu_numbers(host: Host) -> dict[str, int]:
    """UUID -> the number of its slot; one that has gone keeps its number."""
    slots = host.slots.exclude(uuid="").order_by("-missing", "index")
    return {slot.uuid: slot.index for slot in slots}


def measured(host: Host, view: SamplesView) -> Measured:
    """The table beside the charts."""
    gpus = gpu_numbers(host)
    found = _series(host, view)
    rows = [_row(each, gpus) for each in found]
    newest = samples.newest_of_host(host.pk)
    return Measured(rows, None if newest is None else datetime.fromtimestamp(newest, UTC))


def _series(host: Host, view: SamplesView) -> list[SampleSeries]:
    return samples.of_host(
        host.pk, host_charts.NAMES, first_time=view.first_time, last_time=view.last_time, points=POINTS
    )


def _row(each: SampleSeries, gpus: Mapping[str, int]) -> MeasuredRow:
    unit = each.metric.unit
    values = (each.mean[-1], each.low.min(), each.mean.mean(), each.high.max())
    last, least, mean, most = (spelled(float(value), unit) for value in values)
    return MeasuredRow(each.metric.title, host_charts.gpu_name(each.part, gpus), last, least, mean, most)


def beside_slots(host: Host) -> dict[str, str]:
    """UUID -> `97 %, 61.2 of 79.6 GiB, 64 °C`: the newest sample of each GPU, unless it is old."""
    found: dict[str, dict[str, float]] = {}
    first = time.time() - NOW_SECONDS
    for each in samples.of_host(host.pk, _BESIDE_SLOTS, first_time=first, points=samples.DEFAULT_POINTS):
        found.setdefault(each.part, {})[each.name] = float(each.mean[-1])
    return {part: of_gpu(values) for part, values in found.items()}


@page
def chart(request: HttpRequest, name: str) -> JsonResponse:
    """The figures as Plotly JSON."""
    host, view = find(name), read(request.GET)
    figures = host_charts.figures(
        _series(host, view),
        gpu_numbers(host),
        first_time=view.first_time,
        last_time=view.last_time,
        gap_seconds=view.gap_seconds,
    )
    return JsonResponse({"figures": figures})

"""The states that the numbers of one subject show, each with its evidence. Pure; `faults.py` says which count."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hosts.health import measured
from hosts.health.measured import Numbers

_GIB = 1024**3
#: below this nothing can be started or saved; the doctor says so too
LEAST_FREE_BYTES = 1 * _GIB
#: NVIDIA exchanges GPUs with so many retired pages
_MOST_PAGES = 60
#: of `nvmlClocksEventReasons`
_SLOWDOWN, _THERMAL, _BRAKE = 0x08, 0x40, 0x80
_BUSY_PERCENT = 10
_HELD_BYTES = 2 * _GIB
_CLOCK_SECONDS = 5.0
_SYMBOL_ERRORS = 100
_SHM_FULL, _SHM_LEFT = 0.5, 0.1

States = Iterator[tuple[str, str]]


def _of_gpu(device: str, now: Numbers, before: Numbers, log_is_read: bool) -> States:
    who = f"NVML, GPU {device}"
    if now.get("lost"):
        yield "gpu_lost", f"{who}: the GPU is lost (NVML_ERROR_GPU_IS_LOST)"
        return
    if now.get("reset"):
        yield "gpu_needs_reset", f"{who}: the GPU requires a reset (NVML_ERROR_RESET_REQUIRED)"
        return
    if _rose("ecc_volatile", now, before) or _rose("ecc_aggregate", now, before):
        kind = "ecc_uncorrected" if log_is_read else "ecc_unexplained"
        counted = f"{_change('ecc_volatile', now, before)} since the driver was loaded"
        yield (
            kind,
            f"{who}: uncorrected memory errors {counted}, {_change('ecc_aggregate', now, before)} in all",
        )
    yield from _of_memory(who, now)
    yield from _of_clocks(who, now)
    yield from _of_bus(who, now)


def _of_memory(who: str, now: Numbers) -> States:
    remapped = (
        f"{now.get('rows_corrected', 0):g} rows remapped after corrected errors, "
        f"{now.get('rows_uncorrected', 0):g} after others"
    )
    if now.get("rows_failed"):
        yield "rows_failed", f"{who}: row remapping has failed ({remapped})"
    if now.get("rows_pending"):
        yield "rows_pending", f"{who}: a row waits for a reset to be remapped ({remapped})"
    if now.get("pages", 0) >= _MOST_PAGES:
        yield "pages_full", f"{who}: {now['pages']:g} retired pages of {_MOST_PAGES} at most"
    if now.get("pages_pending"):
        yield "rows_pending", f"{who}: a page waits for a reset to be retired ({now.get('pages', 0):g} are)"
    used, total = now.get("memory_used", 0), now.get("memory_total", 0)
    if used > max(_HELD_BYTES, total / 20) and now.get("processes") == 0:
        yield (
            "gpu_memory_held",
            f"{who}: {_gib(used)} of {_gib(total)} of memory in use, and no process uses the GPU",
        )


def _of_clocks(who: str, now: Numbers) -> States:
    reasons = int(now.get("throttle", 0))
    said = f"(clocks event reasons {reasons:#x})"
    if reasons & _THERMAL:
        yield "gpu_hot", f"{who}: its clocks are slowed down by heat {said}"
    if reasons & _BRAKE:
        yield "gpu_power_brake", f"{who}: its clocks are slowed down by the power supply's brake {said}"
    if reasons & (_SLOWDOWN | _THERMAL | _BRAKE) == _SLOWDOWN:
        yield "gpu_slowed", f"{who}: its hardware slows the clocks down {said}"


def _of_bus(who: str, now: Numbers) -> States:
    width, most = now.get("width", 0), now.get("width_most", 0)
    if 0 < width < most:
        yield "pcie_narrow", f"{who}: PCI Express width x{width:g} of x{most:g}"
    generation, newest = now.get("generation", 0), now.get("generation_most", 0)
    # an idle GPU saves power with a slower link
    if 0 < generation < newest and now.get("pstate") == 0 and now.get("busy", 0) >= _BUSY_PERCENT:
        yield "pcie_slow", f"{who}: PCI Express generation {generation:g} of {newest:g} while it is busy"


def _of_link(what: str, who: str, was: str, unit: str, now: Numbers, before: Numbers) -> States:
    """What ports and cards have in common; the kinds are those of `verdicts`."""
    if now.get("gone"):
        yield f"{what}_gone", f"{who}: it is not there any more, and it was {was} before"
    if before.get("up") and now.get("up") == 0:
        yield f"{what}_down", f"{who}: it is down, and it was {was} before"
    if now.get("up") and 0 < now.get("rate", 0) < before.get("rate", 0):
        yield f"{what}_slow", f"{who}: {now['rate']:g} {unit}, and it had {before['rate']:g} before"


def _of_port(device: str, now: Numbers, before: Numbers, _: bool) -> States:
    who = f"InfiniBand port {device}"
    yield from _of_link("port", who, "active", "Gbit/s", now, before)
    if _rose("link_downed", now, before):
        yield "port_flaps", f"{who}: link_downed {_change('link_downed', now, before)}"
    if _rose("symbol_error", now, before, by=_SYMBOL_ERRORS):
        yield "port_errors", f"{who}: symbol_error {_change('symbol_error', now, before)}"


def _of_card(device: str, now: Numbers, before: Numbers, _: bool) -> States:
    who = f"Network card {device}"
    yield from _of_link("card", who, "up", "Mbit/s", now, before)
    if _rose("carrier_changes", now, before):
        yield "card_flaps", f"{who}: carrier_changes {_change('carrier_changes', now, before)}"


def _of_folder(device: str, now: Numbers, before: Numbers, _: bool, *, whose: str = "folder") -> States:
    if now.get("late"):
        yield f"{whose}_hangs", f"{device}: no answer for {now['late']:.0f} s"
    if now.get("read_only") and (now.get("own", 1) or before.get("writable")):
        yield f"{whose}_read_only", f"{device}: it can only be read"
    if now.get("total") and now.get("free", LEAST_FREE_BYTES) < LEAST_FREE_BYTES and not now.get("read_only"):
        yield "disk_full", f"{device}: {_gib(now['free'])} of {_gib(now['total'])} are free"


def _of_storage(device: str, now: Numbers, before: Numbers, log_is_read: bool) -> States:
    return _of_folder(device, now, before, log_is_read, whose="storage")


def _of_driver(_: str, now: Numbers, __: Numbers, ___: bool) -> States:
    if now.get("late"):
        yield "driver_hangs", f"NVML: no answer for {now['late']:.0f} s"


def _of_clock(_: str, now: Numbers, __: Numbers, ___: bool) -> States:
    for word in ("ahead", "behind"):
        if now.get(word, 0) > _CLOCK_SECONDS:
            yield (
                "clock_off",
                f"Clock: {now[word]:.1f} s {'ahead of' if word == 'ahead' else word} the server's",
            )


def _of_run(device: str, now: Numbers, _: Numbers, __: bool) -> States:
    count = now["processes"]
    yield "run_left", f"{count:g} process{'es' * (count != 1)} of the run {device}, which has ended"


def _of_shm(_: str, now: Numbers, __: Numbers, ___: bool) -> States:
    used, total, left = (now.get(name, 0) for name in ("used", "total", "left"))
    if used > _SHM_FULL * total and left > _SHM_LEFT * total > 0:
        yield (
            "shm_left",
            (
                f"/dev/shm: {_gib(used)} of {_gib(total)} in use, {_gib(left)} by {now.get('files', 0):g} files of "
                "PyTorch whose processes seem to have ended"
            ),
        )


STATES: dict[str, Callable[[str, Numbers, Numbers, bool], States]] = {
    measured.GPU: _of_gpu,
    measured.PORT: _of_port,
    measured.CARD: _of_card,
    measured.FOLDER: _of_folder,
    measured.STORAGE: _of_storage,
    measured.DRIVER: _of_driver,
    measured.CLOCK: _of_clock,
    measured.RUN: _of_run,
    measured.SHM: _of_shm,
}


def _rose(name: str, now: Numbers, before: Numbers, by: float = 1) -> bool:
    """A counter that was not known before has risen by nothing."""
    return name in now and name in before and now[name] >= before[name] + by


def _change(name: str, now: Numbers, before: Numbers) -> str:
    return f"{before.get(name, 0):.0f} -> {now.get(name, 0):.0f}"


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB"

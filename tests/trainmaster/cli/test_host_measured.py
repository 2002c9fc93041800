"""What `host show` says of the last samples of a host, and when a burn-in of hosts together is well."""

import time

import pytest

from trainmaster.cli.host_health import _is_well
from trainmaster.cli.host_rows import show_host

GIB = 1024**3
HELD = {"name": "train", "username": "ada", "idleSince": "2026-11-21T10:00:00Z"}
HOST = {
    "name": "gpu1", "state": "ready", "pool": "default",
    "slots": [
        {"index": 0, "kind": "cuda", "uuid": "GPU-a", "heldBy": HELD},
        {"index": 1, "kind": "cuda", "uuid": "GPU-b", "heldBy": None},
    ],
}  # fmt: skip


def series(name: str, value: float, part: str = "") -> dict[str, object]:
    now = time.time()
    return {"name": name, "part": part, "times": [now - 40, now - 10], "mean": [1.0, value]}


def test_host_show_has_the_last_sample_of_each_gpu_and_of_the_host(
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured = [
        series("gpu_util", 97, "GPU-a"), series("gpu_memory_used", 61.2 * GIB, "GPU-a"),
        series("gpu_memory_free", 18.4 * GIB, "GPU-a"), series("gpu_temperature", 64, "GPU-a"),
        series("cpu_util_simple", 12), series("memory_free", 1544 * GIB),
    ]  # fmt: skip
    show_host(HOST, measured)
    shown = capsys.readouterr().out
    assert "97 %, 61.2 of 79.6 GiB, 64 °C" in shown and "train (ada), idle since 2026-11-21" in shown
    assert ": CPU 12 %, 1544.0 GiB of memory available\n" in shown and "Measured 1" in shown
    show_host(HOST, [])
    assert "No measurements in the last 120 s." in capsys.readouterr().out


def test_a_burn_in_together_is_well_if_it_came_to_its_end_with_rates_and_nothing_was_found() -> None:
    measured = {"rates": [{"value": 9.8}], "findings": []}
    assert _is_well({"phase": "COMPLETED"}, measured)
    assert not _is_well({"phase": "CANCELED"}, measured), "killed after some rates"
    assert not _is_well({"phase": "COMPLETED"}, {**measured, "rates": []})
    assert not _is_well({"phase": "COMPLETED"}, {**measured, "findings": [{"sentence": "slow"}]})

"""Twelve real hangs under torchrun and gloo: each names its rank and its collective within a minute."""

import pytest

from benchmarks.hangs import TWELVE, WITHIN_SECONDS, Injected, measured
from tests.rig import pace


@pytest.mark.parametrize("injected", TWELVE, ids=lambda injected: injected.name)
def test_a_hang_is_named_with_its_collective(injected: Injected) -> None:
    found = measured(injected)
    assert found["named"], found
    assert found["collective"], found
    assert found["seconds"] < WITHIN_SECONDS * pace.factor(), found

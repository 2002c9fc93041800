"""Interleavings of steps at random for CHAOS_MINUTES; INTERLEAVINGS_SEED makes the examples of an earlier run again."""

import itertools
import os
import random
import time

import pytest
from django.db import connection
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.rig.interleavings import Interleavings

#: examples that are made by one seed
AT_ONCE = 5


@pytest.mark.chaos
@pytest.mark.survive(6, 19, 20, 23, 26)
@pytest.mark.django_db(transaction=True)
def test_random_interleavings_keep_what_must_hold(minute: float) -> None:
    first = int(os.environ.get("INTERLEAVINGS_SEED", random.SystemRandom().randrange(2**32)))
    ends_at = time.monotonic() + minute
    effort = settings(
        max_examples=AT_ONCE,
        stateful_step_count=60,
        derandomize=False,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    try:
        for number in itertools.count(first):
            print(f"INTERLEAVINGS_SEED={number}", flush=True)

            @seed(number)
            class Seeded(Interleavings):
                pass

            run_state_machine_as_test(Seeded, settings=effort)
            if time.monotonic() > ends_at:
                break
    finally:
        connection.close()

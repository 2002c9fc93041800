"""A few examples of `tests.rig.interleavings`, the same in every run; tests/chaos/test_interleavings.py makes more."""

import pytest
from django.db import connection
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.rig.interleavings import Interleavings


@pytest.mark.survive(6, 19, 20, 23, 26)
@pytest.mark.django_db(transaction=True)
def test_steps_in_any_order_that_die_in_the_middle_keep_what_must_hold() -> None:
    try:
        run_state_machine_as_test(
            Interleavings,
            settings=settings(
                max_examples=6,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        connection.close()

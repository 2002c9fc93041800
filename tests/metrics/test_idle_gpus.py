"""When a GPU that is held counts as idle: the rule alone."""

import numpy as np
import pytest

from metrics.idle_gpus import Rule, Used, idle_since, may_be_idle

RULE = Rule(percent=5.0, seconds=600.0, gap_seconds=60.0)
NOW = 1_790_000_000.0


def used(first: float, last: float, percent: float = 0.0, **at: float) -> Used:
    """A sample every 10 s from `first` to `last` seconds before now; `at` names those that are otherwise: s300=7."""
    ago = np.arange(first, last - 1, -10.0)
    values = np.full(len(ago), percent)
    for name, value in at.items():
        values[ago == float(name[1:])] = value
    return Used(NOW - ago, values)


def test_a_gpu_is_idle_once_it_was_held_and_measured_all_the_time() -> None:
    assert idle_since(used(700, 0, percent=4.9), NOW - 3600, NOW, RULE) == NOW - 600
    assert idle_since(used(550, 50), NOW - 600, NOW, RULE) == NOW - 600


@pytest.mark.parametrize(
    ("measured", "held_ago"),
    [
        (used(700, 0, percent=5.0), 3600),
        (used(700, 0, s300=7.0), 3600),  # one sample is enough
        (used(700, 0), 599),  # held for too short
        (used(500, 0), 3600),  # not measured before
        (used(700, 70), 3600),  # not measured since: nobody knows
        (used(700, 610), 3600),
        (Used(np.array([]), np.array([])), 3600),
    ],
)
def test_otherwise_nothing_is_said(measured: Used, held_ago: float) -> None:
    assert idle_since(measured, NOW - held_ago, NOW, RULE) is None


def test_work_before_the_time_that_is_looked_at_counts_no_more() -> None:
    assert idle_since(used(1200, 0, s610=99.0), NOW - 3600, NOW, RULE) == NOW - 600


def test_the_newest_samples_say_whether_a_look_is_worth_it() -> None:
    assert may_be_idle(used(50, 0), RULE) and not may_be_idle(used(50, 0, s20=80.0), RULE)
    assert not may_be_idle(Used(np.array([]), np.array([])), RULE)

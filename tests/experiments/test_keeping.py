"""Which checkpoints an experiment's policy keeps: ties, missing metrics, either direction."""

import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from experiments.keeping import Candidate, Policy, reasons

START = datetime(2026, 1, 1, tzinfo=UTC)


def made(number: int, trial: int, steps: int, metric: float | None = None) -> Candidate:
    return Candidate(uuid.UUID(int=number), trial, steps, START + timedelta(seconds=number), metric)


def kept(candidates: list[Candidate], policy: Policy, smaller: bool = True) -> dict[int, list[str]]:
    found = reasons(candidates, policy, smaller_is_better=smaller)
    return {pk.int: words for pk, words in found.items() if words}


TWO_TRIALS = [
    made(1, 1, 10, 0.5),
    made(2, 1, 20, 0.2),
    made(3, 1, 30, 0.4),
    made(4, 2, 10, 0.1),
    made(5, 2, 20, None),
    made(6, 2, 30, 0.3),
]


def test_by_default_the_best_and_the_latest_of_each_trial_are_kept() -> None:
    assert kept(TWO_TRIALS, Policy()) == {
        2: ["best of its trial"],
        3: ["latest of its trial"],
        4: ["best of its trial"],
        6: ["latest of its trial"],
    }


def test_the_larger_metric_is_the_better_one_where_the_config_says_so() -> None:
    assert set(kept(TWO_TRIALS, Policy(0, 1, 0), smaller=False)) == {1, 6}


def test_the_best_of_the_experiment_may_be_several_of_one_trial() -> None:
    assert kept(TWO_TRIALS, Policy(3, 0, 0)) == {
        4: ["best of the experiment"],
        2: ["2nd best of the experiment"],
        6: ["3rd best of the experiment"],
    }


def test_without_the_metric_or_with_one_that_is_not_finite_it_is_never_among_the_best() -> None:
    odd = [
        made(1, 1, 10, None),
        made(2, 1, 20, float("nan")),
        made(3, 1, 30, float("-inf")),
        made(4, 1, 40, 9.0),
    ]
    assert set(kept(odd, Policy(2, 2, 0))) == {4}


def test_of_equal_ones_the_earlier_is_kept() -> None:
    equal = [made(number, 1, number * 10, 0.5) for number in (1, 2, 3)]
    assert set(kept(equal, Policy(0, 1, 0))) == {1}
    assert set(kept(equal, Policy(0, 2, 0))) == {1, 2}


def test_nothing_is_kept_where_all_counts_are_0() -> None:
    assert kept(TWO_TRIALS, Policy(0, 0, 0)) == {}


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3), st.integers(0, 5), st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0]))
        ),
        max_size=20,
    ),
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
    st.booleans(),
)
def test_no_more_are_kept_than_were_asked_for_and_none_better_goes(
    rows: list[tuple[int, int, float | None]], counts: tuple[int, int, int], smaller: bool
) -> None:
    candidates = [made(number, trial, steps, metric) for number, (trial, steps, metric) in enumerate(rows, 1)]
    policy = Policy(*counts)
    found = kept(candidates, policy, smaller)
    trials = {each.trial_id for each in candidates}
    assert len(found) <= policy.experiment_best + len(trials) * (policy.trial_best + policy.trial_latest)
    for trial in trials:
        own = [each for each in candidates if each.trial_id == trial]
        assert sum(each.uuid.int in found for each in own) >= min(len(own), policy.trial_latest)
        measured = [each.metric for each in own if each.metric is not None]
        best = min(measured, default=None) if smaller else max(measured, default=None)
        if best is not None and policy.trial_best:
            assert any(each.metric == best for each in own if each.uuid.int in found)

"""Which past work tells how long the next runs."""

import math

import pytest

from scheduling.past_runs import MOST_ALIKE, PastRuns, Work

LINT, EXPORT = Work("ada", "COMMAND", "lint", 1), Work("ada", "COMMAND", "export", 1)


def known(*runs: tuple[Work, float]) -> PastRuns:
    past = PastRuns()
    for number, (work, seconds) in enumerate(runs):
        past.add(f"job {number}", work, seconds)
    return past


def usual(past: PastRuns, work: Work, job: str = "new") -> float:
    like = past.like(job, work)
    assert like is not None
    return math.exp(like.mean)


def test_work_of_the_same_name_tells_more_than_all_work_of_its_owner() -> None:
    past = known(*[(LINT, 6.0), (EXPORT, 26.0)] * 8)
    assert usual(past, LINT) == pytest.approx(6)
    assert usual(past, EXPORT) == pytest.approx(26)
    assert usual(past, LINT._replace(name="new")) == pytest.approx(math.sqrt(6 * 26))


def test_names_that_tell_nothing_are_not_gone_by() -> None:
    """Each name is of one short and one long run: of a third pair, the owner's other work tells more."""
    runs = [(LINT._replace(name=f"run {n}"), seconds) for n in range(8) for seconds in (10.0, 1000.0)]
    past = known(*runs, (LINT, 1000.0))
    assert usual(past, LINT) < 200


def test_other_sizes_and_then_other_kinds_of_name_stand_in_for_what_has_not_run() -> None:
    past = known(*[(LINT, 6.0)] * 4, *[(LINT._replace(slots=8), 600.0)] * 4)
    assert usual(past, Work("ada", "COMMAND", "new", 8)) == pytest.approx(600)
    assert usual(past, Work("ada", "COMMAND", "new", 2)) == pytest.approx(60)
    assert past.like("new", Work("ada", "EXPERIMENT", "lint", 1)) is None
    assert past.like("new", Work("bob", "COMMAND", "lint", 1)) is None


def test_runs_of_the_same_job_tell_most() -> None:
    past = known(*[(LINT, 6.0)] * 4)
    for _ in range(4):
        past.add("search", LINT, 60.0)
    assert usual(past, LINT, "search") == pytest.approx(60)
    assert past.knows("search") and not past.knows("new")


def test_a_class_of_few_runs_spreads_as_classes_like_it_do() -> None:
    steady = known(*[(EXPORT, 26.0)] * 20, (LINT, 6.0), (LINT, 6.0))
    apart = known(*[(EXPORT, 26.0), (EXPORT, 260.0)] * 10, (LINT, 6.0), (LINT, 6.0))
    one, other = steady.like("new", LINT), apart.like("new", LINT)
    assert one is not None and other is not None
    assert one.stdev < 0.5 < other.stdev


def test_only_the_newest_of_a_class_count() -> None:
    past = known(*[(LINT, 6.0)] * MOST_ALIKE, *[(LINT, 60.0)] * MOST_ALIKE)
    assert usual(past, LINT) == pytest.approx(60)


def test_names_that_have_not_run_are_one_to_the_queue() -> None:
    past = known((LINT, 6.0))
    assert past.known(LINT) == LINT
    assert past.known(LINT._replace(name="a")) == past.known(LINT._replace(name="b"))
    assert past.known(LINT._replace(name="a")) != past.known(LINT._replace(name="a", slots=2))

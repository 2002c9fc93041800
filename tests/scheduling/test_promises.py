"""What was promised is kept, or withdrawn with the reason."""

from scheduling import reasons
from scheduling.forecast import Forecast
from scheduling.giving_back import Held, answer
from scheduling.promises import Promise, keep
from scheduling.reasons import Reason
from scheduling.world import Plan

#: as the model saw it, in seconds from then
GUESS = (70.0, 1000.0, 2000.0)
NOON = 1_767_182_400.0  # 2025-12-31 12:00 UTC


def waits(*by: str) -> Plan:
    return Plan(waits={"t": reasons.no_room(1, 0, [f"{by[0]} should finish first"], by=by)})


def shown(earliest: float, latest: float) -> Forecast:
    return Forecast({"t": (earliest, latest)}, guesses={"t": GUESS})


def test_the_first_range_of_a_wait_is_its_promise_whatever_is_shown_later() -> None:
    first = keep({}, shown(NOON + 60, NOON + 3000), waits("exp 5"), NOON)
    assert first.promises == {"t": Promise(NOON, (NOON + 60, NOON + 3000), guess=GUESS)}
    later = keep(first.promises, shown(NOON + 4000, NOON + 9000), waits("exp 5"), NOON + 600)
    assert later.promises == first.promises
    assert later.forecast.spans == {"t": (NOON + 4000, NOON + 9000)}
    assert not later.missed and not later.gone


def test_a_missed_promise_becomes_not_known_until_the_run_it_waits_for_has_ended() -> None:
    promised = {"t": Promise(NOON, (NOON + 60, NOON + 3000))}
    missed = keep(promised, shown(NOON + 3100, NOON + 4000), waits("exp 5"), NOON + 3001)
    assert missed.missed.keys() == {"t"}
    assert missed.forecast.spans == {}
    assert missed.forecast.unknown == {
        "t": "was expected by 12:50 UTC; no slot is free; exp 5 should finish first"
    }
    still = keep(missed.promises, shown(NOON + 5000, NOON + 6000), waits("exp 5"), NOON + 4000)
    assert not still.missed, "it is missed once"
    assert still.forecast.unknown == missed.forecast.unknown
    over = keep(still.promises, shown(NOON + 5000, NOON + 6000), waits("exp 6"), NOON + 4001)
    assert over.forecast.spans == {"t": (NOON + 5000, NOON + 6000)}
    assert over.promises == {"t": Promise(NOON + 4001, (NOON + 5000, NOON + 6000), guess=GUESS)}


def test_a_missed_promise_is_replaced_once_something_is_stopped_for_the_task() -> None:
    missed = {"t": Promise(NOON, (NOON + 60, NOON + 3000), "was expected by 12:50", ("no_room", "exp 5"))}
    coming: Reason = reasons.coming_free(1, [("gpu1", 0, 1)], ["exp 5"])
    found = keep(missed, shown(NOON + 5000, NOON + 5060), Plan(waits={"t": coming}), NOON + 4900)
    assert found.promises == {"t": Promise(NOON + 4900, (NOON + 5000, NOON + 5060), guess=GUESS)}


def test_a_promise_missed_while_work_is_being_stopped_stays_withdrawn() -> None:
    coming = Plan(waits={"t": reasons.coming_free(1, [("gpu1", 0, 1)], ["exp 5"])})
    promised = {"t": Promise(NOON, (NOON + 5, NOON + 60))}
    missed = keep(promised, shown(NOON + 66, NOON + 120), coming, NOON + 61)
    assert missed.missed.keys() == {"t"}
    still = keep(missed.promises, shown(NOON + 75, NOON + 130), coming, NOON + 70)
    assert (still.forecast.spans, still.promises) == ({}, missed.promises)


def test_another_run_that_should_finish_first_ends_no_miss_while_the_one_named_runs() -> None:
    missed = {"t": Promise(NOON, (NOON + 60, NOON + 3000), "was expected by 12:50", ("no_room", "exp 5"))}
    span = shown(NOON + 5000, NOON + 6000)
    still = keep(missed, span, waits("exp 6"), NOON + 4000, running={"exp 5", "exp 6"})
    assert (still.forecast.spans, still.promises) == ({}, missed)
    over = keep(missed, span, waits("exp 6"), NOON + 4000, running={"exp 6"})
    assert over.forecast.spans == span.spans


def test_a_task_that_started_and_waits_again_has_not_missed_its_promise() -> None:
    promised = {"t": Promise(NOON, (NOON + 60, NOON + 3000))}
    again = shown(NOON + 5000, NOON + 6000)
    found = keep(promised, again, waits("exp 5"), NOON + 3001, started={"t"})
    assert (found.missed, found.gone) == ({}, promised)
    assert found.promises == {"t": Promise(NOON + 3001, again.spans["t"], guess=GUESS)}


def test_a_window_withdraws_what_was_promised_before_it() -> None:
    promised = {"t": Promise(NOON, (NOON + 60, NOON + 3000))}
    again = shown(NOON + 5000, NOON + 6000)
    found = keep(promised, again, waits("exp 5"), NOON + 3001, since=NOON + 10)
    assert (found.missed, found.gone) == ({}, {})
    assert found.promises == {"t": Promise(NOON + 3001, again.spans["t"], guess=GUESS)}
    drivers, later = (reasons.window("maintenance drivers", NOON, NOON + ends, NOON) for ends in (60, 120))
    assert reasons.about(drivers.record()) != reasons.about(later.record())


def test_the_day_of_a_missed_promise_is_named_if_it_is_not_today() -> None:
    promised = {"t": Promise(NOON, (NOON + 60, NOON + 3000))}
    found = keep(promised, shown(0, 0), waits("exp 5"), NOON + 86400)
    assert found.forecast.unknown["t"].startswith("was expected by Dec 31, 2025 12:50 UTC; ")


def test_a_task_that_waits_no_more_leaves_its_promise() -> None:
    promised = {"t": Promise(NOON, (NOON + 60, NOON + 3000))}
    found = keep(promised, Forecast(), Plan(), NOON + 100)
    assert (found.promises, found.gone) == ({}, promised)


def test_a_reason_is_about_the_whole_name_of_what_a_host_is_reserved_for() -> None:
    found = reasons.host_held("gpu1", 0, 2, [], "exp 5 (priority 1)")
    assert reasons.about(found.record()) == ["held", "exp 5 (priority 1)"]


def test_a_lowered_limit_tells_how_large_the_runs_are_that_must_go_not_which_are_the_newest() -> None:
    runs = [Held(1.0, "a", 8), Held(2.0, "b", 1), Held(3.0, "c", 1)]
    assert answer(runs, 2) == "; it holds 10, and 1 run (8 slots) is asked to save and give back its slots"
    assert answer(runs, 1).endswith("and 2 runs (9 slots) are asked to save and give back their slots")


def test_a_promise_is_stored_and_read_back() -> None:
    promise = Promise(NOON, (NOON + 60, NOON + 3000), "was expected", ("no_room", "exp 5"))
    assert Promise.of(promise.record()) == promise

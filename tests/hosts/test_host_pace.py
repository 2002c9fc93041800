"""When a host is called slow: pure, over runs beside other hosts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hosts.health import pace
from hosts.health.pace import Run

RUNS = st.builds(
    Run,
    st.sampled_from([f"trial-{number}" for number in range(5)]),
    st.floats(0.2, 5.0),
    st.sets(st.sampled_from(["gpu-2", "gpu-3", "gpu-4", "gpu-5"])).map(frozenset),
)


def run(task: str, took: float, *peers: str) -> Run:
    return Run(task, took, frozenset(peers))


def test_three_runs_beside_different_hosts_show_it() -> None:
    runs = [
        run("a", 1.3, "gpu-2"),
        run("b", 1.2, "gpu-3"),
        run("c", 1.5, "gpu-2", "gpu-3"),
        run("c", 1.0, "gpu-4"),
    ]
    assert pace.slow(runs) == runs[:3]
    assert pace.in_words(runs[:3], len(runs)) == (
        "Steps took 1.20 to 1.50 times as long as on its peers in 3 of 4 runs within 14 days, beside gpu-2, gpu-3"
    )
    assert pace.slow([*runs, run("d", 1.0, "gpu-4"), run("e", 1.0, "gpu-4")]) == [], "it mostly keeps up"


def test_one_fast_peer_or_one_uneven_task_shows_nothing() -> None:
    assert pace.slow([run(task, 2.0, "gpu-2", f"gpu-{task}") for task in "3456"]) == []
    assert pace.slow([run("a", 2.0, f"gpu-{number}") for number in range(2, 9)]) == []


@given(st.lists(RUNS, max_size=2))
def test_no_host_is_marked_by_one_run_or_two(runs: list[Run]) -> None:
    assert pace.slow(runs) == []


@given(RUNS, st.integers(1, 30))
def test_nor_by_one_run_that_is_told_again_and_again(told: Run, times: int) -> None:
    assert pace.slow([told] * times) == []


@given(st.lists(RUNS.map(lambda one: one._replace(pace=min(one.pace, 1.09))), max_size=12))
def test_where_the_peers_are_as_slow_no_host_is_marked(runs: list[Run]) -> None:
    assert pace.slow(runs) == []


@settings(max_examples=60)
@given(st.lists(RUNS, max_size=12), st.randoms())
def test_the_order_of_runs_changes_nothing_and_what_is_shown_is_evidence(
    runs: list[Run], order: object
) -> None:
    found = pace.slow(runs)
    shuffled = list(runs)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sorted(map(repr, pace.slow(shuffled))) == sorted(map(repr, found))
    assert all(each.pace >= pace.SLOWER and each.peers for each in found) and len(found) != 1
    assert not found or len(pace.in_words(found, len(runs))) < 300

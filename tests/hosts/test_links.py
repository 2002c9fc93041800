"""What the rates between hosts mean: who is named with which evidence, and what is not taken from a host."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest

from hosts.health import links
from hosts.health.links import Rate, judge, merged, most_rates, read
from trainmaster.burn_in.bad_part import asked

NAMES = ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]


def group(*bad: str, names: list[str] = NAMES, rate: float = 1.1) -> list[Rate]:
    """All-reduces of each pair; slow are those with a bad one."""
    return [
        Rate("all_reduce", pair, rate if set(bad) & set(pair) else 9.8, "gloo")
        for pair in combinations(names, 2)
    ]


def sentences(rates: list[Rate], names: list[str] = NAMES, elsewhere: list[Rate] = []) -> list[str]:  # noqa: B006
    return [each.sentence for each in judge(rates, names, str, links.medians(elsewhere))]


def test_the_slow_host_is_named_with_its_evidence() -> None:
    [found] = judge(group("gpu-4"), NAMES, str)
    assert found.sentence == (
        "gpu-4: all-reduce with each of 3 others 1.1 GB/s, the others among themselves 9.8 GB/s"
    )
    assert (found.part, found.is_bad) == ("gpu-4", True)
    assert sentences(group()) == []


def test_with_few_others_or_beside_other_work_it_is_only_told() -> None:
    [found] = judge(group("gpu-3", names=NAMES[:3]), NAMES[:3], str)
    assert (found.part, found.is_bad) == ("gpu-3", False)
    [found] = judge([replace(rate, beside=True) for rate in group("gpu-4")], NAMES, str)
    assert (found.part, found.is_bad) == ("gpu-4", False)
    [found] = judge(group("gpu-4", rate=6.0), NAMES, str)
    assert (found.part, found.is_bad) == ("gpu-4", False)


def test_a_host_with_another_gpu_model_is_told_but_not_bad() -> None:
    """Each pair is told by both of its hosts, each with its own model."""
    told = [replace(rate, how="A100" if "gpu-4" in rate.parts else "H100") for rate in group("gpu-4")]
    mixed = merged(told, [replace(rate, how="H100") for rate in told], most_rates(4))
    [found] = judge(mixed, NAMES, str)
    assert (found.part, found.is_bad) == ("gpu-4", False)
    assert list(links.medians(mixed)) == ["H100"]
    alike = merged(group("gpu-4"), group("gpu-4"), most_rates(4))
    assert judge(alike, NAMES, str)[0].is_bad


def test_two_slow_hosts_are_both_named_if_the_others_are_more_and_else_nobody() -> None:
    five = [*NAMES, "gpu-5"]
    assert [each.part for each in judge(group("gpu-1", "gpu-2", names=five), five, str)] == ["gpu-1", "gpu-2"]
    found = judge(group("gpu-1", "gpu-2"), NAMES, str)
    assert {each.part for each in found} <= {None}


def test_a_slow_pair_is_told_without_a_name() -> None:
    rates = [replace(rate, value=1.1) if set(rate.parts) == {"gpu-1", "gpu-2"} else rate for rate in group()]
    assert sentences(rates) == [
        "gpu-1 and gpu-2: all-reduce 1.1 GB/s, usual among these is 9.8 GB/s; because of which part is not known"
    ]


def test_pairs_that_are_slow_by_how_a_host_is_built_keep_it_from_nothing() -> None:
    """Bridges join two GPUs each; the other pairs go by the processor."""
    bridged = [{"gpu-1", "gpu-2"}, {"gpu-3", "gpu-4"}, {"gpu-1", "gpu-3"}, {"gpu-2", "gpu-4"}]
    rates = [replace(rate, value=9.8 if set(rate.parts) in bridged else 1.1) for rate in group()]
    found = judge(rates, NAMES, str)
    assert found and all(each.is_only_told for each in found)
    assert not judge(group("gpu-4"), NAMES, str)[0].is_only_told


def test_what_fails_says_why() -> None:
    rates = [
        replace(rate, sentence="timed out") if not rate.value else rate for rate in group("gpu-4", rate=0.0)
    ]
    assert "gpu-4: all-reduce with each of 3 others fails (timed out)" in sentences(rates)[0]


@pytest.mark.parametrize("measure", ["all_reduce", "send"])
def test_the_only_pair_that_fails_is_a_finding(measure: str) -> None:
    rates = [Rate(measure, (NAMES[0], NAMES[1]), 0.0, "gloo", sentence="timed out")]
    if measure == "send":
        rates += group(names=NAMES[:2])
    [found] = judge(rates, NAMES[:2], str)
    assert found.part is None and found.parts == ("gpu-1", "gpu-2") and not found.is_only_told
    assert "fails (timed out); because of which part is not known" in found.sentence


def test_a_pair_that_fails_is_told_beside_a_host_that_does_not_explain_it() -> None:
    sent = Rate("send", ("gpu-1", "gpu-2"), 0.0, "gloo", sentence="timed out")
    found = judge([*group("gpu-4"), sent], NAMES, str)
    assert [each.part for each in found] == ["gpu-4", None]
    sent = replace(sent, parts=("gpu-1", "gpu-4"))
    assert [each.part for each in judge([*group("gpu-4"), sent], NAMES, str)] == ["gpu-4"]


def test_that_all_together_fail_is_told_beside_pairs_that_do_unless_a_host_explains_it() -> None:
    whole = Rate("all_reduce", tuple(NAMES), 0.0, "gloo", sentence="timed out")
    failing = Rate("send", ("gpu-1", "gpu-2"), 0.0, "gloo", sentence="timed out")
    assert [len(each.parts) for each in judge([*group(), whole, failing], NAMES, str)] == [2, 4]
    assert [each.part for each in judge([*group("gpu-4"), whole], NAMES, str)] == ["gpu-4"]


def test_what_is_slow_in_one_direction_alone_is_found_by_the_slower_one() -> None:
    sent = [
        Rate("send", pair, 9.8)
        for one, other in combinations(NAMES, 2)
        for pair in ((one, other), (other, one))
    ]
    slow = [replace(rate, value=0.5) if rate.parts[0] == "gpu-2" else rate for rate in sent]
    [found] = judge([*group(), *slow], NAMES, str)
    assert found.part == "gpu-2" and found.sentence.startswith(
        "gpu-2: point-to-point rate with each of 3 others 0.5"
    )


EIGHT = [f"gpu-{number}" for number in range(8)]


def together(*subsets: tuple[str, ...], bad: str = "gpu-5") -> list[Rate]:
    """All-reduces of pairs, which are all well, and of larger subsets, in which the bad one hangs."""
    more = [
        Rate("all_reduce", each, 0.0 if bad in each else 9.0, "gloo", sentence="timed out")
        for each in subsets
    ]
    return [*group(names=EIGHT), *more]


def of(*numbers: int) -> tuple[str, ...]:
    return tuple(EIGHT[number] for number in numbers)


def test_one_that_hangs_only_together_with_many_is_found_by_halves() -> None:
    halves = [of(0, 1, 2, 3), of(4, 5, 6, 7), of(0, 2, 4, 5), of(1, 3, 6, 7), of(0, 2, 4, 6), of(1, 3, 5, 7)]
    rates = together(of(*range(8)), *halves, of(0, 1, 2, 3, 4, 6, 7))
    [found] = judge(rates, EIGHT, str)
    assert found.sentence == "gpu-5: all-reduce of all 8 fails (timed out), without it 9 GB/s"
    assert found.is_bad
    assert judge([*rates, Rate("all_reduce", of(2, 3, 5), 9.0)], EIGHT, str)[0].part is None, (
        "it works elsewhere"
    )


def test_without_the_proof_that_all_others_are_well_nobody_is_named() -> None:
    [found] = judge(together(of(*range(8)), of(0, 1, 2, 3), of(4, 5, 6, 7)), EIGHT, str)
    assert (
        found.sentence == "all 8 together: all-reduce fails (timed out); because of which part is not known"
    )


def test_a_cable_between_two_of_three_is_not_the_fault_of_one_of_them() -> None:
    three = NAMES[:3]
    rates = [replace(rate, value=0.5) if "gpu-3" not in rate.parts else rate for rate in group(names=three)]
    found = judge([*rates, Rate("all_reduce", tuple(three), 0.5)], three, str)
    assert [(each.part, each.parts) for each in found] == [(None, ("gpu-1", "gpu-2"))]


def test_what_is_only_slower_together_than_in_pairs_is_no_finding() -> None:
    assert judge([*group(), Rate("all_reduce", tuple(NAMES), 2.0)], NAMES, str) == []


def test_a_whole_group_that_is_slow_is_told_beside_other_pairs_of_the_pool() -> None:
    others = [replace(rate, parts=(f"x{rate.parts[0]}", rate.parts[1])) for rate in group()]
    slow = [replace(rate, value=2.0) for rate in group(names=NAMES[:2])]
    assert sentences(slow, NAMES[:2], others) == [
        "gpu-1 and gpu-2: all-reduce 2 GB/s, the median of 6 other pairs of the pool is 9.8 GB/s"
    ]
    assert sentences(slow, NAMES[:2], others[:2]) == []
    assert sentences(slow, NAMES[:2], [replace(rate, how="NCCL") for rate in others]) == []


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"measure": "all_reduce", "parts": [0, 1]},
        {"measure": ["all_reduce"], "parts": [0, 1], "value": 1.0},
        {"measure": "latency", "parts": [0, 1], "value": 1.0},
        {"measure": "all_reduce", "parts": [0], "value": 1.0},
        {"measure": "all_reduce", "parts": [0, 0], "value": 1.0},
        {"measure": "all_reduce", "parts": [0, 7], "value": 1.0},
        {"measure": "all_reduce", "parts": [0, None], "value": 1.0},
        {"measure": "all_reduce", "parts": [0, [1]], "value": 1.0},
        {"measure": "all_reduce", "parts": [0, True], "value": 1.0},
        {"measure": "all_reduce", "parts": [0, 1], "value": float("nan")},
        {"measure": "all_reduce", "parts": [0, 1], "value": -1.0},
        {"measure": "all_reduce", "parts": [0, 1], "value": 1e9},
        {"measure": "send", "parts": [0, 1, 2], "value": 1.0},
        {"measure": "all_reduce", "parts": [1, 2], "value": 1.0},
    ],
)
def test_nonsense_is_no_rate_nor_is_what_others_have_measured(told: dict[str, Any]) -> None:
    assert read({"how": "gloo", "rates": [told, told]}, {0: "a", 1: "b", 2: "c"}, ["a"]) == []


def test_what_one_tells_leaves_room_for_the_others() -> None:
    """Permutations are one rate, and subsets that nothing measures are none."""
    numbers = {number: f"gpu-{number}" for number in range(8)}
    told = [
        {"measure": "all_reduce", "parts": list(each), "value": 1.0}
        for count in (2, 3, 4)
        for each in permutations(range(8), count)
        if 5 in each
    ]
    found: list[Rate] = []
    for first in range(0, len(told), 50):
        record = {"how": "gloo", "rates": told[first : first + 50]}
        found = merged(found, read(record, numbers, ["gpu-5"]), most_rates(8))
    assert len([rate for rate in found if len(rate.parts) == 2]) == 7
    assert {rate.subset for rate in found if len(rate.parts) == 3} <= {
        frozenset(f"gpu-{number}" for number in subset) for subset in asked(range(8))
    }
    assert len({rate.subset for rate in found}) == len(found) < 40


@pytest.mark.parametrize("count", range(2, 33))
def test_there_is_room_for_all_that_is_measured(count: int) -> None:
    larger = [subset for subset in asked(range(count)) if len(subset) > 2]
    assert len(larger) + 3 * count * (count - 1) // 2 <= most_rates(count)


def test_a_host_can_only_spoil_what_it_is_part_of_and_the_lower_word_counts() -> None:
    numbers, told = {0: "a", 1: "b", 2: "c"}, [{"measure": "all_reduce", "parts": [0, 1], "value": 9.0}]
    first = read({"how": "gloo", "rates": told}, numbers, ["a"])
    known = merged([], first, most_rates(3))
    known = merged(
        known, read({"how": "gloo", "rates": [{**told[0], "value": 1.0}]}, numbers, ["b"]), most_rates(3)
    )
    known = merged(
        known, read({"how": "gloo", "rates": [{**told[0], "value": 99.0}]}, numbers, ["b"]), most_rates(3)
    )
    assert [(rate.parts, rate.value) for rate in known] == [(("a", "b"), 1.0)]
    assert (
        read({"how": 3, "rates": told}, numbers, ["a"])
        == read({"how": "", "rates": {}}, numbers, ["a"])
        == []
    )
    many = [Rate("all_reduce", (str(number), "x"), 1.0) for number in range(999)]
    assert len(merged([], many, most_rates(3))) == most_rates(3)
    assert links.stored([links.as_record(rate) for rate in known]) == known

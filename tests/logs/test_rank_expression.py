import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.refusals import Refusal
from logs.filters import Filters
from logs.lines import NO_RANK, LogLine
from logs.rank_expression import NOBODY, RANK_MAX, TEXT_CHARACTERS_MAX, Known, parse

#: two hosts of four ranks; 5 is marked, 2 and 6 are silent, 3 failed
GANG = [
    Known(rank, f"gpu-{1 + rank // 4}", marked=rank == 5, silent=rank in (2, 6), failed=rank == 3)
    for rank in range(8)
]
LAUNCHER = Known(NO_RANK, "gpu-1")


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("5", {5}),
        ("0-2,7", {0, 1, 2, 7}),
        ("0, 1 ,2", {0, 1, 2}),
        ("0-7,64,!5", {0, 1, 2, 3, 4, 6, 7, 64}),
        ("!5", {NO_RANK, 0, 1, 2, 3, 4, 6, 7}),
        ("!none", set(range(8))),
        ("none", {NO_RANK}),
        ("none,3", {NO_RANK, 3}),
        ("host:gpu-2", {4, 5, 6, 7}),
        ("host:gpu-1,host:gpu-2", set(range(8))),
        ("host:gpu-2,!5", {4, 6, 7}),
        ("!host:gpu-2", {NO_RANK, 0, 1, 2, 3}),
        ("host:gpu-9", set()),
        ("silent", {2, 6}),
        ("host:gpu-2 silent", {6}),
        ("silent,failed", {2, 3, 6}),
        ("silent failed", set()),
        ("marked", {5}),
        ("one-per-host", {0, 4}),
        ("silent one-per-host", {2, 6}),
        ("!0,!4 one-per-host", {1, 5}),
        ("0-7 !silent", {0, 1, 3, 4, 5, 7}),
        ("0-7,64,!5 host:gpu-2 silent failed one-per-host", set()),
    ],
)
def test_an_expression_chooses_these_ranks(text: str, chosen: set[int]) -> None:
    assert parse(text).ranks([*GANG, LAUNCHER]) == chosen


@pytest.mark.parametrize("text", ["", "  ", ",", " , "])
def test_no_word_leaves_all(text: str) -> None:
    expression = parse(text)
    assert expression.ranks(GANG) == {NO_RANK, *range(8)}
    assert expression.for_filter(GANG) == frozenset(), (
        "an empty filter is all, also of ranks that are to come"
    )


def test_nobody_is_not_everybody() -> None:
    filters = Filters(ranks=parse("host:gpu-9").for_filter(GANG))
    assert filters.ranks == {NOBODY}
    lines = [LogLine(1, 0.0, rank, "o", None, "x", "gpu-1", 1) for rank in (None, 0, 5)]
    assert filters.select(lines) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("7-0", "write 0-7"),
        (f"0-{RANK_MAX + 1}", str(RANK_MAX)),
        ("host:", "host:NAME"),
        ("0-7 quiet", "'quiet' is not a rank expression; allowed: ranks (5, 0-7), host:NAME"),
        ("!!5", "'!!5'"),
        ("-1", "'-1'"),
        ("1-2-3", "'1-2-3'"),
        ("٣", "'٣'"),
        ("5," * TEXT_CHARACTERS_MAX, "at most"),
    ],
)
def test_a_fault_is_a_sentence(text: str, says: str) -> None:
    with pytest.raises(Refusal) as fault:
        parse(text)
    assert says in str(fault.value)
    assert str(fault.value).endswith(".")


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("", False),
        ("0-7,64 !5", False),
        ("none", False),
        ("!5", True),
        ("silent", True),
        ("0-7 host:gpu-1", True),
        ("5,one-per-host", True),
    ],
)
def test_it_says_whether_the_choice_may_change(text: str, needs: bool) -> None:
    assert parse(text).needs_facts is needs


unhurried = settings(deadline=None)
terms = st.one_of(
    st.integers(0, 20).map(str),
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda ends: f"{min(ends)}-{max(ends)}"),
    st.sampled_from(["host:a", "host:b", "silent", "failed", "marked", "one-per-host", "none"]),
)
signed = st.tuples(st.sampled_from(["", "!"]), terms).map("".join)
words = st.lists(signed, min_size=1, max_size=4).map(",".join)
expressions = st.lists(words, max_size=4).map(" ".join)
gangs = st.lists(
    st.builds(
        Known, st.integers(0, 20), st.sampled_from(["a", "b"]), st.booleans(), st.booleans(), st.booleans()
    ),
    max_size=12,
    unique_by=lambda known: known.rank,
)


@unhurried
@given(expressions, words, gangs)
def test_each_word_narrows_what_the_others_leave(text: str, word: str, gang: list[Known]) -> None:
    if text:
        assert parse(f"{text} {word}").ranks(gang) <= parse(text).ranks(gang)


@unhurried
@given(signed, gangs)
def test_taking_away_is_the_rest(term: str, gang: list[Known]) -> None:
    bare = term.removeprefix("!")
    everybody = parse("").ranks(gang)
    assert parse(f"!{bare}").ranks(gang) == everybody - parse(bare).ranks(gang)


@unhurried
@given(expressions, expressions, gangs)
def test_commas_add(one: str, other: str, gang: list[Known]) -> None:
    first, second = (text.split(" ")[0].replace("!", "") for text in (one, other))
    both = parse(f"{first},{second}").ranks(gang)
    if first and second:
        assert both == parse(first).ranks(gang) | parse(second).ranks(gang)


@unhurried
@given(expressions, gangs, gangs)
def test_what_needs_no_facts_does_not_look_at_them(text: str, one: list[Known], other: list[Known]) -> None:
    expression = parse(text)
    if expression.words and not expression.needs_facts:
        assert expression.ranks(one) == expression.ranks(other)


@unhurried
@given(expressions, gangs)
def test_the_order_of_what_is_known_is_nothing(text: str, gang: list[Known]) -> None:
    assert parse(text).ranks(gang) == parse(text).ranks(reversed(gang))


@unhurried
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        parse(text).ranks(GANG)
    except Refusal as fault:
        assert str(fault).endswith(".")

"""YAML as configs mean it."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainmaster.yamltext import YamlError, dump, load

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        # YAML allows a key of one line at most 1024 characters, and JSON may write twelve for one
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=80), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values)
def test_what_is_dumped_is_read_back(value: object) -> None:
    assert load(dump(value)) == value


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values)
def test_json_is_yaml(value: object) -> None:
    assert load(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        (".5", 0.5),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("60_000", 60000),
        ("-1_000", -1000),
        ("0b1_1", 3),
        ("-0x_1f", -31),
        ("1.e-3", 0.001),
        ("1_000.5e-3", 1.0005),
        ("1_0e3", 10000.0),
        ("._5", 0.5),
        ("_1", "_1"),
        ("._", "._"),
        ("1e1_0", "1e1_0"),
        ("'60_000'", "60_000"),
        ("12:30", "12:30"),
        ("on", "on"),
        ("yes", "yes"),
        ("2024-01-02", "2024-01-02"),
        ("~", None),
        ("true", True),
        ("{1: a, true: b, null: c}", {"1": "a", "true": "b", "null": "c"}),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
    ],
)
def test_plain_words_mean_what_they_look_like(text: str, value: object) -> None:
    assert load(text) == value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", "line 4, column 3: found the key c again; it is first on line 3"),
        ("a: .nan", "allowed: a finite number"),
        ("a: .inf", "allowed: a finite number"),
        ('a: "\\0"', "NUL"),
        ("a: &x [*x]", "recursive"),
        ('a: "\\ud800"', "half a character"),
        ("[" * 5000, "nested deeper"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("{[1]: 2}", "as a key"),
        ("a: !!int", "not what its tag says"),
        ("a: !!bool x", "not what its tag says"),
        ("a: !!timestamp x", "not what its tag says"),
        ("a: 0x" + "f" * 5000, "more than 400 digits"),
        ("a: 1\n---\nb: 2", "line 2"),
        ("\tx: 1", "line 1"),
        ("a: " + "9" * 5000, "more than 400 digits"),
    ],
)
def test_what_no_config_can_hold_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(YamlError, match=re.escape(sentence)):
        load(text)


def test_aliases_cannot_unfold_without_bound() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    with pytest.raises(YamlError, match="more than 100000 values"):
        load(text)

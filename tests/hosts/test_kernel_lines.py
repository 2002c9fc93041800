"""Lines of kernels, each with what is concluded from it.

Those of kernel_lines.txt have the forms that NVIDIA's documents (Xid Errors, Fabric Manager User Guide), the kernel's
sources and public threads about faults show; addresses, numbers and names are made up.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hosts.health import verdicts
from trainmaster.kernel_signs import Sign, sign_of

_ROWS = [
    line.split(maxsplit=2)
    for line in Path(__file__).with_name("kernel_lines.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
FAULTS = [row for row in _ROWS if row[0] != "ordinary"]
ORDINARY = [row[2] for row in _ROWS if row[0] == "ordinary"]


@pytest.mark.parametrize(("action", "scope", "line"), FAULTS)
def test_a_line_has_its_verdict(action: str, scope: str, line: str) -> None:
    sign = sign_of(line)
    assert sign is not None
    verdict = verdicts.of(sign)
    assert (verdict.action, verdict.scope) == (action, scope.strip("-"))
    assert verdict.sentence.count(".") >= 2 and verdict.sentence.endswith(".")
    assert not verdict.fails or verdict.scope, "what is stopped is taken out of use too"


@pytest.mark.parametrize("line", ORDINARY)
def test_an_ordinary_line_is_no_sign(line: str) -> None:
    assert sign_of(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3B:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (3b:00.0): 79, GPU has fallen off the bus.",
        "NVRM: GPU 00000000:3b:00.0: GPU has fallen off the bus.",
    ],
)
def test_the_device_of_a_sign_is_named_as_its_gpu_is(line: str) -> None:
    sign = sign_of(line)
    assert sign is not None and sign.device == "0000:3b:00"


@settings(max_examples=50)
@given(st.sampled_from([row[2] for row in FAULTS]), st.text(max_size=60), st.integers(0, 200))
def test_no_text_is_too_strange(line: str, text: str, place: int) -> None:
    sign = sign_of(line[:place] + text + line[place:])
    assert sign is None or verdicts.of(sign).sentence


def test_an_unknown_code_changes_nothing() -> None:
    assert not any(verdicts.of(Sign("xid", code)).scope for code in (0, 1, 14, 55, 999, 9999))

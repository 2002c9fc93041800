"""docs/survive.md names for each failure the tests that hold it, as the markers say."""

from pathlib import Path

import pytest

from tests.rig import survive_page
from tests.rig.survive_modes import MODES

SOURCE = """
import pytest
pytestmark = [pytest.mark.survive(1), pytest.mark.chaos]
class TestMany:
    @pytest.mark.survive(7, 44)
    async def test_a_thing(self): ...
def test_another(): ...
"""


def found_in(folder: Path, source: str) -> dict[int, list[survive_page.Held]]:
    tests = folder / "tests"
    tests.mkdir()
    (tests / "test_some.py").write_text(source)
    return survive_page.held(tests)


def test_markers_of_functions_classes_and_modules_are_read(tmp_path: Path) -> None:
    found = found_in(tmp_path, SOURCE)
    assert {number: [test.name for test in tests] for number, tests in found.items()} == {
        1: ["test_a_thing", "test_another"],
        7: ["test_a_thing"],
        44: ["test_a_thing"],
    }
    page = survive_page.page(found)
    assert "- a thing (`tests/test_some.py`, *chaos*)" in page
    assert page.count("No test yet.") == len(MODES) - 3


def test_a_marker_of_no_mode_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(survive_page.MarkerError, match=r"tests/test_some\.py: test_b holds mode 51"):
        found_in(tmp_path, "import pytest\n@pytest.mark.survive(51)\ndef test_b(): ...\n")


def test_the_50_modes_are_numbered_without_a_gap() -> None:
    assert list(MODES) == list(range(1, 51))

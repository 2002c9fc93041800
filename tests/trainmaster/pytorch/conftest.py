"""The Trial API needs PyTorch, and its tests run in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Runs":  # noqa: F821
    from tests.trainmaster.pytorch.squares import Runs

    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return Runs(tmp_path, monkeypatch)

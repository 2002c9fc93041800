from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.dispatch.sshd import Sshd, running_sshd


@pytest.fixture(autouse=True)
def own_server_key(tmp_path: Path, settings: pytest.FixtureRequest) -> None:
    """A server key of the test's own, and short waits."""
    settings.DATA_DIR = tmp_path / "data"  # type: ignore[attr-defined]
    settings.SSH_CONNECT_TIMEOUT_SECONDS = 5.0  # type: ignore[attr-defined]


@pytest.fixture
def start_sshd(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """Start any number of sshds, each with its own lines of sshd_config."""
    with ExitStack() as stack:
        count = 0

        def start(*options: str) -> Sshd:
            nonlocal count
            count += 1
            return stack.enter_context(running_sshd(tmp_path / f"sshd{count}", *options))

        yield start


@pytest.fixture
def sshd(start_sshd: Callable[..., Sshd]) -> Sshd:
    return start_sshd()

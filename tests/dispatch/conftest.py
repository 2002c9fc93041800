from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.conf import LazySettings

from embedded.redis import Redis
from tests.dispatch.sshd import Sshd, running_sshd
from tests.rig.web import Web, running_web


@pytest.fixture(autouse=True)
def own_server_key(tmp_path: Path, settings: LazySettings) -> None:
    """A server key of the test's own, and short waits."""
    settings.DATA_DIR = tmp_path / "data"
    settings.SSH_CONNECT_TIMEOUT_SECONDS = 5.0
    settings.SSH_LIMIT_RETRY_SECONDS = 3.0


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


@pytest.fixture(scope="module")
def web(
    django_db_setup: None, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    """A web process over the test database, which answers nonces."""
    with running_web(tmp_path_factory.mktemp("web")) as process:
        yield process

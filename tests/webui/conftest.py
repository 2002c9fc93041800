from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.redis import Redis
from tests.rig.web import Web, running_web


@pytest.fixture(scope="package")
def web(
    django_db_setup: None, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    """A web process over the test database; tests that use it commit (`django_db(transaction=True)`)."""
    folder: Path = tmp_path_factory.mktemp("web")
    with running_web(folder) as process:
        yield process

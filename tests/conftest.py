"""What every test may ask for. The parts are real, and start only for the tests that need them."""

import gc
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent
WITH_SERVERS = {"browser", "embedded", "faults", "whole"}
#: made while the workers collect, which one of them does before the others: each would migrate a database of its own
FIRST_START = pytest.StashKey["subprocess.Popen[bytes]"]()
# A server is four processes and a command is one: what the first has compiled, the others need not compile again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
sys.path[:0] = [path for path in (str(ROOT), str(ROOT / "queue")) if path not in sys.path]

from embedded.ports import LOOPBACK  # noqa: E402
from embedded.postgres import ROLE, Postgres  # noqa: E402
from embedded.redis import Redis  # noqa: E402
from tests.rig import browser, emptied, lending, network, pace, parts, spent  # noqa: E402
from tests.rig.hosts import Host, HostRig, sshd_program  # noqa: E402
from tests.rig.server import LIVE, Server, begin_first_start, started_before  # noqa: E402
from webui import environment  # noqa: E402

BEGAN = spent.busy_and_idle()

# Examples are the same in every run, and none is too slow for a busy machine: what fails fails again.
hypothesis.settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    """Workers that run side by side share no network, but what the first of them makes for all.

    Each answer of the API is held against its declaration, in this process and in servers.
    A shell has its background commands ignore SIGINT and SIGQUIT, and whatever they start: that has to hear them.
    A run of the whole suite needs a data folder after a first start in any case.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    settings.CHECK_ANSWERS = True
    PBKDF2PasswordHasher.iterations = (
        1000  # what slows down a thief costs tests a third of a second per person
    )
    os.environ["TRAINMASTER_CHECK_ANSWERS"] = "true"
    parts.shared_folder()
    pace.factor()
    if hasattr(config, "workerinput"):
        network.leave()
    elif config.getoption("numprocesses", None) and _is_whole(config):
        config.stash[FIRST_START] = begin_first_start()


def _is_whole(config: pytest.Config) -> bool:
    """Whether the whole suite runs, not chosen files or names."""
    return config.args_source is config.ArgsSource.TESTPATHS and not config.option.keyword


def pytest_sessionfinish() -> None:
    lending.end()
    browser.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for group in terminalreporter.stats.values() for each in group]
    said = list(spent.lines((each for each in reports if isinstance(each, pytest.TestReport)), BEGAN))
    if len(said) > 1:  # more than a few files
        terminalreporter.write_sep("=", "slowest files")
    for line in said:
        terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """A run that is ended early needs no first start any more."""
    if first_start := config.stash.get(FIRST_START, None):
        parts.end(first_start, signal.SIGINT)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What the first worker has compiled, the others need not compile again."""
    if not hasattr(session.config, "workerinput"):  # the process that starts the workers collects nothing
        return (yield)
    with parts.first_alone("collected"):
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with servers and hosts come first: a long one begun last would leave the other workers idle."""
    borrowing = {item.path for item in items if _borrows(item)}
    first = borrowing | {item.path for item in items if item.path.parent.name in WITH_SERVERS}
    items.sort(key=lambda item: (item.path not in borrowing, item.path not in first))


def pytest_collection_finish() -> None:
    """Everything imported and collected stays until the end: the garbage collector need not look through it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Those who borrow come first, so an idle server would only take time from the others."""
    if not _borrows(item):
        lending.end()
        browser.end()


def _borrows(item: pytest.Item) -> bool:
    """Whether it uses a whole server or the hosts."""
    return bool({"server_address", "host_rig"} & set(getattr(item, "fixturenames", ())))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """An own PostgreSQL for this test session (under xdist: for this worker)."""
    with parts.private_folder("postgres") as path, parts.running_postgres(path, started_before()) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """An own Redis for this test session; the Django settings point at it from then on."""
    with parts.private_folder("redis") as path, parts.running_redis(path) as server:
        settings.REDIS_URL = server.url()
        settings.CELERY_BROKER_URL = server.url().replace("unix://", "redis+socket://", 1)
        yield server


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, postgres: Postgres
) -> None:
    """Point pytest-django at the session's PostgreSQL before it makes the test database."""
    entry = environment.database(postgres.url("postgres"))
    settings.DATABASES["default"].update(entry)
    if emptied.as_migrated(postgres):  # a server's database, which needs no migration any more
        settings.DATABASES["default"]["TEST"]["TEMPLATE"] = ROLE
    connection.ops = emptied.Operations(connection)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[None]:
    """The test database; emptying it makes no permissions anew, for nobody has one.

    Threads of `webui.waiting` keep their connections, which end with it.
    """
    emptied.without_permissions()
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture(scope="session")
def host_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostRig]:
    """Hosts with their own sshd: network namespaces where allowed, else loopback ports."""
    if sshd_program() is None:
        pytest.skip("needs sshd: install openssh-server")
    rig = HostRig(tmp_path_factory.mktemp("hosts"))
    if rig.refusal:
        warnings.warn(f"hosts share the network of this machine: {rig.refusal}", stacklevel=1)
    yield rig
    rig.close()


@pytest.fixture
def hosts(host_rig: HostRig) -> list[Host]:
    """Two hosts, gpu1 and gpu2, as new: nothing runs on them but sshd."""
    return host_rig.take(2)


@pytest.fixture
def isolated_hosts(hosts: list[Host], host_rig: HostRig) -> list[Host]:
    """Two hosts with their own addresses, accounts and links to cut; skipped where that is refused."""
    if not hosts[0].isolated:
        pytest.skip(f"needs network namespaces: {host_rig.refusal}")
    return hosts


@pytest.fixture(scope="session")
def server_address(request: pytest.FixtureRequest) -> str:
    """Where servers listen besides loopback: the hosts' bridge when there is one."""
    if sshd_program() is None:
        return LOOPBACK
    rig: HostRig = request.getfixturevalue("host_rig")
    return rig.server_address


@pytest.fixture(scope="module")
def server(server_address: str) -> Iterator[Server]:
    """The whole server, shared by a module's tests."""
    with lending.borrowed(server_address) as server:
        yield server


@pytest.fixture
def own_server(server_address: str) -> Iterator[Server]:
    """The whole server for one test alone, beside the module's."""
    with lending.borrowed(server_address) as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of what the running servers have logged."""
    report = yield
    if report.failed:
        for running in LIVE:
            report.sections.append(("up", running.said()[-2000:]))
            report.sections += [(f"{name}.log", running.log(name)[-4000:]) for name in ("web", "worker")]
    return report

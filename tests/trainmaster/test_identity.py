"""A run believes its own server alone, and nobody else ever sees its token."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainmaster.conftest import TestHost
from tests.trainmaster.counting_ranks import assert_complete, finish
from tests.trainmaster.made_run import make_run
from tests.trainmaster.stranger import OtherCluster, Stranger
from tests.trainmaster.stream_server import PROOF_KEY, TOKEN, Handler, StreamServer
from tests.trainmaster.test_runs import UNTIL_TOLD
from trainmaster._info import _known, get_cluster_info
from trainmaster.client import Client
from trainmaster.core._server import server_client
from trainmaster.http import Refused, ServerClient, Unproved, Unreachable
from trainmaster.identity import Identity
from trainmaster.paths import RunPaths
from trainmaster.protocol import FIRST_MASTER
from trainmaster.runner.link import Weather
from trainmaster.runner.state import read_shipped

pytestmark = pytest.mark.survive(41)

IDENTITY = Identity("a.1", "c1", PROOF_KEY)
BELIEVED_SECONDS = 2.0  # a 410 from whoever answered used to end a run after half of this
ORDERS = json.dumps({"offset": 10**9, "preempt": None, "stop": {"grace_seconds": 0, "reason": "no"}}).encode()
JSON_TYPE = {"Content-Type": "application/json"}

STRANGERS: dict[str, Callable[[int], Stranger]] = {
    "refuses": lambda port: Stranger(port, 401, JSON_TYPE, b'{"message": "The token is refused."}'),
    "says that it is over": lambda port: Stranger(port, 410, JSON_TYPE, b'{"message": "It is over."}'),
    "forbids": lambda port: Stranger(port, 403),
    "knows nothing": lambda port: Stranger(port, 404),
    "likes everything": lambda port: Stranger(port, 200),
    "gives orders": lambda port: Stranger(port, 200, JSON_TYPE, ORDERS),
    "asks for a login": lambda port: Stranger(port, 401, {"WWW-Authenticate": 'Basic realm="proxy"'}),
    "sends to a login": lambda port: Stranger(port, 302, {"Location": "https://sso.example/login"}),
    "is another cluster": OtherCluster,
}


def assert_heard_nothing_secret(stranger: Stranger) -> None:
    for heard in stranger.heard:
        assert "authorization" not in heard.headers.lower() and TOKEN not in heard.headers, heard
        assert heard.body_bytes == 0, f"it got what the run has to say: {heard}"


def test_a_run_outlives_whatever_else_answers_at_the_servers_address(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(UNTIL_TOLD)
    stream_server.wait_for(lambda: stream_server.texts("rank0.stdout"))
    for name, make in STRANGERS.items():
        stream_server.down()
        stranger = make(stream_server.port)
        over = name in ("refuses", "says that it is over")
        stranger.wait_for(lambda over=over, at=stranger: at.has_answered_for(BELIEVED_SECONDS if over else 0))
        stranger.down()
        assert_heard_nothing_secret(stranger)
        assert not paths.stop.exists() and read_shipped(paths)["refused"] is None, name
        stream_server.up()
        seen = len(stream_server.data)
        stream_server.wait_for(lambda seen=seen: len(stream_server.data) > seen)
    (paths.root / "enough").touch()
    assert finish(stream_server, paths)["code"] == 0
    assert_complete(stream_server, int(stream_server.texts("launcher.stdout")[0]))
    said = paths.runner_log.read_text()
    assert "did not prove that it is this run's server" in said and "It answered 401 (" in said


def test_a_proxy_that_begins_to_ask_for_a_login_ends_nothing(
    host: TestHost, stream_server: StreamServer
) -> None:
    """It kept the connections that the server behind it had proved."""
    paths = host.run_script(UNTIL_TOLD)
    stream_server.wait_for(lambda: stream_server.texts("rank0.stdout"))
    stream_server.proves, stream_server.refuse_with = False, 410
    size = paths.outbox.stat().st_size
    until = time.monotonic() + BELIEVED_SECONDS
    stream_server.wait_for(lambda: time.monotonic() > until and paths.outbox.stat().st_size > size + 5000)
    assert not paths.stop.exists()
    stream_server.proves, stream_server.refuse_with = True, None
    (paths.root / "enough").touch()
    assert finish(stream_server, paths)["code"] == 0
    assert_complete(stream_server, int(stream_server.texts("launcher.stdout")[0]))


def test_a_token_that_the_true_server_does_not_know_ends_a_run_only_after_hours(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(UNTIL_TOLD)
    stream_server.wait_for(lambda: stream_server.texts("rank0.stdout"))
    stream_server.refuse_with = 401
    stream_server.wait_for(lambda: "The run continues" in paths.runner_log.read_text())
    until = time.monotonic() + BELIEVED_SECONDS
    size = paths.outbox.stat().st_size
    stream_server.wait_for(lambda: time.monotonic() > until and paths.outbox.stat().st_size > size + 5000)
    stream_server.refuse_with = None
    (paths.root / "enough").touch()
    assert finish(stream_server, paths)["code"] == 0
    assert_complete(stream_server, int(stream_server.texts("launcher.stdout")[0]))


def refusal(status: int) -> Refused:
    return Refused(status, None, "no")


def test_how_long_which_refusal_must_last() -> None:
    weather = Weather(over_seconds=0.1, unknown_token_seconds=0.3)
    for status, seconds in ((410, 0.1), (401, 0.3)):
        weather.refusal = None
        weather.refused(refusal(status))
        time.sleep(seconds)  # what is tested is that time passes
        weather.good()
        weather.refused(refusal(status))
        assert weather.refusal is None, "a good answer in between begins the time again"
        time.sleep(seconds)
        weather.refused(refusal(status))
        assert str(weather.refusal).startswith(str(status))


# --- the client -------------------------------------------------------------------------------------------------


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    stranger = Stranger(0, 200, JSON_TYPE, ORDERS)
    yield stranger
    stranger.down()


def client_of(server: StreamServer, identity: Identity = IDENTITY) -> ServerClient:
    return ServerClient(server.address["urls"][0], TOKEN, identity=identity)


HEARTBEAT = ("POST", "/runner/v1/streams/a.1/0/heartbeat", b"{}")


def test_a_connection_is_proved_once_and_before_the_token(stream_server: StreamServer) -> None:
    asked: list[tuple[str, bool]] = []

    class Noting(Handler):
        def parse_request(self) -> bool:
            parsed = super().parse_request()
            asked.append((self.path, "Authorization" in self.headers))
            return parsed

    stream_server.down()
    stream_server.handler = lambda: Noting  # type: ignore[method-assign]
    stream_server.up()
    with client_of(stream_server) as client:
        for _ in range(3):
            assert client.request(*HEARTBEAT).status == 200
    assert asked == [("/runner/v1/identity", False), *3 * [(HEARTBEAT[1], True)]]


def test_a_stranger_at_the_place_of_a_proved_server_sees_no_token(stream_server: StreamServer) -> None:
    with client_of(stream_server) as client:
        assert client.request(*HEARTBEAT).status == 200
        stream_server.down()
        stranger = Stranger(stream_server.port, 200, JSON_TYPE, ORDERS)
        for _ in range(3):
            with pytest.raises(Unreachable):
                client.request(*HEARTBEAT, repeatable=True)
        with pytest.raises(Unproved), client.stream("GET", "/runner/v1/tensorboard"):
            pass
        with pytest.raises(Unproved):
            client.take_socket()
        stranger.down()
    assert len(stranger.heard) >= 4
    assert_heard_nothing_secret(stranger)


@pytest.mark.parametrize(
    "identity", [IDENTITY._replace(key="x"), IDENTITY._replace(cluster_id="c2")], ids=["key", "cluster"]
)
def test_another_key_or_cluster_is_another_server(stream_server: StreamServer, identity: Identity) -> None:
    with client_of(stream_server, identity) as client, pytest.raises(Unproved):
        client.request(*HEARTBEAT)
    assert not stream_server.heartbeats


def test_a_proof_is_of_one_nonce_and_one_status() -> None:
    challenge, other = IDENTITY.challenge(), IDENTITY.challenge()
    from trainmaster.identity import proof

    given = proof(PROOF_KEY, "c1", challenge.nonce, 200)
    assert challenge.is_met(given, 200)
    assert not challenge.is_met(given, 410) and not other.is_met(given, 200)
    assert not challenge.is_met(None, 200) and not challenge.is_met("ü", 200)


def test_a_way_that_keeps_no_connection_open_gets_no_token(stream_server: StreamServer) -> None:
    class Closing(Handler):
        protocol_version = "HTTP/1.0"

    stream_server.down()
    stream_server.handler = lambda: Closing  # type: ignore[method-assign]
    stream_server.up()
    with client_of(stream_server) as client, pytest.raises(Unreachable, match="keep connections open"):
        client.request(*HEARTBEAT)
    assert not stream_server.heartbeats


# --- who else has the token: the SDK and the command line in a run ----------------------------------------------


@pytest.fixture
def run_dir(tmp_path: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    cluster = {"id": "c1", "name": "test", "proof_key": PROOF_KEY}
    folder = make_run(tmp_path / "7.t.1.0", cluster=cluster)
    (folder / "server.json").write_text(json.dumps(stranger.address))
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(folder))
    return RunPaths(folder)


def test_the_sdk_and_the_command_line_in_a_run_send_its_token_to_its_server_alone(
    run_dir: RunPaths, stranger: Stranger, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = get_cluster_info()
    assert info is not None and info.session_token == TOKEN
    with server_client(info) as asking, pytest.raises(Unproved):
        asking.get("/api/v1/checkpoints/x")
    client = Client(stranger.address["urls"][0], TOKEN, retry_limit_seconds=0)
    with pytest.raises(Unproved):
        client.get("/api/v1/me")
    assert_heard_nothing_secret(stranger)
    client.token = "a token of a user"
    with pytest.raises(Unproved):
        client.get("/api/v1/me")
    elsewhere = Client(stranger.address["urls"][0].replace("127.0.0.1", "localhost"), "a token of a user")
    assert elsewhere.get("/api/v1/me")["stop"], "nobody has said that the run's server is there"
    client.token = TOKEN
    with pytest.raises(Unproved):
        client.get("/api/v1/me")
    port = stranger.address["urls"][0].rpartition(":")[2]
    user = Client(f"HTTP://LocalHost:{port}", "a token of a user", retry_limit_seconds=0)
    assert user._http.identity is None
    monkeypatch.setenv("DET_MASTER", f"http://localhost:{port}")
    user.token = "a token of another cluster"
    assert user._http.identity is None, "the script has set DET_MASTER"
    monkeypatch.setenv(FIRST_MASTER, f"localhost:{port}")
    user.token = "a token of a user"
    assert user._http.identity, "where the run's server was at the start, however the address is written"
    run_dir.server.write_text("{")
    _known.clear()
    user.token = TOKEN
    assert user._http.identity, "whatever has become of server.json"
    run_dir.server.write_text(json.dumps(stream_server.address))
    with server_client(info) as asking:
        assert asking.request(*HEARTBEAT).status == 200

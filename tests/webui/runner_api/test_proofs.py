"""Each answer to a challenge carries the proof that it is this server's, whatever the answer is."""

import asyncio
import uuid

import httpx
import pytest
from django.db import OperationalError

from accounts.models import Cluster
from dispatch.runs import spec
from jobs.models import Allocation, Member
from jobs.run import RunSpec
from jobs.states import AllocationState
from tests.rig.pace import wait_until
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import Web
from trainmaster.http import ServerClient, Unproved
from trainmaster.identity import CHALLENGE_HEADER, PROOF_HEADER, Identity, identity_of
from webui.runner_api import limits, proofs

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.survive(41)]


A_RUN = RunSpec(
    entrypoint=["true"],
    environment={},
    python="",
    activate="",
    user_data={},
    checkpoint_storage={},
    trial=None,
    code=b"",
)


@pytest.fixture
def member() -> Member:
    return make_gang()[0]


@pytest.fixture
def identity(web: Web, member: Member) -> Identity:
    """What the spec of the member says, once the web process has read who it is since the last test."""
    identity = identity_of(spec.build(member, [member], A_RUN))
    assert identity is not None
    wait_until(
        lambda: proves(httpx.get(f"{web.url}/runner/v1/identity", headers=asked(identity)), identity), 60
    )
    return identity


NONCE = "0123456789abcdef0123456789abcdef"


def asked(identity: Identity, **headers: str) -> dict[str, str]:
    return {CHALLENGE_HEADER: f"{identity.allocation_id} {NONCE}", **headers}


def proves(answer: httpx.Response, identity: Identity) -> bool:
    challenge = identity.challenge()._replace(nonce=NONCE)
    return challenge.is_met(answer.headers.get(PROOF_HEADER), answer.status_code)


def test_every_answer_is_proved(web: Web, member: Member, identity: Identity) -> None:
    stream = f"/runner/v1/streams/{member.allocation_id}/0"
    known = {"Authorization": f"Bearer {RUN_TOKEN}"}
    other, over = make_gang(token="another")[0], make_gang(token="over")[0]
    Allocation.objects.filter(pk=over.allocation_id).update(state=AllocationState.TERMINATED)
    for method, path, headers, status in (
        ("POST", f"{stream}/heartbeat", known, 200),
        ("POST", f"{stream}/heartbeat", {}, 401),
        ("POST", f"/runner/v1/streams/{other.allocation_id}/0/heartbeat", known, 401),
        ("POST", f"/runner/v1/streams/{over.allocation_id}/0/heartbeat", known, 410),
        ("POST", f"{stream}?offset=7", known, 409),
        ("GET", "/runner/v1/nothing-here", known, 404),
        ("GET", f"/api/v1/checkpoints/{uuid.uuid4()}", known, 404),
        ("GET", "/api/v1/me", {"Authorization": "Bearer nobody's"}, 401),
        ("GET", "/runner/v1/tensorboard", {"Authorization": "Bearer over"}, 410),
    ):
        body = b'{"k": "x"}\n' if method == "POST" else None
        answer = httpx.request(method, f"{web.url}{path}", headers=asked(identity, **headers), content=body)
        assert (answer.status_code, proves(answer, identity)) == (status, True), (path, answer.text)


def test_a_server_knows_who_it_is_while_its_database_is_away(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLUSTER_SEEN_SECONDS", 0.0)
    this, cluster = proofs._ThisCluster(), Cluster.get()

    def away() -> Cluster:
        raise OperationalError("the database is away")

    async def look() -> Cluster | None:
        return await this.known()

    with monkeypatch.context() as outage:
        outage.setattr(Cluster, "get", away)
        assert asyncio.run(look()) is None
    assert asyncio.run(look()) == cluster
    monkeypatch.setattr(Cluster, "get", away)
    assert asyncio.run(look()) == cluster


@pytest.mark.survive(37)
def test_a_runner_of_the_version_before_is_answered_as_ever(
    web: Web, member: Member, identity: Identity
) -> None:
    """It sends no challenge; a header that is none is none."""
    known = {"Authorization": f"Bearer {RUN_TOKEN}"}
    path = f"{web.url}/runner/v1/streams/{member.allocation_id}/0/heartbeat"
    for challenge in ({}, {CHALLENGE_HEADER: "x"}, {CHALLENGE_HEADER: f"x {'n' * 400}"}):
        answer = httpx.post(path, headers={**known, **challenge}, json={})
        assert answer.status_code == 200 and PROOF_HEADER not in answer.headers


def test_what_anybody_may_ask_gives_no_key_away(web: Web, member: Member, identity: Identity) -> None:
    """A run of another attempt, or whoever asks for the HMAC of a nonce, cannot prove to be the server."""
    cluster = Cluster.get()
    keys = {cluster.proof_key(name) for name in (member.allocation_id, f"{member.allocation_id}x", "")}
    assert len(keys) == 3
    for value in (member.allocation_id, f"proof-key|{member.allocation_id}"):
        given = httpx.get(f"{web.url}/runner/v1/nonce", params={"value": value}).json()["hmac"]
        assert given not in identity.key and identity.key not in given
    wrong = identity._replace(allocation_id="another.1")
    with ServerClient(web.url, RUN_TOKEN, identity=wrong) as client, pytest.raises(Unproved):
        client.get("/api/v1/me")
    with ServerClient(web.url, RUN_TOKEN, identity=identity) as client:
        path = f"/runner/v1/streams/{member.allocation_id}/0/heartbeat"
        assert client.request("POST", path, b"{}").status == 200

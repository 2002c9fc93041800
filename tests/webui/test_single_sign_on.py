"""Login by OpenID Connect, against a real provider: the whole server, its browser played by an HTTP client."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.rig import parts
from tests.rig.oidc import CLIENT_ID, CLIENT_SECRET, Provider, running_provider
from tests.rig.server import Server

pytestmark = pytest.mark.chaos  # a server of its own, with other settings


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def server(provider: Provider) -> Iterator[Server]:
    settings = {
        "TRAINMASTER_OIDC_ISSUER": provider.issuer,
        "TRAINMASTER_OIDC_CLIENT_ID": CLIENT_ID,
        "TRAINMASTER_OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "TRAINMASTER_OIDC_NAME": "Log in with the lab",
    }
    with parts.private_folder("oidc") as path:
        path.chmod(0o711)
        running = Server(path / "data", settings=settings)
        try:
            yield running.start()
        finally:
            running.close()


def refuses_forged(provider: Provider, come_in: Callable[[], httpx.Client]) -> None:
    """ID tokens with the nonce of an earlier login, or none, or of somebody else. Each login has a nonce of its own."""
    nonce = provider.asked[0]["nonce"]
    assert len(nonce) >= 32
    for forged in ({"nonce": nonce}, {"nonce": ""}, {"nonce": None}, {"sub": "2"}):
        provider.forged = forged
        refused = come_in()
        assert "did not confirm the login" in refused.last.text, forged  # type: ignore[attr-defined]
        assert refused.get("/api/v1/me").status_code == 401
    provider.forged = {}
    assert len({each["nonce"] for each in provider.asked}) == len(provider.asked)


def test_strangers_come_in_and_known_people_are_recognized(server: Server, provider: Provider) -> None:
    admin = server.request("POST", "/api/v1/auth/login", {"username": "admin", "password": server.password})[
        "token"
    ]

    def person(client: httpx.Client) -> dict[str, object]:
        return dict(client.get("/api/v1/me").json()["user"])

    def came_in(claims: dict[str, object]) -> httpx.Client:
        provider.claims = claims
        client = httpx.Client(base_url=server.url, follow_redirects=True, timeout=30)
        page = client.get("/login", params={"next": "/hosts"}).text
        assert "Log in with the lab" in page
        found = re.search(r'href="(/sso/[^"]+)"', page)
        assert found is not None
        client.last = client.get(found[1].replace("&amp;", "&"))  # type: ignore[attr-defined]
        return client

    first = came_in(
        {"sub": "1", "preferred_username": "grace", "name": "Grace", "email": "g@lab", "email_verified": True}
    )
    assert urlsplit(str(first.last.url)).path == "/hosts"  # type: ignore[attr-defined]
    assert (person(first)["username"], person(first)["role"]) == ("grace", "viewer")
    assert provider.asked[0]["code_challenge_method"] == "S256" and provider.asked[0]["state"]
    refuses_forged(provider, lambda: came_in({"sub": "1", "preferred_username": "grace"}))
    assert person(came_in({"sub": "1", "preferred_username": "renamed"}))["username"] == "grace", (
        "known by sub"
    )
    assert person(came_in({"sub": "2", "preferred_username": "grace"}))["username"] == "grace-2", (
        "another person"
    )

    body = {"user": {"username": "ada", "email": "ada@lab.example", "role": "editor", "active": True}}
    ada = server.request("POST", "/api/v1/users", body, admin)["user"]
    unverified = {
        "sub": "3",
        "preferred_username": "mallory",
        "email": "ada@lab.example",
        "email_verified": False,
    }
    assert person(came_in(unverified))["username"] == "mallory"
    in_words = {**unverified, "sub": "5", "preferred_username": "eve", "email_verified": "false"}
    assert person(came_in(in_words))["username"] == "eve"
    added = first.get("/sso/oidc/oidc/login/", params={"process": "connect"})
    assert "did not confirm the login" in added.text, "no account here is given another one at the provider"
    linked = came_in(
        {"sub": "4", "preferred_username": "a.l", "email": "ada@lab.example", "email_verified": True}
    )
    assert (person(linked)["username"], person(linked)["role"]) == ("ada", "editor")

    server.request("PATCH", f"/api/v1/users/{ada['id']}", {"active": False}, admin)
    refused = came_in({"sub": "4", "preferred_username": "a.l"})
    assert "is deactivated" in refused.last.text  # type: ignore[attr-defined]
    visitor = httpx.Client(base_url=server.url, follow_redirects=True, timeout=30)
    answer = visitor.get("/sso/oidc/oidc/login/callback/", params={"code": "code-1", "state": "made-up"})
    assert "did not confirm the login" in answer.text

"""Serving beyond loopback: certificates and addresses."""

import ssl
import stat
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from dispatch.ssh.server_route import server_address
from embedded import ports, tls
from hosts.models import Host
from tests.rig import parts
from tests.rig.ports import free_port
from tests.rig.server import Server


def test_a_certificate_is_made_once_and_kept(tmp_path: Path) -> None:
    first = tls.own(tmp_path, "0.0.0.0")
    assert tls.own(tmp_path, "0.0.0.0") == first
    assert stat.S_IMODE(first.key.stat().st_mode) == 0o600
    assert first.printed.replace(":", "").lower() == first.sha256


def test_a_key_that_does_not_belong_to_the_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = tls.own(tmp_path / "a", "127.0.0.1"), tls.own(tmp_path / "b", "127.0.0.1")
    with pytest.raises(ImproperlyConfigured, match="cannot be used"):
        tls.given(one.certificate, other.key)


@pytest.mark.parametrize("address", ["gpu1", "1.2.3", "", "*"])
def test_an_address_that_is_none_is_refused_with_a_sentence(address: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="allowed: an IP address"):
        ports.is_loopback(address)


def test_loopback_is_served_beside_another_address() -> None:
    sockets = ports.listen("127.0.0.2", 0)
    assert [item.getsockname() for item in sockets] == [
        ("127.0.0.2", sockets[0].getsockname()[1]),
        ("127.0.0.1", sockets[0].getsockname()[1]),
    ]
    for item in sockets:
        item.close()


def test_beyond_loopback_it_serves_tls_with_the_printed_fingerprint() -> None:
    with parts.private_folder("tls") as path:
        path.chmod(0o711)
        server = Server(path / "data")
        server.port = free_port()
        try:
            server.start("--listen", "0.0.0.0")
            presented = ssl.get_server_certificate(("127.0.0.1", server.port))
            pinned = tls.given(server.data / "tls/server.pem", server.data / "tls/server.key")
            assert pinned.printed in server.said()
            assert "Set TRAINMASTER_LINK_URL to that" in server.said()
            context = ssl.create_default_context(cadata=presented)
            address = f"https://localhost:{server.port}/health"
            with urllib.request.urlopen(address, timeout=60, context=context) as answer:
                assert answer.status == 200
            login = address.replace("health", "login")
            with urllib.request.urlopen(login, timeout=60, context=context) as answer:
                cookie = answer.headers["Set-Cookie"].lower()
            # no other host of the domain can set a cookie of such a name
            assert cookie.startswith("__host-csrftoken=")
            assert (
                "secure" in cookie and "httponly" in cookie and "path=/;" in cookie and "domain" not in cookie
            )
        finally:
            server.close()


def test_runs_are_sent_the_certificate_and_never_its_key(tmp_path: Path, settings: Any) -> None:
    made = tls.own(tmp_path, "10.0.0.1")
    both = tmp_path / "both.pem"
    both.write_bytes(made.key.read_bytes() + made.certificate.read_bytes())
    settings.CERT_SHA256, settings.CERT_FILE = made.sha256, str(both)
    found = server_address(Host(server_url="https://10.0.0.1:8080"))
    assert (found["cert_pem"].strip(), found["cert_name"]) == (
        made.certificate.read_text().strip(),
        "localhost",
    )
    assert "PRIVATE" not in found["cert_pem"]

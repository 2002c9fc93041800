"""Which addresses messages may go to: those of public hosts, by the registries of special-purpose addresses."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from accounts.refusals import Refusal
from notifications import addresses

INTERNAL = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1",
    "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.1",
    "192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::10.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "fe80::1",
    "fec0::1", "fc00::1", "fd12::1", "ff02::1", "100::1", "64:ff9b:1::1",
    "64:ff9b::a00:1", "64:ff9b::7f00:1", "2001:db8::1", "2001::1", "2001:20::1", "2002:a00:1::1",
    "2002:808:808::1", "3fff::1", "5f00::1", "4000::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "100.63.255.255", "100.128.0.1", "172.15.255.255",
    "172.32.0.1", "192.0.1.1", "192.167.1.1", "198.17.0.1", "223.255.255.255", "2606:4700:4700::1111",
    "2a00:1450:4001::5e", "::ffff:8.8.8.8", "64:ff9b::808:808", "2001:4860:4860::8888",
]  # fmt: skip


@pytest.fixture
def leads_to(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets every name lead to these addresses, and counts how often it was asked."""
    asked: list[str] = []

    def let(*texts: str) -> list[str]:
        def found(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in texts]

        monkeypatch.setattr(socket, "getaddrinfo", found)
        return asked

    return let


@pytest.mark.parametrize("text", INTERNAL)
def test_what_is_no_public_host_is_refused(text: str, leads_to: Any) -> None:
    leads_to(text)
    with pytest.raises(Refusal, match="inside the server's own networks"):
        addresses.resolve("chat.example.com", 443, trusted=False)
    assert addresses.resolve("chat.example.com", 443, trusted=True) == text


@pytest.mark.parametrize("text", PUBLIC)
def test_public_hosts_are_dialed_by_the_address_that_was_judged(text: str, leads_to: Any) -> None:
    asked = leads_to(text)
    assert addresses.resolve("chat.example.com", 443, trusted=False) == text
    assert asked == ["chat.example.com"]


def test_one_internal_address_among_several_is_enough_to_refuse(leads_to: Any) -> None:
    leads_to("8.8.8.8", "127.0.0.1")
    with pytest.raises(Refusal):
        addresses.resolve("chat.example.com", 443, trusted=False)


@pytest.mark.parametrize("text", ["10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "fd12::1"])
def test_networks_that_an_admin_allows_are_dialed(text: str, leads_to: Any, settings: Any) -> None:
    settings.NOTIFY_PRIVATE_NETWORKS = ["10.0.0.0/8", "fd00::/8"]
    leads_to(text)
    assert addresses.resolve("chat.example.com", 443, trusted=False) == text
    assert ipaddress.ip_address(text)

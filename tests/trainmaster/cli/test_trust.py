"""A certificate that no authority vouches for is shown once and pinned; another one later is an alarm."""

from __future__ import annotations

import datetime
import hashlib
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.rig.server import ROOT
from tests.trainmaster.cli.scripted_server import ScriptedServer, ok
from tests.trainmaster.cli.terminal import Terminal

COMMAND = [sys.executable, "-m", "trainmaster.cli.main", "master", "info"]


def certificate(file: Path) -> str:
    """Write a key and its own certificate; the certificate's SHA-256."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "trainmaster")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return hashlib.sha256(made.public_bytes(serialization.Encoding.DER)).hexdigest()


class Secured:
    """An HTTPS server on loopback whose certificate can be changed."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "server.pem"
        self.fingerprint = certificate(self.file)
        self.server = ScriptedServer()
        self.server.on("GET", "/info", ok({"cluster_name": "secured", "version": "0.1.0"}))
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.file)
        self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True)
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("DET_", "TRAINMASTER_"))
            },
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(folder),
            "TRAINMASTER_MASTER": self.server.url.replace("http:", "https:"),
        }

    def change_certificate(self) -> None:
        self.fingerprint = certificate(self.file)
        self.context.load_cert_chain(self.file)

    def without_terminal(self, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **more}
        return subprocess.run(COMMAND, env=environment, input="", text=True, capture_output=True, check=False)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    found = Secured(tmp_path)
    yield found
    found.server.shutdown()
    found.server.server_close()


def spelled(fingerprint: str) -> str:
    return ":".join(fingerprint[i : i + 2].upper() for i in range(0, 64, 2))


def test_an_unknown_certificate_is_asked_about_once(secured: Secured) -> None:
    terminal = Terminal(COMMAND, secured.environment)
    terminal.expect(spelled(secured.fingerprint))
    terminal.answer("Do you trust it? [y/N]", "y")
    assert terminal.wait() == 0, terminal.said
    again = secured.without_terminal()
    assert again.returncode == 0, again.stderr
    assert "cluster_name: secured" in again.stdout


def test_without_a_terminal_nothing_unknown_is_trusted(secured: Secured) -> None:
    refused = secured.without_terminal()
    assert refused.returncode == 1
    assert "is not trusted and there is no terminal to ask" in refused.stderr


def test_a_certificate_that_was_not_accepted_is_not_kept(secured: Secured) -> None:
    terminal = Terminal(COMMAND, secured.environment)
    terminal.answer("Do you trust it? [y/N]", "")
    assert terminal.wait() == 1
    assert secured.without_terminal().returncode == 1


def test_a_changed_certificate_is_an_alarm(secured: Secured) -> None:
    terminal = Terminal(COMMAND, secured.environment)
    terminal.answer("Do you trust it? [y/N]", "y")
    assert terminal.wait() == 0
    before = secured.fingerprint
    secured.change_certificate()
    alarmed = secured.without_terminal()
    assert alarmed.returncode == 1
    assert "has changed!" in alarmed.stderr
    assert spelled(before) in alarmed.stderr
    assert spelled(secured.fingerprint) in alarmed.stderr


def test_a_certificate_file_says_what_to_expect(secured: Secured) -> None:
    trusted = secured.without_terminal(TRAINMASTER_MASTER_CERT_FILE=str(secured.file))
    assert trusted.returncode == 0, trusted.stderr

"""An own certificate for serving beyond loopback. Clients pin its fingerprint."""

import hashlib
import ipaddress
import os
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.core.exceptions import ImproperlyConfigured

VALID_DAYS = 3650  # pinned, so nobody renews it; a new one would break every pin


@dataclass(frozen=True)
class Certificate:
    certificate: Path
    key: Path
    sha256: str  # hex, of the leaf's DER bytes

    @property
    def printed(self) -> str:
        """The fingerprint in pairs, as browsers show it."""
        digits = self.sha256.upper()
        return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def own(data: Path, address: str) -> Certificate:
    """The certificate in the data folder, made at the first call for this machine's name and the address."""
    home = data / "tls"
    home.mkdir(mode=0o700, exist_ok=True)
    certificate, key = home / "server.pem", home / "server.key"
    if not certificate.exists():
        _make(certificate, key, address)
    return given(certificate, key)


def given(certificate: Path, key: Path) -> Certificate:
    """A certificate of the user's own: checked to be readable and to belong to the key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        leaf = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise ImproperlyConfigured(
            f"--cert {certificate} and --key {key} cannot be used: {error}. "
            "Allowed: a PEM certificate (chain) and its unencrypted PEM key."
        ) from error
    return Certificate(
        certificate, key, hashlib.sha256(leaf.public_bytes(serialization.Encoding.DER)).hexdigest()
    )


def _make(certificate: Path, key: Path, address: str) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Trainmaster")])
    addresses = {ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address(address)}
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.DNSName(socket.gethostname())]
    names += [x509.IPAddress(item) for item in sorted(addresses, key=str) if not item.is_unspecified]
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # hosts' clocks may be behind
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    unencrypted = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    _write(key, private.private_bytes(serialization.Encoding.PEM, form, unencrypted))
    _write(certificate, signed.public_bytes(serialization.Encoding.PEM))  # last: it says that both are there


def _write(path: Path, content: bytes) -> None:
    scratch = path.with_suffix(".new")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    scratch.rename(path)

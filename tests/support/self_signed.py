"""Creates a self-signed certificate, for servers that only a test's clients use."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import SSLContext

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from elasticjob_kube.x509 import KeyPair, subject


def self_signed(name: str) -> KeyPair:
    """Create a certificate that is its own authority, for a server of this DNS name.

    It is valid for an hour.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject(name))
        .issuer_name(subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def write_pair(folder: Path, name: str) -> KeyPair:
    """Create a certificate, and write it and its key as the files of a Secret have them."""
    pair = self_signed(name)
    (folder / "tls.crt").write_bytes(pair.certificate_pem)
    (folder / "tls.key").write_bytes(pair.key_pem)
    return pair


def server_context(folder: Path, name: str) -> tuple[str, SSLContext]:
    """Create a certificate; return it, and what a server needs to show it."""
    pair = write_pair(folder, name)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return pair.certificate_pem.decode(), context

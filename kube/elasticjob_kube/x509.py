"""Makes X.509 certificates and private keys.

Every certificate has a key on the curve P-256, a SHA-256 signature and a random serial number. It
is valid from one hour ago, because the clock of the machine that verifies it may be behind.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.backends.openssl import backend as _backend  # noqa: F401 (as in connection.py)
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate in PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key in PEM (PKCS #8), not encrypted."""
        return private_key_pem(self.key)


def subject(common_name: str, organization: str = "") -> x509.Name:
    """Return a name, which the API server reads as a user and the user's group."""
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _key_usage(*, of_authority: bool) -> x509.KeyUsage:
    """Return the extension that names the one purpose of a certificate's key."""
    return x509.KeyUsage(
        digital_signature=not of_authority,
        key_cert_sign=of_authority,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def new_authority(name: x509.Name, *, valid: timedelta, now: float | None = None) -> KeyPair:
    """Make a self-signed certificate authority that cannot sign other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(name, name, key.public_key(), valid, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(of_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: KeyPair,
    name: x509.Name,
    *,
    valid: timedelta,
    purposes: Sequence[ObjectIdentifier],
    hosts: Sequence[str] = (),
    now: float | None = None,
) -> KeyPair:
    """Make a key and have its certificate signed by an authority.

    Args:
        authority: signs the certificate.
        name: the subject of the certificate.
        valid: its duration from now on.
        purposes: CLIENT, SERVER or both.
        hosts: DNS names and IP addresses of a server.
        now: the time; None for that of this machine's clock.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(name, authority.certificate.subject, key.public_key(), valid, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(of_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return KeyPair(builder.sign(authority.key, hashes.SHA256()), key)


def private_key_pem(key: PrivateKey) -> bytes:
    """Return a private key in PEM (PKCS #8), not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    valid: timedelta,
    now: float | None,
) -> x509.CertificateBuilder:
    begin = datetime.now(UTC) if now is None else datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - timedelta(hours=1))
        .not_valid_after(begin + valid)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

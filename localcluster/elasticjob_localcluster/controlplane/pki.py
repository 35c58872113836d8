"""Keys and certificates of one cluster: made anew with it, readable by its owner only, good for a year."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
DAYS = 365
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class Authority:
    """A certificate authority whose files are `<name>.crt` and `<name>.key`."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_pki(directory: Path, *, service_ip: str, node: str) -> None:
    """Write all keys and certificates of a cluster into the directory, as `<name>.crt` and `<name>.key`."""
    ca = _authority(directory, "ca")
    api_names = ["127.0.0.1", service_ip, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    _issue(directory, ca, "kube-apiserver", usage=SERVER, names=[*api_names, "kubernetes.default.svc.cluster.local"])
    _issue(directory, ca, "admin", group="system:masters", usage=CLIENT)
    _issue(directory, ca, "apiserver-node-client", group="system:masters", usage=CLIENT)
    for name in ("kube-controller-manager", "kube-scheduler"):
        _issue(directory, ca, name, user=f"system:{name}", usage=CLIENT)
    _issue(directory, ca, "node-client", user=f"system:node:{node}", group="system:nodes", usage=CLIENT)
    _issue(directory, ca, "node-serving", user=node, usage=SERVER, names=[node, "localhost", "127.0.0.1"])
    front_proxy = _authority(directory, "front-proxy-ca")
    _issue(directory, front_proxy, "front-proxy-client", usage=CLIENT)
    # Tokens of service accounts are signed with RSA, the one algorithm that every client library verifies.
    _write_key(directory / "service-account.key", rsa.generate_private_key(public_exponent=65537, key_size=2048))


def _authority(directory: Path, name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(f"elasticjob-dev-{name}")
    usage = _key_usage(authority=True)
    builder = _builder(subject, subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())
    _write(directory, name, certificate, key)
    return Authority(certificate, key)


def _issue(
    directory: Path,
    authority: Authority,
    name: str,
    *,
    usage: ObjectIdentifier,
    user: str = "",
    group: str = "",
    names: Sequence[str] = (),
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(_subject(user or name, group), authority.certificate.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(item) for item in names]), False)
    _write(directory, name, builder.sign(authority.key, hashes.SHA256()), key)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks that are set back a little do no harm
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _subject(common_name: str, group: str = "") -> x509.Name:
    """Return the name that the API server reads as a user (CN) of a group (O)."""
    organization = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*organization, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(directory: Path, name: str, certificate: x509.Certificate, key: PrivateKey) -> None:
    (directory / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(directory / f"{name}.key", key)


def _write_key(path: Path, key: PrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )

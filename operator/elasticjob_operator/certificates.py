"""The per-job secrets: a token, and a TLS certificate under an authority that signs nothing else (promise 9)."""

from __future__ import annotations

import datetime
import secrets

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from elasticjob_api import names

VALID = datetime.timedelta(days=3650)
"""Longer than any job trains: the certificate is not rotated while the job lives, and goes with it."""
_TOKEN_BYTES = 32


def new_job_secrets(job: str, namespace: str) -> dict[str, bytes]:
    """Return new contents of a job's Secret, under the keys of `elasticjob_api.names`; certificates and key in PEM."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name(f"elasticjob {namespace}/{job}"[:64])
    authority = (
        _certificate(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    service = names.master_service(job)
    hosts = (names.TLS_SERVER_NAME, service, f"{service}.{namespace}", f"{service}.{namespace}.svc")
    certificate = (
        _certificate(_name(names.TLS_SERVER_NAME), authority_name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        names.SECRET_TOKEN: secrets.token_urlsafe(_TOKEN_BYTES).encode(),
        names.SECRET_CA: authority.public_bytes(serialization.Encoding.PEM),
        names.SECRET_CERT: certificate.public_bytes(serialization.Encoding.PEM),
        names.SECRET_KEY: private,
    }


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # A node's clock may be behind ours.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )

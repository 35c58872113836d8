"""Keys and certificates of one cluster.

They are made with the cluster, readable only by its owner, and valid for a year.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509 import Name
from cryptography.x509.oid import ObjectIdentifier
from elasticjob_kube import x509
from elasticjob_kube.x509 import CLIENT, SERVER, KeyPair

from elasticjob_localcluster.kubeconfig_file import write_private

VALID = timedelta(days=365)


def make_pki(directory: Path, *, service_ip: str, node: str) -> None:
    """Write all certificates and keys of a cluster, as `<name>.crt` and `<name>.key`."""
    ca = _make_authority(directory, "ca")
    users = {
        "admin": x509.subject("admin", "system:masters"),
        "apiserver-node-client": x509.subject("apiserver-node-client", "system:masters"),
        "kube-controller-manager": x509.subject("system:kube-controller-manager"),
        "kube-scheduler": x509.subject("system:kube-scheduler"),
        "node-client": x509.subject(f"system:node:{node}", "system:nodes"),
    }
    for name, user in users.items():
        _issue(directory, ca, name, user, CLIENT)
    hosts = ["127.0.0.1", service_ip, "localhost", "kubernetes", "kubernetes.default"]
    hosts += ["kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    _issue(directory, ca, "kube-apiserver", x509.subject("kube-apiserver"), SERVER, hosts)
    hosts = [node, "localhost", "127.0.0.1"]
    _issue(directory, ca, "node-serving", x509.subject(node), SERVER, hosts)
    front_proxy = _make_authority(directory, "front-proxy-ca")
    _issue(directory, front_proxy, "front-proxy-client", x509.subject("front-proxy-client"), CLIENT)
    # Tokens of service accounts are signed with RSA, the one algorithm that every client library
    # verifies.
    token_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    write_private(directory / "service-account.key", x509.private_key_pem(token_key))


def _make_authority(directory: Path, name: str) -> KeyPair:
    authority = x509.new_authority(x509.subject(f"elasticjob-dev-{name}"), valid=VALID)
    _write(directory, name, authority)
    return authority


def _issue(
    directory: Path,
    authority: KeyPair,
    name: str,
    subject: Name,
    purpose: ObjectIdentifier,
    hosts: Sequence[str] = (),
) -> None:
    issued = x509.issue(authority, subject, valid=VALID, purposes=(purpose,), hosts=hosts)
    _write(directory, name, issued)


def _write(directory: Path, name: str, pair: KeyPair) -> None:
    (directory / f"{name}.crt").write_bytes(pair.certificate_pem)
    write_private(directory / f"{name}.key", pair.key_pem)

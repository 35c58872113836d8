"""A second process node beside the cluster's own, for the tests that take a node away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class SecondNode:
    """A process that a test may kill: it has the administrator's rights and a certificate of its own making."""

    def __init__(self, kubeconfig: Path, directory: Path, name: str, *, taints: Sequence[str] = ()) -> None:
        """Start it; pods that name it, or tolerate its taints, may come."""
        self.name = name
        self._directory = directory
        certificate = str(_own_certificate(directory))
        files = ["--serving-cert", certificate, "--serving-key", certificate, "--client-ca", certificate]
        where = ["--kubeconfig", str(kubeconfig), "--name", name, "--state", str(directory / "state")]
        options = [f"--register-with-taints={taint}" for taint in taints]
        self._command = [sys.executable, "-m", "elasticjob_localcluster.node", *where, *files, *options]
        self.start()

    def start(self) -> None:
        """Start it again under its name."""
        with (self._directory / "node.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, start_new_session=True)

    def end(self, number: int) -> None:
        """Send it a signal, and wait until it is gone."""
        self.process.send_signal(number)
        self.process.wait(timeout=20)

    def log(self) -> str:
        """Return what it has said."""
        return (self._directory / "node.log").read_text()


def _own_certificate(directory: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "second-node")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1)
    )
    signed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    unencrypted = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted)
    file = directory / "node.pem"
    file.write_bytes(signed + secret)
    return file

"""Runs a second process node for the tests that remove a node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.self_signed import self_signed


class SecondNode:
    """A process that a test may kill.

    It has the administrator's rights and a self-signed certificate.
    """

    def __init__(
        self, kubeconfig: Path, directory: Path, name: str, *, taints: Sequence[str] = ()
    ) -> None:
        """Start it; pods that name it, or tolerate its taints, may run on it."""
        self.name = name
        self._directory = directory
        certificate = str(_write_certificate(directory))
        files = [
            "--serving-cert",
            certificate,
            "--serving-key",
            certificate,
            "--client-ca",
            certificate,
        ]
        where = [
            "--kubeconfig",
            str(kubeconfig),
            "--name",
            name,
            "--state",
            str(directory / "state"),
        ]
        options = [f"--register-with-taints={taint}" for taint in taints]
        self._command = [
            sys.executable,
            "-m",
            "elasticjob_localcluster.node",
            *where,
            *files,
            *options,
        ]
        self.start()

    def start(self) -> None:
        """Start it again under its name."""
        with (self._directory / "node.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, start_new_session=True)

    def end(self, number: int) -> None:
        """Send it a signal, and wait until it has ended."""
        self.process.send_signal(number)
        self.process.wait(timeout=20)

    def log(self) -> str:
        """Return its log."""
        return (self._directory / "node.log").read_text()


def _write_certificate(directory: Path) -> Path:
    """Write a certificate and its key into one file."""
    pair = self_signed("second-node")
    file = directory / "node.pem"
    file.write_bytes(pair.certificate_pem + pair.key_pem)
    return file

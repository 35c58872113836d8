"""Loads a certificate and its key into a server's TLS.

A module of its own, because masters do this without the package that makes certificates.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


def load_identity(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Use a certificate and its key, both in PEM, for the next connections of a server."""
    # The ssl module reads keys from files only. /dev/shm is in memory, and the pod's root file
    # system is read-only.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        certificate_file = Path(folder, "tls.crt")
        key_file = Path(folder, "tls.key")
        certificate_file.write_bytes(certificate)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        context.load_cert_chain(certificate_file, key_file)

"""Makes the secrets of a job, and of the webhook: a token, and certificates of an own authority."""

from __future__ import annotations

import datetime
import secrets

from elasticjob_api import names
from elasticjob_kube import x509

VALID = datetime.timedelta(days=3650)
"""Longer than any job trains: the certificates are deleted with their job, and never rotated."""
_TOKEN_BYTES = 32


def new_admission_secrets(
    service: str, namespace: str, now: float | None = None
) -> dict[str, bytes]:
    """Return new contents of the admission webhook's Secret: a token, and a certificate in PEM.

    `now` is the time; None for that of this machine's clock.
    """
    authority = _authority(f"elasticjob {service}", now)
    hosts = (f"{service}.{namespace}.svc", "localhost", "127.0.0.1")
    server = x509.issue(
        authority, x509.subject(service), valid=VALID, purposes=(x509.SERVER,), hosts=hosts, now=now
    )
    return {
        # It is a part of the webhook's path, which must be in small letters.
        names.SECRET_TOKEN: secrets.token_hex(_TOKEN_BYTES).encode(),
        names.SECRET_CA: authority.certificate_pem,
        names.SECRET_CERT: server.certificate_pem,
        names.SECRET_KEY: server.key_pem,
    }


def new_job_secrets(job: str, namespace: str, now: float | None = None) -> dict[str, bytes]:
    """Return new contents of a job's Secret: a token, and certificates and keys in PEM.

    `now` is the time; None for that of this machine's clock.
    """
    authority = _authority(f"elasticjob {namespace}/{job}", now)
    service = names.master_service(job)
    server = x509.issue(
        authority,
        x509.subject(names.TLS_SERVER_NAME),
        valid=VALID,
        purposes=(x509.SERVER,),
        hosts=(
            names.TLS_SERVER_NAME,
            service,
            f"{service}.{namespace}",
            f"{service}.{namespace}.svc",
        ),
        now=now,
    )
    peer = x509.issue(
        authority,
        x509.subject(names.TLS_PEER_NAME),
        valid=VALID,
        purposes=(x509.SERVER, x509.CLIENT),
        hosts=(names.TLS_PEER_NAME,),
        now=now,
    )
    return {
        names.SECRET_TOKEN: secrets.token_urlsafe(_TOKEN_BYTES).encode(),
        names.SECRET_CA: authority.certificate_pem,
        names.SECRET_CERT: server.certificate_pem,
        names.SECRET_KEY: server.key_pem,
        names.SECRET_PEER: peer.certificate_pem + peer.key_pem,
    }


def _authority(name: str, now: float | None) -> x509.KeyPair:
    return x509.new_authority(x509.subject(name[:64]), valid=VALID, now=now)

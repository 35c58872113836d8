"""Makes the secrets of a job: a token, and TLS certificates of an authority of its own."""

from __future__ import annotations

import datetime
import secrets

from elasticjob_api import names
from elasticjob_kube import x509

VALID = datetime.timedelta(days=3650)
"""Longer than any job trains: the certificates are deleted with their job, and never rotated."""
_TOKEN_BYTES = 32


def new_job_secrets(job: str, namespace: str) -> dict[str, bytes]:
    """Return new contents of a job's Secret: a token, and certificates and keys in PEM."""
    authority = x509.new_authority(
        x509.subject(f"elasticjob {namespace}/{job}"[:64]),
        valid=VALID,
        usage=x509.key_usage(key_cert_sign=True),
    )
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
    )
    peer = x509.issue(
        authority,
        x509.subject(names.TLS_PEER_NAME),
        valid=VALID,
        purposes=(x509.SERVER, x509.CLIENT),
        hosts=(names.TLS_PEER_NAME,),
    )
    return {
        names.SECRET_TOKEN: secrets.token_urlsafe(_TOKEN_BYTES).encode(),
        names.SECRET_CA: authority.certificate_pem,
        names.SECRET_CERT: server.certificate_pem,
        names.SECRET_KEY: server.key_pem,
        names.SECRET_PEER: peer.certificate_pem + peer.key_pem,
    }

"""The read-only token of a job, for queries and the dashboard.

It is derived from the job's token, which cannot be derived from it. So the master needs no second
secret, every existing Secret has a read-only token, and the two never differ. This module needs
only the standard library.
"""

from __future__ import annotations

import hashlib
import hmac

_PURPOSE = b"elasticjob.dev/query"


def query_token(token: str) -> str:
    """Return the read-only token of the job with this token."""
    return hmac.digest(token.encode(), _PURPOSE, hashlib.sha256).hex()

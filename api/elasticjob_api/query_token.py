"""The token that reads: for queries and the dashboard.

It follows from the job's token, which does not follow from it. So the master needs no second
secret, a job whose Secret is older has one as well, and the two never differ. Standard library
only.
"""

from __future__ import annotations

import hashlib
import hmac

_PURPOSE = b"elasticjob.dev/query"


def query_token(token: str) -> str:
    """Return the token that reads, of the job with this token."""
    return hmac.digest(token.encode(), _PURPOSE, hashlib.sha256).hex()

"""The page, which contains no secret, and the HTTP headers that it is served with.

The headers name the page's one script and one style by their hashes. A browser therefore runs
no script from the names, messages or metrics of a job.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files


class Page:
    """The text of the page and its headers."""

    def __init__(self) -> None:
        self.text = files(__package__).joinpath("page.html").read_text()
        policy = (
            "default-src 'none'",
            f"script-src {_hash(self.text, 'script')}",
            f"style-src {_hash(self.text, 'style')}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
        self.headers: Mapping[str, str] = {
            "Content-Security-Policy": "; ".join(policy),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }


def _hash(page: str, element: str) -> str:
    """Return the hash of the page's one script or style for its content security policy."""
    [content] = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

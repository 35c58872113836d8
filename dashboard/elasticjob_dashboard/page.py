"""The page, which contains no secret, and the HTTP headers that it is served with.

The page is one answer: its markup, styles and scripts are files in `sources`, and are put together
here. The headers name the one style and the one script by their hashes. A browser therefore runs
no script from the names, messages or metrics of a job, and requests nothing from another host.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files

_STYLES = ("uplot/uPlot.min.css", "page.css")
_CHARTS = "uplot/uPlot.iife.min.js"
_SCRIPTS = (
    "elements.js",
    "format.js",
    "charts.js",
    "over_time.js",
    "summary.js",
    "members.js",
    "scaling.js",
    "lists.js",
    "live.js",
)
"""In this order: each uses those before it, and the last one starts the page."""


class Page:
    """The text of the page and its headers.

    Args:
        reads_logs: the server answers `log?pod=NAME`. Otherwise the page shows the command that
            reads a member's log.
    """

    def __init__(self, *, reads_logs: bool = False) -> None:
        style = "".join(map(_source, _STYLES))
        own = "".join(map(_source, _SCRIPTS))
        script = f'{_source(_CHARTS)}(() => {{\n"use strict";\n{own}}})();\n'
        self.text = (
            _source("page.html")
            .replace("<style></style>", f"<style>{style}</style>")
            .replace("<script></script>", f"<script>{script}</script>")
            .replace('data-logs="no"', f'data-logs="{"yes" if reads_logs else "no"}"')
        )
        policy = (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
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


def _source(name: str) -> str:
    return files(__package__).joinpath("sources").joinpath(name).read_text()


def _hash(content: str) -> str:
    """Return the hash of a script or style for the content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

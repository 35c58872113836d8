"""The page, which contains no secret, and the HTTP headers that it is served with.

The page is one answer: its markup, styles and scripts are files in `sources`, and are put together
here. The headers name the one style and the one script by their hashes. A browser therefore runs
no script from the names, messages or metrics of a job, and requests nothing from another host.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

_CHARTS = "uplot/uPlot.iife.min.js"
_SHARED = ("elements.js", "format.js", "stream.js")
"""Scripts of both pages."""


@dataclass(frozen=True)
class _Sources:
    """The files of a page, with scripts in this order: each uses those before it.

    The last one starts the page.
    """

    page: str
    styles: Sequence[str]
    scripts: Sequence[str]
    library: str = ""


_JOB = _Sources(
    "page.html",
    ("uplot/uPlot.min.css", "page.css"),
    (
        *_SHARED,
        "charts.js",
        "over_time.js",
        "summary.js",
        "members.js",
        "compare.js",
        "logs.js",
        "scaling.js",
        "lists.js",
        "live.js",
    ),
    _CHARTS,
)
_OWN = replace(_JOB, scripts=(*_JOB.scripts[:-1], "change.js", "own.js", _JOB.scripts[-1]))
"""The page of a job for a user whose rights the server uses: it offers changes."""
_ALL_JOBS = _Sources("jobs.html", ("page.css", "jobs.css"), (*_SHARED, "change.js", "jobs.js"))


class Page:
    """The text of a page and its headers.

    Args:
        all_jobs: it is the page of all jobs, not that of one.
        reads_logs: the server answers `log?pod=NAME`. Otherwise the page shows the command that
            reads a member's log.
        of_all_jobs: the page is one of many that a server has at `jobs/NAMESPACE/NAME/`: it leads
            back to the list, offers changes, and the browser's tab keeps the token for all of them.
    """

    def __init__(
        self, *, all_jobs: bool = False, reads_logs: bool = False, of_all_jobs: bool = False
    ) -> None:
        sources = _ALL_JOBS if all_jobs else _OWN if of_all_jobs else _JOB
        dialog = _source("change.html") if "change.js" in sources.scripts else ""
        style = "".join(map(_source, sources.styles))
        own = "".join(map(_source, sources.scripts))
        library = _source(sources.library) if sources.library else ""
        script = f'{library}(() => {{\n"use strict";\n{own}}})();\n'
        self.text = (
            _source(sources.page)
            .replace('<main id="ask"></main>', _source("ask.html"))
            .replace("<dialog></dialog>", dialog)
            .replace("<style></style>", f"<style>{style}</style>")
            .replace("<script></script>", f"<script>{script}</script>")
            .replace('data-logs="no"', f'data-logs="{"yes" if reads_logs else "no"}"')
            .replace('data-many="no"', f'data-many="{"yes" if of_all_jobs else "no"}"')
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

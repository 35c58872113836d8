"""Reads the tables of docs/metrics.md, with which the served metrics are compared."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
_ROW = re.compile(
    r"^\| `(elasticjob_\w+)` \| (gauge|counter|summary) \| (.*?) \| .+ \|$", re.MULTILINE
)


def documented(source: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return type and labels by metric, of the chapter "The operator's metrics" or the like."""
    (chapter,) = (
        text for text in PAGE.read_text().split("\n## ") if text.startswith(f"{source} metrics\n")
    )
    return {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in _ROW.findall(chapter)
    }

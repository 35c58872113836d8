"""A hook of MkDocs: pages also link to files of the repository outside docs/, such as examples.

The site contains these files, so that it needs no other server. Its search shows the command line
first, and last the guarantees, whose page has the words of all others.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_REPOSITORY = Path(__file__).parents[1]
_SEARCH_BOOST = {"cli.md": 300.0, "guarantees.md": 0.05}
_LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add each file outside docs/ to which a page links, as text that browsers show."""
    linked = {
        path
        for page in files.documentation_pages()
        for target in _LINK.findall(page.content_string)
        if (path := _outside(page.src_uri, target[0])) is not None
    }
    for path in sorted(linked):
        content = (_REPOSITORY / path).read_text()
        files.append(File.generated(config, _site_path(path), content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let the links to these files lead to their copies; set the rank of the page in a search."""
    source = page.file.src_uri
    if source in _SEARCH_BOOST:
        page.meta["search"] = {"boost": _SEARCH_BOOST[source]}

    def copied(link: re.Match[str]) -> str:
        path = _outside(source, link[1])
        if path is None:
            return link[0]
        return f"]({posixpath.relpath(_site_path(path), posixpath.dirname(source) or '.')})"

    return _LINK.sub(copied, markdown)


def _outside(page: str, target: str) -> str | None:
    """Return the path in the repository of a file outside docs/; None for other targets."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    inside = path.startswith("docs/")
    return None if inside or not (_REPOSITORY / path).is_file() else path


def _site_path(path: str) -> str:
    return f"repository/{path}.txt"

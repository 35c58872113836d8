"""The documentation names files, which must exist, and its first pages stay short.

`make docs` also checks the anchors of links, and that the site's navigation has every page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.documented_commands import PAGES, REPOSITORY

ROOTS = (
    REPOSITORY,
    REPOSITORY / "operator/elasticjob_operator",
    REPOSITORY / "master/elasticjob_master",
)
"""A page may name the files of a core by their path in the package: `core/decide.py`."""
_FOLDERS = sorted({path.name for root in ROOTS for path in root.iterdir() if path.is_dir()})
_QUOTED = re.compile(rf"`((?:{'|'.join(map(re.escape, _FOLDERS))})/[\w./-]*)`")
_LINKED = re.compile(r"\]\((?!\w+:)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    missing = {path for path in _LINKED.findall(text) if not (page.parent / path).exists()}
    missing |= {
        path for path in _QUOTED.findall(text) if not any((root / path).exists() for root in ROOTS)
    }
    assert not missing, f"{page.name} names what is not there"


@pytest.mark.parametrize(("page", "lines"), [("README.md", 90), ("docs/README.md", 30)])
def test_a_page_to_begin_with_is_short(page: str, lines: int) -> None:
    assert len((REPOSITORY / page).read_text().splitlines()) <= lines

"""The documentation names files.

Each must exist, so that a reader who follows a path finds something there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/*.md")]
)
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

"""Tests that docs/migrate/ has a page for each peer that names all fields of its samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import yaml_documents as documents
from elasticjob_cli.convert.converters import CONVERTERS

from tests.support.convert import SAMPLES, sample

PAGES = Path(__file__).parents[4] / "docs" / "migrate"
PAGE_OF = {
    "et_operator": "et-operator",
    "dlrover": "dlrover",
    "framework_controller": "frameworkcontroller",
    "dl_operator": "dl-operator",
    "kubeflow": "kubeflow",
}
_OF_KUBERNETES = (
    "template",
    "pod",
    "resource",
    "resourcesPerNode",
    "env",
    "toAdd",
    "toDelete",
    "selector",
)


def fields(value: Any) -> set[str]:
    """Return the names of all fields, except for those inside of Kubernetes' own."""
    if isinstance(value, list):
        return set().union(*map(fields, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(
        *(fields(inner) for name, inner in value.items() if name not in _OF_KUBERNETES)
    )


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize("name", SAMPLES)
def test_a_page_names_every_field_of_the_samples(name: str) -> None:
    page = (PAGES / f"{PAGE_OF[name.split('/')[0]]}.md").read_text()
    specs = [
        each["spec"] for each in sample(name) if (each["apiVersion"], each["kind"]) in CONVERTERS
    ]
    assert sorted(field for field in fields(specs) if field not in page) == []


def test_the_overview_names_every_kind_and_bound() -> None:
    page = (PAGES / "README.md").read_text()
    values = f"each {documents.MAX_VALUES:,} values in {documents.MAX_DEPTH} levels"
    assert f"{documents.MAX_DOCUMENTS}\ndocuments, and {values}" in page
    assert [pair for pair in CONVERTERS if not all(part in page for part in pair)] == []

"""Tests that every sample of the peers becomes objects that API server and operator accept."""

from __future__ import annotations

import pytest
from elasticjob_cli.convert.converters import CONVERTERS, convert
from elasticjob_cli.convert.rendering import render

from tests.support.convert import OURS, SAMPLES, sample, written


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_becomes_valid_objects(name: str) -> None:
    documents = sample(name)
    for document in documents:
        found = written(document, *documents)
        assert found["apiVersion"] == OURS or found["kind"] == document["kind"]
        assert "replica-type" not in str(found)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_document_always_becomes_the_same_text(name: str) -> None:
    texts = {tuple(render(convert(document, 1)) for document in sample(name)) for _ in range(3)}
    assert len(texts) == 1


def test_every_kind_has_a_sample() -> None:
    kinds = {
        (document["apiVersion"], document["kind"]) for name in SAMPLES for document in sample(name)
    }
    assert set(CONVERTERS) <= kinds

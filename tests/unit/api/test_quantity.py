"""Quantities, as Kubernetes writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from elasticjob_api.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", "0.5"), ("2", "2"), (3, "3"), ("4Gi", str(4 * 2**30)), ("1k", "1000"), (".5", "0.5"), ("1e3", "1000")],
)
def test_quantities_mean_what_kubernetes_means(text: str | int, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "1 Gi", "-1", "1KiB", "x"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)

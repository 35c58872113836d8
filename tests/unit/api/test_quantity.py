"""Quantities, as Kubernetes writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from elasticjob_api.meta import QUANTITY_SCHEMA
from elasticjob_api.quantity import format_memory, parse_quantity, same_quantity
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", "0.5"),
        ("2", "2"),
        (3, "3"),
        ("4Gi", str(4 * 2**30)),
        ("1.5Gi", str(3 * 2**29)),
        ("1k", "1000"),
        ("1.5k", "1500"),
        ("1E", str(10**18)),
        ("100n", "1E-7"),
        (".5", "0.5"),
        ("1e3", "1000"),
    ],
)
def test_quantities_mean_what_kubernetes_means(text: str | int, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "1 Gi", "-1", "1KiB", "12Q", "1.2.3", "Mi", "x"])
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


@given(st.text(alphabet="abcxyz_!", min_size=1, max_size=6))
def test_an_invalid_quantity_is_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity such as 500m"):
        parse_quantity(text)


def test_quantities_are_compared_by_number() -> None:
    assert same_quantity("1500m", "1.5")
    assert not same_quantity("1", None)
    assert format_memory(Decimal(2 * 1024**3)) == "2048Mi"
    assert format_memory(Decimal("1000.4")) == "1001", "no less than it is"


@given(st.from_regex(QUANTITY_SCHEMA["pattern"], fullmatch=True) | st.just("1e999"))
def test_a_quantity_that_the_definitions_accept_is_a_number(text: str) -> None:
    assert parse_quantity(text) >= 0

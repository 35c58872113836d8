"""Prices of resources are read as the administrator gives them, and bounded."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from elasticjob_api.prices import check_currency, parse_prices, price_of


def test_a_pod_costs_what_it_requests_by_the_core_the_gib_and_the_piece() -> None:
    prices = parse_prices("cpu=0.04,memory=0.005,nvidia.com/gpu=2.5")
    requests = {
        "cpu": Decimal("1.5"),
        "memory": Decimal(4 * 1024**3),
        "nvidia.com/gpu": Decimal(2),
        "ephemeral-storage": Decimal(10**12),
    }
    assert price_of(requests, prices) == pytest.approx(1.5 * 0.04 + 4 * 0.005 + 2 * 2.5)
    assert price_of({}, prices) == 0
    assert parse_prices("") == {}


def test_a_request_beyond_all_bounds_has_a_finite_price() -> None:
    assert price_of({"cpu": Decimal("1e999")}, {"cpu": 0.0}) == 0
    assert price_of({"cpu": Decimal("1e999")}, {"cpu": 1e6}) < float("inf")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cpu=-1", "the price of cpu is '-1'; it must be a number from 0 to 1000000"),
        ("cpu=nan", "the price of cpu is 'nan'"),
        ("cpu=inf", "the price of cpu is 'inf'"),
        ("memory=1000001", "the price of memory is '1000001'"),
        ("cpu", "the price of cpu is ''"),
        ("cpu=0.04/h", "the price of cpu is '0.04/h'"),
        ("disk=1", "'disk' is not cpu, memory or an extended resource"),
        ("kubernetes.io/gpu=1", "'kubernetes.io/gpu' is not cpu"),
        ("=1", "'' is not cpu"),
        ("cpu=1,cpu=2", "cpu has two prices; give one"),
        (",".join(f"a.b/{number}=1" for number in range(9)), "9 prices; give at most 8"),
        ("x" * 10_000, "'xxx"),
    ],
)
def test_what_is_no_price_is_refused_with_resource_value_and_bound(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(says)) as refused:
        parse_prices(text)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["123456789", "a\nb", "\u202eEUR"])
def test_a_currency_is_short_and_can_be_printed(text: str) -> None:
    assert check_currency("EUR") == "EUR"
    with pytest.raises(ValueError, match="is not a currency such as EUR, of at most 8 characters"):
        check_currency(text)

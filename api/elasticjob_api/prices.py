"""The administrator's prices of resources, from which the master computes what a job has cost.

Their text is the same as an option of the operator and in the environment of the masters:
`cpu=0.04,memory=0.005,nvidia.com/gpu=2.5`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from elasticjob_api.job_policies import MAX_PRICE
from elasticjob_api.resources import MAX_RESOURCES, name_error

MAX_CURRENCY_CHARACTERS = 8
_UNITS = {"memory": 1024**3}
"""What a price is for, where it is not for 1."""
_MOST_REQUESTED = 2.0**63
"""Kubernetes takes a greater quantity as this one."""
_LONGEST_SHOWN = 40


def parse_prices(text: str) -> dict[str, float]:
    """Return the price of a resource for an hour: of a core, of a GiB, of one extended resource.

    Raises:
        ValueError: the text is not such a list; the message names the resource and the bound.
    """
    prices: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, given = part.partition("=")
        if wrong := name_error(name):
            raise ValueError(wrong)
        if name in prices:
            raise ValueError(f"{name} has two prices; give one")
        try:
            price = float(given)
        except ValueError:
            price = -1.0
        if not 0 <= price <= MAX_PRICE:  # nor NaN
            raise ValueError(
                f"the price of {name} is {given[:_LONGEST_SHOWN]!r}; "
                f"it must be a number from 0 to {MAX_PRICE:.0f}"
            )
        prices[name] = price
    if len(prices) > MAX_RESOURCES:
        raise ValueError(f"{len(prices)} prices; give at most {MAX_RESOURCES}")
    return prices


def check_currency(text: str) -> str:
    """Return a currency. Raises `ValueError` for what is too long or cannot be printed."""
    if len(text) > MAX_CURRENCY_CHARACTERS or not text.isprintable():
        raise ValueError(
            f"{text[:_LONGEST_SHOWN]!r} is not a currency such as EUR, "
            f"of at most {MAX_CURRENCY_CHARACTERS} characters"
        )
    return text


def price_of(requests: Mapping[str, Decimal], prices: Mapping[str, float]) -> float:
    """Return the price of what a pod requests, for an hour."""
    return sum(
        min(float(requests.get(name, 0)), _MOST_REQUESTED) / _UNITS.get(name, 1) * price
        for name, price in prices.items()
    )

"""The operator refuses prices that are none, with value and bound, before it does anything."""

from __future__ import annotations

import pytest
from elasticjob_operator.config import parse


def test_there_are_no_prices_unless_the_administrator_gives_some() -> None:
    assert (parse([]).prices, parse([]).currency) == ("", "")
    found = parse(["--prices=cpu=0.04,nvidia.com/gpu=2.5", "--currency=EUR"])
    assert (found.prices, found.currency) == ("cpu=0.04,nvidia.com/gpu=2.5", "EUR")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--prices=cpu=nan", "--prices: the price of cpu is 'nan'; it must be a number from 0 to"),
        ("--currency=a-long-name", "--currency: 'a-long-name' is not a currency such as EUR"),
    ],
)
def test_a_wrong_price_or_currency_is_refused_with_its_option(
    option: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([option])
    assert says in capsys.readouterr().err

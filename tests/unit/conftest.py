"""Options for the number of random histories that the simulator runs, and for their seed."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--histories",
        type=int,
        default=None,
        help="random histories of the simulator (seeds from 0)",
    )
    parser.addoption(
        "--history-seed", type=int, default=None, help="run only the history of this seed"
    )

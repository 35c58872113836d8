"""How many random histories the simulator runs, and which."""

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

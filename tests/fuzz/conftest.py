"""Chooses the number and the seed of the inputs that the fuzz tests send."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--inputs",
        type=int,
        default=None,
        help="inputs of the fuzz tests together (default: 2000; with --thorough: 12000)",
    )
    parser.addoption("--fuzz-seed", type=int, default=1, help="which inputs")


@pytest.fixture
def inputs(request: pytest.FixtureRequest, thorough: bool) -> int:
    default = 2_000
    if thorough:
        default = 12_000
    return int(request.config.getoption("inputs", None) or default)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("fuzz_seed", 1))

"""Sets up the library's tests."""

import pytest


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process train alone, whatever the environment of the tests says."""
    for name in ("SOCKET", "RANK", "WORLD_SIZE", "ROUND"):
        monkeypatch.delenv(f"ELASTICJOB_{name}", raising=False)

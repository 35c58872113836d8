"""The callbacks refuse a training that each process of a world does alone."""

from __future__ import annotations

import pytest
from elasticjob._process import check_not_alone
from elasticjob_api import names


@pytest.mark.guarantee("one-world")
@pytest.mark.parametrize(
    ("socket", "world", "trains", "refused"),
    [
        ("/run/agent", "3", 1, True),
        ("/run/agent", "3", 3, False),
        ("/run/agent", "1", 1, False),
        (None, "3", 1, False),  # not in a job
    ],
)
def test_a_library_that_trains_alone_in_each_process_of_a_world_is_refused(
    socket: str | None, world: str, trains: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", world)
    monkeypatch.delenv(names.ENV_SOCKET, raising=False)
    if socket:
        monkeypatch.setenv(names.ENV_SOCKET, socket)
    if refused:
        with pytest.raises(RuntimeError, match="each of the 3 processes"):
            check_not_alone(trains)
    else:
        check_not_alone(trains)

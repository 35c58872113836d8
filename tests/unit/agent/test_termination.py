"""The termination message."""

from __future__ import annotations

from pathlib import Path

from elasticjob_agent import termination
from elasticjob_api import names


def test_a_long_termination_message_keeps_its_end(tmp_path: Path) -> None:
    path = tmp_path / "message"
    termination.write({names.ENV_TERMINATION_LOG: str(path)}, "x" * 5000 + "end")
    assert path.read_text() == "x" * (termination.LIMIT - 3) + "end"


def test_a_termination_message_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    termination.write({names.ENV_TERMINATION_LOG: str(tmp_path / "no" / "folder")}, "words")

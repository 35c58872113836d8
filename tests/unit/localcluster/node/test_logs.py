"""Logs return the written output in whole lines with their times."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from elasticjob_localcluster.node import container_logs
from elasticjob_localcluster.node.container_logs import (
    ContainerLog,
    LogOptions,
    last_output,
    read_lines,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def read(path: Path, **options: object) -> bytes:
    return b"".join(read_lines(path, LogOptions(**options)))  # type: ignore[arg-type]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=40) | st.just(b"x" * 20_000) | st.just(b"\n"), max_size=12))
def test_a_log_returns_the_output_byte_for_byte(tmp_path: Path, pieces: list[bytes]) -> None:
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    log = ContainerLog(path)
    for piece in pieces:
        log.write(piece)
    log.close()
    assert read(path) == b"".join(pieces)


def test_a_tail_counts_lines_of_the_container_not_parts_of_long_ones(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "log")
    log.write(b"first\n" + b"y" * 50_000 + b"\nlast\n")
    log.close()
    assert read(log.path, tail=2) == b"y" * 50_000 + b"\nlast\n"
    assert read(log.path, tail=0) == b""
    assert last_output(log.path, size=6) == "\nlast\n"


def test_times_are_shown_on_request_and_select(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "log")
    log.write(b"line\n")
    log.close()
    assert read(log.path, timestamps=True).endswith(b"Z line\n")
    assert read(log.path, since=4e9) == b""
    assert read(log.path, since=0.0) == b"line\n"


def test_a_long_file_is_rotated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_logs, "LIMIT", 1000)
    log = ContainerLog(tmp_path / "log")
    for number in range(200):
        log.write(b"line %d\n" % number)
    log.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 3000
    assert read(log.path, tail=3) == b"line 197\nline 198\nline 199\n"


async def test_a_follower_sees_every_line_once_also_across_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_logs, "LIMIT", 1000)
    log = ContainerLog(tmp_path / "log")
    log.write(b"before\n")
    lines: list[bytes] = []

    async def follow() -> None:
        async for line in log.follow(LogOptions()):
            lines.append(line)

    reader = asyncio.create_task(follow())
    for number in range(100):
        log.write(b"line %d\n" % number)
        if number % 10 == 0:
            await asyncio.sleep(0)
    log.close()
    await asyncio.wait_for(reader, 5)
    assert lines == [b"before\n"] + [b"line %d\n" % number for number in range(100)]

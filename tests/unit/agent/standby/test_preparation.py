"""When a process in standby gives up, because its imports take what the training may need."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob._standby import preparation
from elasticjob_api.meta import Json

FILES: list[object] = []
"""What the imported modules have opened."""


class StoppedError(BaseException):
    """Stands for the end of the process."""


def stop(why: str) -> None:
    raise StoppedError(why)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(sys, "opened_in_standby", FILES, raising=False)
    yield site
    while FILES:
        FILES.pop().close()  # type: ignore[attr-defined]
    for name in ("opening_package", "following_package"):
        sys.modules.pop(name, None)


def imported(*names: str) -> list[preparation.Segment]:
    part: Json = {"changes": ({}, []), "path": None, "modules": list(names)}
    return preparation.recorded([part], dict(os.environ), stop, rests=False)


@pytest.mark.guarantee("standby-takes-only-what-is-left")
def test_it_ends_before_the_next_import_if_one_has_opened_a_gpu(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = site / "nvidia0"
    device.touch()
    monkeypatch.setattr(preparation, "_GPUS", (str(device),))
    opens = f"import sys\nsys.opened_in_standby.append(open({str(device)!r}))\n"
    (site / "opening_package.py").write_text(f"{opens}import following_package\n")
    (site / "following_package.py").write_text("sys.opened_in_standby.append(None)\n")
    with pytest.raises(StoppedError, match=f"importing its modules opens {device}"):
        imported("opening_package")
    assert len(FILES) == 1


@pytest.mark.guarantee("standby-takes-only-what-is-left")
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_it_is_not_used_if_an_import_has_opened_a_port(site: Path, kind: str) -> None:
    stream = "socket.SOCK_STREAM" if kind == "tcp" else "socket.SOCK_DGRAM"
    (site / "opening_package.py").write_text(
        "import socket, sys\n"
        f"own = socket.socket(type={stream})\n"
        "own.bind(('127.0.0.1', 0))\n"
        + ("own.listen()\n" if kind == "tcp" else "")
        + "sys.opened_in_standby.append(own)\n"
    )
    assert preparation.problem([]) == ""
    segments = imported("opening_package")
    assert preparation.problem(segments) == (
        f"importing its modules opens a network socket ({kind})"
    )


def test_a_pair_of_local_sockets_is_no_reason(site: Path) -> None:
    first, second = socket.socketpair()
    with first, second:
        assert preparation.problem([]) == ""

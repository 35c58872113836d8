"""When a process in standby gives up, because its imports take what the training may need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob._standby import preparation
from elasticjob_api.meta import Json

FILES: list[object] = []
"""What the imported modules have opened."""


PROGRAM = """
import os
from elasticjob._standby import preparation

part = {"changes": ({}, []), "path": None, "modules": ["opening_package"]}
segments = preparation.recorded([part], dict(os.environ), print, rests=False)
print(preparation.problem(segments))
"""


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


def problem_after(site: Path, opening: str) -> str:
    """Return why a process that has run this while it imported a module may not be in standby."""
    (site / "opening_package.py").write_text(f"import socket\n{opening}")
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.guarantee("standby-takes-only-what-is-left")
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_it_is_not_used_if_an_import_has_opened_a_port(site: Path, kind: str) -> None:
    opening = "own = socket.socket(type=socket.SOCK_{})\nown.bind(('127.0.0.1', 0))\n"
    opening = opening.format("STREAM" if kind == "tcp" else "DGRAM")
    if kind == "tcp":
        opening += "own.listen()\n"
    assert problem_after(site, opening) == f"importing its modules opens a network socket ({kind})"


def test_a_pair_of_local_sockets_is_no_reason(site: Path) -> None:
    assert problem_after(site, "pair = socket.socketpair()") == ""

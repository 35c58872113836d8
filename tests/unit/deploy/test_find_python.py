"""Checks which Python CI and `make nightly` take for their environments."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs import ran

REPOSITORY = Path(__file__).parents[3]


def found(which: str, path: str) -> str:
    program = REPOSITORY / "tools" / "find_python"
    return ran(program, which, PATH=path, PYENV_ROOT="/nonexistent").stdout.strip()


def test_the_oldest_and_the_newest_python_of_the_machine_are_found(tmp_path: Path) -> None:
    for version in ("3.11.0", "3.99.12", "3.99.2"):
        folder = tmp_path / version
        folder.mkdir()
        python = folder / "python3"
        python.write_text(f"#!/bin/sh\necho {version} {python}\n")
        python.chmod(0o755)
    path = ":".join([*map(str, tmp_path.iterdir()), "/usr/bin", "/bin"])
    assert found("oldest", path) == str(tmp_path / "3.11.0" / "python3")
    assert found("newest", path) == str(tmp_path / "3.99.12" / "python3")

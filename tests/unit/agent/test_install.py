"""Tests that the installed bytecode matches the source, even if outdated bytecode exists."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest
from elasticjob_agent.install import _copy_module


@pytest.mark.parametrize("cached", ["none", "current", "of an older source", "damaged"])
def test_a_module_is_copied_as_the_bytecode_of_its_present_source(
    tmp_path: Path, cached: str
) -> None:
    source = tmp_path / "module.py"
    target = tmp_path / "copy" / "module.py"
    source.write_text("print('old')")
    if cached != "none":
        made = Path(str(py_compile.compile(str(source), doraise=True)))
        if cached == "damaged":
            made.write_bytes(b"x")
    if cached != "current":
        source.write_text("print('new')")
        os.utime(source, (1, 1))
    _copy_module(source, target)
    assert [path.name for path in target.parent.iterdir()] == ["module.pyc"]
    done = subprocess.run(
        [sys.executable, target.with_suffix(".pyc")], capture_output=True, text=True, check=True
    )
    assert done.stdout == ("old\n" if cached == "current" else "new\n")


@pytest.mark.parametrize("name", ["module.pyi", "notes.txt", "not-there.py"])
def test_other_files_and_missing_ones_are_skipped(tmp_path: Path, name: str) -> None:
    if name != "not-there.py":
        (tmp_path / name).write_text("x")
    _copy_module(tmp_path / name, tmp_path / "copy" / name)
    assert not (tmp_path / "copy").exists()

"""Runs pytest with forked workers on small files, and reads its output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(folder: Path, *options: str) -> str:
    """Run the tests of the folder in two workers; return the output."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--workers=2", "-p", "tests.support.forked_workers"),
            *("-p", "no:cacheprovider", "-p", "no:asyncio", "-ra", *options, str(folder)),
        ],
        cwd=REPOSITORY,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_file_runs_in_one_worker_with_its_fixtures_and_files_run_in_two(folder: Path) -> None:
    text = """
import os, pytest
from pathlib import Path

@pytest.fixture(scope="module")
def process():
    yield os.getpid()
    Path(__file__).with_suffix(".ended").touch()

@pytest.mark.parametrize("number", range(3))
def test_one_process(process, number):
    assert process == os.getpid()
    Path(__file__).with_suffix(".begun").touch()
    while not all(Path(__file__).with_name(f"test_{name}.begun").exists() for name in "ab"):
        pass
"""
    for name in "ab":
        (folder / f"test_{name}.py").write_text(text)
    assert "6 passed" in run(folder)
    assert sorted(path.name for path in folder.glob("*.ended")) == ["test_a.ended", "test_b.ended"]


def test_results_and_output_of_workers_are_reported_as_without_them(folder: Path) -> None:
    (folder / "test_a.py").write_text("""
import pytest

def test_bad():
    print("said before")
    assert [1, 2] == [1, 3]

@pytest.mark.skip(reason="not today")
def test_skipped(): pass
""")
    (folder / "test_b.py").write_text("def test_good(): pass")
    output = run(folder)
    assert "1 failed, 1 passed, 1 skipped" in output
    assert "said before" in output
    assert "not today" in output


def test_a_killed_worker_fails_its_test_and_another_one_runs_the_rest(folder: Path) -> None:
    (folder / "test_a.py").write_text("""
import os, signal

def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_later(): pass
""")
    (folder / "test_b.py").write_text("def test_good(): pass")
    output = run(folder)
    assert "1 failed, 2 passed" in output
    assert "its worker ended with exit code -9" in output


def test_no_file_begins_after_a_failure_with_exitfirst(folder: Path) -> None:
    for name in "abcdef":
        (folder / f"test_{name}.py").write_text("def test_bad(): assert False")
    output = run(folder, "-x")
    assert "stopping after" in output
    assert "6 failed" not in output

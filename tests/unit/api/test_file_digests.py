"""Checks that submitted files other than the submitted ones are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_api import file_digests

FILES = {"train.py": b"print(1)\n", "function.pickle": b"\xff"}
DIGESTS = file_digests.encoded(FILES)


def written(folder: Path) -> list[str]:
    """Write the files as a kubelet does, and return the command that runs one."""
    content = folder / "..2026_01_01"
    content.mkdir()
    (folder / "..data").symlink_to(content.name)
    for name, data in FILES.items():
        (content / name).write_bytes(data)
        (folder / name).symlink_to(f"..data/{name}")
    return ["python", "-u", f"{folder}/train.py", "--epochs", "1"]


@pytest.mark.guarantee("submitted-files-are-those-of-their-author")
def test_the_submitted_files_are_accepted(tmp_path: Path) -> None:
    command = written(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    assert file_digests.difference(DIGESTS, command) is None


@pytest.mark.guarantee("submitted-files-are-those-of-their-author")
def test_a_changed_a_missing_and_an_added_file_are_named(tmp_path: Path) -> None:
    command = written(tmp_path)
    added = tmp_path / "random.py"
    added.write_text("the script would import it")
    assert f"{added} was not submitted" in (file_digests.difference(DIGESTS, command) or "")
    added.unlink()
    (tmp_path / "..data" / "train.py").write_text("print(2)")
    changed = file_digests.difference(DIGESTS, command) or ""
    assert f"{tmp_path}/train.py has SHA-256" in changed
    (tmp_path / "function.pickle").unlink()
    assert "function.pickle is missing" in (file_digests.difference(DIGESTS, command) or "")


def test_a_command_without_a_submitted_file_is_refused() -> None:
    refusal = file_digests.difference(DIGESTS, ["python", "/elsewhere/other.py"]) or ""
    assert "names none of the submitted files, function.pickle, train.py" in refusal
    assert "cannot be read" in (file_digests.difference(DIGESTS, ["/no/such/train.py"]) or "")

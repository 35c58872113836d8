"""Saves checkpoints where there is no room for them: on a real file system that is full."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from elasticjob import Checkpointer, checkpointer
from elasticjob._storage_errors import is_of_storage

DISK = 1 << 20
FULL = (
    r"step 7: .* cannot be saved in .*No space left on device.* 10 tries have failed\. Free space"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of a file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "small", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the seconds that were slept instead of sleeping, as a list that grows."""
    slept: list[float] = []
    fake = SimpleNamespace(monotonic=lambda: float(len(slept)), sleep=slept.append)
    monkeypatch.setattr(checkpointer, "time", fake)
    return slept


def model(size: int) -> Callable[[str], object]:
    return lambda folder: Path(folder, "model").write_bytes(bytes(size))


@pytest.mark.guarantee("full-disk")
def test_a_checkpoint_without_room_leaves_none_of_its_files_and_a_later_one_is_saved(
    disk: Path,
) -> None:
    saving = Checkpointer(disk)
    (disk / "checkpoint-0000-0000000000-000000000001-000001").mkdir()  # of a killed process
    (disk / "checkpoint-0000-0000000000-000000000001-000001" / "model").write_bytes(bytes(1000))
    for step in range(2, 5):
        assert not saving.save(step, model(2 * DISK))
        assert list(disk.iterdir()) == []
    saving.step(5, model(DISK // 2), due=True)
    assert Checkpointer(disk).found is not None


@pytest.mark.guarantee("full-disk")
def test_the_end_of_a_training_without_room_is_retried_ever_more_rarely_and_ends_with_the_reason(
    disk: Path, pauses: list[float]
) -> None:
    saving = Checkpointer(disk)
    saving.step(6, model(1000), due=True)
    saves: list[float] = []

    def save(folder: str) -> None:
        saves.append(len(pauses))
        model(2 * DISK)(folder)

    with pytest.raises(OSError, match=FULL):
        saving.finish(7, save)
    waited = [later - earlier for earlier, later in itertools.pairwise(saves)]
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert len(list(disk.iterdir())) == 1, "the checkpoint before remains, and nothing else"


@pytest.mark.guarantee("full-disk")
def test_the_end_is_saved_when_there_is_room_again(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler = disk / "filler"
    filler.write_bytes(bytes(DISK // 2))
    fake = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: filler.unlink(missing_ok=True))
    monkeypatch.setattr(checkpointer, "time", fake)
    Checkpointer(disk).finish(7, model(DISK * 3 // 4))
    assert Checkpointer(disk).found is not None


@pytest.mark.guarantee("full-disk")
def test_all_ranks_end_if_the_storage_of_one_is_full(
    tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_stop = 0
    monkeypatch.setattr(checkpointer, "should_stop", lambda: no_stop)

    def any_rank(mine: bool) -> bool:
        """Say that another rank has failed at each stage, and wants no stop."""
        return mine is not no_stop

    with pytest.raises(OSError, match="another rank could not write"):
        Checkpointer(tmp_path, any_rank=any_rank).finish(7, model(10))
    assert len(pauses) > 200


@pytest.mark.guarantee("full-disk")
def test_without_a_master_the_end_of_a_training_waits(
    tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "may_commit", lambda _: len(pauses) > 3600)
    Checkpointer(tmp_path).finish(7, model(10))
    assert Checkpointer(tmp_path).found is not None


def test_an_error_of_the_program_is_no_error_of_the_storage(
    tmp_path: Path, pauses: list[float]
) -> None:
    def save(_folder: str) -> None:
        raise RuntimeError("the shapes differ")

    with pytest.raises(RuntimeError, match="shapes"):
        Checkpointer(tmp_path).finish(7, save)
    assert pauses == []


@pytest.mark.guarantee("full-disk")
@pytest.mark.parametrize(
    "text",
    [
        "[enforce fail at inline_container.cc:595] . unexpected pos 1088 vs 982",
        "PytorchStreamWriter failed writing file data/0: file write failed",
        "Error while serializing: I/O error: No space left on device (os error 28)",
    ],
)
def test_the_errors_of_libraries_for_a_full_disk_are_as_an_oserror(text: str) -> None:
    assert is_of_storage(RuntimeError(text))
    assert is_of_storage(OSError(text))
    error = ValueError("cannot save")
    error.__cause__ = RuntimeError(text)
    assert is_of_storage(error)

"""A save that a thread ends counts when all of it is written, and holds what it began with."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import elasticjob
import pytest
from elasticjob import Checkpointer, Shard, Shards, checkpointer
from elasticjob.checkpoint_storage import Folder
from elasticjob_api import names

from tests.support.fake_agent import fake_agent
from tests.support.wait import wait_until

pytestmark = pytest.mark.guarantee("incomplete-checkpoint")


class Disk:
    """Lets the rests of saves wait for the test."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.error: Exception | None = None
        self.writing = 0
        self.most = 0

    def write(self, path: Path, text: str) -> None:
        self.writing += 1
        self.most = max(self.most, self.writing)
        try:
            assert self.free.wait(30)
            if self.error is not None:
                raise self.error
            path.write_text(text)
        finally:
            self.writing -= 1


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.free.set()


class Training:
    """A model that is the list of the shards it was trained with."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.disk = disk
        self.checkpointer = Checkpointer(folder, asynchronous=True)
        found = self.checkpointer.found
        self.model: list[int] = json.loads(Path(found, "model").read_text()) if found else []
        self.shards: Shards[Shard] = self.checkpointer.open(
            elasticjob.shards, "data", size=40, shard_size=4
        )

    def train(self, steps: int, *, due: bool = False) -> None:
        for _ in range(steps):
            shard = self.shards.take(10)
            assert shard is not None
            self.model.append(shard.id)
            self.shards.done(shard)
            self.checkpointer.step(len(self.model), self.save, due=due, samples=4)

    def save(self, folder: str) -> Callable[[], None]:
        text = json.dumps(self.model)
        return lambda: self.disk.write(Path(folder, "model"), text)


def stored(folder: Path) -> list[int]:
    return [int(name.split("-")[3]) for name in Folder(folder).complete()]


def test_the_training_goes_on_and_the_checkpoint_holds_the_step_at_which_it_began(
    tmp_path: Path, disk: Disk
) -> None:
    training = Training(tmp_path, disk)
    training.train(2)
    training.train(1, due=True)
    training.train(3)
    assert stored(tmp_path) == [], "it counts only when it is written"
    disk.free.set()
    wait_until("it is written", lambda: stored(tmp_path) == [3])
    following = Training(tmp_path, disk)
    assert following.model == [0, 1, 2]
    following.train(7)
    assert sorted(following.model) == list(range(10))
    assert following.shards.take(10) is None, "every sample is in the model once"


def test_a_save_waits_for_the_one_before(tmp_path: Path, disk: Disk) -> None:
    training = Training(tmp_path, disk)
    training.train(1, due=True)
    saves = threading.Thread(target=training.train, args=(4,), kwargs={"due": True})
    saves.start()
    disk.free.set()
    saves.join(30)
    wait_until("the last one is written", lambda: stored(tmp_path) == [3, 4, 5])
    assert disk.most == 1


def test_the_end_of_the_training_is_stored_when_finish_returns(tmp_path: Path, disk: Disk) -> None:
    training = Training(tmp_path, disk)
    training.train(1, due=True)
    disk.free.set()
    training.checkpointer.finish(1, training.save)
    assert len(stored(tmp_path)) == 2, "the one that had begun, and the end"
    assert Training(tmp_path, disk).model == training.model


def test_a_stop_writes_all_of_its_save_before_it_is_confirmed(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.free.set()
    training = Training(tmp_path, disk)
    training.train(1, due=True)
    confirmed: list[list[int]] = []
    monkeypatch.setattr(checkpointer, "should_stop_together", lambda: True)
    monkeypatch.setattr(checkpointer, "confirm_stop", lambda: confirmed.append(stored(tmp_path)))
    with pytest.raises(SystemExit):
        training.train(1)
    assert confirmed == [[1, 2]]


def test_after_a_full_disk_the_checkpoint_before_counts_and_a_later_one_is_saved(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(tmp_path, disk)
    disk.free.set()
    training.train(1, due=True)
    wait_until("it is written", lambda: stored(tmp_path) == [1])
    disk.error = OSError(28, "No space left on device")
    training.train(1, due=True)
    wait_until("it is removed", lambda: Folder(tmp_path).all() == Folder(tmp_path).complete())
    assert stored(tmp_path) == [1]
    assert "the checkpoint is given up" in caplog.text
    wait_until("the thread has ended", lambda: disk.writing == 0)
    disk.error = None
    training.train(1, due=True)
    wait_until("a later one is written", lambda: stored(tmp_path) == [1, 3])


def test_an_error_of_the_program_in_the_rest_is_raised_by_a_later_step(
    tmp_path: Path, disk: Disk
) -> None:
    training = Training(tmp_path, disk)
    disk.error = KeyError("moments")
    training.train(1, due=True)
    disk.free.set()
    with pytest.raises(KeyError, match="moments"):
        training.train(1, due=True)
    assert stored(tmp_path) == []


def test_a_process_that_may_not_commit_completes_no_checkpoint(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(tmp_path, disk)
    training.train(1, due=True)
    monkeypatch.setattr(checkpointer, "may_commit", lambda timeout: False)
    disk.free.set()
    wait_until("what it wrote is removed", lambda: Folder(tmp_path).all() == [])


def test_save_returns_a_function_or_none(tmp_path: Path) -> None:
    saving = Checkpointer(tmp_path, asynchronous=True)
    saving.step(1, lambda folder: None, due=True)
    wait_until("it is saved", lambda: stored(tmp_path) == [1])
    with pytest.raises(TypeError, match=r"save has returned 7; .* a function that writes the rest"):
        saving.step(2, lambda folder: 7, due=True)


def test_what_save_returns_does_not_count_without_asynchronous(tmp_path: Path) -> None:
    Checkpointer(tmp_path).step(1, lambda folder: 7, due=True)
    assert stored(tmp_path) == [1]


def test_ranks_of_several_roles_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SimpleNamespace(size=2, local_size=1, rank=0, round=1, local_rank=0)
    monkeypatch.setattr(checkpointer, "present_world", lambda: world)
    monkeypatch.setattr(checkpointer, "can_stop_together", lambda: False)
    with pytest.raises(ValueError, match=r"asynchronous=True: the 2 ranks .* several roles"):
        Checkpointer(tmp_path, any_rank=bool, asynchronous=True)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    memory = tmp_path / "memory"
    memory.mkdir()
    for name, value in (
        (names.ENV_STATE_FOLDER, str(memory)),
        (names.ENV_STATE_BYTES, "1000"),
        (names.ENV_ROUND, "1"),
    ):
        monkeypatch.setenv(name, value)
    with fake_agent(tmp_path, monkeypatch):
        yield memory


def in_memory(memory: Path) -> list[int]:
    return [int(path.parent.name.split("-")[3]) for path in memory.glob("*/checkpoint-*/complete")]


def test_a_checkpoint_in_memory_counts_when_all_of_it_is_written(
    memory: Path, tmp_path: Path, disk: Disk
) -> None:
    saving = Checkpointer(tmp_path / "storage", asynchronous=True)
    saving.step(1, lambda folder: lambda: disk.write(Path(folder, "model"), "[1]"), due=True)
    saving.step(2, lambda folder: None)
    assert in_memory(memory) == []
    disk.free.set()
    wait_until("it is complete", lambda: in_memory(memory) == [1])
    wait_until("it is copied to the storage", lambda: stored(tmp_path / "storage") == [1])


def test_without_room_in_memory_later_checkpoints_are_saved_in_the_storage(
    memory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saving = Checkpointer(tmp_path / "storage", asynchronous=True)

    def save(folder: str) -> Callable[[], object]:
        return lambda: Path(folder, "model").write_bytes(bytes(2000))

    for step in range(1, 4):
        saving.step(step, save, due=True)
    wait_until("they are stored", lambda: stored(tmp_path / "storage") == [2, 3])
    assert in_memory(memory) == []
    assert "checkpoints are saved in the storage only" in caplog.text

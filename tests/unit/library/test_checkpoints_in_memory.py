"""`Checkpointer` saves in memory where the job has room for it, and never loses what counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elasticjob import Checkpointer, _saves_in_memory, _state_folder, checkpointer
from elasticjob._saves_in_memory import SavesInMemory
from elasticjob.checkpoint_storage import Folder
from elasticjob_api import names

from tests.support.fake_agent import FakeAgent, fake_agent
from tests.support.wait import wait_until

pytestmark = pytest.mark.guarantee("state-in-memory")


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RANK", "WORLD_SIZE", "ROUND"):
        monkeypatch.delenv(f"ELASTICJOB_{name}", raising=False)
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setenv(names.ENV_STATE_FOLDER, str(memory))
    monkeypatch.setenv(names.ENV_STATE_BYTES, "100000")
    monkeypatch.setenv(names.ENV_ROUND, "1")
    return memory


@pytest.fixture
def agent(memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAgent]:
    with fake_agent(tmp_path, monkeypatch) as running:
        yield running


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no file be copied to the storage until the copy is given up."""
    ended = threading.Event()

    def copy(self: Folder, name: str, file: str, source: Path, stopped: Callable[[], bool]) -> None:
        while not stopped() and not ended.wait(0.01):
            pass
        raise OSError("given up")

    monkeypatch.setattr(Folder, "copy", copy)
    yield
    ended.set()


class Training:
    """A model that is the list of the steps and rounds it was trained in."""

    def __init__(self, folder: Path) -> None:
        self.checkpointer = Checkpointer(folder)
        found = self.checkpointer.found
        self.found = found or ""
        self.model: list[int] = json.loads(Path(found, "model").read_text()) if found else []

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.model.append(len(self.model))
            self.checkpointer.step(len(self.model), self.save, due=True)

    def save(self, folder: str) -> None:
        Path(folder, "model").write_text(json.dumps(self.model))


def _memory(training: Training) -> SavesInMemory:
    memory = training.checkpointer._memory
    assert memory is not None
    return memory


def stored(folder: Path) -> list[int]:
    return [int(name.split("-")[3]) for name in Folder(folder).complete()]


def restart(monkeypatch: pytest.MonkeyPatch, round_: int) -> None:
    monkeypatch.setenv(names.ENV_ROUND, str(round_))


@pytest.mark.usefixtures("agent", "stuck")
def test_a_world_begins_at_the_newest_checkpoint_in_memory_while_the_storage_hangs(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Training(tmp_path / "storage").train(5)
    restart(monkeypatch, 2)
    training = Training(tmp_path / "storage")
    assert training.model == list(range(5))
    assert training.found.startswith(str(memory))
    assert stored(tmp_path / "storage") == []
    assert Training(tmp_path / "another").model == [], "checkpoints belong to one storage folder"


@pytest.mark.usefixtures("agent", "memory")
def test_a_checkpoint_in_memory_is_written_to_the_storage_behind_the_training(
    tmp_path: Path,
) -> None:
    training = Training(tmp_path / "storage")
    training.train(1)
    wait_until("it is written", lambda: stored(tmp_path / "storage") == [1])
    (found,) = (tmp_path / "storage").iterdir()
    assert json.loads((found / "model").read_text()) == [0]
    assert not list(found.glob(".*")), "only whole files remain"


@pytest.mark.usefixtures("agent", "stuck")
def test_at_most_two_complete_checkpoints_remain_besides_the_one_that_is_written(
    memory: Path, tmp_path: Path
) -> None:
    Training(tmp_path / "storage").train(9)
    steps = [int(path.name.split("-")[3]) for path in sorted(memory.glob("*/checkpoint-*"))]
    assert steps == [1, 8, 9]


@pytest.mark.usefixtures("agent", "stuck", "memory")
def test_the_end_of_the_training_is_in_the_storage(tmp_path: Path) -> None:
    training = Training(tmp_path / "storage")
    training.train(2)
    training.model.append(99)
    training.checkpointer.finish(3, training.save)
    assert stored(tmp_path / "storage") == [3]


@pytest.mark.usefixtures("agent", "stuck", "memory")
def test_a_stop_whose_state_no_other_member_can_get_is_in_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(tmp_path / "storage")
    training.train(2)
    monkeypatch.setattr(checkpointer, "should_stop_together", lambda: True)
    monkeypatch.setattr(checkpointer, "confirm_stop", lambda: None)
    with pytest.raises(SystemExit):
        training.train(1)
    assert stored(tmp_path / "storage") == [3]


@pytest.mark.usefixtures("agent", "stuck", "memory")
@pytest.mark.parametrize("leaving", [True, False])
def test_a_stop_is_in_the_storage_if_the_member_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaving: bool
) -> None:
    training = Training(tmp_path / "storage")
    state = _memory(training).state
    state.movable = True
    monkeypatch.setattr(type(state), "leaving", leaving)
    monkeypatch.setattr(checkpointer, "should_stop_together", lambda: True)
    monkeypatch.setattr(checkpointer, "confirm_stop", lambda: None)
    with pytest.raises(SystemExit):
        training.train(1)
    assert stored(tmp_path / "storage") == ([1] if leaving else [])
    restart(monkeypatch, 2)
    assert Training(tmp_path / "storage").model == [0]


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_a_checkpoint_that_does_not_fit_is_saved_in_the_storage(
    memory: Path, tmp_path: Path, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(tmp_path / "storage")

    def save(folder: str) -> None:
        Path(folder, "model").write_bytes(bytes(90_000))
        if folder.startswith(str(memory)):
            raise error("no space is left")
        training.save(folder)

    training.model.append(7)
    training.checkpointer.step(1, save, due=True)
    assert stored(tmp_path / "storage") == [1]
    training.checkpointer.step(2, save, due=True)
    assert [each.getMessage() for each in caplog.records] == [
        "checkpoints are saved in the storage only: no space is left"
    ]
    training.train(1)
    assert list(memory.glob("*/*-000005/complete")), "there is room for the next one"


@pytest.mark.usefixtures("agent")
def test_checkpoints_beyond_the_size_of_the_memory_are_saved_in_the_storage(
    memory: Path, tmp_path: Path
) -> None:
    training = Training(tmp_path / "storage")

    def save(folder: str) -> None:
        training.save(folder)
        Path(folder, "large").write_bytes(bytes(100_001))

    training.checkpointer.step(1, save, due=True)
    assert stored(tmp_path / "storage") == [1]
    assert not list(memory.glob("*/*/0"))


@pytest.mark.usefixtures("agent", "stuck")
def test_a_process_that_may_not_commit_completes_no_checkpoint_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(tmp_path / "storage")
    training.train(1)
    monkeypatch.setattr(_saves_in_memory, "may_commit", lambda timeout: False)
    training.train(1)
    restart(monkeypatch, 2)
    assert Training(tmp_path / "storage").model == [0]


@pytest.mark.usefixtures("agent", "memory")
def test_a_checkpoint_found_in_memory_is_written_to_the_storage_under_a_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of the earlier world may still begin to write under the old name."""
    with monkeypatch.context() as change:
        change.setattr(Folder, "begin", _fails)
        training = Training(tmp_path / "storage")
        training.train(1)
        wait_until("it is given up", lambda: not _memory(training).behind.source)
    assert Folder(tmp_path / "storage").all() == [], "what was begun is removed"
    restart(monkeypatch, 2)
    Training(tmp_path / "storage")
    wait_until("it is written", lambda: stored(tmp_path / "storage") == [1])
    (name,) = Folder(tmp_path / "storage").complete()
    assert name == f"checkpoint-{0:04}-{2:010}-{1:012}-{0:06}"
    assert "elasticjob-data-sets.json" in [
        file.name for file in Path(tmp_path, "storage", name).iterdir()
    ]


@pytest.mark.usefixtures("agent", "stuck")
@pytest.mark.parametrize("damage", ["model", "manifest", "complete"])
def test_a_damaged_checkpoint_in_memory_is_not_found(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    Training(tmp_path / "storage").train(2)
    (newest,) = memory.glob("*/*-000002")
    if damage == "model":
        (newest / "0" / "model").write_text("[")
    elif damage == "manifest":
        (newest / "0.json").unlink()
    else:
        (newest / "complete").unlink()
    restart(monkeypatch, 2)
    assert Training(tmp_path / "storage").model == [0]


@pytest.mark.usefixtures("agent", "stuck", "memory")
def test_rounds_that_begin_again_begin_a_new_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart(monkeypatch, 7)
    Training(tmp_path / "storage").train(3)
    restart(monkeypatch, 1)
    Training(tmp_path / "storage").train(1)
    restart(monkeypatch, 2)
    assert Training(tmp_path / "storage").model == [0, 1, 2, 3]


def _fails(self: Folder, name: str) -> None:
    raise OSError("the storage is away")


def test_a_part_is_whole_although_another_process_removes_files_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = _state_folder._files

    def files(folder: Path) -> Iterator[Path]:
        yield from present(folder)
        if folder == tmp_path:
            yield folder / "was-here-when-it-was-listed"

    monkeypatch.setattr(_state_folder, "_files", files)
    folder = _state_folder.StateFolder(tmp_path, "store", most_bytes=1000)
    name = "checkpoint-0000-0000000001-000000000001-000001"
    folder.begin(name, 0).joinpath("model").write_bytes(b"12")
    folder.finish(name, 0, parts=1)
    assert folder.held()[name].whole == {0}

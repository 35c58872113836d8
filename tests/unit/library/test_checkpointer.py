"""A checkpoint of a model with the account of its data is complete or has no effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import elasticjob
import fsspec  # type: ignore[import-untyped]
import pytest
from elasticjob import Checkpointer, Shard, Shards, checkpointer
from elasticjob.checkpoint_storage import COMPLETE
from elasticjob.key_value import KeyValue


def steps_of(folder: Path) -> list[int]:
    return [int(found.name.split("-")[3]) for found in sorted(folder.iterdir())]


class Training:
    """A model that is the list of the shards it was trained with."""

    def __init__(self, folder: Path, *, any_rank: Callable[[bool], bool] | None = None) -> None:
        self.checkpointer = Checkpointer(folder, any_rank=any_rank, keep=2)
        found = self.checkpointer.found
        self.model: list[int] = json.loads(Path(found, "model").read_text()) if found else []
        self.shards: Shards[Shard] = self.checkpointer.open(
            elasticjob.shards, "data", size=40, shard_size=4
        )

    def train(self, steps: int, *, due: int = 0) -> None:
        for _ in range(steps):
            shard = self.shards.take(10)
            assert shard is not None
            self.model.append(shard.id)
            self.shards.done(shard)
            step = len(self.model)
            self.checkpointer.step(step, self.save, due=step == due, samples=4)

    def save(self, folder: str) -> None:
        Path(folder, "model").write_text(json.dumps(self.model))


@pytest.mark.guarantee("incomplete-checkpoint")
def test_a_training_continues_with_the_model_and_its_unseen_samples(tmp_path: Path) -> None:
    Training(tmp_path).train(
        7, due=4
    )  # and ends without a word, with three shards that no checkpoint contains
    training = Training(tmp_path)
    assert training.model == [0, 1, 2, 3]
    training.train(6)
    assert sorted(training.model) == list(range(10))
    assert training.shards.take(10) is None, "every sample is in the model once"
    training.checkpointer.finish(10, training.save)
    assert Training(tmp_path).model == training.model


@pytest.mark.parametrize(("failure_hours", "saved"), [(1e9, [1, 3, 7]), (1e-12, [*range(1, 11)])])
def test_a_checkpoint_is_saved_as_often_as_it_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure_hours: float, saved: list[int]
) -> None:
    now = 0.0

    def save(folder: str) -> None:
        nonlocal now
        Path(folder, "model").touch()
        now += 1

    # A step and a save take a second each, however busy the machine is.
    monkeypatch.setattr(checkpointer, "time", SimpleNamespace(monotonic=lambda: now))
    saving = Checkpointer(tmp_path, keep=99, failure_hours=failure_hours)
    for step in range(1, 11):
        now += 1
        saving.step(step, save, due=None)
    assert steps_of(tmp_path) == saved


def test_what_writing_to_the_storage_takes_and_the_size_of_a_checkpoint_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def save(folder: str) -> None:
        nonlocal now
        Path(folder, "part").mkdir()
        Path(folder, "part", "model").write_bytes(bytes(1 << 20))
        now += 3

    reported: list[tuple[float, int]] = []
    agent = SimpleNamespace(saved=lambda seconds, size: reported.append((seconds, size)))

    def any_rank(mine: bool) -> bool:
        nonlocal now
        now += 1  # an agreement, which a save in memory needs, too
        return mine

    saving = Checkpointer(tmp_path, any_rank=any_rank)
    monkeypatch.setattr(checkpointer, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(checkpointer, "agent_connection", lambda: agent)
    for step in (1, 2, 3):
        saving.step(step, save, due=step != 2)
    assert [seconds for seconds, _ in reported] == [3, 3]
    assert all(1 << 20 <= size < 2 << 20 for _, size in reported)
    saving.finish(4, save)
    assert len(reported) == 2, "the end of a training waits for the storage in any case"


@pytest.mark.guarantee("incomplete-checkpoint")
def test_an_incomplete_checkpoint_is_not_found_and_is_removed_by_the_next_save(
    tmp_path: Path,
) -> None:
    training = Training(tmp_path)
    training.train(2, due=2)

    def fails(folder: str) -> None:
        training.save(folder)
        raise OSError("the disk is full")

    assert not training.checkpointer.save(3, fails)
    assert Training(tmp_path).model == [0, 1]
    training.train(2, due=4)
    assert steps_of(tmp_path) == [2, 4]


@pytest.mark.guarantee("incomplete-checkpoint")
def test_a_process_that_may_not_commit_completes_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(tmp_path)
    monkeypatch.setattr(checkpointer, "may_commit", lambda timeout: False)
    training.train(1, due=1)
    assert list(tmp_path.glob(f"*/{COMPLETE}")) == []
    assert Training(tmp_path).model == []


@pytest.mark.guarantee("incomplete-checkpoint")
@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_a_checkpoint_that_one_rank_cannot_write_is_saved_by_none(
    tmp_path: Path, fails_at: int
) -> None:
    """The stages: the reports, the account, the files, and what makes it complete.

    The last one alone is rank 0's.
    """
    asked = 0

    def any_rank(mine: bool) -> bool:
        nonlocal asked
        asked += 1
        return mine or asked == fails_at

    training = Training(tmp_path, any_rank=any_rank)
    assert not training.checkpointer.save(1, training.save)
    assert asked == fails_at, "the others stop at the same stage"
    assert bool(list(tmp_path.glob(f"*/{COMPLETE}"))) == (fails_at == 4)


def test_only_the_requested_number_of_checkpoints_is_kept(tmp_path: Path) -> None:
    training = Training(tmp_path)
    for step in range(1, 6):
        training.train(1, due=step)
    assert steps_of(tmp_path) == [4, 5]
    training.model.append(99)
    training.checkpointer.finish(5, training.save)
    assert Training(tmp_path).model[-1] == 99, "of two saves of one step the later one counts"


def test_a_stop_saves_confirms_and_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed: list[bool] = []
    monkeypatch.setattr(checkpointer, "should_stop_together", lambda: True)
    monkeypatch.setattr(checkpointer, "confirm_stop", lambda: confirmed.append(True))
    training = Training(tmp_path)
    with pytest.raises(SystemExit) as ended:
        training.train(1)
    assert (ended.value.code, confirmed) == (0, [True])
    assert Training(tmp_path).model == [0]


@pytest.mark.guarantee("incomplete-checkpoint")
def test_a_late_checkpoint_of_an_earlier_world_is_not_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = {}
    for round_ in (1, 2):
        monkeypatch.setenv("ELASTICJOB_ROUND", str(round_))
        trainings[round_] = Training(tmp_path)
    for round_, step in ((2, 5), (1, 9)):  # the process of round 1 was cut off, and is late
        trainings[round_].model = [round_] * step
        assert trainings[round_].checkpointer.save(step, trainings[round_].save)
    assert Training(tmp_path).model == [2] * 5


def test_a_recreated_job_continues_from_the_newest_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for round_, steps in ((7, 2), (1, 2), (2, 1)):
        monkeypatch.setenv("ELASTICJOB_ROUND", str(round_))
        training = Training(tmp_path)
        training.train(steps)
        assert training.checkpointer.save(len(training.model), training.save)
    assert Training(tmp_path).model == [0, 1, 2, 3, 4]


def test_a_world_of_several_needs_a_way_to_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICJOB_WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="any_rank is None; a world of 3 ranks needs it"):
        Checkpointer(tmp_path)
    monkeypatch.delenv("ELASTICJOB_WORLD_SIZE")
    with pytest.raises(ValueError, match="keep=0 must be a whole number, 1 or more"):
        Checkpointer(tmp_path, keep=0)


def test_checkpoints_may_be_at_a_url_of_fsspec() -> None:
    files = fsspec.filesystem("memory")
    url = "memory://checkpoints/job"

    def save(folder: str) -> None:
        with fsspec.open(f"{folder}/model", "wb") as file:
            file.write(b"the model")

    for step in (1, 2, 3):
        assert Checkpointer(url, keep=2).save(step, save)
    training = Checkpointer(url)
    training.save(4, lambda _folder: None)
    files.rm_file(f"/checkpoints/job/checkpoint-{3:04}-{0:010}-{4:012}-{1:06}/{COMPLETE}")
    found = Checkpointer(url).found
    assert found is not None
    assert found.startswith(f"{url}/checkpoint-{2:04}-{0:010}-{3:012}")
    assert fsspec.open(f"{found}/model").open().read() == b"the model"
    steps = [path.split("-")[3] for path in files.ls("/checkpoints/job", detail=False)]
    assert [int(step) for step in steps] == [2, 3, 4]


def test_a_second_checkpointer_does_not_read_the_answers_to_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "can_stop_together", lambda: True)
    world: Any = SimpleNamespace(rank=0, size=2, local_rank=0, local_size=2, round=11)
    Checkpointer(tmp_path / "first").save(1, lambda folder: None)
    first, second = (Checkpointer(tmp_path / name, world=world) for name in ("first", "second"))
    assert (first.found, second.found) == (str(next(tmp_path.glob("first/*"))), None)
    told = [KeyValue().get(f"elasticjob/checkpoint{use}") for use in ("", "-2")]
    assert [value is not None and b"checkpoint-" in value for value in told] == [True, False]
    assert first._any_rank(True)
    assert not second._any_rank(False)

"""Mistakes of a program are named with their value, at once, and without a job as in one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elasticjob
import pytest


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"step": "5"}, "step='5' must be a number, 0 or more"),
        ({"step": 1, "total": "10"}, "total='10' must be a number, 0 or more"),
        ({"step": 1, "samples": None}, "samples=None must be a number, 0 or more"),
        ({"step": 1, "metrics": 0.5}, "metrics=0.5 must be numbers by name, such as {'loss': 0.5}"),
        ({"step": 1, "metrics": {"loss": None}}, "metrics: 'loss' is None, not a number"),
        ({"step": 1, "metrics": {1: 0.5}}, "a name in metrics=1 must be a text, such as 'train'"),
    ],
)
def test_a_report_that_a_job_would_refuse_is_refused_alone(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        elasticjob.report_step(**fields)


def test_a_checkpointer_may_be_told_that_nothing_fails(tmp_path: Path) -> None:
    assert elasticjob.Checkpointer(tmp_path, failure_hours=math.inf).found is None


def test_what_cannot_save_is_refused_before_a_checkpoint_is_due(tmp_path: Path) -> None:
    checkpointer = elasticjob.Checkpointer(tmp_path)
    path: Any = "model.pt"
    calls: tuple[Callable[[], object], ...] = (
        lambda: checkpointer.step(1, path),
        lambda: checkpointer.finish(1, path),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"save='model\.pt' must be a function that writes"):
            call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "3"}, "keep='3' must be a whole number, 1 or more"),
        ({"failure_hours": "6"}, "failure_hours='6' must be a number, 0 or more"),
        ({"any_rank": True}, "any_rank=True must be a function that returns whether its"),
    ],
)
def test_a_wrong_option_of_a_checkpointer_is_named(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        elasticjob.Checkpointer(tmp_path, **options)


@pytest.mark.parametrize(
    ("arguments", "fields", "message"),
    [
        (("a",), {"size": "100", "shard_size": 10}, "size='100' must be a whole number, 1 or m"),
        (("a",), {"size": 100, "shard_size": 1.5}, "shard_size=1.5 must be a whole number, 1 or"),
        (([1, 2],), {"size": 2, "shard_size": 1}, "name=.*1, 2.* must be a text, such as 'train'"),
    ],
)
def test_wrong_numbers_of_a_data_set_are_named(
    arguments: tuple[Any, ...], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        elasticjob.shards(*arguments, **fields)


def test_one_path_in_place_of_a_list_of_paths_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"paths='.*': there must be files, in a list"):
        elasticjob.text_shards("texts", str(tmp_path / "a.txt"), lines_per_shard=1)


def test_a_data_set_is_opened_by_an_opener(tmp_path: Path) -> None:
    name: Any = "train"
    with pytest.raises(ValueError, match="opener='train' must be a function that opens a data"):
        elasticjob.Checkpointer(tmp_path).open(name, "train")


def test_a_value_that_is_not_bytes_is_refused_by_name() -> None:
    number: Any = 5
    with pytest.raises(ValueError, match="value=5 must be bytes, such as b'1'"):
        elasticjob.KeyValue().set("port", number)

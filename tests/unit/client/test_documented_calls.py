"""The calls in docs/python.md exist, with these arguments."""

from __future__ import annotations

import ast
import re
from inspect import isawaitable
from pathlib import Path
from unittest.mock import create_autospec

import elasticjob.client
import pytest
from elasticjob_api.elasticjob import Progress
from elasticjob_client.aio import AsyncClient
from elasticjob_client.aio_job import AsyncJob
from elasticjob_client.client import Client, Job
from elasticjob_client.logs import LogLine
from elasticjob_client.scaling import parse_size
from elasticjob_client.waiting import parse_milestone

PAGE = (Path(__file__).parents[3] / "docs/python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


async def test_every_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    job = create_autospec(Job, instance=True)
    job.logs.return_value = [LogLine("a-worker-0", "worker", 0, 0, "line")]
    job.progress = Progress(step=1)
    client = create_autospec(Client)
    client.return_value.train.return_value = job
    unblocked = create_autospec(AsyncClient)
    unblocked.return_value.__aenter__.return_value = unblocked.return_value
    unblocked.return_value.train.return_value = create_autospec(AsyncJob, instance=True)
    monkeypatch.setattr(elasticjob.client, "Client", client)
    assert len(BLOCKS) == 3
    names = {"AsyncClient": unblocked}
    for block in BLOCKS:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        result = eval(compile(block, "docs/python.md", "exec", flags=flags), names)
        if isawaitable(result):
            await result
    assert client.return_value.train.call_count == 2
    job.delete.assert_called_once_with()
    assert unblocked.return_value.train.await_count == 1


def test_every_milestone_and_size_that_a_comment_names_is_one() -> None:
    [wait] = re.findall(r"^job\.wait\(.*timeout=", PAGE, re.MULTILINE)
    [scale] = re.findall(r"^job\.scale\(.*wait=", PAGE, re.MULTILINE)
    milestones = re.findall('"(.*?)"', wait)
    assert len(milestones) == 4
    for each in milestones:
        parse_milestone(each)
    for each in re.findall('"(.*?)"', scale):
        parse_size(each, role="worker")

"""Mistakes of a Python program get an error that names the argument, its value and a remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from elasticjob_client.aio import AsyncClient
from elasticjob_client.errors import NoSuchObject, WrongArgument

from tests.support.played_api import PlayedApi, listed, played_job

JOB = played_job(name="resnet-2")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """A client of an API server with the job resnet-2."""
    api = PlayedApi({"GET elasticjobs/resnet-2": JOB, "GET elasticjobs": listed(JOB)})
    async with (
        api.cluster(tmp_path),
        AsyncClient(namespace="ns", kubeconfig=tmp_path / "kubeconfig") as opened,
    ):
        yield opened


async def test_a_job_that_does_not_exist_gets_the_suggestion_of_the_command_line(
    client: AsyncClient,
) -> None:
    assert (await client.get("resnet-2")).name == "resnet-2"
    with pytest.raises(NoSuchObject, match=r"; did you mean resnet-2\?$"):
        await client.get("resnt-2")
    with pytest.raises(NoSuchObject, match=r"; did you mean resnet-2\?$"):
        await client.get("resnet")  # a program gets no other job than the one that it names
    with pytest.raises(NoSuchObject, match=r"lists what there is$"):
        await client.get("bert")


@pytest.mark.parametrize(
    ("call", "arguments", "options", "message"),
    [
        ("get", (None,), {}, "name: None is not a text; give one such as 'train-1'"),
        ("list", (), {"phase": 1}, "phase: 1 is not a text; give one such as 'running'"),
        ("submit", ({"kind": "ElasticJob"},), {}, "file: {'kind': 'ElasticJob'} is not a path; "),
        ("submit", ("t.py",), {}, "t.py is a Python script, not a job file; `train` creates its"),
        ("train", (), {"worker": 2}, "worker: there is no such argument; did you mean workers?"),
        ("train", (), {"workers": 2}, "what: None is neither a script nor a function; give a"),
        ("train", (["python", "t.py"],), {}, "what: ['python', 't.py'] is neither a script nor"),
        ("train", ("t.py", {"image": "i"}), {}, "template: {'image': 'i'} is not a JobTemplate; "),
        ("train", ("t.py",), {"name": 5}, "name: 5 is not a text; give one such as 'train-1'"),
        (
            "train",
            ("t.py",),
            {"framework": "torch"},
            "framework: 'torch' is unknown; give horovod, ",
        ),
        ("wait", (5,), {}, "until: 5 is not a text; give one such as 'running'"),
        ("wait", (), {"timeout": "5"}, "timeout: '5' is not a number of seconds; give one such"),
        ("scale", (2,), {"timeout": "5"}, "timeout: '5' is not a number of seconds; give one suc"),
    ],
)
async def test_a_wrong_argument_of_the_client_or_a_job_is_named_with_a_remedy(
    client: AsyncClient,
    call: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    message: str,
) -> None:
    called = client if hasattr(client, call) else await client.get("resnet-2")
    with pytest.raises(WrongArgument) as found:
        await getattr(called, call)(*arguments, **options)
    assert str(found.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 0}, r"ranks: 0 is not a sequence; give one such as \[0\]"),
        ({"ranks": "0"}, r"ranks: '0' is not a sequence; give one such as \[0\]"),
        ({"ranks": [-1]}, "ranks: -1 is not a whole number from 0 to "),
        ({"tail": "5"}, "tail: '5' is not a whole number from 0 to "),
    ],
)
async def test_wrong_choices_of_logs_are_named_with_a_remedy(
    client: AsyncClient, options: dict[str, Any], message: str
) -> None:
    job = await client.get("resnet-2")
    with pytest.raises(WrongArgument, match=message):
        async for _ in job.logs(**options):
            pass


async def test_a_wrong_port_is_named_with_its_bound(client: AsyncClient) -> None:
    job = await client.get("resnet-2")
    with pytest.raises(WrongArgument, match="port: 99999 is not a whole number from 0 to 65535"):
        async with job.dashboard(port=99_999):
            pass


def test_a_namespace_that_is_no_text_is_refused_before_the_first_request() -> None:
    wrong: Any = 5
    with pytest.raises(WrongArgument, match="namespace: 5 is not a text"):
        AsyncClient(namespace=wrong)

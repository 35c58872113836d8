"""What the commands that change a job say about it, and when nothing is to be changed."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.answers import pack
from elasticjob_api.v1 import job_pb2
from elasticjob_cli.main import command_line
from typer.testing import CliRunner

from tests.support.played_api import PlayedApi


@pytest.mark.parametrize(
    ("phase", "suspend", "arguments", "said"),
    [
        ("Suspended", True, ["suspend"], "is suspended already"),
        ("Suspended", True, ["suspend", "--wait"], "is suspended already"),
        ("Running", True, ["suspend"], "will be suspended"),
        ("Running", False, ["suspend"], "will be suspended"),
        ("Running", False, ["resume"], "is not suspended"),
        ("Running", False, ["resume", "--wait"], "is not suspended"),
        ("Starting", False, ["resume"], "is not suspended"),
        ("Suspended", False, ["resume"], "will be resumed"),
        ("Suspended", True, ["resume"], "will be resumed"),
        ("Running", False, ["stop"], "will be stopped"),
    ],
)
async def test_a_change_that_changes_nothing_is_reported_as_such(
    tmp_path: Path, phase: str, suspend: bool, arguments: list[str], said: str
) -> None:
    job = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "framework": "custom",
            "replicaSpecs": {"worker": {"template": {}}},
            "runPolicy": {"suspend": suspend},
        },
        "status": {"phase": phase},
    }
    command, *options = arguments
    called = [command, "a", *options, f"--kubeconfig={tmp_path / 'kubeconfig'}", "-n", "ns"]
    api = PlayedApi({"GET elasticjobs/a": job, "PATCH elasticjobs/a": job})
    async with api.cluster(tmp_path):
        answer = await asyncio.to_thread(CliRunner().invoke, command_line([command]), called)
    assert answer.output == f"job a {said}\n"
    assert answer.exit_code == 0


async def answer_of(api: PlayedApi, tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of a command."""
    called = [*arguments, f"--kubeconfig={tmp_path / 'kubeconfig'}", "-n", "ns"]
    async with api.cluster(tmp_path):
        done = await asyncio.to_thread(CliRunner().invoke, command_line(arguments[:1]), called)
    return done.exit_code, done.output


async def test_a_size_that_the_job_has_makes_no_plan(tmp_path: Path) -> None:
    job = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
        "status": {
            "phase": "Running",
            "replicaStatuses": {"worker": {"desired": 2, "indices": "0-1"}},
        },
    }
    lists: dict[str, Any] = {
        f"GET {kind}": {"items": []} for kind in ("scaleins", "scaleouts", "scaleplans")
    }
    api = PlayedApi({"GET elasticjobs/a": job} | lists)
    said = "job a has 2 workers already; nothing is requested\n"
    assert await answer_of(api, tmp_path, "scale", "a", "2", "--wait") == (0, said)
    assert not [each for each in api.requests if not each.startswith("GET")]


@pytest.mark.parametrize(
    ("arguments", "code", "said", "replicas"),
    [
        (("4", "--wait"), 0, "job a is suspended; it resumes with 4 workers", 4),
        (("+1",), 0, "job a is suspended; it resumes with 3 workers", 3),
        (("-2",), 1, "would be below minReplicas 1; nothing is changed", None),
        (("--remove=a-worker-0",), 1, "the job is suspended; nothing is changed", None),
        (("4", "--role=ps"), 1, "ps is not a role of the job; it has worker", None),
    ],
)
async def test_a_suspended_job_gets_the_size_with_which_it_resumes(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str, replicas: int | None
) -> None:
    worker = {"replicas": 2, "minReplicas": 1, "template": {}}
    job = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {
            "framework": "custom",
            "replicaSpecs": {"worker": worker},
            "runPolicy": {"suspend": True},
        },
        "status": {"phase": "Suspended", "replicaStatuses": {"worker": {"desired": 2}}},
    }
    api = PlayedApi({"GET elasticjobs/a": job, "PATCH elasticjobs/a": job})
    found = await answer_of(api, tmp_path, "scale", "a", *arguments)
    assert (found[0], said in found[1]) == (code, True), found
    asked = [{"spec": {"replicaSpecs": {"worker": {"replicas": replicas}}}}] if replicas else []
    assert [json.loads(body) for body in api.bodies] == asked


async def test_a_name_that_does_not_exist_gets_a_suggestion(tmp_path: Path) -> None:
    found = [{"metadata": {"name": name, "namespace": "ns"}} for name in ("resnet-2", "bert")]
    api = PlayedApi({"GET elasticjobs": {"items": found}})
    code, said = await answer_of(api, tmp_path, "describe", "resnt-2")
    assert code == 1
    assert said.endswith("; did you mean resnet-2?\n")
    for name in ("resnt-2", "resnet"):  # `stop` takes whole names only
        _, said = await answer_of(api, tmp_path, "stop", name)
        assert said.endswith("; did you mean resnet-2?\n")
    _, said = await answer_of(api, tmp_path, "describe", "train")
    assert "did you mean" not in said


async def test_top_of_an_ended_job_shows_the_last_answers_of_its_master(tmp_path: Path) -> None:
    stored = job_pb2.StoredAnswers(job_uid="u", time=1)
    stored.status.namespace = "ns"
    stored.status.job_name = "a"
    stored.status.phase = job_pb2.JOB_PHASE_WAITING
    stored.status.progress.step = 42
    job = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
        "status": {"phase": "Succeeded"},
    }
    packed = base64.b64encode(pack(stored)).decode()
    api = PlayedApi(
        {
            "GET elasticjobs/a": job,
            "GET configmaps/a-query": {"binaryData": {names.REPORT_KEY: packed}},
        }
    )
    code, said = await answer_of(api, tmp_path, "top", "a")
    assert code == 0, said
    assert said.startswith("ns/a  Succeeded\nstep 42\n")
    assert "has ended, as Succeeded; this is as of 1970-01-01T00:00:01Z" in " ".join(said.split())

"""What the commands that change a job say about it, and when nothing is to be changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from elasticjob_api.v1 import job_pb2

from tests.support.played_api import NO_REQUESTS, PlayedApi, of_job, played_job


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
    api = PlayedApi(of_job(played_job(phase, spec={"runPolicy": {"suspend": suspend}})))
    assert await api.command(tmp_path, *arguments, "a") == (0, f"job a {said}\n", "")


async def test_a_size_that_the_job_has_makes_no_plan(tmp_path: Path) -> None:
    job = played_job(replicaStatuses={"worker": {"desired": 2, "indices": "0-1"}})
    api = PlayedApi(of_job(job) | NO_REQUESTS)
    said = "job a has 2 workers already; nothing is requested\n"
    assert await api.command(tmp_path, "scale", "a", "2", "--wait") == (0, said, "")
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
    roles = {"worker": {"replicas": 2, "minReplicas": 1, "template": {}}}
    spec = {"replicaSpecs": roles, "runPolicy": {"suspend": True}}
    job = played_job("Suspended", spec=spec, replicaStatuses={"worker": {"desired": 2}})
    api = PlayedApi(of_job(job))
    found = await api.command(tmp_path, "scale", "a", *arguments)
    assert (found[0], said in found[1] + found[2]) == (code, True), found
    asked = [{"spec": {"replicaSpecs": {"worker": {"replicas": replicas}}}}] if replicas else []
    assert [json.loads(body) for body in api.bodies] == asked


async def test_a_name_that_does_not_exist_gets_a_suggestion(tmp_path: Path) -> None:
    found = [{"metadata": {"name": name, "namespace": "ns"}} for name in ("resnet-2", "bert")]
    api = PlayedApi({"GET elasticjobs": {"items": found}})
    code, _, said = await api.command(tmp_path, "describe", "resnt-2")
    assert code == 1
    assert said.endswith("; did you mean resnet-2?\n")
    for name in ("resnt-2", "resnet"):  # `stop` takes whole names only
        _, _, said = await api.command(tmp_path, "stop", name)
        assert said.endswith("; did you mean resnet-2?\n")
    _, _, said = await api.command(tmp_path, "describe", "train")
    assert "did you mean" not in said


async def test_top_of_an_ended_job_shows_the_last_answers_of_its_master(tmp_path: Path) -> None:
    stored = job_pb2.StoredAnswers(job_uid="u", time=1)
    stored.status.namespace = "ns"
    stored.status.job_name = "a"
    stored.status.phase = job_pb2.JOB_PHASE_WAITING
    stored.status.progress.step = 42
    api = PlayedApi(of_job(played_job("Succeeded"), stored))
    code, shown, note = await api.command(tmp_path, "top", "a")
    assert code == 0, note
    assert shown.startswith("ns/a  Succeeded\nstep 42\n")
    said = " ".join((shown + note).split())
    assert "has ended, as Succeeded; this is as of 1970-01-01T00:00:01Z" in said

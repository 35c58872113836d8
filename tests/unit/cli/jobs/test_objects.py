"""`list`, `describe`, `events` and `delete` on an API server with fixed answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import elasticjob
from tests.support.played_api import NO_REQUESTS, PlayedApi, listed, played_job

JOB = played_job()
JOB["metadata"]["managedFields"] = [{"manager": "kubectl"}]
EVENT = {
    "metadata": {"name": "a.1", "namespace": "ns", "managedFields": []},
    "reason": "JobCreated",
    "note": "pods follow",
    "eventTime": "2026-01-01T00:00:01Z",
    "regarding": {"kind": "ElasticJob", "name": "a", "uid": "u"},
}
OTHER_EVENT = {**EVENT, "regarding": {"kind": "ElasticJob", "name": "b", "uid": "of b"}}
ANSWERS = {
    "GET elasticjobs": listed(JOB),
    "GET elasticjobs/a": JOB,
    "GET pods": listed(),
    "GET scaleplans": listed(),
    "GET events": listed(OTHER_EVENT, EVENT),
    "DELETE elasticjobs/a": {},
    "DELETE elasticjobs/c": {},
}


def kinds(out: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return kind and name of the objects in a List, none of which has managed fields."""
    assert out["kind"] == "List"
    assert not [each for each in out["items"] if "managedFields" in each["metadata"]]
    return [(each["kind"], each["metadata"]["name"]) for each in out["items"]]


async def test_jobs_are_listed_by_their_labels_and_without_managed_fields(tmp_path: Path) -> None:
    api = PlayedApi(ANSWERS)
    code, out, _ = await api.command(tmp_path, "list", "-l", "team=a", "-o", "json")
    assert (code, kinds(json.loads(out))) == (0, [("ElasticJob", "a")])
    assert api.queries[-1] in ("labelSelector=team=a", "labelSelector=team%3Da")


async def test_events_are_printed_as_objects(tmp_path: Path) -> None:
    _, out, _ = await PlayedApi(ANSWERS).command(tmp_path, "events", "a", "-o", "yaml")
    found = yaml.safe_load(out)
    assert kinds(found) == [("Event", "a.1")]
    assert found["items"][0]["note"] == "pods follow"
    _, table, _ = await PlayedApi(ANSWERS).command(tmp_path, "events", "a")
    assert "JobCreated" in table


async def test_a_description_is_printed_as_the_objects_that_it_is_about(tmp_path: Path) -> None:
    code, out, errors = await PlayedApi(ANSWERS).command(tmp_path, "describe", "a", "-o", "json")
    assert (code, errors) == (0, "")
    assert kinds(json.loads(out)) == [("ElasticJob", "a"), ("Event", "a.1")]


async def test_several_jobs_are_deleted_and_a_missing_one_does_not_stop_that(
    tmp_path: Path,
) -> None:
    api = PlayedApi(ANSWERS)
    code, out, errors = await api.command(tmp_path, "delete", "a", "b", "c")
    assert (code, out) == (1, "job a is deleted\njob c is deleted\n")
    assert errors.startswith("error: ElasticJob ns/b: ")


async def test_runs_on_this_machine_are_printed_for_programs(tmp_path: Path) -> None:
    code, out, _ = await PlayedApi({}).command(tmp_path, "list", "--local", "-o", "json")
    assert code == 0
    assert isinstance(json.loads(out), list)


async def test_the_restart_limit_of_submit_is_that_of_the_workers_of_a_script_only(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text("print()\n")
    (tmp_path / "train.yaml").write_text("kind: ElasticJob\n")
    options = ("--restart-limit=0", "--dry-run=client", "-o", "yaml")
    _, out, _ = await elasticjob("submit", "train.py", "--image=i", *options, folder=tmp_path)
    job = next(yaml.safe_load_all(out))
    assert job["spec"]["replicaSpecs"]["worker"]["restartLimit"] == 0
    code, _, errors = await elasticjob("submit", "train.yaml", *options, folder=tmp_path)
    assert (code, errors.split(":")[1].strip()) == (2, "--restart-limit")


@pytest.mark.parametrize("command", ["plans", "events"])
async def test_a_command_reads_its_job_once(tmp_path: Path, command: str) -> None:
    api = PlayedApi(ANSWERS | NO_REQUESTS)
    code, _, problems = await api.command(tmp_path, command, "a")
    assert code == 0, problems
    assert api.requests.count("GET elasticjobs/a") == 1

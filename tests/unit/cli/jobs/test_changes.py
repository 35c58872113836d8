"""What `elasticjob suspend` and `resume` say about a job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
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

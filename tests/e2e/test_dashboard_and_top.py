"""Shows a job in the browser and in the terminal, both without asking the user for a token."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_client.answers import Master
from elasticjob_client.cluster import Cluster
from elasticjob_client.jobs import get_job
from elasticjob_client.master import find_master, forward_to_master

from tests.support.e2e.command_line_user import CommandLineUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job
from tests.support.wait import wait_until


@pytest.fixture
def user(sandbox: Sandbox) -> CommandLineUser:
    return CommandLineUser(sandbox)


def read(url: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text of an answer."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


@pytest.fixture
def steps(sandbox: Sandbox, user: CommandLineUser, folder: Path) -> None:
    """Run a job `digits` that counts steps."""
    sandbox.apply(job("digits", folder))
    # A kubelet may report a container as running after its training has reported a step.
    for what in ("step=1", "running"):
        user.out("wait", "digits", f"--for={what}", "--timeout=60")


@pytest.mark.guarantee("local-dashboard")
@pytest.mark.thorough
def test_the_dashboard_needs_no_token_and_continues_with_the_next_master(
    sandbox: Sandbox, user: CommandLineUser, steps: None
) -> None:
    with user.dashboard("digits") as url:
        assert url.startswith("http://127.0.0.1:")
        code, headers, page = read(url)
        assert (code, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "script-src 'sha256-" in headers["Content-Security-Policy"]
        assert 'fetch("status"' in page

        def status() -> dict[str, Any]:
            code, _, text = read(f"{url}status")
            return dict(json.loads(text)) if code == 200 else {}

        assert (status()["job"], status()["masterStarts"]) == ("digits", 1)
        assert read(url, Host="evil.example")[0] == 403
        assert read(f"{url}metrics")[0] == 404
        sandbox.kubectl("delete", "pod", "digits-master", "--wait=true")
        wait_until("the next master", status, lambda found: found.get("masterStarts") == 2)


@pytest.mark.guarantee("logs-follow-ranks")
async def test_a_master_is_reached_through_its_pod(sandbox: Sandbox, steps: None) -> None:
    cluster = Cluster(sandbox.kube, sandbox.namespace)
    job = await get_job(cluster, "digits")
    async with forward_to_master(cluster, job, names.GRPC_PORT) as forwarding:
        endpoint = await find_master(cluster, job, address=forwarding.address)
        async with endpoint.channel() as channel:
            found = await Master(endpoint, channel, "digits").snapshot()
    assert (found.status.job_name, [member.pod_name for member in found.members.members]) == (
        "digits",
        ["digits-worker-0"],
    )


def test_top_prints_one_job_and_all_jobs_once_without_a_terminal(
    sandbox: Sandbox, user: CommandLineUser, steps: None
) -> None:
    one = user.run("top", "digits")
    assert (one.returncode, one.stderr) == (0, "")
    assert one.stdout.startswith(f"{sandbox.namespace}/digits  Training, world of 1\n")
    assert one.stdout.splitlines()[-1].split()[:3] == ["0", "worker-0", "Training"]
    every = user.run("top", "--once")
    assert every.stdout.splitlines()[1].split()[:2] == ["digits", "Running"]
    none = user.run("top", "nobody")
    assert none.returncode == 1
    assert none.stderr.count("\n") == 1

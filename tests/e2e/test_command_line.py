"""Runs a job with `elasticjob` alone, and checks the commands' error messages."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.e2e import counting_training
from tests.support.e2e.command_line_user import CommandLineUser
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job


@pytest.fixture
def user(sandbox: Sandbox) -> CommandLineUser:
    return CommandLineUser(sandbox)


def out(user: CommandLineUser, command: str, *arguments: str) -> str:
    """Run a command that succeeds without a warning; return its output."""
    ran = user.run(command, *arguments)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.thorough
def test_the_command_line_watches_scales_suspends_resumes_and_stops_a_job(
    sandbox: Sandbox, user: CommandLineUser, folder: Path
) -> None:
    kubectl = KubectlUser(sandbox, "digits", folder)
    listed = user.run("list")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert listed.stderr == "no jobs; -A lists those of all namespaces\n"
    sandbox.apply(job("digits", folder))
    assert ", step " in out(user, "wait", "digits", "--for=step=1", "--timeout=60")
    reached = out(user, "wait", "digits", "--for=running", "--timeout=60")
    assert reached.startswith("job digits is Running")
    titles = "NAME PHASE WORKERS STEP RATE ETA RESTARTS AGE"
    assert " ".join(out(user, "list").split()[:8]) == titles
    names = out(user, "list", "--phase=running", "-o", "name")
    assert names == "elasticjobs.elasticjob.dev/digits\n"
    assert json.loads(out(user, "list", "-o", "json"))["items"][0]["metadata"]["name"] == "digits"

    assert out(user, "scale", "digits", "3", "--wait").startswith("ScalePlan digits-")
    assert len(kubectl.pods()) == 3
    out(user, "scale", "digits", "-1", "--wait")
    out(user, "scale", "digits", "+1", "--wait")
    chosen = min(kubectl.pods())
    out(user, "scale", "digits", "--remove", chosen, "--wait")
    assert chosen not in kubectl.pods()
    assert len(kubectl.pods()) == 2
    plans = out(user, "plans", "digits").splitlines()[1:]
    assert [" ".join(line.split()[1:7]) for line in plans] == [
        "Manual worker 1 to 3 Succeeded",
        "ScaleIn worker 3 to 2 Succeeded",
        "ScaleOut worker 2 to 3 Succeeded",
        "ScaleIn worker 3 to 2 Succeeded",
    ]
    kubectl.until(
        "an event of the last plan", lambda: "ScalingSucceeded" in out(user, "events", "digits")
    )
    page = out(user, "describe", "digits")
    texts = (f"{sandbox.namespace}/digits", "Running", "1 to 6", "ScalingSucceeded")
    assert [text for text in (*texts, *kubectl.pods()) if text not in page] == []

    too_many = user.run("scale", "digits", "+90", "--wait")
    assert (too_many.returncode, too_many.stdout) == (1, "")
    assert "92" in too_many.stderr
    assert "maxReplicas 6" in too_many.stderr

    out(user, "suspend", "digits", "--wait", "--timeout=60")
    assert kubectl.pods() == {}
    out(user, "resume", "digits", "--wait", "--timeout=60")
    out(user, "stop", "digits", "--wait", "--timeout=60")
    assert user.run("wait", "digits").returncode == 3, (
        "a job that was stopped does not succeed any more"
    )
    assert (
        user.run("suspend", "digits").stderr
        == f"error: job {sandbox.namespace}/digits has ended, as Stopped\n"
    )
    kubectl.until("an event of the stop", lambda: "Stopped" in out(user, "events", "digits"))
    out(user, "delete", "digits")
    assert user.run("describe", "digits").returncode == 1


@pytest.mark.guarantee("answers-after-the-end")
@pytest.mark.thorough
def test_a_job_that_has_ended_still_answers_queries(
    sandbox: Sandbox, user: CommandLineUser, folder: Path
) -> None:
    source = Path(counting_training.__file__).read_text()
    sandbox.apply(job("digits", folder, command=["python", "-c", source, "60"]))
    out(user, "wait", "digits", "--for=succeeded", "--timeout=100")

    def answers() -> subprocess.CompletedProcess[str] | None:
        ran = user.run("query", "digits", "report")
        return ran if ran.returncode == 0 and "60/60" in ran.stdout else None

    report = KubectlUser(sandbox, "digits", folder).until(
        "the answers of the master's end", answers
    )
    assert report.stderr.startswith(f"job {sandbox.namespace}/digits has ended, as Succeeded")
    assert re.search(r"Goodput +[1-9][0-9]? % of [0-9]+s was training", report.stdout)
    history = user.run("history", "digits").stdout
    assert "WorldFormed" in history
    assert "loss 0.0" in history
    assert "digits-worker-0" in user.run("query", "digits", "members").stdout
    assert user.run("query", "digits", "plans").returncode == 0
    assert "Goodput" in out(user, "describe", "digits")

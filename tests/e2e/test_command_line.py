"""Runs a job with `elasticjob` alone, and checks the commands' error messages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.e2e import counting_training
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job

COMMAND = Path(sys.executable).with_name("elasticjob")


@dataclass(frozen=True)
class Ran:
    """A command's exit code and output."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class CommandLineUser:
    """A user of `elasticjob` with a kubeconfig, in a namespace."""

    sandbox: Sandbox

    def run(self, command: str, *arguments: str) -> Ran:
        """Run a command to its end; its output has 200 columns."""
        access = [
            f"--kubeconfig={self.sandbox.cluster.kubeconfig}",
            f"--namespace={self.sandbox.namespace}",
        ]
        done = subprocess.run(
            [COMMAND, command, *arguments, *access],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        print("$ elasticjob", command, *arguments, "\n", done.stdout, done.stderr)
        return Ran(done.returncode, done.stdout, done.stderr)

    def out(self, command: str, *arguments: str) -> str:
        """Run a command that succeeds; return its output."""
        ran = self.run(command, *arguments)
        assert (ran.code, ran.err) == (0, "")
        return ran.out


@pytest.mark.thorough
def test_the_command_line_watches_scales_suspends_resumes_and_stops_a_job(
    sandbox: Sandbox, folder: Path
) -> None:
    user = CommandLineUser(sandbox)
    kubectl = KubectlUser(sandbox, "digits", folder)
    assert user.run("list") == Ran(0, "", "no jobs; -A lists those of all namespaces\n")
    sandbox.apply(job("digits", folder))
    assert ", step " in user.out("wait", "digits", "--for=step=1", "--timeout=60")
    assert user.out("wait", "digits", "--for=running", "--timeout=60").startswith(
        "job digits is Running"
    )
    assert user.out("list").split()[:8] == [
        "NAME",
        "PHASE",
        "WORKERS",
        "STEP",
        "RATE",
        "ETA",
        "RESTARTS",
        "AGE",
    ]
    assert (
        user.out("list", "--phase=running", "-o", "name") == "elasticjobs.elasticjob.dev/digits\n"
    )
    assert json.loads(user.out("list", "-o", "json"))["items"][0]["metadata"]["name"] == "digits"

    assert user.out("scale", "digits", "3", "--wait").startswith("ScalePlan digits-")
    assert len(kubectl.pods()) == 3
    user.out("scale", "digits", "-1", "--wait")
    user.out("scale", "digits", "+1", "--wait")
    chosen = min(kubectl.pods())
    user.out("scale", "digits", "--remove", chosen, "--wait")
    assert chosen not in kubectl.pods()
    assert len(kubectl.pods()) == 2
    plans = user.out("plans", "digits").splitlines()[1:]
    assert [" ".join(line.split()[1:7]) for line in plans] == [
        f"{source} worker {before} to {after} Succeeded"
        for source, before, after in (
            ("Manual", 1, 3),
            ("ScaleIn", 3, 2),
            ("ScaleOut", 2, 3),
            ("ScaleIn", 3, 2),
        )
    ]
    kubectl.until(
        "an event of the last plan", lambda: "ScalingSucceeded" in user.out("events", "digits")
    )
    page = user.out("describe", "digits")
    for text in (
        f"{sandbox.namespace}/digits",
        "Running",
        *kubectl.pods(),
        "1 to 6",
        "ScalingSucceeded",
    ):
        assert text in page

    too_many = user.run("scale", "digits", "+90", "--wait")
    assert (too_many.code, too_many.out) == (1, "")
    assert "92" in too_many.err
    assert "maxReplicas 6" in too_many.err

    user.out("suspend", "digits", "--wait", "--timeout=60")
    assert kubectl.pods() == {}
    user.out("resume", "digits", "--wait", "--timeout=60")
    user.out("stop", "digits", "--wait", "--timeout=60")
    assert user.run("wait", "digits").code == 3, "a job that has failed does not succeed any more"
    assert (
        user.run("suspend", "digits").err
        == f"error: job {sandbox.namespace}/digits has ended, as Failed\n"
    )
    kubectl.until("an event of the stop", lambda: "Stopped" in user.out("events", "digits"))
    user.out("delete", "digits")
    assert user.run("describe", "digits").code == 1


@pytest.mark.guarantee("answers-after-the-end")
def test_a_job_that_has_ended_still_answers_queries(sandbox: Sandbox, folder: Path) -> None:
    user = CommandLineUser(sandbox)
    source = Path(counting_training.__file__).read_text()
    sandbox.apply(job("digits", folder, command=["python", "-c", source, "60"]))
    user.out("wait", "digits", "--for=succeeded", "--timeout=100")

    def answers() -> Ran | None:
        ran = user.run("query", "digits", "report")
        return ran if ran.code == 0 and "60/60" in ran.out else None

    report = KubectlUser(sandbox, "digits", folder).until(
        "the answers of the master's end", answers
    )
    assert report.err.startswith(f"job {sandbox.namespace}/digits has ended, as Succeeded")
    assert re.search(r"Goodput +[1-9][0-9]? % of [0-9]+s was training", report.out)
    history = user.run("history", "digits").out
    assert "WorldFormed" in history
    assert "loss 0.0" in history
    assert "digits-worker-0" in user.run("query", "digits", "members").out
    assert user.run("query", "digits", "plans").code == 0
    assert "Goodput" in user.out("describe", "digits")


def test_an_impossible_request_prints_one_line_with_the_remedy_and_no_traceback(
    sandbox: Sandbox,
) -> None:
    user = CommandLineUser(sandbox)
    for command, said in {
        "scale nobody 3": 'nobody" not found; `kubectl get elasticjobs -n',
        "scale nobody": "give either a size or --remove",
        "scale nobody many": "size 'many' is none: give the new size (8)",
        "wait nobody --for=done": "'done' is no phase of a job: give pending, ",
        "list --phase=busy": "'busy' is no phase of a job",
        "list --context=else": "no usable kubeconfig: ",
    }.items():
        ran = user.run(*command.split())
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("error: ")
        assert ran.err.count("\n") == 1
        assert said in ran.err

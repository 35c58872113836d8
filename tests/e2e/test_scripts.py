"""Runs the scripts of ScaleIns and ScaleOuts with operator, master and the launcher's agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job

NAME = "scripted"


def scripted_job(folder: Path) -> dict[str, Any]:
    """Return a job whose workers wait for the launcher, which waits for the test's end."""
    command = ["sh", "-c", f"until [ -e {folder}/finish ]; do sleep 0.2; done"]
    made = job(NAME, folder, replicas=2, command=command)
    spec = made["spec"]
    spec["framework"] = "horovod"
    spec["runPolicy"] |= {"allowScripts": True, "startPolicy": "AllReady"}
    worker = spec["replicaSpecs"]["worker"]
    container = worker["template"]["spec"]["containers"][0]
    spec["replicaSpecs"]["launcher"] = {"template": {"spec": {**worker["template"]["spec"]}}}
    worker["template"]["spec"]["containers"] = [
        {name: container[name] for name in container if name != "command"}
    ]
    return made


@pytest.mark.guarantee("script-runs-once")
def test_the_launcher_runs_a_requests_script_once_although_the_master_is_killed(
    sandbox: Sandbox, folder: Path
) -> None:
    sandbox.apply(scripted_job(folder))
    user = KubectlUser(sandbox, NAME, folder)
    user.until("both workers", lambda: user.at_rest(2))
    before = user.pods()

    script = (
        f'echo "$1 $A" >> {folder}/runs; '
        f"until [ -e {folder}/go ]; do sleep 0.1; done; echo done; exit 0"
    )
    user.request(
        "ScaleOut", "more", count=1, script=script, env=[{"name": "A", "value": "of the request"}]
    )
    user.until("the script to run", (folder / "runs").exists, seconds=100)
    [new] = set(user.pods()) - set(before)
    user.kill_the_master()
    (folder / "go").touch()
    user.wait("scaleout/more", ".status.phase", "ScaleSucceeded")
    status = user.status("scaleout/more")
    assert (status["script"]["exitCode"], status["script"]["message"]) == (0, "done")
    assert (folder / "runs").read_text() == f"{new}:1 of the request\n"

    user.request("ScaleIn", "not-now", count=1, script="echo the disk is full >&2; exit 3")
    user.wait("scalein/not-now", ".status.phase", "ScaleFailed")
    status = user.status("scalein/not-now")
    assert (status["script"]["exitCode"], status["script"]["message"]) == (3, "the disk is full")
    assert set(user.pods()) == {*before, new}

    hosts = f'cp "$ELASTICJOB_HOST_FILES/hostfile" {folder}/hosts'
    status = user.create("ScaleIn", "fewer", podNames=[new], script=hosts)
    assert status["script"]["exitCode"] == 0
    assert set(user.pods()) == set(before)
    assert f"{new}:1" in (folder / "hosts").read_text().splitlines(), (
        "before members leave they are still hosts"
    )
    (folder / "finish").touch()
    user.wait(f"ej/{NAME}", ".status.phase", "Succeeded")

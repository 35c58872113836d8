"""Runs the commands that the demo suggests to its user."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from elasticjob_cli.dev.demo import CHECKPOINTS, what_to_try

from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import EXAMPLES, Sandbox, digits

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("the example's image is not in a registry"),
]


def test_every_suggested_command_works_after_the_demos_job_has_ended(
    sandbox: Sandbox, folder: Path
) -> None:
    sandbox.apply(digits(epochs=1, checkpoints=folder))
    user = KubectlUser(sandbox, "digits", folder)
    user.until("the job's end", lambda: user.status().get("phase") == "Succeeded", seconds=100)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(sandbox.kubectl("config", "view", "--flatten", "--raw"))
    context = ["config", "set-context", "--current", f"--namespace={sandbox.namespace}"]
    subprocess.run(
        [sandbox.cluster.command()[0], f"--kubeconfig={kubeconfig}", *context], check=True
    )
    lines = what_to_try(kubeconfig, sandbox.cluster.bin, EXAMPLES.parent)
    try:
        done = subprocess.run(
            ["bash", "-exc", "\n".join(lines)],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        print(done.stdout, done.stderr)
        assert done.returncode == 0, done.stderr
        assert "worker-3" in done.stdout, "it has been scaled to four"
    finally:
        uid = user.kubectl("get", "ej", "digits", "-o", "jsonpath={.metadata.uid}", check=False)
        user.kubectl("delete", "ej", "--all", "--timeout=60s")
        shutil.rmtree(CHECKPOINTS / uid, ignore_errors=True)

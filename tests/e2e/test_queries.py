"""Runs the shell commands of docs/queries.md literally against a job that trains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.e2e.sandbox import Sandbox, digits

DOCUMENT = Path(__file__).parents[2] / "docs" / "queries.md"
BIN = Path(sys.executable).parent
SECONDS = 180.0
CURL = (
    'curl -sS --cacert ca.crt --connect-to "elasticjob-master:50080:${MASTER%:*}:50080" '
    '-H "Authorization: Bearer $TOKEN" https://elasticjob-master:50080/status'
)
"""The document's line, for an address that is not forwarded."""


@pytest.mark.thorough
async def test_the_documented_commands_work(sandbox: Sandbox, folder: Path) -> None:
    sandbox.apply(digits(epochs=5000, checkpoints=folder))
    async with sandbox.observe("digits") as observer:
        await observer.until(
            "a step of the training", lambda: observer.status.progress.step > 0, seconds=SECONDS
        )
        for arguments, text in (
            ("", "Training"),
            (" members", "STEP TIME"),
            (" history", "WorldFormed"),
        ):
            assert text in run(sandbox, folder, f"elasticjob query digits{arguments}")
        assert '"plans": []' in run(sandbox, folder, "elasticjob query digits plans -o json")
        access = [
            line for line in commands() if re.match(r"TOKEN=|kubectl get configmap|MASTER=", line)
        ]
        assert len(access) == 3
        if shutil.which("curl"):
            assert '"job":"digits"' in run(sandbox, folder, *access, CURL)
        if shutil.which("grpcurl"):
            with_grpcurl(sandbox, folder, access)


def with_grpcurl(sandbox: Sandbox, folder: Path, access: list[str]) -> None:
    """Run the lines for grpcurl if it is installed."""
    define = next(line for line in commands() if line.startswith("ask()"))
    asked = [
        line.replace("127.0.0.1:50051", "$MASTER") for line in commands() if line.startswith("ask ")
    ]
    assert len(asked) == 6
    for line in asked:
        if "/Watch" in line:
            line = line.replace("ask ", "ask -max-time 2 ", 1) + " || true"
        output = run(sandbox, folder, *access, define, line)
        assert re.search(r"JobService|JOB_PHASE_TRAINING|MasterStarted|\"dataset\": \"", output), (
            output
        )


def commands() -> list[str]:
    """Return the document's command lines."""
    text = DOCUMENT.read_text().replace("\\\n", " ")
    return re.findall(r"^\$ (.+)$", text, re.MULTILINE)


def run(sandbox: Sandbox, folder: Path, *lines: str) -> str:
    """Run lines of shell as a user of the namespace would."""
    script = "\n".join(
        ("set -e", f'kubectl() {{ command kubectl -n {sandbox.namespace} "$@"; }}', *lines)
    )
    path = os.pathsep.join((str(BIN), str(sandbox.cluster.bin), os.environ["PATH"]))
    script = script.replace(
        "elasticjob query digits", f"elasticjob query digits -n {sandbox.namespace}"
    )
    environ = {**os.environ, "PATH": path, "KUBECONFIG": str(sandbox.cluster.kubeconfig)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, timeout=60
    )
    print("$", lines[-1], "\n", done.stdout[:2000], done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""Checks the conditions that the operator waits for at its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from elasticjob_localcluster.cluster import up
from elasticjob_localcluster.crds import apply_crds

from tests.support.wait import until

pytestmark = pytest.mark.thorough

REPOSITORY = Path(__file__).parents[2]
SECONDS = 30.0


async def logged(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the operator has logged the text."""

    def said() -> bool:
        assert process.poll() is None, log.read_text()
        return text in log.read_text()

    await until(f"{text!r} is logged", said, explain=log.read_text)


async def test_an_operator_started_before_the_definitions_waits_says_so_and_continues(
    tmp_path: Path,
) -> None:
    with up(tmp_path / "cluster", control_plane_only=True) as cluster:
        path = tmp_path / "operator.log"
        environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "elasticjob_operator.main"],
                env=environ,
                stdout=log,
                stderr=log,
            )
        try:
            await logged(path, "does not serve elasticjobs.elasticjob.dev", process)
            await apply_crds(cluster.kubeconfig, REPOSITORY / "crds")
            await logged(path, "leading as", process)
        finally:
            process.terminate()
            process.wait(timeout=SECONDS)


def test_an_operator_without_a_cluster_says_what_is_missing(tmp_path: Path) -> None:
    environ = {**os.environ, "KUBECONFIG": str(tmp_path / "nowhere")}
    command = [sys.executable, "-m", "elasticjob_operator.main"]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 1
    assert "no cluster to work on" in done.stderr
    assert "Traceback" not in done.stderr

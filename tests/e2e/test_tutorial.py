"""Follows the tutorial on a cluster, command by command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.documented_commands import (
    REPOSITORY,
    TUTORIALS,
    blocks,
    command_lines,
    run_as_user,
)
from tests.support.e2e.sandbox import Sandbox
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("the example's image is not in a registry"),
]


def test_the_tutorial_on_a_cluster_trains_resizes_and_reports(
    sandbox: Sandbox, folder: Path
) -> None:
    page = TUTORIALS / "cluster.md"
    install, images, cluster, *user = (command_lines(text) for text in blocks(page, "console"))
    assert (len(install), len(images), len(cluster)) == (1, 3, 1), (
        "other tests install the operator"
    )
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(sandbox.kubectl("config", "view", "--flatten", "--raw"))
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{sandbox.cluster.bin}:{os.environ['PATH']}",
    }
    # `dev up --operator` returns when the operator leads.
    lease = ("get", "lease", "elasticjob-operator", "--output=name")
    wait_until(
        "the operator leads",
        lambda: sandbox.kubectl(*lease, check=False),
        lambda said: said.startswith("lease."),
        seconds=60,
    )
    context = f"kubectl config set-context --current --namespace={sandbox.namespace}"
    lines = [context, *(line for block in user for line in block)]
    said = run_as_user(lines, folder=REPOSITORY, environment=environment)
    assert "digits-fewer" in said, "the ScaleIn is among the plans"
    assert "goodput" in said.lower()

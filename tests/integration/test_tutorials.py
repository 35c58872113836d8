"""Follows the tutorials that need no node, command by command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from elasticjob_localcluster.cluster import Cluster

from tests.support.documented_commands import TUTORIALS, blocks, command_lines, run_as_user
from tests.support.local_run import local_run


def test_the_tutorial_on_a_laptop_trains_resizes_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for the checkpoints
    page = TUTORIALS / "laptop.md"
    (program,) = blocks(page, "python")
    install, first, others, again = (command_lines(text) for text in blocks(page, "console"))
    assert len(install) == 1, "only this one is not run: the test needs no installation"
    assert [*first, *again] == ["elasticjob run -n 2 train.py"] * 2
    with local_run(tmp_path) as run:
        run.program(program, "train.py")
        process = run.start("-n", "2", "train.py")
        run.wait_for_line(r"\[1\] rank 1 of 2 begins at step 0\n")
        said = run_as_user(others, folder=tmp_path, environment=run.environment)
        assert "run train trains with 3 workers" in said
        assert "train-worker-2" in said
        assert run.wait_for_end(process) == 1, run.log()
        begun = run.numbers(r"\[0\] rank 0 of \d begins at step (\d+)")
        assert begun == sorted(begun)
        before = len(run.log())
        run.start("-n", "2", "train.py")
        run.wait_for_line(r"\[0\] rank 0 of 2 begins at step [1-9]", after=before)


def test_the_tutorial_from_another_system_ends_with_a_job_that_the_api_server_accepts(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    page = TUTORIALS / "migrate.md"
    (job,) = blocks(page, "yaml")
    convert, submit = (command_lines(text) for text in blocks(page, "console"))
    (tmp_path / "job.yaml").write_text(job)
    access = yaml.safe_load(cluster.kubeconfig.read_text())
    for context in access["contexts"]:
        context["context"]["namespace"] = namespace
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(access))
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{cluster.bin}:{os.environ['PATH']}",
    }
    assert convert[0].startswith("pip install")
    said = run_as_user([*convert[1:], *submit], folder=tmp_path, environment=environment)
    assert "something was invented or differs" in said

"""What `elasticjob dev up` and `status` say about the cluster that was started."""

from __future__ import annotations

import os
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from elasticjob_cli.dev.cluster import next_steps, with_operator
from elasticjob_cli.dev.group import dev
from elasticjob_localcluster import daemons
from elasticjob_localcluster.cluster import Cluster
from elasticjob_processes.table import read_process
from typer.testing import CliRunner

CHECKOUT = Path(__file__).parents[4]


def test_the_hints_for_a_new_cluster_name_existing_files(
    tmp_path: Path,
) -> None:
    lines = next_steps(tmp_path / "with a space")
    commands = [shlex.split(line) for line in lines if line.startswith("  ")]
    applied = [name for command in commands for option, name in pairwise(command) if option == "-f"]
    assert applied == ["crds", "policies", "examples/digits.yaml"]
    assert all((CHECKOUT / name).exists() for name in applied)
    assert [str(tmp_path / "with a space" / "elasticjob-operator"), "&"] in commands
    assert "definitions" in lines[0]


def test_the_hint_for_a_cluster_with_an_operator_names_an_example_only_if_it_exists(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, 0, has_node=True)
    _, submit = with_operator(cluster, CHECKOUT)
    assert Path(shlex.split(submit)[-1]).exists()
    _, submit = with_operator(cluster, tmp_path)
    assert submit == "  elasticjob submit train.py --image any --workers 2"


@pytest.mark.parametrize("runs", [True, False])
def test_the_status_lists_the_operator_that_was_started_with_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    monkeypatch.setattr(Cluster, "problems", lambda _: [])
    monkeypatch.setattr(Cluster, "expected", ())
    (tmp_path / "cluster.json").write_text('{"port": 1, "has_node": false}')
    (tmp_path / "pids").mkdir()
    operator = tmp_path / "pids" / "operator"
    own = read_process(os.getpid())
    assert own is not None
    operator.write_text(f"{os.getpid()} {own.started + (0 if runs else 1)}\n")
    answer = CliRunner().invoke(dev, ["status", "--state", str(tmp_path)])
    state = f"up    process {os.getpid()}" if runs else "down"
    assert f"{'operator':<24} {state}\n" in answer.output
    assert answer.exit_code == (0 if runs else 1)
    operator.unlink()
    without = CliRunner().invoke(dev, ["status", "--state", str(tmp_path)])
    assert "operator  " not in without.output
    assert without.exit_code == 0


def test_status_shows_the_users_own_cluster_before_those_of_other_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    others = [tmp_path / "a", tmp_path / "z"]
    for place, state in enumerate((own, *others)):
        state.mkdir()
        (state / "cluster.json").write_text(f'{{"port": {place + 1}, "has_node": false}}')
    monkeypatch.setenv("ELASTICJOB_STATE", str(own))
    monkeypatch.setattr(daemons, "find_states", lambda: others)
    shown = CliRunner().invoke(dev, ["status"]).output
    assert re.findall(r"127.0.0.1:(\d)", shown) == ["1", "2", "3"]

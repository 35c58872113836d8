"""What `elasticjob dev up` says about the cluster that it has started."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path

from elasticjob_cli.dev_cluster import next_steps

CHECKOUT = Path(__file__).parents[3]


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

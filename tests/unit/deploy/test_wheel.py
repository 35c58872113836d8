"""The wheel has the files that its programs need outside of a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from elasticjob_cli.dev_operator import check_source, own_definitions

from tests.conftest import REPOSITORY


def test_the_wheel_has_the_definitions_and_policies_for_a_cluster_with_an_operator(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    [wheel] = tmp_path.glob("*.whl")
    names = set(ZipFile(wheel).namelist())
    for folder in ("crds", "policies"):
        files = {each.name for each in (REPOSITORY / folder).glob("*.yaml")}
        assert {f"elasticjob_cli/definitions/{folder}/{name}" for name in files} <= names
    ZipFile(wheel).extractall(tmp_path / "installed")
    check_source(tmp_path / "installed" / "elasticjob_cli" / "definitions")


def test_a_checkout_has_its_own_definitions() -> None:
    assert own_definitions() == REPOSITORY

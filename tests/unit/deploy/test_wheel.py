"""The wheel has the files that its programs need outside of a checkout."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from elasticjob_cli.dev.operator import check_source, own_definitions

from tests.conftest import REPOSITORY
from tests.support.programs import ran

HATCH = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
PACKAGES = [REPOSITORY / each for each in HATCH["targets"]["wheel"]["packages"]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """Build the source distribution, and from it the wheel."""
    dist = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "uv", "build", "--no-build-isolation", "--offline"]
    command += ["--python", sys.executable, "--out-dir", str(dist), str(REPOSITORY)]
    done = ran(*command)
    assert done.returncode == 0, done.stderr
    [path] = dist.glob("*.whl")
    return ZipFile(path)


def test_the_wheel_of_the_source_distribution_has_every_file_of_the_packages(
    wheel: ZipFile,
) -> None:
    of_the_packages = {
        str(path.relative_to(package.parent))
        for package in PACKAGES
        for path in package.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    names = set(wheel.namelist())
    assert of_the_packages - names == set()
    assert {f"{package.name}/py.typed" for package in PACKAGES} - names == set()


def test_the_wheel_has_its_licence_and_that_of_the_charts_library(wheel: ZipFile) -> None:
    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    assert "\nLicense-Expression: Apache-2.0\n" in wheel.read(metadata).decode()
    licences = metadata.replace("METADATA", "licenses/")
    assert wheel.read(f"{licences}LICENSE") == (REPOSITORY / "LICENSE").read_bytes()
    assert [name for name in wheel.namelist() if name.startswith(licences) and "uplot" in name]


def test_the_wheel_has_the_definitions_and_policies_for_a_cluster_with_an_operator(
    wheel: ZipFile, tmp_path: Path
) -> None:
    names = set(wheel.namelist())
    for folder in ("crds", "policies"):
        files = {each.name for each in (REPOSITORY / folder).glob("*.yaml")}
        assert {f"elasticjob_cli/definitions/{folder}/{name}" for name in files} <= names
    wheel.extractall(tmp_path)
    check_source(tmp_path / "elasticjob_cli" / "definitions")


def test_the_wheel_has_the_tables_of_the_converter(wheel: ZipFile) -> None:
    package = REPOSITORY / "cli" / "elasticjob_cli"
    tables = {str(path.relative_to(package.parent)) for path in package.rglob("*.txt")}
    assert tables
    assert tables <= set(wheel.namelist())


def test_a_checkout_has_its_own_definitions() -> None:
    assert own_definitions() == REPOSITORY

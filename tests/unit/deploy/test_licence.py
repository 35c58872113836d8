"""Every place that names the licence names the same one."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from tests.conftest import REPOSITORY

LICENCE: str = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["license"]


def test_the_file_is_the_text_of_the_licence() -> None:
    name, version = (REPOSITORY / "LICENSE").read_text().split("\n")[1:3]
    assert (name.strip(), version.split(",")[0].strip()) == ("Apache License", "Version 2.0")
    assert LICENCE == "Apache-2.0"


@pytest.mark.parametrize(
    "file", ["Dockerfile.operator", "Dockerfile.master", "examples/digits/Dockerfile"]
)
def test_an_image_has_the_licence_as_its_label(file: str) -> None:
    label = r'org\.opencontainers\.image\.licenses="([^"]*)"'
    assert re.findall(label, (REPOSITORY / file).read_text()) == [LICENCE]


def test_the_chart_and_the_readme_name_the_licence() -> None:
    chart = yaml.safe_load((REPOSITORY / "deploy" / "chart" / "Chart.yaml").read_text())
    assert chart["annotations"]["artifacthub.io/license"] == LICENCE
    assert f"[{LICENCE}](LICENSE)" in (REPOSITORY / "README.md").read_text()

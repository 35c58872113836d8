"""Checks the krew plugin: the version in its manifest, and the installed file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import yaml

from tests.support.programs import ran

REPOSITORY = Path(__file__).parents[3]


def test_the_manifest_has_this_version_and_names_existing_files() -> None:
    manifest = yaml.safe_load((REPOSITORY / ".krew.yaml").read_text())
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert manifest["spec"]["version"] == f"v{project['version']}"
    assert f"kubectl-{manifest['metadata']['name']}" in project["scripts"]
    assert len(manifest["spec"]["shortDescription"]) <= 50
    for platform in manifest["spec"]["platforms"]:
        copied, licence = platform["files"]
        assert (REPOSITORY / licence["from"]).name == "LICENSE"
        program = REPOSITORY / "deploy" / "krew" / copied["from"]
        assert program.name == platform["bin"]
        assert os.access(program, os.X_OK)


def test_the_plugin_starts_the_command_or_says_how_to_install_it(tmp_path: Path) -> None:
    plugin = REPOSITORY / "deploy" / "krew" / "kubectl-elasticjob"
    command = tmp_path / "elasticjob"
    missing = ran(plugin, environment={"PATH": str(tmp_path)})
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "pip install 'elasticjob[cli]'" in missing.stderr
    command.write_text('#!/bin/sh\necho "$1/$2"; exit 3\n')
    command.chmod(0o755)
    done = ran(plugin, "scale", "a b", environment={"PATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (3, "scale/a b\n")

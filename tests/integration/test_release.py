"""A release is made from a clone, and its wheel works on a machine without the checkout."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster.state_directory import cache_dir

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.thorough

VERSION = "97.98.99"
UV = [sys.executable, "-m", "uv"]
TRAINING = """
import elasticjob

world = elasticjob.world()
for step in range(1, 4):
    elasticjob.report_step(step, total=3)
print(f"rank {world.rank} of {world.size}")
"""
TYPED = """
from typing import assert_type

import elasticjob
from elasticjob.client import Client, Job
from elasticjob_api.elasticjob import Progress

def follow(client: Client) -> None:
    job = client.get("digits")
    assert_type(job, Job)
    assert_type(job.progress, Progress | None)
    assert_type(elasticjob.world().rank, int)
"""
CLUSTER = """set -e
elasticjob dev up --operator --state "$STATE" > variables
. ./variables
elasticjob submit training.py --image any --workers 2 --dry-run=server
elasticjob submit training.py --image any --workers 2
elasticjob wait training --for=succeeded --timeout=120
elasticjob logs training --all
elasticjob dev down --state "$STATE"
"""


def run(command: list[str], *, cwd: str | Path = "/", env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=400, cwd=cwd, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a release in a clone."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("a release is made from a clone of the repository, and this is none")
    path = tmp_path_factory.mktemp("release") / "clone"
    run(["git", "clone", "--quiet", "--depth=1", f"file://{REPOSITORY}", str(path)])
    command = [sys.executable, "-m", "tools.release", VERSION, "--images=no"]
    run([*command, "--url=https://files.example/"], cwd=path)
    return path


@pytest.fixture(scope="module")
def installed(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the wheel into an empty environment; return the variables of its user."""
    home = tmp_path_factory.mktemp("home")
    [wheel] = (clone / "dist" / VERSION).glob("*.whl")
    run([*UV, "venv", "--quiet", "--python", sys.executable, str(home / "venv")])
    install = [*UV, "pip", "install", "--quiet", "--python", str(home / "venv/bin/python")]
    install += ["--constraint", str(REPOSITORY / "locks/dev.txt")]
    run([*install, f"elasticjob[cli,master,operator] @ {wheel.as_uri()}"])
    (home / "training.py").write_text(TRAINING)
    path = f"{home}/venv/bin:/usr/bin:/bin"
    return {"HOME": str(home), "PATH": path, "ELASTICJOB_CACHE": str(cache_dir(os.environ))}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a cluster, which is stopped at the end."""
    yield tmp_path / "cluster"
    clusters.down(tmp_path / "cluster")


def test_a_release_has_its_version_everywhere_and_the_checksums_of_its_files(clone: Path) -> None:
    dist = clone / "dist" / VERSION
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    files = {path.name: path.read_bytes() for path in dist.iterdir() if path.name != "SHA256SUMS"}
    assert {name: hashlib.sha256(content).hexdigest() for name, content in files.items()} == sums
    images = {f"elasticjob-{name}-{VERSION}.cdx.json" for name in ("operator", "master")}
    packages = {f"elasticjob-{VERSION}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".tgz")}
    plugin_files = {"elasticjob.yaml", f"kubectl-elasticjob-{VERSION}.tar.gz"}
    assert set(files) == images | packages | plugin_files
    plugin = yaml.safe_load(files["elasticjob.yaml"])["spec"]
    assert plugin["version"] == f"v{VERSION}"
    [platform] = plugin["platforms"]
    archive = platform["uri"].removeprefix("https://files.example/")
    assert platform["sha256"] == sums[archive]
    with tarfile.open(dist / archive) as packed:
        assert sorted(packed.getnames()) == sorted(each["from"] for each in platform["files"])
    changelog = (clone / "CHANGELOG.md").read_text()
    assert re.search(rf"## Unreleased\n\n## {VERSION} - [\d-]+\n\n### Added", changelog)
    run([sys.executable, "-m", "tools.render_deploy", "--check"], cwd=clone)


def test_the_wheel_trains_without_a_cluster_and_on_one_without_a_checkout(
    installed: dict[str, str], cluster: Path
) -> None:
    home = installed["HOME"]
    assert run(["elasticjob", "--version"], env=installed, cwd=home) == f"elasticjob {VERSION}\n"
    local = run(["elasticjob", "run", "-n", "2", "training.py"], env=installed, cwd=home)
    assert sorted(local.splitlines()) == ["[0] rank 0 of 2", "[1] rank 1 of 2"]
    said = run(["bash", "-c", CLUSTER], env=installed | {"STATE": str(cluster)}, cwd=home)
    assert "would be created" in said
    assert "rank 0 of 2" in said
    assert not cluster.exists()


def test_a_users_program_is_checked_against_the_types_of_the_wheel(
    installed: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache"]
    command += ["--python-executable", f"{installed['HOME']}/venv/bin/python", "typed.py"]
    run(command, cwd=tmp_path)

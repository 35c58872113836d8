"""Packages are installed by the real pip, also by two pods at once on one volume."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_wheel import tiny_wheel

PROGRAM = importlib.util.find_spec("elasticjob_client.install_packages")


def install(pod: Path, folder: Path, *requirements: str) -> subprocess.Popen[str]:
    """Start an installation, as the container of a pod does."""
    assert PROGRAM is not None
    assert PROGRAM.origin is not None
    pod.mkdir(exist_ok=True)
    text = Path(PROGRAM.origin).read_text()
    command = [sys.executable, "-c", text, str(pod / "link"), str(folder), "", *requirements]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.guarantee("packages-are-installed-at-the-start")
@pytest.mark.thorough
def test_two_pods_that_install_at_once_both_have_the_packages_and_a_later_one_installs_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cache" / "installed"
    wanted = ["msgspec", str(tiny_wheel(tmp_path))]  # the image, this environment, has the first
    (folder / "new-1-killed").mkdir(parents=True)
    pods = [tmp_path / "a", tmp_path / "b"]
    running = [install(pod, folder, *wanted) for pod in pods]
    for pod, process in zip(pods, running, strict=True):
        out = process.communicate(timeout=300)[0]
        assert process.returncode == 0, out
        assert {each.name for each in (pod / "link").iterdir()} >= {"tiny.py"}
        assert not (pod / "link" / "msgspec").exists()
    assert [each.name for each in folder.iterdir()] == [(pods[0] / "link").readlink().name]
    again = install(pods[0], folder, *wanted)
    assert (again.communicate(timeout=300)[0], again.returncode) == ("", 0)


@pytest.mark.guarantee("packages-are-installed-at-the-start")
def test_a_package_that_does_not_exist_fails_and_leaves_no_folder(tmp_path: Path) -> None:
    failing = install(tmp_path, tmp_path / "cache", str(tmp_path / "gone-1.0-py3-none-any.whl"))
    assert "gone-1.0" in failing.communicate(timeout=300)[0]
    assert failing.returncode == 1
    assert list((tmp_path / "cache").iterdir()) == []

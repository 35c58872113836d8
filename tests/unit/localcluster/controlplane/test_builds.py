"""Tests of the builds from source, with a Go that copies a script instead of compiling."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from elasticjob_localcluster.controlplane import binaries, builds, kubectl
from elasticjob_localcluster.controlplane.programs import CONTROL_PLANE, KUBECTL, PROGRAMS
from elasticjob_localcluster.progress_display import ProgressDisplay

_GO = """#!/bin/sh
case "$1" in
version) echo go version go1.26.0 linux/amd64 ;;
env) echo '{"GOCACHE": "/tmp", "GOMODCACHE": "/tmp"}' ;;
build)
    echo "$@" GOGC=$GOGC >> LOG
    while [ "$1" != -o ]; do shift; done
    printf '#!/bin/sh\\necho "$0" "$@"\\n' > "$2"
    /bin/chmod +x "$2"
esac
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a fake Go, which logs its calls of `build`."""
    programs = tmp_path / "programs"
    programs.mkdir()
    go = programs / "go"
    go.write_text(_GO.replace("LOG", shlex.quote(str(tmp_path / "builds"))))
    go.chmod(0o755)
    return {
        "PATH": str(programs),
        "KUBEBUILDER_ASSETS": "",
        "HOME": str(tmp_path),
        "ELASTICJOB_FROM_SOURCE": "1",
    }


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "check_space", lambda *_: None)
    monkeypatch.setattr(binaries, "check_space", lambda *_: None)
    monkeypatch.setattr(binaries, "_installed_program", lambda *_: None)


def built(tmp_path: Path) -> list[str]:
    log = tmp_path / "builds"
    return [line.split()[-2] for line in log.read_text().splitlines()] if log.exists() else []


def test_the_programs_of_one_package_are_built_once_and_called_by_their_names(
    tmp_path: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = binaries.find_programs(tmp_path / "cache", environ, ProgressDisplay())
    assert list(found) == [program.name for program in PROGRAMS]
    assert built(tmp_path) == ["go.etcd.io/etcd/server/v3", ".", "k8s.io/kubernetes/cmd/kubectl"]
    for name, path in found.items():
        output = subprocess.run([path], capture_output=True, check=True, text=True).stdout
        assert Path(output.strip()).name == path.resolve().name == name
    assert len({path.stat().st_ino for path in found.values()}) == 3
    assert binaries.find_programs(tmp_path / "cache", environ, ProgressDisplay()) == found
    assert len(built(tmp_path)) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("building 5 programs from source into ")
    assert "as ELASTICJOB_FROM_SOURCE is set; about " in said[0]
    assert "building kube-apiserver, kube-controller-manager, kube-scheduler (2 of 3)" in said
    assert not list(tmp_path.rglob("*.partial"))


def test_a_program_is_built_again_when_one_of_its_package_is_damaged(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    found = binaries.find_programs(tmp_path, environ, ProgressDisplay(), CONTROL_PLANE)
    found["kube-scheduler"].unlink()
    found["kube-scheduler"].write_bytes(b"#!")
    assert binaries.find_programs(tmp_path, environ, ProgressDisplay(), CONTROL_PLANE) == found
    assert built(tmp_path)[2:] == ["."]
    assert found["kube-scheduler"].stat().st_size > 2


def test_kubectl_is_built_at_its_first_call(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    found = binaries.find_programs(cache, environ, ProgressDisplay(), deferred=(KUBECTL,))
    assert list(found) == [program.name for program in CONTROL_PLANE]
    assert built(tmp_path) == ["go.etcd.io/etcd/server/v3", "."]

    script = tmp_path / "kubectl"
    kubectl.write_launcher(script, cache)
    asked = subprocess.run([script, "version"], env={**environ, binaries.FINDING: "1"})
    assert (asked.returncode, script.is_symlink()) == (1, False)
    for _ in range(2):
        answer = subprocess.run(
            [script, "get", "a b"], env={**os.environ, **environ}, capture_output=True, text=True
        )
        called, arguments = answer.stdout.split(" ", 1)
        assert (Path(called).name, arguments) == ("kubectl", "get a b\n")
    assert script.is_symlink()
    assert built(tmp_path)[2:] == ["k8s.io/kubernetes/cmd/kubectl"]


def test_compilers_collect_no_garbage_where_memory_allows_it() -> None:
    gigabyte = 10**9
    assert builds.collector_settings(24 * gigabyte, 2) == {
        "GOGC": "off",
        "GOMEMLIMIT": str(9 * gigabyte),
    }
    assert builds.collector_settings(2 * gigabyte, 2) == {}
    assert builds.collector_settings(24 * gigabyte, 64) == {}


def test_the_user_s_setting_of_the_collector_counts(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    binaries.find_programs(tmp_path, {**environ, "GOGC": "50"}, ProgressDisplay(), (KUBECTL,))
    assert (tmp_path / "builds").read_text().endswith(" GOGC=50\n")

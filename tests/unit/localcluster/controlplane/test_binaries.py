"""Which programs are used, and how a build is set up."""

import os
from pathlib import Path

import pytest
from elasticjob_localcluster.controlplane import binaries, builds, programs


def test_only_a_complete_program_counts_as_built(tmp_path: Path) -> None:
    program = programs.PROGRAMS[0]
    assert binaries.cached_program(program, tmp_path) is None
    place = binaries._cache_path(program, tmp_path)
    place.parent.mkdir(parents=True)
    place.write_bytes(b"12345")
    assert binaries.cached_program(program, tmp_path) is None
    binaries._size_file(place).write_text("5")
    assert binaries.cached_program(program, tmp_path) == place
    place.write_bytes(b"123")
    assert binaries.cached_program(program, tmp_path) is None


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("Kubernetes v1.37.0", True),
        ("Kubernetes v1.36.9", False),
        ("Kubernetes v1.371.0", False),
        ("", False),
    ],
)
def test_a_program_of_the_machine_is_used_only_in_the_same_minor_version(
    tmp_path: Path, version: str, fits: bool
) -> None:
    script = tmp_path / "kube-apiserver"
    script.write_text(f"#!/bin/sh\necho {version}\n")
    script.chmod(0o755)
    program = next(program for program in programs.PROGRAMS if program.name == "kube-apiserver")
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": ""}
    assert binaries._installed_program(program, environ) == (script.resolve() if fits else None)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("write /tmp/x: no space left on device", "the disk is full: free about 4 GB"),
        (
            'Get "https://proxy.invalid/x": dial tcp: lookup proxy.invalid: no such host',
            "check the network",
        ),
        ("x.go:1:1: syntax error", "the compiler failed"),
    ],
)
def test_a_failed_build_says_why_in_one_line_with_the_end_of_the_output(
    output: str, says: str
) -> None:
    error = builds.failure("etcd", output)
    assert str(error).startswith("could not build etcd: ")
    assert says in str(error)
    assert "\n" not in str(error)
    assert error.detail == output


def test_a_build_never_runs_for_another_platform_or_with_settings_of_the_user(
    tmp_path: Path,
) -> None:
    settings = builds.go_environment(
        tmp_path, {"HOME": str(tmp_path), "GOOS": "plan9", "GOFLAGS": "-mod=mod"}
    )
    assert "GOOS" not in settings
    assert settings["GOFLAGS"] == ""
    assert settings["CGO_ENABLED"] == "0"


def test_without_a_usable_home_go_builds_inside_of_our_cache(tmp_path: Path) -> None:
    settings = builds.go_environment(tmp_path, {"HOME": f"{os.devnull}/home"})
    assert settings["GOCACHE"] == str(tmp_path / "go-build")
    assert settings["GOPATH"] == str(tmp_path / "gopath")

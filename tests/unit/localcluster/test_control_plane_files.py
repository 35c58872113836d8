"""The files that the embedded cluster writes; no process is started."""

import json
import os
import socket
import stat
from pathlib import Path

import pytest
from cryptography import x509
from elasticjob_localcluster import daemons, state_directory
from elasticjob_localcluster.controlplane import binaries, components, go_toolchain, ports, programs
from elasticjob_localcluster.controlplane.pki import make_pki
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_processes.table import read_process
from rich.console import Console

PROGRAMS = {program.name: Path("/programs") / program.name for program in programs.PROGRAMS}


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    make_pki(directory, service_ip="10.96.0.1", node="process-node")
    return directory


def certificate(pki: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((pki / f"{name}.crt").read_bytes())


def test_every_certificate_is_signed_by_its_authority_and_no_key_is_readable_by_others(
    pki: Path,
) -> None:
    for path in pki.glob("*.crt"):
        authority = "front-proxy-ca" if path.stem.startswith("front-proxy") else "ca"
        certificate(pki, path.stem).verify_directly_issued_by(certificate(pki, authority))
    keys = list(pki.glob("*.key"))
    assert len(keys) == len(list(pki.glob("*.crt"))) + 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}


def test_the_api_server_is_known_by_every_name_that_clients_use(pki: Path) -> None:
    names = (
        certificate(pki, "kube-apiserver")
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    assert {"localhost", "kubernetes.default.svc"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "10.96.0.1"} == {
        str(item) for item in names.get_values_for_type(x509.IPAddress)
    }


def test_the_node_is_a_node_and_not_an_administrator(pki: Path) -> None:
    assert (
        certificate(pki, "node-client").subject.rfc4514_string()
        == "CN=system:node:process-node,O=system:nodes"
    )


def test_kubeconfigs_are_complete_and_private(pki: Path, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "pki").symlink_to(pki)
    components.write_kubeconfigs(tmp_path, 26443)
    config = json.loads((tmp_path / "kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:26443"
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert stat.S_IMODE((tmp_path / "kubeconfig").stat().st_mode) == 0o600


def test_only_the_api_server_listens_and_only_on_loopback() -> None:
    commands = [
        components.etcd_command(PROGRAMS),
        *components.controller_commands(PROGRAMS).values(),
    ]
    for command in commands:
        assert not [
            argument for argument in command if "://" in argument and "unix://" not in argument
        ]
        assert command[0].endswith("etcd") or "--secure-port=0" in command
    assert "--bind-address=127.0.0.1" in components.api_server_command(PROGRAMS, 1)


def test_directories_follow_the_environment_and_an_empty_home_is_looked_up() -> None:
    assert state_directory.cache_dir({"ELASTICJOB_CACHE": "/c"}) == Path("/c")
    assert state_directory.cache_dir({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path(
        "/x/elasticjob"
    )
    assert state_directory.cache_dir({"HOME": "/h"}) == Path("/h/.cache/elasticjob")
    assert state_directory.state_dir({"ELASTICJOB_STATE": "/s"}) == Path("/s")
    assert state_directory.state_dir({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == Path(
        "/x/elasticjob/dev"
    )
    assert state_directory.state_dir({"HOME": "/h"}) == Path("/h/.local/state/elasticjob/dev")
    assert state_directory.home({"HOME": ""}).is_absolute()


def test_a_process_is_not_mistaken_for_another_one_with_its_id(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    own = read_process(os.getpid())
    assert own is not None
    (tmp_path / "pids" / "me").write_text(f"{os.getpid()} {own.started}\n")
    (tmp_path / "pids" / "stale").write_text(f"{os.getpid()} 1\n")
    (tmp_path / "pids" / "cut-off").write_text("")
    found = daemons.recorded(tmp_path)
    assert {name: process.alive() for name, process in found.items()} == {
        "me": True,
        "stale": False,
    }


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
        ("Kubernetes v1.36.0", True),
        ("Kubernetes v1.35.9", False),
        ("Kubernetes v1.361.0", False),
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
    error = binaries._failure(programs.PROGRAMS[0], output)
    assert str(error).startswith("could not build etcd: ")
    assert says in str(error)
    assert "\n" not in str(error)
    assert error.detail == output


def test_a_build_never_runs_for_another_platform_or_with_settings_of_the_user(
    tmp_path: Path,
) -> None:
    settings = go_toolchain.go_environment(
        tmp_path, {"HOME": str(tmp_path), "GOOS": "plan9", "GOFLAGS": "-mod=mod"}
    )
    assert "GOOS" not in settings
    assert settings["GOFLAGS"] == ""
    assert settings["CGO_ENABLED"] == "0"


def test_without_a_usable_home_go_builds_inside_of_our_cache(tmp_path: Path) -> None:
    settings = go_toolchain.go_environment(tmp_path, {"HOME": f"{os.devnull}/home"})
    assert settings["GOCACHE"] == str(tmp_path / "go-build")
    assert settings["GOPATH"] == str(tmp_path / "gopath")


def test_a_free_port_is_free_and_a_busy_one_is_refused_by_number() -> None:
    ports.check_port(ports.free_port())
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(LocalClusterError, match=rf"port {port} is in use .*--port"):
            ports.check_port(port)


def test_without_a_terminal_progress_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ProgressDisplay(Console(stderr=True, force_terminal=False))
    with progress.step("building etcd [1 of 5]") as tick:
        tick()
    assert capsys.readouterr().err == "building etcd [1 of 5]\n"

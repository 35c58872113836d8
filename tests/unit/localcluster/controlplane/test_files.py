"""The files and commands of the control plane; no process is started."""

import json
import socket
import stat
from pathlib import Path

import pytest
from cryptography import x509
from elasticjob_localcluster.controlplane import components, ports, programs
from elasticjob_localcluster.controlplane.pki import make_pki
from elasticjob_localcluster.errors import LocalClusterError

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


def test_a_free_port_is_free_and_a_busy_one_is_refused_by_number() -> None:
    ports.check_port(ports.free_port())
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(LocalClusterError, match=rf"port {port} is in use .*--port"):
            ports.check_port(port)

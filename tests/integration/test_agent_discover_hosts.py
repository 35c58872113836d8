"""Runs Horovod's host discovery script with a real agent and a fake HTTPS server."""

from __future__ import annotations

import http.server
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.master_process import certificates

SCRIPT = str(Path(sys.executable).with_name("discover_hosts"))


ANSWERS = {
    "/hosts": b"job-worker-0:2\njob-worker-1-4:1\n",
    "/hosts?addresses": b"10.0.0.7:2\n10.0.0.9:1\n",
}


class Hosts(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        hosts = ANSWERS.get(self.path)
        if hosts is not None and self.headers["authorization"] == "Bearer secret":
            self.send_response(200)
        else:
            hosts = b"no"
            self.send_response(401)
        self.end_headers()
        self.wfile.write(hosts)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Master:
    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        crt = folder / "crt"
        key = folder / "key"
        for path, text in zip((crt, key), certificates(), strict=True):
            path.write_text(text)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(crt, key)
        self._server = http.server.HTTPServer((self.address, names.HTTP_PORT), Hosts)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def master(tmp_path: Path, network: str) -> Iterator[Master]:
    master = Master(tmp_path, f"{network}.1")
    yield master
    master.stop()


def discover(
    master: Master, folder: Path, *options: str, **more: str
) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(folder),
        names.ENV_MASTER_SERVICE: "job-master",
        names.ENV_NAMESPACE: "default",
        names.service_host_env("job-master"): master.address,
        names.ENV_CA: certificates()[0],
        names.ENV_TOKEN: "secret",
        **more,
    }
    return subprocess.run(
        [SCRIPT, *options], env=environment, capture_output=True, text=True, timeout=30
    )


def test_hosts_are_printed_in_horovods_format_and_remembered(
    master: Master, tmp_path: Path
) -> None:
    first = discover(master, tmp_path)
    assert (first.returncode, first.stdout, first.stderr) == (
        0,
        "job-worker-0:2\njob-worker-1-4:1\n",
        "",
    )
    refused = discover(master, tmp_path, **{names.ENV_TOKEN: "wrong"})
    assert (refused.returncode, refused.stdout) == (0, first.stdout)
    assert "last known hosts (OSError: 401 no)" in refused.stderr


def test_addresses_are_printed_on_request(master: Master, tmp_path: Path) -> None:
    assert discover(master, tmp_path, "--addresses").stdout == "10.0.0.7:2\n10.0.0.9:1\n"
    hostfile = discover(master, tmp_path, "--hostfile", **{names.ENV_TOKEN: "wrong"})
    assert (hostfile.returncode, hostfile.stdout) == (0, "10.0.0.7 slots=2\n10.0.0.9 slots=1\n")
    assert discover(master, tmp_path).stdout == "job-worker-0:2\njob-worker-1-4:1\n", (
        "the last answers are kept apart"
    )


def test_the_script_fails_without_any_answer(master: Master, tmp_path: Path) -> None:
    refused = discover(master, tmp_path, **{names.ENV_TOKEN: "wrong"})
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no hosts are known yet" in refused.stderr


@pytest.mark.guarantee("only-the-job-reaches-its-master")
def test_a_master_with_another_certificate_is_rejected(master: Master, tmp_path: Path) -> None:
    other = certificates.__wrapped__()[0]
    refused = discover(master, tmp_path, **{names.ENV_CA: other})
    assert refused.returncode == 1
    assert "certificate verify failed" in refused.stderr


@pytest.mark.guarantee("slow-agent")
def test_the_script_does_not_wait_for_a_hung_agent(master: Master, tmp_path: Path) -> None:
    discover(master, tmp_path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        answer = discover(master, tmp_path, **{names.ENV_SOCKET: str(tmp_path / "s")})
    assert (answer.returncode, answer.stdout) == (0, "job-worker-0:2\njob-worker-1-4:1\n")

"""Tests how programs of the control plane are downloaded, from a server of this test."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from elasticjob_localcluster.controlplane import binaries, releases
from elasticjob_localcluster.controlplane.programs import ETCD, KUBERNETES, PROGRAMS, Program
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.progress_display import ProgressDisplay

pytestmark = pytest.mark.skipif(
    releases.release_of("etcd", ETCD) is None, reason="there are no releases for this machine"
)
PROGRAM = {program.name: program for program in PROGRAMS}
KUBECTL = b"#!/bin/sh\necho 'Client Version: v1.37.2'\n"
ETCD_SCRIPT = b"#!/bin/sh\necho 'etcd Version: 3.7.3'\n"


class Server(ThreadingHTTPServer):
    """Serves files from memory and records what was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.slow = ""
        """The URL of a file that is sent byte by byte."""
        self.asked: list[str] = []

    def publish(self, release: releases.Release, content: bytes, *, sum_of: bytes) -> None:
        """Serve a release with the checksum of some bytes."""
        digest = hashlib.sha256(sum_of).hexdigest()
        name = release.url.rpartition("/")[2]
        text = f"{digest}  {name}\n" if release.member else f"{digest}\n"
        self.files |= {release.url: content, release.checksums: text.encode()}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        url = f"http://127.0.0.1:{self.server.server_port}{self.path}"
        self.server.asked.append(url)
        content = self.server.files.get(url)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if self.server.slow != url:
            self.wfile.write(content or b"")
            return
        with suppress(ConnectionError):  # the client gives up
            for byte in content or b"":
                self.wfile.write(bytes([byte]))
                time.sleep(0.005)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        base = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(releases, "KUBERNETES_RELEASES", f"{base}/kubernetes")
        monkeypatch.setattr(releases, "ETCD_RELEASES", f"{base}/etcd")
        yield server
        server.shutdown()
        thread.join()


def release(program: str) -> releases.Release:
    found = releases.release_of(program, PROGRAM[program].release)
    assert found is not None
    return found


def archive(member: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        entry = tarfile.TarInfo(member)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def find(cache: Path, *names: str, **environ: str) -> dict[str, Path]:
    settings = {"PATH": "", "HOME": str(cache), **environ}
    programs = [PROGRAM[name] for name in names]
    return binaries.find_programs(cache, settings, ProgressDisplay(), programs)


@pytest.fixture
def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(unbuilt: list[Program], *_: object) -> None:
        raise LocalClusterError(f"builds {[program.name for program in unbuilt]}")

    monkeypatch.setattr(binaries, "_build_all", refuse)


@pytest.mark.usefixtures("no_build")
def test_programs_of_releases_are_downloaded_once_and_can_be_executed(
    tmp_path: Path, server: Server
) -> None:
    etcd = release("etcd")
    content = archive(etcd.member, ETCD_SCRIPT)
    server.publish(release("kubectl"), KUBECTL, sum_of=KUBECTL)
    server.publish(etcd, content, sum_of=content)
    found = find(tmp_path, "kubectl", "etcd")
    for path, output in ((found["kubectl"], b"v1.37.2"), (found["etcd"], b"3.7.3")):
        assert output in subprocess.run([path], capture_output=True, check=True).stdout
    asked = len(server.asked)
    assert find(tmp_path, "kubectl", "etcd") == found
    assert len(server.asked) == asked


@pytest.mark.usefixtures("no_build")
@pytest.mark.parametrize(
    ("content", "sum_of", "says"),
    [
        (KUBECTL[:-4], KUBECTL, "has the SHA-256"),
        (b"#!/bin/sh\nexit 1\n", b"#!/bin/sh\nexit 1\n", "does not run on this machine"),
    ],
    ids=["damaged", "of another machine"],
)
def test_a_downloaded_program_that_is_not_the_one_is_built_instead(
    tmp_path: Path,
    server: Server,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    sum_of: bytes,
    says: str,
) -> None:
    server.publish(release("kubectl"), content, sum_of=sum_of)
    with pytest.raises(LocalClusterError, match=r"builds \['kubectl'\]"):
        find(tmp_path, "kubectl")
    assert says in capsys.readouterr().err
    assert not [path for path in (tmp_path / "bin").rglob("*") if path.is_file()]


@pytest.mark.usefixtures("no_build")
@pytest.mark.parametrize("slow", ["sums", "program"])
@pytest.mark.parametrize(
    ("bound", "says"),
    [("_RATE_SECONDS", "KiB/s, less than 512"), ("_LONGEST_SECONDS", "has not arrived within")],
)
def test_a_program_that_arrives_slowly_is_built_instead(
    tmp_path: Path,
    server: Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    slow: str,
    bound: str,
    says: str,
) -> None:
    kubectl = release("kubectl")
    server.publish(kubectl, KUBECTL * 100, sum_of=KUBECTL)
    server.files[kubectl.checksums] += b"\n" * 1000
    server.slow = kubectl.checksums if slow == "sums" else kubectl.url
    monkeypatch.setattr(releases, bound, 0.05)
    with pytest.raises(LocalClusterError, match=r"builds \['kubectl'\]"):
        find(tmp_path, "kubectl")
    assert says in capsys.readouterr().err


def test_whoever_waits_sees_a_tick_for_each_part_that_arrives(
    tmp_path: Path, server: Server
) -> None:
    kubectl = release("kubectl")
    server.publish(kubectl, KUBECTL, sum_of=KUBECTL)
    server.slow = kubectl.url
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    releases.download(kubectl, tmp_path / "kubectl", tick)
    assert ticks > len(KUBECTL) // 2


@pytest.mark.usefixtures("no_build")
def test_without_an_answer_of_the_release_server_all_programs_are_built(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LocalClusterError, match=r"builds \['kubectl', 'kube-scheduler'\]"):
        find(tmp_path, "kubectl", "kube-scheduler")
    assert "not downloaded: kubectl: Not Found" in capsys.readouterr().err
    assert len(server.asked) == 1


@pytest.mark.usefixtures("no_build")
def test_who_wants_programs_from_source_asks_no_release_server(
    tmp_path: Path, server: Server
) -> None:
    with pytest.raises(LocalClusterError, match=r"builds \['kubectl'\]"):
        find(tmp_path, "kubectl", ELASTICJOB_FROM_SOURCE="1")
    assert not server.asked


def test_downloads_and_builds_are_of_the_same_versions() -> None:
    pins = {
        "etcd": f"go.etcd.io/etcd/server/v3 {ETCD}",
        "kubectl": f"k8s.io/kubernetes {KUBERNETES}",
    }
    for name, pin in pins.items():
        text = (PROGRAM[name].module / "go.mod").read_text()
        assert f"{pin}\n" in text or f"{pin} //" in text

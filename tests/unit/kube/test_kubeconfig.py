"""A kubeconfig is read with the official client, but without the classes of all APIs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import yaml
from elasticjob_client.access import Access
from elasticjob_client.cluster import open_cluster
from elasticjob_kube import kubeconfig
from elasticjob_operator.certificates import new_job_secrets

from tests.support.framework_python import checkout, installed_by
from tests.support.programs import ran

SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from elasticjob_kube.access import find_access
answers = []
for path in map(Path, sys.argv[1:]):
    found = asyncio.run(find_access(path, None))
    header = asyncio.run(found.authorization())
    authorities = len(found.context.get_ca_certs())
    answers.append([found.host, header, found.proxy, authorities, found.namespace])
loaded = [name for name in sys.modules if name.startswith("kubernetes")]
print(json.dumps([answers, loaded]))
from kubernetes.client import CoreV1Api
"""
ANOTHER_THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
VERSION = "client.authentication.k8s.io/v1"
PLUGIN = {
    "apiVersion": VERSION,
    "kind": "ExecCredential",
    "status": {"token": "of-a-plugin"},
}
EXEC = {
    "apiVersion": VERSION,
    "command": sys.executable,
    "args": ["-c", f"print({json.dumps(PLUGIN)!r})"],
    "interactiveMode": "Never",
}
USERS: tuple[tuple[dict[str, Any], str | None], ...] = (
    ({"token": "mine"}, "Bearer mine"),
    ({"tokenFile": "token"}, "Bearer of-a-file"),
    ({"username": "u", "password": "p"}, "Basic dTpw"),
    ({"client-certificate": "tls.crt", "client-key": "tls.key"}, None),
    ({"exec": EXEC}, "Bearer of-a-plugin"),
)


def read(
    paths: Iterable[Path], first: str, python: str = sys.executable
) -> tuple[list[Any], list[str]]:
    """Read kubeconfigs in a new process; return what it found, and the client's loaded modules."""
    done = ran(python, "-c", first + SCRIPT, *paths, PYTHONPATH=checkout("api", "kube"))
    assert done.returncode == 0, done.stderr
    answers, loaded = json.loads(done.stdout)
    return answers, loaded


def write(path: Path, user: dict[str, Any]) -> Path:
    """Write the kubeconfig of a user beside the files that it names."""
    cluster = {
        "server": "https://10.0.0.1:6443",
        "certificate-authority": "ca.crt",
        "proxy-url": "http://proxy:1",
    }
    context = {"cluster": "c", "user": "u", "namespace": "team"}
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Write a kubeconfig of each kind of user."""
    for name, data in new_job_secrets("job", "ns").items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "token").write_text("of-a-file")
    return [write(tmp_path / str(number), user) for number, (user, _) in enumerate(USERS)]


EXPECTED = [["https://10.0.0.1:6443", header, "http://proxy:1", 1, "team"] for _, header in USERS]


def test_every_kind_of_user_is_read_without_the_classes_of_all_apis(paths: list[Path]) -> None:
    found, loaded = read(paths, "")
    assert found == EXPECTED
    assert loaded == []


@pytest.mark.thorough
def test_another_thread_may_import_the_client_meanwhile(paths: list[Path]) -> None:
    found, loaded = read(paths, ANOTHER_THREAD)
    assert found == EXPECTED
    assert "kubernetes.aio.client" in loaded


def test_the_client_that_kubeflows_sdk_needs_reads_every_kind_of_user(paths: list[Path]) -> None:
    found, loaded = read(paths, "", installed_by("kubeflow_env"))
    assert found == EXPECTED
    assert "kubernetes.aio" not in loaded


@pytest.mark.parametrize("later", ["other", ""])
def test_the_first_file_that_names_a_current_context_decides_as_for_kubectl(
    tmp_path: Path, later: str
) -> None:
    config = {
        "contexts": [{"name": "other", "context": {"cluster": "o", "user": "o"}}],
        "clusters": [{"name": "o", "cluster": {"server": "https://10.0.0.2:6443"}}],
        "users": [{"name": "o", "user": {"token": "of-the-other"}}],
    }
    contexts = {"nameless": config, "other": {**config, "current-context": later}}
    for name, content in contexts.items():
        (tmp_path / name).write_text(yaml.safe_dump(content))
    first = write(tmp_path / "first", {"token": "mine"})
    (tmp_path / "ca.crt").write_bytes(new_job_secrets("job", "ns")["ca.crt"])
    files = os.pathsep.join(map(str, (tmp_path / "nameless", first, tmp_path / "other")))

    settings, _ = asyncio.run(kubeconfig.load(Path(files), None))
    assert settings.host == "https://10.0.0.1:6443"
    assert settings.namespace == "team"
    settings, _ = asyncio.run(kubeconfig.load(Path(files), "other"))
    assert settings.namespace == "default"


def test_a_kubeconfig_is_read_once_as_its_yaml_may_take_longer_than_a_request(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    read_yaml = yaml.safe_load

    def counted(file: TextIOWrapper) -> object:
        reads.append(file.name)
        return read_yaml(file)

    monkeypatch.setattr(yaml, "safe_load", counted)

    async def namespace() -> str:
        async with open_cluster(Access(paths[0])) as cluster:
            return cluster.namespace

    assert asyncio.run(namespace()) == "team"
    assert reads == [str(paths[0])]

"""A kubeconfig is read with the official client, but without the classes of all APIs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from elasticjob_operator.certificates import new_job_secrets

SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from elasticjob_kube.kubeconfig import access, namespace
path = Path(sys.argv[1])
found = asyncio.run(access(path, None))
header = asyncio.run(found.authorization())
loaded = [name for name in sys.modules if name.startswith("kubernetes")]
authorities = len(found.context.get_ca_certs())
print(json.dumps([found.host, header, found.proxy, authorities, namespace(path, None), loaded]))
from kubernetes.aio.client import CoreV1Api
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


def read(path: Path, first: str) -> list[Any]:
    """Read a kubeconfig in a new process, and return what it found."""
    command = [sys.executable, "-c", first + SCRIPT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("user", "header"), USERS, ids=lambda each: str(each)[:20])
def test_every_kind_of_user_is_read_without_the_classes_of_all_apis(
    tmp_path: Path, user: dict[str, Any], header: str | None
) -> None:
    for name, data in new_job_secrets("job", "ns").items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "token").write_text("of-a-file")
    cluster = {
        "server": "https://10.0.0.1:6443",
        "certificate-authority": "ca.crt",
        "proxy-url": "http://proxy:1",
    }
    context = {"cluster": "c", "user": "u", "namespace": "team"}
    path = tmp_path / "kubeconfig"
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(config))

    *found, loaded = read(path, "")
    assert found == ["https://10.0.0.1:6443", header, "http://proxy:1", 1, "team"]
    assert loaded == []

    *with_all, loaded = read(path, ANOTHER_THREAD)
    assert with_all == found, "another thread may import the client meanwhile"
    assert "kubernetes.aio.client" in loaded

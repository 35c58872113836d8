"""A pod's access comes from its service account, without an import of the official client."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from elasticjob_kube import access
from elasticjob_kube.access import TOKEN_SECONDS, Token, pod_access, uses_service_account
from elasticjob_kube.errors import NoAccess
from elasticjob_kube.session import connect
from elasticjob_operator.certificates import new_job_secrets

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a service account."""
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_bytes(new_job_secrets("job", "ns")["ca.crt"])
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    return tmp_path


async def test_a_pod_uses_the_address_and_the_token_of_its_service_account(folder: Path) -> None:
    found = pod_access(POD)
    assert found.host == "https://10.0.0.1:443"
    assert await found.authorization() == "Bearer first"
    assert len(found.context.get_ca_certs()) == 1, "the pod's authority, and no other"
    assert found.context.check_hostname


def test_an_ipv6_address_gets_brackets(folder: Path) -> None:
    assert pod_access({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}).host == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("variable", "used"), [("HTTPS_PROXY", "http://proxy:1"), ("HTTP_PROXY", None)]
)
def test_a_proxy_is_used_if_the_environment_names_one_for_https(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, used: str | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv(variable, "http://proxy:1")
    assert pod_access(POD).proxy == used
    monkeypatch.setenv("NO_PROXY", "10.0.0.1")
    assert pod_access(POD).proxy is None


@pytest.mark.parametrize("name", ["token", "ca.crt"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_a_missing_or_invalid_file_is_named(folder: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(NoAccess, match=rf"^{re.escape(name)} in .* can't be used"):
        pod_access(POD)


def test_a_missing_address_is_named(folder: Path) -> None:
    with pytest.raises(NoAccess, match="KUBERNETES_SERVICE_PORT must be set"):
        pod_access({**POD, "KUBERNETES_SERVICE_PORT": ""})


def test_a_renewed_token_is_used_within_some_seconds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    token = Token(folder / "token")
    assert token.header() == "Bearer first"
    (folder / "token").write_text("second")
    now += TOKEN_SECONDS - 1
    assert token.header() == "Bearer first", "the file is not read for every request"
    now += 1
    assert token.header() == "Bearer second"


def test_a_missing_token_is_an_error_until_the_file_exists_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    token = Token(folder / "token")
    token.header()
    now += TOKEN_SECONDS
    (folder / "token").write_text("")
    with pytest.raises(OSError, match="must hold the service account's token"):
        token.header()
    (folder / "token").write_text("back")
    assert token.header() == "Bearer back"


def test_a_given_kubeconfig_overrides_the_pods_service_account() -> None:
    assert uses_service_account(POD)
    assert not uses_service_account({**POD, "KUBECONFIG": "/somewhere"})
    assert not uses_service_account({})
    assert not uses_service_account(POD, Path("/somewhere"))
    assert not uses_service_account(POD, context="other")


async def test_a_missing_kubeconfig_is_reported_as_no_access(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match="no such file"):
        async with connect(user_agent="test", kubeconfig=tmp_path / "nowhere"):
            pass


@pytest.mark.parametrize("value", ["", "/not/here:/nor/here"])
async def test_a_missing_default_kubeconfig_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", value)
    expected = "/not/here and /nor/here" if value else f"{tmp_path}/.kube/config"
    with pytest.raises(NoAccess, match=f"^{expected}: no such file"):
        async with connect(user_agent="test"):
            pass


def test_a_master_in_a_pod_does_not_import_the_official_client(folder: Path) -> None:
    program = f"""
import asyncio, os, sys
from pathlib import Path
import elasticjob_master.cluster.kubernetes_job, elasticjob_master.main
from elasticjob_kube import access
from elasticjob_kube.session import connect
access.SERVICE_ACCOUNT = Path({str(folder)!r})
async def main():
    async with connect(user_agent="test"):
        assert "kubernetes" not in sys.modules, "it takes 20 MB"
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], env=POD, check=True, timeout=60)

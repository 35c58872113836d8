"""Checks the Deployment of the hub: it has no right and no token, and starts as it is deployed."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from elasticjob_localcluster.cluster import Cluster

from tests.support.self_signed import write_pair
from tools.programs import find_helm
from tools.render_deploy import render

HUB = ("hub.enabled=true", "hub.tlsSecret=hub-tls", "hub.namespaces={a,b}")
MAIN = """
from pathlib import Path
from elasticjob_kube import access
access.SERVICE_ACCOUNT = Path({folder!r})
from elasticjob_client.hub import main
main()
"""


def deployed() -> list[dict[str, Any]]:
    """Return the objects that the hub adds to the chart."""
    helm = find_helm(os.environ)
    without = render(helm)
    return [each for each in render(helm, *HUB) if each not in without]


@pytest.mark.guarantee("hub-lends-no-right")
def test_the_deployed_hub_has_no_right_and_no_token() -> None:
    added = {each["kind"]: each for each in deployed()}
    assert set(added) == {"ServiceAccount", "Deployment", "Service"}
    assert added["ServiceAccount"]["automountServiceAccountToken"] is False
    pod = added["Deployment"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert [each for each in pod["volumes"] if "projected" in each] == []


def test_a_hub_without_a_certificate_is_refused_with_the_remedy() -> None:
    with pytest.raises(SystemExit, match=r"hub.tlsSecret is empty.*kubernetes.io/tls"):
        render(find_helm(os.environ), "hub.enabled=true")


async def test_the_hub_starts_with_the_arguments_of_its_deployment_and_ends_when_told(
    cluster: Cluster, tmp_path: Path
) -> None:
    [deployment] = [each for each in deployed() if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    paths = {f"--certificate=/etc/{container['command'][0]}": f"--certificate={tmp_path}"}
    arguments = [paths.get(each, each).replace("8443", "0") for each in container["args"]]
    assert f"--certificate={tmp_path}" in arguments
    write_pair(tmp_path, "hub")
    server = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(server["certificate-authority-data"])
    (tmp_path / "ca.crt").write_bytes(authority)
    environment = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(cluster.port),
    }
    main = MAIN.format(folder=str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", main, *arguments, env=environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        url = line.strip().partition(" at ")[2].replace("0.0.0.0", "127.0.0.1")
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(ssl=False)) as http:
            async with http.get("/healthz") as answer:
                assert answer.status == 200
            async with http.get("/status", headers={"Authorization": "Bearer x"}) as answer:
                assert answer.status == 401
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

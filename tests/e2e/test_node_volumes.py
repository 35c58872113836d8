"""Uses volume claims of members on a real node: a member's data outlives its pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from elasticjob_api.meta import Json

from tests.support.e2e import images
from tests.support.e2e.real_node import plain_job
from tests.support.e2e.sandbox import Sandbox
from tests.support.wait import until

pytestmark = pytest.mark.real_node
SECONDS = 120.0


@contextmanager
def volumes(sandbox: Sandbox, folder: Path, count: int) -> Iterator[str]:
    """Create volumes, each a folder of the node, and return their storage class."""
    of_class = {"storageClassName": sandbox.namespace, "accessModes": ["ReadWriteOnce"]}
    made: list[Json] = []
    for number in range(count):
        path = folder / f"volume-{number}"
        path.mkdir()
        path.chmod(0o777)
        made.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{sandbox.namespace}-{number}"},
                "spec": {
                    **of_class,
                    "capacity": {"storage": "1Mi"},
                    "hostPath": {"path": str(path)},
                },
            }
        )
    sandbox.apply(*made)
    try:
        yield sandbox.namespace
    finally:
        sandbox.kubectl(
            "delete", "pv", "--wait=false", *(volume["metadata"]["name"] for volume in made)
        )


@pytest.mark.guarantee("volume-claims-of-members")
async def test_a_member_finds_its_own_data_again_when_its_pod_is_replaced(
    sandbox: Sandbox, folder: Path
) -> None:
    script = """
        found=$(cat /data/mine)
        hostname > /data/mine
        echo "$(hostname) found $found"
        until [ -e /data/end ]; do sleep 0.1; done
    """
    made = plain_job(images.PLAIN, ["sh", "-c", script])
    worker = made["spec"]["replicaSpecs"]["worker"]
    [container] = worker["template"]["spec"]["containers"]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    with volumes(sandbox, folder, 2) as storage_class:
        claim: Json = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}
        claim["resources"] = {"requests": {"storage": "1Mi"}}
        worker["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
        sandbox.apply(made)
        logs = partial(sandbox.kubectl, "logs", "plain-worker-0", "-c", "train", check=False)
        await until(
            "the first pod at work", logs, lambda text: "worker-0 found" in text, seconds=SECONDS
        )
        sandbox.kubectl("delete", "pod", "plain-worker-0")
        successor = partial(sandbox.kubectl, "logs", "plain-worker-0-1", "-c", "train", check=False)
        await until(
            "its successor at work",
            successor,
            lambda text: "worker-0 found worker-0" in text,
            seconds=SECONDS,
        )
        for mine in folder.glob("volume-*/"):
            (mine / "end").touch()
        sandbox.kubectl(
            "wait", "--for=jsonpath={.status.phase}=Succeeded", "ej/plain", "--timeout=120s"
        )
        owners = sorted((mine / "mine").read_text().strip() for mine in folder.glob("volume-*/"))
    assert owners == ["worker-0", "worker-1"], "two members have had the same volume"

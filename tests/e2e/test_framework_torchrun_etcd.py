"""Runs torchruns that rendezvous in etcd, from a Framework of FrameworkController."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from elasticjob_localcluster.controlplane.ports import free_port

from tests.support.convert import sample
from tests.support.e2e import pytorch_job
from tests.support.e2e.converted import create_converted, set_environment
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.framework_python import installed_by

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("PyTorch and etcd are those of this machine"),
]

SECONDS = 240.0
SCRIPT = Path(__file__).parents[1] / "support" / "e2e" / "torch_elastic_training.py"


@pytest.fixture(scope="session")
def programs() -> Path:
    """Return a folder with etcd, and with a Python that has PyTorch and python-etcd."""
    return Path(installed_by("torch_etcd_env"), "bin")


def test_torchruns_with_etcd_continue_when_the_converted_framework_is_scaled(
    sandbox: Sandbox, folder: Path, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    service, framework = sample("framework_controller/torch-elastic.yaml")
    store, worker = framework["spec"]["taskRoles"]
    address = f"127.0.0.1:{free_port()}"  # this cluster has no DNS for the Service's name
    (container,) = store["task"]["pod"]["spec"]["containers"]
    data = tmp_path_factory.mktemp("etcd")
    container["command"][-1] = _replaced(
        container["command"][-1],
        ("etcd ", f"exec {programs}/etcd --enable-v2 --listen-peer-urls http://127.0.0.1:0 "),
        ("/var/lib/etcd", str(data)),
        ("http://0.0.0.0:2379", f"http://{address} --advertise-client-urls http://{address}"),
    )
    worker["taskNumber"] = worker["frameworkAttemptCompletionPolicy"]["minSucceededTaskCount"] = 2
    pod = worker["task"]["pod"]["spec"]
    del pod["volumes"]
    (container,) = pod["containers"]
    # This machine has neither a GPU nor volumes in memory.
    del container["volumeMounts"]
    del container["resources"]
    logs = tmp_path_factory.mktemp("torchrun")
    # TorchElastic's own starter allows the same number of restarts by default.
    torchrun = [*pytorch_job.torchrun(str(programs / "python"), logs), "--max_restarts=3"]
    container["args"][0] = _replaced(
        container["args"][0],
        ("python -m torchelastic.distributed.launch", f"exec {shlex.join(torchrun)}"),
        ("${FC_FRAMEWORK_NAME}-etcd:2379", address),
        ("main.py", f"{SCRIPT} {folder}"),
    )
    set_environment(container, GLOO_SOCKET_IFNAME="lo")
    create_converted(sandbox, service, framework)
    user = KubectlUser(sandbox, "pet", folder)
    user.until("a step of both", lambda: len(_firsts(folder, "2")) == 2, seconds=SECONDS)
    selected = ",".join(f"{label}={value}" for label, value in service["spec"]["selector"].items())
    assert user.kubectl("get", "pods", "-l", selected, "-o", "name").split() == ["pod/pet-etcd-0"]
    user.kubectl("scale", "ej/pet", "--replicas=3")
    user.until("a step of all three", lambda: len(_firsts(folder, "3")) == 3, seconds=SECONDS)
    user.kubectl("scale", "ej/pet", "--replicas=2")
    user.until(
        "a step of the two that are left", lambda: len(_firsts(folder, "2")) == 4, seconds=SECONDS
    )
    (folder / "finish").touch()
    user.wait("ej/pet", ".status.phase", "Succeeded")
    assert _tasks(folder, "end") == {"0", "1"}
    begun, of_two = sorted(set(_firsts(folder, "2")))
    (of_three,) = set(_firsts(folder, "3"))
    assert 0 == begun < of_three < of_two, "each world continues from its predecessor's step"
    user.until(
        "the end of etcd", lambda: "pet-etcd" not in user.kubectl("get", "pods", "-o", "name")
    )


def _lines(folder: Path) -> list[tuple[str, str, str]]:
    """Return task, world size and first step of each world, or task, `end` and last step."""
    path = folder / "worlds"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(task, what, step) for task, what, step in (line.split() for line in lines)]


def _firsts(folder: Path, size: str) -> list[int]:
    """Return the first step of each process in the worlds of a size."""
    return [int(step) for _, found, step in _lines(folder) if found == size]


def _tasks(folder: Path, what: str) -> set[str]:
    return {task for task, found, _ in _lines(folder) if found == what}


def _replaced(text: str, *pairs: tuple[str, str]) -> str:
    """Replace parts of a command, all of which must exist."""
    for old, new in pairs:
        assert old in text, (old, text)
        text = text.replace(old, new, 1)
    return text

"""Brings the agent into images without it: one without Python, and one with a static program."""

from __future__ import annotations

import re
from functools import partial

import pytest
from elasticjob_api import names
from elasticjob_cli.dev.observer import JobObserver

from tests.support.e2e import images
from tests.support.e2e.real_node import plain_job
from tests.support.e2e.sandbox import Sandbox
from tests.support.wait import until

SECONDS = 120.0
PROGRAMS = f"{names.AGENT_DIRECTORY}/agent/bin"
NO_IMAGE_VOLUMES = "needs nodes whose runtime mounts images: containerd 2.1 or newer"
ANYBODY = {
    "runAsNonRoot": True,
    "runAsUser": 12345,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""The security context of a container that runs as any user, on a read-only disk."""


def mounts_images(sandbox: Sandbox) -> bool:
    """Return whether the runtimes of all nodes are containerd 2.1 or newer."""
    path = "jsonpath={.items[*].status.nodeInfo.containerRuntimeVersion}"
    runtimes = sandbox.kubectl("get", "nodes", "-o", path).split()
    versions = [re.match(r"containerd://(\d+)\.(\d+)", runtime) for runtime in runtimes]
    return all(found and tuple(map(int, found.groups())) >= (2, 1) for found in versions)


async def succeeded(sandbox: Sandbox, observer: JobObserver) -> list[str]:
    """Wait for success; return the workers' output."""
    try:
        done = "the job's success"
        await observer.until(
            done,
            lambda: bool(observer.job and observer.job.status.phase == "Succeeded"),
            seconds=SECONDS,
        )
    finally:
        sandbox.kubectl("describe", "pods", check=False)
        logs = [
            sandbox.kubectl("logs", f"plain-worker-{index}", "-c", "train", check=False)
            for index in (0, 1)
        ]
    return logs


@pytest.mark.thorough
@pytest.mark.parametrize("agent", [{}, {"source": "ImageVolume"}], ids=["default", "image volume"])
async def test_a_job_gets_the_agent(sandbox: Sandbox, agent: dict[str, str]) -> None:
    if agent and sandbox.cluster.real and not mounts_images(sandbox):
        pytest.skip(NO_IMAGE_VOLUMES)
    made = plain_job(
        images.PLAIN, ["sh", "-c", "echo rank=$ELASTICJOB_RANK/$ELASTICJOB_WORLD_SIZE"]
    )
    made["spec"]["agent"] = agent
    sandbox.apply(made)
    async with sandbox.observe("plain") as observer:
        logs = await succeeded(sandbox, observer)
    assert sorted(line for log in logs for line in log.split() if line.startswith("rank=")) == [
        "rank=0/2",
        "rank=1/2",
    ]


@pytest.mark.guarantee("image-without-python")
@pytest.mark.real_node
async def test_a_job_without_python_in_its_image_succeeds_with_the_images_environment(
    sandbox: Sandbox,
) -> None:
    script = f"""
        if command -v python python3; then exit 9; fi
        until hosts=$({PROGRAMS}/discover_hosts) && [ "$(echo "$hosts" | wc -l)" = 2 ]
        do sleep 0.1; done
        echo "$hosts"
        echo rank=$ELASTICJOB_RANK/$ELASTICJOB_WORLD_SIZE
        unset ELASTICJOB_CA
        env | grep -v -e '^ELASTICJOB_' -e '_PORT' -e '_SERVICE_'
        until [ -e /end ]; do sleep 0.1; done
    """
    sandbox.apply(plain_job(images.PLAIN, ["sh", "-c", script]))
    async with sandbox.observe("plain") as observer:
        for name in ("plain-worker-0", "plain-worker-1"):  # an ended member is not a host any more
            printed = partial(sandbox.kubectl, "logs", name, "-c", "train", check=False)
            await until(
                f"{name} has found both hosts",
                printed,
                lambda text: "rank=" in text,
                seconds=SECONDS,
            )
        for name in ("plain-worker-0", "plain-worker-1"):
            sandbox.kubectl("exec", name, "-c", "train", "--", "sh", "-c", ": > /end")
        logs = await succeeded(sandbox, observer)
        quality = sandbox.kubectl(
            "get", "pods", "-l", f"{names.LABEL_ROLE}=worker", "-o", "jsonpath={..qosClass}"
        )
    assert quality.split() == ["Guaranteed", "Guaranteed"], (
        "the init container has changed the pod's class"
    )
    assert {line for log in logs for line in log.split() if line.startswith("rank=")} == {
        "rank=0/2",
        "rank=1/2",
    }
    for log in logs:
        assert {"plain-worker-0:1", "plain-worker-1:1"} <= set(log.split())
        lines = log.rpartition("rank=")[2].split()[1:]
        given = {line.partition("=")[0] for line in lines if "=" in line}
        container = {"HOME", "HOSTNAME", "PATH", "LD_PRELOAD", "MINE"}
        shells = {"PWD", "SHLVL", "OLDPWD", "_"}
        assert container <= given <= container | shells | {"PYTHONPATH"}, (
            "the training's environment is not its image's"
        )
        assert "LD_PRELOAD=/not/there.so" in lines


@pytest.mark.guarantee("image-without-python")
@pytest.mark.real_node
async def test_an_image_with_one_static_program_trains_as_any_user_on_a_read_only_disk(
    sandbox: Sandbox,
) -> None:
    made = plain_job(images.EMPTY, ["/pause"])
    worker = made["spec"]["replicaSpecs"]["worker"]
    worker["template"]["spec"]["containers"][0]["securityContext"] = ANYBODY
    sandbox.apply(made)
    sandbox.kubectl(
        "wait",
        "--for=jsonpath={.status.replicaStatuses.worker.ready}=2",
        "ej/plain",
        "--timeout=120s",
    )
    sandbox.kubectl(
        "patch", "ej/plain", "--type=merge", "-p", '{"spec": {"runPolicy": {"suspend": true}}}'
    )
    sandbox.kubectl(
        "wait", "--for=jsonpath={.status.phase}=Suspended", "ej/plain", "--timeout=120s"
    )
    sandbox.kubectl(
        "wait", "--for=delete", "pod", "-l", f"{names.LABEL_ROLE}=worker", "--timeout=60s"
    )


@pytest.mark.guarantee("image-without-python")
@pytest.mark.real_node
async def test_the_agents_mounted_image_runs_in_any_image_as_any_user_on_a_read_only_disk(
    sandbox: Sandbox,
) -> None:
    if not mounts_images(sandbox):
        pytest.skip(NO_IMAGE_VOLUMES)
    script = """
        if command -v python python3; then exit 9; fi
        find /elasticjob/ -type f -perm /6000 2>/dev/null
        echo rank=$ELASTICJOB_RANK/$ELASTICJOB_WORLD_SIZE
    """
    made = plain_job(images.PLAIN, ["sh", "-c", script])
    made["spec"]["agent"] = {"source": "ImageVolume"}
    worker = made["spec"]["replicaSpecs"]["worker"]
    worker["template"]["spec"]["containers"][0]["securityContext"] = ANYBODY
    sandbox.apply(made)
    async with sandbox.observe("plain") as observer:
        logs = await succeeded(sandbox, observer)
    # The mounted image has no program with the rights of another user.
    assert not any("/elasticjob/" in log for log in logs), logs
    assert sorted(log.splitlines()[-1] for log in logs) == ["rank=0/2", "rank=1/2"]


@pytest.mark.guarantee("pods-that-cannot-start")
@pytest.mark.real_node
async def test_a_job_on_a_runtime_that_mounts_no_images_waits_and_says_what_to_set(
    sandbox: Sandbox,
) -> None:
    if mounts_images(sandbox):
        pytest.skip("needs a node whose runtime mounts no images: containerd before 2.1")
    made = plain_job(images.PLAIN, ["true"])
    made["spec"]["agent"] = {"source": "ImageVolume"}
    sandbox.apply(made)
    async with sandbox.observe("plain") as observer:
        await observer.until(
            "the cause and the remedy in the job's message",
            lambda: bool(
                observer.job
                and "CreateContainerError" in observer.job.status.message
                and "submit the job again with InitContainer" in observer.job.status.message
            ),
            seconds=SECONDS,
        )


@pytest.mark.real_node
async def test_any_python_of_a_command_finds_the_training_library(
    sandbox: Sandbox,
) -> None:
    script = (
        "import elasticjob, sys; world = elasticjob.world();"
        "elasticjob.report_step(1, total=1); elasticjob.barrier('there');"
        "print(f'rank={world.rank}/{world.size}', elasticjob.__file__)"
    )
    sandbox.apply(plain_job(images.EMPTY, [f"{PROGRAMS}/python3", "-c", script]))
    async with sandbox.observe("plain") as observer:
        logs = await succeeded(sandbox, observer)
    found = f"{names.AGENT_DIRECTORY}/agent/library/elasticjob/__init__.py"
    # An agent that starts before its master has logged that in its first lines.
    last = sorted(log.splitlines()[-1] for log in logs)
    assert last == [f"rank=0/2 {found}", f"rank=1/2 {found}"]


@pytest.mark.real_node
async def test_a_launchers_script_finds_the_host_files_as_any_user_on_a_read_only_disk(
    sandbox: Sandbox,
) -> None:
    script = """
        until [ "$(wc -l < /etc/edl/hostfile)" = 2 ]; do sleep 0.1; done
        cat /etc/edl/hostfile /etc/edl/deepspeed-hostfile
        /etc/edl/discover_hosts.sh
    """
    made = plain_job(images.PLAIN, ["sh", "-c", script])
    worker = made["spec"]["replicaSpecs"]["worker"]
    [container] = worker["template"]["spec"]["containers"]
    launcher = {**container, "securityContext": ANYBODY}
    made["spec"]["framework"] = "horovod"
    made["spec"]["replicaSpecs"]["launcher"] = {"template": {"spec": {"containers": [launcher]}}}
    del container["command"]
    sandbox.apply(made)
    sandbox.kubectl(
        "wait", "--for=jsonpath={.status.phase}=Succeeded", "ej/plain", "--timeout=120s"
    )
    lines = sandbox.kubectl("logs", "plain-launcher-0", "-c", "train").splitlines()
    hosts = [line.removesuffix(":1") for line in lines[-6:-4]]
    # The member that joined first is the first line.
    assert sorted(hosts) == ["plain-worker-0", "plain-worker-1"]
    slots = [f"{host}:1" for host in hosts]
    assert lines[-6:] == [*slots, *(f"{host} slots=1" for host in hosts), *slots]

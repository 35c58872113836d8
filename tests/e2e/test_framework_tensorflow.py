"""Scales real TensorFlow jobs while they train: the examples, on the embedded cluster."""

from __future__ import annotations

import itertools
import json
import re
import signal
from pathlib import Path

import pytest
from elasticjob_api.meta import Json
from elasticjob_cli.dev.observer import JobObserver

from tests.support.changing_job import check_one_model
from tests.support.convert import sample
from tests.support.e2e.converted import create_converted
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.parameter_servers import SECONDS, example_job, succeeds_with, trains
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.trial import Trial, check_worlds
from tests.support.framework_python import installed_by
from tests.support.local_job import LocalJob

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("TensorFlow is installed on this machine and not in an image"),
]

NAME = "digits-tensorflow"
MIRRORED = "digits-mirrored"
STEPS = 3000
EPOCHS = 300
BETWEEN_GRAPH = Path(__file__).parents[1] / "support" / "e2e" / "between_graph_training.py"
ENDLESS = 10**9
STEPS_PER_EPOCH = 12
BATCH = 125
CHECKPOINT_STEPS = 100
"""The steps of the example with MultiWorkerMirroredStrategy."""


@pytest.fixture(scope="session")
def python() -> str:
    """Return a Python with TensorFlow; `make e2e FRAMEWORK=tensorflow` installs it."""
    return installed_by("tensorflow_env")


def job(python: str, folder: Path, *, manifest: str, script: str, **variables: int) -> Json:
    made = example_job(
        python,
        folder,
        manifest=f"tensorflow/{manifest}",
        script=f"tensorflow/{script}",
        variables={name: str(value) for name, value in variables.items()},
    )
    made["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}  # the test reads its log at the end
    return made


@pytest.mark.guarantee("kept-processes")
async def test_workers_join_and_leave_without_losing_a_step_and_the_server_continues(
    sandbox: Sandbox, folder: Path, python: str
) -> None:
    sandbox.apply(
        job(python, folder, manifest="parameter-servers.yaml", script="train.py", STEPS=STEPS)
    )
    async with sandbox.observe(NAME) as observer:
        step = await trains(observer, 2)
        (server,) = (pod for pod in observer.pods if "-ps-" in pod)
        process = sandbox.processes(server)[-1]
        sandbox.kubectl("scale", "ej", NAME, "--replicas=3")
        step = await trains(observer, 3, beyond=step)
        assert sandbox.processes(server)[-1].pid == process.pid, (
            "a worker more restarts no parameter server"
        )
        sandbox.kubectl("scale", "ej", NAME, "--replicas=1")
        step = await trains(observer, 1, beyond=step)
        assert sandbox.processes(server)[-1].pid == process.pid
        sandbox.processes(f"{NAME}-master")[0].send_signal(signal.SIGKILL)
        await trains(observer, 1, beyond=step)
        progress = await succeeds_with(observer, "steps_done")
        assert progress.metrics["steps_done"] == progress.step == STEPS, (
            "every step is in the variables, and once"
        )
        assert progress.metrics["accuracy"] > 0.9


async def test_mirrored_workers_train_through_resizes_and_killed_processes(
    sandbox: Sandbox, folder: Path, python: str
) -> None:
    sandbox.apply(
        job(python, folder, manifest="mirrored.yaml", script="mirrored/train.py", EPOCHS=EPOCHS)
    )
    async with sandbox.observe(MIRRORED) as observer:
        trial = Trial(sandbox, observer, MIRRORED, python)
        await trial.trains_through_changes()
        log = trial.log()  # the log of a pod that is replaced
        trial.kill_process(rank=1)
        await trial.timed("kill -9 of a process to next step", 2)
        await trial.succeeds()
        log += trial.log()
    check_worlds(log, [2, 3, 2], checkpoint_steps=CHECKPOINT_STEPS)
    ((steps, samples, accuracy),) = set(
        re.findall(r"finished: (\d+) steps, (\d+) samples, accuracy ([\d.]+)", log)
    )
    assert (int(steps), int(samples)) == (
        EPOCHS * STEPS_PER_EPOCH,
        EPOCHS * STEPS_PER_EPOCH * BATCH,
    ), log
    assert float(accuracy) > 0.9, log


@pytest.mark.guarantee("shared-network-stack")
async def test_two_jobs_with_the_same_roles_train_at_the_same_time(
    sandbox: Sandbox, folder: Path, python: str
) -> None:
    for name in ("one", "other"):
        made = job(
            python,
            folder,
            manifest="mirrored.yaml",
            script="mirrored/train.py",
            EPOCHS=100 * EPOCHS,
        )
        made["metadata"]["name"] = name
        sandbox.apply(made)
    async with sandbox.observe("one") as one, sandbox.observe("other") as other:
        for observer, name in ((one, "one"), (other, "other")):
            await Trial(sandbox, observer, name, python).trains(2, beyond=1)
        for observer in (one, other):
            assert observer.job is not None
            assert not observer.job.status.replica_statuses["worker"].restarts


@pytest.mark.guarantee("tensorflow-without-chief")
async def test_a_converted_job_of_dl_operator_continues_with_another_worker(
    sandbox: Sandbox, folder: Path, python: str
) -> None:
    (tf_job,) = sample("dl_operator/tfjob.yaml")
    for replicas in tf_job["spec"]:
        (container,) = replicas["template"]["spec"]["containers"]
        container["command"] = [python, str(BETWEEN_GRAPH), str(folder), str(ENDLESS)]
    create_converted(sandbox, tf_job)
    async with sandbox.observe("tf01") as observer:
        await all_train(observer, folder, 2)
        sandbox.kubectl("scale", "ej", "tf01", "--replicas=3")
        await all_train(observer, folder, 3)
        (folder / "finish").touch()
        await succeeds(observer)
    check_account(folder, [2, 3])
    ended = {path.name: path.read_text() for path in folder.glob("ended-*")}
    assert ended.keys() == {"ended-0", "ended-1", "ended-2"}
    assert all(text.startswith("3 workers") for text in ended.values()), ended


async def all_train(observer: JobObserver, folder: Path, workers: int) -> None:
    """Wait until each worker of a world of this size has trained a step."""
    files = [folder / f"{workers}-workers-worker-{index}-trains" for index in range(workers)]
    await observer.until(
        f"a step of each of {workers} workers",
        lambda: all(file.exists() for file in files),
        seconds=SECONDS,
    )


async def succeeds(observer: JobObserver) -> None:
    """Wait until the job has succeeded."""
    await observer.until(
        "the job's success",
        lambda: observer.job and observer.job.status.phase == "Succeeded",
        seconds=SECONDS,
    )


@pytest.mark.parametrize("chief", [False, True], ids=["no chief", "chief"])
async def test_a_converted_job_of_dlrover_continues_when_its_plan_scales_it(
    sandbox: Sandbox, folder: Path, python: str, chief: bool
) -> None:
    elastic_job, plan = sample("dlrover/parameter-servers.yaml")
    spec = elastic_job["spec"]
    spec["optimizeMode"] = "manual"
    roles = {
        name: group for name, group in spec["replicaSpecs"].items() if name != "dlrover-master"
    }
    roles["evaluator"] = json.loads(json.dumps(roles["worker"]))
    if chief:
        roles["chief"] = json.loads(json.dumps(roles["worker"]))
    for group in roles.values():
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        container["command"][-1] = f"exec {python} {BETWEEN_GRAPH} {folder} {ENDLESS}"
        container["volumeMounts"] = [{"name": "pvc-nas", "mountPath": str(folder)}]
        pod["volumes"] = [{"name": "pvc-nas", "hostPath": {"path": str(folder)}}]
    spec["replicaSpecs"].update(roles)
    plan["spec"]["migratePods"][0]["resource"]["cpu"] = "1"  # this machine is small
    name = elastic_job["metadata"]["name"]
    create_converted(sandbox, elastic_job)
    async with sandbox.observe(name) as observer:
        await all_train(observer, folder, 1)
        create_converted(sandbox, plan)
        await all_train(observer, folder, 2)
        user = KubectlUser(sandbox, name)
        user.wait(f"sp/{plan['metadata']['name']}", ".status.phase", "Succeeded")
        (folder / "finish").touch()
        await succeeds(observer)
    check_account(folder, [1, 2], chief=chief)
    evaluated = (folder / "evaluated").read_text()
    assert evaluated.startswith("step ")


def check_account(folder: Path, sizes: list[int], *, chief: bool = False) -> int:
    """Check that exactly the worlds of these sizes have trained.

    Each world begins at its predecessor's last step, and trains each step once. A chief saves
    before the workers stop, so their last steps are repeated. Returns the last saved step.
    """
    lines = [json.loads(line) for line in (folder / "account").read_text().splitlines()]
    rounds = sorted({line["round"] for line in lines})
    of_worlds = [[line for line in lines if line["round"] == number] for number in rounds]
    trained = [size for size, _ in itertools.groupby(world[0]["workers"] for world in of_worlds)]
    assert trained == sizes, lines
    step = 0
    for world in of_worlds:
        (saved,) = [line["saved"] for line in world if line["saved"] is not None]
        assert min(line["first"] for line in world) == step, lines
        assert chief or saved == step + sum(line["own"] for line in world), lines
        step = saved
    return step


def test_a_converted_job_of_dl_operator_trains_with_the_static_cluster_of_its_tf_config(
    sandbox: Sandbox, folder: Path, python: str
) -> None:
    (tf_job,) = sample("dl_operator/tfjob.yaml")
    for replicas in tf_job["spec"]:
        (container,) = replicas["template"]["spec"]["containers"]
        container["command"] = [python, str(BETWEEN_GRAPH), str(folder), "500"]
    create_converted(sandbox, tf_job)
    user = KubectlUser(sandbox, "tf01", folder)
    user.until(
        "the job's success", lambda: user.status().get("phase") == "Succeeded", seconds=SECONDS
    )
    ended = {path.name: path.read_text() for path in folder.glob("ended-*")}
    assert ended.keys() == {"ended-0", "ended-1"}
    assert all(
        text.startswith("2 workers") and text.endswith("weight 3.0") for text in ended.values()
    ), ended
    saved = check_account(folder, [2])
    # A worker ends when it sees that all together have trained 500 steps. Other workers may train
    # some more before they see it.
    assert 500 <= saved < 510, ended


@pytest.mark.guarantee("one-world")
def test_processes_train_one_model_as_a_single_process_would(
    local_job: LocalJob, python: str
) -> None:
    check_one_model(local_job, "tensorflow", python)

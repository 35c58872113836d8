"""The whole system at work: real control plane, operator, master, agents and training."""

from __future__ import annotations

import signal
from pathlib import Path

from elasticjob_api.v1 import job_pb2
from elasticjob_cli.demo.observer import JobObserver

from tests.support.e2e.stage import Stage, digits

SECONDS = 180.0


async def training(seen: JobObserver, size: int, *, beyond: int = 0) -> int:
    """Wait for a training world of this size to get beyond a step; return the step."""

    def at_work() -> int | None:
        status = seen.status
        formed = status.world_size == size and status.phase == job_pb2.JOB_PHASE_TRAINING
        return status.progress.step if formed and status.progress.step > beyond else None

    return await seen.until(f"a training world of {size} beyond step {beyond}", at_work, seconds=SECONDS)


async def succeeded(seen: JobObserver) -> None:
    """Wait for the job's success and the master's last word."""

    def over() -> bool:
        job = seen.job
        progress = job.status.progress if job and job.status.phase == "Succeeded" else None
        return bool(progress and "accuracy" in progress.metrics)

    await seen.until("the job's success", over, seconds=SECONDS)
    await seen.until("the master to be gone", lambda: not seen.pods, seconds=SECONDS)


async def test_training_goes_on_through_kill_9_of_the_operator_and_of_the_master(stage: Stage, folder: Path) -> None:
    stage.apply(digits(epochs=100, checkpoints=folder))
    async with stage.observe("digits") as seen:
        step = await training(seen, 2)
        stage.operator.kill()
        step = await training(seen, 2, beyond=step)
        master = stage.processes("digits-master")[0]
        master.send_signal(signal.SIGKILL)
        stage.operator.start()
        starts = seen.status.master_starts
        await seen.until("a new master", lambda: seen.status.master_starts > starts, seconds=SECONDS)
        assert seen.status.round == 1, "the world was formed anew although only the master had gone"
        await training(seen, 2, beyond=step)
        await succeeded(seen)
        assert seen.job is not None
        progress = seen.job.status.progress
        assert progress is not None
        assert progress.step == progress.total_steps, "a step was lost or done twice"
        assert progress.metrics["accuracy"] >= 0.95
        total = progress.total_steps
        await seen.until("every shard done", lambda: [d.done for d in seen.status.datasets] == [total], seconds=30)


async def test_a_killed_worker_is_replaced_under_its_index_by_a_new_name_and_training_goes_on(
    stage: Stage, folder: Path
) -> None:
    stage.apply(digits(epochs=60, checkpoints=folder))
    async with stage.observe("digits") as seen:
        step = await training(seen, 2)
        stage.kubectl("delete", "pod", "digits-worker-1", "--grace-period=0", "--force")
        await seen.until("a new incarnation", lambda: "digits-worker-1-1" in seen.pods, seconds=SECONDS)
        await training(seen, 2, beyond=step)
        await succeeded(seen)
        assert seen.job is not None
        assert seen.job.status.replica_statuses["worker"].restarts == 0, "a deletion is not a failure"


async def test_deleting_a_job_in_the_middle_of_training_leaves_no_object_behind(stage: Stage, folder: Path) -> None:
    kinds = "ej,sp,scalein,scaleout,pods,services,secrets,configmaps,serviceaccounts,roles,rolebindings,endpointslices"
    before = set(stage.kubectl("get", kinds, "-o", "name").split())
    stage.apply(digits(epochs=1000, checkpoints=folder))
    async with stage.observe("digits") as seen:
        await training(seen, 2)
        stage.apply(
            {
                "apiVersion": "elasticjob.dev/v1alpha1",
                "kind": "ScaleOut",
                "metadata": {"name": "more"},
                "spec": {"jobName": "digits", "count": 1},
            }
        )
        await training(seen, 3)
        stage.kubectl("delete", "ej", "digits")
        await seen.until("all pods gone", lambda: not seen.pods, seconds=SECONDS)
        stage.kubectl("wait", "--for=delete", "scaleout/more", "--timeout=60s")
        stage.kubectl("wait", "--for=delete", "sp", "--all", "--timeout=60s")
        for name in ("service/digits-master", "secret/digits-master", "configmap/digits-master-state"):
            stage.kubectl("wait", "--for=delete", name, "--timeout=60s")
        for name in (
            "role/digits-master",
            "rolebinding/digits-master",
            "serviceaccount/digits-master",
            "service/digits",
        ):
            stage.kubectl("wait", "--for=delete", name, "--timeout=60s")
    left = set(stage.kubectl("get", kinds, "-o", "name").split()) - before
    assert not {name for name in left if not name.startswith("endpointslice")}

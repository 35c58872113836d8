"""Runs the whole system: real control plane, operator, master, agents and training."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from elasticjob_api.v1 import job_pb2
from elasticjob_cli.dev.observer import JobObserver

from tests.support.e2e.sandbox import Sandbox, digits
from tests.support.wait import until

pytestmark = pytest.mark.thorough

SECONDS = 180.0


async def training(observer: JobObserver, size: int, *, beyond: int = 0) -> int:
    """Wait until a world of this size has trained beyond a step; return the last step."""

    def at_work() -> int | None:
        status = observer.status
        formed = status.world_size == size and status.phase == job_pb2.JOB_PHASE_TRAINING
        return status.progress.step if formed and status.progress.step > beyond else None

    return await observer.until(
        f"a training world of {size} beyond step {beyond}", at_work, seconds=SECONDS
    )


async def succeeded(observer: JobObserver) -> None:
    """Wait for the job's success and the master's last status."""

    def over() -> bool:
        job = observer.job
        progress = job.status.progress if job and job.status.phase == "Succeeded" else None
        return bool(progress and "accuracy" in progress.metrics)

    await observer.until("the job's success", over, seconds=SECONDS)
    await observer.until("the end of the master", lambda: not observer.pods, seconds=SECONDS)


@pytest.mark.guarantee("operator-can-be-killed", "master-can-be-replaced")
async def test_training_continues_through_kill_9_of_the_operator_and_the_master(
    sandbox: Sandbox, folder: Path
) -> None:
    sandbox.apply(digits(epochs=100, checkpoints=folder))
    async with sandbox.observe("digits") as observer:
        step = await training(observer, 2)
        sandbox.operator.kill()
        step = await training(observer, 2, beyond=step)
        starts = observer.status.master_starts
        master = sandbox.processes("digits-master")[0]
        master.send_signal(signal.SIGKILL)
        sandbox.operator.start()
        await observer.until(
            "a new master", lambda: observer.status.master_starts > starts, seconds=SECONDS
        )
        assert observer.status.round == 1, "a new world was formed although only the master ended"
        await training(observer, 2, beyond=step)
        await succeeded(observer)
        assert observer.job is not None
        progress = observer.job.status.progress
        assert progress is not None
        total = progress.total_steps

        # The master's last writes and messages come after the job's phase, and independently of the
        # end of its pod.
        def last_status_written() -> bool:
            last = observer.job.status.progress if observer.job else None
            return last is not None and last.step == total and last.metrics["accuracy"] >= 0.95

        await observer.until(
            f"step {total}, so that none was lost or done twice", last_status_written, seconds=30
        )
        await observer.until(
            "every shard done",
            lambda: [d.done for d in observer.status.datasets] == [total],
            seconds=30,
        )


@pytest.mark.guarantee("worker-deleted-evicted-preempted")
async def test_a_killed_worker_is_replaced_under_its_index_and_training_continues(
    sandbox: Sandbox, folder: Path
) -> None:
    sandbox.apply(digits(epochs=60, checkpoints=folder))
    async with sandbox.observe("digits") as observer:
        step = await training(observer, 2)
        sandbox.kubectl("delete", "pod", "digits-worker-1", "--grace-period=0", "--force")
        await observer.until(
            "a new incarnation", lambda: "digits-worker-1-1" in observer.pods, seconds=SECONDS
        )
        await training(observer, 2, beyond=step)
        await succeeded(observer)
        assert observer.job is not None
        assert observer.job.status.replica_statuses["worker"].restarts == 0, (
            "a deletion is not a failure"
        )


@pytest.mark.guarantee("job-deleted-midway")
async def test_deleting_a_job_during_training_leaves_no_object(
    sandbox: Sandbox, folder: Path
) -> None:
    kinds = (
        "ej,sp,scalein,scaleout,pods,services,secrets,configmaps,"
        "serviceaccounts,roles,rolebindings,endpointslices"
    )

    def present() -> set[str]:
        return set(sandbox.kubectl("get", kinds, "-o", "name").split())

    # Those two may appear a moment after their namespace.
    before = present() | {"serviceaccount/default", "configmap/kube-root-ca.crt"}
    sandbox.apply(digits(epochs=1000, checkpoints=folder))
    async with sandbox.observe("digits") as observer:
        await training(observer, 2)
        sandbox.apply(
            {
                "apiVersion": "elasticjob.dev/v1alpha1",
                "kind": "ScaleOut",
                "metadata": {"name": "more"},
                "spec": {"jobName": "digits", "count": 1},
            }
        )
        await training(observer, 3)
        sandbox.kubectl("delete", "ej", "digits")
        await observer.until("all pods gone", lambda: not observer.pods, seconds=SECONDS)
        # The garbage collector deletes the objects one by one, in any order.
        await until("nothing left", present, lambda found: found <= before)

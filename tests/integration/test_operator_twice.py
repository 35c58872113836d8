"""Runs two operators with different Leases: both at once, or one after the other."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_kube.resources import ELASTIC_JOBS, EVENTS, NAMESPACES, PODS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.operator_process import has_logged, job, operator
from tests.support.wait import until
from tests.support.warm_process import WarmProcess

pytestmark = [pytest.mark.thorough, pytest.mark.guarantee("two-installations")]

LONG = ("--lease-seconds", "3600")
REASON = "AnotherOperator"


@pytest.fixture
async def elsewhere(kube: Kube, namespace: str) -> AsyncIterator[str]:
    """Create a namespace for the Lease of the second operator."""
    name = f"{namespace}-lease"
    await kube.create(NAMESPACES, None, {"metadata": {"name": name}})
    yield name
    await kube.delete(NAMESPACES, None, name)


async def test_two_operators_with_different_leases_both_report_the_jobs_they_share(
    cluster: Cluster, kube: Kube, namespace: str, elsewhere: str, tmp_path: Path
) -> None:
    logs = [tmp_path / "first", tmp_path / "second"]
    leases = [f"{place}/{names.OPERATOR}" for place in (namespace, elsewhere)]
    start = partial(operator, cluster.kubeconfig, namespace)
    async with (
        start(logs[0], *LONG) as first,
        start(logs[1], *LONG, "--lease-namespace", elsewhere) as second,
    ):
        for log in logs:
            # A pod that an operator finds when it begins is its predecessor's.
            await until("both have begun", partial(has_logged, log, "everything is listed"))
        for number, (stopped, log) in enumerate(zip((first, second), logs, strict=True)):
            name = f"job-{number}"
            await _create_while_stopped(kube, namespace, stopped, name)
            other = leases[1 - number]
            text = f"{namespace}/{name}: the operator of Lease {other} has created pod"
            await until("it reports the other", partial(has_logged, log, text))
            assert await has_logged(log, f"the operator of Lease {leases[number]} works")
            # The other operator may report pods of this one, too.
            about_other = partial(_notes, kube, namespace, name, f"Lease {other} has created")
            assert len(await until("the event", about_other)) == 1


async def _create_while_stopped(
    kube: Kube, namespace: str, stopped: WarmProcess, name: str
) -> None:
    """Create a job while one operator does not run, so that the other one creates its first pod."""
    stopped.send_signal(signal.SIGSTOP)
    try:
        await kube.create(ELASTIC_JOBS, namespace, job(name))
        selector = f"{names.LABEL_JOB_NAME}={name}"

        async def pods() -> int:
            return len((await kube.list(PODS, namespace, label_selector=selector))["items"])

        await until("the other operator creates a pod", pods)
    finally:
        stopped.send_signal(signal.SIGCONT)


async def _notes(kube: Kube, namespace: str, name: str, text: str = "") -> list[str]:
    """Return the notes of a job's events about another operator that contain a text."""
    events = (await kube.list(EVENTS, namespace))["items"]
    return [
        event["note"]
        for event in events
        if event["reason"] == REASON and event["regarding"]["name"] == name
        if text in event["note"]
    ]

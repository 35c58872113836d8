"""Tests the nodes known at the operator's first decision, and kinds the cluster does not serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from elasticjob_kube.errors import KubeError, NotFound, Refused, TryLater
from elasticjob_kube.resources import KUEUE_FLAVORS, NODES
from elasticjob_operator import cluster_watches
from elasticjob_operator.cluster_watches import QuotaWatch
from elasticjob_operator.core.partitioning import Scope
from elasticjob_operator.store import Store

from tests.support.simulator.fake_kube import FakeKube
from tests.support.wait import until


class Lister(FakeKube):
    """An API server that answers the first lists with errors, and reports no changes."""

    def __init__(self, *errors: KubeError) -> None:
        super().__init__()
        self.errors = list(errors)
        self.lists = 0

    async def list(self, *arguments: Any, **options: Any) -> Any:
        self.lists += 1
        if self.errors:
            raise self.errors.pop(0)
        return await super().list(*arguments, **options)

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


@pytest.mark.parametrize(
    ("errors", "known"),
    [
        ((), True),
        ((TryLater(500, "", ""), TryLater(0, "", "")), True),
        ((Refused(403, "Forbidden", "no"),), False),
    ],
    ids=["listed", "listed after errors", "not allowed"],
)
async def test_a_new_operator_waits_for_the_nodes_unless_listing_them_is_refused(
    errors: tuple[KubeError, ...], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watches, "_RETRY_SECONDS", 0.0)
    kube = Lister(*errors)
    store = Store()
    answered = asyncio.Event()
    await kube.create(NODES, None, {"metadata": {"name": "n"}, "spec": {"unschedulable": True}})
    session: Any = kube
    watch = asyncio.create_task(
        cluster_watches.watch_nodes(session, store, lambda _: None, answered)
    )
    try:
        await until("an answer", answered.is_set)
        assert bool(store.nodes.leaving) == known
        assert kube.lists > len(errors) - (not known)
    finally:
        watch.cancel()


@pytest.mark.guarantee("kueue-not-installed")
async def test_missing_kinds_of_kueue_are_logged_once_and_watched_when_they_are_installed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(cluster_watches, "_RETRY_SECONDS", 0.0)
    kube = Lister(*[NotFound(404, "", "404 page not found\n")] * 20)
    store = Store()
    session: Any = kube
    quota = QuotaWatch(session, store, Scope(), lambda _: None)
    await quota.first()
    watches = [asyncio.create_task(work) for work in quota.tasks()]
    try:
        await until("it is looked for again and again", lambda: not kube.errors)
        await kube.create(KUEUE_FLAVORS, None, {"metadata": {"name": "fast"}, "spec": {}})
        await until(
            "both are watched",
            lambda: quota.workloads.synced.is_set() and quota._flavors.synced.is_set(),
        )
    finally:
        for watch in watches:
            watch.cancel()
    said = sorted(record.getMessage() for record in caplog.records)
    missing = "jobs with a queue of Kueue neither start nor grow: the cluster does not serve"
    kinds = ("resourceflavors.kueue.x-k8s.io", "workloads.kueue.x-k8s.io")
    assert said == [
        *(f"{missing} {kind}; trying again" for kind in kinds),
        *(f"{kind} can be listed now" for kind in kinds),
    ]

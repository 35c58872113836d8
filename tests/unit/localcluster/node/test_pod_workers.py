"""A pod that exists has a worker, whatever ended the one before: else its deletion never ends."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from elasticjob_localcluster.node import pod_workers
from elasticjob_localcluster.node.addresses import AddressPool
from elasticjob_localcluster.node.admission import ProcessUser
from elasticjob_localcluster.node.pod_model import Metadata, Pod
from elasticjob_localcluster.node.pod_workers import PodWorkers

from tests.support.wait import until


class Api:
    """The requests for one pod."""

    def __init__(self) -> None:
        self.deletions = 0
        self.errors: list[Exception] = []

    async def request(self, *_: Any, **__: Any) -> bytes:
        return b"{}"

    async def delete(self, *_: Any, **__: Any) -> None:
        self.deletions += 1
        if self.errors:
            raise self.errors.pop()


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def pods(api: Api, tmp_path: Path) -> PodWorkers:
    made = PodWorkers()
    context: Any = SimpleNamespace(
        directory=tmp_path,
        node_id="node",
        kube=api,
        user=ProcessUser(0, 0, frozenset({0})),
        addresses=AddressPool(),
    )
    made.start(context)
    return made


def deleted_pod(version: str) -> Pod:
    return Pod(
        Metadata(
            name="p",
            namespace="ns",
            uid="uid",
            resource_version=version,
            deletion_timestamp="2026-01-01T00:00:00Z",
        ),
        spec={"containers": [{"name": "main", "image": "any", "command": ["true"]}]},
    )


async def test_a_pod_that_reappears_while_its_worker_clears_up_is_deleted_after_all(
    api: Api, pods: PodWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored storage has pods whose deletion was confirmed."""
    clearing = threading.Event()
    cleared = threading.Event()

    def remove(path: Path, **_: Any) -> None:
        if path.name == "uid":
            clearing.set()
            assert cleared.wait(60)

    monkeypatch.setattr(shutil, "rmtree", remove)
    pods.on_pod_change(None, deleted_pod("7"))
    await until("the deletion is confirmed, and its folder is removed", clearing.is_set)
    pods.on_pod_change(deleted_pod("7"), None)
    pods.on_pod_change(None, deleted_pod("5"))
    cleared.set()
    await until("it is confirmed again", lambda: api.deletions == 2)
    await until("no worker is left", lambda: not pods.workers)


async def test_a_pod_whose_worker_ended_by_a_fault_is_deleted_after_all(
    api: Api, pods: PodWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_workers, "RETRY_SECONDS", 0.0)
    api.errors.append(OSError(24, "too many open files"))
    pods.on_pod_change(None, deleted_pod("7"))
    await until("it is tried again", lambda: api.deletions == 2)
    await until("no worker is left", lambda: not pods.workers)
    await asyncio.sleep(0)
    assert api.deletions == 2

"""Checks that a session notices connections that die without an error, and misses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import psutil
import pytest
import yaml
from elasticjob_api.meta import Json, ObjectMeta
from elasticjob_kube.errors import TryLater
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_kube.session import REQUEST_SECONDS, Kube, connect
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.controlplane.ports import free_port
from yarl import URL

from tests.support.tcp_proxy import CuttableProxy, cuttable_proxy
from tests.support.wait import until

WATCH_SECONDS = 3.0


class Thing(msgspec.Struct):
    """An object by its name."""

    metadata: ObjectMeta


@asynccontextmanager
async def session_through_proxy(
    cluster: Cluster, directory: Path
) -> AsyncIterator[tuple[CuttableProxy, Kube]]:
    """Open a session whose connections use a proxy, and whose watches are short."""
    port = free_port()
    config: Json = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = directory / "through-proxy.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    async with (
        cuttable_proxy("127.0.0.1", port, to=("127.0.0.1", cluster.port)) as proxy,
        connect(user_agent="test", kubeconfig=path, watch_seconds=WATCH_SECONDS) as session,
    ):
        yield proxy, session


@pytest.mark.guarantee("silent-connection")
@pytest.mark.thorough
async def test_a_silent_watch_is_replaced_and_nothing_is_missed(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    names: set[str] = set()

    def changed(before: Thing | None, after: Thing | None) -> None:
        if before is None or after is None:
            thing = after or before
            assert thing is not None
            names.symmetric_difference_update({thing.metadata.name})

    async with session_through_proxy(cluster, tmp_path) as (proxy, session):
        informer: Informer[Thing] = Informer(
            session, CONFIG_MAPS, Thing, namespace=namespace, on_change=changed
        )
        running = asyncio.create_task(informer.run())
        try:
            await kube.create(CONFIG_MAPS, namespace, {"metadata": {"name": "first"}})
            await until("the watch works", lambda: "first" in names)
            proxy.freeze()
            await kube.create(CONFIG_MAPS, namespace, {"metadata": {"name": "made-in-silence"}})
            await kube.delete(CONFIG_MAPS, namespace, "first")
            await until(
                "the silent watch is read again",
                lambda: "made-in-silence" in names and "first" not in names,
            )
            proxy.cut()
            await kube.create(CONFIG_MAPS, namespace, {"metadata": {"name": "made-in-a-cut"}})
            proxy.freeze()  # new connections are forwarded, those from before the cut never again
            await until("the cut watch is read again", lambda: "made-in-a-cut" in names)
        finally:
            running.cancel()
            await asyncio.wait([running])


@pytest.mark.guarantee("silent-connection")
async def test_after_a_request_without_answer_none_waits_for_another_silent_connection(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with session_through_proxy(cluster, tmp_path) as (proxy, session):
        path = CONFIG_MAPS.path("default")
        await asyncio.gather(*(session.request("GET", path) for _ in range(5)))
        assert proxy.freeze() == 5
        with pytest.raises(TryLater, match="no answer"):
            await session.request("GET", path, seconds=0.5)
        await asyncio.wait_for(session.request("GET", path), REQUEST_SECONDS / 2)


async def test_a_closed_session_leaves_no_connection_to_a_silent_server(
    cluster: Cluster, tmp_path: Path
) -> None:
    def connections() -> list[object]:
        """Return this process's connections to the proxy."""
        return [
            each
            for each in psutil.Process().net_connections("tcp")
            if each.raddr and each.raddr.port == port
        ]

    async with session_through_proxy(cluster, tmp_path) as (proxy, other):
        port = URL(other.host).port
        kubeconfig = tmp_path / "through-proxy.kubeconfig"
        async with (
            connect(user_agent="test", kubeconfig=kubeconfig) as session,
            aclosing(session.watch(CONFIG_MAPS, "default", resource_version="0")) as events,
        ):
            await anext(events)
            assert len(connections()) == 1
            proxy.freeze()
        await until("the connection is closed", lambda: not connections(), seconds=10)

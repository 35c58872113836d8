"""Websockets into pods, for exec and port-forward.

The official client's, on the session that is open already. Of the well-kept libraries it is the one
that fits. kr8s has no exec with input or a terminal, and would be a second HTTP stack with its own
reading of kubeconfigs. The official client's threads (`kubernetes.stream`) are one for each
forwarded connection, and cannot be cancelled. Its asyncio half comes with every kubeconfig anyway,
and its `WsApiClient` takes the session: client certificates, tokens, plugins, proxies and
keep-alive are those of all other requests. The generated `CoreV1Api` is left out, as its import
takes half a second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import aiohttp

from elasticjob_kube.errors import KubeError, NoAccess, TryLater, error_from
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube

_UPGRADE_REQUIRED = 400
"""How the API server answers a plain request where a websocket would be opened."""


@asynccontextmanager
async def pod_socket(
    kube: Kube,
    namespace: str,
    pod: str,
    act: Literal["exec", "portforward"],
    query: Sequence[tuple[str, str]],
    protocol: str,
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Open a websocket to a pod's node.

    Args:
        kube: a session whose user may get and create pods/exec or pods/portforward.
        namespace: of the pod.
        pod: its name.
        act: what for.
        query: parameters of the request, such as the command.
        protocol: how messages are made, such as `v5.channel.k8s.io`.

    Raises:
        NoAccess: the official client is not installed.
        KubeError: the API server, or the node, refuses it.
    """
    path = PODS.path(namespace, pod, act)
    socket = await _opened(kube, path, query, protocol)
    async with socket:
        yield socket


async def _opened(
    kube: Kube, path: str, query: Sequence[tuple[str, str]], protocol: str
) -> aiohttp.ClientWebSocketResponse:
    try:
        from kubernetes.aio.client import (
            Configuration,
        )  # only here: the import takes a third of a second
        from kubernetes.aio.stream import WsApiClient
    except ModuleNotFoundError as error:
        raise NoAccess(
            "exec and port-forward need the official client: install elasticjob[cli]"
        ) from error
    client = WsApiClient(Configuration(host=kube.host))
    client.rest_client.pool_manager = kube.http
    # A kubelet answers 406 to who accepts JSON only.
    headers = {**await kube.headers(accept="*/*"), "sec-websocket-protocol": protocol}
    request = await client.request(
        "GET", kube.host + path, query_params=query, headers=headers, _preload_content=False
    )
    try:
        opened: aiohttp.ClientWebSocketResponse = await request
    except aiohttp.WSServerHandshakeError as error:
        await _say_why(kube, path, query)
        message = f"the pod's node refuses it with status {error.status}: does the container run?"
        raise error_from(max(error.status, 400), "", message) from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise TryLater(
            0, type(error).__name__, f"{path}: no answer: {error or type(error).__name__}"
        ) from error
    return opened


async def _say_why(kube: Kube, path: str, query: Sequence[tuple[str, str]]) -> None:
    """Raise the API server's reason against a websocket.

    A refused one has no text, a refused request has.
    """
    try:
        await kube.request("GET", path, params=dict(query))
    except KubeError as error:
        if error.status != _UPGRADE_REQUIRED:
            raise

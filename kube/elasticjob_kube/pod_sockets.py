"""Opens websockets into pods, for exec and port-forward, by the official client's `WsApiClient`.

`WsApiClient` accepts the HTTP session that is open already, so client certificates, tokens,
plugins, proxies and keep-alive are those of all other requests. The official client is installed
with every kubeconfig anyway. Its synchronous half (`kubernetes.stream`) needs a thread per
forwarded connection that cannot be cancelled. kr8s has no exec with input or a terminal. The
generated `CoreV1Api` is not used, as its import takes half a second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import aiohttp

from elasticjob_kube.answers import no_answer
from elasticjob_kube.errors import KubeError, NoAccess, error_from
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube

_UPGRADE_REQUIRED = 400
"""The API server's answer to a plain request for a path that opens a websocket."""


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
        act: the subresource.
        query: parameters of the request, such as the command.
        protocol: the format of the messages, such as `v5.channel.k8s.io`.

    Raises:
        NoAccess: the official client is not installed.
        KubeError: the API server or the node refuses it.
    """
    path = PODS.path(namespace, pod, act)
    socket = await _opened(kube, path, query, protocol)
    async with socket:
        yield socket


async def _opened(
    kube: Kube, path: str, query: Sequence[tuple[str, str]], protocol: str
) -> aiohttp.ClientWebSocketResponse:
    try:
        # Only here: the import takes a third of a second.
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.stream import WsApiClient
    except ModuleNotFoundError as error:
        raise NoAccess(
            "exec and port-forward need the official client: install elasticjob[cli]"
        ) from error
    client = WsApiClient(Configuration(host=kube.host))
    client.rest_client.pool_manager = kube.http
    # A kubelet answers 406 to a request that accepts only JSON.
    headers = {**await kube.headers(accept="*/*"), "sec-websocket-protocol": protocol}
    request = await client.request(
        "GET", kube.host + path, query_params=query, headers=headers, _preload_content=False
    )
    try:
        opened: aiohttp.ClientWebSocketResponse = await request
    except aiohttp.WSServerHandshakeError as error:
        await _raise_reason(kube, path, query)
        message = f"the pod's node refuses it with status {error.status}: does the container run?"
        raise error_from(max(error.status, 400), "", message) from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise no_answer("GET", path, error) from error
    return opened


async def _raise_reason(kube: Kube, path: str, query: Sequence[tuple[str, str]]) -> None:
    """Raise the API server's error for a refused websocket.

    The refused websocket has no text, so the same path is requested without one.
    """
    try:
        await kube.request("GET", path, params=dict(query))
    except KubeError as error:
        if error.status != _UPGRADE_REQUIRED:
            raise

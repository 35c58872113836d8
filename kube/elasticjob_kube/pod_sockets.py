"""Opens websockets into pods, for exec and port-forward.

They use the session's connections, so certificates, tokens, plugins and proxies are those of all
other requests. The official client has no exec and no port-forward that asyncio can cancel.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import aiohttp

from elasticjob_kube.answers import no_answer
from elasticjob_kube.errors import KubeError, error_from
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
        namespace: the namespace of the pod.
        pod: its name.
        act: the subresource.
        query: parameters of the request, such as the command.
        protocol: the format of the messages, such as `v5.channel.k8s.io`.

    Raises:
        KubeError: the API server or the node refuses it.
    """
    path = PODS.path(namespace, pod, act)
    socket = await _opened(kube, path, query, protocol)
    async with socket:
        yield socket


async def _opened(
    kube: Kube, path: str, query: Sequence[tuple[str, str]], protocol: str
) -> aiohttp.ClientWebSocketResponse:
    # A kubelet answers 406 to a request that accepts only JSON.
    headers = await kube.headers(accept="*/*")
    try:
        socket: aiohttp.ClientWebSocketResponse = await kube.http.ws_connect(
            kube.host + path, headers=headers, params=query, protocols=(protocol,)
        )
        return socket
    except aiohttp.WSServerHandshakeError as error:
        await _raise_reason(kube, path, query)
        message = f"the pod's node refuses it with status {error.status}: does the container run?"
        raise error_from(max(error.status, 400), "", message) from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise no_answer("GET", path, error) from error


async def _raise_reason(kube: Kube, path: str, query: Sequence[tuple[str, str]]) -> None:
    """Raise the API server's error for a refused websocket.

    The refused websocket has no text, so the same path is requested without one.
    """
    try:
        await kube.request("GET", path, params=dict(query))
    except KubeError as error:
        if error.status != _UPGRADE_REQUIRED:
            raise

"""Finds the address and the credentials of the API server.

A pod's are read from the files of its service account, without the official client, whose import
takes 20 MB of memory.
"""

from __future__ import annotations

import os
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from elasticjob_api.addresses import host_port

from elasticjob_kube.errors import NoAccess

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where every pod finds its token and the API server's certificate authority."""
_HAS_SETTINGS = sys.platform in ("darwin", "win32")
"""Whether a proxy may be set outside of the environment."""
TOKEN_SECONDS = 10.0
"""Age at which a token is read again; the kubelet replaces it long before it expires."""


@dataclass(frozen=True)
class Access:
    """Address and credentials of an API server.

    Attributes:
        host: URL of the API server.
        context: verifies its certificate.
        authorization: returns the Authorization header of the next request, or None for no header.
        proxy: URL of the HTTP proxy to use; None for no proxy.
        namespace: that of the kubeconfig's context; None for a pod's (`pod_namespace`).
    """

    host: str
    context: ssl.SSLContext
    authorization: Callable[[], Awaitable[str | None]]
    proxy: str | None
    namespace: str | None = None


class Token:
    """A bearer token in a file that the kubelet replaces."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = ""
        self._read_at = 0.0

    async def authorization(self) -> str:
        """Return the Authorization header. Raises OSError if there is no token."""
        return self.header()

    def header(self) -> str:
        """Return the Authorization header, as `authorization` does."""
        now = time.monotonic()
        if not self._header or now - self._read_at >= TOKEN_SECONDS:
            text = self._path.read_text().strip()
            if not text:
                raise OSError(f"{self._path} is empty; it must hold the service account's token")
            self._header = f"Bearer {text}"
            self._read_at = now
        return self._header


def uses_service_account(
    environment: Mapping[str, str], kubeconfig: Path | None = None, context: str | None = None
) -> bool:
    """Return whether this is a pod, and neither a kubeconfig nor a context is named."""
    is_named = kubeconfig is not None or context is not None or bool(environment.get("KUBECONFIG"))
    return "KUBERNETES_SERVICE_HOST" in environment and not is_named


async def find_access(kubeconfig: Path | None, context: str | None) -> Access:
    """Return the first access that is configured.

    The order is: the given kubeconfig, `$KUBECONFIG`, the pod's service account, ~/.kube/config.
    `context` is one of the kubeconfig; None means its current one.

    Raises:
        NoAccess: none of them is usable.
    """
    if uses_service_account(os.environ, kubeconfig, context):
        return pod_access(os.environ)
    try:
        # Only here: this module imports the official client.
        from elasticjob_kube.kubeconfig import load
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kubernetes":
            raise
        message = (
            "install elasticjob[kubeconfig] to use a kubeconfig; this runs in a pod without it"
        )
        raise NoAccess(message) from error
    settings, tls = await load(kubeconfig, context)
    proxy = settings.proxy or proxy_for(settings.host)
    return Access(settings.host, tls, settings.authorization, proxy, settings.namespace)


def pod_access(environment: Mapping[str, str]) -> Access:
    """Return the access of a pod's service account. Raises `NoAccess` if it is incomplete."""
    token = Token(SERVICE_ACCOUNT / "token")
    try:
        token.header()
    except (OSError, ValueError) as error:
        raise NoAccess(f"token in {SERVICE_ACCOUNT} can't be used: {error}") from error
    return replace(access_without_token(environment), authorization=token.authorization)


def access_without_token(environment: Mapping[str, str]) -> Access:
    """Return the access of a pod that has no service account. Raises `NoAccess`."""
    address = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not (address and port):
        raise NoAccess(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be set, as the kubelet does"
        )
    host = f"https://{host_port(address, port)}"
    try:
        context = ssl.create_default_context(cafile=SERVICE_ACCOUNT / "ca.crt")
    except (OSError, ValueError) as error:
        raise NoAccess(f"ca.crt in {SERVICE_ACCOUNT} can't be used: {error}") from error
    return Access(host, context, _nobody, proxy_for(host))


async def _nobody() -> None:
    """Return no header."""


def pod_namespace() -> str:
    """Return the namespace of this pod. Raises `NoAccess` if its file is missing."""
    path = SERVICE_ACCOUNT / "namespace"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise NoAccess(f"{path} can't be read: {error.strerror}") from error


def proxy_for(host: str) -> str | None:
    """Return the proxy that HTTPS_PROXY and NO_PROXY name for an API server."""
    if not any(name.casefold().endswith("_proxy") for name in os.environ) and not _HAS_SETTINGS:
        return None
    import urllib.request  # slow

    url = urlsplit(host)
    if urllib.request.proxy_bypass(url.hostname or ""):
        return None
    return urllib.request.getproxies().get(url.scheme)

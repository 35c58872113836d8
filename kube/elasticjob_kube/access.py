"""Address and credentials of the API server, and those of a pod.

From the files of its service account.
The files are read without the official client, whose import takes 20 MB of memory.
"""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from elasticjob_kube.errors import NoAccess

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where every pod finds its token and the API server's certificate authority."""
TOKEN_SECONDS = 10.0
"""How long a token is used until it is read again: the kubelet replaces the file long before the
token ends.
"""


@dataclass(frozen=True)
class Access:
    """Address and credentials of an API server.

    Attributes:
        host: URL of the API server.
        context: verifies its certificate.
        authorization: returns the Authorization header of the next request; None: no header.
        proxy: URL of the HTTP proxy to use; None: no proxy.
    """

    host: str
    context: ssl.SSLContext
    authorization: Callable[[], Awaitable[str | None]]
    proxy: str | None


class Token:
    """A bearer token in a file, which the kubelet replaces."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = ""
        self._read_at = 0.0

    async def authorization(self) -> str:
        """Return the header. Raises OSError when there is no token."""
        return self.header()

    def header(self) -> str:
        """Return the header, as `authorization` does."""
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
    """Return whether this is a pod that uses its service account.

    Neither a kubeconfig nor a context is named.
    """
    is_named = kubeconfig is not None or context is not None or bool(environment.get("KUBECONFIG"))
    return "KUBERNETES_SERVICE_HOST" in environment and not is_named


def pod_access(environment: Mapping[str, str]) -> Access:
    """Return the access of a pod's service account. Raises `NoAccess` when something is missing."""
    where = {name: environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT")}
    if not all(where.values()):
        raise NoAccess(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set, as the kubelet does"
        )
    address = f"[{where['HOST']}]" if ":" in where["HOST"] else where["HOST"]
    host = f"https://{address}:{where['PORT']}"
    token = Token(SERVICE_ACCOUNT / "token")
    try:
        token.header()
        context = ssl.create_default_context(cafile=SERVICE_ACCOUNT / "ca.crt")
    except (OSError, ValueError) as error:
        raise NoAccess(f"token or ca.crt in {SERVICE_ACCOUNT} can't be used: {error}") from error
    return Access(host, context, token.authorization, proxy_for(host))


def pod_namespace() -> str:
    """Return the namespace of this pod. Raises `NoAccess` when its file is missing."""
    path = SERVICE_ACCOUNT / "namespace"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise NoAccess(f"{path} can't be read: {error.strerror}") from error


def proxy_for(host: str) -> str | None:
    """Return the proxy that HTTPS_PROXY and NO_PROXY name for an API server."""
    url = urlsplit(host)
    if urllib.request.proxy_bypass(url.hostname or ""):
        return None
    return urllib.request.getproxies().get(url.scheme)

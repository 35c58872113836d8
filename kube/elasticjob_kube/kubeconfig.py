"""Access as a kubeconfig grants it; the official client reads it, runs its plugins and refreshes its tokens.

It is a module of its own so that the client is imported only where there is a kubeconfig.
"""

from __future__ import annotations

from pathlib import Path

from kubernetes.aio import client, config
from kubernetes.aio.client.rest import RESTClientObject

from elasticjob_kube.access import Access, proxy_for
from elasticjob_kube.errors import NoAccess


async def access(path: Path | None, context: str | None) -> Access:
    """Return the access of a kubeconfig: this one, else `$KUBECONFIG`, else ~/.kube/config. Raises `NoAccess`.

    `context`: of its contexts; None: the current one.
    """
    configuration = client.Configuration()
    file = str(path) if path else None
    try:
        await config.load_kube_config(config_file=file, context=context, client_configuration=configuration)
    except config.ConfigException as error:
        raise NoAccess(str(error)) from error

    async def authorization() -> str | None:
        header: str | None = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return header

    tls = RESTClientObject(configuration).ssl_context
    return Access(configuration.host, tls, authorization, configuration.proxy or proxy_for(configuration.host))


def namespace(path: Path | None, context: str | None) -> str:
    """Return the namespace of a context, the one that kubectl would use. Raises `NoAccess`."""
    try:
        contexts, current = config.list_kube_config_contexts(str(path) if path else None)
    except config.ConfigException as error:
        raise NoAccess(str(error)) from error
    chosen = current if context is None else next((each for each in contexts if each["name"] == context), None)
    if chosen is None:
        raise NoAccess(f"context {context} is not in the kubeconfig; it has {', '.join(c['name'] for c in contexts)}")
    return str(chosen["context"].get("namespace") or "default")

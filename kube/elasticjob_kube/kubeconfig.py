"""Access as a kubeconfig grants it; the official client reads it, runs its plugins and refreshes its tokens.

It is a module of its own so that the client is imported only where there is a kubeconfig.
"""

from __future__ import annotations

from pathlib import Path

from kubernetes.aio import client, config
from kubernetes.aio.client.rest import RESTClientObject

from elasticjob_kube.access import Access, proxy_for
from elasticjob_kube.errors import NoAccess


async def access(path: Path | None) -> Access:
    """Return the access of a kubeconfig: this one, else `$KUBECONFIG`, else ~/.kube/config. Raises `NoAccess`."""
    configuration = client.Configuration()
    try:
        await config.load_kube_config(config_file=str(path) if path else None, client_configuration=configuration)
    except config.ConfigException as error:
        raise NoAccess(str(error)) from error

    async def authorization() -> str | None:
        header: str | None = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return header

    context = RESTClientObject(configuration).ssl_context
    return Access(configuration.host, context, authorization, configuration.proxy or proxy_for(configuration.host))

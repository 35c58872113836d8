"""Access as a kubeconfig grants it; the official client reads it, runs its plugins and refreshes its tokens.

It is a module of its own so that the client is imported only where there is a kubeconfig.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes.aio import client, config
from kubernetes.aio.client.rest import RESTClientObject
from yaml import YAMLError

from elasticjob_kube.access import Access, proxy_for
from elasticjob_kube.errors import NoAccess


async def access(path: Path | None, context: str | None) -> Access:
    """Return the access of a kubeconfig: this one, else `$KUBECONFIG`, else ~/.kube/config. Raises `NoAccess`.

    `context`: of its contexts; None: the current one.
    """
    configuration = client.Configuration()
    file = str(path) if path else None
    with _usable(path):
        await config.load_kube_config(config_file=file, context=context, client_configuration=configuration)

    async def authorization() -> str | None:
        header: str | None = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return header

    with _usable(path):
        tls = RESTClientObject(configuration).ssl_context
    return Access(configuration.host, tls, authorization, configuration.proxy or proxy_for(configuration.host))


def namespace(path: Path | None, context: str | None) -> str:
    """Return the namespace of a context, the one that kubectl would use. Raises `NoAccess`."""
    with _usable(path):
        contexts, current = config.list_kube_config_contexts(str(path) if path else None)
    chosen = current if context is None else next((each for each in contexts if each["name"] == context), None)
    if chosen is None:
        raise NoAccess(f"context {context} is not in the kubeconfig; it has {', '.join(c['name'] for c in contexts)}")
    return str(chosen["context"].get("namespace") or "default")


@contextmanager
def _usable(path: Path | None) -> Iterator[None]:
    """Raise `NoAccess` for whatever is wrong with the file: the official client expects all of it to be right."""
    if path is not None and not path.exists():
        raise NoAccess(f"{path}: no such file")
    try:
        yield
    except config.ConfigException as error:
        raise NoAccess(str(error)) from error
    except (OSError, ValueError, TypeError, LookupError, AttributeError, YAMLError) as error:
        raise NoAccess(f"{path or 'the file'} is no kubeconfig: {' '.join(str(error).split())}") from error

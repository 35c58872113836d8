"""Reads a kubeconfig through the official client, which runs its plugins and refreshes its tokens.

It is a separate module so that the client is imported only if a kubeconfig is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes.aio import client, config
from kubernetes.aio.client.rest import RESTClientObject
from yaml import YAMLError

from elasticjob_kube.access import Access, proxy_for
from elasticjob_kube.errors import NoAccess


async def access(path: Path | None, context: str | None) -> Access:
    """Return the access of a kubeconfig: this one, else `$KUBECONFIG`, else ~/.kube/config.

    `context` is one of its contexts; None means the current one. Raises `NoAccess`.
    """
    configuration = client.Configuration()
    with _usable(path):
        await config.load_kube_config(
            config_file=_files(path), context=context, client_configuration=configuration
        )

    async def authorization() -> str | None:
        header: str | None = await configuration.get_api_key_with_prefix(
            "BearerToken", alias="authorization"
        )
        return header

    with _usable(path):
        tls = RESTClientObject(configuration).ssl_context
    return Access(
        configuration.host, tls, authorization, configuration.proxy or proxy_for(configuration.host)
    )


def namespace(path: Path | None, context: str | None) -> str:
    """Return the namespace of a context, the one that kubectl would use. Raises `NoAccess`."""
    with _usable(path):
        contexts, current = config.list_kube_config_contexts(_files(path))
    by_name = {each["name"]: each for each in contexts}
    chosen = current if context is None else by_name.get(context)
    if chosen is None:
        raise NoAccess(f"context {context} is not in the kubeconfig; it has {', '.join(by_name)}")
    return str(chosen["context"].get("namespace") or "default")


def _files(path: Path | None) -> str:
    """Return the paths, separated as in $KUBECONFIG. An empty $KUBECONFIG counts as unset."""
    return str(path or os.environ.get("KUBECONFIG") or Path.home() / ".kube/config")


@contextmanager
def _usable(path: Path | None) -> Iterator[None]:
    """Turn the official client's errors about an invalid file into `NoAccess`."""
    # If the files are missing, the official client's error is about a missing current context.
    files = _files(path).split(os.pathsep)
    if not any(Path(file).expanduser().exists() for file in files):
        raise NoAccess(f"{' and '.join(files)}: no such file")
    try:
        yield
    except config.ConfigException as error:
        raise NoAccess(str(error)) from error
    except (OSError, ValueError, TypeError, LookupError, AttributeError, YAMLError) as error:
        raise NoAccess(
            f"{path or 'the file'} is not a kubeconfig: {' '.join(str(error).split())}"
        ) from error

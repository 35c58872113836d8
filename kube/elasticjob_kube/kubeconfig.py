"""Reads a kubeconfig through the official client, which runs its plugins and refreshes its tokens.

It is a separate module so that the client is imported only if a kubeconfig is used. Clients before
version 36 have no asynchronous part. They are used too, since other packages, such as Kubeflow's
SDK, accept no newer one.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import Any

from yaml import YAMLError

from elasticjob_kube.errors import NoAccess

_PACKAGE = "kubernetes"
_HTTP = "aiohttp"
"""Only tokens of OpenID Connect that have expired need it."""


@dataclass
class Settings:
    """The settings that the official client's loader finds in a kubeconfig.

    It sets only those that the kubeconfig names, and replaces the token when it expires. The
    namespace, which it does not read, is the one that kubectl would use.
    """

    host: str = "http://localhost"
    api_key: dict[str, str] = field(default_factory=dict)
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"

    async def authorization(self) -> str | None:
        """Return the Authorization header of the next request, or None for no header."""
        return next(iter(self.api_key.values()), None)


def _official_config() -> Any:
    """Return the module `kubernetes.aio.config`, or `kubernetes.config` of an older client.

    Their packages import the classes of all APIs, which takes half a second, and the asynchronous
    module uses none of them. So that one is imported alone, unless another thread could see the
    incomplete packages.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)
    folder = Path(spec.submodule_search_locations[0])
    if not (folder / "aio").is_dir():
        return import_module(f"{_PACKAGE}.config")
    if _PACKAGE not in sys.modules and threading.active_count() == 1:
        with suppress(ImportError):
            return _imported_alone(folder)
    return import_module(f"{_PACKAGE}.aio.config")


def _imported_alone(folder: Path) -> ModuleType:
    """Import the module from incomplete packages, and forget these afterwards."""
    for name, path in ((_PACKAGE, folder), (f"{_PACKAGE}.aio", folder / "aio")):
        package = ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    client = ModuleType(f"{_PACKAGE}.aio.client")
    vars(client).update(ApiClient=object, Configuration=Settings)
    sys.modules[client.__name__] = client
    later = None if _HTTP in sys.modules else _Later(_HTTP)
    if later is not None:
        sys.modules[_HTTP] = later
    try:
        return import_module(f"{_PACKAGE}.aio.config")
    finally:
        if later is not None:
            del sys.modules[_HTTP]
        for name in [each for each in sys.modules if each.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]


class _Later(ModuleType):
    """A module that is imported when it is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


config = _official_config()


async def load(path: Path | None, context: str | None) -> tuple[Settings, ssl.SSLContext]:
    """Return the settings of a kubeconfig: this one, else `$KUBECONFIG`, else ~/.kube/config.

    `context` is one of its contexts; None means the current one. Raises `NoAccess`.
    """
    with _usable(path):
        settings = await _load(_files(path), context)
        return settings, _tls(settings)


async def _load(files: str, context: str | None) -> Settings:
    merged, name = _merged(files, context)
    by_name = {each["name"]: each for each in merged["contexts"]}
    if name not in by_name:
        raise NoAccess(f"context {name} is not in the kubeconfig; it has {', '.join(by_name)}")
    chosen = by_name[name]["context"]
    settings = Settings(namespace=str(chosen.safe_get("namespace") or "default"))
    options = {"context": name, "client_configuration": settings}
    if iscoroutinefunction(config.load_kube_config):
        await config.load_kube_config_from_dict(merged, **options)
    else:  # this one stores tokens that it refreshes, so it must know the files
        await asyncio.to_thread(config.load_kube_config, files, **options)  # waits for plugins
        settings.proxy = _proxy_url(merged, chosen)
    return settings


def _merged(files: str, context: str | None) -> tuple[Any, str]:
    """Return all files as one kubeconfig, and the name of this context or of the current one.

    The current context is that of the first file that names one, as for kubectl. The official
    client takes the last one.
    """
    merger = config.kube_config.KubeConfigMerger(files)
    named = (each.get("current-context") for each in merger.config_files.values())
    current = next(filter(None, named), None)
    return merger.config, context or current or merger.config["current-context"]


def _proxy_url(merged: Any, context: Any) -> str | None:
    """Return the proxy of a context's cluster, which older clients do not read."""
    cluster = merged["clusters"].get_with_name(context["cluster"])["cluster"]
    found: str | None = cluster.safe_get("proxy-url")
    return found


def _tls(settings: Settings) -> ssl.SSLContext:
    tls = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        tls.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
    if not settings.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


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

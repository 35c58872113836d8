"""The defaults of a namespace for jobs of scripts and functions, which an administrator writes.

They are in a ConfigMap, which is read with the user's own rights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticjob_kube.errors import NotFound, Refused
from elasticjob_kube.resources import CONFIG_MAPS

from elasticjob_client.cluster import Cluster, ask
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.job_template import JobTemplate, merged
from elasticjob_client.template_options import defaults_of

CONFIG_MAP = "elasticjob-defaults"
_FORBIDDEN = 403


@dataclass(frozen=True)
class Completed:
    """A template with the defaults of its namespace; `origin` says which ones, for people."""

    template: JobTemplate
    origin: str = ""


async def completed(cluster: Cluster, template: JobTemplate) -> Completed:
    """Complete a template. Without the ConfigMap, or the right to read it, there are no defaults.

    Raises:
        WrongArgument: the template does not fit the defaults.
        ClientError: the ConfigMap has wrong contents, or cannot be read for another reason.
    """
    found = await ask(cluster, CONFIG_MAPS, CONFIG_MAP, lambda: _data(cluster))
    if not found:
        return Completed(template)
    where = f"ConfigMap {cluster.namespace}/{CONFIG_MAP}"
    try:
        defaults = defaults_of(found)
    except WrongArgument as error:
        remedy = "let its author correct it, or use no defaults (--no-defaults)"
        raise ClientError(f"{where}: {error}; {remedy}") from error
    try:
        both = merged(defaults, template)
    except WrongArgument as error:
        raise WrongArgument(f"{error} ({where} has defaults)") from error
    return Completed(both, f"defaults of {where}: {', '.join(sorted(found))}")


async def _data(cluster: Cluster) -> Mapping[str, str]:
    try:
        found = await cluster.kube.get(CONFIG_MAPS, cluster.namespace, CONFIG_MAP)
    except NotFound:
        return {}
    except Refused as error:
        if error.status == _FORBIDDEN:
            return {}
        raise
    binary = {f"binaryData/{name}": "" for name in found.get("binaryData") or ()}  # is refused
    return {**(found.get("data") or {}), **binary}

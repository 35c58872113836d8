"""Configures the admission webhook of an operator that is a process of this machine."""

from __future__ import annotations

from collections.abc import Mapping

import yaml
from elasticjob_api.meta import Json
from elasticjob_kube.resources import WEBHOOKS
from elasticjob_kube.session import Kube

from tests.support.deploy_tools import DEPLOY
from tests.support.wait import until


def arguments(name: str, port: int) -> list[str]:
    """Return the operator's arguments for the webhook of this configuration."""
    return [f"--admission-port={port}", f"--admission-configuration={name}"]


def configuration(name: str, port: int, namespace: str, labels: Mapping[str, str]) -> Json:
    """Return the chart's configuration, for a process and for one namespace.

    With labels it is for objects that have them.
    """
    manifests = yaml.safe_load_all((DEPLOY / "admission" / "webhook.yaml").read_text())
    [found] = [each for each in manifests if each["kind"] == WEBHOOKS.kind]
    [webhook] = found["webhooks"]
    webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}/"}
    webhook["timeoutSeconds"] = 10  # tests may run on a busy machine
    webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    webhook["objectSelector"] = {"matchLabels": dict(labels)}
    return {**found, "metadata": {"name": name}}


async def configured(kube: Kube, name: str) -> None:
    """Wait until the operator has written its authority into the configuration."""

    async def has_authority() -> bool:
        [webhook] = (await kube.get(WEBHOOKS, None, name))["webhooks"]
        return bool(webhook["clientConfig"].get("caBundle"))

    await until("the webhook's authority is known to the API server", has_authority)

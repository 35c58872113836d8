"""Reads objects as `kubectl get -o json` prints them, without starting a program each time."""

from __future__ import annotations

import json
from pathlib import Path

from elasticjob_api.meta import Json
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    ELASTIC_POOLS,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SERVICES,
    Resource,
)
from kubernetes import client, config
from kubernetes.client.rest import RESTClientObject

_CORE_EVENTS = Resource("", "v1", "events", "Event")
_KINDS = {
    "ej": ELASTIC_JOBS,
    "elasticpool": ELASTIC_POOLS,
    "sp": SCALE_PLANS,
    "scaleplan": SCALE_PLANS,
    "scalein": SCALE_INS,
    "scaleout": SCALE_OUTS,
    "pod": PODS,
    "service": SERVICES,
    "node": NODES,
    "event": _CORE_EVENTS,
    "quota": RESOURCE_QUOTAS,
    "cm": CONFIG_MAPS,
}


class Reader:
    """The rights of a kubeconfig, used for reading only."""

    def __init__(self, kubeconfig: Path) -> None:
        self._configuration = client.Configuration()
        config.load_kube_config(
            config_file=str(kubeconfig), client_configuration=self._configuration
        )
        self._connections = RESTClientObject(self._configuration).pool_manager

    def get(self, namespace: str, what: str) -> Json:
        """Return the object with the name `kind/name`, by kubectl's short names of the kinds."""
        kind, _, name = what.partition("/")
        return self._read(_KINDS[kind].path(namespace, name))

    def items(self, namespace: str, kind: str, *, labels: str = "") -> list[Json]:
        """Return all objects of a kind that have these labels."""
        found: list[Json] = self._read(_KINDS[kind].path(namespace), labelSelector=labels)["items"]
        return found

    def _read(self, path: str, **query: str) -> Json:
        token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        headers = {"authorization": token} if token else {}
        answer = self._connections.request(
            "GET", self._configuration.host + path, fields=query, headers=headers, timeout=30
        )
        assert answer.status == 200, (
            f"{path}: {answer.status} {answer.data.decode(errors='replace')}"
        )
        found: Json = json.loads(answer.data)
        return found

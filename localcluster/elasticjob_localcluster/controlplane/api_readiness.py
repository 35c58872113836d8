"""Checks whether a new API server, its controllers and nodes are ready."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any


def get(pki: Path, port: int, path: str, *, seconds: float = 5.0) -> Any:
    """Return the successful answer to a GET, as JSON if it is, else as text; None without one."""
    try:
        trust = ssl.create_default_context(cafile=pki / "ca.crt")
        trust.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=seconds, context=trust)
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return None
    if response.status != 200:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def api_ready(pki: Path, port: int) -> bool:
    """Return whether the API server is ready."""
    return bool(get(pki, port, "/readyz") == "ok")


def accepts_pods(pki: Path, port: int) -> bool:
    """Return whether pods can be created: the controllers have made the objects that they need."""
    namespace = "/api/v1/namespaces/default"
    return bool(
        get(pki, port, f"{namespace}/serviceaccounts/default")
        and get(pki, port, f"{namespace}/configmaps/kube-root-ca.crt")
    )


def nodes(pki: Path, port: int) -> dict[str, bool]:
    """Return for every node, by name, whether it is ready and accepts pods."""
    answer = get(pki, port, "/api/v1/nodes")
    if answer is None:
        return {}
    return {node["metadata"]["name"]: _is_ready(node) for node in answer["items"]}


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = {
        item["type"]: item["status"] for item in node.get("status", {}).get("conditions", ())
    }
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")

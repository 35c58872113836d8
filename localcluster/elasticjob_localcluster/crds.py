"""Applies the project's CustomResourceDefinitions and admission policies to a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import yaml
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, CRDS
from elasticjob_kube.session import Kube, connect

from elasticjob_localcluster.errors import LocalClusterError

FIELD_MANAGER = "elasticjob-dev"
_SERVED_SECONDS = 30.0
"""The time in which the API server must serve a definition."""


_KINDS = {each.kind: each for each in (CRDS, ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)}


async def apply_crds(kubeconfig: Path, directory: Path) -> None:
    """Apply every definition in the directory's *.yaml files.

    Return when the API server serves all of them.
    """
    async with connect(user_agent=FIELD_MANAGER, kubeconfig=kubeconfig) as kube:
        for name in await _apply(kube, directory):
            try:
                async with asyncio.timeout(_SERVED_SECONDS):
                    await _wait_until_established(kube, name)
            except TimeoutError:
                raise LocalClusterError(
                    f"the API server does not serve {name} after {_SERVED_SECONDS:.0f} s"
                ) from None


async def apply_policies(kubeconfig: Path, directory: Path) -> None:
    """Apply every admission policy in the directory's *.yaml files.

    The API server enforces them some seconds later.
    """
    async with connect(user_agent=FIELD_MANAGER, kubeconfig=kubeconfig) as kube:
        await _apply(kube, directory)


async def _apply(kube: Kube, directory: Path) -> list[str]:
    """Apply all objects of a directory; return their names."""
    bodies = _manifests(directory)
    names = [body["metadata"]["name"] for body in bodies]
    for name, body in zip(names, bodies, strict=True):
        await kube.apply(_KINDS[body["kind"]], None, name, body, field_manager=FIELD_MANAGER)
    return names


def _manifests(directory: Path) -> list[Json]:
    paths = sorted(directory.glob("*.yaml"))
    manifests: list[Json] = [
        item for path in paths for item in yaml.safe_load_all(path.read_text()) if item
    ]
    if not manifests:
        raise LocalClusterError(f"{directory} has no *.yaml file with a manifest")
    return manifests


async def _wait_until_established(kube: Kube, name: str) -> None:
    async for event in kube.watch(CRDS, field_selector=f"metadata.name={name}"):
        status = msgspec.json.decode(event.object).get("status") or {}
        conditions = status.get("conditions") or ()
        if any(item["type"] == "Established" and item["status"] == "True" for item in conditions):
            return
    raise LocalClusterError(
        f"the API server ended the watch of {name} before it served it; try again"
    )

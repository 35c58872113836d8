"""Installs, upgrades and removes ElasticJob by kustomize and by Helm, on its own API server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from elasticjob_kube.resources import CRDS, ELASTIC_JOBS, PODS
from elasticjob_kube.session import Kube
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster.cluster import Cluster
from elasticjob_operator.config import parse
from elasticjob_operator.custom_watches import wait_for_crds

from tests.support.deploy_tools import DEPLOY, SYSTEM, Tools, manifests
from tests.support.monitoring import ALERTS, DASHBOARDS
from tests.support.operator_process import exists, job
from tests.support.wait import until

pytestmark = pytest.mark.thorough

CHART = DEPLOY / "chart"
JOBS = "elasticjobs.elasticjob.dev"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster without our definitions, and without a node."""
    with clusters.up(tmp_path_factory.mktemp("empty"), control_plane_only=True) as made:
        yield made


@pytest.fixture
def tools(cluster: Cluster) -> Tools:
    return Tools(cluster)


Rendered = dict[tuple[str, str], Any]


def by_name(found: Iterable[Any]) -> Rendered:
    """Return objects by kind and name."""
    return {(each["kind"], each["metadata"]["name"]): each for each in found if each}


def rendered(tools: Tools, *values: str, chart: Path = CHART) -> Rendered:
    """Return the objects of the chart with these values."""
    chosen = [word for value in values for word in ("--set", value)]
    namespace = ("--namespace", SYSTEM, "--kube-version", "1.36.0")
    text = tools.helm("template", "elasticjob", str(chart), *namespace, *chosen)
    return by_name(yaml.safe_load_all(text))


def built(tools: Tools, folder: Path) -> Rendered:
    """Return the objects of a kustomization."""
    return by_name(yaml.safe_load_all(tools.kubectl("kustomize", str(folder))))


def container_of(found: Rendered) -> Any:
    """Return the container of the operator."""
    pod = found["Deployment", "elasticjob-operator"]["spec"]["template"]
    [container] = pod["spec"]["containers"]
    return container


async def replicas(kube: Kube, namespace: str) -> list[str]:
    """Return the operator's pods once both exist.

    They exist only if admission accepts them.
    """

    async def both() -> list[str]:
        found = (await kube.list(PODS, namespace))["items"]
        return [pod["metadata"]["name"] for pod in found] if len(found) == 2 else []

    names: list[str] = await until(f"two pods of the operator in {namespace}", both)
    return names


async def served(kube: Kube) -> None:
    """Wait until every definition is served.

    A definition deleted in the second of its creation may be left terminating for minutes: the API
    server finds its storage "(re)initializing".
    """
    async with asyncio.timeout(30):
        await wait_for_crds(kube, None)


async def wait_for_no_new_objects(tools: Tools, before: set[str]) -> None:
    """Wait until the cluster has no other objects than before."""

    async def left() -> bool:
        return not tools.objects() - before

    try:
        await until("nothing is left", left)
    finally:
        print("left:", tools.objects() - before)


async def test_kustomize_installs_in_a_restricted_namespace_and_uninstalls_completely(
    kube: Kube, tools: Tools
) -> None:
    before = tools.objects()
    tools.kubectl("apply", "--server-side", "-k", str(DEPLOY / "base"))
    tools.kubectl("wait", "--for=condition=Established", f"crd/{JOBS}", "--timeout=30s")
    namespace = json.loads(tools.kubectl("get", "namespace", SYSTEM, "-o", "json"))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for name in await replicas(kube, SYSTEM):
        [container] = (await kube.get(PODS, SYSTEM, name))["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    await served(kube)
    await kube.create(ELASTIC_JOBS, "default", job())
    tools.kubectl("delete", "-k", str(DEPLOY / "base"), "--timeout=90s", "--ignore-not-found")
    await wait_for_no_new_objects(tools, before)


async def test_applying_again_changes_nothing(kube: Kube, tools: Tools) -> None:
    try:
        tools.kubectl("apply", "--server-side", "-k", str(DEPLOY / "base"))
        await served(kube)
        await replicas(kube, SYSTEM)

        # A status that changes between the two readings of kubectl diff does not count.
        async def no_difference() -> bool:
            print(found := tools.difference("-k", str(DEPLOY / "base")))
            return not found

        await until("applying again would change nothing", no_difference)
    finally:
        tools.kubectl("delete", "-k", str(DEPLOY / "base"), "--timeout=90s", "--ignore-not-found")


async def test_helm_installs_and_upgrades_and_keeps_definitions_and_jobs(
    kube: Kube, tools: Tools, tmp_path: Path
) -> None:
    before = tools.objects()
    older = tmp_path / "older"
    shutil.copytree(CHART, older)  # with the definitions to which the link points
    definition = yaml.safe_load((older / "definitions" / "elasticjobs.yaml").read_text())
    definition["spec"]["names"]["shortNames"] = ["old"]
    (older / "definitions" / "elasticjobs.yaml").write_text(yaml.safe_dump(definition))
    tools.helm("install", "elasticjob", str(older), "--namespace", "helm", "--create-namespace")
    await replicas(kube, "helm")
    await served(kube)
    await kube.create(ELASTIC_JOBS, "default", job())
    tools.helm(
        "upgrade", "elasticjob", str(CHART), "--namespace", "helm", "--set", "logFormat=text"
    )
    assert (await kube.get(CRDS, None, JOBS))["spec"]["names"]["shortNames"] == ["ej"]
    tools.helm("uninstall", "elasticjob", "--namespace", "helm", "--wait")
    assert await exists(kube, ELASTIC_JOBS, "default", "job")
    tools.kubectl("delete", "namespace", "helm", "--timeout=60s")
    tools.kubectl("delete", "-f", str(DEPLOY.parent / "crds"), "--timeout=60s")
    await wait_for_no_new_objects(tools, before)


def test_a_packaged_chart_contains_the_definitions(tools: Tools, tmp_path: Path) -> None:
    tools.helm("package", str(CHART), "--destination", str(tmp_path))
    [package] = tmp_path.glob("elasticjob-*.tgz")
    packaged = rendered(tools, chart=package)
    assert packaged == rendered(tools)
    assert ("CustomResourceDefinition", JOBS) in packaged


def test_helm_and_kustomize_install_the_same(tools: Tools) -> None:
    found = rendered(tools, "namespace.create=true,crds.install=false")
    assert found == by_name(manifests("base"))


def test_the_administrators_prices_are_options_of_the_operator(tools: Tools) -> None:
    priced = ("prices.cpu=0.04", "prices.memory=1", r"prices.nvidia\.com/gpu=2.5", "currency=US $")
    container = container_of(rendered(tools, *priced))
    found = parse([each for each in container["args"] if each.startswith(("--pri", "--cur"))])
    assert found.prices == "cpu=0.04,memory=1,nvidia.com/gpu=2.5"
    assert found.currency == "US $"


def test_the_documented_overlay_sets_both_images(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "elasticjob").symlink_to(DEPLOY.parent)
    text = (DEPLOY.parent / "docs" / "install.md").read_text()
    (tmp_path / "kustomization.yaml").write_text(text.partition("```yaml\n")[2].partition("```")[0])
    container = container_of(built(tools, tmp_path))
    assert container["image"] == "registry.example/elasticjob-operator:0.1.0"
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert env.keys() == {"MASTER_IMAGE", "POD_NAMESPACE", "POD_UID"}
    assert env["MASTER_IMAGE"] == "registry.example/elasticjob-master:0.1.0"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("replicas=two", "/replicas"),
        ("scope=Galaxy", "/scope"),
        ("image.tga=1", "tga"),
        ("leaseSeconds=1", "/leaseSeconds"),
        ("metrics.serviceMonitor=maybe", "/metrics/serviceMonitor"),
        ("partitions=65", "/partitions"),
        ("prices.cpu=-1", "/prices/cpu"),
        ("prices.cpu=cheap", "/prices/cpu"),
        ("currency=a-long-name", "/currency"),
    ],
)
def test_a_wrong_value_is_rejected_by_name(tools: Tools, value: str, message: str) -> None:
    with pytest.raises(
        AssertionError, match="values don't meet the specifications of the schema"
    ) as refusal:
        rendered(tools, value)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "folders", "argument"),
    [
        ("kueue", {"resources": "base", "components": "kueue"}, "--kueue"),
        ("admission.enabled", {"resources": "admission"}, "--admission-port=9443"),
    ],
)
def test_kustomize_and_helm_enable_a_choice_in_the_same_way(
    tools: Tools, tmp_path: Path, value: str, folders: dict[str, str], argument: str
) -> None:
    parts = {kind: [os.path.relpath(DEPLOY / name, tmp_path)] for kind, name in folders.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    ours = built(tools, tmp_path)
    theirs = rendered(tools, "namespace.create=true", "crds.keep=false", f"{value}=true")
    assert ours.keys() == theirs.keys()
    for key in (key for key in ours if key[0] != "CustomResourceDefinition"):
        assert ours[key]["metadata"].pop("namespace", "") in ("", SYSTEM)
        assert ours[key] == theirs[key]
    for found in (ours, theirs):
        assert container_of(found)["args"][-1] == argument


def test_each_partition_has_a_lease_that_the_operator_may_use(tools: Tools) -> None:
    found = rendered(tools, "partitions=3,replicas=4")
    leases = {name for kind, name in found if kind == "Lease"}
    assert leases == {"elasticjob-operator", *(f"elasticjob-operator-{n}" for n in range(3))}
    (rule,) = found["Role", "elasticjob-operator-lease"]["rules"]
    assert set(rule["resourceNames"]) == leases
    assert "--partitions=3" in container_of(found)["args"]
    with pytest.raises(AssertionError, match="all jobs of a namespace belong to one partition"):
        rendered(tools, "partitions=2,scope=Namespace")


@pytest.mark.parametrize(
    "values", ["metrics.serviceMonitor=true", "networkPolicy.create=false", "replicas=0"]
)
def test_every_choice_renders(tools: Tools, values: str) -> None:
    kinds = {kind for kind, _ in rendered(tools, values)}
    assert ("ServiceMonitor" in kinds) == values.startswith("metrics")
    assert ("NetworkPolicy" in kinds) != values.startswith("networkPolicy")


def test_each_part_of_the_monitoring_renders_and_none_by_default(tools: Tools) -> None:
    parts = ("serviceMonitor", "podMonitor", "rules", "dashboards")
    chosen = ",".join(f"metrics.{part}=true" for part in parts)
    found = rendered(tools, f"{chosen},metrics.labels.release=prometheus")
    added = found.keys() - rendered(tools).keys()
    assert added == {
        ("ServiceMonitor", "elasticjob-operator"),
        ("PodMonitor", "elasticjob-masters"),
        ("PrometheusRule", "elasticjob"),
        ("ConfigMap", "elasticjob-dashboards"),
    }
    for key in added:
        assert found[key]["metadata"]["labels"]["release"] == "prometheus"
    assert found["PrometheusRule", "elasticjob"]["spec"] == yaml.safe_load(ALERTS.read_text())
    boards = found["ConfigMap", "elasticjob-dashboards"]["data"].values()
    assert sorted(boards) == sorted(board.read_text() for board in DASHBOARDS)
    own = rendered(tools, f"{chosen},scope=Namespace")
    monitor = own["PodMonitor", "elasticjob-masters"]
    assert "namespaceSelector" not in monitor["spec"]

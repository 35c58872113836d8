"""Creates jobs at a real API server, with no leftovers after a rejection.

Also checks `init` and `doctor`.
"""

from __future__ import annotations

import json
import operator
import re
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from elasticjob_api import names
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster as Session
from elasticjob_client.cluster import open_cluster
from elasticjob_client.diagnosis import POLICIES, Finding, diagnose
from elasticjob_client.errors import ClientError, Invalid, NoSuchObject
from elasticjob_client.job_template import JobTemplate
from elasticjob_client.jobs import find_job
from elasticjob_client.manifests import Program, script_command
from elasticjob_client.rights import NEEDS
from elasticjob_client.starter import OPTION, starter
from elasticjob_client.submission import Submission, of_job_file, of_program, submit
from elasticjob_client.template_options import OPTIONS, Completed, completed
from elasticjob_kube.errors import AlreadyExists, NotFound, Refused
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    LEASES,
    PODS,
    ROLE_BINDINGS,
    Resource,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster.cluster import Cluster

from tests.conftest import REPOSITORY
from tests.support.command_line import ELASTICJOB, elasticjob
from tests.support.deploy_tools import manifests
from tests.support.service_accounts import make_account
from tests.support.wait import until

CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
SCRIPT = {"train.py": b"print('trained')\n"}
_OPTION_LINE = re.compile(rf"^( *){OPTION}(?! \S)(.*)$", re.MULTILINE)


Ran = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def ran(cluster: Cluster, namespace: str, tmp_path: Path) -> Ran:
    """Runs `elasticjob` on the cluster; returns exit code, output and errors."""
    (tmp_path / "train.py").write_text("print()\n")
    access = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}")
    return lambda *arguments: elasticjob(*arguments, *access, folder=tmp_path, seconds=100)


def script(name: str | None = None, **changes: Any) -> Submission:
    program = Program("train.py", script_command("train.py"), SCRIPT, **changes)
    return of_program(program, JobTemplate(image="registry.example/train:1"), name=name)


async def test_a_job_of_a_script_gets_a_suffix_if_another_job_has_its_name(
    kube: Kube, namespace: str
) -> None:
    session = Session(kube, namespace)
    made = [(await submit(session, script()))["metadata"]["name"] for _ in range(2)]
    assert made[0] == "train"
    assert re.fullmatch("train-[a-z0-9]{5}", made[1])
    assert (await find_job(session, made[1][:7])).metadata.name == made[1]
    assert (await find_job(session, "train")).metadata.name == "train"
    with pytest.raises(NoSuchObject, match=f"train, {made[1]} begin with this; give one of them"):
        await find_job(session, "trai")
    with pytest.raises(NoSuchObject, match="not found"):
        await find_job(session, "trainer")


async def left_in(kube: Kube, namespace: str) -> list[str]:
    """Return the names of all jobs and of their files."""
    found = [
        *(await kube.list(ELASTIC_JOBS, namespace))["items"],
        *(await kube.list(CONFIG_MAPS, namespace))["items"],
    ]
    return [
        each["metadata"]["name"] for each in found if each["metadata"]["name"] != "kube-root-ca.crt"
    ]


@pytest.mark.guarantee("submitted-files-reach-pods")
async def test_a_script_is_stored_in_a_config_map_that_its_job_owns(
    kube: Kube, namespace: str
) -> None:
    submission = script()
    made = await submit(Session(kube, namespace), submission)
    files = await kube.get(CONFIG_MAPS, namespace, submission.config_map)
    assert files["data"] == {"train.py": "print('trained')\n"}
    assert [owner["uid"] for owner in files["metadata"]["ownerReferences"]] == [
        made["metadata"]["uid"]
    ]
    await kube.delete(ELASTIC_JOBS, namespace, made["metadata"]["name"])

    async def nothing_left() -> bool:
        return not await left_in(kube, namespace)

    await until("the files to go with the job", nothing_left)


async def test_a_submitted_job_is_a_part_of_the_trace_that_its_program_runs_in(
    kube: Kube, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(kube, namespace)
    for given, kept in ((f"00-{'a' * 32}-{'b' * 16}-01", True), ("no such", False)):
        monkeypatch.setenv("TRACEPARENT", given)
        made = await submit(session, script(), dry_run=True)
        annotations = made["metadata"].get("annotations", {})
        assert (annotations.get(names.ANNOTATION_TRACEPARENT) == given) is kept


@pytest.mark.guarantee("submitted-files-reach-pods")
async def test_rejected_and_dry_run_jobs_leave_nothing(kube: Kube, namespace: str) -> None:
    session = Session(kube, namespace)
    await submit(session, script(), dry_run=True)
    with pytest.raises(Invalid) as refused:
        await submit(session, script("Capital", restart_rules=[{"action": "Nope"}]))
    assert any(problem.startswith('metadata.name: "Capital"') for problem in refused.value.problems)
    assert any('action: Unsupported value: "Nope"' in each for each in refused.value.problems)
    with pytest.raises(ClientError, match="not found"):
        await submit(Session(kube, "no-such-namespace"), script())
    assert await left_in(kube, namespace) == []


EVERYTHING = [
    *("--image=registry.example/train:1", "--workers=2:8", "--framework=pytorch", "--gpus=2"),
    *("--cpu=500m", "--memory=4Gi", "--shared-memory=1Gi"),
    *("--env=A=1", "--env-secret=TOKEN=hub/token", "--env-secret=all-keys"),
    *("--volume=pvc:data:/data:ro", "--volume=nfs:server.example:/export:/nfs"),
    *("--volume=host:/opt/models:/models:ro", "--volume=empty:10Gi:/scratch"),
    *("--node-selector=example.com/pool=gpu", "--toleration=gpu=yes:NoSchedule"),
    *("--toleration=spot", "--pull-secret=registry", "--service-account=trainer"),
    *("--autoscale=deadline=2036-01-31T18:00:00Z", "--restart-limit=5"),
    *("--pip=torchmetrics==1.4", "--pip-cache=/scratch/pip"),
]


@pytest.mark.guarantee("submitted-files-reach-pods")
async def test_the_api_server_accepts_a_job_with_every_option_and_its_pods(
    ran: Ran, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "pack" / "deep").mkdir(parents=True)
    (tmp_path / "pack" / "deep" / "table.bin").write_bytes(b"\xff")
    options = [*EVERYTHING, "--file=pack", "-o", "yaml"]
    given = {option.removeprefix("--").partition("=")[0] for option in options}
    assert given >= OPTIONS.keys(), "an option is missing here"
    for dry_run in ("client", "server"):
        code, out, errors = await ran("submit", "train.py", *options, f"--dry-run={dry_run}")
        assert (code, errors) == (0, "")
        job = next(yaml.safe_load_all(out))
        pod = {"metadata": {"name": "a"}, **job["spec"]["replicaSpecs"]["worker"]["template"]}
        pod["spec"] |= {"restartPolicy": "Never", "serviceAccountName": "default"}
        await kube.create(PODS, namespace, pod, dry_run=True, strict=True)
    assert (await elasticjob("init", *EVERYTHING, folder=tmp_path))[0] == 0
    code, _, errors = await ran("submit", "train.yaml", "--dry-run=server")
    assert code == 0, errors
    assert await left_in(kube, namespace) == []


@pytest.mark.guarantee("namespace-defaults")
async def test_wrong_defaults_are_refused_with_their_key_and_forbidden_ones_do_not_exist(
    ran: Ran, cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    session = Session(kube, namespace)
    own = JobTemplate(workers=3)
    assert await completed(session, own) == Completed(own)
    data = {"image": "registry.example/train:1", "workers": "2", "toleration": "# ours\nspot"}
    manifest = {"metadata": {"name": "elasticjob-defaults"}, "data": data}
    await kube.create(CONFIG_MAPS, namespace, manifest)
    both = await completed(session, own)
    assert both.template == JobTemplate(image=data["image"], workers=3, tolerations=("spot",))
    submitted = ("submit", "train.py", "-o", "yaml", "--dry-run=server")
    _, out, _ = await ran(*submitted)
    assert out.startswith(f"# defaults of ConfigMap {namespace}/elasticjob-defaults: image, ")
    stranger = await make_account("stranger", cluster, kube, namespace, tmp_path)
    async with open_cluster(Access(stranger, None, namespace)) as of_stranger:
        assert await completed(of_stranger, own) == Completed(own)
    await kube.patch(CONFIG_MAPS, namespace, "elasticjob-defaults", {"data": {"gpus": "many"}})
    code, _, errors = await ran(*submitted)
    assert code == 1
    assert f"ConfigMap {namespace}/elasticjob-defaults: data.gpus: gpus: 'many' is not" in errors
    assert (await ran(*submitted, "--image=i", "--no-defaults"))[0] == 0


class FilesRefused(Kube):
    """A session whose ConfigMaps are rejected, although the dry run accepted them."""

    def __init__(self, kube: Kube) -> None:
        self.__dict__.update(kube.__dict__)

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
        strict: bool = False,
    ) -> dict[str, Any]:
        if resource is CONFIG_MAPS and not dry_run:
            raise Refused(403, "Forbidden", "exceeded quota")
        return await super().create(resource, namespace, body, dry_run=dry_run, strict=strict)


@pytest.mark.guarantee("submitted-files-reach-pods")
async def test_a_job_is_deleted_if_its_files_are_rejected_after_all(
    kube: Kube, namespace: str
) -> None:
    session = Session(FilesRefused(kube), namespace)
    with pytest.raises(ClientError, match="exceeded quota"):
        await submit(session, script("one"))
    assert await left_in(kube, namespace) == []
    await submit(
        Session(kube, namespace), of_job_file(starter("jax", name="one"), source="one.yaml")
    )
    with pytest.raises(ClientError, match="already exists"):
        await submit(session, script("one"))
    assert await left_in(kube, namespace) == ["one"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_each_frameworks_job_file_is_accepted_with_and_without_its_options(
    kube: Kube, namespace: str, framework: str
) -> None:
    text = starter(framework, name="first")
    with_options = _OPTION_LINE.sub(r"\1\2", text)
    spec = yaml.safe_load(with_options)["spec"]
    assert spec["autoscaling"]["enabled"] is False
    assert spec["replicaSpecs"]["worker"]["drainSeconds"] == 30
    assert "autoscaling" not in yaml.safe_load(text)["spec"]
    stored = [
        await submit(Session(kube, namespace), of_job_file(each, source="first.yaml"), dry_run=True)
        for each in (text, with_options)
    ]
    assert stored[0]["spec"] == stored[1]["spec"], "the options are not the defaults"


async def test_the_command_prints_created_objects_and_errors(
    ran: Ran, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    subprocess.run([ELASTICJOB, "init", "--framework=jax", "--name=mine"], cwd=tmp_path, check=True)
    said = "job mine would be created (the API server accepts it)\n"
    assert await ran("submit", "mine.yaml", "--dry-run=server") == (0, said, "")
    assert await left_in(kube, namespace) == []
    name = "elasticjobs.elasticjob.dev/mine\n"
    assert await ran("submit", "mine.yaml", "-o", "name") == (0, name, "")
    options = ("--image=i", "--workers=2:8", "--dry-run=client", "-o", "yaml")
    code, out, _ = await ran("submit", "train.py", *options)
    job, files = yaml.safe_load_all(out)
    assert (code, files["kind"]) == (0, "ConfigMap")
    assert job["spec"]["replicaSpecs"]["worker"]["maxReplicas"] == 8

    wrong = (tmp_path / "mine.yaml").read_text().replace("replicas: 2", "replicas: 9")
    (tmp_path / "wrong.yaml").write_text(wrong)
    assert await ran("submit", "wrong.yaml") == (
        1,
        "",
        f"error: ElasticJob {namespace}/mine is refused: spec.replicaSpecs[worker].replicas: "
        "replicas is 9, above maxReplicas, which is 4\n",
    )
    (tmp_path / "typo.yaml").write_text(wrong.replace("replicas: 9", "replica: 2"))
    _, _, err = await ran("submit", "typo.yaml")
    assert 'unknown field "spec.replicaSpecs.worker.replica"' in err
    for wanted, arguments, said in (
        (2, ("submit", "train.py"), "give --image"),
        (2, ("submit", "mine.yaml", "--gpus=1"), "--gpus: only for scripts"),
        (2, ("submit", "none.yaml"), "none.yaml cannot be read: No such file"),
        (2, ("submit", "none.py", "--image=i"), "none.py cannot be read: No such file"),
        (1, ("submit", "mine.yaml"), "already exists"),
    ):
        code, out, err = await ran(*arguments)
        assert (code, out, err.count("\n")) == (wanted, "", 1)
        assert said in err


def states(found: list[Finding]) -> dict[str, str]:
    """Return the worst state of each check."""
    order = ("Good", "Note", "Bad")
    worst: dict[str, str] = {}
    for finding in found:
        worst[finding.check] = max(worst.get(finding.check, "Good"), finding.state, key=order.index)
    return worst


@pytest.mark.guarantee("doctor-names-what-is-missing")
@pytest.mark.usefixtures("documented")
async def test_the_doctor_finds_everything_and_an_operator_once_it_runs(
    ran: Ran, cluster: Cluster, kube: Kube, namespace: str
) -> None:
    access = Access(cluster.kubeconfig, None, namespace)
    everything = dict.fromkeys(
        ("server", "definitions", "fields", "policies", "rights", "resize"), "Good"
    )
    found = await diagnose(access, operator_namespace=namespace, kueue=True)
    assert states(found) == {**everything, "operator": "Bad", "kueue": "Bad"}
    assert all(finding.remedy for finding in found if finding.state == "Bad")

    lease = {"metadata": {"name": "elasticjob-operator"}, "spec": {"leaseDurationSeconds": 15}}
    await kube.create(LEASES, namespace, lease)
    assert "no operator leads" in (await operator_finding(access)).message
    for renewed, state in (
        ("2020-01-01T00:00:00.000000Z", "Bad"),
        ("2099-01-01T00:00:00.000000Z", "Good"),
    ):
        spec = {"holderIdentity": "one", "renewTime": renewed}
        await kube.patch(LEASES, namespace, "elasticjob-operator", {"spec": spec})
        assert (await operator_finding(access)).state == state

    code, out, err = await ran("doctor", f"--operator-namespace={namespace}", "-o", "json")
    assert (code, err) == (0, "")
    assert {finding["state"] for finding in json.loads(out)} == {"Good"}


@pytest_asyncio.fixture
async def documented(kube: Kube) -> None:
    """Wait until the API server documents the definitions, some moments after serving them."""
    document = "/openapi/v3/apis/elasticjob.dev/v1alpha1"

    async def served() -> bool:
        with suppress(NotFound):
            return b"ElasticJob" in await kube.request("GET", document)
        return False

    await until("the documentation of the definitions", served)


async def operator_finding(access: Access) -> Finding:
    assert access.namespace is not None
    found = await diagnose(access, operator_namespace=access.namespace)
    return next(finding for finding in found if finding.check == "operator")


@pytest.mark.guarantee("doctor-names-what-is-missing")
@pytest.mark.usefixtures("documented")
async def test_the_doctor_names_the_rights_that_a_user_lacks(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    own = await make_account("guest", cluster, kube, namespace, tmp_path)
    found = await diagnose(Access(own, None, namespace))
    assert states(found) == {
        **dict.fromkeys(("server", "definitions", "fields"), "Good"),
        **dict.fromkeys(("policies", "operator"), "Note"),
        "rights": "Bad",
        "resize": "Good",
    }
    rights = [finding for finding in found if finding.check == "rights"]
    assert "submit: you may not create elasticjobs, create configmaps" in rights[1].message
    assert "ClusterRole edit" in rights[1].remedy


async def test_the_role_that_the_doctor_names_grants_the_missing_rights(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    for role in (
        each
        for each in manifests("base")
        if each["metadata"]["name"] in ("elasticjob-viewer", "elasticjob-editor")
    ):
        with suppress(AlreadyExists):
            await kube.create(CLUSTER_ROLES, None, role)
    own = await make_account("somebody", cluster, kube, namespace, tmp_path)
    for bound in ("view", "edit"):
        subject = {"kind": "ServiceAccount", "name": "somebody", "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": bound}
        body = {"metadata": {"name": bound}, "roleRef": reference, "subjects": [subject]}
        await kube.create(ROLE_BINDINGS, namespace, body)
        expected = {
            need.commands: "Good" if bound in (need.role, "edit") else "Bad" for need in NEEDS
        }

        async def states_of_rights() -> dict[str, str]:
            found = await diagnose(Access(own, None, namespace))
            return {
                each.message.partition(":")[0]: each.state
                for each in found
                if each.check == "rights"
            }

        await until(f"the rights of {bound}", states_of_rights, partial(operator.eq, expected))


@pytest.mark.guarantee("doctor-names-what-is-missing")
async def test_the_doctor_reports_problems_with_kubeconfig_and_server(
    cluster: Cluster, tmp_path: Path
) -> None:
    for wrong in (tmp_path / "missing", tmp_path / "empty", tmp_path / "odd"):
        (tmp_path / "empty").touch()
        (tmp_path / "odd").write_text("clusters: 7\ncontexts: x\n")
        assert states(await diagnose(Access(wrong))) == {"kubeconfig": "Bad"}, wrong
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    away = tmp_path / "away"
    away.write_text(yaml.safe_dump(config))
    assert states(await diagnose(Access(away))) == {"server": "Bad"}


def test_the_doctor_knows_every_policy() -> None:
    there = [
        next(yaml.safe_load_all(path.read_text()))
        for path in sorted((REPOSITORY / "policies").glob("*.yaml"))
    ]
    assert sorted(POLICIES) == [policy["metadata"]["name"] for policy in there]


@pytest.mark.guarantee("doctor-names-what-is-missing")
@pytest.mark.thorough
async def test_the_doctor_explains_how_to_install_on_an_empty_cluster(
    tmp_path: Path,
) -> None:
    cluster = clusters.up(tmp_path / "empty", control_plane_only=True)
    try:
        found = {finding.check: finding for finding in await diagnose(Access(cluster.kubeconfig))}
    finally:
        cluster.down()
    assert {check for check, finding in found.items() if finding.state == "Bad"} == {
        "definitions",
        "policies",
        "operator",
    }
    assert "docs/install.md" in found["definitions"].remedy

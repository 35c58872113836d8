"""Applies custom resources to an API server, which sets defaults and rejects bad fields."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobSpec
from elasticjob_api.limits import MAX_ROLES
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.programs import kubectl

TEMPLATE = {"spec": {"containers": [{"name": "train", "image": "train:1", "command": ["train"]}]}}

CLAIM: Json = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def job(
    name: str = "job", *, framework: str = "jax", roles: Json | None = None, **spec: Any
) -> Json:
    roles = {"worker": {}} if roles is None else roles
    replica_specs = {
        role: {"template": copy.deepcopy(TEMPLATE)} | fields for role, fields in roles.items()
    }
    return made(ELASTIC_JOBS, name, framework=framework, replicaSpecs=replica_specs, **spec)


def made(resource: Resource, name: str, **spec: Any) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def worker(**fields: Any) -> Json:
    """Return a job of workers with these fields."""
    return job(roles={"worker": fields})


def of(framework: str, **roles: Json) -> Json:
    """Return a job of a framework with these roles."""
    return job(framework=framework, roles=roles)


def autoscaling(**fields: Any) -> Json:
    return job(autoscaling=fields)


def objective(**fields: Any) -> Json:
    return autoscaling(objective=fields)


RESOURCES = {each.kind: each for each in (ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS)}


@dataclass(frozen=True)
class Objects:
    """The objects of a namespace; what is changed is its job `job`."""

    kube: Kube
    namespace: str

    async def create(self, body: Json) -> Json:
        return await self.kube.create(RESOURCES[body["kind"]], self.namespace, body)

    async def get(self) -> Json:
        return await self.kube.get(ELASTIC_JOBS, self.namespace, "job")

    async def change(self, spec: Json, subresource: str = "") -> Json:
        body = {"spec": spec}
        return await self.kube.patch(
            ELASTIC_JOBS, self.namespace, "job", body, subresource=subresource
        )

    async def set_status(
        self, status: Json, resource: Resource = ELASTIC_JOBS, name: str = "job"
    ) -> Json:
        body = {"status": status}
        return await self.kube.patch(resource, self.namespace, name, body, subresource="status")

    async def refusal(self, body: Json) -> str:
        with pytest.raises(Refused) as refused:
            await self.create(body)
        return refused.value.message

    async def refusal_of_change(self, spec: Json, subresource: str = "") -> str:
        with pytest.raises(Refused) as refused:
            await self.change(spec, subresource)
        return refused.value.message


@pytest.fixture
def objects(kube: Kube, namespace: str) -> Objects:
    return Objects(kube, namespace)


BAD_JOBS: dict[str, tuple[Json, *tuple[str, ...]]] = {
    "too many": (worker(replicas=10_001), "spec.replicaSpecs.worker.replicas", "10000"),
    "long name": (job("j" * 41), "metadata.name", "at most 40"),
    "name with a dot": (job("a.b"), "metadata.name", "dashes"),
    "name that starts with a digit": (job("1a"), "metadata.name", "starts with a letter"),
    "unknown framework": (job(framework="keras"), "spec.framework", "keras", "horovod"),
    "role of another framework": (
        job(roles={"worker": {}, "ps": {}}),
        "spec.replicaSpecs",
        "jax",
        '"ps"',
        "worker",
    ),
    "role that takes part in another framework's training": (
        of("pytorch", worker={}, etcd={}, store={"agent": "None"}),
        "spec.replicaSpecs",
        'pytorch has no role ["etcd"]',
        "agent: None",
    ),
    "processes that read their world once told another one": (
        of("horovod", worker={"onWorldChange": "Notify"}),
        "spec.replicaSpecs",
        'onWorldChange is Notify in role ["worker"], which needs framework custom, jax or pytorch',
        "framework horovod",
        "Restart or Keep",
    ),
    "nobody who tells the world": (
        of("custom", worker={}, store={"agent": "None", "onWorldChange": "Notify"}),
        "spec.replicaSpecs[store].onWorldChange",
        "agent: None",
    ),
    "successes that never count": (
        of(
            "custom",
            a={"agent": "None", "restartOnSuccess": True, "completion": {"minSucceeded": 1}},
        ),
        "spec.replicaSpecs[a].completion",
        "leave out completion.minSucceeded",
    ),
    "no worker": (
        job(roles={"store": {"agent": "None"}}),
        "spec.replicaSpecs",
        "jax needs role worker",
        '["store"]',
    ),
    "a worker without an agent": (of("horovod", launcher={}, worker={"agent": "None"}), "needs"),
    "neither chief nor worker": (
        of("tensorflow", ps={}),
        "spec.replicaSpecs",
        "tensorflow needs role chief or worker",
    ),
    "no scheduler": (
        of("mxnet", server={}, worker={}),
        "spec.replicaSpecs",
        "mxnet needs role scheduler, with an agent",
    ),
    "two schedulers": (
        of("mxnet", scheduler={"replicas": 2}, server={}, worker={}),
        "spec.replicaSpecs",
        "mxnet has one scheduler; replicas is 2",
    ),
    "two chiefs": (
        of("tensorflow", chief={"replicas": 2}),
        "spec.replicaSpecs",
        "tensorflow has one chief; replicas is 2",
    ),
    "no server": (of("mxnet", scheduler={}, worker={}), "mxnet needs role server"),
    "reserved role": (of("custom", master={}), "spec.replicaSpecs", "not master"),
    "role that is not a name": (of("custom", A_b={}), "spec.replicaSpecs", "lower-case"),
    "role that could be another's member": (
        job(framework="custom", roles={"worker-1": {}}),
        "spec.replicaSpecs",
        "dash and a number",
    ),
    "pattern that is none": (
        worker(restartRules=[{"action": "Ignore", "messagePattern": "(oops"}]),
        "spec.replicaSpecs[worker].restartRules[0]",
        "(oops",
    ),
    "two claims of one name": (
        worker(volumeClaimTemplates=[CLAIM, CLAIM]),
        "spec.replicaSpecs[worker].volumeClaimTemplates",
        "two entries with one name",
    ),
    "a claim of a reserved name": (
        worker(volumeClaimTemplates=[CLAIM | {"metadata": {"name": "elasticjob-x"}}]),
        "spec.replicaSpecs[worker].volumeClaimTemplates[0].metadata.name",
        "names that start with elasticjob are reserved",
    ),
    "a claim without a name": (
        worker(volumeClaimTemplates=[CLAIM | {"metadata": {}}]),
        "spec.replicaSpecs.worker.volumeClaimTemplates[0].metadata.name",
        "Required value",
    ),
    "a claim of a wrong mode": (
        worker(volumeClaimTemplates=[CLAIM | {"spec": {"accessModes": ["Mine"]}}]),
        "spec.replicaSpecs.worker.volumeClaimTemplates[0].spec.accessModes[0]",
        '"Mine"',
        "ReadWriteOnce",
    ),
    "too many claims": (
        worker(volumeClaimTemplates=[{**CLAIM, "metadata": {"name": f"c{n}"}} for n in range(9)]),
        "spec.replicaSpecs.worker.volumeClaimTemplates",
        "9",
        "at most 8 items",
    ),
    "a whole number as a fraction": (
        worker(replicas=3.0),
        "spec.replicaSpecs[worker]",
        "minReplicas, replicas: write whole numbers, such as 3, not 3.0",
    ),
    "delays as fractions": (
        worker(restartRules=[{"action": "Ignore", "minDelaySeconds": 1.0, "maxDelaySeconds": 3.0}]),
        "spec.replicaSpecs[worker].restartRules[0]",
        "maxDelaySeconds, minDelaySeconds: write whole numbers",
    ),
    "multiples as fractions": (
        job(roles={"worker": {"replicas": 4}}, autoscaling={"multipleOf": 2.0}),
        "spec",
        "multipleOf, replicas: write whole numbers",
    ),
    "no roles": (job(roles={}), "spec.replicaSpecs", "at least 1"),
    "an empty template": (
        worker(template={}),
        "spec.replicaSpecs[worker].template.spec.containers",
        "at least one container",
    ),
    "no container": (
        worker(template={"spec": {"containers": []}}),
        "spec.replicaSpecs[worker].template.spec.containers",
        "at least one container",
    ),
    "unknown role to scale": (
        autoscaling(enabled=True, role="ps"),
        "spec.autoscaling.role",
        "ps",
        "replicaSpecs",
    ),
    "negative quantity": (
        autoscaling(resourceLimits={"cpu": -1}),
        "spec.autoscaling.resourceLimits.cpu",
        "-1",
    ),
    "a bound twice": (
        autoscaling(resourceLimits={"gpu": 1, "nvidia.com/gpu": 2}),
        "spec.autoscaling.resourceLimits",
        "gpu is short for nvidia.com/gpu; give one of them",
    ),
    "too many bounds": (
        autoscaling(resourceLimits={f"x/{n}": 1 for n in range(9)}),
        "spec.autoscaling.resourceLimits",
        "at most 8 items",
    ),
    "size that is not a multiple": (
        job(roles={"worker": {"replicas": 6}}, autoscaling={"multipleOf": 4}),
        "spec.replicaSpecs",
        "replicas of worker is 6",
        "not a multiple of autoscaling.multipleOf, which is 4",
    ),
    "least size that is not a multiple": (
        job(roles={"worker": {"replicas": 8, "minReplicas": 2}}, autoscaling={"multipleOf": 4}),
        "spec.replicaSpecs",
        "minReplicas of worker is 2",
        "which is 4",
    ),
    "largest size that is not a multiple": (
        job(
            framework="tensorflow",
            roles={"worker": {}, "ps": {"replicas": 4, "maxReplicas": 10}},
            autoscaling={"role": "ps", "multipleOf": 4},
        ),
        "spec.replicaSpecs",
        "maxReplicas of ps is 10",
        "which is 4",
    ),
    "multiples of nothing": (
        autoscaling(multipleOf=0),
        "spec.autoscaling.multipleOf",
        "greater than or equal to 1",
    ),
    "multiples of too much": (
        autoscaling(multipleOf=1001),
        "spec.autoscaling.multipleOf",
        "less than or equal to 1000",
    ),
    "a profile that is not a name": (
        autoscaling(profile="../other"),
        "spec.autoscaling.profile",
        "../other",
    ),
    "a profile with a long name": (autoscaling(profile="a" * 64), "spec.autoscaling.profile", "63"),
    "zero efficiency": (
        objective(minMarginalEfficiency=0),
        "spec.autoscaling.objective.minMarginalEfficiency",
        "greater than 0",
    ),
    "an objective that is none": (
        objective(type="Speed"),
        "spec.autoscaling.objective.type",
        "Throughput",
    ),
    "an efficiency that another objective would not look at": (
        objective(type="Throughput", minMarginalEfficiency=0.3),
        "spec.autoscaling.objective.minMarginalEfficiency",
        "minMarginalEfficiency is 0.3, but type is Throughput",
        "use type Efficiency",
    ),
    "a deadline without its time": (
        objective(type="Deadline"),
        "spec.autoscaling.objective.finishTime",
        "finishTime is missing",
        "2026-01-31T18:00:00Z",
    ),
    "a finish time that is none": (
        objective(type="Deadline", finishTime="tomorrow"),
        "spec.autoscaling.objective.finishTime",
        "date-time",
    ),
    "a finish time of another objective": (
        objective(type="Throughput", finishTime="2026-01-31T18:00:00Z"),
        "spec.autoscaling.objective.finishTime",
        "finishTime is 2026-01-31T18:00:00Z, but type is Throughput",
        "use type Deadline",
    ),
    "prices of another objective": (
        objective(prices={"worker": 1}),
        "spec.autoscaling.objective.prices",
        "prices has 1 roles, but type is Efficiency",
        "use type Cost",
    ),
    "costs without a price of the scaled role": (
        objective(type="Cost", prices={}),
        "spec.autoscaling.objective",
        "objective.prices needs what a member of worker, the role that is scaled, costs an hour: "
        "0.000001 to 1000000",
    ),
    "a scaled role that costs nothing": (
        objective(type="Cost", prices={"worker": 0}),
        "spec.autoscaling.objective",
        "0.000001 to 1000000",
    ),
    "a price below nothing": (
        objective(type="Cost", prices={"worker": -1}),
        "spec.autoscaling.objective.prices",
        "greater than or equal to 0",
    ),
    "a price beyond measure": (
        objective(type="Cost", prices={"worker": 2e6}),
        "spec.autoscaling.objective.prices",
        "less than or equal to 1e+06",
    ),
    "the price of a role that the job does not have": (
        objective(type="Cost", prices={"worker": 1, "ps": 2.5}),
        "spec.autoscaling.objective",
        'autoscaling.objective.prices has ["ps"], which is not one of replicaSpecs',
    ),
}


@pytest.mark.guarantee("bad-input-is-refused", "auto-scaling-objectives", "multiples-of-hosts")
@pytest.mark.parametrize("case", BAD_JOBS)
async def test_a_bad_job_is_rejected_by_field(objects: Objects, case: str) -> None:
    body, *parts = BAD_JOBS[case]
    message = await objects.refusal(body)
    assert [part for part in parts if part not in message] == [], message


async def test_a_whole_fraction_that_no_rule_reads_is_stored_as_a_whole_number(
    objects: Objects,
) -> None:
    stored = await objects.create(worker(slotsPerReplica=2.0))
    slots = msgspec.convert(stored, ElasticJob).spec.replica_specs["worker"].slots_per_replica
    assert slots == 2
    assert type(slots) is int


@pytest.mark.guarantee("bad-input-is-refused")
@pytest.mark.parametrize(
    ("framework", "roles"),
    [
        ("pytorch", {"worker": {}, "store": {"agent": "None"}}),
        ("mxnet", {"scheduler": {}, "server": {}, "worker": {}}),
        ("tensorflow", {"worker": {}}),
        ("tensorflow", {"chief": {}, "ps": {}, "dashboard": {"agent": "None"}}),
        ("horovod", {"worker": {}}),
        ("custom", {"anything": {}, "store": {"agent": "None"}}),
    ],
)
async def test_a_frameworks_roles_and_additional_roles_are_accepted(
    objects: Objects, framework: str, roles: Json
) -> None:
    await objects.create(job(framework=framework, roles=roles))


@pytest.mark.parametrize(
    "objective",
    [
        {"type": "Throughput"},
        {"type": "Deadline", "finishTime": "2026-01-31T18:00:00Z"},
        {"type": "Cost", "prices": {"worker": 2, "chief": 0}},
        {"type": "Cost", "prices": {"worker": 0.25}},
    ],
    ids=str,
)
async def test_every_objective_is_accepted_and_may_change_while_the_job_runs(
    objects: Objects, objective: Json
) -> None:
    body = job(
        framework="tensorflow",
        roles={"worker": {}, "chief": {}},
        autoscaling={"objective": objective},
    )
    await objects.create(body)
    other = {"type": "Efficiency", "minMarginalEfficiency": 0.3, "finishTime": None, "prices": None}
    changed = await objects.change({"autoscaling": {"objective": other}})
    assert changed["spec"]["autoscaling"]["objective"] == {
        "type": "Efficiency",
        "minMarginalEfficiency": 0.3,
    }


async def test_a_native_gang_and_its_priority_are_those_of_the_jobs_creation(
    objects: Objects,
) -> None:
    def policy(**fields: Any) -> Json:
        return {"runPolicy": {"schedulingPolicy": fields}}

    await objects.create(job(**policy(gang="native", priorityClassName="low")))
    for change, field in (
        (policy(gang="none"), "gang"),
        (policy(priorityClassName="high"), "priorityClassName"),
        (policy(priorityClassName=None), "priorityClassName"),
    ):
        refused = await objects.refusal_of_change(change)
        assert f"spec.runPolicy.schedulingPolicy.{field}: " in refused
    await objects.change({"runPolicy": {"suspend": True}})


async def test_a_role_needs_a_template(objects: Objects) -> None:
    body = job()
    del body["spec"]["replicaSpecs"]["worker"]["template"]
    assert "spec.replicaSpecs[worker].template" in await objects.refusal(body)


async def test_a_short_job_gets_every_default_at_every_level(objects: Objects) -> None:
    await objects.create(job())
    stored = await objects.get()
    spec = msgspec.convert(job()["spec"], ElasticJobSpec)
    assert msgspec.convert(stored["spec"], ElasticJobSpec) == spec
    assert stored["spec"]["runPolicy"]["startPolicy"] == spec.run_policy.start_policy
    assert stored["spec"]["runPolicy"]["schedulingPolicy"] == {"gang": "none"}
    assert stored["spec"]["autoscaling"]["objective"] == {
        "type": "Efficiency",
        "minMarginalEfficiency": 0.5,
    }
    assert stored["spec"]["replicaSpecs"]["worker"]["drainSeconds"] == 30
    assert stored["spec"]["replicaSpecs"]["worker"]["template"] == TEMPLATE
    assert stored["status"] == ElasticJob.UNSEEN_STATUS
    assert msgspec.convert(stored, ElasticJob).status.phase is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"framework": "custom"}, "spec.framework"),
        ({"replicaSpecs": {"ps": {"template": TEMPLATE}}}, "spec.replicaSpecs"),
        ({"replicaSpecs": {"worker": None}}, "spec.replicaSpecs"),
        ({"runPolicy": {"managedBy": "example.com/other"}}, "spec.runPolicy.managedBy"),
        (
            {"replicaSpecs": {"worker": {"template": {"metadata": {"labels": {"a": "b"}}}}}},
            "spec.replicaSpecs[worker].template",
        ),
        (
            {"replicaSpecs": {"worker": {"template": {"spec": {"hostNetwork": True}}}}},
            "spec.replicaSpecs[worker].template",
        ),
        (
            {"replicaSpecs": {"worker": {"template": {"spec": {"containers": []}}}}},
            "spec.replicaSpecs[worker].template",
        ),
        (
            {"replicaSpecs": {"worker": {"volumeClaimTemplates": []}}},
            "spec.replicaSpecs[worker].volumeClaimTemplates",
        ),
        (
            {
                "replicaSpecs": {
                    "worker": {"volumeClaimTemplates": [CLAIM | {"metadata": {"name": "other"}}]}
                }
            },
            "spec.replicaSpecs[worker].volumeClaimTemplates",
        ),
    ],
)
async def test_immutable_fields_stay(objects: Objects, change: Json, field: str) -> None:
    await objects.create(worker(volumeClaimTemplates=[CLAIM]))
    assert field in await objects.refusal_of_change(change)


_STORE = {"agent": "None", "template": TEMPLATE}


@pytest.mark.guarantee("changed-roles")
@pytest.mark.parametrize(
    ("framework", "roles", "change", "message"),
    [
        (
            "custom",
            {"a": {}},
            {"a": None},
            "spec.replicaSpecs: Invalid value: 0: spec.replicaSpecs in body should have",
        ),
        (
            "jax",
            {"worker": {}, "store": _STORE},
            {"worker": None},
            "framework jax needs role worker, with an agent",
        ),
        (
            "horovod",
            {"worker": {}},
            {"launcher": _STORE},
            "role launcher can be neither added nor removed",
        ),
        (
            "custom",
            {"a": {}, "b": {}, "c": {"dependsOn": ["b"]}},
            {"b": None},
            'spec.replicaSpecs: Invalid value: ["b"] cannot be removed, as dependsOn of ["c"] '
            "names it; remove these roles as well, or keep it",
        ),
    ],
)
async def test_a_required_role_cannot_be_removed(
    objects: Objects, framework: str, roles: Json, change: Json, message: str
) -> None:
    await objects.create(job(framework=framework, roles=roles))
    assert message in await objects.refusal_of_change({"replicaSpecs": change})


async def test_roles_can_be_added_and_removed_together_with_their_dependents(
    objects: Objects,
) -> None:
    await objects.create(of("custom", a={}))
    added = {"b": _STORE, "c": _STORE | {"dependsOn": ["b"]}}
    await objects.change({"replicaSpecs": added})
    stored = await objects.change({"replicaSpecs": {"b": None, "c": None}})
    assert stored["spec"]["replicaSpecs"].keys() == {"a"}


async def test_size_suspension_and_autoscaling_can_change(objects: Objects) -> None:
    await objects.create(job())
    sizes = {"replicaSpecs": {"worker": {"replicas": 4, "maxReplicas": 8}}}
    policies = {"runPolicy": {"suspend": True}, "autoscaling": {"enabled": True}}
    stored = await objects.change(sizes | policies)
    assert stored["metadata"]["generation"] == 2


async def test_a_job_and_a_plan_accept_the_maximum_number_of_roles(objects: Objects) -> None:
    names_of_roles = [f"{number}".rjust(20, "r") for number in range(MAX_ROLES + 1)]
    role = {"agent": "None", "restartRules": [{"action": "Ignore", "messagePattern": "x{3}"}] * 32}

    def bodies(found: list[str], name: str) -> tuple[Json, Json]:
        sizes = {key: {"replicas": 2} for key in found}
        plan = made(SCALE_PLANS, name, jobName="job", replicaResourceSpecs=sizes)
        return job(name, framework="custom", roles=dict.fromkeys(found, role)), plan

    for body in bodies(names_of_roles[1:], "most"):
        await objects.create(body)
    for body in bodies(names_of_roles, "more"):
        assert f"must have at most {MAX_ROLES} items" in await objects.refusal(body)


@pytest.mark.guarantee("job-stopped-for-good")
async def test_a_stop_cannot_be_undone(objects: Objects) -> None:
    await objects.create(job())
    await objects.change({"runPolicy": {"stop": True}})
    await objects.change({"runPolicy": {"suspend": True}})
    for taken_back in ({"stop": False}, {"stop": None}, None):
        message = await objects.refusal_of_change({"runPolicy": taken_back})
        assert "spec.runPolicy.stop: " in message
        assert "cannot be undone" in message


@pytest.mark.guarantee("multiples-of-hosts")
async def test_multiple_of_restricts_the_auto_scaler_and_not_other_changes(
    objects: Objects,
) -> None:
    sizes = {
        "worker": {"replicas": 8, "maxReplicas": 64},
        "ps": {"replicas": 3, "minReplicas": 3, "maxReplicas": 5},
    }
    body = job(framework="tensorflow", roles=sizes, autoscaling={"multipleOf": 4})
    await objects.create(body)
    # As the operator does after a plan of that size.
    await objects.change({"replicaSpecs": {"worker": {"replicas": 5}}})
    least = {"replicaSpecs": {"worker": {"minReplicas": 4}}}
    await objects.change(least | {"autoscaling": {"enabled": True}})
    for change, *parts in (
        (
            {"replicaSpecs": {"worker": {"maxReplicas": 30}}},
            "maxReplicas of worker is 30, which is not a multiple",
        ),
        (
            {"autoscaling": {"multipleOf": 2}},
            *("replicas of worker is 5, which is not a multiple", ", which is 2"),
        ),
        ({"autoscaling": {"role": "ps"}}, "minReplicas of ps is 3"),
    ):
        message = await objects.refusal_of_change(change)
        assert [part for part in parts if part not in message] == [], message
    size = {"replicaSpecs": {"worker": {"replicas": 6}}}
    await objects.change(size | {"autoscaling": {"multipleOf": 2}})


async def test_the_scale_subresource_is_the_worker_count_within_its_bounds(
    objects: Objects,
) -> None:
    await objects.create(worker(maxReplicas=5))
    await objects.change({"replicas": 3}, "scale")
    found = await objects.get()
    assert found["spec"]["replicaSpecs"]["worker"]["replicas"] == 3
    refused = await objects.refusal_of_change({"replicas": 9}, "scale")
    assert "above maxReplicas, which is 5" in refused


async def test_operator_and_master_each_keep_their_part_of_the_status(objects: Objects) -> None:
    await objects.create(job())
    status = {"replicaStatuses": {"worker": {"desired": 2, "indices": "0-1"}}, "phase": "Running"}
    await objects.set_status(status)
    progress = {"progress": {"step": 7}}
    body = {"apiVersion": names.API_VERSION, "kind": "ElasticJob", "status": progress}
    where = (ELASTIC_JOBS, objects.namespace, "job")
    await objects.kube.apply(*where, body, subresource="status", field_manager=names.MASTER)
    assert (await objects.get())["status"] == ElasticJob.UNSEEN_STATUS | status | progress


@pytest.mark.guarantee("very-large-jobs")
@pytest.mark.thorough
async def test_the_status_of_ten_thousand_members_fits_into_one_object(objects: Objects) -> None:
    await objects.create(job())
    members = [str(index) for index in range(10_000)]
    kept = {
        "restartsByIndex": dict.fromkeys(members, 1),
        "uncountedByIndex": dict.fromkeys(members, 1),
        "backOff": {key: {"failures": 2, "until": "2026-01-01T00:00:00Z"} for key in members},
        "resourcesByIndex": {key: {"memory": "16384Mi", "cpu": "1500m"} for key in members},
    }
    for field, value in kept.items():
        stored = await objects.set_status({"replicaStatuses": {"worker": {field: value}}})
    assert stored["status"]["replicaStatuses"]["worker"] == kept
    assert len(msgspec.json.encode(stored)) < 1_400_000, "one object holds 1.5 MiB"
    assert len(msgspec.json.encode(stored["metadata"]["managedFields"])) < 10_000


def request(resource: Resource, **spec: Any) -> Json:
    return made(resource, "request", **{"jobName": "job"} | spec)


def plan(**spec: Any) -> Json:
    return request(SCALE_PLANS, **spec)


BAD_REQUESTS: dict[str, tuple[Json, *tuple[str, ...]]] = {
    "a fraction of a count": (
        request(SCALE_INS, count=2.0),
        *("spec", "count: write whole numbers, such as 3, not 3.0"),
    ),
    "no job": (request(SCALE_OUTS, count=1, jobName=None), "spec.jobName", "Required"),
    "a script that is too long": (
        request(SCALE_INS, count=1, script="x" * 16_385),
        *("spec.script", "16384"),
    ),
    "too many variables of a script": (
        request(SCALE_INS, count=1, script="x", env=[{"name": f"A{n}"} for n in range(33)]),
        *("spec.env", "32"),
    ),
    "empty lists": (plan(createPods=[], removePods=[]), "spec", "nothing to do"),
    "a fraction of a size": (
        plan(replicaResourceSpecs={"worker": {"replicas": 3.0}}),
        "spec.replicaResourceSpecs[worker]",
        "replicas: write whole numbers, such as 3, not 3.0",
    ),
    "an index as a fraction": (
        plan(removePods=[{"role": "worker", "index": 1.0}]),
        "spec.removePods[0]",
        "index: write whole numbers",
    ),
    "too many resources": (
        plan(migratePods=[{"name": "a", "resource": {f"x/{n}": 1 for n in range(9)}}]),
        "spec.migratePods[0].resource",
        "9",
        "at most 8 items",
    ),
    "long name of a resource": (
        plan(createPods=[{}, {"resource": {f"x.com/{'a' * 58}": 1}}]),
        "spec.createPods[1].resource",
        "at most 63 characters",
    ),
    "malformed extended resource": (
        plan(replicaResourceSpecs={"worker": {"resource": {"rdma/hca": "one"}}}),
        "spec.replicaResourceSpecs.worker.resource.rdma/hca",
        "one",
    ),
    "name and role": (
        plan(removePods=[{"name": "a", "role": "worker"}]),
        "spec.removePods[0]",
        "either name, or role",
    ),
    "role only": (
        plan(removePods=[{"name": "a"}, {"role": "worker"}]),
        "spec.removePods[1]",
        "either name, or role",
    ),
    "index only": (plan(migratePods=[{"index": 1}]), "spec.migratePods[0]", "either name, or role"),
    "unknown source": (plan(source="Me", createPods=[{}]), "spec.source", "Me", "Manual"),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
async def test_a_bad_request_is_rejected_by_field(objects: Objects, case: str) -> None:
    body, *parts = BAD_REQUESTS[case]
    message = await objects.refusal(body)
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize(
    ("body", "change"),
    [
        (plan(createPods=[{}]), {"onTimeout": "Rollback"}),
        (
            plan(replicaResourceSpecs={"worker": {"resource": {"cpu": "1"}}}),
            {"replicaResourceSpecs": {"worker": {"resource": {"cpu": "2"}}}},
        ),
        (request(SCALE_OUTS, count=1), {"count": 2}),
        (request(SCALE_INS, podNames=["a", "b"]), {"podNames": ["a"]}),
    ],
    ids=["plan", "resource of a plan", "scale out", "scale in"],
)
async def test_a_change_request_is_immutable(objects: Objects, body: Json, change: Json) -> None:
    await objects.create(body)
    kind = body["kind"]
    where = (RESOURCES[kind], objects.namespace, "request")
    with pytest.raises(Refused, match=f"spec is immutable; create another {kind}"):
        await objects.kube.patch(*where, {"spec": change})


async def test_a_plan_is_stored_as_written_and_can_be_found_by_its_job(objects: Objects) -> None:
    amounts = {"cpu": "500m", "memory": "1Gi"}
    resource = amounts | {"nvidia.com/gpu": 1, "networking.example.com/rdma_0": "2"}
    role = {"replicas": 2, "resource": resource}
    for name in ("one", "two"):
        spec = {"replicaResourceSpecs": {"worker": role}, "createPods": [{}]}
        await objects.create(made(SCALE_PLANS, name, jobName=name, **spec))
    where = (SCALE_PLANS, objects.namespace)
    found = await objects.kube.list(*where, field_selector="spec.jobName=one")
    [one] = msgspec.convert(found["items"], list[ScalePlan])
    assert one.metadata.name == "one"
    assert one.spec.replica_resource_specs["worker"].resource == resource
    assert (one.spec.source, one.spec.timeout_seconds) == ("Manual", 600)
    assert one.spec.create_pods[0].role == "worker"


async def test_kubectl_shows_the_important_columns(objects: Objects, cluster: Cluster) -> None:
    await objects.create(job())
    status = {
        "phase": "Running",
        "workers": "2/3",
        "progress": {"steps": "12/480", "rate": "1.2k/s", "eta": "6m"},
        "restarts": 1,
    }
    await objects.set_status(status)
    await objects.create(plan(createPods=[{}]))
    await objects.set_status({"change": "worker 2 to 3"}, SCALE_PLANS, "request")
    await objects.create(request(SCALE_OUTS, count=1))
    await objects.set_status({"phase": "ScaleSucceeded"}, SCALE_OUTS, "request")

    def shown(*arguments: str) -> str:
        done = kubectl(cluster, objects.namespace, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    header, row = shown("get", "ej").splitlines()
    assert header.split() == ["NAME", "PHASE", "WORKERS", "STEP", "RATE", "ETA", "RESTARTS", "AGE"]
    assert row.split()[:7] == ["job", "Running", "2/3", "12/480", "1.2k/s", "6m", "1"]
    header, row = shown("get", "sp").splitlines()
    assert header.split() == ["NAME", "JOB", "SOURCE", "CHANGE", "PHASE", "AGE"]
    assert row.split()[:7] == ["request", "job", "Manual", "worker", "2", "to", "3"]
    header, row = shown("get", "so").splitlines()
    assert header.split() == ["NAME", "JOB", "PHASE", "AGE"]
    assert row.split()[:3] == ["request", "job", "ScaleSucceeded"]
    everything = shown("get", "all")
    assert all(
        name in everything
        for name in ("elasticjob.elasticjob.dev/job", "scaleplan.elasticjob.dev/request")
    )
    assert "determines roles, ports and environment" in shown("explain", "ej.spec.framework")

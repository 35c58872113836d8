"""Applies custom resources to an API server, which sets defaults and rejects bad fields."""

from __future__ import annotations

import copy
import subprocess
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


async def refused(kube: Kube, namespace: str, resource: Resource, body: Json) -> str:
    with pytest.raises(Refused) as refusal:
        await kube.create(resource, namespace, body)
    return refusal.value.message


BAD_JOBS: dict[str, tuple[Json, *tuple[str, ...]]] = {
    "too many": (
        job(roles={"worker": {"replicas": 10_001}}),
        "spec.replicaSpecs.worker.replicas",
        "10000",
    ),
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
        job(framework="pytorch", roles={"worker": {}, "etcd": {}, "store": {"agent": "None"}}),
        "spec.replicaSpecs",
        'pytorch has no role ["etcd"]',
        "agent: None",
    ),
    "processes that read their world once told another one": (
        job(framework="horovod", roles={"worker": {"onWorldChange": "Notify"}}),
        "spec.replicaSpecs",
        'onWorldChange is Notify in role ["worker"], which needs framework custom, jax or pytorch',
        "framework horovod",
        "Restart or Keep",
    ),
    "nobody who tells the world": (
        job(
            framework="custom",
            roles={"worker": {}, "store": {"agent": "None", "onWorldChange": "Notify"}},
        ),
        "spec.replicaSpecs[store].onWorldChange",
        "agent: None",
    ),
    "successes that never count": (
        job(
            framework="custom",
            roles={
                "a": {"agent": "None", "restartOnSuccess": True, "completion": {"minSucceeded": 1}}
            },
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
    "a worker without an agent": (
        job(framework="horovod", roles={"launcher": {}, "worker": {"agent": "None"}}),
        "needs",
    ),
    "neither chief nor worker": (
        job(framework="tensorflow", roles={"ps": {}}),
        "spec.replicaSpecs",
        "tensorflow needs role chief or worker",
    ),
    "no scheduler": (
        job(framework="mxnet", roles={"server": {}, "worker": {}}),
        "spec.replicaSpecs",
        "mxnet needs role scheduler, with an agent",
    ),
    "two schedulers": (
        job(framework="mxnet", roles={"scheduler": {"replicas": 2}, "server": {}, "worker": {}}),
        "spec.replicaSpecs",
        "mxnet has one scheduler; replicas is 2",
    ),
    "two chiefs": (
        job(framework="tensorflow", roles={"chief": {"replicas": 2}}),
        "spec.replicaSpecs",
        "tensorflow has one chief; replicas is 2",
    ),
    "no server": (
        job(framework="mxnet", roles={"scheduler": {}, "worker": {}}),
        "mxnet needs role server",
    ),
    "reserved role": (
        job(framework="custom", roles={"master": {}}),
        "spec.replicaSpecs",
        "not master",
    ),
    "role that is not a name": (
        job(framework="custom", roles={"A_b": {}}),
        "spec.replicaSpecs",
        "lower-case",
    ),
    "role that could be another's member": (
        job(framework="custom", roles={"worker-1": {}}),
        "spec.replicaSpecs",
        "dash and a number",
    ),
    "pattern that is none": (
        job(roles={"worker": {"restartRules": [{"action": "Ignore", "messagePattern": "(oops"}]}}),
        "spec.replicaSpecs[worker].restartRules[0]",
        "(oops",
    ),
    "two claims of one name": (
        job(roles={"worker": {"volumeClaimTemplates": [CLAIM, CLAIM]}}),
        "spec.replicaSpecs[worker].volumeClaimTemplates",
        "two entries with one name",
    ),
    "a claim of a reserved name": (
        job(
            roles={
                "worker": {"volumeClaimTemplates": [CLAIM | {"metadata": {"name": "elasticjob-x"}}]}
            }
        ),
        "spec.replicaSpecs[worker].volumeClaimTemplates[0].metadata.name",
        "names that start with elasticjob are reserved",
    ),
    "a claim without a name": (
        job(roles={"worker": {"volumeClaimTemplates": [CLAIM | {"metadata": {}}]}}),
        "spec.replicaSpecs.worker.volumeClaimTemplates[0].metadata.name",
        "Required value",
    ),
    "a claim of a wrong mode": (
        job(
            roles={
                "worker": {"volumeClaimTemplates": [CLAIM | {"spec": {"accessModes": ["Mine"]}}]}
            }
        ),
        "spec.replicaSpecs.worker.volumeClaimTemplates[0].spec.accessModes[0]",
        '"Mine"',
        "ReadWriteOnce",
    ),
    "too many claims": (
        job(
            roles={
                "worker": {
                    "volumeClaimTemplates": [
                        {**CLAIM, "metadata": {"name": f"c{n}"}} for n in range(9)
                    ]
                }
            }
        ),
        "spec.replicaSpecs.worker.volumeClaimTemplates",
        "9",
        "at most 8 items",
    ),
    "a whole number as a fraction": (
        job(roles={"worker": {"replicas": 3.0}}),
        "spec.replicaSpecs[worker]",
        "minReplicas, replicas: write whole numbers, such as 3, not 3.0",
    ),
    "delays as fractions": (
        job(
            roles={
                "worker": {
                    "restartRules": [
                        {"action": "Ignore", "minDelaySeconds": 1.0, "maxDelaySeconds": 3.0}
                    ]
                }
            },
        ),
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
        job(roles={"worker": {"template": {}}}),
        "spec.replicaSpecs[worker].template.spec.containers",
        "at least one container",
    ),
    "no container": (
        job(roles={"worker": {"template": {"spec": {"containers": []}}}}),
        "spec.replicaSpecs[worker].template.spec.containers",
        "at least one container",
    ),
    "unknown role to scale": (
        job(autoscaling={"enabled": True, "role": "ps"}),
        "spec.autoscaling.role",
        "ps",
        "replicaSpecs",
    ),
    "negative quantity": (
        job(autoscaling={"resourceLimits": {"cpu": -1}}),
        "spec.autoscaling.resourceLimits.cpu",
        "-1",
    ),
    "a bound twice": (
        job(autoscaling={"resourceLimits": {"gpu": 1, "nvidia.com/gpu": 2}}),
        "spec.autoscaling.resourceLimits",
        "gpu is short for nvidia.com/gpu; give one of them",
    ),
    "too many bounds": (
        job(autoscaling={"resourceLimits": {f"x/{n}": 1 for n in range(9)}}),
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
        job(autoscaling={"multipleOf": 0}),
        "spec.autoscaling.multipleOf",
        "greater than or equal to 1",
    ),
    "multiples of too much": (
        job(autoscaling={"multipleOf": 1001}),
        "spec.autoscaling.multipleOf",
        "less than or equal to 1000",
    ),
    "a profile that is not a name": (
        job(autoscaling={"profile": "../other"}),
        "spec.autoscaling.profile",
        "../other",
    ),
    "a profile with a long name": (
        job(autoscaling={"profile": "a" * 64}),
        "spec.autoscaling.profile",
        "63",
    ),
    "zero efficiency": (
        job(autoscaling={"objective": {"minMarginalEfficiency": 0}}),
        "spec.autoscaling.objective.minMarginalEfficiency",
        "greater than 0",
    ),
    "an objective that is none": (
        job(autoscaling={"objective": {"type": "Speed"}}),
        "spec.autoscaling.objective.type",
        "Throughput",
    ),
    "an efficiency that another objective would not look at": (
        job(autoscaling={"objective": {"type": "Throughput", "minMarginalEfficiency": 0.3}}),
        "spec.autoscaling.objective.minMarginalEfficiency",
        "minMarginalEfficiency is 0.3, but type is Throughput",
        "use type Efficiency",
    ),
    "a deadline without its time": (
        job(autoscaling={"objective": {"type": "Deadline"}}),
        "spec.autoscaling.objective.finishTime",
        "finishTime is missing",
        "2026-01-31T18:00:00Z",
    ),
    "a finish time that is none": (
        job(autoscaling={"objective": {"type": "Deadline", "finishTime": "tomorrow"}}),
        "spec.autoscaling.objective.finishTime",
        "date-time",
    ),
    "a finish time of another objective": (
        job(
            autoscaling={"objective": {"type": "Throughput", "finishTime": "2026-01-31T18:00:00Z"}}
        ),
        "spec.autoscaling.objective.finishTime",
        "finishTime is 2026-01-31T18:00:00Z, but type is Throughput",
        "use type Deadline",
    ),
    "prices of another objective": (
        job(autoscaling={"objective": {"prices": {"worker": 1}}}),
        "spec.autoscaling.objective.prices",
        "prices has 1 roles, but type is Efficiency",
        "use type Cost",
    ),
    "costs without a price of the scaled role": (
        job(autoscaling={"objective": {"type": "Cost", "prices": {}}}),
        "spec.autoscaling.objective",
        "objective.prices needs what a member of worker, the role that is scaled, costs an hour: "
        "0.000001 to 1000000",
    ),
    "a scaled role that costs nothing": (
        job(autoscaling={"objective": {"type": "Cost", "prices": {"worker": 0}}}),
        "spec.autoscaling.objective",
        "0.000001 to 1000000",
    ),
    "a price below nothing": (
        job(autoscaling={"objective": {"type": "Cost", "prices": {"worker": -1}}}),
        "spec.autoscaling.objective.prices",
        "greater than or equal to 0",
    ),
    "a price beyond measure": (
        job(autoscaling={"objective": {"type": "Cost", "prices": {"worker": 2e6}}}),
        "spec.autoscaling.objective.prices",
        "less than or equal to 1e+06",
    ),
    "the price of a role that the job does not have": (
        job(autoscaling={"objective": {"type": "Cost", "prices": {"worker": 1, "ps": 2.5}}}),
        "spec.autoscaling.objective",
        'autoscaling.objective.prices has ["ps"], which is not one of replicaSpecs',
    ),
}


@pytest.mark.guarantee("bad-input-is-refused", "auto-scaling-objectives", "multiples-of-hosts")
@pytest.mark.parametrize("case", BAD_JOBS)
async def test_a_bad_job_is_rejected_by_field(kube: Kube, namespace: str, case: str) -> None:
    body, *parts = BAD_JOBS[case]
    message = await refused(kube, namespace, ELASTIC_JOBS, body)
    assert [part for part in parts if part not in message] == [], message


async def test_a_whole_fraction_that_no_rule_reads_is_stored_as_a_whole_number(
    kube: Kube, namespace: str
) -> None:
    stored = await kube.create(
        ELASTIC_JOBS, namespace, job(roles={"worker": {"slotsPerReplica": 2.0}})
    )
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
    kube: Kube, namespace: str, framework: str, roles: Json
) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job(framework=framework, roles=roles))


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
    kube: Kube, namespace: str, objective: Json
) -> None:
    body = job(
        framework="tensorflow",
        roles={"worker": {}, "chief": {}},
        autoscaling={"objective": objective},
    )
    await kube.create(ELASTIC_JOBS, namespace, body)
    other = {"type": "Efficiency", "minMarginalEfficiency": 0.3, "finishTime": None, "prices": None}
    change = {"spec": {"autoscaling": {"objective": other}}}
    changed = await kube.patch(ELASTIC_JOBS, namespace, "job", change)
    assert changed["spec"]["autoscaling"]["objective"] == {
        "type": "Efficiency",
        "minMarginalEfficiency": 0.3,
    }


async def test_a_native_gang_and_its_priority_are_those_of_the_jobs_creation(
    kube: Kube, namespace: str
) -> None:
    def policy(**fields: Any) -> Json:
        return {"spec": {"runPolicy": {"schedulingPolicy": fields}}}

    body = job()
    body["spec"] |= policy(gang="native", priorityClassName="low")["spec"]
    await kube.create(ELASTIC_JOBS, namespace, body)
    for change, field in (
        (policy(gang="none"), "gang"),
        (policy(priorityClassName="high"), "priorityClassName"),
        (policy(priorityClassName=None), "priorityClassName"),
    ):
        with pytest.raises(Refused, match=f"spec.runPolicy.schedulingPolicy.{field}: "):
            await kube.patch(ELASTIC_JOBS, namespace, "job", change)
    await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": {"runPolicy": {"suspend": True}}})


async def test_a_role_needs_a_template(kube: Kube, namespace: str) -> None:
    body = job()
    del body["spec"]["replicaSpecs"]["worker"]["template"]
    assert "spec.replicaSpecs[worker].template" in await refused(
        kube, namespace, ELASTIC_JOBS, body
    )


async def test_a_short_job_gets_every_default_at_every_level(kube: Kube, namespace: str) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job())
    stored = await kube.get(ELASTIC_JOBS, namespace, "job")
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
    assert (await kube.get(ELASTIC_JOBS, namespace, "job", as_type=ElasticJob)).status.phase is None


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
async def test_immutable_fields_stay(kube: Kube, namespace: str, change: Json, field: str) -> None:
    await kube.create(
        ELASTIC_JOBS, namespace, job(roles={"worker": {"volumeClaimTemplates": [CLAIM]}})
    )
    with pytest.raises(Refused) as refusal:
        await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": change})
    assert field in refusal.value.message


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
    kube: Kube, namespace: str, framework: str, roles: Json, change: Json, message: str
) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job(framework=framework, roles=roles))
    with pytest.raises(Refused) as refusal:
        await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": {"replicaSpecs": change}})
    assert message in refusal.value.message


async def test_roles_can_be_added_and_removed_together_with_their_dependents(
    kube: Kube, namespace: str
) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job(framework="custom", roles={"a": {}}))
    added = {"b": _STORE, "c": _STORE | {"dependsOn": ["b"]}}
    await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": {"replicaSpecs": added}})
    stored = await kube.patch(
        ELASTIC_JOBS, namespace, "job", {"spec": {"replicaSpecs": {"b": None, "c": None}}}
    )
    assert stored["spec"]["replicaSpecs"].keys() == {"a"}


async def test_size_suspension_and_autoscaling_can_change(kube: Kube, namespace: str) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job())
    change = {
        "replicaSpecs": {"worker": {"replicas": 4, "maxReplicas": 8}},
        "runPolicy": {"suspend": True},
        "autoscaling": {"enabled": True},
    }
    stored = await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": change})
    assert stored["metadata"]["generation"] == 2


async def test_a_job_and_a_plan_accept_the_maximum_number_of_roles(
    kube: Kube, namespace: str
) -> None:
    names_of_roles = [f"{number}".rjust(20, "r") for number in range(MAX_ROLES + 1)]
    role = {"agent": "None", "restartRules": [{"action": "Ignore", "messagePattern": "x{3}"}] * 32}
    body = job(framework="custom", roles=dict.fromkeys(names_of_roles[1:], role))
    await kube.create(ELASTIC_JOBS, namespace, body)
    counts = {name: {"replicas": 2} for name in names_of_roles}
    plan = made(
        SCALE_PLANS,
        "plan",
        jobName="job",
        replicaResourceSpecs={r: counts[r] for r in names_of_roles[1:]},
    )
    await kube.create(SCALE_PLANS, namespace, plan)
    too_many = job("more", framework="custom", roles=dict.fromkeys(names_of_roles, role))
    assert f"must have at most {MAX_ROLES} items" in await refused(
        kube, namespace, ELASTIC_JOBS, too_many
    )
    plan = made(SCALE_PLANS, "more", jobName="job", replicaResourceSpecs=counts)
    assert f"must have at most {MAX_ROLES} items" in await refused(
        kube, namespace, SCALE_PLANS, plan
    )


@pytest.mark.guarantee("job-stopped-for-good")
async def test_a_stop_cannot_be_undone(kube: Kube, namespace: str) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job())
    await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": {"runPolicy": {"stop": True}}})
    await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": {"runPolicy": {"suspend": True}}})
    for taken_back in ({"stop": False}, {"stop": None}, None):
        with pytest.raises(Refused, match=r"spec\.runPolicy\.stop: .* cannot be undone"):
            await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": {"runPolicy": taken_back}})


@pytest.mark.guarantee("multiples-of-hosts")
async def test_multiple_of_restricts_the_auto_scaler_and_not_other_changes(
    kube: Kube, namespace: str
) -> None:
    worker = {"replicas": 8, "maxReplicas": 64}
    others = {"replicas": 3, "minReplicas": 3, "maxReplicas": 5}
    body = job(
        framework="tensorflow",
        roles={"worker": worker, "ps": others},
        autoscaling={"multipleOf": 4},
    )
    await kube.create(ELASTIC_JOBS, namespace, body)

    async def change(spec: Json) -> None:
        await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": spec})

    # As the operator does after a plan of that size.
    await change({"replicaSpecs": {"worker": {"replicas": 5}}})
    await change({"replicaSpecs": {"worker": {"minReplicas": 4}}, "autoscaling": {"enabled": True}})
    with pytest.raises(Refused, match="maxReplicas of worker is 30, which is not a multiple"):
        await change({"replicaSpecs": {"worker": {"maxReplicas": 30}}})
    with pytest.raises(
        Refused, match=r"replicas of worker is 5, which is not a multiple .*, which is 2"
    ):
        await change({"autoscaling": {"multipleOf": 2}})
    with pytest.raises(Refused, match="minReplicas of ps is 3"):
        await change({"autoscaling": {"role": "ps"}})
    await change({"replicaSpecs": {"worker": {"replicas": 6}}, "autoscaling": {"multipleOf": 2}})


async def test_the_scale_subresource_is_the_worker_count_within_its_bounds(
    kube: Kube, namespace: str
) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job(roles={"worker": {"maxReplicas": 5}}))
    await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": {"replicas": 3}}, subresource="scale")
    found = await kube.get(ELASTIC_JOBS, namespace, "job")
    assert found["spec"]["replicaSpecs"]["worker"]["replicas"] == 3
    with pytest.raises(Refused, match="above maxReplicas, which is 5"):
        await kube.patch(
            ELASTIC_JOBS, namespace, "job", {"spec": {"replicas": 9}}, subresource="scale"
        )


async def test_operator_and_master_each_keep_their_part_of_the_status(
    kube: Kube, namespace: str
) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job())
    status = {"replicaStatuses": {"worker": {"desired": 2, "indices": "0-1"}}, "phase": "Running"}
    await kube.patch(ELASTIC_JOBS, namespace, "job", {"status": status}, subresource="status")
    progress = {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "status": {"progress": {"step": 7}},
    }
    await kube.apply(
        ELASTIC_JOBS,
        namespace,
        "job",
        progress,
        subresource="status",
        field_manager=names.MASTER,
    )
    stored = await kube.get(ELASTIC_JOBS, namespace, "job")
    assert stored["status"] == ElasticJob.UNSEEN_STATUS | status | {"progress": {"step": 7}}


@pytest.mark.guarantee("very-large-jobs")
@pytest.mark.thorough
async def test_the_status_of_ten_thousand_members_fits_into_one_object(
    kube: Kube, namespace: str
) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job())
    members = [str(index) for index in range(10_000)]
    kept = {
        "restartsByIndex": dict.fromkeys(members, 1),
        "uncountedByIndex": dict.fromkeys(members, 1),
        "backOff": {key: {"failures": 2, "until": "2026-01-01T00:00:00Z"} for key in members},
        "resourcesByIndex": {key: {"memory": "16384Mi", "cpu": "1500m"} for key in members},
    }
    for field, value in kept.items():
        status = {"replicaStatuses": {"worker": {field: value}}}
        stored = await kube.patch(
            ELASTIC_JOBS, namespace, "job", {"status": status}, subresource="status"
        )
    assert stored["status"]["replicaStatuses"]["worker"] == kept
    assert len(msgspec.json.encode(stored)) < 1_400_000, "one object holds 1.5 MiB"
    assert len(msgspec.json.encode(stored["metadata"]["managedFields"])) < 10_000


BAD_REQUESTS: dict[str, tuple[Resource, Json, *tuple[str, ...]]] = {
    "a whole number as a fraction": (
        SCALE_INS,
        {"count": 2.0},
        "spec",
        "count: write whole numbers, such as 3, not 3.0",
    ),
    "no job": (SCALE_OUTS, {"count": 1, "jobName": None}, "spec.jobName", "Required"),
    "a script that is too long": (
        SCALE_INS,
        {"count": 1, "script": "x" * 16_385},
        "spec.script",
        "16384",
    ),
    "too many variables of a script": (
        SCALE_INS,
        {"count": 1, "script": "x", "env": [{"name": f"A{number}"} for number in range(33)]},
        "spec.env",
        "32",
    ),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
async def test_a_bad_request_is_rejected_by_field(kube: Kube, namespace: str, case: str) -> None:
    resource, spec, *parts = BAD_REQUESTS[case]
    message = await refused(
        kube, namespace, resource, made(resource, "request", **({"jobName": "job"} | spec))
    )
    assert [part for part in parts if part not in message] == [], message


BAD_PLANS: dict[str, tuple[Json, *tuple[str, ...]]] = {
    "empty lists": ({"createPods": [], "removePods": []}, "spec", "nothing to do"),
    "a whole number as a fraction": (
        {"replicaResourceSpecs": {"worker": {"replicas": 3.0}}},
        "spec.replicaResourceSpecs[worker]",
        "replicas: write whole numbers, such as 3, not 3.0",
    ),
    "an index as a fraction": (
        {"removePods": [{"role": "worker", "index": 1.0}]},
        "spec.removePods[0]",
        "index: write whole numbers",
    ),
    "too many resources": (
        {"migratePods": [{"name": "a", "resource": {f"x/{n}": 1 for n in range(9)}}]},
        "spec.migratePods[0].resource",
        "9",
        "at most 8 items",
    ),
    "long name of a resource": (
        {"createPods": [{}, {"resource": {f"x.com/{'a' * 58}": 1}}]},
        "spec.createPods[1].resource",
        "at most 63 characters",
    ),
    "malformed extended resource": (
        {"replicaResourceSpecs": {"worker": {"resource": {"rdma/hca": "one"}}}},
        "spec.replicaResourceSpecs.worker.resource.rdma/hca",
        "one",
    ),
    "name and role": (
        {"removePods": [{"name": "a", "role": "worker"}]},
        "spec.removePods[0]",
        "either name, or role",
    ),
    "role only": (
        {"removePods": [{"name": "a"}, {"role": "worker"}]},
        "spec.removePods[1]",
        "either name, or role",
    ),
    "index only": ({"migratePods": [{"index": 1}]}, "spec.migratePods[0]", "either name, or role"),
    "unknown source": ({"source": "Me", "createPods": [{}]}, "spec.source", "Me", "Manual"),
}


@pytest.mark.parametrize("case", BAD_PLANS)
async def test_a_bad_plan_is_rejected_by_field(kube: Kube, namespace: str, case: str) -> None:
    spec, *parts = BAD_PLANS[case]
    message = await refused(
        kube, namespace, SCALE_PLANS, made(SCALE_PLANS, "plan", jobName="job", **spec)
    )
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize(
    ("resource", "spec", "change"),
    [
        (SCALE_PLANS, {"createPods": [{}]}, {"onTimeout": "Rollback"}),
        (
            SCALE_PLANS,
            {"replicaResourceSpecs": {"worker": {"resource": {"cpu": "1"}}}},
            {"replicaResourceSpecs": {"worker": {"resource": {"cpu": "2"}}}},
        ),
        (SCALE_OUTS, {"count": 1}, {"count": 2}),
        (SCALE_INS, {"podNames": ["a", "b"]}, {"podNames": ["a"]}),
    ],
    ids=["plan", "resource of a plan", "scale out", "scale in"],
)
async def test_a_change_request_is_immutable(
    kube: Kube, namespace: str, resource: Resource, spec: Json, change: Json
) -> None:
    await kube.create(resource, namespace, made(resource, "request", jobName="job", **spec))
    with pytest.raises(Refused, match=f"spec is immutable; create another {resource.kind}"):
        await kube.patch(resource, namespace, "request", {"spec": change})


async def test_a_plan_is_stored_as_written_and_can_be_found_by_its_job(
    kube: Kube, namespace: str
) -> None:
    resource = {
        "cpu": "500m",
        "memory": "1Gi",
        "nvidia.com/gpu": 1,
        "networking.example.com/rdma_0": "2",
    }
    role = {"replicas": 2, "resource": resource}
    for name in ("one", "two"):
        body = made(
            SCALE_PLANS, name, jobName=name, replicaResourceSpecs={"worker": role}, createPods=[{}]
        )
        await kube.create(SCALE_PLANS, namespace, body)
    found = (await kube.list(SCALE_PLANS, namespace, field_selector="spec.jobName=one"))["items"]
    assert [item["metadata"]["name"] for item in found] == ["one"]
    plan = msgspec.convert(found[0], ScalePlan).spec
    assert plan.replica_resource_specs["worker"].resource == resource
    assert (plan.source, plan.timeout_seconds, plan.create_pods[0].role) == (
        "Manual",
        600,
        "worker",
    )


async def test_kubectl_shows_the_important_columns(
    kube: Kube, namespace: str, cluster: Cluster
) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job())
    status = {
        "phase": "Running",
        "workers": "2/3",
        "progress": {"steps": "12/480", "rate": "1.2k/s", "eta": "6m"},
        "restarts": 1,
    }
    await kube.patch(ELASTIC_JOBS, namespace, "job", {"status": status}, subresource="status")
    await kube.create(
        SCALE_PLANS, namespace, made(SCALE_PLANS, "plan", jobName="job", createPods=[{}])
    )
    await kube.patch(
        SCALE_PLANS,
        namespace,
        "plan",
        {"status": {"change": "worker 2 to 3"}},
        subresource="status",
    )
    await kube.create(SCALE_OUTS, namespace, made(SCALE_OUTS, "out", jobName="job", count=1))
    await kube.patch(
        SCALE_OUTS, namespace, "out", {"status": {"phase": "ScaleSucceeded"}}, subresource="status"
    )

    def kubectl(*arguments: str) -> str:
        command = [
            str(cluster.bin / "kubectl"),
            f"--kubeconfig={cluster.kubeconfig}",
            "-n",
            namespace,
            *arguments,
        ]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    header, row = kubectl("get", "ej").splitlines()
    assert header.split() == ["NAME", "PHASE", "WORKERS", "STEP", "RATE", "ETA", "RESTARTS", "AGE"]
    assert row.split()[:7] == ["job", "Running", "2/3", "12/480", "1.2k/s", "6m", "1"]
    header, row = kubectl("get", "sp").splitlines()
    assert header.split() == ["NAME", "JOB", "SOURCE", "CHANGE", "PHASE", "AGE"]
    assert row.split()[:7] == ["plan", "job", "Manual", "worker", "2", "to", "3"]
    header, row = kubectl("get", "so").splitlines()
    assert header.split() == ["NAME", "JOB", "PHASE", "AGE"]
    assert row.split()[:3] == ["out", "job", "ScaleSucceeded"]
    everything = kubectl("get", "all")
    assert all(
        name in everything
        for name in ("elasticjob.elasticjob.dev/job", "scaleplan.elasticjob.dev/plan")
    )
    assert "determines roles, ports and environment" in kubectl("explain", "ej.spec.framework")

"""The master reads an ElasticJob and its plans, and writes plans and a status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import elasticjob
from elasticjob_api.elasticjob import MAX_REPLICAS, ElasticJob
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import Migration, ScalePlan, ScalePlanStatus
from elasticjob_api.step_report import StepReport
from elasticjob_master.cluster import auto_plans, job_spec, scaling_spec
from elasticjob_master.cluster.progress_writer import progress_status
from elasticjob_master.config import Config
from elasticjob_master.core.autoscale.decision import ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import ContainerResources
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.progress import Progress
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.core.straggler_replacement import Straggler
from elasticjob_master.core.stragglers import Slowness
from msgspec.structs import replace as replaced

from tests.support.master.config import master_config
from tests.support.work import counted

ALONE = (
    "worker.replicas, as neither maxReplicas nor resourceLimits are set (write one to let it grow),"
)


def job(
    *,
    status: dict[str, Any] | None = None,
    autoscaling: dict[str, Any] | None = None,
    **worker: Any,
) -> ElasticJob:
    container = {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    role = {
        "replicas": 2,
        "minReplicas": 1,
        "template": {"spec": {"containers": [container]}},
        **worker,
    }
    spec = {"framework": "jax", "replicaSpecs": {"worker": role}, "autoscaling": autoscaling or {}}
    return msgspec.convert(
        {"metadata": {"name": "j"}, "spec": spec, "status": status or {}}, ElasticJob
    )


def test_the_operators_status_decides_the_size_and_before_it_the_spec() -> None:
    assert job_spec.sizes(job()) == {"worker": RoleSize(1, 2)}
    assert job_spec.sizes(job(status={"replicaStatuses": {"worker": {"desired": 4}}})) == {
        "worker": RoleSize(1, 4)
    }


def test_a_role_that_is_added_counts_from_its_plan_on_and_one_that_is_removed_no_more() -> None:
    stored: dict[str, Any] = {"phase": "Running", "replicaStatuses": {"worker": {"desired": 2}}}
    before = job(status=stored)
    worker = before.spec.replica_specs["worker"]
    added = replaced(worker, replicas=3, min_replicas=3)
    after = replaced(
        before, spec=replaced(before.spec, replica_specs={"worker": worker, "more": added})
    )
    assert job_spec.sizes(after) == {"worker": RoleSize(1, 2), "more": RoleSize(0, 0)}, (
        "the operator does not know it"
    )
    stored["replicaStatuses"]["more"] = {"desired": 3, "highestIndex": 2}
    status = job(status=stored).status
    assert job_spec.sizes(replaced(after, status=status))["more"] == RoleSize(3, 3)
    for removed in (True, False):  # the operator has seen it, or will
        stored["replicaStatuses"]["more"] = {"desired": 3, "highestIndex": 2, "removed": removed}
        known = {"more": RoleSize(3, 3, kept=True)}
        assert job_spec.sizes(job(status=stored), known)["more"] == RoleSize(0, 0, kept=True)
        assert job_spec.sizes(job(status=stored))["more"] == RoleSize(0, 0), (
            "a master that comes later"
        )


def test_gpus_and_price_of_a_member_follow_its_template_unless_a_plan_has_changed_them() -> None:
    template = {
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"amd.com/gpu": 4, "cpu": 2}}}]
        }
    }
    assert job_spec.gpus(job()) == {}
    assert job_spec.gpus(job(template=template)) == {"worker": 4}
    status: dict[str, Any] = {
        "replicaStatuses": {"worker": {"desired": 2, "resources": {"amd.com/gpu": "8", "cpu": "1"}}}
    }
    assert job_spec.gpus(job(template=template, status=status)) == {"worker": 8}
    status["replicaStatuses"]["worker"]["resourcesByIndex"] = {"3": {"amd.com/gpu": "2"}}
    prices = {"amd.com/gpu": 10.0, "cpu": 0.5}
    assert job_spec.hourly_costs(job(template=template), prices) == {"worker": 41}
    costs = job_spec.hourly_costs(job(template=template, status=status), prices)
    assert costs == {"worker": 80.5, ("worker", 3): 20.5}


@pytest.mark.parametrize(
    ("template", "costs"),
    [
        ({}, {"worker": 0, ("worker", 3): 0}),
        ({"spec": {"containers": "none"}}, {"worker": 0, ("worker", 3): 0}),
        (
            {"spec": {"containers": [{"resources": {"limits": ["none"]}}]}},
            {"worker": 0, ("worker", 3): 0},
        ),
        ({"spec": {}}, {"worker": 1, ("worker", 3): 2}),
        ({"spec": {"containers": []}}, {"worker": 1, ("worker", 3): 2}),
    ],
)
def test_an_edit_of_a_running_job_that_no_pod_could_have_does_not_end_its_master(
    template: dict[str, Any], costs: dict[Any, float]
) -> None:
    own = {"resources": {"cpu": "1"}, "resourcesByIndex": {"3": {"cpu": "2"}}}
    edited = job(
        template=template,
        status={"phase": "Running", "replicaStatuses": {"worker": {"desired": 2, **own}}},
        autoscaling={"resourceLimits": {"cpu": 9}},
        restartRules=[{"action": "FailJob", "exitCodes": [3], "containers": ["c"]}],
    )
    assert job_spec.sizes(edited)["worker"].actions == {}
    assert job_spec.gpus(edited) == {}
    assert job_spec.hourly_costs(edited, {"cpu": 1.0}) == costs
    scaling = scaling_spec.job_scaling(edited, plan_unfinished=False)
    assert scaling is not None
    assert scaling.free_resources == {"cpu": 9 - sum(costs.values())}


@pytest.mark.parametrize(
    ("limit", "each", "most"),
    [("1e40", 1, MAX_REPLICAS), (1, "1e-40", MAX_REPLICAS), (1, "1e40", 1)],
)
def test_a_limit_out_of_all_proportion_to_the_members_bounds_the_size_too(
    limit: int | str, each: int | str, most: int
) -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": each}}}]}}
    large = job(template=template, replicas=1, autoscaling={"resourceLimits": {"cpu": limit}})
    assert scaling_spec.bounds(large, "worker").maximum == most


def test_a_template_is_read_once_for_all_members_with_resources_of_their_own() -> None:
    def work(members: int, containers: int) -> int:
        each = {"name": "c", "resources": {"requests": {"cpu": 1}}}
        own = {str(index): {"cpu": "2"} for index in range(members)}
        status = {"replicaStatuses": {"worker": {"desired": members, "resourcesByIndex": own}}}
        large = job(
            template={"spec": {"containers": [each] * containers}},
            status=status,
            autoscaling={"resourceLimits": {"cpu": 999}},
        )
        return counted(
            lambda: (
                job_spec.hourly_costs(large, {"cpu": 1.0}),
                scaling_spec.job_scaling(large, plan_unfinished=False),
            )
        )[1]

    assert work(50, 100) - work(50, 1) < 1.1 * (work(1, 100) - work(1, 1))


def test_the_memory_for_checkpoints_is_the_limit_of_a_member_whose_job_could_keep_them_there() -> (
    None
):
    container = {"name": "c", "resources": {"limits": {"memory": "8Gi"}}}
    template = {"spec": {"containers": [container]}}
    limited = job(template=template)
    assert job_spec.memory_for_state(limited) == 8 << 30
    status = {"replicaStatuses": {"worker": {"desired": 2, "resources": {"memory": "4Gi"}}}}
    assert job_spec.memory_for_state(job(template=template, status=status)) == 4 << 30
    assert job_spec.memory_for_state(job()) is None, "a request is no limit"
    assert job_spec.memory_for_state(job(template=template, onWorldChange="Notify")) is None
    has_it = replaced(limited.spec, agent=replaced(limited.spec.agent, state_memory="1Gi"))
    assert job_spec.memory_for_state(replaced(limited, spec=has_it)) is None
    roles = {**limited.spec.replica_specs, "ps": limited.spec.replica_specs["worker"]}
    several = replaced(limited.spec, replica_specs=roles)
    assert job_spec.memory_for_state(replaced(limited, spec=several)) is None


def test_a_job_on_the_networks_of_its_nodes_has_a_port_of_its_own() -> None:
    assert job_spec.own_port(job()) == 0
    on_nodes = job(template={"spec": {"hostNetwork": True}})
    uids = [ObjectMeta(name="j", uid=uid) for uid in ("0b8d2d4c", "3f6b6b0e")]
    one, other = (job_spec.own_port(replaced(on_nodes, metadata=uid)) for uid in uids)
    assert 0 != one != other


@pytest.mark.parametrize(
    ("worker", "restarts", "in_all", "ending"),
    [
        ({}, {}, 0, []),
        ({}, {"1": 3}, 3, [1]),
        ({"restartLimit": 0}, {}, 0, [0, 1]),
        ({"restartLimit": 0, "completion": {"minFailed": 2}}, {}, 0, []),
        ({"restartLimit": 0, "completion": {"minFailed": 2}}, {"0": 1}, 1, [0, 1]),
        ({}, {"0": 2, "1": 1}, 10, [0, 1]),
    ],
)
def test_limits_of_restarts_say_whose_next_failure_ends_the_job(
    worker: dict[str, Any], restarts: dict[str, int], in_all: int, ending: list[int]
) -> None:
    counted = {"desired": 2, "restarts": in_all, "restartsByIndex": restarts}
    status = {"replicaStatuses": {"worker": counted}}
    size = job_spec.sizes(job(status=status, **worker))["worker"]
    assert [index for index in range(2) if index in size.without_restarts] == ending


def test_the_first_restart_rule_about_an_exit_code_says_what_follows_it() -> None:
    rules = [
        {"action": "Ignore", "exitCodes": [3], "containers": ["sidecar"]},
        {"action": "Ignore", "exitCodes": [3, 4], "messagePattern": "lost"},
        {"action": "FailJob", "exitCodes": [3, 42], "containers": ["c"]},
        {"action": "Ignore", "exitCodes": [42, 43]},
        {"action": "Restart", "signals": [4, 9], "exitCodes": [132, 140]},
        {"action": "FailJob", "signals": [9]},
        {"action": "FailJob", "reasons": ["Error"]},
    ]
    expected = {3: "FailJob", 42: "FailJob", 43: "Ignore", 132: "Restart", 137: "FailJob"}
    assert job_spec.sizes(job(restartRules=rules))["worker"].actions == expected
    every = job_spec.sizes(job(restartRules=[{"action": "FailJob"}]))["worker"].actions
    assert set(every.values()) == {"FailJob"}
    assert 1 in every
    assert 0 not in every


@pytest.mark.parametrize(
    ("worker", "limits", "maximum", "limit"),
    [
        ({"maxReplicas": 5}, {}, 5, "worker.maxReplicas"),
        ({}, {}, 2, ALONE),
        ({}, {"cpu": 20, "memory": "30Gi"}, 30, "autoscaling.resourceLimits (memory 30Gi)"),
        (
            {},
            {"gpu": 8},
            2,
            "worker.replicas, as neither maxReplicas nor resourceLimits are set "
            "(write one to let it grow),",
        ),
        ({"maxReplicas": 5}, {"cpu": 2}, 4, "autoscaling.resourceLimits (cpu 2)"),
        (
            {"maxReplicas": 5},
            {"cpu": 2, "memory": "3500Mi"},
            3,
            "autoscaling.resourceLimits (memory 3500Mi)",
        ),
        ({"maxReplicas": 5}, {"gpu": 0}, 5, "worker.maxReplicas"),
    ],
)
def test_the_bounds_of_the_auto_scaler(
    worker: dict[str, Any], limits: dict[str, Any], maximum: int, limit: str
) -> None:
    bounds = scaling_spec.bounds(job(autoscaling={"resourceLimits": limits}, **worker), "worker")
    assert (bounds.minimum, bounds.maximum, bounds.limit) == (1, maximum, limit)


@pytest.mark.guarantee("multiples-of-hosts")
@pytest.mark.parametrize(
    ("worker", "limits", "expected"),
    [
        ({"replicas": 8, "maxReplicas": 64}, {}, (4, 64, 4)),
        ({"replicas": 8, "minReplicas": 8, "maxReplicas": 8}, {}, (8, 8, 4)),
        ({"replicas": 8, "maxReplicas": 64}, {"cpu": "7500m"}, (4, 12, 4)),
        ({"replicas": 4, "minReplicas": 0, "maxReplicas": 8}, {}, (4, 8, 4)),
        ({"replicas": 7}, {}, (4, 4, 4)),
        ({"replicas": 8, "minReplicas": 8, "maxReplicas": 64}, {"cpu": 3}, (8, 8, 1)),
        ({"replicas": 3, "maxReplicas": 64}, {"cpu": "1500m"}, (3, 3, 1)),
    ],
)
def test_the_auto_scalers_bounds_are_multiples_and_if_there_are_none_the_present_size(
    worker: dict[str, Any], limits: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    autoscaling = {"multipleOf": 4, "resourceLimits": limits}
    found = scaling_spec.bounds(job(autoscaling=autoscaling, **worker), "worker")
    assert (found.minimum, found.maximum, found.multiple_of) == expected


def test_extended_resources_bound_the_auto_scaler_as_cpu_does() -> None:
    container = {"name": "c", "resources": {"limits": {"amd.com/gpu": 2}}}
    worker = {"template": {"spec": {"containers": [container]}}}
    limits = {"resourceLimits": {"amd.com/gpu": 9}}
    found = scaling_spec.bounds(job(autoscaling=limits, **worker), "worker")
    assert (found.maximum, found.limit) == (4, "autoscaling.resourceLimits (amd.com/gpu 9)")
    status = {"replicaStatuses": {"worker": {"desired": 2, "resources": {"amd.com/gpu": 3}}}}
    assert (
        scaling_spec.bounds(job(status=status, autoscaling=limits, **worker), "worker").maximum == 3
    )


def test_resources_set_by_a_plan_count_in_place_of_the_templates() -> None:
    status = {"replicaStatuses": {"worker": {"desired": 2, "resources": {"cpu": "1"}}}}
    bounds = scaling_spec.bounds(
        job(status=status, autoscaling={"resourceLimits": {"cpu": 3}}, maxReplicas=5), "worker"
    )
    assert bounds.maximum == 3


def test_a_role_that_is_not_to_be_scaled_is_not_scaled() -> None:
    enabled = {"enabled": True, "cooldownSeconds": 5}
    plain = scaling_spec.job_scaling(job(autoscaling=enabled), plan_unfinished=False)
    fixed = scaling_spec.job_scaling(
        job(autoscaling=enabled, autoScale=False), plan_unfinished=False
    )
    assert plain is not None
    assert fixed is not None
    assert (plain.enabled, fixed.enabled, plain.cooldown) == (True, False, 5.0)


def test_the_auto_scaler_gets_the_resources_of_a_role() -> None:
    status = {
        "worker": {
            "desired": 3,
            "indices": "0-2",
            "succeededIndices": "1",
            "resourcesByIndex": {"2": {"cpu": 2}},
        }
    }
    found = scaling_spec.job_scaling(
        job(status={"replicaStatuses": status}, autoscaling={"resourceLimits": {"cpu": 5}}),
        plan_unfinished=False,
    )
    assert found is not None
    assert found.indices == {0, 2}
    assert found.free_resources == {"cpu": 2.0}
    shares = found.roles["worker"]
    assert (shares.each, shares.by_index) == (
        ContainerResources(0.5, 1024**3),
        {2: ContainerResources(2.0, 1024**3)},
    )
    assert (shares.most_memory, shares.memory_bound) == (4 * 1024**3, "4 times the template's")


def test_resources_of_the_whole_pod_bound_the_size_and_are_left_as_they_are() -> None:
    template = {"spec": {"resources": {"requests": {"cpu": 2}}, "containers": [{"name": "c"}]}}
    limits = {"enabled": True, "resourceLimits": {"cpu": 7, "memory": "1Gi"}}
    found = scaling_spec.job_scaling(
        job(autoscaling=limits, template=template), plan_unfinished=False
    )
    assert found is not None
    assert (found.roles, found.bounds.maximum, found.free_resources["cpu"]) == ({}, 3, 3.0)
    by_memory = {"enabled": True, "resourceLimits": {"memory": "1Gi"}}
    bounds = scaling_spec.bounds(job(autoscaling=by_memory, template=template), "worker")
    assert (bounds.maximum, bounds.by_need) == (2, False)


BARE = {"spec": {"containers": [{"name": "c"}]}}
WITH_SIDECAR = {
    "spec": {
        "containers": [{"name": "c"}, {"name": "log", "resources": {"requests": {"cpu": "250m"}}}]
    }
}


def test_a_role_that_requests_nothing_is_bounded_by_the_expected_needs_of_its_members() -> None:
    limits = {"resourceLimits": {"cpu": 8}}
    bare = job(autoscaling=limits, template=BARE)
    found = scaling_spec.bounds(bare, "worker")
    assert (found.maximum, found.by_need) == (elasticjob.MAX_REPLICAS, True)
    assert scaling_spec.bounds(job(template=BARE), "worker").limit == ALONE, (
        "without a limit it stays as it is"
    )
    assert not scaling_spec.bounds(
        job(autoscaling=limits, template=BARE, autoScale=False), "worker"
    ).by_need
    assert not scaling_spec.bounds(
        job(autoscaling=limits, template=BARE, maxReplicas=4), "worker"
    ).by_need


@pytest.mark.guarantee("fruitless-resources-are-taken-back")
@pytest.mark.parametrize(
    ("framework", "role", "limits", "most"),
    [
        ("tensorflow", {"maxReplicas": 4}, {}, 4),
        ("tensorflow", {}, {}, 0),
        ("tensorflow", {}, {"cpu": 6}, 10),
        ("tensorflow", {"maxReplicas": 4}, {"cpu": 3}, 4),
        ("tensorflow", {"maxReplicas": 4}, {"cpu": 2}, 2),
        ("tensorflow", {"maxReplicas": 4, "autoScale": False}, {}, 0),
        ("custom", {"maxReplicas": 4}, {}, 4),
        ("custom", {"maxReplicas": 4, "onWorldChange": "Restart"}, {}, 4),
        ("custom", {"maxReplicas": 4, "onWorldChange": "Keep"}, {}, 0),
        ("custom", {"maxReplicas": 4, "onWorldChange": "Notify"}, {}, 0),
        ("custom", {"maxReplicas": 1}, {}, 0),
        ("custom", {}, {"cpu": 6}, 0),
        ("jax", {"maxReplicas": 4}, {}, 0),
    ],
)
def test_servers_are_added_only_if_their_variables_can_be_distributed_again(
    framework: str, role: dict[str, Any], limits: dict[str, Any], most: int
) -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "500m"}}}
    servers = {"replicas": 1, "template": {"spec": {"containers": [container]}}, **role}
    body = msgspec.to_builtins(job(autoscaling={"resourceLimits": limits}))
    body["spec"] |= {
        "framework": framework,
        "replicaSpecs": {**body["spec"]["replicaSpecs"], "ps": servers},
    }
    found = scaling_spec.job_scaling(msgspec.convert(body, ElasticJob), plan_unfinished=False)
    assert found is not None
    assert found.most_servers == ({"ps": most} if most else {})


def test_requests_of_other_containers_are_added_to_the_needs_of_a_member() -> None:
    found = scaling_spec.job_scaling(job(template=WITH_SIDECAR), plan_unfinished=False)
    assert found is not None
    role = found.roles["worker"]
    assert (role.is_unwritten, role.requests, role.desired) == (True, {"cpu": 0.25}, 2)
    status = {
        "replicaStatuses": {"worker": {"desired": 2, "resources": {"cpu": "2", "memory": "1Gi"}}}
    }
    given = scaling_spec.job_scaling(job(status=status, template=BARE), plan_unfinished=False)
    assert given is not None
    role = given.roles["worker"]
    assert (role.is_unwritten, role.most_memory, role.memory_bound) == (
        False,
        4 * 1024**3,
        "4 times what it has",
    )


def config(job_name: str, job_uid: str) -> Config:
    return master_config(job_name, job_uid, framework="jax")


def test_a_decision_becomes_one_plan() -> None:
    resources = {"ps": {"cpu": 1.5, "memory": 1024.0**3}}
    decision = ScalingDecision(
        "why",
        ScalingMemory(),
        size=4,
        resources=resources,
        migrate={"j-ps-1": {"cpu": 2.0}},
        remove=(3,),
    )
    plan = auto_plans.manifest(config("j", "u"), 7, "worker", decision)
    assert plan["metadata"]["name"] == "j-auto-7"
    assert plan["spec"] == {
        "jobName": "j",
        "source": "Auto",
        "reason": "why",
        "replicaResourceSpecs": {
            "ps": {"resource": {"cpu": "1500m", "memory": "1024Mi"}},
            "worker": {"replicas": 4},
        },
        "migratePods": [{"name": "j-ps-1", "resource": {"cpu": "2000m"}}],
        "removePods": [{"role": "worker", "index": 3}],
        "onTimeout": "Rollback",
    }
    made = msgspec.convert(plan, ScalePlan)
    assert auto_plans.number_of(made, config("j", "u")) == 7
    assert auto_plans.number_of(made, config("j", "another")) is None
    assert auto_plans.number_of(made, config("j-auto", "u")) is None


def test_first_requests_replace_the_members_that_cannot_change_in_place_and_touch_no_gpu() -> None:
    resources = {
        "worker": {"cpu": 2.0, "memory": 1024.0**3},
        "ps": {"cpu": 0.5, "memory": 2 * 1024.0**3},
    }
    fewer = ScalingDecision("why", ScalingMemory(), servers={"ps": 2})
    manifest = auto_plans.manifest(config("j", "u"), 1, "worker", fewer)
    assert manifest["spec"]["replicaResourceSpecs"] == {"ps": {"replicas": 2}}
    decision = ScalingDecision(
        "why",
        ScalingMemory(),
        size=4,
        resources=resources,
        replace=(("worker", 0), ("worker", 1), ("ps", 0)),
    )
    spec = auto_plans.manifest(config("j", "u"), 1, "worker", decision)["spec"]
    assert spec["replicaResourceSpecs"] == {
        "worker": {"replicas": 4, "resource": {"cpu": "2000m", "memory": "1024Mi"}},
        "ps": {"resource": {"cpu": "500m", "memory": "2048Mi"}},
    }
    assert spec["migratePods"] == [
        {"role": role, "index": index} for role, index in decision.replace
    ]
    greedy = ScalingDecision(
        "why", ScalingMemory(), resources={"worker": {"cpu": 1.0, "nvidia.com/gpu": 1.0}}
    )
    with pytest.raises(ValueError, match="not nvidia"):
        auto_plans.manifest(config("j", "u"), 1, "worker", greedy)


def test_the_plan_for_a_straggler_names_its_pod_and_avoids_its_node() -> None:
    member = Member(Identity("j-worker-3", "u", "worker", 3), 1, disconnected_since=None)
    straggler = Straggler(Slowness(member, 1.0, 1.0, 1, 4), rank=3, seconds=300.0, since=0.0)
    plan = auto_plans.manifest(
        config("j", "u"), 2, "worker", ScalingDecision("why", ScalingMemory(), straggler=straggler)
    )
    assert plan["spec"] == {
        "jobName": "j",
        "source": "Auto",
        "reason": "why",
        "migratePods": [{"name": "j-worker-3", "avoidNode": True}],
        "onTimeout": "Rollback",
    }
    made = msgspec.convert(plan, ScalePlan)
    assert auto_plans.replaced_straggler(made) == "j-worker-3"
    moved = Migration(role="worker", index=3, replacement=4, phase="Done")
    ended = replaced(made, status=ScalePlanStatus(phase="Succeeded", migrations=[moved]))
    assert auto_plans.ended_plan(job(), ended, 2).replacement == 4


@pytest.mark.parametrize(
    ("phase", "targets", "wanted", "had"),
    [
        ("PartiallySucceeded", {"worker": "0-2"}, 4, 3),
        ("Failed", {}, 4, 2),
        ("Succeeded", {"worker": "0-3"}, 4, 4),
    ],
)
def test_the_result_of_a_finished_plan_is_read_from_its_status(
    phase: str, targets: dict[str, str], wanted: int, had: int
) -> None:
    body = {
        "metadata": {"name": "j-auto-3"},
        "spec": {
            "jobName": "j",
            "source": "Auto",
            "replicaResourceSpecs": {"worker": {"replicas": 4}},
        },
        "status": {"phase": phase, "targets": targets},
    }
    ended = auto_plans.ended_plan(job(), msgspec.convert(body, ScalePlan), 3)
    assert (ended.number, ended.phase, ended.requested_size, ended.reached_size) == (
        3,
        phase,
        wanted,
        had,
    )


def test_leaving_pods_have_the_plans_time_or_their_roles() -> None:
    def plan(name: str, **spec: Any) -> ScalePlan:
        body = {
            "metadata": {},
            "spec": {"jobName": "j", **spec},
            "status": {"drainingPods": [name]},
        }
        return msgspec.convert(body, ScalePlan)

    plans = [
        plan("j-worker-1"),
        plan("j-worker-2-3", drainSeconds=7),
        plan("j-worker-0", drainSeconds=0),
    ]
    found = job_spec.draining(job(drainSeconds=20), plans)
    assert found == {"j-worker-1": 20.0, "j-worker-2-3": 7.0, "j-worker-0": 0.0}


def test_a_role_whose_name_begins_with_anothers_has_its_own_time_to_leave() -> None:
    roles = {
        name: {"drainSeconds": seconds, "template": {}}
        for name, seconds in (("worker", 20), ("worker-big", 90))
    }
    both = msgspec.convert(
        {"metadata": {"name": "j"}, "spec": {"framework": "custom", "replicaSpecs": roles}},
        ElasticJob,
    )
    body = {
        "metadata": {},
        "spec": {"jobName": "j"},
        "status": {"drainingPods": ["j-worker-0", "j-worker-big-0"]},
    }
    found = job_spec.draining(both, [msgspec.convert(body, ScalePlan)])
    assert found == {"j-worker-0": 20.0, "j-worker-big-0": 90.0}


def test_progress_is_written_for_programs_and_for_people() -> None:
    progress = Progress()
    assert progress_status(progress, 0.0) == {}
    progress.add_report(
        "a", StepReport(1, 5, 10, 1234.0, 1.0, {"loss": 0.123456789}), now=0.0, wall=0.0
    )
    progress.add_report("a", StepReport(1, 6, 10, 1234.0, 1.0), now=1.0, wall=1.5)
    assert progress_status(progress, 1.0) == {
        "step": 6,
        "totalSteps": 10,
        "samplesPerSecond": 1230.0,
        "etaSeconds": 4,
        "eta": "4s",
        "lastReportTime": "1970-01-01T00:00:01Z",
        "metrics": {"loss": 0.123457},
        "rate": "1.2k/s",
        "steps": "6/10",
    }


def test_findings_are_written_within_the_bounds_of_the_schema() -> None:
    progress = Progress()
    assert progress_status(progress, 0.0, unfit={"j-worker-1": "no GPU"}) == {
        "unfit": {"j-worker-1": "no GPU"}
    }
    progress.add_report("a", StepReport(1, 5, seconds=1.0), now=0.0, wall=60.0)
    pods = [f"j-worker-{n:03}" for n in range(200)]
    written = progress_status(
        progress,
        0.0,
        stalled_since=60.0,
        stragglers=pods,
        unfit=dict.fromkeys(pods, "x" * 5000),
        process_restarted="j-worker-0: restart 1" * 100,
    )
    assert written["processRestarted"].startswith("j-worker-0: restart 1")
    assert (written["step"], written["stalledSince"]) == (5, "1970-01-01T00:01:00Z")
    assert written["stragglers"] == list(written["unfit"]) == pods[:100]
    assert len(written["unfit"][pods[0]]) == 1024
    msgspec.convert(written, elasticjob.Progress)

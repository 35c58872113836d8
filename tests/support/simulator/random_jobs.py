"""Random jobs: their roles, how these start, fail and end, and what their members need."""

from __future__ import annotations

import random

from elasticjob_api.meta import Json

from tests.support.simulator.cluster import job_body

NODE_PROBLEM = "Sick"
"""The type of the condition that nodes get, and that some jobs name."""
_ROLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("jax", ("worker",)),
    ("jax", ("worker",)),
    ("tensorflow", ("ps", "worker")),
    ("tensorflow", ("chief", "worker")),
    ("horovod", ("launcher", "worker")),
    ("horovod", ("launcher", "worker")),
    ("custom", ("worker", "store")),
)
_SINGLE = ("chief", "launcher")


def random_job(rng: random.Random) -> Json:
    """Return the manifest of a job."""
    framework, roles = rng.choice(_ROLES)
    policy: Json = {"backoffLimit": rng.choice((1, 10, 1000, 1000, 1000))}
    policy |= rng.choice(({}, {"startPolicy": "AllReady"}))
    policy |= rng.choice(({}, {"cleanPodPolicy": "All"}, {"cleanPodPolicy": "None"}))
    policy |= rng.choice(({}, {}, {}, {"ttlSecondsAfterFinished": rng.choice((0, 60))}))
    policy |= rng.choice(
        ({},) * 9
        + ({"activeDeadlineSeconds": 200}, {"pendingDeadlineSeconds": 40}, {"suspend": True})
    )
    policy |= rng.choice(({},) * 3 + ({"retry": _random_retry(rng)},))
    policy |= rng.choice(({}, {"planHistoryLimit": rng.choice((0, 1, 3))}))
    policy |= {"allowScripts": rng.random() < 0.85}
    policy |= rng.choice(({}, {"replaceOnNodeConditions": node_conditions(rng)}))
    specs = {role: _random_role(rng, role) for role in roles}
    if len(roles) > 1 and rng.random() < 0.4:
        first, second = rng.sample(roles, 2)
        specs[second]["dependsOn"] = [first]
    if framework == "horovod":
        del specs["worker"]["template"]["spec"]["containers"][0][
            "command"
        ]  # the launcher starts the training there
    limits = rng.choice(({}, {}, {"cpu": "8"}))
    spec: Json = {"framework": framework, "runPolicy": policy, "replicaSpecs": specs}
    spec["autoscaling"] = {"resourceLimits": limits} | rng.choice(({}, {}, {"resize": "Replace"}))
    spec["master"] = {"restartLimit": rng.choice((0, 1000, 1000, 1000))}
    spec["master"] |= rng.choice(({}, {"podForceDeleteSeconds": 10}))
    return {**job_body(1, 1, None), "spec": spec}


def random_rule(rng: random.Random) -> Json:
    """Return a restart rule, of a job or of the cluster."""
    rule: Json = {
        "action": rng.choice(("Ignore", "Restart", "RestartWithMoreMemory", "FailJob")),
        "exitCodes": [rng.choice((1, 3))],
    }
    return rule | rng.choice(
        ({}, {"minDelaySeconds": 400}, {"minDelaySeconds": 1, "maxDelaySeconds": 60})
    )


def node_conditions(rng: random.Random) -> list[Json]:
    """Return the conditions of nodes that members shall leave."""
    return [{"type": NODE_PROBLEM, "seconds": rng.choice((0, 5, 40))}]


def _random_retry(rng: random.Random) -> Json:
    retry: Json = {"policy": rng.choice(("OnFailure", "OnTransient", "Always"))}
    retry |= rng.choice(({}, {"limit": rng.choice((0, 1, 3))}))
    return retry | rng.choice(
        ({}, {"minDelaySeconds": 0}, {"minDelaySeconds": 5, "maxDelaySeconds": 60})
    )


def _random_role(rng: random.Random, role: str) -> Json:
    size = 1 if role in _SINGLE else rng.randrange(1, 6)
    spec: Json = job_body(size, rng.randrange(0, size + 1), size + rng.randrange(0, 5))["spec"]
    found: Json = spec["replicaSpecs"]["worker"]
    found |= {
        "restartLimit": rng.choice((0, 3, 1000, 1000, 1000)),
        "drainSeconds": rng.choice((0, 5, 30)),
    }
    found |= rng.choice(({}, {}, {"podForceDeleteSeconds": rng.choice((0, 20))}))
    found |= rng.choice(
        ({},) * 5 + ({"completion": {"minSucceeded": 1}}, {"completion": {"minFailed": 2}})
    )
    found |= rng.choice(({},) * 5 + ({"restartRules": [random_rule(rng)]},))
    if role == "store":
        found |= {"agent": "None"} | rng.choice(({}, {"restartOnSuccess": True, "completion": {}}))
    if rng.random() < 0.3:
        claimed = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        found["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claimed}]
        found["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": rng.choice(("Delete", "Retain"))
        }
    return found

"""Jobs, plans and requests in any number, as what one user may write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.scale_requests import ScaleIn, ScaleOut
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_operator.core.model.observed import Defaults

NOW = 1_800_000_000.0
DEFAULTS = Defaults(master_image="m:1", agent_image="a:1")
API_VERSION = "elasticjob.dev/v1alpha1"


def metadata(name: str, **more: Any) -> Json:
    created = {"creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    return {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        **created,
        **more,
    }


def running_job(members: int = 2, *, template: Json | None = None, **spec: Any) -> ElasticJob:
    """Return a job that has begun, and has no pods yet."""
    container = {"name": "train", "image": "i:1", "command": ["train"]}
    worker = {"template": template or {"spec": {"containers": [container]}}, "replicas": members}
    replica = {"desired": members, "indices": f"0-{members - 1}", "highestIndex": -1}
    body = {
        "metadata": metadata("job"),
        "spec": {"framework": "jax", "replicaSpecs": {"worker": worker}, **spec},
        "status": {"phase": "Running", "replicaStatuses": {"worker": replica}},
    }
    return msgspec.convert(body, ElasticJob)


def scale_outs(number: int, **status: Any) -> tuple[ScaleOut, ...]:
    return tuple(
        msgspec.convert(
            {
                "metadata": metadata(f"out-{n:05}"),
                "spec": {"jobName": "job", "count": 1},
                "status": status,
            },
            ScaleOut,
        )
        for n in range(number)
    )


def scale_ins(number: int) -> tuple[ScaleIn, ...]:
    return tuple(
        msgspec.convert(
            {"metadata": metadata(f"in-{n:05}"), "spec": {"jobName": "job", "count": 1}}, ScaleIn
        )
        for n in range(number)
    )


def plans(number: int, owners: Sequence[ScaleOut] = ()) -> tuple[ScalePlan, ...]:
    made = []
    for n in range(number):
        references = [
            {
                "apiVersion": API_VERSION,
                "kind": "ScaleOut",
                "name": owner.metadata.name,
                "uid": owner.metadata.uid,
                "controller": True,
            }
            for owner in owners[n : n + 1]
        ]
        body = {
            "metadata": metadata(f"plan-{n:05}", ownerReferences=references),
            "spec": {"jobName": "job", "createPods": [{}]},
        }
        made.append(msgspec.convert(body, ScalePlan))
    return tuple(made)


def template_of(variables: int = 0, *, containers: int = 1, value: str = "") -> Json:
    env = [{"name": f"V{n}", "value": value} for n in range(variables)]
    first = {"name": "train", "image": "i:1", "command": ["train"], "env": env}
    others = [{"name": f"c{n}", "image": "i:1"} for n in range(1, containers)]
    return {"spec": {"containers": [first, *others]}}

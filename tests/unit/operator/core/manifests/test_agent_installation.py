"""Tests how the agent is installed into a member's pod, and the names that it reserves there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_policies import AgentSource
from elasticjob_api.meta import Json
from elasticjob_operator import config
from elasticjob_operator.core.manifests.pods import member_pod
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.model.observed import Defaults


def job(spec: Json | None = None, *, agent: Json | None = None, **container: Any) -> ElasticJob:
    main = {"name": "train", "image": "i:1", "command": ["a"], **container}
    body = {
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {
            "framework": "custom",
            "agent": agent or {},
            "replicaSpecs": {
                "worker": {"template": {"spec": {"containers": [main], **(spec or {})}}}
            },
        },
    }
    return msgspec.convert(body, ElasticJob)


def member_of(made: ElasticJob, resources: Json | None = None) -> Json:
    defaults = Defaults("m:1", "a:1")
    return member_pod(
        made, "worker", 0, 0, resources=resources or {}, restarts=0, defaults=defaults
    )


def pod(made: ElasticJob, resources: Json | None = None) -> Json:
    spec: Json = member_of(made, resources)["spec"]
    return spec


def test_the_agent_is_installed_first_without_rights_and_is_read_only_for_the_user() -> None:
    mine = {"name": "mine", "image": "i:1"}
    made = pod(job({"initContainers": [mine], "securityContext": {"runAsUser": 0}}))
    install, other = made["initContainers"]
    assert other == mine
    assert install["command"] == ["elasticjob-agent", "install", "/elasticjob/agent"]
    security = install["securityContext"]
    assert (
        security["runAsNonRoot"],
        security["runAsUser"],
        security["readOnlyRootFilesystem"],
    ) == (True, 65532, True)
    assert (security["capabilities"], security["allowPrivilegeEscalation"]) == (
        {"drop": ["ALL"]},
        False,
    )
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert made["containers"][0]["volumeMounts"] == [
        {"name": names.AGENT, "mountPath": "/elasticjob", "readOnly": True}
    ]
    assert made["volumes"] == [{"name": names.AGENT, "emptyDir": {"sizeLimit": "256Mi"}}]


def test_an_image_that_has_the_agent_gets_neither_container_nor_volume() -> None:
    made = pod(job(agent={"source": "Image"}))
    assert made["containers"][0]["command"] == ["elasticjob-agent", "run", "--"]
    assert not {"initContainers", "volumes"} & set(made)


def test_an_image_volume_brings_the_agent_without_a_container_a_copy_or_a_local_volume() -> None:
    mine = {"name": "mine", "image": "i:1"}
    copied = pod(job({"initContainers": [mine]}))
    whole = member_of(job({"initContainers": [mine]}, agent={"source": "ImageVolume"}))
    mounted = whole["spec"]
    assert mounted["initContainers"] == [mine]
    assert mounted["volumes"] == [{"name": names.AGENT, "image": {"reference": "a:1"}}]
    assert mounted["containers"] == copied["containers"], "the agent is at the same path"
    local = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    assert local not in whole["metadata"]["annotations"]
    assert local in member_of(job())["metadata"]["annotations"]
    mine_too = pod(job(agent={"source": "ImageVolume", "image": "mine:4"}))
    assert mine_too["volumes"][0]["image"] == {"reference": "mine:4"}
    assert "initContainers" not in mine_too


@pytest.mark.parametrize(
    ("given", "installs"),
    [
        ({}, {}),
        (
            {"requests": {"cpu": "100m", "memory": "1Gi"}},
            {"requests": {"cpu": "100m", "memory": "128Mi"}},
        ),
        (
            {
                "requests": {"cpu": 2, "memory": "64Mi"},
                "limits": {"cpu": 2, "memory": "64Mi", "nvidia.com/gpu": 1},
            },
            {
                "requests": {"cpu": "500m", "memory": "64Mi"},
                "limits": {"cpu": "500m", "memory": "64Mi"},
            },
        ),
        (
            {"limits": {"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"}},
            {"limits": {"ephemeral-storage": "256Mi"}},
        ),
        ({"limits": {"nvidia.com/gpu": 1}}, {"limits": {}}),
    ],
)
def test_the_init_container_takes_of_what_the_container_is_given_and_never_more(
    given: Json, installs: Json
) -> None:
    assert pod(job(resources=given))["initContainers"][0]["resources"] == installs


def test_a_plans_resources_count_for_the_init_container_too() -> None:
    made = pod(
        job(resources={"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}}),
        {"memory": "96Mi"},
    )
    assert made["initContainers"][0]["resources"] == {
        "requests": {"memory": "96Mi"},
        "limits": {"memory": "96Mi"},
    }


@pytest.mark.parametrize(
    ("field", "made"),
    [
        (
            "initContainers[1].name",
            job({"initContainers": [{"name": "mine"}, {"name": "elasticjob-agent"}]}),
        ),
        ("containers[0].name", job(name="elasticjob-agent")),
        ("volumes[0].name", job({"volumes": [{"name": "elasticjob-agent", "emptyDir": {}}]})),
        (
            "containers[0].volumeMounts[0].mountPath",
            job(volumeMounts=[{"name": "v", "mountPath": "/elasticjob/"}]),
        ),
        (
            "containers[0].volumeMounts[1].mountPath",
            job(volumeMounts=[{}, {"name": "v", "mountPath": "/elasticjob/x"}]),
        ),
    ],
)
def test_a_template_that_takes_the_agents_names_is_refused_by_its_field(
    field: str, made: ElasticJob
) -> None:
    why = validation_error(made)
    assert why is not None
    assert why.startswith(f"spec.replicaSpecs.worker.template.spec.{field}: ")
    assert validation_error(with_source(made, "ImageVolume")) == why
    assert validation_error(with_source(made, "Image")) is None, (
        "they are the user's where nothing is installed"
    )


def with_source(made: ElasticJob, source: AgentSource) -> ElasticJob:
    agent = msgspec.structs.replace(made.spec.agent, source=source)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, agent=agent))


def test_a_mount_next_to_the_agents_directory_belongs_to_the_user() -> None:
    assert validation_error(job(volumeMounts=[{"name": "v", "mountPath": "/elasticjobs"}])) is None


def test_the_agent_comes_with_the_master_unless_configured_otherwise() -> None:
    assert config.parse([]).agent_image == config.DEFAULT_MASTER_IMAGE
    assert config.parse(["--master-image", "m:2"]).agent_image == "m:2"
    assert config.parse(["--master-image", "m:2", "--agent-image", "a:3"]).agent_image == "a:3"
    assert pod(job())["initContainers"][0]["image"] == "a:1"
    assert pod(job(agent={"image": "mine:4"}))["initContainers"][0]["image"] == "mine:4"


def test_a_job_that_keeps_checkpoints_in_memory_gets_a_volume_and_its_size() -> None:
    made = pod(job(agent={"source": "Image", "stateMemory": "2Gi"}))
    assert made["volumes"] == [
        {"name": names.STATE, "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}
    ]
    (container,) = made["containers"]
    assert container["volumeMounts"] == [{"name": names.STATE, "mountPath": names.STATE_DIRECTORY}]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables[names.ENV_STATE_FOLDER] == names.STATE_DIRECTORY
    assert variables[names.ENV_STATE_BYTES] == str(2 << 30)
    assert names.ENV_PEER_IDENTITY in variables


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (job(agent={"stateMemory": "1Ki"}), "1Ki must be 1Mi to 16Ti"),
        (job(agent={"stateMemory": "1Pi"}), "1Pi must be 1Mi to 16Ti"),
        (
            job(agent={"stateMemory": "4Gi"}, resources={"limits": {"memory": "4Gi"}}),
            "4Gi must be below the 4Gi of limits.memory",
        ),
        (
            job({"volumes": [{"name": names.STATE}]}, agent={"stateMemory": "4Gi"}),
            "the pod has a volume 'elasticjob-state'",
        ),
        (
            job(
                agent={"stateMemory": "4Gi"},
                volumeMounts=[{"name": "v", "mountPath": f"{names.STATE_DIRECTORY}/"}],
            ),
            "the first container mounts a volume at /elasticjob-state",
        ),
    ],
)
def test_memory_for_checkpoints_that_members_cannot_have_is_refused(
    made: ElasticJob, why: str
) -> None:
    error = validation_error(made)
    assert error is not None
    assert error.startswith(f"spec.agent.stateMemory: {why}")

"""Makes the manifest of the master's pod."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_policies import MasterSpec
from elasticjob_api.meta import Json
from elasticjob_api.pod_identity import MemberIdentity

from elasticjob_operator.core.manifests.pods import from_secret, identity_variables, manifest
from elasticjob_operator.core.manifests.security_contexts import NON_ROOT, UNPRIVILEGED
from elasticjob_operator.core.model.observed import Defaults
from elasticjob_operator.core.traces import job_context

_TEMPORARY_DIRECTORY = "/dev/shm"  # noqa: S108
"""Where masters of any version write temporary files: every container has it, and it is in memory.
"""

_MEMORY = 336 * 1024
_MEMORY_OF_A_MEMBER = 176
"""What a master may need, in KiB: 64 MiB, and 128 KiB for each member, and with them the most that
the open calls of its clients may hold (connection_limits.py of the master).
"""
_MEMORY_STEP = 512 * 1024
"""The default limit, in KiB, which is enough for 1,000 members."""


def _master_probe(path: str, *, period: int, failures: int) -> Json:
    request = {"path": path, "port": names.HTTP_PORT, "scheme": "HTTPS"}
    return {
        "httpGet": request,
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


_MASTER_PROBES: Json = {
    "startupProbe": _master_probe("/healthz", period=1, failures=120),
    # A process that hangs ignores SIGTERM: with the grace period of the pod it would be kept for
    # too long.
    "livenessProbe": {
        **_master_probe("/healthz", period=5, failures=4),
        "terminationGracePeriodSeconds": 5,
    },
    "readinessProbe": _master_probe("/readyz", period=2, failures=3),
}
"""A master that hangs ends after 30 s; a slow node gets two minutes to start it."""


def master_pod(
    job: ElasticJob,
    incarnation: int,
    *,
    restarts: int,
    uncounted_restarts: int = 0,
    defaults: Defaults,
) -> Json:
    """Return the manifest of the master's pod; its host name is the same in every incarnation."""
    name = names.master_service(job.metadata.name)
    master = job.spec.master
    template_spec = master.template.get("spec") or {}
    secret_env = (
        (names.ENV_TOKEN, names.SECRET_TOKEN),
        (names.ENV_CA, names.SECRET_CA),  # only for an earlier master, which requires it
        (names.ENV_TLS_CERT, names.SECRET_CERT),
        (names.ENV_TLS_KEY, names.SECRET_KEY),
    )
    container = {
        "name": names.ROLE_MASTER,
        "image": master.image or defaults.master_image,
        "command": ["elasticjob-master"],
        "env": [
            *identity_variables(job),
            {"name": names.ENV_FRAMEWORK, "value": job.spec.framework},
            {"name": "TMPDIR", "value": _TEMPORARY_DIRECTORY},
            # Not an option, which an earlier master would refuse.
            {"name": names.ENV_LOG_FORMAT, "value": defaults.log_format},
            *_traces(job, defaults),
            *_prices(defaults),
            *(from_secret(variable, name, key) for variable, key in secret_env),
        ],
        "ports": [
            {"name": "grpc", "containerPort": names.GRPC_PORT},
            {"name": "http", "containerPort": names.HTTP_PORT},
        ],
        "resources": _resources(job),
        "securityContext": UNPRIVILEGED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_master_probes(template_spec),
    }
    return manifest(
        job,
        MemberIdentity(names.ROLE_MASTER, -1, incarnation),
        names.master_pod(job.metadata.name, incarnation),
        master.template,
        annotations={
            names.ANNOTATION_RESTARTS: str(restarts),
            names.ANNOTATION_UNCOUNTED: str(uncounted_restarts),
            names.ANNOTATION_CONTAINER: names.ROLE_MASTER,
        },
        spec={
            **template_spec,
            "securityContext": {**NON_ROOT, **(template_spec.get("securityContext") or {})},
            "hostname": name,
            "restartPolicy": "Never",
            "serviceAccountName": name,
            "containers": [container],
        },
    )


def _traces(job: ElasticJob, defaults: Defaults) -> list[Json]:
    """Return the variables by which the master traces its job; none where nothing is traced."""
    context = job_context(job)
    if not defaults.collector or not context.sampled:
        return []
    variables = {**defaults.collector, names.ENV_TRACEPARENT: context.header}
    return [{"name": name, "value": value} for name, value in variables.items()]


def _prices(defaults: Defaults) -> list[Json]:
    if not defaults.prices:
        return []
    return [
        {"name": names.ENV_PRICES, "value": defaults.prices},
        {"name": names.ENV_CURRENCY, "value": defaults.currency},
    ]


def _resources(job: ElasticJob) -> Json:
    """Return the resources of the master; the default limit of memory follows the job's size."""
    resources = job.spec.master.resources
    members = sum(
        max(role.max_replicas or 0, role.replicas or role.min_replicas)
        for role in job.spec.replica_specs.values()
    )
    steps = -(-(_MEMORY + _MEMORY_OF_A_MEMBER * members) // _MEMORY_STEP)
    if resources != MasterSpec().resources or steps <= 1:
        return resources
    limits = {**resources["limits"], "memory": f"{_MEMORY_STEP * steps // 1024}Mi"}
    return {**resources, "limits": limits}


def _master_probes(template_spec: Json) -> Json:
    """Return the master's probes; those of the template's container `master` take precedence."""
    named = (
        each
        for each in template_spec.get("containers") or ()
        if each.get("name") == names.ROLE_MASTER
    )
    theirs: Json = next(named, {})
    return {kind: theirs.get(kind) or probe for kind, probe in _MASTER_PROBES.items()}

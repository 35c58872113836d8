"""Builds the admission policies for masters from the resource types.

They are needed because RBAC can restrict neither a patch to some fields nor a create to some names.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.meta import Json
from msgspec import structs

STATUS_POLICY = "elasticjob-masters-write-progress-only"
PLANS_POLICY = "elasticjob-masters-plan-for-their-own-job"
PROGRESS = "progress"
"""The only field of a job's status that its master may write."""
_MASTER_ACCOUNT = f"^system:serviceaccount:[^:]+:.+{names.master_service('')}$"
_BY_A_MASTER = {
    "name": "by-a-master",
    "expression": f"request.userInfo.username.matches('{_MASTER_ACCOUNT}')",
}


def policies() -> dict[str, tuple[Json, Json]]:
    """Return each policy and its binding, by name."""
    specs = {
        STATUS_POLICY: _of_masters("UPDATE", "elasticjobs/status", _only_progress()),
        PLANS_POLICY: _of_masters("CREATE", "scaleplans", _only_own_plans()),
    }
    return {name: (_named(name, "", spec), _binding(name)) for name, spec in specs.items()}


def _only_progress() -> list[Json]:
    """Return rules that each other field of the status stays the same."""
    fields = [field.encode_name for field in structs.fields(ElasticJobStatus)]
    return [
        _validation(
            f"object.?status.?{field} == oldObject.?status.?{field}",
            f"status.{field}: a master may change nothing of the status but status.{PROGRESS}",
        )
        for field in fields
        if field != PROGRESS
    ]


def _only_own_plans() -> list[Json]:
    job = "object.spec.jobName"
    account = (
        f"'system:serviceaccount:' + request.namespace + ':' + {job} + '{names.master_service('')}'"
    )
    own_labels = [names.LABEL_JOB_NAME, names.LABEL_JOB_UID]
    owned = f"o.apiVersion == '{names.API_VERSION}' && o.kind == 'ElasticJob' && o.name == {job}"
    uid = f"object.metadata.?labels['{names.LABEL_JOB_UID}']"
    return [
        _validation(
            f"request.userInfo.username == {account}",
            "spec.jobName: a master may ask for plans of its own job only",
        ),
        _validation(
            "object.spec.source == 'Auto'", "spec.source: a master's plans are of source Auto"
        ),
        _validation(
            f"object.metadata.name.startsWith({job} + '-auto-')",
            "metadata.name: a master's plans are named <job>-auto-<number>",
        ),
        _validation(
            f"object.metadata.?labels.orValue({{}}).all(key, key in {own_labels})"
            f" && object.metadata.?labels['{names.LABEL_JOB_NAME}'].orValue({job}) == {job}",
            f"metadata.labels: a master may set {' and '.join(own_labels)}, of its own job",
        ),
        _validation(
            f"object.metadata.?ownerReferences.orValue([]).all(o, {owned} && {uid}.orValue(o.uid) "
            "== o.uid)",
            "metadata.ownerReferences: the only owner a master may set is its own ElasticJob",
        ),
        _validation(
            "!has(object.metadata.finalizers) || size(object.metadata.finalizers) == 0",
            "metadata.finalizers: a master may set none",
        ),
    ]


def _validation(expression: str, message: str) -> Json:
    return {"expression": expression, "message": message}


def _of_masters(operation: str, resource: str, validations: list[Json]) -> Json:
    rule = {
        "apiGroups": [names.GROUP],
        "apiVersions": ["*"],
        "operations": [operation],
        "resources": [resource],
    }
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [_BY_A_MASTER],
        "validations": validations,
    }


def _binding(name: str) -> Json:
    return _named(name, "Binding", {"policyName": name, "validationActions": ["Deny"]})


def _named(name: str, suffix: str, spec: Json) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"ValidatingAdmissionPolicy{suffix}",
        "metadata": {"name": name},
        "spec": spec,
    }

"""Restart rules that the cluster's administrator gives for all jobs.

They are added to each role of a job, after its own rules, when the job is observed.
"""

from __future__ import annotations

from typing import Any

import msgspec
from elasticjob_api.elasticjob import ElasticJob, RestartRule
from msgspec.structs import replace

from elasticjob_operator.core.members.failure_policy import pattern_error

Rules = tuple[RestartRule, ...]
MAX_RULES = 64
_FIELDS = {field.encode_name for field in msgspec.structs.fields(RestartRule)}
_DELAYS = {"minDelaySeconds", "maxDelaySeconds"}


def read_rules(found: Any) -> Rules:
    """Return the rules of a list as it was read from YAML.

    Raises:
        ValueError: a rule cannot be; the message names field, value and bound of the first one.
    """
    if not isinstance(found, list):
        raise ValueError(
            "it is not a list of rules; write each as an entry of a list, beginning with a dash"
        )
    if len(found) > MAX_RULES:
        raise ValueError(f"{len(found)} rules are more than {MAX_RULES}")
    return tuple(_read_rule(entry, f"[{position}]") for position, entry in enumerate(found))


def with_cluster_rules(job: ElasticJob, rules: Rules) -> ElasticJob:
    """Return the job as if these were rules of its roles, after their own."""
    if not rules:
        return job
    roles = {
        role: replace(spec, restart_rules=[*spec.restart_rules, *rules])
        for role, spec in job.spec.replica_specs.items()
    }
    return replace(job, spec=replace(job.spec, replica_specs=roles))


def _read_rule(entry: Any, where: str) -> RestartRule:
    """Return one rule.

    A misspelled field is an error, since the rule would match too many failures.
    """
    if isinstance(entry, dict) and (
        unknown := sorted(str(key)[:40] for key in entry if key not in _FIELDS)
    ):
        raise ValueError(
            f"{where}.{unknown[0]}: no field of a rule; the fields are {', '.join(sorted(_FIELDS))}"
        )
    try:
        rule = msgspec.convert(entry, RestartRule)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {str(error)[:300]}") from error
    if not any(getattr(rule, field.name) for field in _conditions()):
        raise ValueError(
            f"{where}: a rule without a condition would decide about every failure of every job; "
            "add one"
        )
    if rule.max_delay_seconds is not None and rule.max_delay_seconds < rule.min_delay_seconds:
        raise ValueError(
            f"{where}.maxDelaySeconds: {rule.max_delay_seconds} is below minDelaySeconds, "
            f"{rule.min_delay_seconds}"
        )
    if why := pattern_error(rule):
        raise ValueError(f"{where}.{why}")
    return rule


def _conditions() -> list[msgspec.structs.FieldInfo]:
    every = msgspec.structs.fields(RestartRule)
    return [field for field in every if field.encode_name not in {"action", *_DELAYS}]
